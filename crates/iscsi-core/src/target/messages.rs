//! PDUs that a session sends on its own, and how its PDUs are numbered: rejects, pings, windows that open
//! (RFC 7143 4.2.2, 11.17-11.19).

use bytes::Bytes;
use iscsi_wire::{
    Bhs, Cid, DataSn, Itt, Lun, NopIn, NopOut, Opcode, Reject, RejectReason, ResponseNumbers, Ttt,
};

use super::actions::{Action, CloseReason};
use super::session::{Queued, TargetSession};
use crate::error::{Disposition, Fault};
use crate::limits::MAX_PING_BYTES;
use crate::negotiation::Role;
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

impl TargetSession {
    /// Acts on a fault as the table of dispositions says.
    pub(super) fn fault(&mut self, cid: Cid, rx: &RxPdu, fault: Fault) {
        match Disposition::of(fault, self.params.level(), Role::Target) {
            Disposition::Reject(reason) => self.reject(cid, rx, reason),
            // The task handles it: see `take_data`.
            Disposition::AskAgain | Disposition::FailTask => {}
            Disposition::DropConnection => {
                self.lose_connection(cid, CloseReason::Violation(format!("{fault:?}")))
            }
            Disposition::DropSession => self.close_session(CloseReason::Violation(format!(
                "a {} PDU contradicts itself (RFC 7143 7.7)",
                Opcode::try_from(rx.bhs.opcode()).map_or("unknown", Opcode::name)
            ))),
        }
    }

    /// Rejects a PDU, and returns its header.
    //= rfc7143 11.17 REJ-01 REJ-03
    pub(super) fn reject(&mut self, cid: Cid, rx: &RxPdu, reason: RejectReason) {
        self.reject_snack(cid, rx, reason, DataSn(0));
    }

    /// As [`Self::reject`], for a SNACK: with the next DataSN or R2TSN of its task.
    //= rfc7143 11.17.2 SNK-05
    pub(super) fn reject_snack(&mut self, cid: Cid, rx: &RxPdu, reason: RejectReason, data_sn: DataSn) {
        let Some(n) = self.numbers(cid, true) else { return };
        self.count_reject();
        let reject = Reject { reason, numbers: n, data_sn };
        self.send_status(cid, TxPdu::with_data(reject.to_bhs(), Bytes::copy_from_slice(rx.bhs.as_bytes())));
    }

    //= rfc7143 11.18 NOP-01 NOP-02
    pub(super) fn handle_nop_out(&mut self, cid: Cid, rx: &RxPdu, nop: NopOut) {
        if nop.itt.is_reserved() {
            // The answer to one of our pings, or a mere acknowledgement: neither is answered.
            //= rfc7143 11.18 NOP-05
            if !nop.immediate {
                return self.fault(cid, rx, Fault::InvalidField);
            }
            if nop.ttt.is_reserved() {
                self.stop_acknowledged(cid, nop.lun, nop.exp_stat_sn);
            }
            return;
        }
        if !nop.ttt.is_reserved() {
            return self.fault(cid, rx, Fault::Format);
        }
        //= rfc7143 4.2.2.1 NUM-03
        if !nop.immediate && !self.window.admits(nop.cmd_sn) {
            return;
        }
        // Data that does not fit into the answer is not kept.
        let answered = self.connection_params(cid).map_or(0, |p| p.max_send_data_segment_length as usize);
        let kept = rx.data.len().min(MAX_PING_BYTES).min(answered);
        let Some(data) = self.data_for(nop.immediate, nop.cmd_sn, &rx.data[..kept]) else {
            return self.reject(cid, rx, RejectReason::LongOperationReject);
        };
        self.arrive(nop.immediate, nop.cmd_sn, Queued::NopOut(cid, nop, data));
    }

    pub(super) fn answer_ping(&mut self, cid: Cid, nop: &NopOut, mut data: Bytes) {
        let Some(connection) = self.connection(cid) else { return };
        data.truncate(connection.params.max_send_data_segment_length as usize);
        self.send_nop_in(cid, Lun(0), nop.itt, Ttt::RESERVED, data, true);
    }

    pub(super) fn ping(&mut self, cid: Cid) {
        let ttt = self.next_ttt();
        if let Some(connection) = self.connection(cid) {
            connection.pinged = true;
        }
        //= rfc7143 11.19 NOP-04
        self.send_nop_in(cid, Lun(0), Itt::RESERVED, ttt, Bytes::new(), false);
    }

    /// Places of the command window that are taken: by running commands, by aborted ones that are not gone yet, by task
    /// management requests not yet answered, and by responses that wait for a fence.
    fn occupied(&self) -> usize {
        self.tasks.occupied() + self.aborts.managing() + self.fences.waiting()
    }

    /// Announces a window that has opened when no other PDU is to be sent.
    //= rfc7143 11.4.11 NUM-07
    pub(super) fn announce_window(&mut self) {
        let was_closed = self.window.is_announced_closed();
        self.window.reopen(self.occupied());
        if was_closed
            && !self.window.is_closed()
            && let Some(cid) = self.any_connection()
        {
            self.send_nop_in(cid, Lun(0), Itt::RESERVED, Ttt::RESERVED, Bytes::new(), false);
        }
    }

    fn send_nop_in(&mut self, cid: Cid, lun: Lun, itt: Itt, ttt: Ttt, data: Bytes, counts: bool) {
        let Some(n) = self.numbers(cid, counts) else { return };
        let nop = NopIn { lun, itt, ttt, numbers: n };
        let pdu = TxPdu::with_data(nop.to_bhs(), data);
        if counts { self.send_status(cid, pdu) } else { self.send(cid, pdu) }
    }

    /// The numbers of the next PDU on `cid`; `counts` says whether it takes a StatSN.
    //= rfc7143 4.2.2.2 NUM-09
    pub(super) fn numbers(&mut self, cid: Cid, counts: bool) -> Option<ResponseNumbers> {
        self.window.reopen(self.occupied());
        let connection = self.connection(cid)?;
        let stat_sn = connection.stat_sn;
        if counts {
            connection.stat_sn = stat_sn.next();
        }
        let (exp_cmd_sn, max_cmd_sn) = self.window.announce();
        Some(ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn })
    }

    pub(super) fn send(&mut self, cid: Cid, pdu: TxPdu) {
        self.act(Action::Send { cid, pdu });
    }

    /// Sends a PDU that took a StatSN and ends no command.
    pub(super) fn send_status(&mut self, cid: Cid, pdu: TxPdu) {
        self.send_status_of(cid, pdu, Itt::RESERVED);
    }

    /// Sends the status of the command `itt`.
    pub(super) fn send_status_of(&mut self, cid: Cid, pdu: TxPdu, itt: Itt) {
        if self.params.level().recovers_pdus() {
            self.retain_status(cid, &pdu, itt);
        }
        self.send(cid, pdu);
    }

    /// Sends a PDU without data that takes a StatSN.
    pub(super) fn bhs_pdu(&mut self, cid: Cid, make: impl FnOnce(ResponseNumbers) -> Bhs) {
        if let Some(numbers) = self.numbers(cid, true) {
            self.send_status(cid, TxPdu::header_only(make(numbers)));
        }
    }
}
