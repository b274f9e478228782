//! What a shard, or the event loop of a session, stands on: one type parameter instead of calls to the system.
//!
//! [`System`] is the real thing. A simulator gives drivers on a network of its own, a clock that it moves, jobs that end when it
//! says so, and randomness from its seed; then everything above runs unchanged, and twice the same way.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::Clock;
use crate::driver::epoll::EpollDriver;
use crate::driver::{Driver, POLL_TIME};
use crate::offload::{Job, Lane, Offload};

/// Finds the addresses of a host by its name, for a port. May block as long as a name server likes: for threads that may wait.
pub type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Everything that the data plane asks of its surroundings.
pub trait Platform: Send + Sync + 'static {
    /// What connections run on.
    type Driver: Driver + 'static;

    /// A driver, for the thread that calls.
    ///
    /// # Errors
    /// When the system has no descriptors or memory for it.
    fn driver(&self) -> io::Result<Self::Driver>;

    /// Time since a start that all threads share; never goes back.
    fn now(&self) -> Duration;

    /// The date, for what people read: logins, the beginning of a session. Nothing is decided by it.
    fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Runs `job`, which may block, apart from the caller: see [`Offload::submit`].
    fn offload(&self, lane: &Lane, job: Job);

    /// How names of hosts become addresses. To be called in a job of [`Platform::offload`]: it blocks.
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
}

impl System {
    /// The clock begins now. Jobs that block run on at most `max_workers` threads (at least one), none of which is started yet.
    pub fn new(max_workers: usize) -> Self {
        Self { clock: Clock::start(), workers: Offload::new(max_workers), poll_time: POLL_TIME }
    }

    /// Drivers look for news for as long as `time`, 1 ms at most, before they sleep: [`POLL_TIME`] unless set here, never if zero.
    #[must_use]
    pub fn with_poll_time(mut self, time: Duration) -> Self {
        self.poll_time = time;
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
        Ok(EpollDriver::new()?.with_poll_time(self.poll_time))
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn offload(&self, lane: &Lane, job: Job) {
        self.workers.submit(lane, job);
    }

    /// A system without a generator can make no challenge that nobody guesses: it ends here.
    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel's random source works once the system is up");
    }
}
