//! iSCSI TransportID (SPC-4 7.6.4.6): how persistent reservations name an initiator port.

use crate::sense::{Asc, SenseData};

/// PROTOCOL IDENTIFIER of iSCSI.
const ISCSI: u8 = 5;
/// Bytes before the name.
const HEADER_BYTES: usize = 4;
/// Smallest ADDITIONAL LENGTH.
const MIN_ADDITIONAL: usize = 20;
/// Longest name: an iSCSI name of 223 bytes, `,i,0x`, 12 digits.
const MAX_NAME: usize = 240;

/// What a TransportID names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TransportId {
    /// Format 0: the initiator device, all its ports.
    Device(String),
    /// Format 1: one initiator port, `name,i,0xISID`.
    Port(String),
}

/// Encodes an initiator port name as format 1.
pub(super) fn encode(initiator_port: &str) -> Vec<u8> {
    let mut name = initiator_port.as_bytes().to_vec();
    name.truncate(MAX_NAME);
    name.push(0);
    let length = name.len().next_multiple_of(4).max(MIN_ADDITIONAL);
    name.resize(length, 0);
    let format = if initiator_port.contains(",i,0x") { 0x40 } else { 0x00 };
    let [hi, lo] = (length as u16).to_be_bytes();
    let mut bytes = vec![format | ISCSI, 0, hi, lo];
    bytes.extend(name);
    bytes
}

/// Reads one TransportID from the front of `bytes`, which start at offset `at` of the parameter list. Returns it
/// and its length in bytes.
//= spc4 7.6.4.6 PR-11
pub(super) fn decode(bytes: &[u8], at: usize) -> Result<(TransportId, usize), SenseData> {
    let wrong =
        |offset: usize| SenseData::parameter_field(u16::try_from(at + offset).unwrap_or(u16::MAX), None);
    if bytes.len() < HEADER_BYTES {
        return Err(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    if bytes[0] & 0x0f != ISCSI {
        return Err(wrong(0));
    }
    let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    if length < MIN_ADDITIONAL || length % 4 != 0 {
        return Err(wrong(2));
    }
    let name = bytes
        .get(HEADER_BYTES..HEADER_BYTES + length)
        .ok_or(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR))?;
    let end = name.iter().position(|&byte| byte == 0).ok_or(wrong(HEADER_BYTES))?;
    let name = std::str::from_utf8(&name[..end]).map_err(|_| wrong(HEADER_BYTES))?.to_ascii_lowercase();
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(wrong(HEADER_BYTES));
    }
    let id = match (bytes[0] >> 6, name.contains(",i,0x")) {
        (0, false) => TransportId::Device(name),
        (1, true) => TransportId::Port(name),
        (0 | 1, _) => return Err(wrong(HEADER_BYTES)),
        _ => return Err(wrong(0)),
    };
    Ok((id, HEADER_BYTES + length))
}
