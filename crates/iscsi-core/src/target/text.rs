//! Text requests in full feature phase: SendTargets and the few keys that may still be declared
//! (RFC 7143 6.4, 11.10, 11.11, appendix C). A sequence of them is an [`exchange`](super::exchange).

use iscsi_wire::{Cid, RejectReason, TextRequest, TextResponse};

use super::actions::{Action, TargetRecord};
use super::exchange::{Next, TextExchange, TextPiece};
use super::session::TargetSession;
use crate::negotiation::{Negotiator, Role};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

impl TargetSession {
    /// Handles a Text request in its turn.
    //= rfc7143 6.4 TXR-01 TXR-03 TXT-06 TXT-07
    pub(super) fn handle_text(&mut self, cid: Cid, request: &TextRequest, rx: &RxPdu) {
        let (negotiator, discovery) = (self.fresh_negotiator(cid), self.is_discovery());
        let Some(connection) = self.connection(cid) else { return };
        let begins = request.ttt.is_reserved();
        let exchange = match &mut connection.text {
            Some(exchange) if begins && exchange.itt() != request.itt => {
                connection.text = None;
                return self.reject(cid, rx, RejectReason::ProtocolError);
            }
            Some(exchange) if !begins && !exchange.continues_with(request) => {
                connection.text = None;
                return self.reject(cid, rx, RejectReason::InvalidPduField);
            }
            Some(exchange) if !begins => exchange,
            None if !begins => return self.reject(cid, rx, RejectReason::InvalidPduField),
            slot => slot.insert(TextExchange::new(request, negotiator)),
        };
        match exchange.take(request, &rx.data, discovery) {
            Ok(Next::Send) => self.send_text(cid),
            Ok(Next::List(selector)) => self.act(Action::SendTargets { cid, selector }),
            //= rfc7143 6.2 TXT-14
            Err(_violation) => {
                connection.text = None;
                self.reject(cid, rx, RejectReason::ProtocolError);
            }
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

    /// The targets that [`Action::SendTargets`] requested.
    pub fn answer_send_targets(&mut self, cid: Cid, records: &[TargetRecord]) {
        let Some(exchange) = self.connection(cid).and_then(|c| c.text.as_mut()) else { return };
        exchange.list(records);
        self.send_text(cid);
    }

    /// Sends the next piece of the answer.
    fn send_text(&mut self, cid: Cid) {
        let fresh = self.next_ttt();
        let Some(connection) = self.connection(cid) else { return };
        let max = connection.params.max_send_data_segment_length as usize;
        let Some(exchange) = connection.text.as_mut() else { return };
        let TextPiece { text, final_bit, continue_bit, itt, lun, ttt } = exchange.next_piece(max, fresh);
        if final_bit {
            //= rfc7143 13.12 TXT-18
            let negotiated = exchange.params().max_send_data_segment_length;
            connection.params.max_send_data_segment_length = negotiated;
            connection.text = None;
        }
        let Some(n) = self.numbers(cid, true) else { return };
        let response = TextResponse { final_bit, continue_bit, lun, itt, ttt, numbers: n };
        self.send_status(cid, TxPdu::with_data(response.to_bhs(), text));
    }
}
