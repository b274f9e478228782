//! The connections of an established session, and those that it lacks and is (re)connecting.
//!
//! ```text
//!   (a session is up, or the protocol says Connect) ──► Waiting ──Time2Wait, back-off──► Connecting ──login──► joined
//!                                                          ▲                                │
//!                                                          └──────────────failed────────────┘
//! ```
//! A connection is identified by its CID, which it keeps when it is reconnected.

use std::net::SocketAddr;

use engine::{Driver, Platform, Token};
use iscsi_core::Time;
use iscsi_core::initiator::address::TargetAddress;
use iscsi_core::initiator::session::{CloseReason, JoinError, TargetRecord};
use iscsi_core::wire::{Cid, Opcode};

use super::connecting::{Attempt, Established, Outcome, Place};
use super::messages::{Addresses, Question};
use super::up::{Connection, Wanted};
use super::{EventLoop, State};
use crate::error::ConnectError;
use crate::options::{EngineKind, Portal};

/// Operation codes of the PDUs that end commands.
const DATA_IN: u8 = Opcode::DataIn.code();
const SCSI_RESPONSE: u8 = Opcode::ScsiResponse.code();

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
        let wanted = self.options.paths.find_portals && self.options.target.is_some();
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
        let tag = self.info.login.portal_group_tag;
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
        while let State::Up(up) = &mut self.state
            && let Some((mut wanted, attempt)) = up.take_due(now)
        {
            let outcome = match attempt {
                Some(attempt) => attempt.on_time(&mut self.driver, now),
                None => {
                    let Wanted { cid, tries, .. } = wanted;
                    let candidates = self.portals.candidates(&up.taken());
                    let place = Place { cid, join: Some(up.session.joining()), tries, candidates };
                    wanted.tries = tries.saturating_add(1);
                    let (slabs, driver) = (&self.slabs, &mut self.driver);
                    match Attempt::begin(&self.options, self.isid, slabs, driver, now, place) {
                        Ok(attempt) => Outcome::Pending(Box::new(attempt)),
                        Err(error) => Outcome::Failed(error),
                    }
                }
            };
            self.on_join_outcome(wanted, outcome);
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
        let Some((wanted, attempt)) = up.take_attempt(is) else { return };
        let outcome = feed(attempt, &self.platform, &mut self.driver, self.now);
        self.on_join_outcome(wanted, outcome);
    }

    fn on_join_outcome(&mut self, wanted: Wanted, outcome: Outcome) {
        let State::Up(up) = &mut self.state else { return };
        match outcome {
            Outcome::Redirected(attempt, portals) => {
                let outcome = self.follow(attempt, portals);
                self.on_join_outcome(wanted, outcome);
            }
            Outcome::Pending(attempt) => up.connecting(wanted, attempt),
            Outcome::Established(established) => self.joined(wanted, *established),
            Outcome::Failed(error) => {
                tracing::debug!(cid = wanted.cid.0, %error, "a connection of the session did not come");
                if let Some(address) = error.address() {
                    self.portals.failed(address);
                }
                if error.is_passing() {
                    return up.back_off(wanted, self.now);
                }
                let others = error.address().is_some_and(|address| self.portals.mark_foreign(address));
                self.info.refused_connections += u64::from(matches!(error, ConnectError::Login { .. }));
                self.join_elsewhere(wanted, others, &error);
            }
        }
    }

    /// A connection could not be established at one of the portals.
    fn join_elsewhere(&mut self, wanted: Wanted, others: bool, why: &dyn std::fmt::Display) {
        let State::Up(up) = &mut self.state else { return };
        if others {
            tracing::info!(cid = wanted.cid.0, %why, "trying another portal");
            up.wait(wanted, self.now);
        } else if up.connections.is_empty() {
            // The target no longer knows the session: start a new one.
            self.lost(CloseReason::Lost, None);
        } else {
            tracing::warn!(cid = wanted.cid.0, %why, "the session goes on with fewer connections");
        }
    }

    /// A further connection is established.
    //= rfc7143 4.4.3 MCS-01
    fn joined(&mut self, wanted: Wanted, established: Established) {
        let cid = wanted.cid;
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
                    self.join_elsewhere(wanted, others, &error);
                }
            }
        }
    }
}
