//! The fused copy: bytes move once, and the same pass computes the CRC32C of what was written.
//!
//! A digest must describe the bytes that are sent (or kept). The value returned is therefore the digest of what `dst` holds afterwards,
//! even if `src` is memory that another process can rewrite. Each byte is either read once, and both stored and digested from the register,
//! or digested from `dst` after it was copied.
//!
//! `dst` and `src` cannot overlap, because a `&mut` slice overlaps no `&` slice. To copy between two places of one buffer, split it with
//! `split_at_mut`. If the places overlapped, the digest of a copy would have no meaning.

mod blocks;
mod gather;
mod summed;

use core::{error, fmt};

pub use blocks::{copy_crc32c_blocks, crc32c_blocks};
pub use gather::{Segment, SegmentMut, copy_crc32c_gather, copy_crc32c_scatter};
pub use summed::copy_crc32c_sum;

use crate::crc32c::active;
use crate::crc32c::kernels::Kernel;

/// How the fused copy writes its destination. The caller must say which, because the wrong choice is costly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Ordinary stores, which leave `dst` in the cache: for memory that is read or sent next.
    Temporal,
    /// Stores that bypass the caches, and a fence after them: for runs of 64 KiB and more into memory that is cold and stays so (the medium
    /// of a RAM disk). There they are a third faster than `memcpy`, digest included. In runs of 4 KiB the fence cancels the gain, and into
    /// cached memory they are several times slower. `cargo bench -p intact-published --bench checksums -- copy` shows it. A kernel may use
    /// ordinary stores instead, for example for a run too short to gain; the result is the same.
    NonTemporal,
}

/// What a kernel does with the bytes in addition to digesting them: the `const PASS: u8` of its one generic body.
pub(crate) mod pass {
    #![cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]

    /// Digest only; the destination is not used and may be null.
    pub(crate) const READ: u8 = 0;
    /// Copy with ordinary stores.
    pub(crate) const COPY: u8 = 1;
    /// Copy with non-temporal stores, which a [`fence`](super::fence) must follow; only for runs of at least [`MIN_STREAM_BYTES`].
    pub(crate) const STREAM: u8 = 2;
    /// Shorter runs are stored ordinarily even if non-temporal stores are requested: the fence alone costs more than the run.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const MIN_STREAM_BYTES: usize = 512;

    /// Hides the origin of `word` from the compiler, so that what is digested is what is stored. Otherwise the compiler may load `src` a
    /// second time, and it does: it turns a loop that stores what it digests into a call of `memcpy` and a loop that digests `src`.
    #[inline(always)]
    pub(crate) fn pin(word: u64) -> u64 {
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
        {
            let mut pinned = word;
            // SAFETY: no instruction, no access to memory, no stack.
            unsafe {
                core::arch::asm!("/* {0} */", inout(reg) pinned, options(pure, nomem, nostack, preserves_flags));
            }
            pinned
        }
        #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
        core::hint::black_box(word)
    }
}

/// A buffer does not have the length that the other arguments require; nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthMismatch {
    /// Which buffer, in words that can follow "the": for example `destination`.
    pub buffer: &'static str,
    /// The required length, in elements of the buffer.
    pub needed: usize,
    /// The actual length.
    pub given: usize,
}

impl LengthMismatch {
    /// `Ok` if `given` equals `needed`, else the error.
    #[inline]
    pub(crate) fn check(buffer: &'static str, needed: usize, given: usize) -> Result<(), Self> {
        if needed == given { Ok(()) } else { Err(Self { buffer, needed, given }) }
    }
}

impl fmt::Display for LengthMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buffer, needed, given } = self;
        write!(f, "the {buffer} has length {given} and needs {needed}: cut it, or what goes with it, to fit")
    }
}

impl error::Error for LengthMismatch {}

/// Copies `src` to `dst`, continues `crc` (finished form) over the bytes copied, and returns the finished value.
///
/// Nothing outside `dst` is written. Do not expose the bytes in `dst` before the value has been compared with the digest received with
/// them.
///
/// # Errors
/// If `dst` and `src` differ in length; nothing was copied then.
///
/// ```
/// use integrity::{Store, copy_crc32c};
/// let mut dst = [0; 9];
/// assert_eq!(copy_crc32c(0, &mut dst, b"123456789", Store::Temporal), Ok(0xe306_9283));
/// assert_eq!(&dst, b"123456789");
/// assert!(copy_crc32c(0, &mut dst, b"12345678", Store::Temporal).is_err());
/// ```
#[inline]
pub fn copy_crc32c(crc: u32, dst: &mut [u8], src: &[u8], store: Store) -> Result<u32, LengthMismatch> {
    // SAFETY: `active` gives only kernels that this machine can run.
    unsafe { whole(active(), crc, dst, src, store) }
}

/// [`copy_crc32c`] with a given kernel.
///
/// # Safety
/// - The kernel is available.
#[inline]
pub(crate) unsafe fn whole(
    kernel: &Kernel,
    crc: u32,
    dst: &mut [u8],
    src: &[u8],
    store: Store,
) -> Result<u32, LengthMismatch> {
    LengthMismatch::check("destination", src.len(), dst.len())?;
    // SAFETY: the caller vouches for the kernel; the lengths are equal; the fence follows.
    let crc = unsafe { kernel.copy_unchecked(crc, dst, src, store) };
    fence(store);
    Ok(crc)
}

/// Orders non-temporal stores before what follows; ordinary stores are ordered anyway. It is the last step of every copy, once per call,
/// however many runs the call consists of.
#[inline]
pub(crate) fn fence(store: Store) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if store == Store::NonTemporal {
        // SAFETY: SSE is part of the x86-64 baseline.
        unsafe { core::arch::x86_64::_mm_sfence() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = store;
}

/// The copy of kernels that have no fused form: copies a block small enough to stay in the first-level cache, then digests the copy. Both
/// slices have the same length.
pub(crate) fn blockwise(append: fn(u32, &[u8]) -> u32, crc: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    const BLOCK_BYTES: usize = 4096;
    let mut crc = crc;
    for (to, from) in dst.chunks_mut(BLOCK_BYTES).zip(src.chunks(BLOCK_BYTES)) {
        to.copy_from_slice(from);
        crc = append(crc, to);
    }
    crc
}
