//! Data-Out that was lost or damaged on the way is requested again (RFC 7143 7.1.4.1, 7.8, 7.9).
//!
//! Data comes in order within the answer to an R2T, so a skipped DataSN or a digest mismatch shows which bytes are missing: a
//! hole. Further R2Ts request the holes, before any other data of the task. Data that arrives behind a hole is kept in `early`
//! until the hole is filled. If no data arrives for a task within [`DATA_LIMIT`], the rest of its first sequence is a hole as
//! well.

use std::time::Duration;

use iscsi_wire::DataOut;
use smallvec::SmallVec;

use super::super::sense::Condition;
use super::super::session::TargetSession;
use super::super::task::{Sequence, Task, TaskId};
use crate::Time;
use crate::limits::MAX_RECOVERIES_PER_TASK;
use crate::pdu_reader::RxPdu;

/// How long data that is due may stay away before it is requested again.
pub(crate) const DATA_LIMIT: Duration = Duration::from_secs(10);

/// How a Data-Out PDU relates to its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Place {
    /// The next one, perhaps after some that were lost.
    Fits,
    /// It arrived before.
    Duplicate,
    /// Neither: the initiator contradicts itself.
    Wrong,
}

/// Places a PDU in its sequence, by its numbers.
//= rfc7143 7.9 ERL-03
pub(in super::super) fn place(sequence: &Sequence, data: &DataOut, len: usize) -> Place {
    let ahead = sequence.data_sn.distance_to(data.data_sn);
    let ends = u64::from(data.buffer_offset) + len as u64;
    if ahead > u32::MAX / 2 {
        return Place::Duplicate;
    }
    let advances = match ahead {
        0 => data.buffer_offset == sequence.next_offset,
        _ => data.buffer_offset > sequence.next_offset,
    };
    if advances && ends <= u64::from(sequence.end) { Place::Fits } else { Place::Wrong }
}

/// Takes a PDU that fits into the first of the task's sequences, and notes the holes that it reveals.
//= rfc7143 7.1.4.1 ERL-04
pub(in super::super) fn take(task: &mut Task, rx: &RxPdu, data: &DataOut) {
    let Some(sequence) = task.sequences.front_mut() else { return };
    let (expected, end) = (sequence.next_offset, data.buffer_offset + rx.data.len() as u32);
    sequence.next_offset = end;
    sequence.data_sn = data.data_sn.next();
    let missing_until = if rx.data_digest_ok { data.buffer_offset } else { end };
    if missing_until > expected {
        add_hole(task, expected, missing_until);
    }
    if rx.data_digest_ok && !rx.data.is_empty() {
        task.place_behind_hole(data.buffer_offset, &rx.data);
    }
}

/// Notes bytes that must be requested again.
pub(in super::super) fn add_hole(task: &mut Task, from: u32, to: u32) {
    let repair = task.repair();
    repair.recoveries = repair.recoveries.saturating_add(1);
    repair.holes.push((from, to));
    if repair.recoveries > MAX_RECOVERIES_PER_TASK {
        task.condemn(Condition::ProtocolServiceCrcError);
    }
}

/// Stops waiting for the first sequence of a task: its missing data is a hole.
fn give_up_first_sequence(task: &mut Task) {
    let Some(sequence) = task.sequences.pop_front() else { return };
    task.repair().stale.push(sequence.ttt);
    if sequence.next_offset < sequence.end {
        add_hole(task, sequence.next_offset, sequence.end);
    }
}

/// The sequence at `position` has started. The initiator keeps their order, so the missing data of the earlier ones is lost.
pub(in super::super) fn skip_to(task: &mut Task, position: usize) {
    for _ in 0..position {
        give_up_first_sequence(task);
    }
}

impl TargetSession {
    /// Notes that data is due. Whether it is overdue is not worked out for each PDU, but when it first can be: `poll_timeout` is
    /// called all the time.
    pub(in super::super) fn expect_data(&mut self) {
        if self.params.level().recovers_pdus() {
            self.writes.expect(self.now + DATA_LIMIT);
        }
    }

    /// Tasks for which data is due, and when it becomes overdue.
    fn due_data(&self) -> impl Iterator<Item = (TaskId, Time)> {
        let waiting = self.tasks.iter().filter(|(_, task)| task.expects_data() && !task.orphan);
        waiting.map(|(id, task)| (id, task.progress + DATA_LIMIT))
    }

    /// Sets the time at which data first becomes overdue.
    pub(in super::super) fn look_for_due_data(&mut self) {
        self.writes.set_due(self.due_data().map(|(_, at)| at).min());
    }

    /// Requests overdue data again.
    //= rfc7143 7.1.4.1 ERL-04
    pub(in super::super) fn expire_data(&mut self) {
        let now = self.now;
        if self.writes.due().is_none_or(|at| at > now) {
            return;
        }
        let late: SmallVec<[TaskId; 4]> =
            self.due_data().filter(|(_, at)| *at <= now).map(|(id, _)| id).collect();
        for id in late {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.progress = now;
            give_up_first_sequence(task);
            self.after_data(id);
        }
        self.look_for_due_data();
    }
}
