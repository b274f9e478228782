//! Values of keys (RFC 7143 6.1): numbers, booleans, lists, binary items.

use crate::WireError;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};

/// Most bytes, decoded, of a binary item of CHAP or SRP (RFC 7143 12.1.2, 12.1.3).
pub const MAX_BINARY_ITEM_LENGTH: usize = 1024;

/// A numerical value: decimal digits, or `0x`/`0X` and hexadecimal digits; below 2^64, without sign or
/// blanks.
///
/// Leading zeros do not make a number octal: `010` is ten.
//= rfc7143 6.1 TXT-03
pub fn parse_number(value: &str) -> Result<u64, WireError> {
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    if digits.is_empty() {
        return Err(WireError::NumberForm);
    }
    // Not with from_str_radix: it accepts a leading '+' and does not tell a bad digit from an overflow.
    let mut number = Some(0u64);
    for digit in digits.chars() {
        let digit = digit.to_digit(radix).ok_or(WireError::NumberForm)?;
        number = number.and_then(|n| n.checked_mul(radix.into())?.checked_add(digit.into()));
    }
    number.ok_or(WireError::NumberTooLarge)
}

/// A boolean value: exactly `Yes` or `No`.
pub fn parse_bool(value: &str) -> Result<bool, WireError> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(WireError::BooleanForm),
    }
}

/// A comma-separated list, in order of preference. No item is empty.
pub fn parse_list(value: &str) -> Result<Vec<&str>, WireError> {
    let items: Vec<&str> = value.split(',').collect();
    if items.iter().any(|item| item.is_empty()) { Err(WireError::ListForm) } else { Ok(items) }
}

/// A binary value: `0x`/`0X` and hexadecimal digits of either case, or `0b`/`0B` and padded base64; at least
/// one byte and at most `max_bytes` decoded. An odd count of hexadecimal digits has a first byte with a zero
/// upper half.
///
/// The length is checked before anything is decoded or allocated.
//= rfc7143 6.1 TXT-03
//= rfc7143 12.1.3 SEC-05
pub fn parse_binary(value: &str, max_bytes: usize) -> Result<Vec<u8>, WireError> {
    let digits = value.get(2..).filter(|digits| !digits.is_empty()).ok_or(WireError::BinaryForm)?;
    let bytes = match &value.as_bytes()[..2] {
        b"0x" | b"0X" => parse_hex(digits, max_bytes)?,
        b"0b" | b"0B" => parse_base64(digits, max_bytes)?,
        _ => return Err(WireError::BinaryForm),
    };
    if bytes.len() > max_bytes { Err(WireError::BinaryTooLong { max: max_bytes }) } else { Ok(bytes) }
}

fn parse_hex(digits: &str, max_bytes: usize) -> Result<Vec<u8>, WireError> {
    if digits.len().div_ceil(2) > max_bytes {
        return Err(WireError::BinaryTooLong { max: max_bytes });
    }
    let decode = |digits: &[u8]| HEXLOWER_PERMISSIVE.decode(digits).map_err(|_| WireError::BinaryForm);
    if digits.len().is_multiple_of(2) {
        decode(digits.as_bytes())
    } else {
        decode(format!("0{digits}").as_bytes())
    }
}

fn parse_base64(digits: &str, max_bytes: usize) -> Result<Vec<u8>, WireError> {
    // Up to two characters are padding, so a full last group may still be within the limit; the caller checks
    // again.
    if digits.len().div_ceil(4) > max_bytes.div_ceil(3) {
        return Err(WireError::BinaryTooLong { max: max_bytes });
    }
    BASE64.decode(digits.as_bytes()).map_err(|_| WireError::BinaryForm)
}

/// `0x` and two lower-case digits per byte.
pub fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    HEXLOWER.encode_append(bytes, &mut text);
    text
}

/// `0b` and padded base64.
pub fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::from("0b");
    BASE64.encode_append(bytes, &mut text);
    text
}

/// Most characters of `bytes` binary bytes as a value, prefix included, in the longer encoding (hexadecimal).
pub const fn max_encoded_length(bytes: usize) -> usize {
    bytes.saturating_mul(2).saturating_add(2)
}
