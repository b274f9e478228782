//! A medium that can lose power: after that each block written but not flushed may or may not have its new content.
//!
//! It survives the process that uses it, as a disk does. It models no delay: the platform decides when a job runs.

use blockstore::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Placement, RecordRun,
    Records, StoreError, fixed_size, read_then_crc32c,
};
use fastrand::Rng;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes of a logical block.
pub const BLOCK_BYTES: usize = 512;
/// Versions of a block that are kept until it is flushed; if there are more, the second oldest is forgotten.
const MAX_VERSIONS: usize = 4;

type Block = [u8; BLOCK_BYTES];

struct Disk {
    blocks: Vec<Block>,
    /// Earlier contents of blocks with unflushed writes, oldest first.
    before: FxHashMap<u64, Vec<Block>>,
}

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub struct SimStore {
    disk: Arc<Mutex<Disk>>,
    placement: Placement,
}

impl SimStore {
    /// A disk of `blocks` blocks of zeros.
    pub fn new(blocks: usize, placement: Placement) -> Self {
        let disk = Disk { blocks: vec![[0; BLOCK_BYTES]; blocks], before: FxHashMap::default() };
        Self { disk: Arc::new(Mutex::new(disk)), placement }
    }

    /// Power is lost and returns: every unflushed block reverts to one of its versions since the last flush.
    pub fn cut_power(&self, rng: &mut Rng) {
        let mut disk = self.disk.lock();
        let mut before: Vec<(u64, Vec<Block>)> = std::mem::take(&mut disk.before).into_iter().collect();
        before.sort_unstable_by_key(|(lba, _)| *lba);
        for (lba, versions) in before {
            let which = rng.usize(0..=versions.len());
            if let Some(version) = versions.get(which) {
                disk.blocks[lba as usize] = *version;
            }
        }
    }

    /// The current content of block `lba`.
    pub fn peek(&self, lba: u64) -> Block {
        self.disk.lock().blocks[lba as usize]
    }

    fn put(disk: &mut Disk, lba: u64, new: Block, durability: Durability) {
        let old = std::mem::replace(&mut disk.blocks[lba as usize], new);
        match durability {
            Durability::Durable => drop(disk.before.remove(&lba)),
            Durability::Cached => {
                let versions = disk.before.entry(lba).or_default();
                // The content at the last flush always remains possible.
                if versions.len() == MAX_VERSIONS {
                    versions.remove(1);
                }
                versions.push(old);
            }
        }
    }
}

impl BlockStore for SimStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: (self.disk.lock().blocks.len() * BLOCK_BYTES) as u64,
            logical_block_bytes: BLOCK_BYTES as u32,
            physical_block_bytes: BLOCK_BYTES as u32,
            rotational: false,
            discard_granularity_bytes: 0,
            read_only: false,
        }
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn description(&self) -> String {
        "sim".to_owned()
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.geometry().check_range(offset, dst.len() as u64)?;
        let disk = self.disk.lock();
        let all = disk.blocks.as_flattened();
        dst.copy_from_slice(&all[offset as usize..offset as usize + dst.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        let len: usize = src.iter().map(|piece| piece.len()).sum();
        self.geometry().check_range(offset, len as u64)?;
        let mut disk = self.disk.lock();
        let mut at = offset as usize;
        let mut block = disk.blocks[(at / BLOCK_BYTES).min(disk.blocks.len() - 1)];
        for piece in src {
            for part in piece.chunks(BLOCK_BYTES) {
                let mut part = part;
                while !part.is_empty() {
                    let inside = at % BLOCK_BYTES;
                    if inside == 0 {
                        block = disk.blocks[at / BLOCK_BYTES];
                    }
                    let n = part.len().min(BLOCK_BYTES - inside);
                    block[inside..inside + n].copy_from_slice(&part[..n]);
                    at += n;
                    part = &part[n..];
                    if at.is_multiple_of(BLOCK_BYTES) {
                        Self::put(&mut disk, (at / BLOCK_BYTES) as u64 - 1, block, durability);
                    }
                }
            }
        }
        if !at.is_multiple_of(BLOCK_BYTES) {
            Self::put(&mut disk, (at / BLOCK_BYTES) as u64, block, durability);
        }
        Ok(())
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        0 // power is lost block by block
    }

    fn write_atomic(
        &self,
        _offset: u64,
        _src: &[&[u8]],
        _records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        Err(blockstore::not_atomic(self))
    }

    fn overwrites_in_place(&self) -> bool {
        false // unflushed content may revert
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.disk.lock().before.clear();
        Ok(())
    }

    fn unmap(&self, _offset: u64, _len: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, _may_unmap: bool) -> Result<(), StoreError> {
        self.write(offset, &[&vec![0; len as usize]], Durability::Cached)
    }

    fn extents(&self, offset: u64, len: u64, _max: usize) -> Result<Vec<Extent>, StoreError> {
        self.geometry().check_range(offset, len)?;
        Ok(vec![Extent { offset, len, mapped: true }])
    }

    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        read_then_crc32c(self, offset, dst, crc)
    }

    fn resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(fixed_size(self))
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.geometry().size_bytes)
    }

    fn make_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn records(&self) -> Option<&Records> {
        None
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
