//! How many connections a session should have: the rule behind `connections=auto`, without I/O and clock. docs/mcs.md explains it.
//!
//! ```text
//!             ┌────── the trial is lost: back to the old number ──────┐
//!             ▼                                                       │
//!   Settling ──► Observing ──a reason, and no hold──► Settling ──► Trying ──won: stay──► Observing
//! ```
//! While commands are outstanding, time is cut into intervals of several round trips, and each has a throughput. A trial opens or closes
//! connections and compares the intervals after with those before. It is won only if the difference cannot be chance, or is still there
//! after [`SERIES_MAX`] intervals. Every lost trial doubles the time until the next, so that a session that has found its number
//! spends next to nothing on looking for a better one.
//!
//! More connections are tried only for a reason: the commands wait for longer than the path takes, and segments get lost or the path is
//! long. So a session on a network without losses keeps one connection and never pays for a trial.

use std::collections::VecDeque;
use std::time::Duration;

use iscsi_core::Time;
use iscsi_core::wire::Cid;

/// Most connections of a session that chooses their number itself: beyond, the map of docs/mcs.md shows little gain.
pub const AUTO_CONNECTIONS: u16 = 8;

/// An interval lasts so many round trips,
const INTERVAL_ROUND_TRIPS: u32 = 8;
/// at least this long,
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// as long as a timeout of TCP while segments get lost,
const INTERVAL_LOSSY: Duration = Duration::from_millis(200);
/// and at most this long.
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Intervals after a change that are not compared: new connections find their windows.
const SETTLING: u32 = 2;
/// Fewest and most intervals that are compared.
const SERIES_MIN: usize = 4;
const SERIES_MAX: usize = 24;
/// A difference counts at once if it is so many times its standard error, which is never taken for less than [`ERROR_MIN`] of it.
const CERTAIN: f64 = 3.0;
const ERROR_MIN: f64 = 0.005;
/// A trial that does not look like being won after so many intervals is lost: the longer trials are, the more those cost that bring nothing.
const SERIES_FUTILE: usize = 8;
/// At the end of the longest trial, more connections must be better by so many standard errors.
const LIKELY: f64 = 1.5;
/// More connections must bring this factor, fewer must keep that one.
const UP_BRINGS: f64 = 1.05;
const DOWN_KEEPS: f64 = 0.98;
/// A trial that has less than this part of the throughput after two intervals is broken off.
const DISASTER: f64 = 0.6;
/// Intervals before a direction is tried again, after the first lost trial and after many.
const HOLD_MIN: u32 = 64;
const HOLD_MAX: u32 = 4096;
/// For how many intervals a loss is remembered.
const LOSS_MEMORY: u32 = 128;
/// A path with a round trip of this length may be limited by a window even without losses.
const LONG_PATH: Duration = Duration::from_millis(5);
/// Commands wait if more bytes are outstanding than this factor times what a round trip carries.
const WAITING: f64 = 1.15;
/// The load is another one if its outstanding bytes have changed by this factor: throughputs cannot be compared.
const OTHER_LOAD: f64 = 1.5;
/// The network is another one if the throughput has changed by this factor since the last verdict.
const OTHER_NETWORK: f64 = 2.0;
/// Intervals that a change of the number of connections may take.
const PATIENCE: u32 = 200;

/// What TCP knows about a connection at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The connection.
    pub cid: Cid,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// The shortest round trip; zero: not known.
    pub min_rtt: Duration,
    /// Segments retransmitted from here and segments that arrived out of order, since the connection began.
    pub losses: u64,
}

/// What a session that chooses its number of connections itself has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TuningInfo {
    /// Connections that it wants now.
    pub wanted: u16,
    /// Most that it may have: what was asked for and negotiated.
    pub most: u16,
    /// Trials of another number begun.
    pub trials: u32,
    /// Those that were won, so that the number was kept.
    pub won: u32,
}

/// One interval.
#[derive(Clone, Copy, Debug)]
struct Interval {
    bytes: f64,
    seconds: f64,
    /// Bytes outstanding, on average.
    outstanding: f64,
}

/// The last intervals with the same number of connections.
#[derive(Clone, Debug, Default)]
struct Series(VecDeque<Interval>);

impl Series {
    fn push(&mut self, interval: Interval) {
        if self.0.len() == SERIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(interval);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn sum(&self, part: impl Fn(&Interval) -> f64) -> f64 {
        self.0.iter().map(part).sum()
    }

    /// Throughput, bytes per second. An interval that ended late, because nothing happened for a while, counts for as long as it was.
    fn rate(&self) -> f64 {
        self.sum(|one| one.bytes) / self.sum(|one| one.seconds).max(1e-9)
    }

    fn outstanding(&self) -> f64 {
        self.sum(|one| one.outstanding) / self.len().max(1) as f64
    }

    /// The square of the standard error of the throughput, as that of a ratio of two sums.
    fn error_squared(&self) -> f64 {
        let (n, rate) = (self.len().max(2) as f64, self.rate());
        let seconds = self.sum(|one| one.seconds).max(1e-9) / n;
        let squares = self.sum(|one| (one.bytes - rate * one.seconds) * (one.bytes - rate * one.seconds));
        (squares / (n - 1.0) / n / seconds / seconds).max(ERROR_MIN * ERROR_MIN * rate * rate)
    }
}

/// The number that is being compared with the one in use.
#[derive(Debug)]
struct Trial {
    /// The number before.
    from: u16,
    before: Series,
}

/// Whether a trial is won, as far as it can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Open,
    Won,
    Lost,
    /// The load has changed meanwhile: nothing was learned.
    Void,
}

/// When a direction may be tried again, in intervals.
#[derive(Debug)]
struct Hold {
    left: u32,
    next: u32,
}

impl Default for Hold {
    fn default() -> Self {
        Self { left: 0, next: HOLD_MIN }
    }
}

impl Hold {
    /// Nothing was gained in this direction: waits, and longer every time.
    fn lost(&mut self) {
        self.left = self.next;
        self.next = (self.next * 2).min(HOLD_MAX);
    }
}

/// The rule; see the module.
#[derive(Debug)]
pub(crate) struct Tuner {
    most: u16,
    wanted: u16,
    /// The last call of [`Tuner::pass`], and the bytes outstanding since.
    at: Time,
    outstanding: u64,
    /// Of the current interval: time with commands outstanding, and the integral of the outstanding bytes over it, byte seconds.
    busy: Duration,
    outstanding_seconds: f64,
    length: Duration,
    /// Bytes moved when it began.
    moved: u64,
    /// Losses of each connection when it began.
    losses: Vec<(Cid, u64)>,
    /// Intervals until the last loss is forgotten.
    loss_memory: u32,
    min_rtt: Duration,
    settling: u32,
    /// Intervals since the number was changed, while it has not been reached.
    changing: u32,
    series: Series,
    trial: Option<Trial>,
    up: Hold,
    down: Hold,
    /// The throughput at the last verdict.
    known: f64,
    trials: u32,
    won: u32,
}

impl Tuner {
    /// One connection, of at most `most`.
    pub(crate) fn new(most: u16) -> Self {
        Self {
            most: most.max(1),
            wanted: 1,
            at: Time::ZERO,
            outstanding: 0,
            busy: Duration::ZERO,
            outstanding_seconds: 0.0,
            length: INTERVAL_MIN,
            moved: 0,
            losses: Vec::new(),
            loss_memory: 0,
            min_rtt: Duration::ZERO,
            settling: SETTLING,
            changing: 0,
            series: Series::default(),
            trial: None,
            up: Hold::default(),
            down: Hold::default(),
            known: 0.0,
            trials: 0,
            won: 0,
        }
    }

    /// A session begins with one connection, of at most `most`. The number found before is opened again.
    pub(crate) fn session_begins(&mut self, most: u16, now: Time) {
        self.most = most.max(1);
        self.wanted = self.trial.take().map_or(self.wanted, |trial| trial.from).min(self.most);
        (self.at, self.outstanding) = (now, 0);
        self.losses.clear();
        self.settle();
    }

    /// Connections that the session should have.
    pub(crate) fn wanted(&self) -> u16 {
        self.wanted
    }

    /// What was done so far.
    pub(crate) fn info(&self) -> TuningInfo {
        TuningInfo { wanted: self.wanted, most: self.most, trials: self.trials, won: self.won }
    }

    /// Time has passed, and from now on this many bytes are outstanding (0: no command). True if an interval is over:
    /// [`Tuner::measured`] must follow.
    pub(crate) fn pass(&mut self, now: Time, outstanding: u64) -> bool {
        let passed = now.saturating_sub(self.at);
        if self.outstanding > 0 {
            self.busy += passed;
            self.outstanding_seconds += self.outstanding as f64 * passed.as_secs_f64();
        }
        (self.at, self.outstanding) = (now, outstanding);
        self.busy >= self.length
    }

    /// An interval is over, in which the session has moved bytes up to the total of `moved`; `connections` are all that it has now.
    pub(crate) fn measured(&mut self, moved: u64, connections: &[Reading]) {
        let seconds = self.busy.as_secs_f64().max(1e-9);
        let bytes = moved.saturating_sub(self.moved) as f64;
        let interval = Interval { bytes, seconds, outstanding: self.outstanding_seconds / seconds };
        self.begin_interval(moved, connections);
        if connections.len() != usize::from(self.wanted) {
            return self.wait_for_connections(connections.len());
        }
        self.changing = 0;
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        self.series.push(interval);
        match self.trial.take() {
            Some(trial) => self.go_on_trying(trial),
            None => self.observe(),
        }
    }

    fn begin_interval(&mut self, moved: u64, connections: &[Reading]) {
        (self.moved, self.busy, self.outstanding_seconds) = (moved, Duration::ZERO, 0.0);
        let before =
            |cid: Cid| self.losses.iter().find(|(other, _)| *other == cid).map(|(_, losses)| *losses);
        let lost = connections.iter().any(|one| before(one.cid).is_some_and(|losses| one.losses > losses));
        self.loss_memory = if lost { LOSS_MEMORY } else { self.loss_memory.saturating_sub(1) };
        self.losses = connections.iter().map(|one| (one.cid, one.losses)).collect();
        let known = |times: &mut dyn Iterator<Item = Duration>| times.filter(|time| !time.is_zero()).min();
        if let Some(shortest) = known(&mut connections.iter().map(|one| one.min_rtt)) {
            self.min_rtt = shortest;
        }
        let shortest = if self.loss_memory > 0 { INTERVAL_LOSSY } else { INTERVAL_MIN };
        let rtt = known(&mut connections.iter().map(|one| one.rtt)).unwrap_or_default();
        self.length = (rtt * INTERVAL_ROUND_TRIPS).clamp(shortest, INTERVAL_MAX);
    }

    /// Connections are still being opened or closed, or one was lost.
    fn wait_for_connections(&mut self, open: usize) {
        let changing = self.changing + 1;
        self.settle();
        self.changing = changing;
        if changing < PATIENCE {
            return;
        }
        // They do not come, or do not go.
        self.trial = None;
        self.wanted = u16::try_from(open).unwrap_or(u16::MAX).clamp(1, self.most);
        self.up.lost();
        self.down.lost();
        self.changing = 0;
    }

    /// Nothing is compared for a while.
    fn settle(&mut self) {
        self.settling = SETTLING;
        self.changing = 0;
        self.series = Series::default();
        (self.busy, self.outstanding_seconds) = (Duration::ZERO, 0.0);
    }

    fn observe(&mut self) {
        self.up.left = self.up.left.saturating_sub(1);
        self.down.left = self.down.left.saturating_sub(1);
        if self.series.len() < SERIES_MIN {
            return;
        }
        let rate = self.series.rate();
        let other = rate > self.known * OTHER_NETWORK || rate * OTHER_NETWORK < self.known;
        if self.known > 0.0 && other && self.series.len() == SERIES_MAX {
            (self.up, self.down, self.known) = (Hold::default(), Hold::default(), rate);
        }
        if self.wanted < self.most && self.up.left == 0 && self.has_reason() {
            self.begin(self.wanted.saturating_mul(2).min(self.most));
        } else if self.wanted > 1 && self.down.left == 0 {
            self.begin(self.wanted.div_ceil(2));
        }
    }

    /// Whether more connections may bring something: commands wait, and for a window.
    fn has_reason(&self) -> bool {
        let carried = self.series.rate() * self.min_rtt.as_secs_f64();
        let waiting = self.series.outstanding() > WAITING * carried;
        waiting && (self.loss_memory > 0 || self.min_rtt >= LONG_PATH)
    }

    fn begin(&mut self, wanted: u16) {
        self.trial = Some(Trial { from: self.wanted, before: std::mem::take(&mut self.series) });
        self.wanted = wanted;
        self.trials += 1;
        self.settle();
    }

    fn go_on_trying(&mut self, trial: Trial) {
        let up = self.wanted > trial.from;
        let verdict = self.judge(&trial);
        if verdict == Verdict::Open {
            self.trial = Some(trial);
            return;
        }
        let (towards, back) =
            if up { (&mut self.up, &mut self.down) } else { (&mut self.down, &mut self.up) };
        if verdict == Verdict::Won {
            self.won += 1;
            self.known = self.series.rate();
            // The way back has just been compared.
            back.lost();
            return;
        }
        if verdict == Verdict::Lost {
            self.known = trial.before.rate();
        }
        towards.lost();
        self.wanted = trial.from;
        self.settle();
    }

    fn judge(&self, trial: &Trial) -> Verdict {
        let (tried, before) = (&self.series, &trial.before);
        let ratio = tried.outstanding() / before.outstanding().max(1.0);
        if !(1.0 / OTHER_LOAD..=OTHER_LOAD).contains(&ratio) {
            return Verdict::Void;
        }
        if tried.len() >= 2 && tried.rate() < DISASTER * before.rate() {
            return Verdict::Lost;
        }
        let up = self.wanted > trial.from;
        let factor = if up { UP_BRINGS } else { DOWN_KEEPS };
        let gain = tried.rate() - factor * before.rate();
        let error = tried.error_squared() + factor * factor * before.error_squared();
        let beyond = |errors: f64| gain * gain > errors * errors * error;
        match tried.len() {
            SERIES_MIN.. if beyond(CERTAIN) && gain > 0.0 => Verdict::Won,
            SERIES_MIN.. if beyond(CERTAIN) => Verdict::Lost,
            SERIES_FUTILE.. if gain <= 0.0 => Verdict::Lost,
            SERIES_MAX.. if up && !beyond(LIKELY) => Verdict::Lost,
            SERIES_MAX.. => Verdict::Won,
            _ => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests;
