//! The connections of a session: joining, keepalive, acknowledgements from the initiator, and loss
//! (RFC 7143 4.2.2.2, 4.4.3, 6.3.4, 7.1.4.3, 7.14).
//!
//! ```text
//!   join ──► up ──logout, violation──► closing ──► gone
//!             └──lost, replaced, logout for recovery──► Lost (ErrorRecoveryLevel 2: its tasks are orphans)
//!                                                         └── reassigned, or Time2Wait + Time2Retain ──► gone
//! ```
//! Each connection has its own StatSN; everything else belongs to the session.
//!
//! In asymmetric use, which both ends must know of ([`crate::params::ALLEGIANCE_FREE`]), commands are sent on connections with an
//! even CID. Their status, and all their data except the unsolicited, travels on connections with an odd CID; with halves, all
//! Data-Out on those with an even one.

use std::time::Duration;

use iscsi_wire::{Cid, CmdSn, StatSn};
use smallvec::SmallVec;

use super::actions::{Action, CloseReason};
use super::connection::{Connection, Loss, Lost};
use super::login::Established;
use super::recovery::retained::SentStatuses;
use super::session::TargetSession;
use crate::Time;
use crate::limits::{MAX_LOST_CONNECTIONS, MAX_REMEMBERED_REQUESTS};
use crate::params;

impl TargetSession {
    /// Adds the connection of a login that named this session's TSIH. A connection with the same CID is replaced: its tasks die
    /// with it, or wait to be reassigned at ErrorRecoveryLevel 2.
    //= rfc7143 6.3.4 SES-03
    //= rfc7143 4.4.3 MCS-01
    pub fn join(&mut self, established: Established, now: Time) {
        self.now = now;
        let cid = established.names.cid;
        if self.connection(cid).is_some() {
            self.act(Action::Close { cid, reason: CloseReason::Replaced });
            self.remove_connection(cid, Loss::Recovery);
        } else if let Some(lost) = self.lost.iter_mut().find(|lost| lost.cid == cid) {
            // The login implies a logout of the earlier connection with this CID (RFC 7143 6.3.4).
            lost.logged_out = true;
        }
        self.revive();
        let response = established.response(self.tsih(), self.window.exp_cmd_sn(), self.window.max_cmd_sn());
        self.send(cid, response);
        self.fence_off_newcomer();
        let stat_sn = established.stat_sn.next();
        self.connections.push(Connection {
            cid,
            stat_sn,
            acknowledged: stat_sn,
            responded: stat_sn,
            params: established.params,
            closing: false,
            text: None,
            last_life: now,
            pinged: false,
            logout_deadline: None,
            statuses: SentStatuses::default(),
            replayed: 0,
        });
    }

    /// Whether a login for `cid` may join: it replaces a connection, or one more fits in MaxConnections.
    //= rfc7143 13.2 LGN-20 MCS-01
    pub fn has_room_for(&self, cid: Cid) -> bool {
        self.connections.iter().any(|c| c.cid == cid)
            || self.connections.len() < usize::from(self.params.max_connections)
    }

    /// The transport of `cid` is gone.
    pub fn handle_connection_lost(&mut self, now: Time, cid: Cid) {
        self.now = now;
        if let Some(connection) = self.connection(cid) {
            let loss = if connection.closing { Loss::Final } else { Loss::Failed };
            self.forget_connection(cid, loss);
        }
    }

    /// Closes a connection from our side and handles its loss.
    pub(super) fn lose_connection(&mut self, cid: Cid, reason: CloseReason) {
        let loss = if reason == CloseReason::Logout { Loss::Final } else { Loss::Failed };
        self.act(Action::Close { cid, reason });
        self.forget_connection(cid, loss);
    }

    /// Removes a connection. If it was the last one, the session fails or ends.
    pub(super) fn forget_connection(&mut self, cid: Cid, loss: Loss) {
        self.remove_connection(cid, loss);
        if loss == Loss::Failed {
            self.recovery_counts.connections_lost += 1;
            self.report_lost_connection(cid);
        }
        if !self.connections.is_empty() || !self.is_active() {
            return;
        }
        if self.is_discovery() || loss == Loss::Final {
            self.end();
        } else {
            self.fail();
        }
    }

    /// Removes a connection and decides on its tasks. What becomes of the session is left to the caller.
    //= rfc7143 7.1.4.4 ERL-05
    pub(super) fn remove_connection(&mut self, cid: Cid, loss: Loss) {
        let keeps = loss != Loss::Final
            && self.params.level().recovers_connections()
            && self.params.default_time2retain_s > 0
            && self.is_active();
        let requests = self.forget_requests_of(cid);
        if keeps {
            self.orphan_tasks(cid);
            let deadline = self.now + self.time_to_recover();
            let logged_out = loss == Loss::Recovery;
            match self.lost.iter_mut().find(|lost| lost.cid == cid) {
                Some(lost) => {
                    (lost.deadline, lost.logged_out) = (deadline, logged_out);
                    lost.requests.extend(requests);
                    lost.requests.truncate(MAX_REMEMBERED_REQUESTS);
                }
                None => {
                    if self.lost.len() >= MAX_LOST_CONNECTIONS {
                        let oldest = self.lost.remove(0).cid;
                        self.kill_orphans(oldest);
                    }
                    self.lost.push(Lost { cid, deadline, logged_out, requests });
                }
            }
        } else {
            self.abort_connection_tasks(cid);
        }
        if let Some(position) = self.connections.iter().position(|c| c.cid == cid) {
            let connection = self.connections.remove(position);
            self.release_statuses(connection, keeps);
        }
        self.lift_fences_of(cid);
    }

    /// Time2Wait plus Time2Retain, for a connection or the session.
    pub(super) fn time_to_recover(&self) -> Duration {
        let params = &self.params;
        Duration::from_secs(u64::from(params.default_time2wait_s) + u64::from(params.default_time2retain_s))
    }

    /// Aborts the tasks of lost connections that were not reassigned in time.
    //= rfc7143 7.6 ERL-08
    pub(super) fn expire_lost_connections(&mut self) {
        while let Some(position) = self.lost.iter().position(|lost| lost.deadline <= self.now) {
            let cid = self.lost.remove(position).cid;
            self.kill_orphans(cid);
        }
    }

    /// Records the ExpStatSN of a PDU. A number that we have not sent yet is ignored.
    //= rfc7143 4.2.2.2 NUM-09
    pub(super) fn acknowledge(&mut self, cid: Cid, exp_stat_sn: StatSn) {
        let Some(connection) = self.connection(cid) else { return };
        if !exp_stat_sn.gt(connection.acknowledged) || exp_stat_sn.gt(connection.stat_sn) {
            return;
        }
        connection.acknowledged = exp_stat_sn;
        connection.replayed = 0;
        if !connection.statuses.is_empty() {
            self.release_acknowledged(cid);
        }
        if self.fences.is_up() {
            self.advance_fence();
        }
    }

    /// The connection to which a command received on `cid` is allegiant: the same one, unless the connections are used
    /// asymmetrically. Then it has an odd CID: the one to which the even one is mapped, so that commands received on one connection
    /// are answered on one connection; with halves they have their turns by CmdSN, whichever carried the command.
    //= rfc7143 4.2.5.1 MCS-02
    pub(super) fn home_for(&self, cid: Cid, cmd_sn: CmdSn) -> Cid {
        if !self.params.asymmetric.is_used() || params::carries_data(cid) {
            return cid;
        }
        let carries_data = |c: &&Connection| params::carries_data(c.cid) && !c.closing;
        let count = self.connections.iter().filter(carries_data).count();
        if count == 0 {
            return cid;
        }
        let turn = if self.params.asymmetric.has_halves() { cmd_sn.0 } else { u32::from(cid.0 / 2) };
        let place = turn as usize % count;
        self.connections.iter().filter(carries_data).nth(place).map_or(cid, |c| c.cid)
    }

    pub(super) fn connection(&mut self, cid: Cid) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|c| c.cid == cid)
    }

    /// Takes the next StatSN of `cid`, for a response to a command or a task management request.
    //= rfc7143 4.2.2.2 NUM-09
    pub(super) fn take_stat_sn(&mut self, cid: Cid) -> Option<StatSn> {
        let connection = self.connection(cid)?;
        let stat_sn = connection.stat_sn;
        connection.stat_sn = stat_sn.next();
        connection.responded = connection.stat_sn;
        Some(stat_sn)
    }

    /// Any open connection, for messages that belong to none in particular.
    pub(super) fn any_connection(&self) -> Option<Cid> {
        self.connections.iter().find(|c| !c.closing).map(|c| c.cid)
    }

    /// When the next ping is due or, after a ping, when the connection is declared dead.
    pub(super) fn ping_due(&self, connection: &Connection) -> Option<Time> {
        if self.config.ping_interval.is_zero() {
            return None;
        }
        let silence = self.config.ping_interval
            + if connection.pinged { self.config.ping_timeout } else { Duration::ZERO };
        Some(connection.last_life + silence)
    }

    /// At time `at` the initiator's end took bytes sent on `cid`. This shows that it is alive, even if a ping is queued behind so
    /// much data that its answer takes long.
    //= rfc7143 7.14 ERL-11
    pub fn handle_taken(&mut self, at: Time, cid: Cid) {
        if let Some(connection) = self.connection(cid) {
            connection.last_life = connection.last_life.max(at);
        }
    }

    /// Pings silent connections, and closes those that stay silent. Returns false when the session was closed.
    //= rfc7143 7.14 ERL-11
    pub(super) fn expire_connections(&mut self) -> bool {
        let now = self.now;
        let due: SmallVec<[Cid; 2]> = self.connections.iter().filter(|c| !c.closing).map(|c| c.cid).collect();
        for cid in due {
            let Some(connection) = self.connections.iter().find(|c| c.cid == cid) else { continue };
            if connection.logout_deadline.is_some_and(|at| at <= now) {
                //= rfc7143 11.9.1 ASY-01
                self.close_session(CloseReason::Silent);
                return false;
            }
            if self.ping_due(connection).is_some_and(|at| at <= now) {
                match connection.pinged {
                    true => self.lose_connection(cid, CloseReason::Silent),
                    false => self.ping(cid),
                }
            }
        }
        true
    }
}
