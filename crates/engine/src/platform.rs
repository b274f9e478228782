//! The surroundings of a shard, or of the event loop of a session: one type parameter instead of calls to the system.
//!
//! [`System`] is the real one. A simulator provides drivers on its own network, a clock that it moves, jobs that end when it decides, and
//! randomness from its seed. Everything above then runs unchanged, and every run with the same seed is identical.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::Clock;
use crate::driver::epoll::EpollDriver;
use crate::driver::{Driver, POLL_TIME};
use crate::offload::{Job, Lane, Offload};

/// Resolves a host name and a port to addresses. May block for as long as the name server takes, so call it only on threads that may wait.
pub type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Everything that the data plane needs from its surroundings.
pub trait Platform: Send + Sync + 'static {
    /// What connections run on.
    type Driver: Driver + 'static;

    /// Creates a driver for the calling thread.
    ///
    /// # Errors
    /// When the system has no descriptors or memory for it.
    fn driver(&self) -> io::Result<Self::Driver>;

    /// Time since a start that all threads share; never goes back.
    fn now(&self) -> Duration;

    /// The date, for what people read: logins, the start of a session. No decision depends on it.
    fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Runs `job`, which may block, on another thread: see [`Offload::submit`].
    fn offload(&self, lane: &Lane, job: Job);

    /// As [`Platform::offload`] for each of `jobs`, which is empty then. It may cost less.
    fn offload_all(&self, jobs: &mut Vec<(Lane, Job)>) {
        jobs.drain(..).for_each(|(lane, job)| self.offload(&lane, job));
    }

    /// How host names become addresses. It blocks, so call it in a job of [`Platform::offload`].
    fn resolver(&self) -> Resolve {
        Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Fills `bytes` with random ones, good enough for secrets.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// The system that this process runs on.
#[derive(Debug)]
pub struct System {
    clock: Clock,
    workers: Offload,
    poll_time: Duration,
    measures_polls: bool,
}

impl System {
    /// The clock starts now. Jobs that block run on an [`Offload`] whose lanes share `max_workers` threads (at least one); none is started
    /// yet.
    pub fn new(max_workers: usize) -> Self {
        let workers = Offload::new(max_workers);
        Self { clock: Clock::start(), workers, poll_time: POLL_TIME, measures_polls: false }
    }

    /// Sets how long drivers poll for events before they sleep: at most 1 ms, [`POLL_TIME`] by default; zero turns polling off.
    #[must_use]
    pub fn with_poll_time(mut self, time: Duration) -> Self {
        self.poll_time = time;
        self
    }

    /// Drivers poll only for as long as they measure that it pays. For the end of a connection that serves many.
    #[must_use]
    pub fn with_measured_polls(mut self) -> Self {
        self.measures_polls = true;
        self
    }

    /// The pool that runs what blocks.
    pub fn workers(&self) -> &Offload {
        &self.workers
    }
}

impl Platform for System {
    type Driver = EpollDriver;

    fn driver(&self) -> io::Result<EpollDriver> {
        let driver = EpollDriver::new()?;
        Ok(match self.measures_polls {
            true => driver.with_measured_poll_time(self.poll_time),
            false => driver.with_poll_time(self.poll_time),
        })
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn offload(&self, lane: &Lane, job: Job) {
        self.workers.submit(lane, job);
    }

    fn offload_all(&self, jobs: &mut Vec<(Lane, Job)>) {
        self.workers.submit_all(jobs.drain(..));
    }

    /// A system without a random source cannot make a challenge that is hard to guess, so this panics.
    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel's random source works once the system is up");
    }
}
