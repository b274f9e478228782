//! A volume in memory.
//!
//! Memory is allocated in chunks of 64 KiB, only for what was written. So a volume of many tebibytes costs next to nothing until
//! it is used. Unmapping a chunk returns its memory to the system. Chunks lie in an arena of the volume's own
//! ([`integrity::arena`]), on huge pages where the system has them. A chunk is found through a table of three levels whose parts
//! are built on first use and never removed:
//!
//! ```text
//! root 1024 ──► middle 1024 (1 TiB) ──► leaf 16384 (1 GiB) ──► RwLock<Option<chunk>> (64 KiB)
//! ```
//!
//! Invariants: a logical block never spans two chunks (both are powers of two and a chunk is not smaller). A chunk is read and
//! written under its own lock, so a concurrent reader sees every logical block whole: old or new. A command over several chunks
//! is not atomic, except for an atomic write, which holds all its chunks. `resident` counts exactly the chunks that exist.
//!
//! Nothing here survives the process; a flush has nothing to do.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use integrity::arena::{Arena, CHUNK_BYTES, Chunk};
use integrity::{Prefetch, Store};
use parking_lot::{RwLock, RwLockWriteGuard};

use crate::gather::{Gather, total_bytes};
use crate::store::{
    ExtentList, check_block_bytes, check_extent_range, check_range, check_resize, check_size,
};
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Placement, RecordRun,
    Records, StoreError, not_atomic,
};

/// The content of a chunk that does not exist.
static ZEROES: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
const LEAF_CHUNKS: u64 = 16384;
const MIDDLE_LEAVES: u64 = 1024;
const ROOT_MIDDLES: u64 = 1024;
/// Largest volume, 1 PiB: what the fixed root can address.
const MAX_BYTES: u64 = CHUNK_BYTES as u64 * LEAF_CHUNKS * MIDDLE_LEAVES * ROOT_MIDDLES;
/// Most bytes of an atomic write: 17 chunks at most.
const ATOMIC_BYTES: u64 = 1 << 20;
/// Chunks that are released together.
const FREED_AT_ONCE: usize = 512;
/// Chunks that one `extents` call looks at (4 GiB): it runs inline on a shard and must not hold it for long.
const EXTENT_SCAN_CHUNKS: u64 = 65536;

type Slot = RwLock<Option<Chunk>>;
type Leaf = Box<[Slot]>;
type Middle = Box<[OnceLock<Leaf>]>;
type Root = Box<[OnceLock<Middle>]>;

fn empty_table<T>(entries: u64) -> Box<[OnceLock<T>]> {
    (0..entries).map(|_| OnceLock::new()).collect()
}

/// A sparse volume in memory; see the head of the module for its shape.
pub struct RamStore {
    /// Declared before the chunks, so that it is dropped before them: their memory is then released in whole regions.
    arena: Arena,
    root: OnceLock<Root>,
    size_bytes: AtomicU64,
    logical_block_bytes: u32,
    resident_bytes: AtomicU64,
    resident_limit_bytes: u64,
}

impl RamStore {
    /// Makes a volume of zeros. `size_bytes` is a whole number of blocks, at most 1 PiB; `logical_block_bytes` is a power of
    /// two, 512 to 65536.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the reason.
    pub fn new(size_bytes: u64, logical_block_bytes: u32) -> Result<Self, StoreError> {
        check_block_bytes(logical_block_bytes)?;
        check_size(size_bytes, logical_block_bytes)?;
        check_capacity(size_bytes)?;
        Ok(RamStore {
            arena: Arena::new(),
            root: OnceLock::new(),
            size_bytes: AtomicU64::new(size_bytes),
            logical_block_bytes,
            resident_bytes: AtomicU64::new(0),
            resident_limit_bytes: u64::MAX,
        })
    }

    /// The same volume with a limit on the memory for its data, in bytes (rounded down to whole chunks of 64 KiB);
    /// writes that need more fail with [`StoreError::NoSpace`].
    #[must_use]
    pub fn with_resident_limit(mut self, limit_bytes: u64) -> Self {
        self.resident_limit_bytes = limit_bytes;
        self
    }

    /// Memory that holds data now, in bytes; a multiple of 64 KiB.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// The slot of a chunk, or else the next chunk number that may have one: all chunks before that one read as zeros.
    fn find(&self, chunk: u64) -> Result<&Slot, u64> {
        let (leaf, in_leaf) = (chunk / LEAF_CHUNKS, chunk % LEAF_CHUNKS);
        let (middle, in_middle) = (leaf / MIDDLE_LEAVES, leaf % MIDDLE_LEAVES);
        let Some(root) = self.root.get() else { return Err(MAX_BYTES / CHUNK_BYTES as u64) };
        match root[middle as usize].get() {
            None => Err((middle + 1) * MIDDLE_LEAVES * LEAF_CHUNKS),
            Some(leaves) => match leaves[in_middle as usize].get() {
                None => Err((leaf + 1) * LEAF_CHUNKS),
                Some(slots) => Ok(&slots[in_leaf as usize]),
            },
        }
    }

    /// The slot of a chunk; builds missing tables.
    fn find_or_build(&self, chunk: u64) -> &Slot {
        let (leaf, in_leaf) = (chunk / LEAF_CHUNKS, chunk % LEAF_CHUNKS);
        let (middle, in_middle) = (leaf / MIDDLE_LEAVES, leaf % MIDDLE_LEAVES);
        let root = self.root.get_or_init(|| empty_table(ROOT_MIDDLES));
        let leaves = root[middle as usize].get_or_init(|| empty_table(MIDDLE_LEAVES));
        let slots =
            leaves[in_middle as usize].get_or_init(|| (0..LEAF_CHUNKS).map(|_| Slot::new(None)).collect());
        &slots[in_leaf as usize]
    }

    /// Allocates and counts the memory for one chunk.
    fn take_chunk(&self) -> Result<Chunk, StoreError> {
        let bytes = CHUNK_BYTES as u64;
        let before = self.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        let chunk =
            if before.saturating_add(bytes) <= self.resident_limit_bytes { self.arena.take() } else { None };
        chunk.ok_or_else(|| {
            self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
            StoreError::NoSpace
        })
    }

    /// Puts `fresh` in the slot of a chunk that had no table, unless another writer was first. Returns the slot.
    fn build_with(&self, chunk: u64, fresh: Chunk) -> RwLockWriteGuard<'_, Option<Chunk>> {
        let mut held = self.find_or_build(chunk).write();
        match *held {
            Some(_) => drop(self.resident_bytes.fetch_sub(CHUNK_BYTES as u64, Ordering::Relaxed)),
            None => *held = Some(fresh),
        }
        held
    }

    /// Calls `visit` for every part of a range that lies in one chunk, with the part's place in the range and its bytes, or
    /// `None` for zeros.
    #[inline]
    fn visit_read(&self, offset: u64, len: usize, mut visit: impl FnMut(Range<usize>, Option<&[u8]>)) {
        let mut done = 0;
        while done < len {
            let (chunk, start) = split(offset + done as u64);
            let part = (len - done).min(CHUNK_BYTES - start);
            let place = done..done + part;
            match self.find(chunk) {
                Ok(slot) => {
                    visit(place, slot.read().as_ref().map(|chunk| &chunk.bytes()[start..start + part]))
                }
                Err(_) => visit(place, None),
            }
            done += part;
        }
    }

    /// Calls `visit` for every part of a range that lies in one chunk; creates missing chunks.
    #[inline]
    fn visit_write(&self, offset: u64, len: u64, mut visit: impl FnMut(&mut [u8])) -> Result<(), StoreError> {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let (chunk, start) = split(at);
            let part = (end - at).min((CHUNK_BYTES - start) as u64) as usize;
            let mut held = match self.find(chunk) {
                Ok(slot) => slot.write(),
                // The table is built only once the chunk has memory: a write that finds no memory leaves nothing behind.
                Err(_) => self.build_with(chunk, self.take_chunk()?),
            };
            let chunk = match held.as_mut() {
                Some(chunk) => chunk,
                None => held.insert(self.take_chunk()?),
            };
            visit(&mut chunk.bytes_mut()[start..start + part]);
            at += part as u64;
        }
        Ok(())
    }

    /// Makes a range read as zeros; with `free`, chunks that lie wholly in the range are released.
    fn zero(&self, offset: u64, len: u64, free: bool) {
        let end = offset + len;
        let mut at = offset;
        let mut freed = Vec::new();
        while at < end {
            let (chunk, start) = split(at);
            let slot = match self.find(chunk) {
                Ok(slot) => slot,
                Err(next) => {
                    at = next * CHUNK_BYTES as u64;
                    continue;
                }
            };
            let part = (end - at).min((CHUNK_BYTES - start) as u64) as usize;
            let mut held = slot.write();
            if free && part == CHUNK_BYTES {
                freed.extend(held.take());
                drop(held);
                if freed.len() == FREED_AT_ONCE {
                    self.give_back(&mut freed);
                }
            } else if let Some(chunk) = held.as_mut() {
                chunk.bytes_mut()[start..start + part].fill(0);
            }
            at += part as u64;
        }
        self.give_back(&mut freed);
    }

    fn give_back(&self, freed: &mut Vec<Chunk>) {
        let bytes = (freed.len() * CHUNK_BYTES) as u64;
        self.arena.give_back(freed.drain(..));
        self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Chunk number and place in the chunk.
fn split(offset: u64) -> (u64, usize) {
    (offset / CHUNK_BYTES as u64, (offset % CHUNK_BYTES as u64) as usize)
}

fn check_capacity(size_bytes: u64) -> Result<(), StoreError> {
    if size_bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "a volume in memory of {size_bytes} bytes is too large; use at most 1024T ({MAX_BYTES} bytes)"
    )))
}

impl InPlace for RamStore {
    fn read_in_place(&self, offset: u64, len: u64, look: &mut dyn FnMut(&[u8])) -> Result<(), StoreError> {
        let size_bytes = self.size();
        check_range(size_bytes, offset, len)?;
        let len = usize::try_from(len).map_err(|_| StoreError::OutOfRange { offset, len, size_bytes })?;
        self.visit_read(offset, len, |place, src| look(src.unwrap_or(&ZEROES[..place.len()])));
        Ok(())
    }

    fn prefetch(&self, offset: u64, len: usize) -> Prefetch {
        if check_range(self.size(), offset, len as u64).is_err() {
            return Prefetch::default();
        }
        let (chunk, start) = split(offset);
        if let Ok(slot) = self.find(chunk)
            && let Some(held) = slot.try_read()
            && let Some(chunk) = held.as_ref()
        {
            return Prefetch::of(&chunk.bytes()[start..CHUNK_BYTES.min(start + len)]);
        }
        Prefetch::default()
    }

    fn write_in_place(
        &self,
        offset: u64,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), StoreError> {
        check_range(self.size(), offset, len)?;
        self.visit_write(offset, len, fill)
    }
}

impl BlockStore for RamStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: self.size(),
            logical_block_bytes: self.logical_block_bytes,
            // Memory has no larger block that would make a small write cost a read.
            physical_block_bytes: self.logical_block_bytes,
            rotational: false,
            discard_granularity_bytes: CHUNK_BYTES as u32,
            read_only: false,
        }
    }

    fn placement(&self) -> Placement {
        Placement::Inline
    }

    fn description(&self) -> String {
        format!("ram:{}", self.size())
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.size(), offset, dst.len() as u64)?;
        self.visit_read(offset, dst.len(), |place, src| match src {
            Some(src) => dst[place].copy_from_slice(src),
            None => dst[place].fill(0),
        });
        Ok(())
    }

    fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError> {
        self.read(offset, dst).map(|()| true)
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        check_range(self.size(), offset, dst.len() as u64)?;
        let mut crc = crc;
        self.visit_read(offset, dst.len(), |place, src| {
            let part = &mut dst[place];
            match src {
                // The digest is computed over the copy in `part`, made under the lock of the chunk, so it matches the bytes that
                // are sent.
                Some(src) => {
                    let copied = integrity::copy_crc32c(crc, part, src, Store::Temporal);
                    crc = copied.expect("a part of the destination is as long as its source");
                }
                None => {
                    part.fill(0);
                    crc = integrity::crc32c_append(crc, part);
                }
            }
        });
        Ok(crc)
    }

    fn write(&self, offset: u64, src: &[&[u8]], _durability: Durability) -> Result<(), StoreError> {
        let size_bytes = self.size();
        let len = total_bytes(src, offset, size_bytes)?;
        check_range(size_bytes, offset, len)?;
        let mut gather = Gather::new(src);
        self.visit_write(offset, len, |part| gather.copy_to(part))
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        Some(self)
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        ATOMIC_BYTES
    }

    /// Allocates memory before the first byte is written, since that step may fail. Chunks are locked in ascending order, and
    /// every other operation holds at most one chunk, so there is no deadlock.
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        let size_bytes = self.size();
        let len = total_bytes(src, offset, size_bytes)?;
        check_range(size_bytes, offset, len)?;
        if len > ATOMIC_BYTES || records.is_some() {
            return Err(not_atomic(self));
        }
        let (first, start) = split(offset);
        let chunks = first..(offset + len).div_ceil(CHUNK_BYTES as u64);
        // No table is built for chunks that have no memory.
        let new = chunks.clone().filter(|chunk| self.find(*chunk).is_err()).count() * CHUNK_BYTES;
        if self.resident_bytes().saturating_add(new as u64) > self.resident_limit_bytes {
            return Err(StoreError::NoSpace);
        }
        let mut held = chunks.map(|chunk| self.find_or_build(chunk).write()).collect::<Vec<_>>();
        let missing = held.iter().filter(|chunk| chunk.is_none()).count();
        let new = (0..missing).map(|_| self.take_chunk()).collect::<Vec<_>>();
        if new.iter().any(Result::is_err) {
            let taken = new.iter().filter(|chunk| chunk.is_ok()).count();
            self.resident_bytes.fetch_sub((taken * CHUNK_BYTES) as u64, Ordering::Relaxed);
            return Err(StoreError::NoSpace);
        }
        for (slot, chunk) in held.iter_mut().filter(|chunk| chunk.is_none()).zip(new.into_iter().flatten()) {
            **slot = Some(chunk);
        }
        let mut gather = Gather::new(src);
        let (mut start, mut left) = (start, len as usize);
        for chunk in held.iter_mut().filter_map(|slot| slot.as_mut()) {
            let part = left.min(CHUNK_BYTES - start);
            gather.copy_to(&mut chunk.bytes_mut()[start..start + part]);
            (start, left) = (0, left - part);
        }
        Ok(())
    }

    fn overwrites_in_place(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        check_range(self.size(), offset, len)?;
        self.zero(offset, len, true);
        Ok(())
    }

    /// Without `may_unmap`, a range keeps the memory that it has; missing memory is not allocated.
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        check_range(self.size(), offset, len)?;
        self.zero(offset, len, may_unmap);
        Ok(())
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        check_extent_range(self.size(), offset, len)?;
        let end = offset + len;
        let mut list = ExtentList::new(max);
        let mut at = offset;
        let mut looked_at = 0;
        while at < end && looked_at < EXTENT_SCAN_CHUNKS {
            let (chunk, _) = split(at);
            let (mapped, next) = match self.find(chunk) {
                Ok(slot) => (slot.read().is_some(), chunk + 1),
                Err(next) => (false, next),
            };
            let next = (next * CHUNK_BYTES as u64).min(end);
            if !list.push(at, next - at, mapped) {
                break;
            }
            at = next;
            looked_at += 1;
        }
        Ok(list.into_vec())
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        check_resize(&self.geometry(), size_bytes)?;
        check_capacity(size_bytes)?;
        // It only grows: of two concurrent resizes the larger wins.
        self.size_bytes.fetch_max(size_bytes, Ordering::AcqRel);
        Ok(())
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.size())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_finds_no_memory_leaves_no_table_behind() {
        let store = RamStore::new(100 << 40, 512).unwrap().with_resident_limit(CHUNK_BYTES as u64);
        store.write(0, &[&[1; 512]], Durability::Cached).unwrap();
        for n in 1..100 {
            let (far, block) = (n << 30, [1; 512]);
            let refused = |result| assert!(matches!(result, Err(StoreError::NoSpace)), "{far}: {result:?}");
            refused(store.write(far, &[&block], Durability::Cached));
            refused(store.write_atomic(far, &[&block], None, Durability::Cached));
            assert!(store.find(far / CHUNK_BYTES as u64).is_err(), "a table was built for {far}");
        }
        // If there is a table already, a failed write leaves no chunk in it.
        assert!(store.write(1 << 20, &[&[1; 512]], Durability::Cached).is_err());
        assert_eq!(store.resident_bytes(), CHUNK_BYTES as u64);
    }
}
