//! A command given to a session, and how it ended.

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
    /// The caller's name for it; returned with its data and its completion.
    pub user: u64,
    /// Logical unit.
    pub lun: Lun,
    /// The CDB; bytes beyond the first 16 travel in an AHS.
    pub cdb: SmallVec<[u8; 32]>,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Most bytes of Data-In that the caller wants.
    pub read_length: u32,
    /// Data-Out.
    pub write: WriteData,
    /// Time after which the command is aborted; zero waits for ever.
    pub timeout: Duration,
    /// Executing it twice is the same as executing it once: it may be started again when nothing shows whether it was executed.
    pub idempotent: bool,
}

impl Command {
    /// A command with the CDB `cdb` and no data, which must not be executed twice.
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

    /// The command as it is, which leaves one without CDB and data behind: only those two are more than a copy.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        let Self { user, lun, attribute, read_length, timeout, idempotent, .. } = *self;
        let (cdb, write) = (std::mem::take(&mut self.cdb), std::mem::take(&mut self.write));
        Self { user, lun, cdb, attribute, read_length, write, timeout, idempotent }
    }
}

/// Difference between the expected and the actual transfer length, bytes.
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
    /// The target executed it and returned a SCSI status.
    Status {
        /// SCSI status code.
        status: u8,
        /// Sense data, when the status comes with it.
        sense: Bytes,
        /// Valid bytes of Data-In: those that arrived, less what the residual says was not transferred.
        data_in_bytes: u32,
        /// Residual of the transfer.
        residual: Residual,
    },
    /// The target failed to execute it (iSCSI response code other than 0).
    TargetFailure {
        /// The response code.
        response: u8,
    },
    /// Data that arrived for it did not match its digest; none of it is valid.
    DataDigest,
    /// The target rejected its PDU.
    Rejected(RejectReason),
    /// It took too long and was aborted; whether it was executed is not known.
    TimedOut,
    /// It was aborted together with other commands; whether it was executed is not known.
    Aborted,
    /// Its connection was lost; whether it was executed is not known, and it must not be executed twice.
    OutcomeUnknown,
    /// Its LUN now leads to another volume than the one it was meant for: it was not sent.
    OtherVolume,
    /// It cannot be sent as it is.
    Unsendable(ProtocolViolation),
}

/// A completed command and how it ended. The command is returned, so that repeating it needs no copy.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The command.
    pub command: Command,
    /// How it ended.
    pub ending: Ending,
}
