//! Bytes that do not parse. `iscsi-core` decides whose fault it is and what happens to the connection.

use crate::Opcode;

/// What is wrong with the bytes, and which section says so. Every variant is the sender's mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The opcode is neither defined nor one of ours (vendor opcodes 1c-1e and 3c-3e included).
    #[error("opcode {0:#04x} is not defined (RFC 7143 11.2.1.2); answer with Reject reason 0x05")]
    UnknownOpcode(u8),
    /// `parse` of one PDU was given the header of another.
    #[error("expected a {} header, found opcode {found:#04x} (RFC 7143 11.2.1.2)", expected.name())]
    WrongOpcode {
        /// The PDU that was expected.
        expected: Opcode,
        /// The six opcode bits found.
        found: u8,
    },
    /// A defined field holds a code that the standard reserves.
    #[error("{field} {value:#x} is a reserved value (RFC 7143 {section})")]
    ReservedValue {
        /// The field, as the standard names it.
        field: &'static str,
        /// The value in it.
        value: u32,
        /// The section that lists the allowed codes.
        section: &'static str,
    },
    /// An AHS runs past TotalAHSLength, or bytes remain that are too few for an AHS.
    #[error(
        "the AHS chain does not end at TotalAHSLength: {needed} bytes needed, {left} left (RFC 7143 11.2.2)"
    )]
    AhsChain {
        /// Bytes that the current AHS occupies with its padding (4 when even its header is cut off).
        needed: usize,
        /// Bytes that remain.
        left: usize,
    },
    /// The AHSLength of a known AHS type is not possible for that type.
    #[error("AHSLength {length} is not valid for AHSType {kind} (RFC 7143 11.2.2.3, 11.2.2.4)")]
    AhsLength {
        /// AHSType, 6 bits.
        kind: u8,
        /// AHSLength in bytes.
        length: usize,
    },
    /// An Extended CDB too long for any TotalAHSLength.
    #[error(
        "{length} CDB bytes beyond 16 do not fit one AHS; at most {} do (RFC 7143 11.2.2.3)",
        crate::MAX_EXTENDED_CDB_LENGTH
    )]
    ExtendedCdbTooLong {
        /// CDB bytes beyond the 16 of the header.
        length: usize,
    },
    /// The text does not end with a NUL.
    #[error("the last key=value pair is not ended by a NUL (RFC 7143 6.1)")]
    TextNotTerminated,
    /// The text is not UTF-8.
    #[error("text at byte {offset} is not UTF-8 (RFC 7143 6.1)")]
    TextNotUtf8 {
        /// Offset in the text.
        offset: usize,
    },
    /// A NUL-terminated item without `=`.
    #[error("text item at byte {offset} has no '=' (RFC 7143 6.1)")]
    TextNoEquals {
        /// Offset of the item in the text.
        offset: usize,
    },
    /// A key name of a wrong form: empty, not starting with a letter, or with characters outside the label
    /// set.
    #[error("key name at byte {offset} is not a label of letters, digits and . - + @ _ (RFC 7143 6.1)")]
    KeyForm {
        /// Offset of the key in the text.
        offset: usize,
    },
    /// A key name above 63 bytes.
    #[error("key name at byte {offset} is {length} bytes; at most 63 are allowed (RFC 7143 6.1)")]
    KeyTooLong {
        /// Offset of the key in the text.
        offset: usize,
        /// Its length in bytes.
        length: usize,
    },
    /// A value above its limit.
    #[error("value at byte {offset} is {length} bytes; at most {max} are allowed (RFC 7143 6.1)")]
    ValueTooLong {
        /// Offset of the value in the text.
        offset: usize,
        /// Its length in bytes.
        length: usize,
        /// The limit that applied, in bytes.
        max: usize,
    },
    /// Not a decimal or hexadecimal number.
    #[error("not a number: decimal digits or 0x and hexadecimal digits, without a sign (RFC 7143 6.1)")]
    NumberForm,
    /// A number of 2^64 or more.
    #[error("number is 2^64 or more (RFC 7143 6.1)")]
    NumberTooLarge,
    /// Neither `Yes` nor `No`.
    #[error("boolean is neither Yes nor No (RFC 7143 6.1)")]
    BooleanForm,
    /// A list with an empty item.
    #[error("list of values is empty or has an empty item (RFC 7143 6.1)")]
    ListForm,
    /// A binary value that is neither hexadecimal (0x) nor base64 (0b).
    #[error("binary value is neither 0x with hexadecimal digits nor 0b with padded base64 (RFC 7143 6.1)")]
    BinaryForm,
    /// A binary value that decodes to too many bytes.
    #[error("binary value is longer than {max} bytes (RFC 7143 6.1, 12.1.3)")]
    BinaryTooLong {
        /// The limit that applied, in decoded bytes.
        max: usize,
    },
}
