//! CRC32C by folding with VPCLMULQDQ on 512-bit vectors, and the copy fused with it.
//!
//! A run is seen as one long polynomial, 64 bytes per vector, four 128-bit blocks per vector. A vector is *folded*
//! forward by d bits by multiplying each of its blocks by x^d mod P (two carry-less products of 64 by 32 bits) and
//! adding the result to the vector that lies d bits further on; the remainder mod P of the whole is unchanged.
//!
//! ```text
//!  head        vectors, four chains                          left over     tail
//! | 0..63 B | v0 v1 v2 v3 | v4 v5 v6 v7 | ... each +2048 bits | v v v | 0..63 B |
//! ```
//!
//! - Head: loaded as a whole vector with the bytes after the head masked off, and folded by its own length. In shorter
//!   runs the head takes all odd bytes and there is no tail. In longer ones it ends where the destination is aligned
//!   (the source, if nothing is written), so that no access straddles two cache lines.
//! - Tail: loaded as the last whole vector with the bytes before the tail masked off; the vector before it is folded
//!   onto it by the tail's length. A fold need not be a whole number of blocks.
//! - No load or store touches a byte outside the run, not even masked off: microcode suppresses a masked access into a
//!   page that is not mapped, which costs hundreds of cycles.
//! - Each byte of `src` that is digested is loaded once, and that load is what is stored: if `src` changes meanwhile,
//!   the digest is still that of what `dst` holds.
//! - The end: four blocks are folded into one, and two CRC32 instructions reduce that to 32 bits.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_load_si128,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64,
    _mm512_load_si512, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_mov_epi8, _mm512_set_epi64,
    _mm512_storeu_si512, _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use super::braided::Vector;
use super::fold_pair;
use super::sse42::{self, Sse42};
use crate::copy::{
    Store,
    pass::{COPY, MIN_STREAM_BYTES, READ, STREAM},
};
use crate::crc32c::interleaved;
use crate::detect::detected;

/// Size of a vector and of a cache line, bytes.
pub(crate) const VECTOR_BYTES: usize = 64;
/// Copies of at least this length align their stores, which costs a head and a tail; shorter copies would be slower for
/// it.
const MIN_ALIGNED_BYTES: usize = 1024;

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    sse42::detect() && detected!("avx512f", "avx512bw", "avx512vl", "avx512vbmi2", "vpclmulqdq")
}

/// Multipliers of the fold: one pair per block, for its low and its high quadword.
#[repr(C, align(64))]
pub(crate) struct Multipliers(pub(crate) [u64; 8]);

impl Multipliers {
    /// Moves every block of a vector forward by the distance of `pair`.
    pub(crate) const fn uniform([low, high]: [u64; 2]) -> Self {
        Self([low, high, low, high, low, high, low, high])
    }
}

/// Multipliers of four chains, for any polynomial.
pub(crate) struct Chains {
    /// By one, two and three vectors: each chain onto the last chain.
    by_512: Multipliers,
    by_1024: Multipliers,
    by_1536: Multipliers,
    /// By four vectors: each chain onto its own next vector.
    by_2048: Multipliers,
}

impl Chains {
    /// From the pairs for distances of 512, 1024, 1536 and 2048 bits.
    pub(crate) const fn new([a, b, c, d]: [[u64; 2]; 4]) -> Self {
        Self {
            by_512: Multipliers::uniform(a),
            by_1024: Multipliers::uniform(b),
            by_1536: Multipliers::uniform(c),
            by_2048: Multipliers::uniform(d),
        }
    }

    /// By one vector.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn by_one(&'static self) -> __m512i {
        multipliers(&self.by_512)
    }

    /// By four vectors.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn by_four(&'static self) -> __m512i {
        multipliers(&self.by_2048)
    }

    /// Joins four chains, given in order of their vectors, into one vector.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(crate) fn join(&'static self, [a, b, c, d]: [__m512i; 4]) -> __m512i {
        let cd = fold(c, multipliers(&self.by_512), d);
        fold(a, multipliers(&self.by_1536), fold(b, multipliers(&self.by_1024), cd))
    }
}

/// The chains of CRC32C.
pub(crate) static CHAINS: Chains =
    Chains::new([fold_pair(512), fold_pair(1024), fold_pair(1536), fold_pair(2048)]);
/// Moves every block onto block 3 of the vector `i` vectors later. If `i` is 0, block 3 itself stays.
static ONTO_LAST_BLOCK: [Multipliers; 4] =
    [onto_last_block(0), onto_last_block(1), onto_last_block(2), onto_last_block(3)];

static LAST_BLOCK: Multipliers = Multipliers([0, 0, 0, 0, 0, 0, !0, !0]);

const fn onto_last_block(vectors: u64) -> Multipliers {
    let further = 512 * vectors;
    let ([a, b], [c, d], [e, f]) =
        (fold_pair(further + 384), fold_pair(further + 256), fold_pair(further + 128));
    let [g, h] = if vectors == 0 { [0, 0] } else { fold_pair(further) };
    Multipliers([a, b, c, d, e, f, g, h])
}

/// The multipliers of a fold by a given number of bytes, fewer than a vector: for heads and tails.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Pair([u64; 2]);

static FORWARD: [Pair; VECTOR_BYTES] = {
    let mut t = [Pair([0; 2]); VECTOR_BYTES];
    let mut bytes = 1;
    while bytes < VECTOR_BYTES {
        t[bytes] = Pair(fold_pair(8 * bytes as u64));
        bytes += 1;
    }
    t
};

/// The multipliers of a fold by `bytes` bytes, from 1 to 63.
#[inline]
#[target_feature(enable = "avx512f")]
fn forward(bytes: usize) -> __m512i {
    // SAFETY: the pair is 16 bytes long and aligned to 16.
    _mm512_broadcast_i32x4(unsafe { _mm_load_si128(FORWARD[bytes].0.as_ptr().cast()) })
}

/// The multipliers as a vector.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn multipliers(m: &'static Multipliers) -> __m512i {
    // SAFETY: `m` is 64 bytes long and aligned to 64.
    unsafe { _mm512_load_si512(m.0.as_ptr().cast()) }
}

/// `x` folded forward by the distance of `m`, added to `onto`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
pub(crate) fn fold(x: __m512i, m: __m512i, onto: __m512i) -> __m512i {
    const XOR3: i32 = 0x96;
    let (low, high) = (_mm512_clmulepi64_epi128::<0x00>(x, m), _mm512_clmulepi64_epi128::<0x11>(x, m));
    _mm512_ternarylogic_epi64::<XOR3>(low, high, onto)
}

/// The remainder of the whole vector: four blocks are folded to one, and one block is reduced to 32 bits.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
pub(crate) fn reduce(x: __m512i) -> u32 {
    reduce_all([x])
}

/// The remainder of `N` consecutive vectors: every block goes onto the last one directly. That takes as many products
/// as folding one vector onto the next, but their latencies do not add up.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn reduce_all<const N: usize>(vectors: [__m512i; N]) -> u32 {
    let mut sum = last_block(vectors[N - 1]);
    for (x, onto) in vectors.into_iter().rev().zip(&ONTO_LAST_BLOCK) {
        sum = fold(x, multipliers(onto), sum);
    }
    let block = added_blocks(sum);
    let register = _mm_crc32_u64(0, _mm_cvtsi128_si64(block) as u64);
    _mm_crc32_u64(register, _mm_extract_epi64::<1>(block) as u64) as u32
}

/// The sum of the four blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn added_blocks(x: __m512i) -> __m128i {
    let halves = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64::<1>(x));
    _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
}

/// Block 3 alone.
#[inline]
#[target_feature(enable = "avx512f")]
fn last_block(x: __m512i) -> __m512i {
    // Not by a mask register: loading one uses the execution port that the products need.
    _mm512_and_si512(x, multipliers(&LAST_BLOCK))
}

/// A register in the first four bytes of a vector that is otherwise zero.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn first_bytes(register: u32) -> __m512i {
    _mm512_zextsi128_si512(_mm_cvtsi32_si128(register as i32))
}

/// [`pass::pin`](crate::copy::pass::pin) for a vector: what is digested is what is stored.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn pin(v: __m512i) -> __m512i {
    #[cfg(not(miri))]
    {
        let mut pinned = v;
        // SAFETY: no instruction, no access to memory, no stack.
        unsafe {
            core::arch::asm!("/* {0} */", inout(zmm_reg) pinned, options(pure, nomem, nostack, preserves_flags));
        }
        pinned
    }
    #[cfg(miri)]
    v
}

/// Loads the vector at `src` and, unless only reading, stores it at `dst`.
///
/// # Safety
/// - `src` is valid for a read of 64 bytes.
/// - Unless `PASS` is `READ`, `dst` is valid for a write of 64 bytes, and for `STREAM` aligned to 64.
/// - For `STREAM`, a fence follows before anything else may read `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn take<const PASS: u8>(dst: *mut u8, src: *const u8) -> __m512i {
    // SAFETY: both addresses are valid for 64 bytes, and `dst` is aligned for `STREAM`, as the caller vouches.
    unsafe {
        let mut v = _mm512_loadu_si512(src.cast());
        if PASS != READ {
            v = pin(v);
        }
        match PASS {
            READ => {}
            STREAM => _mm512_stream_si512(dst.cast(), v),
            _ => _mm512_storeu_si512(dst.cast(), v),
        }
        v
    }
}

impl Vector for __m512i {
    const BYTES: usize = VECTOR_BYTES;

    #[inline(always)]
    unsafe fn multipliers([low, high]: [u64; 2]) -> Self {
        let (low, high) = (low as i64, high as i64);
        // SAFETY: the machine has the instructions: the caller vouches for it.
        unsafe { _mm512_set_epi64(high, low, high, low, high, low, high, low) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: nothing is stored; the other conditions are those of this function, and the caller vouches for them.
        unsafe { take::<READ>(core::ptr::null_mut(), src) }
    }

    #[inline(always)]
    unsafe fn fold(self, by: Self, onto: Self) -> Self {
        // SAFETY: the machine has the instructions: the caller vouches for it.
        unsafe { fold(self, by, onto) }
    }

    #[inline(always)]
    unsafe fn onto_last_block(self) -> __m128i {
        // SAFETY: the machine has the instructions: the caller vouches for it.
        unsafe { added_blocks(fold(self, multipliers(&ONTO_LAST_BLOCK[0]), last_block(self))) }
    }
}

/// Continues `crc` (finished form) over `len` bytes at `src`, and copies them to `dst` unless `PASS` is `READ`.
///
/// # Safety
/// - [`detect`] returns true.
/// - `src` is valid for reads of `len` bytes.
/// - Unless `PASS` is `READ`, `dst` is valid for writes of `len` bytes and does not overlap `src`.
/// - For `STREAM`, `len` is at least `MIN_STREAM_BYTES`, and a fence follows before anything else may read `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn run<const PASS: u8>(crc: u32, mut dst: *mut u8, mut src: *const u8, len: usize) -> u32 {
    if len < VECTOR_BYTES {
        // SAFETY: the caller vouches for the memory; this function has the instructions.
        return !unsafe { interleaved::serial::<Sse42, PASS>(u64::from(!crc), dst, src, len) as u32 };
    }
    let aligned = PASS == STREAM || len >= MIN_ALIGNED_BYTES;
    let place = if PASS == READ { src.addr() } else { dst.addr() };
    let head = if aligned { place.wrapping_neg() } else { len } % VECTOR_BYTES;
    let mut vectors = (len - head) / VECTOR_BYTES;
    let tail = (len - head) % VECTOR_BYTES;
    let by_512 = CHAINS.by_one();

    // Advances by one vector: both pointers stay within one past the end of the run, or `dst` is not used.
    macro_rules! next {
        () => {{
            // SAFETY: `vectors` whole vectors are left at `src` (and at `dst`, aligned if `STREAM`, because the head
            // ended on a line of `dst`); the caller vouches for the fence.
            let v = unsafe { take::<PASS>(dst, src) };
            (dst, src) = (dst.wrapping_add(VECTOR_BYTES), src.wrapping_add(VECTOR_BYTES));
            vectors -= 1;
            v
        }};
    }

    let register = first_bytes(!crc);
    let mut x = if head == 0 {
        _mm512_xor_si512(next!(), register)
    } else {
        // SAFETY: `len >= 64`, so the run has a whole vector here; only the head's bytes are stored.
        let first = unsafe {
            let mut first = _mm512_loadu_si512(src.cast());
            if PASS != READ {
                first = pin(first);
                _mm512_mask_storeu_epi8(dst.cast(), (1 << head) - 1, first);
            }
            first
        };
        (dst, src) = (dst.wrapping_add(head), src.wrapping_add(head));
        let x = _mm512_maskz_mov_epi8((1 << head) - 1, _mm512_xor_si512(first, register));
        // A head of fewer than four bytes uses a part of the register; the rest goes to the bytes that follow.
        let spill = if head < 4 { !crc >> (8 * head) } else { 0 };
        fold(x, forward(head), _mm512_xor_si512(next!(), first_bytes(spill)))
    };

    if vectors >= 3 {
        // The vectors that do not fill all chains come first: there the other chains hide their latency.
        for _ in 0..(vectors - 3) % 4 {
            x = fold(x, by_512, next!());
        }
        let by_2048 = CHAINS.by_four();
        let (mut a, mut b, mut c, mut d) = (x, next!(), next!(), next!());
        while vectors > 0 {
            let (v, w, y, z) = (next!(), next!(), next!(), next!());
            (a, b, c, d) =
                (fold(a, by_2048, v), fold(b, by_2048, w), fold(c, by_2048, y), fold(d, by_2048, z));
        }
        if tail == 0 {
            return !reduce_all([a, b, c, d]);
        }
        x = CHAINS.join([a, b, c, d]);
    }
    // Written out, because the compiler would turn a loop into one unrolled for many rounds.
    if vectors > 0 {
        x = fold(x, by_512, next!());
    }
    if vectors > 0 {
        x = fold(x, by_512, next!());
    }
    debug_assert_eq!(vectors, 0, "every whole vector was taken");

    if tail > 0 {
        let back = VECTOR_BYTES - tail;
        let at_top = !0 << back;
        // SAFETY: the 64 bytes before the end of the run are in it, because `len >= 64`. Only the tail's bytes are
        // stored: those before it already hold what was digested, and this later load may have read something else.
        let last = unsafe {
            let mut last = _mm512_loadu_si512(src.wrapping_sub(back).cast());
            if PASS != READ {
                last = pin(last);
                _mm512_mask_storeu_epi8(dst.wrapping_sub(back).cast(), at_top, last);
            }
            last
        };
        x = fold(x, forward(tail), _mm512_maskz_mov_epi8(at_top, last));
    }
    !reduce(x)
}

/// Continues `crc` (finished form) over the first `N` lines, which must exist.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn vectors<const N: usize>(crc: u32, lines: &[[u8; VECTOR_BYTES]]) -> u32 {
    // SAFETY: each line is as long as a vector.
    let mut vectors = core::array::from_fn(|i| unsafe { _mm512_loadu_si512(lines[i].as_ptr().cast()) });
    vectors[0] = _mm512_xor_si512(vectors[0], first_bytes(!crc));
    !reduce_all::<N>(vectors)
}

/// Continues `crc` (finished form) over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn append(crc: u32, data: &[u8]) -> u32 {
    // These runs are so short that the branches of `run` would be noticeable.
    match data.len() {
        64 => return vectors::<1>(crc, data.as_chunks().0),
        128 => return vectors::<2>(crc, data.as_chunks().0),
        192 => return vectors::<3>(crc, data.as_chunks().0),
        256 => return vectors::<4>(crc, data.as_chunks().0),
        _ => {}
    }
    // SAFETY: `data` is readable for its length, and nothing is written.
    unsafe { run::<READ>(crc, core::ptr::null_mut(), data.as_ptr(), data.len()) }
}

/// Copies `src` to `dst` and continues `crc` (finished form) over the bytes copied.
///
/// # Safety
/// - [`detect`] returns true.
/// - `dst` and `src` have the same length.
/// - A [fence](crate::copy::fence) for `store` follows before anything else may read `dst`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn copy(crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> u32 {
    let (dst, src, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len());
    // SAFETY: both are valid for `len` bytes, and a `&mut` overlaps no `&`; short runs are not streamed.
    unsafe {
        match store {
            Store::NonTemporal if len >= MIN_STREAM_BYTES => run::<STREAM>(crc, dst, src, len),
            _ => run::<COPY>(crc, dst, src, len),
        }
    }
}
