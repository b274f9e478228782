//! A pool of threads for store jobs that block, with one lane per logical unit.
//!
//! A lane starts its jobs in order and runs at most its share of them at a time. There are two kinds of threads:
//!
//! - **a lane's own**: a lane with work always has one thread, whatever the other lanes do. So however many lanes have stores
//!   that hang, no other lane waits for its turn. A lane without work has no thread.
//! - **shared by all lanes**: a lane's second and later jobs start while fewer than `max_threads` threads are busy. A thread
//!   that is stuck in one job for [`STUCK_AFTER`] no longer counts, up to a bound: another thread replaces it.
//!
//! Threads are started when needed and end after `IDLE_LIMIT` without work. A job that panics affects no other: the panic is
//! caught and counted.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long a thread waits for work before it ends.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// A thread that was seen in the same job twice, this far apart, counts as stuck.
pub const STUCK_AFTER: Duration = Duration::from_secs(1);
/// How many stuck threads are replaced, in multiples of `max_threads`.
const STUCK_MAX: usize = 3;

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
    /// How often the lane is in the queue for the shared threads.
    listed: usize,
    /// Threads that work for it or are promised to it.
    threads: usize,
}

/// The kind of thread that a lane may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The first thread of the lane, which it gets at once.
    Own,
    /// A thread that all lanes share.
    Shared,
}

#[derive(Debug)]
struct Shared {
    max_threads: usize,
    pool: Mutex<Pool>,
    work: Condvar,
    ended: Condvar,
}

#[derive(Debug)]
struct Pool {
    /// Lanes that were promised a thread and do not have it yet, first come, first served.
    own: VecDeque<Lane>,
    /// Lanes that wait for a shared thread, first come, first served.
    waiting: VecDeque<Lane>,
    /// Threads that exist or are about to.
    threads: usize,
    /// Threads that have a job.
    busy: usize,
    /// Threads that wait to be woken. Those that are awake without a job look for one before they sleep.
    asleep: usize,
    /// What each thread is doing, by its place.
    posts: Vec<Post>,
    /// Posts that are stuck.
    stuck: usize,
    /// When the posts were last checked.
    looked: Instant,
    shut_down: bool,
    panics: u64,
}

/// The state of a place for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Post {
    /// No thread has this place.
    Free,
    /// Its thread has no job.
    Idle,
    /// Its thread has a job that no check has seen yet.
    Begun,
    /// A check has seen the job once.
    Seen,
    /// A check has seen the job twice.
    Stuck,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("max_concurrent", &self.inner.max_concurrent).finish_non_exhaustive()
    }
}

impl Lane {
    /// A lane that runs at most `max_concurrent` jobs at a time (at least one).
    pub fn new(max_concurrent: usize) -> Self {
        Self { inner: Arc::new(LaneInner { max_concurrent: max_concurrent.max(1), state: Mutex::default() }) }
    }

    /// Jobs that wait for their start.
    pub fn queued(&self) -> usize {
        self.inner.state.lock().jobs.len()
    }

    /// Queues `job`; returns the thread that the lane may have for it.
    fn push(&self, job: Job) -> Option<Claim> {
        let mut state = self.inner.state.lock();
        state.jobs.push_back(job);
        state.claim(self.inner.max_concurrent)
    }

    /// The next job, for a thread of the lane.
    fn begin(&self, claim: Claim) -> Option<Job> {
        let mut state = self.inner.state.lock();
        let job = state.jobs.pop_front();
        if claim == Claim::Shared {
            state.listed -= 1;
            state.threads += usize::from(job.is_some());
        } else if job.is_none() {
            state.threads -= 1;
        }
        job
    }

    /// A thread of the lane has finished a job; returns the thread that the lane may have now.
    fn end(&self) -> Option<Claim> {
        let mut state = self.inner.state.lock();
        state.threads -= 1;
        state.claim(self.inner.max_concurrent)
    }
}

impl LaneState {
    fn claim(&mut self, share: usize) -> Option<Claim> {
        if self.jobs.is_empty() {
            return None;
        }
        if self.threads == 0 {
            self.threads = 1;
            return Some(Claim::Own);
        }
        let more = self.listed + self.threads < share && self.listed < self.jobs.len();
        self.listed += usize::from(more);
        more.then_some(Claim::Shared)
    }
}

impl Pool {
    fn enlist(&mut self, lane: Lane, claim: Claim) {
        match claim {
            Claim::Own => self.own.push_back(lane),
            Claim::Shared => self.waiting.push_back(lane),
        }
    }

    /// How many of the waiting lanes may have a shared thread now.
    fn room(&mut self, max_threads: usize) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        let taken = self.busy + self.own.len();
        if taken >= max_threads {
            self.look(Instant::now());
        }
        let excused = self.stuck.min(STUCK_MAX * max_threads);
        (max_threads + excused).saturating_sub(taken).min(self.waiting.len())
    }

    /// The lane that the calling thread should serve next, if there is one.
    fn next(&mut self, max_threads: usize) -> Option<(Lane, Claim)> {
        if let Some(lane) = self.own.pop_front() {
            return Some((lane, Claim::Own));
        }
        let lane = (self.room(max_threads) > 0).then(|| self.waiting.pop_front()).flatten();
        lane.map(|lane| (lane, Claim::Shared))
    }

    /// Checks which threads are stuck, if the last check was long enough ago.
    fn look(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked) < STUCK_AFTER {
            return;
        }
        self.looked = now;
        for post in &mut self.posts {
            *post = match *post {
                Post::Begun => Post::Seen,
                Post::Seen => {
                    self.stuck += 1;
                    Post::Stuck
                }
                other => other,
            };
        }
    }

    /// A place for a new thread.
    fn take_place(&mut self) -> usize {
        let free = self.posts.iter().position(|post| *post == Post::Free);
        let place = free.unwrap_or_else(|| {
            self.posts.push(Post::Free);
            self.posts.len() - 1
        });
        self.posts[place] = Post::Idle;
        place
    }

    fn begin(&mut self, place: usize) {
        self.busy += 1;
        self.posts[place] = Post::Begun;
    }

    fn end(&mut self, place: usize) {
        self.busy -= 1;
        let was = std::mem::replace(&mut self.posts[place], Post::Idle);
        self.stuck -= usize::from(was == Post::Stuck);
    }
}

impl Offload {
    /// A pool in which lanes share `max_threads` threads (at least one). None is started yet.
    pub fn new(max_threads: usize) -> Self {
        let pool = Pool {
            own: VecDeque::new(),
            waiting: VecDeque::new(),
            threads: 0,
            busy: 0,
            asleep: 0,
            posts: Vec::new(),
            stuck: 0,
            looked: Instant::now(),
            shut_down: false,
            panics: 0,
        };
        let shared = Shared {
            max_threads: max_threads.max(1),
            pool: Mutex::new(pool),
            work: Condvar::new(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Runs `job` on a thread of the pool; the jobs submitted to `lane` before it start first. After [`Offload::shutdown`] the
    /// job is dropped without running.
    pub fn submit(&self, lane: &Lane, job: Job) {
        self.submit_all([(lane.clone(), job)]);
    }

    /// As [`Offload::submit`] for each, in order, but wakes at most one thread for all of them.
    pub fn submit_all(&self, jobs: impl IntoIterator<Item = (Lane, Job)>) {
        let shared = &self.shared;
        let mut pool = shared.pool.lock();
        if pool.shut_down {
            return;
        }
        for (lane, job) in jobs {
            if let Some(claim) = lane.push(job) {
                pool.enlist(lane, claim);
            }
        }
        shared.recruit(pool);
    }

    /// Threads that exist now.
    pub fn threads(&self) -> usize {
        self.shared.pool.lock().threads
    }

    /// Jobs that panicked so far.
    pub fn panics(&self) -> u64 {
        self.shared.pool.lock().panics
    }

    /// Takes no more jobs, runs those already submitted, and returns when all threads have ended. A job must not call this.
    pub fn shutdown(&self) {
        let mut pool = self.shared.pool.lock();
        pool.shut_down = true;
        pool.asleep -= self.shared.work.notify_all();
        while pool.threads > 0 {
            self.shared.ended.wait(&mut pool);
        }
    }
}

impl Shared {
    /// Provides a thread for the work that may start now, unless one is awake that will look for it: wakes one that sleeps, or starts a
    /// new one. One is enough: whoever gets a job calls this before it runs the job. So few threads do short jobs, and as many as may
    /// do long ones.
    fn recruit(self: &Arc<Self>, mut pool: MutexGuard<'_, Pool>) {
        let awake = pool.threads - pool.busy - pool.asleep;
        if awake > 0 || (pool.own.is_empty() && pool.room(self.max_threads) == 0) {
            return;
        }
        if pool.asleep > 0 {
            // If nobody hears it, every sleeper's time is up: each looks for work before it ends.
            if self.work.notify_one() {
                pool.asleep -= 1;
            }
            return;
        }
        pool.threads += 1;
        drop(pool);
        let worker = self.clone();
        let spawned =
            std::thread::Builder::new().name("offload".into()).spawn(move || worker.work(IDLE_LIMIT));
        if spawned.is_err() {
            let mut pool = self.pool.lock();
            pool.threads -= 1;
            // Other threads will get to it. If there are none, running it slowly on this thread is better than never.
            if pool.threads == 0 {
                pool.threads += 1;
                drop(pool);
                self.work(Duration::ZERO);
            }
        }
    }

    /// Runs jobs until there has been none for `idle_limit`, or the pool is shut down; then the calling thread leaves the pool.
    fn work(self: &Arc<Self>, idle_limit: Duration) {
        let mut pool = self.pool.lock();
        let place = pool.take_place();
        let mut timed_out = false;
        loop {
            let Some((lane, claim)) = pool.next(self.max_threads) else {
                // Anything still waiting for a shared thread belongs to lanes whose own thread is at work.
                if pool.shut_down || timed_out {
                    break;
                }
                pool.asleep += 1;
                timed_out = self.work.wait_for(&mut pool, idle_limit).timed_out();
                // Whoever wakes a thread counts it as awake.
                pool.asleep -= usize::from(timed_out);
                continue;
            };
            timed_out = false;
            let Some(job) = lane.begin(claim) else { continue };
            pool.begin(place);
            self.recruit(pool);
            // The call consumes the job, so that its captures are dropped inside too, whether it panics or not.
            let panicked = catch_unwind(AssertUnwindSafe(job)).is_err();
            let claim = lane.end();
            pool = self.pool.lock();
            pool.end(place);
            pool.panics += u64::from(panicked);
            if let Some(claim) = claim {
                pool.enlist(lane, claim);
            }
        }
        pool.posts[place] = Post::Free;
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

    /// A job that reports its start and then waits until its gate opens.
    fn gated(started: &Sender<usize>, id: usize) -> (Job, Sender<()>) {
        let started = started.clone();
        let (open, gate) = channel::<()>();
        let job = Box::new(move || {
            started.send(id).unwrap();
            // An error means that the gate was dropped, which also opens it.
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
    fn a_lane_without_work_gets_a_thread_whatever_the_others_hold() {
        let pool = Offload::new(2);
        let (started, starts) = channel();
        let mut gates = Vec::new();
        let hung: Vec<Lane> = (0..12).map(|_| Lane::new(16)).collect();
        for lane in &hung {
            for _ in 0..16 {
                let (job, gate) = gated(&started, 0);
                pool.submit(lane, job);
                gates.push(gate);
            }
        }
        for _ in &hung {
            starts.recv().unwrap();
        }
        let healthy = Lane::new(16);
        for n in 0..100 {
            let (done, finished) = channel();
            pool.submit(&healthy, Box::new(move || done.send(n).unwrap()));
            // It completes although no job of the other lanes has completed.
            assert_eq!(finished.recv().unwrap(), n);
        }
        // This also holds when there is more work than one thread can do: its own thread comes back for the rest.
        let (done, finished) = channel();
        for n in 0..100 {
            let done = done.clone();
            pool.submit(&healthy, Box::new(move || done.send(n).unwrap()));
        }
        assert_eq!((0..100).map(|_| finished.recv().unwrap()).sum::<i32>(), 4950);
        gates.clear();
        pool.shutdown();
    }

    #[test]
    fn a_lane_without_work_has_no_thread() {
        let pool = Offload::new(4);
        let lanes: Vec<Lane> = (0..100).map(|_| Lane::new(16)).collect();
        for lane in &lanes {
            let (done, finished) = channel();
            pool.submit(lane, Box::new(move || done.send(()).unwrap()));
            finished.recv().unwrap();
        }
        // The thread of one lane may not be back when the next one needs a thread.
        assert!(pool.threads() <= 4, "{}", pool.threads());
        pool.shutdown();
    }

    #[test]
    fn a_burst_of_jobs_wakes_one_thread_and_each_the_next() {
        for together in [true, false] {
            let pool = Offload::new(8);
            let lane = Lane::new(8);
            let (started, starts) = channel();
            let (jobs, gates): (Vec<_>, Vec<_>) = (0..20).map(|id| gated(&started, id)).unzip();
            match together {
                true => pool.submit_all(jobs.into_iter().map(|job| (lane.clone(), job))),
                false => jobs.into_iter().for_each(|job| pool.submit(&lane, job)),
            }
            for running in 0..8 {
                let inner = pool.shared.pool.lock();
                assert!(inner.threads - inner.busy <= 1, "{running} jobs are known to run: {inner:?}");
                drop(inner);
                starts.recv().unwrap();
            }
            assert_eq!((pool.threads(), lane.queued()), (8, 12));
            drop(gates);
            pool.shutdown();
            assert_eq!(starts.try_iter().count(), 12);
        }
    }

    #[test]
    fn the_shared_threads_are_as_many_as_was_said() {
        let pool = Offload::new(3);
        let lane = Lane::new(100);
        let (started, starts) = channel();
        let gates: Vec<_> = (0..10)
            .map(|id| {
                let (job, gate) = gated(&started, id);
                pool.submit(&lane, job);
                gate
            })
            .collect();
        let mut running: Vec<usize> = (0..3).map(|_| starts.recv().unwrap()).collect();
        running.sort();
        assert_eq!(running, [0, 1, 2]);
        assert_eq!((pool.threads(), lane.queued()), (3, 7));
        drop(gates);
        pool.shutdown();
    }

    /// Checks `pool` twice, as if the second check came late enough to recognise stuck threads.
    fn look_twice(pool: &Offload) {
        let mut inner = pool.shared.pool.lock();
        let now = inner.looked;
        inner.look(now + STUCK_AFTER);
        inner.look(now + 2 * STUCK_AFTER);
        inner.looked = now;
    }

    #[test]
    fn others_take_the_place_of_threads_that_are_stuck() {
        let pool = Offload::new(2);
        let (started, starts) = channel();
        let hung = Lane::new(2);
        let mut gates = Vec::new();
        for _ in 0..2 {
            let (job, gate) = gated(&started, 0);
            pool.submit(&hung, job);
            gates.push(gate);
        }
        let _both_run = (starts.recv().unwrap(), starts.recv().unwrap());
        // Both shared threads hang, so another lane has only its own.
        let healthy = Lane::new(2);
        for id in [1, 2] {
            let (job, gate) = gated(&started, id);
            pool.submit(&healthy, job);
            gates.push(gate);
        }
        assert_eq!(starts.recv().unwrap(), 1);
        assert_eq!(healthy.queued(), 1);
        look_twice(&pool);
        let (job, gate) = gated(&started, 3);
        pool.submit(&healthy, job);
        gates.push(gate);
        assert_eq!(starts.recv().unwrap(), 2, "its share is what it was before the others hung");
        gates.clear();
        pool.shutdown();
        assert_eq!(pool.shared.pool.lock().stuck, 0, "who comes back is not stuck any more");
    }

    #[test]
    fn stuck_threads_are_replaced_up_to_a_bound() {
        let pool = Offload::new(1);
        let (started, starts) = channel();
        let hung = Lane::new(100);
        let mut gates = Vec::new();
        for running in 1..=1 + STUCK_MAX {
            let (job, gate) = gated(&started, 0);
            pool.submit(&hung, job);
            gates.push(gate);
            starts.recv().unwrap();
            assert_eq!(pool.threads(), running);
            look_twice(&pool);
        }
        let (job, gate) = gated(&started, 0);
        pool.submit(&hung, job);
        gates.push(gate);
        look_twice(&pool);
        assert_eq!((pool.threads(), hung.queued()), (1 + STUCK_MAX, 1));
        gates.clear();
        pool.shutdown();
    }

    /// One idle thread counts as one: of two jobs submitted at once each gets its own thread, or the first would wait for the
    /// second for ever.
    #[test]
    fn an_idle_thread_counts_once() {
        for _ in 0..200 {
            let pool = Offload::new(8);
            let (first, second) = (Lane::new(1), Lane::new(1));
            let (done, finished) = channel();
            let one = done.clone();
            pool.submit(&first, Box::new(move || one.send(()).unwrap()));
            finished.recv().unwrap();
            while pool.shared.pool.lock().busy > 0 {
                std::thread::yield_now();
            }
            let (tell, told) = channel();
            let waits = done.clone();
            pool.submit(
                &first,
                Box::new(move || {
                    told.recv().unwrap();
                    waits.send(()).unwrap();
                }),
            );
            pool.submit(
                &second,
                Box::new(move || {
                    tell.send(()).unwrap();
                    done.send(()).unwrap();
                }),
            );
            for _ in 0..2 {
                let ended = finished.recv_timeout(Duration::from_secs(20));
                ended.expect("a job waits for a thread that another one holds");
            }
            pool.shutdown();
        }
    }

    /// A thread that is counted as awake and sleeps would never be woken.
    #[test]
    fn who_sleeps_is_known() {
        let pool = Offload::new(4);
        let (done, finished) = channel();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (pool, done) = (&pool, done.clone());
                scope.spawn(move || {
                    let lane = Lane::new(3);
                    for n in 0..2000 {
                        let done = done.clone();
                        pool.submit(&lane, Box::new(move || done.send(n).unwrap()));
                    }
                });
            }
        });
        assert_eq!((0..6000).map(|_| finished.recv().unwrap()).sum::<i32>(), 3 * 1999 * 1000);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let inner = pool.shared.pool.lock();
            assert!(inner.busy + inner.asleep <= inner.threads);
            if inner.asleep == inner.threads {
                break;
            }
            assert!(Instant::now() < deadline, "{inner:?}");
            drop(inner);
            std::thread::yield_now();
        }
        pool.shutdown();
        assert_eq!(pool.shared.pool.lock().asleep, 0);
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
