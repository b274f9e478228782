//! The SNACK table against the engine in software: the same losses, arrivals and time give the same entries and the same SNACKs.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;

use common::{BOTH_DIGESTS, Bench, LUN, RAW_SLOTS, data_in, open_conn, pattern, response};
use iscsi_wire::{CmdSn, Itt, Lun, NopIn, R2t, R2tSn, ResponseNumbers, SnackRequest, StatSn, Ttt};
use offload::Engine;
use offload::encoding::{Abort, CommandEntry, CommandState, StopReason, task_flags};
use offload_rtl::{Found, SnackEntry, SnackOperation, SnackTable};

/// Bytes of each Data-In.
const PART: u32 = 100;
const EDTL: u32 = 300 * PART;
const GAP: u8 = 1;
const DIGEST: u8 = 2;
const EXP_DATA_SN: u8 = 3;
const A_BIT: u8 = 4;
const SENT: u8 = 3;
const NEVER: u64 = u64::MAX;

/// The engine in software, and what a receive module does with the table as the same PDUs arrive.
struct Pair {
    bench: Bench,
    table: SnackTable,
    random: fastrand::Rng,
    now_us: u64,
    /// Due entries that were not taken.
    queue: VecDeque<u8>,
    sent: usize,
    acks: usize,
}

fn key(snack_type: u8, itt: u32) -> SnackEntry {
    SnackEntry { snack_type, itt, ttt: u32::MAX, state: 1, lun: LUN.0.to_be_bytes(), ..SnackEntry::default() }
}

impl Pair {
    fn new(seed: u64, pace: usize) -> Self {
        Self {
            bench: Bench::open(open_conn(BOTH_DIGESTS, 1)),
            table: SnackTable::new(seed as u16, pace),
            random: fastrand::Rng::with_seed(seed),
            now_us: 0,
            queue: VecDeque::new(),
            sent: 0,
            acks: 0,
        }
    }

    fn deadline_us(&self) -> u64 {
        self.now_us + 1000
    }

    fn arrives(&mut self, bytes: &[u8]) {
        assert_eq!(self.bench.rx(bytes), bytes.len());
        self.bench.engine.release_raw(0, RAW_SLOTS);
        assert_eq!(self.bench.engine.session(0).map(|session| session.stop_reason.0), Some(0));
    }

    fn task(&self, itt: u32) -> Option<CommandEntry> {
        let sent = |entry: &CommandEntry| entry.itt == itt && entry.state != CommandState::QUEUED;
        self.bench.engine.tables().commands.into_iter().find(sent)
    }

    fn window(&self) -> (CmdSn, CmdSn) {
        let cmd_sn = self.bench.engine.session(0).expect("open").cmd_sn;
        (CmdSn(cmd_sn), CmdSn(cmd_sn + 20))
    }

    fn lose(&mut self, entry: SnackEntry) {
        self.table.ask(SnackOperation::Lose, &entry);
    }

    fn find(&mut self, key: SnackEntry) -> Found {
        self.table.ask(SnackOperation::Find, &key)
    }

    /// The entry of a loss of data from the number that is expected next up to `end`.
    fn loss(&self, task: &CommandEntry, end: u32, end_offset: u32, cause: u8) -> SnackEntry {
        SnackEntry {
            beg_run: task.next_sn,
            run_length: end - task.next_sn,
            begin_offset: task.next_offset,
            end_offset,
            deadline_us: self.deadline_us(),
            cause,
            ..key(0, task.itt)
        }
    }

    /// The end of a task, if the engine in software has ended it.
    fn forget_if_ended(&mut self, itt: u32) {
        if self.task(itt).is_none() {
            self.table.ask(SnackOperation::Forget, &key(0, itt));
        }
        self.bench.completions();
    }

    /// The Data-In with this number arrives.
    fn data_in(&mut self, itt: u32, sn: u32, damaged: bool, acknowledge: bool) {
        let Some(task) = self.task(itt).filter(|task| task.state == CommandState::SENT || sn < task.next_sn)
        else {
            return;
        };
        let (from, to) = (sn * PART, (sn + 1) * PART);
        let place = SnackEntry { beg_run: sn, begin_offset: from, end_offset: to, ..key(0, itt) };
        let found = self.find(place);
        let group = found.group.filter(|_| sn < task.next_sn);
        if let Some((_, admits)) = group {
            assert!(admits, "a replica of what was lost");
        }
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let lun = self.random.u64(..);
        let ttt = self.random.u32(..u32::MAX);
        let mut pdu = data_in(itt, sn, from, None);
        (pdu.numbers.exp_cmd_sn, pdu.numbers.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        if acknowledge {
            (pdu.acknowledge, pdu.ttt, pdu.lun) = (true, Ttt(ttt), Lun(lun));
        }
        let mut bytes = self.bench.pdu(pdu.to_bhs(), &pattern(itt, PART as usize));
        if damaged {
            bytes[60] ^= 1;
        }
        self.arrives(&bytes);
        let replica = SnackEntry { run_length: 1, deadline_us: self.deadline_us(), cause: DIGEST, ..place };
        match (damaged, group) {
            (true, None) if sn >= task.next_sn => self.lose(self.loss(&task, sn + 1, to, DIGEST)),
            (true, Some((SENT, _))) => {
                self.table.ask(SnackOperation::Fill, &place);
                self.lose(replica);
            }
            (false, None) if sn > task.next_sn => self.lose(self.loss(&task, sn, from, GAP)),
            (false, Some(_)) => {
                self.table.ask(SnackOperation::Fill, &place);
            }
            _ => {}
        }
        if !damaged && (group.is_some() || sn >= task.next_sn) {
            if acknowledge {
                let owed = SnackEntry {
                    beg_run: sn + 1,
                    deadline_us: NEVER,
                    cause: A_BIT,
                    ttt,
                    lun: lun.to_be_bytes(),
                    ..key(2, itt)
                };
                self.table.ask(SnackOperation::Owe, &owed);
            }
            self.table.ask(SnackOperation::Release, &SnackEntry { deadline_us: self.now_us, ..key(0, itt) });
            self.advance(0);
        }
        self.forget_if_ended(itt);
    }

    /// The R2T with this number arrives.
    fn r2t(&mut self, itt: u32, sn: u32) {
        let Some(task) = self.task(itt) else { return };
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let r2t = R2t {
            lun: LUN,
            itt: Itt(itt),
            ttt: Ttt(sn),
            numbers: ResponseNumbers { stat_sn: StatSn(0), exp_cmd_sn, max_cmd_sn },
            r2t_sn: R2tSn(sn),
            buffer_offset: 0,
            desired_data_transfer_length: 512,
        };
        let place = SnackEntry { beg_run: sn, ..key(0, itt) };
        let found = self.find(place).group.is_some() && sn < task.next_sn;
        let bytes = self.bench.pdu(r2t.to_bhs(), &[]);
        self.arrives(&bytes);
        if sn > task.next_sn {
            self.lose(SnackEntry { begin_offset: 0, ..self.loss(&task, sn, 0, GAP) });
        } else if found {
            self.table.ask(SnackOperation::Fill, &place);
        }
    }

    /// The number of a status arrives.
    fn status(&mut self, stat_sn: u32, next: u32) {
        let place = SnackEntry { beg_run: stat_sn, ..key(1, u32::MAX) };
        let place = SnackEntry { lun: [0; 8], ..place };
        let ahead = stat_sn.wrapping_sub(next);
        if ahead > 0 && ahead < 1 << 31 {
            let deadline_us = self.deadline_us();
            self.lose(SnackEntry { beg_run: next, run_length: ahead, deadline_us, cause: GAP, ..place });
        } else if ahead >= 1 << 31 && self.find(place).group.is_some() {
            self.table.ask(SnackOperation::Fill, &place);
        }
    }

    fn nop_in(&mut self, stat_sn: u32) {
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let next = self.bench.engine.session(0).expect("open").next_stat_sn;
        let stat = StatSn(stat_sn);
        let nop = NopIn {
            lun: Lun(0),
            itt: Itt(900),
            ttt: Ttt::RESERVED,
            numbers: ResponseNumbers { stat_sn: stat, exp_cmd_sn, max_cmd_sn },
        };
        let bytes = self.bench.pdu(nop.to_bhs(), &[]);
        self.arrives(&bytes);
        self.status(stat_sn, next);
        self.bench.completions();
    }

    /// A task is answered; `promised` Data-In were sent for it.
    fn answer(&mut self, itt: u32, skips: u32, promised: u32) {
        let Some(task) = self.task(itt).filter(|task| task.state == CommandState::SENT) else { return };
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let next = self.bench.engine.session(0).expect("open").next_stat_sn;
        let reads = task.flags & task_flags::READ != 0;
        let mut answer = response(itt, next + skips, if reads { task.next_sn + promised } else { 0 });
        (answer.numbers.exp_cmd_sn, answer.numbers.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        let bytes = self.bench.pdu(answer.to_bhs(), &[]);
        self.arrives(&bytes);
        self.status(next + skips, next);
        if reads && promised > 0 {
            self.lose(self.loss(&task, task.next_sn + promised, u32::MAX, EXP_DATA_SN));
        }
        self.forget_if_ended(itt);
    }

    fn advance(&mut self, microseconds: u64) {
        self.now_us += microseconds;
        self.bench.engine.advance(self.now_us);
        self.table
            .ask(SnackOperation::Advance, &SnackEntry { deadline_us: self.now_us, ..SnackEntry::default() });
        self.queue.extend(self.table.due());
    }

    /// All SNACKs whose turn has come are sent.
    fn send(&mut self) {
        let theirs: Vec<_> =
            self.bench.sent().iter().filter_map(|(bhs, _)| SnackRequest::parse(bhs).ok()).collect();
        let mut ours = Vec::new();
        while let Some(id) = self.queue.pop_front() {
            ours.extend(self.table.take(id));
        }
        self.sent += ours.len();
        self.acks += ours.iter().filter(|snack| snack.snack_type == 2).count();
        let theirs: Vec<_> = theirs
            .iter()
            .map(|pdu| (pdu.snack_type.code(), pdu.itt.0, pdu.ttt.0, pdu.lun.0, pdu.beg_run, pdu.run_length))
            .collect();
        let ours = ours.iter().map(|snack| {
            let itt = if snack.snack_type == 2 { u32::MAX } else { snack.itt };
            let lun = u64::from_be_bytes(snack.lun);
            (snack.snack_type, itt, snack.ttt, lun, snack.beg_run, snack.run_length)
        });
        assert_eq!(ours.collect::<Vec<_>>(), theirs);
        self.bench.completions();
    }

    fn compare(&mut self) {
        let tables = self.bench.engine.tables();
        let theirs = tables.snacks.iter().map(|entry| SnackEntry {
            snack_type: entry.snack_type,
            state: entry.state.0,
            itt: entry.itt,
            beg_run: entry.beg_run,
            run_length: entry.run_length,
            begin_offset: entry.begin_offset,
            end_offset: entry.end_offset,
            deadline_us: entry.deadline_us,
            cause: entry.cause.0,
            ttt: entry.ttt,
            lun: entry.lun,
        });
        let theirs: Vec<_> = theirs.collect();
        // The engine in software shows the logical unit of a DataACK only.
        let ours = self.table.entries().into_iter().map(|entry| match entry.snack_type {
            2 => entry,
            _ => SnackEntry { lun: [0; 8], ..entry },
        });
        let ours: Vec<_> = ours.collect();
        assert_eq!(ours, theirs);
        let next = tables.sessions[0].next_stat_sn;
        let first = theirs.iter().filter(|entry| entry.snack_type == 1).map(|entry| entry.beg_run);
        let first = first.max_by_key(|beg_run| next.wrapping_sub(*beg_run));
        assert_eq!(self.table.missing_status(), first);
        assert_eq!(self.table.deadline_us(), self.bench.engine.deadline_us());
        assert!(self.table.has_room());
    }

    fn event(&mut self) {
        // 1 to 6 read, 7 to 9 write.
        let itt = self.random.u32(1..10);
        let next = self.task(itt).map_or(0, |task| task.next_sn);
        let next_stat_sn = self.bench.engine.session(0).expect("open").next_stat_sn;
        let sn = match self.random.u8(..4) {
            0 => next,
            1 => next + self.random.u32(1..4),
            _ => next.saturating_sub(self.random.u32(1..8)),
        };
        let is_read = itt <= 6;
        match self.random.u8(..12) {
            0..6 if is_read && sn < 290 => {
                let (damaged, acknowledge) = (self.random.u8(..5) == 0, self.random.u8(..4) == 0);
                self.data_in(itt, sn, damaged, acknowledge);
            }
            0..6 if !is_read => {
                self.r2t(itt, sn);
                self.send();
            }
            6 => {
                let stat_sn = next_stat_sn.wrapping_add(self.random.u32(..6)).wrapping_sub(3);
                self.nop_in(stat_sn);
            }
            7 => {
                let (skips, promised) = (self.random.u32(..2), self.random.u32(..3));
                self.answer(itt, skips, promised);
            }
            8..10 => {
                let microseconds = [0, 10, 400, 1000][self.random.usize(..4)];
                self.advance(microseconds);
            }
            10 => self.send(),
            _ if self.task(itt).is_some() && self.random.u8(..4) == 0 => {
                self.bench.submit(&Abort { itt, ..Abort::default() }.emit());
                self.forget_if_ended(itt);
            }
            _ => {}
        }
        if self.task(itt).is_none() {
            self.bench.post(itt, if is_read { task_flags::READ } else { task_flags::WRITE }, EDTL);
            self.send();
        }
    }
}

#[test]
fn losses_and_arrivals_give_the_same_entries_and_snacks() {
    let (mut sent, mut acks, mut most) = (0, 0, 0);
    for seed in 0..40 {
        let mut pair = Pair::new(seed, [1, 7][seed as usize % 2]);
        for _ in 0..250 {
            pair.event();
            pair.compare();
            most = most.max(pair.table.entries().len());
        }
        (sent, acks) = (sent + pair.sent, acks + pair.acks);
    }
    println!("{sent} SNACKs, {acks} of them DataACKs; at most {most} entries at a time");
    assert!(sent > 1000 && acks > 100 && most > 10, "{sent} SNACKs, {acks} DataACKs, {most} entries");
}

/// Every second Data-In is lost until the engine in software stops for want of room: so does the table, at the same PDU.
#[test]
fn the_table_says_when_it_has_no_room() {
    let mut pair = Pair::new(1, 1);
    pair.bench.read(1, EDTL);
    pair.bench.read(2, EDTL);
    let losses = (1..=2).flat_map(|itt| (0..145).map(move |n| (itt, 2 * n + 1)));
    for (itt, sn) in losses {
        if !pair.table.has_room() {
            let bytes = pair.bench.data_in(itt, sn, sn * PART, &pattern(itt, PART as usize), None);
            pair.bench.rx(&bytes);
            let session = pair.bench.engine.session(0).expect("open");
            assert_eq!(session.stop_reason, StopReason::NO_ROOM);
            assert_eq!(pair.table.entries().len(), 253);
            return;
        }
        pair.data_in(itt, sn, false, false);
    }
    panic!("there is always room");
}
