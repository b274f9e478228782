//! Memory for blocks: chunks of 64 KiB, cut from regions on huge pages.
//!
//! An access to a 4 KiB block in ordinary memory costs a walk through two levels of page tables for each page it touches, and more under a
//! hypervisor. On huge pages the copy of a block takes 10 to 20 % less time. Regions are therefore aligned to the size of a huge page and
//! the kernel is asked to use huge pages for them. Chunks are aligned to their own size, so no block straddles two pages.
//!
//! Thin volumes stay thin. A region is only an address range until it is written to. Chunks are taken from the lowest group (huge page)
//! with room. The first group of an arena has ordinary pages, so an arena with one chunk occupies the memory of one chunk. A freed chunk's
//! memory goes back to the system at once; there is no free list. A free chunk therefore holds no memory, and its next owner finds zeros.
//!
//! Invariants: a chunk lies inside a region that stays mapped as long as the chunk lives; no two chunks overlap; each chunk is counted as
//! used in its region from [`Arena::take`] until it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size of a [`Chunk`], bytes.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Size of a group, which becomes one huge page, bytes: that of x86-64, and of aarch64 with pages of 4 KiB. On machines with larger huge
/// pages, regions have ordinary pages.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const GROUP_CHUNKS: usize = GROUP_BYTES / CHUNK_BYTES;
const GROUPS: usize = 16;
/// Size of the address range mapped at a time, bytes. A process may have 65530 such ranges, so this allows 2 TiB.
const REGION_BYTES: usize = GROUPS * GROUP_BYTES;
/// A bit for each chunk of a group.
type Mask = u32;
const _: () = assert!(Mask::BITS as usize == GROUP_CHUNKS);

/// Allocates chunks. It may be dropped before its chunks; the system then gets their memory back region by region.
#[derive(Debug, Default)]
pub struct Arena {
    shared: Arc<Shared>,
}

/// 64 KiB with one owner. When it is dropped, its memory goes back to the system.
#[derive(Debug)]
pub struct Chunk {
    memory: NonNull<[u8; CHUNK_BYTES]>,
    shared: Arc<Shared>,
}

// SAFETY: a chunk is the only way to its memory, as a box is.
unsafe impl Send for Chunk {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for Chunk {}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By address.
    regions: BTreeMap<usize, Region>,
    /// The regions with at least one free chunk.
    roomy: BTreeSet<usize>,
    /// Whether a region has ever been mapped.
    begun: bool,
    /// The arena was dropped: no more chunks are taken.
    closed: bool,
}

/// Which chunks of each group are used.
#[derive(Debug)]
struct Region {
    used: [Mask; GROUPS],
}

impl Arena {
    /// An arena that has no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A chunk of zeros; `None` if the system has no addresses left to map.
    pub fn take(&self) -> Option<Chunk> {
        let address = self.shared.lock().take()?;
        // SAFETY: `take` returns addresses within a mapping, which are not 0.
        let memory = unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) };
        Some(Chunk { memory, shared: Arc::clone(&self.shared) })
    }

    /// Drops chunks of this arena together: the memory of neighbours goes back to the system in one call.
    pub fn give_back(&self, chunks: impl IntoIterator<Item = Chunk>) {
        let mut freed: Vec<Freed> = Vec::new();
        for chunk in chunks {
            if !Arc::ptr_eq(&chunk.shared, &self.shared) {
                continue;
            }
            let one = chunk.into_freed();
            match freed.last_mut().filter(|last| last.group == one.group) {
                Some(last) => last.chunks |= one.chunks,
                None => freed.push(one),
            }
        }
        self.shared.lock().give_back(&freed);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
    }
}

impl Chunk {
    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8; CHUNK_BYTES] {
        // SAFETY: the memory is mapped while the chunk lives, was zeroed by the kernel, and has no other owner.
        unsafe { self.memory.as_ref() }
    }

    /// Its bytes, writable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; CHUNK_BYTES] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { self.memory.as_mut() }
    }

    fn freed(&self) -> Freed {
        let address = self.memory.as_ptr().expose_provenance();
        Freed { group: address - address % GROUP_BYTES, chunks: 1 << (address % GROUP_BYTES / CHUNK_BYTES) }
    }

    /// Describes the memory to free, without freeing it.
    fn into_freed(self) -> Freed {
        let freed = self.freed();
        let mut chunk = std::mem::ManuallyDrop::new(self);
        // SAFETY: the chunk is not used or dropped after this, so its handle is dropped once.
        unsafe { std::ptr::drop_in_place(&raw mut chunk.shared) };
        freed
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.shared.lock().give_back(&[self.freed()]);
    }
}

/// Chunks of one group that no longer have an owner.
struct Freed {
    /// Address of the group.
    group: usize,
    chunks: Mask,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics between two changes that belong together, so the state of a poisoned lock is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Every chunk holds a reference to this, so none are left.
        for base in self.lock().regions.keys() {
            unmap(*base, REGION_BYTES);
        }
    }
}

impl State {
    /// Marks a free chunk, which holds zeros, as used and returns its address.
    fn take(&mut self) -> Option<usize> {
        let base = match self.roomy.first() {
            Some(base) => *base,
            None => self.map()?,
        };
        let region = self.regions.get_mut(&base)?;
        let group = region.used.iter().position(|used| *used != Mask::MAX)?;
        let used = &mut region.used[group];
        let chunk = used.trailing_ones() as usize;
        *used |= 1 << chunk;
        if region.used.iter().all(|used| *used == Mask::MAX) {
            self.roomy.remove(&base);
        }
        Some(base + group * GROUP_BYTES + chunk * CHUNK_BYTES)
    }

    fn map(&mut self) -> Option<usize> {
        let base = map_region(!self.begun)?;
        self.begun = true;
        self.regions.insert(base, Region { used: [0; GROUPS] });
        self.roomy.insert(base);
        Some(base)
    }

    fn give_back(&mut self, freed: &[Freed]) {
        for Freed { group, chunks } in freed {
            let Some((&base, region)) = self.regions.range_mut(..=group).next_back() else { continue };
            let used = &mut region.used[(group - base) / GROUP_BYTES];
            *used &= !chunks;
            let rest = *used;
            if region.used.iter().all(|used| *used == 0) {
                self.regions.remove(&base);
                self.roomy.remove(&base);
                unmap(base, REGION_BYTES);
                continue;
            }
            // No more chunks are taken once the arena is gone: the region is unmapped as a whole when its last chunk is dropped.
            if self.closed {
                continue;
            }
            self.roomy.insert(base);
            match rest {
                0 => empty(*group, GROUP_BYTES),
                _ => runs(*chunks).for_each(|(at, n)| empty(group + at * CHUNK_BYTES, n * CHUNK_BYTES)),
            }
        }
    }
}

/// First bit and length of each run of ones.
fn runs(mut mask: Mask) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = mask.trailing_zeros();
        let ones = mask.checked_shr(first)?.trailing_ones();
        mask &= Mask::MAX.checked_shl(first + ones).unwrap_or(0);
        Some((first as usize, ones as usize))
    })
}

/// Maps a region and requests huge pages for it, except for the first group of an arena's first region.
fn map_region(is_first: bool) -> Option<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
    let whole = unsafe { mmap_anonymous(std::ptr::null_mut(), REGION_BYTES + GROUP_BYTES, access, flags) };
    let start = whole.ok()?.expose_provenance();
    let base = start.next_multiple_of(GROUP_BYTES);
    unmap(start, base - start);
    unmap(base + REGION_BYTES, start + GROUP_BYTES - base);
    let skipped = if is_first { GROUP_BYTES } else { 0 };
    // This is advice only: without huge pages, or where the administrator has disabled them, ordinary ones do.
    let _ = advise(base + skipped, REGION_BYTES - skipped, Advice::LinuxHugepage);
    Some(base)
}

/// Unmaps a part of one of our mappings that contains no chunk.
fn unmap(address: usize, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the callers have mapped this range, and no chunk lies in it.
    let unmapped = unsafe { munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
    debug_assert!(unmapped.is_ok(), "{address:#x} is not ours: {unmapped:?}");
}

/// Returns the memory of free chunks to the system: their next owner finds zeros.
fn empty(address: usize, bytes: usize) {
    if advise(address, bytes, Advice::LinuxDontNeed).is_ok() {
        return;
    }
    // Memory locked with `mlockall` stays; the next owner must find zeros all the same.
    let memory: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the range is mapped and writable, and its chunks have no owner.
    unsafe { memory.write_bytes(0, bytes) };
}

fn advise(address: usize, bytes: usize, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: the range is ours. Advice to use huge pages changes no byte; advice that memory is not needed is given only for chunks
    // without an owner.
    unsafe { madvise(std::ptr::with_exposed_provenance_mut(address), bytes, advice) }
}

#[cfg(test)]
mod tests;
