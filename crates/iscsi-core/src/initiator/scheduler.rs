//! Which connection a command goes out on (RFC 7143 4.2.5.1: it stays there).
//!
//! The queue is the session's: a command is given its connection when the window lets it go, never before, so that no
//! connection has a queue of its own and the total depth is one number.

use iscsi_wire::Cid;

use super::connection::{Connection, ConnectionState};
use super::session::InitiatorSession;

/// How commands are spread over the connections of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// To the connection that has the most bytes under way and still room for it ([`FILL_BYTES`]); where none has room, to
    /// the one with the fewest. What is small stays together: one call of the system sends it, one receives it at the target,
    /// and one brings the answers, so that connections that are not needed cost nothing. What is large is spread.
    #[default]
    FillFirst,
    /// To the connection with the fewest bytes under way.
    LeastOutstandingBytes,
    /// To each in turn, as in the paper of 2005.
    RoundRobin,
}

/// What one connection has under way at most before the next is needed, bytes: 113 commands of 4 KiB, three of 128 KiB.
pub const FILL_BYTES: u64 = 512 * 1024;
/// What a session has under way before it needs all of its connections for commands, bytes, where they are more than four.
pub const FILL_ALL_BYTES: u64 = 2 * 1024 * 1024;

/// What a command counts beside its data, bytes: so that commands without data are spread too.
pub(super) const COMMAND_WEIGHT_BYTES: u64 = 512;

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
            Scheduling::FillFirst => {
                let shared_by = match asymmetric {
                    true => self.connections.iter().filter(|other| !other.carries_data()).count(),
                    false => n,
                };
                let full = FILL_BYTES.min(FILL_ALL_BYTES / shared_by.max(1) as u64);
                // A loop over few: this is asked for every command.
                let mut fullest: Option<(usize, u64)> = None;
                for (at, connection) in self.connections.iter().enumerate() {
                    let bytes = connection.outstanding_bytes;
                    let has_room = takes(connection) && bytes.saturating_add(weight) <= full;
                    if has_room && fullest.is_none_or(|(_, most)| bytes > most) {
                        fullest = Some((at, bytes));
                    }
                }
                fullest.map(|(at, _)| at).or_else(least)
            }
        }?;
        self.next_in_turn = at + 1;
        Some(self.connections[at].cid)
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
