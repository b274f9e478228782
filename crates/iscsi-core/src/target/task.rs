//! Tasks of a session: what the protocol knows about a SCSI command from its PDU to its status (RFC 7143 4.2.2, 11.2.1.8).
//!
//! ```text
//!          its turn            need_data_out                all data here
//!   Held ──────────► Offered ─────────────────► Collecting ───────────────► Executing ──complete──► gone
//!                       └─────────────────────────────┴─── complete too early, or an error of the data phase
//!                                                          sets `ending`:  Released ──────────► gone
//! ```
//! A released task is gone once the last awaited F bit has arrived and the device server has released it.
//!
//! A task whose connection is lost at ErrorRecoveryLevel 2 stays in its state as an orphan: nothing is sent for it until
//! TASK REASSIGN gives it another connection.
//!
//! An aborted task leaves the table at once. The data that the initiator still owes for it becomes a `Drain`, which discards it.

use std::collections::VecDeque;

use bytes::Bytes;
use iscsi_wire::{Cid, CmdSn, DataSn, Itt, Lun, ScsiCommand, Ttt};

pub use super::pieces::DataOutPieces;
use super::pieces::{keep, trim};
use super::scattered::Scattered;
use super::sense::{BUSY, CHECK_CONDITION, Condition, Shortage, TASK_SET_FULL};
use crate::extents::Refused;
use crate::params::DataOrder;

/// Identifies a task to the device server; never reused for another task of the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

impl TaskId {
    /// An identifier by its parts. Those of a session's commands come from the session alone.
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }
}

/// A sequence of Data-Out PDUs that the initiator owes: the unsolicited one, or the answer to an R2T.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// `Ttt::RESERVED` for unsolicited data.
    pub ttt: Ttt,
    /// R2TSN of the R2T that requested it; 0 for unsolicited data.
    pub r2t_sn: u32,
    /// Offset of the first byte, from the start of the command's data.
    pub start: u32,
    /// Offset of the next byte, from the start of the command's data. Where the PDUs of a sequence may come in any order: `start`
    /// and the bytes that have arrived.
    pub next_offset: u32,
    /// Offset after the last byte.
    pub end: u32,
    /// DataSN of the next PDU.
    pub data_sn: DataSn,
}

impl Sequence {
    /// Whether its next PDU may begin at `offset`.
    pub(crate) fn awaits(&self, offset: u32, order: DataOrder) -> bool {
        match order.pdus {
            true => offset == self.next_offset,
            false => offset >= self.start,
        }
    }
}

/// The outcome of a task whose status cannot be sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// SCSI status.
    pub status: u8,
    /// Sense data.
    pub sense: Bytes,
    /// SCSI transfer length, for the residual.
    pub transfer_bytes: u64,
    /// Why the session ends it, if that is for lack of memory: the logical unit does not know of this status.
    pub shortage: Option<Shortage>,
}

impl From<Shortage> for Ending {
    fn from(shortage: Shortage) -> Self {
        let status = match shortage {
            Shortage::Busy => BUSY,
            Shortage::TaskSetFull => TASK_SET_FULL,
        };
        Self { status, sense: Bytes::new(), transfer_bytes: 0, shortage: Some(shortage) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for its turn in the command window.
    Held,
    /// The device server has been given the command and has not answered.
    Offered,
    /// The device server wants data, and some of it is still due.
    Collecting,
    /// The device server has everything.
    Executing,
    /// The device server has completed it, never saw it, or was told to abandon it: only its status is still due.
    Released,
}

/// A SCSI command as its PDU describes it: it never changes.
#[derive(Clone, Copy, Debug)]
struct Request {
    itt: Itt,
    lun: Lun,
    cmd_sn: CmdSn,
    immediate: bool,
    read: bool,
    write: bool,
    edtl: u32,
    bidi_read_length: Option<u32>,
}

/// Memory for write data that a task holds, bytes; see `write_flow`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Of the session's solicitation budget.
    pub budget: u32,
    /// Unsolicited data received or still allowed; 0 once the device server has requested the command's data.
    pub early: u32,
}

#[derive(Debug)]
pub(super) struct Task {
    request: Request,
    /// The connection to which it is, or was, allegiant.
    pub cid: Cid,
    /// The connection on which the command arrived. It differs from `cid` in asymmetric use only.
    pub came_on: Cid,
    /// Its connection is lost and it has not been reassigned.
    pub orphan: bool,
    pub state: State,
    /// The outcome, if it is known before the initiator has sent all the data it owes: the status must not overtake that data
    /// (RFC 7143 11.4.2).
    pub ending: Option<Ending>,
    /// Bytes that the device server wants, at most `edtl`; set by `need_data_out`.
    pub wanted: Option<u32>,
    /// Write data without gaps.
    data: DataOutPieces,
    /// Bytes of write data without gaps that have arrived.
    received: u32,
    /// Data that the initiator owes at this moment, oldest sequence first.
    pub sequences: VecDeque<Sequence>,
    /// Offset of the next byte to request by R2T.
    pub next_r2t_offset: u32,
    /// R2TSN of the next R2T, shared with Data-In.
    pub next_data_sn: u32,
    pub share: Share,
    /// When data last arrived for it or was last requested; maintained above ErrorRecoveryLevel 0.
    pub progress: crate::Time,
    /// What is not in order in its transfers, if anything ever was.
    pub repair: Option<Box<Repair>>,
}

impl Task {
    /// The task of a command that arrived on the connection `came_on` and is allegiant to `cid`.
    #[inline]
    pub(crate) fn new(
        command: &ScsiCommand,
        bidi_read_length: Option<u32>,
        cid: Cid,
        came_on: Cid,
        now: crate::Time,
    ) -> Self {
        let ScsiCommand { itt, lun, cmd_sn, immediate, read, write, .. } = *command;
        let edtl = command.expected_data_transfer_length;
        let bidi_read_length = bidi_read_length.filter(|_| read && write);
        Self {
            request: Request { itt, lun, cmd_sn, immediate, read, write, edtl, bidi_read_length },
            cid,
            came_on,
            orphan: false,
            state: State::Held,
            ending: None,
            wanted: None,
            data: DataOutPieces::new(),
            received: 0,
            sequences: VecDeque::new(),
            next_r2t_offset: 0,
            next_data_sn: 0,
            share: Share::default(),
            progress: now,
            repair: None,
        }
    }

    pub(crate) fn itt(&self) -> Itt {
        self.request.itt
    }

    pub(crate) fn lun(&self) -> Lun {
        self.request.lun
    }

    pub(crate) fn cmd_sn(&self) -> CmdSn {
        self.request.cmd_sn
    }

    pub(crate) fn immediate(&self) -> bool {
        self.request.immediate
    }

    pub(crate) fn read(&self) -> bool {
        self.request.read
    }

    pub(crate) fn write(&self) -> bool {
        self.request.write
    }

    /// Expected Data Transfer Length of the write, or of the read where there is no write, bytes.
    pub(crate) fn edtl(&self) -> u32 {
        self.request.edtl
    }

    /// Expected read length of a bidirectional command, bytes.
    pub(crate) fn bidi_read_length(&self) -> Option<u32> {
        self.request.bidi_read_length
    }

    /// Most bytes of data that the initiator takes.
    pub(crate) fn read_length(&self) -> u32 {
        match (self.request.read, self.request.bidi_read_length) {
            (true, Some(length)) => length,
            (true, None) => self.request.edtl,
            (false, _) => 0,
        }
    }

    /// Bytes of data that the initiator has.
    pub(crate) fn write_length(&self) -> u32 {
        if self.request.write { self.request.edtl } else { 0 }
    }

    /// Bytes of write data without gaps that have arrived.
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Takes the data that came in the PDU of the command.
    pub(crate) fn take_immediate(&mut self, data: &Bytes) {
        debug_assert!(self.received == 0 && self.data.is_empty(), "immediate data comes first");
        self.received = data.len() as u32;
        self.data.push(data.clone());
    }

    /// Takes the write data out, to hand it over: at most `bytes`.
    pub(crate) fn take_data(&mut self, bytes: u32) -> DataOutPieces {
        let mut data = std::mem::take(&mut self.data);
        trim(&mut data, bytes as usize);
        data
    }

    /// Puts data in its place that may lie behind a hole: behind the data without gaps, or aside until the hole is filled.
    pub(crate) fn place_behind_hole(&mut self, offset: u32, data: &Bytes) {
        let end_of = |run: &(u32, DataOutPieces)| run.0 + run.1.iter().map(Bytes::len).sum::<usize>() as u32;
        if offset != self.received {
            let early = &mut self.repair().early;
            return match early.iter_mut().find(|run| end_of(run) == offset) {
                Some((_, pieces)) => keep(pieces, data),
                None => {
                    let mut pieces = DataOutPieces::new();
                    keep(&mut pieces, data);
                    early.push((offset, pieces));
                }
            };
        }
        self.append(data);
        let Some(repair) = &mut self.repair else { return };
        while let Some(position) = repair.early.iter().position(|run| run.0 == self.received) {
            let run = repair.early.swap_remove(position);
            self.received = end_of(&run);
            self.data.extend(run.1);
        }
    }

    /// The connection on which PDUs may be sent for it.
    pub(crate) fn home(&self) -> Option<Cid> {
        (!self.orphan).then_some(self.cid)
    }

    /// Its repair state, created on first use.
    pub(crate) fn repair(&mut self) -> &mut Repair {
        self.repair.get_or_insert_default()
    }

    /// Whether data was lost that has not been requested again.
    pub(crate) fn has_holes(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| !repair.holes.is_empty())
    }

    /// Whether bursts are still to be requested in a drawn order.
    pub(crate) fn has_drawn_bursts(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| !repair.drawn_bursts.is_empty())
    }

    /// How many bytes of `wanted` are still to be requested.
    pub(crate) fn unsolicited_rest(&self, wanted: u32) -> u32 {
        let holes = self.repair.iter().flat_map(|repair| &repair.holes);
        let lost: u32 = holes.map(|hole| hole.1.min(wanted).saturating_sub(hole.0)).sum();
        wanted.saturating_sub(self.next_r2t_offset).saturating_add(lost)
    }

    /// Fixes the outcome of a task whose data is wrong; an outcome that is already fixed stays.
    pub(crate) fn condemn(&mut self, condition: Condition) {
        self.drop_data();
        self.ending.get_or_insert_with(|| Ending {
            status: CHECK_CONDITION,
            sense: condition.sense(),
            transfer_bytes: 0,
            shortage: None,
        });
    }

    /// True while Data-Out of this task may arrive.
    pub(crate) fn expects_data(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// Puts data in its place: behind the data without gaps, or aside until the gap before it is closed.
    ///
    /// # Errors
    /// Why the data is refused. Then it was not kept.
    //= rfc7143 13.18 KEY-17
    //= rfc7143 13.19 DAT-05
    pub(crate) fn place(&mut self, offset: u32, data: &Bytes) -> Result<(), Refused> {
        if data.is_empty() {
            return Ok(());
        }
        let received = self.received;
        if offset == received && self.scattered().is_none() {
            self.append(data);
            return Ok(());
        }
        let scattered = self.repair().scattered.get_or_insert_with(|| Scattered::behind(received));
        scattered.enter(offset, data.len())?;
        if offset != received {
            scattered.insert(offset, data);
            return Ok(());
        }
        self.append(data);
        while let Some(piece) = self.next_piece() {
            self.append(&piece);
        }
        self.repair().scattered.take_if(|scattered| scattered.is_empty());
        Ok(())
    }

    fn scattered(&self) -> Option<&Scattered> {
        self.repair.as_ref()?.scattered.as_ref()
    }

    /// The piece behind the data without gaps, if it has arrived.
    fn next_piece(&mut self) -> Option<Bytes> {
        let received = self.received;
        self.repair.as_mut()?.scattered.as_mut()?.take(received)
    }

    fn append(&mut self, data: &Bytes) {
        self.received += data.len() as u32;
        keep(&mut self.data, data);
    }

    /// Forgets the data that has arrived.
    pub(crate) fn drop_data(&mut self) {
        self.data.clear();
        if let Some(repair) = &mut self.repair {
            repair.scattered = None;
        }
    }

    /// Data that has arrived and is kept, bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let waiting = self.scattered().map_or(0, Scattered::bytes);
        self.data.iter().map(|piece| piece.len() as u64).sum::<u64>() + waiting
    }
}

/// What is not in order in the transfers of a task: at ErrorRecoveryLevel 0 what comes in another order, if that was agreed on
/// (RFC 7143 13.18, 13.19); above it what went wrong and is repaired (7.1.4.1).
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// Byte ranges from..to that were lost and not yet requested again, oldest first.
    pub holes: Vec<(u32, u32)>,
    /// Data received behind a hole: the offset of each run, and its pieces.
    pub early: Vec<(u32, DataOutPieces)>,
    /// Tags of R2Ts whose answers are no longer awaited: data that arrives for them is discarded.
    pub stale: Vec<Ttt>,
    /// Holes so far; bounded by [`crate::limits::MAX_RECOVERIES_PER_TASK`].
    pub recoveries: u8,
    /// SNACKs so far; bounded by [`crate::limits::MAX_SNACKS_PER_TASK`].
    pub snacks: u8,
    /// SNACK Tag of an R-Data SNACK that arrived before the data was sent; 0: none.
    pub snack_tag: u32,
    /// What has arrived behind a gap, where data may come in any order.
    pub scattered: Option<Scattered>,
    /// Where the bursts begin that are still to be requested, in that order, last first; empty unless the order is drawn.
    pub drawn_bursts: Vec<u32>,
}

/// Data that an initiator still owes for a task that is gone.
#[derive(Debug)]
pub(super) struct Drain {
    pub cid: Cid,
    pub itt: Itt,
    pub lun: Lun,
    pub sequences: VecDeque<Sequence>,
    /// StatSN of the Asynchronous Message that told the initiator to stop: a NOP-Out that acknowledges it ends the wait.
    pub told_to_stop: Option<iscsi_wire::StatSn>,
    /// When we stop waiting for it.
    pub deadline: crate::Time,
}

/// Tasks by [`TaskId`]. Slots are reused, identifiers are not.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    slots: Vec<(u32, Option<Task>)>,
    free: Vec<u32>,
}

impl TaskTable {
    pub(crate) fn insert(&mut self, task: Task) -> TaskId {
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

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        match self.slots.get_mut(id.index as usize) {
            Some((generation, slot)) if *generation == id.generation => slot.as_mut(),
            _ => None,
        }
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        match self.slots.get(id.index as usize) {
            Some((generation, slot)) if *generation == id.generation => slot.as_ref(),
            _ => None,
        }
    }

    /// Drops a task where it is: it is never moved once it is in the table.
    pub(crate) fn remove(&mut self, id: TaskId) {
        match self.slots.get_mut(id.index as usize) {
            Some((generation, slot)) if *generation == id.generation && slot.is_some() => {
                *slot = None;
                *generation = generation.wrapping_add(1);
                self.free.push(id.index);
            }
            _ => {}
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, slot))| {
            slot.as_ref().map(|task| (TaskId { index: index as u32, generation: *generation }, task))
        })
    }
}
