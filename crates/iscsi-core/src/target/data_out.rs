//! From the command PDU to the last byte of its Data-Out: immediate and unsolicited data, R2T, and their errors
//! (RFC 7143 4.2.5, 7.8, 11.3, 11.7, 11.8, 13.10-13.14).
//!
//! A task's data is a list of pieces without gaps; what comes early, where DataPDUInOrder or DataSequenceInOrder is No, waits
//! aside (see `scattered`). Every PDU is checked against its sequence before its data is kept. A PDU that does not fit fails the
//! task and never touches the medium; the status waits for the F bits that are still due.

use bytes::Bytes;
use iscsi_wire::{Ahs, Cid, DataOut, DataSn, R2t, R2tSn, ScsiCommand, Ttt, parse_ahs};
use smallvec::SmallVec;

use super::aborts::Discarded;
use super::actions::{Action, Command};
use super::recovery::recovery_r2t::{self, Place};
use super::sense::{Condition, Shortage};
use super::session::TargetSession;
use super::task::{Sequence, State, Task, TaskId};
use crate::error::{Disposition, Fault};
use crate::negotiation::Role;
use crate::params::{self, DataOrder};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

impl TargetSession {
    /// Checks the form of a command and enters it as a task, with the data in its PDU.
    //= rfc7143 11.3.1 UNS-05 AHS-01 AHS-02 AHS-03
    pub(super) fn book(&mut self, cid: Cid, rx: &RxPdu, command: &ScsiCommand) -> Result<Command, Fault> {
        let (mut extended, mut bidi_read_length) = (None, None);
        for ahs in parse_ahs(&rx.ahs) {
            match ahs.map_err(|_| Fault::Format)? {
                Ahs::ExtendedCdb(rest) => extended = Some(rest),
                Ahs::BidiReadLength(length) => bidi_read_length = Some(length),
                Ahs::Unknown { .. } => {}
            }
        }
        let bidi = command.read && command.write;
        if (!command.final_bit && !command.write)
            || (bidi && bidi_read_length.is_none())
            || (!command.write && !rx.data.is_empty())
        {
            return Err(Fault::InvalidField);
        }
        let mut cdb: SmallVec<[u8; 32]> = SmallVec::from_slice(&command.cdb);
        if let Some(rest) = extended {
            cdb.extend_from_slice(rest);
        }

        let came_on = cid;
        let cid = self.home_for(came_on, command.cmd_sn);
        let mut task = Task::new(command, bidi_read_length, cid, came_on, self.now);
        if command.write {
            self.take_immediate_data(&mut task, command, &rx.data);
            self.make_room_for_early_data(&mut task);
            if task.expects_data() {
                self.expect_data();
            }
        }
        let digest_chunk_bytes = self
            .connection(cid)
            .filter(|c| c.params.digests.data)
            .map(|c| c.params.max_send_data_segment_length);
        let (read_length, write_length) = (task.read_length(), task.write_length());
        let task = self.tasks.insert(task);
        Ok(Command {
            task,
            lun: command.lun,
            cdb,
            attribute: command.attr,
            //= rfc7144 5 P2-06
            //= sam5 8.7 TSK-07
            priority: if self.params.protocol_level >= 2 { command.priority } else { 0 },
            read_length,
            write_length,
            digest_chunk_bytes,
        })
    }

    //= rfc7143 13.11 UNS-01 UNS-02 UNS-03
    fn take_immediate_data(&self, task: &mut Task, command: &ScsiCommand, data: &Bytes) {
        let first_burst = self.params.effective_first_burst().min(task.edtl());
        if !data.is_empty() {
            if !self.params.bursts.immediate_data {
                task.condemn(Condition::UnexpectedUnsolicitedData);
            } else if data.len() > first_burst as usize {
                task.condemn(Condition::IncorrectAmountOfData);
            } else {
                task.take_immediate(data);
            }
        }
        task.next_r2t_offset = task.received();
        if !command.final_bit {
            if self.params.bursts.initial_r2t {
                task.condemn(Condition::UnexpectedUnsolicitedData);
            }
            task.next_r2t_offset = first_burst.max(task.received());
            task.sequences.push_back(Sequence {
                ttt: Ttt::RESERVED,
                r2t_sn: 0,
                start: task.received(),
                next_offset: task.received(),
                end: task.next_r2t_offset,
                data_sn: DataSn(0),
            });
        }
    }

    /// Reserves memory for the unsolicited data of a command. If there is none, the data is not kept, and the command ends as a
    /// device server ends one for which it lacks resources: with TASK SET FULL if other commands of the session will free some,
    /// otherwise with BUSY.
    //= sam5 5.3.1 SNS-06
    fn make_room_for_early_data(&mut self, task: &mut Task) {
        if task.ending.is_some() {
            return;
        }
        let unasked = task.sequences.front().map_or(task.received(), |unsolicited| unsolicited.end);
        if self.writes.take_early(unasked) {
            task.share.early = unasked;
        } else {
            let shortage = if self.outstanding() > 0 { Shortage::TaskSetFull } else { Shortage::Busy };
            task.drop_data();
            task.ending = Some(shortage.into());
        }
    }

    /// The turn of a booked command has come.
    pub(super) fn start(&mut self, command: Command) {
        let Some(task) = self.tasks.get_mut(command.task) else { return };
        if task.ending.is_some() {
            // Failed by its own PDU: the device server never sees it.
            task.state = State::Released;
            return self.end_if_settled(command.task);
        }
        task.state = State::Offered;
        self.act(Action::Start(command));
    }

    /// The device server wants `bytes` of data for `task`. From here on the caller accounts for their memory, including the bytes
    /// that have already arrived.
    pub fn need_data_out(&mut self, task: TaskId, bytes: u64) {
        let Some(entry) = self.tasks.get_mut(task) else { return };
        if entry.ending.is_some() || entry.state != State::Offered {
            return;
        }
        entry.state = State::Collecting;
        entry.wanted = Some(u32::try_from(bytes).unwrap_or(u32::MAX).min(entry.write_length()));
        self.writes.return_early(std::mem::take(&mut entry.share.early));
        self.collect(task);
    }

    /// Gives up the commands that still wait for data from the initiator. Each ends with BUSY once its initiator has sent the
    /// data it still owes; the memory that its data took is free at once.
    //= sam5 5.3.1 SNS-06
    pub fn give_way(&mut self) {
        let waits =
            |task: &Task| task.state == State::Collecting && task.ending.is_none() && task.expects_data();
        let ids: SmallVec<[TaskId; 8]> =
            self.tasks.iter().filter(|(_, task)| waits(task)).map(|(id, _)| id).collect();
        for id in ids {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.drop_data();
            task.ending = Some(Shortage::Busy.into());
            self.after_data(id);
        }
    }

    /// Hands the data over when it is complete, otherwise requests more.
    pub(super) fn collect(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Some(wanted) = task.wanted else { return };
        if task.state != State::Collecting || task.ending.is_some() {
            return;
        }
        if task.received() >= wanted && !task.expects_data() {
            task.state = State::Executing;
            let data = task.take_data(wanted);
            // Ahead of all queued actions: commands reach the medium in the order in which their turn came.
            self.act_first(Action::DataOut { task: id, data });
        } else if task.next_r2t_offset < wanted || task.has_holes() || task.has_drawn_bursts() {
            self.solicit(id, wanted);
        }
    }

    /// Sends as many R2Ts as the task may have outstanding. The data of a task is budgeted as a whole before its first R2T, so
    /// that tasks never block each other half way.
    //= rfc7143 11.8 R2T-01 R2T-02 R2T-05
    fn solicit(&mut self, id: TaskId, wanted: u32) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        // Unsolicited data comes first, so that a task has one stream of data at a time for the initiator to keep in order.
        let unsolicited_due = task.sequences.iter().any(|s| s.ttt.is_reserved());
        if task.state != State::Collecting || task.ending.is_some() || unsolicited_due || task.orphan {
            return;
        }
        if task.share.budget == 0 {
            let need = task.unsolicited_rest(wanted);
            if !self.writes.solicit(id, need, self.config.solicited_bytes_max) {
                return;
            }
            task.share.budget = need;
        }
        self.draw_bursts(id, wanted);
        let (max_burst, max_outstanding) =
            (self.params.bursts.max_burst_length, usize::from(self.params.bursts.max_outstanding_r2t));
        loop {
            let now = self.now;
            let Some(task) = self.tasks.get_mut(id) else { return };
            let solicited = task.sequences.iter().filter(|s| !s.ttt.is_reserved()).count();
            if solicited >= max_outstanding {
                return;
            }
            let Some((offset, length, recovers)) = next_to_solicit(task, wanted, max_burst) else { return };
            let (cid, lun, itt) = (task.cid, task.lun(), task.itt());
            let r2t_sn = task.next_data_sn;
            task.next_data_sn += 1;
            task.progress = now;
            let ttt = self.next_ttt();
            // An R2T carries the next StatSN but does not take it.
            let Some(n) = self.numbers(cid, false) else { return };
            let r2t = R2t {
                lun,
                itt,
                ttt,
                numbers: n,
                r2t_sn: R2tSn(r2t_sn),
                buffer_offset: offset,
                desired_data_transfer_length: length,
            };
            self.send(cid, TxPdu::header_only(r2t.to_bhs()));
            self.recovery_counts.r2ts_recovered += u64::from(recovers);
            let Some(task) = self.tasks.get_mut(id) else { return };
            task.sequences.push_back(Sequence {
                ttt,
                r2t_sn,
                start: offset,
                next_offset: offset,
                end: offset + length,
                data_sn: DataSn(0),
            });
            self.expect_data();
        }
    }

    /// Returns budget that a task held, and gives it to the tasks that wait for it.
    pub(super) fn release_budget(&mut self, bytes: u32) {
        self.writes.give_back(bytes);
        while let Some(next) = self.writes.next_waiting() {
            let Some(wanted) = self.tasks.get(next).and_then(|task| task.wanted) else { continue };
            self.solicit(next, wanted);
            if self.writes.waits_again(next) {
                return;
            }
        }
    }

    /// Handles a Data-Out PDU, including one whose data does not match its digest.
    //= rfc7143 4.2.5.3 DAT-03 DAT-04 DAT-06
    //= rfc7143 7.8 DIG-09 DIG-11 REJ-02
    pub(super) fn handle_data_out(&mut self, cid: Cid, rx: &RxPdu, data: &DataOut) {
        let corrupted = !rx.data_digest_ok;
        if corrupted {
            self.fault(cid, rx, Fault::DataDigest);
        }
        let Some(id) = self.tasks.find(data.itt) else {
            if !self.drain(data, rx.data.len()) && !corrupted {
                self.fault(cid, rx, Fault::InvalidField);
            }
            return;
        };
        let lacking = Disposition::of(Fault::Missing, self.params.level(), Role::Target);
        let recovers = lacking == Disposition::AskAgain;
        let (now, order) = (self.now, self.params.data_order());
        let Some(task) = self.tasks.get_mut(id) else { return };
        //= rfc7143 4.2.5.1 MCS-02
        // In asymmetric use unsolicited data follows its command, because only the target knows which connection carries the
        // rest. With halves all data comes on that half.
        let follows = match self.params.asymmetric.has_halves() {
            true => !params::carries_data(cid) && !task.orphan,
            false => data.ttt.is_reserved() && task.came_on == cid && !task.orphan,
        };
        let verdict = match follows || task.home() == Some(cid) {
            true => take_data(task, rx, data, recovers, order),
            false => Verdict::Refused,
        };
        if recovers {
            task.progress = now;
        }
        if matches!(verdict, Verdict::Refused) && !corrupted {
            self.fault(cid, rx, Fault::InvalidField);
        }
        self.after_data(id);
    }

    pub(super) fn after_data(&mut self, id: TaskId) {
        match self.tasks.get(id) {
            Some(task) if task.ending.is_some() => {
                self.abandon_execution(id);
                self.end_if_settled(id);
            }
            Some(_) => self.collect(id),
            None => {}
        }
    }

    /// Tells the device server to abandon a command whose outcome no longer depends on it. The status waits until it is released.
    pub(super) fn abandon_execution(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if !matches!(task.state, State::Held | State::Released) {
            task.state = State::Released;
            let lun = task.lun();
            self.tasks.abandon(id, lun);
            self.act(Action::Abandon { task: id });
        }
    }

    /// Discards data for a task that is gone. Returns false when no such task is known.
    fn drain(&mut self, data: &DataOut, len: usize) -> bool {
        match self.aborts.discard(data, len) {
            Discarded::NotOwed => return false,
            Discarded::Some => {}
            Discarded::Last => self.drained(data.itt),
        }
        true
    }
}

/// Whether a Data-Out PDU must be answered with a Reject.
enum Verdict {
    /// No: it was taken or discarded, or the status of the task reports the error.
    Taken,
    Refused,
}

/// Checks a Data-Out PDU against the sequences that the initiator owes, and keeps its data if nothing is wrong with it.
fn take_data(task: &mut Task, rx: &RxPdu, data: &DataOut, recovers: bool, order: DataOrder) -> Verdict {
    let unsolicited = data.ttt.is_reserved();
    if recovers && task.repair.as_ref().is_some_and(|repair| repair.stale.contains(&data.ttt)) {
        return Verdict::Taken;
    }
    let mut owed =
        task.sequences.iter().position(|s| s.ttt == data.ttt && (unsolicited || data.lun == task.lun()));
    if recovers && let Some(position) = owed {
        recovery_r2t::skip_to(task, position);
        owed = Some(0);
    }
    // The initiator answers R2Ts as they arrive, but where sequences have no order nothing depends on it.
    let turn = owed.filter(|position| *position == 0 || !order.sequences);
    let Some((position, sequence)) = turn.and_then(|at| Some((at, task.sequences.get_mut(at)?))) else {
        if task.state == State::Executing {
            // All data has arrived and may be on its way to the medium: the task stays as it is.
            return Verdict::Refused;
        }
        //= rfc7143 13.10 UNS-02
        task.condemn(match unsolicited {
            true => Condition::UnexpectedUnsolicitedData,
            false => Condition::IncorrectAmountOfData,
        });
        if data.final_bit {
            task.sequences.retain(|s| s.ttt != data.ttt);
        }
        return if unsolicited && owed.is_none() { Verdict::Taken } else { Verdict::Refused };
    };
    let len = rx.data.len() as u64;
    let in_place = data.data_sn == sequence.data_sn && sequence.awaits(data.buffer_offset, order);
    let fits = in_place && u64::from(data.buffer_offset) + len <= u64::from(sequence.end);
    if recovers && task.ending.is_none() && !(fits && rx.data_digest_ok && task.repair.is_none()) {
        match recovery_r2t::place(sequence, data, rx.data.len()) {
            //= rfc7143 7.9 ERL-03
            Place::Duplicate => return Verdict::Taken,
            Place::Fits => {
                recovery_r2t::take(task, rx, data);
                return finish_pdu(task, position, data, Verdict::Taken);
            }
            Place::Wrong => {}
        }
    }
    let verdict = if task.ending.is_some() {
        // The outcome is fixed: data still owed is discarded, up to its F bit.
        Verdict::Taken
    } else if !rx.data_digest_ok {
        task.condemn(Condition::ProtocolServiceCrcError);
        Verdict::Taken
    } else if fits {
        sequence.next_offset = sequence.next_offset.saturating_add(len as u32);
        sequence.data_sn = sequence.data_sn.next();
        match task.place(data.buffer_offset, &rx.data) {
            Ok(()) => Verdict::Taken,
            Err(_) => {
                task.condemn(Condition::IncorrectAmountOfData);
                Verdict::Refused
            }
        }
    } else {
        //= rfc7143 13.14 UNS-03
        task.condemn(Condition::IncorrectAmountOfData);
        // Too much unsolicited data at the right offset is reported by the status alone.
        if unsolicited && in_place { Verdict::Taken } else { Verdict::Refused }
    };
    finish_pdu(task, position, data, verdict)
}

/// The F bit ends the sequence at `position`, whether all of its data has arrived or not.
//= rfc7143 4.2.5.2 UNS-04 R2T-04
fn finish_pdu(task: &mut Task, position: usize, data: &DataOut, verdict: Verdict) -> Verdict {
    if data.final_bit
        && let Some(sequence) = task.sequences.remove(position)
        && sequence.next_offset < sequence.end
    {
        task.condemn(Condition::IncorrectAmountOfData);
    }
    verdict
}

/// Offset and length of a task's next R2T, and whether it requests lost data again. Lost data is requested first.
fn next_to_solicit(task: &mut Task, wanted: u32, max_burst: u32) -> Option<(u32, u32, bool)> {
    while let Some(repair) = task.repair.as_mut()
        && let Some(hole) = repair.holes.first_mut()
    {
        let (from, to) = (hole.0, hole.1.min(wanted));
        let length = to.saturating_sub(from).min(max_burst);
        hole.0 += length;
        if hole.0 >= to {
            repair.holes.remove(0);
        }
        if length > 0 {
            return Some((from, length, true));
        }
    }
    if let Some(offset) = task.repair.as_mut().and_then(|repair| repair.drawn_bursts.pop()) {
        return Some((offset, wanted.saturating_sub(offset).min(max_burst), false));
    }
    let (offset, length) = (task.next_r2t_offset, wanted.saturating_sub(task.next_r2t_offset).min(max_burst));
    task.next_r2t_offset += length;
    (length > 0).then_some((offset, length, false))
}
