//! The rows for initiators, tried on a strict little initiator and on a trusting one: the first must pass, the
//! second must be caught.

mod reference;
mod text;

use conform::Verdict;
use conform::initiator::{Row, rows};
use reference::Reference;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the strict one does not support: the rows that test it.
const NOT_KEPT: &[&str] = &[
    "DIG-03", "TXT-03", "TXT-12", "KEY-19", "KEY-24", "LGN-08", "LGN-11", "LGN-15", "SEC-08", "SEC-12",
    "NUM-10", "R2T-03", "TMF-04", "TMF-10", "ASY-01", "ASY-02", "ASY-03",
];

/// Rows that catch an initiator that trusts whatever it receives.
const CAUGHT: &[&str] =
    &["PDU-06", "PDU-08", "DIG-05", "TXT-11", "TXT-17", "SEC-02", "TXR-02", "DAT-02", "DAT-03"];

/// Plays all wanted rows, several at a time, because most of them wait.
fn play(initiator: &Reference, wanted: impl Fn(&Row) -> bool) -> BTreeMap<&'static str, Verdict> {
    let wanted: Vec<Row> = rows().into_iter().filter(|row| wanted(row)).collect();
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(row) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = row.run(initiator);
                    verdicts.lock().unwrap().insert(row.id, verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap()
}

#[test]
fn a_strict_initiator_passes() {
    let mut failed = Vec::new();
    for (id, verdict) in
        play(&Reference { strict: true, ..Reference::default() }, |row| !NOT_KEPT.contains(&row.id))
    {
        if let Verdict::Fail { why, transcript } = verdict {
            failed.push(format!("{id}: {why}\n{transcript}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn rows_fail_for_an_initiator_that_does_not_keep_them() {
    let not_applicable = ["TMF-04"];
    for (id, verdict) in
        play(&Reference { strict: true, ..Reference::default() }, |row| NOT_KEPT.contains(&row.id))
    {
        assert!(verdict.is_fail() || not_applicable.contains(&id), "{id}: {verdict:?}");
    }
}

#[test]
fn a_trusting_initiator_is_caught() {
    for (id, verdict) in play(&Reference::default(), |row| CAUGHT.contains(&row.id)) {
        assert!(verdict.is_fail(), "{id}: {verdict:?}");
    }
}

#[test]
fn an_initiator_that_only_pretends_to_recover_is_caught() {
    let rows = ["ERL-02", "ERL-03", "SNK-02", "SNK-03"];
    let pretender = Reference { strict: true, pretends: true, ..Reference::default() };
    for (id, verdict) in play(&pretender, |row| rows.contains(&row.id)) {
        assert!(verdict.is_fail(), "{id}: {verdict:?}");
    }
}

#[test]
fn every_row_has_its_own_id() {
    let mut ids: Vec<&str> = rows().iter().map(|row| row.id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
