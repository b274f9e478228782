//! Polling before sleeping: a thread that is about to sleep polls for events for some microseconds first.
//!
//! Falling asleep and being woken takes longer than a short command does (20 to 25 us on a virtual machine, for 3 us of work), and
//! halting costs more processor time than polling does. So a loop whose next event is already on its way does not sleep. The opposite
//! holds where polling keeps the peer from running (both share a core), or where no event comes. So polling backs off: each poll in
//! vain doubles the number of sleeps until the next poll, up to 1024, and a successful poll resets that number to zero.
//!
//! A loop that waits for other threads does not poll: a worker that copies blocks needs the processor, and tells when it is done.
//!
//! An idle loop does not poll: it decides when it is about to sleep, and only an event makes it decide again.

use std::time::Duration;

/// How long a poll lasts by default: the two wake-ups of a round trip between two cores.
pub const POLL_TIME: Duration = Duration::from_micros(50);
/// The longest poll: beyond it sleeping costs next to nothing.
pub const POLL_TIME_MAX: Duration = Duration::from_millis(1);
/// The number of polls in vain in a row that still double the distance to the next poll.
const MISSES_MAX: u32 = 10;

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
    /// Polls in vain since the last successful one.
    in_vain: u32,
    /// Sleeps until the next poll.
    skip: u32,
    forbidden: bool,
    counts: PollCounts,
}

impl Polling {
    /// Polls for at most `time`, capped at [`POLL_TIME_MAX`]; zero: never.
    pub(crate) fn new(time: Duration) -> Self {
        Self { most: time.min(POLL_TIME_MAX), ..Self::default() }
    }

    /// Allows polling, or forbids it until it is allowed again.
    pub(crate) fn allow(&mut self, may_poll: bool) {
        self.forbidden = !may_poll;
    }

    /// How long to poll before a sleep of at most `timeout`; `None`: not this time.
    pub(crate) fn before_sleep(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let time = timeout.map_or(self.most, |timeout| timeout.min(self.most));
        if time.is_zero() || self.forbidden {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        Some(time)
    }

    /// The poll has found something.
    pub(crate) fn hit(&mut self) {
        self.counts.hits += 1;
        self.in_vain = 0;
    }

    /// The poll was in vain.
    pub(crate) fn missed(&mut self) {
        self.counts.misses += 1;
        self.in_vain = (self.in_vain + 1).min(MISSES_MAX);
        self.skip = 1 << self.in_vain;
    }

    pub(crate) fn counts(&self) -> PollCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(30);

    #[test]
    fn looks_in_vain_become_rare_and_one_that_finds_something_ends_that() {
        let mut polling = Polling::new(TIME);
        let mut distances = Vec::new();
        for _ in 0..12 {
            let mut slept = 0;
            while polling.before_sleep(None).is_none() {
                slept += 1;
            }
            distances.push(slept);
            polling.missed();
        }
        assert_eq!(distances, [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        polling.skip = 0;
        polling.hit();
        assert_eq!(polling.before_sleep(None), Some(TIME));
        polling.missed();
        assert_eq!(polling.skip, 2, "from the beginning");
        assert_eq!(polling.counts(), PollCounts { hits: 1, misses: 13 });
    }

    #[test]
    fn no_look_is_longer_than_the_sleep_or_the_limit() {
        let mut polling = Polling::new(TIME);
        assert_eq!(polling.before_sleep(Some(TIME / 2)), Some(TIME / 2));
        assert_eq!(polling.before_sleep(Some(Duration::ZERO)), None);
        assert_eq!(Polling::new(Duration::ZERO).before_sleep(None), None);
        polling.allow(false);
        assert_eq!(polling.before_sleep(None), None);
        polling.allow(true);
        assert_eq!(polling.before_sleep(None), Some(TIME));
        let mut long = Polling::new(Duration::from_secs(5));
        assert_eq!(long.before_sleep(None), Some(POLL_TIME_MAX));
    }
}
