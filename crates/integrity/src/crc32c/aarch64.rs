//! CRC32C by the CRC32C instructions of ARMv8, three lanes at a time, joined by PMULL. The algorithm is in
//! [`interleaved`]. There is no non-temporal store of one word, so [`Store::NonTemporal`] is served by ordinary ones.

// The functions of the unit cannot carry the feature, being a trait's; the instructions are inlined nevertheless, as soon
// as the unit's functions are inside a caller that carries it. Compilers before 1.91 do not know the lint.
#![allow(unknown_lints, inline_always_mismatching_target_features)]

use std::arch::aarch64::{__crc32cb, __crc32cd, __crc32cw, vmull_p64};
use std::arch::is_aarch64_feature_detected;

use crate::combine;
use crate::copy::{
    Store,
    pass::{COPY, READ},
};
use crate::crc32c::HEADER_BYTES;
use crate::crc32c::interleaved::{self, Crc32Unit};

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    is_aarch64_feature_detected!("crc") && is_aarch64_feature_detected!("aes")
}

/// The CRC32C and PMULL instructions.
pub(crate) struct CrcPmull;

impl Crc32Unit for CrcPmull {
    #[inline(always)]
    unsafe fn word64(register: u64, word: u64) -> u64 {
        // SAFETY: the machine has the CRC extension: the caller vouches for it.
        unsafe { u64::from(__crc32cd(register as u32, word)) }
    }

    #[inline(always)]
    unsafe fn word32(register: u64, word: u32) -> u64 {
        // SAFETY: the machine has the CRC extension: the caller vouches for it.
        unsafe { u64::from(__crc32cw(register as u32, word)) }
    }

    #[inline(always)]
    unsafe fn byte(register: u64, byte: u8) -> u64 {
        // SAFETY: the machine has the CRC extension: the caller vouches for it.
        unsafe { u64::from(__crc32cb(register as u32, byte)) }
    }

    #[inline(always)]
    unsafe fn product(a: u64, b: u64) -> u64 {
        if cfg!(miri) {
            // Miri knows the CRC32 instructions but not this one.
            return (0..32).fold(0, |product, bit| product ^ (a << bit & (b >> bit & 1).wrapping_neg()));
        }
        // SAFETY: the machine has PMULL, which the feature `aes` stands for: the caller vouches for it.
        unsafe { vmull_p64(a, b) as u64 }
    }

    #[inline(always)]
    unsafe fn stream(dst: *mut u64, word: u64) {
        // SAFETY: `dst` is valid and aligned: the caller vouches for it.
        unsafe { dst.write(word) }
    }

    /// The prefetch of this architecture is not stable in Rust; its store buffers do well without.
    #[inline(always)]
    unsafe fn prefetch(_dst: *mut u8) {}

    #[inline(always)]
    unsafe fn fence() {}
}

/// Continues `crc` (finished form) over `data`.
///
/// # Safety
/// - [`detect`] says yes.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn append(crc: u32, data: &[u8]) -> u32 {
    // SAFETY: `data` is readable for its length, nothing is written, and this function has the instructions.
    unsafe { interleaved::run::<CrcPmull, READ>(crc, std::ptr::null_mut(), data.as_ptr(), data.len()) }
}

/// The CRC32C of a header: one chain of six CRC32 instructions. Lanes would not pay: the answer of the join comes
/// later than that of the chain.
///
/// # Safety
/// - [`detect`] says yes.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn header(header: &[u8; HEADER_BYTES]) -> u32 {
    let (words, _) = header.as_chunks::<8>();
    // SAFETY: this function has the instructions of `CrcPmull`.
    let chain = |register, word: &[u8; 8]| unsafe { CrcPmull::word64(register, u64::from_le_bytes(*word)) };
    !(words.iter().fold(u64::from(u32::MAX), chain) as u32)
}

/// Copies `src` to `dst` and continues `crc` (finished form) over the bytes copied.
///
/// # Safety
/// - [`detect`] says yes.
/// - `dst` and `src` have the same length.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn copy(crc: u32, dst: &mut [u8], src: &[u8], _store: Store) -> u32 {
    let (dst, src, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len());
    // SAFETY: both are valid for `len` bytes, a `&mut` overlaps no `&`, and this function has the instructions.
    unsafe { interleaved::run::<CrcPmull, COPY>(crc, dst, src, len) }
}

/// The digest of a concatenation; see [`combine::with`].
///
/// # Safety
/// - [`detect`] says yes.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    // SAFETY: this function has the instructions of `CrcPmull`.
    combine::with(|a, b| unsafe { interleaved::mul::<CrcPmull>(a, b) }, crc_a, crc_b, len_b)
}
