//! ErrorRecoveryLevel 1 and 2: a target whose PDUs are lost, late, damaged or doubled.

use std::collections::BTreeMap;

use fastrand::Rng;
use offload::Tables;
use offload::encoding::{
    Abort, CommandEntry, CommandState, CompletionKind, DigestAction, OpenConn, PostTask, RawReason,
    SglElement, StopReason, TaskResult, task_flags,
};
use offload_rtl::Width;

use crate::campaign::length;
use crate::common::BOTH_DIGESTS;
use crate::pair::Pair;
use crate::peer::{DATA_IN, FINAL, Header, NOP_IN, R2T, RESPONSE, STATUS, random_bytes};
use crate::random::{DATA_ADDR, RAW_SLOTS, max_data, open_conn, random_open, random_task};

/// Bytes of each Data-In but the last: so its number says where it lies.
const PART: u32 = 100;
/// A of a Data-In.
const ACKNOWLEDGE: u8 = 0x40;

struct Target {
    open: OpenConn,
    next_stat_sn: u32,
    /// The StatSN of each task that was answered, by its `user`.
    answers: BTreeMap<u64, u32>,
    /// PDUs with a status, to be sent again.
    statuses: Vec<Vec<u8>>,
}

impl Target {
    fn new(open: OpenConn) -> Self {
        let next_stat_sn = open.exp_stat_sn;
        Self { open, next_stat_sn, answers: BTreeMap::new(), statuses: Vec::new() }
    }

    fn stat_sn(&mut self) -> u32 {
        self.next_stat_sn = self.next_stat_sn.wrapping_add(1);
        self.next_stat_sn.wrapping_sub(1)
    }

    fn answer(&mut self, command: &CommandEntry) -> u32 {
        if let Some(stat_sn) = self.answers.get(&command.user) {
            return *stat_sn;
        }
        let stat_sn = self.stat_sn();
        self.answers.insert(command.user, stat_sn);
        stat_sn
    }

    /// The next PDU, if it arrives.
    fn pdu(&mut self, tables: &Tables, random: &mut Rng) -> Option<Vec<u8>> {
        let session = &tables.sessions[0];
        let with = |flag: u8, random: &mut Rng| {
            let sent =
                |c: &&CommandEntry| c.state != CommandState::QUEUED && (flag == 0 || c.flags & flag != 0);
            random.choice(tables.commands.iter().filter(sent).collect::<Vec<_>>()).copied()
        };
        let nop = Header::of(session, NOP_IN);
        let (mut header, data) = match random.u8(..24) {
            0..13 => self.data_in(&with(task_flags::READ, random)?, session.cmd_sn, random),
            13..17 => (self.r2t(&with(task_flags::WRITE, random)?, random), Vec::new()),
            17..20 => self.response(&with(0, random)?, random),
            20..22 => (Header { itt: 900, stat_sn: self.stat_sn(), ..nop }, random_bytes(20, random)),
            _ => return random.choice(&self.statuses).cloned(),
        };
        (header.exp_cmd_sn, header.max_cmd_sn) = (session.cmd_sn, session.cmd_sn.wrapping_add(20));
        match random.u16(..900) {
            0 => header.sn = header.sn.wrapping_add(random.u32(..9)).wrapping_sub(5),
            1 => header.stat_sn = header.stat_sn.wrapping_add(random.u32(..9)).wrapping_sub(5),
            2 => header.offset = header.offset.wrapping_add(4),
            3 => header.itt = random.u32(..40),
            4 => header.flags = random.u8(..),
            5 => (header.sn, header.stat_sn) = (random.u32(..), random.u32(..)),
            6 => header.opcode = random.u8(..64),
            _ => {}
        }
        let mut bytes = header.pdu(&self.open, &[], &data);
        if matches!(header.opcode, NOP_IN | RESPONSE) {
            self.statuses.push(bytes.clone());
            if self.statuses.len() > 6 {
                self.statuses.remove(0);
            }
            if random.u8(..4) == 0 {
                return None;
            }
        }
        // Behind the header's digest: a damaged header stops the connection.
        if self.open.flags & BOTH_DIGESTS == BOTH_DIGESTS && bytes.len() > 52 && random.u8(..6) == 0 {
            let at = random.usize(52..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
        }
        Some(bytes)
    }

    /// A number near that which is expected.
    fn near(next: u32, random: &mut Rng) -> u32 {
        match random.u8(..9) {
            0..5 => next,
            5 => next + random.u32(1..4),
            6..8 => next.saturating_sub(random.u32(1..5)),
            _ => random.u32(..=next),
        }
    }

    fn data_in(&mut self, command: &CommandEntry, cmd_sn: u32, random: &mut Rng) -> (Header, Vec<u8>) {
        let parts = command.edtl.div_ceil(PART).max(1);
        let sn = Self::near(command.next_sn, random);
        if sn >= parts {
            return self.response(command, random);
        }
        let offset = sn * PART;
        let data = random_bytes(PART.min(command.edtl - offset) as usize, random);
        let mut header = Header {
            opcode: DATA_IN,
            itt: command.itt,
            ttt: cmd_sn ^ sn,
            sn,
            offset,
            last_word: 7,
            ..Header::default()
        };
        if sn + 1 == parts {
            header.flags |= FINAL;
            // Of these tasks the status comes with the last data.
            if command.itt % 2 == 1 {
                header.flags |= STATUS;
                header.stat_sn = self.answer(command);
            }
        }
        if random.u8(..5) == 0 {
            header.flags |= ACKNOWLEDGE;
        }
        (header, data)
    }

    fn response(&mut self, command: &CommandEntry, random: &mut Rng) -> (Header, Vec<u8>) {
        let header = Header {
            opcode: RESPONSE,
            flags: FINAL | [0, 2, 4][random.usize(..3)],
            status: [0, 2][random.usize(..2)],
            itt: command.itt,
            stat_sn: self.answer(command),
            // ExpDataSN.
            sn: command.edtl.div_ceil(PART).max(1),
            last_word: random.u32(..1000),
            ..Header::default()
        };
        let sense = if random.bool() { 0 } else { random.usize(..300) };
        (header, random_bytes(sense, random))
    }

    fn r2t(&self, command: &CommandEntry, random: &mut Rng) -> Header {
        let sn = Self::near(command.next_sn, random);
        let offset = sn.wrapping_mul(500) % command.edtl.max(1);
        let last_word = (command.edtl - offset).clamp(1, 500);
        Header {
            opcode: R2T,
            flags: FINAL,
            itt: command.itt,
            ttt: sn,
            sn,
            offset,
            last_word,
            ..Header::default()
        }
    }
}

/// One connection; returns how many PDUs the engines were given.
fn connection(pair: &mut Pair, now_us: &mut u64, random: &mut Rng) -> usize {
    let mut open = random_open(pair.width(), random);
    open.error_recovery_level = random.u8(1..=2);
    open.snack_delay_us = [0, 100, 1000][random.usize(..3)];
    if random.u8(..4) > 0 {
        open.flags |= BOTH_DIGESTS;
    }
    assert_eq!(pair.open(&open), Some(TaskResult::GOOD.0));
    let mut target = Target::new(open);
    let mut pdus = 0;
    for _ in 0..random.usize(1..25) {
        if random.u8(..8) == 0 {
            pair.submit(&Abort { itt: random.u32(..24), ..Abort::default() }.emit());
        }
        for _ in 0..random.usize(..4) {
            let (post, list) = random_task(random);
            pair.post(&post, &list);
        }
        if random.u8(..4) > 0 {
            pair.transmit();
        }
        for _ in 0..random.usize(1..30) {
            let tables = pair.software_tables();
            let Some(pdu) = target.pdu(&tables, random) else { continue };
            pdus += 1;
            if !pair.lead(&pdu) {
                break;
            }
        }
        pair.catch_up_fully(random);
        *now_us += [0, 10, 400, 2000][random.usize(..4)];
        pair.advance(*now_us);
        if random.bool() {
            pair.transmit();
        }
        pair.release(random.u16(..=RAW_SLOTS));
        if pair.is_stopped() {
            pair.resync(random);
        }
    }
    pair.transmit();
    pair.submit(&Abort { itt: u32::MAX, ..Abort::default() }.emit());
    pdus
}

/// What must have happened for a campaign to count, each with its result, action, reason or type.
const WANTED: [(CompletionKind, u8); 12] = [
    (CompletionKind::TASK_DONE, TaskResult::GOOD.0),
    (CompletionKind::TASK_DONE, TaskResult::ABORTED.0),
    (CompletionKind::TASK_DONE, TaskResult::MEMORY.0),
    (CompletionKind::RAW_PDU, RawReason::OPCODE.0),
    (CompletionKind::RAW_PDU, RawReason::NO_TASK.0),
    (CompletionKind::RAW_PDU, RawReason::PROTOCOL.0),
    (CompletionKind::DIGEST_ERROR, DigestAction::SNACK.0),
    (CompletionKind::DIGEST_ERROR, DigestAction::DROPPED.0),
    (CompletionKind::NEED_RESYNC, StopReason::PROTOCOL.0),
    (CompletionKind::SNACK_SENT, 0),
    (CompletionKind::SNACK_SENT, 1),
    (CompletionKind::DATAACK_SENT, 0),
];

#[test]
fn what_is_lost_comes_back_as_in_the_engine_in_software() {
    for width in [Width::Bits64, Width::Bits512] {
        let mut random = Rng::with_seed(31);
        let mut pair = Pair::new(width, 31);
        let (mut done, mut now_us, pdus) = (0, 0, length(700));
        let missing = |pair: &Pair| WANTED.iter().filter(|wanted| !pair.seen.contains(wanted)).count();
        while done < pdus || (missing(&pair) > 0 && done < 20 * pdus) {
            done += connection(&mut pair, &mut now_us, &mut random);
        }
        assert_eq!(missing(&pair), 0, "{:?}", pair.seen);
        println!("{width:?}: {done} PDUs received, {} bytes sent, {} SNACKs", pair.sent_bytes, pair.snacks);
    }
}

/// Every second Data-In is lost, until the table has no room: then the connection stops.
#[test]
fn a_full_snack_table_stops_the_connection() {
    for width in [Width::Bits64, Width::Bits512] {
        let mut random = Rng::with_seed(32);
        let mut pair = Pair::new(width, 32);
        let open = OpenConn { error_recovery_level: 1, ..open_conn(BOTH_DIGESTS, max_data(width)) };
        assert_eq!(pair.open(&open), Some(TaskResult::GOOD.0));
        let post = PostTask { flags: task_flags::READ, itt: 2, edtl: 600 * PART, ..PostTask::default() };
        pair.post(&post, &[SglElement { addr: DATA_ADDR, length: 600 * PART }]);
        pair.transmit();
        let mut lost = 0;
        while !pair.is_stopped() {
            let session = pair.software_tables().sessions[0];
            let sn = 2 * lost + 1;
            let header = Header { flags: 0, itt: 2, sn, offset: sn * PART, ..Header::of(&session, DATA_IN) };
            pair.lead(&header.pdu(&open, &[], &random_bytes(PART as usize, &mut random)));
            lost += 1;
        }
        pair.catch_up(&mut random);
        assert!(pair.seen.contains(&(CompletionKind::NEED_RESYNC, StopReason::NO_ROOM.0)));
        assert_eq!(pair.software_tables().snacks.len(), 253);
        pair.advance(1_000_000);
        pair.transmit();
        assert_eq!(pair.snacks, 253, "one for each group");
    }
}
