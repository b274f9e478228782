//! Which blocks were written and acknowledged, but not flushed since: the books of one unit.
//!
//! ```text
//!   acknowledged ──► open ──a flush begins──► closed, with its mark ──that flush, or a later one, succeeds──► (on the medium)
//!                      └──────────── the unit has lost its cache ────────────┴──► lost
//! ```
//! A set of blocks is a bitmap of chunks. The chunks grow until the bitmap reaches the highest block, so memory is bounded and
//! a write costs the same whatever was written before.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// Words of a bitmap.
const WORDS: usize = 1024;
/// Chunks of a bitmap.
const CHUNKS: u64 = WORDS as u64 * 64;
/// The initial chunk size, as a power of two of blocks.
const FIRST_SHIFT: u32 = 8;
/// Outstanding flushes whose blocks are kept apart; further ones are merged, which keeps blocks in the books for longer.
const MAX_CLOSED: usize = 4;

/// A set of blocks; see the head of the module.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    /// A bit for each chunk; `None`: no block.
    bits: Option<Box<[u64; WORDS]>>,
    shift: u32,
    /// Number of blocks added; a block added twice counts twice.
    added: u64,
    /// All blocks of the medium, however many there are.
    all: bool,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("ranges", &self.ranges(u64::MAX)).finish_non_exhaustive()
    }
}

impl Blocks {
    /// No block.
    pub(super) fn is_empty(&self) -> bool {
        self.bits.is_none() && !self.all
    }

    /// Adds blocks; `u64::MAX` is the end of the medium, wherever that is.
    pub(super) fn add(&mut self, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        if blocks.end == u64::MAX {
            self.all = true;
            return;
        }
        self.added = self.added.saturating_add(blocks.end - blocks.start);
        self.mark(blocks);
    }

    fn mark(&mut self, blocks: Range<u64>) {
        if self.bits.is_none() {
            self.shift = self.shift.max(FIRST_SHIFT);
        }
        while (blocks.end - 1) >> self.shift >= CHUNKS {
            self.coarsen();
        }
        let shift = self.shift;
        let bits = self.bits.get_or_insert_with(|| Box::new([0; WORDS]));
        for chunk in blocks.start >> shift..=(blocks.end - 1) >> shift {
            bits[(chunk / 64) as usize] |= 1 << (chunk % 64);
        }
    }

    /// Makes chunks twice as large.
    fn coarsen(&mut self) {
        self.shift += 1;
        if let Some(bits) = &mut self.bits {
            let mut coarse = Box::new([0; WORDS]);
            for chunk in chunks(bits) {
                let chunk = chunk / 2;
                coarse[chunk / 64] |= 1 << (chunk % 64);
            }
            *bits = coarse;
        }
    }

    /// Adds all of `other`.
    pub(super) fn merge(&mut self, mut other: Self) {
        if self.bits.is_none() {
            std::mem::swap(self, &mut other);
        }
        self.all |= other.all;
        self.added = self.added.saturating_add(other.added);
        while other.bits.is_some() && other.shift < self.shift {
            other.coarsen();
        }
        while other.bits.is_some() && self.shift < other.shift {
            self.coarsen();
        }
        if let (Some(bits), Some(others)) = (&mut self.bits, &other.bits) {
            bits.iter_mut().zip(others.iter()).for_each(|(bits, others)| *bits |= others);
        }
    }

    /// The ranges that it covers on a medium of `end` blocks, in ascending order and disjoint.
    pub(super) fn ranges(&self, end: u64) -> Vec<Range<u64>> {
        if self.all {
            return Vec::from_iter((end > 0).then_some(0..end));
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for chunk in self.bits.iter().flat_map(|bits| chunks(bits)) {
            let chunk = (chunk as u64) << self.shift..((chunk as u64 + 1) << self.shift).min(end);
            match ranges.last_mut() {
                _ if chunk.is_empty() => break,
                Some(last) if last.end == chunk.start => last.end = chunk.end,
                _ => ranges.push(chunk),
            }
        }
        ranges
    }

    /// Upper limit of the blocks in the set, given its `ranges`.
    pub(super) fn most(&self, ranges: &[Range<u64>]) -> u64 {
        let reach = ranges.iter().map(|range| range.end - range.start).sum();
        if self.all { reach } else { self.added.min(reach) }
    }
}

/// The chunks of a bitmap, in ascending order.
fn chunks(bits: &[u64; WORDS]) -> impl Iterator<Item = usize> {
    let words = bits.iter().enumerate().filter(|(_, word)| **word != 0);
    words.flat_map(|(n, word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| n * 64 + bit))
}

/// When a flush began, relative to the other flushes of its unit.
pub(super) type Mark = u64;

/// See the head of the module.
#[derive(Default)]
pub(super) struct Written {
    open: Blocks,
    closed: VecDeque<(Mark, Blocks)>,
    marks: Mark,
}

impl Written {
    /// A write of these blocks was acknowledged.
    pub(super) fn acknowledged(&mut self, blocks: Range<u64>) {
        self.open.add(blocks);
    }

    /// A flush begins: it covers what has been acknowledged by now.
    pub(super) fn flush_begins(&mut self) -> Mark {
        if !self.open.is_empty() {
            self.marks += 1;
            let (open, full) = (std::mem::take(&mut self.open), self.closed.len() == MAX_CLOSED);
            match self.closed.back_mut() {
                Some((mark, last)) if full => {
                    *mark = self.marks;
                    last.merge(open);
                }
                _ => self.closed.push_back((self.marks, open)),
            }
        }
        self.marks
    }

    /// The flush that began at `mark` has succeeded.
    pub(super) fn flushed(&mut self, mark: Mark) {
        while self.closed.front().is_some_and(|(closed, _)| *closed <= mark) {
            self.closed.pop_front();
        }
    }

    /// Empties the books and returns their blocks.
    pub(super) fn take(&mut self) -> Blocks {
        let mut all = std::mem::take(&mut self.open);
        self.closed.drain(..).for_each(|(_, blocks)| all.merge(blocks));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that a unit with 64 Mi blocks would lose now.
    fn due(written: &mut Written) -> Vec<Range<u64>> {
        written.take().ranges(1 << 26)
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_began() {
        let mut written = Written::default();
        written.acknowledged(0..256);
        let mark = written.flush_begins();
        written.acknowledged(512..768);
        written.flushed(mark);
        assert_eq!(
            due(&mut written),
            [512..768],
            "the second was acknowledged while the flush was under way"
        );
        assert_eq!(due(&mut written), []);
    }

    #[test]
    fn a_flush_that_fails_leaves_its_blocks_to_the_next() {
        let mut written = Written::default();
        for n in 0..20 {
            written.acknowledged(n * 1024..n * 1024 + 256);
            written.flush_begins();
        }
        let mark = written.flush_begins();
        assert!(written.closed.len() <= MAX_CLOSED);
        written.flushed(mark);
        assert_eq!(due(&mut written), []);
    }

    #[test]
    fn of_many_flushes_each_covers_no_more_than_was_there() {
        for ended in 0..10 {
            let mut written = Written::default();
            let mut marks = Vec::new();
            for n in 0..10 {
                written.acknowledged(n * 256..n * 256 + 256);
                marks.push(written.flush_begins());
            }
            written.flushed(marks[ended]);
            let left = due(&mut written);
            let after = (ended as u64 + 1) * 256..10 * 256;
            let kept = |block: u64| left.iter().any(|range| range.contains(&block));
            assert!(after.clone().all(kept), "flush {ended} began before {after:?} was written: {left:?}");
            assert!(ended < 9 || left.is_empty(), "the last one covers all: {left:?}");
        }
    }

    #[test]
    fn chunks_become_coarser_and_lose_no_block() {
        let mut blocks = Blocks::default();
        blocks.add(5..6);
        blocks.add(300..301);
        assert_eq!(blocks.ranges(1 << 50), [0..512]);
        blocks.add((1 << 40) - 1..1 << 40);
        let ranges = blocks.ranges(1 << 50);
        assert_eq!(ranges.len(), 2);
        assert!(ranges[0].contains(&5) && ranges[0].contains(&300) && ranges[1].contains(&((1 << 40) - 1)));
        assert_eq!(blocks.most(&ranges), 3);
        // And the other way round: a fine set merges with a coarse one.
        let mut fine = Blocks::default();
        fine.add(7..8);
        fine.merge(blocks);
        assert_eq!((fine.ranges(1 << 50), fine.most(&ranges)), (ranges, 4));
    }

    #[test]
    fn the_end_of_the_medium_is_kept_in_mind() {
        let mut blocks = Blocks::default();
        blocks.add(1000..1001);
        assert_eq!(blocks.ranges(1001), [768..1001]);
        assert_eq!(blocks.ranges(10), [], "the unit has become smaller");
        blocks.add(7..u64::MAX);
        assert_eq!(blocks.ranges(5000), [0..5000]);
        assert_eq!(blocks.most(&blocks.ranges(5000)), 5000);
    }
}
