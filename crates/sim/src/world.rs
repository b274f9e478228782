//! The world that contains one run: a clock that moves from event to event, the network, and the only source of randomness.
//!
//! Invariants:
//! - Time moves only in [`World::advance`]; between two events everything happens at the same moment.
//! - All randomness comes from the run's generator, in the order of the requests, and the run has one thread: the same seed gives the same
//!   run, to the last byte.
//! - The world is never locked while code of the products runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use engine::offload::Job;
use engine::{Completion, Lane, Platform, Resolve, Waker};
use fastrand::Rng;
use parking_lot::Mutex;

use crate::driver::{DriverState, SimDriver};
use crate::network::{Network, Passing, Side, SimStream};
use crate::watch::Watch;

/// Virtual time since the beginning of the run, nanoseconds.
pub type Nanos = u64;

/// Identifies a driver.
pub type DriverId = usize;

/// A scheduled event.
pub(crate) enum Event {
    /// The first packet of a connection reaches the listener's host.
    Syn { conn: usize },
    /// The answer to it is back.
    SynAnswer { conn: usize, accepted: bool },
    /// Bytes that `side` has sent reach the other one.
    Arrive { conn: usize, side: Side, what: Passing },
    /// The acknowledgement of some bytes is back at `side`, after this time unless they were retransmitted.
    Acknowledged { conn: usize, side: Side, bytes: usize, number: u64, round_trip: Option<Nanos> },
    /// What `side` has sent is no longer held back.
    Thaw { conn: usize, side: Side },
    /// A reset reaches `side`.
    Reset { conn: usize, side: Side },
    /// Something happens on the link of a path over the air.
    Air { path: usize },
    /// A blocking job completes now.
    Job { owner: usize, job: Job },
    /// A driver notices what has happened.
    Notice { driver: DriverId },
    /// An event from the plan of the run.
    Planned { index: usize },
}

pub(crate) struct Scheduled {
    at: Nanos,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// How long parts of the machines take.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// The most time between an occurrence and the event loop that handles it, nanoseconds.
    pub notice_ns: u64,
    /// Least and most time that a blocking job takes, nanoseconds.
    pub job_ns: (u64, u64),
}

pub(crate) struct State {
    pub now: Nanos,
    pub rng: Rng,
    pub latencies: Latencies,
    pub network: Network,
    pub drivers: Vec<DriverState>,
    pub watch: Watch,
    /// Jobs complete no earlier than this: the store hangs.
    pub store_hangs_until: Nanos,
    /// Jobs of these owners, which were killed, are not run.
    pub dead_owners: Vec<usize>,
    heap: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

impl State {
    pub(crate) fn schedule(&mut self, at: Nanos, event: Event) {
        let number = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Reverse(Scheduled { at: at.max(self.now), number, event }));
    }

    /// Something has happened that concerns `driver`: it will notice it after a delay.
    pub(crate) fn notify(&mut self, driver: DriverId) {
        if std::mem::replace(&mut self.drivers[driver].notified, true) {
            return;
        }
        let after =
            if self.latencies.notice_ns == 0 { 0 } else { self.rng.u64(0..=self.latencies.notice_ns) };
        self.schedule(self.now + after, Event::Notice { driver });
    }
}

/// See the module.
pub struct World {
    pub(crate) state: Mutex<State>,
    now: AtomicU64,
    /// A driver's waker was used or a stream was dropped; both happen where the state cannot be locked.
    pub(crate) woken: AtomicBool,
    /// A driver has noticed something.
    noticed: AtomicBool,
    pub(crate) dropped: Mutex<Vec<(usize, Side)>>,
}

impl World {
    /// A world without hosts, at time zero.
    pub fn new(seed: u64, latencies: Latencies, network: Network, watch: Watch) -> Arc<Self> {
        let state = State {
            now: 0,
            rng: Rng::with_seed(seed),
            latencies,
            network,
            drivers: Vec::new(),
            watch,
            store_hangs_until: 0,
            dead_owners: Vec::new(),
            heap: BinaryHeap::new(),
            scheduled: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            now: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            noticed: AtomicBool::new(false),
            dropped: Mutex::default(),
        })
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now.load(Ordering::Relaxed)
    }

    /// The time of the next event, if there is one.
    pub fn next_event(&self) -> Option<Nanos> {
        self.state.lock().heap.peek().map(|Reverse(scheduled)| scheduled.at)
    }

    /// Schedules a planned event.
    pub fn plan(&self, at: Nanos, index: usize) {
        self.state.lock().schedule(at, Event::Planned { index });
    }

    /// Moves the clock to `at`, which is not after the next event.
    pub fn advance(&self, at: Nanos) {
        let mut state = self.state.lock();
        debug_assert!(at >= state.now);
        state.now = at;
        self.now.store(at, Ordering::Relaxed);
    }

    /// Processes the next event due at this moment. A planned event is returned by number for the caller to process. `None`: no event is
    /// due.
    pub fn step(&self) -> Option<Option<usize>> {
        self.settle();
        let mut state = self.state.lock();
        if state.heap.peek().is_none_or(|Reverse(scheduled)| scheduled.at > state.now) {
            return None;
        }
        let Reverse(Scheduled { event, .. }) = state.heap.pop()?;
        match event {
            Event::Planned { index } => return Some(Some(index)),
            Event::Job { owner, job } => {
                if state.now < state.store_hangs_until {
                    let until = state.store_hangs_until + state.rng.u64(0..1_000_000);
                    state.schedule(until, Event::Job { owner, job });
                } else {
                    let lost = state.dead_owners.contains(&owner);
                    drop(state);
                    if lost { drop(job) } else { job() }
                }
            }
            Event::Notice { driver } => {
                state.drivers[driver].noticed = true;
                self.noticed.store(true, Ordering::Relaxed);
            }
            other => state.happen(other),
        }
        Some(None)
    }

    /// Handles wake-ups and dropped streams, which could not be handled where they occurred.
    fn settle(&self) {
        let dropped = std::mem::take(&mut *self.dropped.lock());
        if dropped.is_empty() && !self.woken.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        for (conn, side) in dropped {
            state.close_end(conn, side);
        }
        for driver in 0..state.drivers.len() {
            if state.drivers[driver].is_woken() {
                state.notify(driver);
            }
        }
    }

    /// Whether any driver has noticed something since the last call.
    pub fn take_any_noticed(&self) -> bool {
        self.noticed.swap(false, Ordering::Relaxed)
    }

    /// Whether `driver` has noticed something since the last call.
    pub fn take_noticed(&self, driver: DriverId) -> bool {
        std::mem::take(&mut self.state.lock().drivers[driver].noticed)
    }

    /// Kills a process: its drivers' connections are closed as when a process dies.
    pub fn kill(self: &Arc<Self>, owner: usize, drivers: &[DriverId], silently: bool) {
        let mut garbage: Vec<Vec<Completion<SimStream>>> = Vec::new();
        let mut state = self.state.lock();
        state.dead_owners.push(owner);
        for &driver in drivers {
            garbage.push(state.kill_driver(driver, silently));
        }
        drop(state);
        drop(garbage);
        self.settle();
    }
}

/// One process on a host of the world.
pub struct SimPlatform {
    pub(crate) world: Arc<World>,
    host: std::net::IpAddr,
    /// Number of the process: jobs of killed processes are not run.
    owner: usize,
    made: Mutex<Vec<DriverId>>,
}

impl SimPlatform {
    /// A process numbered `owner` on the host with this address.
    pub fn new(world: &Arc<World>, host: std::net::IpAddr, owner: usize) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), host, owner, made: Mutex::default() })
    }

    /// The drivers created so far.
    pub fn drivers(&self) -> Vec<DriverId> {
        self.made.lock().clone()
    }
}

/// [`SimPlatform`] in the form that the products take.
pub struct Process(pub Arc<SimPlatform>);

impl Platform for Process {
    type Driver = SimDriver;

    fn driver(&self) -> io::Result<SimDriver> {
        let flag = Arc::new(AtomicBool::new(false));
        let world = Arc::clone(&self.0.world);
        let mut state = world.state.lock();
        let id = state.drivers.len();
        state.drivers.push(DriverState::new(self.0.host, Arc::clone(&flag)));
        drop(state);
        self.0.made.lock().push(id);
        let waker = {
            let world = Arc::downgrade(&world);
            Waker::from_fn(move || {
                flag.store(true, Ordering::Relaxed);
                if let Some(world) = world.upgrade() {
                    world.woken.store(true, Ordering::Relaxed);
                }
            })
        };
        Ok(SimDriver::new(world, id, waker))
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.world.now())
    }

    fn date(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now()
    }

    /// A simulated network has addresses but no names.
    fn resolver(&self) -> Resolve {
        Arc::new(|_, _| Err(io::ErrorKind::NotFound.into()))
    }

    fn offload(&self, _lane: &Lane, job: Job) {
        let mut state = self.0.world.state.lock();
        let (least, most) = state.latencies.job_ns;
        let takes = state.rng.u64(least..=most);
        let at = state.now + takes;
        state.schedule(at, Event::Job { owner: self.0.owner, job });
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.0.world.state.lock().rng.fill(bytes);
    }
}
