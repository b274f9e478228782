//! Tasks of a session: what the protocol knows of a SCSI command from its PDU to its status (RFC 7143 4.2.2, 11.2.1.8).
//!
//! ```text
//!          its turn            need_data_out                all data here
//!   Held ──────────► Offered ─────────────────► Collecting ───────────────► Executing ──complete──► gone
//!                       └─────────────────────────────┴─── complete too early, or an error of the data phase
//!                                                          sets `ending`:  Released ──────────► gone
//! ```
//! A released task is gone when the last awaited F bit has come and the device server has let go of it.
//!
//! A task that is aborted leaves the table at once; what the initiator still owes for it becomes a `Drain`, which swallows it.

use std::collections::VecDeque;

use bytes::Bytes;
use iscsi_wire::{Cid, CmdSn, DataSn, Itt, Lun, Ttt};
use smallvec::SmallVec;

/// Names a task towards the device server; never reused for another task of the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

/// Received data of a write, in order and without gaps. Shares the receive buffers.
pub type DataOutPieces = SmallVec<[Bytes; 4]>;

/// A run of Data-Out PDUs that the initiator owes: the unsolicited one, or the answer to an R2T.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// `Ttt::RESERVED` for unsolicited data.
    pub ttt: Ttt,
    /// Offset of the next byte, from the start of the command's data.
    pub next_offset: u32,
    /// Offset after the last byte.
    pub end: u32,
    /// DataSN of the next PDU.
    pub data_sn: DataSn,
}

/// How a task is to end although the device server did not say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// SCSI status.
    pub status: u8,
    /// Sense data.
    pub sense: Bytes,
    /// SCSI transfer length for the residual.
    pub transfer_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for its turn in the command window.
    Held,
    /// The device server has been told and has not answered.
    Offered,
    /// The device server wants data, and some is still due.
    Collecting,
    /// The device server has everything.
    Executing,
    /// The device server has ended it or was told to forget it: only its status is still due.
    Released,
}

#[derive(Debug)]
pub(super) struct Task {
    pub itt: Itt,
    pub cid: Cid,
    pub lun: Lun,
    pub cmd_sn: CmdSn,
    pub immediate: bool,
    pub read: bool,
    pub write: bool,
    /// Expected Data Transfer Length of the write, or of the read where there is no write, bytes.
    pub edtl: u32,
    /// Expected read length of a bidirectional command, bytes.
    pub bidi_read_length: Option<u32>,
    pub state: State,
    /// The outcome, when it is known before the initiator has sent what it still owes: no status may overtake that
    /// (RFC 7143 11.4.2).
    pub ending: Option<Ending>,
    /// Bytes that the device server wants, bounded by `edtl`; known from `need_data_out` on.
    pub wanted: Option<u32>,
    pub data: DataOutPieces,
    /// Bytes in `data`.
    pub received: u32,
    /// What the initiator owes at this moment, oldest first.
    pub sequences: VecDeque<Sequence>,
    /// Next byte to ask for by R2T.
    pub next_r2t_offset: u32,
    /// R2TSN of the next R2T, shared with Data-In.
    pub next_data_sn: u32,
    /// Bytes that this task holds of the session's solicitation budget.
    pub budget_bytes: u32,
}

impl Task {
    /// True while Data-Out of this task may arrive.
    pub fn expects_data(&self) -> bool {
        !self.sequences.is_empty()
    }
}

/// What an initiator still owes for a task that is gone.
#[derive(Debug)]
pub(super) struct Drain {
    pub cid: Cid,
    pub itt: Itt,
    pub sequences: VecDeque<Sequence>,
    /// When we stop waiting for it.
    pub deadline: crate::Time,
}

/// Tasks by [`TaskId`], with reuse of slots and without reuse of names.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    slots: Vec<(u32, Option<Task>)>,
    free: Vec<u32>,
}

impl TaskTable {
    pub fn insert(&mut self, task: Task) -> TaskId {
        match self.free.pop() {
            Some(index) => {
                let (generation, slot) = &mut self.slots[index as usize];
                *slot = Some(task);
                TaskId { index, generation: *generation }
            }
            None => {
                self.slots.push((0, Some(task)));
                TaskId { index: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        match self.slots.get_mut(id.index as usize) {
            Some((generation, slot)) if *generation == id.generation => slot.as_mut(),
            _ => None,
        }
    }

    pub fn get(&self, id: TaskId) -> Option<&Task> {
        match self.slots.get(id.index as usize) {
            Some((generation, slot)) if *generation == id.generation => slot.as_ref(),
            _ => None,
        }
    }

    pub fn remove(&mut self, id: TaskId) -> Option<Task> {
        let (generation, slot) = self.slots.get_mut(id.index as usize)?;
        if *generation != id.generation {
            return None;
        }
        let task = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.index);
        Some(task)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, slot))| {
            slot.as_ref().map(|task| (TaskId { index: index as u32, generation: *generation }, task))
        })
    }
}
