//! Walking a gather list: the payload of one write, in the slices in which the transport received it.

use crate::StoreError;

/// Bytes in a gather list. Slices may share memory, so the sum is checked.
///
/// # Errors
/// [`StoreError::OutOfRange`] when the sum does not fit in 64 bits: no store is that large.
pub(crate) fn total_bytes(src: &[&[u8]], offset: u64, size_bytes: u64) -> Result<u64, StoreError> {
    src.iter()
        .try_fold(0u64, |sum, slice| sum.checked_add(slice.len() as u64))
        .ok_or(StoreError::OutOfRange { offset, len: u64::MAX, size_bytes })
}

/// A position in a gather list. A copy of it can look ahead.
#[derive(Clone, Copy)]
pub(crate) struct Gather<'a> {
    rest: &'a [&'a [u8]],
    skip: usize,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(src: &'a [&'a [u8]]) -> Self {
        Gather { rest: src, skip: 0 }
    }

    /// The next run of at most `max` bytes that lies in one slice; `None` at the end.
    pub(crate) fn next_run(&mut self, max: usize) -> Option<&'a [u8]> {
        while let Some((&first, later)) = self.rest.split_first() {
            let tail = first.get(self.skip..).unwrap_or_default();
            if tail.is_empty() {
                self.rest = later;
                self.skip = 0;
                continue;
            }
            let run = &tail[..tail.len().min(max)];
            self.skip += run.len();
            return Some(run);
        }
        None
    }

    /// Skips `bytes` bytes.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0
            && let Some(run) = self.next_run(left)
        {
            left -= run.len();
        }
    }

    /// Fills `dst` with the next bytes. The caller has checked that the list holds that many.
    pub(crate) fn copy_to(&mut self, dst: &mut [u8]) {
        let mut done = 0;
        while done < dst.len() {
            let Some(run) = self.next_run(dst.len() - done) else { return };
            dst[done..done + run.len()].copy_from_slice(run);
            done += run.len();
        }
    }
}
