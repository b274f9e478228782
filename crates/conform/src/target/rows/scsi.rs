//! The logical unit as any initiator sees it: identification, CDB checks, sense, unit attentions, the task set,
//! reservations, access states and provisioning (rows of the SCSI table).

use super::refused;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Outcome, Session};
use crate::target::{Ctx, Row, RowResult};
use crate::{Frame, Reaction, Stop};
use iscsi_wire::{Lun, TaskAttribute, TmfFunction, TmfResponse};

pub(super) const ROWS: &[Row] = &[
    Row::new("CDB-01", "reserved CDB bits and NACA without ACA: 5/24/00", cdb_01),
    Row::new(
        "CDB-02",
        "unknown operation code 5/20/00, unknown unit 5/25/00 but for INQUIRY and its like",
        cdb_02,
    ),
    Row::new("CDB-03", "past the end: 5/21/00, and the arithmetic does not wrap", cdb_03),
    Row::new("CDB-05", "ALLOCATION LENGTH truncates silently", cdb_05),
    Row::new("CDB-08", "the variants of READ give the same", cdb_08),
    Row::new("INQ-01", "standard data of a disk, in ASCII where it is text", inq_01),
    Row::new("INQ-03", "peripheral and flat LUNs name the same unit", inq_03),
    Row::new("VPD-00", "the page list is sorted and true", vpd_00),
    Row::new("VPD-83", "the unit has a name, and it is the same on every nexus", vpd_83),
    Row::new("VPD-B2", "provisioning agrees with READ CAPACITY (16)", vpd_b2),
    Row::new("MOD-01", "each mode page has the length that it says", mod_01),
    Row::new("SNS-05", "writes whose data does not fit end with ABORTED COMMAND or 5/0E/03", sns_05),
    Row::new("UA-01", "a new nexus is told once of the power on or nexus loss", ua_01),
    Row::new("UA-02", "INQUIRY, REPORT LUNS and REQUEST SENSE never fail by a unit attention", ua_02),
    Row::new("TSK-03", "ACA works, or is refused cleanly", tsk_03),
    Row::new("TSK-05", "a write aborted amid its data leaves whole blocks, old or new", tsk_05),
    Row::new("TSK-06", "a task tag that is in use is refused, and the first task goes on", tsk_06),
    Row::new("TSK-07", "a command priority changes no outcome, and no status comes with a qualifier", tsk_07),
    Row::new("TSK-08", "blocks that several nexuses write at once are one nexus's each", tsk_08),
    Row::new("PR-01", "PERSISTENT RESERVE IN answers, with honest lengths", pr_01),
    Row::new(
        "PR-04",
        "an Exclusive Access reservation keeps others out, and ends with its registration",
        pr_04,
    ),
    Row::new("ALU-02", "TPGS agrees with REPORT TARGET PORT GROUPS and the designators", alu_02),
    Row::new("CAW-01", "COMPARE AND WRITE writes when equal, and E/1D/00 says where it differs", caw_01),
];

/// INQUIRY of a VPD page.
pub(super) fn vpd(s: &mut Session, page: u8) -> Result<Outcome, Stop> {
    Ok(s.run(&Command::read([0x12, 1, page, 0x10, 0, 0], 4096))?)
}

/// The body of a VPD page, or `None` when the target has no such page.
fn page(s: &mut Session, code: u8) -> Result<Option<Vec<u8>>, Stop> {
    let outcome = vpd(s, code)?;
    if !outcome.is_good() {
        return Ok(None);
    }
    ensure!(outcome.data.get(1) == Some(&code), "page {code:02x}h says that it is another");
    let length = outcome.data.get(2..4).map_or(0, |b| usize::from(b[0]) << 8 | usize::from(b[1]));
    ensure!(outcome.data.len() >= (4 + length).min(4096), "page {code:02x}h is shorter than it says");
    Ok(Some(outcome.data[4..outcome.data.len().min(4 + length)].to_vec()))
}

fn check(what: &str, outcome: &Outcome, key: u8, asc: u8, ascq: u8) -> RowResult {
    ensure!(
        outcome.is_check(key, asc, ascq),
        "{what}: due is {key:x}/{asc:02x}/{ascq:02x}, it ended with {}",
        outcome.words()
    );
    Ok(())
}

// covers: CDB-01
fn cdb_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    check("TEST UNIT READY with a reserved byte", &s.run(&Command::none([0, 0, 0, 1, 0, 0]))?, 5, 0x24, 0)?;
    let normaca = s.run_good(&Command::inquiry(36, 36))?.data.get(3).is_some_and(|byte| byte & 0x20 != 0);
    if !normaca {
        check("NACA without ACA", &s.run(&Command::none([0, 0, 0, 0, 0, 4]))?, 5, 0x24, 0)?;
    }
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

// covers: CDB-02
fn cdb_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    check("operation code FFh", &s.run(&Command::none([0xff; 6]))?, 5, 0x20, 0)?;
    check(
        "an unknown service action",
        &s.run(&Command::read([0x9e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], 8))?,
        5,
        0x24,
        0,
    )?;
    let absent = Lun::from_index(0x3ffe);
    let outcome = s.run(&Command::inquiry(36, 36).lun(absent))?;
    ensure!(outcome.is_good(), "INQUIRY of an absent unit ended with {}", outcome.words());
    ensure!(outcome.data.first() == Some(&0x7f), "an absent unit's first byte: {:?}", outcome.data.first());
    check("TEST UNIT READY of an absent unit", &s.run(&Command::test_unit_ready().lun(absent))?, 5, 0x25, 0)?;
    let outcome = s.run(&Command::report_luns(4096, 4096).lun(absent))?;
    ensure!(outcome.is_good(), "REPORT LUNS to an absent unit ended with {}", outcome.words());
    Ok(())
}

// covers: CDB-03
fn cdb_03(ctx: &mut Ctx) -> RowResult {
    let (end, size) = (ctx.capacity_blocks(), ctx.scratch().block_size);
    let mut s = ctx.session()?;
    for (lba, blocks) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 1)] {
        let outcome = s.run(&Command::read_16(lba, blocks, size).edtl(size))?;
        // A target that checks the length against its limit first is right too.
        let long = blocks == u32::MAX && outcome.is_check(5, 0x24, 0);
        ensure!(
            long || outcome.is_check(5, 0x21, 0),
            "{blocks} blocks at {lba} of {end} ended with {}",
            outcome.words()
        );
    }
    s.run_good(&Command::read_16(end - 1, 1, size))?;
    Ok(())
}

// covers: CDB-05
fn cdb_05(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let whole = s.run_good(&Command::inquiry(255, 255))?.data;
    for length in [0u8, 1, 5, 36] {
        let data = s.run_good(&Command::inquiry(length.into(), 255))?.data;
        let due = &whole[..whole.len().min(length.into())];
        ensure!(data == due, "INQUIRY with ALLOCATION LENGTH {length}: {} bytes came", data.len());
    }
    Ok(())
}

// covers: CDB-08
fn cdb_08(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let (size, lba) = (scratch.block_size, scratch.lba);
    let mut s = ctx.session()?;
    let data: Vec<u8> = (0..size * 2).map(|n| (n / 3) as u8).collect();
    s.run_good(&Command::write_16(lba, data.clone(), size))?;
    let Ok(low) = u32::try_from(lba) else { skip!("the scratch area is beyond 2^32 blocks") };
    let [a, b, c, d] = low.to_be_bytes();
    let variants: [(&str, Vec<u8>); 3] = [
        ("READ (6)", vec![0x08, b & 0x1f, c, d, 2, 0]),
        ("READ (10)", vec![0x28, 0, a, b, c, d, 0, 0, 2, 0]),
        ("READ (12)", vec![0xa8, 0, a, b, c, d, 0, 0, 0, 2, 0, 0]),
    ];
    for (name, cdb) in variants {
        if cdb[0] == 0x08 && low >= 1 << 21 {
            continue;
        }
        let outcome = s.run(&Command::read(cdb, size * 2))?;
        if outcome.is_check(5, 0x20, 0) && name != "READ (10)" {
            continue;
        }
        ensure!(outcome.is_good() && outcome.data == data, "{name} ended with {}", outcome.words());
    }
    Ok(())
}

// covers: INQ-01
fn inq_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let data = s.run_good(&Command::inquiry(255, 255))?.data;
    ensure!(data.len() >= 36, "standard data of {} bytes", data.len());
    ensure!(data[0] == 0, "peripheral {:02x}h is not a connected disk", data[0]);
    ensure!(data[3] & 0x0f == 2, "RESPONSE DATA FORMAT {}", data[3] & 0x0f);
    ensure!(data[7] & 0x02 != 0, "CMDQUE 0, and yet iSCSI queues");
    let text = data[8..36].iter().all(|byte| (b' '..=b'~').contains(byte));
    ensure!(text, "vendor, product and revision are not ASCII");
    Ok(())
}

// covers: INQ-03
fn inq_03(ctx: &mut Ctx) -> RowResult {
    let Some(index) = ctx.lun().to_index().filter(|index| *index < 256) else {
        skip!("{} has no peripheral form", ctx.lun());
    };
    let mut s = ctx.session()?;
    let name = page(&mut s, 0x83)?;
    let flat = Lun((0x4000 | u64::from(index)) << 48);
    let peripheral = Lun(u64::from(index) << 48);
    for lun in [peripheral, flat] {
        let outcome = s.run(&Command::read([0x12, 1, 0x83, 0x10, 0, 0], 4096).lun(lun))?;
        ensure!(
            outcome.is_good() && outcome.data.get(4..) == name.as_deref(),
            "LUN {lun:?} is another unit than {:?}: {}",
            ctx.lun(),
            outcome.words()
        );
    }
    Ok(())
}

// covers: VPD-00
fn vpd_00(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let Some(list) = page(&mut s, 0)? else { fail!("no list of VPD pages") };
    ensure!(list.first() == Some(&0) && list.is_sorted(), "the list is {list:02x?}");
    for code in &list {
        ensure!(page(&mut s, *code)?.is_some(), "page {code:02x}h is listed, and is not there");
    }
    let Some(other) = (1..=0xff).rev().find(|code| !list.contains(code)) else { return Ok(()) };
    check("a page that is not listed", &vpd(&mut s, other)?, 5, 0x24, 0)?;
    check("a page without EVPD", &s.run(&Command::read([0x12, 0, 0x83, 0, 255, 0], 255))?, 5, 0x24, 0)
}

/// Designators of page 83h: (association, type, value).
fn designators(page: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut all = Vec::new();
    let mut rest = page;
    while let [_, kind, _, length, ..] = *rest {
        let end = (4 + usize::from(length)).min(rest.len());
        all.push((kind >> 4 & 3, kind & 0x0f, rest[4..end].to_vec()));
        rest = &rest[end..];
    }
    all
}

// covers: VPD-83
fn vpd_83(ctx: &mut Ctx) -> RowResult {
    let unit = |s: &mut Session| -> Result<Vec<_>, Stop> {
        let page = page(s, 0x83)?.unwrap_or_default();
        Ok(designators(&page).into_iter().filter(|designator| designator.0 == 0).collect())
    };
    let mut s = ctx.session()?;
    let names = unit(&mut s)?;
    ensure!(
        names.iter().any(|(_, kind, value)| matches!(kind, 2 | 3 | 8) && !value.is_empty()),
        "no NAA, EUI-64 or SCSI name of the unit: {names:02x?}"
    );
    let mut other = ctx.session()?;
    let again = unit(&mut other)?;
    ensure!(again == names, "another nexus sees other names: {again:02x?}");
    Ok(())
}

// covers: VPD-B2
fn vpd_b2(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let capacity = s.run_good(&Command::read_capacity_16())?.data;
    let (lbpme, lbprz) = (capacity.get(14).map_or(0, |b| b >> 7), capacity.get(14).map_or(0, |b| b >> 6 & 1));
    let Some(body) = page(&mut s, 0xb2)? else {
        ensure!(lbpme == 0, "LBPME 1, and no page B2h");
        return Ok(());
    };
    let flags = body.get(1).copied().unwrap_or(0);
    ensure!(lbpme == 1 || flags & 0xe0 == 0, "LBPME 0, and B2h has {flags:02x}h");
    ensure!(lbpme == 0 || (flags >> 2 & 7 == 1) == (lbprz == 1), "LBPRZ {lbprz}, and B2h has {flags:02x}h");
    Ok(())
}

// covers: MOD-01
fn mod_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let data = s.run_good(&Command::read([0x5a, 0x08, 0x3f, 0, 0, 0, 0, 0x10, 0, 0], 4096))?.data;
    let length = data.first_chunk::<2>().map_or(0, |b| usize::from(u16::from_be_bytes(*b)));
    ensure!(data.len() == length + 2, "MODE DATA LENGTH {length}, and {} bytes came", data.len());
    let mut rest = data.get(8..).unwrap_or_default();
    let mut control = false;
    while let [code, length, ..] = *rest {
        ensure!(code & 0x40 == 0, "a subpage among the pages");
        control |= code & 0x3f == 0x0a;
        let end = 2 + usize::from(length);
        ensure!(end <= rest.len(), "page {:02x}h is cut off", code & 0x3f);
        rest = &rest[end..];
    }
    ensure!(control, "no control mode page");
    Ok(())
}

// covers: SNS-05
fn sns_05(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let mut s = ctx.session()?;
    // Half a block less than the CDB says.
    let whole = Command::write_16(scratch.lba, vec![0x5e; size as usize * 2], size);
    let short = Command { data: whole.data[..size as usize * 3 / 2].to_vec(), ..whole }.edtl(size * 3 / 2);
    let outcome = s.run(&short)?;
    if outcome.status == 2 {
        let Some((key, asc, _)) = outcome.sense_code() else { fail!("CHECK CONDITION without sense") };
        ensure!(matches!((key, asc), (0xb, _) | (5, 0x0e)), "it ended with {}", outcome.words());
    } else {
        ensure!(outcome.is_good(), "it ended with {}", outcome.words());
    }
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

// covers: UA-01
fn ua_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.script())?;
    let first = s.run(&Command::test_unit_ready())?;
    ensure!(first.is_unit_attention() || first.is_good(), "the first command ended with {}", first.words());
    if let Some((6, asc, _)) = first.sense_code() {
        ensure!(matches!(asc, 0x29 | 0x2a | 0x3f | 0x2f | 0x47), "{}", first.words());
    }
    s.clear_unit_attentions()?;
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

// covers: UA-02
fn ua_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.script())?;
    s.run_good(&Command::inquiry(36, 36))?;
    s.run_good(&Command::report_luns(4096, 4096))?;
    let data = s.run_good(&Command::read([3, 0, 0, 0, 252, 0], 252))?.data;
    ensure!(data.len() >= 14, "REQUEST SENSE gave {} bytes", data.len());
    ensure!(data[2] & 0x0f == 6 || data[2] & 0x0f == 0, "REQUEST SENSE: {data:02x?}");
    Ok(())
}

// covers: TSK-03
fn tsk_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    if s.run_good(&Command::inquiry(36, 36))?.data.get(3).is_some_and(|byte| byte & 0x20 != 0) {
        skip!("NORMACA 1: the target has ACA, which this row does not try");
    }
    let request = s.tmf(TmfFunction::ClearAca, true);
    let response = s.manage(request)?;
    ensure!(
        matches!(response, TmfResponse::FunctionNotSupported | TmfResponse::FunctionComplete),
        "CLEAR ACA without ACA: {response}"
    );
    check("NACA", &s.run(&Command::none([0, 0, 0, 0, 0, 4]))?, 5, 0x24, 0)?;
    s.run_good(&Command::test_unit_ready())?;
    Ok(())
}

/// Each block is all `old` or all `new`.
fn whole_blocks(data: &[u8], size: u32, old: u8, new: u8) -> RowResult {
    for (n, block) in data.chunks(size as usize).enumerate() {
        let first = block[0];
        ensure!(first == old || first == new, "block {n} begins with {first:02x}h, which nobody wrote");
        ensure!(block.iter().all(|byte| *byte == first), "block {n} is torn");
    }
    Ok(())
}

// covers: TSK-05
fn tsk_05(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let blocks = 8.min(scratch.blocks);
    let bytes = (blocks * size) as usize;
    let mut s = ctx.session()?;
    // Cut at several points, inside blocks.
    for (round, cut) in [0, 1, bytes / 2 + 100, bytes - 4].into_iter().enumerate() {
        s.run_good(&Command::write_16(scratch.lba, vec![0x0d; bytes], size))?;
        let sent = s.start(&Command::write_16(scratch.lba, vec![0xee; bytes], size))?;
        let r2t = s.expect_r2t(&sent)?;
        let part = vec![0xee; cut.min(r2t.desired_data_transfer_length as usize)];
        let limit = part.len().min(s.params.max_send_data_segment_length as usize);
        if limit > 0 {
            let data_out = iscsi_wire::DataOut {
                final_bit: false,
                ..s.data_out(&sent, r2t.ttt, r2t.buffer_offset as usize)
            };
            s.peer.send(&Frame::of(data_out).data(part[..limit].to_vec()))?;
        }
        let response = s.abort(sent.itt, sent.cmd_sn)?;
        ensure!(response == TmfResponse::FunctionComplete, "round {round}: ABORT TASK: {response}");
        let read = s.run_good(&Command::read_16(scratch.lba, blocks, size))?;
        whole_blocks(&read.data, size, 0x0d, 0xee)?;
    }
    Ok(())
}

// covers: TSK-06
fn tsk_06(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let mut s = ctx.session()?;
    let sent = s.start(&Command::write_16(scratch.lba, vec![0x77; size as usize], size))?;
    let r2t = s.expect_r2t(&sent)?;
    let (_, frame) = s.command_frame(&Command::test_unit_ready());
    s.peer.send(&frame.patch(16, &sent.itt.0.to_be_bytes()).remark("a task tag that is in use"))?;
    match s.reaction(sent.itt)? {
        Reaction::Answered(rx) => {
            let outcome = Outcome::of_response(&rx);
            return check("an overlapped command", &outcome, 0xb, 0x4e, 0);
        }
        Reaction::Closed => return Ok(()),
        other => refused("an overlapped command", other)?,
    }
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the first task ended with {}", outcome.words());
    Ok(())
}

// covers: TSK-07
fn tsk_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    for priority in [0u8, 1, 15] {
        let (sent, frame) = s.command_frame(&Command::none([0xff; 6]));
        s.peer.send(&frame.patch(2, &[priority << 4]).remark(&format!("priority {priority}")))?;
        let rx = s.next_for(sent.itt)?;
        let qualifier = iscsi_wire::ScsiResponse::status_qualifier(&rx.bhs);
        ensure!(qualifier == 0, "a status qualifier {qualifier:#06x} without iSCSIProtocolLevel 2");
        let outcome = Outcome::of_response(&rx);
        check(&format!("an unknown command of priority {priority}"), &outcome, 5, 0x20, 0)?;
    }
    Ok(())
}

// covers: TSK-08
fn tsk_08(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let blocks = 16.min(scratch.blocks);
    let bytes = (blocks * size) as usize;
    let mut nexuses = [ctx.session()?, ctx.session()?];
    for round in 0..8 {
        let values = [0x10 | round as u8, 0x20 | round as u8];
        let mut sent = Vec::new();
        for (s, value) in nexuses.iter_mut().zip(values) {
            sent.push(s.start(&Command::write_16(scratch.lba, vec![value; bytes], size))?);
        }
        for (s, sent) in nexuses.iter_mut().zip(&sent) {
            let outcome = s.finish(sent)?;
            ensure!(outcome.is_good(), "a write ended with {}", outcome.words());
        }
        let read = nexuses[0].run_good(&Command::read_16(scratch.lba, blocks, size))?;
        whole_blocks(&read.data, size, values[0], values[1])?;
    }
    Ok(())
}

/// PERSISTENT RESERVE OUT.
pub(super) fn reserve_out(action: u8, kind: u8, key: u64, service_action_key: u64) -> Command {
    let mut list = [key.to_be_bytes(), service_action_key.to_be_bytes()].concat();
    list.resize(24, 0);
    Command::write([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// PERSISTENT RESERVE IN.
pub(super) fn reserve_in(action: u8) -> Command {
    Command::read([0x5e, action, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096)
}

// covers: PR-01
fn pr_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let keys = s.run(&reserve_in(0))?;
    if keys.is_check(5, 0x20, 0) {
        skip!("the target has no persistent reservations");
    }
    for action in [0, 1, 2, 3] {
        let outcome = s.run_good(&reserve_in(action))?;
        ensure!(outcome.data.len() >= 8, "service action {action}: {} bytes", outcome.data.len());
    }
    let generation = |s: &mut Session| -> Result<Option<[u8; 4]>, Stop> {
        Ok(s.run_good(&reserve_in(0))?.data.first_chunk().copied())
    };
    let before = generation(&mut s)?;
    s.run_good(&reserve_out(6, 0, 0, 0x1234))?;
    let listed = s.run_good(&reserve_in(0))?.data;
    ensure!(
        listed.chunks(8).skip(1).any(|key| key == 0x1234u64.to_be_bytes()),
        "the key is not listed: {listed:02x?}"
    );
    s.run_good(&reserve_out(0, 0, 0x1234, 0))?;
    ensure!(generation(&mut s)? != before, "PRGENERATION stood still over two registrations");
    Ok(())
}

// covers: PR-04
fn pr_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut holder = ctx.session()?;
    if holder.run(&reserve_in(0))?.is_check(5, 0x20, 0) {
        skip!("the target has no persistent reservations");
    }
    let mut other = ctx.session()?;
    let read = Command::read_16(scratch.lba, 1, scratch.block_size);
    holder.run_good(&reserve_out(6, 0, 0, 0xabc))?;
    holder.run_good(&reserve_out(1, 3, 0xabc, 0))?;
    let (own, others) = (holder.run(&read)?, other.run(&read)?);
    let discovery = other.run(&Command::inquiry(36, 36))?;
    holder.run_good(&reserve_out(0, 0, 0xabc, 0))?;
    ensure!(own.is_good(), "the holder's read ended with {}", own.words());
    ensure!(others.status == 0x18, "another nexus's read ended with {}", others.words());
    ensure!(discovery.is_good(), "another nexus's INQUIRY ended with {}", discovery.words());
    other.clear_unit_attentions()?;
    other.run_good(&read)?;
    Ok(())
}

// covers: ALU-02
fn alu_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let tpgs = s.run_good(&Command::inquiry(36, 36))?.data.get(5).map_or(0, |byte| byte >> 4 & 3);
    let groups = s.run(&Command::read([0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], 4096))?;
    if tpgs == 0 {
        ensure!(!groups.is_good() || groups.data.len() >= 4, "REPORT TARGET PORT GROUPS: {}", groups.words());
        skip!("TPGS 0: no asymmetric access");
    }
    ensure!(groups.is_good(), "REPORT TARGET PORT GROUPS ended with {}", groups.words());
    let designators = designators(&page(&mut s, 0x83)?.unwrap_or_default());
    let own = |kind: u8| {
        let value = &designators.iter().find(|(association, of, _)| (*association, *of) == (1, kind))?.2;
        Some([*value.get(2)?, *value.get(3)?])
    };
    let (Some(port), Some(group)) = (own(4), own(5)) else {
        fail!("page 83h does not say the port and its group")
    };
    let mut rest = groups.data.get(4..).unwrap_or_default();
    let mut found = false;
    while rest.len() >= 8 {
        let ports = usize::from(rest[7]);
        let end = (8 + 4 * ports).min(rest.len());
        found |=
            rest[2..4] == group && rest[8..end].chunks(4).any(|entry| entry.get(2..4) == Some(&port[..]));
        rest = &rest[end..];
    }
    ensure!(found, "port {port:02x?} of group {group:02x?} is not among those that are reported");
    Ok(())
}

// covers: CAW-01
fn caw_01(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut s = ctx.session()?;
    s.run_good(&Command::write_16(scratch.lba, vec![1; size], scratch.block_size))?;
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    cdb[2..10].copy_from_slice(&scratch.lba.to_be_bytes());
    let command = |old: &[u8], new: u8| Command::write(cdb, [old, &vec![new; size]].concat());
    let outcome = s.run(&command(&vec![1; size], 2))?;
    if outcome.is_check(5, 0x20, 0) {
        skip!("the target has no COMPARE AND WRITE");
    }
    ensure!(outcome.is_good(), "equal data ended with {}", outcome.words());
    let mut differs = vec![2; size];
    differs[77] = 3;
    let outcome = s.run(&command(&differs, 4).attr(TaskAttribute::Simple))?;
    check("a miscompare", &outcome, 0xe, 0x1d, 0)?;
    ensure!(
        outcome.sense.get(3..7) == Some(&[0, 0, 0, 77]),
        "INFORMATION is not the byte: {:02x?}",
        outcome.sense
    );
    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == vec![2; size], "a miscompare wrote");
    Ok(())
}
