//! From a SCSI command to its outcome: the device server decides, the store executes, and the session gets the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use engine::Platform;
use iscsi_core::Time;
use iscsi_core::target::actions::{Command, Completion};
use iscsi_core::target::task::{DataOutPieces, TaskId};
use iscsi_core::wire::Cid;
use lun::{NEVER, Payload};
use scsi::{Asc, DataInSource, DataOut, Effect, Execution, MediumOp, Outcome, Step};
use smallvec::SmallVec;

use super::Shard;
use super::room::too_long;
use super::sessions::Hosted;
use super::work::{store_failure, work, work_now};
use crate::device::Device;
use crate::observe::Op;
use crate::observe::events::EventKind;
use crate::observe::metrics::Reason;

/// A session that has more than this queued to send, or being read, starts no further reads, bytes.
pub(super) const BACKLOG_BYTES_MAX: u64 = 16 << 20;

/// When many sessions share `limits.buffer_bytes_max`, each may still have this much, bytes.
pub(super) const BACKLOG_BYTES_MIN: u64 = 256 << 10;

/// How many medium operations of one command a shard executes itself; a command with more covers the whole medium.
const INLINE_STEPS_MAX: u32 = 2;

/// Longest read: MAXIMUM TRANSFER LENGTH of VPD page B0h, bytes.
pub(super) const LONGEST_READ_BYTES: u64 = 32 << 20;

/// Maximum data of a session that is kept for replay until it is acknowledged, bytes.
pub(super) const RETAINED_BYTES_MAX: u64 = 64 << 20;

/// A command that takes longer is logged: hosts begin to complain at 30 s.
const SLOW_COMMAND: Time = Time::from_secs(5);

/// A command in progress.
pub(super) struct Running {
    pub(super) execution: Execution,
    pub(super) device: Arc<Device>,
    pub(super) read_length: u64,
    pub(super) write_length: u64,
    pub(super) digest_chunk_bytes: Option<u32>,
    /// Memory for data that it holds, bytes.
    pub(super) reserved_bytes: u64,
    pub(super) started: Time,
    pub(super) kind: Op,
}

impl Running {
    /// Why it failed, if it has ended with a failure.
    pub(super) fn failure(&self) -> Option<Reason> {
        match self.execution.step() {
            Step::Done(outcome) => Reason::of(outcome),
            Step::NeedDataOut { .. } | Step::Medium(_) => None,
        }
    }

    /// Its logical unit.
    pub(super) fn lun(&self) -> u16 {
        self.device.number()
    }
}

impl<P: Platform> Shard<P> {
    /// Passes a command to the device server, once it is its turn and there is room.
    pub(super) fn start(&mut self, hosted: &mut Hosted, command: Command) {
        if !self.waits_for_turn(hosted, &command) {
            self.begin_when_there_is_room(hosted, command);
        }
    }

    /// Starts a command whose turn has come, if there is room for it; otherwise defers it.
    pub(super) fn begin_when_there_is_room(&mut self, hosted: &mut Hosted, command: Command) {
        if hosted.target.is_none() {
            return;
        }
        let need = self.room.need_of(&command);
        let waits = need > 0
            && ((command.read_length > 0 && self.would_overfill(hosted, &command))
                || !match hosted.share.is_short {
                    true => self.reserve_own(hosted, need),
                    false => self.reserve(hosted, need),
                });
        if waits {
            return hosted.deferred.push_back(command);
        }
        self.begin(hosted, command, need);
    }

    /// Whether the initiator is slow to accept earlier data: until then no memory is filled for it.
    fn would_overfill(&mut self, hosted: &Hosted, command: &Command) -> bool {
        let cid = hosted.session.connection_of(command.task);
        waits_on(hosted, cid) || self.is_congested(hosted, cid)
    }

    /// Starts a command that holds `reserved_bytes` for its data.
    fn begin(&mut self, hosted: &mut Hosted, command: Command, reserved_bytes: u64) {
        let task = command.task;
        let facts = scsi::command_facts(&command.cdb);
        if facts.of_target {
            let numbers: Vec<u16> = hosted.luns.keys().copied().collect();
            for device in hosted.luns.values() {
                device.unit.scsi.clear_unit_attention(hosted.nexus.id, Asc::REPORTED_LUNS_DATA_CHANGED);
            }
            let outcome = scsi::report_luns(&numbers, &command.cdb);
            return self.finish(hosted, task, outcome, Payload::default(), reserved_bytes);
        }
        let Some(device) = command.lun.to_index().and_then(|number| hosted.luns.get(&number)) else {
            let outcome = scsi::absent_lun(&command.cdb);
            return self.finish(hosted, task, outcome, Payload::default(), reserved_bytes);
        };
        if facts.timed {
            device.unit.scsi.set_time(self.now);
        }
        let execution =
            device.unit.scsi.begin_offering(&hosted.nexus, &command.cdb, command.write_length.into());
        let running = Running {
            execution,
            device: Arc::clone(device),
            read_length: command.read_length.into(),
            write_length: command.write_length.into(),
            digest_chunk_bytes: command.digest_chunk_bytes,
            reserved_bytes,
            started: self.now,
            kind: Op::of(&command.cdb),
        };
        self.carry_on(hosted, task, running, DataOutPieces::new());
    }

    /// All data of a command has arrived. None of it was used before: an aborted write has changed no block.
    //= sam5 5.5 TSK-05
    pub(super) fn data_out(&mut self, hosted: &mut Hosted, task: TaskId, data: DataOutPieces) {
        let Some(mut running) = hosted.running.remove(&task) else { return };
        let slices: smallvec::SmallVec<[&[u8]; 8]> = data.iter().map(|piece| &piece[..]).collect();
        let data_out = DataOut::new(&slices).with_offered(running.write_length);
        running.execution.data_out(&running.device.unit.scsi, &data_out);
        drop(slices);
        self.carry_on(hosted, task, running, data);
    }

    /// Runs a command as far as possible without waiting.
    fn carry_on(&mut self, hosted: &mut Hosted, task: TaskId, mut running: Running, data: DataOutPieces) {
        let mut payload = Payload::default();
        let mut steps = 0;
        loop {
            match running.execution.step() {
                Step::NeedDataOut { bytes } => {
                    let bytes = *bytes;
                    let wanted = bytes.min(running.write_length);
                    let reserved = running.reserved_bytes;
                    if wanted > reserved {
                        return self.finish(hosted, task, too_long(), payload, reserved);
                    }
                    if running.read_length == 0 {
                        running.reserved_bytes = wanted;
                        hosted.share.commands -= reserved - wanted;
                    }
                    hosted.running.insert(task, running);
                    return hosted.session.need_data_out(task, bytes);
                }
                // A copy may access a unit whose store blocks.
                Step::Medium(MediumOp::Copy { .. }) => return self.offload(hosted, task, running, data),
                Step::Medium(_) if steps == INLINE_STEPS_MAX => {
                    return self.offload(hosted, task, running, data);
                }
                Step::Medium(_) => {
                    let (lun, reserved, slabs) = (running.lun(), running.reserved_bytes, &self.slabs);
                    // A panic in a store ends its command, but not the shard, which serves other sessions too.
                    let worked = catch_unwind(AssertUnwindSafe(|| match running.device.unit.offload {
                        true => work_now(&mut running, slabs),
                        false => Some(work(&mut running, &data, slabs, &NEVER)),
                    }));
                    if let Ok(None) = worked {
                        return self.offload(hosted, task, running, data);
                    }
                    let Ok(Some(done)) = worked else {
                        tracing::error!(lun, "a store panicked; its command ends with HARDWARE ERROR");
                        let no_data = Payload::default();
                        self.observe(hosted, &running, Some(Reason::HardwareError), &no_data, &data);
                        let failed = Outcome::check(store_failure());
                        return self.finish(hosted, task, failed, Payload::default(), reserved);
                    };
                    payload = done;
                    steps += 1;
                }
                // The status tells the host that its reservation survives power loss: first a worker must store it.
                Step::Done(outcome)
                    if running.device.keeps_reservations() && lun::change_to_keep(outcome).is_some() =>
                {
                    return self.offload(hosted, task, running, data);
                }
                Step::Done(_) => break,
            }
        }
        if let Some(rest) = running.execution.take_remainder() {
            self.go_on(&running, rest);
        }
        self.observe(hosted, &running, running.failure(), &payload, &data);
        if let Step::Done(outcome) = running.execution.into_step() {
            self.finish(hosted, task, outcome, payload, running.reserved_bytes);
        }
    }

    /// The session has abandoned a command.
    pub(super) fn abandon(&mut self, hosted: &mut Hosted, task: TaskId) {
        hosted.deferred.retain(|command| command.task != task);
        hosted.order.forget(task);
        match hosted.offloaded.get(&task) {
            // Its worker still answers, but starts no further operation.
            Some(offloaded) if !offloaded.outlives_task => offloaded.cancelled.store(true, Ordering::Release),
            // From now on it belongs to no session.
            Some(offloaded) => {
                hosted.reading_bytes -= offloaded.reading_bytes;
                hosted.share.commands -= offloaded.reserved_bytes;
                hosted.offloaded.remove(&task);
                hosted.session.task_gone(task);
            }
            None => {
                if let Some(running) = hosted.running.remove(&task) {
                    hosted.share.commands -= running.reserved_bytes;
                }
                hosted.session.task_gone(task);
            }
        }
    }

    /// Starts one of the commands that wait for room, if there is room for it now and, for a read, on its connection. The caller
    /// must hand on its output before it calls this again.
    pub(super) fn begin_deferred(&mut self, hosted: &mut Hosted) -> bool {
        let mut short = false;
        let mut full: SmallVec<[Option<Cid>; 4]> = SmallVec::new();
        for position in 0..hosted.deferred.len() {
            let command = &hosted.deferred[position];
            let need = self.room.need_of(command);
            if command.read_length > 0 {
                let cid = hosted.session.connection_of(command.task);
                if full.contains(&cid) {
                    continue;
                }
                if self.is_congested(hosted, cid) {
                    full.push(cid);
                    continue;
                }
            }
            let has_room = if short { self.reserve_own(hosted, need) } else { self.reserve(hosted, need) };
            if !has_room {
                short = true;
                continue;
            }
            let Some(command) = hosted.deferred.remove(position) else { return false };
            hosted.share.is_short = !hosted.deferred.is_empty();
            self.begin(hosted, command, need);
            return true;
        }
        hosted.share.is_short = short;
        false
    }

    /// The device server has finished: executes the effects on other sessions, then completes the command in its session. Of the
    /// command's `reserved_bytes`, the part that its data takes stays in use until the data is sent.
    pub(super) fn finish(
        &mut self,
        hosted: &mut Hosted,
        task: TaskId,
        outcome: Outcome,
        payload: Payload,
        reserved_bytes: u64,
    ) {
        let mut victims = Vec::new();
        for effect in &outcome.effects {
            if let Effect::AbortTasksOf(nexuses) = effect {
                victims.extend_from_slice(nexuses);
            }
        }
        let completion = completion(outcome, payload);
        let bytes = completion.data_in.bytes.len() as u64;
        hosted.fresh_bytes += bytes;
        hosted.share.commands -= reserved_bytes;
        hosted.share.outgoing += bytes.min(reserved_bytes);
        match victims.is_empty() {
            true => hosted.session.complete(task, completion),
            false => self.preempt(hosted, task, completion, victims),
        }
    }

    /// Counts a completed command, in its unit and in its session.
    pub(super) fn observe(
        &mut self,
        hosted: &mut Hosted,
        running: &Running,
        failed: Option<Reason>,
        payload: &Payload,
        data: &DataOutPieces,
    ) {
        let written = if running.write_length > 0 { data.iter().map(Bytes::len).sum::<usize>() } else { 0 };
        let bytes = (payload.bytes.len() + written) as u64;
        self.observe_end(hosted, &running.device, running.kind, running.started, bytes, failed);
    }

    /// Like [`Shard::observe`], for a command of which only these values are left.
    pub(super) fn observe_end(
        &mut self,
        hosted: &mut Hosted,
        device: &Device,
        kind: Op,
        started: Time,
        bytes: u64,
        failed: Option<Reason>,
    ) {
        let elapsed = self.shared.platform.now().saturating_sub(started);
        hosted.stats.commands.add(1);
        hosted.tally.count(kind, bytes, failed);
        device.stats.record(kind, bytes, elapsed, failed);
        if elapsed >= SLOW_COMMAND && self.admits(EventKind::SlowCommand) {
            let names = hosted.session.names();
            tracing::warn!(
                target_name = %device.target_name(), lun = device.number(), initiator = %names.initiator,
                "a {} command took {:.1} s", kind.label(), elapsed.as_secs_f64()
            );
        }
    }
}

/// Whether a command of the same connection already waits for room.
fn waits_on(hosted: &Hosted, cid: Option<Cid>) -> bool {
    hosted.deferred.iter().any(|command| hosted.session.connection_of(command.task) == cid)
}

/// Converts an outcome for the session.
fn completion(outcome: Outcome, payload: Payload) -> Completion {
    let sense = outcome.sense_bytes().map(Bytes::from).unwrap_or_default();
    let data_in = match outcome.data_in {
        DataInSource::None => Payload::default(),
        DataInSource::Bytes(bytes) => Payload::plain(bytes),
        DataInSource::Medium => payload,
    };
    Completion {
        status: outcome.status as u8,
        sense,
        data_in,
        transfer_bytes: outcome.transfer_bytes,
        ..Completion::default()
    }
}
