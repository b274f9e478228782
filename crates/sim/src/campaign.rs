//! Runs many seeds on all cores and sums up their results. A seed that panics counts as a finding and stops nothing.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Report;

/// Which seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// No seed is started later than this after the beginning.
    pub limit: Option<Duration>,
}

/// The result of one seed.
#[derive(Debug)]
pub enum Outcome {
    /// The run ended; its report may contain an invariant that did not hold.
    Ended(Report),
    /// The stacks or the simulator panicked. The panic message went to stderr.
    Panicked(u64),
}

impl Outcome {
    /// Whether it is a finding.
    pub fn is_finding(&self) -> bool {
        match self {
            Outcome::Ended(report) => report.broken.is_some(),
            Outcome::Panicked(_) => true,
        }
    }
}

/// Sums over the seeds that were run. The lists are in ascending order.
#[derive(Debug, Default)]
pub struct Totals {
    /// Seeds run, including those that panicked.
    pub seeds: u64,
    /// Operations that succeeded, and operations that were given up.
    pub done: u64,
    /// See `done`.
    pub failed: u64,
    /// PDUs sent.
    pub pdus: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Sessions that were lost and recovered.
    pub recoveries: u64,
    /// Initiators whose session did not come back.
    pub gave_up: u64,
    /// Virtual time simulated, seconds.
    pub virtual_s: f64,
    /// Seeds in which an invariant did not hold, or that panicked.
    pub broken_in: Vec<u64>,
    /// Seeds in which operations were given up.
    pub failed_in: Vec<u64>,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        match outcome {
            Outcome::Panicked(seed) => self.broken_in.push(*seed),
            Outcome::Ended(report) => {
                self.done += report.done;
                self.failed += report.failed;
                self.pdus += report.pdus;
                self.flips += report.flips;
                self.recoveries += report.losses.recoveries;
                self.gave_up += report.losses.gave_up;
                self.virtual_s += report.virtual_ns as f64 / 1e9;
                if report.failed > 0 {
                    self.failed_in.push(report.seed);
                }
                if report.broken.is_some() {
                    self.broken_in.push(report.seed);
                }
            }
        }
    }
}

impl Campaign {
    /// Runs the seeds with `run`, on as many threads as there are cores. Calls `each` after every seed, with the sums
    /// so far, from one thread at a time and in no particular order.
    pub fn run(self, run: fn(u64) -> Report, each: impl FnMut(&Outcome, &Totals) + Send) -> Totals {
        let begin = Instant::now();
        let next = AtomicU64::new(0);
        let book = Mutex::new((Totals::default(), each));
        let work = || {
            while self.limit.is_none_or(|limit| begin.elapsed() <= limit) {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(seed) = self.first.checked_add(n).filter(|_| n < self.seeds) else { return };
                let outcome = catch_unwind(|| run(seed)).map_or(Outcome::Panicked(seed), Outcome::Ended);
                let (totals, each) = &mut *book.lock();
                totals.add(&outcome);
                each(&outcome, totals);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let (mut totals, _) = book.into_inner();
        totals.broken_in.sort_unstable();
        totals.failed_in.sort_unstable();
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 3 panics, seed 5 breaks an invariant, seed 7 gives an operation up.
    fn scripted(seed: u64) -> Report {
        assert_ne!(seed, 3, "a panic that the test wants");
        Report {
            seed,
            done: 10,
            failed: u64::from(seed == 7),
            broken: (seed == 5).then(|| "a wrong byte".to_owned()),
            ..Report::default()
        }
    }

    #[test]
    fn findings_end_nothing_and_are_told_at_once_with_their_seeds() {
        let mut told = Vec::new();
        let totals = Campaign { first: 2, seeds: 7, limit: None }.run(scripted, |outcome, totals| {
            if outcome.is_finding() {
                assert!(!totals.broken_in.is_empty(), "the sums know it already");
                told.push(match outcome {
                    Outcome::Ended(report) => report.seed,
                    Outcome::Panicked(seed) => *seed,
                });
            }
        });
        told.sort_unstable();
        assert_eq!(told, [3, 5]);
        assert_eq!(totals.broken_in, [3, 5]);
        assert_eq!(totals.failed_in, [7]);
        assert_eq!((totals.seeds, totals.done, totals.failed), (7, 60, 1));
    }

    #[test]
    fn a_campaign_ends_at_its_limit_and_at_the_last_number() {
        let none = Some(Duration::ZERO);
        assert!(
            Campaign { first: 10, seeds: u64::MAX, limit: none }.run(scripted, |_, _| {}).seeds < u64::MAX
        );
        let last = Campaign { first: u64::MAX - 1, seeds: 9, limit: None }.run(scripted, |_, _| {});
        assert_eq!(last.seeds, 2);
    }
}
