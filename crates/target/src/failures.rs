//! The threads that ended too early, and who is told.

use std::fmt;
use std::sync::OnceLock;

/// A thread that ended too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub thread: String,
    /// The cause.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the thread {} has ended: {}", self.thread, self.what)
    }
}

type Handler = Box<dyn Fn(&Failure) + Send + Sync>;

/// The handler for failures.
#[derive(Default)]
pub struct Failures(OnceLock<Handler>);

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failures").field(&self.0.get().is_some()).finish()
    }
}

impl Failures {
    /// Sets the `handler` to call when a thread fails, on that thread. Set it before anything is started; only the first one
    /// counts.
    pub fn set_handler(&self, handler: impl Fn(&Failure) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(handler));
    }

    pub(crate) fn report(&self, failure: &Failure) {
        match self.0.get() {
            Some(handler) => handler(failure),
            None => tracing::error!("{failure}"),
        }
    }
}
