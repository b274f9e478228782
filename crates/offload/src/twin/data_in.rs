//! Data-In: direct placement into the task's memory (RFC 7143 11.7).

use iscsi_wire::{DataIn, DataSn, Itt, ResidualCount};

use super::Host;
use super::connection::Connection;
use super::rx::Verdict;
use super::snack::{Group, Key};
use super::status::Seen;
use super::task::Task;
use crate::encoding::{RawReason, SnackCause, StopReason, TaskDone, TaskResult, residual_flags};

/// SCSI status CHECK CONDITION: it comes with sense data, so never in a Data-In.
const CHECK_CONDITION: u8 = 0x02;

/// Where the number of a PDU stands among those of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the next one.
    Due,
    /// Others before it are missing.
    Ahead,
    /// It was missing: the index of its group.
    Fills(usize),
    /// It has arrived before.
    Duplicate,
}

impl Connection {
    /// Where the DataSN or R2TSN `sn` of a task stands.
    ///
    /// # Errors
    /// Anything but the next one at ErrorRecoveryLevel 0.
    //= rfc7143 7.9 ERL-03
    pub(super) fn place(&self, task: &Task, sn: u32) -> Result<Place, Verdict> {
        let next = DataSn(task.next_sn);
        if DataSn(sn) == next {
            return Ok(Place::Due);
        }
        if !self.recovers() {
            return Err(Verdict::Stop(StopReason::SEQUENCE));
        }
        if DataSn(sn).gt(next) {
            return Ok(Place::Ahead);
        }
        let key = Key::of_task(Itt(task.post.itt));
        Ok(self.snacks.find(key, sn).map_or(Place::Duplicate, Place::Fills))
    }

    /// Handles a Data-In whose digests match.
    pub(super) fn handle_data_in(&mut self, host: &mut Host, pdu: &DataIn, data: &[u8]) -> Verdict {
        match self.place_data_in(host, pdu, data) {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    fn place_data_in(&mut self, host: &mut Host, pdu: &DataIn, data: &[u8]) -> Result<Verdict, Verdict> {
        let (place, offsets) = self.check_data_in(pdu, data.len())?;
        let Some(task) = self.tasks.get(&pdu.itt.0) else { return Err(Verdict::Raw(RawReason::NO_TASK)) };
        let held = task.held_stat_sn;
        if place == Place::Duplicate {
            return Ok(Verdict::Done);
        }
        if pdu.status_bit
            && held != Some(pdu.numbers.stat_sn)
            && self.take_stat_sn(pdu.numbers.stat_sn, host.now_us)? == Seen::Duplicate
        {
            return Err(Verdict::Stop(StopReason::PROTOCOL));
        }
        self.count_data_in(pdu.itt, pdu.data_sn, place, offsets, host.now_us);
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else { return Ok(Verdict::Done) };
        if task.sgl.write(host.memory, pdu.buffer_offset, data).is_err() {
            self.end_task(host, pdu.itt.0, TaskResult::MEMORY);
            return Ok(Verdict::Done);
        }
        task.bytes_received += data.len() as u32;
        if pdu.status_bit {
            task.held_stat_sn = Some(pdu.numbers.stat_sn);
            task.status = Some(TaskDone {
                status: pdu.status,
                residual_flags: flags(pdu.residual_count),
                residual_count: pdu.residual_count.bytes,
                stat_sn: pdu.numbers.stat_sn.0,
                ..TaskDone::default()
            });
        }
        //= rfc7143 11.7.2 SNK-08
        if pdu.acknowledge && self.recovers() {
            self.owe_ack(pdu.itt, pdu.ttt, pdu.lun, pdu.data_sn.next());
        }
        self.acks_due(pdu.itt, host.now_us);
        self.end_if_complete(host, pdu.itt.0);
        Ok(Verdict::Done)
    }

    /// Everything that a Data-In must fulfil before a byte of it is used: where its number stands, and the range of its data.
    //= rfc7143 11.7.6 DAT-02 DAT-03 DAT-06 DAT-08
    fn check_data_in(&self, pdu: &DataIn, length: usize) -> Result<(Place, (u32, u32)), Verdict> {
        const PROTOCOL: Verdict = Verdict::Stop(StopReason::PROTOCOL);
        let task = self.tasks.get(&pdu.itt.0).filter(|task| task.sent);
        let task = task.ok_or(Verdict::Raw(RawReason::NO_TASK))?;
        let end = pdu.buffer_offset.checked_add(length as u32).filter(|end| *end <= task.post.edtl);
        let offsets = (pdu.buffer_offset, end.ok_or(PROTOCOL)?);
        let status_wrong = pdu.status_bit
            && (!pdu.final_bit || pdu.status == CHECK_CONDITION || pdu.residual_count.is_contradictory());
        if !task.reads() || status_wrong {
            return Err(PROTOCOL);
        }
        let place = self.place(task, pdu.data_sn.0)?;
        let fits = match place {
            // A status says that no Data-In follows.
            Place::Due | Place::Ahead if task.status.is_some() => false,
            Place::Due => offsets.0 == task.next_offset,
            Place::Ahead => offsets.0 >= task.next_offset,
            Place::Fills(index) => self.snacks.admits(index, pdu.data_sn.0, offsets),
            Place::Duplicate => true,
        };
        if fits { Ok((place, offsets)) } else { Err(PROTOCOL) }
    }

    /// Counts a Data-In as arrived, and what it shows to be missing as lost.
    fn count_data_in(&mut self, itt: Itt, sn: DataSn, place: Place, offsets: (u32, u32), now_us: u64) {
        let deadline_us = self.snack_deadline(now_us);
        let Some(task) = self.tasks.get_mut(&itt.0) else { return };
        match place {
            Place::Due => task.next_sn = sn.next().0,
            Place::Ahead => {
                let group = Group {
                    begin: task.next_sn,
                    length: DataSn(task.next_sn).distance_to(sn),
                    begin_offset: task.next_offset,
                    end_offset: offsets.0,
                };
                self.snacks.lose(Key::of_task(itt), group, SnackCause::GAP, deadline_us);
                task.next_sn = sn.next().0;
            }
            Place::Fills(index) => self.snacks.fill(index, sn.0, offsets),
            Place::Duplicate => {}
        }
        task.next_offset = task.next_offset.max(offsets.1);
    }

    /// A Data-In has arrived with a data digest that does not match: it is lost. Returns whether a SNACK will request it.
    ///
    /// # Errors
    /// When its header breaks a rule.
    //= rfc7143 7.8 DIG-12
    pub(super) fn lose_data_in(&mut self, pdu: &DataIn, length: usize, now_us: u64) -> Result<bool, Verdict> {
        let (place, offsets) = match self.check_data_in(pdu, length) {
            Err(Verdict::Raw(_)) => {
                return Ok(pdu.status_bit && self.lose_status_pdu(pdu.numbers.stat_sn, now_us));
            }
            checked => checked?,
        };
        let deadline_us = self.snack_deadline(now_us);
        let held = self.tasks.get(&pdu.itt.0).and_then(|task| task.held_stat_sn);
        if pdu.status_bit && place != Place::Duplicate && held != Some(pdu.numbers.stat_sn) {
            // Its replica brings the status again: the number itself is not missing.
            self.take_stat_sn(pdu.numbers.stat_sn, now_us)?;
        }
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else { return Ok(false) };
        if pdu.status_bit && place != Place::Duplicate {
            task.held_stat_sn = Some(pdu.numbers.stat_sn);
        }
        match place {
            Place::Due | Place::Ahead => {
                let group = Group {
                    begin: task.next_sn,
                    length: DataSn(task.next_sn).distance_to(pdu.data_sn.next()),
                    begin_offset: task.next_offset,
                    end_offset: offsets.1,
                };
                self.snacks.lose(Key::of_task(pdu.itt), group, SnackCause::DIGEST, deadline_us);
                task.next_sn = pdu.data_sn.next().0;
                task.next_offset = offsets.1;
                Ok(true)
            }
            Place::Fills(index) => {
                self.snacks.lose_again(index, pdu.data_sn.0, offsets, deadline_us);
                Ok(true)
            }
            Place::Duplicate => Ok(false),
        }
    }
}

/// Bits of [`residual_flags`].
pub(super) fn flags(count: ResidualCount) -> u8 {
    let bit = |on: bool, flag: u8| if on { flag } else { 0 };
    bit(count.overflow, residual_flags::OVERFLOW) | bit(count.underflow, residual_flags::UNDERFLOW)
}
