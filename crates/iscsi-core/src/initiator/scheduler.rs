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
    /// To the connection with the fewest bytes under way: a slow one gets less.
    #[default]
    LeastOutstandingBytes,
    /// To each in turn, as in the paper of 2005.
    RoundRobin,
}

/// What a command counts beside its data, bytes: so that commands without data are spread too.
pub(super) const COMMAND_WEIGHT_BYTES: u64 = 512;

impl InitiatorSession {
    /// The connection for the next command; `None` when there is none that takes one.
    pub(super) fn next_connection(&mut self) -> Option<Cid> {
        // In asymmetric use only the connections with an even CID carry commands, and there must be one of the others for what
        // belongs to them.
        let asymmetric = self.is_asymmetric();
        if asymmetric && !self.connections.iter().any(|other| other.state.serves() && other.carries_data()) {
            return None;
        }
        let takes = |connection: &Connection| {
            connection.state == ConnectionState::Up && !(asymmetric && connection.carries_data())
        };
        if let [only] = &self.connections[..] {
            return takes(only).then_some(only.cid);
        }
        let n = self.connections.len();
        let from = |first: usize| (0..n).map(move |k| (first + k) % n);
        let first = self.next_in_turn.checked_rem(n)?;
        let mut candidates = from(first).filter(|&at| takes(&self.connections[at]));
        let at = match self.config.scheduling {
            Scheduling::RoundRobin => candidates.next(),
            Scheduling::LeastOutstandingBytes => {
                candidates.min_by_key(|&at| self.connections[at].outstanding_bytes)
            }
        }?;
        self.next_in_turn = at + 1;
        Some(self.connections[at].cid)
    }

    /// A connection for something that may go anywhere: one that is up, else one that is about to be logged out.
    pub(super) fn any_connection(&self) -> Option<Cid> {
        let up = self.connections.iter().find(|connection| connection.state == ConnectionState::Up);
        let or = || self.connections.iter().find(|connection| connection.state.serves());
        up.or_else(or).map(|connection| connection.cid)
    }
}
