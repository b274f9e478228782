//! Numbering and windows (rows NUM), on one connection and on two.

use super::{clean, if_applicable, mixed_workload, silence};
use crate::Reaction;
use crate::frame::{DigestWish, Frame};
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Unsolicited};
use crate::target::bundle::Bundle;
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{CmdSn, Itt, Opcode, RejectReason, TaskAttribute, TmfFunction};

pub(super) const ROWS: &[Row] = &[
    Row::new("NUM-02", "commands execute in CmdSN order; a hole waits", num_02),
    Row::new("NUM-03", "CmdSN outside the window or twice: ignored, connection stays up", num_03),
    Row::new("NUM-04", "serial arithmetic modulo 2^32", num_04),
    Row::new("NUM-05", "MaxCmdSN never below ExpCmdSN-1, ExpCmdSN never backwards", num_05),
    Row::new("NUM-07", "a window that closed opens again, visibly", num_07),
    Row::new("NUM-08", "immediate commands are answered or rejected with 06, each of them", num_08),
    Row::new("NUM-09", "StatSN counts responses and nothing else", num_09),
    Row::new("NUM-11", "no response before its command is acknowledged", num_11),
    Row::new("NUM-13", "a rejected command does not consume its CmdSN", num_13),
];

// covers: NUM-02
fn num_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let scratch = ctx.scratch();
    let data = vec![0xc3; scratch.block_size as usize];
    let zeros = Command::write_16(scratch.lba, vec![0; data.len()], scratch.block_size);
    s.run_good(&zeros)?;
    let write = Command::write_16(scratch.lba, data.clone(), scratch.block_size).unsolicited(
        if s.params.writes.immediate_data { Unsolicited::Immediate(data.len()) } else { Unsolicited::No },
    );
    let (write_sent, write_frame) = s.command_frame(&write);
    // Ordered: for simple tasks only the delivery is in order, and one may overtake another on the medium (SAM-5 8.6).
    let read = Command::read_16(scratch.lba, 1, scratch.block_size).attr(TaskAttribute::Ordered);
    let (read_sent, read_frame) = s.command_frame(&read);
    s.peer.send(&read_frame.remark("ahead of its turn"))?;
    silence(&mut s, read_sent.itt)?;
    s.peer.send(&write_frame)?;
    let outcome = s.finish(&write_sent)?;
    ensure!(outcome.is_good(), "the write that filled the hole ended with {}", outcome.words());
    let outcome = s.finish(&read_sent)?;
    ensure!(outcome.is_good(), "the read that waited ended with {}", outcome.words());
    if write.unsolicited != Unsolicited::No {
        ensure!(outcome.data == data, "the read executed before the write whose CmdSN is lower");
    }
    drop(s);
    if_applicable(order_over_connections(ctx))
}

/// A command on one connection waits for the preceding one, which arrives on the other.
fn order_over_connections(ctx: &Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    b.on(0).run_good(&Command::write_16(scratch.lba, vec![0; size], scratch.block_size))?;
    let immediate = b.on(0).params.writes.immediate_data;
    let unsolicited = if immediate { Unsolicited::Immediate(size) } else { Unsolicited::No };
    let write = Command::write_16(scratch.lba, vec![0x3c; size], scratch.block_size).unsolicited(unsolicited);
    let (write_sent, write_frame) = b.on(0).command_frame(&write);
    let read = Command::read_16(scratch.lba, 1, scratch.block_size).attr(TaskAttribute::Ordered);
    let read_sent = b.on(1).start(&read)?;
    silence(b.on(1), read_sent.itt)?;
    let early = b.on(0).stashed(read_sent.itt);
    ensure!(early.is_none(), "a command was answered on another connection: {early:?}");
    b.on(0).peer.send(&write_frame)?;
    let outcome = b.on(0).finish(&write_sent)?;
    ensure!(outcome.is_good(), "the write that filled the hole ended with {}", outcome.words());
    let outcome = b.on(1).finish(&read_sent)?;
    ensure!(outcome.is_good(), "the read that waited ended with {}", outcome.words());
    if immediate {
        ensure!(outcome.data == vec![0x3c; size], "the read executed before the write whose CmdSN is lower");
    }
    Ok(())
}

// covers: NUM-03
fn num_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    s.ping()?;
    let Some(max) = s.peer.ledger.max_cmd_sn else { fail!("no MaxCmdSN was seen") };
    let wrong = [
        ("above MaxCmdSN", max.next()),
        ("below ExpCmdSN", CmdSn(s.cmd_sn.0.wrapping_sub(1))),
        ("far below ExpCmdSN", CmdSn(s.cmd_sn.0.wrapping_sub(1000))),
        ("2^31 away", s.cmd_sn.add(1 << 31)),
    ];
    for (words, cmd_sn) in wrong {
        let (sent, frame) = s.command_frame(&Command::test_unit_ready());
        s.cmd_sn = sent.cmd_sn;
        s.peer.send(&frame.patch(24, &cmd_sn.0.to_be_bytes()).remark(words))?;
        silence(&mut s, sent.itt)?;
    }
    // n+1, n+1 again with the same and with another tag, then n: two answers, not four.
    let (first, first_frame) = s.command_frame(&Command::test_unit_ready());
    let (second, second_frame) = s.command_frame(&Command::test_unit_ready());
    let other = s.itt();
    s.peer.send(&second_frame)?;
    s.peer.send(&second_frame.clone().remark("duplicate"))?;
    s.peer.send(&second_frame.patch(16, &other.0.to_be_bytes()).remark("duplicate CmdSN, other ITT"))?;
    s.peer.send(&first_frame)?;
    s.finish(&first)?;
    s.finish(&second)?;
    silence(&mut s, second.itt)?;
    silence(&mut s, other)?;
    let outcome = s.run(&Command::test_unit_ready())?;
    ensure!(outcome.is_good(), "the session does not go on: {}", outcome.words());
    Ok(())
}

// covers: NUM-04
fn num_04(ctx: &mut Ctx) -> RowResult {
    for start in [0xffff_fffd, 0x7fff_fffd, 0] {
        let mut s = ctx.session_with(|script| script.cmd_sn(start))?;
        for _ in 0..8 {
            let outcome = s.run(&Command::inquiry(36, 36))?;
            ensure!(outcome.is_good(), "CmdSN from {start:#010x} on: {}", outcome.words());
        }
        clean(&s, "NUM-05")?;
    }
    Ok(())
}

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

// covers: NUM-13
fn num_13(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_with(|script| script.key("DataDigest", "CRC32C,None"))?;
    if !s.params.data_digest || !s.params.writes.immediate_data {
        skip!("needs DataDigest=CRC32C and ImmediateData=Yes; the target did not agree");
    }
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let write = Command::write_16(scratch.lba, vec![0x11; size], scratch.block_size)
        .unsolicited(Unsolicited::Immediate(size));
    let (sent, frame) = s.command_frame(&write);
    s.peer.send(&frame.clone().data_digest(DigestWish::Flip(1)))?;
    match s.reaction(sent.itt)? {
        Reaction::Rejected(RejectReason::DataDigestError) => {}
        Reaction::Closed => {
            skip!("the target drops the connection for a data digest error (it may at level 0)")
        }
        other => fail!("a command with a wrong data digest: expected Reject 02, received {}", other.words()),
    }
    let exp = s.peer.ledger.exp_cmd_sn;
    ensure!(exp == Some(sent.cmd_sn), "ExpCmdSN is {exp:?} after the Reject of CmdSN {}", sent.cmd_sn);
    s.peer.send(&frame.remark("the same PDU again, correct"))?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the command sent again ended with {}", outcome.words());
    Ok(())
}
