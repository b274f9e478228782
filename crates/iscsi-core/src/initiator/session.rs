//! An initiator's session in full feature phase: numbers what it sends, checks what it receives, and keeps its tasks until their
//! outcome is known (RFC 7143 4.2.2, 7, 11).
//!
//! The caller feeds [`InitiatorSession::submit`] and [`InitiatorSession::handle_pdu`], then drains
//! [`InitiatorSession::poll_action`] and asks [`InitiatorSession::poll_timeout`] when to come back.
//!
//! ```text
//!   Active ──target asks for logout──► Draining ──idle, or time is short──► LogoutSent ──► Closed
//!     │  └───────── logout() ──────────────────────────────────────────────────▲              ▲
//!     └─────────── violation, silence, no remedy for a command, target drops, lost() ─────────┘
//! ```
//! At error recovery level 0 a closed session is the end of it: [`InitiatorSession::unfinished`] gives the commands back, and
//! the caller logs in again with the same ISID and submits them anew.
//! Left out so far: more than one connection, and error recovery levels above 0.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{Bhs, Itt, Lun, Pdu, RejectReason, StatSn, TmfFunction, TmfResponse, Tsih};

use super::address::TargetAddress;
use super::command::{Command, Completion, Ending};
use super::command_window::CommandWindow;
use super::login::LoggedIn;
use super::task::{Held, Task, TaskTable};
use super::text::TextExchange;
use crate::Time;
use crate::error::ProtocolViolation;
use crate::limits::MAX_STATUS_LAG;
use crate::names::IscsiName;
use crate::params::{Bounds, Params};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

/// Choices of configuration for a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Silence after which the target is pinged; zero never pings.
    pub ping_interval: Duration,
    /// Further silence after which the session is given up.
    pub ping_timeout: Duration,
    /// Time that a task management function may take before the next harsher measure.
    pub management_timeout: Duration,
    /// Time that a text exchange or a logout may take.
    pub exchange_timeout: Duration,
    /// What may be renegotiated in full feature phase.
    pub bounds: Bounds,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            management_timeout: Duration::from_secs(10),
            exchange_timeout: Duration::from_secs(15),
            bounds: Bounds::default(),
        }
    }
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We logged out.
    #[error("logged out")]
    LoggedOut,
    /// The target asked for the logout (RFC 7143 11.9.1, event 1).
    #[error("the target asked us to log out")]
    TargetAsked,
    /// The target announced that it drops the connection or the session (events 2 and 3).
    #[error("the target dropped the session")]
    TargetDropped,
    /// The target broke a rule.
    #[error("the target breaks the protocol: {0}")]
    Violation(#[from] ProtocolViolation),
    /// A response, not just data, did not match its data digest: what it said is lost (RFC 7143 7.8).
    #[error("the data digest of a response does not match (RFC 7143 7.8)")]
    DataDigest,
    /// The target did not answer a ping.
    #[error("the target was silent and did not answer a ping")]
    Silent,
    /// Neither ABORT TASK nor LOGICAL UNIT RESET brought an answer (RFC 7143 7.11).
    #[error("the target answered neither a command nor the functions to abort it")]
    Unresponsive,
    /// The transport is gone.
    #[error("the connection was lost")]
    Lost,
}

/// A target as SendTargets tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// iSCSI name.
    pub name: IscsiName,
    /// Where it can be reached; empty means: where it was asked for.
    pub addresses: Vec<TargetAddress>,
}

/// Something that the target tells by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A SCSI asynchronous event of a logical unit, with its sense data.
    Scsi {
        /// Logical unit.
        lun: Lun,
        /// Sense data.
        sense: Bytes,
    },
    /// The target asks us to log out within this time; the session sees to it.
    LogoutRequested(Duration),
    /// Something that this version has no use for.
    Ignored(iscsi_wire::AsyncEvent),
}

/// What to do next; see [`InitiatorSession::poll_action`].
#[derive(Debug)]
pub enum Action {
    /// Send a PDU.
    Send(TxPdu),
    /// Data of a command; it counts when the command has ended well, as far as its completion says.
    DataIn {
        /// The caller's name for the command.
        user: u64,
        /// Place in the command's data, bytes.
        offset: u32,
        /// The bytes, their digest verified.
        data: Bytes,
    },
    /// A command ended.
    Completed(Completion),
    /// A task management function that the caller wanted has ended; `None`: without an answer.
    Managed {
        /// The caller's name for it.
        user: u64,
        /// The target's answer.
        response: Option<TmfResponse>,
    },
    /// A ping that the caller wanted came back.
    Pong {
        /// The caller's name for it.
        user: u64,
        /// The data came back as it was sent, and its digest matched.
        intact: bool,
        /// Time between asking and answer.
        round_trip: Duration,
    },
    /// The answer to SendTargets.
    Targets(Vec<TargetRecord>),
    /// The target refuses to answer SendTargets: by a Reject for this reason, or by the word in its answer.
    TextRefused(Option<RejectReason>),
    /// Something that the target tells.
    Event(Event),
    /// Close the connection: the session is over. What was sent before may still go out.
    Close {
        /// Why.
        reason: CloseReason,
        /// Time to wait before logging in again.
        wait: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Active,
    /// The target asked for a logout: nothing new is sent, and at this time at the latest the logout goes out.
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
    pub(super) cid: iscsi_wire::Cid,
    pub(super) discovery: bool,
    pub(super) config: SessionConfig,
    pub(super) phase: Phase,
    pub(super) window: CommandWindow,
    pub(super) tasks: TaskTable,
    /// Commands that wait for the window, in order.
    pub(super) waiting: VecDeque<Itt>,
    /// Commands sent and not ended.
    pub(super) sent: usize,
    /// Write data of commands sent and not ended, bytes.
    write_bytes: u64,
    exp_stat_sn: StatSn,
    /// ExpStatSN as last told to the target.
    told_stat_sn: StatSn,
    last_rx: Time,
    /// A ping of the session itself that is under way.
    pub(super) keepalive: Option<Itt>,
    /// No command has taken too long before this time.
    pub(super) next_deadline: Option<Time>,
    /// Task management functions under way.
    pub(super) managing: usize,
    pub(super) text: Option<TextExchange>,
    pub(super) asked_by_target: bool,
    pub(super) actions: VecDeque<Action>,
    pub(super) now: Time,
}

impl InitiatorSession {
    /// The session that a completed login opens.
    pub fn new(login: &LoggedIn, config: SessionConfig, now: Time) -> Self {
        Self {
            params: login.params.clone(),
            tsih: login.tsih,
            cid: login.cid,
            discovery: login.discovery,
            config,
            phase: Phase::Active,
            window: CommandWindow::new(login.cmd_sn, login.max_cmd_sn),
            tasks: TaskTable::default(),
            waiting: VecDeque::new(),
            sent: 0,
            write_bytes: 0,
            exp_stat_sn: login.exp_stat_sn,
            told_stat_sn: login.exp_stat_sn,
            last_rx: now,
            keepalive: None,
            next_deadline: None,
            managing: 0,
            text: None,
            asked_by_target: false,
            actions: VecDeque::new(),
            now,
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// TSIH of the session.
    pub fn tsih(&self) -> Tsih {
        self.tsih
    }

    /// Commands submitted and not ended.
    pub fn outstanding(&self) -> usize {
        self.sent + self.waiting.len()
    }

    /// Write data of commands that were sent and have not ended, bytes: no more than this and the headers can wait to be sent
    /// on our own account.
    pub fn outstanding_write_bytes(&self) -> u64 {
        self.write_bytes
    }

    /// True once the session is over.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Takes a command; it is sent as soon as the target's window allows.
    ///
    /// # Errors
    /// Gives it back when the session takes no more: it is ending, is a discovery session, or holds
    /// [`crate::limits::MAX_INITIATOR_TASKS`].
    pub fn submit(&mut self, now: Time, command: Command) -> Result<(), Box<Command>> {
        self.now = now;
        //= rfc7143 11.9.1 ASY-01 LGO-03
        if self.phase != Phase::Active || self.discovery {
            return Err(Box::new(command));
        }
        if let Err(violation) = command.check() {
            self.actions
                .push_back(Action::Completed(Completion { command, ending: Ending::Unsendable(violation) }));
            return Ok(());
        }
        let deadline = (!command.timeout.is_zero()).then(|| now + command.timeout);
        let task = Task {
            command,
            cmd_sn: None,
            next_data_sn: 0,
            received: 0,
            sent: 0,
            deadline,
            verdict: None,
            aborting: false,
            resends: 0,
        };
        match self.tasks.insert(Held::Command(task)) {
            Ok(itt) => {
                self.expect_by(deadline);
                self.waiting.push_back(itt);
                self.pump();
                Ok(())
            }
            Err(held) => match *held {
                Held::Command(task) => Err(Box::new(task.command)),
                _ => unreachable!("what was given comes back"),
            },
        }
    }

    /// Takes a received PDU.
    pub fn handle_pdu(&mut self, now: Time, rx: RxPdu) {
        self.now = now;
        self.last_rx = now;
        if self.phase == Phase::Closed {
            return;
        }
        if let Err(reason) = self.dispatch(rx) {
            return self.close(reason, self.time2wait());
        }
        self.pump();
        //= rfc7143 4.2.2.2 NUM-10
        if self.told_stat_sn.distance_to(self.exp_stat_sn) > MAX_STATUS_LAG {
            self.acknowledge();
        }
    }

    /// Everything that is the same for all PDUs, then the one at hand.
    fn dispatch(&mut self, rx: RxPdu) -> Result<(), CloseReason> {
        //= rfc7143 11 PDU-03 PDU-05
        let pdu = Pdu::parse(&rx.bhs).map_err(ProtocolViolation::from)?;
        //= rfc7143 11.2 PDU-06
        let bare = matches!(pdu, Pdu::TaskManagementResponse(_) | Pdu::LogoutResponse(_) | Pdu::R2t(_));
        if !rx.ahs.is_empty() || (bare && !rx.data.is_empty()) {
            return Err(violation("RFC 7143 7.7", "a PDU with a segment that it cannot have"));
        }
        match pdu {
            Pdu::DataIn(data_in) => self.handle_data_in(&data_in, rx),
            Pdu::ScsiResponse(response) => self.handle_response(&response, &rx),
            Pdu::R2t(r2t) => self.handle_r2t(&r2t),
            Pdu::NopIn(nop) => self.handle_nop_in(&nop, &rx),
            Pdu::TaskManagementResponse(response) => self.handle_management_response(&response),
            Pdu::TextResponse(response) => self.handle_text_response(&response, &rx),
            Pdu::LogoutResponse(response) => self.handle_logout_response(&response),
            Pdu::AsyncMessage(message) => self.handle_async(&message, &rx),
            Pdu::Reject(reject) => self.handle_reject(&reject, &rx),
            other => {
                Err(violation("RFC 7143 11.2.1.2", format!("a {} PDU from a target", other.opcode().name())))
            }
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`InitiatorSession::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Closed => return None,
            Phase::Active => None,
            Phase::Draining(at) | Phase::LogoutSent(at) => Some(at),
        };
        [phase, self.ping_due(), self.next_deadline, self.management_due(), self.text_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        match self.phase {
            Phase::Closed => return,
            Phase::Draining(at) if at <= now => self.send_logout(),
            Phase::LogoutSent(at) if at <= now => return self.close(self.logout_reason(), self.time2wait()),
            _ => {}
        }
        //= rfc7143 10.3 PDU-09
        if self.ping_due().is_some_and(|at| at <= now) {
            match self.keepalive {
                Some(_) => return self.close(CloseReason::Silent, self.time2wait()),
                None => self.send_keepalive(),
            }
        }
        if self.text_due().is_some_and(|at| at <= now) {
            return self.close(CloseReason::Unresponsive, self.time2wait());
        }
        self.expire(now);
    }

    /// The transport is gone: the session is over.
    pub fn lost(&mut self) {
        self.phase = Phase::Closed;
        self.actions.clear();
    }

    /// Takes every command that has not ended out of a closed session, those that were sent before those that were not, each in
    /// the order of submission.
    //= rfc7143 7.15 SES-06
    pub fn unfinished(&mut self) -> Vec<Command> {
        debug_assert!(self.is_closed());
        let mut sent: Vec<(u32, Itt)> =
            self.tasks.commands().filter_map(|(itt, task)| Some((task.cmd_sn?.0, itt))).collect();
        let first = self.window.current().0.wrapping_sub(1 << 31);
        sent.sort_by_key(|(cmd_sn, _)| cmd_sn.wrapping_sub(first));
        let order: Vec<Itt> = sent.into_iter().map(|(_, itt)| itt).chain(self.waiting.drain(..)).collect();
        let mut commands = Vec::with_capacity(order.len());
        for itt in order {
            if let Held::Command(task) = self.tasks.remove(itt) {
                commands.push(task.command);
            }
        }
        self.sent = 0;
        self.write_bytes = 0;
        commands
    }

    /// Sends what the window allows.
    //= rfc7143 4.2.2.1 NUM-06
    pub(super) fn pump(&mut self) {
        if self.phase != Phase::Active {
            return self.drained();
        }
        while let Some(&itt) = self.waiting.front() {
            let Some(cmd_sn) = self.window.take() else { return };
            self.waiting.pop_front();
            if let Some(task) = self.tasks.command(itt) {
                task.cmd_sn = Some(cmd_sn);
                self.write_bytes += task.command.write.len() as u64;
                self.sent += 1;
            }
            self.send_command(itt, cmd_sn);
        }
    }

    /// Ends a command with `ending`.
    pub(super) fn complete(&mut self, itt: Itt, ending: Ending) {
        let Held::Command(task) = self.tasks.remove(itt) else { return };
        self.sent -= 1;
        self.write_bytes -= task.command.write.len() as u64;
        let ending = match (task.verdict, ending) {
            // Data that failed its digest stays failed, whatever the status says.
            (Some(verdict), Ending::Status { .. } | Ending::TimedOut | Ending::Aborted) => verdict,
            (_, ending) => ending,
        };
        self.actions.push_back(Action::Completed(Completion { command: task.command, ending }));
    }

    /// Books a StatSN that counts.
    //= rfc7143 4.2.2.2 NUM-09 NUM-10
    pub(super) fn take_stat_sn(&mut self, stat_sn: StatSn) -> Result<(), CloseReason> {
        if stat_sn != self.exp_stat_sn {
            return Err(violation(
                "RFC 7143 7.9",
                format!("StatSN {stat_sn} where {} was due: a status is missing", self.exp_stat_sn),
            ));
        }
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }

    /// ExpStatSN for a PDU that is being made.
    pub(super) fn exp_stat_sn(&mut self) -> StatSn {
        self.told_stat_sn = self.exp_stat_sn;
        self.exp_stat_sn
    }

    pub(super) fn send(&mut self, bhs: Bhs) {
        self.actions.push_back(Action::Send(TxPdu::header_only(bhs)));
    }

    /// Remembers that something is due by `deadline`.
    pub(super) fn expect_by(&mut self, deadline: Option<Time>) {
        if let Some(at) = deadline {
            self.next_deadline = Some(self.next_deadline.map_or(at, |next| next.min(at)));
        }
    }

    pub(super) fn close(&mut self, reason: CloseReason, wait: Duration) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Closed;
            self.actions.push_back(Action::Close { reason, wait });
        }
    }

    /// DefaultTime2Wait: the time between the loss of a session and its reinstatement.
    //= rfc7143 13.15 SES-06 KEY-14
    pub(super) fn time2wait(&self) -> Duration {
        Duration::from_secs(self.params.default_time2wait_s.into())
    }

    fn ping_due(&self) -> Option<Time> {
        if self.config.ping_interval.is_zero() {
            return None;
        }
        let grace = if self.keepalive.is_some() { self.config.ping_timeout } else { Duration::ZERO };
        Some(self.last_rx + self.config.ping_interval + grace)
    }

    /// Asks for a task management function on behalf of the caller; ends with [`Action::Managed`].
    pub fn manage(&mut self, now: Time, function: TmfFunction, lun: Lun, user: u64) {
        self.now = now;
        self.begin_management(function, lun, None, super::task::Wanted::Caller(user));
    }
}

/// A refusal of the target's conduct.
pub(super) fn violation(rule: &'static str, what: impl Into<std::borrow::Cow<'static, str>>) -> CloseReason {
    CloseReason::Violation(ProtocolViolation::new(rule, what))
}

/// Whether a PDU that was refused for `reason` may be sent again.
//= rfc7143 11.17.1 REJ-04
pub(super) fn may_resend(reason: RejectReason) -> bool {
    matches!(
        reason,
        RejectReason::DataDigestError
            | RejectReason::SnackReject
            | RejectReason::TooManyImmediateCommands
            | RejectReason::LongOperationReject
    )
}
