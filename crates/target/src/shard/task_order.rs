//! Task attributes (SAM-5 8.6). A SIMPLE command runs on arrival. An ORDERED one runs after all commands that arrived before it and
//! before all that arrive after it. A HEAD OF QUEUE one runs at once.
//!
//! The order is kept among the commands of one session for one logical unit. It is not kept across sessions: an initiator can only
//! observe it through a status, and a command that has its status is complete.

use std::collections::VecDeque;

use engine::Platform;
use iscsi_core::target::actions::Command;
use iscsi_core::target::task::TaskId;
use iscsi_core::wire::TaskAttribute;

use super::Shard;
use super::sessions::SessionEntry;

/// A session's records of the order of its commands; empty as long as all of them are SIMPLE.
#[derive(Default)]
pub(super) struct TaskOrder {
    /// ORDERED commands that have started, with their units. Those that have ended are dropped when the next command arrives.
    ordered: Vec<(TaskId, u16)>,
    /// Commands that wait for their turn, in order of arrival.
    waiting: VecDeque<Command>,
}

impl TaskOrder {
    /// Forgets a waiting command.
    pub fn forget(&mut self, task: TaskId) {
        self.waiting.retain(|command| command.task != task);
    }
}

impl<P: Platform> Shard<P> {
    /// Whether a command must wait for its turn; if so, it is kept.
    //= sam5 8.6 TSK-01
    pub(super) fn waits_for_turn(&self, entry: &mut SessionEntry, command: &Command) -> bool {
        let plain = command.attribute != TaskAttribute::Ordered;
        if plain && entry.order.ordered.is_empty() && entry.order.waiting.is_empty() {
            return false;
        }
        drop_ended(entry);
        let order = &entry.order;
        let Some(lun) = command.lun.to_index() else { return false };
        let behind = order.waiting.iter().any(|earlier| earlier.lun.to_index() == Some(lun));
        let waits =
            command.attribute != TaskAttribute::HeadOfQueue && (behind || is_barred(entry, command, lun));
        if waits {
            entry.order.waiting.push_back(command.clone());
        } else if !plain {
            entry.order.ordered.push((command.task, lun));
        }
        waits
    }

    /// Starts one of the commands whose turn has come; false when there is none.
    pub(super) fn begin_next_in_order(&mut self, entry: &mut SessionEntry) -> bool {
        if entry.order.waiting.is_empty() {
            return false;
        }
        drop_ended(entry);
        let waiting = &entry.order.waiting;
        let next = waiting.iter().enumerate().position(|(at, command)| {
            let Some(lun) = command.lun.to_index() else { return true };
            let behind = waiting.iter().take(at).any(|earlier| earlier.lun.to_index() == Some(lun));
            !behind && !is_barred(entry, command, lun)
        });
        let Some(command) = next.and_then(|at| entry.order.waiting.remove(at)) else { return false };
        if let (TaskAttribute::Ordered, Some(lun)) = (command.attribute, command.lun.to_index()) {
            entry.order.ordered.push((command.task, lun));
        }
        self.begin_when_there_is_room(entry, command);
        true
    }
}

/// Whether commands that have started prevent `command` from starting.
fn is_barred(entry: &SessionEntry, command: &Command, lun: u16) -> bool {
    if command.attribute == TaskAttribute::Ordered {
        return entry.running.values().any(|running| running.lun() == lun)
            || entry.offloaded.values().any(|offloaded| offloaded.lun == lun)
            || entry.deferred.iter().any(|deferred| deferred.lun.to_index() == Some(lun));
    }
    entry.order.ordered.iter().any(|(_, unit)| *unit == lun)
}

fn drop_ended(entry: &mut SessionEntry) {
    let mut ordered = std::mem::take(&mut entry.order.ordered);
    ordered.retain(|(task, _)| is_active(entry, *task));
    entry.order.ordered = ordered;
}

/// Whether a command that was started has not ended.
fn is_active(entry: &SessionEntry, task: TaskId) -> bool {
    entry.running.contains_key(&task)
        || entry.offloaded.contains_key(&task)
        || entry.deferred.iter().any(|deferred| deferred.task == task)
}
