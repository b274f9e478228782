//! A sequence of Text requests and responses on one connection (RFC 7143 6.2, 6.4, 11.10, 11.11).

use bytes::Bytes;
use iscsi_wire::{Itt, Lun, TextBuilder, TextPairs, TextRequest, Ttt};

use super::actions::{Selector, TargetRecord};
use crate::error::ProtocolViolation;
use crate::limits::MAX_TEXT_EXCHANGES;
use crate::negotiation::{Negotiator, Phase, Received};
use crate::params::Params;
use crate::text_exchange::{TextAssembler, TextSplitter};

/// See the module.
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

/// What follows from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next piece of the answer is sent.
    Send,
    /// Targets are asked for; the answer follows when they are known.
    List(Selector),
}

/// A piece of the answer.
#[derive(Debug)]
pub(super) struct TextPiece {
    pub text: Bytes,
    /// The sequence ends with it.
    pub final_bit: bool,
    /// More text follows.
    pub continue_bit: bool,
    pub itt: Itt,
    pub lun: Lun,
    pub ttt: Ttt,
}

impl TextExchange {
    /// A sequence that begins with `request`.
    pub(crate) fn new(request: &TextRequest, negotiator: Negotiator) -> Self {
        Self {
            itt: request.itt,
            lun: request.lun,
            ttt: None,
            initiator_done: false,
            exchanges: 0,
            received: TextAssembler::default(),
            sending: TextSplitter::default(),
            negotiator,
        }
    }

    /// Its tag.
    pub(crate) fn itt(&self) -> Itt {
        self.itt
    }

    /// Whether a request has the tags of its next one.
    pub(crate) fn continues_with(&self, request: &TextRequest) -> bool {
        self.itt == request.itt && self.ttt == Some(request.ttt)
    }

    /// What was negotiated.
    pub(crate) fn params(&self) -> &Params {
        self.negotiator.params()
    }

    /// Takes a request with its text.
    ///
    /// # Errors
    /// The rule that it breaks; the sequence is over then.
    pub(crate) fn take(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        discovery: bool,
    ) -> Result<Next, ProtocolViolation> {
        if request.continue_bit && request.final_bit {
            return Err(ProtocolViolation::new("RFC 7143 6.2", "a text request has both C and F set"));
        }
        self.initiator_done = request.final_bit;
        if !self.sending.is_empty() {
            // Only an empty request fetches the rest of an answer.
            return match data.is_empty() {
                true => Ok(Next::Send),
                false => Err(ProtocolViolation::new(
                    "RFC 7143 6.2",
                    "new text while our answer was not yet complete",
                )),
            };
        }
        self.received.add(data)?;
        if request.continue_bit {
            return Ok(Next::Send);
        }
        self.exchanges += 1;
        if self.exchanges > MAX_TEXT_EXCHANGES {
            return Err(ProtocolViolation::new(
                "limits of this implementation",
                format!("more than {MAX_TEXT_EXCHANGES} exchanges in one text negotiation"),
            ));
        }
        self.negotiate(discovery)
    }

    /// Answers the text that is complete.
    fn negotiate(&mut self, discovery: bool) -> Result<Next, ProtocolViolation> {
        let text = self.received.take();
        let mut answers = TextBuilder::new();
        let mut next = Next::Send;
        for (name, value) in TextPairs::parse(&text)? {
            match self.negotiator.receive(Phase::FullFeature, name, value)? {
                Received::Done => {}
                Received::Answer(answer) => drop(answers.push(name, answer)),
                //= rfc7143 13.3 KEY-03 DSC-02 DSC-03 DSC-04
                Received::Login if name == "SendTargets" => {
                    next = match value {
                        "All" if discovery => Next::List(Selector::All),
                        "All" => {
                            answers.push(name, "Reject");
                            Next::Send
                        }
                        "" if discovery => {
                            return Err(ProtocolViolation::new(
                                "RFC 7143 C",
                                "SendTargets without a value in a discovery session",
                            ));
                        }
                        "" => Next::List(Selector::Own),
                        name => Next::List(Selector::Name(name.to_owned())),
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
        self.sending.extend(&answers.finish());
        Ok(next)
    }

    /// The targets that were asked for.
    //= rfc7143 C DSC-06
    pub(crate) fn list(&mut self, records: &[TargetRecord]) {
        let mut text = TextBuilder::new();
        for record in records {
            text.push("TargetName", &record.name);
            for address in &record.addresses {
                text.push("TargetAddress", address);
            }
        }
        self.sending.extend(&text.finish());
    }

    /// The next piece of the answer, at most `max` bytes; `fresh` is its tag if the sequence continues. It ends when the initiator
    /// is done and no text is left.
    //= rfc7143 11.11 DSC-05 TXR-01 TXR-02
    pub(crate) fn next_piece(&mut self, max: usize, fresh: Ttt) -> TextPiece {
        let (text, more) = self.sending.next_piece(max);
        let final_bit = self.initiator_done && !more;
        self.ttt = (!final_bit).then_some(fresh);
        TextPiece {
            text: text.into(),
            final_bit,
            continue_bit: more,
            itt: self.itt,
            lun: self.lun,
            ttt: self.ttt.unwrap_or(Ttt::RESERVED),
        }
    }
}
