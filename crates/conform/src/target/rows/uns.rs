//! Unsolicited data (rows UNS).

use crate::script::{ensure, fail, skip};
use crate::session::{Command, Unsolicited};
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Stop};
use iscsi_wire::keys;

pub(super) const ROWS: &[Row] = &[
    Row::new("UNS-02", "forbidden immediate or unsolicited data is refused and not written", uns_02),
    Row::new("UNS-03", "immediate and unsolicited data above FirstBurstLength is refused", uns_03),
    Row::new("UNS-04", "unsolicited data: exactly min(FirstBurstLength, EDTL), fewer is an error", uns_04),
    Row::new("UNS-05", "F=0 needs W; F=1 with data left brings R2Ts", uns_05),
];

const FIRST_BURST: usize = 8192;

/// A session with these two keys as given; not applicable when the target does not agree.
fn session(ctx: &Ctx, initial_r2t: bool, immediate_data: bool) -> Result<RowSession, Stop> {
    let word = |on| if on { "Yes" } else { "No" };
    let s = ctx.session_with(|script| {
        script
            .key(keys::INITIAL_R2T, word(initial_r2t))
            .key(keys::IMMEDIATE_DATA, word(immediate_data))
            .key(keys::FIRST_BURST_LENGTH, "8192")
    })?;
    if s.params.initial_r2t != initial_r2t || s.params.immediate_data != immediate_data {
        skip!(
            "the target does not agree to InitialR2T={} with ImmediateData={}",
            word(initial_r2t),
            word(immediate_data)
        );
    }
    Ok(s)
}

/// Sends a write that breaks the rule, and checks that it is refused and nothing is written.
fn refused_write(
    ctx: &Ctx,
    s: &mut RowSession,
    what: &str,
    length: usize,
    unsolicited: Unsolicited,
) -> RowResult {
    let scratch = ctx.scratch();
    let mut plain = ctx.session()?;
    plain.run_good(&Command::write_16(scratch.lba, vec![0x0a; length], scratch.block_size))?;
    let write =
        Command::write_16(scratch.lba, vec![0xf5; length], scratch.block_size).unsolicited(unsolicited);
    let sent = match s.start(&write) {
        Ok(sent) => Some(sent),
        Err(error) if error.is_closed() => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(sent) = sent {
        match s.reaction(sent.itt)? {
            Reaction::Rejected(_) | Reaction::Closed => {}
            Reaction::Finished(outcome) => {
                let aborted = matches!(outcome.sense_code(), Some((0xb, 0x0c, 0x0c | 0x0d)));
                ensure!(
                    aborted,
                    "{what}: expected CHECK CONDITION B/0C/0C or a Reject, got {}",
                    outcome.words()
                );
            }
            other => fail!("{what}: {}", other.words()),
        }
    }
    let blocks = (length / scratch.block_size as usize) as u32;
    let read = plain.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(read.data == vec![0x0a; length], "{what}: the data was written");
    Ok(())
}

// covers: UNS-02
fn uns_02(ctx: &mut Ctx) -> RowResult {
    let size = ctx.scratch().block_size as usize;
    let mut s = session(ctx, true, false)?;
    refused_write(ctx, &mut s, "immediate data with ImmediateData=No", size, Unsolicited::Immediate(size))?;
    let mut s = session(ctx, true, true)?;
    let burst = Unsolicited::Burst { immediate: 0, total: size };
    refused_write(ctx, &mut s, "unsolicited Data-Out with InitialR2T=Yes", size, burst)
}

// covers: UNS-03
fn uns_03(ctx: &mut Ctx) -> RowResult {
    let size = ctx.scratch().block_size as usize;
    let length = FIRST_BURST.next_multiple_of(size) + size;
    let mut s = session(ctx, false, true)?;
    if s.params.first_burst_length as usize != FIRST_BURST {
        skip!("FirstBurstLength is {}", s.params.first_burst_length);
    }
    let burst = Unsolicited::Burst { immediate: size, total: length };
    refused_write(ctx, &mut s, "one block more than FirstBurstLength", length, burst)?;
    let mut s = session(ctx, true, true)?;
    if (s.params.max_send_data_segment_length as usize) < length {
        skip!("the target's MaxRecvDataSegmentLength is below FirstBurstLength and a block");
    }
    let immediate = Unsolicited::Immediate(length);
    refused_write(ctx, &mut s, "immediate data above FirstBurstLength", length, immediate)
}

// covers: UNS-04
fn uns_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut s = session(ctx, false, true)?;
    let first = s.params.first_burst_length as usize;
    let length = (first * 2).next_multiple_of(size);
    let data: Vec<u8> = (0..length).map(|n| (n / 11) as u8).collect();
    for immediate in [0, size] {
        let burst = Unsolicited::Burst { immediate, total: first };
        let write = Command::write_16(scratch.lba, data.clone(), scratch.block_size).unsolicited(burst);
        let outcome = s.run(&write)?;
        ensure!(
            outcome.is_good(),
            "FirstBurstLength bytes unsolicited, {immediate} immediate: {}",
            outcome.words()
        );
        let solicited: u64 = outcome.r2ts.iter().map(|r2t| u64::from(r2t.desired_data_transfer_length)).sum();
        ensure!(solicited == (length - first) as u64, "{solicited} bytes were asked for by R2T");
        let blocks = (length / size) as u32;
        let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
        ensure!(read.data == data, "other bytes are read than were written");
    }
    // All of it unsolicited, when EDTL is below FirstBurstLength.
    let whole = Unsolicited::Burst { immediate: 0, total: size };
    let short = Command::write_16(scratch.lba, vec![0x4d; size], scratch.block_size).unsolicited(whole);
    let outcome = s.run(&short)?;
    ensure!(outcome.is_good() && outcome.r2ts.is_empty(), "EDTL unsolicited bytes: {}", outcome.words());
    // Fewer than required, with F.
    let fewer = Unsolicited::Burst { immediate: 0, total: first / 2 };
    let sent = s.start(&Command::write_16(scratch.lba, data, scratch.block_size).unsolicited(fewer))?;
    match s.reaction(sent.itt)? {
        Reaction::Finished(outcome) if outcome.is_check(0xb, 0x0c, 0x0d) => Ok(()),
        Reaction::Rejected(_) | Reaction::Closed => Ok(()),
        other => {
            fail!("half of FirstBurstLength with F: expected CHECK CONDITION B/0C/0D, got {}", other.words())
        }
    }
}

// covers: UNS-05
fn uns_05(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session()?;
    let (sent, frame) = s.command_frame(&Command::read_16(scratch.lba, 1, scratch.block_size));
    s.peer.send(&frame.clear_bits(1, 0x80).remark("R=1 W=0 F=0"))?;
    match s.reaction(sent.itt)? {
        Reaction::Rejected(_) | Reaction::Closed => {}
        Reaction::Finished(outcome) if outcome.status == 2 => {}
        other => fail!("a read command with F=0: {}", other.words()),
    }
    let mut s = ctx.session()?;
    let size = scratch.block_size as usize;
    let mut write = Command::write_16(scratch.lba, vec![0x2b; size * 4], scratch.block_size);
    if s.params.immediate_data {
        write = write.unsolicited(Unsolicited::Immediate(size));
    }
    let outcome = s.run(&write)?;
    ensure!(outcome.is_good() && !outcome.r2ts.is_empty(), "F=1 with data left: {}", outcome.words());
    Ok(())
}
