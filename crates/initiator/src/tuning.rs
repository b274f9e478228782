//! How many connections a session should have: the rule behind `connections=auto`, without I/O and clock. docs/mcs.md explains it.
//!
//! ```text
//!             ┌──── again, or the next number that may be better ◄────┐
//!             ▼                                                       │
//!   Settling ──► measuring: a visit of this number of connections ────┘
//! ```
//! While commands are outstanding, time is cut into intervals of several round trips, and each has a throughput. What the numbers of
//! connections have carried is remembered, with its chance. The session uses the one whose throughput may be the highest (close to UCB2 of
//! Auer, Cesa-Bianchi and Fischer, 2002): a number of which little is known may be better than it looked. The more is known of a number, the
//! longer it is used before the next choice. So verdicts that chance has made are found out, changes become rare, and numbers that cannot
//! be told apart share the time, which costs little. The best so far is the leader; a number that was never used is tried beside it.
//!
//! More connections are tried only for a reason: the commands wait for longer than the path takes, and segments get lost or the path is
//! long. So a session on a network without losses keeps one connection and never tries another number.

use std::time::Duration;

use iscsi_core::Time;
use iscsi_core::wire::Cid;

/// Most connections of a session that chooses their number itself: beyond, the map of docs/mcs.md shows little gain.
pub const AUTO_CONNECTIONS: u16 = 8;

/// An interval lasts so many round trips,
const INTERVAL_ROUND_TRIPS: u32 = 12;
/// at least this long,
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// as long as two timeouts of TCP while segments get lost,
const INTERVAL_LOSSY: Duration = Duration::from_millis(400);
/// and at most this long.
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Intervals after a change that are not counted: new connections find their windows.
const SETTLING: u32 = 1;
/// Shortest and longest visit, intervals; in between, each lasts this part of all before of the same number. With the whole of it a number
/// that was better by chance stays for too long.
const VISIT_MIN: f64 = 3.0;
const VISIT_MAX: f64 = 128.0;
const VISIT_GROWTH: f64 = 0.5;
/// After so many intervals, those of a visit become a part of those before, and the comparison with them begins anew.
const CHAPTER: f64 = 16.0;
/// Intervals of which the figures of a number consist at most; then half of them are forgotten.
const MEMORY: f64 = 512.0;
/// The relative variation of an interval's throughput, before it is known, and for how many intervals that counts. It is never taken for
/// less than [`VARIATION_MIN`].
const VARIATION: f64 = 0.1;
const VARIATION_WEIGHT: f64 = 3.0;
const VARIATION_MIN: f64 = 0.01;
/// Chance makes a number look worse by this factor at most.
const ERROR_MOST: f64 = 0.2;
/// A visit contradicts what is remembered if it differs by so many standard errors and by this part: the network is another
/// one, or it was not yet itself.
const CONTRADICTION: f64 = 3.0;
const CONTRADICTION_PART: f64 = 0.1;
/// More connections must look better by this factor to be the leader.
const UP_BRINGS: f64 = 1.01;
/// A visit with so much more than the leader has carried is over at once: it is the new leader.
const CLEAR: f64 = 1.3;
/// A visit with less than this part of it, less the variation, is over after so many intervals.
const DISASTER: f64 = 0.7;
const DISASTER_AFTER: f64 = 2.0;
/// What is known of a number is forgotten after so many intervals without it.
const AGE_MAX: u64 = 4096;
/// Intervals without a trial after the load was another one, at first and at most.
const HOLD_MIN: u32 = 16;
const HOLD_MAX: u32 = 4096;
/// For how many intervals a loss is remembered.
const LOSS_MEMORY: u32 = 128;
/// A path with a round trip of this length may be limited by a window even without losses.
const LONG_PATH: Duration = Duration::from_millis(5);
/// Commands wait if more bytes are asked for than this factor times what a round trip carries. What is counted for a command beside its data is
/// more than its headers: for 2 KiB that alone is 1.19.
const WAITING: f64 = 1.25;
/// The load is another one if its outstanding bytes have changed by this factor: throughputs cannot be compared.
const OTHER_LOAD: f64 = 1.5;
/// So many seconds of the best throughput may be outstanding: commands that wait longer are taken for lost
/// ([`iscsi_core::initiator::SessionConfig::probe_after`]), and what is sent again for them is carried for nothing. Always allowed are so
/// many bytes for each connection, up to so many for all.
const DEPTH_SECONDS: f64 = 2.0;
const DEPTH_EACH: u64 = 256 << 10;
const DEPTH_ALL: u64 = 1 << 20;
/// Intervals that a change of the number of connections may take.
const PATIENCE: u32 = 100;

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
    /// Times that another number than the best so far was tried.
    pub trials: u32,
    /// Those after which it was the best.
    pub won: u32,
    /// Segments get lost or the path is long, so that TCP's windows may be the limit.
    pub windows_limit: bool,
}

/// What was measured with a number of connections: sums over intervals.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    intervals: f64,
    bytes: f64,
    seconds: f64,
    /// Bytes asked for on average, summed.
    outstanding: f64,
    /// Of products, for the variation.
    bytes_bytes: f64,
    bytes_seconds: f64,
    seconds_seconds: f64,
}

impl Figures {
    fn of(bytes: f64, seconds: f64, outstanding: f64) -> Self {
        Self {
            intervals: 1.0,
            bytes,
            seconds,
            outstanding,
            bytes_bytes: bytes * bytes,
            bytes_seconds: bytes * seconds,
            seconds_seconds: seconds * seconds,
        }
    }

    /// These, and `other` with this weight.
    fn plus(self, other: Self, weight: f64) -> Self {
        Self {
            intervals: self.intervals + weight * other.intervals,
            bytes: self.bytes + weight * other.bytes,
            seconds: self.seconds + weight * other.seconds,
            outstanding: self.outstanding + weight * other.outstanding,
            bytes_bytes: self.bytes_bytes + weight * other.bytes_bytes,
            bytes_seconds: self.bytes_seconds + weight * other.bytes_seconds,
            seconds_seconds: self.seconds_seconds + weight * other.seconds_seconds,
        }
    }

    /// Throughput, bytes per second. An interval that ended late, because nothing happened for a while, counts for as long as it was.
    fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }

    fn mean_outstanding(&self) -> f64 {
        self.outstanding / self.intervals.max(1.0)
    }

    /// The squares of the intervals' relative deviations from the throughput, summed.
    fn squares(&self) -> f64 {
        let rate = self.rate();
        let squares = self.bytes_bytes - 2.0 * rate * self.bytes_seconds + rate * rate * self.seconds_seconds;
        let mean = self.bytes / self.intervals.max(1.0);
        squares.max(0.0) / (mean * mean).max(1e-9)
    }
}

/// A number of connections that the session may have.
#[derive(Clone, Copy, Debug)]
struct Choice {
    connections: u16,
    /// Of the chapters before this one.
    before: Figures,
    /// Of this chapter of a visit.
    visit: Figures,
    /// The last interval of a visit.
    visited: u64,
}

impl Choice {
    /// What is known of this number. A visit that contradicts those before replaces them.
    fn known(&self, variation: f64) -> Figures {
        if self.contradicts(variation) { self.visit } else { self.before.plus(self.visit, 1.0) }
    }

    fn contradicts(&self, variation: f64) -> bool {
        let (before, visit) = (&self.before, &self.visit);
        if before.intervals < VISIT_MIN || visit.intervals < VISIT_MIN {
            return false;
        }
        let more = (visit.rate() - before.rate()) / before.rate().max(1e-9);
        let error = variation * (1.0 / before.intervals + 1.0 / visit.intervals).sqrt();
        more.abs() > CONTRADICTION_PART && more.abs() > CONTRADICTION * error
    }

    /// The chapter is over.
    fn remember(&mut self, variation: f64) {
        self.before = self.known(variation);
        self.visit = Figures::default();
        if self.before.intervals > MEMORY {
            self.before = Figures::default().plus(self.before, 0.5);
        }
    }
}

/// The rule; see the module.
#[derive(Debug)]
pub(crate) struct Tuner {
    /// 1, 2, 4 and so on, and the most that are possible.
    choices: Vec<Choice>,
    /// Indices of the number in use, and of the best so far.
    used: usize,
    leader: usize,
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
    /// Intervals until this visit is over.
    stay: f64,
    /// Intervals in a row in which there were more or fewer connections than wanted.
    changing: u32,
    /// Intervals so far.
    intervals: u64,
    /// Most bytes outstanding.
    depth: u64,
    /// Intervals until another number may be tried, and how many it will be after the next change of the load.
    hold: u32,
    next_hold: u32,
    trials: u32,
    won: u32,
}

/// 1, 2, 4 and so on, and `most`.
fn choices(most: u16) -> Vec<Choice> {
    let numbers = std::iter::successors(Some(1u16), |n| (*n < most).then(|| n.saturating_mul(2).min(most)));
    let choice = |connections| Choice {
        connections,
        before: Figures::default(),
        visit: Figures::default(),
        visited: 0,
    };
    numbers.map(choice).collect()
}

impl Tuner {
    /// One connection, of at most `most`.
    pub(crate) fn new(most: u16) -> Self {
        Self {
            choices: choices(most.max(1)),
            used: 0,
            leader: 0,
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
            stay: VISIT_MIN,
            changing: 0,
            intervals: 0,
            depth: u64::MAX,
            hold: 0,
            next_hold: HOLD_MIN,
            trials: 0,
            won: 0,
        }
    }

    /// A session begins with one connection, of at most `most`. The number found before is opened again.
    pub(crate) fn session_begins(&mut self, most: u16, now: Time) {
        let most = most.max(1);
        if most != self.most() {
            let found = self.choices[self.leader].connections;
            self.choices = choices(most);
            self.leader = self.index_of(found);
        }
        self.used = self.leader;
        (self.depth, self.stay) = (u64::MAX, VISIT_MIN);
        (self.at, self.outstanding) = (now, 0);
        self.losses.clear();
        self.settle();
    }

    /// Most connections that it may have.
    fn most(&self) -> u16 {
        self.choices.last().map_or(1, |last| last.connections)
    }

    /// Connections that the session should have.
    pub(crate) fn wanted(&self) -> u16 {
        self.choices[self.used].connections
    }

    /// Most bytes that the session should have outstanding.
    pub(crate) fn depth(&self) -> u64 {
        self.depth
    }

    /// What was done so far.
    pub(crate) fn info(&self) -> TuningInfo {
        TuningInfo {
            wanted: self.wanted(),
            most: self.most(),
            trials: self.trials,
            won: self.won,
            windows_limit: self.windows_may_limit(),
        }
    }

    /// Time has passed, and from now on this many bytes are asked for (0: no command). True if an interval is over:
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
        let interval = Figures::of(bytes, seconds, self.outstanding_seconds / seconds);
        self.begin_interval(moved, connections);
        self.intervals += 1;
        self.hold = self.hold.saturating_sub(1);
        if connections.len() == usize::from(self.wanted()) {
            self.changing = 0;
        } else if !self.wait_for_connections(connections.len()) {
            return;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        let now = self.intervals;
        let used = &mut self.choices[self.used];
        used.visit = used.visit.plus(interval, 1.0);
        used.visited = now;
        if self.load_is_another() {
            return self.forget();
        }
        self.stay -= 1.0;
        let variation = self.variation();
        if self.visit_is_over(variation) {
            self.choose(variation);
        } else if self.choices[self.used].visit.intervals >= CHAPTER {
            self.choices[self.used].remember(variation);
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

    /// Connections are still being opened or closed, or one was lost. Whether the interval counts: what it costs that connections are lost
    /// is a part of what they bring.
    fn wait_for_connections(&mut self, open: usize) -> bool {
        self.changing += 1;
        if self.changing < PATIENCE {
            // Once there were as many as wanted, an interval was left out.
            return self.settling < SETTLING;
        }
        self.stay = VISIT_MIN;
        // They do not come, or do not go: as a number that carries nothing, this one is not tried again soon.
        let nothing = Figures { intervals: VISIT_MIN, seconds: 1.0, ..Figures::default() };
        let used = &mut self.choices[self.used];
        (used.before, used.visit, used.visited) = (nothing, Figures::default(), self.intervals);
        self.used = self.index_of(u16::try_from(open).unwrap_or(u16::MAX));
        self.leader = self.used;
        self.settle();
        false
    }

    /// The largest number that is not above this one.
    fn index_of(&self, connections: u16) -> usize {
        self.choices.iter().rposition(|choice| choice.connections <= connections).unwrap_or(0)
    }

    /// Nothing is counted for a while.
    fn settle(&mut self) {
        (self.settling, self.changing) = (SETTLING, 0);
        (self.busy, self.outstanding_seconds) = (Duration::ZERO, 0.0);
    }

    /// Whether more or fewer bytes are outstanding than when the other figures were taken.
    fn load_is_another(&self) -> bool {
        let visit = &self.choices[self.used].visit;
        let others = self.choices.iter().map(|choice| &choice.before).filter(|before| before.bytes > 0.0);
        others
            .map(|before| visit.mean_outstanding() / before.mean_outstanding().max(1.0))
            .any(|ratio| visit.intervals >= VISIT_MIN && !(1.0 / OTHER_LOAD..=OTHER_LOAD).contains(&ratio))
    }

    /// The load is another one: nothing that was measured under the other counts. If that happens often, other numbers are seldom tried.
    fn forget(&mut self) {
        (self.choices, self.stay) = (choices(self.most()), VISIT_MIN);
        self.hold = self.next_hold;
        self.next_hold = (self.next_hold * 2).min(HOLD_MAX);
        if self.used != self.leader {
            self.used = self.leader;
            self.settle();
        }
    }

    /// The relative variation of an interval's throughput, of all numbers together: each alone is often known too little.
    fn variation(&self) -> f64 {
        let figures = || self.choices.iter().flat_map(|choice| [&choice.before, &choice.visit]);
        let carried = || figures().filter(|figures| figures.intervals > 1.0 && figures.bytes > 0.0);
        let squares: f64 = carried().map(Figures::squares).sum();
        let intervals: f64 = carried().map(|figures| figures.intervals - 1.0).sum();
        let squares = squares + VARIATION_WEIGHT * VARIATION * VARIATION;
        (squares / (intervals + VARIATION_WEIGHT)).sqrt().max(VARIATION_MIN)
    }

    /// What a number may carry: so much that what was measured would be low by chance. `None`: nothing is known.
    fn may_carry(&self, choice: &Choice, variation: f64) -> Option<f64> {
        let known = choice.known(variation);
        if known.intervals < DISASTER_AFTER {
            return None;
        }
        let all: f64 = self.choices.iter().map(|other| other.known(variation).intervals).sum();
        let error = variation * ((1.0 + (all / known.intervals).ln().max(0.0)) / known.intervals).sqrt();
        Some(known.rate() / (1.0 - error).max(ERROR_MOST))
    }

    fn visit_is_over(&self, variation: f64) -> bool {
        let used = &self.choices[self.used];
        let visit = &used.visit;
        if self.used != self.leader {
            let leader = self.choices[self.leader].known(variation).rate();
            if visit.intervals >= DISASTER_AFTER && visit.rate() < (DISASTER - variation) * leader {
                return true;
            }
            if visit.intervals >= VISIT_MIN
                && (visit.rate() > CLEAR * leader
                    || self.may_carry(used, variation).is_some_and(|most| most < leader))
            {
                return true;
            }
        }
        self.stay < 1.0 || used.contradicts(variation)
    }

    /// A visit is over: which number is used next?
    fn choose(&mut self, variation: f64) {
        let now = self.intervals;
        let contradicted = self.choices[self.used].contradicts(variation);
        self.choices[self.used].remember(variation);
        for choice in &mut self.choices {
            let outdated = contradicted && choice.visited != now;
            if outdated || now.saturating_sub(choice.visited) > AGE_MAX {
                choice.before = Figures::default();
            }
        }
        let rate = |at: usize| self.choices[at].known(variation).rate();
        let mut leader = 0;
        for at in 1..self.choices.len() {
            if rate(at) > UP_BRINGS * rate(leader) {
                leader = at;
            }
        }
        if leader != self.leader && self.used == leader {
            self.won += 1;
        }
        self.leader = leader;
        let most = (0..self.choices.len()).map(rate).fold(0.0, f64::max);
        let next = self.next(variation);
        let always = (DEPTH_EACH * u64::from(self.choices[next].connections)).min(DEPTH_ALL);
        self.depth = ((DEPTH_SECONDS * most) as u64).max(always);
        if next != self.leader && next != self.used {
            self.trials += 1;
        }
        if next != self.used {
            self.used = next;
            self.settle();
        }
        self.stay = (VISIT_GROWTH * self.choices[next].before.intervals).clamp(VISIT_MIN, VISIT_MAX);
    }

    /// The number that may carry the most. One that was never used is tried when it is beside the leader.
    fn next(&self, variation: f64) -> usize {
        let leader = self.leader;
        if self.hold > 0 {
            return leader;
        }
        let last = if self.has_reason(variation) { self.choices.len() - 1 } else { leader };
        let mut next = leader;
        let may = |at: usize| match self.may_carry(&self.choices[at], variation) {
            Some(most) => most,
            None if at.abs_diff(leader) == 1 => f64::INFINITY,
            None => 0.0,
        };
        for at in (0..=last).rev() {
            if may(at) > may(next) {
                next = at;
            }
        }
        next
    }

    /// Whether more connections than the leader may bring something: commands wait, and for a window.
    fn has_reason(&self, variation: f64) -> bool {
        let known = self.choices[self.leader].known(variation);
        let waiting = known.mean_outstanding() > WAITING * known.rate() * self.min_rtt.as_secs_f64();
        waiting && self.windows_may_limit()
    }

    fn windows_may_limit(&self) -> bool {
        self.loss_memory > 0 || self.min_rtt >= LONG_PATH
    }
}

#[cfg(test)]
mod tests;
