//! SCSI Response: the end of a task (RFC 7143 11.4).

use iscsi_wire::{DataSn, Itt, ScsiResponse};

use super::Host;
use super::connection::Connection;
use super::data_in::flags;
use super::rx::Verdict;
use super::snack::{END_UNKNOWN, Group, Key};
use crate::encoding::{RawReason, SnackCause, StopReason, TaskDone, TaskResult};
use crate::limits::SENSE_AREA_BYTES;

impl Connection {
    /// Handles a SCSI Response whose digests match.
    pub(super) fn handle_response(&mut self, host: &mut Host, pdu: &ScsiResponse, data: &[u8]) -> Verdict {
        match self.take_response(host, pdu, data) {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    //= rfc7143 11.4 DAT-07 RES-04
    fn take_response(
        &mut self,
        host: &mut Host,
        pdu: &ScsiResponse,
        data: &[u8],
    ) -> Result<Verdict, Verdict> {
        let task = self.tasks.get(&pdu.itt.0).filter(|task| task.sent);
        let task = task.ok_or(Verdict::Raw(RawReason::NO_TASK))?;
        if self.recovers() && self.is_duplicate(pdu.numbers.stat_sn) {
            return Ok(Verdict::Done);
        }
        if pdu.residual_count.is_contradictory() || task.status.is_some() {
            return Err(Verdict::Stop(StopReason::PROTOCOL));
        }
        if task.writes() {
            // R2Ts that are missing are needed no more: the target has decided without the data.
            let itt = pdu.itt;
            self.take_stat_sn(pdu.numbers.stat_sn, host.now_us)?;
            self.snacks.forget_task(itt);
        } else {
            self.take_stat_sn(pdu.numbers.stat_sn, host.now_us)?;
            self.count_promised(pdu, host.now_us);
        }
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else { return Ok(Verdict::Done) };
        let sense = &data[..data.len().min(usize::from(SENSE_AREA_BYTES))];
        let placed = sense.is_empty() || host.memory.write(task.post.sense_addr, sense).is_ok();
        task.held_stat_sn = Some(pdu.numbers.stat_sn);
        task.status = Some(TaskDone {
            status: pdu.status,
            response: pdu.response,
            residual_flags: flags(pdu.residual_count),
            residual_count: pdu.residual_count.bytes,
            sense_bytes: if placed { sense.len() as u16 } else { 0 },
            stat_sn: pdu.numbers.stat_sn.0,
            ..TaskDone::default()
        });
        if placed {
            self.end_if_complete(host, pdu.itt.0);
        } else {
            self.end_task(host, pdu.itt.0, TaskResult::MEMORY);
        }
        Ok(Verdict::Done)
    }

    /// ExpDataSN says how many Data-In PDUs the target sent: those that have not arrived are lost.
    //= rfc7143 7.9 ERL-03
    fn count_promised(&mut self, pdu: &ScsiResponse, now_us: u64) {
        let deadline_us = self.snack_deadline(now_us);
        let recovers = self.recovers();
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else { return };
        let next = DataSn(task.next_sn);
        if !recovers || !task.reads() || !pdu.exp_data_sn.gt(next) {
            return;
        }
        let group = Group {
            begin: next.0,
            length: next.distance_to(pdu.exp_data_sn),
            begin_offset: task.next_offset,
            end_offset: END_UNKNOWN,
        };
        task.next_sn = pdu.exp_data_sn.0;
        self.snacks.lose(Key::of_task(Itt(pdu.itt.0)), group, SnackCause::EXP_DATA_SN, deadline_us);
    }
}
