//! A store that counts: operations, bytes and errors, per kind of operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Op, Placement,
    RecordRun, Records, StoreError,
};

/// What was counted for one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// Operations, failed ones included.
    pub ops: u64,
    /// Bytes of the operations that succeeded; 0 for kinds without a range.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
}

#[derive(Default)]
struct Counter {
    ops: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// The counters of a [`StatsStore`]. They only grow, and each is exact; several read together may be from
/// slightly different moments.
#[derive(Default)]
pub struct Stats([Counter; Stats::KINDS]);

impl Stats {
    const KINDS: usize = Op::Resize as usize + 1;

    /// The counts of one kind of operation.
    #[must_use]
    pub fn get(&self, op: Op) -> OpCount {
        let counter = &self.0[op as usize];
        OpCount {
            ops: counter.ops.load(Ordering::Relaxed),
            bytes: counter.bytes.load(Ordering::Relaxed),
            errors: counter.errors.load(Ordering::Relaxed),
        }
    }

    fn count<T>(&self, op: Op, bytes: u64, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let counter = &self.0[op as usize];
        counter.ops.fetch_add(1, Ordering::Relaxed);
        match &result {
            Ok(_) => counter.bytes.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => counter.errors.fetch_add(1, Ordering::Relaxed),
        };
        result
    }
}

/// A store that counts the operations passing through it; see the head of the module.
pub struct StatsStore<S> {
    inner: S,
    stats: Arc<Stats>,
}

impl<S: BlockStore> StatsStore<S> {
    /// Wraps `inner`, with all counters 0.
    pub fn new(inner: S) -> Self {
        StatsStore { inner, stats: Arc::default() }
    }

    /// The counters, which may outlive the store.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }
}

impl<S: BlockStore> BlockStore for StatsStore<S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn placement(&self) -> Placement {
        self.inner.placement()
    }

    fn description(&self) -> String {
        self.inner.description()
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        let len = dst.len() as u64;
        self.stats.count(Op::Read, len, self.inner.read(offset, dst))
    }

    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false) // a read is counted by the call that completes it
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        let len = dst.len() as u64;
        self.stats.count(Op::Read, len, self.inner.read_crc32c(offset, dst, crc))
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        let len = src.iter().map(|slice| slice.len() as u64).fold(0, u64::saturating_add);
        self.stats.count(Op::Write, len, self.inner.write(offset, src, durability))
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        self.inner.atomic_write_bytes_max()
    }

    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let len = src.iter().map(|slice| slice.len() as u64).fold(0, u64::saturating_add);
        self.stats.count(Op::Write, len, self.inner.write_atomic(offset, src, records, durability))
    }

    fn overwrites_in_place(&self) -> bool {
        self.inner.overwrites_in_place()
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None // reads in place would not be counted
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.stats.count(Op::Flush, 0, self.inner.flush())
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.stats.count(Op::Unmap, len, self.inner.unmap(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.stats.count(Op::WriteZeroes, len, self.inner.write_zeroes(offset, len, may_unmap))
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        self.stats.count(Op::Extents, len, self.inner.extents(offset, len, max))
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.stats.count(Op::Resize, 0, self.inner.resize(size_bytes))
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.inner.medium_bytes()
    }

    fn make_writable(&self) -> Result<(), StoreError> {
        self.inner.make_writable()
    }

    fn records(&self) -> Option<&Records> {
        self.inner.records()
    }

    fn label(&self) -> Option<&Arc<Label>> {
        self.inner.label()
    }

    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        let len = dst.len() as u64;
        self.stats.count(Op::Read, len, self.inner.read_medium(offset, dst))
    }

    fn medium_reads(&self) -> MediumReads {
        self.inner.medium_reads()
    }

    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        self.inner.reopen()
    }
}
