//! Task management requests, and their effect on tasks (RFC 7143 4.2.3, 11.5, 11.6).
//!
//! The session aborts its own tasks. Effects that reach further (other sessions, the logical unit itself) are up to the caller:
//! it receives [`Action::Manage`], calls [`TargetSession::abort_tasks`] on every session concerned, waits for
//! [`Action::TasksGone`], and answers with [`TargetSession::management_done`].
//!
//! With TaskReporting=FastAbort nothing waits for owed data: an Asynchronous Message tells the initiator to stop, and a NOP-Out
//! acknowledges it (4.2.3.4). Functions 9 to 12 are those of iSCSIProtocolLevel 2 (RFC 7144 6).
//!
//! A response waits until the device server has released the tasks. It also waits until the initiator has sent the data it still
//! owes for them, but at most [`DRAIN_LIMIT`]: some initiators stop sending at once.

use std::time::Duration;

use iscsi_wire::{AsyncEvent, Cid, Itt, Lun, StatSn, TaskManagementRequest, TmfFunction, TmfResponse};
use smallvec::SmallVec;

use super::aborts::{AbortWait, Then};
use super::actions::{Action, CloseReason, ManagementId, ManagementRequest};
use super::async_events::Event;
use super::command_window::CommandWindow;
use super::fence::Answer;
use super::sense::TASK_ABORTED;
use super::session::{Queued, TargetSession};
use super::task::{Drain, Ending, State, Task, TaskId};
use crate::params::TaskReporting;

/// How long a task management response waits for data that the initiator still owes.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Functions that are executed at once and wait for nothing else.
pub(super) fn waits_for_nothing(function: TmfFunction) -> bool {
    matches!(function, TmfFunction::AbortTask | TmfFunction::TaskReassign) || function.is_level_2()
}

/// Which tasks [`TargetSession::abort_tasks`] aborts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortScope {
    /// One logical unit, or all.
    pub lun: Option<Lun>,
    /// In the session that received the request: only commands that arrived before it.
    pub request: Option<ManagementId>,
    /// Whether status TASK ABORTED reports the abort to the initiator (the TAS bit of the control mode page). Otherwise the tasks
    /// vanish and a unit attention reports it.
    pub task_aborted_status: bool,
}

impl TargetSession {
    /// Runs a task management request in its turn.
    //= rfc7143 11.5.1 TMF-01 TMF-05 TMF-07 TMF-08 TMF-09
    pub(super) fn manage(&mut self, cid: Cid, request: &TaskManagementRequest) {
        // A logout that ran just before may have removed the connection.
        if self.connection(cid).is_none() {
            return;
        }
        match request.function {
            TmfFunction::AbortTask => self.abort_task(cid, request),
            TmfFunction::AbortTaskSet
            | TmfFunction::ClearTaskSet
            | TmfFunction::LogicalUnitReset
            | TmfFunction::TargetWarmReset
            | TmfFunction::TargetColdReset => {
                if self.waits_for_earlier_commands(request) {
                    self.aborts.postpone(cid, *request);
                    return;
                }
                // The commands that filled the holes may have been followed by a logout.
                if self.connection(cid).is_none() {
                    return;
                }
                self.ask_surroundings(cid, request);
            }
            //= rfc7144 6 P2-02
            TmfFunction::QueryTaskSet | TmfFunction::QueryAsyncEvent if self.params.protocol_level >= 2 => {
                self.ask_surroundings(cid, request);
            }
            //= rfc7144 6 P2-02
            TmfFunction::QueryTask if self.params.protocol_level >= 2 => self.query_task(cid, request),
            TmfFunction::ITNexusReset if self.params.protocol_level >= 2 => {
                self.reset_nexus(cid, request.itt)
            }
            TmfFunction::TaskReassign => self.reassign(cid, request),
            //= sam5 5.10 TSK-03
            // ACA is not supported by our logical units, and 9 to 12 exist only at protocol level 2.
            _ => self.answer(Answer::new(cid, request.itt, TmfResponse::FunctionNotSupported)),
        }
    }

    /// Passes a request on to the surroundings, which know the logical units.
    fn ask_surroundings(&mut self, cid: Cid, request: &TaskManagementRequest) {
        let id = self.aborts.manage(cid, request);
        let (function, lun) = (request.function, request.lun);
        self.act(Action::Manage(ManagementRequest { id, function, lun }));
    }

    /// Answers whether the task exists.
    //= rfc7144 6.3 P2-03
    fn query_task(&mut self, cid: Cid, request: &TaskManagementRequest) {
        let referenced = request.referenced_task_tag;
        let task = self.tasks.tagged(referenced);
        let response = if referenced == request.itt || self.is_management(referenced) {
            TmfResponse::FunctionRejected
        } else if task.is_some_and(|task| self.may_name(cid, task) && task.lun() == request.lun) {
            TmfResponse::FunctionSucceeded
        } else {
            TmfResponse::FunctionComplete
        };
        self.answer(Answer::new(cid, request.itt, response));
    }

    /// Whether commands of this session are in the task set of a logical unit.
    pub fn has_tasks(&self, lun: Lun) -> bool {
        self.tasks.iter().any(|(_, task)| task.lun().to_index() == lun.to_index())
    }

    /// Ends the session as if the nexus were lost: no connection can be recovered, and Time2Retain does not apply. The loss also
    /// ends task management (SAM-5 6.3.4) and drops responses that wait for a fence: only the answer to this request is still
    /// sent.
    //= rfc7144 6.3 P2-05
    fn reset_nexus(&mut self, cid: Cid, itt: Itt) {
        for connection in &mut self.connections {
            connection.closing = true;
        }
        self.fences.clear();
        self.aborts.lose_nexus();
        let mut wait = AbortWait::new(Then::AnswerNexusReset { to: Some((cid, itt)) });
        self.abort_each(self.tasks.iter().map(|(id, _)| id).collect(), &mut wait);
        wait.set_tasks(self.tasks.leaving_of(None));
        wait.ignore_owed_data();
        self.wait_for(wait);
    }

    /// An immediate request may overtake commands that it must affect: it waits until they have arrived. Resets of the target do
    /// not wait: missing numbers count as received.
    //= rfc7143 4.2.3.3 TMF-05
    fn waits_for_earlier_commands(&mut self, request: &TaskManagementRequest) -> bool {
        let early = |window: &CommandWindow<Queued>| {
            request.immediate
                && window.exp_cmd_sn().lt(request.cmd_sn)
                && request.cmd_sn.le(window.max_cmd_sn().next())
        };
        if early(&self.window)
            && matches!(request.function, TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset)
        {
            while self.window.exp_cmd_sn().lt(request.cmd_sn) {
                self.window.count_as_received(self.window.exp_cmd_sn());
                self.run_ready();
            }
        }
        early(&self.window)
    }

    /// Immediate requests that are not answered yet, including those whose answer waits for a fence. The command window bounds
    /// the other requests.
    pub(super) fn immediate_management(&self) -> usize {
        self.aborts.immediate_requests() + self.fences.fenced_answers()
    }

    /// Runs the immediate requests for which every earlier command has arrived.
    pub(super) fn run_early_management(&mut self) {
        let exp = self.window.exp_cmd_sn();
        while let Some((cid, request)) = self.aborts.next_postponed(exp) {
            self.manage(cid, &request);
        }
    }

    /// The caller has executed a task management request.
    pub fn management_done(&mut self, id: ManagementId, response: TmfResponse) {
        self.management_done_with(id, response, [0; 3]);
    }

    /// As [`Self::management_done`], with the Additional Response Information of RFC 7144 6.2.
    //= rfc7144 6.4 P2-04
    pub fn management_done_with(&mut self, id: ManagementId, response: TmfResponse, additional: [u8; 3]) {
        let Some(request) = self.aborts.managed(id) else { return };
        let answer = Answer { additional, ..Answer::new(request.cid, request.itt, response) };
        match request.function.is_level_2() {
            true => self.answer(answer),
            false => self.answer_behind_fence(answer),
        }
    }

    //= rfc7143 11.6.1 TMF-01 TMF-02 TMF-03 TMF-04
    fn abort_task(&mut self, cid: Cid, request: &TaskManagementRequest) {
        let referenced = request.referenced_task_tag;
        if referenced == request.itt || self.is_management(referenced) {
            return self.answer(Answer::new(cid, request.itt, TmfResponse::FunctionRejected));
        }
        //= rfc7143 11.5.1 TMF-04
        let id = self.tasks.find(referenced);
        if id.and_then(|id| self.tasks.get(id)).is_some_and(|task| !self.may_name(cid, task)) {
            return self.answer(Answer::new(cid, request.itt, TmfResponse::FunctionRejected));
        }
        if let Some(id) = id {
            let mut wait = AbortWait::new(Then::AnswerAbortTask { cid, itt: request.itt });
            self.abort(id, &mut wait);
            // A single task is known by its tag: late data is discarded, and nothing has to wait for it.
            wait.ignore_owed_data();
            return self.wait_for(wait);
        }
        if self.retained.get(referenced).is_some_and(|outcome| outcome.orphan) {
            // It has completed, but its status never reached the initiator: now it will not be sent.
            self.retained.take(referenced);
            return self.answer(Answer::new(cid, request.itt, TmfResponse::FunctionComplete));
        }
        let (exp, reference) = (self.window.exp_cmd_sn(), request.ref_cmd_sn);
        let missing =
            reference.ge(exp) && reference.le(self.window.max_cmd_sn()) && reference.lt(request.cmd_sn);
        if missing {
            self.window.count_as_received(reference);
            self.answer(Answer::new(cid, request.itt, TmfResponse::FunctionComplete));
            self.run_ready();
        } else {
            self.answer(Answer::new(cid, request.itt, TmfResponse::TaskDoesNotExist));
        }
    }

    /// Aborts the tasks in `scope`; [`Action::TasksGone`] with `token` follows when none of them is left.
    //= rfc7143 4.2.3.3 TMF-05 TMF-06
    pub fn abort_tasks(&mut self, scope: AbortScope, token: u64) {
        let before = scope.request.and_then(|id| self.aborts.request(id)).map(|request| request.cmd_sn);
        let doomed: SmallVec<[TaskId; 16]> = self
            .tasks
            .iter()
            .filter(|(_, task)| scope.lun.is_none_or(|lun| lun.to_index() == task.lun().to_index()))
            .filter(|(_, task)| before.is_none_or(|limit| task.cmd_sn().lt(limit) || task.immediate()))
            .map(|(id, _)| id)
            .collect();
        let told = self.announce_abort(&scope, &doomed);
        let mut wait = AbortWait::new(Then::Notify(token));
        match scope.task_aborted_status {
            true => doomed.into_iter().for_each(|id| self.end_as_aborted(id, &mut wait)),
            false => self.abort_each(doomed, &mut wait),
        }
        if self.params.task_reporting == TaskReporting::FastAbort && !scope.task_aborted_status {
            wait.ignore_owed_data();
        }
        for (cid, lun, stat_sn) in told {
            self.aborts.told_to_stop(cid, lun, stat_sn);
        }
        // Also the tasks that were aborted before and are not gone yet.
        wait.set_tasks(self.tasks.leaving_of(scope.lun));
        self.wait_for(wait);
    }

    /// Tells the initiator to stop sending data for the tasks `doomed`, on each of their connections except the one that
    /// requested their abort. Returns connection, logical unit and StatSN of each message.
    //= rfc7143 4.2.3.4 FAB-01
    //= rfc7143 4.2.3.5 FAB-03
    fn announce_abort(&mut self, scope: &AbortScope, doomed: &[TaskId]) -> SmallVec<[(Cid, Lun, StatSn); 4]> {
        let mut told: SmallVec<[(Cid, Lun, StatSn); 4]> = SmallVec::new();
        if self.params.task_reporting != TaskReporting::FastAbort || scope.task_aborted_status {
            return told;
        }
        let issuer = scope.request.and_then(|id| self.aborts.request(id)).map(|request| request.cid);
        for id in doomed {
            let Some(task) = self.tasks.get(*id) else { continue };
            let (lun, Some(cid)) = (task.lun(), task.home()) else { continue };
            if issuer == Some(cid) || told.iter().any(|(c, l, _)| *c == cid && *l == lun) {
                continue;
            }
            let Some(connection) = self.connection(cid).filter(|c| !c.closing) else { continue };
            told.push((cid, lun, connection.stat_sn));
            let event = Event { event: AsyncEvent::TaskTermination, lun, parameters: [0; 3] };
            self.send_async(cid, event, bytes::Bytes::new());
        }
        told
    }

    /// A NOP-Out with a LUN that requests no answer: the initiator has stopped sending data for the unit as it was told.
    //= rfc7143 4.2.3.4 FAB-02
    pub(super) fn stop_acknowledged(&mut self, cid: Cid, lun: Lun, exp_stat_sn: StatSn) {
        let ends = |drain: &Drain| {
            drain.cid == cid
                && drain.lun == lun
                && drain.told_to_stop.is_some_and(|told| exp_stat_sn.gt(told))
        };
        self.end_drains(ends);
    }

    /// The device server has released a task that was abandoned.
    pub fn task_gone(&mut self, id: TaskId) {
        if !self.tasks.release(id) {
            return;
        }
        self.aborts.task_gone(id);
        self.settle_waits();
        self.end_if_settled(id);
        self.announce_window();
    }

    /// Whether a function received on `cid` may name a task: the task is allegiant to that connection, or to none. In asymmetric
    /// use commands and data travel on different connections, and the function may arrive on any.
    //= rfc7143 11.5.1 TMF-04
    fn may_name(&self, cid: Cid, task: &Task) -> bool {
        self.params.asymmetric.is_used() || task.home().is_none_or(|home| home == cid)
    }

    /// Removes several tasks, as [`Self::abort`] does: budget that one of them releases is not given to another.
    pub(super) fn abort_each(&mut self, doomed: SmallVec<[TaskId; 16]>, wait: &mut AbortWait) {
        self.writes.withdraw(&doomed);
        for id in doomed {
            self.abort(id, wait);
        }
    }

    /// Removes a task for good; adds to `wait` what must still be waited for.
    pub(super) fn abort(&mut self, id: TaskId, wait: &mut AbortWait) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let (cid, itt, lun, state) = (task.cid, task.itt(), task.lun(), task.state);
        let sequences = std::mem::take(&mut task.sequences);
        self.remove_task(id);
        if !sequences.is_empty() {
            if let Some(oldest) = self.aborts.make_room_for_drain(itt) {
                self.drained(oldest);
                // It may be one of the same request.
                wait.ignore_data_of(oldest);
            }
            let deadline = self.now + DRAIN_LIMIT;
            self.aborts.drain(Drain { cid, itt, lun, sequences, told_to_stop: None, deadline });
            wait.add_owed_data(itt);
        }
        match state {
            State::Held => self.withdraw_held(id),
            State::Released if self.tasks.is_leaving(id) => wait.add_task(id),
            State::Released => {}
            _ => {
                self.tasks.abandon(id, lun);
                self.act(Action::Abandon { task: id });
                wait.add_task(id);
            }
        }
    }

    /// Ends a task with status TASK ABORTED, once the initiator has sent the data it owes.
    fn end_as_aborted(&mut self, id: TaskId, wait: &mut AbortWait) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.drop_data();
        task.ending = Some(Ending {
            status: TASK_ABORTED,
            sense: bytes::Bytes::new(),
            transfer_bytes: 0,
            shortage: None,
        });
        if task.state == State::Held {
            task.state = State::Released;
            self.withdraw_held(id);
        } else {
            self.abandon_execution(id);
            if self.tasks.is_leaving(id) {
                wait.add_task(id);
            }
        }
        self.end_if_settled(id);
    }

    /// Removes a command that waits for its turn from the window. This makes no other command ready: either the number in front
    /// of all waiting ones is still missing, or the loop that runs ready requests is active and continues anyway. So an abort
    /// never recurses into further aborts that wait behind it.
    fn withdraw_held(&mut self, id: TaskId) {
        self.window.remove_held(|queued| matches!(queued, Queued::Command(command) if command.task == id));
    }

    /// Aborts every task of a connection that is gone. The initiator is not notified, and nothing more is sent on the connection.
    /// In asymmetric use the tasks whose command arrived on it are aborted as well: their initiator regards them as lost.
    pub(super) fn abort_connection_tasks(&mut self, cid: Cid) {
        let free = self.params.asymmetric.is_used();
        let dies = |task: &Task| task.home() == Some(cid) || free && task.came_on == cid && !task.orphan;
        let doomed = self.tasks.iter().filter(|(_, task)| dies(task)).map(|(id, task)| (id, task.lun()));
        let (doomed, luns): (SmallVec<[TaskId; 16]>, SmallVec<[Lun; 16]>) = doomed.unzip();
        luns.into_iter().for_each(|lun| self.note_cleared(lun));
        self.abort_each(doomed, &mut AbortWait::nobody());
        self.fences.retain_commands(|outcome| outcome.home() != Some(cid));
        self.drop_drains_of(cid);
    }

    /// Data still owed on a connection will not arrive any more.
    pub(super) fn drop_drains_of(&mut self, cid: Cid) {
        self.end_drains(|drain| drain.cid == cid);
    }

    /// The data that `ends` selects is no longer awaited.
    pub(super) fn end_drains(&mut self, ends: impl Fn(&Drain) -> bool) {
        for itt in self.aborts.end_drains(ends) {
            self.drained(itt);
        }
    }

    /// Whether `itt` is that of a task management request or a logout.
    pub(super) fn is_management(&self, itt: Itt) -> bool {
        let waits = |queued: &Queued| match queued {
            Queued::Management(_, request) => request.itt == itt,
            Queued::Logout(_, request) => request.itt == itt,
            _ => false,
        };
        self.aborts.has_request(itt) || self.window.held().any(waits) || self.aborts.answers(itt)
    }

    /// The data that an initiator owed for a task that is gone has arrived, or is no longer awaited.
    pub(super) fn drained(&mut self, itt: Itt) {
        self.aborts.drained(itt);
        self.settle_waits();
    }

    /// Stops waiting for overdue data of tasks that are gone.
    pub(super) fn expire_drains(&mut self) {
        let now = self.now;
        self.end_drains(|drain| drain.deadline <= now);
    }

    pub(super) fn wait_for(&mut self, wait: AbortWait) {
        self.aborts.wait(wait);
        self.settle_waits();
    }

    /// Completes the waits that are ready. All of them are taken out first: completing one may close connections that another is
    /// to close too.
    fn settle_waits(&mut self) {
        for then in self.aborts.take_ready() {
            match then {
                Then::Notify(token) => self.act(Action::TasksGone { token }),
                Then::AnswerAbortTask { cid, itt } => {
                    self.answer(Answer::new(cid, itt, TmfResponse::FunctionComplete))
                }
                Then::AnswerLogout { to, only } => self.finish_logout(to, only),
                Then::AnswerNexusReset { to } => {
                    if let Some((cid, itt)) = to {
                        self.answer_now(&Answer::new(cid, itt, TmfResponse::FunctionComplete));
                    }
                    self.close_session(CloseReason::NexusReset);
                }
            }
        }
    }
}
