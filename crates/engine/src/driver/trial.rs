//! Trials: one of several ways to run a loop is chosen by what each costs, measured while the loop works.
//!
//! A span is 64 sleeps of the loop. Most spans belong to the way that has been best; now and then one belongs to another way, between two
//! spans of the best. A span costs the time of a byte and its processor time, which counts half as much again. Another way takes over
//! when its spans were cheaper by a twentieth on average. A span during which the loop paused says nothing, and does not count. When the
//! cost of the best way changes, the load has changed: what was learned is forgotten, and the others are tried at once.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Sleeps in a span.
const SPAN: u32 = 64;
/// A span that takes longer had pauses in it.
const SPAN_TIME_MAX: Duration = Duration::from_millis(25);
/// Spans of the best way between two trials.
const REST: u32 = 32;
/// The same until each way was tried often enough to be trusted.
const REST_AT_FIRST: u32 = 4;
/// Trials before a way can take over.
const TRIALS_MIN: u32 = 4;
/// How much cheaper a way must be to take over, as a logarithm: a twentieth.
const ADVANTAGE_MIN: f64 = 0.05;
/// What processor time counts, where time counts 1: others could have used it.
const CPU_WEIGHT: f64 = 1.5;
/// The weight of the newest trial in the average.
const NEWEST: f64 = 0.25;
/// How much the cost changes when the load does, as a logarithm: what was learned before is forgotten.
const CHANGE: f64 = 0.4;
/// No single trial counts for more than this, as a logarithm: other programs disturb some of them.
const TRIAL_MAX: f64 = 0.7;

/// What a loop has used and moved since it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Time on any clock that does not go back.
    pub(super) at: Duration,
    /// Processor time of the loop's thread.
    pub(super) cpu: Duration,
    /// Bytes sent and received.
    pub(super) bytes: u64,
}

impl Usage {
    /// Now, on this thread.
    pub(super) fn now(bytes: u64) -> Self {
        Self { at: time_of(ClockId::Monotonic), cpu: time_of(ClockId::ThreadCPUTime), bytes }
    }
}

fn time_of(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    // Neither clock shows a time before its beginning.
    Duration::new(tv_sec.unsigned_abs(), tv_nsec.unsigned_abs() as u32)
}

/// Chooses among `WAYS` ways, which are numbered from 0. A loop begins with 0.
#[derive(Debug)]
pub(super) struct Trials<const WAYS: usize> {
    best: usize,
    /// The way under trial, in a span of its own.
    tried: Option<usize>,
    /// The way that was tried last, until the span of the best way after it has ended, and what it cost.
    pending: Option<(usize, f64)>,
    next: usize,
    rest: u32,
    /// Sleeps in this span.
    sleeps: u32,
    began: Option<Usage>,
    /// The cost of the last span of the best way.
    before: Option<f64>,
    /// The average of such costs, and what it was when the load changed for the last time.
    usual: Option<(f64, f64)>,
    ways: [Way; WAYS],
}

/// A way next to the best one: the average of the trials, as a logarithm of the ratio of costs.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    trials: u32,
    ratio: f64,
}

impl<const WAYS: usize> Default for Trials<WAYS> {
    fn default() -> Self {
        Self {
            best: 0,
            tried: None,
            pending: None,
            next: 0,
            rest: REST_AT_FIRST,
            sleeps: 0,
            began: None,
            before: None,
            usual: None,
            ways: [Way::default(); WAYS],
        }
    }
}

impl<const WAYS: usize> Trials<WAYS> {
    /// The way that this span belongs to.
    pub(super) fn current(&self) -> usize {
        self.tried.unwrap_or(self.best)
    }

    /// The loop is about to sleep; true when a trial of another way begins. `usage` is asked for at the end of a span.
    pub(super) fn sleep(&mut self, usage: impl FnOnce() -> Usage) -> bool {
        self.sleeps += 1;
        if self.sleeps < SPAN && self.began.is_some() {
            return false;
        }
        let now = usage();
        let began = self.began.replace(now);
        if let Some(began) = began {
            self.end_span(cost(began, now));
        }
        self.sleeps = 0;
        debug_assert!(self.current() < WAYS && self.tried != Some(self.best));
        self.tried.is_some()
    }

    fn end_span(&mut self, cost: Option<f64>) {
        if let Some(tried) = self.tried.take() {
            self.pending = cost.map(|cost| (tried, cost));
            return;
        }
        if let (Some((tried, its)), Some(before), Some(after)) = (self.pending.take(), self.before, cost)
            && self.pays(tried, its - (before + after) / 2.0)
        {
            // This span was the last of another way.
            self.best = tried;
            return self.forget();
        }
        self.before = cost;
        let Some(cost) = cost else { return };
        self.watch_the_load(cost);
        self.rest = self.rest.saturating_sub(1);
        if self.rest == 0 && WAYS > 1 {
            self.begin_trial();
        }
    }

    fn begin_trial(&mut self) {
        self.next = (self.next + 1) % WAYS;
        if self.next == self.best {
            self.next = (self.next + 1) % WAYS;
        }
        self.tried = Some(self.next);
        let tried_often =
            self.ways.iter().enumerate().all(|(way, of)| way == self.best || of.trials >= TRIALS_MIN);
        self.rest = if tried_often { REST } else { REST_AT_FIRST };
    }

    /// Adds a trial to the average; true when the way that was tried is to take over.
    fn pays(&mut self, tried: usize, ratio: f64) -> bool {
        let way = &mut self.ways[tried];
        way.trials = way.trials.saturating_add(1);
        let weight = NEWEST.max(1.0 / f64::from(way.trials));
        way.ratio += weight * (ratio.clamp(-TRIAL_MAX, TRIAL_MAX) - way.ratio);
        way.trials >= TRIALS_MIN && way.ratio <= -ADVANTAGE_MIN
    }

    fn watch_the_load(&mut self, cost: f64) {
        let (usual, then) = self.usual.get_or_insert((cost, cost));
        *usual += NEWEST * (cost - *usual);
        if (*usual - *then).abs() > CHANGE {
            self.forget();
        }
    }

    /// Forgets all trials: another way is the best, or the load is another.
    fn forget(&mut self) {
        (self.before, self.usual) = (None, None);
        self.ways = [Way::default(); WAYS];
        self.rest = REST_AT_FIRST;
    }
}

/// The cost of a span as a logarithm; `None` when the span says nothing.
fn cost(began: Usage, ended: Usage) -> Option<f64> {
    let (time, cpu) = (ended.at.saturating_sub(began.at), ended.cpu.saturating_sub(began.cpu));
    let bytes = ended.bytes.saturating_sub(began.bytes);
    if bytes == 0 || time.is_zero() || cpu.is_zero() || time > SPAN_TIME_MAX {
        return None;
    }
    let a_byte = |spent: Duration| (spent.as_secs_f64() / bytes as f64).ln();
    Some(CPU_WEIGHT * a_byte(cpu) + a_byte(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop whose sleeps cost `cpu_us` and take `time_us`, by the way that is current.
    struct Costs<const WAYS: usize> {
        trials: Trials<WAYS>,
        usage: Usage,
        spans: [u32; WAYS],
    }

    impl<const WAYS: usize> Costs<WAYS> {
        fn new() -> Self {
            let usage = Usage { at: Duration::ZERO, cpu: Duration::ZERO, bytes: 0 };
            Self { trials: Trials::default(), usage, spans: [0; WAYS] }
        }

        fn spans(&mut self, spans: u32, cpu_us: [u64; WAYS], time_us: [u64; WAYS]) {
            self.spans = [0; WAYS];
            for _ in 0..spans {
                self.spans[self.trials.current()] += 1;
                for _ in 0..SPAN {
                    let way = self.trials.current();
                    self.usage.at += Duration::from_micros(time_us[way]);
                    self.usage.cpu += Duration::from_micros(cpu_us[way]);
                    self.usage.bytes += 4096;
                    self.trials.sleep(|| self.usage);
                }
            }
        }
    }

    #[test]
    fn the_cheapest_way_gets_most_spans_and_the_others_are_tried_again() {
        let mut costs = Costs::new();
        costs.spans(200, [20, 10, 30], [50, 50, 50]);
        costs.spans(680, [20, 10, 30], [50, 50, 50]);
        assert_eq!(costs.spans.iter().sum::<u32>(), 680);
        assert!(costs.spans[1] >= 650 && costs.spans[0] >= 8 && costs.spans[2] >= 8, "{:?}", costs.spans);
        // The load changes: now way 2 is the best.
        costs.spans(600, [20, 20, 10], [50, 50, 50]);
        costs.spans(340, [20, 20, 10], [50, 50, 50]);
        assert!(costs.spans[2] >= 325, "{:?}", costs.spans);
    }

    #[test]
    fn a_changed_load_is_noticed_within_a_few_trials_of_each_way() {
        let mut costs = Costs::new();
        costs.spans(1000, [10, 20, 20], [50, 80, 80]);
        // Each command takes twice as long, and what was far behind is now the best.
        costs.spans(60, [40, 40, 20], [100, 100, 80]);
        assert_eq!(costs.trials.best, 2);
    }

    #[test]
    fn processor_time_counts_half_as_much_again_as_time() {
        let pairs = [
            ([10, 11], [60, 40], true),
            ([10, 12], [60, 42], true),
            ([8, 11], [60, 40], false),
            ([12, 14], [60, 50], false),
        ];
        for (cpu_us, time_us, pays) in pairs {
            let mut costs = Costs::new();
            costs.spans(300, cpu_us, time_us);
            assert_eq!(costs.trials.best == 1, pays, "{cpu_us:?} {time_us:?}");
        }
    }

    #[test]
    fn a_small_difference_changes_nothing() {
        let mut costs = Costs::new();
        costs.spans(1000, [100, 97], [50, 50]);
        assert_eq!(costs.trials.best, 0);
    }

    #[test]
    fn spans_with_pauses_do_not_count() {
        let mut costs = Costs::new();
        // 64 sleeps of 400 us each are longer than a span may last.
        costs.spans(300, [20, 10], [400, 400]);
        assert_eq!((costs.trials.best, costs.trials.ways[1].trials), (0, 0));
    }

    #[test]
    fn one_disturbed_span_does_not_decide() {
        // Another program disturbs the best way until the first trial is over.
        let mut costs = Costs::new();
        costs.spans(REST_AT_FIRST + 3, [11, 10], [50, 50]);
        assert_eq!((costs.trials.best, costs.trials.ways[1].trials), (0, 1));
        for _ in 0..200 {
            costs.spans(1, [10, 10], [50, 50]);
            assert_eq!(costs.trials.best, 0);
        }
        // Or the first trial of what is better.
        let mut costs = Costs::new();
        while costs.trials.tried.is_none() {
            costs.spans(1, [10, 8], [50, 50]);
        }
        costs.spans(1, [10, 8000], [50, 50]);
        costs.spans(60, [10, 8], [50, 50]);
        assert_eq!(costs.trials.best, 1);
    }

    #[test]
    fn a_way_that_has_taken_over_stays_until_another_is_better() {
        let mut costs = Costs::new();
        let mut bests = vec![0];
        for _ in 0..600 {
            costs.spans(1, [20, 10, 12], [50, 50, 50]);
            bests.push(costs.trials.best);
        }
        bests.dedup();
        assert_eq!(bests, [0, 1]);
    }
}
