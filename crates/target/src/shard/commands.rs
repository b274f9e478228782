//! From a SCSI command to its outcome: the device server decides, the store executes, and the session gets the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use engine::Platform;
use iscsi_core::Time;
use iscsi_core::target::actions::{Command, Completion};
use iscsi_core::target::task::{DataOutPieces, TaskId};
use iscsi_core::wire::Cid;
use lun::{NEVER, Payload};
use scsi::{Asc, DataInSource, DataOut, Effect, Execution, MediumOp, Outcome, SenseData, SenseKey, Step};
use smallvec::SmallVec;

use super::Shard;
use super::message::StoreDone;
use super::running::Running;
use super::sessions::SessionEntry;
use super::task_set::Abandoned;
use super::workers::{Job, Reply};
use crate::device::Device;
use crate::observe::Op;
use crate::observe::events::EventKind;
use crate::observe::metrics::Reason;

/// How many medium operations of one command a shard executes itself; a command with more covers the whole medium.
const INLINE_STEPS_MAX: u32 = 2;

/// A command that takes longer is logged: hosts begin to complain at 30 s.
const SLOW_COMMAND: Time = Time::from_secs(5);

impl<P: Platform> Shard<P> {
    /// Passes a command to the device server, once it is its turn and there is room.
    pub(super) fn start(&mut self, entry: &mut SessionEntry, command: Command) {
        if let Some(command) = entry.tasks.admit(command) {
            self.begin_when_there_is_room(entry, command);
        }
    }

    /// Starts one of the commands whose turn has come; false when there is none.
    pub(super) fn begin_next_in_turn(&mut self, entry: &mut SessionEntry) -> bool {
        let Some(command) = entry.tasks.take_next_in_turn() else { return false };
        self.begin_when_there_is_room(entry, command);
        true
    }

    /// Starts a command whose turn has come, if there is room for it; otherwise it waits for room.
    fn begin_when_there_is_room(&mut self, entry: &mut SessionEntry, command: Command) {
        if entry.target.is_none() {
            return;
        }
        let need = self.room.need_of(&command);
        let waits = need > 0
            && ((command.read_length > 0 && self.would_overfill(entry, &command))
                || !match entry.share.is_short {
                    true => self.reserve_own(entry, need),
                    false => self.reserve(entry, need),
                });
        if waits {
            return entry.tasks.wait_for_room(command);
        }
        self.begin(entry, command, need);
    }

    /// Whether the initiator is slow to accept earlier data: until then no memory is filled for it.
    fn would_overfill(&mut self, entry: &SessionEntry, command: &Command) -> bool {
        let cid = entry.session.connection_of(command.task);
        waits_on(entry, cid) || self.is_congested(entry, cid)
    }

    /// Starts a command that holds `reserved_bytes` for its data.
    fn begin(&mut self, entry: &mut SessionEntry, command: Command, reserved_bytes: u64) {
        let task = command.task;
        let facts = scsi::command_facts(&command.cdb);
        if facts.of_target {
            let numbers: Vec<u16> = entry.luns.keys().copied().collect();
            for device in entry.luns.values() {
                device.unit.scsi.clear_unit_attention(entry.nexus.id, Asc::REPORTED_LUNS_DATA_CHANGED);
            }
            let outcome = scsi::report_luns(&numbers, &command.cdb);
            return self.finish(entry, task, outcome, Payload::default(), reserved_bytes);
        }
        let Some(device) = entry.device(command.lun) else {
            let outcome = scsi::absent_lun(&command.cdb);
            return self.finish(entry, task, outcome, Payload::default(), reserved_bytes);
        };
        if facts.timed {
            device.unit.scsi.set_time(self.now);
        }
        let execution =
            device.unit.scsi.begin_offering(&entry.nexus, &command.cdb, command.write_length.into());
        self.ahead.request();
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
        self.carry_on(entry, task, running, DataOutPieces::new());
    }

    /// All data of a command has arrived. None of it was used before: an aborted write has changed no block.
    //= sam5 5.5 TSK-05
    pub(super) fn data_out(&mut self, entry: &mut SessionEntry, task: TaskId, data: DataOutPieces) {
        let Some(mut running) = entry.tasks.take_awaiting_data(task) else { return };
        let slices: smallvec::SmallVec<[&[u8]; 8]> = data.iter().map(|piece| &piece[..]).collect();
        let data_out = DataOut::new(&slices).with_offered(running.write_length);
        running.execution.data_out(&running.device.unit.scsi, &data_out);
        drop(slices);
        self.carry_on(entry, task, running, data);
    }

    /// Runs a command as far as possible without waiting.
    fn carry_on(
        &mut self,
        entry: &mut SessionEntry,
        task: TaskId,
        mut running: Running,
        data: DataOutPieces,
    ) {
        let mut payload = Payload::default();
        let mut steps = 0;
        loop {
            match running.execution.step() {
                Step::NeedDataOut { bytes } => {
                    let bytes = *bytes;
                    let wanted = bytes.min(running.write_length);
                    let reserved = running.reserved_bytes;
                    if wanted > reserved {
                        return self.finish(entry, task, too_long(), payload, reserved);
                    }
                    if running.read_length == 0 {
                        running.reserved_bytes = wanted;
                        entry.share.commands -= reserved - wanted;
                    }
                    entry.tasks.await_data(task, running);
                    return entry.session.need_data_out(task, bytes);
                }
                // A copy may access a unit whose store blocks.
                Step::Medium(MediumOp::Copy { .. }) => return self.offload(entry, task, running, data),
                Step::Medium(_) if steps == INLINE_STEPS_MAX => {
                    return self.offload(entry, task, running, data);
                }
                Step::Medium(_) => {
                    let (lun, reserved, slabs) = (running.lun(), running.reserved_bytes, &self.slabs);
                    // A panic in a store ends its command, but not the shard, which serves other sessions too.
                    let worked = catch_unwind(AssertUnwindSafe(|| match running.device.unit.offload {
                        true => running.work_now(slabs),
                        false => Some(running.work(&data, slabs, &NEVER)),
                    }));
                    if let Ok(None) = worked {
                        return self.offload(entry, task, running, data);
                    }
                    let Ok(Some(done)) = worked else {
                        tracing::error!(lun, "a store panicked; its command ends with HARDWARE ERROR");
                        let no_data = Payload::default();
                        self.observe(entry, &running, Some(Reason::HardwareError), &no_data, &data);
                        let failed = Outcome::check(store_failure());
                        return self.finish(entry, task, failed, Payload::default(), reserved);
                    };
                    payload = done;
                    steps += 1;
                    self.ahead.request();
                }
                // The status tells the host that its reservation survives power loss: first a worker must store it.
                Step::Done(outcome)
                    if running.device.keeps_reservations() && lun::change_to_keep(outcome).is_some() =>
                {
                    return self.offload(entry, task, running, data);
                }
                Step::Done(_) => break,
            }
        }
        if let Some(rest) = running.execution.take_remainder() {
            self.continue_with(&running, rest);
        }
        self.observe(entry, &running, running.failure(), &payload, &data);
        if let Step::Done(outcome) = running.execution.into_step() {
            self.finish(entry, task, outcome, payload, running.reserved_bytes);
        }
    }

    /// Gives a command to a worker thread until its medium operations are done.
    fn offload(&mut self, entry: &mut SessionEntry, task: TaskId, running: Running, data: DataOutPieces) {
        let cancelled = Arc::new(AtomicBool::new(false));
        entry.tasks.give_to_worker(task, running.at_worker(Arc::clone(&cancelled)));
        let reply = Reply::to(self.shared.shards()[self.number].clone(), entry.key, task);
        let job = Job::new(&self.shared, self.slabs.clone(), running, data, cancelled, Some(reply));
        self.workers.take(job.work(), self.now);
    }

    /// A worker has finished a command.
    pub(super) fn store_done(&mut self, done: StoreDone) {
        let StoreDone { session, task, result, saved } = done;
        self.workers.done(self.now);
        self.with_session(session, |shard, entry| {
            let Some(at_worker) = entry.tasks.take_from_worker(task) else {
                return entry.session.task_gone(task);
            };
            let reserved = at_worker.reserved_bytes;
            if at_worker.cancelled.load(Ordering::Acquire) {
                entry.share.commands -= reserved;
                return entry.session.task_gone(task);
            }
            let Some((running, payload, data)) = result else {
                if let Some(device) = entry.luns.get(&at_worker.lun).cloned() {
                    let (kind, started) = (at_worker.kind, at_worker.started);
                    shard.observe_end(entry, &device, kind, started, 0, Some(Reason::HardwareError));
                }
                let failed = Outcome::check(store_failure());
                return shard.finish(entry, task, failed, Payload::default(), reserved);
            };
            let failed = if saved { running.failure() } else { Some(Reason::HardwareError) };
            shard.observe(entry, &running, failed, &payload, &data);
            match running.execution.into_step() {
                Step::Done(outcome) => {
                    // A change that was reverted has no effects.
                    let outcome = if saved { outcome } else { Outcome::check(store_failure()) };
                    shard.finish(entry, task, outcome, payload, reserved)
                }
                // The device server never requests data after a medium operation.
                Step::NeedDataOut { .. } | Step::Medium(_) => {
                    entry.share.commands -= reserved;
                    entry.session.task_gone(task)
                }
            }
        });
    }

    /// Executes the work that remains after a completed command.
    //= sbc3 4.11 SAN-01
    fn continue_with(&mut self, ended: &Running, rest: Execution) {
        let running = Running { execution: rest, device: Arc::clone(&ended.device), ..*ended };
        let no_data = DataOutPieces::new();
        Job::new(&self.shared, self.slabs.clone(), running, no_data, Arc::default(), None).queue();
    }

    /// The session has abandoned a command.
    pub(super) fn abandon(&mut self, entry: &mut SessionEntry, task: TaskId) {
        if let Abandoned::Gone(reserved_bytes) = entry.tasks.abandon(task) {
            entry.share.commands -= reserved_bytes;
            entry.session.task_gone(task);
        }
    }

    /// Starts one of the commands that wait for room, if there is room for it now and, for a read, on its connection. The caller
    /// must hand on its output before it calls this again.
    pub(super) fn begin_waiting_for_room(&mut self, entry: &mut SessionEntry) -> bool {
        let mut short = false;
        let mut full: SmallVec<[Option<Cid>; 4]> = SmallVec::new();
        for position in 0..entry.tasks.count_for_room() {
            let Some(command) = entry.tasks.for_room_at(position) else { continue };
            let need = self.room.need_of(command);
            if command.read_length > 0 {
                let cid = entry.session.connection_of(command.task);
                if full.contains(&cid) {
                    continue;
                }
                if self.is_congested(entry, cid) {
                    full.push(cid);
                    continue;
                }
            }
            let has_room = if short { self.reserve_own(entry, need) } else { self.reserve(entry, need) };
            if !has_room {
                short = true;
                continue;
            }
            let Some(command) = entry.tasks.take_for_room_at(position) else { return false };
            entry.share.is_short = entry.tasks.count_for_room() > 0;
            self.begin(entry, command, need);
            return true;
        }
        entry.share.is_short = short;
        false
    }

    /// The device server has finished: executes the effects on other sessions, then completes the command in its session. Of the
    /// command's `reserved_bytes`, the part that its data takes stays in use until the data is sent.
    pub(super) fn finish(
        &mut self,
        entry: &mut SessionEntry,
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
        self.ahead.request();
        let completion = completion(outcome, payload);
        let bytes = completion.data_in.bytes.len() as u64;
        entry.fresh_bytes += bytes;
        entry.share.commands -= reserved_bytes;
        entry.share.outgoing += bytes.min(reserved_bytes);
        match victims.is_empty() {
            true => entry.session.complete(task, completion),
            false => self.preempt(entry, task, completion, victims),
        }
    }

    /// Counts a completed command, in its unit and in its session.
    pub(super) fn observe(
        &mut self,
        entry: &mut SessionEntry,
        running: &Running,
        failed: Option<Reason>,
        payload: &Payload,
        data: &DataOutPieces,
    ) {
        let written = if running.write_length > 0 { data.iter().map(Bytes::len).sum::<usize>() } else { 0 };
        let bytes = (payload.bytes.len() + written) as u64;
        self.observe_end(entry, &running.device, running.kind, running.started, bytes, failed);
    }

    /// Like [`Shard::observe`], for a command of which only these values are left.
    pub(super) fn observe_end(
        &mut self,
        entry: &mut SessionEntry,
        device: &Device,
        kind: Op,
        started: Time,
        bytes: u64,
        failed: Option<Reason>,
    ) {
        let elapsed = self.shared.platform.now().saturating_sub(started);
        entry.stats.commands.add(1);
        entry.tally.count(kind, bytes, failed);
        device.stats.record(kind, bytes, elapsed, failed);
        if elapsed >= SLOW_COMMAND && self.admits(EventKind::SlowCommand) {
            let names = entry.session.names();
            tracing::warn!(
                target_name = %device.target_name(), lun = device.number(), initiator = %names.initiator,
                "a {} command took {:.1} s", kind.label(), elapsed.as_secs_f64()
            );
        }
    }
}

/// The outcome of a command that needs more memory than any command may have: as if it exceeded MAXIMUM TRANSFER LENGTH. That limit
/// is chosen such that this happens only after the memory for data was reduced.
//= sbc3 6.5.3 VPD-B0
fn too_long() -> Outcome {
    Outcome::check(SenseData::new(SenseKey::IllegalRequest, Asc::INVALID_FIELD_IN_CDB))
}

/// The sense of a command whose store broke its contract.
fn store_failure() -> SenseData {
    SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE)
}

/// Whether a command of the same connection already waits for room.
fn waits_on(entry: &SessionEntry, cid: Option<Cid>) -> bool {
    entry.tasks.waiting_for_room().any(|command| entry.session.connection_of(command.task) == cid)
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
