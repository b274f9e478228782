//! Cuts the time of calls into intervals.

use std::time::{Duration, Instant};

use super::width::Interval;

/// An interval is at least this long, and has at least so many calls,
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const CALLS_MIN: u64 = 32;
/// unless it is as long as this.
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// The interval under way. Time without a call does not count.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// The last change of `outstanding`.
    at: Option<Instant>,
    /// Calls under way.
    outstanding: u32,
    busy: Duration,
    /// The integral of `outstanding` over time.
    call_seconds: f64,
    bytes: u64,
    calls: u64,
}

impl Gauge {
    pub(super) fn begin(&mut self) {
        self.pass(Instant::now());
        self.outstanding += 1;
    }

    /// A call is over that has moved `bytes`. Returns the interval, if it is over as well.
    pub(super) fn end(&mut self, bytes: u64) -> Option<Interval> {
        let now = Instant::now();
        self.pass(now);
        self.outstanding = self.outstanding.saturating_sub(1);
        self.bytes += bytes;
        self.calls += 1;
        let is_over = self.busy >= INTERVAL_MAX || (self.busy >= INTERVAL_MIN && self.calls >= CALLS_MIN);
        is_over.then(|| {
            let over = std::mem::take(self);
            (self.at, self.outstanding) = (Some(now), over.outstanding);
            let seconds = over.busy.as_secs_f64();
            Interval { bytes: over.bytes as f64, seconds, outstanding: over.call_seconds / seconds }
        })
    }

    fn pass(&mut self, now: Instant) {
        if let Some(at) = self.at
            && self.outstanding > 0
        {
            let passed = now.saturating_duration_since(at);
            self.busy += passed;
            self.call_seconds += f64::from(self.outstanding) * passed.as_secs_f64();
        }
        self.at = Some(now);
    }
}
