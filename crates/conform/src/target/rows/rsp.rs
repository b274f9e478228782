//! SCSI Responses (rows RSP).

use super::{clean, mixed_workload};
use crate::Reaction;
use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::session::Command;
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{RejectReason, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("RSP-01", "CHECK CONDITION has sense; no status before the last awaited F", rsp_01),
    Row::new("RSP-02", "ExpDataSN counts the Data-In and R2T that were sent", rsp_02),
    Row::new("RSP-04", "an ITT in use: Reject 07, the first task unharmed", rsp_04),
];

// covers: RSP-01
fn rsp_01(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session_with(|script| {
        script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::MAX_OUTSTANDING_R2T, "4")
    })?;
    let length = 16_384usize.next_multiple_of(scratch.block_size as usize);
    for lba in [ctx.capacity_blocks(), ctx.capacity_blocks() - 1] {
        let outcome = s.run(&Command::write_16(lba, vec![0; length], scratch.block_size))?;
        ensure!(outcome.status == 2, "a write beyond the end ended with {}", outcome.words());
        ensure!(outcome.sense_code().is_some(), "CHECK CONDITION without sense");
    }
    let outcome = s.run(&Command::none([0xff; 6]))?;
    ensure!(outcome.is_check(5, 0x20, 0), "an unknown command: expected 5/20/00, got {}", outcome.words());
    clean(&s, "RSP-01")
}

// covers: RSP-02
fn rsp_02(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session_with(|script| {
        script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")
    })?;
    mixed_workload(ctx, &mut s)?;
    let read = Command::read_16(scratch.lba, 4, scratch.block_size).edtl(scratch.block_size * 5);
    s.run(&read)?;
    clean(&s, "RSP-02")
}

// covers: RSP-04
fn rsp_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut s = ctx.session()?;
    let sent = s.start(&Command::write_16(scratch.lba, vec![0x57; size], scratch.block_size))?;
    let r2t = s.expect_r2t(&sent)?;
    let (_, frame): (_, Frame) = s.command_frame(&Command::test_unit_ready());
    s.peer.send(&frame.patch(16, &sent.itt.0.to_be_bytes()).remark("the ITT of the write"))?;
    match s.reaction(sent.itt)? {
        Reaction::Closed => return Ok(()),
        Reaction::Rejected(RejectReason::TaskInProgress) => {}
        other => fail!("an ITT in use: expected Reject 07, got {}", other.words()),
    }
    // ExpCmdSN shows whether the rejected command's CmdSN was used up; continue from there.
    if let Some(exp) = s.peer.ledger.exp_cmd_sn {
        s.cmd_sn = exp;
    }
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the first task ended with {}", outcome.words());
    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == vec![0x57; size], "the first task stored other bytes");
    Ok(())
}
