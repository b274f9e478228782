//! The connections of a session: joining, leaving in order, and failing (RFC 7143 4.2.5, 6.3.4, 7.1.4.3, 8.2, 11.14).
//!
//! When a connection fails, the session survives if there is another connection, or if error recovery level 2 allows the failed
//! one to come back. Its tasks wait until the target has cleaned up the connection: after a logout for it on another connection,
//! or after a login with its CID, which implies a logout. Then `recovery::reassign` settles them one by one.

use std::time::Duration;

use iscsi_wire::{Cid, Itt, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, StatSn};

use super::actions::{Action, CloseReason, violation};
use super::connection::{Connection, ConnectionState, Failure, JoinError};
use super::exchange::TextExchange;
use super::login::{Join, LoggedIn};
use super::session::{InitiatorSession, told_seconds};
use super::task::{Held, LogoutOf, Task};
use crate::limits::MAX_INITIATOR_CONNECTIONS;
use crate::params;
use crate::{Time, earlier};

impl InitiatorSession {
    #[inline]
    pub(super) fn connection(&mut self, cid: Cid) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.cid == cid)
    }

    /// CIDs of the connections that have not failed.
    pub fn connected(&self) -> impl Iterator<Item = Cid> {
        let standing = self.connections.iter().filter(|connection| connection.state.stands());
        standing.map(|connection| connection.cid)
    }

    /// Parameters for the login of a further connection, or of one that comes back.
    //= rfc7143 6.3.1 MCS-01
    pub fn joining(&self) -> Join {
        Join { tsih: self.tsih(), cmd_sn: self.window.current(), params: self.params.clone() }
    }

    /// Adds a connection whose login, made with [`InitiatorSession::joining`], has completed. One with the CID of a failed
    /// connection replaces it, and its tasks continue there.
    ///
    /// # Errors
    /// When it does not belong here; close it.
    //= rfc7143 6.3.4 MCS-01 ERL-06
    //= rfc7143 4.4.3 MCS-01
    pub fn join(&mut self, now: Time, login: &LoggedIn) -> Result<(), JoinError> {
        self.now = now;
        if !self.is_active() {
            return Err(JoinError::Over);
        }
        if login.tsih != self.tsih() {
            return Err(JoinError::OtherSession(login.tsih.0));
        }
        if let (Some(theirs), Some(ours)) = (login.portal_group_tag, self.portal_group_tag())
            && theirs != ours
        {
            return Err(JoinError::OtherPortalGroup(theirs, ours));
        }
        let known = self.connections.iter().position(|connection| connection.cid == login.cid);
        match known {
            Some(at) => match self.connections[at].state {
                // Only while no logout for it is under way: the target would apply that logout to the new connection.
                ConnectionState::Failed(Failure { logout: None, kills, .. }) => {
                    self.connections.remove(at);
                    self.let_go(login.cid, Duration::ZERO, kills);
                }
                _ => return Err(JoinError::NoPlace(login.cid.0)),
            },
            None if self.connections.len() >= MAX_INITIATOR_CONNECTIONS => {
                return Err(JoinError::NoPlace(login.cid.0));
            }
            None => {}
        }
        // Whichever connection joined: it can log the failed ones out, so they need not come back for that.
        self.connecting_is_over();
        self.window.update(login.numbers.exp_cmd_sn, login.numbers.max_cmd_sn, now);
        self.connections.push(Connection::new(login, now));
        self.recover_connections();
        self.settle();
        self.pump();
        Ok(())
    }

    /// The first connection of a session.
    pub(super) fn leading(login: &LoggedIn, now: Time) -> Vec<Connection> {
        vec![Connection::new(login, now)]
    }

    /// The transport of `cid` is gone.
    pub fn connection_lost(&mut self, now: Time, cid: Cid) {
        self.now = now;
        self.fail_connection(cid, CloseReason::Lost, None);
        self.pump();
    }

    /// A connection can no longer be used. `told`: how long to wait, and how long its tasks are kept, if the target said so.
    //= rfc7143 7.1.4.3 MCS-05 MCS-07 ERL-05
    pub(super) fn fail_connection(
        &mut self,
        cid: Cid,
        reason: CloseReason,
        told: Option<(Duration, Duration)>,
    ) {
        let stands = |connection: &&mut Connection| connection.state.stands();
        if self.is_closed() || self.connection(cid).filter(stands).is_none() {
            return;
        }
        let (wait, retain) = told.unwrap_or_else(|| (self.time2wait(), self.time2retain()));
        if self.is_logging_out() {
            return self.close(self.logout_reason(), wait);
        }
        if self.resets_nexus() {
            return self.nexus_was_reset();
        }
        let others = self.connections.iter().any(|c| c.cid != cid && c.state.serves());
        let revives = self.params.level().recovers_connections() && !retain.is_zero();
        // Below level 2 there is no way to know which commands a connection took with it in asymmetric use.
        let torn = self.is_asymmetric() && !self.params.level().recovers_connections();
        if torn || (!others && !revives) {
            return self.close(reason, wait);
        }
        self.counters.connections_lost += 1;
        let not_before = if reason == CloseReason::Lost { self.now + wait } else { self.now };
        self.act(Action::CloseConnection { cid, reason });
        let retained_until = self.now + wait + retain;
        let kills = !self.params.level().recovers_connections();
        // Must come before its exchanges are forgotten: those that are restarted at once must not be sent on it.
        if let Some(connection) = self.connection(cid) {
            connection.state = ConnectionState::Failed(Failure {
                wait,
                not_before,
                retained_until,
                logout: None,
                kills,
                connecting: false,
            });
            (connection.commands, connection.outstanding_bytes, connection.earned_bytes) = (0, 0, 0);
        }
        self.forget_exchanges(cid);
        if let Some(connection) = self.connection(cid) {
            (connection.keepalive, connection.text) = (None, None);
        }
        match self.is_asymmetric() {
            true => self.orphan_perhaps(cid),
            false => self.orphan_commands(cid),
        }
        self.recover_connections();
    }

    /// In asymmetric use: makes orphans of all commands that may have travelled on the connection `cid`, which is gone. These are
    /// the commands whose data was on it. Of the commands for which nothing has arrived yet, they are those sent on it, or all if
    /// it carries data, because nothing shows which connection has their data.
    fn orphan_perhaps(&mut self, cid: Cid) {
        let mut moved: Vec<(Cid, Cid, u64)> = Vec::new();
        for (_, task) in
            self.tasks.commands_mut().filter(|(_, task)| task.cmd_sn.is_some() && !task.route.orphan)
        {
            let silent = !params::carries_data(task.route.home);
            let from = task.route.cid;
            let concerned = task.route.home == cid || silent && (from == cid || params::carries_data(cid));
            if concerned {
                (task.route.orphan, task.aborting, task.route.cid) = (true, false, cid);
            } else if from == cid {
                // It continues where its data is.
                task.route.cid = task.route.home;
            }
            if concerned || from == cid {
                moved.push((from, if concerned { cid } else { task.route.home }, task.weight()));
            }
        }
        for (from, to, weight) in moved {
            if let Some(connection) = self.connection(from).filter(|connection| connection.cid != cid) {
                connection.commands -= 1;
                connection.outstanding_bytes -= weight;
            }
            if let Some(connection) = self.connection(to).filter(|connection| connection.cid != cid) {
                connection.commands += 1;
                connection.outstanding_bytes += weight;
            }
        }
    }

    /// Whether any failed connection has not been cleaned up by the target.
    pub(super) fn has_failures(&self) -> bool {
        self.failures().next().is_some()
    }

    /// The target knows that the connection `cid`, which has failed here, is gone: it can be logged out. The times are those that it told.
    //= rfc7143 11.9.1 ASY-02
    pub(super) fn known_to_target(&mut self, cid: Cid, wait: Duration, retain: Duration) {
        let now = self.now;
        if let Some(Connection { state: ConnectionState::Failed(failure), .. }) = self.connection(cid) {
            (failure.wait, failure.not_before, failure.retained_until) = (wait, now, now + wait + retain);
        }
        self.recover_connections();
    }

    /// Makes the target clean up every failed connection. A target that may not have noticed yet is given DefaultTime2Wait for that.
    //= rfc7143 13.15 ERL-05
    //= rfc7143 11.14 ERL-05 LGO-01
    pub(super) fn recover_connections(&mut self) {
        let is_waiting = |(cid, failure): &(Cid, Failure)| failure.logout.is_none() && self.cleans_up(*cid);
        let waiting: Vec<(Cid, Failure)> = self.failures().filter(is_waiting).collect();
        let Some(&(last, failure)) = waiting.last() else { return };
        let Some(via) = self.any_connection() else {
            // A session that drains takes no connection.
            if !self.is_active() {
                return;
            }
            // One at a time: the first that is back logs out those that stay away.
            if waiting.iter().all(|(_, failure)| !failure.connecting) {
                self.set_connecting(last);
                self.act(Action::Connect { cid: last, wait: failure.wait });
            }
            return;
        };
        // One that is being logged in again needs no logout: the login implies it.
        let now = self.now;
        for (cid, failure) in waiting.into_iter().filter(|(_, failure)| failure.may_log_out(now)) {
            let reason = match failure.kills {
                true => LogoutReason::CloseConnection,
                false => LogoutReason::RemoveConnectionForRecovery,
            };
            let of = LogoutOf::Failed { cid, via };
            let Ok(itt) = self.tasks.insert(Held::Logout(of)) else {
                return self.close(CloseReason::Unresponsive, self.time2wait());
            };
            let until = self.now + self.config.exchange_timeout;
            if let Some(Connection { state: ConnectionState::Failed(failure), .. }) = self.connection(cid) {
                failure.logout = Some((itt, until));
            }
            self.send_logout_request(via, itt, reason, cid);
        }
    }

    /// Whether the target is to clean up the connection `cid`, which has failed. While the session drains that is done for the sake of
    /// commands alone: those of the lost connection can go on elsewhere only afterwards.
    fn cleans_up(&self, cid: Cid) -> bool {
        let is_its_orphan = |task: &Task| task.route.orphan && task.route.cid == cid;
        self.is_active() || self.is_draining() && self.tasks.commands().any(|(_, task)| is_its_orphan(task))
    }

    /// The caller is to connect `cid` again.
    fn set_connecting(&mut self, cid: Cid) {
        if let Some(Connection { state: ConnectionState::Failed(failure), .. }) = self.connection(cid) {
            failure.connecting = true;
        }
    }

    /// A connection has joined.
    fn connecting_is_over(&mut self) {
        for connection in &mut self.connections {
            if let ConnectionState::Failed(failure) = &mut connection.state {
                failure.connecting = false;
            }
        }
    }

    fn failures(&self) -> impl Iterator<Item = (Cid, Failure)> {
        self.connections.iter().filter_map(|connection| match connection.state {
            ConnectionState::Failed(failure) => Some((connection.cid, failure)),
            _ => None,
        })
    }

    /// Logs one connection out: it completes its commands first, then leaves. The last connection cannot leave this way; use
    /// [`InitiatorSession::logout`]. Returns false when the connection cannot leave.
    //= rfc7143 11.14 LGO-01
    pub fn logout_connection(&mut self, now: Time, cid: Cid) -> bool {
        self.now = now;
        // In asymmetric use the target may have chosen it for any command.
        let others = !self.is_asymmetric()
            && self.connections.iter().any(|c| c.cid != cid && c.state == ConnectionState::Up);
        let patience = now + self.config.exchange_timeout;
        match self.connection(cid) {
            Some(connection) if others && connection.state == ConnectionState::Up => {
                connection.state = ConnectionState::Draining(patience);
                self.pump();
                true
            }
            _ => false,
        }
    }

    /// Sends the logouts of draining connections that have no commands left, or no time.
    pub(super) fn leave_drained(&mut self) {
        let now = self.now;
        let due = |connection: &&Connection| match connection.state {
            ConnectionState::Draining(at) => connection.commands == 0 || at <= now,
            _ => false,
        };
        let due: Vec<Cid> = self.connections.iter().filter(due).map(|connection| connection.cid).collect();
        for cid in due {
            let Ok(itt) = self.tasks.insert(Held::Logout(LogoutOf::Connection(cid))) else { return };
            let until = now + self.config.exchange_timeout;
            self.send_logout_request(cid, itt, LogoutReason::CloseConnection, cid);
            if let Some(connection) = self.connection(cid) {
                connection.state = ConnectionState::LoggingOut(until);
            }
        }
    }

    pub(super) fn send_logout_request(&mut self, via: Cid, itt: Itt, reason: LogoutReason, cid: Cid) {
        let request = LogoutRequest {
            immediate: true,
            reason,
            itt,
            cid,
            cmd_sn: self.window.current(),
            exp_stat_sn: self.exp_stat_sn(via),
        };
        self.send(via, request.to_bhs());
    }

    //= rfc7143 11.15 LGO-01 ERL-05
    pub(super) fn handle_logout_response(
        &mut self,
        cid: Cid,
        pdu: &LogoutResponse,
    ) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        if !self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let Some(&mut Held::Logout(of)) = self.tasks.held(pdu.itt) else {
            return self.late(pdu.itt, "RFC 7143 11.15", "an answer to a logout that was not asked for");
        };
        self.tasks.remove(pdu.itt);
        let wait = match pdu.response {
            LogoutResponseCode::Success => told_seconds(pdu.time2wait),
            // There is no connection to wait for.
            LogoutResponseCode::CidNotFound => Duration::ZERO,
            _ => self.time2wait(),
        };
        match of {
            LogoutOf::Session => self.close(self.logout_reason(), wait),
            LogoutOf::Connection(gone) => {
                self.act(Action::CloseConnection { cid: gone, reason: CloseReason::LoggedOut });
                self.orphan_commands(gone);
                self.connections.retain(|connection| connection.cid != gone);
                self.let_go(gone, Duration::ZERO, true);
                self.act(Action::Connect { cid: gone, wait });
            }
            LogoutOf::Failed { cid: gone, .. } => self.failed_logged_out(gone, pdu.response, wait)?,
        }
        Ok(())
    }

    fn failed_logged_out(
        &mut self,
        cid: Cid,
        response: LogoutResponseCode,
        wait: Duration,
    ) -> Result<(), CloseReason> {
        let Some(Connection { state: ConnectionState::Failed(failure), .. }) = self.connection(cid) else {
            return Ok(());
        };
        match response {
            LogoutResponseCode::Success | LogoutResponseCode::CidNotFound => {
                let kills = failure.kills;
                self.connections.retain(|connection| connection.cid != cid);
                self.let_go(cid, wait, kills);
                self.act(Action::Connect { cid, wait });
            }
            // The target cannot keep the tasks: closes the connection instead.
            LogoutResponseCode::RecoveryNotSupported if !failure.kills => {
                (failure.kills, failure.logout) = (true, None);
                self.recover_connections();
            }
            LogoutResponseCode::RecoveryNotSupported | LogoutResponseCode::CleanupFailed => {
                return Err(violation("RFC 7143 11.15.1", "the target cannot clean up a failed connection"));
            }
        }
        Ok(())
    }

    /// Exchanges other than commands die with their connection.
    //= rfc7143 7.14 ERL-09
    fn forget_exchanges(&mut self, cid: Cid) {
        for itt in self.tasks.exchanges(cid) {
            match self.tasks.remove(itt) {
                Held::Ping(ping) => {
                    if let Some(user) = ping.user {
                        let round_trip = self.now.saturating_sub(ping.sent_at);
                        self.act(Action::Pong { user, intact: false, round_trip });
                    }
                }
                Held::Text { .. } => {
                    let text = self.connection(cid).and_then(|connection| connection.text.take());
                    if text.is_some_and(|text| text.wants_targets()) {
                        self.act(Action::TextRefused(None));
                    }
                }
                Held::Logout(LogoutOf::Failed { cid: gone, .. }) => {
                    if let Some(Connection { state: ConnectionState::Failed(failure), .. }) =
                        self.connection(gone)
                    {
                        failure.logout = None;
                    }
                }
                Held::Management(management) => self.management_lost(&management),
                _ => {}
            }
        }
    }

    /// When something is due for a connection.
    pub(super) fn connections_due(&self) -> Option<Time> {
        let mut due = None;
        for connection in &self.connections {
            let own = match connection.state {
                ConnectionState::Up => None,
                ConnectionState::Draining(at) | ConnectionState::LoggingOut(at) => Some(at),
                ConnectionState::Failed(failure) => match failure.logout {
                    Some((_, until)) => Some(until),
                    None if self.any_connection().is_none() => Some(failure.retained_until),
                    None => failure.may_log_out_at().filter(|_| self.cleans_up(connection.cid)),
                },
            };
            let text = connection.text.as_ref().map(TextExchange::deadline);
            due = earlier(due, earlier(own, earlier(self.ping_due(connection), text)));
        }
        earlier(due, self.roll_call_due())
    }

    /// Does what is due for connections.
    //= rfc7143 8.2 SES-04
    pub(super) fn connections_on_time(&mut self) {
        let now = self.now;
        let alive = self.any_connection().is_some();
        let mut failing: Vec<(Cid, CloseReason)> = Vec::new();
        let mut pings: Vec<Cid> = Vec::new();
        let (mut over, mut recovers) = (None, false);
        for connection in &self.connections {
            match connection.state {
                ConnectionState::LoggingOut(at) if at <= now => {
                    failing.push((connection.cid, CloseReason::Silent))
                }
                ConnectionState::Failed(failure) => match failure.logout {
                    Some((_, until)) if until <= now => over = Some(CloseReason::Unresponsive),
                    None if !alive && failure.retained_until <= now => over = Some(CloseReason::Lost),
                    None => recovers |= alive && failure.may_log_out(now),
                    _ => {}
                },
                _ => {}
            }
            if connection.text.as_ref().is_some_and(|text| text.deadline() <= now) {
                over = Some(CloseReason::Unresponsive);
            }
            //= rfc7143 10.3 PDU-09 ERL-11
            if self.ping_due(connection).is_some_and(|at| at <= now) {
                match connection.keepalive {
                    Some(_) => failing.push((connection.cid, CloseReason::Silent)),
                    None => pings.push(connection.cid),
                }
            }
        }
        if let Some(reason) = over {
            return self.close(reason, self.time2wait());
        }
        for cid in pings {
            self.send_keepalive(cid);
        }
        for (cid, reason) in failing {
            self.fail_connection(cid, reason, None);
        }
        if recovers {
            self.recover_connections();
        }
        if self.roll_call_due().is_some_and(|at| at <= now) {
            self.roll_call_on_time();
        }
    }

    fn ping_due(&self, connection: &Connection) -> Option<Time> {
        if self.config.ping_interval.is_zero() || !connection.state.serves() {
            return None;
        }
        let grace = if connection.keepalive.is_some() { self.config.ping_timeout } else { Duration::ZERO };
        Some(connection.heard.pdu + self.config.ping_interval + grace)
    }

    /// Records a StatSN that was taken; false when it has been seen before.
    //= rfc7143 4.2.2.2 NUM-09 NUM-10 ERL-03
    pub(super) fn take_stat_sn(&mut self, cid: Cid, stat_sn: StatSn) -> Result<bool, CloseReason> {
        if self.connection(cid).is_some_and(|connection| connection.statuses.take_next(stat_sn)) {
            return Ok(true);
        }
        let fresh = self.see_stat_sn(cid, stat_sn)?;
        if fresh && let Some(connection) = self.connection(cid) {
            connection.statuses.settle(stat_sn);
        }
        Ok(fresh)
    }
}
