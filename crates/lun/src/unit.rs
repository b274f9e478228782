//! A device server and its store, and the locks between operations on its blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockstore::{BlockStore, Durability, Placement, StoreError};
use engine::Lane;
use integrity::Prefetch;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use scsi::{LogicalUnit, MediumError, PiField};

use crate::range_lock::{InUse, RangeLock, Use};

/// Bytes of a run of blocks that are prefetched. The processor itself prefetches the rest of a longer run.
const PREFETCH_BYTES: u64 = 4096;

/// The server of a unit: answers its questions and receives its reports.
pub trait Host: Send + Sync {
    /// Another unit of the same target, or this one: third-party copies name it by its LUN.
    fn neighbour(&self, lun: u16) -> Option<Arc<Unit>>;

    /// The store failed an operation.
    fn store_failed(&self, error: &StoreError);

    /// A check of protection information failed.
    fn check_failed(&self, field: PiField);
}

/// A logical unit with its store. Shared by every session that uses it.
pub struct Unit {
    /// The device server.
    pub scsi: LogicalUnit,
    /// The medium.
    pub store: Arc<dyn BlockStore>,
    /// Whether medium operations run on a worker thread, because the store may block.
    pub offload: bool,
    /// Its share of the worker threads.
    pub lane: Lane,
    /// The locks on its blocks. Each store has one: while a unit replaces another one on the same store, commands of both may be
    /// executing.
    exclusion: Arc<Exclusion>,
    host: Arc<dyn Host>,
}

/// How an operation uses its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads them.
    Look,
    /// It writes them.
    Change,
    /// It reads, decides, and writes. No other operation may come in between.
    Decide,
}

/// Excludes operations that may not run at the same time.
///
/// A store that is called on the shards reads and writes each logical block as a whole. So only decisions need protection: a plain
/// write costs one atomic addition, and a plain read checks whether a decision came in between ([`Unit::look`]). A store that is
/// called on worker threads promises nothing: there each operation locks its range.
#[derive(Debug, Default)]
struct Exclusion {
    /// Held shared by reads and writes, and exclusively by decisions.
    decisions: RwLock<()>,
    /// Number of decisions that have started plus those that have ended: odd during a decision.
    decided: AtomicU64,
    ranges: RangeLock,
}

/// The right to an operation, until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(#[expect(dead_code, reason = "held for what its drop does")] Right<'a>);

#[derive(Debug)]
#[expect(dead_code, reason = "held for what its drop does")]
enum Right<'a> {
    /// Shared with other operations that do not decide.
    Shared(RwLockReadGuard<'a, ()>),
    /// The whole store.
    Exclusive(Exclusive<'a>),
    /// A range of the store.
    Range(InUse<'a>),
}

/// The exclusive right to a store, until it is dropped.
#[derive(Debug)]
struct Exclusive<'a> {
    decided: &'a AtomicU64,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl<'a> Exclusive<'a> {
    fn new(exclusion: &'a Exclusion) -> Self {
        let lock = exclusion.decisions.write();
        exclusion.decided.fetch_add(1, Ordering::AcqRel);
        Self { decided: &exclusion.decided, _lock: lock }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.decided.fetch_add(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit").field("store", &self.store.description()).finish_non_exhaustive()
    }
}

impl Unit {
    /// A unit on a store that no other unit uses. At most `concurrency` of its operations are with worker threads at the same time.
    pub fn new(
        scsi: LogicalUnit,
        store: Arc<dyn BlockStore>,
        concurrency: usize,
        host: Arc<dyn Host>,
    ) -> Self {
        let offload = store.placement() == Placement::Offload;
        Self { scsi, store, offload, lane: Lane::new(concurrency), exclusion: Arc::default(), host }
    }

    /// A unit on the store of `old`, which it replaces.
    pub fn succeeding(old: &Self, scsi: LogicalUnit, host: Arc<dyn Host>) -> Self {
        let (store, exclusion, lane) = (Arc::clone(&old.store), Arc::clone(&old.exclusion), old.lane.clone());
        Self { scsi, store, offload: old.offload, lane, exclusion, host }
    }

    /// Another unit of the same target, or this one.
    pub(crate) fn neighbour(&self, lun: u16) -> Option<Arc<Self>> {
        self.host.neighbour(lun)
    }

    pub(crate) fn check_failed(&self, field: PiField) {
        self.host.check_failed(field);
    }

    /// Converts an error of the store for the device server, and reports it to the host.
    pub(crate) fn medium_error(&self, error: &StoreError) -> MediumError {
        self.host.store_failed(error);
        let lba = |offset: u64| Some(offset / u64::from(self.scsi.block_bytes()));
        match error {
            StoreError::MediumRead { offset } => MediumError::Read { lba: lba(*offset) },
            StoreError::MediumWrite { offset } => MediumError::Write { lba: lba(*offset) },
            StoreError::FlushFailed(_) => MediumError::Write { lba: None },
            StoreError::NoSpace => MediumError::NoSpace,
            StoreError::ReadOnly => MediumError::ReadOnly,
            StoreError::Gone(_) => MediumError::Gone,
            StoreError::OutOfRange { .. } | StoreError::Unusable(_) | StoreError::Io { .. } => {
                MediumError::Internal
            }
        }
    }

    /// Takes the right to `access` these blocks. A holder must not take a second one.
    //= sam5 5.3 TSK-08 CAW-01
    pub fn hold(&self, lba: u64, blocks: u64, access: Access) -> Held<'_> {
        Held(match (self.holds_ranges(), access) {
            (true, _) => {
                let how = if access == Access::Look { Use::Shared } else { Use::Exclusive };
                Right::Range(self.exclusion.ranges.take(lba..lba.saturating_add(blocks), how))
            }
            (false, Access::Look | Access::Change) => Right::Shared(self.exclusion.decisions.read()),
            (false, Access::Decide) => Right::Exclusive(Exclusive::new(&self.exclusion)),
        })
    }

    /// Runs `read`, which reads these blocks and has no other effect, so that it sees all or nothing of every decision. It may run
    /// twice. If no decision comes in between, no memory is written that other processors share.
    //= sbc4 5.43 ATM-01
    pub(crate) fn look<T>(&self, lba: u64, blocks: u64, mut read: impl FnMut() -> T) -> T {
        if !self.holds_ranges() {
            // A read that sees a byte of a decision has also seen the release of the block's lock after it, and so the odd number.
            let before = self.exclusion.decided.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = read();
                if self.exclusion.decided.load(Ordering::Acquire) == before {
                    return seen;
                }
            }
        }
        let _held = self.hold(lba, blocks, Access::Look);
        read()
    }

    /// The memory of the first of these blocks, if they are in memory. Accepts any range, as nothing has checked it yet.
    pub fn prefetch(&self, lba: u64, blocks: u64) -> Prefetch {
        let memory = if self.offload { None } else { self.store.in_place() };
        memory.map_or_else(Prefetch::default, |memory| {
            let block = u64::from(self.scsi.block_bytes());
            let len = blocks.saturating_mul(block).min(PREFETCH_BYTES);
            memory.prefetch(lba.saturating_mul(block), len as usize)
        })
    }

    /// Takes the right to read these blocks of a store that is called on worker threads, if that is possible without waiting.
    pub(crate) fn try_look(&self, lba: u64, blocks: u64) -> Option<InUse<'_>> {
        self.exclusion.ranges.try_take(lba..lba.saturating_add(blocks), Use::Shared)
    }

    /// The durability of a write that starts now. The caller holds its range: WCE may have become 0 since the command arrived.
    //= sbc3 4.15 MOD-03
    pub(crate) fn durability(&self, durable: bool) -> Durability {
        if durable || !self.scsi.write_cache() { Durability::Durable } else { Durability::Cached }
    }

    /// Makes unmapped blocks and zeros durable, which the store cannot write durably.
    pub(crate) fn flush_if(&self, durable: bool) -> Result<(), StoreError> {
        match self.durability(durable) {
            Durability::Durable => self.store.flush(),
            Durability::Cached => Ok(()),
        }
    }

    /// Whether operations lock their ranges. Blocks and their protection information are two writes, on any store.
    fn holds_ranges(&self) -> bool {
        self.offload || self.store.records().is_some()
    }
}

#[cfg(test)]
mod tests {
    use blockstore::RamStore;

    use super::*;
    use crate::testing::unit_on;

    #[test]
    fn an_error_of_the_store_names_the_block() {
        for block_bytes in [512, 4096] {
            let unit = unit_on(Arc::new(RamStore::new(1 << 20, block_bytes).unwrap()));
            let (offset, lba) = (81_920, Some(81_920 / u64::from(block_bytes)));
            let read = unit.medium_error(&StoreError::MediumRead { offset });
            assert_eq!(read, MediumError::Read { lba });
            let write = unit.medium_error(&StoreError::MediumWrite { offset });
            assert_eq!(write, MediumError::Write { lba });
            assert_eq!(unit.medium_error(&StoreError::NoSpace), MediumError::NoSpace);
        }
    }
}
