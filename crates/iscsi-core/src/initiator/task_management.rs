//! Task management: functions that the caller requests, and commands that take too long: first ABORT TASK, then LOGICAL UNIT
//! RESET, then the session is dropped (RFC 7143 7.11, 11.5, 11.6; RFC 7144 6).
//!
//! One function of the latter kind is under way at a time, because a target need not accept more (RFC 7143 4.2.2.1). A task keeps
//! its tag, and continues to answer R2Ts, until the target has reported its end.

use iscsi_wire::{
    Cid, CmdSn, DataSn, Itt, Lun, TaskManagementRequest, TaskManagementResponse, TmfFunction, TmfResponse,
};

use super::actions::{Action, CloseReason, ManagementAnswer};
use super::command::{Completion, Ending};
use super::managing::Deferred;
use super::session::InitiatorSession;
use super::task::{Held, Management, Task, Wanted};
use crate::{Time, earlier};

impl InitiatorSession {
    /// Requests a task management function for a logical unit, the target or the nexus on behalf of the caller; ends with
    /// [`Action::Managed`]. It affects the commands sent before it: these have ended when it is complete, later ones continue.
    /// Functions that name a command belong to [`InitiatorSession::manage_task`]; here they get no answer.
    //= rfc7143 4.2.3.3 TMF-05
    pub fn manage(&mut self, now: Time, function: TmfFunction, lun: Lun, user: u64) {
        self.now = now;
        if names_task(function) {
            return self.act(Action::Managed { user, answer: None });
        }
        self.begin_management(function, lun, None, Wanted::Caller(user));
    }

    /// Requests ABORT TASK or QUERY TASK for the command that the caller calls `of`; ends with [`Action::Managed`]. A command
    /// whose connection is gone is settled first. No request is sent for a command that was never sent, which an ABORT TASK ends
    /// here, or that no longer exists: the answer is then the one that the target would give.
    //= rfc7143 11.5.1 TMF-01 TMF-04
    pub fn manage_task(&mut self, now: Time, function: TmfFunction, of: u64, user: u64) {
        self.now = now;
        if !matches!(function, TmfFunction::AbortTask | TmfFunction::QueryTask) {
            return self.act(Action::Managed { user, answer: None });
        }
        let aborts = function == TmfFunction::AbortTask;
        let found = self.tasks.commands().find(|(_, task)| task.command.user == of);
        let found = found.map(|(itt, task)| (itt, task.command.lun, task.cmd_sn, task.route.orphan));
        let response = match found {
            Some((_, _, Some(_), true)) if self.managing.may_defer() => {
                return self.managing.defer(Deferred { function, of, user });
            }
            Some((_, _, Some(_), true)) => TmfResponse::FunctionRejected,
            Some((itt, lun, Some(cmd_sn), false)) => {
                return self.begin_management(function, lun, Some((itt, cmd_sn)), Wanted::Caller(user));
            }
            Some((itt, _, None, _)) => {
                if aborts {
                    self.withdraw(itt, Ending::Aborted);
                }
                TmfResponse::FunctionComplete
            }
            None if aborts => TmfResponse::TaskDoesNotExist,
            None => TmfResponse::FunctionComplete,
        };
        let answer = Some(ManagementAnswer { response, additional: [0; 3] });
        self.act(Action::Managed { user, answer });
    }

    /// Starts the functions that waited for their command to be settled.
    pub(super) fn manage_deferred(&mut self) {
        for Deferred { function, of, user } in self.managing.take_deferred() {
            // Those that still must wait go to the end.
            self.manage_task(self.now, function, of, user);
        }
    }

    /// The caller's names for the functions under way. For a session that is over: they get no answer.
    pub fn unanswered(&mut self) -> Vec<u64> {
        let deferred = self.managing.take_deferred().into_iter().map(|deferred| deferred.user);
        let under_way = self.tasks.managements().filter_map(|(_, management)| match management.wanted {
            Wanted::Caller(user) => Some(user),
            _ => None,
        });
        under_way.chain(deferred).collect()
    }

    /// Ends a command that was never sent.
    fn withdraw(&mut self, itt: Itt, ending: Ending) {
        self.commands.withdraw(itt);
        if let Held::Command(task) = self.tasks.remove(itt) {
            self.act(Action::Completed(Completion { command: task.command, ending }));
        }
    }

    /// When the first of the functions under way has taken too long.
    pub(super) fn management_due(&self) -> Option<Time> {
        match self.managing.under_way() + self.settling.under_way() {
            0 => None,
            _ => self.tasks.managements().map(|(_, management)| management.deadline).min(),
        }
    }

    /// Handles what is overdue.
    //= rfc7143 7.11 TMF-10
    pub(super) fn expire(&mut self, now: Time) {
        if self.management_due().is_some_and(|at| at <= now) {
            let due: Vec<Itt> =
                self.tasks.managements().filter(|(_, m)| m.deadline <= now).map(|(itt, _)| itt).collect();
            for itt in due {
                self.management_failed(itt, None);
            }
        }
        if self.is_overdue(now) {
            self.abort_overdue();
        }
    }

    /// Ends overdue commands that were never sent, and starts to abort one that was.
    fn abort_overdue(&mut self) {
        let now = self.now;
        let (mut unsent, mut probes, mut next) = (Vec::new(), Vec::new(), None);
        let mut overdue: Option<(Time, Itt, Lun, Option<CmdSn>)> = None;
        for (itt, task) in self.tasks.commands() {
            if task.route.orphan {
                // Its timeout restarts when it is settled.
                continue;
            }
            match task.times.probe_at {
                Some(at) if at <= now => probes.push(itt),
                at => next = earlier(next, at),
            }
            match task.times.deadline {
                Some(at) if at > now => next = earlier(next, Some(at)),
                Some(_) if task.cmd_sn.is_none() => unsent.push(itt),
                Some(at) if !task.aborting => {
                    // Of several with the same deadline, the oldest.
                    let first = overdue.is_none_or(|(earliest, .., cmd_sn)| {
                        let older = || task.cmd_sn.zip(cmd_sn).is_some_and(|(this, that)| this.lt(that));
                        at < earliest || (at == earliest && older())
                    });
                    if first {
                        overdue = Some((at, itt, task.command.lun, task.cmd_sn));
                    }
                }
                _ => {}
            }
        }
        self.set_deadline(next);
        for itt in probes {
            if let Some(task) = self.tasks.command(itt) {
                task.times.probe_at = None;
            }
            self.probe(itt);
        }
        for itt in unsent {
            self.withdraw(itt, Ending::TimedOut);
        }
        // The others wait until this one is settled; `management_over` calls this function again.
        if let Some((_, itt, lun, Some(cmd_sn))) = overdue
            && self.managing.is_idle()
        {
            self.abort(itt, lun, cmd_sn);
        }
    }

    /// Starts to abort a command that was sent.
    //= rfc7143 11.5 TMF-04
    pub(super) fn abort(&mut self, itt: Itt, lun: Lun, cmd_sn: CmdSn) {
        if let Some(task) = self.tasks.command(itt) {
            task.aborting = true;
        }
        self.begin_management(TmfFunction::AbortTask, lun, Some((itt, cmd_sn)), Wanted::Recovery);
    }

    /// Starts a function: one that names a command on the connection of that command, others on any.
    //= rfc7143 11.5 TMF-04 P2-02 P2-03
    pub(super) fn begin_management(
        &mut self,
        function: TmfFunction,
        lun: Lun,
        referenced: Option<(Itt, CmdSn)>,
        wanted: Wanted,
    ) {
        let of_task = referenced.and_then(|(itt, _)| self.tasks.task(itt)).filter(|task| !task.route.orphan);
        let cid = of_task.map(|task| task.route.cid).or_else(|| self.any_connection());
        //= rfc7144 4.1 P2-02
        let known = !function.is_level_2() || self.params.protocol_level >= 2;
        let (referenced, ref_cmd_sn) = referenced.unwrap_or((Itt::RESERVED, CmdSn(0)));
        let deadline = self.now + self.config.management_timeout;
        match (cid.filter(|_| known && !self.is_closed()), wanted) {
            (Some(cid), _) => self.begin(Management {
                function,
                lun,
                cid,
                referenced,
                ref_cmd_sn,
                cmd_sn: self.window.current(),
                exp_data_sn: 0,
                deadline,
                wanted,
                resends: 0,
            }),
            (None, Wanted::Caller(user)) => {
                self.act(Action::Managed { user, answer: None });
            }
            // There is no connection to send it on; the recovery of the connection comes first.
            (None, _) => {}
        }
    }

    pub(super) fn begin(&mut self, management: Management) {
        match self.tasks.insert(Held::Management(management)) {
            Ok(itt) => {
                if management.wanted != Wanted::Settle {
                    self.managing.begin();
                }
                self.send_management(itt, &management);
            }
            Err(_) => self.close(CloseReason::Unresponsive, self.time2wait()),
        }
    }

    //= rfc7143 4.2.2.1 NUM-01
    pub(super) fn send_management(&mut self, itt: Itt, management: &Management) {
        let request = TaskManagementRequest {
            immediate: true,
            function: management.function,
            lun: management.lun,
            itt,
            referenced_task_tag: management.referenced,
            cmd_sn: management.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(management.cid),
            ref_cmd_sn: management.ref_cmd_sn,
            exp_data_sn: DataSn(management.exp_data_sn),
        };
        self.send(management.cid, request.to_bhs());
    }

    pub(super) fn handle_management_response(
        &mut self,
        cid: Cid,
        pdu: &TaskManagementResponse,
    ) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        if !self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let Some(&mut Held::Management(management)) = self.tasks.held(pdu.itt) else {
            return self.late(pdu.itt, "RFC 7143 11.6", "an answer to a task management function");
        };
        if management.wanted == Wanted::Settle {
            self.tasks.remove(pdu.itt);
            self.settled(&management, Some(pdu.response));
            return Ok(());
        }
        if let Wanted::Caller(user) = management.wanted {
            self.tasks.remove(pdu.itt);
            self.managing.end();
            // If the target says that the task does not exist, all its PDUs have already arrived, except those that we know to be
            // missing and those on another connection.
            let holes = |session: &mut Self| session.connection(cid).is_some_and(|c| c.statuses.has_holes());
            let gone = management.function == TmfFunction::AbortTask
                && pdu.response == TmfResponse::TaskDoesNotExist
                && !self.is_asymmetric()
                && !holes(self);
            let complete = pdu.response == TmfResponse::FunctionComplete;
            if complete || gone {
                self.end_tasks_of(&management);
            }
            // After the commands that it has ended, and before the session that it may end.
            let answer = ManagementAnswer { response: pdu.response, additional: pdu.additional };
            self.act(Action::Managed { user, answer: Some(answer) });
            if complete && management.function == TmfFunction::ITNexusReset {
                self.nexus_was_reset();
            }
            self.management_over();
            return Ok(());
        }
        let settled = match management.function {
            // "Does not exist" settles it too: every PDU of the task arrived before this answer.
            TmfFunction::AbortTask => {
                matches!(pdu.response, TmfResponse::FunctionComplete | TmfResponse::TaskDoesNotExist)
            }
            _ => pdu.response == TmfResponse::FunctionComplete,
        };
        if !settled {
            self.management_failed(pdu.itt, Some(pdu.response));
            return Ok(());
        }
        self.tasks.remove(pdu.itt);
        self.managing.end();
        self.end_tasks_of(&management);
        self.management_over();
        Ok(())
    }

    /// Whether a function is under way whose completion ends the task `itt`.
    pub(super) fn is_being_ended(&self, itt: Itt) -> bool {
        let Some(task) = self.tasks.task(itt).filter(|_| !self.managing.is_idle()) else { return false };
        self.tasks.managements().any(|(_, m)| m.wanted != Wanted::Settle && m.ends(itt, task))
    }

    /// Ends the commands that a completed function aborted.
    fn end_tasks_of(&mut self, management: &Management) {
        let late = |task: &Task| match management.function {
            TmfFunction::AbortTask => management.wanted == Wanted::Recovery,
            _ => task.aborting,
        };
        let ending = |task: &Task| if late(task) { Ending::TimedOut } else { Ending::Aborted };
        let ended = self.tasks.commands().filter(|(itt, task)| management.ends(*itt, task));
        let ended: Vec<(Itt, Ending)> = ended.map(|(itt, task)| (itt, ending(task))).collect();
        for (itt, ending) in ended {
            self.complete(itt, ending);
        }
    }

    /// A function failed: takes the next harsher measure.
    //= rfc7143 7.11 TMF-10
    pub(super) fn management_failed(&mut self, itt: Itt, response: Option<TmfResponse>) {
        let Held::Management(management) = self.tasks.remove(itt) else { return };
        if management.wanted == Wanted::Settle {
            // If a target does not answer these, only the end of the session is left.
            self.settling.one_ended();
            return self.close(CloseReason::Unresponsive, self.time2wait());
        }
        self.managing.end();
        match (management.wanted, management.function) {
            (Wanted::Caller(user), _) => {
                let answer = response.map(|response| ManagementAnswer { response, additional: [0; 3] });
                self.act(Action::Managed { user, answer });
                self.management_over();
            }
            (Wanted::Recovery, TmfFunction::AbortTask) => {
                // The command may have completed meanwhile.
                match self.tasks.command(management.referenced).is_some() {
                    true => self.begin_management(
                        TmfFunction::LogicalUnitReset,
                        management.lun,
                        None,
                        Wanted::Recovery,
                    ),
                    false => self.management_over(),
                }
            }
            (Wanted::Recovery | Wanted::Settle, _) => self.close(CloseReason::Unresponsive, self.time2wait()),
        }
    }

    /// The function under way has ended: aborts the next overdue command, if any.
    fn management_over(&mut self) {
        if self.managing.is_idle() {
            self.abort_overdue();
        }
    }

    /// A function under way was lost with its connection.
    //= rfc7143 7.14 ERL-09
    pub(super) fn management_lost(&mut self, management: &Management) {
        if management.wanted == Wanted::Settle {
            return self.settled(management, None);
        }
        self.managing.end();
        if let Wanted::Caller(user) = management.wanted {
            match self.tasks.task(management.referenced) {
                // It is requested again once its command has been settled.
                Some(task) if self.managing.may_defer() => {
                    let (function, of) = (management.function, task.command.user);
                    self.managing.defer(Deferred { function, of, user });
                }
                _ => self.act(Action::Managed { user, answer: None }),
            }
        }
        // The commands concerned are checked again when their connection has been recovered.
        for (_, task) in self.tasks.commands_mut() {
            task.aborting = false;
        }
        self.expect_by(Some(self.now));
    }

    /// Whether an I_T NEXUS RESET is under way: then the loss of a connection is its answer.
    //= rfc7144 6.3 P2-05
    pub(super) fn resets_nexus(&self) -> bool {
        !self.managing.is_idle()
            && self.tasks.managements().any(|(_, m)| m.function == TmfFunction::ITNexusReset)
    }

    /// The nexus was reset, whether or not the answer arrived: its tasks are dead, and the target drops every connection.
    //= rfc7144 6.3 P2-05
    pub(super) fn nexus_was_reset(&mut self) {
        let under_way: Vec<Itt> = self.tasks.managements().map(|(itt, _)| itt).collect();
        for itt in under_way {
            if let Held::Management(management) = self.tasks.remove(itt)
                && let Wanted::Caller(user) = management.wanted
            {
                self.act(Action::Managed { user, answer: None });
            }
        }
        self.managing.clear();
        self.settling.clear();
        let sent = self.tasks.commands().filter(|(_, task)| task.cmd_sn.is_some());
        let sent: Vec<Itt> = sent.map(|(itt, _)| itt).collect();
        for itt in sent {
            self.complete(itt, Ending::Aborted);
        }
        self.close(CloseReason::NexusReset, self.time2wait());
    }
}

/// Whether a function names a single command.
fn names_task(function: TmfFunction) -> bool {
    matches!(function, TmfFunction::AbortTask | TmfFunction::TaskReassign | TmfFunction::QueryTask)
}
