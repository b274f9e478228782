//! Which connection a command goes out on (RFC 7143 4.2.5.1: it stays there).
//!
//! The queue is the session's: a command is given its connection when the window lets it go, never before, so that no
//! connection has a queue of its own and the total depth is one number.

use iscsi_wire::Cid;

use super::connection::{Connection, ConnectionState};
use super::session::InitiatorSession;
use crate::Time;

/// How commands are spread over the connections of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// To the connection with the fewest bytes under way; the other commands of the same moment follow it, up to
    /// [`BATCH_BYTES`]. A slow connection gets less, and what is small travels together: one call of the system sends it, one
    /// receives it at the target, and one brings the answers.
    #[default]
    Batched,
    /// To the connection with the fewest bytes under way, each command by itself.
    LeastOutstandingBytes,
    /// To each in turn, as in the paper of 2005.
    RoundRobin,
}

/// What commands of one moment may have under way on one connection before the next gets its share, bytes. Enough for what a
/// turn of an event loop brings of small commands (32 of 4 KiB), and one command where they are large.
pub const BATCH_BYTES: u64 = 256 * 1024;

/// Commands that follow one another on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    at: Time,
    cid: Cid,
    /// What is left for it, bytes.
    left: u64,
}

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
        let batched = self.config.scheduling == Scheduling::Batched;
        if batched && self.batch.at == self.now && weight <= self.batch.left {
            let cid = self.batch.cid;
            if self.connections.iter().any(|connection| connection.cid == cid && takes(connection)) {
                self.batch.left -= weight;
                return Some(cid);
            }
        }
        let n = self.connections.len();
        let from = |first: usize| (0..n).map(move |k| (first + k) % n);
        let first = self.next_in_turn.checked_rem(n)?;
        let mut candidates = from(first).filter(|&at| takes(&self.connections[at]));
        let at = match self.config.scheduling {
            Scheduling::RoundRobin => candidates.next(),
            Scheduling::Batched | Scheduling::LeastOutstandingBytes => {
                candidates.min_by_key(|&at| self.connections[at].outstanding_bytes)
            }
        }?;
        self.next_in_turn = at + 1;
        let cid = self.connections[at].cid;
        self.batch = Batch { at: self.now, cid, left: BATCH_BYTES.saturating_sub(weight) };
        Some(cid)
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
