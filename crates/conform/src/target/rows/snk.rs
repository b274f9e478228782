//! SNACK (rows SNK).

use super::{clean, refused, silence};
use crate::frame::{Frame, Received};
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Sent, Unsolicited};
use crate::target::bundle::at_level;
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, Reaction, Session, Stop};
use iscsi_wire::{
    DataIn, Itt, Lun, Opcode, Pdu, R2t, RejectReason, ScsiResponse, SnackRequest, SnackType, StatSn,
    TextRequest, TmfFunction, Ttt, keys,
};
use std::ops::Range;
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new("SNK-01", "Data/R2T SNACK: exact replicas of what was lost", snk_01),
    Row::new("SNK-02", "Status SNACK: the same response with the same StatSN", snk_02),
    Row::new("SNK-03", "DataACK is taken in silence, and frees what it acknowledges", snk_03),
    Row::new("SNK-04", "R-Data SNACK: data in the new size, the response with the SNACK Tag", snk_04),
    Row::new(
        "SNK-05",
        "asking for what was not sent or was acknowledged: Reject 04 with the next DataSN",
        snk_05,
    ),
    Row::new(
        "SNK-06",
        "a SNACK that the target cannot serve: Reject 03, then B/11/13 if status is due",
        snk_06,
    ),
    Row::new("SNK-07", "SNACK at level 0 and in discovery: Reject, connection lives", snk_07),
    Row::new("SNK-08", "the A bit at most once per MaxBurstLength, never at level 0", snk_08),
];

/// ExpCmdSN and MaxCmdSN, which are current even in a replica.
const WINDOW: Range<usize> = 28..36;

/// Also StatSN, which in an R2T is the next one to be sent.
const NUMBERS: Range<usize> = 24..36;

/// How long to wait for something that must not arrive.
const SILENCE: Duration = Duration::from_millis(300);

/// The PDUs received for a read.
pub(super) struct Gathered {
    /// At least one.
    pub(super) data: Vec<Received>,
    /// The SCSI Response, or the last Data-In again when it carries the status.
    pub(super) status: Received,
}

impl Gathered {
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.data.iter().flat_map(|rx| rx.data.iter().copied()).collect()
    }

    fn count(&self) -> u32 {
        self.data.len() as u32
    }
}

/// Maximum number of Data-In PDUs, and of their bytes, that are accepted for one read.
const GATHERED_PDUS_MAX: usize = 1 << 16;
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// Receives the data and the status of a read.
pub(super) fn gather(s: &mut Session, itt: Itt) -> Result<Gathered, Stop> {
    let mut data: Vec<Received> = Vec::new();
    let mut bytes = 0;
    loop {
        let rx = s.next_for(itt)?;
        bytes += rx.data.len();
        if data.len() >= GATHERED_PDUS_MAX || bytes > GATHERED_BYTES_MAX {
            fail!("a read has no end: {} PDUs with {bytes} bytes, and {}", data.len(), rx.line());
        }
        match rx.pdu()? {
            Pdu::DataIn(pdu) if pdu.status_bit => {
                data.push(rx.clone());
                return Ok(Gathered { data, status: rx });
            }
            Pdu::DataIn(_) => data.push(rx),
            Pdu::ScsiResponse(_) => {
                ensure!(!data.is_empty(), "a read brought no data: {}", rx.line());
                return Ok(Gathered { data, status: rx });
            }
            _ => fail!("expected data or status, received {}", rx.line()),
        }
    }
}

/// The same PDU again, except for the header bytes that are `free`.
fn replica(what: &str, first: &Received, again: &Received, free: &[Range<usize>]) -> RowResult {
    let same = |at: &usize| free.iter().any(|range| range.contains(at));
    let differ: Vec<usize> =
        (0..48).filter(|at| !same(at) && first.bhs.as_bytes()[*at] != again.bhs.as_bytes()[*at]).collect();
    ensure!(
        differ.is_empty() && first.data == again.data,
        "{what}: no replica (header bytes {differ:?} differ, {} and {} data bytes): {} came as {}",
        first.data.len(),
        again.data.len(),
        first.line(),
        again.line()
    );
    Ok(())
}

pub(super) fn ask(s: &mut Session, request: SnackRequest) -> RowResult {
    s.peer.send(&Frame::of(request))?;
    Ok(())
}

/// A session at level 1 with small PDUs and bursts, and a read of several bursts on the medium.
fn reader(ctx: &Ctx) -> Result<(RowSession, Command, Vec<u8>), Stop> {
    let scratch = ctx.scratch();
    let mut s = at_level(ctx, 1, |script| {
        script
            .key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")
            .key(keys::MAX_BURST_LENGTH, "4096")
            .key(keys::FIRST_BURST_LENGTH, "4096")
    })?;
    let length = 16_384usize.next_multiple_of(scratch.block_size as usize);
    let bytes: Vec<u8> = (0..length).map(|n| (n / 5) as u8 ^ (n >> 9) as u8).collect();
    s.run_good(&Command::write_16(scratch.lba, bytes.clone(), scratch.block_size))?;
    let blocks = (length / scratch.block_size as usize) as u32;
    Ok((s, Command::read_16(scratch.lba, blocks, scratch.block_size), bytes))
}

/// Runs a read without acknowledging its status.
fn unacknowledged(s: &mut Session, read: &Command) -> Result<(Sent, Gathered), Stop> {
    s.peer.ledger.hold();
    let sent = s.start(read)?;
    let all = gather(s, sent.itt)?;
    Ok((sent, all))
}

// covers: SNK-01
fn snk_01(ctx: &mut Ctx) -> RowResult {
    let (mut s, read, bytes) = reader(ctx)?;
    let (sent, all) = unacknowledged(&mut s, &read)?;
    ensure!(all.bytes() == bytes, "the read itself brought other bytes");
    let count = all.count();
    let wishes = [
        ("the first", 0, 1),
        ("one in the middle", count / 2, 1),
        ("the last", count - 1, 1),
        ("a run", 1, 3.min(count - 1)),
        ("all", 0, 0),
    ];
    for (what, beg_run, run_length) in wishes {
        let request = s.snack(SnackType::DataOrR2t, sent.itt, beg_run, run_length);
        ask(&mut s, request)?;
        let end = if run_length == 0 { count } else { beg_run + run_length };
        for first in &all.data[beg_run as usize..end as usize] {
            let again = s.next_for(sent.itt)?;
            replica(what, first, &again, &[WINDOW])?;
        }
        // The status may be sent again with all the rest, otherwise nothing more.
        s.ping()?;
        s.ping()?;
        if run_length == 0 && all.data.last().map(Received::line) != Some(all.status.line()) {
            while s.stashed(sent.itt).is_some() {
                let again = s.next_for(sent.itt)?;
                replica(what, &all.status, &again, &[WINDOW, 36..40])?;
            }
        }
        silence(&mut s, sent.itt)?;
    }
    s.peer.ledger.release();
    s.ping()?;
    s.run_good(&Command::test_unit_ready())?;
    lost_r2t(ctx)?;
    clean(&s, "NUM-05")
}

/// An R2T that is sent again.
fn lost_r2t(ctx: &Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = at_level(ctx, 1, |script| {
        script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::FIRST_BURST_LENGTH, "4096")
    })?;
    let length = 8192usize.next_multiple_of(scratch.block_size as usize);
    let data: Vec<u8> = (0..length).map(|n| (n / 3) as u8).collect();
    let sent = s.start(&Command::write_16(scratch.lba, data.clone(), scratch.block_size))?;
    let first = s.next_for(sent.itt)?;
    let r2t = R2t::parse(&first.bhs)?;
    let request = s.snack(SnackType::DataOrR2t, sent.itt, 0, 1);
    ask(&mut s, request)?;
    let again = s.next_for(sent.itt)?;
    replica("an R2T", &first, &again, &[NUMBERS])?;
    silence(&mut s, sent.itt)?;
    s.keep(first);
    s.expect_r2t(&sent)?;
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "the write whose R2T came twice ended with {}", outcome.words());
    let blocks = (length / scratch.block_size as usize) as u32;
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(read.data == data, "the write whose R2T came twice wrote other bytes");
    Ok(())
}

/// The text request of a status SNACK's script.
fn text_request(s: &mut Session) -> TextRequest {
    TextRequest {
        immediate: true,
        final_bit: true,
        continue_bit: false,
        lun: Lun(0),
        itt: s.itt(),
        ttt: Ttt::RESERVED,
        cmd_sn: s.cmd_sn,
        exp_stat_sn: s.peer.ledger.exp_stat_sn(),
    }
}

// covers: SNK-02
fn snk_02(ctx: &mut Ctx) -> RowResult {
    let mut s = at_level(ctx, 1, |script| script)?;
    s.peer.ledger.hold();
    let mut responses = Vec::new();
    // A SCSI Response, one with sense, a task management response and a text response, none acknowledged.
    let sent = s.start(&Command::test_unit_ready())?;
    responses.push(s.next_for(sent.itt)?);
    let sent = s.start(&Command::read([0xff; 6], 512))?;
    responses.push(s.next_for(sent.itt)?);
    let mut tmf = s.tmf(TmfFunction::AbortTask, true);
    (tmf.referenced_task_tag, tmf.ref_cmd_sn) = (Itt(0x7777), s.cmd_sn.add(100_000));
    s.peer.send(&Frame::of(tmf))?;
    responses.push(s.next_for(tmf.itt)?);
    let request = text_request(&mut s);
    s.peer.send(&Frame::of(request).data(crate::text_of(&[(keys::SEND_TARGETS, "")])))?;
    responses.push(s.next_for(request.itt)?);
    let first_stat_sn = responses[0].u32_at(24);
    for first in responses.iter().rev() {
        let wanted = s.snack(SnackType::Status, Itt::RESERVED, first.u32_at(24), 1);
        ask(&mut s, wanted)?;
        let again = s.next_for(first.bhs.itt())?;
        replica("a status", first, &again, &[WINDOW, 36..40])?;
    }
    let wanted = s.snack(SnackType::Status, Itt::RESERVED, first_stat_sn, 0);
    ask(&mut s, wanted)?;
    for first in &responses {
        let again = s.next()?;
        replica("all statuses", first, &again, &[WINDOW, 36..40])?;
    }
    s.peer.ledger.release();
    s.ping()?;
    clean(&s, "NUM-09")
}

/// The Data-In PDUs that request an acknowledgement.
fn with_a_bit(all: &Gathered) -> Vec<DataIn> {
    let pdus = all.data.iter().filter_map(|rx| DataIn::parse(&rx.bhs).ok());
    pdus.filter(|pdu| pdu.acknowledge).collect()
}

fn data_ack(s: &Session, of: &DataIn) -> SnackRequest {
    let request = s.snack(SnackType::DataAck, Itt::RESERVED, of.data_sn.next().0, 0);
    SnackRequest { ttt: of.ttt, lun: of.lun, ..request }
}

// covers: SNK-03
fn snk_03(ctx: &mut Ctx) -> RowResult {
    let (mut s, read, _) = reader(ctx)?;
    let (sent, all) = unacknowledged(&mut s, &read)?;
    let asking = with_a_bit(&all);
    let Some(pdu) = asking.first() else { skip!("the target asks for no acknowledgement of data") };
    ensure!(!pdu.ttt.is_reserved(), "a Data-In with A and a reserved TTT");
    ensure!(pdu.lun == s.lun, "a Data-In with A and LUN {:?}", pdu.lun);
    // A DataACK does not acknowledge data before a hole; here there is no hole.
    let ack = data_ack(&s, pdu);
    ask(&mut s, ack)?;
    silence(&mut s, sent.itt)?;
    ensure!(s.stashed_of(Opcode::Reject).is_none(), "a DataACK was rejected");
    // Tags that were never assigned acknowledge nothing.
    let mut wrong = data_ack(&s, pdu);
    (wrong.ttt, wrong.beg_run) = (Ttt(pdu.ttt.0 ^ 0x0f0f_0f0f), all.count());
    ask(&mut s, wrong)?;
    match s.reaction_within(Itt::RESERVED, SILENCE)? {
        Reaction::Rejected(_) | Reaction::Nothing => {}
        Reaction::Closed => return Ok(()),
        other => fail!("a DataACK with a TTT that was not given: {}", other.words()),
    }
    // Unacknowledged data is still available.
    let rest = pdu.data_sn.next().0;
    if let Some(first) = all.data.get(rest as usize) {
        let request = s.snack(SnackType::DataOrR2t, sent.itt, rest, 1);
        ask(&mut s, request)?;
        let again = s.next_for(sent.itt)?;
        replica("beyond a DataACK", first, &again, &[WINDOW])?;
    }
    Ok(())
}

/// Renegotiates MaxRecvDataSegmentLength in full feature phase.
fn declare(s: &mut Session, bytes: &str) -> RowResult {
    let request = text_request(s);
    let text = crate::text_of(&[(keys::MAX_RECV_DATA_SEGMENT_LENGTH, bytes)]);
    s.peer.send(&Frame::of(request).data(text))?;
    s.next_for(request.itt)?;
    Ok(())
}

// covers: SNK-04
fn snk_04(ctx: &mut Ctx) -> RowResult {
    let (mut s, read, bytes) = reader(ctx)?;
    let (sent, all) = unacknowledged(&mut s, &read)?;
    declare(&mut s, "512")?;
    let tags = [0x00c0_ffee, 0x00c0_ffef];
    for tag in tags {
        let mut request = s.snack(SnackType::RData, sent.itt, 0, 0);
        request.ttt = Ttt(tag);
        ask(&mut s, request)?;
        let again = gather(&mut s, sent.itt)?;
        let long = again.data.iter().find(|rx| rx.data.len() > 512);
        ensure!(
            long.is_none(),
            "above the new MaxRecvDataSegmentLength: {}",
            long.map_or(String::new(), Received::line)
        );
        ensure!(again.bytes() == bytes, "R-Data brought other bytes than were read first");
        for (n, rx) in again.data.iter().enumerate() {
            let pdu = DataIn::parse(&rx.bhs)?;
            ensure!(pdu.data_sn.0 == n as u32, "DataSN {n} was due: {}", rx.line());
            ensure!(!pdu.status_bit, "after R-Data the status needs a SCSI Response: {}", rx.line());
        }
        let Ok(response) = ScsiResponse::parse(&again.status.bhs) else {
            fail!("after R-Data the status needs a SCSI Response: {}", again.status.line())
        };
        ensure!(response.snack_tag == tag, "SNACK Tag {:#x} was due: {}", tag, again.status.line());
        ensure!(
            response.numbers.stat_sn == StatSn(all.status.u32_at(24)),
            "the response came with another StatSN than its first copy: {}",
            again.status.line()
        );
        ensure!(
            response.exp_data_sn.0 == again.count(),
            "ExpDataSN {} was due: {}",
            again.count(),
            again.status.line()
        );
    }
    // A lost response is replaced by the latest one.
    let wanted = s.snack(SnackType::Status, Itt::RESERVED, all.status.u32_at(24), 1);
    ask(&mut s, wanted)?;
    let rx = s.next_for(sent.itt)?;
    let last = ScsiResponse::parse(&rx.bhs)?;
    ensure!(last.snack_tag == tags[1], "the last SNACK Tag was {:#x}: {}", tags[1], rx.line());
    for tag in [0, u32::MAX] {
        let mut request = s.snack(SnackType::RData, sent.itt, 0, 0);
        request.ttt = Ttt(tag);
        ask(&mut s, request)?;
        let reaction = s.reaction(sent.itt)?;
        let closed = matches!(reaction, Reaction::Closed);
        refused(&format!("R-Data with SNACK Tag {tag:#x}"), reaction)?;
        if closed {
            break;
        }
    }
    Ok(())
}

/// A SNACK that must be rejected as a protocol error, naming the next number of the task.
fn is_rejected(s: &mut Session, what: &str, request: SnackRequest, next: Option<u32>) -> RowResult {
    ask(s, request)?;
    let rx = s.next()?;
    ensure!(rx.bhs.opcode() == Opcode::Reject.code(), "{what}: expected Reject 04, received {}", rx.line());
    let reason = rx.bhs.as_bytes()[2];
    ensure!(reason == RejectReason::ProtocolError.code(), "{what}: expected reason 04, got {reason:#04x}");
    if let Some(next) = next {
        let got = rx.u32_at(36);
        ensure!(got == next, "{what}: DataSN/R2TSN {got} in the Reject, the next one is {next}");
    }
    s.ping()?;
    Ok(())
}

// covers: SNK-05
fn snk_05(ctx: &mut Ctx) -> RowResult {
    let (mut s, read, _) = reader(ctx)?;
    let (sent, all) = unacknowledged(&mut s, &read)?;
    let count = all.count();
    for (what, beg_run, run_length) in
        [("beyond the last DataSN", count, 1), ("a run beyond the last DataSN", count - 1, 4)]
    {
        let request = s.snack(SnackType::DataOrR2t, sent.itt, beg_run, run_length);
        is_rejected(&mut s, what, request, Some(count))?;
        // No PDU of the run may arrive.
        silence(&mut s, sent.itt)?;
    }
    if let Some(pdu) = with_a_bit(&all).first() {
        let ack = data_ack(&s, pdu);
        ask(&mut s, ack)?;
        let request = s.snack(SnackType::DataOrR2t, sent.itt, 0, 1);
        is_rejected(&mut s, "data that a DataACK acknowledged", request, Some(count))?;
    }
    let next = s.peer.ledger.next_stat_sn.unwrap_or_default();
    let request = s.snack(SnackType::Status, Itt::RESERVED, next.0.wrapping_add(2), 1);
    is_rejected(&mut s, "a status that was not sent", request, None)?;
    s.peer.ledger.release();
    s.ping()?;
    let request = s.snack(SnackType::Status, Itt::RESERVED, all.status.u32_at(24), 1);
    is_rejected(&mut s, "a status that was acknowledged", request, None)?;
    let request = s.snack(SnackType::DataOrR2t, sent.itt, 0, 1);
    ask(&mut s, request)?;
    let reaction = s.reaction(sent.itt)?;
    refused("data of a command whose status was acknowledged", reaction)
}

// covers: SNK-06
fn snk_06(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = at_level(ctx, 1, |script| script.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "65536"))?;
    // A write that waits for its data has no status yet; reads fill the target's replay buffer.
    let window = s.peer.ledger.max_cmd_sn.map_or(1, |max| s.cmd_sn.distance_to(max).wrapping_add(1));
    // No more than any target reads with one command.
    let blocks = scratch.blocks.min((4 << 20) / scratch.block_size);
    let read = Command::read_16(scratch.lba, blocks, scratch.block_size);
    s.peer.ledger.hold();
    let mut reads = Vec::new();
    for _ in 0..window.clamp(1, 32) {
        let sent = s.start(&read)?;
        let all = gather(&mut s, sent.itt)?;
        reads.push((sent, all));
    }
    for (sent, all) in &reads {
        let request = s.snack(SnackType::DataOrR2t, sent.itt, 0, 1);
        ask(&mut s, request)?;
        match s.reaction(sent.itt)? {
            Reaction::Answered(rx) => replica("a replay", &all.data[0], &rx, &[WINDOW])?,
            // Its status was sent: nothing more must follow.
            Reaction::Rejected(RejectReason::SnackReject) => {
                silence(&mut s, sent.itt)?;
                s.peer.ledger.release();
                s.ping()?;
                s.run_good(&Command::test_unit_ready())?;
                return Ok(());
            }
            other => fail!("a SNACK that the target may be unable to serve: {}", other.words()),
        }
    }
    skip!("the target kept {} reads of {} bytes and refused no SNACK", reads.len(), scratch.bytes())
}

// covers: SNK-07
fn snk_07(ctx: &mut Ctx) -> RowResult {
    let mut normal = ctx.session()?;
    let mut discovery = ctx.session_of(ctx.discovery_script())?;
    for s in [&mut normal, &mut discovery] {
        let itt = s.itt();
        for (kind, itt) in [(SnackType::DataOrR2t, itt), (SnackType::Status, Itt::RESERVED)] {
            let request = s.snack(kind, itt, 0, 0);
            ask(s, request)?;
            match s.reaction(itt)? {
                Reaction::Rejected(_) => {}
                Reaction::Closed => fail!("{kind} at level 0 ended the connection"),
                other => fail!("{kind} at level 0: expected a Reject, got {}", other.words()),
            }
            s.ping()?;
        }
    }
    Ok(())
}

// covers: SNK-08
fn snk_08(ctx: &mut Ctx) -> RowResult {
    let mut plain = ctx.session_with(|script| {
        script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::FIRST_BURST_LENGTH, "4096")
    })?;
    let scratch = ctx.scratch();
    let blocks = (65_536 / scratch.block_size).max(1);
    let read = Command::read_16(scratch.lba, blocks, scratch.block_size);
    plain.run_good(&read)?;
    clean(&plain, "SNK-08")?;
    let (mut s, read, _) = reader(ctx)?;
    let burst = s.params.writes.max_burst_length;
    let (_, all) = unacknowledged(&mut s, &read)?;
    let last = all.data.last().map(|rx| rx.u32_at(36));
    let mut before = None;
    for pdu in with_a_bit(&all) {
        // The last PDU of the whole transfer may set A in any case.
        if let Some(before) = before
            && pdu.buffer_offset.saturating_sub(before) < burst
            && Some(pdu.data_sn.0) != last
        {
            fail!("A at offset {} and again at {}, MaxBurstLength is {burst}", before, pdu.buffer_offset);
        }
        before = Some(pdu.buffer_offset);
    }
    s.peer.ledger.release();
    s.ping()?;
    Ok(())
}

/// Each kind of SNACK is served, in whatever form; for the row that requires all of them.
pub(super) fn all_kinds(ctx: &Ctx) -> RowResult {
    let (mut s, read, bytes) = reader(ctx)?;
    let (sent, all) = unacknowledged(&mut s, &read)?;
    let mut requests = vec![
        s.snack(SnackType::DataOrR2t, sent.itt, 0, 1),
        s.snack(SnackType::Status, Itt::RESERVED, all.status.u32_at(24), 1),
    ];
    if let Some(pdu) = with_a_bit(&all).first() {
        requests.push(data_ack(&s, pdu));
    }
    for request in requests {
        ask(&mut s, request)?;
        s.ping()?;
        if request.snack_type != SnackType::DataAck {
            ensure!(s.stashed(sent.itt).is_some(), "{} was not answered", request.snack_type);
        }
        while s.stashed(sent.itt).is_some() {
            s.next_for(sent.itt)?;
        }
        let reject = s.stashed_of(Opcode::Reject);
        ensure!(reject.is_none(), "{} was rejected", request.snack_type);
    }
    let acknowledged = with_a_bit(&all).first().map_or(0, |pdu| pdu.data_sn.next().0 as usize);
    let skipped: usize = all.data.iter().take(acknowledged).map(|rx| rx.data.len()).sum();
    let mut request = s.snack(SnackType::RData, sent.itt, 0, 0);
    request.ttt = Ttt(0x51);
    ask(&mut s, request)?;
    let again = gather(&mut s, sent.itt)?;
    ensure!(
        bytes.get(skipped..) == Some(&again.bytes()[..]),
        "R-Data brought other bytes than were not acknowledged"
    );
    Ok(())
}

/// Takes the Rejects for a write that lost data: at most `due`, or until another PDU arrives, which is
/// kept. Returns their number.
pub(super) fn take_rejects(s: &mut Session, due: usize) -> Result<usize, Stop> {
    let mut rejects = 0;
    while rejects < due {
        match s.next() {
            Ok(rx) if rx.bhs.opcode() == Opcode::Reject.code() => rejects += 1,
            Ok(rx) => {
                s.keep(rx);
                break;
            }
            Err(error @ (PeerError::Closed | PeerError::Reset)) => return Err(error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rejects)
}

/// A write with several PDUs per burst, all solicited by R2T.
pub(super) fn long_write(ctx: &Ctx, seed: u8) -> (Command, Vec<u8>) {
    let scratch = ctx.scratch();
    let length = 8192usize.next_multiple_of(scratch.block_size as usize);
    let data: Vec<u8> = (0..length).map(|n| (n / 11) as u8 ^ seed).collect();
    let write = Command::write_16(scratch.lba, data.clone(), scratch.block_size);
    (write.unsolicited(Unsolicited::No), data)
}
