//! What is asked of a session and how it ended.

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{Lun, RejectReason, TaskAttribute};
use smallvec::SmallVec;

pub use super::write_data::{WriteBuilder, WriteData};
use crate::error::ProtocolViolation;
pub use crate::pdu_writer::Assemble;

/// A SCSI command for a session.
#[derive(Clone, Debug)]
pub struct Command {
    /// The caller's name for it; comes back with data and completion.
    pub user: u64,
    /// Logical unit.
    pub lun: Lun,
    /// The CDB; what is beyond 16 bytes travels in an AHS.
    pub cdb: SmallVec<[u8; 32]>,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Most bytes of Data-In that are wanted.
    pub read_length: u32,
    /// Data-Out.
    pub write: WriteData,
    /// Time after which the command is aborted; zero waits for ever.
    pub timeout: Duration,
    /// Doing it twice is the same as doing it once: it may be begun anew when nobody knows whether it was carried out.
    pub idempotent: bool,
}

impl Command {
    /// A command with the CDB `cdb` and no data, which must not be carried out twice.
    pub fn new(lun: Lun, cdb: &[u8]) -> Self {
        Self {
            user: 0,
            lun,
            cdb: SmallVec::from_slice(cdb),
            attribute: TaskAttribute::Simple,
            read_length: 0,
            write: WriteData::default(),
            timeout: Duration::from_secs(30),
            idempotent: false,
        }
    }
}

/// Difference between what was expected and what was to be transferred, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// Both are the same.
    #[default]
    None,
    /// The command had less to transfer.
    Underflow(u32),
    /// The command had more to transfer.
    Overflow(u32),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The target carried it out and gave a SCSI status.
    Status {
        /// SCSI status code.
        status: u8,
        /// Sense data, when the status comes with it.
        sense: Bytes,
        /// Bytes of Data-In that count: what arrived, without what the residual says is none.
        data_in_bytes: u32,
        /// Residual of the transfer.
        residual: Residual,
    },
    /// The target failed to carry it out (iSCSI response code other than 0).
    TargetFailure {
        /// The response code.
        response: u8,
    },
    /// Data that arrived for it did not match its digest; none of it counts.
    DataDigest,
    /// The target refused its PDU.
    Rejected(RejectReason),
    /// It took too long and was aborted; whether it was carried out is not known.
    TimedOut,
    /// It was aborted together with others of its logical unit; whether it was carried out is not known.
    Aborted,
    /// Its connection was lost; whether it was carried out is not known, and doing it twice is not the same as doing it once.
    OutcomeUnknown,
    /// Another volume is behind its LUN than the one that it was meant for: it was not sent.
    OtherVolume,
    /// It cannot be sent as it is.
    Unsendable(ProtocolViolation),
}

/// A command that ended, with the command itself: who wants to repeat it needs no copy.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The command.
    pub command: Command,
    /// How it ended.
    pub ending: Ending,
}
