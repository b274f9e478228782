//! What a target session requests from its surroundings, and their answers.

use bytes::Bytes;
use iscsi_wire::{Cid, Lun, TaskAttribute, TmfFunction};
pub use payload::Payload;
use smallvec::SmallVec;

pub use super::sense::Shortage;
use super::task::{DataOutPieces, TaskId};
use crate::pdu_writer::TxPdu;

/// A SCSI command that is ready to run.
#[derive(Clone, Debug)]
pub struct Command {
    /// Identifies it in the answers.
    pub task: TaskId,
    /// The logical unit addressed.
    pub lun: Lun,
    /// The CDB: 16 bytes, longer when an extended CDB came with it.
    pub cdb: SmallVec<[u8; 32]>,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command priority, 1 highest to 15, 0 for none; always 0 below iSCSIProtocolLevel 2.
    pub priority: u8,
    /// Most bytes of Data-In that the initiator accepts.
    pub read_length: u32,
    /// Bytes of Data-Out that the initiator has.
    pub write_length: u32,
    /// When data digests are on: compute a CRC32C for each run of this many bytes of Data-In while copying them.
    pub digest_chunk_bytes: Option<u32>,
}

/// How a command ended.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    /// SCSI status code.
    pub status: u8,
    /// Status qualifier (SAM-5 5.3.2); reaches the initiator at iSCSIProtocolLevel 2 only.
    pub status_qualifier: u16,
    /// Sense data; not empty with CHECK CONDITION.
    pub sense: Bytes,
    /// Data for the initiator.
    pub data_in: Payload,
    /// SCSI transfer length, bytes: what the command would transfer, whatever the initiator expected.
    pub transfer_bytes: u64,
    /// The status keeps its order among the responses of all connections (RFC 7143 4.2.2.3): set for PREEMPT AND ABORT.
    pub fenced: bool,
}

/// A task management function that reaches beyond this session's bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementRequest {
    /// Identifies it in the answer.
    pub id: ManagementId,
    /// The function requested.
    pub function: TmfFunction,
    /// The logical unit addressed; meaningless for target resets.
    pub lun: Lun,
}

/// Identifies a task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ManagementId(pub(super) u64);

/// The targets that a SendTargets request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every target that the initiator may see.
    All,
    /// The session's own target.
    Own,
    /// One by name.
    Name(String),
}

/// A target with its addresses, as SendTargets reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// iSCSI name.
    pub name: String,
    /// `host:port,tag` each.
    pub addresses: Vec<String>,
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The initiator logged out.
    Logout,
    /// The peer broke a rule.
    Violation(String),
    /// A newer login took its place.
    Replaced,
    /// The peer did not answer a ping, did not log out when requested, or made no progress while others waited for memory that it
    /// held.
    Silent,
    /// The caller ended the session.
    Ended,
    /// The initiator requested the loss of its nexus (RFC 7144 6.3).
    NexusReset,
}

/// What to do next; see [`super::session::TargetSession::poll_action`].
#[derive(Debug)]
pub enum Action {
    /// Send a PDU on a connection.
    Send {
        /// The connection.
        cid: Cid,
        /// The PDU.
        pdu: TxPdu,
    },
    /// Offer a command to the device server; answer with `need_data_out` or `complete`.
    Start(Command),
    /// A command's data has arrived, as far as the initiator has any; answer with `complete`.
    DataOut {
        /// The command.
        task: TaskId,
        /// Its data: what `need_data_out` requested, or fewer bytes when the initiator has no more.
        data: DataOutPieces,
    },
    /// The command is aborted: start no further work for it. Answer with `task_gone` once none of its work can touch the medium.
    Abandon {
        /// The command.
        task: TaskId,
    },
    /// Tell the logical unit that a command ends for lack of memory, which it may have to report later (UA_INTLCK, SPC-4 7.5.8). The
    /// unit saw nothing of the command, or an `Abandon`.
    Refused {
        /// The logical unit of the command.
        lun: Lun,
        /// With which status it ends.
        shortage: Shortage,
    },
    /// Execute a task management function; see [`super::session::TargetSession::abort_tasks`], `has_tasks` and `management_done`.
    Manage(ManagementRequest),
    /// The tasks that `abort_tasks` was told to abort are all gone.
    TasksGone {
        /// The token passed to that call.
        token: u64,
    },
    /// List targets; answer with `answer_send_targets`.
    SendTargets {
        /// Connection of the request.
        cid: Cid,
        /// Which ones.
        selector: Selector,
    },
    /// Close a connection once everything queued before has been sent.
    Close {
        /// The connection.
        cid: Cid,
        /// Why.
        reason: CloseReason,
    },
    /// The session is over and holds nothing any more: drop it.
    Ended,
}
