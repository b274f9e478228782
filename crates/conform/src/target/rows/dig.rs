//! Digests (rows DIG).

use super::digested;
use crate::frame::{DigestWish, Frame};
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Unsolicited};
use crate::target::ctx::{RowSession, exchange_text};
use crate::target::talk::{Taken, Talk};
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Stop};
use iscsi_wire::{DataSn, Lun, Ttt, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("DIG-01", "CRC32C and None, for header and data separately", dig_01),
    Row::new("DIG-02", "the CRC vectors of appendix A.4, as they come over the wire", dig_02),
    Row::new("DIG-03", "header digest over BHS and AHS, data digest over data and padding", dig_03),
    Row::new("DIG-04", "digests never during login, always from the first PDU after it", dig_04),
    Row::new("DIG-05", "the first supported value of the list is chosen, and only what was offered", dig_05),
    Row::new("DIG-07", "a bad header digest ends the connection, and nothing of the PDU is acted on", dig_07),
    Row::new("DIG-13", "digests in discovery sessions", dig_13),
    Row::new("DIG-14", "one wrong byte anywhere in a long segment is noticed", dig_14),
];

fn with_data_digest(ctx: &Ctx) -> Result<RowSession, Stop> {
    match digested(ctx, false, true)? {
        Some(session) => Ok(session),
        None => skip!("the target does not agree to HeaderDigest=None with DataDigest=CRC32C"),
    }
}

// covers: DIG-01
fn dig_01(ctx: &mut Ctx) -> RowResult {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let Some(mut s) = digested(ctx, header, data)? else {
            fail!("the target does not agree to header digest {header}, data digest {data}");
        };
        let scratch = ctx.scratch();
        let bytes: Vec<u8> = (0..scratch.block_size * 9).map(|n| (n / 3) as u8).collect();
        s.run_good(&Command::write_16(scratch.lba, bytes.clone(), scratch.block_size))?;
        let read = s.run_good(&Command::read_16(scratch.lba, 9, scratch.block_size))?;
        ensure!(read.data == bytes, "header digest {header}, data digest {data}: other bytes are read");
        s.ping_with(b"digest")?;
        let mut d = ctx.session_of(
            ctx.discovery_script()
                .key(keys::HEADER_DIGEST, if header { "CRC32C" } else { "None" })
                .key(keys::DATA_DIGEST, if data { "CRC32C" } else { "None" }),
        )?;
        exchange_text(&mut d, &crate::text_of(&[(keys::SEND_TARGETS, "All")]))?;
    }
    Ok(())
}

// covers: DIG-02
fn dig_02(ctx: &mut Ctx) -> RowResult {
    let mut s = with_data_digest(ctx)?;
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    for (data, crc) in [
        (vec![0; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (up, [0x4e, 0x79, 0xdd, 0x46]),
        (down, [0x5c, 0xdb, 0x3f, 0x11]),
    ] {
        let rx = s.ping_with(&data)?;
        ensure!(rx.data_digest == Some(crc), "{data:02x?}: digest {:02x?}, due {crc:02x?}", rx.data_digest);
    }
    Ok(())
}

// covers: DIG-03
fn dig_03(ctx: &mut Ctx) -> RowResult {
    let Some(mut s) = digested(ctx, true, true)? else { skip!("the target does not agree to both digests") };
    let mut cdb = [0; 32];
    (cdb[0], cdb[7], cdb[8], cdb[9]) = (0x7f, 24, 0xff, 0xff);
    let outcome = s.run(&Command::none(cdb))?;
    ensure!(outcome.status == 2, "an unknown CDB of 32 bytes: {}", outcome.words());
    for length in 1..=7 {
        s.ping_with(&vec![0x3c; length])?;
        let itt = s.itt();
        let nop = s.nop(itt, true);
        s.peer.send(&Frame::of(nop).data(vec![7; length]).pad_with(0xee).remark("padding not zero"))?;
        let rx = s.next_for(itt)?;
        ensure!(rx.data == vec![7; length], "non-zero padding: {}", rx.line());
    }
    // An empty Data-Out has no data digest word.
    let scratch = ctx.scratch();
    let data = vec![0x99; scratch.block_size as usize];
    let sent = s.start(&Command::write_16(scratch.lba, data.clone(), scratch.block_size))?;
    let r2t = s.expect_r2t(&sent)?;
    let mut empty = s.data_out(&sent, r2t.ttt, 0);
    empty.final_bit = false;
    s.peer.send(&Frame::of(empty).remark("empty"))?;
    let mut full = s.data_out(&sent, r2t.ttt, 0);
    full.data_sn = DataSn(1);
    s.peer.send(&Frame::of(full).data(data))?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "a write with an empty Data-Out ended with {}", outcome.words());
    Ok(())
}

// covers: DIG-04
fn dig_04(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    let offers = [(keys::HEADER_DIGEST, "CRC32C,None"), (keys::DATA_DIGEST, "CRC32C,None")];
    let reply = talk.step(&offers, false)?.on("offering digests")?;
    let chosen = |key| reply.get(key) == Some(keys::CRC32C);
    let digests = crate::Digests { header: chosen(keys::HEADER_DIGEST), data: chosen(keys::DATA_DIGEST) };
    // The rest of the login still has no digests.
    let reply = talk.step(&[], true)?.on("the step after the digests were agreed")?;
    ensure!(reply.response.transit, "no transition to full feature phase");
    if digests == crate::Digests::default() {
        skip!("the target agrees to no digest");
    }
    talk.peer.digests = digests;
    let nop = iscsi_wire::NopOut {
        immediate: true,
        lun: Lun(0),
        itt: iscsi_wire::Itt(2),
        ttt: Ttt::RESERVED,
        cmd_sn: talk.script.cmd_sn,
        exp_stat_sn: talk.peer.ledger.exp_stat_sn(),
    };
    talk.peer.send(&Frame::of(nop).data(*b"first PDU"))?;
    let rx = talk.peer.recv()?;
    ensure!(rx.data == b"first PDU", "the first PDU with digests was answered with {}", rx.line());
    Ok(())
}

// covers: DIG-05
fn dig_05(ctx: &mut Ctx) -> RowResult {
    for key in [keys::HEADER_DIGEST, keys::DATA_DIGEST] {
        let answer = |offer: &str| -> Result<Option<String>, Stop> {
            Ok(match Talk::new(ctx)?.step(&[(key, offer)], true)? {
                Taken::On(reply) => reply.get(key).map(str::to_owned),
                _ => None,
            })
        };
        let supported = |value: &str| Ok::<_, Stop>(answer(value)?.as_deref() == Some(value));
        let (crc, none) = (supported("CRC32C")?, supported("None")?);
        ensure!(crc || none, "{key}: neither CRC32C nor None is accepted");
        for offer in ["CRC32C,None", "None,CRC32C", "Foo,CRC32C", "Foo,None"] {
            let due = offer.split(',').find(|value| *value == "CRC32C" && crc || *value == "None" && none);
            let got = answer(offer)?;
            match due {
                Some(due) => {
                    ensure!(
                        got.as_deref() == Some(due),
                        "{key}={offer} was answered with {got:?}, due is {due}"
                    );
                }
                None => {
                    ensure!(got.as_deref().is_none_or(|got| got == keys::REJECT), "{key}={offer}: {got:?}")
                }
            }
        }
        let got = answer("Foo")?;
        ensure!(got.as_deref().is_none_or(|got| got == keys::REJECT), "{key}=Foo was answered with {got:?}");
    }
    Ok(())
}

// covers: DIG-07
fn dig_07(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut plain = ctx.session()?;
    plain.run_good(&Command::write_16(scratch.lba, vec![0x44; size], scratch.block_size))?;
    // Byte 4 is TotalAHSLength: changing it moves the expected position of the digest.
    let bytes = (0..48).filter(|at| *at != 4).map(Some).chain([None; 4]);
    for (n, at) in bytes.enumerate() {
        let Some(mut s) = digested(ctx, true, false)? else {
            skip!("the target does not agree to HeaderDigest=CRC32C")
        };
        let mut write = Command::write_16(scratch.lba, vec![0x66; size], scratch.block_size);
        if s.params.writes.immediate_data {
            write = write.unsolicited(Unsolicited::Immediate(size));
        }
        let (sent, frame) = s.command_frame(&write);
        let frame = match at {
            Some(at) => frame.corrupt_header_byte(at),
            None => frame.header_digest(DigestWish::Flip(0x80 << (8 * (n % 4)))),
        };
        s.peer.send(&frame)?;
        match s.reaction(sent.itt)? {
            Reaction::Closed => {}
            other => fail!("a wrong header digest: expected a closed connection, got {}", other.words()),
        }
    }
    let read = plain.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == vec![0x44; size], "a write with a wrong header digest reached the medium");
    Ok(())
}

// covers: DIG-13
fn dig_13(ctx: &mut Ctx) -> RowResult {
    let script =
        ctx.discovery_script().key(keys::HEADER_DIGEST, "CRC32C,None").key(keys::DATA_DIGEST, "CRC32C,None");
    let mut s = ctx.session_of(script)?;
    let pairs = exchange_text(&mut s, &crate::text_of(&[(keys::SEND_TARGETS, "All")]))?;
    ensure!(pairs.iter().any(|(key, _)| key == keys::TARGET_NAME), "no target in {pairs:?}");
    Ok(())
}

// covers: DIG-14
fn dig_14(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut plain = ctx.session()?;
    let probe = with_data_digest(ctx)?;
    let length = (probe.params.max_send_data_segment_length as usize).min(scratch.bytes()).min(65_536);
    let length = length - length % scratch.block_size as usize;
    drop(probe);
    if length == 0 {
        skip!("the target takes less than a block in a PDU");
    }
    let blocks = (length / scratch.block_size as usize) as u32;
    plain.run_good(&Command::write_16(scratch.lba, vec![0x31; length], scratch.block_size))?;
    let mut offsets: Vec<usize> = (4096..length).step_by(4096).flat_map(|at| [at - 1, at]).collect();
    offsets.extend([0, length / 2 + 1, length - 1]);
    for at in offsets {
        let mut s = with_data_digest(ctx)?;
        let sent = s.start(&Command::write_16(scratch.lba, vec![0xee; length], scratch.block_size))?;
        let r2t = s.expect_r2t(&sent)?;
        let data = s.data_out(&sent, r2t.ttt, 0);
        s.peer.send(&Frame::of(data).data(vec![0xee; length]).corrupt_data_byte(at))?;
        if let Reaction::Finished(outcome) = s.reaction(sent.itt)? {
            ensure!(!outcome.is_good(), "byte {at} of {length} was wrong, and the write ended with GOOD");
        }
        let read = plain.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
        ensure!(
            read.data == vec![0x31; length],
            "byte {at} of {length} was wrong, and the data reached the medium"
        );
    }
    Ok(())
}
