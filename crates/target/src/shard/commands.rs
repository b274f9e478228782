//! From a SCSI command to its outcome: the device server is asked, the medium is worked on, the session is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::target::actions::{Command, Completion, DataInPayload};
use iscsi_core::target::task::{DataOutPieces, TaskId};
use scsi::{Asc, DataInSource, DataOut, Effect, Execution, Outcome, Step};

use super::Shard;
use super::message::Message;
use super::sessions::{Hosted, SessionKey};
use crate::device::Device;
use crate::medium::{self, Surroundings};
use crate::observe::Op;

/// A connection with more than this waiting to be sent gets no further reads started, bytes.
pub(super) const BACKLOG_BYTES_MAX: usize = 16 << 20;

/// SCSI operation code of REPORT LUNS, which is answered for the whole target.
const REPORT_LUNS: u8 = 0xa0;

/// A command under way.
pub(super) struct Running {
    execution: Execution,
    device: Arc<Device>,
    read_length: u64,
    write_length: u64,
    digest_chunk_bytes: Option<u32>,
    started: Time,
    kind: Op,
}

impl Shard {
    /// Shows a command to the device server.
    pub(super) fn start(&mut self, hosted: &mut Hosted, command: Command) {
        if command.read_length > 0 && (!hosted.deferred.is_empty() || self.is_congested(hosted)) {
            // The initiator is slow to take what was read before: no memory is filled for it meanwhile.
            hosted.deferred.push_back(command);
            return;
        }
        self.begin(hosted, command);
    }

    fn begin(&mut self, hosted: &mut Hosted, command: Command) {
        let Some(target) = &hosted.target else { return };
        let task = command.task;
        let luns = target.luns();
        if command.cdb.first() == Some(&REPORT_LUNS) {
            let numbers: Vec<u16> = luns.keys().copied().collect();
            for device in luns.values() {
                device.unit.clear_unit_attention(hosted.nexus.id, Asc::REPORTED_LUNS_DATA_CHANGED);
            }
            return self.finish(
                hosted,
                task,
                scsi::report_luns(&numbers, &command.cdb),
                DataInPayload::default(),
            );
        }
        let Some(device) = command.lun.to_index().and_then(|number| luns.get(&number)) else {
            return self.finish(
                hosted,
                task,
                scsi::absent_lun(&command.cdb, command.lun.0),
                DataInPayload::default(),
            );
        };
        let execution = device.unit.begin_offering(&hosted.nexus, &command.cdb, command.write_length.into());
        let running = Running {
            execution,
            device: Arc::clone(device),
            read_length: command.read_length.into(),
            write_length: command.write_length.into(),
            digest_chunk_bytes: command.digest_chunk_bytes,
            started: self.now,
            kind: kind_of(&command.cdb),
        };
        drop(luns);
        self.carry_on(hosted, task, running, DataOutPieces::new());
    }

    /// All data of a command is here.
    pub(super) fn data_out(&mut self, hosted: &mut Hosted, task: TaskId, data: &DataOutPieces) {
        let Some(mut running) = hosted.running.remove(&task) else { return };
        let slices: smallvec::SmallVec<[&[u8]; 8]> = data.iter().map(|piece| &piece[..]).collect();
        let data_out = DataOut::new(&slices).with_offered(running.write_length);
        running.execution = running.execution.data_out(&running.device.unit, &data_out);
        drop(slices);
        self.carry_on(hosted, task, running, data.clone());
    }

    /// Takes a command as far as it goes without waiting.
    fn carry_on(&mut self, hosted: &mut Hosted, task: TaskId, mut running: Running, data: DataOutPieces) {
        let mut payload = DataInPayload::default();
        loop {
            match running.execution.step() {
                Step::NeedDataOut { bytes } => {
                    let bytes = *bytes;
                    hosted.running.insert(task, running);
                    return hosted.session.need_data_out(task, bytes);
                }
                Step::Medium(_) if running.device.offload => {
                    return self.offload(hosted, task, running, data);
                }
                Step::Medium(_) => (running, payload) = work(running, &data, &self.slabs),
                Step::Done(_) => break,
            }
        }
        self.observe(hosted, &running, &payload, &data);
        if let Step::Done(outcome) = running.execution.into_step() {
            self.finish(hosted, task, outcome, payload);
        }
    }

    /// Gives a command to a worker thread until its medium operations are done.
    fn offload(&mut self, hosted: &mut Hosted, task: TaskId, running: Running, data: DataOutPieces) {
        let cancelled = Arc::new(AtomicBool::new(false));
        hosted.offloaded.insert(task, Arc::clone(&cancelled));
        let (session, slabs, sender) =
            (hosted.key, self.slabs.clone(), self.shared.shards()[self.number].clone());
        let lane = running.device.lane.clone();
        let job = move || {
            let mut running = running;
            let mut payload = DataInPayload::default();
            while matches!(running.execution.step(), Step::Medium(_)) && !cancelled.load(Ordering::Acquire) {
                (running, payload) = work(running, &data, &slabs);
            }
            sender.send(Message::StoreDone(Box::new(StoreDone { session, task, running, payload, data })));
        };
        self.shared.offload.submit(&lane, Box::new(job));
    }

    /// A worker is done with a command.
    pub(super) fn store_done(&mut self, done: StoreDone) {
        let StoreDone { session, task, running, payload, data } = done;
        self.with_session(session, |shard, hosted| {
            let cancelled = hosted.offloaded.remove(&task).is_none_or(|flag| flag.load(Ordering::Acquire));
            if cancelled {
                return hosted.session.task_gone(task);
            }
            shard.observe(hosted, &running, &payload, &data);
            match running.execution.into_step() {
                Step::Done(outcome) => shard.finish(hosted, task, outcome, payload),
                // The device server never asks for data after the medium.
                Step::NeedDataOut { .. } | Step::Medium(_) => hosted.session.task_gone(task),
            }
        });
    }

    /// The session has given a command up.
    pub(super) fn abandon(&mut self, hosted: &mut Hosted, task: TaskId) {
        hosted.deferred.retain(|command| command.task != task);
        match hosted.offloaded.get(&task) {
            // Its worker answers; what it has not begun it will not begin.
            Some(cancelled) => cancelled.store(true, Ordering::Release),
            None => {
                hosted.running.remove(&task);
                hosted.session.task_gone(task);
            }
        }
    }

    /// Starts what waited for a connection to drain.
    pub(super) fn resume_deferred(&mut self, key: SessionKey) {
        self.with_session(key, |shard, hosted| {
            while !hosted.deferred.is_empty() && !shard.is_congested(hosted) {
                if let Some(command) = hosted.deferred.pop_front() {
                    shard.begin(hosted, command);
                }
            }
        });
    }

    /// The device server is done: carry out what that means for others, then tell the session.
    fn finish(&mut self, hosted: &mut Hosted, task: TaskId, outcome: Outcome, payload: DataInPayload) {
        let mut victims = Vec::new();
        for effect in &outcome.effects {
            if let Effect::AbortTasksOf(nexuses) = effect {
                victims.extend_from_slice(nexuses);
            }
        }
        let completion = completion(outcome, payload);
        match victims.is_empty() {
            true => hosted.session.complete(task, completion),
            false => self.preempt(hosted, task, completion, victims),
        }
    }

    fn observe(&mut self, hosted: &Hosted, running: &Running, payload: &DataInPayload, data: &DataOutPieces) {
        let Step::Done(outcome) = running.execution.step() else { return };
        let written = if running.write_length > 0 { data.iter().map(Bytes::len).sum::<usize>() } else { 0 };
        let failed = outcome.status == scsi::Status::CheckCondition;
        let elapsed = self.clock.now().saturating_sub(running.started);
        hosted.stats.commands.add(1);
        running.device.stats.record(running.kind, (payload.bytes.len() + written) as u64, elapsed, !failed);
    }
}

/// Which kind of command a CDB is, for the metrics.
fn kind_of(cdb: &[u8]) -> Op {
    match cdb.first() {
        Some(0x08 | 0x28 | 0xa8 | 0x88) => Op::Read,
        Some(0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 | 0x89 | 0x8b | 0x9c) => Op::Write,
        Some(0x35 | 0x91) => Op::Flush,
        Some(0x42) => Op::Unmap,
        _ => Op::Other,
    }
}

/// What a worker hands back.
pub struct StoreDone {
    session: SessionKey,
    task: TaskId,
    running: Running,
    payload: DataInPayload,
    data: DataOutPieces,
}

/// Carries out one medium operation.
fn work(running: Running, data: &DataOutPieces, slabs: &engine::SlabRing) -> (Running, DataInPayload) {
    let Running { execution, device, read_length, write_length, digest_chunk_bytes, started, kind } = running;
    let (reply, payload) = match execution.step() {
        Step::Medium(op) => medium::execute(
            &device,
            op,
            &Surroundings { slabs, data_out: data, read_length, digest_chunk_bytes },
        ),
        _ => (Ok(scsi::MediumReply::Done), DataInPayload::default()),
    };
    let execution = execution.medium_done(&device.unit, reply);
    (Running { execution, device, read_length, write_length, digest_chunk_bytes, started, kind }, payload)
}

/// An outcome in the session's words.
fn completion(outcome: Outcome, payload: DataInPayload) -> Completion {
    let sense = outcome.sense_bytes().map(Bytes::from).unwrap_or_default();
    let data_in = match outcome.data_in {
        DataInSource::None => DataInPayload::default(),
        DataInSource::Bytes(bytes) => DataInPayload { bytes, ..DataInPayload::default() },
        DataInSource::Medium => payload,
    };
    Completion { status: outcome.status as u8, sense, data_in, transfer_bytes: outcome.transfer_bytes }
}
