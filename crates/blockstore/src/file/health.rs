//! Sole owner of every sync of a file, and of the record of the file's failures.
//!
//! Linux reports a failed write-back once per open file and then calls the pages clean. A second `fdatasync` would succeed
//! although data is lost, so the first failure counts until an operator reopens the store. It is stored in the [`Label`] of the
//! volume, which all of its files share and which outlives the process. Meanwhile the volume can be read but not changed.
//!
//! * The caller that receives the error may not be the one whose data was lost: when two syncs run at once, one of them receives
//!   the error of both. Hence every successful sync waits until the concurrent syncs have recorded their results, and then
//!   checks again.
//! * Calls other than syncs can receive the error as well: growing a file, a durable write that finds no space, and on NFS any
//!   write. So after a change that failed, a second descriptor is synced, the **witness**: it receives its own report of every
//!   failed write-back, and nothing else uses it up.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::os::OsFile;
use crate::{FailedFlush, Label, StoreError};

pub(super) struct Health {
    name: String,
    label: Arc<Label>,
    is_gone: AtomicBool,
    /// The reason, once it is gone.
    gone: Mutex<String>,
    syncs: RwLock<()>,
    /// Bytes ever written without being durable, and how many of them had been written when the last successful flush started.
    written: AtomicU64,
    flushed: AtomicU64,
    no_dsync: AtomicBool,
    /// The number of failures of the volume when this file was last reopened.
    reopened_after: AtomicU64,
}

/// Why a durable write did not become durable.
pub(super) enum NotDurable {
    /// The file does not support durable writes in one step; nothing was written.
    Unsupported,
    /// The write failed at this byte. The failure of an earlier write-back was recorded, if there was one.
    Failed(u64, Errno),
    Store(StoreError),
}

impl Health {
    pub(super) fn new(name: String, label: Arc<Label>) -> Self {
        Health {
            name,
            label,
            is_gone: AtomicBool::new(false),
            gone: Mutex::default(),
            syncs: RwLock::default(),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            no_dsync: AtomicBool::new(false),
            reopened_after: AtomicU64::new(0),
        }
    }

    /// The name of the file, for people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn label(&self) -> &Arc<Label> {
        &self.label
    }

    /// Fails once the store has been found gone.
    pub(super) fn check_present(&self) -> Result<(), StoreError> {
        match self.is_gone.load(Ordering::Acquire) {
            true => Err(StoreError::Gone(self.gone.lock().clone())),
            false => Ok(()),
        }
    }

    /// Records that the store is gone; the first reason stays.
    pub(super) fn set_gone(&self, why: String) -> StoreError {
        let mut gone = self.gone.lock();
        if !self.is_gone.swap(true, Ordering::AcqRel) {
            *gone = why;
        }
        StoreError::Gone(gone.clone())
    }

    /// Counts bytes that a flush must make durable. Called before they are written, so that no flush misses any.
    pub(super) fn will_write(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Makes everything written so far durable.
    pub(super) fn flush(&self, os: &dyn OsFile) -> Result<(), StoreError> {
        let written = self.written.load(Ordering::Relaxed);
        self.sync(|| until_done(|| os.fdatasync()).map_err(|errno| self.failed(errno)))?;
        self.flushed.fetch_max(written, Ordering::Relaxed);
        Ok(())
    }

    /// Runs `write`, the durable writes of one call, unless the file does not support them. On failure it returns where that
    /// was.
    pub(super) fn write_durable(
        &self,
        os: &dyn OsFile,
        write: impl FnOnce(&dyn Fn(&[IoSlice<'_>], u64) -> Result<usize, Errno>) -> Result<(), (u64, Errno)>,
    ) -> Result<(), NotDurable> {
        if self.no_dsync.load(Ordering::Relaxed) {
            return Err(NotDurable::Unsupported);
        }
        let mut failed = None;
        let synced = self.sync(|| {
            let result = write(&|src, at| os.pwritev_dsync(src, at));
            match result {
                Err((_, Errno::OPNOTSUPP | Errno::NOSYS)) => {
                    self.no_dsync.store(true, Ordering::Relaxed);
                    failed = Some(NotDurable::Unsupported);
                }
                Err((at, errno)) => {
                    // Out of space while allocating: nothing is lost. Any other error may concern pages that some other write
                    // dirtied.
                    if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
                        self.ask_witness(os)?;
                    } else {
                        self.failed(errno);
                    }
                    failed = Some(NotDurable::Failed(at, errno));
                }
                Ok(()) => {}
            }
            Ok(())
        });
        match failed {
            Some(failed @ NotDurable::Failed(..)) => Err(failed),
            Some(other) if synced.is_ok() => Err(other),
            _ => synced.map_err(NotDurable::Store),
        }
    }

    /// Grows a regular file; the new size is on the medium when this returns.
    pub(super) fn grow(&self, os: &dyn OsFile, size_bytes: u64) -> Result<Result<(), Errno>, StoreError> {
        let mut cut = Ok(());
        self.sync(|| {
            cut = until_done(|| os.set_size(size_bytes));
            match cut {
                Ok(()) => until_done(|| os.fsync()).map_err(|errno| self.failed(errno)),
                Err(_) => self.ask_witness(os),
            }
        })?;
        Ok(cut)
    }

    /// After a change that failed: checks whether it used up the report of a failed write-back.
    pub(super) fn ask_witness(&self, os: &dyn OsFile) -> Result<(), StoreError> {
        until_done(|| os.sync_witness()).map_err(|errno| self.failed(errno))
    }

    /// Records that a sync failed.
    fn failed(&self, errno: Errno) -> StoreError {
        let unflushed_bytes =
            self.written.load(Ordering::Relaxed).saturating_sub(self.flushed.load(Ordering::Relaxed));
        let reason = format!("{}: {}", self.name, std::io::Error::from(errno));
        self.label.flush_failed(FailedFlush { reason, unflushed_bytes })
    }

    /// Runs a sync that records its own failure. Success means that no sync so far has failed.
    fn sync(&self, sync: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.label.check_flushed()?;
        let before = self.label.failures();
        {
            let _running = self.syncs.read();
            sync()?;
        }
        // Granted once all syncs concurrent with ours have finished, so their results are known.
        drop(self.syncs.write());
        self.label.check_no_failure_since(before)
    }

    /// Whether there is a failure that reopening the file may clear: its own, or that of another file of the volume.
    pub(super) fn has_failed(&self) -> bool {
        let after = self.reopened_after.load(Ordering::Acquire);
        self.is_gone.load(Ordering::Acquire) || self.label.failures() != after
    }

    /// Reopens the file as far as its failures are concerned: cached data is written or dropped, so that later reads return what
    /// the medium has. `present` checks that the file has its full size.
    pub(super) fn reopen(
        &self,
        os: &dyn OsFile,
        present: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let _no_sync_runs = self.syncs.write();
        let failures = self.label.failures();
        let synced = until_done(|| os.fdatasync()).and(until_done(|| os.sync_witness()));
        synced.and_then(|()| os.drop_cache(0, 0)).map_err(|errno| {
            // Another file of the volume may already have cleared the failure.
            self.failed(errno);
            StoreError::Unusable(format!(
                "{} still fails: {}; mend what is below it, and open it again then",
                self.name,
                std::io::Error::from(errno)
            ))
        })?;
        present()?;
        self.is_gone.store(false, Ordering::Release);
        self.reopened_after.store(failures, Ordering::Release);
        self.flushed.fetch_max(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }
}

fn until_done(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn health() -> Health {
        Health::new("disk".to_owned(), Arc::new(Label::in_memory()))
    }

    /// The kernel reports the loss of both syncs to one of the two. The other must not succeed meanwhile, even if the store was
    /// reopened in between.
    #[test]
    fn a_sync_does_not_succeed_beside_one_that_fails() {
        for reopened in [false, true] {
            let health = health();
            let (failing_runs, failing_ran) = channel();
            let (lucky_runs, lucky_ran) = channel::<()>();
            std::thread::scope(|scope| {
                let health = &health;
                let failing = scope.spawn(move || {
                    health.sync(|| {
                        failing_runs.send(()).unwrap();
                        lucky_ran.recv().unwrap(); // the other one is done with the kernel
                        let error = health.failed(Errno::IO);
                        if reopened {
                            health.label.clear_failed_flush().unwrap();
                        }
                        Err(error)
                    })
                });
                failing_ran.recv().unwrap();
                let lucky = health.sync(|| {
                    lucky_runs.send(()).unwrap();
                    Ok(())
                });
                assert!(matches!(lucky, Err(StoreError::FlushFailed(_))), "{lucky:?}");
                assert!(matches!(failing.join().unwrap(), Err(StoreError::FlushFailed(_))));
            });
        }
    }

    #[test]
    fn the_first_reason_stays() {
        let health = health();
        health.sync(|| Ok(())).unwrap();
        health.set_gone("first".to_owned());
        let error = health.set_gone("second".to_owned());
        assert!(matches!(&error, StoreError::Gone(why) if why == "first"));
        assert!(health.check_present().is_err());
        health.failed(Errno::IO);
        let error = health.failed(Errno::NOSPC).to_string();
        assert!(error.contains("Input/output error"), "{error}");
    }
}
