//! The CRC32C of each block of a run and of the whole run, in one pass.
//!
//! Each block is digested separately, and the running value is combined from these digests. That takes one
//! multiplication per block if the block length is a power of two, however large. So a store that keeps a digest with
//! each block gets the digest of the PDU almost for nothing, and vice versa.

use core::num::NonZeroUsize;

use super::{LengthMismatch, Store, fence};
use crate::crc32c::active;
use crate::crc32c::kernels::Kernel;

/// Continues `crc` (finished form) over `data`, and writes the CRC32C of each block of `block_bytes` to `crcs`. A
/// shorter block may be the last.
///
/// # Errors
/// If `crcs` does not have one element per block; nothing was written then.
///
/// ```
/// use integrity::{crc32c, crc32c_blocks};
/// let data = [7; 10_000];
/// let mut crcs = [0; 3];
/// let whole = crc32c_blocks(0, &data, 4096.try_into()?, &mut crcs)?;
/// assert_eq!(whole, crc32c(&data));
/// assert_eq!(crcs, [crc32c(&data[..4096]), crc32c(&data[4096..8192]), crc32c(&data[8192..])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn crc32c_blocks(
    crc: u32,
    data: &[u8],
    block_bytes: NonZeroUsize,
    crcs: &mut [u32],
) -> Result<u32, LengthMismatch> {
    LengthMismatch::check("list of block digests", data.len().div_ceil(block_bytes.get()), crcs.len())?;
    let kernel = active();
    let mut running = crc;
    for (block, crc) in data.chunks(block_bytes.get()).zip(crcs) {
        // SAFETY: `active` gives only kernels that this machine can run.
        *crc = unsafe { kernel.append_unchecked(0, block) };
        running = joined(kernel, running, *crc, block.len());
    }
    Ok(running)
}

/// Copies `src` to `dst`, continues `crc` (finished form) over the bytes copied, and writes the CRC32C of each block of
/// `block_bytes` to `crcs`. A shorter block may be the last.
///
/// # Errors
/// If `dst` and `src` differ in length, or if `crcs` does not have one element per block; nothing was written then.
///
/// ```
/// use integrity::{Store, copy_crc32c_blocks, crc32c};
/// let (src, mut dst, mut crcs) = ([7; 8192], [0; 8192], [0; 2]);
/// let whole = copy_crc32c_blocks(0, &mut dst, &src, Store::Temporal, 4096.try_into()?, &mut crcs)?;
/// assert_eq!((whole, crcs), (crc32c(&src), [crc32c(&src[..4096]); 2]));
/// assert_eq!(dst, src);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy_crc32c_blocks(
    crc: u32,
    dst: &mut [u8],
    src: &[u8],
    store: Store,
    block_bytes: NonZeroUsize,
    crcs: &mut [u32],
) -> Result<u32, LengthMismatch> {
    LengthMismatch::check("destination", src.len(), dst.len())?;
    LengthMismatch::check("list of block digests", src.len().div_ceil(block_bytes.get()), crcs.len())?;
    let kernel = active();
    let mut running = crc;
    let blocks = dst.chunks_mut(block_bytes.get()).zip(src.chunks(block_bytes.get()));
    for ((to, from), crc) in blocks.zip(crcs) {
        // SAFETY: `active` gives only kernels that this machine can run; the chunks of equally long slices are equally
        // long; the fence is below.
        *crc = unsafe { kernel.copy_unchecked(0, to, from, store) };
        running = joined(kernel, running, *crc, from.len());
    }
    fence(store);
    Ok(running)
}

#[inline]
fn joined(kernel: &Kernel, running: u32, crc: u32, len: usize) -> u32 {
    // SAFETY: the kernel is that of `active`, which this machine can run.
    unsafe { kernel.combine_unchecked(running, crc, len as u64) }
}
