//! The guard by folding with VPCLMULQDQ on 512-bit vectors, for runs of any length.
//!
//! GF2P8AFFINEQB reverses the bits of each byte. That turns a vector in memory order into a reflected polynomial: the
//! order of CRC32C, whose fold this kernel shares, without a byte shuffle.
//!
//! ```text
//!  head        vectors, four chains                          left over
//! | 0..63 B | v0 v1 v2 v3 | v4 v5 v6 v7 | ... each +2048 bits | v v v |
//! ```
//!
//! - Head: moved to the top of a vector of zeros (leading zeros do not count), folded by 512 bits; no tail.
//! - No load touches a page outside the run: see `short`.
//! - The end: four blocks are folded into one of 80 bits, and Barrett's method reduces that to 16.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_bsrli_si128, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si32,
    _mm_gf2p8affine_epi64_epi8, _mm_or_si128, _mm_set_epi8, _mm_set1_epi64x, _mm_shuffle_epi8,
    _mm_slli_epi64, _mm_srli_epi64, _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256,
    _mm256_xor_si256, _mm512_castsi512_si256, _mm512_extracti64x4_epi64, _mm512_gf2p8affine_epi64_epi8,
    _mm512_loadu_si512, _mm512_maskz_expand_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_xor_si512,
};

use super::ssse3;
use crate::crc32c::x86_64::avx512::{
    self, Chains, Multipliers, VECTOR_BYTES, first_bytes, fold, multipliers,
};
use crate::detect::detected;
use crate::t10::gf2;

/// The matrix of GF2P8AFFINEQB that reverses the bits of a byte.
const REVERSE: i64 = 0x8040_2010_0804_0201_u64 as i64;
/// Up to this length whole blocks of 128 bits are faster one by one. Odd bytes would be slower there.
const MAX_NARROW_BYTES: usize = 64;
/// The smallest page size.
const PAGE_BYTES: usize = 4096;

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    avx512::detect() && ssse3::detect() && detected!("gfni", "avx512vbmi")
}

/// The pair that moves a reflected block forward by `bits`: for its low quadword, which holds x^127..x^64, and for its
/// high one. A product of two reflected quadwords is one power of x too high, hence the `- 1`.
const fn fold_pair(bits: u64) -> [u64; 2] {
    [reflected(bits + 64 - 1), reflected(bits - 1)]
}

/// x^n mod P, reflected, at the high end of a quadword.
const fn reflected(n: u64) -> u64 {
    (gf2::x_pow(n).reverse_bits() as u64) << 48
}

static CHAINS: Chains = Chains::new([fold_pair(512), fold_pair(1024), fold_pair(1536), fold_pair(2048)]);
/// Moves every block to the end of the vector, and by x^16, as the remainder requires.
static TO_THE_END: Multipliers = {
    let ([a, b], [c, d]) = (fold_pair(16 + 384), fold_pair(16 + 256));
    let ([e, f], [g, h]) = (fold_pair(16 + 128), fold_pair(16));
    Multipliers([a, b, c, d, e, f, g, h])
};

/// A vector from memory as reflected blocks.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn reverse(v: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(v, _mm512_set1_epi64(REVERSE))
}

/// The remainder of reflected blocks times x^16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq,gfni")]
fn reduce(x: __m512i) -> u16 {
    const X_64: i64 = gf2::x_pow(64) as i64;
    let x = fold(x, multipliers(&TO_THE_END), _mm512_setzero_si512());
    let halves = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64::<1>(x));
    let block: __m128i = _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    // From here on bit i is the coefficient of x^i.
    let block = _mm_shuffle_epi8(
        _mm_gf2p8affine_epi64_epi8::<0>(block, _mm_set1_epi64x(REVERSE)),
        _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    );
    let high = _mm_clmulepi64_si128::<0x01>(block, _mm_cvtsi64_si128(X_64));
    let x = _mm_xor_si128(high, block);
    let quotient =
        _mm_clmulepi64_si128::<0x00>(_mm_srli_epi64::<16>(x), _mm_cvtsi64_si128(gf2::QUOTIENT as i64));
    let quotient =
        _mm_or_si128(_mm_srli_epi64::<48>(quotient), _mm_slli_epi64::<16>(_mm_bsrli_si128::<8>(quotient)));
    let multiple = _mm_clmulepi64_si128::<0x00>(quotient, _mm_cvtsi64_si128(1 << 16 | gf2::POLY as i64));
    _mm_cvtsi128_si32(_mm_xor_si128(multiple, x)) as u16
}

/// The bytes of a run shorter than a vector, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn short(data: &[u8]) -> __m512i {
    let len = data.len().min(VECTOR_BYTES - 1);
    if data.as_ptr().addr() % PAGE_BYTES <= PAGE_BYTES - VECTOR_BYTES {
        // SAFETY: the bytes that are not masked off are those of `data`.
        return unsafe { _mm512_maskz_loadu_epi8((1 << len) - 1, data.as_ptr().cast()) };
    }
    // If the masked-off bytes were in an unmapped page, microcode would suppress the fault, slowly.
    let mut whole = [0; VECTOR_BYTES];
    whole[..len].copy_from_slice(&data[..len]);
    // SAFETY: the array is as long as the vector.
    unsafe { _mm512_loadu_si512(whole.as_ptr().cast()) }
}

/// Continues `crc` over `data`.
///
/// # Safety
/// - [`detect`] returns true.
// This function enables few features and uses no wide vectors, so that short runs do not pay for those of the long
// ones.
#[target_feature(enable = "ssse3,pclmulqdq")]
pub(crate) unsafe fn append(crc: u16, data: &[u8]) -> u16 {
    if data.len() <= MAX_NARROW_BYTES && data.len().is_multiple_of(16) {
        // SAFETY: this function has the instructions.
        return unsafe { ssse3::append(crc, data) };
    }
    // SAFETY: the machine has the instructions, as the caller vouches.
    unsafe { wide(crc, data) }
}

/// [`append`] for runs of any length.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,vpclmulqdq,pclmulqdq,gfni")]
unsafe fn wide(crc: u16, data: &[u8]) -> u16 {
    let head = data.len() % VECTOR_BYTES;
    let (vectors, rest) = data[head..].as_chunks::<VECTOR_BYTES>();
    debug_assert!(rest.is_empty());
    let mut vectors = vectors.iter();
    macro_rules! load {
        ($v:expr) => {
            // SAFETY: a reference to 64 bytes.
            unsafe { _mm512_loadu_si512($v.as_ptr().cast()) }
        };
    }
    // In memory order: the high byte first.
    let register = first_bytes(u32::from(crc.swap_bytes()));
    let by_512 = CHAINS.by_one();
    let mut x = if head == 0 {
        let Some(first) = vectors.next() else { return crc };
        reverse(_mm512_xor_si512(load!(first), register))
    } else {
        let first = match data.first_chunk::<VECTOR_BYTES>() {
            Some(first) => load!(first),
            None => short(data),
        };
        let at_top = !0 << (VECTOR_BYTES - head);
        let x = reverse(_mm512_maskz_expand_epi8(at_top, _mm512_xor_si512(first, register)));
        // A head of one byte does not take the whole register; the rest of it goes to the bytes that follow.
        let spill = if head == 1 { crc << 8 } else { 0 };
        match vectors.next() {
            None => return reduce(x) ^ spill,
            Some(next) => {
                let spill = first_bytes(u32::from(spill.swap_bytes()));
                fold(x, by_512, reverse(_mm512_xor_si512(load!(next), spill)))
            }
        }
    };
    if vectors.len() >= 3 {
        let by_2048 = CHAINS.by_four();
        let (chained, left_over) = vectors.as_slice()[3..].as_chunks::<4>();
        let [v, w, y, ..] = vectors.as_slice() else { unreachable!("three or more") };
        let (mut a, mut b, mut c, mut d) = (x, reverse(load!(v)), reverse(load!(w)), reverse(load!(y)));
        for [v, w, y, z] in chained {
            a = fold(a, by_2048, reverse(load!(v)));
            b = fold(b, by_2048, reverse(load!(w)));
            c = fold(c, by_2048, reverse(load!(y)));
            d = fold(d, by_2048, reverse(load!(z)));
        }
        x = CHAINS.join([a, b, c, d]);
        vectors = left_over.iter();
    }
    for v in vectors {
        x = fold(x, by_512, reverse(load!(v)));
    }
    reduce(x)
}
