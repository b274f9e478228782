//! A device server and its store, and the locks that keep operations apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockstore::{BlockStore, Durability, Placement, StoreError};
use engine::Lane;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use scsi::{LogicalUnit, MediumError, PiField};

use crate::range_lock::{InUse, RangeLock, Use};

/// Of a run of blocks so many bytes are fetched early: the processor sees by itself where a longer one goes on.
const PREFETCH_BYTES: u64 = 4096;

/// Whoever serves a unit: what the unit has to ask, and has to tell.
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
    /// Keeps operations apart. One for each store: while a unit takes the place of another one on the same store, commands of
    /// both may be under way.
    apart: Arc<Apart>,
    host: Arc<dyn Host>,
}

/// What an operation does to its blocks, for others that come near them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It looks at them.
    Look,
    /// It writes them.
    Change,
    /// It looks, decides, and writes: nothing may come in between.
    Decide,
}

/// Keeps operations apart that may not meet.
///
/// A store that is called on the shards gives and takes each logical block whole, so there only decisions need protection: a
/// plain write costs one atomic addition, and a plain read looks whether a decision came in between ([`Unit::look`]). A store
/// that is called on worker threads promises nothing: there each range is held.
#[derive(Debug, Default)]
struct Apart {
    /// Held shared by who looks and by changes, and exclusively by decisions.
    decisions: RwLock<()>,
    /// How many decisions have begun and ended: odd while one is under way.
    decided: AtomicU64,
    ranges: RangeLock,
}

/// The right to an operation, until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(#[expect(dead_code, reason = "held for what its drop does")] Right<'a>);

#[derive(Debug)]
#[expect(dead_code, reason = "held for what its drop does")]
enum Right<'a> {
    /// Beside others that do not decide.
    Beside(RwLockReadGuard<'a, ()>),
    /// Alone on the store.
    Alone(Alone<'a>),
    /// A range of it.
    Range(InUse<'a>),
}

/// The right to be alone on a store, until it is dropped.
#[derive(Debug)]
struct Alone<'a> {
    decided: &'a AtomicU64,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl<'a> Alone<'a> {
    fn new(apart: &'a Apart) -> Self {
        let lock = apart.decisions.write();
        apart.decided.fetch_add(1, Ordering::AcqRel);
        Self { decided: &apart.decided, _lock: lock }
    }
}

impl Drop for Alone<'_> {
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
    /// A unit on a store that no other unit is on; `concurrency` of its operations may be with worker threads at the same time.
    pub fn new(
        scsi: LogicalUnit,
        store: Arc<dyn BlockStore>,
        concurrency: usize,
        host: Arc<dyn Host>,
    ) -> Self {
        let offload = store.placement() == Placement::Offload;
        Self { scsi, store, offload, lane: Lane::new(concurrency), apart: Arc::default(), host }
    }

    /// A unit on the store of `old`, whose place it takes.
    pub fn succeeding(old: &Self, scsi: LogicalUnit, host: Arc<dyn Host>) -> Self {
        let (store, apart, lane) = (Arc::clone(&old.store), Arc::clone(&old.apart), old.lane.clone());
        Self { scsi, store, offload: old.offload, lane, apart, host }
    }

    /// Another unit of the same target, or this one.
    pub(crate) fn neighbour(&self, lun: u16) -> Option<Arc<Self>> {
        self.host.neighbour(lun)
    }

    pub(crate) fn check_failed(&self, field: PiField) {
        self.host.check_failed(field);
    }

    /// What the device server is told of an error of the store; the host is told of it too.
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

    /// Takes the right to `access` these blocks. Never take two.
    //= sam5 5.3 TSK-08 CAW-01
    pub fn hold(&self, lba: u64, blocks: u64, access: Access) -> Held<'_> {
        Held(match (self.holds_ranges(), access) {
            (true, _) => {
                let how = if access == Access::Look { Use::Shared } else { Use::Exclusive };
                Right::Range(self.apart.ranges.take(lba..lba.saturating_add(blocks), how))
            }
            (false, Access::Look | Access::Change) => Right::Beside(self.apart.decisions.read()),
            (false, Access::Decide) => Right::Alone(Alone::new(&self.apart)),
        })
    }

    /// Runs `read`, a look at these blocks that changes nothing but what it returns, so that it sees every decision whole or not
    /// at all. Where nobody decides meanwhile, nothing is written that other processors would have to be told of.
    //= sbc4 5.43 ATM-01
    pub(crate) fn look<T>(&self, lba: u64, blocks: u64, mut read: impl FnMut() -> T) -> T {
        if !self.holds_ranges() {
            // Who sees a byte of a decision has seen the lock of its block released after it, and so its odd number.
            let before = self.apart.decided.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = read();
                if self.apart.decided.load(Ordering::Acquire) == before {
                    return seen;
                }
            }
        }
        let _held = self.hold(lba, blocks, Access::Look);
        read()
    }

    /// Lets the processor fetch the first of these blocks, where they are in memory. Nothing was checked of them.
    pub fn prefetch(&self, lba: u64, blocks: u64) {
        if !self.offload
            && let Some(memory) = self.store.in_place()
        {
            let block = u64::from(self.scsi.block_bytes());
            let len = blocks.saturating_mul(block).min(PREFETCH_BYTES);
            memory.prefetch(lba.saturating_mul(block), len as usize);
        }
    }

    /// Takes the right to look at these blocks of a store that is called on worker threads, if nobody has to be waited for.
    pub(crate) fn try_look(&self, lba: u64, blocks: u64) -> Option<InUse<'_>> {
        self.apart.ranges.try_take(lba..lba.saturating_add(blocks), Use::Shared)
    }

    /// How a write that begins now has to be written, for who holds its range: WCE may have become 0 since its command was taken up.
    //= sbc3 4.15 MOD-03
    pub(crate) fn durability(&self, durable: bool) -> Durability {
        if durable || !self.scsi.write_cache() { Durability::Durable } else { Durability::Cached }
    }

    /// Makes changes durable that the store cannot write durably: unmapped blocks and zeros.
    pub(crate) fn flush_if(&self, durable: bool) -> Result<(), StoreError> {
        match self.durability(durable) {
            Durability::Durable => self.store.flush(),
            Durability::Cached => Ok(()),
        }
    }

    /// Whether ranges have to be held: blocks and their protection information are two writes to any store.
    fn holds_ranges(&self) -> bool {
        self.offload || self.store.records().is_some()
    }
}
