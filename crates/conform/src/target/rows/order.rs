//! Data in any order (rows KEY-17, KEY-18, DAT-05).

use super::clean;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent};
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Stop};
use iscsi_wire::{DataSn, Pdu, R2t, keys};

pub(super) const ROWS: &[Row] =
    &[Row::new("DAT-05", "in any order too, bytes that come twice or are missing are an error", dat_05)];

/// Length of the writes, bytes.
const LENGTH: usize = 16_384;

/// The values that both keys are offered with.
const OFFERS: [(&str, &str); 4] = [("Yes", "Yes"), ("Yes", "No"), ("No", "Yes"), ("No", "No")];

/// A session whose data is solicited in bursts of 4 KiB, with these offers.
fn session(ctx: &Ctx, (pdus, sequences): (&str, &str)) -> Result<RowSession, Stop> {
    let session = ctx.session_with(|script| {
        script
            .key(keys::DATA_PDU_IN_ORDER, pdus)
            .key(keys::DATA_SEQUENCE_IN_ORDER, sequences)
            .key(keys::INITIAL_R2T, "Yes")
            .key(keys::IMMEDIATE_DATA, "No")
            .key(keys::MAX_BURST_LENGTH, "4096")
            .key(keys::MAX_OUTSTANDING_R2T, "4")
            .key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")
    })?;
    let params = &session.params;
    ensure!(pdus == "No" || params.data_pdu_in_order(), "DataPDUInOrder=Yes became No");
    ensure!(sequences == "No" || params.data_sequence_in_order(), "DataSequenceInOrder=Yes became No");
    Ok(session)
}

/// A write of bytes that differ from place to place.
fn write(ctx: &Ctx) -> (Command, Vec<u8>) {
    let scratch = ctx.scratch();
    let length = LENGTH.next_multiple_of(scratch.block_size as usize);
    let data: Vec<u8> = (0..length).map(|n| (n / 7) as u8 ^ (n >> 9) as u8).collect();
    (Command::write_16(scratch.lba, data.clone(), scratch.block_size), data)
}

/// Four parts of the range of an R2T, in order: offset and length.
fn parts(s: &RowSession, r2t: &R2t) -> Vec<(usize, usize)> {
    let (start, length) = (r2t.buffer_offset as usize, r2t.desired_data_transfer_length as usize);
    let most = (s.params.max_send_data_segment_length.max(512) as usize) & !3;
    let size = length.div_ceil(4).next_multiple_of(4).min(most);
    (start..start + length).step_by(size).map(|at| (at, size.min(start + length - at))).collect()
}

/// Answers an R2T with these parts, F on the last.
fn answer(s: &mut RowSession, sent: &Sent, r2t: &R2t, parts: &[(usize, usize)], data: &[u8]) -> RowResult {
    for (n, (offset, length)) in parts.iter().enumerate() {
        let mut pdu = s.data_out(sent, r2t.ttt, *offset);
        (pdu.data_sn, pdu.final_bit) = (DataSn(n as u32), n + 1 == parts.len());
        s.peer.send(&Frame::of(pdu).data(&data[*offset..offset + length]))?;
    }
    Ok(())
}

/// The command must end, and not with GOOD.
fn is_refused(s: &mut RowSession, sent: &Sent, what: &str) -> RowResult {
    loop {
        match s.reaction(sent.itt)? {
            Reaction::Rejected(_) | Reaction::Closed => return Ok(()),
            Reaction::Finished(outcome) => {
                ensure!(!outcome.is_good(), "{what} ended with GOOD");
                return Ok(());
            }
            Reaction::Answered(rx) => {
                let Pdu::R2t(r2t) = rx.pdu()? else { fail!("{what}: {}", rx.line()) };
                // The status may wait for the data that is still due.
                s.serve(sent, &r2t)?;
            }
            Reaction::Nothing => fail!("{what}: no answer, the task hangs"),
        }
    }
}

/// The last PDU of a sequence first: taken with DataPDUInOrder=No, refused with Yes.
pub(super) fn pdus_are_taken_as_agreed(ctx: &Ctx) -> RowResult {
    for offers in OFFERS {
        let mut s = session(ctx, offers)?;
        let (command, data) = write(ctx);
        let sent = s.start(&command)?;
        let r2t = s.expect_r2t(&sent)?;
        let mut backwards = parts(&s, &r2t);
        backwards.reverse();
        answer(&mut s, &sent, &r2t, &backwards, &data)?;
        let what = format!("the PDUs of a sequence backwards, DataPDUInOrder={}", offers.0);
        if s.params.data_pdu_in_order() {
            is_refused(&mut s, &sent, &what)?;
            continue;
        }
        let outcome = s.finish(&sent)?;
        ensure!(outcome.is_good(), "{what}: {}", outcome.words());
        read_back(ctx, &mut s, &data)?;
    }
    Ok(())
}

/// Reads what was written.
fn read_back(ctx: &Ctx, s: &mut RowSession, data: &[u8]) -> RowResult {
    let scratch = ctx.scratch();
    let blocks = (data.len() / scratch.block_size as usize) as u32;
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(read.data == data, "other bytes are read than were written");
    Ok(())
}

/// R2Ts and Data-In in the order of their bytes where a key is Yes; in any order each byte once.
pub(super) fn sequences_come_as_agreed(ctx: &Ctx) -> RowResult {
    for offers in OFFERS {
        let mut s = session(ctx, offers)?;
        let (command, data) = write(ctx);
        s.run_good(&command)?;
        read_back(ctx, &mut s, &data)?;
        ["R2T-05", "DAT-03", "DAT-05"].iter().try_for_each(|row| clean(&s, row))?;
    }
    Ok(())
}

// covers: DAT-05
fn dat_05(ctx: &mut Ctx) -> RowResult {
    /// Changes the offsets and lengths of the PDUs.
    type Change = fn(&mut Vec<(usize, usize)>);
    let cases: [(&str, Change); 5] = [
        ("a PDU that comes twice", |parts| parts.insert(2, parts[0])),
        ("a PDU that comes twice, in place of another", |parts| parts[1] = parts[0]),
        ("a PDU that overlaps another", |parts| parts[1].0 += 4),
        ("a PDU of another sequence", |parts| parts[1].0 += 4096),
        ("a sequence that ends with a gap", |parts| parts.truncate(parts.len() - 1)),
    ];
    for (what, change) in cases {
        let mut s = session(ctx, ("No", "No"))?;
        if s.params.data_pdu_in_order() {
            skip!("the target wants DataPDUInOrder=Yes");
        }
        let (command, data) = write(ctx);
        let sent = s.start(&command)?;
        let r2t = s.expect_r2t(&sent)?;
        let mut wrong = parts(&s, &r2t);
        change(&mut wrong);
        wrong.reverse();
        answer(&mut s, &sent, &r2t, &wrong, &data)?;
        is_refused(&mut s, &sent, what)?;
    }
    Ok(())
}
