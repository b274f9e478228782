//! An established session with its connections, and those that it lacks.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Driver, Link, LinkStats, TcpInfo, Token};
use iscsi_core::Time;
use iscsi_core::initiator::session::{InitiatorSession, MIN_TCP_TIMEOUT};
use iscsi_core::pdu_writer::TxPdu;
use iscsi_core::wire::{Bhs, Cid};
use smallvec::SmallVec;

use super::connecting::Attempt;
use super::offload::Offload;
use crate::info::ConnectionInfo;
use crate::offloaded::Agent;

/// First pause between two attempts to recover; it doubles up to [`MAX_BACKOFF`].
pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// What may wait to be sent, in addition to our own data, before receiving stops, bytes.
const TX_SLACK_BYTES: usize = 4 * 1024 * 1024;

/// One connection in full feature phase.
pub(super) struct Connection {
    pub cid: Cid,
    pub link: Link,
    pub address: SocketAddr,
    /// The engine that carries out its commands, if any does.
    pub offload: Option<Box<Offload>>,
}

/// A connection that the session should have.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub cid: Cid,
    /// Attempts so far.
    pub tries: u32,
    backoff: Duration,
}

/// A connection that belongs to the session but is not established.
struct Absent {
    wanted: Wanted,
    step: Step,
}

/// What an absent connection waits for.
enum Step {
    /// Until the time of the next attempt.
    Waiting(Time),
    Connecting(Box<Attempt>),
}

/// A session and its connections.
pub(super) struct Up {
    pub session: InitiatorSession,
    pub connections: Vec<Connection>,
    absent: Vec<Absent>,
    /// Traffic of connections that no longer exist.
    pub past: LinkStats,
    /// When to flush again, because a connection holds back the end of what is queued.
    pub flushes_at: Option<Time>,
}

impl Up {
    pub(super) fn new(session: InitiatorSession, leading: Connection) -> Self {
        let (connections, past) = (vec![leading], LinkStats::default());
        Self { session, connections, absent: Vec::new(), past, flushes_at: None }
    }

    pub(super) fn link(&mut self, cid: Cid) -> Option<&mut Link> {
        let mut all = self.connections.iter_mut();
        all.find(|connection| connection.cid == cid).map(|found| &mut found.link)
    }

    /// The link of the connection `cid`, unless an engine frames what arrives on it.
    pub(super) fn framed_link(&mut self, cid: Cid) -> Option<&mut Link> {
        let mut all = self.connections.iter_mut();
        let found = all.find(|connection| connection.cid == cid && connection.offload.is_none())?;
        Some(&mut found.link)
    }

    /// Sends a PDU of the session, or has the engine send it.
    pub(super) fn send(&mut self, cid: Cid, pdu: TxPdu) {
        let Some(connection) = self.connections.iter_mut().find(|connection| connection.cid == cid) else {
            return;
        };
        match &mut connection.offload {
            Some(offload) => offload.agent.send(pdu, &self.session),
            None => connection.link.push(pdu),
        }
    }

    /// What drives the engine, if there is one.
    pub(super) fn agent(&mut self) -> Option<&mut Agent> {
        self.offloaded().map(|(_, _, offload, _)| &mut offload.agent)
    }

    /// The offloaded connection, with its engine and the session.
    pub(super) fn offloaded(&mut self) -> Option<(Cid, &mut Link, &mut Offload, &mut InitiatorSession)> {
        let found = self.connections.iter_mut().find(|connection| connection.offload.is_some());
        let Connection { cid, link, offload, .. } = found?;
        Some((*cid, link, offload.as_mut()?, &mut self.session))
    }

    /// The address of the portal that the connection `cid` uses.
    pub(super) fn address(&self, cid: Cid) -> Option<SocketAddr> {
        self.connections.iter().find(|connection| connection.cid == cid).map(|found| found.address)
    }

    /// Tells the session which of the connections that it doubts have a TCP that still hears of its peer, or has not waited for as long
    /// as the session does.
    pub(super) fn ask_transports(&mut self, driver: &impl Driver, now: Time, timeouts: u32) {
        let doubted: SmallVec<[Cid; 8]> = self.session.doubted().collect();
        for cid in doubted {
            let link = self.link(cid).map(|link| link.token());
            let info = link.and_then(|token| driver.tcp_info(token));
            self.session.transport_lives(cid, info.map_or(now, |info| alive_at(&info, now, timeouts)));
        }
    }

    pub(super) fn by_token(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.link.token() == token)
    }

    /// Most bytes that may wait to be sent on a connection before receiving from it stops: our own outstanding write data, plus
    /// some for answers.
    pub(super) fn tx_high_water(&self) -> usize {
        let own = usize::try_from(self.session.outstanding_write_bytes()).unwrap_or(usize::MAX);
        own.saturating_add(TX_SLACK_BYTES)
    }

    /// Sends what is queued and starts to receive, on every connection.
    pub(super) fn flush(&mut self, driver: &mut impl Driver, now: Time) {
        let (high_water, outstanding) = (self.tx_high_water(), self.session.outstanding());
        self.flushes_at = None;
        for connection in &mut self.connections {
            // While the engine takes nothing, nothing is received either.
            let full = connection.offload.as_ref().is_some_and(|offload| offload.agent.is_full());
            let link = &mut connection.link;
            link.set_tx_high_water(if full { 0 } else { high_water });
            // Commands may wait while the target has more of them, and two to begin with. Only the link knows of PDUs in part, and not if
            // an engine frames them.
            let waiting = link.tx_backlog_bytes() / Bhs::SIZE;
            let may_wait = connection.offload.is_none() && outstanding >= 2 * waiting + 2;
            let again = match may_wait {
                true => link.flush_behind_answers(driver, now),
                false => link.flush_packed(driver, now),
            };
            self.flushes_at = self.flushes_at.into_iter().chain(again).min();
        }
    }

    /// Whether all that the engine had queued was sent by the last flush: it may have more.
    pub(super) fn sent_at_once(&mut self, driver: &mut impl Driver) -> bool {
        self.offloaded().is_some_and(|(_, link, ..)| link.take_sent(driver))
    }

    /// When the next absent connection needs attention.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let absent = self.absent.iter().map(|absent| match &absent.step {
            Step::Waiting(at) => *at,
            Step::Connecting(attempt) => attempt.deadline(),
        });
        let engines = self.connections.iter().filter_map(|connection| connection.offload.as_ref());
        let engines = engines.filter_map(|offload| offload.agent.deadline());
        absent.chain(self.session.poll_timeout()).chain(engines).min()
    }

    /// Removes a connection and closes it.
    pub(super) fn close(&mut self, cid: Cid, driver: &mut impl Driver) {
        if let Some(at) = self.connections.iter().position(|connection| connection.cid == cid) {
            let connection = self.connections.swap_remove(at);
            driver.close(connection.link.token());
            self.past = sum(self.past, connection.link.stats());
        }
    }

    /// Closes everything; returns the traffic of all connections.
    pub(super) fn close_all(&mut self, driver: &mut impl Driver) -> LinkStats {
        while let Some(cid) = self.connections.last().map(|connection| connection.cid) {
            self.close(cid, driver);
        }
        self.stop_joining(driver);
        self.past
    }

    /// Abandons every attempt to establish a connection.
    pub(super) fn stop_joining(&mut self, driver: &mut impl Driver) {
        for absent in self.absent.drain(..) {
            if let Step::Connecting(attempt) = absent.step {
                attempt.close(driver);
            }
        }
    }

    /// Abandons the attempts to establish connections with this CID and higher ones.
    pub(super) fn stop_joining_from(&mut self, first: Cid, driver: &mut impl Driver) {
        for absent in self.absent.extract_if(.., |absent| absent.wanted.cid.0 >= first.0) {
            if let Step::Connecting(attempt) = absent.step {
                attempt.close(driver);
            }
        }
    }

    /// Schedules an attempt for the connection `cid` at the time `at`.
    pub(super) fn want(&mut self, cid: Cid, at: Time) {
        if self.absent.iter().all(|absent| absent.wanted.cid != cid) {
            self.wait(Wanted { cid, tries: 0, backoff: MIN_BACKOFF }, at);
        }
    }

    /// The next attempt for a connection starts at the time `at`.
    pub(super) fn wait(&mut self, wanted: Wanted, at: Time) {
        self.absent.push(Absent { wanted, step: Step::Waiting(at) });
    }

    /// The next attempt for a connection starts after its pause, which doubles.
    pub(super) fn back_off(&mut self, wanted: Wanted, now: Time) {
        let backoff = (wanted.backoff * 2).min(MAX_BACKOFF);
        self.wait(Wanted { backoff, ..wanted }, now + wanted.backoff);
    }

    /// An attempt for a connection continues.
    pub(super) fn connecting(&mut self, wanted: Wanted, attempt: Box<Attempt>) {
        self.absent.push(Absent { wanted, step: Step::Connecting(attempt) });
    }

    /// Takes an absent connection that is due, with its attempt; without one if it is time for the next.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Wanted, Option<Box<Attempt>>)> {
        let due = |absent: &Absent| match &absent.step {
            Step::Waiting(at) => *at <= now,
            Step::Connecting(attempt) => attempt.deadline() <= now,
        };
        let at = self.absent.iter().position(due)?;
        let Absent { wanted, step } = self.absent.swap_remove(at);
        match step {
            Step::Waiting(_) => Some((wanted, None)),
            Step::Connecting(attempt) => Some((wanted, Some(attempt))),
        }
    }

    /// Takes the absent connection with the attempt that `is` selects.
    pub(super) fn take_attempt(&mut self, is: impl Fn(&Attempt) -> bool) -> Option<(Wanted, Box<Attempt>)> {
        let found = |absent: &Absent| matches!(&absent.step, Step::Connecting(attempt) if is(attempt));
        let at = self.absent.iter().position(found)?;
        let Absent { wanted, step } = self.absent.swap_remove(at);
        match step {
            Step::Connecting(attempt) => Some((wanted, attempt)),
            Step::Waiting(_) => None,
        }
    }

    /// The portals that connections use, or are about to use.
    pub(super) fn taken(&self) -> Vec<SocketAddr> {
        let standing = self.connections.iter().map(|connection| connection.address);
        let coming = self.absent.iter().filter_map(|absent| match &absent.step {
            Step::Connecting(attempt) => Some(attempt.address()),
            Step::Waiting(_) => None,
        });
        standing.chain(coming).collect()
    }

    /// The current connections.
    pub(super) fn info(&self) -> Vec<ConnectionInfo> {
        let mut all: Vec<ConnectionInfo> = self
            .connections
            .iter()
            .map(|connection| ConnectionInfo {
                cid: connection.cid,
                address: connection.address,
                link: connection.link.stats(),
            })
            .collect();
        all.sort_by_key(|connection| connection.cid.0);
        all
    }

    /// Traffic of all connections, including closed ones.
    pub(super) fn stats(&self) -> LinkStats {
        self.connections.iter().fold(self.past, |total, connection| sum(total, connection.link.stats()))
    }
}

/// When a TCP was last known to be alive: now, if nothing of ours is on its way, for then the peer owes no acknowledgement and its program
/// may be slow; now, if it has waited for less than so many of its own timeouts (RFC 6298, with the shortest of Linux).
fn alive_at(info: &TcpInfo, now: Time, timeouts: u32) -> Time {
    let timeout = info.rtt + (4 * info.rtt_variation).max(MIN_TCP_TIMEOUT);
    let owes_nothing = info.unacked_segments == 0 && info.unsent_bytes == 0;
    if owes_nothing || info.last_received < timeout * timeouts {
        now
    } else {
        now.saturating_sub(info.last_received)
    }
}

fn sum(a: LinkStats, b: LinkStats) -> LinkStats {
    let (x, y) = (a.digests, b.digests);
    LinkStats {
        rx_bytes: a.rx_bytes + b.rx_bytes,
        tx_bytes: a.tx_bytes + b.tx_bytes,
        rx_pdus: a.rx_pdus + b.rx_pdus,
        tx_pdus: a.tx_pdus + b.tx_pdus,
        rx_moved_bytes: a.rx_moved_bytes + b.rx_moved_bytes,
        digests: iscsi_core::pdu_reader::DigestCounts {
            header_verified: x.header_verified + y.header_verified,
            header_failed: x.header_failed + y.header_failed,
            data_verified: x.data_verified + y.data_verified,
            data_failed: x.data_failed + y.data_failed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Duration::from_secs(10);

    /// A TCP with a timeout of 250 ms and a segment under way.
    fn silent_for(last_received: Duration) -> TcpInfo {
        let rtt = Duration::from_millis(50);
        TcpInfo { rtt, unacked_segments: 1, last_received, ..TcpInfo::default() }
    }

    #[test]
    fn a_tcp_that_waits_for_an_acknowledgement_is_as_old_as_what_it_received() {
        let ms = Duration::from_millis;
        assert_eq!(alive_at(&silent_for(ms(249)), NOW, 1), NOW);
        assert_eq!(alive_at(&silent_for(ms(250)), NOW, 1), NOW - ms(250));
        assert_eq!(alive_at(&silent_for(ms(250)), NOW, 2), NOW);
        let unsteady = TcpInfo { rtt_variation: ms(100), ..silent_for(ms(449)) };
        assert_eq!(alive_at(&unsteady, NOW, 1), NOW);
        assert_eq!(alive_at(&silent_for(NOW + ms(1)), NOW, 1), Time::ZERO);
        let unsent = TcpInfo { unacked_segments: 0, unsent_bytes: 1, ..silent_for(ms(300)) };
        assert_eq!(alive_at(&unsent, NOW, 1), NOW - ms(300), "its window is closed, or its path is");
    }

    /// The peer's program may be slow: that is for pings to find.
    #[test]
    fn a_tcp_that_is_owed_no_acknowledgement_is_alive() {
        let idle = TcpInfo { unacked_segments: 0, ..silent_for(Duration::from_secs(5)) };
        assert_eq!(alive_at(&idle, NOW, 1), NOW);
    }
}
