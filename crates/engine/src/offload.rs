//! A bounded pool of threads for store jobs that block, with one lane per logical unit.
//!
//! A lane starts its jobs in order and has at most its share of them running, so a store that hangs holds only its lane's share
//! of the threads and the other units go on. Threads are started when needed and end after [`IDLE_LIMIT`] without work.
//! A job that panics ends alone: the panic is caught and counted.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long a thread waits for work before it ends.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// Work for the pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads. Clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct Offload {
    shared: Arc<Shared>,
}

/// The queue of one logical unit. Clones are handles to the same lane. Use a lane with one pool only.
#[derive(Clone)]
pub struct Lane {
    inner: Arc<LaneInner>,
}

struct LaneInner {
    max_concurrent: usize,
    state: Mutex<LaneState>,
}

#[derive(Default)]
struct LaneState {
    jobs: VecDeque<Job>,
    /// How often the lane is in the pool's list; at most once per waiting job.
    listed: usize,
    /// Jobs that run.
    running: usize,
}

#[derive(Debug)]
struct Shared {
    max_threads: usize,
    pool: Mutex<Pool>,
    work: Condvar,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    /// Lanes with a job that may start, in turn.
    runnable: VecDeque<Lane>,
    threads: usize,
    idle: usize,
    shut_down: bool,
    panics: u64,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("max_concurrent", &self.inner.max_concurrent).finish_non_exhaustive()
    }
}

impl Lane {
    /// A lane that runs at most `max_concurrent` jobs at a time (at least one). A pool of several threads never gives all of
    /// them to one lane.
    pub fn new(max_concurrent: usize) -> Self {
        Self { inner: Arc::new(LaneInner { max_concurrent: max_concurrent.max(1), state: Mutex::default() }) }
    }

    /// Jobs that wait for their start.
    pub fn queued(&self) -> usize {
        self.inner.state.lock().jobs.len()
    }

    /// Queues `job`; true when the lane is to be listed once more.
    fn push(&self, job: Job, share: usize) -> bool {
        let mut state = self.inner.state.lock();
        state.jobs.push_back(job);
        state.list(share)
    }

    fn begin(&self) -> Option<Job> {
        let mut state = self.inner.state.lock();
        state.listed -= 1;
        state.running += 1;
        state.jobs.pop_front()
    }

    /// True when the lane is to be listed once more.
    fn end(&self, share: usize) -> bool {
        let mut state = self.inner.state.lock();
        state.running -= 1;
        state.list(share)
    }
}

impl LaneState {
    fn list(&mut self, share: usize) -> bool {
        let list = self.listed + self.running < share && self.listed < self.jobs.len();
        self.listed += usize::from(list);
        list
    }
}

impl Offload {
    /// A pool of at most `max_threads` threads (at least one). None is started yet.
    pub fn new(max_threads: usize) -> Self {
        let shared = Shared {
            max_threads: max_threads.max(1),
            pool: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Runs `job` on a thread of the pool, after the jobs that `lane` got before it were started. After
    /// [`Offload::shutdown`] the job is dropped unrun.
    pub fn submit(&self, lane: &Lane, job: Job) {
        let shared = &self.shared;
        let mut pool = shared.pool.lock();
        if pool.shut_down {
            return;
        }
        if !lane.push(job, shared.share(lane)) {
            return;
        }
        pool.runnable.push_back(lane.clone());
        if pool.idle >= pool.runnable.len() || pool.threads == shared.max_threads {
            drop(pool);
            shared.work.notify_one();
            return;
        }
        pool.threads += 1;
        drop(pool);
        let worker = shared.clone();
        let spawned = std::thread::Builder::new().name("offload".into()).spawn(move || worker.work());
        if spawned.is_err() {
            let mut pool = shared.pool.lock();
            pool.threads -= 1;
            // Other threads will come to it. With none at all, slow on this thread is better than never.
            if pool.threads == 0 {
                pool.threads += 1;
                drop(pool);
                shared.run_until_idle(Duration::ZERO);
            }
        }
    }

    /// Threads that exist now.
    pub fn threads(&self) -> usize {
        self.shared.pool.lock().threads
    }

    /// Jobs that panicked so far.
    pub fn panics(&self) -> u64 {
        self.shared.pool.lock().panics
    }

    /// Takes no more jobs, runs those that were submitted, and returns when all threads have ended.
    /// Not to be called by a job.
    pub fn shutdown(&self) {
        let mut pool = self.shared.pool.lock();
        pool.shut_down = true;
        self.shared.work.notify_all();
        while pool.threads > 0 {
            self.shared.ended.wait(&mut pool);
        }
    }
}

impl Shared {
    /// How many threads the lane may hold: with several threads, one is always left to the others.
    fn share(&self, lane: &Lane) -> usize {
        lane.inner.max_concurrent.min(self.max_threads.saturating_sub(1)).max(1)
    }

    fn work(&self) {
        self.run_until_idle(IDLE_LIMIT);
    }

    /// Runs jobs until there was none for `idle_limit`, or the pool is shut down and empty; then the calling thread is out.
    fn run_until_idle(&self, idle_limit: Duration) {
        let mut pool = self.pool.lock();
        loop {
            let Some(lane) = pool.runnable.pop_front() else {
                if pool.shut_down {
                    break;
                }
                pool.idle += 1;
                let timed_out = self.work.wait_for(&mut pool, idle_limit).timed_out();
                pool.idle -= 1;
                if timed_out && pool.runnable.is_empty() {
                    break;
                }
                continue;
            };
            drop(pool);
            // The job is consumed inside, so that what it captured is dropped there too, panic or not.
            let panicked = lane.begin().is_some_and(|job| catch_unwind(AssertUnwindSafe(job)).is_err());
            let more = lane.end(self.share(&lane));
            pool = self.pool.lock();
            pool.panics += u64::from(panicked);
            if more {
                pool.runnable.push_back(lane);
            }
        }
        pool.threads -= 1;
        if pool.threads == 0 {
            self.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A job that says that it has started and then waits to be let go.
    fn gated(started: &Sender<usize>, id: usize) -> (Job, Sender<()>) {
        let started = started.clone();
        let (open, gate) = channel::<()>();
        let job = Box::new(move || {
            started.send(id).unwrap();
            // An error means that the gate was dropped, which also lets it go.
            let _ = gate.recv();
        });
        (job, open)
    }

    fn none_started(started: &Receiver<usize>) -> bool {
        started.try_recv().is_err()
    }

    #[test]
    fn a_hanging_lane_holds_only_its_share() {
        let pool = Offload::new(4);
        let (slow, fast) = (Lane::new(2), Lane::new(2));
        let (started, starts) = channel();
        let mut gates = Vec::new();
        for id in 0..10 {
            let (job, gate) = gated(&started, id);
            pool.submit(&slow, job);
            gates.push(gate);
        }
        let mut running = [starts.recv().unwrap(), starts.recv().unwrap()];
        running.sort();
        assert_eq!(running, [0, 1]);
        let (done, finished) = channel();
        for n in 0..100 {
            let done = done.clone();
            pool.submit(&fast, Box::new(move || done.send(n).unwrap()));
        }
        let mut seen: Vec<i32> = (0..100).map(|_| finished.recv().unwrap()).collect();
        seen.sort();
        assert!(seen.iter().copied().eq(0..100), "every job ran once");
        assert!(none_started(&starts), "the slow lane got no third thread");
        assert_eq!(slow.queued(), 8);
        gates.clear();
        pool.shutdown();
        let mut rest: Vec<usize> = starts.try_iter().collect();
        rest.sort();
        assert_eq!(rest, (2..10).collect::<Vec<_>>());
        assert_eq!(pool.threads(), 0);
    }

    #[test]
    fn a_lane_of_one_runs_its_jobs_in_order_one_at_a_time() {
        let pool = Offload::new(8);
        let lane = Lane::new(1);
        let (done, finished) = channel();
        for n in 0..500 {
            let done = done.clone();
            pool.submit(&lane, Box::new(move || done.send(n).unwrap()));
        }
        assert!((0..500).all(|n| finished.recv().unwrap() == n));
        pool.shutdown();
    }

    #[test]
    fn a_lane_uses_all_of_its_share_also_when_jobs_come_one_by_one() {
        let pool = Offload::new(8);
        let lane = Lane::new(3);
        let (started, starts) = channel();
        let mut gates = Vec::new();
        for id in 0..3 {
            let (job, gate) = gated(&started, id);
            pool.submit(&lane, job);
            gates.push(gate);
            assert_eq!(starts.recv().unwrap(), id);
        }
        assert_eq!(pool.threads(), 3);
        gates.clear();
        pool.shutdown();
    }

    #[test]
    fn one_lane_never_gets_every_thread() {
        let pool = Offload::new(2);
        let (greedy, other) = (Lane::new(100), Lane::new(1));
        let (started, starts) = channel();
        let gates: Vec<_> = (0..5)
            .map(|id| {
                let (job, gate) = gated(&started, id);
                pool.submit(&greedy, job);
                gate
            })
            .collect();
        assert_eq!(starts.recv().unwrap(), 0);
        let (done, finished) = channel();
        pool.submit(&other, Box::new(move || done.send(()).unwrap()));
        finished.recv().unwrap();
        drop(gates);
        pool.shutdown();
    }

    #[test]
    fn a_panic_ends_only_its_job() {
        let pool = Offload::new(1);
        let lane = Lane::new(1);
        let (held, released) = channel::<()>();
        pool.submit(
            &lane,
            Box::new(move || {
                let _held = held;
                std::panic::resume_unwind(Box::new("expected by the test"));
            }),
        );
        assert!(released.recv().is_err(), "what the job captured is dropped");
        let (done, finished) = channel();
        pool.submit(&lane, Box::new(move || done.send(7).unwrap()));
        assert_eq!(finished.recv().unwrap(), 7);
        pool.shutdown();
        assert_eq!(pool.panics(), 1);
    }

    #[test]
    fn after_shutdown_jobs_are_dropped_unrun() {
        let pool = Offload::new(2);
        pool.shutdown();
        let (done, finished) = channel::<()>();
        pool.submit(&Lane::new(1), Box::new(move || done.send(()).unwrap()));
        assert!(finished.recv().is_err());
    }
}
