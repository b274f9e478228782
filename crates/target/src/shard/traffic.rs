//! The traffic of connections: accepting, receiving, sending, closing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Driver, Link, Platform, Token};
use iscsi_core::Time;
use iscsi_core::limits::LOGIN_DATA_SEGMENT_BYTES;
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::PduWriter;

use super::Shard;
use super::connections::{Connection, State};
use crate::config::PortalConfig;
use crate::home::Home;
use crate::memory::{ANONYMOUS, logins_max};
use crate::observe::EventKind;

/// How long a connection may take to close after we have sent our last PDU.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl<P: Platform> Shard<P> {
    pub(super) fn listen(&mut self, listener: <P::Driver as Driver>::Listener, portal: Arc<PortalConfig>) {
        match self.driver.listen(listener) {
            Ok(token) => drop(self.listeners.insert(token, portal)),
            Err(error) => tracing::error!(address = %portal.address, %error, "cannot listen"),
        }
    }

    pub(super) fn accepted(
        &mut self,
        listener: Token,
        stream: <P::Driver as Driver>::Stream,
        peer: SocketAddr,
    ) {
        let Some(portal) = self.listeners.get(&listener).cloned() else { return };
        let limit = self.shared.set.load().config.limits.max_connections;
        //= rfc7143 10.3 LGN-19
        if self.shared.connections.load(Ordering::Relaxed) >= limit {
            if self.admits(EventKind::ConnectionRefused) {
                tracing::warn!(%peer, limit, "a connection was refused: limits.max_connections is reached");
            }
            return;
        }
        let Ok(token) = self.driver.adopt(stream) else { return };
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        self.make_room_for_login();
        let deadline = self.now + self.shared.set.load().config.limits.login_timeout;
        let mut link = Link::new(
            token,
            PduReader::new(LOGIN_DATA_SEGMENT_BYTES).expect_login(),
            PduWriter::new(),
            self.slabs.clone(),
        );
        link.set_answer_high_water(ANONYMOUS.answer_bytes);
        self.connections.insert(Connection::new(link, peer, portal, None), deadline);
    }

    /// Registers a connection that came from another shard during its login.
    pub(super) fn adopt(
        &mut self,
        stream: <P::Driver as Driver>::Stream,
        mut link: Link,
        peer: SocketAddr,
        portal: Arc<PortalConfig>,
        home: Home,
        deadline: Time,
    ) -> Option<Token> {
        let Ok(token) = self.driver.adopt(stream) else {
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        link.rebind(token, self.slabs.clone());
        self.make_room_for_login();
        self.connections.insert(Connection::new(link, peer, portal, Some(home)), deadline);
        Some(token)
    }

    /// When too many connections have no normal session, closes the oldest of them, whether it is logging in, a discovery session,
    /// or being closed. So a flood of them locks nobody out.
    //= rfc7143 10.3 LGN-19
    fn make_room_for_login(&mut self) {
        let set = self.shared.set.load();
        let limits = &set.config.limits;
        let shards = self.shared.shards().len();
        let limit = logins_max(limits.max_logins_in_progress, limits.max_connections, shards);
        while let Some(oldest) = self.connections.surplus_login(limit) {
            let why = "too many connections are logging in, or ask which targets there are";
            self.connection_lost(oldest, why);
        }
    }

    pub(super) fn received(&mut self, token: Token, buffer: BytesMut, result: io::Result<usize>) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        match result {
            Ok(n) => {
                connection.link.on_received(buffer, n);
                self.connections.touch(token);
                self.take_pdus(token);
            }
            Err(error) => self.connection_lost(token, &error.to_string()),
        }
    }

    /// Processes every complete PDU that has arrived on a connection.
    pub(super) fn take_pdus(&mut self, token: Token) {
        while let Some(connection) = self.connections.get_mut(token) {
            match &connection.state {
                State::Reinstating(_) => return,
                State::Closing => {
                    let _ = connection.link.next_pdu();
                    return self.drop_if_said_goodbye(token);
                }
                State::Login(_) => match connection.link.next_pdu() {
                    Ok(Some(pdu)) => self.login_pdu(token, &pdu),
                    Ok(None) => break,
                    Err(error) => return self.login_framing_error(token, &error),
                },
                State::FullFeature(key, cid) => {
                    let (key, cid, peer) = (*key, *cid, connection.peer);
                    match self.session_pdus(token, key, cid) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => {
                            //= rfc7143 7.8 DIG-07
                            self.session_lost(key, cid, peer, &error.to_string());
                            return self.say_goodbye(token);
                        }
                    }
                }
            }
        }
        // PDUs that it still holds back are taken when the answers before them have been sent.
        let is_over = |c: &mut Connection| c.link.peer_closed() && !c.link.is_holding_back();
        if self.connections.get_mut(token).is_some_and(is_over) {
            self.connection_lost(token, "the initiator closed the connection");
        }
    }

    /// When the peer of a connection was last observed to acknowledge bytes of the data in flight; zero if never, or if no data is
    /// in flight.
    pub(super) fn last_taken(&mut self, token: Token) -> Time {
        let info = self.driver.tcp_info(token);
        let Some(connection) = self.connections.get_mut(token) else { return Time::ZERO };
        let acked = info.map(|info| info.acked_bytes).filter(|acked| *acked > 0);
        let taken = acked.unwrap_or_else(|| connection.link.stats().tx_bytes);
        let at = connection.look_at_taken(taken, self.now);
        let in_kernel = info.is_some_and(|info| info.unacked_segments > 0 || info.unsent_bytes > 0);
        if in_kernel || connection.link.tx_backlog_bytes() > 0 { at } else { Time::ZERO }
    }

    /// When a connection was last observed to receive bytes, whether or not they complete a PDU.
    pub(super) fn last_received(&mut self, token: Token) -> Time {
        let now = self.now;
        self.connections.get_mut(token).map_or(Time::ZERO, |connection| connection.look_at_received(now))
    }

    pub(super) fn sent(&mut self, token: Token, segments: Vec<Bytes>, result: io::Result<()>) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if let Err(error) = result {
            return self.connection_lost(token, &error.to_string());
        }
        connection.link.on_sent(segments);
        let held_back = connection.link.is_holding_back();
        match connection.state {
            State::FullFeature(key, _) => {
                self.connections.touch(token);
                self.run_session(key);
            }
            State::Closing => {
                // A peer that reads our data gets the time for it.
                self.connections.set_deadline(token, Some(self.now + CLOSE_TIMEOUT));
                self.connections.touch(token);
                self.drop_if_said_goodbye(token);
            }
            State::Login(_) | State::Reinstating(_) => self.connections.touch(token),
        }
        if held_back {
            self.take_pdus(token);
        }
    }

    /// Drops a closing connection when the peer has closed its direction and we have sent our last PDU: a peer that closes only
    /// its own direction still reads.
    //= rfc7143 11.14 LGO-01
    fn drop_if_said_goodbye(&mut self, token: Token) {
        let said =
            |connection: &mut Connection| connection.link.peer_closed() && connection.link.is_drained();
        if self.connections.get_mut(token).is_some_and(said) {
            self.drop_connection(token);
        }
    }

    /// The transport failed, or the peer closed it; `why`.
    pub(super) fn connection_lost(&mut self, token: Token, why: &str) {
        self.login_given_up(token, why);
        let Some(connection) = self.connections.get_mut(token) else { return };
        let session = match connection.state {
            State::FullFeature(key, cid) => Some((key, cid, connection.peer)),
            _ => None,
        };
        if let Some((key, cid, peer)) = session {
            self.session_lost(key, cid, peer, why);
        }
        self.drop_connection(token);
    }

    /// Sends the queued PDUs, then FIN; the peer has a little time to do the same.
    //= rfc7143 11.14 LGO-01
    pub(super) fn say_goodbye(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.state = State::Closing;
            connection.link.close_after_flush();
            self.connections.set_deadline(token, Some(self.now + CLOSE_TIMEOUT));
            self.connections.touch(token);
        }
    }

    pub(super) fn drop_connection(&mut self, token: Token) {
        if let Some(connection) = self.connections.remove(token) {
            self.give_room(connection.outgoing_bytes);
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
            self.driver.close(token);
        }
    }

    /// Sends and receives on every connection that was touched since the last call.
    pub(super) fn flush_touched(&mut self) {
        while self.connections.flush_next(|link| link.flush_packed(&mut self.driver, self.now)) {}
    }

    /// Closes connections whose deadline has passed; returns the next deadline.
    pub(super) fn expire_connections(&mut self) -> Option<Time> {
        for token in self.connections.late(self.now) {
            if !self.refuse_waiting_login(token) {
                self.login_timed_out(token);
                self.drop_connection(token);
            }
        }
        self.connections.next_deadline()
    }
}
