//! Text that is longer than one PDU: joining received pieces and splitting our own (RFC 7143 6.2, the C bit).

use crate::error::ProtocolViolation;
use crate::limits::MAX_TEXT_BYTES;

/// Joins the data segments of Login or Text PDUs until one without the C bit arrives. One instance serves one negotiation.
#[derive(Debug, Default)]
pub struct TextAssembler {
    joined: Vec<u8>,
    /// Bytes added in the whole negotiation.
    total: usize,
}

impl TextAssembler {
    /// Adds one data segment.
    ///
    /// # Errors
    /// When the text of the negotiation grows beyond [`MAX_TEXT_BYTES`].
    //= rfc7143 6.1 TXT-04
    pub fn add(&mut self, piece: &[u8]) -> Result<(), ProtocolViolation> {
        self.total = self.total.saturating_add(piece.len());
        if self.total > MAX_TEXT_BYTES {
            self.joined = Vec::new();
            return Err(ProtocolViolation::new(
                "RFC 7143 6.1",
                format!("more than {MAX_TEXT_BYTES} bytes of text in one negotiation"),
            ));
        }
        self.joined.extend_from_slice(piece);
        Ok(())
    }

    /// Takes the whole text of an exchange; the next exchange starts empty.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.joined)
    }
}

/// Splits a text into pieces that fit the receiver's MaxRecvDataSegmentLength.
#[derive(Debug, Default)]
pub struct TextSplitter {
    rest: Vec<u8>,
}

impl TextSplitter {
    /// Appends text to be sent.
    pub fn extend(&mut self, text: &[u8]) {
        self.rest.extend_from_slice(text);
    }

    /// The next piece of at most `max` bytes, and whether more follows (the C bit).
    //= rfc7143 6.2 TXT-05 DSC-05
    pub fn next_piece(&mut self, max: usize) -> (Vec<u8>, bool) {
        if self.rest.len() <= max {
            return (std::mem::take(&mut self.rest), false);
        }
        let tail = self.rest.split_off(max);
        (std::mem::replace(&mut self.rest, tail), true)
    }

    /// True when no text is left to send.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
