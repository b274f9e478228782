//! Units for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockstore::{BlockStore, Records, StoreError};
use scsi::{LogicalUnit, LuConfig, MediumConfig, PiField, ProtectionType};

use crate::unit::{Host, Unit};

/// A host without other units, which counts reports.
#[derive(Default)]
pub(crate) struct Ears {
    checks: [AtomicU64; 3],
}

impl Ears {
    pub(crate) fn checks_failed(&self, field: PiField) -> u64 {
        self.checks[field as usize].load(Ordering::Relaxed)
    }
}

impl Host for Ears {
    fn neighbour(&self, _lun: u16) -> Option<Arc<Unit>> {
        None
    }
    fn store_failed(&self, _error: &StoreError) {}
    fn check_failed(&self, field: PiField) {
        self.checks[field as usize].fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn unit_on(store: Arc<dyn BlockStore>) -> Unit {
    unit_heard_by(store, Arc::<Ears>::default())
}

/// A unit on `store`, formatted with the store's type of protection.
pub(crate) fn unit_heard_by(store: Arc<dyn BlockStore>, host: Arc<dyn Host>) -> Unit {
    let geometry = store.geometry();
    let format = store.records().map(Records::format);
    let scsi = LogicalUnit::new(LuConfig {
        medium: MediumConfig {
            blocks: geometry.blocks(),
            block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: geometry.physical_block_bytes,
            thin: geometry.discard_granularity_bytes != 0,
            write_cache: true,
            protectable: format.is_some(),
            protection: format.and_then(|f| ProtectionType::from_number(f.kind)).unwrap_or_default(),
            ..MediumConfig::default()
        },
        ..LuConfig::default()
    });
    Unit::new(scsi, store, 4, host)
}
