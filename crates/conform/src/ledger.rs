//! What an initiator can see of a target's numbering and PDU format, checked on every PDU received.
//!
//! A finding belongs to the row of the conformance table whose rule is broken, whichever row's script was
//! running.

use crate::frame::Received;
use iscsi_wire::{Bhs, CmdSn, DataIn, Opcode, Pdu, ResidualCount, StatSn};

/// Maximum number of findings per connection.
const MAX_FINDINGS: usize = 64;

/// A rule that the other end broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The row of the conformance table.
    pub row: &'static str,
    /// A description of what happened.
    pub words: String,
}

/// Counters of one connection as the initiator sees them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The StatSN that the next response must carry; `None` before the first response.
    pub next_stat_sn: Option<StatSn>,
    /// The newest ExpCmdSN.
    pub exp_cmd_sn: Option<CmdSn>,
    /// The newest MaxCmdSN.
    pub max_cmd_sn: Option<CmdSn>,
    /// Responses from this StatSN on are not acknowledged, and may be sent again.
    pub held: Option<StatSn>,
    /// ErrorRecoveryLevel of the session.
    pub error_recovery_level: u32,
    /// MaxRecvDataSegmentLength that we declared, in bytes; 0 if unknown.
    pub max_recv_data_segment_length: usize,
    /// Rules seen broken.
    pub findings: Vec<Finding>,
}

impl Ledger {
    /// ExpStatSN to send: acknowledges everything received, or what came before [`Ledger::hold`].
    pub fn exp_stat_sn(&self) -> StatSn {
        self.held.or(self.next_stat_sn).unwrap_or_default()
    }

    /// Acknowledges no further response from here on, as if those that come had been lost.
    pub fn hold(&mut self) {
        self.held = Some(self.next_stat_sn.unwrap_or_default());
    }

    /// Acknowledges everything received again.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Notes a broken rule of `row`.
    pub fn find(&mut self, row: &'static str, words: impl Into<String>) {
        let finding = Finding { row, words: words.into() };
        if self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Accounts for a PDU of the target.
    pub fn received(&mut self, rx: &Received) {
        self.check_form(rx);
        let Ok(pdu) = rx.pdu() else {
            let row = match Opcode::try_from(rx.bhs.opcode()) {
                Ok(_) => "PDU-03",
                Err(_) => "PDU-05",
            };
            self.find(row, format!("the target sent {}", rx.line()));
            return;
        };
        if pdu.opcode().is_initiator() {
            self.find("PDU-05", format!("the target sent an initiator's PDU: {}", rx.line()));
            return;
        }
        if let Pdu::LoginResponse(response) = &pdu
            && !response.status.is_success()
        {
            return;
        }
        self.check_reserved(&pdu, rx);
        self.check_relations(&pdu, rx);
        self.count(&pdu, rx);
    }

    /// Padding, segments where none belong, and lengths above what we declared.
    fn check_form(&mut self, rx: &Received) {
        if rx.padding.iter().any(|byte| *byte != 0) {
            self.find("PDU-01", format!("padding {:02x?} in {}", rx.padding, rx.line()));
            self.find("PDU-10", format!("padding {:02x?} in {}", rx.padding, rx.line()));
        }
        if !rx.ahs.is_empty() {
            self.find("PDU-06", format!("AHS in {}", rx.line()));
        }
        let bare = matches!(
            Opcode::try_from(rx.bhs.opcode()),
            Ok(Opcode::R2t | Opcode::TaskManagementResponse | Opcode::LogoutResponse)
        );
        if bare && rx.bhs.data_segment_length() != 0 {
            self.find("PDU-06", format!("a data segment in {}", rx.line()));
        }
        let limit = self.max_recv_data_segment_length;
        if limit != 0 && rx.data.len() > limit {
            let words = format!("{} data bytes above our MaxRecvDataSegmentLength {limit}", rx.data.len());
            self.find("DAT-01", format!("{words}: {}", rx.line()));
        }
    }

    /// A header written again from its fields has its reserved bits zero.
    fn check_reserved(&mut self, pdu: &Pdu, rx: &Received) {
        let mut again = pdu.to_bhs();
        again.set_data_segment_length(rx.bhs.data_segment_length());
        again.set_total_ahs_length(rx.bhs.total_ahs_length());
        let differ = (0..Bhs::SIZE).filter(|at| again.as_bytes()[*at] != rx.bhs.as_bytes()[*at]);
        // Bytes 16-19 of Reject and Async are fixed, not reserved; REJ-01 looks at them.
        let fixed = matches!(pdu, Pdu::Reject(_) | Pdu::AsyncMessage(_));
        let differ: Vec<usize> = differ.filter(|at| !(fixed && (16..20).contains(at))).collect();
        if !differ.is_empty() {
            let name = pdu.opcode().name();
            self.find("PDU-02", format!("reserved bits set in bytes {differ:?} of {name}: {:?}", rx.bhs));
        }
    }

    fn check_relations(&mut self, pdu: &Pdu, rx: &Received) {
        match pdu {
            Pdu::DataIn(p) => self.check_data_in(p, rx),
            Pdu::NopIn(p) if !p.itt.is_reserved() && !p.ttt.is_reserved() => {
                self.find("NOP-01", format!("both ITT and TTT valid: {}", rx.line()));
            }
            Pdu::Reject(p) => {
                if rx.u32_at(16) != 0xffff_ffff {
                    self.find("REJ-01", format!("bytes 16-19 are {:08x}, not ffffffff", rx.u32_at(16)));
                }
                if p.reason == iscsi_wire::RejectReason::NegotiationReset {
                    self.find("REJ-03", "Reject with reason 0x0b".to_owned());
                }
                if rx.data.len() < Bhs::SIZE {
                    self.find("REJ-01", format!("{} bytes of the offending header", rx.data.len()));
                }
            }
            Pdu::R2t(p) if p.ttt.is_reserved() || p.desired_data_transfer_length == 0 => {
                self.find("R2T-01", rx.line());
            }
            Pdu::TextResponse(p) if p.final_bit != p.ttt.is_reserved() => {
                self.find("TXR-01", format!("F and TTT contradict each other: {}", rx.line()));
            }
            Pdu::ScsiResponse(p) if p.response == 0 && p.status == 2 && rx.data.len() < 2 => {
                self.find("RSP-01", format!("CHECK CONDITION without sense: {}", rx.line()));
            }
            Pdu::ScsiResponse(p) => self.check_residual(p.residual_count, rx),
            _ => {}
        }
    }

    fn check_residual(&mut self, count: ResidualCount, rx: &Received) {
        let bytes = count.bytes;
        match (count.overflow, count.underflow) {
            (true, true) => self.find("RES-01", format!("both O and U: {}", rx.line())),
            (false, false) if bytes != 0 => {
                self.find("RES-01", format!("Residual Count {bytes} without O and U: {}", rx.line()));
            }
            _ => {}
        }
    }

    fn check_data_in(&mut self, p: &DataIn, rx: &Received) {
        if p.status_bit && !p.final_bit {
            self.find("DAT-08", format!("S without F: {}", rx.line()));
        }
        if !p.status_bit && (p.residual_count != ResidualCount::default() || p.status != 0) {
            self.find("DAT-08", format!("status fields without S: {}", rx.line()));
        }
        if p.status_bit {
            self.check_residual(p.residual_count, rx);
        }
        if p.acknowledge && self.error_recovery_level == 0 {
            self.find("SNK-08", format!("A bit at ErrorRecoveryLevel 0: {}", rx.line()));
        }
    }

    /// StatSN, ExpCmdSN and MaxCmdSN.
    fn count(&mut self, pdu: &Pdu, rx: &Received) {
        let stat_sn = StatSn(rx.u32_at(24));
        let (carries, advances) = match pdu {
            Pdu::DataIn(p) => (p.status_bit, p.status_bit),
            Pdu::R2t(_) => (true, false),
            Pdu::NopIn(p) => (true, !p.itt.is_reserved()),
            _ => (true, true),
        };
        // A response that is not acknowledged may be sent again on request.
        let again = self.error_recovery_level > 0
            && self.held.is_some_and(|held| held.le(stat_sn))
            && self.next_stat_sn.is_some_and(|next| stat_sn.lt(next));
        if carries && !again {
            if let Some(expected) = self.next_stat_sn
                && expected != stat_sn
            {
                self.find("NUM-09", format!("StatSN {expected} was due: {}", rx.line()));
            }
            self.next_stat_sn = Some(if advances { stat_sn.next() } else { stat_sn });
        }
        let (exp, max) = (CmdSn(rx.u32_at(28)), CmdSn(rx.u32_at(32)));
        if max.lt(CmdSn(exp.0.wrapping_sub(1))) {
            self.find("NUM-05", format!("MaxCmdSN below ExpCmdSN - 1: {}", rx.line()));
            return;
        }
        if let Some(before) = self.exp_cmd_sn
            && exp.lt(before)
        {
            self.find("NUM-05", format!("ExpCmdSN went back from {before}: {}", rx.line()));
            return;
        }
        self.exp_cmd_sn = Some(exp);
        if self.max_cmd_sn.is_none_or(|before| before.lt(max)) {
            self.max_cmd_sn = Some(max);
        }
    }
}
