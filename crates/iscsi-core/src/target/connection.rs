//! One connection of a session, up or lost.

use iscsi_wire::{Cid, Itt, StatSn};

use super::exchange::TextExchange;
use super::recovery::retained::SentStatuses;
use crate::Time;
use crate::params::Params;

/// Time2Wait that an initiator is told for the tasks of a connection that is gone at ErrorRecoveryLevel 2, seconds. They are ready as soon
/// as the connection is, so that nobody need wait for DefaultTime2Wait, which holds where nothing is told (RFC 7143 11.9.1, 11.15.3).
pub(super) const TIME2WAIT_TO_REASSIGN_S: u16 = 0;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub cid: Cid,
    pub params: Params,
    /// StatSN of the next status.
    pub stat_sn: StatSn,
    /// ExpStatSN from the initiator: it has received every earlier status.
    pub acknowledged: StatSn,
    /// StatSN after that of the last response to a command or task management request: a fence waits for its acknowledgement.
    pub responded: StatSn,
    /// Set once the connection is being closed: PDUs that still arrive are ignored (RFC 7143 11.14).
    pub closing: bool,
    pub text: Option<TextExchange>,
    /// When it last showed that its initiator is alive: a PDU arrived, or the peer took bytes that we sent.
    pub last_life: Time,
    /// We sent a ping, and no PDU has arrived since.
    pub pinged: bool,
    /// When we stop waiting for the logout that we requested.
    pub logout_deadline: Option<Time>,
    /// Empty at ErrorRecoveryLevel 0.
    pub statuses: SentStatuses,
    /// PDUs resent since a status was last acknowledged.
    pub replayed: u32,
}

/// A connection that is gone while its tasks may still be reassigned.
#[derive(Debug)]
pub(super) struct Lost {
    pub cid: Cid,
    /// When its tasks die.
    pub deadline: Time,
    /// The initiator has logged it out for recovery, or replaced it: its tasks may be reassigned.
    pub logged_out: bool,
    /// Requests that died with it and may not be reassigned: task management, text, logout.
    pub requests: Vec<Itt>,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It failed, or we declared it dead.
    Failed,
    /// The initiator knows: it replaced the connection or logged it out for recovery.
    Recovery,
    /// Its tasks die with it.
    Final,
}
