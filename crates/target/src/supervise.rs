//! Supervision of the threads without which a server does not work: detects when one ends or hangs.
//!
//! The program that contains the server decides what to do. The command `intact serve` ends, so that its service manager
//! restarts it: half a server would make hosts wait for ever.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Server;
pub use crate::failures::{Failure, Failures};
use crate::observe::Observe;

/// Runs `body` on a separate thread. If it ends with an error or a panic, the failure handler of `observe` is called.
///
/// # Errors
/// The thread cannot be started.
pub fn spawn(
    name: &str,
    observe: Arc<Observe>,
    body: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = name.to_owned();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Nothing of the body is used afterwards.
        let ended = catch_unwind(AssertUnwindSafe(body));
        let what = match ended {
            Ok(Ok(())) => return,
            Ok(Err(what)) => what,
            Err(payload) => {
                let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                format!("it panicked: {}", text.unwrap_or_default())
            }
        };
        observe.failures.report(&Failure { thread, what });
    })
}

/// Signals repeatedly that a server is healthy, as long as every shard of it runs. Ends when it is dropped.
pub struct Watchdog {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Calls `feed` at least every `interval` while the server is healthy. A shard that does not answer for half of that time
    /// is not healthy.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        server: Arc<Server>,
        interval: Duration,
        feed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let pause = interval / 4;
        let observe = Arc::clone(server.observe());
        let thread = spawn("watchdog", observe, move || {
            loop {
                match server.silent_shards(interval / 2)[..] {
                    [] => feed(),
                    ref silent => tracing::error!("shards {silent:?} do not turn: the watchdog is not fed"),
                }
                if stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Disconnected) {
                    return Ok(());
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure reported for the end of `body`.
    fn end_of(body: impl FnOnce() -> Result<(), String> + Send + 'static) -> Option<Failure> {
        let (tell, told) = mpsc::channel();
        let observe = Arc::new(Observe::new());
        observe.failures.set_handler(move |failure| tell.send(failure.clone()).unwrap());
        spawn("worker", observe, body).unwrap().join().unwrap();
        told.try_recv().ok()
    }

    #[test]
    fn an_end_before_its_time_is_told_and_another_is_not() {
        assert_eq!(end_of(|| Ok(())), None);
        let failure = end_of(|| Err("epoll_wait: EBADF".to_owned())).unwrap();
        assert_eq!(failure.to_string(), "the thread worker has ended: epoll_wait: EBADF");
        let failure = end_of(|| std::panic::resume_unwind(Box::new("index out of bounds"))).unwrap();
        assert_eq!(failure.what, "it panicked: index out of bounds");
    }
}
