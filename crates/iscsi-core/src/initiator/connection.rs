//! One connection of a session, and its states.

use std::time::Duration;

use iscsi_wire::{Cid, Itt};

use super::exchange::TextExchange;
use super::ledger::StatusLedger;
use super::login::LoggedIn;
use super::recovery::asking::Asking;
use super::scheduling::{EARNED_BYTES_MAX, EARNED_PART, FILL_BYTES};
use crate::Time;
use crate::params;

/// State of a connection.
///
/// ```text
///   join() ──► Up ──event 1, others stay──► Draining ──idle, or time is short──► LoggingOut ──answered──► (gone)
///               └──logout_connection()──────────│───────────────────────────────────▲  │
///               │                               │                                      │
///               └───────────lost────────────────┴──────────────lost────────────────────┘
///                            ▼
///   join() with its CID ◄── Failed ──logout for it on another connection answered──► (gone; may join() again)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Up,
    /// The target requested its logout: no new command is sent, and at this time at the latest the logout is sent.
    Draining(Time),
    /// Its logout is under way until this time.
    LoggingOut(Time),
    Failed(Failure),
}

/// A connection that failed and that the target may not have cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Time before a new attempt to connect.
    pub wait: Duration,
    /// When it may be logged out on another connection.
    pub not_before: Time,
    /// How long the target keeps its tasks.
    pub retained_until: Time,
    /// The logout for it that is under way, and its deadline.
    pub logout: Option<(Itt, Time)>,
    /// The target does not keep its tasks: they are dead.
    pub kills: bool,
    /// The caller is connecting it again because no other connection is left.
    pub connecting: bool,
}

impl Failure {
    /// When it may be logged out on another connection, if there is one. Nothing to log out if a login implies it.
    pub(super) fn may_log_out_at(&self) -> Option<Time> {
        (self.logout.is_none() && !self.connecting).then_some(self.not_before)
    }

    /// Whether that time has come.
    pub(super) fn may_log_out(&self, now: Time) -> bool {
        self.may_log_out_at().is_some_and(|at| at <= now)
    }
}

impl ConnectionState {
    /// Whether PDUs other than commands may be sent.
    pub(super) fn serves(self) -> bool {
        matches!(self, Self::Up | Self::Draining(_))
    }

    pub(super) fn stands(self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// When something was last heard of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// A PDU arrived.
    pub pdu: Time,
    /// Its transport was alive, as far as the caller said so.
    pub transport: Time,
}

impl Heard {
    /// The later of both.
    pub(super) fn at(&self) -> Time {
        self.pdu.max(self.transport)
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub cid: Cid,
    pub state: ConnectionState,
    /// MaxRecvDataSegmentLength that the target declared for it, bytes.
    pub max_send: u32,
    /// MaxRecvDataSegmentLength that we declared for it, bytes.
    pub max_recv: u32,
    pub statuses: StatusLedger,
    /// State of the requests for missing statuses.
    pub asking: Asking,
    pub heard: Heard,
    /// A keepalive ping that is under way.
    pub keepalive: Option<Itt>,
    pub text: Option<TextExchange>,
    /// Commands sent on it and not completed.
    pub commands: usize,
    /// Weight of those commands: their data, and a fixed part for each, bytes.
    pub outstanding_bytes: u64,
    /// What it may have outstanding beyond its share because it is prompt, bytes.
    pub earned_bytes: u64,
}

impl Connection {
    pub(super) fn new(login: &LoggedIn, now: Time) -> Self {
        Self {
            cid: login.cid,
            state: ConnectionState::Up,
            max_send: login.params.max_send_data_segment_length,
            max_recv: login.params.max_recv_data_segment_length,
            statuses: StatusLedger::new(login.numbers.exp_stat_sn),
            asking: Asking::default(),
            heard: Heard { pdu: now, transport: now },
            keepalive: None,
            text: None,
            commands: 0,
            outstanding_bytes: 0,
            earned_bytes: 0,
        }
    }

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

    /// In asymmetric use: whether it carries data and status.
    pub(super) fn carries_data(&self) -> bool {
        params::carries_data(self.cid)
    }
}

/// Why a connection that has logged in cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The session is over or ending: close the connection.
    #[error("the session is over")]
    Over,
    /// The login created another session, not this one.
    #[error("the login led to the session with TSIH {0}, which is another one (RFC 7143 11.13.3)")]
    OtherSession(u16),
    /// The connection reached another portal group.
    #[error(
        "the portal is of the portal group {0}, the session of {1}: a session stays in one group (RFC 7143 4.4.3)"
    )]
    OtherPortalGroup(u16, u16),
    /// The session holds a connection with this CID, or as many as it can.
    #[error("the session has no place for a connection with the CID {0}")]
    NoPlace(u16),
}
