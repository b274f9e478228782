//! Data-In and SCSI Response: the data of a command, and the status that ends it (RFC 7143 11.4, 11.7).
//!
//! Where DataPDUInOrder and DataSequenceInOrder are Yes, the offset of each PDU is known beforehand, and any other is a violation.
//! Otherwise a bounded scoreboard tells what has arrived: see `read_order`. Sequences longer than MaxBurstLength are accepted: offset
//! and end of the data are checked without them, and common targets do not divide reads into sequences.

use iscsi_wire::{Cid, DataIn, DataSn, Itt, ScsiResponse};

use super::actions::{Action, CloseReason, violation};
use super::command::{Ending, Residual};
use super::outcome::{CHECK_CONDITION, Outcome, no_sense, residual_of};
use super::session::InitiatorSession;
use super::task::Task;
use crate::params::{self, DataOrder};
use crate::pdu_reader::RxPdu;

impl InitiatorSession {
    //= rfc7143 11.7 DAT-02 DAT-03 DAT-06 MCS-02
    pub(super) fn handle_data_in(&mut self, cid: Cid, pdu: &DataIn, rx: RxPdu) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        let recovers = self.recovers();
        let asymmetric = self.is_asymmetric();
        let Some(task) = self.tasks.sent_command(pdu.itt) else {
            if pdu.status_bit {
                self.take_stat_sn(cid, pdu.numbers.stat_sn)?;
            }
            return self.late(pdu.itt, "RFC 7143 11.7", "Data-In");
        };
        check_allegiance(task, cid, asymmetric)?;
        let plain = task.holes.is_none() && pdu.data_sn.0 == task.next_data_sn && rx.data_digest_ok;
        if recovers && (!plain || task.is_decided()) {
            return self.recover_data_in(cid, pdu, rx);
        }
        self.accept_data_in(cid, pdu, rx)
    }

    /// Accepts the Data-In that is due.
    #[inline]
    pub(super) fn accept_data_in(&mut self, cid: Cid, pdu: &DataIn, rx: RxPdu) -> Result<(), CloseReason> {
        let order = self.params.data_order();
        let Some(task) = self.tasks.command(pdu.itt) else { return Ok(()) };
        check_data_in(pdu, task, rx.data.len(), order)?;
        if pdu.status_bit && pdu.status == 0 {
            task.check_whole()?;
        }
        let user = task.command.user;
        task.next_data_sn = task.next_data_sn.wrapping_add(1);
        task.received += rx.data.len() as u32;
        if !rx.data_digest_ok {
            //= rfc7143 7.8 DIG-12 DIG-11
            task.decide(Ending::DataDigest);
        } else if !rx.data.is_empty() && !task.is_decided() {
            self.act(Action::DataIn { user, offset: pdu.buffer_offset, data: rx.data });
        }
        //= rfc7143 11.16.2 SNK-03
        if pdu.acknowledge && self.recovers() {
            self.acknowledge_data(cid, pdu);
        }
        //= rfc7143 11.7.3 DAT-07
        if pdu.status_bit {
            let residual = residual_of(pdu.residual_count)?;
            if pdu.status == CHECK_CONDITION {
                return Err(no_sense());
            }
            self.take_stat_sn(cid, pdu.numbers.stat_sn)?;
            self.end_with(
                pdu.itt,
                Outcome::Status { status: pdu.status, sense: bytes::Bytes::new(), residual },
            );
        }
        Ok(())
    }

    //= rfc7143 11.4 DAT-07 RSP-01 MCS-02
    pub(super) fn handle_response(
        &mut self,
        cid: Cid,
        pdu: &ScsiResponse,
        rx: &RxPdu,
    ) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        if self.recovers() && !self.see_stat_sn(cid, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let asymmetric = self.is_asymmetric();
        let Some(task) = self.tasks.sent_command(pdu.itt) else {
            self.take_stat_sn(cid, pdu.numbers.stat_sn)?;
            return self.late(pdu.itt, "RFC 7143 11.4", "a response");
        };
        check_allegiance(task, cid, asymmetric)?;
        let bidi = !task.command.write.is_empty() && task.command.read_length > 0;
        let outcome = Outcome::of(pdu, bidi, &rx.data)?;
        if self.recovers()
            && (self.response_anew(pdu.itt, pdu.snack_tag, pdu.numbers.stat_sn, &outcome)?
                || self.response_waits(cid, pdu.itt, pdu.exp_data_sn.0, pdu.numbers.stat_sn, &outcome))
        {
            return Ok(());
        }
        if outcome.is_good()
            && let Some(task) = self.tasks.command(pdu.itt)
        {
            task.check_whole()?;
        }
        self.take_stat_sn(cid, pdu.numbers.stat_sn)?;
        self.end_with(pdu.itt, outcome);
        Ok(())
    }

    /// Completes a command as its response says.
    //= rfc7143 11.4.5 RES-04
    pub(super) fn end_with(&mut self, itt: Itt, outcome: Outcome) {
        let Some(task) = self.tasks.command(itt) else { return };
        let ending = match outcome {
            Outcome::Failure(response) => Ending::TargetFailure { response },
            Outcome::Status { status, sense, residual } => {
                let expected = task.command.read_length;
                let real = match residual {
                    Residual::Underflow(missing) => expected.saturating_sub(missing),
                    _ => expected,
                };
                let data_in_bytes = task.received_whole().min(real);
                Ending::Status { status, sense, data_in_bytes, residual }
            }
        };
        self.complete(itt, ending);
    }
}

/// All PDUs of a task travel on its own connection; in asymmetric use, on any of those that carry data.
//= rfc7143 4.2.5.1 MCS-02
pub(super) fn check_allegiance(task: &mut Task, cid: Cid, asymmetric: bool) -> Result<(), CloseReason> {
    if task.route.cid == cid || (asymmetric && params::carries_data(cid)) {
        task.route.home = cid;
        return Ok(());
    }
    Err(violation(
        "RFC 7143 4.2.5.1",
        format!("a PDU on connection {} for a task of connection {}", cid.0, task.route.cid.0),
    ))
}

//= rfc7143 11.7 DAT-03 DAT-08
fn check_data_in(pdu: &DataIn, task: &mut Task, length: usize, order: DataOrder) -> Result<(), CloseReason> {
    if pdu.data_sn != DataSn(task.next_data_sn) {
        return Err(violation(
            "RFC 7143 11.7.5",
            format!("DataSN {} where {} was due", pdu.data_sn, task.next_data_sn),
        ));
    }
    if order.is_strict() && pdu.buffer_offset != task.received {
        return Err(violation(
            "RFC 7143 11.7.6",
            format!("Data-In at offset {} where {} was due", pdu.buffer_offset, task.received),
        ));
    }
    if u64::from(pdu.buffer_offset) + length as u64 > u64::from(task.command.read_length) {
        return Err(violation("RFC 7143 11.7.6", "Data-In beyond what the command expects"));
    }
    if pdu.status_bit && !pdu.final_bit {
        return Err(violation("RFC 7143 11.7.3", "Data-In has S without F"));
    }
    task.place(order, pdu, length)
}
