//! Polling before sleeping: a thread that is about to sleep polls for events for some microseconds first.
//!
//! Falling asleep and being woken takes longer than a short command does (20 to 25 us on a virtual machine, for 3 us of work), and
//! halting costs more processor time than polling does. So a loop whose next event is already on its way does not sleep. The opposite
//! holds where polling keeps the peer from running (both share a core), or where no event comes. So polling backs off: each poll in
//! vain doubles the number of sleeps until the next poll, up to 1024, and a successful poll resets that number to zero.
//!
//! What a sleep costs differs from machine to machine, and how long the next event takes from load to load. So a loop that serves many
//! can measure which polling time pays (`trial`): the longest, a quarter of it, or none. One end of a connection should: two that do
//! not know of each other's trials disturb each other's, and both end up without polling where both would gain from it.
//!
//! A loop that waits for other threads does not poll: a worker that copies blocks needs the processor, and tells when it is done.
//!
//! An idle loop does not poll: it decides when it is about to sleep, and only an event makes it decide again.

use std::time::Duration;

use super::trial::{Trials, Usage};

/// How long a poll lasts by default, at most: the two wake-ups of a round trip between two cores.
pub const POLL_TIME: Duration = Duration::from_micros(50);
/// The longest poll: beyond it sleeping costs next to nothing.
pub const POLL_TIME_MAX: Duration = Duration::from_millis(1);
/// The number of polls in vain in a row that still double the distance to the next poll.
const MISSES_MAX: u32 = 10;
/// The polling times that are compared, as shares of the longest; a loop begins with the first. A quarter is enough for short
/// commands, and costs long ones less.
const SHARES: [f64; 3] = [1.0, 0.25, 0.0];

/// Results of polling before sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollCounts {
    /// Polls that found something.
    pub hits: u64,
    /// Polls in vain.
    pub misses: u64,
}

/// Decides whether to poll, and for how long.
#[derive(Debug, Default)]
pub(super) struct Polling {
    most: Duration,
    /// One for each of [`SHARES`], so that a trial of one leaves the distance of the best alone.
    distances: [Distance; SHARES.len()],
    /// Without trials the longest time is polled.
    trials: Option<Trials<{ SHARES.len() }>>,
    forbidden: bool,
    counts: PollCounts,
}

/// How far apart polls are that find nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Distance {
    /// Polls in vain since the last successful one.
    in_vain: u32,
    /// Sleeps until the next poll.
    skip: u32,
}

impl Polling {
    /// Polls for at most `time`, capped at [`POLL_TIME_MAX`]; zero: never.
    pub(crate) fn new(time: Duration) -> Self {
        Self { most: time.min(POLL_TIME_MAX), ..Self::default() }
    }

    /// Polls only for as long as trials show that it pays.
    pub(crate) fn measured(self) -> Self {
        Self { trials: Some(Trials::default()), ..self }
    }

    /// Allows polling, or forbids it until it is allowed again.
    pub(crate) fn allow(&mut self, may_poll: bool) {
        self.forbidden = !may_poll;
    }

    /// How long to poll before a sleep of at most `timeout`; `None`: not this time. `usage` says what the loop has used and moved.
    pub(crate) fn before_sleep(
        &mut self,
        timeout: Option<Duration>,
        usage: impl FnOnce() -> Usage,
    ) -> Option<Duration> {
        if self.most.is_zero() || self.forbidden || timeout == Some(Duration::ZERO) {
            return None;
        }
        if self.trials.as_mut().is_some_and(|trials| trials.sleep(usage)) {
            // What it is worth now shows only if it is not as rare as it was when it found nothing.
            *self.distance() = Distance::default();
        }
        let time = self.most.mul_f64(SHARES[self.way()]);
        let time = timeout.map_or(time, |timeout| timeout.min(time));
        if time.is_zero() {
            return None;
        }
        let distance = self.distance();
        if distance.skip > 0 {
            distance.skip -= 1;
            return None;
        }
        Some(time)
    }

    /// The poll has found something.
    pub(crate) fn hit(&mut self) {
        self.counts.hits += 1;
        self.distance().in_vain = 0;
    }

    /// The poll was in vain.
    pub(crate) fn missed(&mut self) {
        self.counts.misses += 1;
        let distance = self.distance();
        distance.in_vain = (distance.in_vain + 1).min(MISSES_MAX);
        distance.skip = 1 << distance.in_vain;
    }

    pub(crate) fn counts(&self) -> PollCounts {
        self.counts
    }

    fn distance(&mut self) -> &mut Distance {
        &mut self.distances[self.way()]
    }

    /// The share in use.
    fn way(&self) -> usize {
        self.trials.as_ref().map_or(0, Trials::current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(30);

    /// A loop that moves nothing, so that no trial counts.
    fn nothing() -> Usage {
        Usage { at: Duration::ZERO, cpu: Duration::ZERO, bytes: 0 }
    }

    #[test]
    fn polls_in_vain_become_rare_and_one_that_finds_something_ends_that() {
        let mut polling = Polling::new(TIME);
        let mut distances = Vec::new();
        for _ in 0..12 {
            let mut slept = 0;
            while polling.before_sleep(None, nothing).is_none() {
                slept += 1;
            }
            distances.push(slept);
            polling.missed();
        }
        assert_eq!(distances, [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        polling.distance().skip = 0;
        polling.hit();
        assert_eq!(polling.before_sleep(None, nothing), Some(TIME));
        polling.missed();
        assert_eq!(polling.distance().skip, 2, "from the beginning");
        assert_eq!(polling.counts(), PollCounts { hits: 1, misses: 13 });
    }

    #[test]
    fn no_poll_is_longer_than_the_sleep_or_the_limit() {
        let mut polling = Polling::new(TIME);
        assert_eq!(polling.before_sleep(Some(TIME / 2), nothing), Some(TIME / 2));
        assert_eq!(polling.before_sleep(Some(Duration::ZERO), nothing), None);
        assert_eq!(Polling::new(Duration::ZERO).before_sleep(None, nothing), None);
        polling.allow(false);
        assert_eq!(polling.before_sleep(None, nothing), None);
        polling.allow(true);
        assert_eq!(polling.before_sleep(None, nothing), Some(TIME));
        let mut long = Polling::new(Duration::from_secs(5));
        assert_eq!(long.before_sleep(None, nothing), Some(POLL_TIME_MAX));
    }

    /// A peer that answers `answer_us` after it was asked, and what a sleep costs the loop: time until it runs again, and
    /// processor time.
    struct Load {
        work_us: f64,
        answer_us: f64,
        wake_us: f64,
        sleep_cpu_us: f64,
        bytes: u64,
    }

    /// A loop of commands under a load; the state survives a change of load.
    struct Loop {
        polling: Polling,
        at_us: f64,
        cpu_us: f64,
        bytes: u64,
    }

    impl Loop {
        /// Carries out `commands`; how many of them were found by polling, and the mean time of a poll that found one.
        fn run(&mut self, load: &Load, commands: u32) -> u32 {
            let mut found = 0;
            for _ in 0..commands {
                (self.at_us, self.cpu_us) = (self.at_us + load.work_us, self.cpu_us + load.work_us);
                self.bytes += load.bytes;
                let micros = |us: f64| Duration::from_nanos((us * 1000.0) as u64);
                let usage = Usage { at: micros(self.at_us), cpu: micros(self.cpu_us), bytes: self.bytes };
                let time_us =
                    self.polling.before_sleep(None, || usage).map_or(0.0, |time| time.as_secs_f64() * 1e6);
                if time_us >= load.answer_us {
                    self.polling.hit();
                    found += 1;
                    (self.at_us, self.cpu_us) = (self.at_us + load.answer_us, self.cpu_us + load.answer_us);
                    continue;
                }
                if time_us > 0.0 {
                    self.polling.missed();
                }
                self.at_us += load.answer_us.max(time_us) + load.wake_us;
                self.cpu_us += time_us + load.sleep_cpu_us;
            }
            found
        }
    }

    #[test]
    fn a_loop_polls_where_that_saves_more_time_than_it_costs() {
        let short = Load { work_us: 5.0, answer_us: 8.0, wake_us: 12.0, sleep_cpu_us: 8.0, bytes: 4096 };
        // A peer that works for long on each answer, and a sleep that costs little: polling would double the processor time.
        let long = Load { work_us: 25.0, answer_us: 30.0, wake_us: 4.0, sleep_cpu_us: 4.0, bytes: 131_072 };
        // The same, where a sleep costs as much as on some machines.
        let dear = Load { wake_us: 60.0, sleep_cpu_us: 25.0, ..long };
        let mut looped =
            Loop { polling: Polling::new(POLL_TIME).measured(), at_us: 0.0, cpu_us: 0.0, bytes: 0 };
        for _ in 0..3 {
            looped.run(&short, 60_000);
            assert!(looped.run(&short, 10_000) > 9_000, "{looped:?}", looped = looped.polling);
            looped.run(&long, 60_000);
            assert!(looped.run(&long, 10_000) < 1_000, "{looped:?}", looped = looped.polling);
            looped.run(&dear, 60_000);
            assert!(looped.run(&dear, 10_000) > 9_000, "{looped:?}", looped = looped.polling);
        }
    }

    /// Both ends share a core, where no poll can succeed, and later each has its own.
    #[test]
    fn what_never_paid_is_tried_in_earnest_when_the_load_changes() {
        let apart = Load { work_us: 5.0, answer_us: 8.0, wake_us: 12.0, sleep_cpu_us: 8.0, bytes: 4096 };
        let together = Load { answer_us: 90.0, wake_us: 2.0, ..apart };
        // Here it does not pay to poll.
        let long = Load { work_us: 25.0, answer_us: 30.0, wake_us: 4.0, sleep_cpu_us: 4.0, bytes: 131_072 };
        let mut looped =
            Loop { polling: Polling::new(POLL_TIME).measured(), at_us: 0.0, cpu_us: 0.0, bytes: 0 };
        for _ in 0..3 {
            looped.run(&long, 60_000);
            assert_eq!(looped.run(&together, 100_000), 0);
            looped.run(&apart, 3_500);
            assert!(looped.run(&apart, 10_000) > 9_000, "{looped:?}", looped = looped.polling);
        }
    }

    #[test]
    fn a_quarter_is_enough_for_short_commands_that_also_wait_in_vain() {
        // Every other answer comes only after a long time.
        let short = Load { work_us: 5.0, answer_us: 8.0, wake_us: 12.0, sleep_cpu_us: 8.0, bytes: 4096 };
        let late = Load { answer_us: 200.0, ..short };
        let mut looped =
            Loop { polling: Polling::new(POLL_TIME).measured(), at_us: 0.0, cpu_us: 0.0, bytes: 0 };
        for _ in 0..40_000 {
            looped.run(&short, 3);
            looped.run(&late, 1);
        }
        let usage = Usage { at: Duration::ZERO, cpu: Duration::ZERO, bytes: 0 };
        looped.polling.distances = Default::default();
        assert_ne!(looped.polling.before_sleep(None, || usage), Some(POLL_TIME));
    }
}
