//! A store in memory that calls a test hook before each operation.

use std::sync::Arc;

use blockstore::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Op, Placement,
    RamStore, RecordRun, Records, StoreError, not_atomic,
};

/// Calls `hook` with every operation and its first byte.
pub struct Hooked<F> {
    ram: RamStore,
    placement: Placement,
    reads_now: bool,
    hook: F,
}

impl<F: Fn(Op, u64) + Send + Sync> Hooked<F> {
    pub fn new(size_bytes: u64, placement: Placement, hook: F) -> Self {
        Hooked {
            ram: RamStore::new(size_bytes, crate::support::BLOCK).unwrap(),
            placement,
            reads_now: false,
            hook,
        }
    }

    /// Reads that need not wait are answered at once, without the hook.
    pub fn reading_now(self) -> Self {
        Hooked { reads_now: true, ..self }
    }
}

impl<F: Fn(Op, u64) + Send + Sync> BlockStore for Hooked<F> {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }
    fn placement(&self) -> Placement {
        self.placement
    }
    fn description(&self) -> String {
        "hooked".into()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        (self.hook)(Op::Read, offset);
        self.ram.read(offset, dst)
    }
    fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError> {
        match self.reads_now {
            true => self.ram.read(offset, dst).map(|()| true),
            false => Ok(false),
        }
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        (self.hook)(Op::Read, offset);
        self.ram.read_crc32c(offset, dst, crc)
    }
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        (self.hook)(Op::Write, offset);
        self.ram.write(offset, src, durability)
    }
    fn atomic_write_bytes_max(&self) -> u64 {
        0
    }
    fn write_atomic(
        &self,
        _offset: u64,
        _src: &[&[u8]],
        _records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        Err(not_atomic(self))
    }
    fn overwrites_in_place(&self) -> bool {
        false
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }
    fn flush(&self) -> Result<(), StoreError> {
        (self.hook)(Op::Flush, 0);
        self.ram.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        (self.hook)(Op::Unmap, offset);
        self.ram.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        (self.hook)(Op::WriteZeroes, offset);
        self.ram.write_zeroes(offset, len, may_unmap)
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        (self.hook)(Op::Extents, offset);
        self.ram.extents(offset, len, max)
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.ram.resize(size_bytes)
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.ram.medium_bytes()
    }
    fn make_writable(&self) -> Result<(), StoreError> {
        self.ram.make_writable()
    }
    fn records(&self) -> Option<&Records> {
        self.ram.records()
    }
    fn label(&self) -> Option<&Arc<Label>> {
        None
    }
    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read(offset, dst)
    }
    fn medium_reads(&self) -> MediumReads {
        MediumReads::Memory
    }
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        Ok(None)
    }
}
