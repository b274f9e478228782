//! A target session in full feature phase: takes PDUs, numbers answers, and holds what its connections share
//! (RFC 7143 4.2.2, 4.4.3, 6.3.5, 7, 11).
//!
//! The caller feeds [`TargetSession::handle_pdu`] and the answers of the device server, then drains
//! [`TargetSession::poll_action`] and asks [`TargetSession::poll_timeout`] when to come back.
//!
//! ```text
//!   Active ──last connection lost──► Failed ──Time2Wait + Time2Retain──► Ending ──last task gone──► (Ended)
//!     │  ▲──────── same TSIH logs in again ──┘                             ▲
//!     └──────────── logout, violation, terminate() ────────────────────────┘
//! ```
//! Its connections are in `connection`, what they bring in `requests`, what goes wrong with them in `recovery`.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{Cid, CmdSn, Itt, Lun, NopOut, StatSn, TextRequest, Tsih};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::actions::{Action, CloseReason, Command};
use super::command_window::CommandWindow;
use super::connection::{Connection, Loss, Lost};
use super::fence::{Fence, HeldBack};
use super::login::{Established, LoginNames};
use super::recovery::RecoveryCounts;
use super::recovery::retained::Retained;
use super::task::{Drain, State, TaskId, TaskTable};
use super::task_management::{AbortWait, Management};
use crate::params::{Bounds, Params};
use crate::pdu_reader::RxPdu;
use crate::{Time, earlier};

/// Choices of configuration for a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Commands that may be outstanding: the size of the command window.
    pub queue_depth: u32,
    /// Silence after which the initiator is pinged; zero never pings.
    pub ping_interval: Duration,
    /// Further silence after which its connection is closed.
    pub ping_timeout: Duration,
    /// Most bytes of write data that are solicited at one time in the session.
    pub solicited_bytes_max: u64,
    /// Most bytes of Data-In that are kept until they are acknowledged, above ErrorRecoveryLevel 0; beyond it the oldest are
    /// forgotten, and refused when they are asked for again.
    pub retained_bytes_max: u64,
    /// What may be renegotiated in full feature phase.
    pub bounds: Bounds,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            queue_depth: 128,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(30),
            solicited_bytes_max: 64 << 20,
            retained_bytes_max: 64 << 20,
            bounds: Bounds::default(),
        }
    }
}

/// A request whose turn is decided by the command window.
#[derive(Debug)]
pub(super) enum Queued {
    Command(Command),
    Management(Cid, iscsi_wire::TaskManagementRequest),
    NopOut(Cid, NopOut, Bytes),
    Text(Cid, TextRequest, RxPdu),
    Logout(Cid, iscsi_wire::LogoutRequest),
}

impl Queued {
    /// Data that it brought, other than that of a command, bytes.
    pub fn data_bytes(&self) -> usize {
        match self {
            Self::NopOut(_, _, data) => data.len(),
            Self::Text(_, _, rx) => rx.data.len(),
            Self::Command(_) | Self::Management(..) | Self::Logout(..) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Active,
    /// No connection is left; the session dies at this time.
    Failed(Time),
    Ending,
    Ended,
}

/// Numbers that most target PDUs carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub stat_sn: StatSn,
    pub exp_cmd_sn: CmdSn,
    pub max_cmd_sn: CmdSn,
}

/// What a session holds at one moment. Nothing of it outlives the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// SCSI commands that have arrived and not ended.
    pub tasks: usize,
    /// Those of them whose turn has not come, because the number of an earlier one is missing.
    pub held: usize,
    /// Abandoned commands of which the device server has not yet let go.
    pub leaving: usize,
    /// Aborted commands whose data is still awaited.
    pub drains: usize,
    /// Task management and logouts that are not yet answered.
    pub waits: usize,
    /// Commands that wait for room to solicit their data.
    pub unsolicited: usize,
    /// Write data that R2Ts have asked for, of commands that have not ended, bytes.
    pub solicited_bytes: u64,
    /// Data that came or may come unasked, of commands whose data the device server has not asked for, bytes.
    pub early_bytes: u64,
    /// Data-Out of commands for which more is still to come, bytes.
    pub data_out_bytes: u64,
    /// Commands whose connection is lost and that no other one has taken over, ended ones included.
    pub orphans: usize,
    /// Ended commands that are kept until their status is acknowledged.
    pub retained: usize,
    /// Data-In of those that is kept, bytes.
    pub retained_bytes: u64,
    /// Responses that wait for a fence.
    pub held_back: usize,
}

/// One session; see the module.
#[derive(Debug)]
pub struct TargetSession {
    pub(super) names: LoginNames,
    tsih: Tsih,
    pub(super) params: Params,
    pub(super) config: SessionConfig,
    pub(super) phase: Phase,
    pub(super) window: CommandWindow<Queued>,
    pub(super) connections: SmallVec<[Connection; 1]>,
    /// Connections that are gone while their tasks may be taken over.
    pub(super) lost: Vec<Lost>,
    pub(super) retained: Retained,
    pub(super) recovery_counts: RecoveryCounts,
    pub(super) fence: Option<Fence>,
    /// The last response that would have had a fence if there had been another connection, by the StatSN after it.
    pub(super) alone_fenced: Option<(Cid, StatSn)>,
    pub(super) held_back: VecDeque<HeldBack>,
    pub(super) tasks: TaskTable,
    pub(super) by_itt: FxHashMap<Itt, TaskId>,
    /// Non-immediate tasks in the table: they take room in the window.
    pub(super) live: usize,
    pub(super) immediate: usize,
    /// Abandoned tasks of which the device server has not yet let go, with their logical units.
    pub(super) leaving: FxHashMap<TaskId, Lun>,
    pub(super) drains: Vec<Drain>,
    pub(super) abort_waits: Vec<AbortWait>,
    pub(super) management: Vec<Management>,
    /// Immediate task management that waits for earlier commands.
    pub(super) early_management: Vec<(Cid, iscsi_wire::TaskManagementRequest)>,
    pub(super) next_id: u64,
    pub(super) next_ttt: u32,
    pub(super) solicited_bytes: u64,
    pub(super) budget_queue: VecDeque<TaskId>,
    /// Data that came or may come unasked, of commands whose data the device server has not asked for, bytes.
    pub(super) early_bytes: u64,
    pub(super) early_bytes_max: u64,
    /// No data that are due have been so for too long before this time; `None` while none are due, and at ErrorRecoveryLevel 0.
    pub(super) data_due: Option<Time>,
    /// Logical units with commands that died with their connection, until the caller asks.
    pub(super) cleared_luns: SmallVec<[Lun; 2]>,
    /// MaxCmdSN as last told to the initiator.
    pub(super) told_max: CmdSn,
    pub(super) rejects: u64,
    pub(super) actions: VecDeque<Action>,
    pub(super) now: Time,
}

impl TargetSession {
    /// The session that a completed login creates. Its final login response is sent by this session's first action.
    pub fn new(established: Established, tsih: Tsih, config: SessionConfig, now: Time) -> Self {
        let window = CommandWindow::new(established.exp_cmd_sn, config.queue_depth);
        let mut session = Self {
            names: established.names.clone(),
            tsih,
            params: established.params.clone(),
            config,
            phase: Phase::Active,
            told_max: window.max_cmd_sn(),
            window,
            connections: SmallVec::new(),
            lost: Vec::new(),
            retained: Retained::default(),
            recovery_counts: RecoveryCounts::default(),
            fence: None,
            alone_fenced: None,
            held_back: VecDeque::new(),
            tasks: TaskTable::default(),
            by_itt: FxHashMap::default(),
            live: 0,
            immediate: 0,
            leaving: FxHashMap::default(),
            drains: Vec::new(),
            abort_waits: Vec::new(),
            management: Vec::new(),
            early_management: Vec::new(),
            next_id: 0,
            next_ttt: 0,
            solicited_bytes: 0,
            budget_queue: VecDeque::new(),
            early_bytes: 0,
            early_bytes_max: u64::MAX,
            data_due: None,
            cleared_luns: SmallVec::new(),
            rejects: 0,
            actions: VecDeque::new(),
            now,
        };
        session.join(established, now);
        session
    }

    /// TSIH of the session.
    pub fn tsih(&self) -> Tsih {
        self.tsih
    }

    /// Who is logged in where.
    pub fn names(&self) -> &LoginNames {
        &self.names
    }

    /// Parameters of the session; those of a connection are in [`TargetSession::connection_params`].
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Parameters of one connection.
    pub fn connection_params(&self, cid: Cid) -> Option<&Params> {
        self.connections.iter().find(|c| c.cid == cid).map(|c| &c.params)
    }

    /// Connections that are up.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Commands that have arrived and not ended.
    pub fn outstanding(&self) -> usize {
        self.live + self.immediate
    }

    /// The logical unit that a command is for.
    pub fn lun_of(&self, task: TaskId) -> Option<Lun> {
        self.tasks.get(task).map(|task| task.lun)
    }

    /// The connection on which a command is answered; `None` while it has none.
    pub fn connection_of(&self, task: TaskId) -> Option<Cid> {
        self.tasks.get(task).and_then(super::task::Task::home)
    }

    /// True once the session only waits for its last commands to go: nothing can join it any more.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Ended)
    }

    /// Logical units whose commands have died with their connection since this was asked last: each owes the nexus a unit
    /// attention 47/7F, if the session goes on.
    //= rfc7143 11.14.5 LGO-04
    #[inline]
    pub fn take_cleared_luns(&mut self) -> SmallVec<[Lun; 2]> {
        std::mem::take(&mut self.cleared_luns)
    }

    /// What recovery has done so far.
    pub fn recovery_counts(&self) -> RecoveryCounts {
        self.recovery_counts
    }

    /// Connections that are lost and whose tasks may still be taken over.
    pub fn lost_connection_count(&self) -> usize {
        self.lost.len()
    }

    /// Reject PDUs sent so far.
    pub fn rejects(&self) -> u64 {
        self.rejects
    }

    /// Commands that may be outstanding.
    pub fn queue_depth(&self) -> u32 {
        self.config.queue_depth
    }

    /// The choices of configuration that it works by.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Data that came or may come unasked with commands for whose data [`TargetSession::need_data_out`] has not asked, bytes.
    pub fn early_bytes(&self) -> u64 {
        self.early_bytes
    }

    /// Whether there is room for as much unasked data as a command may bring.
    pub fn has_room_for_first_burst(&self) -> bool {
        self.early_bytes + u64::from(self.params.effective_first_burst()) <= self.early_bytes_max
    }

    /// Sets the most that [`TargetSession::early_bytes`] may be. A command whose data would make it more ends with BUSY or TASK
    /// SET FULL, and nothing of its data is kept.
    pub fn set_early_bytes_max(&mut self, bytes: u64) {
        self.early_bytes_max = bytes;
    }

    /// Lets the initiator have at most `commands` outstanding, as far as it has not been told of more, and never more than the
    /// queue depth.
    pub fn limit_window(&mut self, commands: u32) {
        self.window.limit(commands.min(self.config.queue_depth));
    }

    /// Data-In that is kept until it is acknowledged, bytes.
    pub fn retained_bytes(&self) -> u64 {
        self.retained.bytes
    }

    /// Sets the most that [`TargetSession::retained_bytes`] may be; what is more is forgotten, the oldest first.
    pub fn set_retained_bytes_max(&mut self, bytes: u64) {
        self.config.retained_bytes_max = bytes;
        self.retained.forget_beyond(bytes);
    }

    /// Whether responses with their data wait for a fence.
    pub fn is_holding_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// What the session holds.
    pub fn holdings(&self) -> Holdings {
        Holdings {
            tasks: self.tasks.iter().count(),
            held: self.tasks.iter().filter(|(_, task)| task.state == State::Held).count(),
            leaving: self.leaving.len(),
            drains: self.drains.len(),
            waits: self.abort_waits.len() + self.management.len() + self.early_management.len(),
            unsolicited: self.budget_queue.len(),
            solicited_bytes: self.solicited_bytes,
            early_bytes: self.early_bytes,
            data_out_bytes: self
                .tasks
                .iter()
                .flat_map(|(_, task)| &task.data)
                .map(|data| data.len() as u64)
                .sum(),
            orphans: self.tasks.iter().filter(|(_, task)| task.orphan).count()
                + self.retained.iter().filter(|outcome| outcome.orphan).count(),
            retained: self.retained.len(),
            retained_bytes: self.retained.bytes,
            held_back: self.held_back.len(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.phase == Phase::Ending && self.leaving.is_empty() && self.abort_waits.is_empty() {
            self.phase = Phase::Ended;
            return Some(Action::Ended);
        }
        self.check_invariants();
        None
    }

    /// The command that the next action starts, if it starts one.
    pub fn next_to_start(&self) -> Option<&Command> {
        match self.actions.front() {
            Some(Action::Start(command)) => Some(command),
            _ => None,
        }
    }

    /// When [`TargetSession::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let mut due = match self.phase {
            Phase::Failed(at) => Some(at),
            _ => None,
        };
        for connection in self.connections.iter().filter(|c| !c.closing) {
            due = earlier(due, earlier(self.ping_due(connection), connection.logout_deadline));
        }
        due = self.drains.iter().fold(due, |due, drain| earlier(due, Some(drain.deadline)));
        due = self.lost.iter().fold(due, |due, lost| earlier(due, Some(lost.deadline)));
        due = earlier(due, self.fence.as_ref().map(|fence| fence.deadline));
        earlier(due, self.data_due)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.expire_lost_connections();
        //= rfc7143 6.3.5 SES-04
        if matches!(self.phase, Phase::Failed(at) if at <= now) {
            self.end();
        }
        self.expire_drains();
        self.expire_data();
        if self.expire_connections() {
            self.expire_fence();
        }
    }

    /// Ends the session: its tasks die, its connections are closed. Used for reinstatement and on orders of the operator.
    //= rfc7143 6.3.5 SES-01
    pub fn terminate(&mut self, now: Time, reason: CloseReason) {
        self.now = now;
        self.close_session(reason);
    }

    /// Closes every connection and ends.
    pub(super) fn close_session(&mut self, reason: CloseReason) {
        // Nothing that waits for a fence goes out behind the answer by which all is over.
        (self.fence, self.held_back) = (None, VecDeque::new());
        for cid in self.connections.iter().map(|c| c.cid).collect::<SmallVec<[Cid; 2]>>() {
            self.actions.push_back(Action::Close { cid, reason: reason.clone() });
            self.remove_connection(cid, Loss::Final);
        }
        self.end();
    }

    /// Nothing can join any more: what is left of its tasks dies.
    pub(super) fn end(&mut self) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ending;
        self.lost.clear();
        self.retained.clear();
        self.data_due = None;
        (self.fence, self.held_back) = (None, VecDeque::new());
        self.abort_each(self.tasks.iter().map(|(id, _)| id).collect(), &mut AbortWait::nobody());
        for drain in &mut self.drains {
            drain.deadline = self.now;
        }
        self.expire_drains();
    }
}
