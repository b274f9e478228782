//! The task management functions of a session, except those that settle orphans. What is under way is in the table of tasks.

use std::collections::VecDeque;

use iscsi_wire::TmfFunction;

use crate::limits::MAX_INITIATOR_TASKS;

/// A function that the caller requested for a command, with the caller's names for both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferred {
    pub function: TmfFunction,
    pub of: u64,
    pub user: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Managing {
    under_way: usize,
    /// Functions that the caller requested for commands whose connection is gone: they wait until those are settled.
    deferred: VecDeque<Deferred>,
}

impl Managing {
    /// A function is sent.
    pub(crate) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// A function is over.
    pub(crate) fn end(&mut self) {
        self.under_way -= 1;
    }

    /// None of the functions under way is answered any more.
    pub(crate) fn clear(&mut self) {
        self.under_way = 0;
    }

    /// Functions under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether no function is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Whether one more function may wait.
    pub(crate) fn may_defer(&self) -> bool {
        self.deferred.len() < MAX_INITIATOR_TASKS
    }

    /// A function waits, behind all others that do.
    pub(crate) fn defer(&mut self, deferred: Deferred) {
        self.deferred.push_back(deferred);
    }

    /// Takes all functions that wait, in order.
    pub(crate) fn take_deferred(&mut self) -> VecDeque<Deferred> {
        std::mem::take(&mut self.deferred)
    }

    /// Checks what holds after every event, where debug assertions are on; `under_way` is counted in the table.
    pub(crate) fn check(&self, under_way: usize) {
        debug_assert_eq!(under_way, self.under_way, "task management functions under way");
        debug_assert!(self.deferred.len() <= MAX_INITIATOR_TASKS, "deferred functions are bounded");
    }
}
