//! Additional Header Segments (RFC 7143 11.2.2).
//!
//! `AHSLength (2) | AHSType (1) | AHSLength bytes | padding to 4`. The two AHS that the standard defines both
//! start with a reserved byte, so that their content is aligned to four; it is counted in AHSLength.

use crate::{MAX_AHS_LENGTH, WireError, padded_length, padding_length};
use std::iter::FusedIterator;

const TYPE_EXTENDED_CDB: u8 = 1;
const TYPE_BIDI_READ_LENGTH: u8 = 2;
/// AHSLength, AHSType and the reserved byte.
const PREFIX: usize = 4;

/// Most CDB bytes beyond the first 16 that one AHS can carry inside the largest TotalAHSLength.
pub const MAX_EXTENDED_CDB_LENGTH: usize = MAX_AHS_LENGTH - PREFIX;

/// One Additional Header Segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahs<'a> {
    /// Type 1: the CDB bytes after the first 16, without padding; never empty.
    ExtendedCdb(&'a [u8]),
    /// Type 2: Bidirectional Read Expected Data Transfer Length, in bytes.
    BidiReadLength(u32),
    /// A type that RFC 7143 does not define.
    Unknown {
        /// AHSType, 6 bits.
        kind: u8,
        /// The AHSLength bytes that follow the type byte.
        data: &'a [u8],
    },
}

/// The AHS of one PDU in wire order; see [`parse_ahs`].
#[derive(Clone, Debug)]
pub struct AhsChain<'a> {
    rest: &'a [u8],
}

/// Walks the AHS of a PDU; `bytes` is everything that TotalAHSLength covers. The chain must end exactly where
/// `bytes` ends. After an error the iterator is exhausted.
//= rfc7143 11.2.2 AHS-03
pub fn parse_ahs(bytes: &[u8]) -> AhsChain<'_> {
    AhsChain { rest: bytes }
}

impl<'a> Iterator for AhsChain<'a> {
    type Item = Result<Ahs<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let &[l0, l1, kind, ref after @ ..] = bytes else {
            return Some(Err(WireError::AhsChain { needed: PREFIX, left: bytes.len() }));
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let needed = padded_length(3 + length);
        let (Some(data), Some(rest)) = (after.get(..length), bytes.get(needed..)) else {
            return Some(Err(WireError::AhsChain { needed, left: bytes.len() }));
        };
        let kind = kind & 0x3f;
        let ahs = match (kind, data) {
            //= rfc7143 11.2.2.3 AHS-01
            (TYPE_EXTENDED_CDB, [_reserved, cdb @ ..]) if !cdb.is_empty() => Ahs::ExtendedCdb(cdb),
            //= rfc7143 11.2.2.4 AHS-02
            (TYPE_BIDI_READ_LENGTH, &[_reserved, a, b, c, d]) => {
                Ahs::BidiReadLength(u32::from_be_bytes([a, b, c, d]))
            }
            (TYPE_EXTENDED_CDB | TYPE_BIDI_READ_LENGTH, _) => {
                return Some(Err(WireError::AhsLength { kind, length }));
            }
            _ => Ahs::Unknown { kind, data },
        };
        self.rest = rest;
        Some(Ok(ahs))
    }
}

impl FusedIterator for AhsChain<'_> {}

/// Appends an Extended CDB AHS with the CDB bytes after the first 16, padded with zeros. Nothing is appended
/// for a CDB that fits the header. An error, and no bytes, above [`MAX_EXTENDED_CDB_LENGTH`].
//= rfc7143 11.2.2.3 AHS-01
pub fn write_extended_cdb(out: &mut Vec<u8>, cdb_beyond_16: &[u8]) -> Result<(), WireError> {
    let length = cdb_beyond_16.len();
    if length == 0 {
        return Ok(());
    }
    if length > MAX_EXTENDED_CDB_LENGTH {
        return Err(WireError::ExtendedCdbTooLong { length });
    }
    // CDB length - 15, that is the bytes beyond 16 and the reserved byte; at most 1017.
    let [l0, l1] = (length as u16 + 1).to_be_bytes();
    out.extend_from_slice(&[l0, l1, TYPE_EXTENDED_CDB, 0]);
    out.extend_from_slice(cdb_beyond_16);
    out.resize(out.len() + padding_length(length), 0);
    Ok(())
}

/// Appends a Bidirectional Read Expected Data Transfer Length AHS (8 bytes). `length` is in bytes.
//= rfc7143 11.2.2.4 AHS-02
pub fn write_bidi_read_length(out: &mut Vec<u8>, length: u32) {
    out.extend_from_slice(&[0, 5, TYPE_BIDI_READ_LENGTH, 0]);
    out.extend_from_slice(&length.to_be_bytes());
}
