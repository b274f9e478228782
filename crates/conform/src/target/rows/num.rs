//! Numbering and windows (rows NUM), on one connection and on two.

use super::{clean, if_applicable, mixed_workload};
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::bundle::Bundle;
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{Itt, Opcode, RejectReason, TmfFunction};

pub(super) const ROWS: &[Row] = &[
    Row::new("NUM-05", "MaxCmdSN never below ExpCmdSN-1, ExpCmdSN never backwards", num_05),
    Row::new("NUM-07", "a window that closed opens again, visibly", num_07),
    Row::new("NUM-08", "immediate commands are answered or rejected with 06, each of them", num_08),
    Row::new("NUM-09", "StatSN counts responses and nothing else", num_09),
    Row::new("NUM-11", "no response before its command is acknowledged", num_11),
];

// covers: NUM-05
fn num_05(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut sent = Vec::new();
    let room = s.peer.ledger.max_cmd_sn.map_or(0, |max| s.cmd_sn.distance_to(max)).min(31);
    for _ in 0..=room {
        sent.push(s.start(&Command::inquiry(36, 36))?);
    }
    for sent in &sent {
        s.finish(sent)?;
    }
    mixed_workload(ctx, &mut s)?;
    clean(&s, "NUM-05")?;
    if_applicable(window_over_connections(ctx))
}

/// Commands on two connections alternately, answered in any order.
fn window_over_connections(ctx: &Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    let mut sent = Vec::new();
    for n in 0..16 {
        sent.push((n % 2, b.on(n % 2).start(&Command::inquiry(36, 36))?));
    }
    for (index, task) in sent.iter().rev() {
        b.on(*index).finish(task)?;
    }
    clean(b.on(0), "NUM-05")?;
    clean(b.on(1), "NUM-05")
}

// covers: NUM-07
fn num_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    s.ping()?;
    let Some(max) = s.peer.ledger.max_cmd_sn else { fail!("no MaxCmdSN was seen") };
    let window = s.cmd_sn.distance_to(max).wrapping_add(1);
    if window > 1024 {
        skip!("the window has {window} commands; it is not filled here");
    }
    // Writes that wait for data fill the window; if the target bases its window on received commands, it stays open.
    let scratch = ctx.scratch();
    let write = Command::write_16(scratch.lba, vec![0; scratch.block_size as usize], scratch.block_size);
    let mut sent = Vec::new();
    for _ in 0..window {
        sent.push(s.start(&write)?);
    }
    s.ping()?;
    for sent in &sent {
        s.finish(sent)?;
    }
    let open = |s: &crate::Session| s.peer.ledger.max_cmd_sn.is_some_and(|max| s.cmd_sn.le(max));
    if !open(&s) {
        // Then the target must announce the new window itself.
        let rx = s.peer.recv()?;
        ensure!(
            rx.bhs.opcode() == Opcode::NopIn.code() && open(&s),
            "the window stays closed: {}",
            rx.line()
        );
    }
    Ok(())
}

// covers: NUM-08
fn num_08(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut frames = Vec::new();
    for _ in 0..64 {
        let itt = s.itt();
        let nop = s.nop(itt, true);
        frames.push(Frame::of(nop).data(*b"flood"));
    }
    let mut open: Vec<Itt> = frames.iter().map(|frame| frame.bhs().itt()).collect();
    s.peer.send_together(&frames)?;
    while !open.is_empty() {
        let rx = s.next()?;
        let itt = if rx.bhs.opcode() == Opcode::Reject.code() {
            let reason = rx.bhs.as_bytes()[2];
            ensure!(
                reason == RejectReason::TooManyImmediateCommands.code(),
                "an immediate was rejected with {reason:#04x}"
            );
            rx.data
                .get(16..20)
                .map_or(0, |tag| tag.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)))
        } else {
            rx.bhs.itt().0
        };
        let Some(at) = open.iter().position(|tag| tag.0 == itt) else { fail!("unasked: {}", rx.line()) };
        open.remove(at);
    }
    let mut tmf = s.tmf(TmfFunction::AbortTask, true);
    (tmf.referenced_task_tag, tmf.ref_cmd_sn) = (Itt(0x7777), s.cmd_sn);
    s.manage(tmf)?;
    s.ping()?;
    Ok(())
}

// covers: NUM-09
fn num_09(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    mixed_workload(ctx, &mut s)?;
    clean(&s, "NUM-09")
}

// covers: NUM-11
fn num_11(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    mixed_workload(ctx, &mut s)?;
    clean(&s, "NUM-11")
}
