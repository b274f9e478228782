//! The guard by PCLMULQDQ, one block per vector, eight vectors in flight. The algorithm is in [`folding`].

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi8,
    _mm_set_epi64x, _mm_shuffle_epi8, _mm_unpackhi_epi64, _mm_xor_si128,
};

use crate::detect::detected;
use crate::t10::folding::{self, Pair, Vector};

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    detected!("ssse3", "pclmulqdq")
}

impl Vector for __m128i {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn first_bytes(register: u16) -> Self {
        // SAFETY: SSE2 is part of the x86-64 baseline.
        unsafe { _mm_set_epi64x((u64::from(register) << 48) as i64, 0) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: `src` is readable for 16 bytes and the machine has SSSE3: the caller vouches for both.
        unsafe {
            let first_highest = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm_shuffle_epi8(_mm_loadu_si128(src.cast()), first_highest)
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self, b: Self) -> Self {
        // SAFETY: SSE2 is part of the x86-64 baseline.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    unsafe fn fold(self, Pair([low, high]): Pair, onto: Self) -> Self {
        // SAFETY: the machine has PCLMULQDQ: the caller vouches for it.
        unsafe {
            let by = _mm_set_epi64x(high as i64, low as i64);
            let (low, high) =
                (_mm_clmulepi64_si128::<0x00>(self, by), _mm_clmulepi64_si128::<0x11>(self, by));
            _mm_xor_si128(_mm_xor_si128(low, high), onto)
        }
    }

    #[inline(always)]
    unsafe fn one_block(self) -> [u64; 2] {
        // SAFETY: SSE2 is part of the x86-64 baseline.
        unsafe { [_mm_cvtsi128_si64(self) as u64, _mm_cvtsi128_si64(_mm_unpackhi_epi64(self, self)) as u64] }
    }

    #[inline(always)]
    unsafe fn product(a: u64, b: u64) -> [u64; 2] {
        // SAFETY: the machine has PCLMULQDQ: the caller vouches for it.
        unsafe {
            _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(b as i64)).one_block()
        }
    }
}

/// Continues `crc` over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "ssse3,pclmulqdq")]
pub(crate) unsafe fn append(crc: u16, data: &[u8]) -> u16 {
    // SAFETY: this function has the instructions.
    unsafe { folding::run::<__m128i, 8>(crc, data) }
}
