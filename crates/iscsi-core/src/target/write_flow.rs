//! Memory for the write data of a session, and when data is overdue.
//!
//! Solicited data is budgeted: a task takes its share for all of its data before its first R2T, or waits in a queue. Unsolicited
//! data is counted from its command until the device server asks for the command's data.

use std::collections::VecDeque;

use super::task::TaskId;
use super::tasks::Tasks;
use crate::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct WriteFlow {
    /// Shares of the solicitation budget that tasks hold, bytes.
    solicited_bytes: u64,
    /// Tasks that wait for such a share, in order.
    queue: VecDeque<TaskId>,
    /// Unsolicited data received or still allowed, of commands whose data the device server has not requested yet, bytes.
    early_bytes: u64,
    early_bytes_max: u64,
    /// No data can be overdue before this time. `None` while no data is due, and at ErrorRecoveryLevel 0.
    due: Option<Time>,
}

impl Default for WriteFlow {
    fn default() -> Self {
        Self {
            solicited_bytes: 0,
            queue: VecDeque::new(),
            early_bytes: 0,
            early_bytes_max: u64::MAX,
            due: None,
        }
    }
}

impl WriteFlow {
    /// Takes `bytes` of a budget of `max` for a task. The first share is granted whatever its size. If there is no room, the task
    /// waits in the queue.
    pub(crate) fn solicit(&mut self, id: TaskId, bytes: u32, max: u64) -> bool {
        let bytes = u64::from(bytes);
        if self.solicited_bytes > 0 && self.solicited_bytes + bytes > max {
            if !self.queue.contains(&id) {
                self.queue.push_back(id);
            }
            return false;
        }
        self.solicited_bytes += bytes;
        true
    }

    /// Returns a share that a task held.
    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.solicited_bytes -= u64::from(bytes);
    }

    /// Takes the first task out of the queue, to try again.
    pub(crate) fn next_waiting(&mut self) -> Option<TaskId> {
        self.queue.pop_front()
    }

    /// Whether the task that [`Self::next_waiting`] returned last still has no room. It keeps its place at the head then.
    pub(crate) fn waits_again(&mut self, id: TaskId) -> bool {
        let waits = self.queue.back() == Some(&id);
        if waits {
            self.queue.rotate_right(1);
        }
        waits
    }

    /// Takes tasks out of the queue.
    pub(crate) fn withdraw(&mut self, ids: &[TaskId]) {
        if !self.queue.is_empty() {
            self.queue.retain(|waiting| !ids.contains(waiting));
        }
    }

    /// Takes memory for unsolicited data; false when there is none.
    pub(crate) fn take_early(&mut self, bytes: u32) -> bool {
        let fits = self.has_room_for_early(bytes);
        if fits {
            self.early_bytes += u64::from(bytes);
        }
        fits
    }

    /// Returns memory for unsolicited data.
    pub(crate) fn return_early(&mut self, bytes: u32) {
        self.early_bytes -= u64::from(bytes);
    }

    /// Whether there is memory for `bytes` of unsolicited data.
    pub(crate) fn has_room_for_early(&self, bytes: u32) -> bool {
        self.early_bytes + u64::from(bytes) <= self.early_bytes_max
    }

    /// Limits the unsolicited data.
    pub(crate) fn set_early_bytes_max(&mut self, bytes: u64) {
        self.early_bytes_max = bytes;
    }

    /// Unsolicited data received or still allowed, bytes.
    pub(crate) fn early_bytes(&self) -> u64 {
        self.early_bytes
    }

    /// Solicitation budget in use, bytes.
    pub(crate) fn solicited_bytes(&self) -> u64 {
        self.solicited_bytes
    }

    /// How many tasks wait for budget.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// No data can be overdue before this time.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Data becomes overdue at `at`, if no other does before.
    pub(crate) fn expect(&mut self, at: Time) {
        self.due.get_or_insert(at);
    }

    /// Data first becomes overdue at `at`.
    pub(crate) fn set_due(&mut self, at: Option<Time>) {
        self.due = at;
    }

    /// Checks what holds after every event, where debug assertions are on: the counters are the sums they stand for.
    pub(crate) fn check(&self, tasks: &Tasks) {
        let (mut solicited, mut early) = (0, 0);
        for (_, task) in tasks.iter() {
            solicited += u64::from(task.share.budget);
            early += u64::from(task.share.early);
        }
        debug_assert_eq!(solicited, self.solicited_bytes, "what R2Ts may still bring");
        debug_assert_eq!(early, self.early_bytes, "what came or may come unsolicited");
        let queued = |id| tasks.get(id).is_some_and(|task| task.share.budget == 0);
        debug_assert!(self.queue.iter().all(|id| queued(*id)), "a task in the queue has no budget");
    }
}
