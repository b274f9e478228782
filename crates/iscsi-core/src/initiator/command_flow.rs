//! The commands of a session on their way: those that wait for the window, in order, and those that were sent.

use std::collections::VecDeque;

use iscsi_wire::Itt;

use super::task::{Task, TaskTable};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CommandFlow {
    /// Commands that wait for the window, in order.
    waiting: VecDeque<Itt>,
    /// How many of those, at the front, are being started again.
    anew: usize,
    /// Commands sent and not completed.
    sent: usize,
    /// Write data of those, bytes.
    write_bytes: u64,
    /// Their weight for the scheduler, bytes.
    sent_bytes: u64,
    /// How many commands that were sent have ended so far.
    ended: u64,
}

impl CommandFlow {
    /// A new command waits behind all others.
    pub(crate) fn wait(&mut self, itt: Itt) {
        self.waiting.push_back(itt);
    }

    /// A command that is started again waits ahead of those that were never sent, behind those started again before it.
    pub(crate) fn wait_anew(&mut self, itt: Itt) {
        self.waiting.insert(self.anew, itt);
        self.anew += 1;
    }

    /// The command whose turn is next.
    pub(crate) fn next(&self) -> Option<Itt> {
        self.waiting.front().copied()
    }

    /// Takes the command whose turn is next.
    pub(crate) fn take_next(&mut self) -> Option<Itt> {
        self.anew = self.anew.saturating_sub(1);
        self.waiting.pop_front()
    }

    /// A command no longer waits.
    pub(crate) fn withdraw(&mut self, itt: Itt) {
        if let Some(at) = self.waiting.iter().position(|other| *other == itt) {
            self.waiting.remove(at);
            self.anew -= usize::from(at < self.anew);
        }
    }

    /// A command is sent.
    pub(crate) fn begin(&mut self, task: &Task) {
        self.sent += 1;
        self.write_bytes += task.command.write.len() as u64;
        self.sent_bytes += task.weight();
    }

    /// A command that was sent is completed, or waits again.
    pub(crate) fn end(&mut self, task: &Task) {
        self.sent -= 1;
        self.ended += 1;
        self.write_bytes -= task.command.write.len() as u64;
        self.sent_bytes -= task.weight();
    }

    /// The session is over. Returns the commands that wait, in order.
    pub(crate) fn close(&mut self) -> VecDeque<Itt> {
        std::mem::take(self).waiting
    }

    /// Commands sent and not completed.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// How many commands that were sent are completed, or wait again, so far.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Write data of the commands sent and not completed, bytes.
    pub(crate) fn write_bytes(&self) -> u64 {
        self.write_bytes
    }

    /// Bytes of the commands sent and not completed, in both directions, with something for each; those of a lost connection count. With
    /// the commands that wait to be sent, as if they were as large as those sent.
    pub(crate) fn asked_bytes(&self) -> u64 {
        match self.waiting.is_empty() {
            true => self.sent_bytes,
            false => self.sent_bytes / self.sent.max(1) as u64 * self.outstanding() as u64,
        }
    }

    /// Commands submitted and not completed.
    pub(crate) fn outstanding(&self) -> usize {
        self.sent + self.waiting.len()
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub(crate) fn check(&self, tasks: &TaskTable) {
        let sent = tasks.commands().filter(|(_, task)| task.cmd_sn.is_some());
        let sums = sent.fold((0, 0, 0), |(count, written, all), (_, task)| {
            (count + 1, written + task.command.write.len() as u64, all + task.weight())
        });
        debug_assert_eq!(
            sums,
            (self.sent, self.write_bytes, self.sent_bytes),
            "commands sent and not completed"
        );
        debug_assert_eq!(self.outstanding(), tasks.commands().count(), "a command waits or was sent");
        debug_assert!(self.anew <= self.waiting.len(), "those started again are among those that wait");
        let unsent = |itt: &Itt| tasks.task(*itt).is_some_and(|task| task.cmd_sn.is_none());
        debug_assert!(self.waiting.iter().all(unsent), "a command that waits was not sent");
    }
}
