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

use std::collections::VecDeque;
use std::time::Duration;

use iscsi_wire::{AsyncEvent, Cid, CmdSn, Itt, Lun, StatSn, TaskManagementRequest, TmfFunction, TmfResponse};
use smallvec::SmallVec;

use super::actions::{Action, CloseReason, ManagementId, ManagementRequest};
use super::async_events::Event;
use super::command_window::CommandWindow;
use super::fence::{Answer, HeldBack};
use super::sense::TASK_ABORTED;
use super::session::{Queued, TargetSession};
use super::task::{Drain, Ending, State, Task, TaskId};
use crate::params::TaskReporting;

/// How long a task management response waits for data that the initiator still owes.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Most aborted tasks whose data is still awaited; beyond it the oldest is no longer waited for.
const MAX_DRAINS: usize = 1024;

/// A task management request that is not answered yet.
#[derive(Debug)]
pub(super) struct Management {
    pub id: ManagementId,
    pub itt: Itt,
    cid: Cid,
    cmd_sn: CmdSn,
    immediate: bool,
    function: TmfFunction,
}

/// What happens when aborted tasks are gone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Notify(u64),
    AnswerAbortTask {
        cid: Cid,
        itt: Itt,
    },
    /// Of one connection, or of the session. It completes without an answer if the connection that requested it is gone.
    AnswerLogout {
        to: Option<(Cid, Itt)>,
        only: Option<Cid>,
    },
    /// Of I_T NEXUS RESET; may also complete without an answer.
    AnswerNexusReset {
        to: Option<(Cid, Itt)>,
    },
}

/// Aborted tasks, and what happens when they are gone.
#[derive(Debug)]
pub(super) struct AbortWait {
    pub tasks: SmallVec<[TaskId; 4]>,
    pub drains: SmallVec<[Itt; 4]>,
    then: Then,
}

impl AbortWait {
    pub fn new(then: Then) -> Self {
        Self { tasks: SmallVec::new(), drains: SmallVec::new(), then }
    }

    /// Whether its completion closes the connection `cid`.
    pub fn closes(&self, cid: Cid) -> bool {
        matches!(self.then, Then::AnswerLogout { only: Some(only), .. } if only == cid)
    }

    /// For aborts that nothing waits for: it is never passed to `wait_for`.
    pub fn nobody() -> Self {
        Self::new(Then::Notify(0))
    }
}

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
                    self.early_management.push((cid, *request));
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
        let id = ManagementId(self.next_id);
        self.next_id += 1;
        self.management.push(Management {
            id,
            itt: request.itt,
            cid,
            cmd_sn: request.cmd_sn,
            immediate: request.immediate,
            function: request.function,
        });
        let (function, lun) = (request.function, request.lun);
        self.actions.push_back(Action::Manage(ManagementRequest { id, function, lun }));
    }

    /// Answers whether the task exists.
    //= rfc7144 6.3 P2-03
    fn query_task(&mut self, cid: Cid, request: &TaskManagementRequest) {
        let referenced = request.referenced_task_tag;
        let task = self.by_itt.get(&referenced).and_then(|id| self.tasks.get(*id));
        let response = if referenced == request.itt || self.is_management(referenced) {
            TmfResponse::FunctionRejected
        } else if task.is_some_and(|task| self.may_name(cid, task) && task.lun == request.lun) {
            TmfResponse::FunctionSucceeded
        } else {
            TmfResponse::FunctionComplete
        };
        self.answer(Answer::new(cid, request.itt, response));
    }

    /// Whether commands of this session are in the task set of a logical unit.
    pub fn has_tasks(&self, lun: Lun) -> bool {
        self.tasks.iter().any(|(_, task)| task.lun.to_index() == lun.to_index())
    }

    /// Ends the session as if the nexus were lost: no connection can be recovered, and Time2Retain does not apply. The loss also
    /// ends task management (SAM-5 6.3.4) and drops responses that wait for a fence: only the answer to this request is still
    /// sent.
    //= rfc7144 6.3 P2-05
    fn reset_nexus(&mut self, cid: Cid, itt: Itt) {
        for connection in &mut self.connections {
            connection.closing = true;
        }
        (self.fence, self.held_back) = (None, VecDeque::new());
        self.management.clear();
        self.early_management.clear();
        self.abort_waits.retain(|wait| matches!(wait.then, Then::Notify(_)));
        let mut wait = AbortWait::new(Then::AnswerNexusReset { to: Some((cid, itt)) });
        self.abort_each(self.tasks.iter().map(|(id, _)| id).collect(), &mut wait);
        wait.tasks = self.leaving_of(None).collect();
        wait.drains.clear();
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
        let answers = self.held_back.iter().filter(|held| matches!(held, HeldBack::Answer(a) if a.fenced));
        self.management.iter().filter(|m| m.immediate).count() + self.early_management.len() + answers.count()
    }

    /// Runs the immediate requests for which every earlier command has arrived.
    pub(super) fn run_early_management(&mut self) {
        let exp = self.window.exp_cmd_sn();
        while let Some(position) =
            self.early_management.iter().position(|(_, request)| request.cmd_sn.le(exp))
        {
            let (cid, request) = self.early_management.remove(position);
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
        let Some(position) = self.management.iter().position(|m| m.id == id) else { return };
        let Management { cid, itt, function, .. } = self.management.swap_remove(position);
        let answer = Answer { additional, ..Answer::new(cid, itt, response) };
        match function.is_level_2() {
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
        let id = self.by_itt.get(&referenced).copied();
        if id.and_then(|id| self.tasks.get(id)).is_some_and(|task| !self.may_name(cid, task)) {
            return self.answer(Answer::new(cid, request.itt, TmfResponse::FunctionRejected));
        }
        if let Some(id) = id {
            let mut wait = AbortWait::new(Then::AnswerAbortTask { cid, itt: request.itt });
            self.abort(id, &mut wait);
            // A single task is known by its tag: late data is discarded, and nothing has to wait for it.
            wait.drains.clear();
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
        let before =
            scope.request.and_then(|id| self.management.iter().find(|m| m.id == id)).map(|m| m.cmd_sn);
        let doomed: SmallVec<[TaskId; 16]> = self
            .tasks
            .iter()
            .filter(|(_, task)| scope.lun.is_none_or(|lun| lun.to_index() == task.lun.to_index()))
            .filter(|(_, task)| before.is_none_or(|limit| task.cmd_sn.lt(limit) || task.immediate))
            .map(|(id, _)| id)
            .collect();
        let told = self.announce_abort(&scope, &doomed);
        let mut wait = AbortWait::new(Then::Notify(token));
        match scope.task_aborted_status {
            true => doomed.into_iter().for_each(|id| self.end_as_aborted(id, &mut wait)),
            false => self.abort_each(doomed, &mut wait),
        }
        if self.params.task_reporting == TaskReporting::FastAbort && !scope.task_aborted_status {
            wait.drains.clear();
        }
        for (cid, lun, stat_sn) in told {
            for drain in self.drains.iter_mut().filter(|d| d.cid == cid && d.lun == lun) {
                drain.told_to_stop = Some(stat_sn);
            }
        }
        // Also the tasks that were aborted before and are not gone yet.
        wait.tasks = self.leaving_of(scope.lun).collect();
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
        let issuer = scope.request.and_then(|id| self.management.iter().find(|m| m.id == id)).map(|m| m.cid);
        for id in doomed {
            let Some(task) = self.tasks.get(*id) else { continue };
            let (lun, Some(cid)) = (task.lun, task.home()) else { continue };
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
        let ends = |d: &Drain| {
            d.cid == cid && d.lun == lun && d.told_to_stop.is_some_and(|told| exp_stat_sn.gt(told))
        };
        let ended: SmallVec<[Itt; 4]> = self.drains.iter().filter(|d| ends(d)).map(|d| d.itt).collect();
        self.drains.retain(|d| !ends(d));
        for itt in ended {
            self.drained(itt);
        }
    }

    /// Abandoned tasks of one logical unit, or of all.
    pub(super) fn leaving_of(&self, lun: Option<Lun>) -> impl Iterator<Item = TaskId> {
        self.leaving
            .iter()
            .filter(move |(_, of)| lun.is_none_or(|lun| lun.to_index() == of.to_index()))
            .map(|(id, _)| *id)
    }

    /// The device server has released a task that was abandoned.
    pub fn task_gone(&mut self, id: TaskId) {
        if self.leaving.remove(&id).is_none() {
            return;
        }
        for wait in &mut self.abort_waits {
            wait.tasks.retain(|task| *task != id);
        }
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
        self.budget_queue.retain(|waiting| !doomed.contains(waiting));
        for id in doomed {
            self.abort(id, wait);
        }
    }

    /// Notes that a command of `lun` died with its connection.
    pub(super) fn note_cleared(&mut self, lun: Lun) {
        if !self.cleared_luns.contains(&lun) {
            self.cleared_luns.push(lun);
        }
    }

    /// Removes a task for good; adds to `wait` what must still be waited for.
    pub(super) fn abort(&mut self, id: TaskId, wait: &mut AbortWait) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let (cid, itt, lun, state) = (task.cid, task.itt, task.lun, task.state);
        let sequences = std::mem::take(&mut task.sequences);
        self.remove_task(id);
        if !sequences.is_empty() {
            self.drains.retain(|d| d.itt != itt);
            if self.drains.len() >= MAX_DRAINS {
                let oldest = self.drains.remove(0).itt;
                self.drained(oldest);
            }
            self.drains.push(Drain {
                cid,
                itt,
                lun,
                sequences,
                told_to_stop: None,
                deadline: self.now + DRAIN_LIMIT,
            });
            wait.drains.push(itt);
        }
        match state {
            State::Held => self.withdraw_held(id),
            State::Released if self.leaving.contains_key(&id) => wait.tasks.push(id),
            State::Released => {}
            _ => {
                self.leaving.insert(id, lun);
                self.actions.push_back(Action::Abandon { task: id });
                wait.tasks.push(id);
            }
        }
    }

    /// Ends a task with status TASK ABORTED, once the initiator has sent the data it owes.
    fn end_as_aborted(&mut self, id: TaskId, wait: &mut AbortWait) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.drop_data();
        task.ending = Some(Ending { status: TASK_ABORTED, sense: bytes::Bytes::new(), transfer_bytes: 0 });
        if task.state == State::Held {
            task.state = State::Released;
            self.withdraw_held(id);
        } else {
            self.abandon_execution(id);
            if self.leaving.contains_key(&id) {
                wait.tasks.push(id);
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
        let doomed = self.tasks.iter().filter(|(_, task)| dies(task)).map(|(id, task)| (id, task.lun));
        let (doomed, luns): (SmallVec<[TaskId; 16]>, SmallVec<[Lun; 16]>) = doomed.unzip();
        luns.into_iter().for_each(|lun| self.note_cleared(lun));
        self.abort_each(doomed, &mut AbortWait::nobody());
        self.held_back
            .retain(|held| !matches!(held, HeldBack::Command(outcome) if outcome.home() == Some(cid)));
        self.drop_drains_of(cid);
    }

    /// Data still owed on a connection will not arrive any more.
    pub(super) fn drop_drains_of(&mut self, cid: Cid) {
        let owed: SmallVec<[Itt; 4]> = self.drains.iter().filter(|d| d.cid == cid).map(|d| d.itt).collect();
        self.drains.retain(|d| d.cid != cid);
        for itt in owed {
            self.drained(itt);
        }
    }

    /// Forgets the task management requests and the pending answers of a connection that is gone. Logouts and nexus resets that
    /// it started still complete, without an answer: a connection that is being logged out neither receives nor sends anything,
    /// and nothing else would ever close it.
    //= rfc7143 11.14 LGO-01 MCS-04
    pub(super) fn forget_management_of(&mut self, cid: Cid, mut forgotten: impl FnMut(Itt)) {
        self.management.retain(|m| {
            let keeps = m.cid != cid;
            if !keeps {
                forgotten(m.itt);
            }
            keeps
        });
        self.early_management.retain(|(c, request)| {
            if *c == cid {
                forgotten(request.itt);
            }
            *c != cid
        });
        self.abort_waits.retain_mut(|wait| match &mut wait.then {
            Then::Notify(_) => true,
            Then::AnswerAbortTask { cid: c, itt } => {
                if *c == cid {
                    forgotten(*itt);
                }
                *c != cid
            }
            Then::AnswerLogout { to, .. } | Then::AnswerNexusReset { to } => {
                if let Some((_, itt)) = to.take_if(|(c, _)| *c == cid) {
                    forgotten(itt);
                }
                true
            }
        });
    }

    /// Whether `itt` is that of a task management request or a logout.
    pub(super) fn is_management(&self, itt: Itt) -> bool {
        let waits = |queued: &Queued| match queued {
            Queued::Management(_, request) => request.itt == itt,
            Queued::Logout(_, request) => request.itt == itt,
            _ => false,
        };
        let answers = |wait: &AbortWait| match wait.then {
            Then::Notify(_) => false,
            Then::AnswerAbortTask { itt: of, .. } => of == itt,
            Then::AnswerLogout { to, .. } | Then::AnswerNexusReset { to } => {
                to.is_some_and(|(_, of)| of == itt)
            }
        };
        self.management.iter().any(|m| m.itt == itt)
            || self.early_management.iter().any(|(_, early)| early.itt == itt)
            || self.window.held().any(waits)
            || self.abort_waits.iter().any(answers)
    }

    /// The data that an initiator owed for a task that is gone has arrived, or is no longer awaited.
    pub(super) fn drained(&mut self, itt: Itt) {
        for wait in &mut self.abort_waits {
            wait.drains.retain(|tag| *tag != itt);
        }
        self.settle_waits();
    }

    /// Stops waiting for overdue data of tasks that are gone.
    pub(super) fn expire_drains(&mut self) {
        let now = self.now;
        let late: SmallVec<[Itt; 4]> =
            self.drains.iter().filter(|d| d.deadline <= now).map(|d| d.itt).collect();
        self.drains.retain(|d| d.deadline > now);
        for itt in late {
            self.drained(itt);
        }
    }

    pub(super) fn wait_for(&mut self, wait: AbortWait) {
        self.abort_waits.push(wait);
        self.settle_waits();
    }

    /// Completes the waits that are ready. All of them are taken out first: completing one may close connections that another is
    /// to close too.
    fn settle_waits(&mut self) {
        let is_ready = |wait: &AbortWait| wait.tasks.is_empty() && wait.drains.is_empty();
        if !self.abort_waits.iter().any(is_ready) {
            return;
        }
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.abort_waits).into_iter().partition(is_ready);
        self.abort_waits = waiting;
        for wait in ready {
            match wait.then {
                Then::Notify(token) => self.actions.push_back(Action::TasksGone { token }),
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
