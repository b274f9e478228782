//! What is true of every PDU that a target sends.

use iscsi_core::pdu_reader::RxPdu;
use std::collections::HashMap;

use iscsi_core::wire::{CmdSn, Pdu, ResidualCount, ResponseNumbers, ScsiResponse, StatSn};

#[derive(Default)]
pub struct Audit {
    /// The next StatSN of this connection.
    pub stat_sn: Option<StatSn>,
    pub error_recovery_level: u8,
    pub protocol_level: u8,
    /// Numbered responses as they were sent, without the numbers of the command window.
    sent: HashMap<u32, ([u8; 48], Vec<u8>)>,
    window: Option<(CmdSn, CmdSn)>,
}

impl Audit {
    /// Checks form and numbers of one PDU.
    #[track_caller]
    pub fn check(&mut self, rx: &RxPdu) -> Pdu {
        let parsed = Pdu::parse(&rx.bhs).expect("what a target sends can be read");
        assert!(!parsed.opcode().is_initiator(), "an initiator's opcode: {parsed:?}");
        // PDU-02: undefined bits are zero.
        let mut written = parsed.to_bhs();
        written.set_data_segment_length(rx.data.len());
        if self.protocol_level >= 2 && matches!(parsed, Pdu::ScsiResponse(_)) {
            ScsiResponse::set_status_qualifier(&mut written, ScsiResponse::status_qualifier(&rx.bhs));
        }
        assert_eq!(written, rx.bhs);
        // PDU-06
        let bare = matches!(parsed, Pdu::R2t(_) | Pdu::TaskManagementResponse(_) | Pdu::LogoutResponse(_));
        assert!(!bare || rx.data.is_empty(), "data in {parsed:?}");
        self.numbers(&parsed, rx);
        self.form(&parsed, rx);
        parsed
    }

    /// NUM-05 and NUM-09.
    fn numbers(&mut self, parsed: &Pdu, rx: &RxPdu) {
        let (ResponseNumbers { stat_sn, exp_cmd_sn: exp, max_cmd_sn: max }, counts) = match parsed {
            // In a refusal the other fields have no meaning.
            Pdu::LoginResponse(p) if !p.status.is_success() => return,
            Pdu::LoginResponse(p) => (p.numbers, true),
            Pdu::NopIn(p) => (p.numbers, !p.itt.is_reserved()),
            Pdu::ScsiResponse(p) => (p.numbers, true),
            Pdu::TaskManagementResponse(p) => (p.numbers, true),
            Pdu::TextResponse(p) => (p.numbers, true),
            Pdu::DataIn(p) if p.status_bit => (p.numbers, true),
            Pdu::DataIn(p) => {
                (ResponseNumbers { stat_sn: self.stat_sn.unwrap_or_default(), ..p.numbers }, false)
            }
            Pdu::LogoutResponse(p) => (p.numbers, true),
            Pdu::R2t(p) => (p.numbers, false),
            Pdu::AsyncMessage(p) => (p.numbers, true),
            Pdu::Reject(p) => (p.numbers, true),
            other => panic!("not a target's PDU: {other:?}"),
        };
        let mut header = *rx.bhs.as_bytes();
        header[28..36].fill(0);
        let resent =
            counts && self.error_recovery_level > 0 && self.stat_sn.is_some_and(|next| stat_sn.lt(next));
        if resent {
            // SNK-01, SNK-02: a PDU sent again is unchanged, unless an R-Data SNACK asked for something else.
            let tagged = matches!(parsed, Pdu::ScsiResponse(p) if p.snack_tag != 0);
            let was = &self.sent[&stat_sn.0];
            assert!(tagged || (was.0 == header && was.1 == rx.data), "no replica: {parsed:?}");
        } else {
            assert!(self.stat_sn.is_none_or(|expected| expected == stat_sn), "StatSN of {parsed:?}");
            self.stat_sn = Some(if counts { stat_sn.next() } else { stat_sn });
        }
        if counts {
            self.sent.insert(stat_sn.0, (header, rx.data.to_vec()));
        }
        assert!(max.next().ge(exp), "MaxCmdSN below ExpCmdSN - 1: {parsed:?}");
        if let Some((last_exp, last_max)) = self.window {
            assert!(exp.ge(last_exp) && max.ge(last_max), "the window shrinks: {parsed:?}");
        }
        self.window = Some((exp, max));
    }

    /// Rules that relate the fields of one PDU.
    fn form(&mut self, parsed: &Pdu, rx: &RxPdu) {
        match parsed {
            Pdu::DataIn(p) => {
                assert!(!p.status_bit || p.final_bit, "S without F: {p:?}");
                assert!(
                    p.status_bit || p.residual_count == ResidualCount::default(),
                    "a residual without S: {p:?}"
                );
                assert!(!p.residual_count.is_contradictory());
                assert!(!p.acknowledge || self.error_recovery_level > 0, "A at ErrorRecoveryLevel 0: {p:?}");
                assert!(!p.acknowledge || p.final_bit, "A in the middle of a sequence: {p:?}");
            }
            Pdu::ScsiResponse(p) => {
                let counts = [p.residual_count, p.bidi_residual_count];
                assert!(!counts.iter().any(ResidualCount::is_contradictory));
                let flagless =
                    |count: &ResidualCount| !count.overflow && !count.underflow && count.bytes != 0;
                assert!(!counts.iter().any(flagless), "residual without flag: {p:?}");
                assert!(p.status != 2 || !rx.data.is_empty(), "CHECK CONDITION without sense: {p:?}");
            }
            Pdu::R2t(p) => {
                assert!(!p.ttt.is_reserved() && p.desired_data_transfer_length > 0);
            }
            Pdu::TextResponse(p) => {
                assert_eq!(p.final_bit, p.ttt.is_reserved(), "F and TTT: {p:?}");
                assert!(!(p.final_bit && p.continue_bit));
            }
            Pdu::LoginResponse(p) => {
                assert_eq!(p.version_active, 0);
                assert!(!(p.transit && p.continue_bit));
            }
            Pdu::NopIn(p) => assert!(p.itt.is_reserved() || p.ttt.is_reserved(), "both tags: {p:?}"),
            _ => {}
        }
    }
}
