//! Rows as text: what somebody who knows the protocol writes, `docs/conformance.md` describes.
//!
//! A file has rows, and a row has steps: sessions, PDUs that are sent and PDUs that are awaited. [`Row::parse`] reads a file and
//! says of every mistake where it is and what may be written instead. The files of this crate are in `rows/`.

mod parse;
mod target;

pub use parse::ParseError;
pub(crate) use parse::Row;

use parse::{Alternative, Await, Play, Step, Wanted, What};
pub(crate) use target::play;

/// Test data: the bytes that the command called `name` writes at `offset` of the scratch area. No two commands write the same.
fn bytes(name: &str, offset: usize, length: usize) -> Vec<u8> {
    let seed = name.bytes().fold(0x5bu8, |all, byte| all.wrapping_mul(31).wrapping_add(byte));
    (offset..offset.saturating_add(length))
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
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
