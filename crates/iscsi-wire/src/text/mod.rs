//! `key=value` text (RFC 7143 6.1): pairs, builder, values, key names.
//!
//! Form only: when a key may appear, and which answers are valid, is negotiation, which is in `iscsi-core`. A
//! pair may be split over PDUs at any byte, so the caller joins the PDUs of an exchange (C bit) before
//! parsing.

pub mod keys;
mod values;

pub use values::{
    MAX_BINARY_ITEM_LENGTH, encode_base64, encode_hex, max_encoded_length, parse_binary, parse_bool,
    parse_list, parse_number,
};

use crate::WireError;

/// Most bytes of a key name.
pub const MAX_KEY_LENGTH: usize = 63;
/// Most bytes of a value, unless its key says otherwise.
pub const MAX_VALUE_LENGTH: usize = 255;

/// The parser of negotiation text.
#[derive(Clone, Copy, Debug)]
pub struct TextPairs;

impl TextPairs {
    /// Splits text into pairs, in order, repeated keys included. A value may have 255 bytes, or as many as
    /// its key is allowed by [`keys::max_value_length`] (the long binary items of CHAP and SRP). Empty text
    /// has no pairs.
    pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, WireError> {
        Self::parse_with_limit(text, MAX_VALUE_LENGTH)
    }

    /// As [`TextPairs::parse`], with values up to `max_value` bytes where the key itself does not allow more.
    //= rfc7143 6.1 TXT-01 TXT-02
    pub fn parse_with_limit(text: &[u8], max_value: usize) -> Result<Vec<(&str, &str)>, WireError> {
        let Some((last, _)) = text.split_last() else {
            return Ok(Vec::new());
        };
        if *last != 0 {
            return Err(WireError::TextNotTerminated);
        }
        let text = std::str::from_utf8(text)
            .map_err(|error| WireError::TextNotUtf8 { offset: error.valid_up_to() })?;
        let mut pairs = Vec::new();
        let mut offset = 0;
        for item in text.split_terminator('\0') {
            pairs.push(parse_pair(item, offset, max_value)?);
            offset += item.len() + 1;
        }
        Ok(pairs)
    }
}

fn parse_pair(item: &str, offset: usize, max_value: usize) -> Result<(&str, &str), WireError> {
    let (key, value) = item.split_once('=').ok_or(WireError::TextNoEquals { offset })?;
    if key.len() > MAX_KEY_LENGTH {
        return Err(WireError::KeyTooLong { offset, length: key.len() });
    }
    if !keys::is_key_name(key) {
        return Err(WireError::KeyForm { offset });
    }
    let max = max_value.max(keys::max_value_length(key));
    if value.len() > max {
        return Err(WireError::ValueTooLong { offset: offset + key.len() + 1, length: value.len(), max });
    }
    Ok((key, value))
}

/// Collects pairs into the bytes of a data segment.
#[derive(Clone, Debug, Default)]
pub struct TextBuilder {
    bytes: Vec<u8>,
}

impl TextBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `key=value` and its NUL. The key is written unchanged, so that a test peer can send wrong
    /// ones. A value is cut at its first NUL, if it has one: the rest would be read as the start of another
    /// key.
    //= rfc7143 6.1 TXT-01
    pub fn push(&mut self, key: &str, value: impl AsRef<str>) -> &mut Self {
        let value = value.as_ref().split('\0').next().unwrap_or_default();
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.push(b'=');
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self
    }

    /// Nothing pushed yet?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes collected so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The text, without padding. The builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}
