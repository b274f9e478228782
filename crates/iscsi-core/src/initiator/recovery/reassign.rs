//! What happens to the tasks of a connection that is gone, once the target has cleaned it up (RFC 7143 7.1.4.3, 7.2, 11.5).
//!
//! | the target | the command | action |
//! |---|---|---|
//! | keeps the tasks (level 2) | any | TASK REASSIGN to another connection, where it continues |
//! | keeps them, does not know this one | never acknowledged | sent again with the same CmdSN: it fills its hole |
//! | keeps none, or has lost this one | acknowledged | started again, if it may be executed twice; otherwise it ends as unknown |
//! | keeps none | never acknowledged | ABORT TASK fills its hole; then it is started again: it cannot have been executed |
//!
//! In asymmetric use the data of a task travels on a connection with an odd CID, which the target chooses. If nothing has arrived
//! for a task, it may have been on any lost one of these, or still on its way on the connection with an even CID on which it was
//! sent. A TASK REASSIGN is sent for it too, and it continues where it is if the target answers "task still allegiant".
//!
//! A few functions are under way at a time ([`MAX_SETTLING`](crate::limits::MAX_SETTLING)); commands are settled in the order of
//! their CmdSN. A task that another function is about to end waits for the answer to that function: started again meanwhile, it
//! would outlive it.

use std::time::Duration;

use iscsi_wire::{Cid, Itt, TmfFunction, TmfResponse};

use super::super::actions::{Action, CloseReason};
use super::super::command::{Completion, Ending};
use super::super::session::InitiatorSession;
use super::super::task::{Held, Management, Wanted};
use super::settlement::Settling;
use crate::Time;
use crate::limits::MAX_RESENDS;

/// Pause before repeating a request to a target that still holds a task for its old connection.
const ALLEGIANCE_PAUSE: Duration = Duration::from_millis(200);

impl InitiatorSession {
    /// The target has cleaned up the connection `cid`; its tasks may be settled after `wait`.
    //= rfc7143 11.15.3 ERL-05 ERL-06
    pub(in super::super) fn let_go(&mut self, cid: Cid, wait: Duration, kills: bool) {
        let first = self.window.current().0.wrapping_sub(1 << 31);
        let mut tasks: Vec<(u32, Itt)> = self
            .tasks
            .commands()
            .filter(|(_, task)| task.route.orphan && task.route.cid == cid)
            .filter_map(|(itt, task)| Some((task.cmd_sn?.0.wrapping_sub(first), itt)))
            .filter(|(_, itt)| !self.settling.contains(*itt))
            .collect();
        tasks.sort_unstable();
        let not_before = self.now + wait;
        tasks.into_iter().for_each(|(_, itt)| self.settling.add(Settling { itt, kills, not_before }));
        self.settle();
    }

    /// Makes orphans of the commands sent on the connection `cid`.
    pub(in super::super) fn orphan_commands(&mut self, cid: Cid) {
        let sent =
            self.tasks.commands_mut().filter(|(_, task)| task.route.cid == cid && task.cmd_sn.is_some());
        for (_, task) in sent {
            (task.route.orphan, task.aborting) = (true, false);
        }
    }

    #[inline]
    pub(super) fn settle_due(&self) -> Option<Time> {
        // Called for every PDU, and there is hardly ever a task to settle.
        if self.settling.is_empty() {
            return None;
        }
        let first = self.next_to_settle().filter(|_| self.settling.may_begin())?;
        // Without a connection nothing can be done at that time; a connection that joins settles the tasks.
        match self.is_asymmetric() {
            true => self.data_connection()?,
            false => self.any_connection()?,
        };
        Some(first.not_before)
    }

    /// Starts to settle tasks, as many as may be under way at a time.
    pub(in super::super) fn settle(&mut self) {
        self.settle_next();
        self.manage_deferred();
    }

    fn settle_next(&mut self) {
        while self.settling.may_begin() && !self.is_closed() {
            let Some(next) = self.next_to_settle() else { return };
            let Some(cid) = self.settling_connection() else { return };
            if next.not_before > self.now {
                return;
            }
            self.settling.take(next.itt);
            let Some(task) = self.tasks.task(next.itt).filter(|task| task.route.orphan) else { continue };
            let Some(cmd_sn) = task.cmd_sn else { continue };
            // ExpDataSN has a meaning for reads only.
            let exp_data_sn = if task.command.read_length > 0 { task.next_data_sn } else { 0 };
            match (next.kills, self.window.is_acknowledged(cmd_sn)) {
                (true, true) => self.begin_anew(next.itt, true),
                (true, false) => self.settle_by(TmfFunction::AbortTask, cid, &next, 0),
                (false, _) => self.settle_by(TmfFunction::TaskReassign, cid, &next, exp_data_sn),
            }
        }
    }

    /// The first task to settle that no function under way is about to end.
    fn next_to_settle(&self) -> Option<Settling> {
        self.settling.next(|itt| !self.is_being_ended(itt))
    }

    /// The connection for the function that settles a task, where the task then continues.
    fn settling_connection(&mut self) -> Option<Cid> {
        if self.is_asymmetric() {
            return self.data_connection();
        }
        self.next_connection(0).or_else(|| self.any_connection())
    }

    fn settle_by(&mut self, function: TmfFunction, cid: Cid, settling: &Settling, exp_data_sn: u32) {
        let Some(task) = self.tasks.command(settling.itt) else { return };
        let Some(ref_cmd_sn) = task.cmd_sn else { return };
        let management = Management {
            function,
            lun: task.command.lun,
            cid,
            referenced: settling.itt,
            ref_cmd_sn,
            cmd_sn: self.window.current(),
            exp_data_sn,
            deadline: self.now + self.config.management_timeout,
            wanted: Wanted::Settle,
            resends: 0,
        };
        self.settling.one_begins();
        self.begin(management);
    }

    /// The answer to a function that settles a task; `None` when it was lost with its connection.
    //= rfc7143 11.6.1 ERL-06 MCS-07
    pub(in super::super) fn settled(&mut self, management: &Management, response: Option<TmfResponse>) {
        self.settling.one_ended();
        let itt = management.referenced;
        let again = |kills, not_before| Settling { itt, kills, not_before };
        let now = self.now;
        let stays = self.is_asymmetric() && !self.has_failures();
        let being_ended = self.is_being_ended(itt);
        let Some(task) = self.tasks.command(itt).filter(|task| task.route.orphan) else { return };
        match (management.function, response) {
            (TmfFunction::TaskReassign, Some(TmfResponse::FunctionComplete)) => {
                self.reassigned(itt, management.cid)
            }
            (TmfFunction::TaskReassign, Some(TmfResponse::TaskDoesNotExist)) if being_ended => {
                self.settling.add(again(false, now));
            }
            (TmfFunction::TaskReassign, Some(TmfResponse::TaskDoesNotExist)) => {
                match self.window.is_acknowledged(management.ref_cmd_sn) {
                    true => self.begin_anew(itt, true),
                    false if self.is_asymmetric() => match self.next_connection(0) {
                        Some(commands) => self.send_again(itt, commands),
                        None => self.settling.add(again(false, now + ALLEGIANCE_PAUSE)),
                    },
                    false => self.send_again(itt, management.cid),
                }
            }
            // In asymmetric use it was an orphan only by suspicion: its data travels on a connection that works.
            (TmfFunction::TaskReassign, Some(TmfResponse::TaskStillAllegiant)) if stays => {
                let commands = self.next_connection(0).unwrap_or(management.cid);
                let due = self.renew(itt, commands);
                self.expect_by(due);
            }
            (TmfFunction::TaskReassign, Some(TmfResponse::TaskStillAllegiant))
                if task.resends < MAX_RESENDS =>
            {
                task.resends += 1;
                self.settling.add_first(again(false, now + ALLEGIANCE_PAUSE));
            }
            (TmfFunction::TaskReassign, Some(_)) => self.settling.add_first(again(true, now)),
            (TmfFunction::AbortTask, Some(TmfResponse::FunctionComplete | TmfResponse::TaskDoesNotExist)) => {
                self.begin_anew(itt, false);
            }
            (function, None) => {
                self.settling.add_first(again(function == TmfFunction::AbortTask, now));
            }
            _ => self.close(CloseReason::Unresponsive, self.time2wait()),
        }
        self.settle();
    }

    /// The command continues on the connection `cid`.
    //= rfc7143 7.2.2 ERL-06 ERL-10
    fn reassigned(&mut self, itt: Itt, cid: Cid) {
        self.counters.tasks_reassigned += 1;
        let renewed = self.renew(itt, cid);
        let Some(task) = self.tasks.command(itt) else { return };
        // Data that ExpDataSN did not acknowledge is sent again.
        task.holes = None;
        task.route.reassigned = true;
        self.missing.forget(itt);
        self.expect_by(renewed);
    }

    /// The target never received the command: it is sent again with the same tag and CmdSN, on the connection `cid`.
    //= rfc7143 7.2.1 NUM-12 MCS-07
    fn send_again(&mut self, itt: Itt, cid: Cid) {
        let Some(task) = self.tasks.command(itt) else { return };
        let Some(cmd_sn) = task.cmd_sn else { return };
        task.start_over();
        let renewed = self.renew(itt, cid);
        self.missing.forget(itt);
        self.expect_by(renewed);
        self.send_command(itt, cmd_sn);
    }

    /// Assigns a task to the connection `cid`, and restarts its timeout.
    fn renew(&mut self, itt: Itt, cid: Cid) -> Option<Time> {
        let (now, probe_at) = (self.now, self.probe_time());
        let max_recv = self.connection(cid).map_or(0, |connection| connection.max_recv);
        let task = self.tasks.command(itt)?;
        task.route.follow(cid);
        (task.aborting, task.resends) = (false, 0);
        task.segment_bytes = max_recv;
        task.time_begins(now);
        task.times.probe_at = probe_at;
        let (deadline, weight) = (task.due(), task.weight());
        if let Some(connection) = self.connection(cid) {
            connection.commands += 1;
            connection.outstanding_bytes += weight;
        }
        deadline
    }

    /// Starts a command again under a new tag and CmdSN; if it may have been executed, only if it is idempotent.
    //= rfc7143 7.15 SES-06 ERL-10
    pub(in super::super) fn begin_anew(&mut self, itt: Itt, perhaps_done: bool) {
        self.missing.forget(itt);
        let now = self.now;
        let Held::Command(mut task) = self.tasks.remove(itt) else { return };
        self.commands.end(&task);
        if let Some(ending) = task.take_decision() {
            return self.act(Action::Completed(Completion { command: task.command, ending }));
        }
        if perhaps_done && !task.command.idempotent {
            let ending = Ending::OutcomeUnknown;
            return self.act(Action::Completed(Completion { command: task.command, ending }));
        }
        self.counters.commands_begun_anew += 1;
        task.start_over();
        task.cmd_sn = None;
        (task.route.orphan, task.aborting, task.resends, task.route.reassigned) = (false, false, 0, false);
        task.time_begins(now);
        let due = task.due();
        if let Ok(itt) = self.tasks.insert(Held::Command(task)) {
            self.expect_by(due);
            self.commands.wait_anew(itt);
        }
    }
}
