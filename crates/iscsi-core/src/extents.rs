//! Which bytes of a transfer have arrived, when they may arrive in any order (RFC 7143 13.18, 13.19).
//!
//! The list is sorted and adjacent runs are one run, so data in order never takes more than one place. A peer that leaves holes
//! everywhere is stopped at [`MAX_EXTENTS`].

use smallvec::SmallVec;

use crate::limits::MAX_EXTENTS;

/// Why an extent is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Some of its bytes have already arrived.
    Overlap,
    /// It would leave more than [`MAX_EXTENTS`] runs.
    TooMany,
    /// It ends beyond 4 GiB.
    TooLong,
}

/// The runs of bytes that have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    /// First byte, and the byte after the last. Sorted; no two of them touch.
    runs: SmallVec<[(u32, u32); 2]>,
}

impl Extents {
    /// The first `bytes` bytes have arrived.
    pub(crate) fn up_to(bytes: u32) -> Self {
        let mut extents = Self::default();
        if bytes > 0 {
            extents.runs.push((0, bytes));
        }
        extents
    }

    /// Enters `length` bytes at `offset`.
    ///
    /// # Errors
    /// Says why they are refused; then nothing has changed.
    pub(crate) fn add(&mut self, offset: u32, length: usize) -> Result<(), Refused> {
        let end = u32::try_from(length).ok().and_then(|length| offset.checked_add(length));
        let end = end.ok_or(Refused::TooLong)?;
        if end == offset {
            return Ok(());
        }
        let behind = self.runs.partition_point(|run| run.0 < offset);
        let before = behind.checked_sub(1);
        if before.is_some_and(|at| self.runs[at].1 > offset)
            || self.runs.get(behind).is_some_and(|run| run.0 < end)
        {
            return Err(Refused::Overlap);
        }
        let joins_before = before.filter(|at| self.runs[*at].1 == offset);
        let joins_behind = self.runs.get(behind).is_some_and(|run| run.0 == end);
        match (joins_before, joins_behind) {
            (Some(at), true) => {
                self.runs[at].1 = self.runs[behind].1;
                self.runs.remove(behind);
            }
            (Some(at), false) => self.runs[at].1 = end,
            (None, true) => self.runs[behind].0 = offset,
            (None, false) if self.runs.len() >= MAX_EXTENTS => return Err(Refused::TooMany),
            (None, false) => self.runs.insert(behind, (offset, end)),
        }
        Ok(())
    }

    /// Bytes from the start up to the first that is missing.
    pub(crate) fn whole_from_start(&self) -> u32 {
        self.runs.first().filter(|run| run.0 == 0).map_or(0, |run| run.1)
    }

    /// Whether a byte is missing before one that has arrived.
    pub(crate) fn has_gap(&self) -> bool {
        match self.runs.as_slice() {
            [] => false,
            [only] => only.0 > 0,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_arrival_ends_as_one_run() {
        for seed in 1..=1000u64 {
            let mut random = seed;
            let mut next = |bound: usize| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % bound
            };
            let (mut cuts, mut at) = (Vec::new(), 0u32);
            for _ in 0..1 + next(40) {
                let length = 1 + next(5000);
                cuts.push((at, length));
                at += length as u32;
            }
            for i in (1..cuts.len()).rev() {
                cuts.swap(i, next(i + 1));
            }
            // The oracle is one flag for each byte.
            let (mut extents, mut arrived) = (Extents::default(), vec![false; at as usize]);
            for (offset, length) in cuts {
                extents.add(offset, length).unwrap();
                arrived[offset as usize..offset as usize + length].fill(true);
                let whole = arrived.iter().position(|here| !here).unwrap_or(arrived.len());
                assert_eq!(extents.whole_from_start() as usize, whole, "seed {seed}");
                assert_eq!(extents.has_gap(), arrived[whole..].contains(&true), "seed {seed}");
                assert_eq!(extents.add(offset, 1), Err(Refused::Overlap), "seed {seed}");
            }
            assert_eq!(extents.runs.as_slice(), [(0, at)], "seed {seed}");
        }
    }

    #[test]
    fn every_kind_of_overlap_is_refused_and_changes_nothing() {
        let mut extents = Extents::default();
        extents.add(100, 100).unwrap();
        extents.add(300, 100).unwrap();
        let before = extents.clone();
        for (offset, length) in
            [(100, 100), (99, 2), (199, 1), (199, 2), (150, 10), (0, 500), (200, 101), (399, 1), (100, 1)]
        {
            assert_eq!(extents.add(offset, length), Err(Refused::Overlap), "{length} at {offset}");
            assert_eq!(extents, before);
        }
        assert_eq!(extents.add(u32::MAX, 1), Err(Refused::TooLong));
        assert_eq!(extents.add(150, 0), Ok(()), "no data, no overlap");
        assert_eq!(extents, before);
    }

    #[test]
    fn the_list_never_grows_beyond_its_limit() {
        let mut extents = Extents::default();
        for i in 0..MAX_EXTENTS as u32 {
            extents.add(2 * i, 1).unwrap();
        }
        assert_eq!(extents.add(2 * MAX_EXTENTS as u32, 1), Err(Refused::TooMany));
        assert_eq!(extents.runs.len(), MAX_EXTENTS);
        extents.add(1, 1).unwrap();
        assert_eq!(extents.whole_from_start(), 3, "what closes a hole is still taken");
        extents.add(2 * MAX_EXTENTS as u32, 1).unwrap();
    }
}
