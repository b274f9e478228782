//! Statistics of one session, and of all sessions of a target together.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Count;

/// The labels that distinguish sessions in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionLabels {
    /// TargetName; empty in a discovery session.
    pub target: String,
    /// InitiatorName.
    pub initiator: String,
    /// ISID, 12 hexadecimal digits.
    pub isid: String,
    /// TSIH.
    pub tsih: u16,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one session, or of all sessions of a target.
        #[derive(Debug, Default)]
        pub struct SessionCounters {
            $($(#[$doc])* pub $name: Count,)*
        }

        impl SessionCounters {
            /// Adds the counts of another one.
            fn absorb(&self, other: &Self) {
                $(self.$name.add(other.$name.get());)*
            }
        }
    };
}

counters! {
    /// SCSI commands.
    commands,
    /// Reject PDUs that we sent.
    rejects,
    /// PDUs received.
    rx_pdus,
    /// PDUs sent.
    tx_pdus,
    /// Bytes received.
    rx_bytes,
    /// Bytes sent.
    tx_bytes,
    /// Header digests received that matched.
    header_digests_verified,
    /// Header digests received that did not match.
    header_digests_failed,
    /// Data digests received that matched.
    data_digests_verified,
    /// Data digests received that did not match.
    data_digests_failed,
    /// SNACKs answered with the requested PDUs.
    snacks_answered,
    /// SNACKs rejected.
    snacks_refused,
    /// PDUs sent again for SNACKs.
    pdus_replayed,
    /// R2Ts for lost data.
    r2ts_recovered,
    /// Tasks reassigned to another connection.
    tasks_reassigned,
    /// Tasks of lost connections that were not reassigned in time.
    tasks_expired,
    /// Connections that failed while their session continued or could have continued.
    connections_lost,
}

/// A live session.
#[derive(Debug)]
pub struct LiveSession {
    labels: SessionLabels,
    counters: SessionCounters,
}

impl LiveSession {
    /// What distinguishes it from others.
    pub fn labels(&self) -> &SessionLabels {
        &self.labels
    }

    /// Its counters.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }
}

/// A session's counters, which can be read as [`SessionCounters`]. Dropping it ends the session's series.
#[derive(Debug)]
pub struct SessionStats {
    session: Arc<LiveSession>,
    number: u64,
    table: Arc<SessionTable>,
}

impl Deref for SessionStats {
    type Target = SessionCounters;

    fn deref(&self) -> &SessionCounters {
        &self.session.counters
    }
}

impl Drop for SessionStats {
    fn drop(&mut self) {
        // One lock for both steps: a scrape sees the counts either in the session or in the past, never twice or not at all.
        let mut inner = self.table.0.lock();
        inner.live.remove(&self.number);
        let past = inner.past.entry(self.session.labels.target.clone()).or_default();
        past.counters.absorb(&self.session.counters);
        past.sessions += 1;
    }
}

#[derive(Debug, Default)]
struct Past {
    counters: SessionCounters,
    sessions: u64,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    live: BTreeMap<u64, Arc<LiveSession>>,
    past: BTreeMap<String, Past>,
}

/// The live sessions, and the sums of those that ended.
#[derive(Debug, Default)]
pub(super) struct SessionTable(Mutex<Inner>);

/// The counts of a target's sessions so far.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TargetTotals {
    /// The sums of the counters, of live and of ended sessions.
    pub counters: SessionCounters,
    /// Sessions that live.
    pub live: u64,
    /// Sessions that ended.
    pub ended: u64,
}

/// The sessions at one moment.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Sessions {
    /// The live ones, oldest first.
    pub live: Vec<Arc<LiveSession>>,
    /// The sums by target.
    pub totals: BTreeMap<String, TargetTotals>,
}

impl SessionTable {
    pub(super) fn begin(table: &Arc<Self>, labels: SessionLabels) -> SessionStats {
        let session = Arc::new(LiveSession { labels, counters: SessionCounters::default() });
        let mut inner = table.0.lock();
        let number = inner.next;
        inner.next += 1;
        inner.live.insert(number, Arc::clone(&session));
        drop(inner);
        SessionStats { session, number, table: Arc::clone(table) }
    }

    /// One moment: no session counts twice or not at all.
    pub(super) fn snapshot(&self) -> Sessions {
        let inner = self.0.lock();
        let mut totals: BTreeMap<String, TargetTotals> = BTreeMap::new();
        for (target, past) in &inner.past {
            let sum = totals.entry(target.clone()).or_default();
            sum.counters.absorb(&past.counters);
            sum.ended = past.sessions;
        }
        for session in inner.live.values() {
            let sum = totals.entry(session.labels.target.clone()).or_default();
            sum.counters.absorb(&session.counters);
            sum.live += 1;
        }
        Sessions { live: inner.live.values().cloned().collect(), totals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_counted_stays_when_it_ends() {
        let table = Arc::new(SessionTable::default());
        let labels = |tsih| SessionLabels { target: "t".to_owned(), tsih, ..SessionLabels::default() };
        let first = SessionTable::begin(&table, labels(1));
        let second = SessionTable::begin(&table, labels(2));
        first.data_digests_failed.add(1);
        second.data_digests_failed.add(2);
        drop(first);
        let Sessions { live, totals } = table.snapshot();
        assert_eq!(live.iter().map(|session| session.labels.tsih).collect::<Vec<_>>(), [2]);
        let total = &totals["t"];
        assert_eq!((total.counters.data_digests_failed.get(), total.live, total.ended), (3, 1, 1));
    }
}
