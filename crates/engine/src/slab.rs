//! Memory for payloads that is used again and again: slabs on [`bytes::BytesMut`], reclaimed when the last handle is dropped.
//!
//! Two kinds of slab, both over one zero-initialised allocation each:
//! - *shared* slabs of `slab_bytes`, whose front is handed out piece by piece; for small requests;
//! - *whole* slabs in power-of-two classes, handed out one request at a time; for large requests and for receiving.
//!
//! The ring keeps one handle per slab. Whoever got a piece freezes, slices and sends it as it likes; when all pieces are gone
//! the ring's handle is the only one and [`BytesMut::try_reclaim`] gives the whole slab back. The search for a free slab
//! starts with the one used last (LIFO): its lines are still in the cache, and its pages are mapped.
//!
//! Invariants:
//! - The ring holds at most `slab_bytes * max_slabs` bytes. Beyond that a request gets an allocation of its own, which is counted.
//! - No byte of another process or of other parts of this one: memory comes zeroed from the allocator, and later holds what
//!   earlier holders of this ring wrote. **The caller of [`SlabRing::take`] must overwrite every byte** before it lets any of
//!   them leave, since they can be another connection's old data.
//! - In the steady state (every size was seen, enough slabs exist) nothing is allocated, mapped or unmapped.

use std::mem::MaybeUninit;
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;

/// Smallest class of whole slabs, bytes.
const MIN_CLASS_BYTES: usize = 4 * 1024;
/// Largest class of whole slabs, bytes; larger requests get an allocation of their own.
const MAX_CLASS_BYTES: usize = 32 * 1024 * 1024;
const CLASSES: usize = (MAX_CLASS_BYTES / MIN_CLASS_BYTES).ilog2() as usize + 1;

/// A handle to a ring of slabs; clones share it. A shard has one; its lock is then never contended.
#[derive(Clone, Debug)]
pub struct SlabRing {
    ring: Arc<Mutex<Ring>>,
}

/// What a ring has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabStats {
    /// Bytes that the ring holds now, free or handed out.
    pub held_bytes: usize,
    /// Slabs allocated since the beginning.
    pub slabs_allocated: u64,
    /// Times a slab was used again.
    pub slabs_reused: u64,
    /// Requests that got an allocation of their own because the ring was full or the request too large for it.
    pub one_off_allocations: u64,
    /// Idle slabs given back to the system to make room for another size.
    pub slabs_evicted: u64,
}

#[derive(Debug)]
struct Ring {
    slab_bytes: usize,
    max_bytes: usize,
    /// The shared slab that pieces are cut from; its length is what is left of it.
    current: Option<BytesMut>,
    /// Shared slabs that are used up, least recently used first.
    retired: Vec<BytesMut>,
    /// Whole slabs by class, least recently used first in each.
    classes: [Vec<BytesMut>; CLASSES],
    stats: SlabStats,
}

impl SlabRing {
    /// A ring whose shared slabs have `slab_bytes` bytes (rounded up to a power of two, at least 16 KiB) and that holds at most
    /// `max_slabs` times as much. Nothing is allocated yet.
    pub fn new(slab_bytes: usize, max_slabs: usize) -> Self {
        let slab_bytes = slab_bytes.clamp(4 * MIN_CLASS_BYTES, MAX_CLASS_BYTES).next_power_of_two();
        let ring = Ring {
            slab_bytes,
            max_bytes: slab_bytes.saturating_mul(max_slabs),
            current: None,
            retired: Vec::new(),
            classes: [const { Vec::new() }; CLASSES],
            stats: SlabStats::default(),
        };
        Self { ring: Arc::new(Mutex::new(ring)) }
    }

    /// Exactly `len` bytes, initialised with anything: zeros or what an earlier holder wrote. Overwrite all of them.
    pub fn take(&self, len: usize) -> BytesMut {
        let mut ring = self.ring.lock();
        match len {
            0 => BytesMut::new(),
            n if n > ring.slab_bytes / 4 => ring.whole(n),
            n => ring.piece(n),
        }
    }

    /// An empty buffer with room for at least `min` bytes, to receive into. It has a slab of its own, of the next power of two.
    pub fn rx_buffer(&self, min: usize) -> BytesMut {
        let mut buffer = self.ring.lock().whole_class(min.max(1));
        buffer.clear();
        buffer
    }

    /// What the ring has done so far.
    pub fn stats(&self) -> SlabStats {
        self.ring.lock().stats
    }
}

impl Ring {
    fn piece(&mut self, len: usize) -> BytesMut {
        if let Some(current) = &mut self.current
            && current.len() >= len
        {
            return current.split_to(len);
        }
        // The rest is too short. Retired first, so that it is the first candidate: with its pieces gone it is the warmest.
        self.retired.extend(self.current.take());
        let reused = reclaim_last(&mut self.retired, self.slab_bytes);
        self.current = self.counted(reused).or_else(|| self.grow(self.slab_bytes));
        match &mut self.current {
            Some(current) => current.split_to(len),
            None => self.one_off(len),
        }
    }

    fn whole(&mut self, len: usize) -> BytesMut {
        let mut slab = self.whole_class(len);
        // The ring keeps its own handle to the slab, so what is cut off here cannot be reached through the piece.
        slab.truncate(len);
        slab
    }

    fn whole_class(&mut self, min: usize) -> BytesMut {
        let Some(class_bytes) = min.checked_next_power_of_two().map(|n| n.max(MIN_CLASS_BYTES)) else {
            return self.one_off(min);
        };
        if class_bytes > MAX_CLASS_BYTES {
            return self.one_off(min);
        }
        let class = (class_bytes / MIN_CLASS_BYTES).ilog2() as usize;
        let reused = reclaim_last(&mut self.classes[class], class_bytes);
        let Some(mut slab) = self.counted(reused).or_else(|| self.grow(class_bytes)) else {
            return self.one_off(min);
        };
        let handed_out = slab.split_to(class_bytes);
        self.classes[class].push(slab);
        handed_out
    }

    fn counted(&mut self, reused: Option<BytesMut>) -> Option<BytesMut> {
        self.stats.slabs_reused += u64::from(reused.is_some());
        reused
    }

    fn grow(&mut self, bytes: usize) -> Option<BytesMut> {
        if self.stats.held_bytes + bytes > self.max_bytes {
            self.evict_idle(bytes);
        }
        if self.stats.held_bytes + bytes > self.max_bytes {
            return None;
        }
        self.stats.held_bytes += bytes;
        self.stats.slabs_allocated += 1;
        Some(BytesMut::zeroed(bytes))
    }

    /// Gives idle slabs of any size back to the system until `bytes` fit: the sizes in demand have changed.
    fn evict_idle(&mut self, bytes: usize) {
        let classes =
            self.classes.iter_mut().enumerate().map(|(class, slabs)| (MIN_CLASS_BYTES << class, slabs));
        for (slab_bytes, slabs) in classes.chain([(self.slab_bytes, &mut self.retired)]) {
            let mut at = 0;
            while at < slabs.len() {
                if self.stats.held_bytes + bytes <= self.max_bytes {
                    return;
                }
                if try_reclaim_empty(&mut slabs[at], slab_bytes) {
                    slabs.remove(at);
                    self.stats.held_bytes -= slab_bytes;
                    self.stats.slabs_evicted += 1;
                } else {
                    at += 1;
                }
            }
        }
    }

    fn one_off(&mut self, len: usize) -> BytesMut {
        self.stats.one_off_allocations += 1;
        BytesMut::zeroed(len)
    }
}

/// Makes the handle cover its whole slab again, with length 0; false when other handles to the slab exist.
///
/// A piece was cut from every slab that comes here, so its capacity is short of `slab_bytes` and cannot satisfy by itself.
fn try_reclaim_empty(slab: &mut BytesMut, slab_bytes: usize) -> bool {
    debug_assert!(slab.capacity() < slab_bytes);
    slab.clear();
    slab.try_reclaim(slab_bytes)
}

/// Takes the most recently used slab that nobody else holds out of `slabs`, whole and initialised.
fn reclaim_last(slabs: &mut Vec<BytesMut>, slab_bytes: usize) -> Option<BytesMut> {
    let at = slabs.iter_mut().rposition(|slab| reclaim(slab, slab_bytes))?;
    Some(slabs.remove(at))
}

/// Makes `slab` whole and initialised again if no other handle to it exists.
fn reclaim(slab: &mut BytesMut, slab_bytes: usize) -> bool {
    if !try_reclaim_empty(slab, slab_bytes) {
        return false;
    }
    initialise(&mut slab.spare_capacity_mut()[..slab_bytes]);
    // SAFETY: the capacity is at least `slab_bytes` (`try_reclaim` said so, and the slice above was in bounds), and `initialise`
    // has made those bytes initialised.
    unsafe { slab.set_len(slab_bytes) };
    true
}

/// Makes `memory` initialised with the bytes that it happens to hold, at no cost.
///
/// It was allocated zeroed and holds what was written since, but a former holder had safe access to it as spare capacity, where
/// it is allowed to un-initialise. The empty assembly stands for code that writes every byte, which nobody can disprove.
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
fn initialise(memory: &mut [MaybeUninit<u8>]) {
    // SAFETY: no instruction at all; without `nomem`, the compiler has to assume that it wrote to what the pointer reaches.
    unsafe { std::arch::asm!("/* {0} */", in(reg) memory.as_mut_ptr(), options(nostack, preserves_flags)) };
}

#[cfg(not(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))))]
fn initialise(memory: &mut [MaybeUninit<u8>]) {
    memory.fill(MaybeUninit::new(0));
}
