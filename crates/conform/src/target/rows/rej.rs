//! Reject (rows REJ).

use super::{clean, mixed_workload};
use crate::Reaction;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{Opcode, Ttt};

pub(super) const ROWS: &[Row] = &[
    Row::new("REJ-01", "a Reject returns the header, counts in StatSN, has ITT ffffffff and no LUN", rej_01),
    Row::new("REJ-02", "a Reject of a live task's PDU does not end the task", rej_02),
    Row::new("REJ-03", "reason 0b is never sent", rej_03),
];

// covers: REJ-01
fn rej_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut bytes = [0; 48];
    (bytes[0], bytes[1]) = (0x5f, 0x80);
    bytes[16..20].copy_from_slice(&s.itt().0.to_be_bytes());
    bytes[24..28].copy_from_slice(&s.cmd_sn.0.to_be_bytes());
    let frame = Frame::raw(bytes).data(*b"data of an unknown PDU").remark("opcode 0x1f, immediate");
    s.peer.send(&frame)?;
    let rx = match s.next() {
        Err(error) if error.is_closed() => skip!("the target closes the connection instead of rejecting"),
        other => other?,
    };
    ensure!(rx.bhs.opcode() == Opcode::Reject.code(), "expected a Reject, received {}", rx.line());
    ensure!(rx.u32_at(16) == 0xffff_ffff, "bytes 16-19 of the Reject are {:08x}", rx.u32_at(16));
    ensure!(rx.u32_at(8) == 0 && rx.u32_at(12) == 0, "the LUN field of the Reject is set");
    ensure!(rx.data.get(..48) == Some(&frame.bhs().as_bytes()[..]), "the Reject returns another header");
    s.ping()?;
    clean(&s, "NUM-09")?;
    clean(&s, "REJ-01")
}

// covers: REJ-02
fn rej_02(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut s = ctx.session()?;
    let sent = s.start(&Command::write_16(scratch.lba, vec![0x72; size], scratch.block_size))?;
    let r2t = s.expect_r2t(&sent)?;
    let stray = s.data_out(&sent, Ttt(r2t.ttt.0 ^ 0x00ff_00ff), 0);
    s.peer.send(&Frame::of(stray).data(vec![0x8d; size]).remark("a TTT that was not given"))?;
    match s.reaction(sent.itt)? {
        Reaction::Rejected(_) => {}
        Reaction::Closed => skip!("the target closes the connection instead of rejecting"),
        Reaction::Finished(outcome) if !outcome.is_good() => {
            skip!("the target ends the task without a Reject: {}", outcome.words())
        }
        other => fail!("a stray Data-Out: {}", other.words()),
    }
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    if outcome.is_good() {
        let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
        ensure!(read.data == vec![0x72; size], "the rejected data was written");
    }
    Ok(())
}

// covers: REJ-03
fn rej_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    mixed_workload(ctx, &mut s)?;
    clean(&s, "REJ-03")
}
