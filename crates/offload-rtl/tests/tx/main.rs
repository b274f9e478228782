//! The transmit module against the engine in software: the same descriptors, R2Ts and losses, then the same bytes and tables.
#![forbid(unsafe_code)]

#[path = "../campaign/mod.rs"]
mod campaign;
#[path = "../../../offload/tests/common/mod.rs"]
mod common;
mod host;

use std::collections::BTreeMap;

use campaign::length;
use common::{BASE, Bench, DATA_ADDR, MEMORY_BYTES, RAW_SLOTS, SGL_ADDR, open_conn, response};
use host::{FULL, Host, Pace};
use iscsi_wire::{Bhs, CmdSn, Itt, Lun, NopIn, R2t, R2tSn, ResponseNumbers, StatSn, Ttt};
use offload::encoding::{
    Abort, CommandState, Completion, OpenConn, PostTask, SendRaw, SetParams, SglElement, SnackState,
    TaskResult, conn_flags, raw_flags, task_flags,
};
use offload::{Engine, HostMem};
use offload_rtl::{
    Burst, Snack, TaskPost, TaskView, Tx, TxInputs, TxPart, TxPost, TxReady, TxSettings, Width,
};

/// Where the PDUs of SEND_RAW are made.
const SEND_ADDR: u64 = BASE + 0x30000;

/// Both engines, and the peer.
struct Pair {
    bench: Bench,
    open: OpenConn,
    host: Host<Tx>,
    random: fastrand::Rng,
    next_itt: u32,
    next_stat_sn: u32,
    now_us: u64,
    /// R2TSN that is next, of each write.
    r2t_sn: BTreeMap<u32, u32>,
    next_snack: u8,
    /// PDUs that were compared, and what else occurred.
    pdus: usize,
    seen: Seen,
}

/// How often something occurred.
type Seen = BTreeMap<&'static str, usize>;

fn random_open(width: Width, level: u8, random: &mut fastrand::Rng) -> OpenConn {
    let flags = random.u8(..) & 0x0f;
    let cmd_sn = if random.bool() { u32::MAX - random.u32(..20) } else { random.u32(..) };
    let most = width.buffer_bytes().min(8192);
    OpenConn {
        max_outstanding_r2t: random.u16(1..=8),
        max_send_data_segment_length: random.u32(512..=most),
        max_burst_length: random.u32(512..=20_000),
        first_burst_length: random.u32(512..=20_000),
        cmd_sn,
        max_cmd_sn: cmd_sn.wrapping_add(random.u32(..8)),
        exp_stat_sn: random.u32(..),
        ..open_conn(flags, level)
    }
}

fn settings(open: &OpenConn) -> TxSettings {
    let has = |flag| open.flags & flag != 0;
    TxSettings {
        header_digest: has(conn_flags::HEADER_DIGEST),
        data_digest: has(conn_flags::DATA_DIGEST),
        initial_r2t: has(conn_flags::INITIAL_R2T),
        immediate_data: has(conn_flags::IMMEDIATE_DATA),
        max_send: open.max_send_data_segment_length,
        max_burst: open.max_burst_length,
        first_burst: open.first_burst_length,
    }
}

impl Pair {
    fn open(width: Width, open: OpenConn, pace: Pace, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::open(open);
        let data: Vec<u8> = (0..MEMORY_BYTES - 0x40000).map(|_| random.u8(..)).collect();
        bench.memory.write(DATA_ADDR, &data).expect("in host memory");
        let tx = Tx::open(width, settings(&open), open.cmd_sn, seed as u16);
        let host = Host::new(tx, pace, seed);
        let next_stat_sn = open.exp_stat_sn;
        let mut pair = Self {
            bench,
            open,
            host,
            random,
            next_itt: 1,
            next_stat_sn,
            now_us: 0,
            r2t_sn: Default::default(),
            next_snack: 0,
            pdus: 0,
            seen: Seen::new(),
        };
        pair.follow_numbers();
        pair
    }

    /// What the receive module would say of the numbers.
    fn follow_numbers(&mut self) {
        let session = self.bench.engine.session(0).expect("open");
        self.host.exp_stat_sn = session.exp_stat_sn;
        self.host.max_cmd_sn = session.max_cmd_sn;
    }

    /// A PDU arrives at the engine in software, and both get its numbers.
    fn arrives(&mut self, bhs: Bhs) {
        let bytes = self.bench.pdu(bhs, &[]);
        assert_eq!(self.bench.rx(&bytes), bytes.len());
        self.bench.engine.release_raw(0, RAW_SLOTS);
        self.follow_numbers();
        assert_eq!(self.bench.engine.session(0).map(|session| session.stop_reason.0), Some(0), "{bhs:?}");
    }

    /// Elements that hold `bytes` together. A few lie where there is no memory.
    fn random_list(&mut self, bytes: u32) -> Vec<(u64, u32)> {
        let mut list = Vec::new();
        let mut left = bytes;
        let most = if self.random.bool() { 300 } else { 20_000 };
        while left > 0 {
            let length = if list.len() == 40 { left } else { self.random.u32(1..=most) };
            let room = (MEMORY_BYTES as u64 - 0x40000).saturating_sub(u64::from(length));
            let absent = self.random.u16(..100) == 0;
            let addr = if absent { 16 } else { DATA_ADDR + self.random.u64(..room) };
            list.push((addr, length));
            left = left.saturating_sub(length);
        }
        list
    }

    fn post(&mut self) {
        if self.host.tasks.len() == 40 || self.host.elements_free() < 64 {
            return;
        }
        let moves = [0, task_flags::READ, task_flags::WRITE, task_flags::WRITE][self.random.usize(..4)];
        let immediate = self.random.u8(..8) == 0;
        let edtl = match (moves, self.random.u8(..4)) {
            (0, _) => 0,
            (_, 0) => self.random.u32(..40),
            (_, 1) => self.random.u32(..2000),
            _ => self.random.u32(..40_000),
        };
        let list = self.random_list(edtl);
        let itt = self.next_itt;
        self.next_itt += 1;
        let post = PostTask {
            flags: moves | if immediate { task_flags::IMMEDIATE } else { 0 },
            itt,
            user: itt.into(),
            lun: self.random.u64(..).to_be_bytes(),
            cdb: self.random.u128(..).to_be_bytes(),
            edtl,
            attr: self.random.u8(..5),
            priority: self.random.u8(..16),
            ..PostTask::default()
        };
        self.post_task(post, &list);
    }

    fn post_task(&mut self, mut post: PostTask, list: &[(u64, u32)]) {
        let records: Vec<u8> = list
            .iter()
            .flat_map(|(addr, length)| SglElement { addr: *addr, length: *length }.emit())
            .collect();
        self.bench.memory.write(SGL_ADDR, &records).expect("in host memory");
        (post.sgl_addr, post.sgl_elements) = (SGL_ADDR, list.len() as u16);
        self.bench.submit(&post.emit());
        assert!(self.bench.completions().is_empty(), "the task was taken");
        let index = (0..=255).find(|index| !self.host.tasks.contains_key(index)).expect("a free index");
        let PostTask { flags, attr, priority, edtl, lun, cdb, itt, .. } = post;
        let view = TaskView {
            itt,
            post: TaskPost { flags, attr, priority, edtl, lun, cdb, ..TaskPost::default() },
            tx: TxPart::default(),
            first: self.host.list(list),
        };
        self.host.tasks.insert(index, view);
        let immediate = flags & task_flags::IMMEDIATE != 0;
        self.host.post(&mut self.bench.memory, TxPost::Command { index, immediate });
    }

    fn index_of(&self, itt: u32) -> u8 {
        *self.host.tasks.iter().find(|(_, task)| task.itt == itt).expect("both have the task").0
    }

    /// A random task that was sent, of those which `wanted` says.
    fn sent_task(&mut self, wanted: impl Fn(&TaskView) -> bool) -> Option<TaskView> {
        let found: Vec<_> =
            self.host.tasks.values().filter(|task| task.tx.sent && wanted(task)).copied().collect();
        (!found.is_empty()).then(|| found[self.random.usize(..found.len())])
    }

    fn window(&mut self) -> (CmdSn, CmdSn) {
        let cmd_sn = self.host.cmd_sn;
        let exp = cmd_sn.wrapping_sub(self.random.u32(..3));
        (CmdSn(exp), CmdSn(cmd_sn.wrapping_add(self.random.u32(..6)).wrapping_sub(1)))
    }

    /// An R2T arrives. `skips` R2Ts before it are lost.
    fn r2t(&mut self, skips: u32) {
        let is_write = |task: &TaskView| task.post.flags & task_flags::WRITE != 0 && task.post.edtl > 0;
        let Some(task) = self.sent_task(is_write) else { return };
        let solicited = |burst: &&offload::encoding::R2tEntry| burst.itt == task.itt && burst.ttt != u32::MAX;
        let open = self.bench.engine.tables().r2ts.iter().filter(solicited).count();
        if open == usize::from(self.open.max_outstanding_r2t) {
            return;
        }
        let offset = self.random.u32(..task.post.edtl);
        let length = self.random.u32(1..=(task.post.edtl - offset).min(self.open.max_burst_length));
        let next = self.r2t_sn.entry(task.itt).or_default();
        let r2t_sn = *next + skips;
        *next = r2t_sn + 1;
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let ttt = self.random.u32(..u32::MAX);
        let lun = if self.random.bool() {
            Lun(u64::from_be_bytes(task.post.lun))
        } else {
            Lun(self.random.u64(..))
        };
        let r2t = R2t {
            lun,
            itt: Itt(task.itt),
            ttt: Ttt(ttt),
            numbers: ResponseNumbers { stat_sn: StatSn(self.next_stat_sn), exp_cmd_sn, max_cmd_sn },
            r2t_sn: R2tSn(r2t_sn),
            buffer_offset: offset,
            desired_data_transfer_length: length,
        };
        self.arrives(r2t.to_bhs());
        let index = self.index_of(task.itt);
        let burst = Burst { index, ttt, lun: lun.0.to_be_bytes(), r2t_sn, offset, length };
        self.host.r2t(&mut self.bench.memory, burst);
    }

    /// A task that was sent is answered. `skips` statuses before it are lost.
    fn answer(&mut self, skips: u32) {
        let Some(task) = self.sent_task(|_| true) else { return };
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let stat_sn = self.next_stat_sn.wrapping_add(skips);
        self.next_stat_sn = stat_sn.wrapping_add(1);
        let mut answer = response(task.itt, stat_sn, 0);
        (answer.numbers.exp_cmd_sn, answer.numbers.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        self.arrives(answer.to_bhs());
        let completions = self.bench.completions();
        assert!(
            matches!(&completions[..], [Completion::TaskDone(done)] if done.itt == task.itt && done.bytes_sent == task.tx.bytes_sent),
            "{completions:?}"
        );
        let index = self.index_of(task.itt);
        self.host.end(&mut self.bench.memory, index);
    }

    /// The peer answers a ping: the window moves, and StatSN.
    fn nop_in(&mut self) {
        let window = self.window();
        self.moves_window(window);
    }

    /// ExpCmdSN and MaxCmdSN arrive.
    fn moves_window(&mut self, (exp_cmd_sn, max_cmd_sn): (CmdSn, CmdSn)) {
        let stat_sn = StatSn(self.next_stat_sn);
        self.next_stat_sn = self.next_stat_sn.wrapping_add(1);
        let nop = NopIn {
            lun: Lun(0),
            itt: Itt(0x7000_0000),
            ttt: Ttt::RESERVED,
            numbers: ResponseNumbers { stat_sn, exp_cmd_sn, max_cmd_sn },
        };
        self.arrives(nop.to_bhs());
        self.bench.completions();
    }

    fn abort(&mut self) {
        let tags: Vec<u32> = self.host.tasks.values().map(|task| task.itt).collect();
        if tags.is_empty() {
            return;
        }
        let itt = tags[self.random.usize(..tags.len())];
        let index = self.index_of(itt);
        self.bench.submit(&Abort { itt, ..Abort::default() }.emit());
        assert_eq!(self.bench.completions().len(), 2);
        self.host.end(&mut self.bench.memory, index);
    }

    fn send_raw(&mut self) {
        let ahs_words = if self.random.bool() { 0 } else { self.random.u8(1..=30) };
        let session = self.bench.engine.session(0).expect("open");
        let data_bytes = self.random.u32(..=session.max_send_data_segment_length.min(700)) as usize;
        let data_bytes = if self.random.bool() { 0 } else { data_bytes };
        let counts = self.random.bool();
        let immediate = self.random.bool();
        let mut bytes: Vec<u8> =
            (0..48 + 4 * usize::from(ahs_words) + data_bytes).map(|_| self.random.u8(..)).collect();
        bytes[0] = u8::from(immediate) << 6;
        bytes[4..8].copy_from_slice(&(data_bytes as u32).to_be_bytes());
        bytes[4] = ahs_words;
        self.bench.memory.write(SEND_ADDR, &bytes).expect("in host memory");
        let flags = if counts { raw_flags::CMD_SN } else { 0 };
        let send = SendRaw { flags, addr: SEND_ADDR, length: bytes.len() as u32, ..SendRaw::default() };
        self.bench.submit(&send.emit());
        let completions = self.bench.completions();
        let [Completion::TaskDone(done)] = &completions[..] else { panic!("{completions:?}") };
        if done.result == TaskResult::TABLE_FULL {
            return;
        }
        assert_eq!(done.result, TaskResult::GOOD);
        let (header, data) = bytes.split_at(48 + 4 * usize::from(ahs_words));
        let numbered = counts && !immediate;
        self.host.stage_raw(numbered, header, data);
        self.host.post(&mut self.bench.memory, TxPost::Raw { numbered, counts });
    }

    fn set_params(&mut self, width: Width) {
        let max_send = self.random.u32(512..=width.buffer_bytes().min(8192));
        let set = SetParams {
            max_send_data_segment_length: max_send,
            max_recv_data_segment_length: self.open.max_recv_data_segment_length,
            snack_delay_us: self.open.snack_delay_us,
            ..SetParams::default()
        };
        self.bench.submit(&set.emit());
        self.bench.completions();
        self.host.circuit.set_max_send(max_send);
    }

    /// Time passes; the SNACKs that become due are queued in the order of the table.
    fn advance(&mut self) {
        self.now_us += 1000;
        self.bench.engine.advance(self.now_us);
        let tables = self.bench.engine.tables();
        for entry in tables.snacks.iter().filter(|entry| entry.state == SnackState::DUE) {
            let lun = self
                .host
                .tasks
                .values()
                .find(|task| task.itt == entry.itt)
                .map_or([0; 8], |task| task.post.lun);
            let snack = Snack {
                snack_type: entry.snack_type,
                itt: entry.itt,
                ttt: entry.ttt,
                lun,
                beg_run: entry.beg_run,
                run_length: entry.run_length,
            };
            let index = self.next_snack;
            self.next_snack = self.next_snack.wrapping_add(1);
            self.host.snacks.insert(index, snack);
            self.host.post(&mut self.bench.memory, TxPost::Snack(index));
        }
    }

    /// Everything that may be sent is sent and compared, and so are the tables.
    fn compare(&mut self) {
        let expected = self.bench.tx();
        let refused = self.bench.completions().into_iter().filter_map(|completion| match completion {
            Completion::TaskDone(done) => {
                assert_eq!(done.result, TaskResult::MEMORY);
                Some((done.itt, done.bytes_sent))
            }
            _ => None,
        });
        let refused: Vec<_> = refused.collect();
        let sent_before: BTreeMap<u32, u32> =
            self.host.tasks.values().map(|task| (task.itt, task.tx.bytes_sent)).collect();
        self.host.faults.clear();
        self.host.stream.clear();
        self.host.drain(&mut self.bench.memory);
        let stream = std::mem::take(&mut self.host.stream);
        let differs = stream.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
        assert!(
            stream == expected,
            "{} bytes, not {}; the first difference: {differs:?}",
            stream.len(),
            expected.len()
        );
        assert_eq!(self.host.faults, refused.iter().map(|(itt, _)| *itt).collect::<Vec<_>>());
        assert!(refused.iter().all(|(itt, bytes)| sent_before[itt] <= *bytes));
        self.compare_tables();
        self.count_pdus(&expected);
        *self.seen.entry("refused memory").or_default() += refused.len();
        if self.host.tasks.values().any(|task| !task.tx.sent) {
            *self.seen.entry("closed window").or_default() += 1;
        }
    }

    fn compare_tables(&mut self) {
        let tables = self.bench.engine.tables();
        assert_eq!(self.host.cmd_sn, tables.sessions[0].cmd_sn);
        let mut ours: Vec<_> = self.host.tasks.values().map(|task| (task.itt, task.tx)).collect();
        ours.sort_by_key(|(itt, _)| *itt);
        let theirs = tables.commands.iter().map(|entry| {
            let sent = entry.state != CommandState::QUEUED;
            (entry.itt, sent, entry.cmd_sn, entry.exp_stat_sn, entry.bytes_sent)
        });
        let ours = ours.into_iter().map(|(itt, tx)| (itt, tx.sent, tx.cmd_sn, tx.exp_stat_sn, tx.bytes_sent));
        assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
        assert!(tables.r2ts.is_empty(), "all that was requested was sent");
        assert!(self.host.peek(&mut self.bench.memory).is_empty());
    }

    /// The R2T table before anything of it is sent.
    fn compare_r2ts(&mut self) {
        let theirs = self.bench.engine.tables().r2ts;
        let ours = self.host.peek(&mut self.bench.memory);
        let ours = ours.iter().map(|entry| {
            let Burst { index, ttt, r2t_sn, offset, length, .. } = entry.burst;
            (self.host.tasks[&index].itt, ttt, r2t_sn, offset, length, entry.sent, entry.data_sn)
        });
        let theirs = theirs.iter().map(|entry| {
            (entry.itt, entry.ttt, entry.r2t_sn, entry.offset, entry.length, entry.sent, entry.data_sn)
        });
        assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    }

    fn count_pdus(&mut self, bytes: &[u8]) {
        let has = |flag| self.open.flags & flag != 0;
        let mut at = 0;
        while let Some(first) = bytes.get(at..at + 8) {
            let data = u32::from_be_bytes([0, first[5], first[6], first[7]]).next_multiple_of(4) as usize;
            at += 48 + 4 * usize::from(first[4]) + data;
            at += if has(conn_flags::HEADER_DIGEST) { 4 } else { 0 };
            at += if has(conn_flags::DATA_DIGEST) && data > 0 { 4 } else { 0 };
            let kind = match (first[0] & 0x3f, data) {
                (0x01, 0) => "command",
                (0x01, _) => "immediate data",
                (0x05, _) => "Data-Out",
                (0x10, _) => "SNACK",
                _ => "PDU of software",
            };
            *self.seen.entry(kind).or_default() += 1;
            self.pdus += 1;
        }
    }
}

/// Random events, and after some of them everything is compared.
fn campaign(width: Width, pdus: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut compared = 0;
    let mut seen = Seen::new();
    while compared < pdus {
        let level = random.u8(..3);
        let open = random_open(width, level, &mut random);
        let pace = Pace {
            busy: [0, 0, 50, 90][random.usize(..4)],
            slow: [0, 0, 50][random.usize(..3)],
            latency: [0, 3, 60][random.usize(..3)],
        };
        let mut pair = Pair::open(width, open, pace, random.u64(..));
        for _ in 0..25 {
            for _ in 0..random.usize(1..12) {
                let lost = if level > 0 && random.u8(..4) == 0 { random.u32(1..4) } else { 0 };
                match random.u8(..16) {
                    0..4 => pair.post(),
                    4..9 => pair.r2t(lost),
                    9..11 => pair.send_raw(),
                    11 => pair.answer(lost),
                    12 => pair.nop_in(),
                    13 => pair.abort(),
                    14 => pair.set_params(width),
                    _ => pair.compare_r2ts(),
                }
            }
            if level > 0 && random.bool() {
                pair.advance();
            }
            pair.compare();
        }
        compared += pair.pdus;
        pair.seen.iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    }
    println!("{width:?}: {compared} PDUs; {seen:?}");
    assert!(seen.len() == 7 && seen.values().all(|count| *count >= 10), "{seen:?}");
}

#[test]
fn the_same_events_give_the_same_bytes_and_tables() {
    campaign(Width::Bits64, length(3000), 1);
    campaign(Width::Bits512, length(3000), 2);
}

/// R2Ts that the table has no room for wait. A command whose unsolicited data needs a place in the table does not wait with them: nothing
/// would leave the table before it has ended.
#[test]
fn a_full_r2t_table_empties_while_commands_with_unsolicited_data_begin() {
    const LENGTH: u32 = 512;
    for width in [Width::Bits64, Width::Bits512] {
        let open = OpenConn { first_burst_length: LENGTH, max_cmd_sn: 100, ..open_conn(0, 0) };
        let mut pair = Pair::open(width, open, FULL, 3);
        let write = |itt| PostTask { flags: task_flags::WRITE, itt, edtl: LENGTH, ..PostTask::default() };
        pair.post_task(write(1), &[(DATA_ADDR, LENGTH)]);
        pair.compare();
        let lun = common::LUN.0.to_be_bytes();
        let (mut taken, mut begun) = (0, 0);
        // First nothing may be begun, so that the table fills. Then the other commands begin, and while each is on its way, R2Ts come.
        for cycle in 0..20_000 {
            let room = cycle >= 1000;
            if cycle == 1000 {
                assert!((500..=512).contains(&taken), "{width:?}: {taken} R2Ts fill the table");
                (2..10).for_each(|itt| pair.post_task(write(itt), &[(DATA_ADDR, LENGTH)]));
            }
            let comes = !room || cycle < begun + 300;
            let r2t = Burst { index: 0, ttt: 7, lun, r2t_sn: taken, offset: 0, length: 4 };
            let ready = TxReady { room, ..TxReady::default() };
            let given = TxInputs { r2t: comes.then_some(r2t), ready, ..TxInputs::default() };
            let said = pair.host.step(&mut pair.bench.memory, given);
            taken += u32::from(said.taken.r2t);
            if said.look.is_some_and(|index| !pair.host.tasks[&index].tx.sent) {
                begun = cycle;
            }
        }
        pair.host.drain(&mut pair.bench.memory);
        assert!(pair.host.peek(&mut pair.bench.memory).is_empty());
        let sent: Vec<u32> = pair.host.tasks.values().map(|task| task.tx.bytes_sent).collect();
        assert_eq!(sent[0], LENGTH + 4 * taken, "{width:?}");
        assert_eq!(sent[1..], [LENGTH; 8], "{width:?}");
    }
}

/// The window opens in the cycle in which there is room. What waited for the window goes first, and nothing passes it any more.
#[test]
fn a_window_that_opens_when_room_comes_is_seen() {
    for width in [Width::Bits64, Width::Bits512] {
        let open = OpenConn { cmd_sn: 5, max_cmd_sn: 4, ..open_conn(0, 0) };
        let mut pair = Pair::open(width, open, FULL, 4);
        for (itt, flags) in [(1, 0), (2, task_flags::IMMEDIATE)] {
            pair.post_task(PostTask { flags, itt, ..PostTask::default() }, &[]);
        }
        // Both are at the front of the queue, and for want of room neither is begun.
        for _ in 0..20 {
            pair.host.step(&mut pair.bench.memory, TxInputs::default());
        }
        pair.moves_window((CmdSn(5), CmdSn(8)));
        pair.compare();
    }
}

/// There is room again in the cycle after a command was posted, before the queue has it at its front. It goes before the rest of a burst
/// nevertheless.
#[test]
fn what_is_posted_goes_before_the_rest_of_a_burst() {
    const PDU_BYTES: usize = 48 + 512;
    for width in [Width::Bits64, Width::Bits512] {
        let open = OpenConn {
            cmd_sn: 5,
            max_cmd_sn: 9,
            max_send_data_segment_length: 512,
            ..open_conn(conn_flags::INITIAL_R2T, 0)
        };
        let mut pair = Pair::open(width, open, FULL, 6);
        let edtl = 16 * 512;
        let write = PostTask { flags: task_flags::WRITE, itt: 1, edtl, ..PostTask::default() };
        pair.post_task(write, &[(DATA_ADDR, edtl)]);
        pair.compare();
        let lun = common::LUN.0.to_be_bytes();
        let burst = Burst { index: 0, ttt: 7, lun, r2t_sn: 0, offset: 0, length: edtl };
        pair.host.r2t(&mut pair.bench.memory, burst);
        let room = TxInputs { ready: TxReady { room: true, ..TxReady::default() }, ..TxInputs::default() };
        pair.host.until(&mut pair.bench.memory, &room, |said| said.read.is_some());
        for _ in 0..500 {
            pair.host.step(&mut pair.bench.memory, TxInputs::default());
        }
        let begun = pair.host.stream.len() / PDU_BYTES;
        assert!((1..16).contains(&begun), "{begun} Data-Out before there was no room");
        pair.post_task(PostTask { itt: 2, ..PostTask::default() }, &[]);
        pair.host.drain(&mut pair.bench.memory);
        let stream = &pair.host.stream;
        assert_eq!(
            (stream.len(), stream[begun * (48 + 512)] & 0x3f),
            (16 * (48 + 512) + 48, 0x01),
            "{width:?}"
        );
    }
}

/// Beats of the stream for each cycle, with both digests: `cargo test ... --test tx beats -- --nocapture` prints them.
#[test]
fn beats_per_cycle_are_above_the_bar() {
    for (width, data_bytes, bar) in [
        (Width::Bits512, 8192, 0.97),
        (Width::Bits512, 512, 0.85),
        (Width::Bits64, 4096, 0.97),
        (Width::Bits64, 512, 0.85),
    ] {
        let open = OpenConn {
            max_send_data_segment_length: data_bytes,
            max_burst_length: 0x20000,
            ..open_conn(common::BOTH_DIGESTS | conn_flags::INITIAL_R2T, 0)
        };
        let mut pair = Pair::open(width, open, FULL, 5);
        let edtl = 0x60000;
        let post = PostTask { flags: task_flags::WRITE, itt: 1, edtl, ..PostTask::default() };
        pair.post_task(post, &[(DATA_ADDR, edtl)]);
        pair.compare();
        pair.host.beats = None;
        for (sn, offset) in (0..).zip((0..edtl).step_by(0x20000)) {
            let bytes = pair.bench.r2t(1, 7, sn, offset, 0x20000);
            pair.bench.rx(&bytes);
            let lun = common::LUN.0.to_be_bytes();
            let burst = Burst { index: 0, ttt: 7, lun, r2t_sn: sn, offset, length: 0x20000 };
            pair.host.r2t(&mut pair.bench.memory, burst);
            if sn == 1 {
                break;
            }
        }
        pair.follow_numbers();
        pair.compare();
        let (first, last) = pair.host.beats.expect("something was sent");
        let bytes = (0x40000 / data_bytes as usize) * (data_bytes as usize + 56);
        let beats = bytes as f64 / width.bytes() as f64;
        let rate = beats / (last - first + 1) as f64;
        println!(
            "{width:?}: Data-Out of {data_bytes} bytes: {beats} beats in {} cycles, {rate:.3}",
            last - first + 1
        );
        assert!(rate >= bar, "{width:?}, {data_bytes} bytes: {rate:.3} is below {bar}");
    }
}
