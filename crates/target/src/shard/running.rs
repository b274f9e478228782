//! A command in progress: its execution, the unit that executes it, and what it holds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use engine::SlabRing;
use iscsi_core::Time;
use iscsi_core::target::task::DataOutPieces;
use lun::{NEVER, Payload, Surroundings};
use scsi::{Execution, Step};

use crate::device::Device;
use crate::observe::Op;
use crate::observe::metrics::Reason;

/// Longest read: MAXIMUM TRANSFER LENGTH of VPD page B0h, bytes.
const LONGEST_READ_BYTES: u64 = 32 << 20;

/// A command in progress.
pub(super) struct Running {
    pub(super) execution: Execution,
    pub(super) device: Arc<Device>,
    pub(super) read_length: u64,
    pub(super) write_length: u64,
    pub(super) digest_chunk_bytes: Option<u32>,
    /// Memory for data that it holds, bytes.
    pub(super) reserved_bytes: u64,
    pub(super) started: Time,
    pub(super) kind: Op,
}

/// What a session keeps of a command at a worker thread.
pub(super) struct AtWorker {
    /// When this is true, operations that have not started there do not start.
    pub cancelled: Arc<AtomicBool>,
    /// Data that it may return, bytes.
    pub reading_bytes: u64,
    /// Memory for data that it holds, bytes.
    pub reserved_bytes: u64,
    /// Its logical unit.
    pub lun: u16,
    /// The kind of operation.
    pub kind: Op,
    /// When it arrived.
    pub started: Time,
    /// It continues when its task is aborted.
    pub outlives_task: bool,
}

impl Running {
    /// Why it failed, if it has ended with a failure.
    pub(super) fn failure(&self) -> Option<Reason> {
        match self.execution.step() {
            Step::Done(outcome) => Reason::of(outcome),
            Step::NeedDataOut { .. } | Step::Medium(_) => None,
        }
    }

    /// Its logical unit.
    pub(super) fn lun(&self) -> u16 {
        self.device.number()
    }

    /// Executes one medium operation.
    pub(super) fn work(&mut self, data: &DataOutPieces, slabs: &SlabRing, cancelled: &AtomicBool) -> Payload {
        let with = self.surroundings(data, slabs, cancelled);
        lun::step(&self.device.unit, &mut self.execution, &with)
    }

    /// Executes the first medium operation, if it is a read that need not wait.
    pub(super) fn work_now(&mut self, slabs: &SlabRing) -> Option<Payload> {
        let with = self.surroundings(&[], slabs, &NEVER);
        lun::step_now(&self.device.unit, &mut self.execution, &with)
    }

    fn surroundings<'a>(
        &self,
        data_out: &'a [Bytes],
        slabs: &'a SlabRing,
        cancelled: &'a AtomicBool,
    ) -> Surroundings<'a> {
        Surroundings {
            slabs,
            data_out,
            read_length: self.read_length,
            digest_chunk_bytes: self.digest_chunk_bytes,
            protection: self.execution.protection().copied(),
            cancelled,
        }
    }

    /// Stores the unit's reservations if the command changed them; false when that failed.
    //= spc4 5.12.6 PR-10
    pub(super) fn keep_reservations(&self) -> bool {
        let Step::Done(outcome) = self.execution.step() else { return true };
        let Some(change) = lun::change_to_keep(outcome) else { return true };
        let saved = self.device.save_reservations();
        if let Err(error) = &saved {
            let (lun, store) = (self.lun(), self.device.unit.store.description());
            tracing::error!(%error, lun, store, "persistent reservations cannot be stored: free space there, or change state_dir");
        }
        // Another command may have failed to store this change together with its own, and both were reverted.
        let taken_back = self.device.unit.scsi.was_taken_back(change);
        saved.is_ok() && !taken_back
    }

    /// What a session keeps of it while it is at a worker thread, where `cancelled` ends it.
    pub(super) fn at_worker(&self, cancelled: Arc<AtomicBool>) -> AtWorker {
        AtWorker {
            cancelled,
            reading_bytes: self.read_length.min(LONGEST_READ_BYTES),
            reserved_bytes: self.reserved_bytes,
            lun: self.lun(),
            kind: self.kind,
            started: self.started,
            outlives_task: self.execution.outlives_task(),
        }
    }
}
