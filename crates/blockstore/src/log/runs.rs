//! Which bytes of a store are not yet in their place, and where they are instead. Does no I/O.

use std::collections::BTreeMap;

use super::format::Span;

/// What a run of bytes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The bytes at this offset of the log.
    At(u64),
    /// Zeros; whether their space should be released.
    Zeroes { unmap: bool },
    /// Its content after the next start is unknown.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) span: Span,
    pub(super) what: What,
}

impl Run {
    fn end(&self) -> u64 {
        self.span.offset + self.span.len
    }

    /// The part of it that lies in `from..to`, which overlaps it.
    fn part(&self, from: u64, to: u64) -> Run {
        let (from, to) = (from.max(self.span.offset), to.min(self.end()));
        let what = match self.what {
            What::At(at) => What::At(at + (from - self.span.offset)),
            other => other,
        };
        Run { span: Span { offset: from, len: to - from }, what }
    }
}

/// Runs that do not overlap, by their ends: a later run replaces an earlier one where both cover a byte.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<u64, Run>);

impl Runs {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.0.values()
    }

    /// The runs that overlap a range, cut to it, by offset.
    pub(super) fn within(&self, span: Span) -> impl Iterator<Item = Run> + '_ {
        let to = span.offset.saturating_add(span.len);
        let met = self.0.range(span.offset.saturating_add(1)..).map(|(_, run)| run);
        met.take_while(move |run| run.span.offset < to).map(move |run| run.part(span.offset, to))
    }

    /// From now on the range holds `what`.
    pub(super) fn insert(&mut self, span: Span, what: What) {
        if span.len == 0 {
            return;
        }
        let to = span.offset + span.len;
        while let Some(met) = self.0.range(span.offset + 1..).map(|(_, run)| *run).next()
            && met.span.offset < to
        {
            self.0.remove(&met.end());
            if met.span.offset < span.offset {
                self.put(met.part(met.span.offset, span.offset));
            }
            if met.end() > to {
                self.put(met.part(to, met.end()));
            }
        }
        self.put(Run { span, what });
    }

    fn put(&mut self, run: Run) {
        self.0.insert(run.end(), run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with an array that has an entry for each byte.
    #[test]
    fn of_several_runs_for_a_byte_the_last_one_counts() {
        let (mut runs, mut bytes, mut state) = (Runs::default(), [None; 64], 12345u64);
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for round in 0..2000u64 {
            let (offset, len) = (random(56), random(9));
            let what = match random(3) {
                0 => What::Zeroes { unmap: true },
                _ => What::At(round * 1000),
            };
            runs.insert(Span { offset, len }, what);
            for (i, byte) in bytes[offset as usize..(offset + len) as usize].iter_mut().enumerate() {
                *byte = Some(match what {
                    What::At(at) => What::At(at + i as u64),
                    other => other,
                });
            }
            let (offset, len) = (random(56), random(9));
            let mut seen = [None; 64];
            for run in runs.within(Span { offset, len }) {
                for i in 0..run.span.len {
                    let what = match run.what {
                        What::At(at) => What::At(at + i),
                        other => other,
                    };
                    seen[(run.span.offset + i) as usize] = Some(what);
                }
            }
            let (from, to) = (offset as usize, (offset + len) as usize);
            assert_eq!(seen[from..to], bytes[from..to], "round {round}");
            assert!(seen[..from].iter().chain(&seen[to..]).all(Option::is_none), "round {round}");
        }
    }
}
