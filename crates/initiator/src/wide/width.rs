//! Over how many sessions a disk spreads its commands: the rule, without I/O and clock. docs/mcs.md explains it.
//!
//! ```text
//!            ┌───────────── rejected: wait for twice as long ─────────────┐
//!            ▼                                                            │
//!   Waiting ──► trial of twice or half as many, in turn with the number now ──► adopted
//! ```
//! A session has a thread here and is on one shard of the target, so it uses at most one core at either end. Whether a core is the limit
//! cannot be seen from here, for it may be one of the target. So it is tried, and the intervals of a trial take turns with others: what
//! else changes meanwhile changes both.

use std::thread;

use crate::options::Options;

/// Most sessions that are tried. Each has a thread here.
const SESSIONS_MAX: usize = 8;
/// More sessions must bring so much: they cost memory, and processor time for each command.
const GAIN: f64 = 1.1;
/// Fewer sessions must bring so much: what costs the same is better with fewer.
const NO_LOSS: f64 = 1.0;
/// Votes that decide a trial: the first that has so many. So the median of five pairs of intervals decides.
const VOTES: u32 = 3;
/// Pairs of a trial that do not vote: new connections find their windows.
const SETTLING_PAIRS: u32 = 1;
/// Commands that each session must have outstanding on average; with fewer, there is nothing to spread.
const COMMANDS_EACH: f64 = 2.0;
/// Intervals until the first trial: a copy may be over in seconds.
const HOLD_FIRST: u32 = 2;
/// Intervals until the next trial, after one was adopted and at most.
const HOLD_MIN: u32 = 8;
const HOLD_MAX: u32 = 512;

/// A piece of time with commands outstanding.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Bytes that commands have moved.
    pub bytes: f64,
    /// How long it was; time without commands does not count.
    pub seconds: f64,
    /// Commands outstanding on average.
    pub outstanding: f64,
}

impl Interval {
    fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }
}

/// Another number of sessions, in turn with the one that is kept.
#[derive(Debug)]
struct Trial {
    sessions: u16,
    /// Of the pair that is under way: the interval with this number.
    first: Option<f64>,
    pairs: u32,
    votes_for: u32,
    votes_against: u32,
}

/// The rule; see the module.
#[derive(Debug)]
pub struct Width {
    most: u16,
    kept: u16,
    /// Other numbers are tried.
    adapts: bool,
    trial: Option<Trial>,
    /// Intervals until the next trial, and until the one after it if that is rejected.
    hold: u32,
    next_hold: u32,
    /// The next trial is one of fewer sessions, if there can be fewer.
    narrower_next: bool,
}

impl Width {
    /// One session, of at most `most`.
    pub fn new(most: u16) -> Self {
        Self {
            most: most.max(1),
            kept: 1,
            adapts: true,
            trial: None,
            hold: HOLD_FIRST,
            next_hold: 2 * HOLD_MIN,
            narrower_next: false,
        }
    }

    /// For sessions with these options: at most one for each core of this machine, and eight.
    pub fn of(options: &Options) -> Self {
        // A fixed ISID is that of one session: another one with it would end the first (RFC 7143 6.3.5).
        match options.port.isid {
            Some(_) => Self::fixed(1),
            None => {
                Self::new(thread::available_parallelism().map_or(1, usize::from).min(SESSIONS_MAX) as u16)
            }
        }
    }

    /// Always so many sessions.
    pub fn fixed(sessions: u16) -> Self {
        let sessions = sessions.max(1);
        Self { kept: sessions, adapts: false, ..Self::new(sessions) }
    }

    /// Sessions over which commands should be spread now.
    pub fn wanted(&self) -> u16 {
        match &self.trial {
            Some(trial) if trial.first.is_none() => trial.sessions,
            _ => self.kept,
        }
    }

    /// Most sessions that there can be; fewer than before if the target refuses more.
    pub fn limit(&mut self, most: u16) {
        self.most = self.most.min(most.max(1));
        self.kept = self.kept.min(self.most);
        self.trial = None;
    }

    /// Whether another number may be tried at all.
    pub(super) fn adapts(&self) -> bool {
        self.adapts && self.most > 1
    }

    /// Whether a trial is under way.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Whether nothing would be gained by more, as far as is known, with so many commands outstanding.
    pub fn is_settled(&self, outstanding: f64) -> bool {
        self.trial.is_none() && (self.narrower_next || self.wider(outstanding).is_none())
    }

    /// An interval is over in which commands were spread over as many sessions as [wanted](Width::wanted).
    pub fn measured(&mut self, interval: Interval) {
        if interval.bytes <= 0.0 || !self.adapts() {
            return;
        }
        let Some(trial) = &mut self.trial else {
            self.hold = self.hold.saturating_sub(1);
            if self.hold == 0 {
                self.try_another(interval.outstanding);
            }
            return;
        };
        let Some(first) = trial.first.take() else {
            trial.first = Some(interval.rate());
            return;
        };
        trial.pairs += 1;
        if trial.pairs <= SETTLING_PAIRS {
            return;
        }
        let enough = if trial.sessions > self.kept { GAIN } else { NO_LOSS };
        match first >= enough * interval.rate() {
            true => trial.votes_for += 1,
            false => trial.votes_against += 1,
        }
        if trial.votes_for == VOTES {
            self.kept = trial.sessions;
            (self.hold, self.next_hold, self.trial) = (HOLD_MIN, 2 * HOLD_MIN, None);
        } else if trial.votes_against == VOTES {
            (self.hold, self.trial) = (self.next_hold, None);
            self.next_hold = (2 * self.next_hold).min(HOLD_MAX);
            self.narrower_next = !self.narrower_next;
        }
    }

    fn try_another(&mut self, outstanding: f64) {
        let narrower = (self.kept > 1).then_some(self.kept / 2);
        let wider = self.wider(outstanding);
        let sessions = if self.narrower_next { narrower.or(wider) } else { wider.or(narrower) };
        self.trial = sessions.map(|sessions| Trial {
            sessions,
            first: None,
            pairs: 0,
            votes_for: 0,
            votes_against: 0,
        });
    }

    fn wider(&self, outstanding: f64) -> Option<u16> {
        let twice = self.kept.saturating_mul(2).min(self.most);
        (twice > self.kept && outstanding >= COMMANDS_EACH * f64::from(twice)).then_some(twice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes `n` intervals of a load whose throughput is a function of the number of sessions; returns how many had each number.
    fn pass(width: &mut Width, n: usize, outstanding: f64, rate: impl Fn(u16, usize) -> f64) -> [usize; 9] {
        let mut used = [0; 9];
        for at in 0..n {
            let sessions = width.wanted();
            used[usize::from(sessions)] += 1;
            let seconds = 0.1;
            width.measured(Interval { bytes: rate(sessions, at) * seconds, seconds, outstanding });
        }
        used
    }

    #[test]
    fn as_many_sessions_as_bring_something() {
        let mut width = Width::new(8);
        let cores = 4;
        pass(&mut width, 300, 64.0, |sessions, _| 1e9 * f64::from(sessions.min(cores)));
        assert_eq!(width.kept, cores);
        // One of them is taken away.
        pass(&mut width, 2000, 64.0, |sessions, _| 1e9 * f64::from(sessions.min(1)));
        assert_eq!(width.kept, 1, "what costs the same is done with fewer");
    }

    #[test]
    fn where_nothing_is_gained_trials_become_rare() {
        let mut width = Width::new(2);
        // The disk is the limit, and two sessions get in each other's way.
        let rate = |sessions, _| if sessions == 2 { 0.8e9 } else { 1e9 };
        pass(&mut width, 100, 64.0, rate);
        let later = pass(&mut width, 10_000, 64.0, rate);
        assert_eq!(width.kept, 1);
        // Four intervals of each trial have two sessions.
        assert!(later[2] > 0 && later[2] <= 10_000 / 100, "{later:?}");
    }

    #[test]
    fn a_gain_below_the_bar_and_noise_of_both_are_no_reason() {
        let mut width = Width::new(2);
        let noisy = |at: usize| 1.0 + 0.2 * ((at / 2 * 7919 % 13) as f64 / 13.0);
        let used =
            pass(&mut width, 5000, 64.0, |sessions, at| noisy(at) * if sessions == 2 { 1.03e9 } else { 1e9 });
        assert!(used[2] < 200, "{used:?}");
    }

    #[test]
    fn few_commands_are_not_spread() {
        let mut width = Width::new(8);
        let used = pass(&mut width, 1000, 3.9, |sessions, _| 1e9 * f64::from(sessions));
        assert_eq!(used[1], 1000);
        assert!(width.is_settled(3.9) && !width.is_settled(4.0));
        let used = pass(&mut width, 1000, 4.0, |sessions, _| 1e9 * f64::from(sessions));
        assert!(used[2] > 900 && used[4] == 0, "{used:?}");
    }

    #[test]
    fn a_limit_holds_at_once() {
        let mut width = Width::new(8);
        pass(&mut width, 300, 64.0, |sessions, _| 1e9 * f64::from(sessions));
        assert_eq!(width.kept, 8);
        width.limit(3);
        let used = pass(&mut width, 300, 64.0, |sessions, _| 1e9 * f64::from(sessions));
        assert!(used[8] == 0 && used[3] > 250, "{used:?}");
        width.limit(0);
        assert_eq!((width.wanted(), width.is_settled(64.0)), (1, true));
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut width = Width::fixed(4);
        let used = pass(&mut width, 1000, 64.0, |sessions, _| 1e9 / f64::from(sessions));
        assert_eq!(used[4], 1000);
        width.limit(2);
        assert_eq!(width.wanted(), 2, "no more than there can be");
    }

    #[test]
    fn time_without_data_says_nothing() {
        let mut width = Width::new(2);
        for _ in 0..1000 {
            width.measured(Interval { bytes: 0.0, seconds: 0.1, outstanding: 8.0 });
        }
        assert_eq!(width.hold, HOLD_FIRST);
    }
}
