//! SNACK: the initiator requests PDUs again, or acknowledges Data-In (RFC 7143 7.8, 7.9, 11.16).
//!
//! PDUs are resent as they were first sent, except for the numbers of the command window and the StatSN of R2Ts. A request for
//! PDUs that were never sent or are already acknowledged is a protocol error. A request for dropped data, and one repeated too
//! often, is refused by policy: Reject 03, and a command without status yet ends with ABORTED COMMAND, failed retransmission
//! request.

use iscsi_wire::{
    Cid, DataSn, Itt, R2t, R2tSn, RejectReason, ResponseNumbers, SnackRequest, SnackType, StatSn,
};

use super::super::sense::Condition;
use super::super::session::TargetSession;
use super::super::task::TaskId;
use super::retained::{Outcome, SentStatus};
use crate::limits::{MAX_REPLAYED_PDUS, MAX_SNACKS_PER_TASK};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

/// Why a SNACK is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    reason: RejectReason,
    /// DataSN or R2TSN that would come next for the task.
    next: u32,
}

impl Refused {
    fn protocol(next: u32) -> Self {
        Self { reason: RejectReason::ProtocolError, next }
    }

    fn policy(next: u32) -> Self {
        Self { reason: RejectReason::SnackReject, next }
    }

    fn with(reason: RejectReason) -> Self {
        Self { reason, next: 0 }
    }
}

/// The numbers from..to that a SNACK requests; all of them must be sent and unacknowledged.
fn run(request: &SnackRequest, acknowledged: u32, next: u32) -> Result<(u32, u32), Refused> {
    let sent = next.wrapping_sub(acknowledged);
    if request.beg_run == 0 && request.run_length == 0 {
        return Ok((acknowledged, next));
    }
    let skipped = request.beg_run.wrapping_sub(acknowledged);
    let length = match request.run_length {
        0 => sent.wrapping_sub(skipped),
        length => length,
    };
    //= rfc7143 11.16 SNK-05
    if skipped >= sent || length > sent - skipped {
        return Err(Refused::protocol(next));
    }
    Ok((request.beg_run, request.beg_run.wrapping_add(length)))
}

impl TargetSession {
    /// Handles a SNACK in a session above ErrorRecoveryLevel 0.
    //= rfc7143 11.16 ERL-02 SNK-05 SNK-06
    pub(in super::super) fn handle_snack(&mut self, cid: Cid, rx: &RxPdu, request: &SnackRequest) {
        let done = match request.snack_type {
            SnackType::Status => self.replay_statuses(cid, request),
            SnackType::DataAck => self.take_data_ack(cid, request),
            SnackType::DataOrR2t | SnackType::RData => self.replay_for_task(cid, request),
        };
        match done {
            Ok(()) if request.snack_type == SnackType::DataAck => {}
            Ok(()) => self.recovery_counts.snacks_answered += 1,
            Err(Refused { reason, next }) => {
                self.recovery_counts.snacks_refused += 1;
                self.reject_snack(cid, rx, reason, DataSn(next));
                if reason == RejectReason::SnackReject {
                    self.end_refused(cid, request.itt);
                }
            }
        }
    }

    /// Counts `pdus` that are to be resent on `cid`; false when the limit does not allow them.
    fn may_replay(&mut self, cid: Cid, pdus: u32) -> bool {
        let Some(connection) = self.connection(cid) else { return false };
        let replayed = connection.replayed.saturating_add(pdus);
        if replayed > MAX_REPLAYED_PDUS {
            return false;
        }
        connection.replayed = replayed;
        self.recovery_counts.pdus_replayed += u64::from(pdus);
        true
    }

    //= rfc7143 11.16.1 SNK-02
    fn replay_statuses(&mut self, cid: Cid, request: &SnackRequest) -> Result<(), Refused> {
        if !request.itt.is_reserved() || !request.ttt.is_reserved() {
            return Err(Refused::with(RejectReason::InvalidPduField));
        }
        let Some(connection) = self.connection(cid) else { return Ok(()) };
        let (acknowledged, next) = (connection.acknowledged, connection.stat_sn);
        let (from, to) = run(request, acknowledged.0, next.0)?;
        let first = StatSn(next.0.wrapping_sub(connection.statuses.len() as u32));
        if StatSn(from).lt(first) {
            return Err(Refused::policy(0));
        }
        let (start, count) = (first.distance_to(StatSn(from)), to.wrapping_sub(from));
        let mut pdus = Vec::new();
        for ahead in 0..count {
            let status = self.connection(cid).and_then(|c| c.statuses.get((start + ahead) as usize));
            let Some(SentStatus { pdu, itt }) = status else { return Err(Refused::policy(0)) };
            let (pdu, itt) = (pdu.clone(), *itt);
            let pdu = pdu.or_else(|| self.status_in_data(cid, itt, StatSn(from).add(ahead)));
            pdus.push(pdu.ok_or(Refused::policy(0))?);
        }
        if !self.may_replay(cid, count) {
            return Err(Refused::policy(0));
        }
        for mut pdu in pdus {
            let Some(n) = self.numbers(cid, false) else { return Ok(()) };
            pdu.bhs.set_command_window(n.exp_cmd_sn, n.max_cmd_sn);
            self.send(cid, pdu);
        }
        Ok(())
    }

    /// The initiator has Data-In up to a number: it will not request that again.
    //= rfc7143 11.16.2 SNK-03
    fn take_data_ack(&mut self, cid: Cid, request: &SnackRequest) -> Result<(), Refused> {
        let invalid = Err(Refused::with(RejectReason::InvalidDataAck));
        if request.run_length != 0 || request.ttt.is_reserved() {
            return invalid;
        }
        let Some(itt) = self.retained.itt_of_ttt(request.ttt) else { return invalid };
        let Some(mut outcome) = self.retained.take(itt) else { return invalid };
        let plan = &mut outcome.plan;
        let valid = outcome.cid == cid
            && outcome.lun == request.lun
            && (plan.acked_sn..=plan.next_sn).contains(&request.beg_run);
        if valid {
            plan.acked_offset = plan.offset_of(request.beg_run);
            plan.acked_sn = request.beg_run;
            if plan.acked_offset == plan.total {
                outcome.data_in = Default::default();
            }
        }
        self.retained.put_back(outcome);
        if valid { Ok(()) } else { invalid }
    }

    fn replay_for_task(&mut self, cid: Cid, request: &SnackRequest) -> Result<(), Refused> {
        let resegments = request.snack_type == SnackType::RData;
        //= rfc7143 11.16.3 SNK-04
        let well_formed = match resegments {
            true => {
                request.beg_run == 0
                    && request.run_length == 0
                    && request.ttt.0 != 0
                    && !request.ttt.is_reserved()
            }
            false => request.ttt.is_reserved(),
        };
        if !well_formed || request.itt.is_reserved() {
            return Err(Refused::with(RejectReason::InvalidPduField));
        }
        if let Some(id) = self.tasks.find(request.itt) {
            return self.replay_for_running(cid, id, request);
        }
        // A command that is not known has completed, and its status is acknowledged: nothing more is owed for it.
        let Some(mut outcome) = self.retained.take(request.itt) else { return Err(Refused::protocol(0)) };
        let result = self.replay_for_ended(cid, &mut outcome, request);
        self.retained.put_back(outcome);
        result
    }

    /// The command has no status yet: only R2Ts were sent for it.
    //= rfc7143 11.16 SNK-01
    fn replay_for_running(&mut self, cid: Cid, id: TaskId, request: &SnackRequest) -> Result<(), Refused> {
        let Some(task) = self.tasks.get_mut(id) else { return Err(Refused::protocol(0)) };
        let next = task.next_data_sn;
        if task.home() != Some(cid) {
            return Err(Refused::protocol(next));
        }
        let repair = task.repair();
        if repair.snacks >= MAX_SNACKS_PER_TASK {
            return Err(Refused::policy(next));
        }
        repair.snacks += 1;
        if request.snack_type == SnackType::RData {
            repair.snack_tag = request.ttt.0;
            return Ok(());
        }
        // R2Ts are answered in order, so the unanswered ones are the last.
        let outstanding = task.sequences.iter().filter(|s| !s.ttt.is_reserved());
        let first = outstanding.map(|s| s.r2t_sn).min().unwrap_or(next);
        let (from, to) = run(request, first, next)?;
        let wanted: Vec<R2t> = task
            .sequences
            .iter()
            .filter(|s| !s.ttt.is_reserved() && (from..to).contains(&s.r2t_sn))
            .map(|s| R2t {
                lun: task.lun(),
                itt: task.itt(),
                ttt: s.ttt,
                numbers: ResponseNumbers::default(),
                r2t_sn: R2tSn(s.r2t_sn),
                buffer_offset: s.start,
                desired_data_transfer_length: s.end - s.start,
            })
            .collect();
        if !self.may_replay(cid, wanted.len() as u32) {
            return Err(Refused::policy(next));
        }
        for mut r2t in wanted {
            let Some(n) = self.numbers(cid, false) else { return Ok(()) };
            r2t.numbers = n;
            self.send(cid, TxPdu::header_only(r2t.to_bhs()));
        }
        Ok(())
    }

    /// The command has completed: its Data-In is sent again.
    //= rfc7143 11.16 SNK-01 SNK-04
    fn replay_for_ended(
        &mut self,
        cid: Cid,
        outcome: &mut Outcome,
        request: &SnackRequest,
    ) -> Result<(), Refused> {
        let next = outcome.plan.next_sn;
        if outcome.home() != Some(cid) {
            return Err(Refused::protocol(next));
        }
        if outcome.is_evicted() || !outcome.may_answer_snack() {
            return Err(Refused::policy(next));
        }
        if request.snack_type == SnackType::RData {
            let Some(connection) = self.connection(cid) else { return Ok(()) };
            let max_pdu = connection.params.max_send_data_segment_length;
            let pdus = outcome.plan.pdus_to_resend(max_pdu);
            if !self.may_replay(cid, pdus.saturating_add(1)) {
                return Err(Refused::policy(next));
            }
            outcome.plan.restart(max_pdu);
            outcome.report.snack_tag = request.ttt.0;
            outcome.in_data = false;
            self.send_data_in(cid, outcome);
            self.resend_response(cid, outcome);
            return Ok(());
        }
        let (from, to) = run(request, outcome.plan.acked_sn, next)?;
        if !self.may_replay(cid, to - from) {
            return Err(Refused::policy(next));
        }
        for data_sn in from..to {
            let offset = outcome.plan.offset_of(data_sn);
            self.send_data_in_pdu(cid, outcome, data_sn, offset);
        }
        Ok(())
    }

    /// A SNACK was refused by policy: the command can no longer succeed.
    //= rfc7143 7.8 SNK-06
    fn end_refused(&mut self, cid: Cid, itt: Itt) {
        let Some(id) = self.tasks.find(itt) else { return };
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.home() == Some(cid)) else { return };
        task.condemn(Condition::SnackRejected);
        self.after_data(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi_wire::{Lun, Ttt};

    fn asks(beg_run: u32, run_length: u32) -> SnackRequest {
        SnackRequest {
            snack_type: SnackType::DataOrR2t,
            lun: Lun(0),
            itt: Itt(1),
            ttt: Ttt::RESERVED,
            exp_stat_sn: StatSn(0),
            beg_run,
            run_length,
        }
    }

    // covers: SNK-05, NUM-04
    #[test]
    fn snk_05_runs_lie_between_what_is_acknowledged_and_what_was_sent() {
        for (beg_run, length, acknowledged, next, expected) in [
            (0, 0, 3, 9, Some((3, 9))),
            (4, 0, 3, 9, Some((4, 9))),
            (4, 2, 3, 9, Some((4, 6))),
            (3, 6, 3, 9, Some((3, 9))),
            (3, 7, 3, 9, None),
            (2, 1, 3, 9, None),
            (9, 0, 3, 9, None),
            (9, 1, 3, 9, None),
            (8, u32::MAX, 3, 9, None),
            (0, 0, 9, 9, Some((9, 9))),
            (0, 1, 0, 1, Some((0, 1))),
            (u32::MAX, 2, u32::MAX - 1, 2, Some((u32::MAX, 1))),
            (0, 1, u32::MAX - 1, 2, Some((0, 1))),
            (3, 0, u32::MAX - 1, 2, None),
        ] {
            let result = run(&asks(beg_run, length), acknowledged, next);
            assert_eq!(result.ok(), expected, "{beg_run}+{length} of {acknowledged}..{next}");
        }
    }
}
