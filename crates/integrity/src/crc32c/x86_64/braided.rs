//! CRC32C by the CRC32 instruction and by vectors at the same time: for processors that run the two in different units, neither of which
//! alone keeps up with the loads.
//!
//! Copies are not braided. They would read and write memory at four places at a time, and a target that reads 128 KiB from a volume takes a
//! sixth longer than with a sequential copy.
//!
//! A block is cut into three lanes of equal length for the CRC32 instruction, followed by vectors for folded chains. Bytes that fit neither
//! come before the block:
//!
//! ```text
//! head | lane A: words | lane B: words | lane C: words | v0 v1 v2 ... | next block
//!   R    A               B               C               V
//! register = R · x^(bits of the block) + A · x^(bits of B, C and V) + B · x^(bits of C and V) + C · x^(bits of V) + V
//! ```
//!
//! The products and the last block of the fold are added before they are reduced, so the join costs one reduction, and no lane waits for
//! the bytes before the block.
//!
//! The algorithm is written once for every vector width ([`Vector`]) and for both ways of moving the chains forward ([`Advance`]): each
//! chain by products, or four chains together by matrices ([`matrices`](super::matrices)).

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_setzero_si128, _mm_slli_si128, _mm_xor_si128,
};
use core::marker::PhantomData;

use super::matrices::Matrices;
use super::sse42::Sse42;
use super::{avx2, avx512, fold_pair};
use crate::copy::pass::READ;
use crate::crc32c::interleaved::{self, Crc32Unit, MIN_BLOCK_BYTES as MIN_LANES_BYTES, lane_shift};
use crate::detect::Detected;

/// A vector register, seen as blocks of 128 bits.
pub(crate) trait Vector: Copy {
    /// Its length in bytes: a multiple of 16.
    const BYTES: usize;

    /// Multipliers for every block of a vector.
    ///
    /// # Safety
    /// - The machine has the instructions of this vector.
    unsafe fn multipliers(pair: [u64; 2]) -> Self;

    /// Loads the vector at `src`.
    ///
    /// # Safety
    /// - The machine has the instructions of this vector.
    /// - `src` is valid for a read of [`BYTES`](Self::BYTES).
    unsafe fn load(src: *const u8) -> Self;

    /// Moves every block forward by the distance of `by` and adds `onto`.
    ///
    /// # Safety
    /// - The machine has the instructions of this vector.
    unsafe fn fold(self, by: Self, onto: Self) -> Self;

    /// All blocks folded onto the last one.
    ///
    /// # Safety
    /// - The machine has the instructions of this vector.
    unsafe fn onto_last_block(self) -> __m128i;
}

/// How all chains take one vector each, while the lanes take their words.
pub(crate) trait Advance<V: Vector, const CHAINS: usize> {
    /// The constants of a step, in registers.
    type By: Copy;
    /// Whether the loop runs four steps at a time. For a short step that saves increments of pointers. After a long one the processor, which
    /// looks only so far ahead, would find the words too late to run them next to the vectors.
    const UNROLLED: bool;
    /// What the address of a block is a multiple of, in bytes: a power of two, at most 32. The vectors of the block begin at such a multiple too.
    const ALIGNMENT: usize;

    /// Loads the constants.
    ///
    /// # Safety
    /// - The machine has the instructions of this step.
    unsafe fn by() -> Self::By;

    /// Moves the chains forward by one vector each and adds the vectors taken; the lanes take `words` words each.
    ///
    /// # Safety
    /// - The machine has the instructions of this step, SSE4.2 and PCLMULQDQ.
    /// - The block has as many vectors and words left.
    unsafe fn step(chains: &mut [V; CHAINS], by: Self::By, block: &mut Block, words: usize);
}

/// Each chain is folded onto its next vector.
pub(crate) struct Products;

impl<V: Vector, const CHAINS: usize> Advance<V, CHAINS> for Products {
    type By = V;
    const UNROLLED: bool = true;
    const ALIGNMENT: usize = 1;

    #[inline(always)]
    unsafe fn by() -> V {
        // SAFETY: the machine has the instructions: the caller vouches for it.
        unsafe { V::multipliers(const { fold_pair((8 * CHAINS * V::BYTES) as u64) }) }
    }

    #[inline(always)]
    unsafe fn step(chains: &mut [V; CHAINS], by: V, block: &mut Block, words: usize) {
        // SAFETY: the conditions are those of this function.
        unsafe {
            for chain in chains {
                *chain = chain.fold(by, block.vector());
            }
            block.words(words);
        }
    }
}

/// What is left of a block, and the lanes.
pub(crate) struct Block {
    src: *const u8,
    lane_bytes: usize,
    /// Bytes taken of each lane.
    word_at: usize,
    /// Where the next vector begins.
    vector_at: usize,
    lanes: [u64; LANES],
}

impl Block {
    /// The next vector.
    ///
    /// # Safety
    /// - The block has one left, and the machine has the instructions of `V`.
    #[inline(always)]
    pub(crate) unsafe fn vector<V: Vector>(&mut self) -> V {
        // SAFETY: the conditions are those of this function.
        let vector = unsafe { V::load(self.src.add(self.vector_at)) };
        self.vector_at += V::BYTES;
        vector
    }

    /// The next words of every lane, lane by lane.
    ///
    /// # Safety
    /// - Every lane has `count` left, and the machine has SSE4.2 and PCLMULQDQ.
    #[inline(always)]
    pub(crate) unsafe fn words(&mut self, count: usize) {
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            for i in 0..count {
                let place = n * self.lane_bytes + self.word_at + 8 * i;
                // SAFETY: the conditions are those of this function.
                unsafe {
                    let word = interleaved::take64::<Sse42, READ>(core::ptr::null_mut(), self.src, place);
                    *lane = Sse42::word64(*lane, word);
                }
            }
        }
        self.word_at += 8 * count;
    }
}

/// Lanes of the CRC32 instruction, which takes three cycles and can start every cycle.
const LANES: usize = 3;
/// A shorter remainder is not braided: the lanes alone are as fast.
const MIN_BRAIDED_BYTES: usize = 512;

/// The number of chains of vectors, and the number of words each lane takes while each chain takes one vector.
///
/// The best braid keeps both units busy within the processor's other limits; it is found by experiment.
struct Braid<V, A, const CHAINS: usize, const WORDS: usize>(PhantomData<(V, A)>);

/// How a block is cut.
struct Cut {
    /// Steps of all lanes and all chains, at least one.
    steps: usize,
    /// Vectors that the first chain takes before the steps.
    extra_vectors: usize,
    /// Words that each lane takes before the steps.
    extra_words: usize,
}

impl<V: Vector, A: Advance<V, CHAINS>, const CHAINS: usize, const WORDS: usize> Braid<V, A, CHAINS, WORDS> {
    const STEP_BYTES: usize = CHAINS * V::BYTES + 8 * LANES * WORDS;
    /// Whole steps, limited by the table of shifts.
    const MAX_BLOCK_BYTES: usize = 8 * interleaved::MAX_SHIFT_WORDS / Self::STEP_BYTES * Self::STEP_BYTES;

    /// Cuts a block of at most `len` bytes, where `len` is from one step to one block. Less than a vector is left over; without alignment
    /// less than a word for each lane.
    #[inline(always)]
    fn cut(len: usize) -> Cut {
        let (steps, rest) = (len / Self::STEP_BYTES, len % Self::STEP_BYTES);
        // Vectors get their share of the remainder, as in a step, and what the lanes leave.
        let vectors = rest * CHAINS / Self::STEP_BYTES;
        let rest = rest - vectors * V::BYTES;
        let granule = A::ALIGNMENT.div_ceil(8);
        let extra_words = rest / (8 * LANES) / granule * granule;
        let extra_vectors = vectors + (rest - 8 * LANES * extra_words) / V::BYTES;
        Cut { steps, extra_vectors, extra_words }
    }

    /// The multipliers that move each chain to the place of the last one, which itself needs none.
    const fn onto_last_chain() -> [[u64; 2]; CHAINS] {
        let mut pairs = [[0; 2]; CHAINS];
        let mut n = 0;
        while n < CHAINS - 1 {
            pairs[n] = fold_pair((8 * V::BYTES * (CHAINS - 1 - n)) as u64);
            n += 1;
        }
        pairs
    }

    const fn lane_words(cut: &Cut) -> usize {
        cut.steps * WORDS + cut.extra_words
    }

    const fn vector_bytes(cut: &Cut) -> usize {
        (cut.steps * CHAINS + cut.extra_vectors) * V::BYTES
    }

    const fn bytes(cut: &Cut) -> usize {
        8 * LANES * Self::lane_words(cut) + Self::vector_bytes(cut)
    }

    /// Continues `crc` (finished form) over `len` bytes at `src`.
    ///
    /// # Safety
    /// - The machine has the instructions of `V`, SSE4.2 and PCLMULQDQ.
    /// - `src` is valid for reads of `len` bytes.
    #[inline(always)]
    unsafe fn run(crc: u32, src: *const u8, len: usize) -> u32 {
        const { assert!(Self::STEP_BYTES <= MIN_BRAIDED_BYTES, "what is braided has a step") }
        let nowhere = core::ptr::null_mut();
        if len < MIN_BRAIDED_BYTES {
            // SAFETY: the conditions are those of this function.
            return unsafe { interleaved::run::<Sse42, READ>(crc, nowhere, src, len) };
        }
        let unaligned = src.addr().wrapping_neg() % A::ALIGNMENT;
        let (blocks, rest) =
            ((len - unaligned) / Self::MAX_BLOCK_BYTES, (len - unaligned) % Self::MAX_BLOCK_BYTES);
        let last = (rest >= MIN_BRAIDED_BYTES).then(|| Self::cut(rest));
        let left = rest - last.as_ref().map_or(0, Self::bytes);
        // What fits into no block goes first, where its chain of instructions is hidden behind the lanes, or last, where blocks are aligned.
        let (head, tail) = if A::ALIGNMENT > 1 { (unaligned, left) } else { (left, 0) };
        // SAFETY: head, blocks, last block and tail follow each other and together are what `src` is valid for; the caller vouches for the
        // instructions.
        unsafe {
            let mut register = match head < MIN_LANES_BYTES {
                true => interleaved::serial::<Sse42, READ>(u64::from(!crc), nowhere, src, head),
                false => u64::from(!interleaved::run::<Sse42, READ>(crc, nowhere, src, head)),
            };
            let mut at = head;
            for _ in 0..blocks {
                let whole = const {
                    Cut { steps: Self::MAX_BLOCK_BYTES / Self::STEP_BYTES, extra_vectors: 0, extra_words: 0 }
                };
                register = Self::block(register, src.add(at), &whole);
                at += Self::MAX_BLOCK_BYTES;
            }
            if let Some(last) = last {
                register = Self::block(register, src.add(at), &last);
                at += Self::bytes(&last);
            }
            match tail < MIN_LANES_BYTES {
                true => !(interleaved::serial::<Sse42, READ>(register, nowhere, src.add(at), tail) as u32),
                false => interleaved::run::<Sse42, READ>(!(register as u32), nowhere, src.add(at), tail),
            }
        }
    }

    /// Continues `register` over the bytes of one block.
    ///
    /// # Safety
    /// - The conditions of [`run`](Self::run), for the bytes of the cut.
    #[inline(always)]
    unsafe fn block(register: u64, src: *const u8, cut: &Cut) -> u64 {
        let lane_bytes = 8 * Self::lane_words(cut);
        let mut block =
            Block { src, lane_bytes, word_at: 0, vector_at: LANES * lane_bytes, lanes: [0; LANES] };
        // SAFETY: each lane has `lane_words` words, followed by the vectors of the cut. No more are taken, and the last assertion says that
        // no fewer are. The caller vouches for memory and instructions.
        unsafe {
            let by_one = V::multipliers(const { fold_pair(8 * V::BYTES as u64) });
            let by_step = A::by();
            let first: V = block.vector();
            let mut chains = [first; CHAINS];
            for _ in 0..cut.extra_vectors {
                chains[0] = chains[0].fold(by_one, block.vector());
            }
            for chain in &mut chains[1..] {
                *chain = block.vector();
            }
            for _ in 0..cut.extra_words {
                block.words(1);
            }
            block.words(WORDS);
            let mut steps = cut.steps - 1;
            while A::UNROLLED && steps >= 4 {
                A::step(&mut chains, by_step, &mut block, WORDS);
                A::step(&mut chains, by_step, &mut block, WORDS);
                A::step(&mut chains, by_step, &mut block, WORDS);
                A::step(&mut chains, by_step, &mut block, WORDS);
                steps -= 4;
            }
            while steps > 0 {
                A::step(&mut chains, by_step, &mut block, WORDS);
                steps -= 1;
            }
            debug_assert_eq!((block.word_at, block.vector_at), (lane_bytes, Self::bytes(cut)));
            // Each chain by its own distance, so that none waits for another.
            let mut all = chains[CHAINS - 1];
            for (chain, pair) in chains.into_iter().zip(const { Self::onto_last_chain() }).take(CHAINS - 1) {
                all = chain.fold(V::multipliers(pair), all);
            }
            let vector_words = Self::vector_bytes(cut) / 8;
            let [a, b, c] = block.lanes;
            let lane_words = Self::lane_words(cut);
            join(
                all.onto_last_block(),
                [
                    (c, vector_words),
                    (b, vector_words + lane_words),
                    (a, vector_words + 2 * lane_words),
                    (register, vector_words + 3 * lane_words),
                ],
            )
        }
    }
}

/// The register after `last`, the last block of 128 bits, and `registers`, each with its distance in words from the end of that block.
///
/// # Safety
/// - The machine has SSE4.2 and PCLMULQDQ.
#[inline(always)]
unsafe fn join<const N: usize>(last: __m128i, registers: [(u64, usize); N]) -> u64 {
    // SAFETY: the machine has the instructions: the caller vouches for it.
    unsafe {
        let mut products = _mm_setzero_si128();
        for (register, words) in registers {
            let (register, shift) = (register as i64, i64::from(lane_shift(words)));
            let product = _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(register), _mm_cvtsi64_si128(shift));
            products = _mm_xor_si128(products, product);
        }
        // A product is reduced as if it were the last eight bytes.
        let last = _mm_xor_si128(last, _mm_slli_si128::<8>(products));
        let register = _mm_crc32_u64(0, _mm_cvtsi128_si64(last) as u64);
        _mm_crc32_u64(register, _mm_extract_epi64::<1>(last) as u64)
    }
}

/// Whether [`amd_family_26`](crate::detect::amd_family_26) holds.
static OF_FAMILY_26: Detected = Detected::new();

/// The entry of a kernel with one vector width: runs of `$len` bytes for which `$pays` holds are braided; for the others, cutting and
/// joining cost more than they save, and the kernel that only folds takes them.
macro_rules! kernel {
    ($(#[$about:meta])* $name:ident, $folded:ident, $braid:ty, |$len:ident| $pays:expr, $features:literal) => {
        $(#[$about])*
        pub(crate) mod $name {
            use super::{Braid, $folded as folded};

            /// Continues `crc` (finished form) over `data`.
            ///
            /// # Safety
            /// - The kernel that only folds is detected.
            #[target_feature(enable = $features)]
            pub(crate) unsafe fn append(crc: u32, data: &[u8]) -> u32 {
                let $len = data.len();
                // SAFETY: this function has the instructions.
                unsafe { if $pays { braid(crc, data) } else { folded::append(crc, data) } }
            }

            /// Apart, so that a run that is only folded saves no registers for it.
            ///
            /// # Safety
            /// - The kernel that only folds is detected.
            #[inline(never)]
            #[target_feature(enable = $features)]
            unsafe fn braid(crc: u32, data: &[u8]) -> u32 {
                // SAFETY: `data` is readable for its length, and this function has the instructions.
                unsafe { <$braid>::run(crc, data.as_ptr(), data.len()) }
            }
        }
    }
}

kernel!(
    /// With vectors of 256 bits. On AMD family 25, one chain that takes a vector while each lane takes two words is the fastest braid of
    /// those tried.
    with_avx2,
    avx2,
    Braid<core::arch::x86_64::__m256i, super::Products, 1, 2>,
    |len| len >= 1280,
    "avx2,vpclmulqdq,pclmulqdq,sse4.2"
);

kernel!(
    /// With vectors of 512 bits and matrices. On AMD family 25 (Zen 4), four words of each lane take as long as the step of four vectors.
    /// Family 26 (Zen 5) has units of the full width, and there shorter runs pay, too.
    with_gfni,
    avx512,
    Braid<core::arch::x86_64::__m512i, super::Matrices, 4, 4>,
    |len| len >= 1792 && (len >= 3328 || super::OF_FAMILY_26.get(crate::detect::amd_family_26)),
    "avx512f,avx512bw,avx512vl,avx512vbmi2,gfni,vpclmulqdq,pclmulqdq,sse4.2"
);

#[cfg(test)]
mod tests {
    use core::array;

    use super::*;
    use crate::crc32c::{kernels, portable, x86_64::matrices, x86_64::sse42};

    /// A 512-bit vector in plain code, so that the algorithm can be tested at that width on every machine that has the CRC32 instruction.
    #[derive(Clone, Copy)]
    struct Wide([u64; 8]);

    /// The carry-less product, low and high word.
    fn product(a: u64, b: u64) -> [u64; 2] {
        let (a_low, a_high) = (a & 0xffff_ffff, a >> 32);
        // The low half of a multiplier is zero.
        assert_eq!(b & 0xffff_ffff, 0, "{b:#x}");
        let (low, high) = (portable::product(a_low, b >> 32), portable::product(a_high, b >> 32));
        [low << 32, low >> 32 ^ high]
    }

    impl Vector for Wide {
        const BYTES: usize = 64;

        unsafe fn multipliers(pair: [u64; 2]) -> Self {
            Self(array::from_fn(|i| pair[i % 2]))
        }

        unsafe fn load(src: *const u8) -> Self {
            // SAFETY: the caller vouches that it is valid for 64 bytes.
            Self(unsafe { src.cast::<[u64; 8]>().read_unaligned() })
        }

        unsafe fn fold(self, by: Self, onto: Self) -> Self {
            let mut sum = onto.0;
            for block in 0..4 {
                for half in 0..2 {
                    let [low, high] = product(self.0[2 * block + half], by.0[half]);
                    sum[2 * block] ^= low;
                    sum[2 * block + 1] ^= high;
                }
            }
            Self(sum)
        }

        unsafe fn onto_last_block(self) -> __m128i {
            let mut sum = [self.0[6], self.0[7]];
            for (block, bits) in [384, 256, 128].into_iter().enumerate() {
                let pair = fold_pair(bits);
                for (half, by) in pair.into_iter().enumerate() {
                    let [low, high] = product(self.0[2 * block + half], by);
                    sum[0] ^= low;
                    sum[1] ^= high;
                }
            }
            // SAFETY: SSE2 is part of the x86-64 baseline.
            unsafe { core::arch::x86_64::_mm_set_epi64x(sum[1] as i64, sum[0] as i64) }
        }
    }

    /// Tests the braid of one width at every length around its cuts, with one block and several.
    fn braids<V: Vector, A: Advance<V, CHAINS>, const CHAINS: usize, const WORDS: usize>(step: usize) {
        if !sse42::detect() {
            return;
        }
        let longest = 2 * 8 * interleaved::MAX_SHIFT_WORDS + 1000;
        let data: Vec<u8> = (0..longest).map(|i| ((i * 167) >> 3) as u8 ^ (i >> 8) as u8).collect();
        let near_blocks = (1..=2).flat_map(|n| {
            let end = n * Braid::<V, A, CHAINS, WORDS>::MAX_BLOCK_BYTES;
            [end - 1, end, end + 1, end + MIN_BRAIDED_BYTES - 1, end + MIN_BRAIDED_BYTES]
        });
        for len in (0..2 * MIN_BRAIDED_BYTES).step_by(step).chain(near_blocks).chain([4096, 9000]) {
            let (src, want) = (&data[len % 61..][..len], kernels::reference());
            let want = want.append(0x1234, src);
            // SAFETY: `src` has that length; the machine has SSE4.2 and PCLMULQDQ, and `V` was detected or needs no instructions.
            let run = unsafe { Braid::<V, A, CHAINS, WORDS>::run(0x1234, src.as_ptr(), len) };
            assert_eq!(run, want, "{len} bytes");
        }
    }

    const STEP: usize = if cfg!(miri) { 131 } else { 1 };

    #[test]
    fn vectors_of_512_bits_are_braided_right() {
        braids::<Wide, Products, 3, 4>(STEP);
    }

    #[test]
    fn the_model_of_512_bits_takes_one_chain_too() {
        braids::<Wide, Products, 1, 2>(STEP);
    }

    /// What the instructions do with the matrices, in plain code.
    impl Advance<Wide, 4> for Matrices {
        type By = ();
        const UNROLLED: bool = false;
        const ALIGNMENT: usize = 32;

        unsafe fn by() {}

        unsafe fn step(chains: &mut [Wide; 4], (): (), block: &mut Block, words: usize) {
            let before = chains.map(|chain| chain.0.map(u64::to_le_bytes));
            for (to, chain) in chains.iter_mut().enumerate() {
                // SAFETY: the caller vouches for four vectors.
                *chain = unsafe { block.vector() };
                for (from, bytes) in before.iter().enumerate() {
                    for (sum, bytes) in chain.0.iter_mut().zip(bytes) {
                        *sum ^= u64::from_le_bytes(bytes.map(|byte| matrices::times(from, to, byte)));
                    }
                }
            }
            // SAFETY: the caller vouches for the words.
            unsafe { block.words(words) }
        }
    }

    #[test]
    fn four_chains_are_moved_right_by_matrices() {
        braids::<Wide, Matrices, 4, 4>(STEP);
    }

    #[test]
    fn vectors_of_256_bits_are_braided_right() {
        if avx2::detect() {
            braids::<core::arch::x86_64::__m256i, Products, 1, 2>(STEP);
            braids::<core::arch::x86_64::__m256i, Products, 3, 4>(STEP);
        }
    }

    #[test]
    fn vectors_of_512_bits_are_moved_right_by_matrices() {
        if matrices::detect() {
            braids::<core::arch::x86_64::__m512i, Matrices, 4, 4>(STEP);
        }
    }
}
