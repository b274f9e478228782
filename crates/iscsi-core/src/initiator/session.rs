//! An initiator's session in full feature phase: numbers the PDUs it sends, checks those it receives, and keeps its tasks until
//! their outcome is known (RFC 7143 4.2.2, 7, 11).
//!
//! The caller feeds [`InitiatorSession::submit`] and [`InitiatorSession::handle_pdu`], then drains
//! [`InitiatorSession::poll_action`]; [`InitiatorSession::poll_timeout`] says when to call again. Further connections join with
//! [`InitiatorSession::join`] and leave with [`InitiatorSession::connection_lost`].
//!
//! ```text
//!   Active ──target asks for logout──► Draining ──idle, or time is short──► LogoutSent ──► Closed
//!     │  └───────── logout() ──────────────────────────────────────────────────▲              ▲
//!     └─────────── violation, no connection left, no remedy for a command, target drops, lost() ─┘
//! ```
//! A closed session does not come back: [`InitiatorSession::unfinished`] returns its commands, and the caller logs in again with
//! the same ISID and submits them again.

mod starved;

use std::collections::VecDeque;
use std::time::Duration;

use iscsi_wire::{Bhs, Cid, DataIn, Itt, Opcode, Pdu, RejectReason, StatSn, Tsih};

pub(super) use super::actions::violation;
pub use super::actions::{Action, CloseReason, Event, ManagementAnswer, TargetRecord, Unfinished};
use super::command::{Command, Completion, Ending};
use super::command_flow::CommandFlow;
use super::command_window::CommandWindow;
pub use super::connection::JoinError;
use super::connection::{Connection, ConnectionState};
use super::login::LoggedIn;
use super::managing::Managing;
use super::recovery::missing::Missing;
use super::recovery::settlement::Settlement;
pub use super::roll_call::MIN_TIMEOUT as MIN_TCP_TIMEOUT;
use super::roll_call::RollCall;
pub use super::scheduling::Scheduling;
use super::scheduling::{PROMPT, Turns};
use super::task::{Held, LogoutOf, Task, TaskTable};
use crate::error::{Disposition, Fault, ProtocolViolation};
use crate::limits::MAX_TIME2WAIT_S;
use crate::params::{Bounds, Params, TaskReporting};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;
use crate::send_order::SendOrder;
use crate::{Time, earlier};

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Silence of a connection after which the target is pinged on it; zero never pings.
    pub ping_interval: Duration,
    /// Further silence after which the connection is declared dead.
    pub ping_timeout: Duration,
    /// How many timeouts of TCP a connection is waited for of which nothing is heard while others of the session answer; then it is given up,
    /// and its tasks continue on the others (ErrorRecoveryLevel 2). Zero: the pings decide alone.
    pub starved_timeouts: u32,
    /// Time that a task management function may take before the next harsher measure.
    pub management_timeout: Duration,
    /// Time that a text exchange or a logout may take.
    pub exchange_timeout: Duration,
    /// How long the request for missing PDUs waits for more of them (error recovery level 1).
    pub snack_delay: Duration,
    /// Time after which missing PDUs are requested again, and an unacknowledged command is sent again (level 1).
    pub recovery_timeout: Duration,
    /// Silence of a task after which the session checks for PDUs lost without a trace (level 1).
    pub probe_after: Duration,
    /// How commands are spread over connections.
    pub scheduling: Scheduling,
    /// Most bytes of commands sent and not completed, as [`InitiatorSession::outstanding_bytes`] counts them; one command is always sent.
    pub depth_bytes: u64,
    /// What may be renegotiated in full feature phase.
    pub bounds: Bounds,
    /// For tests: in which order Data-Out is sent where any is allowed.
    pub send_order: SendOrder,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            starved_timeouts: 1,
            management_timeout: Duration::from_secs(10),
            exchange_timeout: Duration::from_secs(15),
            snack_delay: Duration::from_millis(2),
            recovery_timeout: Duration::from_secs(1),
            probe_after: Duration::from_secs(5),
            scheduling: Scheduling::default(),
            depth_bytes: u64::MAX,
            bounds: Bounds::default(),
            send_order: SendOrder::default(),
        }
    }
}

/// Recovery events of a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounters {
    /// Connections that failed while the session continued.
    pub connections_lost: u64,
    /// SNACKs sent for missing data, R2Ts and statuses.
    pub snacks_sent: u64,
    /// Tasks that continued on another connection.
    pub tasks_reassigned: u64,
    /// Commands that died with their connection and were started again.
    pub commands_begun_anew: u64,
    /// Commands sent again unchanged because nothing acknowledged them.
    pub commands_retried: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    /// The target requested a logout: no new command is sent, and at this time at the latest the logout is sent.
    Draining(Time),
    /// The logout is under way until this time.
    LogoutSent(Time),
    Closed,
}

/// One session; see the module.
#[derive(Debug)]
pub struct InitiatorSession {
    pub(super) params: Params,
    tsih: Tsih,
    /// TargetPortalGroupTag of the leading connection, if the target sent it.
    portal_group_tag: Option<u16>,
    discovery: bool,
    pub(super) config: SessionConfig,
    phase: Phase,
    pub(super) window: CommandWindow,
    pub(super) tasks: TaskTable,
    pub(super) connections: Vec<Connection>,
    pub(super) turns: Turns,
    pub(super) commands: CommandFlow,
    pub(super) managing: Managing,
    pub(super) missing: Missing,
    pub(super) settling: Settlement,
    roll_call: RollCall,
    pub(super) counters: RecoveryCounters,
    /// No command times out before this time.
    next_deadline: Option<Time>,
    /// The target requested the logout.
    asked_by_target: bool,
    actions: VecDeque<Action>,
    /// The end of the session: the last action.
    end: Option<Action>,
    pub(super) now: Time,
}

impl InitiatorSession {
    /// The session that a completed login creates.
    pub fn new(login: &LoggedIn, config: SessionConfig, now: Time) -> Self {
        Self {
            params: login.params.clone(),
            tsih: login.tsih,
            portal_group_tag: login.portal_group_tag,
            discovery: login.discovery,
            config,
            phase: Phase::Active,
            window: CommandWindow::new(login.numbers.cmd_sn, login.numbers.max_cmd_sn),
            tasks: TaskTable::default(),
            connections: Self::leading(login, now),
            turns: Turns::default(),
            commands: CommandFlow::default(),
            managing: Managing::default(),
            missing: Missing::default(),
            settling: Settlement::default(),
            roll_call: RollCall::default(),
            counters: RecoveryCounters::default(),
            next_deadline: None,
            asked_by_target: false,
            actions: VecDeque::new(),
            end: None,
            now,
        }
    }

    /// The parameters in effect; connection parameters are those of the leading connection.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Recovery events so far.
    pub fn counters(&self) -> RecoveryCounters {
        self.counters
    }

    /// Commands submitted and not completed.
    pub fn outstanding(&self) -> usize {
        self.commands.outstanding()
    }

    /// The caller's name of the command `itt` if it was sent and has not completed. With it a caller finds the buffer of a Data-In PDU before
    /// it hands the PDU over.
    pub fn user_of(&self, itt: Itt) -> Option<u64> {
        self.tasks.task(itt).filter(|task| task.cmd_sn.is_some()).map(|task| task.command.user)
    }

    /// The command `itt` if it was sent and has not completed. An engine that sends in place of this session finds its write data
    /// there.
    pub fn command_of(&self, itt: Itt) -> Option<&Command> {
        self.tasks.task(itt).filter(|task| task.cmd_sn.is_some()).map(|task| &task.command)
    }

    /// How many commands that were sent have ended so far. An engine that sends in place of this session compares it with the ends that
    /// it has reported itself.
    pub fn commands_ended(&self) -> u64 {
        self.commands.ended()
    }

    /// Write data of commands that were sent and have not completed, bytes: apart from headers, this bounds what the session can
    /// have queued for sending.
    pub fn outstanding_write_bytes(&self) -> u64 {
        self.commands.write_bytes()
    }

    /// Bytes of the commands sent and not completed, in both directions, with something for each command. Those of a lost connection do not
    /// count until they go on elsewhere.
    pub fn outstanding_bytes(&self) -> u64 {
        self.connections.iter().map(|connection| connection.outstanding_bytes).sum()
    }

    /// The same with those of lost connections, and with the commands that wait to be sent, as if they were as large as those sent. So neither
    /// a limit of the depth nor the end of a connection changes it.
    pub fn asked_bytes(&self) -> u64 {
        self.commands.asked_bytes()
    }

    /// From now on at most so many bytes are outstanding ([`SessionConfig::depth_bytes`]). Commands that were sent stay.
    pub fn limit_depth(&mut self, bytes: u64) {
        self.config.depth_bytes = bytes;
    }

    /// Whether a command of `weight` bytes may be sent.
    fn has_depth(&self, weight: u64) -> bool {
        let depth = self.config.depth_bytes;
        depth == u64::MAX || self.commands.sent() == 0 || self.outstanding_bytes() + weight <= depth
    }

    /// True once the session is over.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether commands and their data travel on different connections: this is agreed, and a second connection is possible.
    pub(super) fn is_asymmetric(&self) -> bool {
        self.params.asymmetric.is_used() && self.params.max_connections > 1
    }

    /// Accepts a command, and sends it as soon as the target's window allows.
    ///
    /// # Errors
    /// Returns the command when the session takes no more: it is ending, is a discovery session, or holds
    /// [`crate::limits::MAX_INITIATOR_TASKS`].
    pub fn submit(&mut self, now: Time, command: Command) -> Result<(), Box<Command>> {
        self.now = now;
        //= rfc7143 11.9.1 ASY-01 LGO-03
        if self.phase != Phase::Active || self.discovery {
            return Err(Box::new(command));
        }
        if let Err(violation) = command.check() {
            self.act(Action::Completed(Completion { command, ending: Ending::Unsendable(violation) }));
            return Ok(());
        }
        if self.tasks.is_full() {
            return Err(Box::new(command));
        }
        let due = (!command.timeout.is_zero()).then(|| now + command.timeout);
        let itt = self.tasks.begin(command, due);
        self.expect_by(due);
        self.commands.wait(itt);
        self.pump();
        Ok(())
    }

    /// Takes a PDU received on the connection `cid`.
    pub fn handle_pdu(&mut self, now: Time, cid: Cid, rx: RxPdu) {
        self.arrives(now, cid, |session| session.dispatch(cid, rx));
    }

    /// Something has arrived on the connection `cid`, which `handle` takes.
    #[inline]
    pub(super) fn arrives(
        &mut self,
        now: Time,
        cid: Cid,
        handle: impl FnOnce(&mut Self) -> Result<(), CloseReason>,
    ) {
        self.now = now;
        if self.phase == Phase::Closed {
            return;
        }
        match self.connection(cid) {
            Some(connection) if connection.state.stands() => connection.heard.pdu = now,
            // PDUs that arrived before the connection failed but were not processed are ignored.
            _ => return,
        }
        match handle(self) {
            Ok(()) => {}
            Err(reason) if self.costs_one_connection(&reason) => self.fail_connection(cid, reason, None),
            Err(reason) => return self.close(reason, self.time2wait()),
        }
        if self.recovery_due().is_some_and(|at| at <= now) {
            self.recover_on_time();
        }
        self.pump();
        //= rfc7143 4.2.2.2 NUM-10
        if self.connection(cid).is_some_and(|connection| connection.statuses.lags()) {
            self.acknowledge(cid);
        }
    }

    /// Does what is common to all PDUs, then passes the PDU to its handler.
    fn dispatch(&mut self, cid: Cid, rx: RxPdu) -> Result<(), CloseReason> {
        // Most PDUs of a session that reads are Data-In, whose damage is for its handler to judge: they take the short way.
        // One with an AHS does not, and is refused below.
        if rx.bhs.opcode() == Opcode::DataIn.code() && rx.ahs.is_empty() {
            let data_in = DataIn::parse(&rx.bhs).map_err(ProtocolViolation::from)?;
            return self.handle_data_in(cid, &data_in, rx);
        }
        //= rfc7143 11 PDU-03 PDU-05
        let pdu = Pdu::parse(&rx.bhs).map_err(ProtocolViolation::from)?;
        //= rfc7143 11.2 PDU-06
        let bare = matches!(pdu, Pdu::TaskManagementResponse(_) | Pdu::LogoutResponse(_) | Pdu::R2t(_));
        if !rx.ahs.is_empty() || (bare && !rx.data.is_empty()) {
            return Err(violation("RFC 7143 7.7", "a PDU with a segment that it cannot have"));
        }
        if !rx.data_digest_ok && self.damaged(cid, &pdu)? {
            return Ok(());
        }
        match pdu {
            Pdu::ScsiResponse(response) => self.handle_response(cid, &response, &rx),
            Pdu::R2t(r2t) => self.handle_r2t(cid, &r2t),
            Pdu::NopIn(nop) => self.handle_nop_in(cid, &nop, &rx),
            Pdu::TaskManagementResponse(response) => self.handle_management_response(cid, &response),
            Pdu::TextResponse(response) => self.handle_text_response(cid, &response, &rx),
            Pdu::LogoutResponse(response) => self.handle_logout_response(cid, &response),
            Pdu::AsyncMessage(message) => self.handle_async(cid, &message, &rx),
            Pdu::Reject(reject) => self.handle_reject(cid, &reject, &rx),
            other => {
                Err(violation("RFC 7143 11.2.1.2", format!("a {} PDU from a target", other.opcode().name())))
            }
        }
    }

    /// Handles a PDU whose data did not match its digest; returns true if nothing more is to be done with it. Data-In, and pings
    /// unless they are numbered and the level recovers them, are left to their handlers.
    //= rfc7143 7.8 DIG-12
    fn damaged(&mut self, cid: Cid, pdu: &Pdu) -> Result<bool, CloseReason> {
        let stat_sn = match pdu {
            Pdu::ScsiResponse(response) => response.numbers.stat_sn,
            Pdu::TextResponse(response) => response.numbers.stat_sn,
            Pdu::AsyncMessage(message) => message.numbers.stat_sn,
            Pdu::Reject(reject) => reject.numbers.stat_sn,
            Pdu::NopIn(nop) if self.recovers() && !nop.itt.is_reserved() => nop.numbers.stat_sn,
            _ => return Ok(false),
        };
        match self.disposition(Fault::DataDigest) {
            Disposition::AskAgain => self.status_damaged(cid, stat_sn).map(|()| true),
            _ => Err(CloseReason::DataDigest),
        }
    }

    /// The next thing to do. Nothing follows [`Action::Close`]: requests of the caller that ended before are reported before it.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front().or_else(|| self.end.take());
        if action.is_none() {
            self.check_invariants();
        }
        action
    }

    /// When [`InitiatorSession::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Closed => return None,
            Phase::Active => None,
            Phase::Draining(at) | Phase::LogoutSent(at) => Some(at),
        };
        let due = earlier(earlier(phase, self.next_deadline), self.connections_due());
        earlier(due, earlier(self.management_due(), self.recovery_due()))
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        match self.phase {
            Phase::Closed => return,
            Phase::Draining(at) if at <= now => self.send_logout(),
            Phase::LogoutSent(at) if at <= now => return self.close(self.logout_reason(), self.time2wait()),
            _ => {}
        }
        if self.connections_due().is_some_and(|at| at <= now) {
            self.connections_on_time();
        }
        if self.phase == Phase::Closed {
            return;
        }
        self.recover_on_time();
        self.expire(now);
        self.pump();
    }

    /// Sends the commands that the window allows.
    //= rfc7143 4.2.2.1 NUM-06
    pub(super) fn pump(&mut self) {
        if self.connections.iter().any(|connection| matches!(connection.state, ConnectionState::Draining(_)))
        {
            self.leave_drained();
        }
        if self.phase != Phase::Active {
            return self.drained();
        }
        while let Some(itt) = self.commands.next() {
            if self.window.is_closed() {
                return;
            }
            let weight = self.tasks.task(itt).map_or(0, Task::weight);
            if !self.has_depth(weight) {
                return;
            }
            let Some(cid) = self.next_connection(weight) else { return };
            let Some(cmd_sn) = self.window.take(self.now) else { return };
            self.commands.take_next();
            let probe_at = self.probe_time();
            let Some(task) = self.tasks.command(itt) else { continue };
            task.cmd_sn = Some(cmd_sn);
            task.route.follow(cid);
            (task.times.probe_at, task.times.sent_at) = (probe_at, self.now);
            self.commands.begin(task);
            if let Some(connection) = self.connections.iter_mut().find(|connection| connection.cid == cid) {
                connection.commands += 1;
                connection.outstanding_bytes += weight;
                task.segment_bytes = connection.max_recv;
            }
            if probe_at.is_some() {
                self.expect_by(probe_at);
            }
            self.send_command(itt, cmd_sn);
        }
    }

    /// Completes a command that was sent, with `ending`.
    pub(super) fn complete(&mut self, itt: Itt, ending: Ending) {
        let Some(task) = self.tasks.command(itt) else { return };
        let (cid, orphan, weight) = (task.route.cid, task.route.orphan, task.weight());
        let prompt = self.now.saturating_sub(task.times.sent_at) <= PROMPT;
        let ending = match (task.take_decision(), ending) {
            // A verdict that is fixed already stays, whatever status, timeout or abort follows.
            (Some(verdict), Ending::Status { .. } | Ending::TimedOut | Ending::Aborted) => verdict,
            (_, ending) => ending,
        };
        if task.holes.take().is_some() {
            self.missing.forget(itt);
        }
        self.commands.end(task);
        let command = task.command.take();
        self.act(Action::Completed(Completion { command, ending }));
        self.tasks.free(itt);
        if !orphan && let Some(connection) = self.connection(cid) {
            connection.ended(weight, prompt);
        }
    }

    /// A PDU for a task that does not exist. It may be late where PDUs are resent or travel on several connections.
    pub(super) fn late(&mut self, itt: Itt, rule: &'static str, what: &str) -> Result<(), CloseReason> {
        let may_be = self.recovers()
            || self.connections.len() > 1
            || self.counters.connections_lost > 0
            || self.params.task_reporting == TaskReporting::FastAbort;
        if may_be && self.tasks.was_used(itt) {
            return Ok(());
        }
        Err(violation(rule, format!("{what} for task {itt}, which is not there")))
    }

    /// ExpStatSN for a PDU that is about to be sent on `cid`.
    pub(super) fn exp_stat_sn(&mut self, cid: Cid) -> StatSn {
        self.connection(cid).map_or(StatSn(0), |connection| connection.statuses.tell())
    }

    pub(super) fn send(&mut self, cid: Cid, bhs: Bhs) {
        self.send_pdu(cid, TxPdu::header_only(bhs));
    }

    pub(super) fn send_pdu(&mut self, cid: Cid, pdu: TxPdu) {
        self.act(Action::Send { cid, pdu });
    }

    /// Requests something from the caller.
    #[inline]
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// Whether commands are accepted.
    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// Whether the logout of the session waits for commands.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining(_))
    }

    /// Whether the logout of the session is under way.
    pub(super) fn is_logging_out(&self) -> bool {
        matches!(self.phase, Phase::LogoutSent(_))
    }

    /// The target requested a logout, which is sent once no command is under way, and at the latest at `until`.
    pub(super) fn drain_until(&mut self, until: Time) {
        debug_assert!(self.is_active(), "a session drains once");
        self.asked_by_target = true;
        self.phase = Phase::Draining(until);
    }

    /// The session is over, and nothing more is to be done.
    pub(super) fn abandon(&mut self) {
        self.phase = Phase::Closed;
        self.actions.clear();
    }

    /// TSIH of the session.
    pub fn tsih(&self) -> Tsih {
        self.tsih
    }

    /// TargetPortalGroupTag of the leading connection, if the target sent it.
    pub(super) fn portal_group_tag(&self) -> Option<u16> {
        self.portal_group_tag
    }

    /// Whether something may be due for a command.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.next_deadline.is_some_and(|at| at <= now)
    }

    /// Sets the time at which something is next due for a command.
    pub(super) fn set_deadline(&mut self, at: Option<Time>) {
        self.next_deadline = at;
    }

    /// Notes that something is due by `deadline`.
    pub(super) fn expect_by(&mut self, deadline: Option<Time>) {
        self.next_deadline = earlier(self.next_deadline, deadline);
    }

    pub(super) fn close(&mut self, reason: CloseReason, wait: Duration) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.end = Some(Action::Close { reason, wait });
        }
    }

    /// DefaultTime2Wait: the time between the loss of a connection or session and its reinstatement.
    //= rfc7143 13.15 SES-06 KEY-14
    pub fn time2wait(&self) -> Duration {
        told_seconds(self.params.default_time2wait_s)
    }

    /// DefaultTime2Retain: how long tasks are kept after that.
    //= rfc7143 13.16 KEY-15
    pub(super) fn time2retain(&self) -> Duration {
        Duration::from_secs(self.params.default_time2retain_s.into())
    }

    /// Logs out: commands that have not completed die with the session.
    pub fn logout(&mut self, now: Time) {
        self.now = now;
        if self.is_active() || self.is_draining() {
            self.asked_by_target = false;
            self.send_logout();
        }
    }

    /// Sends the logout that the target requested, once no command is under way.
    fn drained(&mut self) {
        if self.is_draining() && self.commands.sent() == 0 {
            self.send_logout();
        }
    }

    //= rfc7143 11.14 LGO-01 LGO-03
    fn send_logout(&mut self) {
        let Some(cid) = self.any_connection() else {
            return self.close(self.logout_reason(), self.time2wait());
        };
        let Ok(itt) = self.tasks.insert(Held::Logout(LogoutOf::Session)) else {
            return self.close(CloseReason::Unresponsive, self.time2wait());
        };
        self.send_logout_request(cid, itt, iscsi_wire::LogoutReason::CloseSession, cid);
        self.phase = Phase::LogoutSent(self.now + self.config.exchange_timeout);
    }

    pub(super) fn logout_reason(&self) -> CloseReason {
        if self.asked_by_target { CloseReason::TargetAsked } else { CloseReason::LoggedOut }
    }
}

/// A time announced by a target, limited to [`MAX_TIME2WAIT_S`].
pub(super) fn told_seconds(seconds: u16) -> Duration {
    Duration::from_secs(seconds.min(MAX_TIME2WAIT_S).into())
}

//= rfc7143 11.17.1 REJ-04
/// Whether a PDU that was rejected for `reason` may be sent again.
pub(super) fn may_resend(reason: RejectReason) -> bool {
    matches!(
        reason,
        RejectReason::DataDigestError
            | RejectReason::SnackReject
            | RejectReason::TooManyImmediateCommands
            | RejectReason::LongOperationReject
    )
}
