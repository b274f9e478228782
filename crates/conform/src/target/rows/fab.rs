//! FastAbort and ResponseFence (rows FAB).

use super::mcs::{block_is, fill_block, waiting_write};
use super::silence;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent};
use crate::target::bundle::Bundle;
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Stop};
use iscsi_wire::{AsyncEvent, AsyncMessage, Opcode, R2t, TmfFunction, keys};
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "FAB-01",
        "event 5 with the LUN on each connection with an affected task; the NOP-Out ends it",
        fab_01,
    ),
    Row::new("FAB-02", "tags stay valid until that NOP-Out; the response does not wait for data", fab_02),
    Row::new("FAB-03", "no event 5 to who did not negotiate FastAbort", fab_03),
    Row::new("FAB-04", "the first response after a reset waits for what was not acknowledged", fab_04),
];

/// How long to wait for something that must not arrive.
const SILENCE: Duration = Duration::from_millis(300);

const OFFER: &str = "FastAbort,ResponseFence,RFC3720";

/// A session with FastAbort and a write that waits for its data.
fn victim(ctx: &Ctx) -> Result<(RowSession, Sent, R2t), Stop> {
    let mut s = ctx.session_with(|script| script.key(keys::TASK_REPORTING, OFFER))?;
    if s.params.task_reporting != "FastAbort" {
        skip!("{}={OFFER} was answered with {}", keys::TASK_REPORTING, s.params.task_reporting);
    }
    fill_block(ctx, &mut s, 0x1f)?;
    let (sent, r2t) = waiting_write(ctx, &mut s, 0xf1)?;
    Ok((s, sent, r2t))
}

/// The next asynchronous message.
fn message(s: &mut RowSession) -> Result<AsyncMessage, Stop> {
    let rx = s.next()?;
    ensure!(rx.bhs.opcode() == Opcode::AsyncMessage.code(), "expected event 5, received {}", rx.line());
    Ok(AsyncMessage::parse(&rx.bhs)?)
}

fn is_event_5(s: &mut RowSession) -> RowResult {
    let event = message(s)?;
    ensure!(event.event == AsyncEvent::TaskTermination, "expected event 5, got {}", event.event.code());
    ensure!(event.lun == s.lun, "event 5 names LUN {:?}, the tasks are of {:?}", event.lun, s.lun);
    Ok(())
}

/// Stops Data-Out and reports it.
fn acknowledge(s: &mut RowSession) -> RowResult {
    let nop = s.acknowledgement(s.lun);
    s.peer.send(&Frame::of(nop).remark("acknowledges event 5"))?;
    Ok(())
}

/// LU RESET from another session: it must be answered without the victim's cooperation.
fn reset(ctx: &Ctx) -> RowResult {
    let mut other = ctx.session()?;
    let request = other.tmf(TmfFunction::LogicalUnitReset, true);
    let response = other.manage(request)?;
    ensure!(response.code() == 0, "LOGICAL UNIT RESET: {response}");
    Ok(())
}

fn goes_on(ctx: &Ctx, s: &mut RowSession, sent: &Sent) -> RowResult {
    if let Some(line) = s.stashed(sent.itt) {
        // With TAS the task may complete with TASK ABORTED, but never with GOOD.
        let outcome = s.finish(sent)?;
        ensure!(outcome.status == 0x40, "a task that a reset ended was answered: {line}");
    }
    s.clear_unit_attentions()?;
    block_is(ctx, s, 0x1f, "a write that FastAbort ended")
}

// covers: FAB-01
fn fab_01(ctx: &mut Ctx) -> RowResult {
    let (mut s, sent, _) = victim(ctx)?;
    reset(ctx)?;
    is_event_5(&mut s)?;
    acknowledge(&mut s)?;
    s.ping()?;
    goes_on(ctx, &mut s, &sent)?;
    // On the issuing session: event 5 goes to the other connections with affected tasks, not to the issuing
    // one.
    let mut b = match Bundle::open(ctx, 2, |script| script.key(keys::TASK_REPORTING, OFFER)) {
        Err(Stop::NotApplicable(_)) => return Ok(()),
        other => other?,
    };
    fill_block(ctx, b.on(0), 0x1f)?;
    let (sent, _) = waiting_write(ctx, b.on(1), 0xf1)?;
    let request = b.on(0).tmf(TmfFunction::LogicalUnitReset, true);
    b.on(0).peer.send(&Frame::of(request))?;
    is_event_5(b.on(1))?;
    acknowledge(b.on(1))?;
    let rx = b.on(0).next_for(request.itt)?;
    ensure!(rx.bhs.as_bytes()[2] == 0, "LOGICAL UNIT RESET: {}", rx.line());
    let stray = b.on(0).stashed_of(Opcode::AsyncMessage);
    ensure!(stray.is_none(), "event 5 on the connection that issued the request");
    // PDUs after the response may wait until it is acknowledged.
    b.on(0).ping()?;
    b.on(1).ping()?;
    goes_on(ctx, b.on(1), &sent)
}

// covers: FAB-02
fn fab_02(ctx: &mut Ctx) -> RowResult {
    let (mut s, sent, r2t) = victim(ctx)?;
    // The response arrived without any data of the affected task.
    reset(ctx)?;
    is_event_5(&mut s)?;
    // Data in flight arrives at a tag that is still valid.
    s.serve(&sent, &r2t)?;
    s.ping()?;
    let reject = s.stashed_of(Opcode::Reject);
    ensure!(reject.is_none(), "data before the NOP-Out was rejected");
    acknowledge(&mut s)?;
    s.ping()?;
    // Now the tag is free: late data may be rejected, and does no harm.
    s.serve(&sent, &r2t)?;
    match s.reaction_within(sent.itt, SILENCE)? {
        Reaction::Nothing | Reaction::Rejected(_) => {}
        other => fail!("data after the NOP-Out: {}", other.words()),
    }
    goes_on(ctx, &mut s, &sent)
}

// covers: FAB-03
fn fab_03(ctx: &mut Ctx) -> RowResult {
    let (mut fast, fast_task, _) = victim(ctx)?;
    let mut plain = ctx.session_with(|script| script.key(keys::TASK_REPORTING, "RFC3720"))?;
    let (sent, r2t) = waiting_write(ctx, &mut plain, 0xf1)?;
    let mut issuer = ctx.session()?;
    let request = issuer.tmf(TmfFunction::LogicalUnitReset, true);
    issuer.peer.send(&Frame::of(request))?;
    is_event_5(&mut fast)?;
    acknowledge(&mut fast)?;
    let answered = issuer.reaction_within(request.itt, SILENCE)?;
    plain.ping()?;
    if plain.stashed(sent.itt).is_none() && matches!(answered, Reaction::Nothing) {
        // It may wait for the data that it requested from an initiator without FastAbort.
        let early = plain.data_out(&sent, r2t.ttt, 0);
        plain.peer.send(&Frame::of(early).remark("F early"))?;
    }
    let rx = match answered {
        Reaction::Answered(rx) => rx,
        _ => issuer.next_for(request.itt)?,
    };
    ensure!(rx.bhs.as_bytes()[2] == 0, "LOGICAL UNIT RESET: {}", rx.line());
    plain.ping()?;
    let event = plain.stashed_of(Opcode::AsyncMessage).map(|rx| AsyncMessage::parse(&rx.bhs)).transpose()?;
    let wrong = event.is_some_and(|event| event.event == AsyncEvent::TaskTermination);
    ensure!(!wrong, "event 5 to a session with TaskReporting=RFC3720");
    fast.ping()?;
    goes_on(ctx, &mut fast, &fast_task)
}

// covers: FAB-04
fn fab_04(ctx: &mut Ctx) -> RowResult {
    let mut b =
        Bundle::open(ctx, 2, |script| script.key(keys::TASK_REPORTING, "ResponseFence,FastAbort,RFC3720"))?;
    if b.on(0).params.task_reporting == "RFC3720" {
        skip!("the target agrees to no ResponseFence");
    }
    // A third party: one connection has an unacknowledged status when a reset arrives from another session.
    b.on(1).peer.ledger.hold();
    b.on(1).run_good(&Command::test_unit_ready())?;
    reset(ctx)?;
    let probe = b.on(0).start(&Command::test_unit_ready())?;
    match b.on(0).reaction_within(probe.itt, SILENCE)? {
        Reaction::Nothing => {}
        other => fail!(
            "the first response after a reset came while another connection had not acknowledged its status: {}",
            other.words()
        ),
    }
    let s = b.on(1);
    s.peer.ledger.release();
    s.ping()?;
    let nop = s.acknowledgement(iscsi_wire::Lun(0));
    s.peer.send(&Frame::of(nop).remark("acknowledges everything"))?;
    let outcome = b.on(0).finish(&probe)?;
    ensure!(outcome.is_unit_attention(), "the first command after a reset ended with {}", outcome.words());
    b.on(0).ping()?;
    silence(b.on(0), probe.itt)?;
    b.on(1).clear_unit_attentions()?;
    Ok(())
}
