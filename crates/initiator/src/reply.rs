//! One answer from the event loop to one waiting thread, or to one future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
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
    /// A future waits, and must be woken.
    Polled(Waker),
    Filled(T),
    /// The event loop has ended.
    Dropped,
}

/// The end that answers. Dropping it without an answer also wakes the other end.
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
        self.end(State::Filled(value));
    }

    /// Ends the exchange and wakes the waiter; only the first end counts.
    fn end(&self, end: State<T>) {
        let mut state = self.0.state.lock();
        let waker = match &mut *state {
            State::Waiting => None,
            State::Polled(waker) => Some(std::mem::replace(waker, Waker::noop().clone())),
            State::Filled(_) | State::Dropped => return,
        };
        *state = end;
        drop(state);
        match waker {
            Some(waker) => waker.wake(),
            None => drop(self.0.filled.notify_one()),
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.end(State::Dropped);
    }
}

/// `None` when there will be no answer.
impl<T> Future for Awaited<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.state.lock();
        match std::mem::replace(&mut *state, State::Dropped) {
            State::Filled(value) => Poll::Ready(Some(value)),
            State::Dropped => Poll::Ready(None),
            State::Waiting | State::Polled(_) => {
                *state = State::Polled(context.waker().clone());
                Poll::Pending
            }
        }
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

    /// The answer if it has arrived; once.
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

    /// Like [`Awaited::wait`], for at most `limit`.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_is_woken_once_by_an_answer_or_by_its_absence() {
        for answered in [true, false] {
            let (count, other) = (Arc::<Count>::default(), Arc::<Count>::default());
            let (answer, mut awaited) = reply::<u32>();
            let poll = |awaited: &mut Awaited<u32>, count: &Arc<Count>| {
                let waker = Waker::from(Arc::clone(count));
                Pin::new(awaited).poll(&mut Context::from_waker(&waker))
            };
            assert_eq!(poll(&mut awaited, &other), Poll::Pending);
            // The last one to poll is woken.
            assert_eq!(poll(&mut awaited, &count), Poll::Pending);
            match answered {
                true => answer.give(7),
                false => drop(answer),
            }
            assert_eq!((count.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (1, 0));
            assert_eq!(poll(&mut awaited, &count), Poll::Ready(answered.then_some(7)));
        }
    }

    #[test]
    fn an_answer_that_is_there_before_anybody_asks_is_given_at_once() {
        let (answer, mut awaited) = reply();
        answer.give(1);
        let poll = Pin::new(&mut awaited).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll, Poll::Ready(Some(1)));
        let (answer, awaited) = reply();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| awaited.wait());
            answer.give(2);
            assert_eq!(waiting.join().unwrap(), Some(2));
        });
    }
}
