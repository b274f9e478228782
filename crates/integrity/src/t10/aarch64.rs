//! The guard by PMULL, one block per vector, eight vectors in flight. The algorithm is in [`folding`].

// The vector's methods cannot carry the features, because they implement a trait. The instructions are inlined all the
// same, once the methods are inside a caller that carries the features. Compilers before 1.91 do not know the lint.
#![allow(unknown_lints, inline_always_mismatching_target_features)]

use core::arch::aarch64::{
    uint8x16_t, vdupq_n_u8, veorq_u8, vextq_u8, vgetq_lane_u64, vld1q_u8, vmull_p64, vreinterpretq_u8_p128,
    vreinterpretq_u8_u64, vreinterpretq_u64_u8, vrev64q_u8, vsetq_lane_u64,
};

use crate::detect::detected;
use crate::t10::folding::{self, Pair, Vector};

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    detected!("neon", "aes")
}

impl Vector for uint8x16_t {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn first_bytes(register: u16) -> Self {
        // SAFETY: the machine has NEON: the caller vouches for it.
        unsafe {
            let zero = vreinterpretq_u64_u8(vdupq_n_u8(0));
            vreinterpretq_u8_u64(vsetq_lane_u64::<1>(u64::from(register) << 48, zero))
        }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: `src` is readable for 16 bytes and the machine has NEON: the caller vouches for both.
        unsafe {
            let words = vrev64q_u8(vld1q_u8(src));
            vextq_u8::<8>(words, words)
        }
    }

    #[inline(always)]
    unsafe fn add(a: Self, b: Self) -> Self {
        // SAFETY: the machine has NEON: the caller vouches for it.
        unsafe { veorq_u8(a, b) }
    }

    #[inline(always)]
    unsafe fn fold(self, Pair([by_low, by_high]): Pair, onto: Self) -> Self {
        // SAFETY: the machine has NEON and PMULL: the caller vouches for it.
        unsafe {
            let [low, high] = self.one_block();
            let low = vreinterpretq_u8_p128(vmull_p64(low, by_low));
            let high = vreinterpretq_u8_p128(vmull_p64(high, by_high));
            veorq_u8(veorq_u8(low, high), onto)
        }
    }

    #[inline(always)]
    unsafe fn one_block(self) -> [u64; 2] {
        // SAFETY: the machine has NEON: the caller vouches for it.
        unsafe {
            let words = vreinterpretq_u64_u8(self);
            [vgetq_lane_u64::<0>(words), vgetq_lane_u64::<1>(words)]
        }
    }

    #[inline(always)]
    unsafe fn product(a: u64, b: u64) -> [u64; 2] {
        // SAFETY: the machine has PMULL, which the feature `aes` includes: the caller vouches for it.
        let product = unsafe { vmull_p64(a, b) };
        [product as u64, (product >> 64) as u64]
    }
}

/// Continues `crc` over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "neon,aes")]
pub(crate) unsafe fn append(crc: u16, data: &[u8]) -> u16 {
    // SAFETY: this function has the instructions.
    unsafe { folding::run::<uint8x16_t, 8>(crc, data) }
}
