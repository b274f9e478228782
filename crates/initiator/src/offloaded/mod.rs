//! A session whose commands an offload engine carries out (`docs/engine-interface.md`).
//!
//! The [`Agent`] stands between the session of `iscsi-core` and an [`Engine`], and routes by opcode:
//!
//! ```text
//!            InitiatorSession (numbers, tags, timeouts, task management, text, NOP, logout)
//!        Send{pdu} │                                              ▲ ends of commands, PDUs
//!   ┌──────────────▼──────────────────────────────────────────────┴──────────────┐
//!   │ sending: SCSI Command → POST_TASK        arriving: TASK_DONE → executed()  │
//!   │          every other  → SEND_RAW                   RAW_PDU   → the PDU     │
//!   └──────────────┬──────────────────────────────────────────────▲──────────────┘
//!                  ▼ descriptors, received bytes                  │ completions, bytes to send
//!                                       Engine
//! ```
//!
//! So of the commands that the engine carries out the session sees no Data-In, no R2T, no SCSI Response and no loss: it runs at ErrorRecoveryLevel 0, without unsolicited data
//! ([`Agent::session_login`]). What really travels is the engine's: segments, digests, R2Ts and SNACKs. Both count CmdSN, and because
//! the engine sends in the order in which the session hands over, both have the same numbers. StatSN is the engine's alone; the PDUs
//! that the session still gets have numbers without gaps.
//!
//! Commands that an engine cannot carry out (bidirectional ones, CDBs above 16 bytes, reads above [`MAX_PLACED_BYTES`], and those
//! for which its table has no room) go out by SEND_RAW, and their PDUs come back as RAW_PDU: the session carries them out.
//!
//! What the engine gives back by NEED_RESYNC ends the connection, and the session is recovered. No I/O and no clock.

mod arriving;
mod memory;
mod sending;
mod snacks;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::initiator::login::LoggedIn;
use iscsi_core::initiator::session::{InitiatorSession, SessionConfig};
use iscsi_core::params::{Asymmetric, Bounds, Bursts, DataOrder};
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::wire::{Bhs, CmdSn, MAX_AHS_LENGTH, ScsiCommand, ScsiResponse, StatSn};
use offload::encoding::{
    Abort, Completion, DescriptorKind, OpenConn, RECORD_BYTES, SetParams, TaskResult, conn_flags,
};
use offload::limits::BUFFER_BYTES;
use offload::{Caps, Engine};

use self::memory::{AddressSpace, RING};
use self::snacks::Unanswered;

/// The largest read that is placed by the engine, bytes: its memory is set aside when the command is sent.
pub(crate) const MAX_PLACED_BYTES: u32 = 16 * 1024 * 1024;
/// Slots of the ring of raw PDUs.
const RING_SLOTS: u16 = 16;
/// Length of a slot: the longest PDU without padding and digests.
const SLOT_BYTES: u32 = (Bhs::SIZE + MAX_AHS_LENGTH) as u32 + BUFFER_BYTES;
/// The engine has one connection of ours.
const CONN: u16 = 0;
/// `user` of the descriptors that are finished at once; those of tasks have their slot.
const AT_ONCE: u64 = u64::MAX;

/// What has happened on an offloaded connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// A PDU for the session.
    Pdu(RxPdu),
    /// A command has ended: for [`InitiatorSession::executed`].
    Executed { response: ScsiResponse, sense: Bytes, data: Bytes },
    /// A data digest did not match; the engine has requested the data again, or a loss follows.
    DigestError,
    /// A SNACK was sent.
    Snack,
    /// The connection cannot go on: close it, and recover the session.
    Lost(String),
}

/// One PDU of the session.
#[derive(Debug)]
enum Outgoing {
    /// A command of the engine, whose memory is in this slot.
    Task(ScsiCommand, usize),
    /// Header segments and data.
    Raw(Vec<u8>),
}

/// See the module.
pub(crate) struct Agent {
    engine: Box<dyn Engine + Send>,
    memory: AddressSpace,
    now: Time,
    /// CmdSN of the next PDU of the session that takes one.
    cmd_sn: CmdSn,
    /// StatSN of the next status that the session gets.
    stat_sn: StatSn,
    /// The largest data segments in the two directions, as the engine knows them, bytes.
    max_recv: u32,
    max_send: u32,
    snack_delay_us: u32,
    /// What the session has sent and the engine has not taken yet.
    outgoing: VecDeque<Outgoing>,
    /// What the engine has reported and the session has not got yet.
    completions: VecDeque<Completion>,
    unanswered: Unanswered,
    /// Ends of commands that are known here: those that the engine has reported, and those of which [`Agent::forget_ended`] has learned.
    ended: u64,
    failure: Option<String>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("cmd_sn", &self.cmd_sn).finish_non_exhaustive()
    }
}

impl Agent {
    /// Opens the connection of `login` in `engine`.
    ///
    /// # Errors
    /// The engine does not take a connection with these parameters.
    pub(crate) fn open(
        engine: Box<dyn Engine + Send>,
        login: &LoggedIn,
        config: &SessionConfig,
        now: Time,
    ) -> Result<Self, TaskResult> {
        let params = &login.params;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let snack_delay_us = micros(config.snack_delay).try_into().unwrap_or(u32::MAX);
        let open = OpenConn {
            flags: flag(params.digests.header, conn_flags::HEADER_DIGEST)
                | flag(params.digests.data, conn_flags::DATA_DIGEST)
                | flag(params.bursts.initial_r2t, conn_flags::INITIAL_R2T)
                | flag(params.bursts.immediate_data, conn_flags::IMMEDIATE_DATA),
            conn: CONN,
            max_outstanding_r2t: params.bursts.max_outstanding_r2t,
            raw_slots: RING_SLOTS,
            user: AT_ONCE,
            raw_addr: RING,
            raw_slot_bytes: SLOT_BYTES,
            max_recv_data_segment_length: params.max_recv_data_segment_length,
            max_send_data_segment_length: params.max_send_data_segment_length,
            max_burst_length: params.bursts.max_burst_length,
            first_burst_length: params.bursts.first_burst_length,
            cmd_sn: login.numbers.cmd_sn.0,
            max_cmd_sn: login.numbers.max_cmd_sn.0,
            exp_stat_sn: login.numbers.exp_stat_sn.0,
            snack_delay_us,
            error_recovery_level: params.error_recovery_level,
        };
        let ring_bytes = usize::from(RING_SLOTS) * SLOT_BYTES as usize;
        let memory = AddressSpace::new(ring_bytes, usize::from(engine.caps().commands));
        let mut agent = Self {
            engine,
            memory,
            now,
            cmd_sn: login.numbers.cmd_sn,
            stat_sn: login.numbers.exp_stat_sn,
            max_recv: params.max_recv_data_segment_length,
            max_send: params.max_send_data_segment_length,
            snack_delay_us,
            outgoing: VecDeque::new(),
            completions: VecDeque::new(),
            unanswered: Unanswered::new(config.recovery_timeout),
            ended: 0,
            failure: None,
        };
        agent.engine.advance(micros(now));
        match agent.execute(DescriptorKind::OPEN_CONN, &open.emit()) {
            TaskResult::GOOD => Ok(agent),
            refused => Err(refused),
        }
    }

    /// What an engine with these `caps` allows us to negotiate of `bounds`.
    pub(crate) fn bounds(bounds: Bounds, caps: &Caps) -> Bounds {
        Bounds {
            max_recv_data_segment_length: bounds.max_recv_data_segment_length.min(caps.buffer_bytes),
            bursts: Bursts {
                max_outstanding_r2t: bounds.bursts.max_outstanding_r2t.min(caps.outstanding_r2t),
                ..bounds.bursts
            },
            error_recovery_level: bounds.error_recovery_level.min(caps.error_recovery_level),
            max_connections: 1,
            data_in_order: DataOrder::STRICT,
            asymmetric: Asymmetric::No,
            ..bounds
        }
    }

    /// The login as the session gets to know it: see the module.
    pub(crate) fn session_login(login: &LoggedIn, caps: &Caps) -> LoggedIn {
        let mut login = login.clone();
        let params = &mut login.params;
        (params.error_recovery_level, params.max_connections) = (0, 1);
        (params.bursts.initial_r2t, params.bursts.immediate_data) = (true, false);
        params.max_send_data_segment_length = params.max_send_data_segment_length.min(caps.buffer_bytes);
        login
    }

    /// Sets the time.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = now;
        self.engine.advance(micros(now));
        let engine = &self.engine;
        if self.unanswered.overdue(now, || engine.tables().snacks) {
            self.fail("the target does not send again what was lost (RFC 7143 11.16)");
        }
        self.collect();
    }

    /// When [`Agent::advance`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let engine = self.engine.deadline_us().map(Duration::from_micros);
        engine.into_iter().chain(self.unanswered.deadline()).min()
    }

    /// Takes received bytes; returns how many. Then take events with [`Agent::poll`] until there are none, and call again with
    /// the rest. It takes nothing while [`Agent::is_full`].
    pub(crate) fn rx(&mut self, bytes: &[u8]) -> usize {
        if self.is_full() || self.failure.is_some() {
            return 0;
        }
        let taken = self.engine.rx(&mut self.memory, CONN, bytes);
        self.collect();
        taken
    }

    /// Fills `out` with bytes to send; returns how many. Fewer than `out.len()` means that there are no more now.
    pub(crate) fn tx(&mut self, out: &mut [u8]) -> usize {
        let mut used = 0;
        loop {
            let made = self.engine.tx(&mut self.memory, CONN, &mut out[used..]);
            self.collect();
            used += made;
            if used == out.len() || made == 0 && !self.pass_on() {
                return used;
            }
        }
    }

    /// Whether PDUs of the session wait for room in the engine. No more is received then: a target that asks faster than it
    /// listens cannot make the queue grow.
    pub(crate) fn is_full(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The session may have ended tasks by itself (an abort, a timeout): takes them out of the engine.
    pub(crate) fn forget_ended(&mut self, session: &InitiatorSession) {
        if self.ended != session.commands_ended() {
            self.ended = session.commands_ended();
            self.abandon_ended(session);
        }
        let max_send = session.params().max_send_data_segment_length;
        let buffer_bytes = self.engine.caps().buffer_bytes;
        if max_send.min(buffer_bytes) != self.max_send.min(buffer_bytes) {
            self.max_send = max_send;
            self.set_params();
        }
    }

    fn abandon_ended(&mut self, session: &InitiatorSession) {
        let mut ended = Vec::new();
        for task in self.memory.tasks_mut().filter(|task| !task.abandoned) {
            if session.command_of(task.itt).is_none() {
                task.abandoned = true;
                ended.push(task.itt);
            }
        }
        for itt in ended {
            // Its TASK_DONE may be waiting for us; then the engine has no such task any more.
            let abort = Abort { conn: CONN, itt: itt.0, user: AT_ONCE };
            self.execute(DescriptorKind::ABORT, &abort.emit());
        }
    }

    /// The session declares another MaxRecvDataSegmentLength, in bytes: until the target has accepted it, the longer of the two may
    /// arrive.
    pub(crate) fn declaring(&mut self, bytes: u32) {
        if bytes > self.max_recv {
            self.declared(bytes);
        }
    }

    /// The target has accepted the MaxRecvDataSegmentLength that was declared.
    pub(crate) fn declared(&mut self, bytes: u32) {
        self.max_recv = bytes;
        self.set_params();
    }

    fn set_params(&mut self) {
        let set = SetParams {
            conn: CONN,
            user: AT_ONCE,
            max_recv_data_segment_length: self.max_recv,
            max_send_data_segment_length: self.max_send,
            snack_delay_us: self.snack_delay_us,
        };
        if self.execute(DescriptorKind::SET_PARAMS, &set.emit()) != TaskResult::GOOD {
            self.fail("the engine does not take the new MaxRecvDataSegmentLength");
        }
    }

    /// Submits a descriptor that is finished at once; returns how.
    fn execute(&mut self, kind: DescriptorKind, descriptor: &[u8; RECORD_BYTES]) -> TaskResult {
        self.submit(descriptor);
        let mut result = TaskResult::INVALID;
        while let Some(record) = self.engine.poll() {
            match Completion::parse(&record) {
                Some(Completion::TaskDone(done)) if done.descriptor == kind && done.user == AT_ONCE => {
                    result = done.result;
                }
                completion => self.completions.extend(completion),
            }
        }
        result
    }

    fn submit(&mut self, descriptor: &[u8; RECORD_BYTES]) {
        if self.engine.submit(&mut self.memory, descriptor).is_err() {
            self.fail("the engine has no room for completions, although all were taken");
        }
    }

    /// Takes what the engine reports.
    fn collect(&mut self) {
        while let Some(record) = self.engine.poll() {
            self.completions.extend(Completion::parse(&record));
        }
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert_with(|| why.into());
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
