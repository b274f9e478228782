//! Memory for blocks: chunks of 64 KiB, cut from regions on huge pages.
//!
//! A 4 KiB block that lies in ordinary memory costs a walk through two levels of page tables for each page that it touches, and more
//! under a hypervisor: on huge pages the copy of one takes 10 to 20 % less time. So a region is aligned to the size of a huge page
//! and the kernel is asked for them; chunks are aligned to their own size, so that no block straddles two pages.
//!
//! Thin volumes stay thin: a region is an address range until somebody writes to it, chunks are taken from the group (the huge page)
//! that was begun first, and the first group of an arena has ordinary pages, so that an arena with one chunk takes one chunk.
//! What is given back goes to the system at once, not to a list: a chunk that is free holds nothing, and who is given it next finds
//! zeros.
//!
//! Invariants: a chunk is inside a region that is mapped as long as the chunk lives; no two chunks overlap; each is counted as used
//! in its region from [`Arena::take`] until it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size of a [`Chunk`], bytes.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// What becomes one huge page, bytes: that of x86-64 and of aarch64 with pages of 4 KiB. Where huge pages are larger, regions
/// have ordinary ones.
const GROUP_BYTES: usize = 2 * 1024 * 1024;
const GROUP_CHUNKS: usize = GROUP_BYTES / CHUNK_BYTES;
const GROUPS: usize = 16;
/// Addresses that are taken from the system at a time, bytes: a process may have 65530 of such ranges, which is 2 TiB then.
const REGION_BYTES: usize = GROUPS * GROUP_BYTES;
/// A bit for each chunk of a group.
type Mask = u32;
const _: () = assert!(Mask::BITS as usize == GROUP_CHUNKS);

/// Where chunks come from. It may be dropped before its chunks are: then the system gets their memory back by whole regions.
#[derive(Debug, Default)]
pub struct Arena {
    shared: Arc<Shared>,
}

/// 64 KiB that nobody else has. Dropped, its memory goes back to the system.
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
    /// Those of them that have a chunk to give.
    roomy: BTreeSet<usize>,
    /// Whether there was a region before.
    begun: bool,
    /// The arena is gone: no chunk is taken any more.
    closed: bool,
}

/// Which chunks of each group are used.
#[derive(Debug)]
struct Region {
    used: [Mask; GROUPS],
}

impl Arena {
    /// An arena without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A chunk of zeros; `None` when the system gives no addresses.
    pub fn take(&self) -> Option<Chunk> {
        let address = self.shared.lock().take()?;
        // SAFETY: `take` gives addresses within a mapping, which are not 0.
        let memory = unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address)) };
        Some(Chunk { memory, shared: Arc::clone(&self.shared) })
    }

    /// Drops chunks of this arena together: neighbours go back to the system in one call.
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
        // SAFETY: the memory is mapped while the chunk lives, was zeroed by the kernel, and nobody else has it.
        unsafe { self.memory.as_ref() }
    }

    /// Its bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; CHUNK_BYTES] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { self.memory.as_mut() }
    }

    fn freed(&self) -> Freed {
        let address = self.memory.as_ptr().expose_provenance();
        Freed { group: address - address % GROUP_BYTES, chunks: 1 << (address % GROUP_BYTES / CHUNK_BYTES) }
    }

    /// What is to be given back, without giving it back.
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

/// Chunks of a group that nobody has any more.
struct Freed {
    /// Address of the group.
    group: usize,
    chunks: Mask,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Chunks keep this alive, so there are none.
        for base in self.lock().regions.keys() {
            unmap(*base, REGION_BYTES);
        }
    }
}

impl State {
    /// Address of a chunk of zeros that is now used.
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
            // Of an arena that is gone nobody takes them: their region goes as a whole.
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

/// First and number of the bits of each run of ones.
fn runs(mut mask: Mask) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = mask.trailing_zeros();
        let ones = mask.checked_shr(first)?.trailing_ones();
        mask &= Mask::MAX.checked_shl(first + ones).unwrap_or(0);
        Some((first as usize, ones as usize))
    })
}

/// Maps a region and asks for huge pages in it, but for its first group where it is the first of its arena.
fn map_region(is_first: bool) -> Option<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping wherever the kernel likes touches nobody's memory.
    let whole = unsafe { mmap_anonymous(std::ptr::null_mut(), REGION_BYTES + GROUP_BYTES, access, flags) };
    let start = whole.ok()?.expose_provenance();
    let base = start.next_multiple_of(GROUP_BYTES);
    unmap(start, base - start);
    unmap(base + REGION_BYTES, start + GROUP_BYTES - base);
    let skipped = if is_first { GROUP_BYTES } else { 0 };
    // Where there are none, or the system's owner wants none, it does without.
    let _ = advise(base + skipped, REGION_BYTES - skipped, Advice::LinuxHugepage);
    Some(base)
}

/// Unmaps a part of a mapping of ours in which no chunk is.
fn unmap(address: usize, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the callers have mapped this range, and nobody has a chunk in it.
    let unmapped = unsafe { munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
    debug_assert!(unmapped.is_ok(), "{address:#x} is not ours: {unmapped:?}");
}

/// Gives the memory of free chunks back: the next who has them finds zeros.
fn empty(address: usize, bytes: usize) {
    if advise(address, bytes, Advice::LinuxDontNeed).is_ok() {
        return;
    }
    // Locked into memory (`mlockall`), it stays there. Who is given it next is to find zeros all the same.
    let memory: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the range is mapped, writable, and of chunks that nobody has.
    unsafe { memory.write_bytes(0, bytes) };
}

fn advise(address: usize, bytes: usize, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: the range is ours. Advice to use huge pages changes no byte; advice that memory is not needed is given for chunks
    // that nobody has.
    unsafe { madvise(std::ptr::with_exposed_provenance_mut(address), bytes, advice) }
}

#[cfg(test)]
mod tests;
