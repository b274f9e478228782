//! Numbering of an initiator (rows NUM), and the cases of its unsolicited data (UNS-01).

use super::play::{Op, Play, Stage, pattern, ping, read_write};
use super::sessions::{busy, busy_went_well, has_several, several};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, EvilConfig, Incoming};
use crate::frame::Frame;
use crate::script::ensure;
use iscsi_wire::{
    AsyncEvent, AsyncMessage, DataSn, Opcode, Reject, RejectReason, ResponseNumbers, ScsiCommand,
    TaskManagementRequest, keys,
};
use std::time::Duration;

/// So many statuses that no initiator may leave them unacknowledged.
const MANY_STATUSES: u32 = 6000;

pub(super) const ROWS: &[Row] = &[
    Row::new("NUM-01", "CmdSN counts non-immediate commands and no others", num_01),
    Row::new("NUM-04", "CmdSN and StatSN wrap", num_04),
    Row::new("NUM-05", "a pair with MaxCmdSN below ExpCmdSN-1 is ignored, an older one too", num_05),
    Row::new("NUM-06", "a closed window is respected, and opened by a NOP-In", num_06),
    Row::new("NUM-10", "statuses are acknowledged though there is nothing else to say", num_10),
    Row::new("NUM-12", "a command is sent again only as it was", num_12),
    Row::new("NUM-13", "after a Reject of a command its hole is filled", num_13),
    Row::new("UNS-01", "the four cases of InitialR2T and ImmediateData", uns_01),
];

// covers: NUM-01
fn num_01(stage: &Stage<'_>) -> RowResult {
    let chatty = Behaviour::good().every(Opcode::ScsiResponse, |_, frame| {
        vec![Act::Send(frame), Act::Tell(ping(u32::MAX, 0x31)), Act::Tell(ping(u32::MAX, 0x32))]
    });
    stage.goes_well(&Play::new(), chatty).map(|_| ())
}

// covers: NUM-04
fn num_04(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig { first_stat_sn: 0xffff_fffc, ..EvilConfig::default() };
    let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    played.clean("NUM-01")
}

// covers: NUM-05
fn num_05(stage: &Stage<'_>) -> RowResult {
    let mut count = 0;
    let shrinking = Behaviour::good().outgoing(move |scene, frame| {
        count += 1;
        let opcode = Opcode::try_from(frame.bhs().opcode());
        let frame = match (scene.full_feature, opcode) {
            (true, Ok(Opcode::ScsiResponse | Opcode::DataIn)) if count % 2 == 0 => {
                let old = scene.numbers.exp_cmd_sn.0.wrapping_sub(7);
                frame.patch(32, &old.to_be_bytes()).remark("MaxCmdSN below ExpCmdSN - 1")
            }
            (true, Ok(Opcode::ScsiResponse | Opcode::DataIn)) => {
                let (exp, max) =
                    (scene.numbers.exp_cmd_sn.0.wrapping_sub(3), scene.numbers.max_cmd_sn.0.wrapping_sub(3));
                frame.patch(28, &exp.to_be_bytes()).patch(32, &max.to_be_bytes()).remark("an older pair")
            }
            _ => frame,
        };
        vec![Act::Send(frame)]
    });
    stage.goes_well(&Play::new(), shrinking)?;
    // A pair of numbers becomes stale in transit when another connection is faster.
    let stale = Behaviour::good().outgoing(|scene, frame| {
        let counted = matches!(
            Opcode::try_from(frame.bhs().opcode()),
            Ok(Opcode::ScsiResponse | Opcode::DataIn | Opcode::R2t)
        );
        if !scene.full_feature || !counted || scene.connection.is_multiple_of(2) {
            return vec![Act::Send(frame)];
        }
        let (exp, max) =
            (scene.numbers.exp_cmd_sn.0.wrapping_sub(5), scene.numbers.max_cmd_sn.0.wrapping_sub(5));
        let old = frame.patch(28, &exp.to_be_bytes()).patch(32, &max.to_be_bytes());
        vec![Act::Send(old.remark("a pair that is older than one that has arrived"))]
    });
    let mut play = several();
    play.config.window = 8;
    let played = stage.play_as(&play, stale, &busy())?;
    has_several(&played)?;
    busy_went_well(&played)?;
    played.clean("NUM-06")
}

// covers: NUM-06
fn num_06(stage: &Stage<'_>) -> RowResult {
    // One command at a time.
    let config = EvilConfig { window: 1, ..EvilConfig::default() };
    let ops = [Op::Together((0..8).map(|n| Op::Read { lba: n * 8, blocks: 8 }).collect())];
    let played = stage.play_as(&Play::new().config(config), Behaviour::good(), &ops)?;
    played.went_well()?;
    played.clean("NUM-06")?;
    // No command is allowed until a NOP-In opens the window.
    let config = EvilConfig { window: 0, ..EvilConfig::default() };
    let opening = Behaviour::good().outgoing(|scene, frame| {
        let bytes = *frame.bhs().as_bytes();
        let opcode = Opcode::try_from(frame.bhs().opcode());
        let done = match opcode {
            Ok(Opcode::LoginResponse) => bytes[1] & 0x83 == 0x83,
            Ok(Opcode::DataIn) => bytes[1] & 1 != 0,
            Ok(Opcode::ScsiResponse) => true,
            _ => false,
        };
        if !done {
            return vec![Act::Send(frame)];
        }
        // It carries the same numbers as the frame before it.
        let max = scene.numbers.exp_cmd_sn.0.to_be_bytes();
        let stat_sn = scene.numbers.stat_sn.0.to_be_bytes();
        let exp = scene.numbers.exp_cmd_sn.0.to_be_bytes();
        let nop = ping(u32::MAX, u32::MAX).patch(24, &stat_sn).patch(28, &exp).patch(32, &max);
        vec![Act::Send(frame), Act::Send(nop.remark("the window opens"))]
    });
    let play = Play::new().config(config).set("header_digest", "off").set("data_digest", "off");
    let played = stage.play_as(&play, opening, &[Op::Read { lba: 0, blocks: 8 }])?;
    played.went_well()?;
    played.clean("NUM-06")
}

// covers: NUM-10
fn num_10(stage: &Stage<'_>) -> RowResult {
    let message = Frame::of(AsyncMessage {
        lun: Default::default(),
        numbers: ResponseNumbers::default(),
        event: AsyncEvent::Vendor(255),
        vcode: 0,
        parameter1: 0,
        parameter2: 0,
        parameter3: 0,
    });
    let many = Behaviour::good().first(Opcode::ScsiResponse, move |_, frame| {
        let mut acts = vec![Act::Send(frame)];
        acts.extend((0..MANY_STATUSES).map(|_| Act::Answer(message.clone())));
        acts
    });
    let ops = [Op::Write { lba: 1000, data: pattern(1000, 8) }, Op::Wait(Duration::from_millis(500))];
    let played = stage.play(many, &ops)?;
    played.went_well()?;
    let (mut waiting, mut most) = (0u32, 0);
    for entry in played.entries.iter().filter(|entry| entry.connection == 1) {
        if entry.is(Opcode::AsyncMessage) {
            waiting += 1;
            most = most.max(waiting);
        } else if entry.side == crate::Side::Initiator {
            if entry.is(Opcode::LogoutRequest) {
                break;
            }
            waiting = 0;
        }
    }
    ensure!(
        waiting < MANY_STATUSES,
        "{most} statuses came, and the initiator acknowledged none before its logout"
    );
    Ok(())
}

// covers: NUM-12
fn num_12(stage: &Stage<'_>) -> RowResult {
    let mut lost = false;
    let losing = Behaviour::good().incoming(move |_, rx| {
        if is_write(rx) && !std::mem::replace(&mut lost, true) {
            Incoming::Lost(Vec::new())
        } else {
            Incoming::Serve
        }
    });
    let played = stage.play(losing, &read_write())?;
    played.no_wrong_byte()?;
    let mut seen: Vec<(u32, ScsiCommand)> = Vec::new();
    for entry in played.sent_pdus() {
        let Some(command) = entry.bhs().and_then(|bhs| ScsiCommand::parse(bhs).ok()) else { continue };
        let before = seen.iter().find(|(connection, earlier)| {
            *connection == entry.connection && !command.immediate && earlier.cmd_sn == command.cmd_sn
        });
        if let Some((_, earlier)) = before {
            let same = (earlier.itt, earlier.cdb, earlier.lun) == (command.itt, command.cdb, command.lun);
            ensure!(same, "CmdSN {} was used for another command: {entry}", command.cmd_sn);
        }
        seen.push((entry.connection, command));
    }
    Ok(())
}

/// A Reject of what arrived; numbers are filled in when it is sent.
fn reject(rx: &crate::Received, reason: RejectReason) -> Frame {
    let reject = Reject { reason, numbers: ResponseNumbers::default(), data_sn: DataSn(0) };
    Frame::of(reject).data(*rx.bhs.as_bytes())
}

fn is_write(rx: &crate::Received) -> bool {
    ScsiCommand::parse(&rx.bhs).is_ok_and(|command| command.write)
}

// covers: NUM-13
fn num_13(stage: &Stage<'_>) -> RowResult {
    let mut rejected = false;
    let rejecting = Behaviour::good().incoming(move |_, rx| {
        if is_write(rx) && !std::mem::replace(&mut rejected, true) {
            return Incoming::Lost(vec![Act::Answer(reject(rx, RejectReason::DataDigestError))]);
        }
        Incoming::Serve
    });
    let played = stage.play(rejecting, &read_write())?;
    played.no_wrong_byte()?;
    let mut hole = None;
    for entry in played.sent_pdus().filter(|entry| entry.connection == 1) {
        let Some(bhs) = entry.bhs() else { continue };
        let command = ScsiCommand::parse(bhs).ok().filter(|command| command.write);
        match (hole, command) {
            (None, Some(command)) => hole = Some(command),
            (Some(first), Some(command)) if command.cmd_sn == first.cmd_sn => {
                ensure!(
                    command.itt == first.itt && command.cdb == first.cdb,
                    "the hole was filled otherwise: {entry}"
                );
                return Ok(());
            }
            (Some(first), _) => {
                let abort = TaskManagementRequest::parse(bhs).ok();
                if abort.is_some_and(|abort| abort.ref_cmd_sn == first.cmd_sn) {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
    ensure!(hole.is_some(), "no write was seen");
    ensure!(played.dropped(1), "the hole of a rejected command was neither filled nor left by a new session");
    Ok(())
}

// covers: UNS-01
fn uns_01(stage: &Stage<'_>) -> RowResult {
    for initial_r2t in ["yes", "no"] {
        for immediate_data in ["yes", "no"] {
            let config = EvilConfig::default().key(keys::FIRST_BURST_LENGTH, "8192");
            let play = Play::new()
                .config(config)
                .set("initial_r2t", initial_r2t)
                .set("immediate_data", immediate_data);
            let played = stage.goes_well(&play, Behaviour::good())?;
            ["UNS-03", "UNS-04", "UNS-05", "R2T-03"].iter().try_for_each(|row| played.clean(row))?;
        }
    }
    // The same when the target sets the values.
    for (initial_r2t, immediate_data) in [("Yes", "Yes"), ("Yes", "No"), ("No", "No")] {
        let config = EvilConfig::default()
            .key(keys::INITIAL_R2T, initial_r2t)
            .key(keys::IMMEDIATE_DATA, immediate_data);
        stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    }
    Ok(())
}
