//! The answers that the event loop owes, by the names that the protocol carries for them.

use iscsi_core::initiator::session::ManagementAnswer;

use super::arrived::Arrived;
use super::messages::{Ended, Handle};
use crate::error::IoError;
use crate::info::Pong;
use crate::reply::Answer;

/// One answer that is owed.
pub(super) enum Pending {
    Command {
        answer: Answer<Result<Ended, IoError>>,
        /// The name that other threads use for it.
        handle: Handle,
        /// The data that has arrived for it.
        data: Arrived,
        /// How many sessions were lost while it was outstanding.
        losses: u8,
    },
    Ping(Answer<Option<Pong>>),
    Manage(Answer<Option<ManagementAnswer>>),
}

/// All pending answers. Dropping an entry tells its waiter that there will be no answer.
#[derive(Default)]
pub(super) struct PendingTable {
    entries: Vec<Option<Pending>>,
    free: Vec<usize>,
}

impl PendingTable {
    /// Stores `pending` and returns its name.
    pub(super) fn insert(&mut self, pending: Pending) -> u64 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index] = Some(pending);
                index as u64
            }
            None => {
                self.entries.push(Some(pending));
                (self.entries.len() - 1) as u64
            }
        }
    }

    pub(super) fn get(&mut self, name: u64) -> Option<&mut Pending> {
        self.entries.get_mut(usize::try_from(name).ok()?)?.as_mut()
    }

    /// The name of the command with this `handle`, if it has not ended.
    pub(super) fn command(&self, handle: Handle) -> Option<u64> {
        let is = |entry: &Option<Pending>| matches!(entry, Some(Pending::Command { handle: own, .. }) if *own == handle);
        self.entries.iter().position(is).map(|index| index as u64)
    }

    pub(super) fn take(&mut self, name: u64) -> Option<Pending> {
        let index = usize::try_from(name).ok()?;
        let pending = self.entries.get_mut(index)?.take()?;
        self.free.push(index);
        Some(pending)
    }

    /// Pings and management functions do not survive their session.
    pub(super) fn drop_all_but_commands(&mut self) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if matches!(entry, Some(Pending::Ping(_) | Pending::Manage(_))) {
                *entry = None;
                self.free.push(index);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.free.clear();
    }
}
