//! The task set of a session (SAM-5 8): every command that has arrived and has not ended is in exactly one state.
//!
//! ```text
//!             its turn             room               data requested            may block
//!   arrival ──────────► (start) ─────────► (execute) ───────────────► AwaitsData ─┐
//!      │                   │                   ▲  │                               │
//!      ▼                   ▼                   │  └──────────────────► AtWorker   │
//!   WaitsForTurn       WaitsForRoom ───────────┘                                  │
//!                                              ▲──────── all data here ───────────┘
//! ```
//! Commands that a shard executes at once never enter the set.
//!
//! The task attribute decides about the turn (SAM-5 8.6). A SIMPLE command starts on arrival. An ORDERED one starts after all
//! commands that arrived before it and before all that arrive after it. A HEAD OF QUEUE one starts at once. The order is kept among
//! the commands of one session for one logical unit. It is not kept across sessions: an initiator can only observe it through a
//! status, and a command that has its status is complete.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use iscsi_core::target::actions::Command;
use iscsi_core::target::task::TaskId;
use iscsi_core::wire::TaskAttribute;
use rustc_hash::FxHashMap;

use super::running::{AtWorker, Running};

/// The state of a command.
enum Task {
    /// The attribute of an earlier command, or its own, keeps it from starting.
    WaitsForTurn(Command),
    /// It waits for memory, or for the initiator to accept earlier read data.
    WaitsForRoom(Command),
    /// It waits for Data-Out.
    AwaitsData(Running),
    /// It is at a worker thread.
    AtWorker(AtWorker),
}

impl Task {
    /// Its logical unit; `None`: its LUN has no form that we use.
    fn lun(&self) -> Option<u16> {
        match self {
            Self::WaitsForTurn(command) | Self::WaitsForRoom(command) => command.lun.to_index(),
            Self::AwaitsData(running) => Some(running.lun()),
            Self::AtWorker(at_worker) => Some(at_worker.lun),
        }
    }

    /// Whether its turn has come.
    fn has_started(&self) -> bool {
        !matches!(self, Self::WaitsForTurn(_))
    }
}

/// What is left of a command that was abandoned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Abandoned {
    /// Nothing; it held this much memory for data, bytes.
    Gone(u64),
    /// Its worker answers later, and starts no further operation.
    Cancelled,
}

/// See the module.
#[derive(Default)]
pub(super) struct TaskSet {
    tasks: FxHashMap<TaskId, Task>,
    /// Commands that wait for their turn, in order of arrival.
    for_turn: VecDeque<TaskId>,
    /// Commands that wait for room, in the order in which their turn came.
    for_room: VecDeque<TaskId>,
    /// ORDERED commands that have started, with their units. Those that have ended are dropped when the next turn is decided.
    ordered: Vec<(TaskId, u16)>,
    /// Data that commands at worker threads may return, bytes.
    reading_bytes: u64,
}

impl TaskSet {
    /// A command arrives. Returns it if it may start now; otherwise it waits for its turn.
    //= sam5 8.6 TSK-01
    pub(crate) fn admit(&mut self, command: Command) -> Option<Command> {
        let simple = command.attribute != TaskAttribute::Ordered;
        if simple && self.ordered.is_empty() && self.for_turn.is_empty() {
            return Some(command);
        }
        let Some(lun) = command.lun.to_index() else { return Some(command) };
        let head = command.attribute == TaskAttribute::HeadOfQueue;
        self.forget_ended();
        let behind = self.for_turn.iter().any(|earlier| self.is_of(*earlier, lun));
        if !head && (behind || self.is_barred(&command, lun)) {
            self.for_turn.push_back(command.task);
            self.enter(command.task, Task::WaitsForTurn(command));
            return None;
        }
        self.note_order(&command);
        Some(command)
    }

    /// Takes one of the commands whose turn has come.
    pub(crate) fn take_next_in_turn(&mut self) -> Option<Command> {
        if self.for_turn.is_empty() {
            return None;
        }
        self.forget_ended();
        let position = (0..self.for_turn.len()).find(|position| self.may_start(*position))?;
        let task = self.for_turn.remove(position)?;
        let Some(Task::WaitsForTurn(command)) = self.tasks.remove(&task) else { return None };
        self.note_order(&command);
        Some(command)
    }

    /// Whether the turn of a waiting command has come.
    fn may_start(&self, position: usize) -> bool {
        let Some(Task::WaitsForTurn(command)) = self.tasks.get(&self.for_turn[position]) else {
            return false;
        };
        let Some(lun) = command.lun.to_index() else { return true };
        let behind = self.for_turn.iter().take(position).any(|earlier| self.is_of(*earlier, lun));
        !behind && !self.is_barred(command, lun)
    }

    /// Whether commands that have started keep `command` from starting.
    fn is_barred(&self, command: &Command, lun: u16) -> bool {
        match command.attribute {
            TaskAttribute::Ordered => {
                self.tasks.values().any(|task| task.has_started() && task.lun() == Some(lun))
            }
            _ => self.ordered.iter().any(|(_, unit)| *unit == lun),
        }
    }

    fn is_of(&self, task: TaskId, lun: u16) -> bool {
        self.tasks.get(&task).is_some_and(|task| task.lun() == Some(lun))
    }

    fn note_order(&mut self, command: &Command) {
        if let (TaskAttribute::Ordered, Some(lun)) = (command.attribute, command.lun.to_index()) {
            self.ordered.push((command.task, lun));
        }
    }

    fn forget_ended(&mut self) {
        let tasks = &self.tasks;
        self.ordered.retain(|(task, _)| tasks.contains_key(task));
    }

    /// A command whose turn has come waits for room.
    pub(crate) fn wait_for_room(&mut self, command: Command) {
        self.for_room.push_back(command.task);
        self.enter(command.task, Task::WaitsForRoom(command));
    }

    /// Number of commands that wait for room.
    pub(crate) fn count_for_room(&self) -> usize {
        self.for_room.len()
    }

    /// The commands that wait for room, oldest first.
    pub(crate) fn waiting_for_room(&self) -> impl Iterator<Item = &Command> {
        self.for_room.iter().filter_map(|task| match self.tasks.get(task) {
            Some(Task::WaitsForRoom(command)) => Some(command),
            _ => None,
        })
    }

    /// The command at `position` among those that wait for room.
    pub(crate) fn for_room_at(&self, position: usize) -> Option<&Command> {
        match self.tasks.get(self.for_room.get(position)?) {
            Some(Task::WaitsForRoom(command)) => Some(command),
            _ => None,
        }
    }

    /// Takes the command at `position` among those that wait for room.
    pub(crate) fn take_for_room_at(&mut self, position: usize) -> Option<Command> {
        let task = self.for_room.remove(position)?;
        match self.tasks.remove(&task) {
            Some(Task::WaitsForRoom(command)) => Some(command),
            _ => None,
        }
    }

    /// A command waits for Data-Out.
    pub(crate) fn await_data(&mut self, task: TaskId, running: Running) {
        self.enter(task, Task::AwaitsData(running));
    }

    /// Takes a command that waits for Data-Out.
    pub(crate) fn take_awaiting_data(&mut self, task: TaskId) -> Option<Running> {
        match self.tasks.remove(&task)? {
            Task::AwaitsData(running) => Some(running),
            other => {
                self.tasks.insert(task, other);
                None
            }
        }
    }

    /// A command goes to a worker thread.
    pub(crate) fn give_to_worker(&mut self, task: TaskId, at_worker: AtWorker) {
        self.reading_bytes += at_worker.reading_bytes;
        self.enter(task, Task::AtWorker(at_worker));
    }

    /// Takes a command that a worker has finished; `None` if it has left the set, because it outlived its task.
    pub(crate) fn take_from_worker(&mut self, task: TaskId) -> Option<AtWorker> {
        match self.tasks.remove(&task)? {
            Task::AtWorker(at_worker) => {
                self.reading_bytes -= at_worker.reading_bytes;
                Some(at_worker)
            }
            other => {
                self.tasks.insert(task, other);
                None
            }
        }
    }

    /// Number of commands at worker threads. It looks at all commands.
    pub(crate) fn count_at_workers(&self) -> usize {
        self.tasks.values().filter(|task| matches!(task, Task::AtWorker(_))).count()
    }

    /// Data that commands at worker threads may return, bytes.
    pub(crate) fn reading_bytes(&self) -> u64 {
        self.reading_bytes
    }

    /// The session has abandoned a command.
    pub(crate) fn abandon(&mut self, task: TaskId) -> Abandoned {
        match self.tasks.remove(&task) {
            None => Abandoned::Gone(0),
            Some(Task::WaitsForTurn(_)) => {
                self.for_turn.retain(|other| *other != task);
                Abandoned::Gone(0)
            }
            Some(Task::WaitsForRoom(_)) => {
                self.for_room.retain(|other| *other != task);
                Abandoned::Gone(0)
            }
            Some(Task::AwaitsData(running)) => Abandoned::Gone(running.reserved_bytes),
            // From now on it belongs to no session.
            Some(Task::AtWorker(at_worker)) if at_worker.outlives_task => {
                self.reading_bytes -= at_worker.reading_bytes;
                Abandoned::Gone(at_worker.reserved_bytes)
            }
            Some(Task::AtWorker(at_worker)) => {
                at_worker.cancelled.store(true, Ordering::Release);
                self.tasks.insert(task, Task::AtWorker(at_worker));
                Abandoned::Cancelled
            }
        }
    }

    fn enter(&mut self, id: TaskId, task: Task) {
        let before = self.tasks.insert(id, task);
        debug_assert!(before.is_none(), "a command is in one state only");
    }

    /// Whether the queues name exactly the commands that wait.
    pub(crate) fn holds(&self) -> bool {
        let turn = self.for_turn.iter().all(|id| matches!(self.tasks.get(id), Some(Task::WaitsForTurn(_))));
        let room = self.for_room.iter().all(|id| matches!(self.tasks.get(id), Some(Task::WaitsForRoom(_))));
        let waits = |task: &&Task| matches!(task, Task::WaitsForTurn(_) | Task::WaitsForRoom(_));
        let reading = |task: &Task| match task {
            Task::AtWorker(at_worker) => at_worker.reading_bytes,
            _ => 0,
        };
        turn && room
            && self.tasks.values().filter(waits).count() == self.for_turn.len() + self.for_room.len()
            && self.tasks.values().map(reading).sum::<u64>() == self.reading_bytes
    }
}

#[cfg(test)]
mod tests;
