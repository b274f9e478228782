//! PDUs as bytes: PDUs to send, with every part that can be made wrong, and received PDUs.

use iscsi_wire::{Bhs, MAX_DATA_SEGMENT_LENGTH, Pdu, WireError, one_line, padding_length};

/// Which digests are in use on a connection (RFC 7143 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// HeaderDigest=CRC32C.
    pub header: bool,
    /// DataDigest=CRC32C.
    pub data: bool,
}

/// How to treat one digest of one PDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestWish {
    /// As negotiated, and correct.
    #[default]
    Right,
    /// As negotiated, but with these bits of the value flipped.
    Flip(u32),
    /// Left out, even if it was negotiated.
    Omit,
    /// Present and correct, even if it was not negotiated.
    Force,
}

/// A PDU to send. Lengths, padding and digests are right unless a method makes them wrong.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: [u8; Bhs::SIZE],
    ahs: Vec<u8>,
    data: Vec<u8>,
    data_segment_length: Option<usize>,
    total_ahs_words: Option<u8>,
    padding_byte: u8,
    header_digest: DigestWish,
    data_digest: DigestWish,
    corrupt_after_digest: Option<usize>,
    corrupt_data: Option<usize>,
    remark: String,
}

impl Frame {
    /// A PDU without AHS and data.
    pub fn of(pdu: impl Into<Pdu>) -> Self {
        Self::raw(*pdu.into().to_bhs().as_bytes())
    }

    /// A header of any 48 bytes.
    pub fn raw(bytes: [u8; Bhs::SIZE]) -> Self {
        Frame {
            bytes,
            ahs: Vec::new(),
            data: Vec::new(),
            data_segment_length: None,
            total_ahs_words: None,
            padding_byte: 0,
            header_digest: DigestWish::Right,
            data_digest: DigestWish::Right,
            corrupt_after_digest: None,
            corrupt_data: None,
            remark: String::new(),
        }
    }

    /// With this data segment.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    /// With these AHS bytes, padding included.
    pub fn ahs(mut self, ahs: impl Into<Vec<u8>>) -> Self {
        self.ahs = ahs.into();
        self
    }

    /// Overwrites header bytes from `offset` on; bytes beyond the header are left out.
    pub fn patch(mut self, offset: usize, bytes: &[u8]) -> Self {
        for (at, byte) in (offset..Bhs::SIZE).zip(bytes) {
            self.bytes[at] = *byte;
        }
        self
    }

    /// Sets the bits of `mask` in header byte `offset`.
    pub fn set_bits(mut self, offset: usize, mask: u8) -> Self {
        if let Some(byte) = self.bytes.get_mut(offset) {
            *byte |= mask;
        }
        self
    }

    /// Clears the bits of `mask` in header byte `offset`.
    pub fn clear_bits(mut self, offset: usize, mask: u8) -> Self {
        if let Some(byte) = self.bytes.get_mut(offset) {
            *byte &= !mask;
        }
        self
    }

    /// Announces a DataSegmentLength other than the real one, in bytes (at most 2^24-1).
    pub fn claim_data_length(mut self, bytes: usize) -> Self {
        self.data_segment_length = Some(bytes.min(MAX_DATA_SEGMENT_LENGTH));
        self.remark(&format!("claims {bytes} data bytes"))
    }

    /// Announces a TotalAHSLength other than the real one, in four-byte words.
    pub fn claim_ahs_words(mut self, words: u8) -> Self {
        self.total_ahs_words = Some(words);
        self.remark(&format!("claims {words} AHS words"))
    }

    /// Pads with this byte instead of zero.
    pub fn pad_with(mut self, byte: u8) -> Self {
        self.padding_byte = byte;
        self
    }

    /// Sets how to treat the header digest.
    pub fn header_digest(mut self, wish: DigestWish) -> Self {
        self.header_digest = wish;
        self.remark(&format!("header digest {wish:?}"))
    }

    /// Sets how to treat the data digest.
    pub fn data_digest(mut self, wish: DigestWish) -> Self {
        self.data_digest = wish;
        self.remark(&format!("data digest {wish:?}"))
    }

    /// Inverts byte `offset` of the header (0 to 47, continuing into the AHS) after its digest was computed.
    pub fn corrupt_header_byte(mut self, offset: usize) -> Self {
        self.corrupt_after_digest = Some(offset);
        self.remark(&format!("header byte {offset} inverted after the digest"))
    }

    /// Inverts byte `offset` of the data segment (continuing into its padding) after its digest was computed.
    pub fn corrupt_data_byte(mut self, offset: usize) -> Self {
        self.corrupt_data = Some(offset);
        self.remark(&format!("data byte {offset} inverted after the digest"))
    }

    /// Adds a remark to its line in the transcript.
    pub fn remark(mut self, words: &str) -> Self {
        if !self.remark.is_empty() {
            self.remark.push_str(", ");
        }
        self.remark.push_str(words);
        self
    }

    /// The header as it will be sent, lengths included.
    pub fn bhs(&self) -> Bhs {
        let mut bytes = self.bytes;
        let length = self.data_segment_length.unwrap_or(self.data.len()).min(MAX_DATA_SEGMENT_LENGTH);
        bytes[4] =
            self.total_ahs_words.unwrap_or_else(|| u8::try_from(self.ahs.len() / 4).unwrap_or(u8::MAX));
        bytes[5..8].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
        Bhs::from_bytes(bytes)
    }

    /// The AHS bytes.
    pub fn ahs_bytes(&self) -> &[u8] {
        &self.ahs
    }

    /// The data segment without padding.
    pub fn data_bytes(&self) -> &[u8] {
        &self.data
    }

    /// What was made unusual, in words.
    pub fn remarks(&self) -> &str {
        &self.remark
    }

    /// The bytes on the wire, with `digests` in use.
    pub fn encode(&self, digests: Digests) -> Vec<u8> {
        let mut out = Vec::with_capacity(Bhs::SIZE + self.ahs.len() + self.data.len() + 12);
        out.extend_from_slice(self.bhs().as_bytes());
        out.extend_from_slice(&self.ahs);
        let header_length = out.len();
        push_digest(&mut out, 0, self.header_digest, digests.header);
        if let Some(offset) = self.corrupt_after_digest.filter(|offset| *offset < header_length) {
            out[offset] ^= 0xff;
        }
        let start = out.len();
        out.extend_from_slice(&self.data);
        out.resize(out.len() + padding_length(self.data.len()), self.padding_byte);
        if out.len() > start {
            let end = out.len();
            push_digest(&mut out, start, self.data_digest, digests.data);
            if let Some(offset) = self.corrupt_data.filter(|offset| start.saturating_add(*offset) < end) {
                out[start + offset] ^= 0xff;
            }
        }
        out
    }
}

fn push_digest(out: &mut Vec<u8>, start: usize, wish: DigestWish, negotiated: bool) {
    let flip = match wish {
        DigestWish::Right if negotiated => 0,
        DigestWish::Force => 0,
        DigestWish::Flip(bits) if negotiated => bits,
        _ => return,
    };
    let digest = integrity::crc32c(&out[start..]) ^ flip;
    out.extend_from_slice(&digest.to_le_bytes());
}

/// A received PDU, its digests verified.
#[derive(Clone, Debug)]
pub struct Received {
    /// The header.
    pub bhs: Bhs,
    /// The AHS bytes, padding included.
    pub ahs: Vec<u8>,
    /// The data segment without padding.
    pub data: Vec<u8>,
    /// The padding bytes.
    pub padding: Vec<u8>,
    /// The data digest as received, in wire order; `None` if there was none.
    pub data_digest: Option<[u8; 4]>,
}

impl Received {
    /// The PDU, if the header parses.
    pub fn pdu(&self) -> Result<Pdu, WireError> {
        Pdu::parse(&self.bhs)
    }

    /// The PDU as one line.
    pub fn line(&self) -> String {
        one_line(&self.bhs, &self.ahs)
    }

    /// The pairs of a text segment. Parsed without the limits of the standard, so that a script can see what is
    /// wrong with them: an item without `=` becomes a key without a value.
    pub fn text(&self) -> Vec<(String, String)> {
        let items = self.data.split(|byte| *byte == 0).filter(|item| !item.is_empty());
        let pairs = items.map(|item| {
            let item = String::from_utf8_lossy(item);
            let (key, value) = item.split_once('=').unwrap_or((&item, ""));
            (key.to_owned(), value.to_owned())
        });
        pairs.collect()
    }

    /// Four header bytes as a number, for fields that no PDU struct has.
    pub fn u32_at(&self, offset: usize) -> u32 {
        u32_at(&self.bhs, offset)
    }
}

/// Four bytes of a header as a number; 0 if they lie beyond its end.
pub(crate) fn u32_at(bhs: &Bhs, offset: usize) -> u32 {
    match bhs.as_bytes().get(offset..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Digests = Digests { header: true, data: true };

    #[test]
    fn a_frame_is_right_unless_told_otherwise() {
        let bytes = Frame::raw([7; 48]).ahs([0, 5, 2, 0, 0, 0, 0, 0]).data([1, 2, 3, 4, 5]).encode(BOTH);
        assert_eq!(bytes.len(), 48 + 8 + 4 + 8 + 4);
        assert_eq!((bytes[4], &bytes[5..8]), (2, &[0, 0, 5][..]));
        assert_eq!(bytes[56..60], integrity::crc32c(&bytes[..56]).to_le_bytes());
        assert_eq!(bytes[60..68], [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(bytes[68..72], integrity::crc32c(&bytes[60..68]).to_le_bytes());
    }

    #[test]
    fn no_data_digest_without_data() {
        assert_eq!(Frame::raw([0; 48]).encode(BOTH).len(), 52);
    }

    #[test]
    fn everything_can_be_made_wrong() {
        let good = Frame::raw([0; 48]).data([9; 4]);
        let right = good.encode(BOTH);
        let wrong = |frame: Frame| frame.encode(BOTH);
        assert_eq!(wrong(good.clone().claim_data_length(99))[7], 99);
        assert_eq!(wrong(good.clone().claim_ahs_words(3))[4], 3);
        let flipped = wrong(good.clone().header_digest(DigestWish::Flip(1)));
        assert_eq!(flipped[48] ^ right[48], 1);
        assert_eq!(wrong(good.clone().data_digest(DigestWish::Omit)).len(), right.len() - 4);
        let corrupt = wrong(good.clone().corrupt_header_byte(20));
        assert_eq!((corrupt[20], &corrupt[48..52]), (0xff, &right[48..52]));
        let corrupt = wrong(good.clone().corrupt_data_byte(2));
        assert_eq!((corrupt[54], &corrupt[56..]), (9 ^ 0xff, &right[56..]));
        assert_eq!(good.clone().header_digest(DigestWish::Force).encode(Digests::default()).len(), 56);
        assert_eq!(wrong(good.patch(46, &[1, 2, 3, 4]))[46..48], [1, 2]);
    }
}
