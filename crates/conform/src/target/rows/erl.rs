//! Error recovery levels (rows ERL).

use super::mcs::{block_is, ends, fill_block, log_out_of, waiting_write};
use super::snk::{all_kinds, gather, long_write, take_rejects};
use super::{mixed_workload, silence};
use crate::frame::{DigestWish, Frame};
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent};
use crate::target::bundle::{Bundle, at_level};
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, Session, Stop};
use iscsi_wire::{
    Cid, DataSn, Itt, LogoutReason, LogoutResponseCode, Opcode, TaskManagementRequest, TmfFunction,
    TmfResponse, Ttt, keys,
};
use std::time::{Duration, Instant};

pub(super) const ROWS: &[Row] = &[
    Row::new("ERL-01", "a level that is granted is served, with all below it", erl_01),
    Row::new("ERL-02", "from level 1 on all four SNACKs", erl_02),
    Row::new("ERL-03", "a gap in DataSN is healed, a duplicate is dropped", erl_03),
    Row::new("ERL-04", "a recovery R2T after lost or bad data, wherever it was", erl_04),
    Row::new("ERL-06", "TASK REASSIGN: its answers, and data and status from where they stood", erl_06),
    Row::new("ERL-08", "what nobody reassigns is ended after Time2Retain, and told by 47/7F", erl_08),
    Row::new("ERL-10", "a write is applied once, whatever is lost", erl_10),
    Row::new("ERL-11", "a silent initiator is asked, and let go when it does not answer", erl_11),
];

/// Data-Out PDUs of a write that loses some.
const PIECES: usize = 4;

// covers: ERL-01
fn erl_01(ctx: &mut Ctx) -> RowResult {
    for level in 0..=2u32 {
        let mut s = ctx.session_with(|script| script.key(keys::ERROR_RECOVERY_LEVEL, &level.to_string()))?;
        let got = s.params.error_recovery_level;
        ensure!(got <= level, "ErrorRecoveryLevel={level} was answered with {got}");
        mixed_workload(ctx, &mut s)?;
        if got < level {
            return Ok(());
        }
        match level {
            0 => {}
            1 => all_kinds(ctx)?,
            _ => {
                let mut b = Bundle::open_at(ctx, 2, 2, |script| script)?;
                let cid = b.lose_last()?;
                recovered(b.on(0), cid)?;
            }
        }
    }
    Ok(())
}

// covers: ERL-02
fn erl_02(ctx: &mut Ctx) -> RowResult {
    all_kinds(ctx)
}

/// The fault in a piece of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Missing,
    BadDigest,
    Twice,
}

/// Sends one answer to an R2T in pieces, some of them faulty, and takes a Reject for each bad
/// digest.
fn faulty_burst(
    s: &mut Session,
    sent: &Sent,
    ttt: Ttt,
    data: &[u8],
    fault: Fault,
    at: &[usize],
) -> RowResult {
    let size = data.len() / PIECES;
    let mut bad = 0;
    for (n, piece) in data.chunks(size).enumerate() {
        let mut pdu = s.data_out(sent, ttt, n * size);
        (pdu.data_sn, pdu.final_bit) = (DataSn(n as u32), n + 1 == PIECES);
        let frame = Frame::of(pdu).data(piece);
        match fault {
            Fault::Missing if at.contains(&n) => s.note(&format!("DataSN {n} is lost")),
            Fault::BadDigest if at.contains(&n) => {
                s.peer.send(&frame.data_digest(DigestWish::Flip(0x40)))?;
                bad += 1;
            }
            Fault::Twice if at.contains(&n) => {
                s.peer.send(&frame)?;
                let other = Frame::of(pdu).data(vec![0xee; piece.len()]);
                s.peer.send(&other.remark("a duplicate, with other bytes"))?;
            }
            _ => s.peer.send(&frame)?,
        }
    }
    let rejects = take_rejects(s, bad)?;
    ensure!(rejects == bad, "{bad} PDUs had a bad digest, {rejects} Rejects came");
    Ok(())
}

/// A write that loses these pieces and must recover; the written data is checked.
fn healed(ctx: &Ctx, s: &mut RowSession, fault: Fault, at: &[usize]) -> RowResult {
    let scratch = ctx.scratch();
    let seed = at.iter().fold(fault as u8, |all, n| all.wrapping_mul(7).wrapping_add(*n as u8));
    let (write, data) = long_write(ctx, seed);
    let sent = s.start(&write)?;
    let r2t = s.expect_r2t(&sent)?;
    if (r2t.desired_data_transfer_length as usize) < data.len() {
        skip!(
            "the target asks for {} bytes at once; the row sends {}",
            r2t.desired_data_transfer_length,
            data.len()
        );
    }
    s.recovering = true;
    faulty_burst(s, &sent, r2t.ttt, &data, fault, at)?;
    let outcome = s.finish(&sent)?;
    s.recovering = false;
    let what = format!("a write with {fault:?} at {at:?}");
    ensure!(outcome.is_good(), "{what} ended with {}", outcome.words());
    if fault == Fault::Twice {
        ensure!(outcome.r2ts.is_empty(), "{what}: a recovery R2T for nothing");
    }
    let blocks = (data.len() / scratch.block_size as usize) as u32;
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(read.data == data, "{what}: other bytes are on the medium");
    Ok(())
}

// covers: ERL-03
fn erl_03(ctx: &mut Ctx) -> RowResult {
    let mut s = at_level(ctx, 1, |script| script)?;
    for at in 0..PIECES - 1 {
        healed(ctx, &mut s, Fault::Twice, &[at])?;
    }
    healed(ctx, &mut s, Fault::Missing, &[1])
}

// covers: ERL-04
fn erl_04(ctx: &mut Ctx) -> RowResult {
    let with_digest = |script: crate::LoginScript| script.key(keys::DATA_DIGEST, "CRC32C,None");
    let mut s = at_level(ctx, 1, with_digest)?;
    // If the last PDU is lost too, a target cannot know that anything is missing.
    for at in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[0, 1, 2]] {
        healed(ctx, &mut s, Fault::Missing, at)?;
    }
    if s.params.data_digest {
        for at in [&[0][..], &[1], &[2], &[3], &[1, 3], &[0, 1, 2, 3]] {
            healed(ctx, &mut s, Fault::BadDigest, at)?;
        }
    }
    Ok(())
}

/// The logout for recovery of a lost connection; it must succeed.
fn recovered(s: &mut Session, cid: Cid) -> RowResult {
    let response = log_out_of(s, LogoutReason::RemoveConnectionForRecovery, cid)?;
    ensure!(
        response.response == LogoutResponseCode::Success,
        "logout of CID {} for recovery: {}",
        cid.0,
        response.response
    );
    let most = s.params.time2retain;
    ensure!(
        u32::from(response.time2retain) <= most,
        "Time2Retain {} in the Logout Response, {most} was negotiated",
        response.time2retain
    );
    Ok(())
}

fn reassign_request(s: &mut Session, itt: Itt, exp_data_sn: u32) -> TaskManagementRequest {
    let mut request = s.tmf(TmfFunction::TaskReassign, true);
    (request.referenced_task_tag, request.exp_data_sn) = (itt, DataSn(exp_data_sn));
    request
}

/// TASK REASSIGN of `itt` to this connection; returns its response.
fn reassign(s: &mut Session, itt: Itt, exp_data_sn: u32) -> Result<TmfResponse, Stop> {
    let request = reassign_request(s, itt, exp_data_sn);
    Ok(s.manage(request)?)
}

/// Like [`reassign`]; anything but function complete is a failure.
fn reassigned(s: &mut Session, what: &str, itt: Itt, exp_data_sn: u32) -> RowResult {
    let response = reassign(s, itt, exp_data_sn)?;
    ensure!(response == TmfResponse::FunctionComplete, "TASK REASSIGN of {what}: {response}");
    Ok(())
}

// covers: ERL-06
fn erl_06(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let (sent, r2t) = waiting_write(ctx, &mut s, 1)?;
    let response = reassign(&mut s, sent.itt, 0)?;
    ensure!(
        response == TmfResponse::TaskReassignNotSupported,
        "TASK REASSIGN at level 0: expected 4, got {response}"
    );
    s.serve(&sent, &r2t)?;
    s.finish(&sent)?;
    let mut b = Bundle::open_at(ctx, 2, 2, |script| {
        script
            .key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")
            .key(keys::MAX_BURST_LENGTH, "8192")
            .key(keys::FIRST_BURST_LENGTH, "8192")
    })?;
    refusals(ctx, &mut b)?;
    reads(ctx, &mut b)?;
    for pieces in 0..PIECES {
        interrupted_write(ctx, &mut b, pieces)?;
    }
    finished_write(ctx, &mut b)
}

/// Response 3 if still allegiant, 1 if the task does not exist. Both leave everything unchanged.
fn refusals(ctx: &Ctx, b: &mut Bundle) -> RowResult {
    let (sent, r2t) = waiting_write(ctx, b.on(1), 0x36)?;
    let response = reassign(b.on(0), sent.itt, 0)?;
    ensure!(
        response == TmfResponse::TaskStillAllegiant,
        "TASK REASSIGN of a task on a live connection: expected 3, got {response}"
    );
    let unknown = b.on(0).itt();
    let response = reassign(b.on(0), unknown, 0)?;
    ensure!(
        response == TmfResponse::TaskDoesNotExist,
        "TASK REASSIGN of an unknown task: expected 1, got {response}"
    );
    let s = b.on(1);
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the task that stays where it is ended with {}", outcome.words());
    block_is(ctx, s, 0x36, "a task that stays where it is")
}

/// Reads whose status was not acknowledged, reassigned from the start and from the middle.
fn reads(ctx: &Ctx, b: &mut Bundle) -> RowResult {
    let scratch = ctx.scratch();
    let (write, bytes) = long_write(ctx, 0x99);
    b.on(0).run_good(&write)?;
    let blocks = (bytes.len() / scratch.block_size as usize) as u32;
    for from_middle in [false, true] {
        let s = b.on(1);
        s.peer.ledger.hold();
        let sent = s.start(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
        let all = gather(s, sent.itt)?;
        let kept = if from_middle { all.data.len() / 2 } else { 0 };
        let due: usize = all.data[..kept].iter().map(|rx| rx.data.len()).sum();
        let cid = b.lose_last()?;
        recovered(b.on(0), cid)?;
        reassigned(b.on(0), "a read", sent.itt, kept as u32)?;
        let again = gather(b.on(0), sent.itt)?;
        ensure!(
            bytes.get(due..) == Some(&again.bytes()[..]),
            "a reassigned read with ExpDataSN {kept} brought {} bytes, {} were due",
            again.bytes().len(),
            bytes.len().saturating_sub(due)
        );
        let first = again.data.first().map_or(0, |rx| rx.u32_at(36));
        ensure!(first == kept as u32, "a reassigned read goes on with DataSN {first}, {kept} was due");
        let status = again.status.bhs.as_bytes()[3];
        ensure!(status == 0, "a reassigned read ended with status {status:#04x}");
        // Once acknowledged, the task no longer exists.
        b.on(0).ping()?;
        let response = reassign(b.on(0), sent.itt, 0)?;
        ensure!(
            response == TmfResponse::TaskDoesNotExist,
            "TASK REASSIGN of a task whose status was acknowledged: {response}"
        );
        b.join(ctx)?;
    }
    Ok(())
}

/// A write whose connection was lost after `pieces` PDUs of its data.
fn interrupted_write(ctx: &Ctx, b: &mut Bundle, pieces: usize) -> RowResult {
    let scratch = ctx.scratch();
    let (write, data) = long_write(ctx, pieces as u8);
    let size = data.len() / PIECES;
    let s = b.on(1);
    let sent = s.start(&write)?;
    let r2t = s.expect_r2t(&sent)?;
    for n in 0..pieces.min(r2t.desired_data_transfer_length as usize / size) {
        let mut pdu = s.data_out(&sent, r2t.ttt, n * size);
        (pdu.data_sn, pdu.final_bit) = (DataSn(n as u32), false);
        s.peer.send(&Frame::of(pdu).data(&data[n * size..(n + 1) * size]))?;
    }
    s.ping()?;
    let cid = b.lose_last()?;
    recovered(b.on(0), cid)?;
    let fresh = b.join(ctx)?;
    let s = b.on(fresh);
    reassigned(s, "a write", sent.itt, 0)?;
    s.recovering = true;
    let outcome = s.finish(&sent)?;
    s.recovering = false;
    ensure!(
        outcome.is_good(),
        "a write reassigned after {pieces} of its {PIECES} PDUs ended with {}",
        outcome.words()
    );
    let blocks = (data.len() / scratch.block_size as usize) as u32;
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(read.data == data, "a write reassigned after {pieces} PDUs wrote other bytes");
    Ok(())
}

/// A write whose response was lost: the response is sent again, the write is not repeated.
fn finished_write(ctx: &Ctx, b: &mut Bundle) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let s = b.on(1);
    s.peer.ledger.hold();
    let sent = s.start(&Command::write_16(scratch.lba, vec![0x0f; size], scratch.block_size))?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "a write ended with {}", outcome.words());
    let cid = b.lose_last()?;
    fill_block(ctx, b.on(0), 0xf0)?;
    recovered(b.on(0), cid)?;
    reassigned(b.on(0), "a write that was done", sent.itt, 0)?;
    let s = b.on(0);
    let rx = s.next_for(sent.itt)?;
    ensure!(
        rx.bhs.opcode() == Opcode::ScsiResponse.code() && rx.bhs.as_bytes()[3] == 0,
        "the response of a write that was done was due: {}",
        rx.line()
    );
    block_is(ctx, s, 0xf0, "a write that was done before, not again")?;
    b.join(ctx)?;
    Ok(())
}

// covers: ERL-08
fn erl_08(ctx: &mut Ctx) -> RowResult {
    let mut b = Bundle::open_at(ctx, 2, 2, |script| {
        script.key(keys::DEFAULT_TIME2WAIT, "0").key(keys::DEFAULT_TIME2RETAIN, "1")
    })?;
    let params = b.on(0).params.clone();
    let time = u64::from(params.time2wait) + u64::from(params.time2retain);
    if time > 5 {
        skip!("Time2Wait {} and Time2Retain {}: too long to wait for", params.time2wait, params.time2retain);
    }
    fill_block(ctx, b.on(0), 0x6a)?;
    let (sent, _) = waiting_write(ctx, b.on(1), 0x95)?;
    b.lose_last()?;
    let s = b.on(0);
    let end = Instant::now() + Duration::from_secs(time) + s.peer.timeout();
    loop {
        let outcome = s.run(&Command::test_unit_ready())?;
        match outcome.sense_code() {
            Some((6, 0x47, 0x7f)) => break,
            Some((6, _, _)) => {}
            _ if outcome.is_good() && Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            _ => fail!("no 6/47/7F after Time2Wait and Time2Retain ({time} s): {}", outcome.words()),
        }
    }
    let response = reassign(s, sent.itt, 0)?;
    ensure!(
        response == TmfResponse::TaskDoesNotExist,
        "TASK REASSIGN after Time2Retain: expected 1, got {response}"
    );
    block_is(ctx, s, 0x6a, "a task that nobody reassigned")
}

// covers: ERL-10
fn erl_10(ctx: &mut Ctx) -> RowResult {
    let mut s = at_level(ctx, 1, |script| script.key(keys::DATA_DIGEST, "CRC32C,None"))?;
    let fault = if s.params.data_digest { Fault::BadDigest } else { Fault::Missing };
    for at in 0..PIECES - 1 {
        healed(ctx, &mut s, fault, &[at])?;
        fill_block(ctx, &mut s, 0x3d)?;
        s.ping()?;
        block_is(ctx, &mut s, 0x3d, "after a write that was healed")?;
    }
    drop(s);
    let mut b = Bundle::open_at(ctx, 2, 2, |script| script)?;
    for pieces in 0..PIECES {
        interrupted_write(ctx, &mut b, pieces)?;
        fill_block(ctx, b.on(0), 0x3e)?;
        b.on(0).ping()?;
        b.on(1).ping()?;
        block_is(ctx, b.on(1), 0x3e, "after a write that was reassigned")?;
    }
    finished_write(ctx, &mut b)
}

// covers: ERL-11
fn erl_11(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let patience = ctx.options().timeout;
    // Receives below the session layer, because the session would answer.
    let asked = match s.peer.recv_within(patience) {
        Ok(rx) => rx,
        Err(PeerError::Timeout(_)) => skip!("the target asked a silent initiator nothing for {patience:?}"),
        Err(error) => fail!("a silent initiator was let go without being asked: {error}"),
    };
    let ping = asked.bhs.opcode() == Opcode::NopIn.code() && asked.u32_at(20) != u32::MAX;
    ensure!(ping, "expected a NOP-In with a TTT, received {}", asked.line());
    match s.peer.until_closed() {
        Ok(_) => Ok(()),
        Err(PeerError::Timeout(_)) => {
            skip!("the target waits for more than {patience:?} for an answer to its ping")
        }
        Err(error) => fail!("{error}"),
    }
}

/// For rows of other sections: at level 2 a task of a lost connection waits for its reassignment.
pub(super) fn waits_for_reassignment(ctx: &Ctx) -> RowResult {
    let mut b = Bundle::open_at(ctx, 2, 2, |script| script)?;
    fill_block(ctx, b.on(0), 0x10)?;
    let (sent, _) = waiting_write(ctx, b.on(1), 0x2c)?;
    let old = b.take_last()?;
    // The same CID, without a logout: connection reinstatement.
    let again = b.join_as(ctx, old.script.cid)?;
    let mut old = old;
    ends("the old connection after its reinstatement", &mut old.peer)?;
    old.abandon();
    let s = b.on(again);
    silence(s, sent.itt)?;
    reassigned(s, "a task of a reinstated connection", sent.itt, 0)?;
    s.recovering = true;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the reassigned task ended with {}", outcome.words());
    block_is(ctx, s, 0x2c, "a task of a reinstated connection")
}
