//! Logout: of the session, of one of its connections, and for recovery (RFC 7143 11.14, 11.15, 7.1.4.4).

use iscsi_wire::{Cid, Itt, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode};
use smallvec::SmallVec;

use super::aborts::{AbortWait, Then};
use super::actions::{Action, CloseReason};
use super::connection::{Loss, TIME2WAIT_TO_REASSIGN_S};
use super::session::TargetSession;
use super::task::TaskId;

impl TargetSession {
    /// Runs a logout in its turn.
    //= rfc7143 11.14 LGO-01 LGO-02 LGO-04 MCS-04
    pub(super) fn handle_logout(&mut self, cid: Cid, request: &LogoutRequest) {
        let known = self.connection(request.cid).is_some();
        match request.reason {
            LogoutReason::CloseSession => self.log_out(cid, request.itt, None),
            LogoutReason::CloseConnection if known => {
                let last = self.connections.iter().all(|c| c.cid == request.cid);
                self.log_out(cid, request.itt, (!last).then_some(request.cid));
            }
            LogoutReason::CloseConnection if self.forget_lost(request.cid) => {
                self.answer_logout(cid, request.itt, LogoutResponseCode::Success);
            }
            //= rfc7143 11.14 ERL-05
            LogoutReason::RemoveConnectionForRecovery if !self.params.level().recovers_connections() => {
                self.answer_logout(cid, request.itt, LogoutResponseCode::RecoveryNotSupported);
            }
            LogoutReason::RemoveConnectionForRecovery => self.log_out_for_recovery(cid, request),
            LogoutReason::CloseConnection => {
                self.answer_logout(cid, request.itt, LogoutResponseCode::CidNotFound);
            }
        }
    }

    /// Aborts the tasks of a connection, or of all, then answers and closes.
    fn log_out(&mut self, cid: Cid, itt: Itt, only: Option<Cid>) {
        let doomed: SmallVec<[TaskId; 16]> = self
            .tasks
            .iter()
            .filter(|(_, task)| only.is_none_or(|only| task.home() == Some(only)))
            .map(|(id, _)| id)
            .collect();
        let mut wait = AbortWait::new(Then::AnswerLogout { to: Some((cid, itt)), only });
        self.abort_each(doomed, &mut wait);
        for connection in &mut self.connections {
            connection.closing |= only.is_none_or(|only| connection.cid == only);
        }
        match only {
            None => wait.set_tasks(self.tasks.leaving_of(None)),
            // Tasks that an earlier logout of the same connection waits for are not gone either.
            Some(only) => self.aborts.tasks_before_close(only).for_each(|task| wait.add_task(task)),
        }
        wait.ignore_owed_data();
        self.wait_for(wait);
    }

    /// The device server has released the tasks that the logout aborted.
    pub(super) fn finish_logout(&mut self, to: Option<(Cid, Itt)>, only: Option<Cid>) {
        if let Some((cid, itt)) = to {
            self.answer_logout(cid, itt, LogoutResponseCode::Success);
        }
        match only {
            None => self.close_session(CloseReason::Logout),
            // Meanwhile a login may have replaced it with another connection.
            Some(cid) if self.connection(cid).is_some_and(|connection| connection.closing) => {
                self.lose_connection(cid, CloseReason::Logout);
            }
            Some(_) => {}
        }
    }

    /// The tasks of the connection stay, to be reassigned. Its data and status stop at once.
    //= rfc7143 11.14 ERL-05
    fn log_out_for_recovery(&mut self, cid: Cid, request: &LogoutRequest) {
        let code = if let Some(lost) = self.lost.iter_mut().find(|lost| lost.cid == request.cid)
            && self.connections.iter().all(|c| c.cid != request.cid)
        {
            lost.logged_out = true;
            LogoutResponseCode::Success
        } else if self.connection(request.cid).is_some_and(|c| !c.closing) {
            LogoutResponseCode::Success
        } else {
            LogoutResponseCode::CidNotFound
        };
        let drops = code == LogoutResponseCode::Success && self.connection(request.cid).is_some();
        let own = request.cid == cid;
        if own {
            self.answer_logout_after(cid, request.itt, code, TIME2WAIT_TO_REASSIGN_S);
        }
        if drops {
            self.act(Action::Close { cid: request.cid, reason: CloseReason::Logout });
            self.forget_connection(request.cid, Loss::Recovery);
        }
        // The time to reassign starts with the answer.
        let deadline = self.now + self.time_to_recover();
        if let Some(lost) = self.lost.iter_mut().find(|lost| lost.cid == request.cid) {
            lost.deadline = deadline;
        }
        if !own {
            self.answer_logout_after(cid, request.itt, code, TIME2WAIT_TO_REASSIGN_S);
        }
    }

    fn answer_logout(&mut self, cid: Cid, itt: Itt, response: LogoutResponseCode) {
        self.answer_logout_after(cid, itt, response, self.params.default_time2wait_s);
    }

    /// `time2wait`: seconds until the initiator may reassign tasks, or try again.
    //= rfc7143 11.15.3 ERL-05
    fn answer_logout_after(&mut self, cid: Cid, itt: Itt, response: LogoutResponseCode, time2wait: u16) {
        let time2retain = self.params.default_time2retain_s;
        self.bhs_pdu(cid, |n| LogoutResponse { response, itt, numbers: n, time2wait, time2retain }.to_bhs());
    }
}
