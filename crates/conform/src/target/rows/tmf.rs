//! Task management (rows TMF).

use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent};
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Stop};
use iscsi_wire::{Lun, Pdu, R2t, TmfFunction, TmfResponse};

pub(super) const ROWS: &[Row] = &[
    Row::new("TMF-05", "ABORT TASK SET, CLEAR TASK SET, LU RESET with R2Ts outstanding", tmf_05),
    Row::new("TMF-06", "tasks of third parties end with TASK ABORTED or a unit attention", tmf_06),
    Row::new("TMF-08", "TARGET WARM and COLD RESET", tmf_08),
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
