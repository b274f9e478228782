//! The copy with a CRC32C and the IP checksum, for TCP segments that carry both.

use super::{LengthMismatch, Store};
use crate::crc32c::active;
use crate::sum::ip_checksum;

/// Bytes that are copied before they are summed: they are in the first-level cache then. Even, so that no word is torn.
const BLOCK_BYTES: usize = 8192;

/// Copies `src` to `dst`, continues `crc` (finished form) over the bytes copied, and returns the finished value and the
/// [`ip_checksum`] of these bytes.
///
/// Both describe what `dst` holds. It is one pass over memory: what is summed was written a moment ago. The sum takes no part in the loop of
/// the CRC, because then every kernel would have another form, for a twentieth of the time of a segment.
///
/// # Errors
/// If `dst` and `src` differ in length; nothing was copied then.
///
/// ```
/// use integrity::{copy_crc32c_sum, crc32c, ip_checksum};
/// let mut dst = [0; 9];
/// let both = copy_crc32c_sum(0, &mut dst, b"123456789");
/// assert_eq!(both, Ok((crc32c(b"123456789"), ip_checksum(b"123456789"))));
/// assert_eq!(&dst, b"123456789");
/// ```
pub fn copy_crc32c_sum(crc: u32, dst: &mut [u8], src: &[u8]) -> Result<(u32, u16), LengthMismatch> {
    LengthMismatch::check("destination", src.len(), dst.len())?;
    let kernel = active();
    let (mut crc, mut sum) = (crc, 0u64);
    for (to, from) in dst.chunks_mut(BLOCK_BYTES).zip(src.chunks(BLOCK_BYTES)) {
        // SAFETY: `active` gives only kernels that this machine can run; the chunks of equally long slices are equally long; ordinary
        // stores take no fence.
        crc = unsafe { kernel.copy_unchecked(crc, to, from, Store::Temporal) };
        sum += u64::from(!ip_checksum(to));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    Ok((crc, !(sum as u16)))
}
