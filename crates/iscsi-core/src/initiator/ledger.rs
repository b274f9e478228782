//! The statuses of one connection: which StatSNs have arrived, which are missing, and how far they may be acknowledged
//! (RFC 7143 4.2.2.2, 7.9).
//!
//! While nothing is missing this is one counter. After a gap it keeps one byte per number, at most [`MAX_STATUS_GAP`] of them.

use std::collections::VecDeque;

use iscsi_wire::StatSn;

use crate::limits::{MAX_STATUS_GAP, MAX_STATUS_LAG};

/// State of a number that cannot be acknowledged yet, or that follows one that cannot.
///
/// ```text
///   (unheard of) ──a later one arrives──► Missing ──arrives──► Done ──all before it are──► acknowledged
///        └─────────arrives, its data has a hole───► Held ──────────────▲
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It was sent, since a later one has arrived, but has not arrived itself.
    Missing,
    /// It arrived, but must not be acknowledged while data of its task is missing.
    Held,
    Done,
}

/// How a received StatSN is classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// It is new.
    Fresh,
    /// It has arrived before.
    Duplicate,
    /// Too far ahead: no target can have sent so many statuses without one of them arriving.
    TooFar,
}

/// The statuses of a connection.
#[derive(Debug)]
pub(super) struct StatusLedger {
    /// Every number before it has arrived and may be acknowledged.
    exp_stat_sn: StatSn,
    /// ExpStatSN as last sent to the target.
    told: StatSn,
    /// State of the numbers from `exp_stat_sn` on, as far as known; the first is never `Done`.
    ahead: VecDeque<Seen>,
}

impl StatusLedger {
    pub(super) fn new(exp_stat_sn: StatSn) -> Self {
        Self { exp_stat_sn, told: exp_stat_sn, ahead: VecDeque::new() }
    }

    /// The number that is due: all before it have arrived.
    pub(super) fn expected(&self) -> StatSn {
        self.exp_stat_sn
    }

    /// ExpStatSN for a PDU that is about to be sent.
    pub(super) fn tell(&mut self) -> StatSn {
        self.told = self.exp_stat_sn;
        self.exp_stat_sn
    }

    /// Whether so many have arrived since the last acknowledgement that one is due even without another PDU to send.
    //= rfc7143 4.2.2.2 NUM-10
    pub(super) fn lags(&self) -> bool {
        self.told.distance_to(self.exp_stat_sn) > MAX_STATUS_LAG
    }

    /// Takes `stat_sn` if it is simply the next one and nothing is missing or held.
    #[inline]
    pub(super) fn take_next(&mut self, stat_sn: StatSn) -> bool {
        let next = stat_sn == self.exp_stat_sn && self.ahead.is_empty();
        if next {
            self.exp_stat_sn = stat_sn.next();
        }
        next
    }

    /// Classifies `stat_sn`, and notes that all numbers before it were sent.
    //= rfc7143 7.9 ERL-03
    pub(super) fn see(&mut self, stat_sn: StatSn) -> Sight {
        let distance = self.exp_stat_sn.distance_to(stat_sn);
        if distance >= 1 << 31 {
            return Sight::Duplicate;
        }
        if distance >= MAX_STATUS_GAP {
            return Sight::TooFar;
        }
        match self.ahead.get(distance as usize) {
            Some(Seen::Done) => Sight::Duplicate,
            Some(_) => Sight::Fresh,
            None => {
                if distance > 0 {
                    self.ahead.resize(distance as usize, Seen::Missing);
                }
                Sight::Fresh
            }
        }
    }

    /// `stat_sn`, which has been classified, is done.
    //= rfc7143 4.2.2.2 NUM-09
    pub(super) fn settle(&mut self, stat_sn: StatSn) {
        if stat_sn == self.exp_stat_sn && self.ahead.len() <= 1 {
            self.ahead.clear();
            self.exp_stat_sn = stat_sn.next();
            return;
        }
        self.mark(stat_sn, Seen::Done);
        while self.ahead.front() == Some(&Seen::Done) {
            self.ahead.pop_front();
            self.exp_stat_sn = self.exp_stat_sn.next();
        }
    }

    /// `stat_sn`, which has been classified, must not be acknowledged yet.
    //= rfc7143 7.9 SNK-09
    pub(super) fn hold(&mut self, stat_sn: StatSn) {
        self.mark(stat_sn, Seen::Held);
    }

    /// `stat_sn` was sent, but the PDU that arrived is of no use.
    pub(super) fn miss(&mut self, stat_sn: StatSn) -> Sight {
        let sight = self.see(stat_sn);
        if sight == Sight::Fresh {
            self.mark(stat_sn, Seen::Missing);
        }
        sight
    }

    fn mark(&mut self, stat_sn: StatSn, seen: Seen) {
        let at = self.exp_stat_sn.distance_to(stat_sn) as usize;
        if at < MAX_STATUS_GAP as usize {
            if self.ahead.len() <= at {
                self.ahead.resize(at + 1, Seen::Missing);
            }
            self.ahead[at] = seen;
        }
    }

    /// True when a number is missing.
    pub(super) fn has_holes(&self) -> bool {
        self.ahead.contains(&Seen::Missing)
    }

    /// The runs of missing numbers, each as its first and its length.
    //= rfc7143 11.16 SNK-02
    pub(super) fn holes(&self) -> Vec<(StatSn, u32)> {
        let mut runs: Vec<(StatSn, u32)> = Vec::new();
        let mut before = false;
        for (n, seen) in self.ahead.iter().enumerate() {
            let missing = *seen == Seen::Missing;
            match runs.last_mut() {
                Some(run) if missing && before => run.1 += 1,
                _ if missing => runs.push((self.exp_stat_sn.add(n as u32), 1)),
                _ => {}
            }
            before = missing;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u32) -> StatSn {
        StatSn(u32::MAX - 1).add(n)
    }

    #[test]
    fn erl_03_gaps_are_found_once_and_duplicates_recognised() {
        let mut ledger = StatusLedger::new(at(0));
        let take = |ledger: &mut StatusLedger, n| {
            let sight = ledger.see(at(n));
            if sight == Sight::Fresh {
                ledger.settle(at(n));
            }
            sight
        };
        assert_eq!(take(&mut ledger, 0), Sight::Fresh);
        assert_eq!(take(&mut ledger, 0), Sight::Duplicate);
        assert_eq!(take(&mut ledger, 3), Sight::Fresh);
        assert_eq!(take(&mut ledger, 6), Sight::Fresh);
        assert_eq!(take(&mut ledger, 3), Sight::Duplicate);
        assert_eq!(ledger.holes(), [(at(1), 2), (at(4), 2)]);
        assert_eq!(ledger.tell(), at(1));
        for n in [2, 1, 5] {
            assert_eq!(take(&mut ledger, n), Sight::Fresh);
        }
        assert_eq!((ledger.tell(), ledger.holes()), (at(4), vec![(at(4), 1)]));
        assert_eq!(take(&mut ledger, 4), Sight::Fresh);
        assert_eq!((ledger.tell(), ledger.has_holes()), (at(7), false));
        assert_eq!(take(&mut ledger, 7 + MAX_STATUS_GAP), Sight::TooFar);
        assert!(!ledger.has_holes(), "a lie leaves nothing behind");
    }

    #[test]
    fn snk_09_what_is_held_is_not_acknowledged_and_not_asked_for() {
        let mut ledger = StatusLedger::new(at(0));
        assert_eq!(ledger.see(at(0)), Sight::Fresh);
        ledger.hold(at(0));
        assert_eq!(ledger.see(at(1)), Sight::Fresh);
        ledger.settle(at(1));
        assert_eq!((ledger.tell(), ledger.has_holes()), (at(0), false));
        assert_eq!(ledger.miss(at(2)), Sight::Fresh);
        assert_eq!(ledger.holes(), [(at(2), 1)]);
        ledger.settle(at(0));
        assert_eq!(ledger.tell(), at(2));
    }
}
