//! A copy in progress: segment by segment, piece by piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cscd::{self, Cscd};
use super::{PIECE_BYTES, Record, Stage, with_unit};
use crate::access::Access;
use crate::execution::{Continuation, Execution, MediumPlan};
use crate::logical_unit::LogicalUnit;
use crate::medium::{MediumError, MediumOp, MediumReply};
use crate::nexus::Nexus;
use crate::read_write::check_range;
use crate::sense::{Asc, SenseData, SenseKey};

/// Blocks to copy from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// `None`: zeros.
    pub(super) from: Option<(Cscd, u64)>,
    pub(super) to: (Cscd, u64),
    pub(super) blocks: u64,
}

impl Segment {
    /// Whether the pieces must be copied last to first, because the destination overlaps the end of the source.
    fn backwards(&self) -> bool {
        self.from.is_some_and(|(from, lba)| {
            from.lun == self.to.0.lun && self.to.1 > lba && self.to.1 - lba < self.blocks
        })
    }
}

/// A copy in progress.
#[derive(Debug)]
pub(super) struct CopyRun {
    nexus: Nexus,
    list_id: u32,
    /// False: the results will not be requested.
    recorded: bool,
    segments: Vec<Segment>,
    /// The segment being copied, and how many of its blocks are done.
    at: usize,
    done: u64,
    /// Blocks of the piece that the medium is busy with.
    piece: u64,
    bytes: u64,
    /// The data that a token represents has not changed.
    valid: Option<Arc<AtomicBool>>,
    last: Stage,
    /// Bytes of the parameter list.
    asked: u64,
    cancelled: Arc<AtomicBool>,
}

/// The parameters with which a copy starts.
pub(super) struct Begin {
    pub(super) list_id: u32,
    pub(super) recorded: bool,
    pub(super) service_action: u8,
    pub(super) segments: Vec<Segment>,
    pub(super) valid: Option<Arc<AtomicBool>>,
    /// The final stage if everything goes well.
    pub(super) last: Stage,
    pub(super) asked: u64,
}

impl Continuation for CopyRun {
    fn replied(self: Box<Self>, lu: &LogicalUnit, _reply: MediumReply) -> Execution {
        self.piece_done(lu)
    }

    fn failed(self: Box<Self>, lu: &LogicalUnit, error: MediumError) -> Execution {
        let cause = match error {
            MediumError::Gone => Asc::COPY_TARGET_DEVICE_NOT_REACHABLE,
            _ => Asc::THIRD_PARTY_DEVICE_FAILURE,
        };
        self.fail(lu, aborted(cause))
    }
}

impl CopyRun {
    /// Records a copy and starts it.
    pub(super) fn begin(lu: &LogicalUnit, nexus: &Nexus, begin: Begin) -> Execution {
        let cancelled = Arc::new(AtomicBool::new(false));
        let record = Record {
            nexus: nexus.id,
            list_id: begin.list_id,
            service_action: begin.service_action,
            stage: Stage::Running,
            cancelled: Arc::downgrade(&cancelled),
            segments: 0,
            bytes: 0,
            token: None,
        };
        if begin.recorded
            && let Err(sense) = lu.with_state(|state| state.copies.begin(record))
        {
            return Execution::check(sense);
        }
        let run = Self {
            nexus: nexus.clone(),
            list_id: begin.list_id,
            recorded: begin.recorded,
            segments: begin.segments,
            at: 0,
            done: 0,
            piece: 0,
            bytes: 0,
            valid: begin.valid,
            last: begin.last,
            asked: begin.asked,
            cancelled,
        };
        run.step(lu)
    }

    /// The medium has finished a piece.
    fn piece_done(mut self, lu: &LogicalUnit) -> Execution {
        if self.valid.as_ref().is_some_and(|valid| !valid.load(Ordering::Acquire)) {
            return self.fail(lu, revoked());
        }
        if self.cancelled.load(Ordering::Acquire) {
            return self.fail(lu, aborted(Asc::COMMANDS_CLEARED_BY_DEVICE_SERVER));
        }
        let segment = self.segments[self.at];
        self.bytes += self.piece * u64::from(segment.to.0.block_bytes);
        self.done += self.piece;
        if self.done == segment.blocks {
            (self.at, self.done) = (self.at + 1, 0);
        }
        self.record(lu, Stage::Running);
        self.step(lu)
    }

    /// The next piece, or the end.
    fn step(mut self, lu: &LogicalUnit) -> Execution {
        while self.segments.get(self.at).is_some_and(|segment| segment.blocks == 0) {
            self.at += 1;
        }
        let Some(&segment) = self.segments.get(self.at) else {
            self.record(lu, self.last);
            return Execution::good();
        };
        if self.done == 0
            && let Err(sense) = self.check(lu, &segment)
        {
            return self.fail(lu, sense);
        }
        let blocks = (PIECE_BYTES / u64::from(segment.to.0.block_bytes)).min(segment.blocks - self.done);
        let offset = if segment.backwards() { segment.blocks - self.done - blocks } else { self.done };
        let (to, lba) = (segment.to.0.lun, segment.to.1 + offset);
        if let Some((from, from_lba)) = segment.from
            && with_unit(lu, from.lun, |unit| unit.unreadable(from_lba + offset, blocks)).flatten().is_some()
        {
            return self.fail(lu, aborted(Asc::THIRD_PARTY_DEVICE_FAILURE));
        }
        let durable = with_unit(lu, to, |unit| {
            unit.about_to_change(lba, blocks);
            unit.changed(lba, blocks);
            !unit.write_cache()
        });
        let op = match segment.from {
            Some((from, from_lba)) => MediumOp::Copy {
                from: from.lun,
                from_lba: from_lba + offset,
                to,
                lba,
                blocks,
                durable: durable.unwrap_or(true),
            },
            None => MediumOp::WriteSame {
                lba,
                blocks,
                unmap: lu.thin(),
                zero: true,
                durable: durable.unwrap_or(true),
            },
        };
        self.piece = blocks;
        let plan = MediumPlan { transfer_bytes: self.asked, ..MediumPlan::then(self) };
        Execution::medium(op, plan)
    }

    /// The conditions that both sides must meet before a segment starts.
    //= spc4 5.17.6 CPY-03 PR-16
    fn check(&self, lu: &LogicalUnit, segment: &Segment) -> Result<(), SenseData> {
        let side = |(cscd, lba): (Cscd, u64), access: Access| {
            if !cscd::is_there(lu, cscd) {
                return Err(aborted(Asc::COPY_TARGET_DEVICE_NOT_REACHABLE));
            }
            let usable = with_unit(lu, cscd.lun, |unit| {
                // A block that does not exist is not a fault of the device, so no additional sense code: the segment's
                // number is enough.
                check_range(unit, lba, segment.blocks)
                    .map_err(|sense| SenseData { asc: Asc::NONE, ..sense })?;
                unit.admits_copy(&self.nexus, access)
            });
            match usable {
                Some(Ok(())) => Ok(()),
                Some(Err(sense)) => Err(SenseData { key: SenseKey::CopyAborted, ..sense }),
                None => Err(aborted(Asc::COPY_TARGET_DEVICE_NOT_REACHABLE)),
            }
        };
        if let Some(from) = segment.from {
            side(from, Access::Read)?;
        }
        side(segment.to, Access::Write)
    }

    /// Ends the copy; the third and fourth bytes of COMMAND-SPECIFIC INFORMATION are the number of the segment.
    //= spc4 6.4.3 CPY-02
    fn fail(self, lu: &LogicalUnit, sense: SenseData) -> Execution {
        let sense = SenseData { command_specific: Some(self.at as u64 & 0xffff), ..sense };
        let cancelled = self.cancelled.load(Ordering::Acquire);
        self.record(lu, if cancelled { Stage::Aborted } else { Stage::Failed(sense) });
        Execution::check(sense)
    }

    fn record(&self, lu: &LogicalUnit, stage: Stage) {
        if !self.recorded {
            return;
        }
        lu.with_state(|state| {
            if let Some(record) = state.copies.find(self.nexus.id, self.list_id)
                && std::ptr::eq(record.cancelled.as_ptr(), Arc::as_ptr(&self.cancelled))
            {
                record.stage = stage;
                record.segments = u16::try_from(self.at).unwrap_or(u16::MAX);
                record.bytes = self.bytes;
            }
        });
    }
}

/// Sense for a token whose data has changed.
pub(super) fn revoked() -> SenseData {
    SenseData::illegal(Asc::TOKEN_REVOKED)
}

fn aborted(asc: Asc) -> SenseData {
    SenseData::new(SenseKey::CopyAborted, asc)
}
