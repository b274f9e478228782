//! Whether a nexus may have a unit attention pending.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether a nexus may have a unit attention pending at any unit; clones of a nexus share it. A nexus not attached to any
/// unit counts as having one pending: units identify nexuses by id, and another `Nexus` value with the same id may have one
/// pending.
#[derive(Clone, Debug)]
pub(crate) struct PendingFlag(Arc<AtomicU32>);

/// No unit keeps the flag up to date. The other bits count the units at which a unit attention is pending.
const UNKNOWN: u32 = 1 << 31;

impl PendingFlag {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU32::new(UNKNOWN)))
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Whether both are of the same nexus value.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A unit attention is pending at one more unit.
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// None is pending any more at one of the units.
    pub(crate) fn lower(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Units keep it up to date from now on.
    pub(crate) fn maintain(&self) {
        self.0.fetch_and(!UNKNOWN, Ordering::Release);
    }

    /// No unit keeps it up to date any more.
    pub(crate) fn lose(&self) {
        self.0.fetch_or(UNKNOWN, Ordering::Release);
    }
}
