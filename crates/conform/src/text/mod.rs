//! Rows as text: what somebody who knows the protocol writes, `docs/conformance.md` describes.
//!
//! A file has rows, and a row has steps: sessions, PDUs that are sent and PDUs that are awaited. [`Row::parse`] reads a file and
//! says of every mistake where it is and what may be written instead. The files of this crate are in `rows/`.

mod caller;
mod initiator;
mod keys;
mod parse;
mod script;
mod target;

pub(crate) use initiator::play_with_initiator;
pub use parse::ParseError;
pub(crate) use parse::{Row, Tested};
pub(crate) use target::play_with_target;

use crate::Received;
use iscsi_wire::{Bhs, Pdu};

/// Test data: the bytes that the command called `name` writes at `offset` of the scratch area. No two commands write the same.
fn bytes(name: &str, offset: usize, length: usize) -> Vec<u8> {
    let seed = name.bytes().fold(0x5bu8, |all, byte| all.wrapping_mul(31).wrapping_add(byte));
    (offset..offset.saturating_add(length))
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

/// A PDU as one line, with what its data says.
fn described(rx: &Received) -> String {
    let mut line = rx.line();
    match rx.pdu() {
        Ok(Pdu::ScsiResponse(_)) => {
            if let Some((key, asc, ascq)) = crate::Outcome::of_response(rx).sense_code() {
                line.push_str(&format!(" sense={key:x}/{asc:02x}/{ascq:02x}"));
            }
        }
        Ok(Pdu::Reject(_)) => {
            if let Some(header) = rx.data.first_chunk::<{ Bhs::SIZE }>() {
                let of = Bhs::from_bytes(*header);
                line.push_str(&format!(" of_opcode={:#04x} of_itt={}", of.opcode(), of.itt()));
            }
        }
        Ok(Pdu::AsyncMessage(message)) => {
            line.push_str(&format!(" parameter1={}", message.parameter1));
        }
        _ => {}
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_write_different_bytes_at_different_places() {
        assert_ne!(bytes("a", 0, 512), bytes("b", 0, 512));
        assert_ne!(bytes("a", 0, 512), bytes("a", 512, 512));
        assert_eq!(bytes("a", 0, 1024)[512..], bytes("a", 512, 512));
    }
}
