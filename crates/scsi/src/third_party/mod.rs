//! Third-party copy: EXTENDED COPY and its relatives, and copies by token (SPC-4 5.17, 6.4, SBC-3 5.7, 5.46).
//!
//! The unit that receives a copy command is the copy manager. It finds the other units of the target through [`Neighbours`],
//! checks each segment on both sides, and requests the copy in pieces of [`PIECE_BYTES`]. So the command can be aborted between
//! pieces and holds no more memory than one piece.
//!
//! | module | its part |
//! |---|---|
//! | `extended_copy` | EXTENDED COPY (LID1, LID4) and COPY OPERATION ABORT: parameter lists |
//! | `cscd` | which unit a CSCD descriptor means |
//! | `token` | POPULATE TOKEN, WRITE USING TOKEN: representations of data |
//! | `run` | a copy in progress |
//! | `results` | RECEIVE COPY RESULTS in all its forms |
//! | `vpd` | VPD page 8Fh |
//!
//! Not supported: copies to and from streams, inline data, and copies to another target (all rejected with the code that the
//! standard has for it). IMMED is accepted, but the status still comes last, so that task management reaches every copy.

mod cscd;
mod extended_copy;
mod results;
mod run;
mod token;
pub(crate) mod vpd;

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::logical_unit::LogicalUnit;
use crate::nexus::NexusId;
use crate::sense::{Asc, SenseData};

pub(crate) use extended_copy::{copy_operation_abort, extended_copy_lid1, extended_copy_lid4};
pub(crate) use results::{
    copy_status_lid1, copy_status_lid4, failed_segment_details, operating_parameters, rod_token_information,
};
pub(crate) use token::{RodTokens, populate_token, write_using_token};

/// MAXIMUM CSCD DESCRIPTOR COUNT of one command.
const MAX_CSCDS: u16 = 16;
/// MAXIMUM SEGMENT DESCRIPTOR COUNT of one command.
const MAX_SEGMENTS: u16 = 64;
/// MAXIMUM DESCRIPTOR LIST LENGTH, bytes.
const MAX_LIST_BYTES: u32 = 32 * MAX_CSCDS as u32 + 28 * MAX_SEGMENTS as u32;
/// MAXIMUM SEGMENT LENGTH, bytes.
const MAX_SEGMENT_BYTES: u32 = 256 << 20;
/// MAXIMUM RANGE DESCRIPTORS of a token command.
const MAX_RANGES: u16 = 64;
/// MAXIMUM TOKEN TRANSFER SIZE, bytes.
const MAX_TOKEN_BYTES: u64 = 1 << 30;
/// Maximum number of bytes that one medium operation of a copy moves.
const PIECE_BYTES: u64 = 1 << 20;
/// Maximum number of copies in progress in one copy manager.
const MAX_CONCURRENT: u8 = 16;
/// Finished copies whose results a copy manager keeps.
const MAX_HELD: usize = 64;

/// The logical units of a target, as a copy manager finds them (SPC-4 5.17.3).
pub trait Neighbours: Send + Sync {
    /// Calls `f` with each unit of the target until it returns false. `f` must not call back into the implementor.
    fn each(&self, f: &mut dyn FnMut(&LogicalUnit) -> bool);
}

/// Calls `f` with the unit with this number in the target of `lu`.
pub(crate) fn with_unit<R>(lu: &LogicalUnit, lun: u16, f: impl FnOnce(&LogicalUnit) -> R) -> Option<R> {
    if lun == lu.config().lun {
        return Some(f(lu));
    }
    let neighbours = lu.neighbours()?;
    let (mut f, mut result) = (Some(f), None);
    neighbours.each(&mut |unit| {
        if unit.config().lun != lun {
            return true;
        }
        result = f.take().map(|f| f(unit));
        false
    });
    result
}

/// The progress of a copy.
///
/// ```text
///   Running ──last piece──► Completed
///     ├──a piece failed───► Failed
///     └──task aborted─────► Aborted
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Pieces are being copied.
    Running,
    /// Everything was copied.
    Completed,
    /// Everything that the token represents was copied, which is less than was requested.
    Residual,
    /// It ended with this sense.
    Failed(SenseData),
    /// Its task was aborted.
    Aborted,
}

/// A copy that a copy manager identifies by its list identifier.
#[derive(Debug)]
pub(crate) struct Record {
    nexus: NexusId,
    list_id: u32,
    service_action: u8,
    stage: Stage,
    /// Set to end the copy; dead when the command's execution was dropped before it completed.
    cancelled: Weak<AtomicBool>,
    segments: u16,
    bytes: u64,
    /// The token that POPULATE TOKEN made.
    token: Option<Box<token::RodToken>>,
}

impl Record {
    /// Ends the copy after the piece that the medium is busy with.
    fn cancel(&self) {
        if let Some(cancelled) = self.cancelled.upgrade() {
            cancelled.store(true, Ordering::Release);
        }
    }
}

/// The copies of a copy manager: those in progress, and the results that it holds.
#[derive(Debug, Default)]
pub(crate) struct Records(VecDeque<Record>);

impl Records {
    /// Records a new copy. The results of an earlier one with the same identifier are discarded.
    ///
    /// # Errors
    /// The identifier is in use by a copy that has not ended, or too many copies are in progress.
    //= spc4 5.17.4.3 CPY-04
    fn begin(&mut self, record: Record) -> Result<(), SenseData> {
        self.find_lost();
        let same = |r: &Record| r.nexus == record.nexus && r.list_id == record.list_id;
        if self.0.iter().any(|r| same(r) && r.stage == Stage::Running) {
            return Err(SenseData::illegal(Asc::OPERATION_IN_PROGRESS));
        }
        let running = self.0.iter().filter(|r| r.stage == Stage::Running).count();
        if record.stage == Stage::Running && running >= usize::from(MAX_CONCURRENT) {
            return Err(SenseData::new(crate::SenseKey::AbortedCommand, Asc::INSUFFICIENT_RESOURCES));
        }
        self.0.retain(|r| !same(r));
        while self.0.len() >= MAX_HELD {
            let Some(oldest) = self.0.iter().position(|r| r.stage != Stage::Running) else { break };
            self.0.remove(oldest);
        }
        self.0.push_back(record);
        Ok(())
    }

    /// The copy of this nexus with this identifier.
    fn find(&mut self, nexus: NexusId, list_id: u32) -> Option<&mut Record> {
        self.find_lost();
        self.0.iter_mut().find(|r| r.nexus == nexus && r.list_id == list_id)
    }

    fn forget(&mut self, nexus: NexusId, list_id: u32) {
        self.0.retain(|r| (r.nexus, r.list_id) != (nexus, list_id));
    }

    /// Copies whose execution no longer exists were aborted with their task.
    fn find_lost(&mut self) {
        for record in &mut self.0 {
            if record.stage == Stage::Running && record.cancelled.strong_count() == 0 {
                record.stage = Stage::Aborted;
            }
        }
    }
}
