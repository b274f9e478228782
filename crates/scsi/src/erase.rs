//! FORMAT UNIT and SANITIZE (SBC-3 5.3, 5.21): operations on the whole medium, carried out in steps that the medium
//! can take. While one runs the unit is not ready and says how far it is; when one ends early, by an error or because
//! its task was aborted, the unit stays unusable until it is repeated.
//!
//! IMMED is accepted and the status still comes last. Left out: defect lists and initialization patterns (refused),
//! SANITIZE by overwriting or cryptographic erase (not in the command table).

use std::sync::Arc;

use crate::execution::{After, Execution, MediumPlan, Request};
use crate::logical_unit::LogicalUnit;
use crate::medium::MediumOp;
use crate::outcome::Status;
use crate::sense::{Asc, SenseData, SenseKey, SenseSpecific};
use crate::state::Operation;

/// What erases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EraseKind {
    Format,
    Sanitize,
}

impl EraseKind {
    /// Sense while it runs.
    //= sbc3 4.16 SNS-04 FMT-01
    pub(crate) fn in_progress(self, progress: u16) -> SenseData {
        let asc = match self {
            Self::Format => Asc::FORMAT_IN_PROGRESS,
            Self::Sanitize => Asc::SANITIZE_IN_PROGRESS,
        };
        SenseData { specific: SenseSpecific::Progress(progress), ..SenseData::new(SenseKey::NotReady, asc) }
    }

    /// Sense after it ended early.
    //= sbc3 5.3.1 FMT-02 SAN-01
    pub(crate) fn failed(self) -> SenseData {
        let asc = match self {
            Self::Format => Asc::MEDIUM_FORMAT_CORRUPTED,
            Self::Sanitize => Asc::SANITIZE_COMMAND_FAILED,
        };
        SenseData::new(SenseKey::MediumError, asc)
    }
}

/// Where an erasure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Erasure {
    kind: EraseKind,
    /// Zeros are being written over the data; else the blocks are being deallocated.
    overwrite: bool,
    next_lba: u64,
    blocks: u64,
}

/// FMTPINFO, LONGLIST, FMTDATA in byte 1 of the CDB.
const LONG_LIST_BIT: u8 = 5;
const FORMAT_DATA_BIT: u8 = 4;

//= sbc3 5.3 PI-14
pub(crate) fn format_unit(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    if cdb.u8(1) >> 6 != 0 {
        return Execution::check(SenseData::cdb_field(1, Some(7)));
    }
    if !cdb.bit(1, FORMAT_DATA_BIT) {
        return start(request, EraseKind::Format);
    }
    let header = if cdb.bit(1, LONG_LIST_BIT) { 8 } else { 4 };
    Execution::parameters(request, header, format_list)
}

fn format_list(request: &Request<'_>, list: &[u8]) -> Execution {
    let long = request.cdb.bit(1, LONG_LIST_BIT);
    let (usage, flags) = (list[0] & 0x07, list[1]);
    let length_at = if long { 4 } else { 2 };
    let wrong = |byte: u16, bit: Option<u8>| Execution::check(SenseData::parameter_field(byte, bit));
    if usage != 0 {
        return wrong(0, Some(2));
    }
    // FOV 0 rules out the other options; an initialization pattern is not supported.
    if flags & 0x80 == 0 && flags & 0x78 != 0 {
        return wrong(1, Some(7));
    }
    if flags & 0x08 != 0 {
        return wrong(1, Some(3));
    }
    if long && list[3] != 0 {
        return wrong(3, None);
    }
    if list[length_at..].iter().any(|&byte| byte != 0) {
        return wrong(length_at as u16, None);
    }
    start(request, EraseKind::Format)
}

//= sbc3 5.21 SAN-01
pub(crate) fn sanitize_block_erase(request: &Request<'_>) -> Execution {
    if request.cdb.u16(7) != 0 {
        return Execution::check(SenseData::cdb_field(7, None));
    }
    start(request, EraseKind::Sanitize)
}

/// Leaves the failed state, if the failed SANITIZE allowed that with AUSE; this server does not insist on it.
pub(crate) fn sanitize_exit_failure_mode(request: &Request<'_>) -> Execution {
    if request.cdb.u16(7) != 0 {
        return Execution::check(SenseData::cdb_field(7, None));
    }
    request.lu.with_state(|state| {
        if state.erase_failed == Some(EraseKind::Sanitize) {
            state.erase_failed = None;
        }
    });
    Execution::good()
}

fn start(request: &Request<'_>, kind: EraseKind) -> Execution {
    let lu = request.lu;
    let alive = Arc::new(());
    lu.with_state(|state| {
        state.operation = Some(Operation { kind, alive: Arc::downgrade(&alive), progress: 0 });
        state.erase_failed = None;
    });
    let overwrite = kind == EraseKind::Sanitize || !lu.config().thin;
    Erasure { kind, overwrite, next_lba: 0, blocks: lu.blocks() }.step(lu).keeping(alive)
}

impl Erasure {
    /// The next medium operation, or the end.
    pub(crate) fn step(mut self, lu: &LogicalUnit) -> Execution {
        if self.next_lba >= self.blocks && self.overwrite && lu.config().thin {
            self.overwrite = false;
            self.next_lba = 0;
        }
        let left = self.blocks.saturating_sub(self.next_lba);
        let lba = self.next_lba;
        let blocks = left.min(lu.config().limits.max_write_same_blocks.max(1));
        if blocks == 0 {
            lu.with_state(|state| state.operation = None);
            return Execution::good();
        }
        self.next_lba = lba + blocks;
        let done = u128::from(lba) << 16;
        let progress = u16::try_from(done / u128::from(self.blocks)).unwrap_or(u16::MAX);
        lu.with_state(|state| {
            if let Some(operation) = &mut state.operation {
                operation.progress = progress;
            }
        });
        let op = MediumOp::WriteSame { lba, blocks, unmap: !self.overwrite, zero: true, durable: true };
        Execution::medium(op, MediumPlan { transfer_bytes: 0, good: Status::Good, after: After::Erase(self) })
    }

    /// The medium failed.
    pub(crate) fn fail(self, lu: &LogicalUnit) -> Execution {
        lu.with_state(|state| {
            state.operation = None;
            state.erase_failed = Some(self.kind);
        });
        Execution::check(self.kind.failed())
    }
}
