//! The finding of a run, reported by whichever part detects it; only the first counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Clones share the finding.
#[derive(Clone, Debug, Default)]
pub struct Verdict(Arc<(AtomicBool, Mutex<Option<String>>)>);

impl Verdict {
    /// Reports that an invariant does not hold.
    pub fn broken(&self, what: impl Into<String>) {
        let mut first = self.0.1.lock();
        if first.is_none() {
            *first = Some(what.into());
            self.0.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a finding was reported.
    pub fn is_broken(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    /// The first finding.
    pub fn first(&self) -> Option<String> {
        self.0.1.lock().clone()
    }
}
