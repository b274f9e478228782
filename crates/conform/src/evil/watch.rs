//! The rules that a target can see an initiator keep or break, checked on every PDU received.

use super::session::EvilSession;
use crate::frame::Received;
use crate::ledger::Finding;
use iscsi_wire::{Itt, LoginRequest, NopOut, Opcode, Pdu, ScsiCommand, keys, parse_number};
use std::collections::HashMap;

/// Maximum number of findings per connection.
const MAX_FINDINGS: usize = 64;

/// Rules for the initiator, and the state needed to check them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) findings: Vec<Finding>,
    max_recv: usize,
    first_burst: usize,
    initial_r2t: bool,
    immediate_data: bool,
    logged_out: bool,
}

impl Watch {
    pub(super) fn find(&mut self, row: &'static str, words: impl Into<String>) {
        let finding = Finding { row, words: words.into() };
        if self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    pub(super) fn initiator_name(&mut self, name: &str) {
        let prefix = ["iqn.", "eui.", "naa."].iter().any(|prefix| name.starts_with(prefix));
        let strange = name.chars().any(|c| c.is_control() || c.is_whitespace() || c.is_uppercase());
        if !prefix || strange || name.len() > 223 {
            self.find("NAM-01", format!("InitiatorName={name:?}"));
        }
    }

    pub(super) fn login(&mut self, first: Option<&LoginRequest>, now: &LoginRequest, rx: &Received) {
        self.form(rx);
        match first {
            None => {
                if (now.version_min, now.version_max) != (0, 0) {
                    self.find("LGN-07", format!("versions {} to {}", now.version_min, now.version_max));
                }
            }
            Some(first) => {
                let constant = |request: &LoginRequest| {
                    (request.isid, request.tsih, request.cid, request.itt, request.cmd_sn)
                };
                if constant(first) != constant(now) {
                    self.find("LGN-11", format!("changed in mid-login: {}", rx.line()));
                }
            }
        }
        if now.continue_bit && now.transit {
            self.find("TXT-06", rx.line());
        }
        if rx.data.len() > 8192 {
            self.find("KEY-11", format!("{} bytes of text in a Login request", rx.data.len()));
        }
    }

    /// Full feature phase starts.
    pub(super) fn negotiated(&mut self, results: &HashMap<String, String>, max_recv: Option<&String>) {
        let number = |value: Option<&String>, default: usize| {
            value
                .and_then(|value| parse_number(value).ok())
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(default)
        };
        self.max_recv = number(max_recv, 8192);
        self.first_burst = number(results.get(keys::FIRST_BURST_LENGTH), 65_536)
            .min(number(results.get(keys::MAX_BURST_LENGTH), 262_144));
        self.initial_r2t = results.get(keys::INITIAL_R2T).is_none_or(|value| value != "No");
        self.immediate_data = results.get(keys::IMMEDIATE_DATA).is_none_or(|value| value != "No");
    }

    pub(super) fn received(&mut self, rx: &Received, session: &EvilSession) {
        self.form(rx);
        if self.logged_out {
            self.find("LGO-03", format!("after the logout: {}", rx.line()));
        }
        if rx.data.len() > self.max_recv {
            self.find("DAT-01", format!("above MaxRecvDataSegmentLength {}: {}", self.max_recv, rx.line()));
        }
        let Ok(pdu) = rx.pdu() else {
            self.find("PDU-03", rx.line());
            return;
        };
        if !pdu.opcode().is_initiator() {
            self.find("PDU-05", rx.line());
            return;
        }
        if let Some((row, words)) = session.number_of(&pdu, rx) {
            self.find(row, words);
        }
        match &pdu {
            Pdu::ScsiCommand(command) => self.command(command, rx),
            Pdu::NopOut(nop) => self.nop(nop, rx),
            Pdu::LogoutRequest(_) => self.logged_out = true,
            _ => {}
        }
    }

    fn form(&mut self, rx: &Received) {
        if rx.padding.iter().any(|byte| *byte != 0) {
            self.find("PDU-01", format!("padding {:02x?}: {}", rx.padding, rx.line()));
        }
        let opcode = Opcode::try_from(rx.bhs.opcode());
        if !rx.ahs.is_empty() && opcode != Ok(Opcode::ScsiCommand) {
            self.find("PDU-06", format!("AHS in {}", rx.line()));
        }
        let bare = matches!(
            opcode,
            Ok(Opcode::TaskManagementRequest | Opcode::LogoutRequest | Opcode::SnackRequest)
        );
        if bare && !rx.data.is_empty() {
            self.find("PDU-06", format!("a data segment in {}", rx.line()));
        }
        if let Ok(pdu) = rx.pdu() {
            let mut again = pdu.to_bhs();
            again.set_data_segment_length(rx.bhs.data_segment_length());
            again.set_total_ahs_length(rx.bhs.total_ahs_length());
            if again != rx.bhs {
                self.find("PDU-02", format!("reserved bits set: {:?}, without them {again:?}", rx.bhs));
            }
        }
    }

    fn command(&mut self, command: &ScsiCommand, rx: &Received) {
        let edtl = command.expected_data_transfer_length as usize;
        if !command.final_bit && (!command.write || self.initial_r2t) {
            self.find("UNS-01", format!("F=0 with InitialR2T=Yes, or without W: {}", rx.line()));
        }
        if !command.final_bit && !command.write {
            self.find("UNS-05", rx.line());
        }
        if !rx.data.is_empty() && (!self.immediate_data || !command.write) {
            self.find("UNS-01", format!("immediate data that was not agreed to: {}", rx.line()));
        }
        if rx.data.len() > self.first_burst.min(edtl) {
            self.find("UNS-03", format!("immediate data above FirstBurstLength or EDTL: {}", rx.line()));
        }
        if command.itt == Itt::RESERVED {
            self.find("RSP-04", format!("a command with the reserved tag: {}", rx.line()));
        }
        if command.read && command.write && rx.ahs.is_empty() {
            self.find("AHS-02", rx.line());
        }
    }

    fn nop(&mut self, nop: &NopOut, rx: &Received) {
        if nop.itt.is_reserved() && !nop.immediate {
            self.find("NOP-02", format!("ITT ffffffff without I: {}", rx.line()));
        }
        if !nop.itt.is_reserved() && !nop.ttt.is_reserved() {
            self.find("NOP-03", format!("both tags: {}", rx.line()));
        }
    }
}
