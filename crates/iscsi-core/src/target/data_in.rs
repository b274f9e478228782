//! From a command's completion by the device server to Data-In and SCSI Response (RFC 7143 11.4, 11.7).

use bytes::Bytes;
use iscsi_wire::{
    Cid, DataIn, DataSn, Itt, Lun, ResidualCount, ResponseNumbers, ScsiResponse, StatSn,
    TaskManagementResponse, Ttt,
};

use super::actions::{Action, Completion};
use super::fence::{Answer, HeldBack};
use super::read_plan::ReadPlan;
use super::recovery::retained::{Outcome, Report};
use super::sense::CHECK_CONDITION;
use super::session::TargetSession;
use super::task::{Ending, State, Task, TaskId};
use crate::pdu_writer::{TxData, TxPdu};

/// Statuses that may travel in a Data-In PDU: those of success (RFC 7143 11.7.3).
const COLLAPSIBLE: [u8; 2] = [0x00, 0x04];

/// The data of one Data-In.
pub(super) struct Piece {
    pub offset: u32,
    pub bytes: Bytes,
    /// It is the last PDU of its sequence.
    pub final_bit: bool,
    /// It is the last PDU of its command.
    pub last: bool,
}

impl TargetSession {
    /// The device server has completed `id`. For a task that was abandoned this counts as [`Self::task_gone`].
    pub fn complete(&mut self, id: TaskId, completion: Completion) {
        let Some(task) = self.tasks.get_mut(id) else { return self.task_gone(id) };
        if task.state == State::Held {
            return;
        }
        if task.ending.is_some() {
            return self.task_gone(id);
        }
        if task.expects_data() {
            // The initiator owes data: the status must not overtake it (RFC 7143 11.4.2).
            //= rfc7143 11.4.2 RSP-01
            task.state = State::Released;
            task.ending = Some(Ending {
                status: completion.status,
                sense: completion.sense,
                transfer_bytes: completion.transfer_bytes,
                shortage: None,
            });
            return;
        }
        self.end_task(id, completion);
    }

    /// Sends the status of a task with a fixed outcome once no more data is due for it, its turn has come, and the device server
    /// has released it: no command that follows the status may meet it on the medium.
    pub(super) fn end_if_settled(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.expects_data() || task.state == State::Held || self.tasks.is_leaving(id) {
            return;
        }
        let Some(Ending { status, sense, transfer_bytes, shortage }) = task.ending.clone() else { return };
        if let Some(shortage) = shortage {
            let lun = task.lun();
            self.act(Action::Refused { lun, shortage });
        }
        self.end_task(id, Completion { status, sense, transfer_bytes, ..Completion::default() });
    }

    /// Removes a task from the table and reports its outcome to the initiator.
    fn end_task(&mut self, id: TaskId, completion: Completion) {
        let Some(task) = self.tasks.get(id) else { return };
        let outcome = self.outcome(task, completion);
        self.remove_task(id);
        self.respond(outcome);
    }

    /// Reports a command's outcome to the initiator, unless a fence holds it back.
    #[inline]
    pub(super) fn respond(&mut self, outcome: Outcome) {
        if self.fences.is_up() && outcome.home().is_some_and(|cid| self.is_held_back(cid)) {
            return self.fences.hold_back(HeldBack::Command(Box::new(outcome)));
        }
        if self.needs_fence(&outcome) {
            return self.send_behind_fence(HeldBack::Command(Box::new(outcome)));
        }
        self.respond_now(outcome);
    }

    /// As [`Self::respond`], regardless of fences.
    #[inline]
    pub(super) fn respond_now(&mut self, mut outcome: Outcome) {
        // Determined only now: while the response waited, the task may have been reassigned to another connection.
        let connection = self.connections.iter().find(|c| c.cid == outcome.cid);
        let max_pdu = connection.map_or(u32::MAX, |c| c.params.max_send_data_segment_length);
        outcome.plan.cut(max_pdu);
        self.deliver(&mut outcome);
        if self.params.level().recovers_pdus() {
            self.retain(outcome);
        }
    }

    #[inline]
    fn outcome(&self, task: &Task, completion: Completion) -> Outcome {
        let read_length = task.read_length();
        let bidi = task.bidi_read_length().is_some();
        let mut data_in = completion.data_in;
        if data_in.bytes.len() > read_length as usize {
            data_in.bytes.truncate(read_length as usize);
        }
        // For a bidirectional command the transfer length is that of the write; the read has a residual of its own.
        //= rfc7143 11.4.6 RES-03
        let residual = ResidualCount::of(
            if task.read() || task.write() { task.edtl() } else { 0 },
            completion.transfer_bytes,
        );
        let bidi_residual = if bidi {
            ResidualCount::of(read_length, data_in.bytes.len() as u64)
        } else {
            ResidualCount::default()
        };
        let snack_tag = task.repair.as_ref().map_or(0, |repair| repair.snack_tag);
        //= rfc7143 11.7.3 DAT-07 DAT-08
        let in_data = !bidi
            && snack_tag == 0
            && !data_in.bytes.is_empty()
            && (self.params.protocol_level < 2
                || completion.sense.is_empty() && completion.status_qualifier == 0)
            && COLLAPSIBLE.contains(&completion.status);
        let (max_burst, total) = (self.params.bursts.max_burst_length, data_in.bytes.len());
        let plan = ReadPlan::new(task.next_data_sn, u32::MAX, max_burst, total);
        let Completion { status, status_qualifier, sense, fenced, .. } = completion;
        let stat_sn = StatSn(0);
        let report = Report { status, status_qualifier, sense, residual, bidi_residual, snack_tag, stat_sn };
        Outcome::new(task, report, (data_in, plan, in_data), fenced)
    }

    /// Sends the unacknowledged data of a command, and its status.
    pub(super) fn deliver(&mut self, outcome: &mut Outcome) {
        let Some(cid) = outcome.home() else { return };
        outcome.in_data &= outcome.plan.acked_offset < outcome.plan.total;
        self.send_data_in(cid, outcome);
        if !outcome.in_data {
            self.send_response(cid, outcome);
        }
    }

    /// Sends the unacknowledged data, in PDUs no longer than the initiator accepts and sequences no longer than MaxBurstLength.
    //= rfc7143 11.7.1 DAT-01 DAT-02
    pub(super) fn send_data_in(&mut self, cid: Cid, outcome: &mut Outcome) {
        let plan = &mut outcome.plan;
        let (mut offset, total) = (plan.acked_offset, plan.total);
        if self.params.level().recovers_pdus() && plan.takes_several_sequences() && plan.ttt.is_reserved() {
            plan.ttt = self.next_ttt();
        }
        if offset < total && outcome.in_data {
            // May be taken before the data is sent: no other status can come in between.
            let Some(stat_sn) = self.take_stat_sn(cid) else { return };
            outcome.report.stat_sn = stat_sn;
        }
        if !self.params.data_order().is_strict() && self.config.send_order.is_drawn() {
            return self.send_data_in_drawn(cid, outcome);
        }
        while offset < total {
            let (end, final_bit) = outcome.plan.pdu_end(offset);
            let bytes = match self.params.error_recovery_level {
                // Nothing is kept for retransmission: the last PDU takes the buffer with it.
                0 => outcome.data_in.bytes.split_to((end - offset) as usize),
                _ => outcome.data_in.bytes.slice(offset as usize..end as usize),
            };
            let data_sn = outcome.plan.next_sn;
            let piece = Piece { offset, bytes, final_bit, last: end == total };
            let Some(pdu) = self.data_in_pdu(cid, outcome, data_sn, piece) else { return };
            offset = end;
            outcome.plan.next_sn += 1;
            match offset == total && outcome.in_data {
                true => self.send_status_of(cid, pdu, outcome.itt),
                false => self.send(cid, pdu),
            }
        }
    }

    /// Rebuilds the Data-In that carried the status `stat_sn` of the command `itt`; `None` when there is none, or its data was
    /// dropped.
    //= rfc7143 11.16.1 SNK-02
    pub(super) fn status_in_data(&mut self, cid: Cid, itt: Itt, stat_sn: StatSn) -> Option<TxPdu> {
        let outcome = self.retained.take(itt)?;
        let plan = &outcome.plan;
        let last_sn = plan.next_sn.wrapping_sub(1);
        let tells = outcome.home() == Some(cid) && outcome.in_data && outcome.report.stat_sn == stat_sn;
        let is_kept = outcome.data_in.bytes.len() == plan.total as usize;
        let offset = plan.offset_of(last_sn);
        let pdu = match tells && is_kept {
            true => self.kept_data_in_pdu(cid, &outcome, last_sn, offset),
            false => None,
        };
        self.retained.put_back(outcome);
        pdu
    }

    /// Sends the PDU of a read whose data begins at `offset`, from the data that is kept.
    pub(super) fn send_data_in_pdu(&mut self, cid: Cid, outcome: &Outcome, data_sn: u32, offset: u32) {
        if let Some(pdu) = self.kept_data_in_pdu(cid, outcome, data_sn, offset) {
            self.send(cid, pdu);
        }
    }

    /// Builds the PDU of a read whose data begins at `offset`, from the data that is kept.
    fn kept_data_in_pdu(&mut self, cid: Cid, outcome: &Outcome, data_sn: u32, offset: u32) -> Option<TxPdu> {
        let (end, final_bit) = outcome.plan.pdu_end(offset);
        let bytes = outcome.data_in.bytes.slice(offset as usize..end as usize);
        self.data_in_pdu(
            cid,
            outcome,
            data_sn,
            Piece { offset, bytes, final_bit, last: end == outcome.plan.total },
        )
    }

    /// Builds the PDU of a read whose data is `piece`.
    #[inline]
    pub(super) fn data_in_pdu(
        &mut self,
        cid: Cid,
        outcome: &Outcome,
        data_sn: u32,
        piece: Piece,
    ) -> Option<TxPdu> {
        let plan = &outcome.plan;
        let Piece { offset, bytes, final_bit, last } = piece;
        let end = offset as usize + bytes.len();
        let status_bit = last && outcome.in_data;
        //= rfc7143 11.7.2 SNK-08
        let acknowledge = final_bit && !last && !plan.ttt.is_reserved();
        let (status, residual) = if status_bit {
            (outcome.report.status, outcome.report.residual)
        } else {
            (0, ResidualCount::default())
        };
        let n = self.numbers(cid, false)?;
        let pdu = DataIn {
            final_bit,
            acknowledge,
            status_bit,
            status,
            lun: if acknowledge { outcome.lun } else { Lun(0) },
            itt: outcome.itt,
            ttt: if acknowledge { plan.ttt } else { Ttt::RESERVED },
            numbers: ResponseNumbers {
                stat_sn: if status_bit { outcome.report.stat_sn } else { StatSn(0) },
                ..n
            },
            data_sn: DataSn(data_sn),
            buffer_offset: offset,
            residual_count: residual,
        };
        let crc32c = outcome.data_in.crc(offset as usize, end);
        Some(TxPdu::with_data(pdu.to_bhs(), TxData { bytes, crc32c }))
    }

    fn send_response(&mut self, cid: Cid, outcome: &mut Outcome) {
        let Some(stat_sn) = self.take_stat_sn(cid) else { return };
        outcome.report.stat_sn = stat_sn;
        if let Some(pdu) = self.response_pdu(cid, outcome) {
            self.send_status_of(cid, pdu, outcome.itt);
        }
    }

    /// Sends the response of a command again, possibly updated, under the StatSN that its status already has.
    //= rfc7143 11.16.3 SNK-04
    pub(super) fn resend_response(&mut self, cid: Cid, outcome: &Outcome) {
        let Some(pdu) = self.response_pdu(cid, outcome) else { return };
        if let Some(connection) = self.connection(cid) {
            connection.statuses.replace(outcome.itt, &pdu);
        }
        self.send(cid, pdu);
    }

    //= rfc7143 11.4.7 RSP-01
    //= rfc7143 11.4.8 RSP-02
    fn response_pdu(&mut self, cid: Cid, outcome: &Outcome) -> Option<TxPdu> {
        let n = self.numbers(cid, false)?;
        let (residual, bidi) = (outcome.report.residual, outcome.report.bidi_residual);
        let response = ScsiResponse {
            response: 0,
            status: outcome.report.status,
            itt: outcome.itt,
            snack_tag: outcome.report.snack_tag,
            numbers: ResponseNumbers { stat_sn: outcome.report.stat_sn, ..n },
            exp_data_sn: DataSn(outcome.plan.next_sn),
            bidi_residual_count: bidi,
            residual_count: residual,
        };
        // Below protocol level 2 sense data goes with CHECK CONDITION only.
        let level_2 = self.params.protocol_level >= 2;
        let sense =
            if level_2 || outcome.report.status == CHECK_CONDITION { &outcome.report.sense[..] } else { &[] };
        let mut data = Vec::new();
        if !sense.is_empty() {
            data.reserve(2 + sense.len());
            data.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            data.extend_from_slice(sense);
        }
        let mut bhs = response.to_bhs();
        //= rfc7144 5 P2-06
        if level_2 {
            ScsiResponse::set_status_qualifier(&mut bhs, outcome.report.status_qualifier);
        }
        Some(TxPdu::with_data(bhs, Bytes::from(data)))
    }

    /// Answers a task management request, regardless of fences.
    pub(super) fn answer_now(&mut self, answer: &Answer) {
        let Answer { cid, itt, response, additional, .. } = *answer;
        let (Some(stat_sn), Some(n)) = (self.take_stat_sn(cid), self.numbers(cid, false)) else { return };
        let answer =
            TaskManagementResponse { response, itt, numbers: ResponseNumbers { stat_sn, ..n }, additional };
        self.send_status(cid, TxPdu::header_only(answer.to_bhs()));
    }
}
