//! The connections of a shard, and what the shard keeps of each.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::{Link, LinkStats, Token};
use iscsi_core::Time;
use iscsi_core::pdu_writer::TxPdu;
use iscsi_core::target::login::{Established, TargetLogin};
use iscsi_core::wire::{Cid, StatSn};

use super::due::Due;
use super::slots::SessionKey;
use crate::config::PortalConfig;
use crate::home::Home;

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
    /// A connection that is about to log in.
    pub(crate) fn new(link: Link, peer: SocketAddr, portal: Arc<PortalConfig>, home: Option<Home>) -> Self {
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

    /// When the peer was last observed to take data: `taken` bytes so far.
    pub(crate) fn look_at_taken(&mut self, taken: u64, now: Time) -> Time {
        self.taken.look(taken, now)
    }

    /// When the connection was last observed to receive bytes.
    pub(crate) fn look_at_received(&mut self, now: Time) -> Time {
        self.received.look(self.link.stats().rx_bytes, now)
    }

    /// Whether it is not part of a normal session and will not be once another session has ended.
    fn is_nobodys(&self) -> bool {
        !self.is_hosts && !matches!(self.state, State::Reinstating(_))
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
    looked_at: Cell<u64>,
    /// Connections without a normal session, oldest first: the first to be closed when there are too many.
    logins: VecDeque<Token>,
}

impl Connections {
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        self.slots
            .get_mut(token.index())?
            .as_deref_mut()
            .filter(|connection| connection.link.token() == token)
    }

    fn get(&self, token: Token) -> Option<&Connection> {
        self.slots.get(token.index())?.as_deref().filter(|connection| connection.link.token() == token)
    }

    /// Bytes queued to be sent on a connection.
    pub(crate) fn backlog_bytes(&self, token: Token) -> u64 {
        self.get(token).map_or(0, |connection| connection.link.tx_backlog_bytes() as u64)
    }

    /// Enters a connection that logs in, until `deadline`.
    pub(crate) fn insert(&mut self, connection: Connection, deadline: Time) {
        let token = connection.link.token();
        if self.slots.len() <= token.index() {
            self.slots.resize_with(token.index() + 1, || None);
        }
        self.slots[token.index()] = Some(Box::new(connection));
        self.set_deadline(token, Some(deadline));
        self.touch(token);
        self.logins.push_back(token);
    }

    /// Takes the oldest connection without a normal session off the list of these, if there are at least `limit`, whether it is
    /// logging in, a discovery session, or being closed.
    pub(crate) fn surplus_login(&mut self, limit: usize) -> Option<Token> {
        if self.logins.len() < limit {
            return None;
        }
        let mut logins = std::mem::take(&mut self.logins);
        logins.retain(|&token| self.get_mut(token).is_some_and(|connection| connection.is_nobodys()));
        self.logins = logins;
        if self.logins.len() < limit { None } else { self.logins.pop_front() }
    }

    /// Sets the time by which a connection must have completed its current step.
    pub(crate) fn set_deadline(&mut self, token: Token, at: Option<Time>) {
        let slot = self.slots.get_mut(token.index()).and_then(Option::as_deref_mut);
        if let Some(connection) = slot.filter(|connection| connection.link.token() == token) {
            self.due.change(token, &mut connection.deadline, at);
        }
    }

    /// When a connection that holds something back is flushed again.
    pub(crate) fn next_flush(&self) -> Option<Time> {
        self.holding.next()
    }

    /// Marks the connections whose time for that has come for the next flush.
    pub(crate) fn touch_holding(&mut self, now: Time) {
        for token in self.holding.until(now) {
            self.touch(token);
        }
    }

    /// The remote address of a connection.
    pub(crate) fn peer(&self, token: Token) -> Option<SocketAddr> {
        self.get(token).map(|connection| connection.peer)
    }

    pub(crate) fn deadline(&mut self, token: Token) -> Option<Time> {
        self.get_mut(token)?.deadline
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Box<Connection>> {
        self.get(token)?;
        let mut connection = self.slots[token.index()].take()?;
        self.due.change(token, &mut connection.deadline, None);
        self.holding.change(token, &mut connection.holds_until, None);
        Some(connection)
    }

    /// The link of a connection in full feature phase.
    pub(crate) fn of_session(&mut self, token: Token) -> Option<&mut Link> {
        let connection = self.get_mut(token)?;
        matches!(connection.state, State::FullFeature(..)).then_some(&mut connection.link)
    }

    /// Marks a connection for the next flush.
    pub(crate) fn touch(&mut self, token: Token) {
        if let Some(connection) = self.get_mut(token)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(token);
        }
    }

    /// Flushes a connection that was marked for it; false when there is none. `flush` returns when it must be flushed again because it
    /// holds something back.
    pub(crate) fn flush_next(&mut self, flush: impl FnOnce(&mut Link) -> Option<Time>) -> bool {
        let Some(token) = self.touched.pop() else { return false };
        let slot = self.slots.get_mut(token.index()).and_then(Option::as_deref_mut);
        if let Some(connection) = slot.filter(|connection| connection.link.token() == token) {
            connection.touched = false;
            // PDUs that a peer sends before its session can start stay in the kernel.
            if !matches!(connection.state, State::Reinstating(_)) {
                let until = flush(&mut connection.link);
                self.holding.change(token, &mut connection.holds_until, until);
            }
        }
        true
    }

    /// The connections whose deadline has passed.
    pub(crate) fn late(&self, now: Time) -> Vec<Token> {
        let late = self.due.until(now);
        self.look_at(late.len());
        late
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.next()
    }

    fn look_at(&self, connections: usize) {
        self.looked_at.update(|before| before + connections as u64);
    }

    /// How many were examined in scans over several connections.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.look_at(self.slots.len());
        self.slots.iter().flatten().map(|connection| &**connection)
    }

    /// Queues a PDU.
    pub(crate) fn push(&mut self, token: Token, pdu: TxPdu) {
        if let Some(connection) = self.get_mut(token) {
            connection.link.push(pdu);
            self.touch(token);
        }
    }
}
