//! Work that a shard gives to worker threads: medium operations that may block, and, in slices, those on a whole medium.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::{Driver, Lane, Platform, SlabRing};
use iscsi_core::Time;
use iscsi_core::target::task::{DataOutPieces, TaskId};
use lun::Payload;
use scsi::Step;

use super::message::{Message, StoreDone};
use super::running::Running;
use super::slots::SessionKey;
use crate::shared::Shared;

/// Medium operations that a job executes before it queues again: its lane has other work too, and a server that shuts down does
/// not wait for more than these.
const STEPS_AT_ONCE: u32 = 64;

/// Work for the pool, with its lane.
pub(super) type Work = (Lane, engine::offload::Job);

/// Sends its contents when it is dropped, so that every command gets an answer, even if its job panics or is dropped without
/// running.
pub(super) struct Reply<D: Driver> {
    shard: engine::Sender<Message<D>>,
    done: Option<StoreDone>,
}

impl<D: Driver> Reply<D> {
    /// Tells `shard` how `task` of `session` went.
    pub(super) fn to(shard: engine::Sender<Message<D>>, session: SessionKey, task: TaskId) -> Self {
        Self { shard, done: Some(StoreDone { session, task, result: None, saved: true }) }
    }
}

impl<D: Driver> Drop for Reply<D> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            self.shard.send(Message::StoreDone(Box::new(done)));
        }
    }
}

/// A command, or the work that remains after one, at a worker thread.
pub(super) struct Job<P: Platform> {
    running: Running,
    payload: Payload,
    data: DataOutPieces,
    slabs: SlabRing,
    /// When this is true, no further operation starts.
    cancelled: Arc<AtomicBool>,
    /// Where the result goes.
    reply: Option<Reply<P::Driver>>,
    shared: Weak<Shared<P>>,
}

impl<P: Platform> Job<P> {
    /// Work on `running` until its medium operations are done, or until `cancelled` is true.
    pub(super) fn new(
        shared: &Arc<Shared<P>>,
        slabs: SlabRing,
        running: Running,
        data: DataOutPieces,
        cancelled: Arc<AtomicBool>,
        reply: Option<Reply<P::Driver>>,
    ) -> Self {
        let shared = Arc::downgrade(shared);
        Self { running, payload: Payload::default(), data, slabs, cancelled, reply, shared }
    }

    fn run(mut self) {
        for _ in 0..STEPS_AT_ONCE {
            if !matches!(self.running.execution.step(), Step::Medium(_))
                || self.cancelled.load(Ordering::Acquire)
            {
                return self.end();
            }
            self.payload = self.running.work(&self.data, &self.slabs, &self.cancelled);
        }
        self.queue();
    }

    /// What a worker does.
    pub(super) fn work(self) -> Work {
        (self.running.device.unit.lane.clone(), Box::new(move || self.run()))
    }

    /// Gives it to a worker. If the server has ended, the job is dropped together with its execution. That shows the unit that the operation is
    /// incomplete.
    pub(super) fn queue(self) {
        if let Some(shared) = self.shared.upgrade() {
            let (lane, work) = self.work();
            shared.platform.offload(&lane, work);
        }
    }

    fn end(self) {
        let saved = self.running.keep_reservations();
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

/// The jobs that a shard has at worker threads, or is about to give to them.
#[derive(Default)]
pub(super) struct Workers {
    /// Those to be given, in order. A shard that woke a thread for each command of a burst would often be interrupted by that thread.
    next: Vec<Work>,
    /// How many have not been answered.
    jobs: usize,
    /// The last time that a job was given to a worker or completed.
    last: Time,
}

impl Workers {
    /// Takes work for a worker, who gets it by [`Workers::hand_over`].
    pub(super) fn take(&mut self, work: Work, now: Time) {
        self.next.push(work);
        self.jobs += 1;
        self.last = now;
    }

    /// Gives what was taken to worker threads.
    pub(super) fn hand_over(&mut self, platform: &impl Platform) {
        if !self.next.is_empty() {
            platform.offload_all(&mut self.next);
        }
    }

    /// Whether no work is left to hand over.
    pub(super) fn have_all(&self) -> bool {
        self.next.is_empty()
    }

    /// A worker has answered.
    pub(super) fn done(&mut self, now: Time) {
        self.jobs -= 1;
        self.last = now;
    }

    /// Whether a worker is likely to finish soon.
    pub(super) fn are_busy(&self, now: Time) -> bool {
        self.jobs > 0 && now.saturating_sub(self.last) < WORKER_SILENCE
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
        let work = || -> Work { (Lane::new(1), Box::new(|| {})) };
        workers.take(work(), at(1));
        workers.take(work(), at(2));
        assert!(workers.are_busy(at(2)) && workers.are_busy(at(11)) && !workers.are_busy(at(12)));
        workers.done(at(20));
        assert!(workers.are_busy(at(21)), "the other one is at work");
        workers.done(at(21));
        assert!(!workers.are_busy(at(21)));
    }
}
