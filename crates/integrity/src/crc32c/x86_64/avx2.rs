//! CRC32C by folding with VPCLMULQDQ on 256-bit vectors, and the copy fused with it: for machines that have the wide
//! carry-less product but not AVX-512.
//!
//! The method is that of [`avx512`](super::avx512), with two blocks per vector. AVX2 has no masked byte stores and no
//! expansion, so the CRC32 instruction takes the odd bytes: those after the last whole vector and, when copying, those
//! before the first aligned store.
//!
//! ```text
//!  head: CRC32     vectors, four chains                          left over    tail: CRC32
//! | 0..31 B | v0 v1 v2 v3 | v4 v5 v6 v7 | ... each +1024 bits | v v v     | 0..31 B |
//! ```

use core::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_xor_si128, _mm256_castsi256_si128, _mm256_clmulepi64_epi128,
    _mm256_extracti128_si256, _mm256_load_si256, _mm256_loadu_si256, _mm256_set_epi64x, _mm256_storeu_si256,
    _mm256_stream_si256, _mm256_xor_si256, _mm256_zextsi128_si256,
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

const VECTOR_BYTES: usize = 32;
/// Vectors that are folded side by side.
const CHAINS: usize = 4;
/// Below this the three lanes of the CRC32 instruction are faster.
const MIN_FOLDED_BYTES: usize = 384;

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    sse42::detect() && detected!("avx2", "vpclmulqdq")
}

/// Multipliers of the fold for both blocks of a vector; see [`fold_pair`].
#[repr(C, align(32))]
struct Multipliers([u64; 4]);

const fn uniform(bits: u64) -> Multipliers {
    let [low, high] = fold_pair(bits);
    Multipliers([low, high, low, high])
}

static BY_256: Multipliers = uniform(256);
static BY_512: Multipliers = uniform(512);
static BY_768: Multipliers = uniform(768);
static BY_1024: Multipliers = uniform(1024);
static BY_128: Multipliers = uniform(128);

/// The multipliers as a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn multipliers(m: &'static Multipliers) -> __m256i {
    // SAFETY: `m` is 32 bytes long and aligned to 32.
    unsafe { _mm256_load_si256(m.0.as_ptr().cast()) }
}

/// `x` folded forward by the distance of `m`, added to `onto`.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold(x: __m256i, m: __m256i, onto: __m256i) -> __m256i {
    let (low, high) = (_mm256_clmulepi64_epi128::<0x00>(x, m), _mm256_clmulepi64_epi128::<0x11>(x, m));
    _mm256_xor_si256(_mm256_xor_si256(low, high), onto)
}

/// The first block folded onto the second.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
fn onto_last_block(x: __m256i) -> __m128i {
    let by_128 = _mm256_castsi256_si128(multipliers(&BY_128));
    let (first, second) = (_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
    let low = _mm_clmulepi64_si128::<0x00>(first, by_128);
    let high = _mm_clmulepi64_si128::<0x11>(first, by_128);
    _mm_xor_si128(_mm_xor_si128(low, high), second)
}

/// The remainder of the whole vector: the first block is folded onto the second, which is reduced to 32 bits.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn reduce(x: __m256i) -> u64 {
    let block = onto_last_block(x);
    let register = _mm_crc32_u64(0, _mm_cvtsi128_si64(block) as u64);
    _mm_crc32_u64(register, _mm_extract_epi64::<1>(block) as u64)
}

/// [`pass::pin`](crate::copy::pass::pin) for a vector: what is digested is what is stored.
#[inline]
#[target_feature(enable = "avx2")]
fn pin(v: __m256i) -> __m256i {
    #[cfg(not(miri))]
    {
        let mut pinned = v;
        // SAFETY: no instruction, no access to memory, no stack.
        unsafe {
            core::arch::asm!("/* {0} */", inout(ymm_reg) pinned, options(pure, nomem, nostack, preserves_flags));
        }
        pinned
    }
    #[cfg(miri)]
    v
}

/// Loads the vector at `src` and, unless only reading, stores it at `dst`.
///
/// # Safety
/// - `src` is valid for a read of 32 bytes.
/// - Unless `PASS` is `READ`, `dst` is valid for a write of 32 bytes, and for `STREAM` aligned to 32.
/// - For `STREAM`, a fence follows before anything else may read `dst`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn take<const PASS: u8>(dst: *mut u8, src: *const u8) -> __m256i {
    // SAFETY: both addresses are valid for 32 bytes, and `dst` is aligned for `STREAM`, as the caller vouches.
    unsafe {
        let mut v = _mm256_loadu_si256(src.cast());
        if PASS != READ {
            v = pin(v);
        }
        match PASS {
            READ => {}
            // Miri has no such store; it checks the conditions on an ordinary one.
            STREAM if cfg!(miri) => dst.cast::<__m256i>().write(v),
            STREAM => _mm256_stream_si256(dst.cast(), v),
            _ => _mm256_storeu_si256(dst.cast(), v),
        }
        v
    }
}

impl Vector for __m256i {
    const BYTES: usize = VECTOR_BYTES;

    #[inline(always)]
    unsafe fn multipliers([low, high]: [u64; 2]) -> Self {
        // SAFETY: the machine has the instructions: the caller vouches for it.
        unsafe { _mm256_set_epi64x(high as i64, low as i64, high as i64, low as i64) }
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
        unsafe { onto_last_block(self) }
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
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn run<const PASS: u8>(crc: u32, mut dst: *mut u8, mut src: *const u8, len: usize) -> u32 {
    if len < MIN_FOLDED_BYTES {
        // SAFETY: the conditions are those of this function, which has the instructions.
        return unsafe { interleaved::run::<Sse42, PASS>(crc, dst, src, len) };
    }
    let head = if PASS == READ { 0 } else { dst.addr().wrapping_neg() % VECTOR_BYTES };
    let mut vectors = (len - head) / VECTOR_BYTES;
    let tail = (len - head) % VECTOR_BYTES;
    // SAFETY: the head is shorter than the run, for which the caller vouches; this function has the instructions.
    let register = unsafe { interleaved::serial::<Sse42, PASS>(u64::from(!crc), dst, src, head) };
    (dst, src) = (dst.wrapping_add(head), src.wrapping_add(head));

    // Advances by one vector: both pointers stay within one past the end of the run, or `dst` is not used.
    macro_rules! next {
        () => {{
            // SAFETY: `vectors` whole vectors are left at `src` (and at `dst`, aligned because the head ended where
            // `dst` is aligned); the caller vouches for the fence.
            let v = unsafe { take::<PASS>(dst, src) };
            (dst, src) = (dst.wrapping_add(VECTOR_BYTES), src.wrapping_add(VECTOR_BYTES));
            vectors -= 1;
            v
        }};
    }

    // The first round takes `CHAINS` vectors. The run is long enough for that even after its head.
    const { assert!(MIN_FOLDED_BYTES >= (CHAINS + 1) * VECTOR_BYTES) };
    let by_1024 = multipliers(&BY_1024);
    let register = _mm256_zextsi128_si256(_mm_cvtsi32_si128(register as i32));
    let mut a = _mm256_xor_si256(next!(), register);
    let (mut b, mut c, mut d) = (next!(), next!(), next!());
    while vectors >= CHAINS {
        let (v, w, y, z) = (next!(), next!(), next!(), next!());
        (a, b, c, d) = (fold(a, by_1024, v), fold(b, by_1024, w), fold(c, by_1024, y), fold(d, by_1024, z));
    }
    let by_256 = multipliers(&BY_256);
    let cd = fold(c, by_256, d);
    let mut x = fold(a, multipliers(&BY_768), fold(b, multipliers(&BY_512), cd));
    while vectors > 0 {
        x = fold(x, by_256, next!());
    }
    // SAFETY: the tail is what is left of the run at both pointers.
    !unsafe { interleaved::serial::<Sse42, PASS>(reduce(x), dst, src, tail) as u32 }
}

/// Continues `crc` (finished form) over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn append(crc: u32, data: &[u8]) -> u32 {
    // SAFETY: `data` is readable for its length, and nothing is written.
    unsafe { run::<READ>(crc, core::ptr::null_mut(), data.as_ptr(), data.len()) }
}

/// Copies `src` to `dst` and continues `crc` (finished form) over the bytes copied.
///
/// # Safety
/// - [`detect`] returns true.
/// - `dst` and `src` have the same length.
/// - A [fence](crate::copy::fence) for `store` follows before anything else may read `dst`.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn copy(crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> u32 {
    let (dst, src, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len());
    // SAFETY: both are valid for `len` bytes, and a `&mut` overlaps no `&`; short runs are not streamed; the caller
    // vouches for the fence.
    unsafe {
        match store {
            Store::NonTemporal if len >= MIN_STREAM_BYTES => run::<STREAM>(crc, dst, src, len),
            _ => run::<COPY>(crc, dst, src, len),
        }
    }
}
