//! Bytes in several buffers, consumed and filled from the front, whole sectors at a time where they are contiguous.

use std::io::IoSliceMut;
use std::ops::Deref;

/// Bytes to read, in several buffers.
#[derive(Debug)]
pub(super) struct Gather<'a, S> {
    pieces: &'a [S],
    /// How much of the first piece has been taken.
    at: usize,
}

impl<'a, S: Deref<Target = [u8]>> Gather<'a, S> {
    pub(super) fn new(pieces: &'a [S]) -> Self {
        Self { pieces, at: 0 }
    }

    /// Up to `most` contiguous runs of `unit` bytes, or else a single one that is assembled in `scratch`. Empty if less
    /// than one is left.
    pub(super) fn take<'b>(&mut self, unit: usize, most: usize, scratch: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        self.skip_empty();
        let Some(first) = self.pieces.first() else { return &[] };
        let front: &'a [u8] = &first[self.at..];
        let whole = (front.len() / unit).min(most);
        if whole > 0 {
            self.at += whole * unit;
            return &front[..whole * unit];
        }
        scratch.clear();
        while scratch.len() < unit {
            self.skip_empty();
            let Some(first) = self.pieces.first() else { return &[] };
            let front = &first[self.at..];
            let n = front.len().min(unit - scratch.len());
            scratch.extend_from_slice(&front[..n]);
            self.at += n;
        }
        scratch
    }

    fn skip_empty(&mut self) {
        while let Some((first, rest)) = self.pieces.split_first()
            && first.len() == self.at
        {
            (self.pieces, self.at) = (rest, 0);
        }
    }
}

/// Bytes to write, in several buffers.
#[derive(Debug)]
pub(super) struct Scatter<'a, 'b> {
    pieces: &'a mut [IoSliceMut<'b>],
    at: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub(super) fn new(pieces: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { pieces, at: 0 }
    }

    /// The contiguous bytes at the front.
    pub(super) fn front(&mut self) -> &mut [u8] {
        while self.pieces.first().is_some_and(|first| first.len() == self.at) {
            self.pieces = &mut std::mem::take(&mut self.pieces)[1..];
            self.at = 0;
        }
        self.pieces.first_mut().map_or(&mut [], |first| &mut first[self.at..])
    }

    /// Marks `count` bytes at the front as filled.
    pub(super) fn advance(&mut self, count: usize) {
        self.at += count;
    }

    /// Copies `bytes` to the front, over as many pieces as needed; what does not fit is dropped.
    pub(super) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let front = self.front();
            let n = front.len().min(bytes.len());
            if n == 0 {
                return;
            }
            front[..n].copy_from_slice(&bytes[..n]);
            self.advance(n);
            bytes = &bytes[n..];
        }
    }
}

/// Total bytes of all pieces.
pub(super) fn total<S: Deref<Target = [u8]>>(pieces: &[S]) -> usize {
    pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_taken_whole_whatever_the_pieces_are() {
        let bytes: Vec<u8> = (0..100).collect();
        for cuts in [[0, 0, 100], [1, 2, 3], [10, 20, 30], [9, 10, 11], [50, 50, 99]] {
            let pieces =
                [&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..cuts[2]], &bytes[cuts[2]..]];
            let (mut gather, mut scratch, mut all) = (Gather::new(&pieces), Vec::new(), Vec::new());
            loop {
                let run = gather.take(10, 3, &mut scratch);
                if run.is_empty() {
                    break;
                }
                assert!(run.len().is_multiple_of(10) && run.len() <= 30);
                all.extend_from_slice(run);
            }
            assert_eq!(all, bytes);
        }
        let pieces = [&bytes[..15]];
        let (mut gather, mut scratch) = (Gather::new(&pieces), Vec::new());
        assert_eq!(gather.take(10, 3, &mut scratch), &bytes[..10]);
        assert_eq!(gather.take(10, 3, &mut scratch), &[], "a rest that is no sector");
    }

    #[test]
    fn what_is_put_goes_over_the_ends_of_pieces() {
        let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 4]);
        let mut pieces = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        let mut scatter = Scatter::new(&mut pieces);
        scatter.put(&[1, 2]);
        scatter.put(&[3, 4]);
        assert_eq!(scatter.front().len(), 3);
        scatter.put(&[5, 6, 7, 8]);
        assert_eq!((a, c), ([1, 2, 3], [4, 5, 6, 7]));
    }
}
