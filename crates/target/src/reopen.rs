//! Units whose store failed a flush: what is reported, and how an operator puts them back into use.
//!
//! After a failed flush it is unknown which acknowledged writes are on the medium. The unit continues to serve reads, and rejects
//! commands that change it or make data durable with 3/0C/00 (WRITE ERROR), even after a restart, until `intact lun reopen`. Then
//! hosts get the same report as after a loss of power, 6/29/00: data that they have not flushed may be gone.

use std::sync::atomic::Ordering;

use blockstore::{FailedFlush, StoreError};
use lun::Access;
use scsi::{Asc, UaScope};

use crate::device::Device;

impl Device {
    /// The failed flush, if there was one and the store was not opened again since.
    pub(crate) fn failed_flush(&self) -> Option<FailedFlush> {
        self.unit.store.label().and_then(|label| label.failed_flush())
    }

    /// Reports to the operator that a unit starts with a failed flush.
    pub(crate) fn report_failed_flush(&self) {
        if let Some(FailedFlush { reason, unflushed_bytes }) = self.failed_flush() {
            let (target, lun) = self.place();
            tracing::error!(
                target,
                lun,
                reason,
                unflushed_bytes,
                "a flush failed before: the unit refuses writes; check the disk and the data, then `intact lun reopen {target} {lun}`"
            );
        }
    }

    /// Opens the store again; returns a line about the change.
    pub(crate) fn reopen(&self) -> Result<String, StoreError> {
        let _held = self.unit.hold(0, self.unit.scsi.blocks(), Access::Decide);
        let failed = self.unit.store.reopen()?;
        self.failures().store(0, Ordering::Relaxed);
        let (target, lun) = self.place();
        let Some(FailedFlush { reason, unflushed_bytes }) = failed else {
            return Ok(format!("LUN {lun} of {target} is open; no flush of it had failed"));
        };
        self.unit.scsi.unit_attention(UaScope::All, Asc::POWER_ON_OR_RESET);
        tracing::warn!(target, lun, reason, unflushed_bytes, "opened again after a failed flush");
        Ok(format!(
            "LUN {lun} of {target} takes writes again; up to {unflushed_bytes} bytes may be lost that were written since the last \
             flush before it failed ({reason}): check the data"
        ))
    }
}
