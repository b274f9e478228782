//! The tasks of a session by tag. A tag is a place in the table and how often the place was used, so that looking up takes
//! no hashing and a late PDU never meets a younger task.

use iscsi_wire::{CmdSn, Itt, Lun, TmfFunction};

use super::command::{Command, Ending};
use crate::Time;
use crate::limits::MAX_INITIATOR_TASKS;

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub command: Command,
    /// CmdSN, once it was sent.
    pub cmd_sn: Option<CmdSn>,
    /// Number that the next Data-In or R2T must have: they share it.
    pub next_data_sn: u32,
    /// Bytes of Data-In that have arrived, in order.
    pub received: u32,
    /// End of what was sent unsolicited or asked for by R2T, bytes.
    pub sent: u32,
    /// When it has taken too long.
    pub deadline: Option<Time>,
    /// It ends so when the target says that it is over.
    pub verdict: Option<Ending>,
    /// An ABORT TASK for it is under way or was tried.
    pub aborting: bool,
    pub resends: u8,
}

/// Who wants a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The session itself, because a command took too long or was refused.
    Recovery,
    /// The caller, under this name.
    Caller(u64),
}

/// A task management function under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Management {
    pub function: TmfFunction,
    pub lun: Lun,
    pub referenced: Itt,
    pub ref_cmd_sn: CmdSn,
    pub deadline: Time,
    pub wanted: Wanted,
    pub resends: u8,
}

/// A ping of ours under way.
#[derive(Debug)]
pub(super) struct Ping {
    /// The caller's name for it; `None` for those of the session itself.
    pub user: Option<u64>,
    pub data: bytes::Bytes,
    pub sent_at: Time,
}

/// What a tag names.
#[derive(Debug)]
pub(super) enum Held {
    Free,
    Command(Task),
    Management(Management),
    Ping(Ping),
    Text,
    Logout,
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    held: Held,
}

/// Every tag of a session.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl TaskTable {
    /// Gives `held` a tag, or comes back with it when all are in use.
    //= rfc7143 11.2.1.8 TMF-10
    pub(super) fn insert(&mut self, held: Held) -> Result<Itt, Box<Held>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_INITIATOR_TASKS => {
                self.slots.push(Slot { generation: 0, held: Held::Free });
                (self.slots.len() - 1) as u16
            }
            None => return Err(Box::new(held)),
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.held = held;
        Ok(tag(index, slot.generation))
    }

    /// What a tag names; `None` when it is not in use, or in use again since.
    pub(super) fn held(&mut self, itt: Itt) -> Option<&mut Held> {
        self.slot(itt).map(|slot| &mut slot.held).filter(|held| !matches!(held, Held::Free))
    }

    pub(super) fn command(&mut self, itt: Itt) -> Option<&mut Task> {
        match self.slot(itt)?.held {
            Held::Command(ref mut task) => Some(task),
            _ => None,
        }
    }

    fn slot(&mut self, itt: Itt) -> Option<&mut Slot> {
        let (index, generation) = place(itt);
        self.slots.get_mut(index).filter(|slot| slot.generation == generation)
    }

    /// Takes what a tag names out of the table; the tag is free from then on.
    pub(super) fn remove(&mut self, itt: Itt) -> Held {
        let Some(slot) = self.slot(itt) else { return Held::Free };
        if matches!(slot.held, Held::Free) {
            return Held::Free;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let held = std::mem::replace(&mut slot.held, Held::Free);
        self.free.push(place(itt).0 as u16);
        held
    }

    /// Every command with its tag.
    pub(super) fn commands(&self) -> impl Iterator<Item = (Itt, &Task)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.held {
            Held::Command(task) => Some((tag(index as u16, slot.generation), task)),
            _ => None,
        })
    }

    /// Every task management function with its tag.
    pub(super) fn managements(&self) -> impl Iterator<Item = (Itt, &Management)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.held {
            Held::Management(management) => Some((tag(index as u16, slot.generation), management)),
            _ => None,
        })
    }
}

fn tag(index: u16, generation: u16) -> Itt {
    Itt(u32::from(generation) << 16 | u32::from(index))
}

fn place(itt: Itt) -> (usize, u16) {
    ((itt.0 & 0xffff) as usize, (itt.0 >> 16) as u16)
}
