//! Connections of a shard: accepting, receiving, sending, closing.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Driver, Link, LinkStats, Platform, Token};
use iscsi_core::Time;
use iscsi_core::limits::LOGIN_DATA_SEGMENT_BYTES;
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::target::login::{Established, TargetLogin};
use iscsi_core::wire::{Cid, StatSn};

use super::Shard;
use super::due::Due;
use super::sessions::SessionKey;
use crate::config::PortalConfig;
use crate::memory::{ANONYMOUS, logins_max};
use crate::observe::EventKind;
use crate::shared::Home;

/// How long a connection may take to close after we have sent our last PDU.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a connection is doing.
pub(super) enum State {
    /// Logging in.
    Login(Box<TargetLogin>),
    /// Logged in, waiting for the session that it replaces to end.
    Reinstating(Box<Established>),
    /// Part of a session.
    FullFeature(SessionKey, Cid),
    /// Our last PDU is queued.
    Closing,
}

/// One connection.
pub(super) struct Connection {
    pub link: Link,
    pub peer: SocketAddr,
    pub portal: Arc<PortalConfig>,
    pub state: State,
    /// When the login or the closing must be complete; [`Connections::set_deadline`] changes it.
    deadline: Option<Time>,
    /// When the end of what is queued to be sent, which it holds back, is looked at again.
    holds_until: Option<Time>,
    /// Keeps its initiator at this shard, from the first PDU on.
    pub home: Option<Home>,
    /// Traffic that the session's counters already include.
    pub counted: LinkStats,
    /// Unsent data of a session that the connection has left, counted against the shard's room, bytes.
    pub outgoing_bytes: u64,
    /// It is or was part of a normal session, not a discovery session.
    pub is_hosts: bool,
    taken: Seen,
    received: Seen,
    touched: bool,
}

/// The last observed value of a growing count, and when it was first observed.
#[derive(Default)]
struct Seen {
    bytes: u64,
    at: Time,
}

impl Seen {
    fn look(&mut self, bytes: u64, now: Time) -> Time {
        if bytes > self.bytes {
            *self = Self { bytes, at: now };
        }
        self.at
    }
}

impl Connection {
    fn new(link: Link, peer: SocketAddr, portal: Arc<PortalConfig>, home: Option<Home>) -> Self {
        Self {
            link,
            peer,
            portal,
            state: State::Login(Box::new(TargetLogin::new(StatSn(1)))),
            deadline: None,
            holds_until: None,
            home,
            counted: LinkStats::default(),
            outgoing_bytes: 0,
            is_hosts: false,
            taken: Seen::default(),
            received: Seen::default(),
            touched: false,
        }
    }
}

/// Connections by token, and those that have something to send or receive.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    touched: Vec<Token>,
    due: Due<Token>,
    holding: Due<Token>,
    /// How many were examined in scans over several connections, not because of their own traffic.
    pub looked_at: Cell<u64>,
    /// Connections without a normal session, oldest first: the first to be closed when there are too many.
    logins: std::collections::VecDeque<Token>,
}

impl Connections {
    pub fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        self.slots
            .get_mut(token.index())?
            .as_deref_mut()
            .filter(|connection| connection.link.token() == token)
    }

    /// Bytes queued to be sent on a connection.
    pub fn backlog_bytes(&self, token: Token) -> u64 {
        let slot = self.slots.get(token.index()).and_then(Option::as_deref);
        let link = slot.map(|connection| &connection.link).filter(|link| link.token() == token);
        link.map_or(0, |link| link.tx_backlog_bytes() as u64)
    }

    fn insert(&mut self, connection: Connection, deadline: Time) {
        let token = connection.link.token();
        if self.slots.len() <= token.index() {
            self.slots.resize_with(token.index() + 1, || None);
        }
        self.slots[token.index()] = Some(Box::new(connection));
        self.set_deadline(token, Some(deadline));
        self.touch(token);
    }

    /// Sets the time by which a connection must have completed its current step.
    pub fn set_deadline(&mut self, token: Token, at: Option<Time>) {
        let slot = self.slots.get_mut(token.index()).and_then(Option::as_deref_mut);
        if let Some(connection) = slot.filter(|connection| connection.link.token() == token) {
            self.due.change(token, &mut connection.deadline, at);
        }
    }

    /// Sets when a connection is flushed again because it holds back the end of what is queued.
    fn hold(&mut self, token: Token, until: Option<Time>) {
        let slot = self.slots.get_mut(token.index()).and_then(Option::as_deref_mut);
        if let Some(connection) = slot.filter(|connection| connection.link.token() == token) {
            self.holding.change(token, &mut connection.holds_until, until);
        }
    }

    /// When a connection that holds something back is flushed again.
    pub fn next_flush(&self) -> Option<Time> {
        self.holding.next()
    }

    /// Marks the connections whose time for that has come for the next flush.
    pub fn touch_holding(&mut self, now: Time) {
        for token in self.holding.until(now) {
            self.touch(token);
        }
    }

    /// The remote address of a connection.
    pub fn peer(&self, token: Token) -> Option<SocketAddr> {
        let slot = self.slots.get(token.index()).and_then(Option::as_deref);
        slot.filter(|connection| connection.link.token() == token).map(|connection| connection.peer)
    }

    pub fn deadline(&mut self, token: Token) -> Option<Time> {
        self.get_mut(token)?.deadline
    }

    pub fn remove(&mut self, token: Token) -> Option<Box<Connection>> {
        self.set_deadline(token, None);
        self.hold(token, None);
        self.get_mut(token)?;
        self.slots[token.index()].take()
    }

    /// The link of a connection in full feature phase.
    pub fn of_session(&mut self, token: Token) -> Option<&mut Link> {
        let connection = self.get_mut(token)?;
        matches!(connection.state, State::FullFeature(..)).then_some(&mut connection.link)
    }

    /// Marks a connection for the next flush.
    pub fn touch(&mut self, token: Token) {
        if let Some(connection) = self.get_mut(token)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(token);
        }
    }

    fn look_at(&self, connections: usize) {
        self.looked_at.update(|before| before + connections as u64);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.look_at(self.slots.len());
        self.slots.iter().flatten().map(|connection| &**connection)
    }

    /// Queues a PDU.
    pub fn push(&mut self, token: Token, pdu: TxPdu) {
        if let Some(connection) = self.get_mut(token) {
            connection.link.push(pdu);
            self.touch(token);
        }
    }
}

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
        self.connections.logins.push_back(token);
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
        self.connections.logins.push_back(token);
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
        let connections = &mut self.connections;
        let is_nobodys = |connections: &mut Connections, token| {
            connections
                .get_mut(token)
                .is_some_and(|c| !c.is_hosts && !matches!(c.state, State::Reinstating(_)))
        };
        if connections.logins.len() >= limit {
            let mut logins = std::mem::take(&mut connections.logins);
            logins.retain(|&token| is_nobodys(connections, token));
            connections.logins = logins;
        }
        while self.connections.logins.len() >= limit {
            let Some(oldest) = self.connections.logins.pop_front() else { return };
            self.connection_lost(
                oldest,
                "too many connections are logging in, or ask which targets there are",
            );
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
        let at = connection.taken.look(taken, self.now);
        let in_kernel = info.is_some_and(|info| info.unacked_segments > 0 || info.unsent_bytes > 0);
        if in_kernel || connection.link.tx_backlog_bytes() > 0 { at } else { Time::ZERO }
    }

    /// When a connection was last observed to receive bytes, whether or not they complete a PDU.
    pub(super) fn last_received(&mut self, token: Token) -> Time {
        let now = self.now;
        let seen = |c: &mut Connection| c.received.look(c.link.stats().rx_bytes, now);
        self.connections.get_mut(token).map_or(Time::ZERO, seen)
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
        while let Some(token) = self.connections.touched.pop() {
            if let Some(connection) = self.connections.get_mut(token) {
                connection.touched = false;
                // PDUs that a peer sends before its session can start stay in the kernel.
                if !matches!(connection.state, State::Reinstating(_)) {
                    let holds_until = connection.link.flush_packed(&mut self.driver, self.now);
                    self.connections.hold(token, holds_until);
                }
            }
        }
    }

    /// Closes connections whose deadline has passed; returns the next deadline.
    pub(super) fn expire_connections(&mut self) -> Option<Time> {
        let late = self.connections.due.until(self.now);
        self.connections.look_at(late.len());
        for token in late {
            if !self.refuse_waiting_login(token) {
                self.login_timed_out(token);
                self.drop_connection(token);
            }
        }
        self.connections.due.next()
    }
}
