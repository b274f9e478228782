//! The initiator's side of the protocol, played against the rows for initiators that are written as text. What they have after
//! `else`, because the rules allow it too, is not accepted here.

mod memory;

use conform::Verdict;
use conform::initiator::{Row, rows};
use memory::MemoryInitiator;

#[test]
fn every_row_in_text_is_kept() {
    let wanted: Vec<Row> = rows().into_iter().filter(Row::is_text).collect();
    assert!(!wanted.is_empty());
    let wrong: Vec<String> = wanted
        .iter()
        .filter_map(|row| match row.run(&MemoryInitiator) {
            Verdict::Pass => None,
            Verdict::NotApplicable { why } => Some(format!("{}: not applicable: {why}", row.id)),
            Verdict::Fail { why, transcript } => Some(format!("{}: {why}\n{transcript}", row.id)),
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
