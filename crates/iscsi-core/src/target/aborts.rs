//! What task management and logouts wait for: requests not answered yet, tasks on their way out, and data that the initiator still
//! owes for tasks that are gone (RFC 7143 4.2.3).
//!
//! An [`AbortWait`] names the tasks that the device server still holds and the tags whose data is still due. Once both lists are
//! empty the wait is ready, and the session does what it is for.

use iscsi_wire::{Cid, CmdSn, DataOut, Itt, Lun, StatSn, TaskManagementRequest, TmfFunction};
use smallvec::SmallVec;

use super::actions::ManagementId;
use super::task::{Drain, TaskId};
use super::tasks::Tasks;
use crate::{Time, earlier};

/// Most aborted tasks whose data is still awaited; beyond it the oldest is no longer waited for.
const MAX_DRAINS: usize = 1024;

/// A task management request that the surroundings carry out.
#[derive(Debug)]
pub(super) struct Management {
    id: ManagementId,
    pub itt: Itt,
    pub cid: Cid,
    pub cmd_sn: CmdSn,
    immediate: bool,
    pub function: TmfFunction,
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
    tasks: SmallVec<[TaskId; 4]>,
    /// Tags of the tasks whose data is awaited.
    owed: SmallVec<[Itt; 4]>,
    then: Then,
}

impl AbortWait {
    pub(crate) fn new(then: Then) -> Self {
        Self { tasks: SmallVec::new(), owed: SmallVec::new(), then }
    }

    /// For aborts that nothing waits for: it is never passed to [`Aborts::wait`].
    pub(crate) fn nobody() -> Self {
        Self::new(Then::Notify(0))
    }

    /// It waits for these tasks and no others.
    pub(crate) fn set_tasks(&mut self, tasks: impl Iterator<Item = TaskId>) {
        self.tasks = tasks.collect();
    }

    /// It waits for this task too.
    pub(crate) fn add_task(&mut self, task: TaskId) {
        self.tasks.push(task);
    }

    /// It waits for the data of this task too.
    pub(crate) fn add_owed_data(&mut self, itt: Itt) {
        self.owed.push(itt);
    }

    /// The data of this task is no longer awaited.
    pub(crate) fn ignore_data_of(&mut self, itt: Itt) {
        self.owed.retain(|tag| *tag != itt);
    }

    /// It waits for no data.
    pub(crate) fn ignore_owed_data(&mut self) {
        self.owed.clear();
    }

    fn is_ready(&self) -> bool {
        self.tasks.is_empty() && self.owed.is_empty()
    }

    /// The request that it answers.
    fn answers(&self) -> Option<Itt> {
        match self.then {
            Then::Notify(_) => None,
            Then::AnswerAbortTask { itt, .. } => Some(itt),
            Then::AnswerLogout { to, .. } | Then::AnswerNexusReset { to } => to.map(|(_, itt)| itt),
        }
    }
}

/// What became of data for a task that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discarded {
    /// No such task is known.
    NotOwed,
    /// It was owed, and more is.
    Some,
    /// It was the last.
    Last,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Aborts {
    drains: Vec<Drain>,
    waits: Vec<AbortWait>,
    management: Vec<Management>,
    /// Immediate task management requests that wait for earlier commands.
    postponed: Vec<(Cid, TaskManagementRequest)>,
    next_id: u64,
}

impl Aborts {
    /// Enters a request that the surroundings are to carry out.
    pub(crate) fn manage(&mut self, cid: Cid, request: &TaskManagementRequest) -> ManagementId {
        let id = ManagementId(self.next_id);
        self.next_id += 1;
        let TaskManagementRequest { itt, cmd_sn, immediate, function, .. } = *request;
        self.management.push(Management { id, itt, cid, cmd_sn, immediate, function });
        id
    }

    /// A request that is not answered yet.
    pub(crate) fn request(&self, id: ManagementId) -> Option<&Management> {
        self.management.iter().find(|request| request.id == id)
    }

    /// The surroundings have carried out a request.
    pub(crate) fn managed(&mut self, id: ManagementId) -> Option<Management> {
        let position = self.management.iter().position(|request| request.id == id)?;
        Some(self.management.swap_remove(position))
    }

    /// Requests that the surroundings carry out.
    pub(crate) fn managing(&self) -> usize {
        self.management.len()
    }

    /// Has an immediate request wait for earlier commands.
    pub(crate) fn postpone(&mut self, cid: Cid, request: TaskManagementRequest) {
        self.postponed.push((cid, request));
    }

    /// The next postponed request for which every command before `exp_cmd_sn` was to arrive.
    pub(crate) fn next_postponed(&mut self, exp_cmd_sn: CmdSn) -> Option<(Cid, TaskManagementRequest)> {
        let position = self.postponed.iter().position(|(_, request)| request.cmd_sn.le(exp_cmd_sn))?;
        Some(self.postponed.remove(position))
    }

    /// Immediate requests that are not answered yet.
    pub(crate) fn immediate_requests(&self) -> usize {
        self.management.iter().filter(|request| request.immediate).count() + self.postponed.len()
    }

    /// Whether a request that is not answered yet has the tag `itt`.
    pub(crate) fn has_request(&self, itt: Itt) -> bool {
        self.management.iter().any(|request| request.itt == itt)
            || self.postponed.iter().any(|(_, request)| request.itt == itt)
    }

    /// Whether a wait answers the request `itt`.
    pub(crate) fn answers(&self, itt: Itt) -> bool {
        self.waits.iter().any(|wait| wait.answers() == Some(itt))
    }

    /// Forgets the requests and the pending answers of a connection that is gone, and passes their tags to `forgotten`. Logouts
    /// and nexus resets that it started still complete, without an answer: a connection that is being logged out neither receives
    /// nor sends anything, and nothing else would ever close it.
    //= rfc7143 11.14 LGO-01 MCS-04
    pub(crate) fn forget_requests_of(&mut self, cid: Cid, mut forgotten: impl FnMut(Itt)) {
        let mut forgets = |of: Cid, itt: Itt| {
            let dies = of == cid;
            if dies {
                forgotten(itt);
            }
            dies
        };
        self.management.retain(|request| !forgets(request.cid, request.itt));
        self.postponed.retain(|(of, request)| !forgets(*of, request.itt));
        self.waits.retain_mut(|wait| match &mut wait.then {
            Then::Notify(_) => true,
            Then::AnswerAbortTask { cid, itt } => !forgets(*cid, *itt),
            Then::AnswerLogout { to, .. } | Then::AnswerNexusReset { to } => {
                to.take_if(|(of, itt)| forgets(*of, *itt));
                true
            }
        });
    }

    /// The nexus is lost: no request is answered any more. The surroundings still learn what they wait for.
    pub(crate) fn lose_nexus(&mut self) {
        self.management.clear();
        self.postponed.clear();
        self.waits.retain(|wait| matches!(wait.then, Then::Notify(_)));
    }

    /// Enters a wait. It may be ready already.
    pub(crate) fn wait(&mut self, wait: AbortWait) {
        self.waits.push(wait);
    }

    /// The device server has released an abandoned task.
    pub(crate) fn task_gone(&mut self, id: TaskId) {
        for wait in &mut self.waits {
            wait.tasks.retain(|task| *task != id);
        }
    }

    /// The data owed for a task that is gone has arrived, or is no longer awaited.
    pub(crate) fn drained(&mut self, itt: Itt) {
        self.waits.iter_mut().for_each(|wait| wait.ignore_data_of(itt));
    }

    /// Takes out the waits that are ready.
    pub(crate) fn take_ready(&mut self) -> Vec<Then> {
        if !self.waits.iter().any(AbortWait::is_ready) {
            return Vec::new();
        }
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waits).into_iter().partition(AbortWait::is_ready);
        self.waits = waiting;
        ready.into_iter().map(|wait| wait.then).collect()
    }

    /// Tasks for which an earlier logout of the connection `cid` waits.
    pub(crate) fn tasks_before_close(&self, cid: Cid) -> impl Iterator<Item = TaskId> {
        let closes = move |wait: &&AbortWait| matches!(wait.then, Then::AnswerLogout { only: Some(only), .. } if only == cid);
        self.waits.iter().filter(closes).flat_map(|wait| wait.tasks.iter().copied())
    }

    /// Makes room for the data that is owed for a task with the tag `itt`. Returns the tag of the task whose data is no longer
    /// awaited for that.
    pub(crate) fn make_room_for_drain(&mut self, itt: Itt) -> Option<Itt> {
        self.drains.retain(|drain| drain.itt != itt);
        (self.drains.len() >= MAX_DRAINS).then(|| self.drains.remove(0).itt)
    }

    /// Awaits and discards the data that is owed for a task that is gone.
    pub(crate) fn drain(&mut self, drain: Drain) {
        self.drains.push(drain);
    }

    /// Discards `len` bytes of data for a task that is gone.
    pub(crate) fn discard(&mut self, data: &DataOut, len: usize) -> Discarded {
        let Some(at) = self.drains.iter().position(|drain| drain.itt == data.itt) else {
            return Discarded::NotOwed;
        };
        let sequences = &mut self.drains[at].sequences;
        if let Some(position) = sequences.iter().position(|sequence| sequence.ttt == data.ttt) {
            let next_offset = &mut sequences[position].next_offset;
            *next_offset = next_offset.saturating_add(len as u32);
            if data.final_bit {
                sequences.remove(position);
            }
        }
        if !sequences.is_empty() {
            return Discarded::Some;
        }
        self.drains.remove(at);
        Discarded::Last
    }

    /// The initiator was told to stop sending data for `lun` on `cid`, in the message `stat_sn`.
    pub(crate) fn told_to_stop(&mut self, cid: Cid, lun: Lun, stat_sn: StatSn) {
        for drain in self.drains.iter_mut().filter(|drain| drain.cid == cid && drain.lun == lun) {
            drain.told_to_stop = Some(stat_sn);
        }
    }

    /// The data that `ends` selects is no longer awaited. Returns the tags of its tasks.
    pub(crate) fn end_drains(&mut self, ends: impl Fn(&Drain) -> bool) -> SmallVec<[Itt; 4]> {
        let ended = self.drains.iter().filter(|drain| ends(drain)).map(|drain| drain.itt).collect();
        self.drains.retain(|drain| !ends(drain));
        ended
    }

    /// How many tasks that are gone are owed data.
    pub(crate) fn drains(&self) -> usize {
        self.drains.len()
    }

    /// Requests that are not answered yet, and waits.
    pub(crate) fn waits(&self) -> usize {
        self.waits.len() + self.management.len() + self.postponed.len()
    }

    /// Whether anything waits for tasks or data.
    pub(crate) fn has_waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// When the first of the data that is owed is given up.
    pub(crate) fn due(&self) -> Option<Time> {
        self.drains.iter().fold(None, |due, drain| earlier(due, Some(drain.deadline)))
    }

    /// Checks what holds after every event, where debug assertions are on: nothing waits for what cannot come.
    pub(crate) fn check(&self, tasks: &Tasks) {
        for wait in &self.waits {
            debug_assert!(!wait.is_ready(), "a wait is over and was not taken out: {wait:?}");
            debug_assert!(wait.tasks.iter().all(|id| tasks.is_leaving(*id)), "a task is gone: {wait:?}");
            let owed = |itt| self.drains.iter().any(|drain| drain.itt == itt);
            debug_assert!(wait.owed.iter().all(|itt| owed(*itt)), "no data is owed: {wait:?}");
        }
        debug_assert!(self.drains.len() <= MAX_DRAINS, "drains are bounded");
        debug_assert!(self.drains.iter().all(|drain| !drain.sequences.is_empty()), "a drain owes nothing");
    }
}
