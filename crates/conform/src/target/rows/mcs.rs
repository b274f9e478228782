//! Several connections in a session (rows MCS).

use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::session::{Command, Sent, Unsolicited};
use crate::target::bundle::Bundle;
use crate::target::ctx::{RowSession, exchange_text};
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, RawPeer, Reaction, Session, Stop};
use iscsi_wire::{
    Cid, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, Lun, R2t, TaskAttribute,
    TmfFunction, TmfResponse, keys,
};
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "MCS-01",
        "connections join with the TSIH and a fresh CID, through the same portal group",
        mcs_01,
    ),
    Row::new("MCS-04", "logout of another connection; the last one ends the session", mcs_04),
    Row::new("MCS-06", "a reset reaches all connections and waits for what they did not acknowledge", mcs_06),
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
