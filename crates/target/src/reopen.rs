//! Units whose store failed a flush: what people are told of them, and how an operator has them used again.
//!
//! After a failed flush it is not known which acknowledged writes are on the medium. The unit goes on to serve reads, and refuses
//! what changes it or makes it durable with 3/0C/00 (WRITE ERROR), also after a restart, until `intact lun reopen`. Hosts are then
//! told what a loss of power would tell them, 6/29/00: what they have not flushed may be gone.

use std::sync::atomic::Ordering;

use blockstore::{FailedFlush, StoreError};
use lun::Access;
use scsi::{Asc, UaScope};

use crate::device::Device;

impl Device {
    /// The flush that failed, if one did and the store was not opened again since.
    pub(crate) fn failed_flush(&self) -> Option<FailedFlush> {
        self.unit.store.label().and_then(|label| label.failed_flush())
    }

    /// Tells whoever runs the server of a unit that begins with a failed flush.
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

    /// Opens the store again; what is different now, a line for people.
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
