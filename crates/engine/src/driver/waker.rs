//! Waking a driver from another thread: one system call per sleep, none while the driver runs.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The driver runs and has not been woken.
const RUNNING: u8 = 0;
/// The driver sleeps or is about to sleep: waking it takes a write to its event counter.
const SLEEPING: u8 = 1;
/// The driver has been woken and has not noticed yet: waking it again adds nothing.
const NOTIFIED: u8 = 2;

/// Wakes one driver. Cheap to clone, usable from every thread.
#[derive(Clone)]
pub struct Waker(Kind);

#[derive(Clone)]
enum Kind {
    Event(Arc<EventWaker>),
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl Waker {
    /// A waker that calls `wake`: for drivers that do not use the operating system, and for tests.
    pub fn from_fn(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Kind::Call(Arc::new(wake)))
    }

    pub(super) fn from_event(event: Arc<EventWaker>) -> Self {
        Self(Kind::Event(event))
    }

    /// Makes the driver's wait return with [`super::Completion::Woken`]. Several calls before it notices count as one.
    pub fn wake(&self) {
        match &self.0 {
            Kind::Event(event) => event.wake(),
            Kind::Call(call) => call(),
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Event(_) => "Waker(event)",
            Kind::Call(_) => "Waker(call)",
        })
    }
}

/// The shared state of an event-counter waker and the driver that it wakes.
///
/// Every change of `state` is one atomic exchange, so a wake is noticed either by the driver before it sleeps or by its sleep.
/// The counter is registered edge-triggered and never read: each write is a new edge, and it cannot fill up within any
/// lifetime.
pub(super) struct EventWaker {
    state: AtomicU8,
    counter: OwnedFd,
}

impl EventWaker {
    pub(super) fn new() -> std::io::Result<Self> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU8::new(RUNNING), counter })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }

    fn wake(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            // The only failure is a full counter, and then an edge is already on its way.
            let _ = rustix::io::write(&self.counter, &1u64.to_ne_bytes());
        }
    }

    /// Takes a pending wake; false when there is none.
    pub(super) fn take(&self) -> bool {
        self.state.swap(RUNNING, Ordering::AcqRel) == NOTIFIED
    }

    /// Announces sleep; false when a wake is pending, which sleeping would miss.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.state.compare_exchange(RUNNING, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_is_not_slept_over() {
        let waker = EventWaker::new().unwrap();
        waker.wake();
        assert!(!waker.prepare_sleep(), "who has been woken does not sleep");
        assert!(waker.take());
        assert!(waker.prepare_sleep());
        waker.wake();
        assert!(waker.take(), "a wake during the sleep is noticed after it");
        assert!(!waker.take(), "once");
    }

    #[test]
    fn only_a_sleeper_costs_a_system_call() {
        let waker = EventWaker::new().unwrap();
        let counted = |waker: &EventWaker| {
            let mut count = [0; 8];
            rustix::io::read(&waker.counter, &mut count).map(|_| u64::from_ne_bytes(count)).unwrap_or(0)
        };
        waker.wake();
        waker.wake();
        assert_eq!(counted(&waker), 0);
        waker.take();
        assert!(waker.prepare_sleep());
        waker.wake();
        waker.wake();
        assert_eq!(counted(&waker), 1);
    }
}
