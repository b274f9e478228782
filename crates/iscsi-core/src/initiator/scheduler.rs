//! Chooses the connection on which a command is sent (RFC 7143 4.2.5.1: it stays there).
//!
//! The queue belongs to the session: a command is assigned a connection when the window admits it, never before. So no connection
//! has a queue of its own, and the total depth is one number.

use std::cmp::Reverse;
use std::time::Duration;

use iscsi_wire::Cid;

use super::connection::{Connection, ConnectionState};
use super::session::InitiatorSession;

/// How commands are spread over the connections of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The connection that has the most bytes outstanding and still has room (`FILL_BYTES`, and more where commands complete
    /// within `PROMPT`); if none has room, the one with the fewest. Small commands stay together: one system call sends them, one
    /// receives them at the target, and one brings the answers, so that connections that are not needed cost nothing. Large or
    /// slow commands are spread.
    #[default]
    FillFirst,
    /// The connection with the fewest bytes outstanding.
    LeastOutstandingBytes,
    /// Each connection in turn, as in the paper of 2005.
    RoundRobin,
}

/// Most bytes that one connection has outstanding before the next is needed: 113 commands of 4 KiB, three of 128 KiB.
pub const FILL_BYTES: u64 = 512 * 1024;
/// A connection that completes its commands within this time is not the bottleneck: it is given more before the next is used.
pub const PROMPT: Duration = Duration::from_millis(1);
/// Most bytes that a connection is given in addition.
pub const EARNED_BYTES_MAX: u64 = 1536 * 1024;
/// Each prompt command earns this fraction of its weight; a late one forfeits everything earned.
const EARNED_PART: u64 = 16;
/// Bytes that a session has outstanding before it needs all of its connections for commands, if there are more than four.
pub const FILL_ALL_BYTES: u64 = 2 * 1024 * 1024;

/// Weight of a command in addition to its data, bytes, so that commands without data are spread too.
pub(super) const COMMAND_WEIGHT_BYTES: u64 = 512;

/// Whose turn it is, among the connections of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// Index of the connection whose turn is next.
    next: usize,
}

impl Turns {
    /// The indices of `n` connections, beginning with the one whose turn is next.
    fn order(self, n: usize) -> impl Iterator<Item = usize> {
        let first = self.next.checked_rem(n).unwrap_or(0);
        (0..n).map(move |k| (first + k) % n)
    }

    /// The connection used last, if there was one.
    fn last(self) -> Option<usize> {
        self.next.checked_sub(1)
    }

    /// The connection at `at` is used.
    fn take(&mut self, at: usize) {
        self.next = at + 1;
    }
}

impl Connection {
    /// A command of `weight` bytes has completed on it. Only a loaded connection can earn more: promptness without load proves
    /// nothing.
    pub(super) fn ended(&mut self, weight: u64, prompt: bool) {
        let tried = self.outstanding_bytes >= (FILL_BYTES + self.earned_bytes) / 2;
        self.commands -= 1;
        self.outstanding_bytes -= weight;
        self.earned_bytes = match prompt {
            true if tried => (self.earned_bytes + weight / EARNED_PART).min(EARNED_BYTES_MAX),
            true => self.earned_bytes,
            false => 0,
        };
    }
}

impl InitiatorSession {
    /// The connection for the next command of `weight` bytes; `None` when no connection accepts one.
    pub(super) fn next_connection(&mut self, weight: u64) -> Option<Cid> {
        if let [only] = &self.connections[..]
            && only.state == ConnectionState::Up
            && !self.params.asymmetric.is_used()
        {
            return Some(only.cid);
        }
        self.choose_connection(weight)
    }

    fn choose_connection(&mut self, weight: u64) -> Option<Cid> {
        // In asymmetric use only the connections with an even CID carry commands, and there must be at least one of the others
        // for their data.
        let asymmetric = self.is_asymmetric();
        if asymmetric && !self.connections.iter().any(|other| other.state.serves() && other.carries_data()) {
            return None;
        }
        let takes = |connection: &Connection| {
            connection.state == ConnectionState::Up && !(asymmetric && connection.carries_data())
        };
        let in_turn = || self.turns.order(self.connections.len()).filter(|at| takes(&self.connections[*at]));
        let least = || in_turn().min_by_key(|at| self.connections[*at].outstanding_bytes);
        let at = match self.config.scheduling {
            Scheduling::RoundRobin => in_turn().next(),
            Scheduling::LeastOutstandingBytes => least(),
            Scheduling::FillFirst => self.fullest_with_room(weight, takes).or_else(least),
        }?;
        self.turns.take(at);
        Some(self.connections[at].cid)
    }

    /// Index of the connection that has the most bytes outstanding and room for `weight` more, among those that accept commands.
    fn fullest_with_room(&self, weight: u64, takes: impl Fn(&Connection) -> bool) -> Option<usize> {
        let shared_by = match self.is_asymmetric() {
            true => self.connections.iter().filter(|other| !other.carries_data()).count(),
            false => self.connections.len(),
        };
        let full = FILL_BYTES.min(FILL_ALL_BYTES / shared_by.max(1) as u64);
        let has_room = |connection: &Connection| {
            let bytes = connection.outstanding_bytes.saturating_add(weight);
            takes(connection) && bytes <= full + connection.earned_bytes
        };
        // Usually the connection used last has all outstanding commands.
        let is_fullest =
            |connection: &Connection| connection.commands == self.commands.sent() && has_room(connection);
        if let Some(last) = self.turns.last()
            && self.connections.get(last).is_some_and(is_fullest)
        {
            return Some(last);
        }
        let with_room = self.connections.iter().enumerate().filter(|(_, connection)| has_room(connection));
        with_room.min_by_key(|(_, connection)| Reverse(connection.outstanding_bytes)).map(|(at, _)| at)
    }

    /// In asymmetric use: the connection for data and status that has the fewest bytes outstanding.
    pub(super) fn data_connection(&self) -> Option<Cid> {
        let up = self.connections.iter().filter(|c| c.state == ConnectionState::Up && c.carries_data());
        up.min_by_key(|connection| connection.outstanding_bytes).map(|connection| connection.cid)
    }

    /// A connection for a PDU that may go anywhere: one that is up, otherwise one that is draining.
    pub(super) fn any_connection(&self) -> Option<Cid> {
        let up = self.connections.iter().find(|connection| connection.state == ConnectionState::Up);
        let or = || self.connections.iter().find(|connection| connection.state.serves());
        up.or_else(or).map(|connection| connection.cid)
    }
}
