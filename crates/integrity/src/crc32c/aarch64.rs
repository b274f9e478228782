//! CRC32C by the CRC32C instructions of ARMv8, in three lanes joined by PMULL. The algorithm is in [`interleaved`].
//! There is no non-temporal store of one word, so [`Store::NonTemporal`] uses ordinary stores.

use core::arch::aarch64::{__crc32cb, __crc32cd, __crc32cw, vmull_p64};

use crate::combine::{self, CombineBy, Field};
use crate::copy::{
    Store,
    pass::{COPY, READ},
};
use crate::crc32c::HEADER_BYTES;
use crate::crc32c::interleaved::{self, Crc32Unit};
use crate::crc32c::portable;
use crate::detect::detected;

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    detected!("crc", "aes")
}

/// The CRC32C and PMULL instructions. The methods are inlined into callers that have both features, and only there.
pub(crate) struct CrcPmull;

impl Field for CrcPmull {
    #[inline]
    #[target_feature(enable = "aes")]
    unsafe fn product(a: u64, b: u64) -> u64 {
        if cfg!(miri) {
            // Miri supports the CRC32 instructions but not this one.
            return portable::product(a, b);
        }
        vmull_p64(a, b) as u64
    }

    #[inline]
    #[target_feature(enable = "crc")]
    unsafe fn reduce(product: u64) -> u32 {
        __crc32cd(0, product)
    }
}

impl Crc32Unit for CrcPmull {
    #[inline]
    #[target_feature(enable = "crc")]
    unsafe fn word64(register: u64, word: u64) -> u64 {
        u64::from(__crc32cd(register as u32, word))
    }

    #[inline]
    #[target_feature(enable = "crc")]
    unsafe fn word32(register: u64, word: u32) -> u64 {
        u64::from(__crc32cw(register as u32, word))
    }

    #[inline]
    #[target_feature(enable = "crc")]
    unsafe fn byte(register: u64, byte: u8) -> u64 {
        u64::from(__crc32cb(register as u32, byte))
    }

    #[inline(always)]
    unsafe fn stream(dst: *mut u64, word: u64) {
        // SAFETY: `dst` is valid and aligned: the caller vouches for it.
        unsafe { dst.write(word) }
    }

    /// The prefetch of this architecture is not stable in Rust, and its store buffers do well without it.
    #[inline(always)]
    unsafe fn prefetch(_dst: *mut u8) {}
}

/// Continues `crc` (finished form) over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn append(crc: u32, data: &[u8]) -> u32 {
    // SAFETY: `data` is readable for its length, nothing is written, and this function has the instructions.
    unsafe { interleaved::run::<CrcPmull, READ>(crc, core::ptr::null_mut(), data.as_ptr(), data.len()) }
}

/// The CRC32C of a header: one chain of six CRC32 instructions. Lanes would not pay: joining them takes longer than the
/// chain.
///
/// # Safety
/// - [`detect`] returns true.
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
/// - [`detect`] returns true.
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
/// - [`detect`] returns true.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    // SAFETY: this function has the instructions of `CrcPmull`.
    unsafe { combine::with::<CrcPmull>(crc_a, crc_b, len_b) }
}

/// The digest of a concatenation; see [`combine::by`].
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn combine_by(crc_a: u32, crc_b: u32, by: &CombineBy) -> u32 {
    // SAFETY: this function has the instructions of `CrcPmull`.
    unsafe { combine::by::<CrcPmull>(crc_a, crc_b, by) }
}

/// The digest of several blocks from the digests of each; see [`combine::blocks`].
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "crc,aes")]
pub(crate) unsafe fn combine_blocks(crc: u32, block_crcs: &[u32], by: &CombineBy) -> u32 {
    // SAFETY: this function has the instructions of `CrcPmull`.
    unsafe { combine::blocks::<CrcPmull>(crc, block_crcs, by) }
}
