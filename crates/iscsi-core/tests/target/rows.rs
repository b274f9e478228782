//! The rows that are written as text, played with a target in memory. What they have after
//! `else`, because the rules allow it too, is not accepted here.

use std::time::Duration;

use conform::Verdict;
use conform::target::{Ctx, Options, Row, rows};
use iscsi_core::params::{Asymmetric, Bounds, Bursts, TaskReporting};
use iscsi_core::wire::{Bhs, Opcode};

use crate::memory::MemoryTarget;
use crate::policy::{Policy, TARGET};

/// What a target has that grants everything that a row may ask for.
fn generous() -> Bounds {
    let mut bounds = Policy::default().bounds;
    (bounds.max_connections, bounds.error_recovery_level) = (8, 2);
    (bounds.task_reporting, bounds.protocol_level) = (TaskReporting::FastAbort, 2);
    bounds.asymmetric = Asymmetric::Pairs;
    bounds.bursts.initial_r2t = false;
    bounds
}

/// Tools for rows with this target, which does what stands before `else`, and grants everything.
fn context() -> Ctx {
    let mut ctx = lenient(generous());
    ctx.accept_nothing_else();
    ctx
}

/// Tools as for a target of which nothing is known.
fn lenient(bounds: Bounds) -> Ctx {
    over(MemoryTarget::new(Policy { bounds, ..Policy::default() }))
}

fn over(target: MemoryTarget) -> Ctx {
    let options = Options {
        target: Some(TARGET.to_owned()),
        lun: Some(0),
        timeout: Duration::from_secs(2),
        ..Options::new("memory", 0)
    };
    Ctx::over(Box::new(target), options).expect("a target")
}

#[test]
fn every_row_in_text_is_kept() {
    let mut ctx = context();
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

/// Byte 2 of such a PDU, which says how a request was answered, is another one.
fn answered(bhs: &mut Bhs, opcode: Opcode, code: u8) {
    if bhs.opcode() == opcode.code() {
        let mut bytes = *bhs.as_bytes();
        bytes[2] = code;
        *bhs = Bhs::from_bytes(bytes);
    }
}

/// Rows that the little target of `conform` does not keep.
#[test]
fn a_wrong_answer_fails_its_row() {
    let reject: fn(&mut Bhs) = |bhs| answered(bhs, Opcode::Reject, 9);
    let gone: fn(&mut Bhs) = |bhs| answered(bhs, Opcode::TaskManagementResponse, 1);
    let done: fn(&mut Bhs) = |bhs| answered(bhs, Opcode::TaskManagementResponse, 0);
    for (id, change) in [
        ("NUM-13", reject),
        ("DIG-08", reject),
        ("DIG-09", reject),
        ("DIG-10", reject),
        ("TMF-04", gone),
        ("ERL-09", done),
    ] {
        let row = rows().into_iter().find(|row| row.id == id).expect("a row");
        let mut ctx = over(MemoryTarget::saying(Policy { bounds: generous(), ..Policy::default() }, change));
        ctx.accept_nothing_else();
        assert!(row.verdict(&mut ctx).is_fail(), "{id}");
    }
}

fn verdict(steps: &str) -> Verdict {
    verdict_of(context(), steps)
}

fn verdict_of(mut ctx: Ctx, steps: &str) -> Verdict {
    let rows = Row::parse("x.rows", &format!("row NOP-01 a row of a test\n{steps}")).expect("no mistakes");
    rows[0].verdict(&mut ctx)
}

#[test]
fn rows_fail_where_the_target_differs() {
    for (steps, words) in [
        (
            "with\nI> NopOut I itt=p data=4\nT< NopIn itt=p data=5",
            "x.rows:4: expected NopIn itt=p data=5, received NopIn itt=",
        ),
        ("with\nT< NopIn", "x.rows:3: expected NopIn, nothing came"),
        ("with\nI> NopOut I itt=p\nT< nothing", "expected nothing, received NopIn"),
        ("with\nI> NopOut I itt=p\nT< close", "expected close, received NopIn"),
        ("with\nI> NopOut I itt=p\nT< Reject else NopIn itt=p", "expected Reject, received NopIn"),
        (
            "with\nI> LogoutRequest I itt=p\nT< LogoutResponse itt=p\nT< NopIn",
            "the target closed the connection",
        ),
        (
            "with\nI> ScsiCommand itt=a F write=4096\n...\nT< ScsiResponse itt=a status=2",
            "expected ScsiResponse itt=a status=2, received",
        ),
        (
            "with\nI> ScsiCommand itt=a F read=512 at=end\n...\nT< DataIn",
            "expected DataIn, received ScsiResponse",
        ),
        (
            "with\nI> ScsiCommand itt=a F write=4096\n...\nT< ScsiResponse itt=a\nI> ScsiCommand itt=b F read=4096 holds=c\nT< DataIn",
            "are not those that `c` wrote",
        ),
        ("with\nI> DataOut itt=a", "x.rows:3: `itt=a` is no number"),
        ("with\nI> ScsiCommand itt=a F write=99999744", "the line names 99999744 at 0"),
        ("with\nI> ScsiCommand itt=a F write=512 at=end-4000256", "the line names 512 at end-4000256"),
        ("with\nI> ScsiCommand itt=a F write=-1", "no number of bytes"),
        ("with\nI> ScsiCommand itt=a F edtl=4294967295 W data=4\nT< nothing", "expected nothing, received"),
        ("with\nX\nI> NopOut I itt=p", "x.rows:4: the connection is gone"),
        (
            "login\nI> keys T MaxBurstLength=512\nT< keys MaxBurstLength<=511",
            "x.rows:4: expected keys MaxBurstLength<=511, got success",
        ),
        ("login\nI> keys T\nT< refused or close", "expected refused or close, got success"),
        (
            "login\nI> keys T IFMarker=No IFMarker=No\nT< refused=0x0201|0x0202",
            "expected refused=0x0201|0x0202, got initiator error (0x0200)",
        ),
        (
            "login\nI> keys T IFMarker=No IFMarker=No\nT< keys T else refused",
            "expected keys T, got initiator error",
        ),
        ("login\nI> keys\nT< keys T", "expected keys T, got success"),
        ("login discovery\nI> keys\nT< keys TargetName", "expected keys TargetName, got success"),
        (
            "with MaxConnections=2\njoin 2\nI2> NopOut I itt=p\nT< NopIn itt=p",
            "expected NopIn itt=p, nothing came",
        ),
        ("with MaxConnections=2\njoin 2\nX2\nI2> NopOut I itt=p", "x.rows:5: the connection is gone"),
        (
            "with MaxConnections=2\njoin 2\nX2\n...\nT< AsyncMessage parameter1=1",
            "expected AsyncMessage parameter1=1, nothing came",
        ),
        (
            "with\nI> NopOut I itt=p\nI> NopOut I itt=q\nT< nothing itt=q",
            "expected nothing itt=q, received NopIn",
        ),
        ("with\nT< nothing itt=q", "x.rows:3: `itt=q`: no line before has that name"),
        ("with\nI> NopOut I itt=p\nT< Reject or nothing", "expected Reject or nothing, received NopIn"),
        ("with\ngap n\nI> NopOut itt=p\nT< NopIn itt=p", "expected NopIn itt=p, nothing came"),
        (
            "with\nI> ScsiCommand itt=a F cdb=00\nI> ScsiCommand itt=b F cdb=00\nT< ScsiResponse itt=b\nT< ScsiResponse itt=a",
            "expected ScsiResponse itt=b, received ScsiResponse",
        ),
        (
            "with cmd_sn=7\nI> NopOut itt=p cmd_sn=n\nT< NopIn itt=p exp_cmd_sn=7",
            "expected NopIn itt=p exp_cmd_sn=7",
        ),
        ("case one: 4\nwith\nI> NopOut I itt=p data={case}\nT< Reject", "x.rows:5: one: expected Reject"),
    ] {
        match verdict(steps) {
            Verdict::Fail { why, .. } => assert!(why.contains(words), "{steps}: {why}"),
            other => panic!("{steps}: {other:?}"),
        }
    }
}

#[test]
fn rows_apply_where_the_target_grants_what_they_need() {
    let needs = "MaxBurstLength=1000 ErrorRecoveryLevel=2";
    let na = |steps: &str| matches!(verdict(steps), Verdict::NotApplicable { .. });
    assert_eq!(verdict(&format!("with {needs}\nI> NopOut I itt=p\nT< NopIn itt=p")), Verdict::Pass);
    assert!(na("with MaxConnections=99\nT< Reject"));
    assert!(na("with\nI> ScsiCommand itt=a F read=100\nT< Reject"), "no whole blocks");
    assert!(na("with\nI> ScsiCommand itt=a F write=4096\nT? R2t itt=a len=512"));
    for part in [
        "when MaxConnections=99\nT< Reject",
        "when\nI> ScsiCommand itt=a F write=4096\nT? R2t itt=a ttt=x len=512\nT< Reject",
        "when\nI> NopOut I itt=a data=16777215\nT< Reject",
    ] {
        let steps = format!("{part}\nwith MaxConnections<=99\nT< nothing");
        assert_eq!(verdict_of(lenient(generous()), &steps), Verdict::Pass, "{part}: it is left out");
        assert!(na(&steps), "{part}: the target is known to grant it");
        let steps = format!("{part}\nwith\nT< Reject");
        assert!(verdict_of(lenient(generous()), &steps).is_fail(), "{part}: what follows is played");
    }
    let nothing = verdict_of(lenient(generous()), "when MaxConnections=99\nT< Reject");
    assert!(matches!(nothing, Verdict::NotApplicable { .. }), "no part of the row applies: {nothing:?}");
    assert!(
        verdict("with\nI> ScsiCommand itt=a F write=4096\nT? R2t itt=a offset=512").is_fail(),
        "not the length"
    );
}

#[test]
fn rows_keep_what_comes_early_and_follow_each_connection() {
    for steps in [
        "with\nI> ScsiCommand itt=a F cdb=00\nI> ScsiCommand itt=b F cdb=00\n...\nT< ScsiResponse itt=b\n...\nT< ScsiResponse itt=a",
        "with\ngap n\nI> ScsiCommand itt=q F cdb=00\nI> NopOut I itt=p\nT< nothing itt=q\nT< NopIn itt=p",
        "with MaxConnections=2\njoin 2\nI2> NopOut I itt=p\nT2< NopIn itt=p\nX\nI2> NopOut I itt=q\n...\nT2< NopIn itt=q",
        "with MaxConnections=2\njoin 2\nI> LogoutRequest I itt=l reason=CloseConnection cid=2\nT< LogoutResponse\nT2< close\nT< nothing\njoin 2\nI2> NopOut I itt=q\nT2< NopIn itt=q",
        // The session is over with its last connection; what follows does not apply.
        "with\nI> LogoutRequest I itt=l reason=CloseSession cid=0\nT< LogoutResponse\nT< close\nT< NopIn",
        "with\ngap n\nI> NopOut itt=p cmd_sn=n\nT< NopIn itt=p exp_cmd_sn=next max_cmd_sn>=max",
    ] {
        assert_eq!(verdict(steps), Verdict::Pass, "{steps}");
    }
}

#[test]
fn rows_count_with_what_is_granted() {
    let uns_04 = rows().into_iter().find(|row| row.id == "UNS-04").expect("a row");
    for first_burst_length in [4096, 6144, 8192] {
        let mut ctx =
            lenient(Bounds { bursts: Bursts { first_burst_length, ..generous().bursts }, ..generous() });
        ctx.accept_nothing_else();
        assert_eq!(uns_04.verdict(&mut ctx), Verdict::Pass, "FirstBurstLength={first_burst_length}");
    }
    let count = |granted: u32, steps: &str| {
        let bounds = Bounds {
            max_recv_data_segment_length: granted,
            bursts: Bursts { first_burst_length: granted, ..generous().bursts },
            ..generous()
        };
        verdict_of(lenient(bounds), &format!("with\nI> NopOut I itt=p data={steps}"))
    };
    assert_eq!(count(1024, "most\nT< NopIn itt=p data=1024"), Verdict::Pass);
    assert_eq!(count(1024, "first-24\nT< NopIn itt=p data=1000"), Verdict::Pass);
    assert!(matches!(count(512, "1024\nT< NopIn itt=p"), Verdict::NotApplicable { .. }));
}
