//! The log of `intact serve`: lines for standard error, written by a separate thread. A thread that logs never waits for the
//! reader of the log and never fails because of it: lines that cannot be written are dropped, counted, and reported later.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const LINES_MAX: usize = 4096;
/// How long the process waits at its end for lines that are not yet written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Messages to the thread.
enum Item {
    Line(Vec<u8>),
    /// Reached when all lines before it are written or lost.
    Flush(SyncSender<()>),
}

/// A handle to the thread. Clones are handles to the same one.
#[derive(Clone)]
pub struct Log {
    queue: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Starts the thread and makes it the log of the process, at the level of RUST_LOG. It also gets panics.
    ///
    /// # Errors
    /// The thread or standard error is not available.
    pub fn start() -> io::Result<Self> {
        // A descriptor of its own for the same file: users of the standard handle and its lock do not wait for this thread.
        let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let log = Self::to(output)?;
        let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
        let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(colours)
            .log_internal_errors(false)
            .with_writer(log.clone())
            .init();
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            tracing::error!("a panic in the thread {}: {panic}", thread.name().unwrap_or("without a name"));
        }));
        Ok(log)
    }

    fn to(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, items) = mpsc::sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let of_thread = Arc::clone(&lost);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_lines(&items, output, &of_thread))?;
        Ok(Self { queue, lost })
    }

    /// Waits briefly for unwritten lines, before the process ends.
    pub fn flush(&self) {
        let deadline = Instant::now() + LAST_LINES;
        let (done, written) = mpsc::sync_channel(1);
        let mut item = Item::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(item) {
            if Instant::now() >= deadline {
                return;
            }
            item = back;
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Item::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Writes lines until all senders are gone.
fn write_lines(items: &Receiver<Item>, mut output: impl Write, lost: &AtomicU64) {
    for item in items {
        let line = match item {
            Item::Line(line) => line,
            Item::Flush(done) => {
                let _ = done.try_send(());
                continue;
            }
        };
        let before = lost.swap(0, Ordering::Relaxed);
        if before > 0 && write_lost(&mut output, before).is_err() {
            lost.fetch_add(before, Ordering::Relaxed);
        }
        if output.write_all(&line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_lost(output: &mut impl Write, lines: u64) -> io::Result<()> {
    let line = format!("WARN intact::log: {lines} lines were lost: standard error did not take them\n");
    output.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A file that accepts nothing until the test allows it.
    #[derive(Clone, Default)]
    struct Full(Arc<Mutex<(bool, String)>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut inner = self.0.lock().unwrap();
            if !inner.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            inner.1.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lost_lines_are_counted_and_told_of() {
        let output = Full::default();
        let mut log = Log::to(output.clone()).unwrap();
        for _ in 0..3 {
            log.write_all(b"lost\n").unwrap();
        }
        Log::flush(&log);
        output.0.lock().unwrap().0 = true;
        log.write_all(b"written\n").unwrap();
        Log::flush(&log);
        let text = output.0.lock().unwrap().1.clone();
        assert_eq!(text, "WARN intact::log: 3 lines were lost: standard error did not take them\nwritten\n");
    }

    /// A file without a reader: it reports each write and accepts it only when the test allows it.
    struct Stalled(Receiver<()>, mpsc::Sender<String>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_reader_that_stalls() {
        let (go, stalled) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let mut log = Log::to(Stalled(stalled, tell)).unwrap();
        log.write_all(b"first\n").unwrap();
        assert_eq!(told.recv().unwrap(), "first\n");
        // It hangs; the queue holds so many lines, and the rest is dropped.
        for _ in 0..LINES_MAX + 100 {
            log.write_all(b"line\n").unwrap();
        }
        drop(go);
        assert!(told.recv().unwrap().contains(" 100 lines were lost"));
        assert!((0..LINES_MAX).all(|_| told.recv().unwrap() == "line\n"));
    }
}
