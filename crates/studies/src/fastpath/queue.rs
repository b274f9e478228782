//! A connection's bytes as TCP leaves them: segments in order, each in its own memory.

use std::collections::VecDeque;

/// Received segments that have not been consumed.
#[derive(Debug, Default)]
pub(super) struct SocketQueue {
    segments: VecDeque<Vec<u8>>,
    /// Bytes of the first segment that were taken.
    taken: usize,
    /// Segments that are taken whole: their memory is filled again.
    spent: Vec<Vec<u8>>,
}

impl SocketQueue {
    /// Adds `bytes` in segments of at most `segment_bytes`.
    pub(super) fn put(&mut self, mut bytes: &[u8], segment_bytes: usize) {
        while !bytes.is_empty() {
            if self.segments.back().is_none_or(|last| last.len() >= segment_bytes) {
                let mut segment = self.spent.pop().unwrap_or_else(|| Vec::with_capacity(segment_bytes));
                segment.clear();
                self.segments.push_back(segment);
            }
            let last = self.segments.back_mut().expect("one was put there");
            let (now, later) = bytes.split_at(bytes.len().min(segment_bytes - last.len()));
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Takes the next `bytes` bytes, run by run.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub(super) fn take(&mut self, mut bytes: usize, mut each: impl FnMut(&[u8])) {
        while bytes > 0 {
            let first = self.segments.front().expect("the PDU has arrived");
            let run = &first[self.taken..];
            let run = &run[..run.len().min(bytes)];
            each(run);
            bytes -= run.len();
            self.taken += run.len();
            if self.taken == first.len() {
                self.taken = 0;
                self.spent.extend(self.segments.pop_front());
            }
        }
    }

    /// The first bytes of each segment that is still there, up to `bytes` of stream.
    pub(super) fn heads(&self, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let mut left = bytes + self.taken;
        self.segments.iter().map_while(move |segment| {
            let is_reached = left > 0;
            left = left.saturating_sub(segment.len());
            is_reached.then(|| &segment[..segment.len().min(64)])
        })
    }

    /// Inverts the lowest bit of the byte `at` bytes ahead.
    #[cfg(test)]
    pub(crate) fn flip(&mut self, at: usize) {
        let mut at = at + self.taken;
        for segment in &mut self.segments {
            if at < segment.len() {
                segment[at] ^= 1;
                return;
            }
            at -= segment.len();
        }
        panic!("there is no such byte");
    }

    /// Whether everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_whatever_the_segments_are() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
        for segment_bytes in [1, 7, 48, 1448, 8960] {
            let mut queue = SocketQueue::default();
            for round in 0..3 {
                queue.put(&bytes[..300], segment_bytes);
                queue.put(&bytes[300..], segment_bytes);
                assert_eq!(queue.heads(48).next(), Some(&bytes[..segment_bytes.min(64)]), "round {round}");
                let mut out = Vec::new();
                queue.take(48, |run| out.extend_from_slice(run));
                queue.take(952, |run| out.extend_from_slice(run));
                assert_eq!(out, bytes);
                assert!(queue.is_empty());
            }
        }
    }
}
