//! Text requests in full feature phase: SendTargets, and the exchange that a target asks for (RFC 7143 6.4, 11.10, 11.11, C).

use bytes::Bytes;
use iscsi_wire::{Itt, Lun, RejectReason, TextBuilder, TextPairs, TextRequest, TextResponse, Ttt};

use super::address::TargetAddress;
use super::session::{Action, CloseReason, InitiatorSession, Phase as SessionPhase, TargetRecord, violation};
use super::task::Held;
use crate::Time;
use crate::error::ProtocolViolation;
use crate::limits::MAX_DISCOVERY_TEXT_BYTES;
use crate::names::IscsiName;
use crate::negotiation::{Negotiator, Phase, Received, Role};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

/// The one text exchange under way on a connection.
#[derive(Debug)]
pub(super) struct TextExchange {
    itt: Itt,
    received: Vec<u8>,
    /// SendTargets was asked; otherwise an empty exchange for the target's sake.
    send_targets: bool,
    /// F of our last request.
    asked_final: bool,
    deadline: Time,
}

impl InitiatorSession {
    /// Asks which targets there are: `All`, a name, or an empty value for the session's own target. Ends with
    /// [`Action::Targets`]. False when the session cannot ask now.
    //= rfc7143 C DSC-02 TXT-07 KEY-03
    pub fn send_targets(&mut self, now: Time, which: &str) -> bool {
        self.now = now;
        let mut text = TextBuilder::new();
        text.push("SendTargets", which);
        self.phase == SessionPhase::Active && self.begin_text(Bytes::from(text.finish()), true)
    }

    /// The target wants to negotiate: an empty request gives it the word.
    //= rfc7143 11.9.1 ASY-03
    pub(super) fn negotiate_on_request(&mut self) {
        // One that is under way serves as well.
        if self.phase == SessionPhase::Active && self.text.is_none() && !self.begin_text(Bytes::new(), false)
        {
            self.close(CloseReason::Unresponsive, self.time2wait());
        }
    }

    pub(super) fn text_due(&self) -> Option<Time> {
        self.text.as_ref().map(|text| text.deadline)
    }

    fn begin_text(&mut self, text: Bytes, send_targets: bool) -> bool {
        if self.text.is_some() {
            return false;
        }
        let Ok(itt) = self.tasks.insert(Held::Text) else { return false };
        let deadline = self.now + self.config.exchange_timeout;
        self.text =
            Some(TextExchange { itt, received: Vec::new(), send_targets, asked_final: true, deadline });
        self.send_text(itt, Ttt::RESERVED, Lun(0), true, text);
        true
    }

    //= rfc7143 11.10 TXR-01
    fn send_text(&mut self, itt: Itt, ttt: Ttt, lun: Lun, final_bit: bool, text: Bytes) {
        let request = TextRequest {
            immediate: true,
            final_bit,
            continue_bit: false,
            lun,
            itt,
            ttt,
            cmd_sn: self.window.current(),
            exp_stat_sn: self.exp_stat_sn(),
        };
        self.actions.push_back(Action::Send(TxPdu::with_data(request.to_bhs(), text)));
    }

    //= rfc7143 11.11 DSC-05 TXR-01 TXR-02 TXT-06
    pub(super) fn handle_text_response(&mut self, pdu: &TextResponse, rx: &RxPdu) -> Result<(), CloseReason> {
        if !rx.data_digest_ok {
            return Err(CloseReason::DataDigest);
        }
        self.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn);
        self.take_stat_sn(pdu.stat_sn)?;
        let now = self.now;
        let timeout = self.config.exchange_timeout;
        let Some(exchange) = self.text.as_mut().filter(|exchange| exchange.itt == pdu.itt) else {
            return Err(violation("RFC 7143 11.11", "a text response that nobody asked for"));
        };
        if pdu.final_bit && pdu.continue_bit {
            return Err(violation("RFC 7143 6.2", "a text response has both C and F set"));
        }
        if pdu.final_bit != pdu.ttt.is_reserved() {
            return Err(violation(
                "RFC 7143 11.11.4",
                "the F bit and the target transfer tag of a text response disagree",
            ));
        }
        if pdu.final_bit && !exchange.asked_final {
            return Err(violation("RFC 7143 11.11.1", "a text response with F answers a request without"));
        }
        //= rfc7143 6.1 TXT-04
        if exchange.received.len() + rx.data.len() > MAX_DISCOVERY_TEXT_BYTES {
            return Err(violation(
                "RFC 7143 6.1",
                format!("more than {MAX_DISCOVERY_TEXT_BYTES} bytes of text in one exchange"),
            ));
        }
        exchange.received.extend_from_slice(&rx.data);
        if !pdu.final_bit {
            // An empty request fetches the rest.
            if rx.data.is_empty() && pdu.continue_bit {
                return Err(violation("RFC 7143 6.2", "an empty text response says that it goes on"));
            }
            exchange.deadline = now + timeout;
            self.send_text(pdu.itt, pdu.ttt, pdu.lun, true, Bytes::new());
            return Ok(());
        }
        let exchange = self.text.take().expect("looked up above");
        self.tasks.remove(exchange.itt);
        let records = self.take_text(&exchange.received)?;
        if exchange.send_targets {
            self.actions.push_back(records.map_or(Action::TextRefused(None), Action::Targets));
        }
        Ok(())
    }

    /// The target rejects a request: the exchange is over, nothing of it has taken effect, and the session goes on.
    //= rfc7143 6.4 TXT-14
    pub(super) fn text_refused(&mut self, itt: Itt, reason: RejectReason) {
        let Some(exchange) = self.text.take_if(|exchange| exchange.itt == itt) else { return };
        self.tasks.remove(itt);
        if exchange.send_targets {
            self.actions.push_back(Action::TextRefused(Some(reason)));
        }
    }

    /// Reads a complete answer: targets, and what may still be declared. `None` when SendTargets itself was refused.
    //= rfc7143 C DSC-06 NAM-02 TXT-17 TXT-14 TXT-18
    fn take_text(&mut self, text: &[u8]) -> Result<Option<Vec<TargetRecord>>, ProtocolViolation> {
        let mut negotiator =
            Negotiator::new(Role::Initiator, self.config.bounds.clone(), self.params.clone());
        let mut records: Vec<TargetRecord> = Vec::new();
        let mut refused = false;
        for (key, value) in TextPairs::parse(text)? {
            match key {
                "SendTargets" if matches!(value, "Reject" | "NotUnderstood" | "Irrelevant") => refused = true,
                "TargetName" => {
                    records.push(TargetRecord { name: IscsiName::parse(value)?, addresses: Vec::new() });
                }
                "TargetAddress" => {
                    let address = TargetAddress::parse(value)?;
                    match records.last_mut() {
                        Some(record) => record.addresses.push(address),
                        None => {
                            return Err(ProtocolViolation::new(
                                "RFC 7143 C",
                                "a TargetAddress before any TargetName",
                            ));
                        }
                    }
                }
                _ => {
                    if let Received::Login = negotiator.receive(Phase::FullFeature, key, value)? {
                        return Err(ProtocolViolation::new(
                            "RFC 7143 6.3",
                            format!("{} is not allowed in a text response", crate::negotiation::shown(key)),
                        ));
                    }
                }
            }
        }
        self.params.max_send_data_segment_length = negotiator.params().max_send_data_segment_length;
        Ok((!refused).then_some(records))
    }
}
