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
//! Left out so far: more than one connection, and error recovery levels above 0.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{
    AsyncEvent, Cid, CmdSn, Itt, Lun, NopOut, Pdu, RejectReason, ScsiCommand, StatSn, TextRequest, Tsih,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::actions::{Action, CloseReason, Command};
use super::command_window::{Arrival, CommandWindow};
use super::login::{Established, LoginNames};
use super::task::{Drain, State, Task, TaskId, TaskTable};
use super::task_management::{AbortWait, Management};
use super::text::TextExchange;
use crate::Time;
use crate::error::Fault;
use crate::limits::MAX_IMMEDIATE_TASKS;
use crate::params::{Bounds, Params};
use crate::pdu_reader::RxPdu;

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
            bounds: Bounds::default(),
        }
    }
}

/// A request whose turn is decided by the command window.
#[derive(Debug)]
pub(super) enum Queued {
    Command(Box<Command>),
    Management(Cid, iscsi_wire::TaskManagementRequest),
    NopOut(Cid, NopOut, Bytes),
    Text(Cid, TextRequest, RxPdu),
    Logout(Cid, iscsi_wire::LogoutRequest),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub cid: Cid,
    pub params: Params,
    pub stat_sn: StatSn,
    /// Set once the connection is on its way out: what still arrives is ignored (RFC 7143 11.14).
    pub closing: bool,
    pub text: Option<TextExchange>,
    last_rx: Time,
    /// A ping of ours was sent, and nothing has come since.
    pub(super) pinged: bool,
    /// When we give up waiting for the logout that we asked for.
    pub logout_deadline: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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

/// Tag of a request that must have one, and its CmdSN if it takes its turn in the command window.
fn request_place(pdu: &Pdu) -> Option<(Itt, Option<CmdSn>)> {
    let (itt, immediate, cmd_sn) = match pdu {
        Pdu::ScsiCommand(p) => (p.itt, p.immediate, p.cmd_sn),
        Pdu::TaskManagementRequest(p) => (p.itt, p.immediate, p.cmd_sn),
        Pdu::TextRequest(p) => (p.itt, p.immediate, p.cmd_sn),
        Pdu::LogoutRequest(p) => (p.itt, p.immediate, p.cmd_sn),
        _ => return None,
    };
    Some((itt, (!immediate).then_some(cmd_sn)))
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
}

/// One session; see the module.
#[derive(Debug)]
pub struct TargetSession {
    pub(super) names: LoginNames,
    tsih: Tsih,
    pub(super) params: Params,
    pub(super) config: SessionConfig,
    phase: Phase,
    pub(super) window: CommandWindow<Queued>,
    pub(super) connections: SmallVec<[Connection; 1]>,
    pub(super) tasks: TaskTable,
    pub(super) by_itt: FxHashMap<Itt, TaskId>,
    /// Non-immediate tasks in the table: they take room in the window.
    pub(super) live: usize,
    immediate: usize,
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
            cleared_luns: SmallVec::new(),
            rejects: 0,
            actions: VecDeque::new(),
            now,
        };
        session.join(established, now);
        session
    }

    /// Adds the connection of a login that named this session's TSIH. One with the same CID is replaced: its tasks die with it.
    //= rfc7143 6.3.4 SES-03
    pub fn join(&mut self, established: Established, now: Time) {
        self.now = now;
        let cid = established.names.cid;
        if self.connection(cid).is_some() {
            self.drop_connection(cid, CloseReason::Replaced);
        }
        self.phase = Phase::Active;
        let response = established.response(self.tsih, self.window.exp_cmd_sn(), self.window.max_cmd_sn());
        self.actions.push_back(Action::Send { cid, pdu: response });
        self.connections.push(Connection {
            cid,
            stat_sn: established.stat_sn.next(),
            params: established.params,
            closing: false,
            text: None,
            last_rx: now,
            pinged: false,
            logout_deadline: None,
        });
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

    /// True once the session only waits for its last commands to go: nothing can join it any more.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Ended)
    }

    /// Logical units whose commands have died with their connection since this was asked last: each owes the nexus a unit
    /// attention 47/7F, if the session goes on.
    //= rfc7143 11.14.5 LGO-04
    pub fn take_cleared_luns(&mut self) -> SmallVec<[Lun; 2]> {
        std::mem::take(&mut self.cleared_luns)
    }

    /// Reject PDUs sent so far.
    pub fn rejects(&self) -> u64 {
        self.rejects
    }

    /// Commands that may be outstanding.
    pub fn queue_depth(&self) -> u32 {
        self.config.queue_depth
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
        None
    }

    /// When [`TargetSession::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let failed = match self.phase {
            Phase::Failed(at) => Some(at),
            _ => None,
        };
        let pings = self
            .connections
            .iter()
            .filter(|c| !c.closing)
            .flat_map(|c| [self.ping_due(c), c.logout_deadline])
            .flatten();
        let drains = self.drains.iter().map(|d| d.deadline);
        pings.chain(drains).chain(failed).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        //= rfc7143 6.3.5 SES-04
        if matches!(self.phase, Phase::Failed(at) if at <= now) {
            self.phase = Phase::Ending;
        }
        self.expire_drains();
        let due: SmallVec<[Cid; 2]> = self.connections.iter().filter(|c| !c.closing).map(|c| c.cid).collect();
        for cid in due {
            let Some(connection) = self.connection(cid) else { continue };
            if connection.logout_deadline.is_some_and(|at| at <= now) {
                //= rfc7143 11.9.1 ASY-01
                self.close_session(CloseReason::Silent);
                return;
            }
            let connection = &self.connections[self.position(cid)];
            if self.ping_due(connection).is_some_and(|at| at <= now) {
                match connection.pinged {
                    true => self.lose_connection(cid, CloseReason::Silent),
                    false => self.ping(cid),
                }
            }
        }
    }

    /// Takes a PDU that arrived on connection `cid`.
    pub fn handle_pdu(&mut self, now: Time, cid: Cid, rx: &RxPdu) {
        self.now = now;
        let Some(connection) = self.connection(cid) else { return };
        // Whatever arrives shows that the initiator lives; the next silence begins with a fresh ping.
        connection.last_rx = now;
        connection.pinged = false;
        //= rfc7143 11.14 LGO-03
        if connection.closing {
            return;
        }
        if !rx.data_digest_ok {
            return self.data_digest_error(cid, rx);
        }
        let pdu = match Pdu::parse(&rx.bhs) {
            Ok(pdu) => pdu,
            //= rfc7143 11.17 PDU-04
            Err(iscsi_wire::WireError::UnknownOpcode(_)) => return self.fault(cid, rx, Fault::UnknownOpcode),
            //= rfc7143 11 PDU-03
            Err(_) => return self.fault(cid, rx, Fault::InvalidField),
        };
        //= rfc7143 11.5.2 PDU-06
        let bare =
            matches!(pdu, Pdu::TaskManagementRequest(_) | Pdu::LogoutRequest(_) | Pdu::SnackRequest(_));
        if (bare && !rx.data.is_empty()) || (!rx.ahs.is_empty() && !matches!(pdu, Pdu::ScsiCommand(_))) {
            return self.fault(cid, rx, Fault::InvalidField);
        }
        if self.names.discovery && !self.allowed_in_discovery(&pdu) {
            //= rfc7143 4.3 DSC-01
            return self.fault(cid, rx, Fault::NotAllowedNow);
        }
        if let Some((itt, ordered)) = request_place(&pdu) {
            //= rfc7143 11.2.1.8 RSP-04
            if itt.is_reserved() {
                return self.fault(cid, rx, Fault::InvalidField);
            }
            //= rfc7143 4.2.2.1 NUM-03
            if ordered.is_some_and(|cmd_sn| !self.window.admits(cmd_sn)) {
                return;
            }
        }
        match pdu {
            Pdu::ScsiCommand(command) => self.handle_command(cid, rx, &command),
            Pdu::DataOut(data) => self.handle_data_out(cid, rx, &data),
            Pdu::TaskManagementRequest(request) => {
                // ABORT TASK is carried out at once and takes no place: it may be what the others wait for.
                //= rfc7143 4.2.2.1 NUM-08
                if request.immediate
                    && request.function != iscsi_wire::TmfFunction::AbortTask
                    && self.immediate_management() >= MAX_IMMEDIATE_TASKS
                {
                    return self.reject(cid, rx, RejectReason::TooManyImmediateCommands);
                }
                if self.itt_in_use(request.itt) {
                    return self.reject(cid, rx, RejectReason::TaskInProgress);
                }
                self.arrive(request.immediate, request.cmd_sn, Queued::Management(cid, request));
            }
            Pdu::NopOut(nop) => self.handle_nop_out(cid, rx, nop),
            Pdu::TextRequest(request) => {
                self.arrive(request.immediate, request.cmd_sn, Queued::Text(cid, request, rx.clone()));
            }
            Pdu::LogoutRequest(request) => {
                self.arrive(request.immediate, request.cmd_sn, Queued::Logout(cid, request))
            }
            // A SNACK has no meaning at level 0, a login none here, and target PDUs none at all.
            //= rfc7143 4.2.4 LGN-21 PDU-05
            _ => self.fault(cid, rx, Fault::NotAllowedNow),
        }
    }

    /// The transport of `cid` is gone.
    pub fn handle_connection_lost(&mut self, now: Time, cid: Cid) {
        self.now = now;
        if self.connection(cid).is_some() {
            self.forget_connection(cid);
        }
    }

    /// Ends the session: its tasks die, its connections are closed. Used for reinstatement and on orders of the operator.
    //= rfc7143 6.3.5 SES-01
    pub fn terminate(&mut self, now: Time, reason: CloseReason) {
        self.now = now;
        self.close_session(reason);
    }

    /// Asks the initiator to log out within `grace`; its connections are closed when it does not.
    //= rfc7143 11.9.1 ASY-01
    pub fn request_logout(&mut self, now: Time, grace: Duration) {
        self.now = now;
        if self.phase != Phase::Active {
            return self.close_session(CloseReason::Ended);
        }
        let cids: SmallVec<[Cid; 2]> = self
            .connections
            .iter()
            .filter(|c| !c.closing && c.logout_deadline.is_none())
            .map(|c| c.cid)
            .collect();
        for cid in cids {
            if let Some(connection) = self.connection(cid) {
                connection.logout_deadline = Some(now + grace);
            }
            self.send_async(
                cid,
                AsyncEvent::LogoutRequest,
                Lun(0),
                grace.as_secs().clamp(1, 3600) as u16,
                Bytes::new(),
            );
        }
    }

    /// Tells the initiator of a SCSI event of a logical unit, with its sense data.
    //= rfc7143 11.9 ASY-04
    pub fn report_scsi_event(&mut self, now: Time, lun: Lun, sense: &[u8]) {
        self.now = now;
        if self.names.discovery {
            return;
        }
        let Some(cid) = self.connections.iter().find(|c| !c.closing).map(|c| c.cid) else { return };
        let mut data = Vec::with_capacity(2 + sense.len());
        data.extend_from_slice(&(sense.len() as u16).to_be_bytes());
        data.extend_from_slice(sense);
        self.send_async(cid, AsyncEvent::ScsiAsyncEvent, lun, 0, data.into());
    }

    fn allowed_in_discovery(&self, pdu: &Pdu) -> bool {
        match pdu {
            // Pings are let through: they hurt nobody, and some initiators send them.
            Pdu::TextRequest(_) | Pdu::NopOut(_) => true,
            Pdu::LogoutRequest(request) => request.reason == iscsi_wire::LogoutReason::CloseSession,
            _ => false,
        }
    }

    /// Runs a request at once if it is immediate, else in its turn.
    //= rfc7143 4.2.2.1 NUM-02 NUM-11 TMF-09
    pub(super) fn arrive(&mut self, immediate: bool, cmd_sn: CmdSn, queued: Queued) {
        if immediate {
            return self.run(queued);
        }
        if let Arrival::Run(queued) = self.window.arrive(cmd_sn, queued) {
            self.run(queued);
            self.run_ready();
        }
    }

    /// Runs held requests whose turn has come, and task management that waited for them.
    pub(super) fn run_ready(&mut self) {
        while let Some(queued) = self.window.next_ready() {
            self.run(queued);
        }
        self.run_early_management();
    }

    fn run(&mut self, queued: Queued) {
        match queued {
            Queued::Command(command) => self.start(*command),
            Queued::Management(cid, request) => self.manage(cid, &request),
            Queued::NopOut(cid, nop, data) => self.answer_ping(cid, &nop, data),
            Queued::Text(cid, request, rx) => self.handle_text(cid, &request, &rx),
            Queued::Logout(cid, request) => self.handle_logout(cid, &request),
        }
    }

    /// Checks a SCSI command, books it as a task, and lets the window decide on its turn.
    fn handle_command(&mut self, cid: Cid, rx: &RxPdu, command: &ScsiCommand) {
        //= rfc7143 11.2.1.8 RSP-04
        if self.itt_in_use(command.itt) {
            return self.reject(cid, rx, RejectReason::TaskInProgress);
        }
        // Aborted tasks that the device server still holds count too, or aborting them at once would get round the limit.
        //= rfc7143 4.2.2.1 NUM-08
        if command.immediate && self.immediate + self.leaving.len() >= self.immediate_tasks_max() {
            return self.reject(cid, rx, RejectReason::TooManyImmediateCommands);
        }
        match self.book(cid, rx, command) {
            Ok(booked) => {
                let (immediate, cmd_sn) = (command.immediate, command.cmd_sn);
                self.arrive(immediate, cmd_sn, Queued::Command(Box::new(booked)));
            }
            Err(fault) => self.fault(cid, rx, fault),
        }
    }

    /// Enters a task into the table.
    pub(super) fn insert_task(&mut self, task: Task) -> TaskId {
        let (itt, immediate) = (task.itt, task.immediate);
        let id = self.tasks.insert(task);
        self.by_itt.insert(itt, id);
        *if immediate { &mut self.immediate } else { &mut self.live } += 1;
        id
    }

    /// Takes a task out of the table: its room in the window and its budget are free.
    pub(super) fn remove_task(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(id)?;
        self.by_itt.remove(&task.itt);
        if task.budget_bytes == 0 {
            self.budget_queue.retain(|waiting| *waiting != id);
        }
        *if task.immediate { &mut self.immediate } else { &mut self.live } -= 1;
        self.release_budget(task.budget_bytes);
        Some(task)
    }

    /// The window bounds ordinary tasks; immediate ones have [`MAX_IMMEDIATE_TASKS`] of their own.
    fn immediate_tasks_max(&self) -> usize {
        MAX_IMMEDIATE_TASKS + self.leaving.len().min(self.config.queue_depth as usize)
    }

    pub(super) fn itt_in_use(&self, itt: Itt) -> bool {
        self.by_itt.contains_key(&itt)
            || self.management.iter().any(|m| m.itt == itt)
            || self.early_management.iter().any(|(_, request)| request.itt == itt)
    }

    /// A PDU whose data does not match its digest: nothing of it is used, and a command's CmdSN is not consumed.
    //= rfc7143 7.8 DIG-08 DIG-10 DIG-11 NUM-13
    fn data_digest_error(&mut self, cid: Cid, rx: &RxPdu) {
        match iscsi_wire::DataOut::parse(&rx.bhs) {
            Ok(data) => self.handle_data_out(cid, rx, &data),
            Err(_) => self.fault(cid, rx, Fault::DataDigest),
        }
    }

    pub(super) fn connection(&mut self, cid: Cid) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|c| c.cid == cid)
    }

    fn position(&self, cid: Cid) -> usize {
        self.connections.iter().position(|c| c.cid == cid).expect("looked up just before")
    }

    fn ping_due(&self, connection: &Connection) -> Option<Time> {
        if self.config.ping_interval.is_zero() {
            return None;
        }
        let silence = self.config.ping_interval
            + if connection.pinged { self.config.ping_timeout } else { Duration::ZERO };
        Some(connection.last_rx + silence)
    }

    /// Closes a connection from our side because it is of no more use, and books its loss.
    pub(super) fn lose_connection(&mut self, cid: Cid, reason: CloseReason) {
        self.actions.push_back(Action::Close { cid, reason });
        self.forget_connection(cid);
    }

    /// As [`Self::lose_connection`], for one whose place is taken at once: the session does not fail in between.
    fn drop_connection(&mut self, cid: Cid, reason: CloseReason) {
        self.actions.push_back(Action::Close { cid, reason });
        self.abort_connection_tasks(cid);
        self.connections.retain(|c| c.cid != cid);
    }

    fn forget_connection(&mut self, cid: Cid) {
        let closing = self.connection(cid).is_some_and(|c| c.closing);
        self.abort_connection_tasks(cid);
        self.connections.retain(|c| c.cid != cid);
        if !self.connections.is_empty() || self.phase != Phase::Active {
            return;
        }
        self.phase = if self.names.discovery || closing {
            Phase::Ending
        } else {
            let retain =
                u64::from(self.params.default_time2wait_s) + u64::from(self.params.default_time2retain_s);
            Phase::Failed(self.now + Duration::from_secs(retain))
        };
    }

    /// Closes every connection and ends.
    pub(super) fn close_session(&mut self, reason: CloseReason) {
        for cid in self.connections.iter().map(|c| c.cid).collect::<SmallVec<[Cid; 2]>>() {
            self.drop_connection(cid, reason.clone());
        }
        if self.phase != Phase::Ended {
            self.phase = Phase::Ending;
        }
    }
}
