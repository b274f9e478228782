//! Task management (rows TMF).

use super::silence;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent};
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Stop};
use iscsi_wire::{CmdSn, Itt, Lun, Opcode, Pdu, R2t, TmfFunction, TmfResponse};

pub(super) const ROWS: &[Row] = &[
    Row::new("TMF-01", "ABORT TASK of a live task: function complete, and no response for the task", tmf_01),
    Row::new("TMF-02", "ABORT TASK of a command that never came fills the hole", tmf_02),
    Row::new("TMF-03", "ABORT TASK outside the window: task does not exist", tmf_03),
    Row::new("TMF-04", "ABORT TASK of an immediate task, and of a task management function", tmf_04),
    Row::new("TMF-05", "ABORT TASK SET, CLEAR TASK SET, LU RESET with R2Ts outstanding", tmf_05),
    Row::new("TMF-06", "tasks of third parties end with TASK ABORTED or a unit attention", tmf_06),
    Row::new("TMF-07", "unknown LUN, unsupported functions, reserved LUN field", tmf_07),
    Row::new("TMF-08", "TARGET WARM and COLD RESET", tmf_08),
    Row::new("TMF-09", "immediate and non-immediate requests", tmf_09),
];

/// How long a reset may take before the target gets the data for which it may be waiting.
const WAIT_FOR_RESET: std::time::Duration = std::time::Duration::from_millis(500);

/// A write that waits for its data.
fn waiting_write(ctx: &Ctx, s: &mut RowSession, immediate: bool) -> Result<(Sent, R2t), Stop> {
    let scratch = ctx.scratch();
    let mut write =
        Command::write_16(scratch.lba, vec![0x9a; scratch.block_size as usize], scratch.block_size);
    write.immediate = immediate;
    let sent = s.start(&write)?;
    let r2t = s.expect_r2t(&sent)?;
    Ok((sent, r2t))
}

// covers: TMF-01
fn tmf_01(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut s = ctx.session()?;
    s.run_good(&Command::write_16(scratch.lba, vec![0x12; size], scratch.block_size))?;
    let (sent, r2t) = waiting_write(ctx, &mut s, false)?;
    let response = s.abort(sent.itt, sent.cmd_sn)?;
    ensure!(response == TmfResponse::FunctionComplete, "ABORT TASK of a waiting write: {response}");
    silence(&mut s, sent.itt)?;
    // Data in flight must do no harm.
    s.serve(&sent, &r2t)?;
    match s.reaction_within(sent.itt, std::time::Duration::from_millis(100))? {
        Reaction::Nothing | Reaction::Rejected(_) => {}
        other => fail!("data of an aborted task: {}", other.words()),
    }
    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == vec![0x12; size], "an aborted write reached the medium");
    // Many reads, aborted while they run: each is answered before the abort or not at all.
    let mut sent = Vec::new();
    let blocks = (65_536 / scratch.block_size).max(1);
    for _ in 0..8 {
        sent.push(s.start(&Command::read_16(scratch.lba, blocks, scratch.block_size))?);
    }
    for task in sent.iter().rev() {
        let mut request = s.tmf(TmfFunction::AbortTask, true);
        (request.referenced_task_tag, request.ref_cmd_sn) = (task.itt, task.cmd_sn);
        s.peer.send(&Frame::of(request))?;
        let mut ended = false;
        loop {
            let rx = s.next()?;
            match rx.pdu()? {
                Pdu::TaskManagementResponse(response) if response.itt == request.itt => break,
                Pdu::ScsiResponse(response) => ended |= response.itt == task.itt,
                Pdu::DataIn(data) => ended |= data.itt == task.itt && data.status_bit,
                _ => fail!("{}", rx.line()),
            }
        }
        if !ended {
            s.ping()?;
            ensure!(
                s.stashed(task.itt).is_none(),
                "after the ABORT TASK response: {:?}",
                s.stashed(task.itt)
            );
        }
    }
    Ok(())
}

// covers: TMF-02
fn tmf_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let never = s.take_cmd_sn(false);
    let unsent = s.itt();
    let after = s.start(&Command::test_unit_ready())?;
    silence(&mut s, after.itt)?;
    let response = s.abort(unsent, never)?;
    ensure!(response == TmfResponse::FunctionComplete, "ABORT TASK of a command that never came: {response}");
    let outcome = s.finish(&after)?;
    ensure!(outcome.is_good(), "the command after the hole ended with {}", outcome.words());
    // If the command arrives later, it is a duplicate.
    let (late, frame) = s.command_frame(&Command::test_unit_ready());
    s.cmd_sn = late.cmd_sn;
    s.peer.send(&frame.patch(24, &never.0.to_be_bytes()).remark("late"))?;
    silence(&mut s, late.itt)?;
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

// covers: TMF-03
fn tmf_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    s.run_good(&Command::test_unit_ready())?;
    let now = s.cmd_sn;
    for (words, ref_cmd_sn) in [
        ("below the window", CmdSn(now.0.wrapping_sub(5))),
        ("above the window", s.peer.ledger.max_cmd_sn.unwrap_or(now).add(100)),
    ] {
        let unknown = s.itt();
        let response = s.abort(unknown, ref_cmd_sn)?;
        ensure!(
            response == TmfResponse::TaskDoesNotExist,
            "ABORT TASK of an unknown task with RefCmdSN {words}: expected 1, got {response}"
        );
    }
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

// covers: TMF-04
fn tmf_04(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let (sent, _) = waiting_write(ctx, &mut s, true)?;
    let response = s.abort(sent.itt, sent.cmd_sn)?;
    ensure!(response == TmfResponse::FunctionComplete, "ABORT TASK of an immediate task: {response}");
    silence(&mut s, sent.itt)?;
    // A task management function that waits behind a hole is not a task and cannot be aborted.
    let (hole, hole_frame) = s.command_frame(&Command::test_unit_ready());
    let mut waiting = s.tmf(TmfFunction::AbortTask, false);
    (waiting.referenced_task_tag, waiting.ref_cmd_sn) = (Itt(0x7777), waiting.cmd_sn.add(50_000));
    s.peer.send(&Frame::of(waiting))?;
    let response = s.abort(waiting.itt, waiting.cmd_sn)?;
    ensure!(
        matches!(response, TmfResponse::FunctionRejected | TmfResponse::TaskDoesNotExist),
        "ABORT TASK of a task management function: expected 255, got {response}"
    );
    s.peer.send(&hole_frame)?;
    s.finish(&hole)?;
    let rx = s.next_for(waiting.itt)?;
    ensure!(rx.bhs.opcode() == Opcode::TaskManagementResponse.code(), "{}", rx.line());
    Ok(())
}

// covers: TMF-05
fn tmf_05(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    for function in [TmfFunction::AbortTaskSet, TmfFunction::ClearTaskSet, TmfFunction::LogicalUnitReset] {
        let mut s = ctx.session()?;
        s.run_good(&Command::write_16(scratch.lba, vec![0x21; size], scratch.block_size))?;
        let (sent, r2t) = waiting_write(ctx, &mut s, false)?;
        let request = s.tmf(function, true);
        s.peer.send(&Frame::of(request))?;
        // The initiator continues to answer its R2Ts, here with an early F and no data.
        let early = s.data_out(&sent, r2t.ttt, 0);
        s.peer.send(&Frame::of(early).remark("F early"))?;
        let mut answered = None;
        while answered.is_none() {
            let rx = s.next()?;
            match rx.pdu()? {
                Pdu::TaskManagementResponse(response) if response.itt == request.itt => {
                    answered = Some(response.response);
                }
                // The early F may count as the end of the task before the function takes effect, or as
                // data for no task.
                Pdu::ScsiResponse(_) | Pdu::Reject(_) => {}
                _ => fail!("after {function}: {}", rx.line()),
            }
        }
        if answered == Some(TmfResponse::FunctionNotSupported) && function != TmfFunction::LogicalUnitReset {
            continue;
        }
        ensure!(answered == Some(TmfResponse::FunctionComplete), "{function}: {answered:?}");
        s.ping()?;
        let late = s.stashed(sent.itt);
        ensure!(late.is_none(), "after the response to {function}: {late:?}");
        s.clear_unit_attentions()?;
        let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
        ensure!(read.data == vec![0x21; size], "a write that {function} ended reached the medium");
    }
    Ok(())
}

// covers: TMF-06
fn tmf_06(ctx: &mut Ctx) -> RowResult {
    let mut victim = ctx.session()?;
    let mut s = ctx.session()?;
    let (sent, r2t) = waiting_write(ctx, &mut victim, false)?;
    let request = s.tmf(TmfFunction::LogicalUnitReset, true);
    s.peer.send(&Frame::of(request))?;
    // PDUs on two connections are not ordered: data that overtook the reset would rightly complete the
    // task with GOOD.
    let answered = s.reaction_within(request.itt, WAIT_FOR_RESET)?;
    victim.ping()?;
    let told = victim.stashed(sent.itt);
    if told.is_none() {
        // It may wait for the data that it requested.
        victim.serve(&sent, &r2t)?;
    }
    let rx = match answered {
        Reaction::Answered(rx) => rx,
        _ => s.next_for(request.itt)?,
    };
    let response = rx.bhs.as_bytes()[2];
    ensure!(response == 0, "LOGICAL UNIT RESET: {}", rx.line());
    victim.ping()?;
    let mut aborted = false;
    if victim.stashed(sent.itt).is_some() {
        let outcome = victim.finish(&sent)?;
        aborted = outcome.status == 0x40;
        ensure!(!outcome.is_good(), "a task that a reset ended was answered with GOOD");
    }
    let outcome = victim.run(&Command::test_unit_ready())?;
    ensure!(
        aborted || outcome.is_unit_attention(),
        "the third party was told nothing: no TASK ABORTED, and TEST UNIT READY ended with {}",
        outcome.words()
    );
    Ok(())
}

// covers: TMF-07
fn tmf_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut request = s.tmf(TmfFunction::LogicalUnitReset, true);
    request.lun = Lun::from_index(0x3ffe);
    let response = s.manage(request)?;
    ensure!(
        response == TmfResponse::LunDoesNotExist,
        "LU RESET of an unknown LUN: expected 2, got {response}"
    );
    let request = s.tmf(TmfFunction::ClearAca, true);
    let response = s.manage(request)?;
    ensure!(
        matches!(response, TmfResponse::FunctionNotSupported | TmfResponse::FunctionComplete),
        "CLEAR ACA: {response}"
    );
    let request = s.tmf(TmfFunction::TaskReassign, true);
    match s.manage(request)? {
        TmfResponse::TaskReassignNotSupported
        | TmfResponse::FunctionNotSupported
        | TmfResponse::FunctionRejected => {}
        // If there is nothing to reassign, a target of a higher level may answer this.
        TmfResponse::TaskDoesNotExist => {}
        response => fail!("TASK REASSIGN at ErrorRecoveryLevel 0: {response}"),
    }
    s.ping()?;
    Ok(())
}

// covers: TMF-08
fn tmf_08(ctx: &mut Ctx) -> RowResult {
    if !ctx.options().destructive {
        skip!("a target reset disturbs every initiator; run with `destructive`");
    }
    let refused = [TmfResponse::FunctionNotSupported, TmfResponse::FunctionAuthorizationFailed];
    let mut s = ctx.session()?;
    let mut request = s.tmf(TmfFunction::TargetWarmReset, true);
    request.lun = Lun(0x0123_4567_89ab_cdef);
    let response = s.manage(request)?;
    ensure!(
        response == TmfResponse::FunctionComplete || refused.contains(&response),
        "WARM RESET: {response}"
    );
    let mut s = ctx.session()?;
    let request = s.tmf(TmfFunction::TargetColdReset, true);
    let response = s.manage(request)?;
    if refused.contains(&response) {
        return Ok(());
    }
    ensure!(response == TmfResponse::FunctionComplete, "COLD RESET: {response}");
    s.peer.until_closed()?;
    Ok(())
}

// covers: TMF-09
fn tmf_09(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    for immediate in [true, false] {
        let (sent, _) = waiting_write(ctx, &mut s, false)?;
        let mut request = s.tmf(TmfFunction::AbortTask, immediate);
        (request.referenced_task_tag, request.ref_cmd_sn) = (sent.itt, sent.cmd_sn);
        let response = s.manage(request)?;
        ensure!(response == TmfResponse::FunctionComplete, "ABORT TASK, I={immediate}: {response}");
        let exp = s.peer.ledger.exp_cmd_sn;
        ensure!(exp == Some(s.cmd_sn), "I={immediate}: ExpCmdSN is {exp:?}, due is {}", s.cmd_sn);
    }
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}
