//! The guard by VPCLMULQDQ on 256-bit vectors, two blocks each, eight vectors in flight. The algorithm is in
//! [`folding`].

use core::arch::x86_64::{
    __m128i, __m256i, _mm_set_epi8, _mm_set_epi64x, _mm_setzero_si128, _mm256_broadcastsi128_si256,
    _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_set_m128i, _mm256_shuffle_epi8, _mm256_xor_si256,
};

use super::ssse3;
use crate::detect::detected;
use crate::t10::folding::{self, BY_ONE_BLOCK, Pair, Vector};

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    ssse3::detect() && detected!("avx2", "vpclmulqdq")
}

impl Vector for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn first_bytes(register: u16) -> Self {
        // SAFETY: the machine has AVX2: the caller vouches for it.
        unsafe { _mm256_set_m128i(_mm_setzero_si128(), __m128i::first_bytes(register)) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: `src` is readable for 32 bytes and the machine has AVX2: the caller vouches for both.
        unsafe {
            let first_highest = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm256_shuffle_epi8(_mm256_loadu_si256(src.cast()), _mm256_broadcastsi128_si256(first_highest))
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self, b: Self) -> Self {
        // SAFETY: the machine has AVX2: the caller vouches for it.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn fold(self, Pair([low, high]): Pair, onto: Self) -> Self {
        // SAFETY: the machine has AVX2 and VPCLMULQDQ: the caller vouches for it.
        unsafe {
            let by = _mm256_broadcastsi128_si256(_mm_set_epi64x(high as i64, low as i64));
            let low = _mm256_clmulepi64_epi128::<0x00>(self, by);
            let high = _mm256_clmulepi64_epi128::<0x11>(self, by);
            _mm256_xor_si256(_mm256_xor_si256(low, high), onto)
        }
    }

    #[inline(always)]
    unsafe fn one_block(self) -> [u64; 2] {
        // SAFETY: the machine has AVX2 and PCLMULQDQ: the caller vouches for it.
        unsafe {
            let last = _mm256_extracti128_si256::<1>(self);
            _mm256_castsi256_si128(self).fold(BY_ONE_BLOCK, last).one_block()
        }
    }

    #[inline(always)]
    unsafe fn product(a: u64, b: u64) -> [u64; 2] {
        // SAFETY: the machine has PCLMULQDQ: the caller vouches for it.
        unsafe { __m128i::product(a, b) }
    }
}

/// Continues `crc` over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,ssse3")]
pub(crate) unsafe fn append(crc: u16, data: &[u8]) -> u16 {
    // SAFETY: this function has the instructions.
    unsafe { folding::run::<__m256i, 8>(crc, data) }
}
