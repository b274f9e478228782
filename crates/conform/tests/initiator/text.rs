//! Rows for initiators that are written as text: they fail where the initiator differs, and apply where it grants what they need.

use crate::reference::{Flaw, Reference};
use conform::Verdict;
use conform::initiator::{InitiatorUnderTest, Row, rows};

fn strict() -> Reference {
    Reference { strict: true, ..Reference::default() }
}

fn verdict_with(initiator: &dyn InitiatorUnderTest, steps: &str) -> Verdict {
    let rows = Row::parse("x.rows", &format!("row DAT-01 a row of a test\n{steps}")).expect("no mistakes");
    rows[0].run(initiator)
}

fn verdict(steps: &str) -> Verdict {
    verdict_with(&strict(), steps)
}

/// A write that asks for its data.
const WRITE: &str = "with InitialR2T=Yes ImmediateData=No\nC> a write=4096\n";

#[test]
fn rows_fail_where_the_initiator_differs() {
    for (steps, words) in [
        (
            "with\nC> a read=512\nI< ScsiCommand itt=a W",
            "x.rows:4: expected ScsiCommand itt=a W, received ScsiCommand itt=",
        ),
        ("with\nC> a read=512\n...\nI< DataOut", "x.rows:5: expected DataOut, nothing came"),
        ("with\nC> a read=512\nC> b write=512\nI< ScsiCommand itt=b", "expected ScsiCommand itt=b, received"),
        ("with\nC> a flush\nI< close", "x.rows:4: expected close, received LogoutRequest"),
        ("with\nC> a read=512\nC< a failed", "x.rows:4: `a` ended with Done, the row has [Failed]"),
        ("with\nC> a read=512 holds=b", "x.rows:2: wrong bytes were handed up by `a`"),
        (
            "with\nC> a read=512\nI< ScsiCommand itt=a\nT> DataIn itt=a F data=512 status=0 of=b",
            "wrong bytes were handed up by `a`",
        ),
        (
            &format!("{WRITE}I< ScsiCommand itt=a\nT> ScsiResponse itt=a status=0"),
            "x.rows:2: `a` is called done, and its bytes are not on the medium",
        ),
        (
            &format!("{WRITE}I< ScsiCommand itt=a\nT> ScsiResponse itt=a status=2 sense=5/20/00"),
            "x.rows:2: `a` ended with Failed, the row has [Done]",
        ),
        (
            &format!(
                "{WRITE}I< ScsiCommand itt=a\nT> R2t itt=a ttt=x len=4096\nI< DataOut itt=a ttt=y offset=512"
            ),
            "x.rows:6: expected DataOut itt=a ttt=y offset=512, received DataOut",
        ),
        (
            &format!("{WRITE}I< ScsiCommand itt=a\nT> ScsiResponse itt=a status=2 sense=five"),
            "x.rows:5: `sense=five`: write key, ASC and ASCQ",
        ),
        (
            "with\nC> a flush\nC> b read=512\nI< ScsiCommand itt=b\nT> DataIn itt=c",
            "x.rows:6: `itt=c` is no number",
        ),
        ("with\nC> a read=512\nI< refused", "x.rows:4: the login succeeded"),
        (
            "with\nT> proposes X-a=1\nC> a read=512\nI< keys X-a=7",
            "x.rows:5: expected keys X-a=7, the initiator says",
        ),
        (
            "case one: 512\nwith\nC> a read={case}\nI< ScsiCommand itt=a W",
            "one: x.rows:5: expected ScsiCommand itt=a W",
        ),
    ] {
        match verdict(steps) {
            Verdict::Fail { why, .. } => assert!(why.contains(words), "{steps}: {why}"),
            other => panic!("{steps}: {other:?}"),
        }
    }
}

#[test]
fn rows_apply_where_the_initiator_offers_what_they_need() {
    let wrong = "C> a read=512\nI< ScsiCommand itt=a W";
    for (steps, words) in [
        (
            format!("with MaxConnections=4\n{wrong}"),
            "the initiator negotiates MaxConnections=1, the row needs 4",
        ),
        (
            format!("with InitialR2T=No\nC> a read=512\nwith TaskReporting=FastAbort\n{wrong}"),
            "the initiator does not offer TaskReporting",
        ),
        (
            "with\nT> keys TaskReporting=RFC3720\nC> a read=512\nI< refused".to_owned(),
            "the initiator does not offer TaskReporting",
        ),
        (format!("when MaxConnections=4\n{wrong}"), "the initiator negotiates MaxConnections=1"),
    ] {
        match verdict(&steps) {
            Verdict::NotApplicable { why } => assert!(why.contains(words), "{steps}: {why}"),
            other => panic!("{steps}: {other:?}"),
        }
    }
}

#[test]
fn a_part_that_is_left_out_leaves_the_next() {
    let wrong = "C> a read=512\nI< ScsiCommand itt=a W\n";
    assert_eq!(verdict(&format!("when MaxConnections=4\n{wrong}with\nC> b read=512")), Verdict::Pass);
    assert!(verdict(&format!("when MaxConnections=4\n{wrong}with\n{wrong}")).is_fail());
    assert!(verdict(&format!("when\n{wrong}with\nC> b read=512")).is_fail(), "it applies");
}

#[test]
fn what_stands_after_else_is_for_strangers() {
    let steps = "with\nC> a flush\nI< close else LogoutRequest";
    assert_eq!(verdict(steps), Verdict::Pass);
    assert_eq!(verdict(&format!("{steps}\nC< a failed")), Verdict::Pass, "and what follows is left out");
    let known = Reference { known: true, ..strict() };
    assert!(verdict_with(&known, steps).is_fail());
    let optional = "when MaxConnections=4\nC> a flush\nwith\nC> a flush";
    assert!(matches!(verdict_with(&known, optional), Verdict::NotApplicable { .. }));
}

#[test]
fn a_connection_that_the_row_resets_is_not_the_end() {
    let steps = "with\nC> a read=512\nI< ScsiCommand itt=a\nX\nC< a done";
    assert_eq!(verdict(steps), Verdict::Pass, "the reference comes back, and the target serves it");
}

#[test]
fn rows_see_what_they_are_for() {
    for (flaw, ids) in [
        (Flaw::TooMuch, &["UNS-03", "UNS-04"][..]),
        (Flaw::TooLittle, &["UNS-04"]),
        (Flaw::IgnoresStatus, &["RSP-01", "RSP-03"]),
        (Flaw::IgnoresResidual, &["RES-04"]),
    ] {
        let flawed = Reference { strict: true, flaw: Some(flaw), ..Reference::default() };
        for row in rows().iter().filter(|row| ids.contains(&row.id)) {
            assert!(row.is_text());
            assert!(row.run(&flawed).is_fail(), "{flaw:?}: {}", row.id);
            assert_eq!(row.run(&strict()), Verdict::Pass, "{}", row.id);
        }
    }
}
