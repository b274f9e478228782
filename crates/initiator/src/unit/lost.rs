//! Acknowledged writes that a unit has lost: how the loss was detected, and to whom it was reported.

use std::fmt;
use std::ops::Range;

use super::written::Blocks;
use crate::sense::Sense;

/// Losses of a unit that are kept apart; older ones are merged.
const MAX_LOSSES: usize = 4;

/// What a CHECK CONDITION implies for the cache and the identity of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// Its volatile cache may be gone.
    CacheLost,
    /// It may be another volume, or use its cache differently: probe it.
    Look,
    /// Any unit of the target may be another volume: probe all.
    LookAtAll,
}

impl News {
    /// Power on (29h/00h, which may stand for each of the others, and 29h/01h) and an internal reset (29h/04h) start with an
    /// empty cache. A medium change (28h/00h) has left behind what was only in the cache. A deferred error is the failure of a
    /// write that was acknowledged earlier (SPC-4 4.5.5).
    ///
    /// Resets by request (29h/02h hard reset, 29h/03h logical unit reset) end tasks and reset parameters (SAM-5 6.3.2, 6.3.3),
    /// but an acknowledged write is no longer a task, and no power was lost. The loss of a nexus (29h/07h) concerns the
    /// transport alone (SAM-5 6.3.4).
    //= sam5 5.14.1 UA-01
    pub(super) fn of(sense: &Sense) -> Self {
        if sense.deferred {
            return Self::CacheLost;
        }
        if !sense.is_unit_attention() {
            return Self::Nothing;
        }
        match (sense.asc, sense.ascq) {
            (0x29, 0x00 | 0x01 | 0x04) | (0x28, 0x00) => Self::CacheLost,
            // MODE PARAMETERS CHANGED, INQUIRY DATA HAS CHANGED, DEVICE IDENTIFIER CHANGED
            (0x2a, 0x01) | (0x3f, 0x03 | 0x05) => Self::Look,
            // REPORTED LUNS DATA HAS CHANGED
            (0x3f, 0x0e) => Self::LookAtAll,
            _ => Self::Nothing,
        }
    }
}

/// How it is known that acknowledged writes are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The unit has reported it.
    Told(Sense),
    /// A report that the unit may have had at the start of its session was lost with that session.
    Unknown,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told(sense) => write!(f, "it reports {sense}"),
            Self::Unknown => write!(f, "what it reported was lost with a session"),
        }
    }
}

/// Acknowledged writes that a unit may have lost, by its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostBlocks {
    /// The epoch of the unit that began with the loss.
    pub epoch: u64,
    /// How it is known.
    pub cause: LossCause,
    blocks: Blocks,
}

impl LostBlocks {
    /// Where they are on a unit with `end` blocks, in ascending order and disjoint, at coarser granularity than they were
    /// written.
    pub fn ranges(&self, end: u64) -> Vec<Range<u64>> {
        self.blocks.ranges(end)
    }

    /// The same in bytes, on a unit with `end` blocks of `block_bytes`.
    pub(crate) fn in_bytes(&self, end: u64, block_bytes: u32) -> LostWrites {
        let mut ranges = self.ranges(end);
        let most = self.blocks.most(&ranges).saturating_mul(block_bytes.into());
        for range in &mut ranges {
            *range = range.start * u64::from(block_bytes)..range.end * u64::from(block_bytes);
        }
        LostWrites { epoch: self.epoch, cause: self.cause, bytes: most, ranges }
    }
}

/// Acknowledged writes that a unit may have lost: the caller should write them again from the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrites {
    /// The epoch of the unit that began with the loss: it grows by one with each loss.
    pub epoch: u64,
    /// How it is known.
    pub cause: LossCause,
    /// Upper limit of the bytes lost.
    pub bytes: u64,
    /// Where they are, in bytes, in ascending order and disjoint, at coarser granularity than they were written.
    pub ranges: Vec<Range<u64>>,
}

impl LostWrites {
    /// These and `other`, which is of the same unit by another session.
    pub(crate) fn join(mut self, other: Self) -> Self {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ranges.extend(other.ranges);
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Self { epoch: self.epoch.max(other.epoch), ..self }
    }
}

impl fmt::Display for LostWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, cause, .. } = self;
        write!(
            f,
            "the target lost up to {bytes} bytes that it had acknowledged and that were not flushed: {cause}"
        )
    }
}

/// The losses of a unit.
#[derive(Default)]
pub(super) struct Losses {
    epoch: u64,
    /// The oldest first.
    all: Vec<LostBlocks>,
}

impl Losses {
    /// Losses so far.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn add(&mut self, cause: LossCause, blocks: Blocks) {
        self.epoch += 1;
        self.all.push(LostBlocks { epoch: self.epoch, cause, blocks });
        if self.all.len() > MAX_LOSSES {
            let oldest = self.all.remove(0);
            self.all[0].blocks.merge(oldest.blocks);
        }
    }

    /// The union of the losses since the epoch `since`.
    pub(super) fn since(&self, since: u64) -> Option<LostBlocks> {
        let mut later = self.all.iter().filter(|lost| lost.epoch > since).cloned();
        let first = later.next()?;
        Some(later.fold(first, |mut all, lost| {
            all.blocks.merge(lost.blocks);
            LostBlocks { blocks: all.blocks, ..lost }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention(asc: u8, ascq: u8) -> Sense {
        Sense { key: 6, asc, ascq, ..Sense::default() }
    }

    // covers: UA-01
    #[test]
    fn what_begins_with_an_empty_cache_is_told_from_the_rest() {
        for (asc, ascq) in [(0x29, 0), (0x29, 1), (0x29, 4), (0x28, 0)] {
            assert_eq!(News::of(&attention(asc, ascq)), News::CacheLost, "{asc:02x}h/{ascq:02x}h");
        }
        for (asc, ascq) in [(0x29, 2), (0x29, 3), (0x29, 7), (0x2a, 9), (0x47, 0x7f)] {
            assert_eq!(News::of(&attention(asc, ascq)), News::Nothing, "{asc:02x}h/{ascq:02x}h");
        }
        assert_eq!(News::of(&attention(0x3f, 0x0e)), News::LookAtAll);
        assert_eq!(News::of(&attention(0x2a, 1)), News::Look);
        let error = Sense { key: 3, asc: 0x0c, ..Sense::default() };
        assert_eq!(News::of(&error), News::Nothing, "its command has failed, and that was said");
        assert_eq!(News::of(&Sense { deferred: true, ..error }), News::CacheLost);
    }

    #[test]
    fn what_two_sessions_lost_is_one_loss() {
        let lost = |epoch, bytes, ranges: &[Range<u64>]| LostWrites {
            epoch,
            cause: LossCause::Unknown,
            bytes,
            ranges: ranges.to_vec(),
        };
        let joined = lost(2, 300, &[0..100, 400..600]).join(lost(1, 500, &[50..200, 300..400, 900..1000]));
        assert_eq!(joined, lost(2, 800, &[0..200, 300..600, 900..1000]));
    }

    #[test]
    fn each_is_told_of_what_was_lost_since_it_was_told_last() {
        let mut losses = Losses::default();
        for n in 0..10 {
            let mut blocks = Blocks::default();
            blocks.add(n * 512..n * 512 + 1);
            losses.add(LossCause::Unknown, blocks);
        }
        assert_eq!(losses.since(10), None);
        let last = losses.since(9).expect("there was one");
        assert_eq!((last.epoch, last.ranges(1 << 20)), (10, vec![4608..4864]));
        assert_eq!(losses.since(0).expect("all").ranges(1 << 20).len(), 10);
        let told = last.in_bytes(1 << 20, 512);
        assert_eq!((told.bytes, told.ranges), (512, vec![4608 * 512..4864 * 512]));
    }
}
