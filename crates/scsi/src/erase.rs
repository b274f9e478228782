//! FORMAT UNIT and SANITIZE (SBC-3 5.3, 5.21): operations on the whole medium, executed in steps small enough for the medium.
//! While one runs, the unit is not ready and reports the progress. If one ends early, the unit stays unusable until the
//! operation is repeated.
//!
//! ```text
//!            FORMAT UNIT, SANITIZE             done
//!   ready ─────────────────────────► running ───────► ready
//!     ▲  EXIT FAILURE MODE (AUSE)       │ the medium fails; the task of a FORMAT UNIT is aborted
//!     └───────────────────────────── failed ──► running, by the same command
//! ```
//!
//! With IMMED the status comes first and the rest continues without a task ([`Execution::take_remainder`]). A SANITIZE
//! continues even if its task is gone ([`Execution::outlives_task`]). Not supported: defect lists and initialization patterns
//! (rejected), SANITIZE by cryptographic erase (not in the command table: no store here has a key to discard).

use std::sync::Arc;

use bytes::Bytes;

use crate::execution::{Continuation, Execution, MediumPlan, Request};
use crate::logical_unit::LogicalUnit;
use crate::medium::{FormatMark, MediumError, MediumOp, MediumReply};
use crate::nexus::NexusId;
use crate::protection::ProtectionType;
use crate::readiness::{EraseKind, Operation};
use crate::sense::SenseData;

/// The progress of an erasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Erasure {
    kind: EraseKind,
    /// Zeros are being written over the data; if false, the blocks are being deallocated.
    overwrite: bool,
    /// How many times the pattern must still be written; 0 if there is no pattern.
    passes: u8,
    /// Each further pass writes the complement of the previous one.
    invert: bool,
    /// This pass writes the complement.
    inverted: bool,
    next_lba: u64,
    blocks: u64,
    /// Protection type that the unit will have. `None` unless the medium has room for protection information and is being
    /// formatted.
    becomes: Option<ProtectionType>,
    by: NexusId,
}

/// The options with which an operation starts.
#[derive(Clone, Copy, Default)]
struct Way {
    /// The status comes first.
    immediate: bool,
    /// AUSE.
    may_exit: bool,
    /// How many times the pattern is written.
    passes: u8,
    /// Every second pass is inverted.
    invert: bool,
}

impl Way {
    /// IMMED and AUSE of the CDB of SANITIZE. After a failure without AUSE only SANITIZE without it is accepted.
    //= sbc3 5.21 SAN-01
    fn sanitize(request: &Request<'_>) -> Result<Self, SenseData> {
        let may_exit = request.cdb.bit(1, AUSE_BIT);
        if may_exit && request.lu.with_state(|state| state.readiness.is_restricted()) {
            return Err(SenseData::cdb_field(1, Some(AUSE_BIT)));
        }
        Ok(Self { immediate: request.cdb.bit(1, IMMED_BIT), may_exit, ..Self::default() })
    }
}

/// IMMED and AUSE in byte 1 of the CDB of SANITIZE.
const IMMED_BIT: u8 = 7;
const AUSE_BIT: u8 = 5;

/// LONGLIST, FMTDATA in byte 1 of the CDB; FMTPINFO is above them.
const LONG_LIST_BIT: u8 = 5;
const FORMAT_DATA_BIT: u8 = 4;

//= sbc3 5.3 PI-14
pub(crate) fn format_unit(request: &Request<'_>) -> Execution {
    let cdb = request.cdb;
    let information = cdb.u8(1) >> 6;
    if information == 1 || (information != 0 && !request.lu.config().medium.protectable) {
        return Execution::check(SenseData::cdb_field(1, Some(7)));
    }
    if !cdb.bit(1, FORMAT_DATA_BIT) {
        return match format_type(information, 0) {
            Some(kind) => start(request, EraseKind::Format, kind, Way::default(), Bytes::new()),
            None => Execution::check(SenseData::cdb_field(1, Some(7))),
        };
    }
    let header = if cdb.bit(1, LONG_LIST_BIT) { 8 } else { 4 };
    Execution::parameters(request, header, format_list)
}

/// The type that FMTPINFO and PROTECTION FIELD USAGE select together (SBC-3 table 38).
//= sbc3 5.3.1 PI-14
fn format_type(information: u8, usage: u8) -> Option<ProtectionType> {
    match (information, usage) {
        (0, 0) => Some(ProtectionType::None),
        (2, 0) => Some(ProtectionType::Type1),
        (3, 0) => Some(ProtectionType::Type2),
        (3, 1) => Some(ProtectionType::Type3),
        _ => None,
    }
}

fn format_list(request: &Request<'_>, list: &[u8]) -> Execution {
    let long = request.cdb.bit(1, LONG_LIST_BIT);
    let (usage, flags) = (list[0] & 0x07, list[1]);
    let length_at = if long { 4 } else { 2 };
    let wrong = |byte: u16, bit: Option<u8>| Execution::check(SenseData::parameter_field(byte, bit));
    let Some(kind) = format_type(request.cdb.u8(1) >> 6, usage) else {
        return wrong(0, Some(2));
    };
    // With FOV 0 the other options must be 0; an initialization pattern is not supported.
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
    let way = Way { immediate: flags & 0x02 != 0, ..Way::default() };
    start(request, EraseKind::Format, kind, way, Bytes::new())
}

//= sbc3 5.21 SAN-01
pub(crate) fn sanitize_block_erase(request: &Request<'_>) -> Execution {
    if request.cdb.u16(7) != 0 {
        return Execution::check(SenseData::cdb_field(7, None));
    }
    match Way::sanitize(request) {
        Ok(way) => start(request, EraseKind::Sanitize, request.lu.protection(), way, Bytes::new()),
        Err(sense) => Execution::check(sense),
    }
}

/// INITIALIZATION PATTERN and the fields before it.
const OVERWRITE_HEADER_BYTES: usize = 4;

/// Writes a pattern over every block, as many times as the list specifies.
//= sbc3 5.21.2.2 SAN-01
pub(crate) fn sanitize_overwrite(request: &Request<'_>) -> Execution {
    let bytes = request.cdb.u16(7);
    let most = OVERWRITE_HEADER_BYTES as u32 + request.lu.block_bytes();
    if usize::from(bytes) <= OVERWRITE_HEADER_BYTES || u32::from(bytes) > most {
        return Execution::check(SenseData::cdb_field(7, None));
    }
    match Way::sanitize(request) {
        Ok(_) => Execution::parameters(request, u64::from(bytes), overwrite_list),
        Err(sense) => Execution::check(sense),
    }
}

fn overwrite_list(request: &Request<'_>, list: &[u8]) -> Execution {
    let (passes, test, invert) = (list[0] & 0x1f, list[0] & 0x60, list[0] & 0x80 != 0);
    let pattern = &list[OVERWRITE_HEADER_BYTES..];
    let wrong = |byte: u16, bit: Option<u8>| Execution::check(SenseData::parameter_field(byte, bit));
    if passes == 0 {
        return wrong(0, Some(4));
    }
    if test != 0 {
        return wrong(0, Some(6));
    }
    if usize::from(u16::from_be_bytes([list[2], list[3]])) != pattern.len() {
        return wrong(2, None);
    }
    let block: Vec<u8> = pattern.iter().copied().cycle().take(request.lu.block_bytes() as usize).collect();
    match Way::sanitize(request) {
        Ok(way) => {
            let way = Way { passes, invert, ..way };
            start(request, EraseKind::Sanitize, request.lu.protection(), way, Bytes::from(block))
        }
        Err(sense) => Execution::check(sense),
    }
}

/// Leaves the failed state, if the failed SANITIZE allowed it with AUSE.
//= sbc3 5.21 SAN-01
pub(crate) fn sanitize_exit_failure_mode(request: &Request<'_>) -> Execution {
    if request.cdb.u16(7) != 0 {
        return Execution::check(SenseData::cdb_field(7, None));
    }
    match request.lu.with_state(|state| state.readiness.leave_failed_sanitize()) {
        true => Execution::good(),
        false => Execution::check(SenseData::cdb_field(1, Some(4))),
    }
}

fn start(
    request: &Request<'_>,
    kind: EraseKind,
    becomes: ProtectionType,
    way: Way,
    pattern: Bytes,
) -> Execution {
    let lu = request.lu;
    let alive = Arc::new(());
    let busy = lu.with_state(|state| {
        // Another operation may have started while the parameter list of this one was being transferred.
        if let Some(sense) = state.readiness.operation_in_progress() {
            return Some(sense);
        }
        let may_exit = way.may_exit;
        let alive = Arc::downgrade(&alive);
        state.readiness.begin(Operation { kind, alive, progress: 0, pattern, may_exit });
        None
    });
    if let Some(sense) = busy {
        return Execution::check(sense);
    }
    let overwrite = kind == EraseKind::Sanitize || !lu.thin();
    let becomes = (kind == EraseKind::Format && lu.config().medium.protectable).then_some(becomes);
    let erasure = Erasure {
        kind,
        overwrite,
        passes: way.passes,
        invert: way.invert,
        inverted: false,
        next_lba: 0,
        blocks: lu.blocks(),
        becomes,
        by: request.nexus.id,
    };
    let first = match becomes {
        //= sbc3 5.3.1 FMT-02
        Some(_) => erasure.then(MediumOp::Format(FormatMark::Begun)),
        None => erasure.step(lu),
    };
    let mut first = first.keeping(alive);
    if !way.immediate {
        return first;
    }
    first.finish(lu);
    Execution::good().before(first)
}

impl Erasure {
    /// The next medium operation, or the end.
    fn step(mut self, lu: &LogicalUnit) -> Execution {
        if self.next_lba >= self.blocks && self.passes > 1 {
            self.passes -= 1;
            self.inverted ^= self.invert;
            self.next_lba = 0;
        }
        // After a pattern nothing is deallocated: the blocks must read as the pattern.
        if self.next_lba >= self.blocks && self.passes == 0 && self.overwrite && lu.thin() {
            self.overwrite = false;
            self.next_lba = 0;
        }
        let left = self.blocks.saturating_sub(self.next_lba);
        let lba = self.next_lba;
        let blocks = left.min(lu.config().limits.max_write_same_blocks.max(1));
        if blocks == 0 {
            return match self.becomes {
                Some(kind) => Execution::medium(
                    MediumOp::Format(FormatMark::Ended(kind)),
                    MediumPlan::then(Formatted { by: self.by, protection: kind }),
                ),
                None => {
                    lu.with_state(|state| state.readiness.end());
                    Execution::good()
                }
            };
        }
        self.next_lba = lba + blocks;
        let done = u128::from(lba) << 16;
        let progress = u16::try_from(done / u128::from(self.blocks)).unwrap_or(u16::MAX);
        let mut pattern = lu.with_state(|state| state.readiness.advance(progress));
        let op = if self.passes == 0 {
            MediumOp::WriteSame { lba, blocks, unmap: !self.overwrite, zero: true, durable: true }
        } else {
            if self.inverted {
                pattern = pattern.iter().map(|byte| !byte).collect();
            }
            match pattern.iter().all(|&byte| byte == 0) {
                true => MediumOp::WriteSame { lba, blocks, unmap: false, zero: true, durable: true },
                false => MediumOp::Fill { lba, blocks, pattern, durable: true },
            }
        };
        self.then(op)
    }

    /// `op`, and then the next step.
    fn then(self, op: MediumOp) -> Execution {
        Execution::medium(op, MediumPlan::then(self))
    }
}

impl Continuation for Erasure {
    fn replied(self: Box<Self>, lu: &LogicalUnit, _reply: MediumReply) -> Execution {
        self.step(lu)
    }

    fn failed(self: Box<Self>, lu: &LogicalUnit, _error: MediumError) -> Execution {
        lu.with_state(|state| state.readiness.ended_early());
        Execution::check(self.kind.failed())
    }

    /// Task management, a reset or the loss of the nexus does not end SANITIZE.
    fn outlives_task(&self) -> bool {
        self.kind == EraseKind::Sanitize
    }
}

/// The medium is storing its new format.
#[derive(Debug)]
struct Formatted {
    by: NexusId,
    protection: ProtectionType,
}

impl Continuation for Formatted {
    fn replied(self: Box<Self>, lu: &LogicalUnit, _reply: MediumReply) -> Execution {
        lu.with_state(|state| state.readiness.end());
        lu.formatted(self.by, self.protection);
        Execution::good()
    }

    fn failed(self: Box<Self>, lu: &LogicalUnit, _error: MediumError) -> Execution {
        lu.with_state(|state| state.readiness.ended_early());
        Execution::check(EraseKind::Format.failed())
    }
}
