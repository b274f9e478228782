//! Data PDUs (rows DAT).

use super::{clean, mixed_workload};
use crate::Reaction;
use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::session::{Command, Residual};
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{DataOut, DataSn, Itt, Lun, Ttt, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "DAT-01",
        "no PDU above MaxRecvDataSegmentLength, no sequence above MaxBurstLength, F ends each",
        dat_01,
    ),
    Row::new("DAT-02", "DataSN counts from 0 in each command", dat_02),
    Row::new("DAT-03", "offset, length and DataSN of Data-Out verified before a buffer is touched", dat_03),
    Row::new("DAT-04", "ITT, TTT and LUN of Data-Out match the task and its R2T", dat_04),
    Row::new("DAT-06", "empty Data-Out PDUs are accepted", dat_06),
    Row::new("DAT-07", "no CHECK CONDITION in a Data-In", dat_07),
    Row::new("DAT-08", "S only with F, residual only with S", dat_08),
];

// covers: DAT-01
fn dat_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_with(|script| {
        script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "2048")
    })?;
    let scratch = ctx.scratch();
    let blocks = 12_288 / scratch.block_size;
    ensure!(blocks > 0, "a block of {} bytes", scratch.block_size);
    let data: Vec<u8> = (0..blocks * scratch.block_size).map(|n| (n / 5) as u8).collect();
    s.run_good(&Command::write_16(scratch.lba, data.clone(), scratch.block_size))?;
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(read.data == data, "other bytes are read than were written");
    let sequences = read.data_ins.iter().filter(|pdu| pdu.final_bit).count();
    let due = data.len().div_ceil(s.params.max_burst_length as usize);
    ensure!(sequences >= due, "{sequences} sequences for {} bytes, {due} are due", data.len());
    clean(&s, "DAT-01")
}

// covers: DAT-02
fn dat_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_with(|script| script.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512"))?;
    let scratch = ctx.scratch();
    for _ in 0..2 {
        s.run_good(&Command::read_16(
            scratch.lba,
            16_384 / scratch.block_size.min(16_384),
            scratch.block_size,
        ))?;
    }
    clean(&s, "DAT-02")?;
    clean(&s, "DAT-03")
}

/// A way to make one Data-Out of a pair wrong.
struct Wrong {
    words: &'static str,
    change: fn(&mut DataOut, usize),
}

// covers: DAT-03
fn dat_03(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize * 2;
    let mut plain = ctx.session()?;
    plain.run_good(&Command::write_16(scratch.lba, vec![0x70; size * 2], scratch.block_size))?;
    let wrong: &[Wrong] = &[
        Wrong { words: "a gap", change: |pdu, half| pdu.buffer_offset += half as u32 / 2 },
        Wrong { words: "an overlap", change: |pdu, half| pdu.buffer_offset -= half as u32 / 2 },
        Wrong {
            words: "an offset beyond the transfer",
            change: |pdu, half| pdu.buffer_offset = half as u32 * 8,
        },
        Wrong { words: "an offset that wraps", change: |pdu, _| pdu.buffer_offset = 0xffff_fff0 },
        Wrong { words: "a DataSN too high", change: |pdu, _| pdu.data_sn = DataSn(5) },
        Wrong { words: "a DataSN again", change: |pdu, _| pdu.data_sn = DataSn(0) },
    ];
    for Wrong { words, change } in wrong {
        let mut s = ctx.session()?;
        let sent = s.start(&Command::write_16(scratch.lba, vec![0xd7; size], scratch.block_size))?;
        let r2t = s.expect_r2t(&sent)?;
        let half = size / 2;
        let mut first = s.data_out(&sent, r2t.ttt, 0);
        first.final_bit = false;
        s.peer.send(&Frame::of(first).data(vec![0xd7; half]))?;
        let mut second = s.data_out(&sent, r2t.ttt, half);
        second.data_sn = DataSn(1);
        change(&mut second, half);
        s.peer.send(&Frame::of(second).data(vec![0xd7; half]).remark(words))?;
        match s.reaction(sent.itt)? {
            Reaction::Rejected(_) | Reaction::Closed => {}
            Reaction::Finished(outcome) => {
                ensure!(!outcome.is_good(), "Data-Out with {words} ended with GOOD")
            }
            other => fail!("Data-Out with {words}: {}", other.words()),
        }
        let beyond = plain.run_good(&Command::read_16(scratch.lba + 2, 2, scratch.block_size))?;
        ensure!(beyond.data == vec![0x70; size], "Data-Out with {words} changed what is beyond the transfer");
    }
    Ok(())
}

// covers: DAT-04
fn dat_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let wrong: &[crate::script::Wrong<DataOut>] = &[
        ("an ITT of no task", |pdu| pdu.itt = Itt(0x7eee_0001)),
        ("a TTT that was not given", |pdu| pdu.ttt = Ttt(pdu.ttt.0 ^ 0x0f0f_0f0f)),
        ("the LUN of another unit", |pdu| pdu.lun = Lun(pdu.lun.0 ^ (0x15 << 48))),
    ];
    for (words, change) in wrong {
        let mut s = ctx.session()?;
        let sent = s.start(&Command::write_16(scratch.lba, vec![0x3e; size], scratch.block_size))?;
        let r2t = s.expect_r2t(&sent)?;
        let mut pdu = s.data_out(&sent, r2t.ttt, 0);
        change(&mut pdu);
        s.peer.send(&Frame::of(pdu).data(vec![0x3f; size]).remark(words))?;
        match s.reaction(sent.itt)? {
            Reaction::Closed => {}
            Reaction::Finished(outcome) => {
                ensure!(!outcome.is_good(), "Data-Out with {words} ended with GOOD")
            }
            Reaction::Rejected(_) => {
                // The task is unharmed: its own data completes it, or it fails with an error.
                s.serve(&sent, &r2t)?;
                let outcome = s.finish(&sent)?;
                if outcome.is_good() {
                    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
                    ensure!(read.data == vec![0x3e; size], "the data of Data-Out with {words} was written");
                }
            }
            other => fail!("Data-Out with {words}: expected a Reject, got {}", other.words()),
        }
    }
    Ok(())
}

// covers: DAT-06
fn dat_06(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut s = ctx.session()?;
    let sent = s.start(&Command::write_16(scratch.lba, vec![0x61; size], scratch.block_size))?;
    let r2t = s.expect_r2t(&sent)?;
    for (sn, offset, length) in [(0, 0, 0), (1, 0, size), (2, size, 0)] {
        let mut pdu = s.data_out(&sent, r2t.ttt, offset);
        (pdu.data_sn, pdu.final_bit) = (DataSn(sn), sn == 2);
        s.peer.send(&Frame::of(pdu).data(vec![0x61; length]))?;
    }
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "a write with empty Data-Out PDUs ended with {}", outcome.words());
    let read = s.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == vec![0x61; size], "a write with empty Data-Out PDUs stored other bytes");
    Ok(())
}

// covers: DAT-07
fn dat_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let scratch = ctx.scratch();
    for command in [
        Command::read_16(ctx.capacity_blocks(), 1, scratch.block_size),
        Command::read_16(ctx.capacity_blocks() - 1, 2, scratch.block_size),
        Command::read([0xff; 6], 512),
    ] {
        let outcome = s.run(&command)?;
        ensure!(outcome.status == 2, "expected CHECK CONDITION, got {}", outcome.words());
        ensure!(outcome.sense_code().is_some(), "CHECK CONDITION without sense");
    }
    clean(&s, "DAT-07")
}

// covers: DAT-08
fn dat_08(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_with(|script| script.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512"))?;
    mixed_workload(ctx, &mut s)?;
    let outcome = s.run_good(&Command::inquiry(255, 4096))?;
    ensure!(
        matches!(outcome.residual, Residual::Underflow(_)),
        "INQUIRY with EDTL 4096: {}",
        outcome.words()
    );
    clean(&s, "DAT-08")
}
