//! The tasks of lost connections that are to be settled, in order, and how many are being settled.

use std::collections::VecDeque;

use iscsi_wire::Itt;

use crate::Time;
use crate::limits::MAX_SETTLING;

/// A task to settle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    pub itt: Itt,
    /// The target keeps no tasks of its connection.
    pub kills: bool,
    pub not_before: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub(in super::super) struct Settlement {
    /// In order.
    queue: VecDeque<Settling>,
    under_way: usize,
}

impl Settlement {
    /// Whether the task is in the queue.
    pub(super) fn contains(&self, itt: Itt) -> bool {
        self.queue.iter().any(|settling| settling.itt == itt)
    }

    /// Whether one more function may be under way.
    pub(super) fn may_begin(&self) -> bool {
        self.under_way < MAX_SETTLING
    }

    /// Whether no task is to be settled.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The first task that `may` be settled now.
    pub(super) fn next(&self, may: impl Fn(Itt) -> bool) -> Option<Settling> {
        self.queue.iter().copied().find(|settling| may(settling.itt))
    }

    /// A task no longer waits.
    pub(super) fn take(&mut self, itt: Itt) {
        if let Some(at) = self.queue.iter().position(|settling| settling.itt == itt) {
            self.queue.remove(at);
        }
    }

    /// A task is to be settled, after all others.
    pub(super) fn add(&mut self, settling: Settling) {
        self.queue.push_back(settling);
    }

    /// A task is to be settled again, before all others.
    pub(super) fn add_first(&mut self, settling: Settling) {
        self.queue.push_front(settling);
    }

    /// A function that settles a task begins.
    pub(super) fn one_begins(&mut self) {
        self.under_way += 1;
    }

    /// Functions under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// A function that settled a task is over.
    pub(crate) fn one_ended(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// There is nothing to settle any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Checks what holds after every event, where debug assertions are on; `under_way` is counted in the table of tasks.
    pub(crate) fn check(&self, under_way: usize) {
        debug_assert_eq!(under_way, self.under_way, "functions that settle tasks");
        debug_assert!(self.under_way <= MAX_SETTLING, "few tasks are settled at a time");
    }
}
