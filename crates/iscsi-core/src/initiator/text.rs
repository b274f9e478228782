//! Text requests in full feature phase: SendTargets, and exchanges that a target requests (RFC 7143 6.4, 11.10, 11.11, C).

use bytes::Bytes;
use iscsi_wire::{Cid, Itt, Lun, RejectReason, TextBuilder, TextPairs, TextRequest, TextResponse, Ttt};

use super::actions::{Action, CloseReason, TargetRecord, violation};
use super::address::TargetAddress;
use super::connection::Connection;
use super::exchange::TextExchange;
use super::session::InitiatorSession;
use super::task::Held;
use crate::Time;
use crate::error::ProtocolViolation;
use crate::limits::MAX_DISCOVERY_TEXT_BYTES;
use crate::names::IscsiName;
use crate::negotiation::{Negotiator, Phase, Received, Role};
use crate::params::Params;
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

impl InitiatorSession {
    /// Requests a list of targets: `All`, a name, or an empty value for the session's own target. Ends with [`Action::Targets`]
    /// or [`Action::TextRefused`]. False when the session cannot send it now.
    //= rfc7143 C DSC-02 TXT-07 KEY-03
    pub fn send_targets(&mut self, now: Time, which: &str) -> bool {
        self.now = now;
        let mut text = TextBuilder::new();
        text.push("SendTargets", which);
        let Some(cid) = self.any_connection() else { return false };
        self.is_active() && self.begin_text(cid, Bytes::from(text.finish()), true, None)
    }

    /// Declares another MaxRecvDataSegmentLength for the connection `cid`, in bytes; in effect from [`Action::Declared`] on.
    /// False when the session cannot send it now, or RFC 7143 13.12 does not allow the value.
    //= rfc7143 13.12 KEY-11 SNK-04
    pub fn declare_max_recv(&mut self, now: Time, cid: Cid, bytes: u32) -> bool {
        self.now = now;
        let mut text = TextBuilder::new();
        text.push("MaxRecvDataSegmentLength", bytes.to_string());
        (512..1 << 24).contains(&bytes)
            && self.is_active()
            && self.begin_text(cid, Bytes::from(text.finish()), false, Some(bytes))
    }

    /// The target wants to negotiate: an empty request enables it to.
    //= rfc7143 11.9.1 ASY-03
    pub(super) fn negotiate_on_request(&mut self, cid: Cid) {
        // An exchange that is under way serves the purpose too.
        let under_way = self.connection(cid).is_none_or(|connection| connection.text.is_some());
        if self.is_active() && !under_way && !self.begin_text(cid, Bytes::new(), false, None) {
            self.close(CloseReason::Unresponsive, self.time2wait());
        }
    }

    fn begin_text(&mut self, cid: Cid, text: Bytes, send_targets: bool, declares: Option<u32>) -> bool {
        let serves = |connection: &mut Connection| connection.state.serves() && connection.text.is_none();
        if !self.connection(cid).is_some_and(serves) {
            return false;
        }
        let Ok(itt) = self.tasks.insert(Held::Text(cid)) else { return false };
        let deadline = self.now + self.config.exchange_timeout;
        if let Some(connection) = self.connection(cid) {
            connection.text = Some(TextExchange {
                itt,
                declares,
                received: Vec::new(),
                send_targets,
                asked_final: true,
                deadline,
            });
        }
        self.send_text(cid, itt, Ttt::RESERVED, Lun(0), text);
        true
    }

    //= rfc7143 11.10 TXR-01
    fn send_text(&mut self, cid: Cid, itt: Itt, ttt: Ttt, lun: Lun, text: Bytes) {
        let request = TextRequest {
            immediate: true,
            final_bit: true,
            continue_bit: false,
            lun,
            itt,
            ttt,
            cmd_sn: self.window.current(),
            exp_stat_sn: self.exp_stat_sn(cid),
        };
        self.send_pdu(cid, TxPdu::with_data(request.to_bhs(), text));
    }

    //= rfc7143 11.11 DSC-05 TXR-01 TXR-02 TXT-06
    pub(super) fn handle_text_response(
        &mut self,
        cid: Cid,
        pdu: &TextResponse,
        rx: &RxPdu,
    ) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        if !self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let deadline = self.now + self.config.exchange_timeout;
        let text = self.connection(cid).and_then(|connection| connection.text.as_mut());
        let Some(exchange) = text.filter(|exchange| exchange.itt == pdu.itt) else {
            return self.late(pdu.itt, "RFC 7143 11.11", "a text response");
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
            // An empty response does not extend the deadline: it could do so for ever.
            if !rx.data.is_empty() {
                exchange.deadline = deadline;
            }
            self.send_text(cid, pdu.itt, pdu.ttt, pdu.lun, Bytes::new());
            return Ok(());
        }
        let Some(exchange) = self.connection(cid).and_then(|connection| connection.text.take()) else {
            return Ok(());
        };
        self.tasks.remove(exchange.itt);
        let records = self.take_text(cid, &exchange.received)?;
        if let Some(max_recv_data_segment_length) = exchange.declares {
            if let Some(connection) = self.connection(cid) {
                connection.max_recv = max_recv_data_segment_length;
            }
            self.act(Action::Declared { cid, max_recv_data_segment_length });
        }
        if exchange.send_targets {
            self.act(records.map_or(Action::TextRefused(None), Action::Targets));
        }
        Ok(())
    }

    /// The target rejects a request: the exchange is over, none of it has taken effect, and the session continues.
    //= rfc7143 6.4 TXT-14
    pub(super) fn text_refused(&mut self, cid: Cid, itt: Itt, reason: RejectReason) {
        let Some(connection) = self.connection(cid) else { return };
        let Some(exchange) = connection.text.take_if(|exchange| exchange.itt == itt) else { return };
        self.tasks.remove(itt);
        if exchange.send_targets {
            self.act(Action::TextRefused(Some(reason)));
        }
    }

    /// Reads a complete answer: targets, and keys that may still be declared. `None` when SendTargets itself was refused.
    //= rfc7143 C DSC-06 NAM-02 TXT-17 TXT-14 TXT-18
    fn take_text(&mut self, cid: Cid, text: &[u8]) -> Result<Option<Vec<TargetRecord>>, ProtocolViolation> {
        let before = self.connection(cid).map_or(0, |connection| connection.max_send);
        let params = Params { max_send_data_segment_length: before, ..self.params.clone() };
        let mut negotiator = Negotiator::new(Role::Initiator, self.config.bounds.clone(), params);
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
        let max_send = negotiator.params().max_send_data_segment_length;
        if let Some(connection) = self.connection(cid) {
            connection.max_send = max_send;
        }
        if self.connections.first().is_some_and(|leading| leading.cid == cid) {
            self.params.max_send_data_segment_length = max_send;
        }
        Ok((!refused).then_some(records))
    }
}
