//! Work that a shard gives to worker threads: medium operations that may block, and, in slices, those on a whole medium.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use engine::{Driver, Platform};
use iscsi_core::Time;
use iscsi_core::target::task::{DataOutPieces, TaskId};
use lun::{NEVER, Payload, Surroundings};
use scsi::{Asc, Execution, Outcome, SenseData, SenseKey, Step};

use super::Shard;
use super::commands::{LONGEST_READ_BYTES, Running};
use super::message::Message;
use super::sessions::{SessionEntry, SessionKey};
use super::task_set::AtWorker;
use crate::observe::metrics::Reason;
use crate::shared::Shared;

/// Medium operations that a job executes before it queues again: its lane has other work too, and a server that shuts down does
/// not wait for more than these.
const STEPS_AT_ONCE: u32 = 64;

/// The sense of a command whose store broke its contract.
pub(super) fn store_failure() -> SenseData {
    SenseData::new(SenseKey::HardwareError, Asc::INTERNAL_TARGET_FAILURE)
}

/// The result from a worker.
pub struct StoreDone {
    session: SessionKey,
    task: TaskId,
    /// `None`: the store panicked, or the pool accepted no more jobs.
    result: Option<(Running, Payload, DataOutPieces)>,
    /// Reservations that had to be stored have been stored.
    saved: bool,
}

/// Sends its contents when it is dropped, so that every command gets an answer, even if its job panics or is dropped without
/// running.
struct Reply<D: Driver> {
    shard: engine::Sender<Message<D>>,
    done: Option<StoreDone>,
}

impl<D: Driver> Drop for Reply<D> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            self.shard.send(Message::StoreDone(Box::new(done)));
        }
    }
}

/// Executes one medium operation.
pub(super) fn work(
    running: &mut Running,
    data: &DataOutPieces,
    slabs: &engine::SlabRing,
    cancelled: &AtomicBool,
) -> Payload {
    let with = surroundings(running, data, slabs, cancelled);
    lun::step(&running.device.unit, &mut running.execution, &with)
}

/// Executes the first medium operation of a command, if it is a read that need not wait.
pub(super) fn work_now(running: &mut Running, slabs: &engine::SlabRing) -> Option<Payload> {
    let with = surroundings(running, &[], slabs, &NEVER);
    lun::step_now(&running.device.unit, &mut running.execution, &with)
}

fn surroundings<'a>(
    running: &Running,
    data_out: &'a [Bytes],
    slabs: &'a engine::SlabRing,
    cancelled: &'a AtomicBool,
) -> Surroundings<'a> {
    Surroundings {
        slabs,
        data_out,
        read_length: running.read_length,
        digest_chunk_bytes: running.digest_chunk_bytes,
        protection: running.execution.protection().copied(),
        cancelled,
    }
}

/// Stores the unit's reservations if the command changed them; false when that failed.
//= spc4 5.12.6 PR-10
fn keep_reservations(running: &Running) -> bool {
    let Step::Done(outcome) = running.execution.step() else { return true };
    let Some(change) = lun::change_to_keep(outcome) else { return true };
    let saved = running.device.save_reservations();
    if let Err(error) = &saved {
        let (lun, store) = (running.lun(), running.device.unit.store.description());
        tracing::error!(%error, lun, store, "persistent reservations cannot be stored: free space there, or change state_dir");
    }
    // Another command may have failed to store this change together with its own, and both were reverted.
    let taken_back = running.device.unit.scsi.was_taken_back(change);
    saved.is_ok() && !taken_back
}

/// A command, or the work that remains after one, at a worker thread.
struct Job<P: Platform> {
    running: Running,
    payload: Payload,
    data: DataOutPieces,
    slabs: engine::SlabRing,
    /// When this is true, no further operation starts.
    cancelled: Arc<AtomicBool>,
    /// Where the result goes.
    reply: Option<Reply<P::Driver>>,
    shared: Weak<Shared<P>>,
}

impl<P: Platform> Job<P> {
    fn run(mut self) {
        for _ in 0..STEPS_AT_ONCE {
            if !matches!(self.running.execution.step(), Step::Medium(_))
                || self.cancelled.load(Ordering::Acquire)
            {
                return self.end();
            }
            self.payload = work(&mut self.running, &self.data, &self.slabs, &self.cancelled);
        }
        self.queue();
    }

    /// If the server has ended, the job is dropped together with its execution. That shows the unit that the operation is
    /// incomplete.
    fn queue(self) {
        if let Some(shared) = self.shared.upgrade() {
            let lane = self.running.device.unit.lane.clone();
            shared.platform.offload(&lane, Box::new(move || self.run()));
        }
    }

    fn end(self) {
        let saved = keep_reservations(&self.running);
        if let Some(mut reply) = self.reply
            && let Some(done) = &mut reply.done
        {
            done.result = Some((self.running, self.payload, self.data));
            done.saved = saved;
        }
    }
}

/// How long a worker may be silent before the shard polls again although it waits for the worker: a hanging disk slows down
/// nothing else.
const WORKER_SILENCE: Duration = Duration::from_millis(10);

/// The jobs that a shard has at worker threads.
#[derive(Debug, Default)]
pub(super) struct Workers {
    jobs: usize,
    /// The last time that a job was given to a worker or completed.
    last: Time,
}

impl Workers {
    fn given(&mut self, now: Time) {
        self.jobs += 1;
        self.last = now;
    }

    fn done(&mut self, now: Time) {
        self.jobs -= 1;
        self.last = now;
    }

    /// Whether a worker is likely to finish soon.
    pub(super) fn are_busy(&self, now: Time) -> bool {
        self.jobs > 0 && now.saturating_sub(self.last) < WORKER_SILENCE
    }
}

impl<P: Platform> Shard<P> {
    /// Gives a command to a worker thread until its medium operations are done.
    pub(super) fn offload(
        &mut self,
        entry: &mut SessionEntry,
        task: TaskId,
        running: Running,
        data: DataOutPieces,
    ) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let at_worker = AtWorker {
            cancelled: Arc::clone(&cancelled),
            reading_bytes: running.read_length.min(LONGEST_READ_BYTES),
            reserved_bytes: running.reserved_bytes,
            lun: running.lun(),
            kind: running.kind,
            started: running.started,
            outlives_task: running.execution.outlives_task(),
        };
        entry.tasks.give_to_worker(task, at_worker);
        self.workers.given(self.now);
        let reply = Reply {
            shard: self.shared.shards()[self.number].clone(),
            done: Some(StoreDone { session: entry.key, task, result: None, saved: true }),
        };
        self.job(running, data, cancelled, Some(reply)).queue();
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
    pub(super) fn continue_with(&mut self, ended: &Running, rest: Execution) {
        let running = Running { execution: rest, device: Arc::clone(&ended.device), ..*ended };
        self.job(running, DataOutPieces::new(), Arc::default(), None).queue();
    }

    fn job(
        &self,
        running: Running,
        data: DataOutPieces,
        cancelled: Arc<AtomicBool>,
        reply: Option<Reply<P::Driver>>,
    ) -> Job<P> {
        let (slabs, shared) = (self.slabs.clone(), Arc::downgrade(&self.shared));
        Job { running, payload: Payload::default(), data, slabs, cancelled, reply, shared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_hangs_is_not_waited_for_like_one_that_works() {
        let at = Duration::from_millis;
        let mut workers = Workers::default();
        assert!(!workers.are_busy(at(1)));
        workers.given(at(1));
        workers.given(at(2));
        assert!(workers.are_busy(at(2)) && workers.are_busy(at(11)) && !workers.are_busy(at(12)));
        workers.done(at(20));
        assert!(workers.are_busy(at(21)), "the other one is at work");
        workers.done(at(21));
        assert!(!workers.are_busy(at(21)));
    }
}
