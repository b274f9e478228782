//! The connections of an established session, and those that it lacks and is (re)connecting.
//!
//! ```text
//!   (a session is up, or the protocol says Connect) ──► Waiting ──Time2Wait, back-off──► Connecting ──login──► joined
//!                                                          ▲                                │
//!                                                          └──────────────failed────────────┘
//! ```
//! A connection is identified by its CID, which it keeps when it is reconnected.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Driver, Link, LinkStats, Platform, Token};
use iscsi_core::Time;
use iscsi_core::initiator::address::TargetAddress;
use iscsi_core::initiator::session::{CloseReason, InitiatorSession, JoinError, TargetRecord};
use iscsi_core::pdu_writer::TxPdu;
use iscsi_core::wire::{Bhs, Cid, Opcode};

use super::connecting::{Attempt, Established, Outcome, Place};
use super::offload::Offload;
use super::resolving::{Addresses, Question};
use super::{EventLoop, MAX_BACKOFF, MIN_BACKOFF, State, TX_SLACK_BYTES};
use crate::error::ConnectError;
use crate::options::{EngineKind, Portal};
use crate::session::ConnectionInfo;

/// Operation codes of the PDUs that end commands.
const DATA_IN: u8 = Opcode::DataIn.code();
const SCSI_RESPONSE: u8 = Opcode::ScsiResponse.code();

/// One connection in full feature phase.
pub(super) struct Connection {
    pub cid: Cid,
    pub link: Link,
    pub address: SocketAddr,
    /// The engine that carries out its commands, if any does.
    pub offload: Option<Box<Offload>>,
}

/// A connection that belongs to the session but is not established.
pub(super) struct Absent {
    cid: Cid,
    /// Attempts so far.
    tries: u32,
    backoff: Duration,
    step: Step,
}

enum Step {
    /// Until the time of the next attempt.
    Waiting(Time),
    Connecting(Box<Attempt>),
}

/// A session and its connections.
pub(super) struct Up {
    pub session: InitiatorSession,
    pub connections: Vec<Connection>,
    pub absent: Vec<Absent>,
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
    fn framed_link(&mut self, cid: Cid) -> Option<&mut Link> {
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

    /// The address of the portal that the connection `cid` uses.
    pub(super) fn address(&self, cid: Cid) -> Option<SocketAddr> {
        self.connections.iter().find(|connection| connection.cid == cid).map(|found| found.address)
    }

    fn by_token(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.link.token() == token)
    }

    /// Most bytes that may wait to be sent on a connection before receiving from it stops: our own outstanding write data, plus
    /// some for answers.
    fn tx_high_water(&self) -> usize {
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
        for absent in self.absent.extract_if(.., |absent| absent.cid.0 >= first.0) {
            if let Step::Connecting(attempt) = absent.step {
                attempt.close(driver);
            }
        }
    }

    /// Schedules an attempt for the connection `cid` at the time `at`.
    pub(super) fn want(&mut self, cid: Cid, at: Time) {
        if self.absent.iter().all(|absent| absent.cid != cid) {
            self.absent.push(Absent { cid, tries: 0, backoff: MIN_BACKOFF, step: Step::Waiting(at) });
        }
    }

    /// The portals that connections use, or are about to use.
    fn taken(&self) -> Vec<SocketAddr> {
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

impl<P: Platform> EventLoop<P> {
    /// A receive completed on one of the connections.
    pub(super) fn on_received(
        &mut self,
        conn: Token,
        buffer: bytes::BytesMut,
        result: std::io::Result<usize>,
    ) {
        let State::Up(up) = &mut self.state else { return };
        let Some(connection) = up.by_token(conn) else {
            return self.feed_absent(conn, |attempt, platform, driver, now| {
                attempt.on_received(platform, driver, now, conn, buffer, result)
            });
        };
        connection.link.on_received(buffer, result.unwrap_or(0));
        let cid = connection.cid;
        self.receive(cid);
    }

    pub(super) fn on_sent(&mut self, conn: Token, segments: Vec<bytes::Bytes>, result: std::io::Result<()>) {
        let State::Up(up) = &mut self.state else { return };
        let Some(connection) = up.by_token(conn) else {
            return self.feed_absent(conn, |attempt, _, driver, now| {
                attempt.on_sent(driver, now, conn, segments, result)
            });
        };
        connection.link.on_sent(segments);
        let cid = connection.cid;
        match result {
            // PDUs may have been held back until some of that data was sent.
            Ok(()) => self.receive(cid),
            Err(_) => self.connection_lost(cid),
        }
    }

    pub(super) fn on_connected(&mut self, conn: Token, result: std::io::Result<()>) {
        self.feed_absent(conn, |attempt, platform, driver, now| {
            attempt.on_connected(platform, driver, now, conn, result)
        });
    }

    /// Processes the PDUs that have arrived on a connection. It processes all PDUs that end commands before it notifies the first
    /// owner: running one part of the code for many PDUs keeps it in the instruction cache, running all of it for each PDU does
    /// not.
    pub(super) fn receive(&mut self, cid: Cid) {
        if self.options.engine() != EngineKind::None {
            self.receive_offloaded();
        }
        loop {
            let State::Up(up) = &mut self.state else { return };
            let high_water = up.tx_high_water();
            let Some(link) = up.framed_link(cid) else { return };
            // The PDUs of one receive may request much more data than they contain: at level 1, R2Ts may request the same data
            // again and again.
            if link.tx_backlog_bytes() > high_water {
                break;
            }
            match link.next_pdu() {
                Ok(Some(pdu)) => {
                    let gathers = matches!(pdu.bhs.opcode(), DATA_IN | SCSI_RESPONSE);
                    up.session.handle_pdu(self.now, cid, pdu);
                    if !gathers {
                        self.drain_actions();
                    }
                }
                Ok(None) => break,
                //= rfc7143 7.8 DIG-07
                Err(error) => {
                    tracing::warn!(cid = cid.0, %error, "closing the connection");
                    return self.connection_lost(cid);
                }
            }
        }
        self.drain_actions();
        if let State::Up(up) = &mut self.state
            && up.link(cid).is_some_and(|link| link.peer_closed())
        {
            self.connection_lost(cid);
        }
    }

    /// A connection is lost: the protocol decides what follows.
    pub(super) fn connection_lost(&mut self, cid: Cid) {
        let State::Up(up) = &mut self.state else { return };
        if let Some(address) = up.address(cid) {
            self.portals.failed(address);
        }
        up.close(cid, &mut self.driver);
        up.session.connection_lost(self.now, cid);
        self.drain_actions();
    }

    /// A session is established at `address`: finds out its portals, if the options say so.
    pub(super) fn know_portals(&mut self, address: SocketAddr, failed: &[SocketAddr]) {
        let further: Vec<SocketAddr> = self.further.iter().rev().copied().collect();
        self.portals.begin(address, &further);
        failed.iter().for_each(|address| self.portals.failed(*address));
        let State::Up(up) = &mut self.state else { return };
        let wanted = self.options.find_portals && self.options.target.is_some();
        self.finding = wanted && up.session.send_targets(self.now, "");
        match self.finding {
            true => self.drain_actions(),
            false => self.portals_known(&[]),
        }
    }

    /// The target has listed its portals, or will not: those of this session's portal group may carry its connections.
    //= rfc7143 C DSC-05
    pub(super) fn portals_known(&mut self, records: &[TargetRecord]) {
        self.finding = false;
        let ours = records.iter().filter(|record| Some(&record.name) == self.options.target.as_ref());
        let tag = self.info.portal_group_tag;
        let same_group = |address: &&TargetAddress| tag.is_some() && address.group_tag == tag;
        let portals: Vec<Portal> =
            ours.flat_map(|record| &record.addresses).filter(same_group).map(Portal::from).collect();
        match self.resolver.resolve(&self.platform, portals) {
            Ok(addresses) => self.portals_found(addresses),
            // The first connection serves meanwhile; the others should be spread over all portals.
            Err(question) => self.naming = Some(question),
        }
        if let Some(first) = self.first.take() {
            first.give(Ok(self.info.clone()));
        }
    }

    /// The portals that the target listed have these addresses.
    pub(super) fn portals_found(&mut self, addresses: Addresses) {
        addresses.into_iter().flatten().flatten().for_each(|address| self.portals.add(address));
        self.want_all();
    }

    /// Names have been resolved, possibly for a connection that is not yet established.
    pub(super) fn resolved_absent(&mut self, question: Question, addresses: Addresses) {
        self.with_absent(
            |attempt| attempt.awaits(question),
            |attempt, _, driver, now| attempt.on_resolved(driver, now, addresses),
        );
    }

    /// Schedules every connection that the session may have but does not.
    pub(super) fn want_all(&mut self) {
        let wanted = self.wanted_connections();
        let State::Up(up) = &mut self.state else { return };
        for cid in (1..wanted).map(Cid).filter(|cid| up.address(*cid).is_none()).collect::<Vec<_>>() {
            up.want(cid, self.now);
        }
    }

    /// Handles the absent connections that are due.
    pub(super) fn join_on_time(&mut self) {
        let now = self.now;
        let due = |absent: &Absent| match &absent.step {
            Step::Waiting(at) => *at <= now,
            Step::Connecting(attempt) => attempt.deadline() <= now,
        };
        while let State::Up(up) = &mut self.state
            && let Some(at) = up.absent.iter().position(due)
        {
            let Absent { cid, tries, backoff, step } = up.absent.swap_remove(at);
            let mut tries = tries;
            let outcome = match step {
                Step::Connecting(attempt) => attempt.on_time(&mut self.driver, now),
                Step::Waiting(_) => {
                    let candidates = self.portals.candidates(&up.taken());
                    let place = Place { cid, join: Some(up.session.joining()), tries, candidates };
                    tries = tries.saturating_add(1);
                    let (slabs, driver) = (&self.slabs, &mut self.driver);
                    match Attempt::begin(&self.options, self.isid, slabs, driver, now, place) {
                        Ok(attempt) => Outcome::Pending(Box::new(attempt)),
                        Err(error) => Outcome::Failed(error),
                    }
                }
            };
            self.on_join_outcome(cid, tries, backoff, outcome);
        }
    }

    /// Passes a completion to the attempt that it belongs to.
    fn feed_absent(
        &mut self,
        conn: Token,
        feed: impl FnOnce(Box<Attempt>, &P, &mut P::Driver, Time) -> Outcome,
    ) {
        self.with_absent(|attempt| attempt.owns(conn), feed);
    }

    /// Feeds the attempt that `is` selects.
    fn with_absent(
        &mut self,
        is: impl Fn(&Attempt) -> bool,
        feed: impl FnOnce(Box<Attempt>, &P, &mut P::Driver, Time) -> Outcome,
    ) {
        let State::Up(up) = &mut self.state else { return };
        let found = |absent: &Absent| match &absent.step {
            Step::Connecting(attempt) => is(attempt),
            Step::Waiting(_) => false,
        };
        let Some(at) = up.absent.iter().position(found) else { return };
        let Absent { cid, tries, backoff, step } = up.absent.swap_remove(at);
        if let Step::Connecting(attempt) = step {
            let outcome = feed(attempt, &self.platform, &mut self.driver, self.now);
            self.on_join_outcome(cid, tries, backoff, outcome);
        }
    }

    fn on_join_outcome(&mut self, cid: Cid, tries: u32, backoff: Duration, outcome: Outcome) {
        let State::Up(up) = &mut self.state else { return };
        match outcome {
            Outcome::Redirected(attempt, portals) => {
                let outcome = self.follow(attempt, portals);
                self.on_join_outcome(cid, tries, backoff, outcome);
            }
            Outcome::Pending(attempt) => {
                up.absent.push(Absent { cid, tries, backoff, step: Step::Connecting(attempt) });
            }
            Outcome::Established(established) => self.joined(cid, tries, backoff, *established),
            Outcome::Failed(error) => {
                tracing::debug!(cid = cid.0, %error, "a connection of the session did not come");
                if let Some(address) = error.address() {
                    self.portals.failed(address);
                }
                if error.is_passing() {
                    let step = Step::Waiting(self.now + backoff);
                    let backoff = (backoff * 2).min(MAX_BACKOFF);
                    return up.absent.push(Absent { cid, tries, backoff, step });
                }
                let others = error.address().is_some_and(|address| self.portals.mark_foreign(address));
                self.info.refused_connections += u64::from(matches!(error, ConnectError::Login { .. }));
                self.join_elsewhere(cid, tries, backoff, others, &error);
            }
        }
    }

    /// A connection could not be established at one of the portals.
    fn join_elsewhere(
        &mut self,
        cid: Cid,
        tries: u32,
        backoff: Duration,
        others: bool,
        why: &dyn std::fmt::Display,
    ) {
        let State::Up(up) = &mut self.state else { return };
        if others {
            tracing::info!(cid = cid.0, %why, "trying another portal");
            up.absent.push(Absent { cid, tries, backoff, step: Step::Waiting(self.now) });
        } else if up.connections.is_empty() {
            // The target no longer knows the session: start a new one.
            self.lost(CloseReason::Lost, None);
        } else {
            tracing::warn!(cid = cid.0, %why, "the session goes on with fewer connections");
        }
    }

    /// A further connection is established.
    //= rfc7143 4.4.3 MCS-01
    fn joined(&mut self, cid: Cid, tries: u32, backoff: Duration, established: Established) {
        let State::Up(up) = &mut self.state else { return };
        let Established { link, login, address, failed, .. } = established;
        failed.iter().for_each(|address| self.portals.failed(*address));
        match up.session.join(self.now, &login) {
            Ok(()) => {
                tracing::debug!(cid = cid.0, %address, "a connection joined the session");
                self.portals.established(address);
                up.connections.push(Connection { cid, link, address, offload: None });
                self.info.joins += 1;
                self.drain_actions();
                // PDUs may have arrived together with the last login response.
                self.receive(cid);
            }
            Err(error) => {
                tracing::warn!(cid = cid.0, %address, %error, "a connection cannot join");
                self.driver.close(link.token());
                //= rfc7143 4.4.3 MCS-01
                if matches!(error, JoinError::OtherPortalGroup(..)) {
                    self.info.refused_connections += 1;
                    let others = self.portals.mark_foreign(address);
                    self.join_elsewhere(cid, tries, backoff, others, &error);
                }
            }
        }
    }
}
