//! What a file store remembers about its own failures.
//!
//! Linux reports a failed write-back once per open file and then calls the pages clean. A second `fdatasync` would
//! succeed although data is lost, so the first failure is final here. For the same reason the caller that is told
//! may not be the one whose data was lost: when two syncs run at once, one takes the report of both. Hence every
//! sync that succeeded waits until the syncs that ran beside it have recorded their result, and looks again.

use std::sync::OnceLock;

use parking_lot::RwLock;
use rustix::io::Errno;

use crate::StoreError;

#[derive(Default)]
pub(super) struct Health {
    gone: OnceLock<String>,
    failed_flush: OnceLock<String>,
    syncs: RwLock<()>,
}

impl Health {
    /// Fails when the store was found gone.
    pub(super) fn check_present(&self) -> Result<(), StoreError> {
        self.gone.get().map_or(Ok(()), |why| Err(StoreError::Gone(why.clone())))
    }

    /// Fails when a sync failed before.
    fn check_synced(&self) -> Result<(), StoreError> {
        self.failed_flush.get().map_or(Ok(()), |why| Err(StoreError::FlushFailed(why.clone())))
    }

    /// Records that the store is gone; the first reason stays.
    pub(super) fn set_gone(&self, why: String) -> StoreError {
        StoreError::Gone(self.gone.get_or_init(|| why).clone())
    }

    /// Records that a sync failed; the first reason stays.
    pub(super) fn set_failed_flush(&self, errno: Errno) -> StoreError {
        StoreError::FlushFailed(
            self.failed_flush.get_or_init(|| std::io::Error::from(errno).to_string()).clone(),
        )
    }

    /// Runs a sync, which records its own failure by [`set_failed_flush`](Self::set_failed_flush). Success means that
    /// no sync up to now has failed.
    pub(super) fn sync(&self, sync: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.check_synced()?;
        {
            let _running = self.syncs.read();
            sync()?;
        }
        // Granted once all syncs that ran beside ours have left, so their results are known.
        drop(self.syncs.write());
        self.check_synced()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The kernel tells one of two syncs about the loss of both. The other must not succeed meanwhile.
    #[test]
    fn a_sync_does_not_succeed_beside_one_that_fails() {
        let health = Health::default();
        let (failing_runs, failing_ran) = channel();
        let (lucky_runs, lucky_ran) = channel::<()>();
        std::thread::scope(|scope| {
            let health = &health;
            let failing = scope.spawn(move || {
                health.sync(|| {
                    failing_runs.send(()).unwrap();
                    lucky_ran.recv().unwrap(); // the other one is done with the kernel
                    Err(health.set_failed_flush(Errno::IO))
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

    #[test]
    fn the_first_reason_stays() {
        let health = Health::default();
        health.sync(|| Ok(())).unwrap();
        health.set_gone("first".to_owned());
        let error = health.set_gone("second".to_owned());
        assert!(matches!(&error, StoreError::Gone(why) if why == "first"));
        assert!(health.check_present().is_err());
    }
}
