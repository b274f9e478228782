//! CRC32C by the CRC32 instruction of SSE4.2, in three lanes joined by PCLMULQDQ; non-temporal stores by MOVNTI. The
//! algorithm is in [`interleaved`].

use core::arch::x86_64::{
    _MM_HINT_T0, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
    _mm_cvtsi128_si64, _mm_prefetch, _mm_stream_si64,
};

use crate::combine::{self, CombineBy, Field};
use crate::copy::{
    Store,
    pass::{COPY, MIN_STREAM_BYTES, READ, STREAM},
};
use crate::crc32c::HEADER_BYTES;
use crate::crc32c::interleaved::{self, Crc32Unit};
use crate::detect::detected;

/// Whether this machine has the instructions.
pub(crate) fn detect() -> bool {
    detected!("sse4.2", "pclmulqdq")
}

/// The CRC32 and PCLMULQDQ instructions.
pub(crate) struct Sse42;

impl Field for Sse42 {
    #[inline(always)]
    unsafe fn product(a: u64, b: u64) -> u64 {
        // SAFETY: the machine has PCLMULQDQ: the caller vouches for it.
        unsafe {
            let p = _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(b as i64));
            _mm_cvtsi128_si64(p) as u64
        }
    }

    #[inline(always)]
    unsafe fn reduce(product: u64) -> u32 {
        // SAFETY: the machine has SSE4.2: the caller vouches for it.
        unsafe { _mm_crc32_u64(0, product) as u32 }
    }
}

impl Crc32Unit for Sse42 {
    #[inline(always)]
    unsafe fn word64(register: u64, word: u64) -> u64 {
        // SAFETY: the machine has SSE4.2: the caller vouches for it.
        unsafe { _mm_crc32_u64(register, word) }
    }

    #[inline(always)]
    unsafe fn word32(register: u64, word: u32) -> u64 {
        // SAFETY: the machine has SSE4.2: the caller vouches for it.
        unsafe { u64::from(_mm_crc32_u32(register as u32, word)) }
    }

    #[inline(always)]
    unsafe fn byte(register: u64, byte: u8) -> u64 {
        // SAFETY: the machine has SSE4.2: the caller vouches for it.
        unsafe { u64::from(_mm_crc32_u8(register as u32, byte)) }
    }

    #[inline(always)]
    unsafe fn stream(dst: *mut u64, word: u64) {
        // SAFETY: `dst` is valid and aligned, and a fence follows: the caller vouches for both. Miri has no such store;
        // it checks these conditions on an ordinary one.
        unsafe {
            match cfg!(miri) {
                true => dst.write(word),
                false => _mm_stream_si64(dst.cast(), word as i64),
            }
        }
    }

    #[inline(always)]
    unsafe fn prefetch(dst: *mut u8) {
        // SAFETY: SSE is part of the x86-64 baseline, and a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(dst.cast()) }
    }
}

/// Continues `crc` (finished form) over `data`.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn append(crc: u32, data: &[u8]) -> u32 {
    // SAFETY: `data` is readable for its length, nothing is written, and this function has the instructions.
    unsafe { interleaved::run::<Sse42, READ>(crc, core::ptr::null_mut(), data.as_ptr(), data.len()) }
}

/// The CRC32C of a header: one chain of six CRC32 instructions. Lanes would not pay: joining them takes longer than the
/// chain.
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn header(header: &[u8; HEADER_BYTES]) -> u32 {
    let (words, _) = header.as_chunks::<8>();
    // SAFETY: this function has the instructions of `Sse42`.
    let chain = |register, word: &[u8; 8]| unsafe { Sse42::word64(register, u64::from_le_bytes(*word)) };
    !(words.iter().fold(u64::from(u32::MAX), chain) as u32)
}

/// Copies `src` to `dst` and continues `crc` (finished form) over the bytes copied.
///
/// # Safety
/// - [`detect`] returns true.
/// - `dst` and `src` have the same length.
/// - A [fence](crate::copy::fence) for `store` follows before anything else may read `dst`.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn copy(crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> u32 {
    let (dst, src, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len());
    // SAFETY: both are valid for `len` bytes, a `&mut` overlaps no `&`, this function has the
    // instructions, and short runs are not streamed.
    unsafe {
        match store {
            Store::NonTemporal if len >= MIN_STREAM_BYTES => {
                interleaved::run::<Sse42, STREAM>(crc, dst, src, len)
            }
            _ => interleaved::run::<Sse42, COPY>(crc, dst, src, len),
        }
    }
}

/// The digest of a concatenation; see [`combine::with`].
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    // SAFETY: this function has the instructions of `Sse42`.
    unsafe { combine::with::<Sse42>(crc_a, crc_b, len_b) }
}

/// The digest of a concatenation; see [`combine::by`].
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn combine_by(crc_a: u32, crc_b: u32, by: &CombineBy) -> u32 {
    // SAFETY: this function has the instructions of `Sse42`.
    unsafe { combine::by::<Sse42>(crc_a, crc_b, by) }
}

/// The digest of several blocks from the digests of each; see [`combine::blocks`].
///
/// # Safety
/// - [`detect`] returns true.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn combine_blocks(crc: u32, block_crcs: &[u32], by: &CombineBy) -> u32 {
    // SAFETY: this function has the instructions of `Sse42`.
    unsafe { combine::blocks::<Sse42>(crc, block_crcs, by) }
}
