//! The tasks of a session: those in its table, found by identifier or by tag, and those that were abandoned and that the device
//! server has not released yet.
//!
//! ```text
//!   insert ──► in the table ──remove──► gone
//!                  └──abandon──► leaving ──release──► gone
//! ```
//! A task may be in the table and leaving at the same time: its outcome is fixed, and its status waits until it is released.

use iscsi_wire::{Itt, Lun};
use rustc_hash::FxHashMap;

use super::task::{Task, TaskId, TaskTable};
use crate::limits::MAX_IMMEDIATE_TASKS;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    table: TaskTable,
    by_itt: FxHashMap<Itt, TaskId>,
    /// Non-immediate tasks in the table: they take up room in the window.
    live: usize,
    immediate: usize,
    /// Abandoned tasks that the device server has not released yet, with their logical units.
    leaving: FxHashMap<TaskId, Lun>,
}

impl Tasks {
    /// Enters a task, whose tag no other task has.
    pub(crate) fn insert(&mut self, task: Task) -> TaskId {
        let (itt, immediate) = (task.itt(), task.immediate());
        let id = self.table.insert(task);
        let other = self.by_itt.insert(itt, id);
        debug_assert_eq!(other, None, "the tag {itt} is in use");
        *if immediate { &mut self.immediate } else { &mut self.live } += 1;
        id
    }

    /// Drops a task from the table. Whether it is leaving does not change.
    pub(crate) fn remove(&mut self, id: TaskId) {
        let Some(task) = self.table.get(id) else { return };
        self.by_itt.remove(&task.itt());
        *if task.immediate() { &mut self.immediate } else { &mut self.live } -= 1;
        self.table.remove(id);
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.table.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.table.get_mut(id)
    }

    /// The task with the tag `itt`.
    pub(crate) fn find(&self, itt: Itt) -> Option<TaskId> {
        self.by_itt.get(&itt).copied()
    }

    /// As [`Self::find`]: the task itself.
    pub(crate) fn tagged(&self, itt: Itt) -> Option<&Task> {
        self.find(itt).and_then(|id| self.table.get(id))
    }

    /// Tasks in the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.table.iter()
    }

    /// How many tasks are in the table.
    pub(crate) fn outstanding(&self) -> usize {
        self.live + self.immediate
    }

    /// Places of the command window that tasks take up: running ones, and abandoned ones that are not gone yet.
    pub(crate) fn occupied(&self) -> usize {
        self.live + self.leaving.len()
    }

    /// Whether one more immediate task is too many. Abandoned tasks count too; otherwise aborting immediate commands would get
    /// round the limit. The window accounts for `queue_depth` of the abandoned ones.
    //= rfc7143 4.2.2.1 NUM-08
    pub(crate) fn has_too_many_immediate(&self, queue_depth: u32) -> bool {
        let leaving = self.leaving.len();
        self.immediate + leaving >= MAX_IMMEDIATE_TASKS + leaving.min(queue_depth as usize)
    }

    /// The device server is told to abandon the task.
    pub(crate) fn abandon(&mut self, id: TaskId, lun: Lun) {
        self.leaving.insert(id, lun);
    }

    /// The device server has released the task; false when it was not leaving.
    pub(crate) fn release(&mut self, id: TaskId) -> bool {
        self.leaving.remove(&id).is_some()
    }

    /// Whether the device server has been told to abandon the task and has not released it.
    pub(crate) fn is_leaving(&self, id: TaskId) -> bool {
        self.leaving.contains_key(&id)
    }

    /// How many tasks are leaving.
    pub(crate) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Abandoned tasks of one logical unit, or of all.
    pub(crate) fn leaving_of(&self, lun: Option<Lun>) -> impl Iterator<Item = TaskId> {
        self.leaving
            .iter()
            .filter(move |(_, of)| lun.is_none_or(|lun| lun.to_index() == of.to_index()))
            .map(|(id, _)| *id)
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub(crate) fn check(&self, queue_depth: u32) {
        let (mut immediate, mut live) = (0, 0);
        for (id, task) in self.iter() {
            *if task.immediate() { &mut immediate } else { &mut live } += 1;
            debug_assert_eq!(self.find(task.itt()), Some(id), "the tag {} leads to its task", task.itt());
        }
        debug_assert_eq!((immediate, live), (self.immediate, self.live), "commands outstanding");
        debug_assert_eq!(self.by_itt.len(), immediate + live, "one tag for each task");
        debug_assert!(live <= queue_depth as usize, "the window bounds commands");
    }
}
