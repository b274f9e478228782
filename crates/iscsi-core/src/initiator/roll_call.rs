//! The state of the comparison of connections that finds a starved one: see `session::starved`.

use std::time::Duration;

use crate::Time;

/// Shortest timeout of TCP on the systems that matter (RFC 6298 has a second). Whoever says how a transport is has to use the same.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(200);

/// All connections are pinged at a time, and the first answer says what a round trip is now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RollCall {
    /// When the current one began.
    began: Option<Time>,
    /// Whether it has been answered.
    answered: bool,
    /// The round trip of the first answer in the last one that had any.
    round_trip: Duration,
}

impl RollCall {
    /// What TCP waits for an acknowledgement, at least.
    pub(super) fn timeout(&self) -> Duration {
        MIN_TIMEOUT + self.round_trip
    }

    /// When the current one began, if there is one.
    pub(super) fn began(&self) -> Option<Time> {
        self.began
    }

    /// When the current one ends: after so many timeouts, or with the time for a ping if nobody answers.
    pub(super) fn ends_at(&self, timeouts: u32, ping: Duration) -> Option<Time> {
        let patience = if self.answered { self.timeout() * timeouts } else { ping.max(self.timeout()) };
        self.began.map(|began| began + patience)
    }

    /// One begins.
    pub(super) fn begin(&mut self, now: Time) {
        (self.began, self.answered) = (Some(now), false);
    }

    /// A ping is answered after this time.
    pub(super) fn answer(&mut self, round_trip: Duration) {
        if self.began.is_some() && !self.answered {
            (self.answered, self.round_trip) = (true, round_trip);
        }
    }

    /// It ends; whether anybody has answered.
    pub(super) fn end(&mut self) -> bool {
        self.began = None;
        self.answered
    }
}
