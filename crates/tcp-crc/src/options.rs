//! The options of a TCP header (RFC 9293 section 3.1): parsed strictly, and laid out again without padding between them.

use thiserror::Error;

/// Most bytes for options: a header of 15 words minus the 20 fixed bytes.
pub const MAX_OPTION_BYTES: usize = 40;

/// Kinds that this crate handles by name.
pub(crate) mod kind {
    pub(crate) const END: u8 = 0;
    pub(crate) const NOP: u8 = 1;
    pub(crate) const MSS: u8 = 2;
    pub(crate) const SACK: u8 = 5;
    pub(crate) const TIMESTAMPS: u8 = 8;
    /// TCP-MD5 (RFC 2385): a digest over the header, which forbids any change.
    pub(crate) const MD5: u8 = 19;
    /// TCP-AO (RFC 5925): likewise.
    pub(crate) const AO: u8 = 29;
}

/// Bytes of one SACK block (RFC 2018).
const SACK_BLOCK_BYTES: usize = 8;

/// Why the options of a segment cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    /// An option extends beyond the header.
    #[error("TCP option {kind} at byte {at} says {length} bytes, more than the header has left")]
    Overrun {
        /// Its kind.
        kind: u8,
        /// Its offset, in bytes from the first option.
        at: usize,
        /// The length it claims.
        length: u8,
    },
    /// A length below 2 would not even cover kind and length.
    #[error("TCP option {kind} at byte {at} says {length} bytes; the least is 2")]
    Short {
        /// Its kind.
        kind: u8,
        /// Its offset, in bytes from the first option.
        at: usize,
        /// The length it claims.
        length: u8,
    },
    /// The last byte is a kind that needs a length.
    #[error("TCP option {kind} has no length: the header ends")]
    NoLength {
        /// Its kind.
        kind: u8,
    },
}

/// One option other than padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Its kind.
    pub kind: u8,
    /// Its offset, in bytes from the first option.
    pub at: usize,
    /// The bytes after kind and length.
    pub body: &'a [u8],
}

impl TcpOption<'_> {
    /// Bytes including kind and length.
    pub(crate) fn wire_bytes(&self) -> usize {
        2 + self.body.len()
    }
}

/// The options of a segment without padding.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> TcpOptions<'a> {
    /// Parses `bytes`, the header from byte 20 on.
    pub fn new(bytes: &'a [u8]) -> TcpOptions<'a> {
        TcpOptions { bytes, at: 0 }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let kind = *self.bytes.get(at)?;
            match kind {
                kind::END => self.at = self.bytes.len(),
                kind::NOP => self.at += 1,
                kind => {
                    // After an error the rest cannot be parsed.
                    self.at = self.bytes.len();
                    let Some(&length) = self.bytes.get(at + 1) else {
                        return Some(Err(OptionError::NoLength { kind }));
                    };
                    if length < 2 {
                        return Some(Err(OptionError::Short { kind, at, length }));
                    }
                    let end = at + usize::from(length);
                    let Some(body) = self.bytes.get(at + 2..end) else {
                        return Some(Err(OptionError::Overrun { kind, at, length }));
                    };
                    self.at = end;
                    return Some(Ok(TcpOption { kind, at, body }));
                }
            }
        }
    }
}

/// Options laid out one after the other, without padding, at most [`MAX_OPTION_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    bytes: [u8; MAX_OPTION_BYTES],
    length: usize,
    /// Offset of the SACK option, for [`Layout::make_room`].
    sack_at: Option<usize>,
}

impl Layout {
    /// The options for which `keep` returns true.
    pub(crate) fn of<'a>(
        options: impl Iterator<Item = TcpOption<'a>>,
        mut keep: impl FnMut(&TcpOption<'a>) -> bool,
    ) -> Layout {
        let mut layout = Layout { bytes: [0; MAX_OPTION_BYTES], length: 0, sack_at: None };
        for option in options.filter(|option| keep(option)) {
            if option.kind == kind::SACK {
                layout.sack_at = Some(layout.length);
            }
            layout.add(&[option.kind, option.wire_bytes() as u8]);
            layout.add(option.body);
        }
        layout
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Adds an option of ours at the end, after [`Layout::make_room`] has found room; returns the offset of its content.
    pub(crate) fn append(&mut self, option: &Encoded) -> usize {
        self.add(option.bytes());
        self.length - option.content_bytes()
    }

    /// Whether there is room for `more` bytes. If not, and `drop_sack` allows it, SACK blocks are dropped, the last one first. The first
    /// block is the newest (RFC 2018 section 4), so the most important ones remain.
    ///
    /// Returns the number of blocks dropped, or nothing if there is still no room; then nothing has changed.
    pub(crate) fn make_room(&mut self, more: usize, drop_sack: bool) -> Option<usize> {
        let excess = (self.length + more).saturating_sub(MAX_OPTION_BYTES);
        if excess == 0 {
            return Some(0);
        }
        let at = self.sack_at.filter(|_| drop_sack)?;
        let length = usize::from(self.bytes[at + 1]);
        let blocks = (length - 2) / SACK_BLOCK_BYTES;
        let dropped = excess.div_ceil(SACK_BLOCK_BYTES);
        if dropped < blocks {
            let left = length - dropped * SACK_BLOCK_BYTES;
            self.cut(at + left, at + length);
            self.bytes[at + 1] = left as u8;
            return Some(dropped);
        }
        // If no block remains, the option itself goes too.
        if length < excess {
            return None;
        }
        self.cut(at, at + length);
        self.sack_at = None;
        Some(blocks)
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.bytes.copy_within(to..self.length, from);
        self.length -= to - from;
    }

    /// The options, padded with NOP to a whole number of words.
    pub(crate) fn padded(&mut self) -> &[u8] {
        let padded = self.length.next_multiple_of(4);
        self.bytes[self.length..padded].fill(kind::NOP);
        &self.bytes[..padded]
    }
}

/// An option of ours as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    bytes: [u8; 8],
    length: usize,
    content: usize,
}

impl Encoded {
    /// An option of `kind`, the length, `prefix` and `content`: at most 8 bytes.
    pub(crate) fn new(kind: u8, prefix: &[u8], content: &[u8]) -> Encoded {
        let length = 2 + prefix.len() + content.len();
        let mut bytes = [0; 8];
        bytes[0] = kind;
        bytes[1] = length as u8;
        bytes[2..][..prefix.len()].copy_from_slice(prefix);
        bytes[2 + prefix.len()..][..content.len()].copy_from_slice(content);
        Encoded { bytes, length, content: content.len() }
    }

    /// The whole option.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn content_bytes(&self) -> usize {
        self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Result<(u8, usize), OptionError>> {
        TcpOptions::new(bytes).map(|option| option.map(|option| (option.kind, option.body.len()))).collect()
    }

    #[test]
    fn padding_is_left_out_and_end_ends() {
        assert_eq!(read(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0]), [Ok((8, 8))]);
        assert_eq!(read(&[4, 2, 0, 99, 99]), [Ok((4, 0))]);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn bad_lengths_are_told_and_end_the_reading() {
        assert_eq!(read(&[5, 1, 2, 4]), [Err(OptionError::Short { kind: 5, at: 0, length: 1 })]);
        assert_eq!(read(&[1, 5, 0]), [Err(OptionError::Short { kind: 5, at: 1, length: 0 })]);
        assert_eq!(
            read(&[2, 4, 5, 180, 8, 10, 0]),
            [Ok((2, 2)), Err(OptionError::Overrun { kind: 8, at: 4, length: 10 })]
        );
        assert_eq!(read(&[1, 1, 1, 3]), [Err(OptionError::NoLength { kind: 3 })]);
    }

    fn layout(timestamps: bool, blocks: usize, more: &[TcpOption<'_>]) -> Layout {
        let sack: Vec<u8> = (0..blocks as u8).flat_map(|block| [block; SACK_BLOCK_BYTES]).collect();
        let mut options = Vec::new();
        if timestamps {
            options.push(TcpOption { kind: kind::TIMESTAMPS, at: 0, body: &[7; 8] });
        }
        if blocks > 0 {
            options.push(TcpOption { kind: kind::SACK, at: 12, body: &sack });
        }
        Layout::of(options.into_iter().chain(more.iter().copied()), |_| true)
    }

    fn bytes(layout: &mut Layout) -> Vec<u8> {
        layout.padded().to_vec()
    }

    #[test]
    fn linux_largest_header_has_room_for_value_3_and_loses_a_block_for_the_others() {
        // Timestamps 10 + three SACK blocks 26: 4 bytes are left when the NOPs are gone.
        assert_eq!(layout(true, 3, &[]).make_room(4, true), Some(0));
        let mut full = layout(true, 3, &[]);
        assert_eq!(full.clone().make_room(6, false), None);
        assert_eq!(full.make_room(6, true), Some(1));
        assert_eq!(bytes(&mut full), bytes(&mut layout(true, 2, &[])), "the newest blocks stay");
    }

    #[test]
    fn what_cannot_have_room_is_left_as_it_was() {
        let mut full = layout(true, 1, &[TcpOption { kind: kind::MD5, at: 0, body: &[0; 16] }]);
        let before = full.clone();
        assert_eq!(full.make_room(15, true), None);
        assert_eq!(full, before);
    }

    #[test]
    fn the_last_block_takes_its_option_along() {
        let other = TcpOption { kind: 200, at: 0, body: &[9; 14] };
        let mut one = layout(true, 1, &[other]);
        assert_eq!(one.make_room(6, true), Some(1));
        assert_eq!(bytes(&mut one), bytes(&mut layout(true, 0, &[other])));
    }
}
