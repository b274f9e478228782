//! What a session reports to its caller: things to do, events, and why it ends.

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{Cid, Lun, RejectReason, TmfResponse};

use super::address::TargetAddress;
use super::command::{Command, Completion};
use crate::error::{Fault, ProtocolViolation};
use crate::names::IscsiName;
use crate::pdu_writer::TxPdu;

/// Why a session, or one connection of it, is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We logged out.
    #[error("logged out")]
    LoggedOut,
    /// The target requested the logout (RFC 7143 11.9.1, event 1).
    #[error("the target asked us to log out")]
    TargetAsked,
    /// The target announced that it drops the connection or the session (events 2 and 3).
    #[error("the target dropped the session")]
    TargetDropped,
    /// The target broke a rule.
    #[error("the target breaks the protocol: {0}")]
    Violation(#[from] ProtocolViolation),
    /// A response, not just data, did not match its data digest: its content is lost (RFC 7143 7.8).
    #[error("the data digest of a response does not match (RFC 7143 7.8)")]
    DataDigest,
    /// The target did not resend what was requested (RFC 7143 7.9, 11.16).
    #[error("the target does not send again what was lost (RFC 7143 11.16)")]
    NotRecovered,
    /// The target did not answer a ping.
    #[error("the target was silent and did not answer a ping")]
    Silent,
    /// Neither ABORT TASK nor LOGICAL UNIT RESET brought an answer (RFC 7143 7.11).
    #[error("the target answered neither a command nor the functions to abort it")]
    Unresponsive,
    /// The caller requested I_T NEXUS RESET, which ends every connection (RFC 7144 6.3).
    #[error("the I_T nexus was reset (RFC 7144 6.3)")]
    NexusReset,
    /// The transport is gone.
    #[error("the connection was lost")]
    Lost,
}

impl CloseReason {
    /// The fault of the connection; `None` if no fault of the connection is the cause.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self {
            Self::DataDigest | Self::NotRecovered => Some(Fault::NotRecovered),
            Self::Silent | Self::Lost => Some(Fault::Lost),
            Self::Violation(_) => Some(Fault::Format),
            Self::LoggedOut
            | Self::TargetAsked
            | Self::TargetDropped
            | Self::Unresponsive
            | Self::NexusReset => None,
        }
    }
}

/// A protocol violation by the target.
pub(super) fn violation(rule: &'static str, what: impl Into<std::borrow::Cow<'static, str>>) -> CloseReason {
    CloseReason::Violation(ProtocolViolation::new(rule, what))
}

/// A target as SendTargets reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// iSCSI name.
    pub name: IscsiName,
    /// Where it can be reached; empty: at the portal that answered.
    pub addresses: Vec<TargetAddress>,
}

/// Something that the target reports without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A SCSI asynchronous event of a logical unit, with its sense data.
    Scsi {
        /// Logical unit.
        lun: Lun,
        /// Sense data.
        sense: Bytes,
    },
    /// The target requests a logout within this time; the session takes care of it.
    LogoutRequested(Duration),
    /// The tasks of a logical unit on one connection were terminated (RFC 7143 11.9.1, event 5).
    TasksTerminated(Lun),
    /// An event that this version has no use for.
    Ignored(iscsi_wire::AsyncEvent),
}

/// The answer to a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementAnswer {
    /// The target's response.
    pub response: TmfResponse,
    /// Additional Response Information (RFC 7144 6.2): for QUERY ASYNCHRONOUS EVENT the sense key, ASC and ASCQ.
    pub additional: [u8; 3],
}

/// A command that had not completed when its session ended.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The command.
    pub command: Command,
    /// It was sent: whether it was executed is not known.
    pub sent: bool,
}

/// What to do next; see [`super::session::InitiatorSession::poll_action`].
#[derive(Debug)]
pub enum Action {
    /// Send a PDU.
    Send {
        /// The connection to send it on.
        cid: Cid,
        /// The PDU.
        pdu: TxPdu,
    },
    /// Data of a command, in the order in which it arrives. That is the order of its bytes where DataPDUInOrder and
    /// DataSequenceInOrder are Yes; otherwise it is any, and no byte comes twice. It is valid only once the command has completed
    /// successfully, and as far as its completion says: up to there nothing is missing. A command that was started again delivers
    /// its data again, and the later data counts.
    DataIn {
        /// The caller's name for the command.
        user: u64,
        /// Offset in the command's data, bytes.
        offset: u32,
        /// The bytes, their digest verified.
        data: Bytes,
    },
    /// A command has completed.
    Completed(Completion),
    /// A task management function that the caller requested has ended; `None`: without an answer.
    Managed {
        /// The caller's name for it.
        user: u64,
        /// The target's answer.
        answer: Option<ManagementAnswer>,
    },
    /// A ping that the caller requested was answered, or can no longer be answered.
    Pong {
        /// The caller's name for it.
        user: u64,
        /// The data came back as it was sent, and its digest matched.
        intact: bool,
        /// Time between ping and answer.
        round_trip: Duration,
    },
    /// The answer to SendTargets.
    Targets(Vec<TargetRecord>),
    /// SendTargets was refused: by a Reject for this reason; `None`: in the target's answer, or its connection was lost.
    TextRefused(Option<RejectReason>),
    /// We declared another MaxRecvDataSegmentLength, and the target has accepted it.
    Declared {
        /// The connection for which it is in effect.
        cid: Cid,
        /// Bytes.
        max_recv_data_segment_length: u32,
    },
    /// A report of the target.
    Event(Event),
    /// Close the transport of one connection; the session continues. PDUs sent before may still go out.
    CloseConnection {
        /// The connection.
        cid: Cid,
        /// Why.
        reason: CloseReason,
    },
    /// Bring the connection `cid` back: log in with [`super::login::Join`] and the same CID, then call
    /// [`super::session::InitiatorSession::join`].
    Connect {
        /// Time to wait first.
        cid: Cid,
        /// Time to wait before.
        wait: Duration,
    },
    /// Close every connection: the session is over. PDUs sent before may still go out.
    Close {
        /// Why.
        reason: CloseReason,
        /// Time to wait before logging in again.
        wait: Duration,
    },
}
