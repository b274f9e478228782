//! Several connections in a session (rows MCS).

use super::{refused, silence};
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent, Unsolicited};
use crate::target::bundle::Bundle;
use crate::target::ctx::{RowSession, exchange_text};
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, RawPeer, Reaction, Session, Stop};
use iscsi_wire::{
    AsyncEvent, AsyncMessage, Cid, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, Lun,
    Opcode, R2t, TaskAttribute, TmfFunction, TmfResponse, Ttt, keys,
};
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "MCS-01",
        "connections join with the TSIH and a fresh CID, through the same portal group",
        mcs_01,
    ),
    Row::new("MCS-02", "data, R2Ts and status stay on the command's connection", mcs_02),
    Row::new("MCS-03", "unsolicited data in command order on each connection", mcs_03),
    Row::new("MCS-04", "logout of another connection; the last one ends the session", mcs_04),
    Row::new("MCS-05", "the loss of a connection leaves the others, and is told by event 2", mcs_05),
    Row::new("MCS-06", "a reset reaches all connections and waits for what they did not acknowledge", mcs_06),
    Row::new("MCS-07", "a hole that a lost connection left can be filled", mcs_07),
    Row::new("MCS-08", "order holds when commands arrive in any order over all connections", mcs_08),
];

/// How long to wait for something that must not arrive.
const SILENCE: Duration = Duration::from_millis(300);

/// A write of one block that waits for its data.
pub(super) fn waiting_write(ctx: &Ctx, s: &mut RowSession, byte: u8) -> Result<(Sent, R2t), Stop> {
    let scratch = ctx.scratch();
    let data = vec![byte; scratch.block_size as usize];
    let sent = s.start(&Command::write_16(scratch.lba, data, scratch.block_size))?;
    let r2t = s.expect_r2t(&sent)?;
    Ok((sent, r2t))
}

/// The first block of the scratch area, filled with this byte.
pub(super) fn fill_block(ctx: &Ctx, s: &mut Session, byte: u8) -> RowResult {
    let scratch = ctx.scratch();
    let data = vec![byte; scratch.block_size as usize];
    s.run_good(&Command::write_16(scratch.lba, data, scratch.block_size))?;
    Ok(())
}

/// The first block of the scratch area must be filled with this byte.
pub(super) fn block_is(ctx: &Ctx, s: &mut Session, byte: u8, what: &str) -> RowResult {
    let scratch = ctx.scratch();
    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?.data;
    let found = read.first().copied();
    ensure!(
        read.iter().all(|got| *got == byte),
        "{what}: the block begins with {found:02x?}, {byte:#04x} was due in all of it"
    );
    Ok(())
}

/// Sends a logout of `cid`; returns its response.
pub(super) fn log_out_of(s: &mut Session, reason: LogoutReason, cid: Cid) -> Result<LogoutResponse, Stop> {
    let request = LogoutRequest { cid, ..s.logout_request(reason) };
    s.peer.send(&Frame::of(request))?;
    let rx = s.next_for(request.itt)?;
    Ok(LogoutResponse::parse(&rx.bhs)?)
}

/// The connection must end.
pub(super) fn ends(what: &str, peer: &mut RawPeer) -> RowResult {
    match peer.until_closed() {
        Ok(_) => Ok(()),
        Err(error) => fail!("{what}: expected the connection to be closed: {error}"),
    }
}

// covers: MCS-01
fn mcs_01(ctx: &mut Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    let tsih = b.on(0).logged_in.tsih;
    while b.len() < 4.min(b.on(0).params.max_connections as usize) {
        b.join(ctx)?;
    }
    for index in 0..b.len() {
        let s = b.on(index);
        ensure!(s.logged_in.tsih == tsih, "connection {index} was answered with TSIH {}", s.logged_in.tsih);
        s.ping()?;
        s.run_good(&Command::inquiry(36, 36))?;
    }
    for index in (0..b.len()).rev() {
        b.on(index).run_good(&Command::test_unit_ready())?;
    }
    // The portal group is part of the session's identity: in another group its TSIH means nothing.
    let mut discovery = ctx.session_of(ctx.discovery_script())?;
    let pairs = exchange_text(&mut discovery, &crate::text_of(&[(keys::SEND_TARGETS, ctx.target())]))?;
    let own = crate::login::value_of(&b.on(0).logged_in.pairs, keys::TARGET_PORTAL_GROUP_TAG)
        .unwrap_or_default()
        .to_owned();
    for (_, address) in pairs.iter().filter(|(key, _)| key == keys::TARGET_ADDRESS) {
        let Some((portal, tag)) = address.rsplit_once(',') else { continue };
        if tag == own {
            continue;
        }
        let lead = b.on(0);
        let script = lead.script.clone().joining(tsih, Cid(0x55)).cmd_sn(lead.cmd_sn.0);
        let Ok(mut peer) = RawPeer::connect(portal, ctx.options().timeout, ctx.transcript()) else {
            continue;
        };
        match peer.login(&script) {
            Err(PeerError::Login(status)) if [0x0208, 0x020a].contains(&status.code()) => {}
            Err(error) => fail!("a connection through portal group {tag}: expected 0208, got {error}"),
            Ok(_) => fail!("a connection through portal group {tag} joined a session of group {own}"),
        }
    }
    b.on(0).ping()?;
    Ok(())
}

// covers: MCS-02
fn mcs_02(ctx: &mut Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    fill_block(ctx, b.on(0), 0x10)?;
    let (sent, r2t) = waiting_write(ctx, b.on(0), 0x5c)?;
    // Data sent on the other connection belongs to no task there.
    let size = ctx.scratch().block_size as usize;
    let other = b.on(1);
    let stray = other.data_out(&sent, r2t.ttt, 0);
    let frame = Frame::of(stray).data(vec![0xe1; size]).remark("on the wrong connection");
    other.peer.send(&frame)?;
    let reaction = other.reaction_within(sent.itt, SILENCE.max(Duration::from_millis(500)))?;
    let alive = !matches!(reaction, Reaction::Closed);
    if !matches!(reaction, Reaction::Nothing) {
        refused("a Data-Out on another connection than its command's", reaction)?;
    }
    if !alive {
        b.take_last()?.abandon();
    }
    let s = b.on(0);
    ensure!(s.stashed(sent.itt).is_none(), "the stray data was taken: {:?}", s.stashed(sent.itt));
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the write whose data went astray ended with {}", outcome.words());
    block_is(ctx, s, 0x5c, "after stray data")?;
    if alive {
        // PDUs of a command on one connection do not appear on the other.
        let sent = b.on(0).start(&Command::read_16(ctx.scratch().lba, 1, ctx.scratch().block_size))?;
        b.on(0).finish(&sent)?;
        silence(b.on(1), sent.itt)?;
    }
    Ok(())
}

// covers: MCS-03
fn mcs_03(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut b = Bundle::open(ctx, 2, |script| script.key(keys::INITIAL_R2T, "No"))?;
    let first_burst = b.on(0).params.writes.first_burst_length as usize;
    if b.on(0).params.writes.initial_r2t || first_burst < size {
        skip!("needs InitialR2T=No and FirstBurstLength of a block; the target did not agree");
    }
    // Two writes on each connection in turn; then the data, in order on each connection, the second one first.
    let mut sent = Vec::new();
    for n in 0..4u8 {
        let data = vec![0x40 + n; size];
        let write = Command::write_16(scratch.lba + u64::from(n), data, scratch.block_size)
            .unsolicited(Unsolicited::Burst { immediate: 0, total: size });
        let s = b.on(usize::from(n) % 2);
        let (task, frame) = s.command_frame(&write);
        s.peer.send(&frame)?;
        sent.push(task);
    }
    for n in [1, 3, 0, 2] {
        b.on(n % 2).send_data(&sent[n], Ttt::RESERVED, 0, &vec![0x40 + n as u8; size])?;
    }
    for (n, task) in sent.iter().enumerate() {
        let outcome = b.on(n % 2).finish(task)?;
        ensure!(outcome.is_good(), "write {n} ended with {}", outcome.words());
    }
    let read = b.on(0).run_good(&Command::read_16(scratch.lba, 4, scratch.block_size))?.data;
    for (n, block) in read.chunks(size).enumerate() {
        ensure!(
            block.iter().all(|byte| *byte == 0x40 + n as u8),
            "block {n} holds the data of another write"
        );
    }
    Ok(())
}

// covers: MCS-04
fn mcs_04(ctx: &mut Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    fill_block(ctx, b.on(0), 0x31)?;
    let (sent, r2t) = waiting_write(ctx, b.on(1), 0xce)?;
    let mut other = b.take_last()?;
    let response = log_out_of(b.on(0), LogoutReason::CloseConnection, other.script.cid)?;
    ensure!(
        response.response == LogoutResponseCode::Success,
        "logout of another connection of the session: {}",
        response.response
    );
    let _ = other.serve(&sent, &r2t);
    ends("after a logout from another connection", &mut other.peer)?;
    other.abandon();
    let s = b.on(0);
    s.clear_unit_attentions()?;
    block_is(ctx, s, 0x31, "a write of a connection that was logged out")?;
    // The CID is free again.
    let again = b.join_as(ctx, Cid(2))?;
    b.on(again).ping()?;
    let own = b.on(again).script.cid;
    let response = log_out_of(b.on(again), LogoutReason::CloseConnection, own)?;
    ensure!(response.response == LogoutResponseCode::Success, "logout of itself: {}", response.response);
    b.take_last()?.abandon();
    let s = b.on(0);
    s.ping()?;
    let script = s.script.clone().joining(s.logged_in.tsih, Cid(9)).cmd_sn(s.cmd_sn.0);
    let own = s.script.cid;
    log_out_of(s, LogoutReason::CloseConnection, own)?;
    match ctx.connect()?.login(&script) {
        Err(PeerError::Login(status)) if status.code() == 0x020a => Ok(()),
        Err(error) => {
            fail!("the session after the logout of its last connection: expected 020a, got {error}")
        }
        Ok(_) => fail!("the session outlived the logout of its last connection"),
    }
}

// covers: MCS-05
fn mcs_05(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    while b.len() < 4.min(b.on(0).params.max_connections as usize) {
        b.join(ctx)?;
    }
    // Load on all connections.
    let blocks = (65_536 / scratch.block_size).max(1);
    let read = Command::read_16(scratch.lba, blocks, scratch.block_size);
    let mut sent = Vec::new();
    for n in 0..2 * b.len() {
        let index = n % b.len();
        sent.push((index, b.on(index).start(&read)?));
    }
    let lost = b.len() - 1;
    let cid = b.lose_last()?;
    // A command that had not arrived leaves a hole, which blocks the others.
    for (_, task) in sent.iter().filter(|(index, _)| *index == lost) {
        b.on(0).abort(task.itt, task.cmd_sn)?;
    }
    for (index, task) in sent.iter().filter(|(index, _)| *index != lost) {
        let outcome = b.on(*index).finish(task)?;
        ensure!(outcome.is_good(), "a read on connection {index} ended with {}", outcome.words());
    }
    let event = told(&mut b)?;
    ensure!(event.event == AsyncEvent::ConnectionDrop, "expected event 2, got {}", event.event.code());
    ensure!(event.parameter1 == cid.0, "event 2 names CID {}, {} was lost", event.parameter1, cid.0);
    for index in 0..b.len() {
        let s = b.on(index);
        s.clear_unit_attentions()?;
        s.run_good(&read)?;
    }
    Ok(())
}

/// The asynchronous message about a lost connection, on whichever surviving connection it arrives.
fn told(b: &mut Bundle) -> Result<AsyncMessage, Stop> {
    let tries = b.on(0).peer.timeout().as_millis() / 20;
    for _ in 0..tries {
        for index in 0..b.len() {
            let s = b.on(index);
            s.ping()?;
            if let Some(rx) = s.stashed_of(Opcode::AsyncMessage) {
                return Ok(AsyncMessage::parse(&rx.bhs)?);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fail!("no survivor was told of the lost connection by event 2")
}

// covers: MCS-06
fn mcs_06(ctx: &mut Ctx) -> RowResult {
    for function in [TmfFunction::LogicalUnitReset, TmfFunction::AbortTaskSet, TmfFunction::ClearTaskSet] {
        let mut b = Bundle::open(ctx, 2, |script| script)?;
        fill_block(ctx, b.on(0), 0x77)?;
        // B has an unacknowledged status, and a task.
        b.on(1).peer.ledger.hold();
        b.on(1).run_good(&Command::test_unit_ready())?;
        let scratch = ctx.scratch();
        let data = vec![0x88; scratch.block_size as usize];
        let s = b.on(1);
        let task = s.start(&Command::write_16(scratch.lba, data, scratch.block_size))?;
        let r2t = s.expect_r2t(&task)?;
        let request = b.on(0).tmf(function, true);
        b.on(0).peer.send(&Frame::of(request))?;
        if b.on(0).params.task_reporting == "RFC3720" {
            // The standard semantics allow the tasks' data to arrive first.
            let s = b.on(1);
            let early = s.data_out(&task, r2t.ttt, 0);
            s.peer.send(&Frame::of(early).remark("F early, nothing acknowledged"))?;
        }
        let reaction = b.on(0).reaction_within(request.itt, SILENCE)?;
        if let Reaction::Answered(rx) = &reaction {
            let code = rx.bhs.as_bytes()[2];
            if code == TmfResponse::FunctionNotSupported.code() && function != TmfFunction::LogicalUnitReset {
                continue;
            }
            fail!("{function} was answered while another connection had not acknowledged its status");
        }
        ensure!(matches!(reaction, Reaction::Nothing), "{function}: {}", reaction.words());
        let s = b.on(1);
        // Everything that arrived meanwhile (such as a ping that requests an acknowledgement) counts as
        // received.
        s.peer.ledger.release();
        let nop = s.acknowledgement(Lun(0));
        s.peer.send(&Frame::of(nop).remark("acknowledges everything"))?;
        s.ping()?;
        let s = b.on(1);
        let nop = s.acknowledgement(Lun(0));
        s.peer.send(&Frame::of(nop))?;
        let rx = b.on(0).next_for(request.itt)?;
        ensure!(rx.bhs.as_bytes()[2] == 0, "{function}: {}", rx.line());
        let s = b.on(1);
        let before = s.stashed(task.itt);
        silence_but(s, &task, before.as_deref())?;
        b.on(0).clear_unit_attentions()?;
        b.on(1).clear_unit_attentions()?;
        block_is(ctx, b.on(1), 0x77, &format!("a write that {function} ended"))?;
    }
    Ok(())
}

/// No PDU arrives for the task, except the one that arrived `before`.
fn silence_but(s: &mut Session, task: &Sent, before: Option<&str>) -> RowResult {
    s.ping()?;
    s.ping()?;
    let now = s.stashed(task.itt);
    ensure!(now.as_deref() == before, "after the task was ended came {now:?}");
    Ok(())
}

// covers: MCS-07
fn mcs_07(ctx: &mut Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    // The command with the next CmdSN is lost with its connection.
    let s = b.on(1);
    let lost = s.take_cmd_sn(false);
    let tag = s.itt();
    let after = b.on(0).start(&Command::test_unit_ready())?;
    silence(b.on(0), after.itt)?;
    b.lose_last()?;
    silence(b.on(0), after.itt)?;
    let response = b.on(0).abort(tag, lost)?;
    ensure!(
        response == TmfResponse::FunctionComplete,
        "ABORT TASK of a command that a lost connection took along: {response}"
    );
    let s = b.on(0);
    s.finish(&after)?;
    s.clear_unit_attentions()?;
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

// covers: MCS-08
fn mcs_08(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    while b.len() < 4.min(b.on(0).params.max_connections as usize) {
        b.join(ctx)?;
    }
    let immediate = b.on(0).params.writes.immediate_data;
    let mut dice = 0x2545_f491_4f6c_dd1du64;
    let mut roll = move |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % below
    };
    for round in 0..16u8 {
        // Writes to one block, ordered, distributed over the connections and sent in any order.
        let mut frames = Vec::new();
        for n in 0..8u8 {
            let mut write = Command::write_16(scratch.lba, vec![round * 8 + n; size], scratch.block_size)
                .attr(TaskAttribute::Ordered);
            if immediate {
                write = write.unsolicited(Unsolicited::Immediate(size));
            }
            let index = roll(b.len());
            let (task, frame) = b.on(index).command_frame(&write);
            frames.push((index, task, frame));
        }
        let mut order: Vec<usize> = (0..frames.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, roll(at + 1));
        }
        for at in order {
            let (index, _, frame) = &frames[at];
            b.on(*index).peer.send(frame)?;
        }
        for (index, task, _) in &frames {
            let outcome = b.on(*index).finish(task)?;
            ensure!(outcome.is_good(), "a write in round {round} ended with {}", outcome.words());
        }
        block_is(ctx, b.on(usize::from(round) % 2), round * 8 + 7, "writes in CmdSN order")?;
    }
    Ok(())
}
