//! Framing, AHS-free PDUs, and format errors (rows PDU).

use super::{clean, mixed_workload, refused};
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::target::{Ctx, Row, RowResult};
use crate::{Command, Reaction};
use iscsi_wire::{
    Itt, LoginStage, LogoutReason, Lun, SnackRequest, SnackType, TextRequest, TmfFunction, TmfResponse, Ttt,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("PDU-01", "segments padded to four bytes, padding zero and not counted", pdu_01),
    Row::new("PDU-02", "reserved bits sent zero and ignored on receipt", pdu_02),
    Row::new("PDU-03", "a reserved code in a defined field is an error", pdu_03),
    Row::new("PDU-04", "unknown opcode: Reject 05 with its header, connection lives", pdu_04),
    Row::new("PDU-05", "a target's opcode is refused, and none of an initiator's is sent", pdu_05),
    Row::new("PDU-06", "no AHS and no data segment where none may be", pdu_06),
    Row::new("PDU-07", "a data segment above MaxRecvDataSegmentLength is refused at its header", pdu_07),
    Row::new("PDU-08", "illegal or inconsistent header fields are refused", pdu_08),
    Row::new("PDU-09", "slow and coalesced PDUs parse", pdu_09),
    Row::new(
        "PDU-10",
        "no stale byte leaves in padding, in data of a failed command, or in ping data",
        pdu_10,
    ),
];

// covers: PDU-01
fn pdu_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    for length in (0..=9).chain([511, 1021]) {
        let data: Vec<u8> = (0..length).map(|n| n as u8 ^ 0x5a).collect();
        let rx = s.ping_with(&data)?;
        ensure!(
            rx.padding.len() == (4 - length % 4) % 4,
            "{} padding bytes after {length} bytes",
            rx.padding.len()
        );
    }
    clean(&s, "PDU-01")
}

// covers: PDU-02
fn pdu_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let scratch = ctx.scratch();
    let noise = |frame: Frame, places: &[(usize, u8)]| {
        let frame = frame.set_bits(0, 0x80).set_bits(2, 0xff).set_bits(3, 0xff).remark("reserved bits set");
        places.iter().fold(frame, |frame, (offset, mask)| frame.set_bits(*offset, *mask))
    };
    let tail: Vec<(usize, u8)> = (32..48).map(|offset| (offset, 0xff)).collect();

    let itt = s.itt();
    let nop = s.nop(itt, true);
    s.peer.send(&noise(Frame::of(nop), &[tail.as_slice(), &[(1, 0x7f)]].concat()))?;
    s.next_for(itt)?;

    let data: Vec<u8> = (0..scratch.block_size).map(|n| n as u8).collect();
    let write = Command::write_16(scratch.lba, data.clone(), scratch.block_size);
    let (sent, frame) = s.command_frame(&write);
    s.peer.send(&noise(frame, &[(1, 0x18)]))?;
    let r2t = s.expect_r2t(&sent)?;
    let data_out = s.data_out(&sent, r2t.ttt, r2t.buffer_offset as usize);
    let reserved: Vec<(usize, u8)> =
        (24..28).chain(32..36).chain(44..48).map(|offset| (offset, 0xff)).collect();
    s.peer.send(&noise(
        Frame::of(data_out).data(data.clone()),
        &[reserved.as_slice(), &[(1, 0x7f)]].concat(),
    ))?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "a write with reserved bits set ended with {}", outcome.words());
    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == data, "a write with reserved bits set stored other bytes");

    let mut tmf = s.tmf(TmfFunction::AbortTask, true);
    (tmf.referenced_task_tag, tmf.ref_cmd_sn) = (Itt(0x7777), s.cmd_sn);
    let reserved: Vec<(usize, u8)> = (40..48).map(|offset| (offset, 0xff)).collect();
    s.peer.send(&noise(Frame::of(tmf), &reserved))?;
    s.next_for(tmf.itt)?;

    clean(&s, "PDU-02")?;
    let logout = s.logout_request(LogoutReason::CloseSession);
    let reserved: Vec<(usize, u8)> =
        (8..16).chain(22..24).chain(32..48).map(|offset| (offset, 0xff)).collect();
    s.peer.send(&noise(Frame::of(logout), &reserved))?;
    s.next_for(logout.itt)?;
    clean(&s, "PDU-02")?;

    let mut s = ctx.session_of(ctx.discovery_script())?;
    let text = TextRequest {
        immediate: true,
        final_bit: true,
        continue_bit: false,
        lun: Lun(0),
        itt: s.itt(),
        ttt: Ttt::RESERVED,
        cmd_sn: s.cmd_sn,
        exp_stat_sn: s.peer.ledger.exp_stat_sn(),
    };
    let frame = Frame::of(text).data(crate::text_of(&[("SendTargets", "All")]));
    s.peer.send(&noise(frame, &[tail.as_slice(), &[(1, 0x3f)]].concat()))?;
    s.next_for(text.itt)?;

    clean(&s, "PDU-02")
}

// covers: PDU-03
fn pdu_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let tmf = s.tmf(TmfFunction::AbortTask, true);
    s.peer.send(&Frame::of(tmf).patch(1, &[0x80 | 13]).remark("function 13"))?;
    match s.reaction(tmf.itt)? {
        Reaction::Rejected(_) | Reaction::Closed => {}
        Reaction::Answered(rx) => {
            let refusal = [TmfResponse::FunctionNotSupported.code(), TmfResponse::FunctionRejected.code()];
            let code = rx.bhs.as_bytes()[2];
            ensure!(refusal.contains(&code), "TMF 13 was answered with {}", rx.line());
        }
        other => fail!("TMF 13 was answered with {}", other.words()),
    }

    let mut s = ctx.session()?;
    let logout = s.logout_request(LogoutReason::CloseSession);
    s.peer.send(&Frame::of(logout).patch(1, &[0x80 | 3]).remark("reason 3"))?;
    refused("logout reason 3", s.reaction(logout.itt)?)?;

    let mut s = ctx.session()?;
    let snack = SnackRequest {
        snack_type: SnackType::DataOrR2t,
        lun: s.lun,
        itt: Itt(0x7777),
        ttt: Ttt::RESERVED,
        exp_stat_sn: s.peer.ledger.exp_stat_sn(),
        beg_run: 0,
        run_length: 0,
    };
    s.peer.send(&Frame::of(snack).patch(1, &[0x80 | 4]).remark("type 4"))?;
    refused("SNACK type 4", s.reaction(snack.itt)?)?;

    let mut peer = ctx.connect()?;
    let script = ctx.script();
    let request = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    let frame = Frame::of(request).patch(1, &[0x80 | 2 << 2 | 3]).data(crate::text_of(&script.names()));
    peer.send(&frame.remark("CSG 2"))?;
    match peer.recv() {
        Err(error) if error.is_closed() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(rx) => {
            ensure!(rx.u32_at(36) >> 24 == 2, "login stage 2 was answered with {}", rx.line());
            Ok(())
        }
    }
}

// covers: PDU-04
fn pdu_04(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut bytes = [0; 48];
    bytes[0] = 0x1f;
    bytes[1] = 0x80;
    bytes[16..20].copy_from_slice(&s.itt().0.to_be_bytes());
    bytes[24..28].copy_from_slice(&s.cmd_sn.0.to_be_bytes());
    bytes[28..32].copy_from_slice(&s.peer.ledger.exp_stat_sn().0.to_be_bytes());
    s.peer.send(&Frame::raw(bytes).remark("opcode 0x1f"))?;
    let rx = s.next()?;
    ensure!(
        rx.bhs.opcode() == 0x3f && rx.bhs.as_bytes()[2] == 5,
        "expected Reject 05, received {}",
        rx.line()
    );
    ensure!(rx.data.get(..48) == Some(&bytes[..]), "the Reject does not return the 48 bytes of the header");
    s.ping()?;
    // The CmdSN was not consumed: the next command with it runs.
    let outcome = s.run(&Command::test_unit_ready())?;
    ensure!(outcome.is_good(), "the CmdSN of the rejected PDU was used up: {}", outcome.words());
    Ok(())
}

// covers: PDU-05
fn pdu_05(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut bytes = [0; 48];
    (bytes[0], bytes[1]) = (0x21, 0x80);
    let itt = s.itt();
    bytes[16..20].copy_from_slice(&itt.0.to_be_bytes());
    s.peer.send(&Frame::raw(bytes))?;
    refused("a SCSI Response sent to the target", s.reaction(itt)?)?;
    let mut s = ctx.session()?;
    mixed_workload(ctx, &mut s)?;
    clean(&s, "PDU-05")
}

// covers: PDU-06
fn pdu_06(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    mixed_workload(ctx, &mut s)?;
    clean(&s, "PDU-06")?;
    let tmf = s.tmf(TmfFunction::AbortTask, true);
    s.peer.send(&Frame::of(tmf).data(vec![0x55; 8]).remark("a data segment in a TMF request"))?;
    refused("a TMF request with a data segment", s.reaction(tmf.itt)?)?;
    let mut s = ctx.session()?;
    let logout = s.logout_request(LogoutReason::CloseConnection);
    s.peer.send(&Frame::of(logout).ahs([0, 5, 2, 0, 0, 0, 0, 0]).remark("AHS in a Logout request"))?;
    refused("a Logout request with AHS", s.reaction(logout.itt)?)
}

// covers: PDU-07
fn pdu_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let limit = s.params.max_send_data_segment_length as usize;
    if limit + 4 > 0xff_ffff {
        skip!("the target declares MaxRecvDataSegmentLength {limit}; no longer segment can be announced");
    }
    let itt = s.itt();
    let nop = s.nop(itt, true);
    // Only the header is sent: a target that waits for the data has not checked the length.
    s.peer.send(&Frame::of(nop).claim_data_length(limit + 4))?;
    refused("a data segment of MaxRecvDataSegmentLength + 4", s.reaction(itt)?)
}

// covers: PDU-08
fn pdu_08(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let (sent, frame) = s.command_frame(&Command::test_unit_ready());
    s.peer.send(&frame.set_bits(1, 7).remark("ATTR 7"))?;
    refused("a command with ATTR 7", s.reaction(sent.itt)?)?;

    let mut s = ctx.session()?;
    let itt = s.itt();
    let mut nop = s.nop(itt, true);
    nop.ttt = Ttt(0x1234);
    s.peer.send(&Frame::of(nop).remark("both tags valid, and no NOP-In had this TTT"))?;
    refused("a NOP-Out with both tags", s.reaction(itt)?)
}

// covers: PDU-09
fn pdu_09(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let itt = s.itt();
    let nop = s.nop(itt, true);
    s.peer.send_pieces(&Frame::of(nop).data(*b"byte by byte"), 1)?;
    let rx = s.next_for(itt)?;
    ensure!(rx.data == b"byte by byte", "the ping sent byte by byte came back as {:02x?}", rx.data);

    let mut frames = Vec::new();
    let mut tags = Vec::new();
    for n in 0..50u8 {
        let itt = s.itt();
        let nop = s.nop(itt, false);
        frames.push(Frame::of(nop).data(vec![n; usize::from(n)]));
        tags.push(itt);
    }
    // If the window is closed, MaxCmdSN is one less than the first CmdSN.
    let last = s.peer.ledger.max_cmd_sn.map_or(0, |max| frames[0].bhs().cmd_sn().distance_to(max));
    let count = frames.len().min(last.wrapping_add(1) as usize);
    s.peer.send_together(&frames[..count])?;
    for (n, itt) in tags[..count].iter().enumerate() {
        let rx = s.next_for(*itt)?;
        ensure!(rx.data == vec![n as u8; n], "coalesced ping {n} came back as {}", rx.line());
    }
    // A partial PDU on one connection does not block any other.
    let itt = s.itt();
    let nop = s.nop(itt, true);
    s.peer.send_part(&Frame::of(nop), 20)?;
    let mut other = ctx.session()?;
    other.ping()?;
    Ok(())
}

// covers: PDU-10
fn pdu_10(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    // First fill the target's buffers with something other than zeros.
    s.ping_with(&[0xa5; 509])?;
    let outcome = s.run(&Command::read([0xff; 6], 8192))?;
    ensure!(outcome.status == 2, "CDB opcode 0xff ended with {}", outcome.words());
    ensure!(outcome.data.is_empty(), "{} bytes of Data-In for an unknown CDB", outcome.data.len());
    let outcome = s.run(&Command::inquiry(96, 8192))?;
    let expected = outcome.data.get(4).map_or(0, |more| usize::from(*more) + 5).min(96);
    ensure!(outcome.data.len() <= expected, "INQUIRY has {expected} bytes, {} came", outcome.data.len());
    s.ping_with(b"abc")?;
    let itt = s.itt();
    let nop = s.nop(itt, true);
    s.peer.send(&Frame::of(nop))?;
    let rx = s.next_for(itt)?;
    ensure!(rx.data.is_empty(), "an empty ping came back with {} bytes", rx.data.len());
    clean(&s, "PDU-10")
}
