//! Reusable memory for payloads: slabs on [`bytes::BytesMut`], reclaimed when the last handle is dropped.
//!
//! There are two kinds of slab, each over one zero-initialised allocation:
//! - *shared* slabs of `slab_bytes`, which are handed out piece by piece from the front, for small requests;
//! - *whole* slabs in power-of-two classes, each handed out to one request at a time, for large requests and for receiving.
//!
//! The ring keeps one handle per slab. The owner of a piece may freeze, slice and send it. When all pieces are gone, the ring's handle is
//! the only one left and [`BytesMut::try_reclaim`] restores the whole slab. The search for a free slab starts with the one used last
//! (LIFO): its lines are still in the cache, and its pages are mapped. It does not examine all of them: thousands of idle connections hold
//! a receive buffer each (`Slabs`).
//!
//! Invariants:
//! - The ring holds at most `slab_bytes * max_slabs` bytes, and `SPARE_BYTES` more for each slab. Beyond that a request gets an allocation
//!   of its own, which is counted.
//! - What is handed out, except with [`Pins::Nothing`], begins at a multiple of `LINE_BYTES`, and not always at the same place in a page. The kernel copies by `rep
//!   movsb`, and a Zen 3 is slow at that where the target is 1 to 31 bytes ahead of the source, modulo a page (docs/performance.md). Pages of
//!   the page cache begin at 0, and an allocator's large blocks at 16. Where received data begin in the kernel's pages nobody knows, but it
//!   often repeats: a buffer that stood still could be wrong for every receive of a connection.
//! - A piece never holds bytes of another process or of other parts of this one: memory comes zeroed from the allocator, and later holds
//!   what earlier holders of this ring wrote. **The caller of [`SlabRing::take`] must overwrite every byte** before any of them leaves,
//!   since they can be another connection's old data.
//! - The cost of a request does not grow with the number of slabs.
//! - In the steady state (every size has been seen, enough slabs exist) nothing is allocated, mapped or unmapped.

use std::mem::MaybeUninit;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;

/// Smallest class of whole slabs, bytes.
const MIN_CLASS_BYTES: usize = 4 * 1024;
/// Largest class of whole slabs, bytes; larger requests get an allocation of their own.
const MAX_CLASS_BYTES: usize = 32 * 1024 * 1024;
/// Alignment of what is handed out, bytes: a cache line.
const LINE_BYTES: usize = 64;
/// At how many places a slab begins in turn, a line apart.
const PLACES: usize = 8;
/// How much larger an allocation is than its slab, bytes.
const SPARE_BYTES: usize = PLACES * LINE_BYTES;
/// How many of the slabs handed out last a search examines, and how many of the others.
const PROBES: usize = 8;
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
    /// Times a slab was reused.
    pub slabs_reused: u64,
    /// Requests that got an allocation of their own because the ring was full or the request too large for it.
    pub one_off_allocations: u64,
    /// Idle slabs returned to the system to make room for another size.
    pub slabs_evicted: u64,
}

/// Which data may keep a receive buffer from going back to its ring: even a few bytes kept from a buffer keep all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pins {
    /// Any data: there are plenty of buffers.
    Anything,
    /// Only data that is large compared with the buffer: buffers marked [`Pins::Anything`] already take up half of what the ring may hold.
    Large,
    /// None: the ring has nothing left, and the buffer is not one of its slabs.
    Nothing,
}

#[derive(Debug)]
struct Ring {
    slab_bytes: usize,
    max_bytes: usize,
    /// The shared slab that pieces are cut from; its length is the part still free.
    current: Option<BytesMut>,
    /// Shared slabs that are used up.
    retired: Slabs,
    /// Whole slabs by class.
    classes: [Slabs; CLASSES],
    /// Where the next slab begins: see [`PLACES`].
    place: usize,
    /// Total size of the slabs with [`Slab::keeps`], bytes; at most half of `max_bytes`.
    keeping_bytes: usize,
    /// How often [`Ring::may_keep`] still says no before it checks again which of these slabs have come back.
    no_look_for: usize,
    /// How many requests for a new slab are still refused before [`Ring::evict_idle`] looks for idle ones again.
    no_eviction_for: usize,
    stats: SlabStats,
}

/// Slabs of one size. A slab that has come back is noticed only when it is examined, and each request examines a few: those handed out last,
/// and if none of them is idle, some more, in turn over all requests. So after as many requests as an eighth of the slabs each was examined,
/// and at most about an eighth of them is idle without being known while new ones are allocated.
#[derive(Debug, Default)]
struct Slabs {
    /// Least recently handed out first, as long as the search for idle ones takes none out.
    out: Vec<Slab>,
    /// Found idle, and not handed out since.
    idle: Vec<Slab>,
    /// Where the search in `out` goes on.
    next: usize,
}

/// The ring's own handle to a slab.
#[derive(Debug)]
struct Slab {
    memory: BytesMut,
    /// It was handed out with [`Pins::Anything`], and has not been seen to come back.
    keeps: bool,
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
            retired: Slabs::default(),
            classes: std::array::from_fn(|_| Slabs::default()),
            place: 0,
            keeping_bytes: 0,
            no_look_for: 0,
            no_eviction_for: 0,
            stats: SlabStats::default(),
        };
        Self { ring: Arc::new(Mutex::new(ring)) }
    }

    /// Exactly `len` initialised bytes with arbitrary content: zeros or what an earlier holder wrote. Overwrite all of them.
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

    /// Like [`SlabRing::rx_buffer`], and also says which data may stay in the buffer: see [`Pins`]. If the ring has no room for `min`, the
    /// buffer is a separate allocation of `least` bytes.
    pub fn rx_buffer_within(&self, min: usize, least: usize) -> (BytesMut, Pins) {
        let mut ring = self.ring.lock();
        let Some((class, mut slab)) = ring.slab_of_class(min.max(1)) else {
            ring.stats.one_off_allocations += 1;
            return (BytesMut::with_capacity(least), Pins::Nothing);
        };
        let mut buffer = slab.hand_out(Ring::class_bytes(class));
        buffer.clear();
        slab.keeps = ring.may_keep(Ring::class_bytes(class));
        let pins = if slab.keeps { Pins::Anything } else { Pins::Large };
        ring.classes[class].out.push(slab);
        (buffer, pins)
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
            return cut(current, len);
        }
        // The rest is too short. Retire the slab first: if its pieces are gone, it is the first candidate for reuse, and the warmest.
        self.retired.out.extend(self.current.take().map(Slab::new));
        let reused = self.retired.reclaim(self.slab_bytes);
        self.current = self.ready(reused, self.slab_bytes).map(|slab| slab.memory);
        match &mut self.current {
            Some(current) => cut(current, len),
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
        let Some((class, mut slab)) = self.slab_of_class(min) else { return self.one_off(min) };
        let handed_out = slab.hand_out(Self::class_bytes(class));
        self.classes[class].out.push(slab);
        handed_out
    }

    /// Takes a slab of the smallest class that has `min` bytes; `None` when there is no such class, or no room for one more.
    /// The caller hands it out and puts the handle back into its class.
    fn slab_of_class(&mut self, min: usize) -> Option<(usize, Slab)> {
        let class_bytes = min.checked_next_power_of_two()?.max(MIN_CLASS_BYTES);
        if class_bytes > MAX_CLASS_BYTES {
            return None;
        }
        let class = (class_bytes / MIN_CLASS_BYTES).ilog2() as usize;
        let reused = self.classes[class].reclaim(class_bytes);
        Some((class, self.ready(reused, class_bytes)?))
    }

    /// A slab to be handed out: `reused`, or else a new one if there is room.
    fn ready(&mut self, reused: Option<Slab>, slab_bytes: usize) -> Option<Slab> {
        let mut slab = self.counted(reused, slab_bytes).or_else(|| self.grow(slab_bytes))?;
        self.move_on(&mut slab.memory, slab_bytes);
        Some(slab)
    }

    /// Lets a whole allocation begin at the next place, with `bytes` in it.
    fn move_on(&mut self, memory: &mut BytesMut, bytes: usize) {
        self.place = (self.place + 1) % PLACES;
        let to_line = memory.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        memory.advance(to_line + self.place * LINE_BYTES);
        memory.truncate(bytes);
    }

    const fn class_bytes(class: usize) -> usize {
        MIN_CLASS_BYTES << class
    }

    fn counted(&mut self, reused: Option<Slab>, bytes: usize) -> Option<Slab> {
        let mut slab = reused?;
        self.stats.slabs_reused += 1;
        if std::mem::take(&mut slab.keeps) {
            self.keeping_bytes -= bytes;
        }
        Some(slab)
    }

    /// Whether `bytes` more may be handed out with [`Pins::Anything`]; counts them if so.
    ///
    /// A slab that has come back is noticed only when it is checked. So before saying no, this checks all slabs with [`Slab::keeps`]. It
    /// then refuses as many requests as there are slabs before it checks again, so that the amortised cost of a request is constant.
    fn may_keep(&mut self, bytes: usize) -> bool {
        let most = self.max_bytes / 2;
        if self.keeping_bytes + bytes > most && self.no_look_for == 0 {
            for (class, slabs) in self.classes.iter_mut().enumerate() {
                let slab_bytes = Self::class_bytes(class);
                for slab in slabs.iter_mut().filter(|slab| slab.keeps) {
                    slab.keeps = !try_reclaim_empty(&mut slab.memory, slab_bytes);
                    self.keeping_bytes -= if slab.keeps { 0 } else { slab_bytes };
                }
                self.no_look_for += slabs.len();
            }
        }
        let may = self.keeping_bytes + bytes <= most;
        match may {
            true => self.keeping_bytes += bytes,
            false => self.no_look_for = self.no_look_for.saturating_sub(1),
        }
        may
    }

    fn grow(&mut self, bytes: usize) -> Option<Slab> {
        if self.stats.held_bytes + bytes > self.max_bytes {
            self.evict_idle(bytes);
        }
        if self.stats.held_bytes + bytes > self.max_bytes {
            return None;
        }
        self.stats.held_bytes += bytes;
        self.stats.slabs_allocated += 1;
        Some(Slab::new(BytesMut::zeroed(allocated_for(bytes))))
    }

    /// Returns idle slabs of any size to the system until `bytes` fit, because the sizes in demand have changed.
    ///
    /// This examines every slab. If that was in vain, as many requests as there are slabs are refused before it does so again, so that the
    /// amortised cost of a request is constant.
    fn evict_idle(&mut self, bytes: usize) {
        if self.no_eviction_for > 0 {
            self.no_eviction_for -= 1;
            return;
        }
        let (mut held, mut keeping, mut evicted) = (self.stats.held_bytes, self.keeping_bytes, 0);
        let classes =
            self.classes.iter_mut().enumerate().map(|(class, slabs)| (Self::class_bytes(class), slabs));
        for (slab_bytes, slabs) in classes.chain([(self.slab_bytes, &mut self.retired)]) {
            slabs.retain_mut(|slab| {
                let goes = held + bytes > self.max_bytes && try_reclaim_empty(&mut slab.memory, slab_bytes);
                if goes {
                    keeping -= if slab.keeps { slab_bytes } else { 0 };
                    held -= slab_bytes;
                    evicted += 1;
                }
                !goes
            });
        }
        (self.stats.held_bytes, self.keeping_bytes) = (held, keeping);
        self.stats.slabs_evicted += evicted;
        if held + bytes > self.max_bytes {
            self.no_eviction_for = self.classes.iter().map(Slabs::len).sum::<usize>() + self.retired.len();
        }
    }

    fn one_off(&mut self, len: usize) -> BytesMut {
        self.stats.one_off_allocations += 1;
        let mut memory = BytesMut::zeroed(allocated_for(len));
        self.move_on(&mut memory, len);
        memory
    }
}

impl Slabs {
    fn len(&self) -> usize {
        self.out.len() + self.idle.len()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slab> {
        self.idle.iter_mut().chain(&mut self.out)
    }

    fn retain_mut(&mut self, mut stays: impl FnMut(&mut Slab) -> bool) {
        self.idle.retain_mut(&mut stays);
        self.out.retain_mut(&mut stays);
    }

    /// Takes an idle slab out, whole and initialised: the one handed out last, if that has come back.
    fn reclaim(&mut self, slab_bytes: usize) -> Option<Slab> {
        let older = self.out.len().saturating_sub(PROBES);
        let recent = self.out[older..].iter_mut().rposition(|slab| reclaim(&mut slab.memory, slab_bytes));
        if let Some(at) = recent {
            return Some(self.out.remove(older + at));
        }
        if self.idle.is_empty() {
            self.find_idle(older, slab_bytes);
        }
        let mut slab = self.idle.pop()?;
        reclaim(&mut slab.memory, slab_bytes).then_some(slab)
    }

    /// Goes on with the search for idle slabs among the first `older` that are out.
    fn find_idle(&mut self, older: usize, slab_bytes: usize) {
        for _ in 0..PROBES.min(older) {
            // One that was taken out has made room for another.
            if self.next >= older.min(self.out.len()) {
                self.next = 0;
            }
            match try_reclaim_empty(&mut self.out[self.next].memory, slab_bytes) {
                true => self.idle.push(self.out.swap_remove(self.next)),
                false => self.next += 1,
            }
        }
    }
}

impl Slab {
    fn new(memory: BytesMut) -> Self {
        Self { memory, keeps: false }
    }

    /// Hands out the whole slab; the ring keeps an empty handle to it.
    fn hand_out(&mut self, slab_bytes: usize) -> BytesMut {
        self.memory.split_to(slab_bytes)
    }
}

/// Size of the allocation for a slab, bytes.
const fn allocated_for(slab_bytes: usize) -> usize {
    slab_bytes + SPARE_BYTES
}

/// The first `len` bytes of a shared slab, whose length is a multiple of a line, and stays one.
fn cut(slab: &mut BytesMut, len: usize) -> BytesMut {
    let mut piece = slab.split_to(len.next_multiple_of(LINE_BYTES));
    piece.truncate(len);
    piece
}

/// Makes the handle cover its whole allocation again, with length 0; false when other handles to the slab exist.
///
/// Handles to one slab never overlap, so one that covers the whole allocation is the only one.
fn try_reclaim_empty(slab: &mut BytesMut, slab_bytes: usize) -> bool {
    slab.clear();
    slab.try_reclaim(allocated_for(slab_bytes))
}

/// Makes `slab` its whole allocation again, initialised, if no other handle to it exists. Whoever takes it lets it begin at its next place.
fn reclaim(slab: &mut BytesMut, slab_bytes: usize) -> bool {
    if !try_reclaim_empty(slab, slab_bytes) {
        return false;
    }
    let allocated = allocated_for(slab_bytes);
    initialise(&mut slab.spare_capacity_mut()[..allocated]);
    // SAFETY: the capacity is at least `allocated` (`try_reclaim` said so, and the slice above was in bounds), and `initialise` has
    // initialised those bytes.
    unsafe { slab.set_len(allocated) };
    true
}

/// Declares `memory` initialised with the bytes that it happens to hold, at no cost.
///
/// It was allocated zeroed and holds what was written since. But an earlier holder had safe access to it as spare capacity, where writing
/// uninitialised bytes is allowed. The empty assembly block stands for code that writes every byte; the compiler cannot prove otherwise.
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
fn initialise(memory: &mut [MaybeUninit<u8>]) {
    // SAFETY: there is no instruction at all; without `nomem`, the compiler must assume that the block wrote to what the pointer reaches.
    unsafe { std::arch::asm!("/* {0} */", in(reg) memory.as_mut_ptr(), options(nostack, preserves_flags)) };
}

#[cfg(not(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))))]
fn initialise(memory: &mut [MaybeUninit<u8>]) {
    memory.fill(MaybeUninit::new(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLAB: usize = 64 * 1024;

    /// Whether both are the start of one slab, at any of its places.
    fn same_start(a: &[u8], b: *const u8) -> bool {
        a.as_ptr().addr().abs_diff(b.addr()) < SPARE_BYTES
    }

    #[test]
    fn pieces_have_their_length_and_do_not_overlap() {
        let ring = SlabRing::new(SLAB, 8);
        let lens = [1, 0, 7, 4096, 16 * 1024, 16 * 1024 + 1, 40_000, SLAB, 100_000, 3];
        let mut pieces: Vec<_> = lens.iter().map(|&len| ring.take(len)).collect();
        for (n, (piece, len)) in pieces.iter_mut().zip(lens).enumerate() {
            assert_eq!(piece.len(), len);
            assert!(piece.iter().all(|&b| b == 0), "fresh memory is zero");
            piece.fill(n as u8 + 1);
        }
        for (n, piece) in pieces.iter().enumerate() {
            assert!(piece.iter().all(|&b| b == n as u8 + 1));
        }
    }

    #[test]
    fn everything_begins_at_a_cache_line_and_not_always_at_the_same() {
        let ring = SlabRing::new(SLAB, 4);
        let mut places = std::collections::HashSet::new();
        for round in 0..20 {
            let lens = [1, 4096, 100, 16 * 1024, 512, 40_000, SLAB, 2 * SLAB, 16 * 1024 + 1, 63, 65];
            let pieces = lens.iter().map(|&len| (ring.take(len), len));
            let all: Vec<_> =
                pieces.chain([(ring.rx_buffer(5000), 0), (ring.rx_buffer_within(9000, 0).0, 0)]).collect();
            for (piece, len) in &all {
                assert_eq!(piece.as_ptr().align_offset(LINE_BYTES), 0, "round {round}, {len} bytes");
                assert_eq!(piece.len(), *len);
                places.insert((*len, piece.as_ptr() as usize % 4096));
            }
        }
        for len in [0, SLAB, 2 * SLAB] {
            assert!(places.iter().filter(|(of, _)| *of == len).count() > 2, "{len} bytes: {places:?}");
        }
        let stats = ring.stats();
        assert!(stats.slabs_reused > 0 && stats.one_off_allocations > 0, "{stats:?}");
    }

    #[test]
    fn a_slab_comes_back_when_its_last_piece_is_dropped_and_not_before() {
        let ring = SlabRing::new(SLAB, 4);
        let first = ring.take(16 * 1024).freeze();
        let slice = first.slice(100..200);
        let place = first.as_ptr();
        drop(first);
        let rest: Vec<_> = (0..3).map(|_| ring.take(16 * 1024)).collect();
        drop(rest);
        let other = ring.take(16 * 1024);
        assert_eq!(ring.stats().slabs_allocated, 2, "a slice holds the first slab");
        drop(slice);
        let more: Vec<_> = (0..3).map(|_| ring.take(16 * 1024)).collect();
        let again = ring.take(16 * 1024);
        assert!(same_start(&again, place), "the first slab is used again from its start");
        assert_eq!(again.len(), 16 * 1024);
        assert_eq!((ring.stats().slabs_allocated, ring.stats().slabs_reused), (2, 1));
        drop((other, more));
    }

    #[test]
    fn the_slab_used_last_comes_back_first() {
        let ring = SlabRing::new(SLAB, 16);
        let (a, b, c) = (ring.take(SLAB), ring.take(SLAB), ring.take(SLAB));
        let (b_place, c_place) = (b.as_ptr(), c.as_ptr());
        drop((a, b));
        assert!(same_start(&ring.take(SLAB), b_place));
        drop(c);
        // Being taken once more made b the one used last.
        assert!(same_start(&ring.take(SLAB), b_place));
        let held = ring.take(SLAB);
        assert!(same_start(&ring.take(SLAB), c_place));
        drop(held);
    }

    // It is slow under Miri only because of the amounts; the other tests take the same code paths.
    #[cfg_attr(miri, ignore)]
    #[test]
    fn nothing_is_allocated_in_the_steady_state() {
        let ring = SlabRing::new(SLAB, 64);
        let round = |ring: &SlabRing| {
            for len in [48, 512, 4096, 8192, 16_384, 65_536, 131_072, 262_144] {
                let mut pieces: Vec<_> = (0..4).map(|_| ring.take(len).freeze()).collect();
                pieces.swap_remove(1);
                drop(ring.rx_buffer(len));
                drop(pieces);
            }
        };
        (0..4).for_each(|_| round(&ring));
        let before = ring.stats();
        (0..100).for_each(|_| round(&ring));
        let after = ring.stats();
        assert_eq!(after.slabs_allocated, before.slabs_allocated);
        assert_eq!(after.one_off_allocations, 0);
        assert!(after.slabs_reused > before.slabs_reused);
    }

    #[test]
    fn a_slab_that_came_back_is_found_among_many_that_did_not_without_examining_all_at_once() {
        const MANY: usize = 1000;
        const SIZE: usize = SLAB / 4;
        let ring = SlabRing::new(SLAB, MANY);
        let mut held: Vec<_> = (0..MANY).map(|_| ring.take(SIZE + 1)).collect();
        let examined = |ring: &SlabRing| ring.ring.lock().classes[3].next;
        // One in four comes back, from all over.
        let mut numbers = 0..MANY;
        held.retain(|_| numbers.next().is_some_and(|n| n % 4 > 0));
        let before = (ring.stats().slabs_allocated, examined(&ring));
        held.push(ring.take(SIZE + 1));
        assert!(examined(&ring) - before.1 <= PROBES);
        for _ in 1..MANY / 4 - PROBES {
            held.push(ring.take(SIZE + 1));
        }
        let grown = ring.stats().slabs_allocated - before.0;
        assert!(grown <= (MANY / PROBES) as u64, "{grown} were allocated while {} were idle", MANY / 4);
        assert_eq!(held.len(), MANY - PROBES);
    }

    #[test]
    fn a_full_ring_does_not_look_for_idle_slabs_at_each_request() {
        let ring = SlabRing::new(SLAB, 8);
        let mut held: Vec<_> = (0..8).map(|_| ring.take(SLAB)).collect();
        drop(ring.take(2 * SLAB));
        held.truncate(6);
        // As many requests as there are slabs go without it; then the two idle ones make room.
        (0..8).for_each(|_| drop(ring.take(2 * SLAB)));
        assert_eq!((ring.stats().slabs_evicted, ring.stats().one_off_allocations), (0, 9));
        let two = ring.take(2 * SLAB);
        assert_eq!((ring.stats().slabs_evicted, ring.stats().one_off_allocations), (2, 9));
        drop((two, held));
    }

    #[test]
    fn beyond_its_limit_the_ring_allocates_singly_and_counts_it() {
        let ring = SlabRing::new(SLAB, 2);
        let held: Vec<_> = (0..8).map(|_| ring.take(16 * 1024)).collect();
        assert_eq!(ring.stats().held_bytes, 2 * SLAB);
        assert_eq!(ring.stats().one_off_allocations, 0);
        let extra = (ring.take(100), ring.take(SLAB), ring.rx_buffer(5000), ring.take(MAX_CLASS_BYTES + 1));
        assert_eq!(ring.stats().one_off_allocations, 4);
        assert_eq!(ring.stats().held_bytes, 2 * SLAB);
        assert_eq!((extra.0.len(), extra.1.len(), extra.2.len()), (100, SLAB, 0));
        assert!(extra.2.capacity() >= 5000);
        drop(held);
        assert_eq!(ring.take(100).len(), 100);
        assert_eq!(ring.stats().one_off_allocations, 4, "slabs that came back serve again");
    }

    #[test]
    fn idle_slabs_of_one_size_make_room_for_another() {
        let ring = SlabRing::new(SLAB, 2);
        drop((ring.take(SLAB), ring.take(SLAB)));
        let held = ring.take(2 * SLAB);
        let stats = ring.stats();
        assert!(stats.slabs_evicted >= 1 && stats.one_off_allocations == 0);
        assert_eq!(stats.held_bytes, 2 * SLAB);
        drop(held);
    }

    #[test]
    fn who_may_keep_anything_depends_on_what_is_out_now_and_not_on_what_was() {
        let ring = SlabRing::new(SLAB, 8);
        let many = || (0..8).map(|_| ring.rx_buffer_within(SLAB, 1)).collect::<Vec<_>>();
        let may_keep =
            |buffers: &[(BytesMut, Pins)]| buffers.iter().filter(|(_, pins)| *pins == Pins::Anything).count();
        let mut out = many();
        assert_eq!(may_keep(&out), 4, "half of the ring");
        assert_eq!(ring.rx_buffer_within(SLAB, 1).1, Pins::Nothing);
        // The other slabs come back and are used again, but the first half is still out.
        out.truncate(4);
        let again: Vec<_> = (0..4).map(|_| ring.rx_buffer_within(SLAB, 1)).collect();
        assert_eq!(may_keep(&again), 0);
        drop((out, again));
        // It takes as many requests as there are slabs until the ring has noticed that all have come back.
        (0..8).for_each(|_| drop(ring.rx_buffer_within(SLAB, 1)));
        assert_eq!(may_keep(&many()), 4);
    }

    #[test]
    fn a_slab_that_was_evicted_keeps_nothing_any_more() {
        let ring = SlabRing::new(SLAB, 8);
        let many = || (0..8).map(|_| ring.rx_buffer_within(SLAB, 1)).collect::<Vec<_>>();
        drop(many());
        drop((0..4).map(|_| ring.take(2 * SLAB)).collect::<Vec<_>>());
        assert_eq!((ring.stats().slabs_evicted, ring.stats().held_bytes), (8, 8 * SLAB));
        assert_eq!(many().iter().filter(|(_, pins)| *pins == Pins::Anything).count(), 4, "half of the ring");
    }

    #[test]
    fn old_bytes_show_only_as_far_as_the_caller_does_not_overwrite() {
        // This is what the documentation promises: the length is exact, the contents are an earlier holder's.
        let ring = SlabRing::new(SLAB, 1);
        let mut secret = ring.take(SLAB);
        secret.fill(0xee);
        drop(secret);
        let mut shorter = ring.take(SLAB / 2 + 1);
        assert_eq!(shorter.len(), SLAB / 2 + 1);
        shorter.fill(0x11);
        let frozen = shorter.freeze();
        assert!(frozen.iter().all(|&b| b == 0x11), "nothing of the earlier holder is within reach");
    }

    #[test]
    fn memory_stays_initialised_after_a_holder_gave_up_its_length() {
        let ring = SlabRing::new(SLAB, 1);
        let mut piece = ring.take(SLAB);
        piece.clear();
        piece.spare_capacity_mut().fill(MaybeUninit::uninit());
        drop(piece);
        let piece = ring.take(SLAB);
        // Miri would object to this sum if the bytes were not initialised.
        assert_eq!(piece.iter().map(|&b| u64::from(b)).sum::<u64>() / (SLAB as u64 * 256), 0);
    }

    #[test]
    fn pieces_outlive_the_ring_and_may_grow() {
        let ring = SlabRing::new(SLAB, 1);
        let mut piece = ring.take(100);
        piece.fill(5);
        drop(ring);
        piece.extend_from_slice(&[6; 100_000]);
        assert_eq!((piece[99], piece[100], piece.len()), (5, 6, 100_100));
    }
}
