//! Third-party copy between units of a target: EXTENDED COPY, its results, and copies by token.

mod extended_copy;
mod shelf;
#[path = "../support/mod.rs"]
mod support;
mod tokens;

use shelf::{Shelf, number};
use support::cdb;

// covers: VPD-8F
#[test]
fn vpd_8f_tells_what_the_commands_do() {
    let mut shelf = Shelf::new();
    let data = shelf.run(0, &cdb::inquiry(Some(0x8f), 4096), &[]).good().data;
    assert_eq!(number(&data, 2, 2) as usize, data.len() - 4);
    let mut found = Vec::new();
    let mut at = 4;
    while at < data.len() {
        let (kind, length) = (number(&data, at, 2), number(&data, at + 2, 2) as usize);
        assert!(length.is_multiple_of(4) && at + 4 + length <= data.len());
        found.push(kind);
        let value = &data[at + 4..at + 4 + length];
        match kind {
            0x0000 => assert_eq!(number(value, 6, 2), 64),
            0x0001 => {
                assert!(usize::from(value[0]) < value.len());
                assert_eq!(value[1..8], [0x83, 5, 0x00, 0x01, 0x10, 0x11, 0x1c]);
                assert_eq!(value[8..15], [0x84, 5, 0x00, 0x03, 0x04, 0x05, 0x07]);
            }
            0x0008 => assert_eq!(value[..3], [2, 0x02, 0xe4]),
            0x0108 => assert_eq!(number(value, 2, 2) as usize, value.len() - 4),
            _ => {}
        }
        at += 4 + length;
    }
    assert_eq!(found, [0x0000, 0x0001, 0x0004, 0x0008, 0x0106, 0x0108, 0x8001]);
}
