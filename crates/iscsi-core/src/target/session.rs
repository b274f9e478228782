//! A target session in full feature phase: handles PDUs, numbers responses, and holds the state its connections share (RFC 7143
//! 4.2.2, 4.4.3, 6.3.5, 7, 11).
//!
//! The caller feeds [`TargetSession::handle_pdu`] and the answers of the device server, then drains
//! [`TargetSession::poll_action`]; [`TargetSession::poll_timeout`] says when to call again.
//!
//! ```text
//!   Active ──last connection lost──► Failed ──Time2Wait + Time2Retain──► Ending ──last task gone──► (Ended)
//!     │  ▲──────── same TSIH logs in again ──┘                             ▲
//!     └──────────── logout, violation, terminate() ────────────────────────┘
//! ```
//! Its connections are in `connection`, the PDUs they receive in `requests`, recovery from their failures in `recovery`.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{Cid, Lun, NopOut, TextRequest, Tsih, Ttt};
use smallvec::SmallVec;

use super::aborts::{AbortWait, Aborts};
use super::actions::{Action, CloseReason, Command};
use super::command_window::CommandWindow;
use super::connection::{Connection, Loss, Lost};
use super::fence::Fences;
use super::login::{Established, LoginNames};
use super::recovery::RecoveryCounts;
use super::recovery::retained::Retained;
use super::task::{State, TaskId};
use super::tasks::Tasks;
use super::write_flow::WriteFlow;
use crate::params::{Bounds, Params};
use crate::pdu_reader::RxPdu;
use crate::send_order::SendOrder;
use crate::{Time, earlier};

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Commands that may be outstanding: the size of the command window.
    pub queue_depth: u32,
    /// Silence after which the initiator is pinged; zero never pings.
    pub ping_interval: Duration,
    /// Further silence after which the connection is closed.
    pub ping_timeout: Duration,
    /// Most bytes of write data that the session solicits at a time.
    pub solicited_bytes_max: u64,
    /// Most bytes of unacknowledged Data-In that are kept for retransmission, above ErrorRecoveryLevel 0. Beyond this limit the
    /// oldest data is dropped, and a SNACK for it is refused.
    pub retained_bytes_max: u64,
    /// What may be renegotiated in full feature phase.
    pub bounds: Bounds,
    /// For tests: in which order Data-In and R2Ts are sent where any is allowed.
    pub send_order: SendOrder,
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
            send_order: SendOrder::default(),
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
    /// Bytes of data that the request carries; the write data of a command does not count.
    pub(crate) fn data_bytes(&self) -> usize {
        match self {
            Self::NopOut(_, _, data) => data.len(),
            Self::Text(_, _, rx) => rx.data.len(),
            Self::Command(_) | Self::Management(..) | Self::Logout(..) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    /// No connection is left; the session dies at this time.
    Failed(Time),
    Ending,
    Ended,
}

/// Data for writes that a session holds or has room for, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataOutHeld {
    /// Solicitation budget in use: write data that has been, or is about to be, requested by R2T.
    pub solicited_bytes: u64,
    /// Unsolicited data received or still allowed, of commands whose data the device server has not requested yet.
    pub early_bytes: u64,
    /// Received for commands whose data is not complete yet.
    pub kept_bytes: u64,
}

/// What a session holds at one moment. None of it outlives the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// SCSI commands that have arrived and not completed.
    pub tasks: usize,
    /// Those of them that cannot run yet because an earlier CmdSN is missing.
    pub held: usize,
    /// Abandoned commands that the device server has not released yet.
    pub leaving: usize,
    /// Aborted commands whose data the initiator still owes.
    pub drains: usize,
    /// Task management requests and logouts not yet answered, and other waits for aborted tasks.
    pub waits: usize,
    /// Commands that wait for solicitation budget.
    pub unsolicited: usize,
    /// Data for writes.
    pub data_out: DataOutHeld,
    /// Commands whose connection is lost and that have not been reassigned, completed ones included.
    pub orphans: usize,
    /// Completed commands that are kept until their status is acknowledged.
    pub retained: usize,
    /// Data-In kept for those, bytes.
    pub retained_bytes: u64,
    /// Responses that wait for a fence.
    pub held_back: usize,
}

/// One session; see the module.
#[derive(Debug)]
pub struct TargetSession {
    names: LoginNames,
    tsih: Tsih,
    pub(super) params: Params,
    pub(super) config: SessionConfig,
    phase: Phase,
    pub(super) window: CommandWindow<Queued>,
    pub(super) connections: SmallVec<[Connection; 1]>,
    /// Lost connections whose tasks may still be reassigned.
    pub(super) lost: Vec<Lost>,
    pub(super) retained: Retained,
    pub(super) recovery_counts: RecoveryCounts,
    pub(super) fences: Fences,
    pub(super) tasks: Tasks,
    pub(super) writes: WriteFlow,
    pub(super) aborts: Aborts,
    next_ttt: u32,
    /// Logical units with commands that died with their connection, until the caller takes the list.
    cleared_luns: SmallVec<[Lun; 2]>,
    rejects: u64,
    actions: VecDeque<Action>,
    pub(super) now: Time,
}

impl TargetSession {
    /// The session that a completed login creates. Its first action sends the final login response.
    pub fn new(established: Established, tsih: Tsih, config: SessionConfig, now: Time) -> Self {
        let mut session = Self {
            names: established.names.clone(),
            tsih,
            params: established.params.clone(),
            phase: Phase::Active,
            window: CommandWindow::new(established.exp_cmd_sn, config.queue_depth),
            config,
            connections: SmallVec::new(),
            lost: Vec::new(),
            retained: Retained::default(),
            recovery_counts: RecoveryCounts::default(),
            fences: Fences::default(),
            tasks: Tasks::default(),
            writes: WriteFlow::default(),
            aborts: Aborts::default(),
            next_ttt: 0,
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

    /// Names and identifiers of the leading login.
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

    /// Commands that have arrived and not completed.
    pub fn outstanding(&self) -> usize {
        self.tasks.outstanding()
    }

    /// The logical unit that a command is for.
    pub fn lun_of(&self, task: TaskId) -> Option<Lun> {
        self.tasks.get(task).map(|task| task.lun())
    }

    /// The connection on which a command is answered; `None` while it has none.
    pub fn connection_of(&self, task: TaskId) -> Option<Cid> {
        self.tasks.get(task).and_then(super::task::Task::home)
    }

    /// True once the session only waits for its last commands to finish: no connection can join it any more.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Ended)
    }

    /// Logical units with commands that died with their connection since the last call. Each owes the nexus a unit attention
    /// 47/7F, if the session continues.
    //= rfc7143 11.14.5 LGO-04
    #[inline]
    pub fn take_cleared_luns(&mut self) -> SmallVec<[Lun; 2]> {
        std::mem::take(&mut self.cleared_luns)
    }

    /// What recovery has done so far.
    pub fn recovery_counts(&self) -> RecoveryCounts {
        self.recovery_counts
    }

    /// Lost connections whose tasks may still be reassigned.
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

    /// The configuration of the session.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Unsolicited data received or still allowed, of commands for which [`TargetSession::need_data_out`] has not been called
    /// yet, bytes.
    pub fn early_bytes(&self) -> u64 {
        self.writes.early_bytes()
    }

    /// Whether there is room for the most unsolicited data that one command may bring.
    pub fn has_room_for_first_burst(&self) -> bool {
        self.writes.has_room_for_early(self.params.effective_first_burst())
    }

    /// Sets the limit for [`TargetSession::early_bytes`]. A command whose data would exceed it ends with BUSY or TASK SET FULL,
    /// and none of its data is kept.
    pub fn set_early_bytes_max(&mut self, bytes: u64) {
        self.writes.set_early_bytes_max(bytes);
    }

    /// Limits the initiator to `commands` outstanding commands, and never more than the queue depth. A window that has been
    /// announced is not taken back.
    pub fn limit_window(&mut self, commands: u32) {
        self.window.limit(commands.min(self.config.queue_depth));
    }

    /// Data-In kept until it is acknowledged, bytes.
    pub fn retained_bytes(&self) -> u64 {
        self.retained.bytes()
    }

    /// Sets the limit for [`TargetSession::retained_bytes`]. Data beyond it is dropped, the oldest first.
    pub fn set_retained_bytes_max(&mut self, bytes: u64) {
        self.config.retained_bytes_max = bytes;
        self.retained.forget_beyond(bytes);
    }

    /// Whether any response, with its data, waits for a fence.
    pub fn is_holding_back(&self) -> bool {
        self.fences.waiting() > 0
    }

    /// What the session holds.
    pub fn holdings(&self) -> Holdings {
        Holdings {
            tasks: self.tasks.iter().count(),
            held: self.tasks.iter().filter(|(_, task)| task.state == State::Held).count(),
            leaving: self.tasks.leaving(),
            drains: self.aborts.drains(),
            waits: self.aborts.waits(),
            unsolicited: self.writes.waiting(),
            data_out: DataOutHeld {
                solicited_bytes: self.writes.solicited_bytes(),
                early_bytes: self.writes.early_bytes(),
                kept_bytes: self.tasks.iter().map(|(_, task)| task.kept_bytes()).sum(),
            },
            orphans: self.tasks.iter().filter(|(_, task)| task.orphan).count()
                + self.retained.iter().filter(|outcome| outcome.orphan).count(),
            retained: self.retained.len(),
            retained_bytes: self.retained.bytes(),
            held_back: self.fences.waiting(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.phase == Phase::Ending && self.tasks.leaving() == 0 && !self.aborts.has_waits() {
            self.phase = Phase::Ended;
            return Some(Action::Ended);
        }
        self.check_invariants();
        None
    }

    /// The command that the last action starts, if it starts one.
    pub fn last_to_start(&self) -> Option<&Command> {
        match self.actions.back() {
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
        due = earlier(due, self.aborts.due());
        due = self.lost.iter().fold(due, |due, lost| earlier(due, Some(lost.deadline)));
        due = earlier(due, self.fences.deadline());
        earlier(due, self.writes.due())
    }

    /// Does what is due at `now`.
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

    /// Ends the session: its tasks die, its connections are closed. Used for session reinstatement and at the operator's request.
    //= rfc7143 6.3.5 SES-01
    pub fn terminate(&mut self, now: Time, reason: CloseReason) {
        self.now = now;
        self.close_session(reason);
    }

    /// Requests something from the surroundings.
    #[inline]
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// As [`Self::act`], ahead of everything requested before.
    pub(super) fn act_first(&mut self, action: Action) {
        self.actions.push_front(action);
    }

    /// Whether the session has, or is about to have, a connection, and is not ending.
    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// A connection joins.
    pub(super) fn revive(&mut self) {
        debug_assert!(!self.is_ending(), "a session that ends takes no connection");
        self.phase = Phase::Active;
    }

    /// The last connection is lost: the session waits for another one until its time to recover is over.
    pub(super) fn fail(&mut self) {
        debug_assert!(self.is_active() && self.connections.is_empty(), "a session fails once");
        self.phase = Phase::Failed(self.now + self.time_to_recover());
    }

    /// Whether it is a discovery session.
    pub(super) fn is_discovery(&self) -> bool {
        self.names.discovery
    }

    /// A tag for a PDU that the initiator is to answer.
    pub(super) fn next_ttt(&mut self) -> Ttt {
        let ttt = Ttt(self.next_ttt);
        self.next_ttt = self.next_ttt.wrapping_add(1);
        if Ttt(self.next_ttt).is_reserved() {
            self.next_ttt = 0;
        }
        ttt
    }

    /// Notes that a command of `lun` died with its connection.
    pub(super) fn note_cleared(&mut self, lun: Lun) {
        if !self.cleared_luns.contains(&lun) {
            self.cleared_luns.push(lun);
        }
    }

    /// Counts a Reject that is sent.
    pub(super) fn count_reject(&mut self) {
        self.rejects += 1;
    }

    /// Closes every connection and ends.
    pub(super) fn close_session(&mut self, reason: CloseReason) {
        // Responses that wait for a fence are dropped: nothing may follow the answer that ends the session.
        self.fences.clear();
        for cid in self.connections.iter().map(|c| c.cid).collect::<SmallVec<[Cid; 2]>>() {
            self.act(Action::Close { cid, reason: reason.clone() });
            self.remove_connection(cid, Loss::Final);
        }
        self.end();
    }

    /// Ends the session: no connection can join it any more, and its remaining tasks are aborted.
    pub(super) fn end(&mut self) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ending;
        self.lost.clear();
        self.retained.clear();
        self.writes.set_due(None);
        self.fences.clear();
        self.abort_each(self.tasks.iter().map(|(id, _)| id).collect(), &mut AbortWait::nobody());
        self.end_drains(|_| true);
    }
}
