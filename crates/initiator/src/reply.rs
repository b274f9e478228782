//! One answer from the event loop to one waiting thread.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Waiting,
    Filled(T),
    /// The event loop is gone.
    Dropped,
}

/// The end that answers. Dropped without an answer it wakes the other end all the same.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Shared<T>>);

/// The end that waits.
#[derive(Debug)]
pub(crate) struct Awaited<T>(Arc<Shared<T>>);

pub(crate) fn reply<T>() -> (Answer<T>, Awaited<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Waiting), filled: Condvar::new() });
    (Answer(shared.clone()), Awaited(shared))
}

impl<T> Answer<T> {
    pub(crate) fn give(self, value: T) {
        *self.0.state.lock() = State::Filled(value);
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::Dropped;
        }
        self.0.filled.notify_one();
    }
}

impl<T> Awaited<T> {
    /// Waits for the answer; `None` when there will be none.
    pub(crate) fn wait(self) -> Option<T> {
        let mut state = self.0.state.lock();
        while matches!(*state, State::Waiting) {
            self.0.filled.wait(&mut state);
        }
        match std::mem::replace(&mut *state, State::Dropped) {
            State::Filled(value) => Some(value),
            _ => None,
        }
    }

    /// The answer if it is there; once.
    pub(crate) fn take(&mut self) -> Option<T> {
        let mut state = self.0.state.lock();
        match std::mem::replace(&mut *state, State::Waiting) {
            State::Filled(value) => Some(value),
            before => {
                *state = before;
                None
            }
        }
    }

    /// As [`Awaited::wait`], at most for `limit`.
    pub(crate) fn wait_for(self, limit: Duration) -> Option<T> {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            self.0.filled.wait_for(&mut state, limit);
        }
        match std::mem::replace(&mut *state, State::Dropped) {
            State::Filled(value) => Some(value),
            _ => None,
        }
    }
}
