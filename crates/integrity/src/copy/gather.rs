//! Copies of scattered bytes, some of which the digest does not cover: the scatter/gather list whose elements carry a C
//! bit, from section 3.3 of the 2005 paper on software iSCSI. Markers, padding and headers travel with the data that a
//! digest covers, and one pass handles both.

use super::{LengthMismatch, Store, fence};
use crate::crc32c::active;

/// One element of a list to gather from.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// What is copied.
    pub bytes: &'a [u8],
    /// Whether the digest covers these bytes.
    pub counts: bool,
}

/// One element of a list to scatter to.
#[derive(Debug)]
pub struct SegmentMut<'a> {
    /// Where the bytes go.
    pub bytes: &'a mut [u8],
    /// Whether the digest covers these bytes.
    pub counts: bool,
}

/// Copies all `segments`, one after the other, to `dst`, and continues `crc` (finished form) over those that count.
///
/// Nothing is allocated. Segments that do not count may be written with ordinary stores, whatever `store` says.
///
/// # Errors
/// If the segments together are not as long as `dst`; nothing was copied then.
///
/// ```
/// use integrity::{Segment, Store, copy_crc32c_gather};
/// let list = [
///     Segment { bytes: b"12345", counts: true },
///     Segment { bytes: b"--", counts: false },
///     Segment { bytes: b"6789", counts: true },
/// ];
/// let mut dst = [0; 11];
/// assert_eq!(copy_crc32c_gather(0, &mut dst, &list, Store::Temporal), Ok(0xe306_9283));
/// assert_eq!(&dst, b"12345--6789");
/// ```
pub fn copy_crc32c_gather(
    crc: u32,
    dst: &mut [u8],
    segments: &[Segment<'_>],
    store: Store,
) -> Result<u32, LengthMismatch> {
    LengthMismatch::check("destination", total(segments.iter().map(|s| s.bytes.len())), dst.len())?;
    let kernel = active();
    let (mut crc, mut rest) = (crc, dst);
    for Segment { bytes, counts } in segments {
        let (to, after) = rest.split_at_mut(bytes.len());
        if *counts {
            // SAFETY: `active` gives only kernels that this machine can run; the lengths are equal; the fence is below.
            crc = unsafe { kernel.copy_unchecked(crc, to, bytes, store) };
        } else {
            to.copy_from_slice(bytes);
        }
        rest = after;
    }
    fence(store);
    Ok(crc)
}

/// Copies `src` piece by piece to `segments`, and continues `crc` (finished form) over those that count.
///
/// Nothing is allocated. Segments that do not count may be written with ordinary stores, whatever `store` says.
///
/// # Errors
/// If the segments together are not as long as `src`; nothing was copied then.
///
/// ```
/// use integrity::{SegmentMut, Store, copy_crc32c_scatter};
/// let (mut data, mut marker, mut more) = ([0; 5], [0; 2], [0; 4]);
/// let mut list = [
///     SegmentMut { bytes: &mut data, counts: true },
///     SegmentMut { bytes: &mut marker, counts: false },
///     SegmentMut { bytes: &mut more, counts: true },
/// ];
/// assert_eq!(copy_crc32c_scatter(0, &mut list, b"12345--6789", Store::Temporal), Ok(0xe306_9283));
/// assert_eq!((&data, &marker, &more), (b"12345", b"--", b"6789"));
/// ```
pub fn copy_crc32c_scatter(
    crc: u32,
    segments: &mut [SegmentMut<'_>],
    src: &[u8],
    store: Store,
) -> Result<u32, LengthMismatch> {
    let total = total(segments.iter().map(|s| s.bytes.len()));
    LengthMismatch::check("list of destinations", src.len(), total)?;
    let kernel = active();
    let (mut crc, mut rest) = (crc, src);
    for SegmentMut { bytes, counts } in segments {
        let (from, after) = rest.split_at(bytes.len());
        if *counts {
            // SAFETY: `active` gives only kernels that this machine can run; the lengths are equal; the fence is below.
            crc = unsafe { kernel.copy_unchecked(crc, bytes, from, store) };
        } else {
            bytes.copy_from_slice(from);
        }
        rest = after;
    }
    fence(store);
    Ok(crc)
}

/// The sum of lengths. A list may name one slice many times, so the sum may exceed the size of memory. It saturates
/// then, and is greater than the length of any slice.
fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}
