//! R2Ts (rows R2T).

use super::{clean, if_applicable};
use crate::Reaction;
use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::session::Command;
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{Pdu, R2t, Ttt, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("R2T-01", "length within MaxBurstLength, TTT valid and unique, LUN of the command", r2t_01),
    Row::new("R2T-02", "at most MaxOutstandingR2T per task", r2t_02),
    Row::new("R2T-04", "an answer shorter than asked, with F: a defined end", r2t_04),
    Row::new("R2T-05", "consecutive R2Ts are contiguous", r2t_05),
];

// covers: R2T-01
fn r2t_01(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session_with(|script| script.key(keys::MAX_BURST_LENGTH, "4096"))?;
    let length = 32_768.min(scratch.bytes()).next_multiple_of(scratch.block_size as usize);
    let write = Command::write_16(scratch.lba, vec![0x18; length], scratch.block_size);
    let outcome = s.run_good(&write)?;
    let asked: u64 = outcome.r2ts.iter().map(|r2t| u64::from(r2t.desired_data_transfer_length)).sum();
    ensure!(asked == length as u64, "{asked} bytes were asked for, the command has {length}");
    let lun = s.lun;
    let foreign = outcome.r2ts.iter().find(|r2t| r2t.lun != lun);
    ensure!(foreign.is_none(), "an R2T with the LUN of another unit: {foreign:?}");
    // Several tasks wait at the same time: their tags differ.
    let mut active: Vec<(Ttt, crate::session::Sent, R2t)> = Vec::new();
    for _ in 0..4 {
        let sent = s.start(&Command::write_16(
            scratch.lba,
            vec![0; scratch.block_size as usize],
            scratch.block_size,
        ))?;
        let r2t = s.expect_r2t(&sent)?;
        ensure!(active.iter().all(|(ttt, _, _)| *ttt != r2t.ttt), "two active R2Ts with TTT {}", r2t.ttt);
        active.push((r2t.ttt, sent, r2t));
    }
    for (_, sent, r2t) in active.iter().rev() {
        s.serve(sent, r2t)?;
        let outcome = s.finish(sent)?;
        ensure!(outcome.is_good(), "answered in another order: {}", outcome.words());
    }
    clean(&s, "R2T-01")
}

// covers: R2T-02
fn r2t_02(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    for limit in [1u32, 8] {
        let mut s = ctx.session_with(|script| {
            script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::MAX_OUTSTANDING_R2T, &limit.to_string())
        })?;
        let limit = s.params.max_outstanding_r2t as usize;
        let length = 65_536.min(scratch.bytes());
        let data: Vec<u8> = (0..length).map(|n| (n / 13) as u8).collect();
        let sent = s.start(&Command::write_16(scratch.lba, data.clone(), scratch.block_size))?;
        let mut waiting = vec![s.expect_r2t(&sent)?];
        s.ping()?;
        s.ping()?;
        while s.stashed(sent.itt).is_some() {
            waiting.push(s.expect_r2t(&sent)?);
        }
        ensure!(waiting.len() <= limit, "{} R2Ts outstanding, MaxOutstandingR2T is {limit}", waiting.len());
        // From here on each is answered on arrival; the number outstanding never exceeds the limit.
        let mut waiting: std::collections::VecDeque<R2t> = waiting.into();
        loop {
            while let Some(r2t) = waiting.pop_front() {
                s.serve(&sent, &r2t)?;
            }
            let rx = s.next_for(sent.itt)?;
            match rx.pdu()? {
                Pdu::R2t(r2t) => waiting.push_back(r2t),
                Pdu::ScsiResponse(_) => {
                    ensure!(waiting.is_empty(), "a response while {} R2Ts wait", waiting.len());
                    break;
                }
                _ => fail!("{}", rx.line()),
            }
            ensure!(
                waiting.len() <= limit,
                "{} R2Ts outstanding, MaxOutstandingR2T is {limit}",
                waiting.len()
            );
        }
        let blocks = (length / scratch.block_size as usize) as u32;
        let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
        ensure!(read.data == data, "other bytes are read than were written");
    }
    Ok(())
}

// covers: R2T-04
fn r2t_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize * 2;
    let mut s = ctx.session()?;
    let sent = s.start(&Command::write_16(scratch.lba, vec![0x83; size], scratch.block_size))?;
    let r2t = s.expect_r2t(&sent)?;
    let pdu = s.data_out(&sent, r2t.ttt, 0);
    s.peer.send(&Frame::of(pdu).data(vec![0x83; size / 2]).remark("half, with F"))?;
    match s.reaction(sent.itt)? {
        Reaction::Finished(outcome) => {
            ensure!(
                outcome.is_check(0xb, 0x0c, 0x0d),
                "half of the data: expected B/0C/0D, got {}",
                outcome.words()
            );
        }
        Reaction::Rejected(_) | Reaction::Closed => {}
        Reaction::Answered(rx) => {
            let Pdu::R2t(again) = rx.pdu()? else { fail!("half of the data: {}", rx.line()) };
            s.serve(&sent, &again)?;
            s.finish(&sent)?;
        }
        Reaction::Nothing => fail!("half of the data with F: no answer, the task hangs"),
    }
    Ok(())
}

// covers: R2T-05
fn r2t_05(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session_with(|script| {
        script.key(keys::MAX_BURST_LENGTH, "8192").key(keys::MAX_OUTSTANDING_R2T, "4")
    })?;
    let length = 65_536.min(scratch.bytes());
    s.run_good(&Command::write_16(scratch.lba, vec![0x29; length], scratch.block_size))?;
    clean(&s, "R2T-05")?;
    clean(&s, "R2T-01")?;
    drop(s);
    // Recovery R2Ts go back only to the missing data.
    if_applicable(super::erl::asks_again(ctx))
}
