//! What is told about a session when it has ended.

use std::net::SocketAddr;

use iscsi_core::target::actions::CloseReason;
use iscsi_core::wire::Cid;

use crate::observe::Op;
use crate::observe::metrics::Reason;

/// The work of a session and the ends of its connections, for its last log line.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bytes read by its commands.
    pub read_bytes: u64,
    /// Bytes written by its commands.
    pub written_bytes: u64,
    /// Commands that failed because of a fault of the unit or of data.
    pub faults: u64,
    /// The last connection that ended.
    last: Option<Ended>,
    /// Why we have asked the session to end; empty if we have not.
    asked: &'static str,
}

/// A connection that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub cid: Cid,
    pub peer: Option<SocketAddr>,
    pub why: String,
}

impl Tally {
    /// Counts a completed command.
    pub(crate) fn count(&mut self, kind: Op, bytes: u64, failed: Option<Reason>) {
        match (failed, kind) {
            (Some(reason), _) => self.faults += u64::from(reason.is_fault()),
            (None, Op::Read) => self.read_bytes += bytes,
            (None, Op::Write) => self.written_bytes += bytes,
            (None, _) => {}
        }
    }

    /// The server asks the session to end.
    pub(crate) fn ask_to_end(&mut self, why: &'static str) {
        self.asked = why;
    }

    /// Why the server has asked the session to end; empty if it has not.
    pub(crate) fn asked(&self) -> &'static str {
        self.asked
    }

    /// A connection has ended.
    pub(crate) fn connection_ended(&mut self, ended: Ended) {
        self.last = Some(ended);
    }

    /// The last connection that ended.
    pub(crate) fn last(&self) -> Option<&Ended> {
        self.last.as_ref()
    }

    /// Why a connection was closed.
    pub(crate) fn words(&self, reason: &CloseReason) -> String {
        let what = match reason {
            CloseReason::Logout => "logout",
            CloseReason::Violation(what) => return format!("the initiator broke a rule: {what}"),
            CloseReason::Replaced => "a newer login took its place",
            CloseReason::Silent => "the initiator was silent",
            CloseReason::Ended => "closed by the server",
            CloseReason::NexusReset => "the initiator reset its nexus",
        };
        match self.asked {
            "" => what.to_owned(),
            asked => format!("{what}: {asked}"),
        }
    }
}
