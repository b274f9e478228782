//! The phases of a run: it warms up, measures for a time, and ends; too many errors end it early.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Commands that may fail before the run is abandoned.
const MAX_ERRORS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Warmup,
    Measuring,
    Done,
}

/// See the head of the module. Times are of the session's clock.
pub struct Course {
    phase: Phase,
    warmup: Duration,
    time: Duration,
    measure_from: Duration,
    end: Duration,
    /// Measured time.
    pub elapsed: Duration,
    /// CPU time of the process in the measured time.
    pub cpu: Duration,
    pub errors: u64,
    pub first_error: Option<String>,
}

impl Course {
    /// A run that measures for `time` after `warmup`.
    pub fn new(warmup: Duration, time: Duration) -> Self {
        Self {
            phase: Phase::Idle,
            warmup,
            time,
            measure_from: Duration::MAX,
            end: Duration::MAX,
            elapsed: Duration::ZERO,
            cpu: Duration::ZERO,
            errors: 0,
            first_error: None,
        }
    }

    /// The session exists. True the first time: then commands must be sent.
    pub fn start(&mut self, now: Duration) -> bool {
        if self.phase != Phase::Idle {
            return false;
        }
        self.phase = Phase::Warmup;
        self.measure_from = now + self.warmup;
        true
    }

    pub fn is_measuring(&self) -> bool {
        self.phase == Phase::Measuring
    }

    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Warmup => Some(self.measure_from),
            Phase::Measuring => Some(self.end),
            Phase::Idle | Phase::Done => None,
        }
    }

    /// Changes to the next phase if its time has come.
    pub fn tick(&mut self, now: Duration) {
        match self.phase {
            Phase::Warmup if now >= self.measure_from => {
                self.phase = Phase::Measuring;
                self.measure_from = now;
                self.end = now + self.time;
                self.cpu = cpu_time();
            }
            Phase::Measuring if now >= self.end => {
                self.phase = Phase::Done;
                self.elapsed = now.saturating_sub(self.measure_from);
                self.cpu = cpu_time().saturating_sub(self.cpu);
            }
            _ => {}
        }
    }

    pub fn note_error(&mut self, what: String) {
        self.errors += 1;
        self.first_error.get_or_insert(what);
        if self.errors >= MAX_ERRORS {
            self.phase = Phase::Done;
        }
    }

    /// The session has ended for good.
    pub fn lost(&mut self, why: &str) {
        self.note_error(why.to_owned());
        self.phase = Phase::Done;
    }
}

/// CPU time of this process, all threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
