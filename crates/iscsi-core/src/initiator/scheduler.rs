//! Which connection a command goes out on (RFC 7143 4.2.5.1: it stays there).
//!
//! The queue is the session's: a command is given its connection when the window lets it go, never before, so that no
//! connection has a queue of its own and the total depth is one number.

use std::cmp::Reverse;
use std::time::Duration;

use iscsi_wire::Cid;

use super::connection::{Connection, ConnectionState};
use super::session::InitiatorSession;

/// How commands are spread over the connections of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// To the connection that has the most bytes under way and still room for it (`FILL_BYTES`, and more where commands end
    /// within `PROMPT`); where none has room, to the one with the fewest. What is small stays together: one call of the
    /// system sends it, one receives it at the target, and one brings the answers, so that connections that are not needed cost
    /// nothing. What is large, or slow to come, is spread.
    #[default]
    FillFirst,
    /// To the connection with the fewest bytes under way.
    LeastOutstandingBytes,
    /// To each in turn, as in the paper of 2005.
    RoundRobin,
}

/// What one connection has under way at most before the next is needed, bytes: 113 commands of 4 KiB, three of 128 KiB.
pub const FILL_BYTES: u64 = 512 * 1024;
/// A connection that ends its commands within this time is not what they wait for: it is given more before the next is used.
pub const PROMPT: Duration = Duration::from_millis(1);
/// How much more at most, bytes.
pub const EARNED_BYTES_MAX: u64 = 1536 * 1024;
/// Of each prompt command so much is earned; the first late one takes it all.
const EARNED_PART: u64 = 16;
/// What a session has under way before it needs all of its connections for commands, bytes, where they are more than four.
pub const FILL_ALL_BYTES: u64 = 2 * 1024 * 1024;

/// What a command counts beside its data, bytes: so that commands without data are spread too.
pub(super) const COMMAND_WEIGHT_BYTES: u64 = 512;

impl Connection {
    /// A command that weighs `weight` bytes has ended on it. What was never under way says nothing of what could be.
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
    /// The connection for the next command, which weighs `weight` bytes; `None` when there is none that takes one.
    pub(super) fn next_connection(&mut self, weight: u64) -> Option<Cid> {
        if let [only] = &self.connections[..]
            && only.state == ConnectionState::Up
            && !self.params.allegiance_free
        {
            return Some(only.cid);
        }
        self.choose_connection(weight)
    }

    fn choose_connection(&mut self, weight: u64) -> Option<Cid> {
        // In asymmetric use only the connections with an even CID carry commands, and there must be one of the others for what
        // belongs to them.
        let asymmetric = self.is_asymmetric();
        if asymmetric && !self.connections.iter().any(|other| other.state.serves() && other.carries_data()) {
            return None;
        }
        let takes = |connection: &Connection| {
            connection.state == ConnectionState::Up && !(asymmetric && connection.carries_data())
        };
        let n = self.connections.len();
        let in_turn = || {
            let first = self.next_in_turn.checked_rem(n).unwrap_or(0);
            (0..n).map(move |k| (first + k) % n).filter(|at| takes(&self.connections[*at]))
        };
        let least = || in_turn().min_by_key(|at| self.connections[*at].outstanding_bytes);
        let at = match self.config.scheduling {
            Scheduling::RoundRobin => in_turn().next(),
            Scheduling::LeastOutstandingBytes => least(),
            Scheduling::FillFirst => self.fullest_with_room(weight, takes).or_else(least),
        }?;
        self.next_in_turn = at + 1;
        Some(self.connections[at].cid)
    }

    /// Where the connection stands that has the most bytes under way and room for `weight` more, of those that take commands.
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
        // Mostly the last one has all that there is.
        let last = self.next_in_turn.wrapping_sub(1);
        let is_fullest = |connection: &Connection| connection.commands == self.sent && has_room(connection);
        if self.connections.get(last).is_some_and(is_fullest) {
            return Some(last);
        }
        let with_room = self.connections.iter().enumerate().filter(|(_, connection)| has_room(connection));
        with_room.min_by_key(|(_, connection)| Reverse(connection.outstanding_bytes)).map(|(at, _)| at)
    }

    /// In asymmetric use: the connection for data and status that carries the least.
    pub(super) fn data_connection(&self) -> Option<Cid> {
        let up = self.connections.iter().filter(|c| c.state == ConnectionState::Up && c.carries_data());
        up.min_by_key(|connection| connection.outstanding_bytes).map(|connection| connection.cid)
    }

    /// A connection for something that may go anywhere: one that is up, else one that is about to be logged out.
    pub(super) fn any_connection(&self) -> Option<Cid> {
        let up = self.connections.iter().find(|connection| connection.state == ConnectionState::Up);
        let or = || self.connections.iter().find(|connection| connection.state.serves());
        up.or_else(or).map(|connection| connection.cid)
    }
}
