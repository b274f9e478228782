//! The rows that are written as text, played with a target in memory. What they have after
//! `else`, because the rules allow it too, is not accepted here.

use std::time::Duration;

use conform::Verdict;
use conform::target::{Ctx, Options, Row, rows};
use iscsi_core::params::{Asymmetric, TaskReporting};

use crate::memory::MemoryTarget;
use crate::policy::{Policy, TARGET};

/// A target that grants everything that a row may ask for.
fn generous() -> MemoryTarget {
    let mut policy = Policy::default();
    let bounds = &mut policy.bounds;
    (bounds.max_connections, bounds.error_recovery_level) = (8, 2);
    (bounds.task_reporting, bounds.protocol_level) = (TaskReporting::FastAbort, 2);
    bounds.asymmetric = Asymmetric::Pairs;
    bounds.initial_r2t = false;
    MemoryTarget::new(policy)
}

#[test]
fn every_row_in_text_is_kept() {
    let options = Options {
        target: Some(TARGET.to_owned()),
        lun: Some(0),
        timeout: Duration::from_secs(2),
        ..Options::new("memory", 0)
    };
    let mut ctx = Ctx::over(Box::new(generous()), options).expect("a target");
    ctx.accept_nothing_else();
    let wanted: Vec<Row> = rows().into_iter().filter(Row::is_text).collect();
    assert!(!wanted.is_empty());
    let mut wrong = Vec::new();
    for row in wanted {
        match row.verdict(&mut ctx) {
            Verdict::Pass => {}
            Verdict::NotApplicable { why } => wrong.push(format!("{}: not applicable: {why}", row.id)),
            Verdict::Fail { why, transcript } => wrong.push(format!("{}: {why}\n{transcript}", row.id)),
        }
        wrong.extend(
            ctx.take_findings()
                .into_iter()
                .map(|found| format!("{}: {}: {}", row.id, found.row, found.words)),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
