//! When missing numbers are requested, and when again.

use std::time::Duration;

use crate::limits::MAX_SNACKS;
use crate::{Time, earlier};

/// State of the requests for missing numbers of one kind. They are sent after a short delay, so that one request covers a run,
/// and again if nothing arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Asking {
    /// When to request the numbers that were not requested yet.
    at: Option<Time>,
    /// When to request everything again.
    again_at: Option<Time>,
    /// Numbers before this one were requested.
    until: Option<u32>,
    tries: u8,
}

impl Asking {
    /// More numbers are missing: request them by `at`.
    pub(in super::super) fn wish(&mut self, at: Time) {
        self.at = earlier(self.at, Some(at));
    }

    /// When a request is due.
    pub(in super::super) fn due(&self) -> Option<Time> {
        earlier(self.at, self.again_at)
    }

    /// The number from which to send requests now, when those from `first` up to, not including, `end` may be missing. `None`:
    /// nothing is due.
    pub(super) fn fire(
        &mut self,
        now: Time,
        first: u32,
        end: u32,
        again_after: Duration,
    ) -> Option<Result<u32, TooOften>> {
        if self.due().is_none_or(|at| at > now) {
            return None;
        }
        let again = self.again_at.is_some_and(|at| at <= now);
        let asked = self.until.filter(|until| !again && until.wrapping_sub(first) < 1 << 31);
        let from = asked.unwrap_or(first);
        if again {
            self.tries += 1;
        }
        if self.tries >= MAX_SNACKS {
            return Some(Err(TooOften));
        }
        (self.at, self.until) = (None, Some(end));
        // Numbers found missing later do not delay the repeated request for the earlier ones.
        if again || self.again_at.is_none() {
            self.again_at = Some(now + again_after);
        }
        Some(Ok(from))
    }

    /// Whether everything before `end` was requested.
    pub(in super::super) fn covers(&self, end: u32) -> bool {
        self.due().is_some() && self.until.is_some_and(|until| until >= end)
    }

    /// All numbers are requested again at `at`, which counts as one more try.
    pub(super) fn start_over(&mut self, at: Time) {
        *self = Self { tries: self.tries + 1, ..Self::default() };
        self.wish(at);
    }

    /// Some of them have arrived: the tries start again.
    pub(in super::super) fn progress(&mut self) {
        self.tries = 0;
    }
}

/// The same numbers were requested too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooOften;

#[cfg(test)]
mod tests {
    use super::*;

    // covers: ERL-03
    #[test]
    fn what_is_found_missing_later_does_not_put_off_asking_again() {
        let (start, patience) = (Time::default(), Duration::from_secs(1));
        let mut asking = Asking::default();
        asking.wish(start);
        assert_eq!(asking.fire(start, 120, 121, patience), Some(Ok(120)));
        // Each further hole is requested separately, until the request for the first one is repeated.
        for n in 1..4 {
            let now = start + Duration::from_millis(300) * n;
            asking.wish(now);
            assert_eq!(asking.fire(now, 120, 121 + n, patience), Some(Ok(120 + n)), "hole {n}");
        }
        let again = start + patience;
        assert_eq!(asking.due(), Some(again));
        assert_eq!(asking.fire(again, 120, 124, patience), Some(Ok(120)));
        // But not for ever.
        let mut tries = 1;
        while asking.fire(start + patience * (tries + 1), 120, 124, patience) == Some(Ok(120)) {
            tries += 1;
        }
        assert_eq!(tries, u32::from(MAX_SNACKS) - 1);
    }
}
