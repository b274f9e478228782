//! Which tasks of a session have PDUs missing.

use iscsi_wire::Itt;

use super::super::task::TaskTable;

/// The tasks with PDUs missing, and the tag with which data was last requested in a new cut.
#[derive(Debug, Default)]
pub(in super::super) struct Missing {
    tasks: Vec<Itt>,
    snack_tag: u32,
}

impl Missing {
    /// PDUs of a task are missing.
    pub(super) fn remember(&mut self, itt: Itt) {
        if !self.tasks.contains(&itt) {
            self.tasks.push(itt);
        }
    }

    /// None is missing any more, or none matters.
    pub(crate) fn forget(&mut self, itt: Itt) {
        self.tasks.retain(|other| *other != itt);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Itt> {
        self.tasks.iter().copied()
    }

    /// The SNACK Tag for a new request: never 0 and never ffffffffh, and different each time.
    pub(super) fn next_tag(&mut self) -> u32 {
        self.snack_tag = self.snack_tag % (u32::MAX - 1) + 1;
        self.snack_tag
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub(crate) fn check(&self, tasks: &TaskTable) {
        let holed = tasks.commands().filter(|(_, task)| task.holes.is_some()).map(|(itt, _)| itt);
        for itt in holed {
            debug_assert!(self.tasks.contains(&itt), "the holes of {itt} are forgotten");
        }
    }
}
