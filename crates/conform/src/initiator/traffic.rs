//! Numbering, data transfer and responses (rows NUM, DAT, UNS, R2T, RES, RSP) of an initiator.

use super::play::{Op, OpResult, Play, Stage, pattern, ping, read_write};
use super::sessions::{busy, busy_went_well, has_several, several};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, EvilConfig, Incoming};
use crate::frame::Frame;
use crate::script::{Wrong, ensure, fail};
use iscsi_wire::{
    AsyncEvent, AsyncMessage, DataIn, DataSn, Itt, Opcode, R2t, Reject, RejectReason, ScsiCommand,
    ScsiResponse, TaskManagementRequest, Ttt, keys,
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
    Row::new("DAT-01", "MaxRecvDataSegmentLength and MaxBurstLength obeyed", dat_01),
    Row::new("DAT-02", "DataSN from 0 in each sequence; a gap is noticed", dat_02),
    Row::new("DAT-03", "Data-In with a gap, an overlap, or beyond the buffer", dat_03),
    Row::new("DAT-06", "empty Data-In PDUs are accepted", dat_06),
    Row::new("DAT-07", "status in the last Data-In, or in a response", dat_07),
    Row::new("UNS-01", "the four cases of InitialR2T and ImmediateData", uns_01),
    Row::new("UNS-03", "immediate and unsolicited data at most FirstBurstLength", uns_03),
    Row::new("UNS-04", "unsolicited data exactly min(FirstBurstLength, EDTL)", uns_04),
    Row::new("UNS-05", "F, R and W of commands", uns_05),
    Row::new("R2T-02", "R2Ts answered in the order of their arrival", r2t_02),
    Row::new("R2T-03", "an R2T beyond the buffer, of length 0, or for no task is refused", r2t_03),
    Row::new("RES-04", "a residual bounds what is handed up", res_04),
    Row::new("RSP-01", "CHECK CONDITION fails the task", rsp_01),
    Row::new("RSP-03", "response 01 fails the task, whatever its status", rsp_03),
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
                let old = scene.exp_cmd_sn.0.wrapping_sub(7);
                frame.patch(32, &old.to_be_bytes()).remark("MaxCmdSN below ExpCmdSN - 1")
            }
            (true, Ok(Opcode::ScsiResponse | Opcode::DataIn)) => {
                let (exp, max) = (scene.exp_cmd_sn.0.wrapping_sub(3), scene.max_cmd_sn.0.wrapping_sub(3));
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
        let (exp, max) = (scene.exp_cmd_sn.0.wrapping_sub(5), scene.max_cmd_sn.0.wrapping_sub(5));
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
        let max = scene.exp_cmd_sn.0.to_be_bytes();
        let stat_sn = scene.stat_sn.0.to_be_bytes();
        let exp = scene.exp_cmd_sn.0.to_be_bytes();
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
        stat_sn: Default::default(),
        exp_cmd_sn: Default::default(),
        max_cmd_sn: Default::default(),
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
    let reject = Reject {
        reason,
        stat_sn: Default::default(),
        exp_cmd_sn: Default::default(),
        max_cmd_sn: Default::default(),
        data_sn: DataSn(0),
    };
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

// covers: DAT-01
fn dat_01(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::default()
        .key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "2048")
        .key(keys::MAX_BURST_LENGTH, "4096")
        .key(keys::FIRST_BURST_LENGTH, "1024");
    let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    played.clean("DAT-03")
}

/// Changes one Data-In that is not the first of its command, once, of a read with several PDUs.
fn second_data_in(change: impl Fn(&mut DataIn) + Send + 'static) -> Behaviour {
    let mut done = false;
    Behaviour::good().every(Opcode::DataIn, move |_, frame| {
        let Ok(mut pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if pdu.buffer_offset == 0 || std::mem::replace(&mut done, true) {
            return vec![Act::Send(frame)];
        }
        change(&mut pdu);
        vec![Act::Send(Frame::of(pdu).data(frame.data_bytes()).remark("changed"))]
    })
}

fn in_parts() -> Play {
    Play::new().set("max_recv_data_segment_length", "4096")
}

// covers: DAT-02
fn dat_02(stage: &Stage<'_>) -> RowResult {
    stage.goes_well(&in_parts(), Behaviour::good())?;
    let gap = second_data_in(|pdu| pdu.data_sn = DataSn(pdu.data_sn.0 + 1));
    let played = stage.play_as(&in_parts(), gap, &read_write())?;
    played.no_wrong_byte()?;
    if !played.dropped(1) {
        played.failed("a DataSN was left out")?;
    }
    Ok(())
}

// covers: DAT-03
fn dat_03(stage: &Stage<'_>) -> RowResult {
    let changes: &[Wrong<DataIn>] = &[
        ("a gap", |pdu| pdu.buffer_offset += 512),
        ("an overlap", |pdu| pdu.buffer_offset -= 512),
        ("an offset beyond the buffer", |pdu| pdu.buffer_offset = 0x0100_0000),
        ("an offset that wraps", |pdu| pdu.buffer_offset = 0xffff_ff00),
        ("another task's tag", |pdu| pdu.itt = Itt(pdu.itt.0 ^ 0x4444_4444)),
    ];
    for (what, change) in changes {
        let played = stage.play_as(&in_parts(), second_data_in(*change), &read_write())?;
        if let Err(crate::Stop::Fail(why)) = played.no_wrong_byte() {
            fail!("Data-In with {what}: {why}");
        }
        if !played.dropped(1) {
            played.failed(&format!("Data-In with {what}"))?;
        }
    }
    Ok(())
}

// covers: DAT-06
fn dat_06(stage: &Stage<'_>) -> RowResult {
    let mut last = None;
    let mut extra = 0;
    let empty = Behaviour::good().every(Opcode::DataIn, move |_, frame| {
        let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if last.replace(pdu.itt) != Some(pdu.itt) {
            extra = 0;
        }
        let nothing = DataIn {
            final_bit: false,
            status_bit: false,
            overflow: false,
            underflow: false,
            residual_count: 0,
            stat_sn: Default::default(),
            data_sn: DataSn(pdu.data_sn.0 + extra),
            ..pdu
        };
        extra += 1;
        let pdu = DataIn { data_sn: DataSn(pdu.data_sn.0 + extra), ..pdu };
        vec![
            Act::Send(Frame::of(nothing).remark("empty")),
            Act::Send(Frame::of(pdu).data(frame.data_bytes())),
        ]
    });
    stage.goes_well(&Play::new(), empty).map(|_| ())
}

// covers: DAT-07
fn dat_07(stage: &Stage<'_>) -> RowResult {
    // The good target combines the status with the last Data-In; here it is sent separately.
    let apart = Behaviour::good().every(Opcode::DataIn, |_, frame| {
        let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if !pdu.status_bit {
            return vec![Act::Send(frame)];
        }
        let response = ScsiResponse {
            bidi_overflow: false,
            bidi_underflow: false,
            overflow: pdu.overflow,
            underflow: pdu.underflow,
            response: 0,
            status: pdu.status,
            itt: pdu.itt,
            snack_tag: 0,
            stat_sn: pdu.stat_sn,
            exp_cmd_sn: pdu.exp_cmd_sn,
            max_cmd_sn: pdu.max_cmd_sn,
            exp_data_sn: pdu.data_sn.next(),
            bidi_residual_count: 0,
            residual_count: pdu.residual_count,
        };
        let data = DataIn {
            status_bit: false,
            overflow: false,
            underflow: false,
            residual_count: 0,
            stat_sn: Default::default(),
            ..pdu
        };
        vec![Act::Send(Frame::of(data).data(frame.data_bytes())), Act::Send(Frame::of(response))]
    });
    stage.goes_well(&Play::new(), apart)?;
    stage.goes_well(&Play::new(), Behaviour::good()).map(|_| ())
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

fn unsolicited(first_burst: &str) -> Play {
    let config = EvilConfig::default()
        .key(keys::FIRST_BURST_LENGTH, first_burst)
        .key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024");
    Play::new().config(config).set("initial_r2t", "no").set("immediate_data", "yes")
}

// covers: UNS-03
fn uns_03(stage: &Stage<'_>) -> RowResult {
    for first_burst in ["512", "1536", "4096"] {
        let played = stage.goes_well(&unsolicited(first_burst), Behaviour::good())?;
        played.clean("DAT-03")?;
    }
    Ok(())
}

// covers: UNS-04
fn uns_04(stage: &Stage<'_>) -> RowResult {
    for first_burst in ["2048", "16384", "65536"] {
        stage.goes_well(&unsolicited(first_burst), Behaviour::good())?;
    }
    Ok(())
}

// covers: UNS-05
fn uns_05(stage: &Stage<'_>) -> RowResult {
    stage.goes_well(&Play::new(), Behaviour::good())?;
    stage.goes_well(&unsolicited("4096"), Behaviour::good()).map(|_| ())
}

// covers: R2T-02
fn r2t_02(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::default()
        .key(keys::MAX_OUTSTANDING_R2T, "8")
        .key(keys::MAX_BURST_LENGTH, "2048")
        .key(keys::FIRST_BURST_LENGTH, "512");
    let play = Play::new().config(config).set("max_outstanding_r2t", "8");
    let played = stage.goes_well(&play, Behaviour::good())?;
    ["R2T-03", "DAT-02", "DAT-03"].iter().try_for_each(|row| played.clean(row))
}

// covers: R2T-03
fn r2t_03(stage: &Stage<'_>) -> RowResult {
    let changes: &[Wrong<R2t>] = &[
        ("beyond the buffer", |r2t| r2t.desired_data_transfer_length = 0x00ff_0000),
        ("at an offset beyond the buffer", |r2t| r2t.buffer_offset = 0x0100_0000),
        ("with an offset that wraps", |r2t| r2t.buffer_offset = 0xffff_fe00),
        ("of length 0", |r2t| r2t.desired_data_transfer_length = 0),
        ("for no task", |r2t| r2t.itt = Itt(r2t.itt.0 ^ 0x5555_0000)),
        ("with the reserved TTT", |r2t| r2t.ttt = Ttt::RESERVED),
    ];
    let play = Play::new().set("initial_r2t", "yes").set("immediate_data", "no");
    for (what, change) in changes {
        let change = *change;
        let wrong = Behaviour::good().first(Opcode::R2t, move |_, frame| {
            let Ok(mut r2t) = R2t::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
            change(&mut r2t);
            vec![Act::Send(Frame::of(r2t).remark("changed"))]
        });
        let played = stage.play_as(&play, wrong, &[Op::Write { lba: 1000, data: pattern(1000, 40) }])?;
        let mut sent = 0;
        for entry in played.sent_pdus().filter(|entry| entry.connection == 1 && entry.is(Opcode::DataOut)) {
            sent += entry.data().len();
        }
        ensure!(sent == 0, "an R2T {what} was answered with {sent} bytes");
        if !played.dropped(1) {
            played.failed(&format!("an R2T {what}"))?;
        }
    }
    Ok(())
}

// covers: RES-04
fn res_04(stage: &Stage<'_>) -> RowResult {
    let short = Behaviour::good().every(Opcode::DataIn, |_, frame| {
        let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        let data = frame.data_bytes();
        if !pdu.status_bit || data.len() < 1024 {
            return vec![Act::Send(frame)];
        }
        let pdu = DataIn { underflow: true, residual_count: 512, ..pdu };
        vec![Act::Send(Frame::of(pdu).data(&data[..data.len() - 512]).remark("512 bytes short"))]
    });
    let played = stage.play(short, &[Op::Read { lba: 0, blocks: 24 }])?;
    if let Ok(results) = &played.results
        && let Some(OpResult::Data(data)) = results.first()
    {
        ensure!(
            data.len() == 23 * 512 && *data == pattern(0, 23),
            "a read that fell 512 bytes short was handed up with {} bytes",
            data.len()
        );
    }
    Ok(())
}

// covers: RSP-01
fn rsp_01(stage: &Stage<'_>) -> RowResult {
    for (key, asc) in [(3, 0x11), (5, 0x21), (0xb, 0x47), (7, 0x27)] {
        let failing = Behaviour::good().every(Opcode::ScsiResponse, move |_, frame| {
            let mut sense = vec![0; 20];
            (sense[1], sense[2], sense[4], sense[9], sense[14]) = (18, 0x70, key, 10, asc);
            vec![Act::Send(frame.patch(3, &[2]).data(sense))]
        });
        let played = stage.play(failing, &[Op::Write { lba: 5, data: pattern(5, 8) }])?;
        played.failed(&format!("CHECK CONDITION {key:X}/{asc:02X}"))?;
    }
    Ok(())
}

// covers: RSP-03
fn rsp_03(stage: &Stage<'_>) -> RowResult {
    let failing = Behaviour::good().every(Opcode::ScsiResponse, |_, frame| {
        vec![Act::Send(frame.patch(2, &[1]).remark("target failure, status GOOD"))]
    });
    let played = stage.play(failing, &[Op::Write { lba: 5, data: pattern(5, 8) }])?;
    played.failed("response 01")
}
