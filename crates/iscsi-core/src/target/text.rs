//! Text requests in full feature phase: SendTargets and the few keys that may still be declared
//! (RFC 7143 6.4, 11.10, 11.11, appendix C).

use bytes::Bytes;
use iscsi_wire::{Cid, Itt, Lun, RejectReason, TextBuilder, TextPairs, TextRequest, TextResponse, Ttt};

use super::actions::{Action, Selector, TargetRecord};
use super::session::TargetSession;
use crate::error::ProtocolViolation;
use crate::limits::MAX_TEXT_EXCHANGES;
use crate::negotiation::{Negotiator, Phase, Received, Role};
use crate::params::Params;
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;
use crate::text_exchange::{TextAssembler, TextSplitter};

/// A text sequence in progress on a connection.
#[derive(Debug)]
pub(super) struct TextExchange {
    itt: Itt,
    lun: Lun,
    /// Identifies the sequence while it continues.
    ttt: Option<Ttt>,
    /// The F bit of the last request.
    initiator_done: bool,
    /// Requests that carried complete text; those that only fetch more of an answer do not count.
    exchanges: u32,
    received: TextAssembler,
    sending: TextSplitter,
    negotiator: Negotiator,
}

impl TextExchange {
    /// Its tag.
    pub(super) fn itt(&self) -> Itt {
        self.itt
    }
}

impl TargetSession {
    /// Handles a Text request in its turn.
    //= rfc7143 6.4 TXR-01 TXR-03 TXT-06 TXT-07
    pub(super) fn handle_text(&mut self, cid: Cid, request: &TextRequest, rx: &RxPdu) {
        let negotiator = self.fresh_negotiator(cid);
        let Some(connection) = self.connection(cid) else { return };
        let begins = request.ttt.is_reserved();
        match &mut connection.text {
            Some(exchange) if begins && exchange.itt != request.itt => {
                connection.text = None;
                return self.reject(cid, rx, RejectReason::ProtocolError);
            }
            Some(exchange)
                if !begins && (exchange.itt != request.itt || exchange.ttt != Some(request.ttt)) =>
            {
                connection.text = None;
                return self.reject(cid, rx, RejectReason::InvalidPduField);
            }
            Some(_) if !begins => {}
            None if !begins => return self.reject(cid, rx, RejectReason::InvalidPduField),
            slot => {
                *slot = Some(TextExchange {
                    itt: request.itt,
                    lun: request.lun,
                    ttt: None,
                    initiator_done: false,
                    exchanges: 0,
                    received: TextAssembler::default(),
                    sending: TextSplitter::default(),
                    negotiator,
                });
            }
        }
        if let Err(_violation) = self.take_text(cid, request, &rx.data) {
            //= rfc7143 6.2 TXT-14
            if let Some(connection) = self.connection(cid) {
                connection.text = None;
            }
            self.reject(cid, rx, RejectReason::ProtocolError);
        }
    }

    fn fresh_negotiator(&self, cid: Cid) -> Negotiator {
        let params = self.connection_params(cid).cloned().unwrap_or_default();
        let mut negotiator = Negotiator::new(Role::Target, self.config.bounds.clone(), params);
        if self.is_discovery() {
            negotiator.set_discovery();
        }
        negotiator
    }

    fn take_text(&mut self, cid: Cid, request: &TextRequest, data: &[u8]) -> Result<(), ProtocolViolation> {
        let discovery = self.is_discovery();
        let Some(exchange) = self.connection(cid).and_then(|c| c.text.as_mut()) else { return Ok(()) };
        if request.continue_bit && request.final_bit {
            return Err(ProtocolViolation::new("RFC 7143 6.2", "a text request has both C and F set"));
        }
        exchange.initiator_done = request.final_bit;
        if !exchange.sending.is_empty() {
            // Only an empty request fetches the rest of an answer.
            if !data.is_empty() {
                return Err(ProtocolViolation::new(
                    "RFC 7143 6.2",
                    "new text while our answer was not yet complete",
                ));
            }
            self.send_text(cid);
            return Ok(());
        }
        exchange.received.add(data)?;
        if request.continue_bit {
            self.send_text(cid);
            return Ok(());
        }
        exchange.exchanges += 1;
        if exchange.exchanges > MAX_TEXT_EXCHANGES {
            return Err(ProtocolViolation::new(
                "limits of this implementation",
                format!("more than {MAX_TEXT_EXCHANGES} exchanges in one text negotiation"),
            ));
        }
        let text = exchange.received.take();
        let mut answers = TextBuilder::new();
        let mut selector = None;
        for (name, value) in TextPairs::parse(&text)? {
            match exchange.negotiator.receive(Phase::FullFeature, name, value)? {
                Received::Done => {}
                Received::Answer(answer) => drop(answers.push(name, answer)),
                //= rfc7143 13.3 KEY-03 DSC-02 DSC-03 DSC-04
                Received::Login if name == "SendTargets" => {
                    selector = match value {
                        "All" if discovery => Some(Selector::All),
                        "All" => {
                            answers.push(name, "Reject");
                            None
                        }
                        "" if discovery => {
                            return Err(ProtocolViolation::new(
                                "RFC 7143 C",
                                "SendTargets without a value in a discovery session",
                            ));
                        }
                        "" => Some(Selector::Own),
                        name => Some(Selector::Name(name.to_owned())),
                    };
                }
                Received::Login => {
                    return Err(ProtocolViolation::new(
                        "RFC 7143 6.3",
                        format!("{name} is not allowed in full feature phase"),
                    ));
                }
            }
        }
        exchange.sending.extend(&answers.finish());
        match selector {
            Some(selector) => self.act(Action::SendTargets { cid, selector }),
            None => self.send_text(cid),
        }
        Ok(())
    }

    /// The targets that [`Action::SendTargets`] requested.
    //= rfc7143 C DSC-06
    pub fn answer_send_targets(&mut self, cid: Cid, records: &[TargetRecord]) {
        let Some(exchange) = self.connection(cid).and_then(|c| c.text.as_mut()) else { return };
        let mut text = TextBuilder::new();
        for record in records {
            text.push("TargetName", &record.name);
            for address in &record.addresses {
                text.push("TargetAddress", address);
            }
        }
        exchange.sending.extend(&text.finish());
        self.send_text(cid);
    }

    /// Sends the next piece of the answer. The sequence ends when the initiator is done and no text is left.
    //= rfc7143 11.11 DSC-05 TXR-01 TXR-02
    fn send_text(&mut self, cid: Cid) {
        let fresh = self.next_ttt();
        let Some(connection) = self.connection(cid) else { return };
        let max = connection.params.max_send_data_segment_length as usize;
        let Some(exchange) = connection.text.as_mut() else { return };
        let (piece, more) = exchange.sending.next_piece(max);
        let final_bit = exchange.initiator_done && !more;
        let (itt, lun) = (exchange.itt, exchange.lun);
        let ttt = if final_bit { Ttt::RESERVED } else { fresh };
        exchange.ttt = (!final_bit).then_some(ttt);
        if final_bit {
            //= rfc7143 13.12 TXT-18
            let negotiated: Params = exchange.negotiator.params().clone();
            connection.params.max_send_data_segment_length = negotiated.max_send_data_segment_length;
            connection.text = None;
        }
        let Some(n) = self.numbers(cid, true) else { return };
        let response = TextResponse {
            final_bit,
            continue_bit: more,
            lun,
            itt,
            ttt,
            stat_sn: n.stat_sn,
            exp_cmd_sn: n.exp_cmd_sn,
            max_cmd_sn: n.max_cmd_sn,
        };
        self.send_status(cid, TxPdu::with_data(response.to_bhs(), Bytes::from(piece)));
    }
}
