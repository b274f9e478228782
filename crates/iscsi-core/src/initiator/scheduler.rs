//! Chooses the connection on which a command is sent (RFC 7143 4.2.5.1: it stays there).
//!
//! The queue belongs to the session: a command is assigned a connection when the window admits it, never before. So no connection
//! has a queue of its own, and the total depth is one number.

use std::cmp::Reverse;

use iscsi_wire::Cid;

use super::connection::{Connection, ConnectionState};
use super::scheduling::{FILL_ALL_BYTES, FILL_BYTES, Scheduling};
use super::session::InitiatorSession;

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
