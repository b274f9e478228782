//! The transmit half of the engine against the engine in software: the same descriptors, valid or not, through the command buffer.
#![forbid(unsafe_code)]

#[path = "../campaign/mod.rs"]
mod campaign;
#[path = "../../../offload/tests/common/mod.rs"]
mod common;
#[path = "../tx/host.rs"]
#[allow(dead_code, reason = "the tests of the transmit module use the rest")]
mod host;

use std::collections::BTreeMap;

use campaign::length;
use common::{BASE, BOTH_DIGESTS, Bench, DATA_ADDR, MEMORY_BYTES, RAW_SLOTS, SGL_ADDR, open_conn, response};
use host::{Circuit, Host, Pace};
use iscsi_wire::{CmdSn, Itt, Lun, R2t, R2tSn, ResponseNumbers, StatSn, Ttt};
use offload::encoding::{
    Abort, CommandState, Completion, DescriptorKind, OpenConn, PostTask, SendRaw, SetParams, SetPoly,
    SglElement, TaskDone, TaskResult, raw_flags, task_flags,
};
use offload::{Engine, HostMem};
use offload_rtl::{
    Burst, EngineTx, EngineTxInputs, StoreReply, StoreRequest, TaskView, TxCycle, TxInputs, TxPart, TxReady,
    Width,
};

const SEND_ADDR: u64 = BASE + 0x30000;

/// The circuit, with its command buffer and what it asks of the task store.
struct Half {
    circuit: EngineTx,
    descriptor: Option<[u8; 64]>,
    request: Option<StoreRequest>,
    reply: Option<StoreReply>,
    done: Vec<[u8; 64]>,
}

impl Circuit for Half {
    fn cycle(&mut self, given: &TxInputs) -> TxCycle {
        // The answer to PEEK comes on the lines of a look-up's.
        let reply = if given.looked.is_none() { self.reply.take() } else { None };
        let inputs = EngineTxInputs { tx: given.clone(), descriptor: self.descriptor, due: None, reply };
        let said = self.circuit.cycle(&inputs);
        if said.descriptor_taken {
            self.descriptor = None;
        }
        self.done.extend(said.done);
        self.request = self.request.or(said.request);
        said.tx
    }

    fn width(&self) -> Width {
        self.circuit.width()
    }
}

/// Both engines, the peer, and the task store.
struct Pair {
    width: Width,
    bench: Bench,
    host: Host<Half>,
    random: fastrand::Rng,
    posting: (u8, u32, Vec<(u64, u32)>),
    /// Tasks that were ended: tag, result, bytes sent.
    ended: Vec<(u32, u8, u32)>,
    next_itt: u32,
    next_stat_sn: u32,
    r2t_sn: BTreeMap<u32, u32>,
    is_open: bool,
    max_outstanding_r2t: u16,
    max_burst: u32,
    raws: usize,
    results: BTreeMap<u8, usize>,
    pdu_bytes: usize,
}

impl Pair {
    fn new(width: Width, pace: Pace, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::open(open_conn(0, 0));
        bench.submit(&Abort { itt: u32::MAX, ..Abort::default() }.emit());
        bench.completions();
        let data: Vec<u8> = (0..MEMORY_BYTES - 0x40000).map(|_| random.u8(..)).collect();
        bench.memory.write(DATA_ADDR, &data).expect("in host memory");
        let circuit = EngineTx::new(width, seed as u16);
        let half = Half { circuit, descriptor: None, request: None, reply: None, done: Vec::new() };
        Self {
            width,
            bench,
            host: Host::new(half, pace, seed),
            random,
            posting: (0, 0, Vec::new()),
            ended: Vec::new(),
            next_itt: 1,
            next_stat_sn: 0,
            r2t_sn: BTreeMap::new(),
            is_open: false,
            max_outstanding_r2t: 1,
            max_burst: 512,
            raws: 0,
            results: BTreeMap::new(),
            pdu_bytes: 0,
        }
    }

    /// One cycle, and what the task store does in it.
    fn step(&mut self, room: bool) -> TxCycle {
        let said = self.host.step(
            &mut self.bench.memory,
            TxInputs { ready: TxReady { room, ..TxReady::default() }, ..TxInputs::default() },
        );
        if let Some(request) = self.host.circuit.request.take() {
            let (result, index, itt) = self.serve(request);
            self.host.circuit.reply = Some(StoreReply { result: result.0, index, itt });
        }
        said
    }

    fn serve(&mut self, request: StoreRequest) -> (TaskResult, u8, u32) {
        let tasks = &self.host.tasks;
        let index_of = |itt: u32| tasks.iter().find(|(_, task)| task.itt == itt).map(|(index, _)| *index);
        match request {
            StoreRequest::PostBegin(itt) => {
                match (index_of(itt), (0..=255).find(|at| !tasks.contains_key(at))) {
                    (Some(_), _) => (TaskResult::ITT_IN_USE, 0, 0),
                    (None, None) => (TaskResult::TABLE_FULL, 0, 0),
                    (None, Some(index)) => {
                        self.posting = (index, itt, Vec::new());
                        (TaskResult::GOOD, index, 0)
                    }
                }
            }
            StoreRequest::PostElement(addr, length) => {
                self.posting.2.push((addr, length));
                (TaskResult::GOOD, 0, 0)
            }
            StoreRequest::PostEnd(post) => {
                let (index, itt, list) = std::mem::take(&mut self.posting);
                let total: u64 = list.iter().map(|(_, length)| u64::from(*length)).sum();
                let bad = |(addr, length): &(u64, u32)| {
                    *length == 0 || addr.checked_add(u64::from(*length)).is_none()
                };
                if list.iter().any(bad) || total < u64::from(post.edtl) {
                    return (TaskResult::BAD_SGL, 0, 0);
                }
                let first = self.host.list(&list);
                self.host.tasks.insert(index, TaskView { itt, post, tx: TxPart::default(), first });
                (TaskResult::GOOD, 0, 0)
            }
            StoreRequest::PostCancel => (TaskResult::GOOD, 0, 0),
            StoreRequest::EndTask(itt, result) => match index_of(itt) {
                None => (TaskResult::NO_TASK, 0, 0),
                Some(index) => {
                    let task = self.host.tasks.remove(&index).expect("it was found");
                    self.ended.push((itt, result, task.tx.bytes_sent));
                    self.host.ending.push_back(index);
                    (TaskResult::GOOD, 0, 0)
                }
            },
            StoreRequest::Peek(index) => match tasks.get(&index) {
                Some(task) => (TaskResult::GOOD, index, task.itt),
                None => (TaskResult::NO_TASK, index, 0),
            },
        }
    }

    fn until_idle(&mut self, room: bool) {
        let limit = self.host.cycles + 20_000_000;
        let mut quiet = 0;
        while quiet < 3 {
            assert!(self.host.cycles < limit, "it does not come to an end");
            let said = self.step(room);
            let waits = self.host.circuit.descriptor.is_some() || self.host.circuit.reply.is_some();
            quiet = if said.state.idle && !waits && self.host.ending.is_empty() { quiet + 1 } else { 0 };
        }
    }

    /// Executes a descriptor with both; the completions must be the same. Returns the result, if it is known yet.
    fn submit(&mut self, record: [u8; 64]) -> Option<TaskResult> {
        self.bench.submit(&record);
        let mut theirs: Vec<TaskDone> = Vec::new();
        while let Some(done) = self.bench.engine.poll() {
            match Completion::parse(&done) {
                Some(Completion::TaskDone(done)) => theirs.push(done),
                other => panic!("{other:?}"),
            }
        }
        self.ended.clear();
        self.host.circuit.descriptor = Some(record);
        self.until_idle(false);
        // Of ABORT: first the tasks, then itself.
        let own = if DescriptorKind(record[0]) == DescriptorKind::ABORT {
            theirs.split_off(theirs.len() - 1)
        } else {
            std::mem::take(&mut theirs)
        };
        let ours: Vec<_> = std::mem::take(&mut self.host.circuit.done);
        assert_eq!(ours, own.iter().map(TaskDone::emit).collect::<Vec<_>>(), "{record:02x?}");
        let ended: Vec<_> = theirs.iter().map(|done| (done.itt, done.result.0, done.bytes_sent)).collect();
        assert_eq!(self.ended, ended);
        let result = own.first().map(|done| done.result);
        if let Some(result) = result {
            *self.results.entry(result.0).or_default() += 1;
        }
        result
    }

    fn follow_numbers(&mut self) {
        let Some(session) = self.bench.engine.session(0) else { return };
        self.host.exp_stat_sn = session.exp_stat_sn;
        self.host.max_cmd_sn = session.max_cmd_sn;
    }

    fn open(&mut self) {
        let most = self.width.buffer_bytes();
        let cmd_sn = self.random.u32(..);
        let mut open = OpenConn {
            max_outstanding_r2t: self.random.u16(1..=8),
            max_recv_data_segment_length: self.random.u32(512..=most.min(8192)),
            max_send_data_segment_length: self.random.u32(512..=20_000),
            max_burst_length: self.random.u32(512..=20_000),
            first_burst_length: self.random.u32(512..=20_000),
            cmd_sn,
            max_cmd_sn: cmd_sn.wrapping_add(self.random.u32(..8)),
            exp_stat_sn: self.random.u32(..),
            user: self.random.u64(..),
            ..open_conn(self.random.u8(..) & 0x0f, 0)
        };
        // The engine in software has a buffer of 64 KiB at any width.
        if self.width == Width::Bits64 {
            open.max_send_data_segment_length = open.max_send_data_segment_length.min(most);
        }
        match self.random.u8(..30) {
            0 => open.flags |= 0x10,
            1 => open.error_recovery_level = 3,
            2 => open.max_recv_data_segment_length = [0, 511, 65537][self.random.usize(..3)],
            3 => open.max_send_data_segment_length = 511,
            4 => open.max_burst_length = [511, 0x100_0000][self.random.usize(..2)],
            5 => open.first_burst_length = [511, 0x100_0000][self.random.usize(..2)],
            6 => open.max_outstanding_r2t = [0, 9][self.random.usize(..2)],
            7 => open.raw_slots = [0, 1025][self.random.usize(..2)],
            8 => open.raw_slot_bytes = open.max_recv_data_segment_length + 1067,
            9 => open.conn = 16,
            _ => {}
        }
        let was_open = self.is_open;
        let result = self.submit(open.emit());
        assert!(!was_open || result != Some(TaskResult::GOOD));
        if result == Some(TaskResult::GOOD) {
            self.is_open = true;
            self.bench.digests = open.flags & BOTH_DIGESTS;
            self.next_stat_sn = open.exp_stat_sn;
            self.max_outstanding_r2t = open.max_outstanding_r2t;
            self.max_burst = open.max_burst_length;
            self.raws = 0;
            self.r2t_sn.clear();
            self.follow_numbers();
        }
    }

    fn random_list(&mut self, bytes: u32) -> Vec<(u64, u32)> {
        let mut list = Vec::new();
        let mut left = bytes;
        let most = if self.random.bool() { 300 } else { 20_000 };
        while left > 0 {
            let length = if list.len() == 30 { left } else { self.random.u32(1..=most) };
            let room = (MEMORY_BYTES as u64 - 0x40000).saturating_sub(u64::from(length));
            let absent = self.random.u16(..300) == 0;
            list.push((if absent { 16 } else { DATA_ADDR + self.random.u64(..room) }, length));
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
        let edtl = match (moves, self.random.u8(..3)) {
            (0, _) => 0,
            (_, 0) => self.random.u32(..40),
            _ => self.random.u32(..30_000),
        };
        let mut list = self.random_list(edtl);
        let mut post = PostTask {
            flags: moves | if immediate { task_flags::IMMEDIATE } else { 0 },
            itt: self.next_itt,
            user: self.random.u64(..),
            lun: self.random.u64(..).to_be_bytes(),
            cdb: self.random.u128(..).to_be_bytes(),
            edtl,
            attr: self.random.u8(..5),
            priority: self.random.u8(..16),
            sgl_addr: SGL_ADDR,
            sense_addr: self.random.u64(..),
            ..PostTask::default()
        };
        self.next_itt += 1;
        match self.random.u8(..40) {
            0 => post.flags = 3,
            1 => post.flags |= 0x08,
            2 => (post.flags, post.edtl) = (0, 1),
            3 => post.itt = u32::MAX,
            4 => post.attr = 5,
            5 => post.priority = 16,
            6 => post.sgl_addr = 16,
            7 => post.conn = 1,
            8 => list.extend((0..257).map(|_| (DATA_ADDR, 1))),
            9 => list.push((DATA_ADDR, 0)),
            10 => list.push((u64::MAX - 4, 5)),
            11 => drop(list.pop()),
            12 => post.itt = self.host.tasks.values().next().map_or(1, |task| task.itt),
            13 => list.push((u64::MAX - 5, 5)),
            _ => {}
        }
        let records: Vec<u8> = list
            .iter()
            .flat_map(|(addr, length)| SglElement { addr: *addr, length: *length }.emit())
            .collect();
        self.bench.memory.write(SGL_ADDR, &records).expect("in host memory");
        post.sgl_elements = list.len() as u16;
        self.submit(post.emit());
    }

    fn send_raw(&mut self) {
        if self.raws == 12 {
            return;
        }
        let ahs_words = if self.random.bool() { 0 } else { self.random.u8(1..=30) };
        let data_bytes = if self.random.bool() { 0 } else { self.random.u32(..100) };
        let immediate = self.random.bool();
        let length = 48 + 4 * u32::from(ahs_words) + data_bytes;
        let mut bytes: Vec<u8> = (0..length).map(|_| self.random.u8(..)).collect();
        bytes[0] = u8::from(immediate) << 6;
        bytes[4..8].copy_from_slice(&data_bytes.to_be_bytes());
        bytes[4] = ahs_words;
        self.bench.memory.write(SEND_ADDR, &bytes).expect("in host memory");
        let flags = if self.random.bool() { raw_flags::CMD_SN } else { 0 };
        let mut send =
            SendRaw { flags, addr: SEND_ADDR, length, user: self.random.u64(..), ..SendRaw::default() };
        match self.random.u8(..30) {
            0 => send.flags |= 2,
            1 => send.length = self.random.u32(..48),
            2 => send.length += 1,
            3 => send.addr = 16,
            4 => send.addr = BASE + MEMORY_BYTES as u64 - 48,
            _ => {}
        }
        self.submit(send.emit());
        self.raws += 1;
    }

    fn others(&mut self) {
        let most = self.width.buffer_bytes().min(8192);
        let tags: Vec<u32> = self.host.tasks.values().map(|task| task.itt).collect();
        match self.random.u8(..6) {
            0..2 if !tags.is_empty() => {
                let itt = tags[self.random.usize(..tags.len())];
                self.submit(Abort { itt, ..Abort::default() }.emit());
            }
            2 => drop(self.submit(Abort { itt: 0x4000_0000, ..Abort::default() }.emit())),
            3 => {
                let set = SetParams {
                    max_send_data_segment_length: self.random.u32(500..=most),
                    max_recv_data_segment_length: self.random.u32(500..=most),
                    snack_delay_us: 5,
                    ..SetParams::default()
                };
                self.submit(set.emit());
            }
            4 => {
                let polynomial = [0x1edc_6f41, 0x1edc_6f40][self.random.usize(..2)];
                let (init, xor_out) = (u32::MAX, u32::MAX);
                self.submit(SetPoly { polynomial, init, xor_out, ..SetPoly::default() }.emit());
            }
            _ => {
                let mut record = [0; 64];
                record.iter_mut().for_each(|byte| *byte = self.random.u8(..));
                // What is not defined, and RESYNC of a connection that has not stopped.
                record[0] = [0, 7, 8, 0x81][self.random.usize(..4)];
                self.submit(record);
            }
        }
    }

    /// ABORT of all tasks, which closes the connection.
    fn close(&mut self) {
        self.submit(Abort { itt: u32::MAX, ..Abort::default() }.emit());
        self.is_open = false;
    }

    fn window(&mut self) -> (CmdSn, CmdSn) {
        let cmd_sn = self.host.cmd_sn;
        let ahead = self.random.u32(..6);
        (CmdSn(cmd_sn), CmdSn(cmd_sn.wrapping_add(ahead).wrapping_sub(1)))
    }

    fn sent_task(&mut self, wanted: impl Fn(&TaskView) -> bool) -> Option<TaskView> {
        let found: Vec<_> =
            self.host.tasks.values().filter(|task| task.tx.sent && wanted(task)).copied().collect();
        (!found.is_empty()).then(|| found[self.random.usize(..found.len())])
    }

    fn arrives(&mut self, bytes: &[u8]) {
        assert_eq!(self.bench.rx(bytes), bytes.len());
        self.bench.engine.release_raw(0, RAW_SLOTS);
        self.follow_numbers();
    }

    fn r2t(&mut self) {
        let is_write = |task: &TaskView| task.post.flags & task_flags::WRITE != 0 && task.post.edtl > 0;
        let Some(task) = self.sent_task(is_write) else { return };
        let tables = self.bench.engine.tables();
        let open = tables.r2ts.iter().filter(|burst| burst.itt == task.itt && burst.ttt != u32::MAX).count();
        if open == usize::from(self.max_outstanding_r2t) {
            return;
        }
        let offset = self.random.u32(..task.post.edtl);
        let length = self.random.u32(1..=(task.post.edtl - offset).min(self.max_burst));
        let next = self.r2t_sn.entry(task.itt).or_default();
        let r2t_sn = *next;
        *next += 1;
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let (ttt, lun) = (self.random.u32(..u32::MAX), Lun(self.random.u64(..)));
        let r2t = R2t {
            lun,
            itt: Itt(task.itt),
            ttt: Ttt(ttt),
            numbers: ResponseNumbers { stat_sn: StatSn(self.next_stat_sn), exp_cmd_sn, max_cmd_sn },
            r2t_sn: R2tSn(r2t_sn),
            buffer_offset: offset,
            desired_data_transfer_length: length,
        };
        let bytes = self.bench.pdu(r2t.to_bhs(), &[]);
        self.arrives(&bytes);
        let index = *self.host.tasks.iter().find(|(_, other)| other.itt == task.itt).expect("it was found").0;
        let burst = Burst { index, ttt, lun: lun.0.to_be_bytes(), r2t_sn, offset, length };
        self.host.r2t(&mut self.bench.memory, burst);
    }

    fn answer(&mut self) {
        let Some(task) = self.sent_task(|_| true) else { return };
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let mut answer = response(task.itt, self.next_stat_sn, 0);
        (answer.numbers.exp_cmd_sn, answer.numbers.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
        self.next_stat_sn = self.next_stat_sn.wrapping_add(1);
        let bytes = self.bench.pdu(answer.to_bhs(), &[]);
        self.arrives(&bytes);
        assert_eq!(self.bench.completions().len(), 1);
        let index = *self.host.tasks.iter().find(|(_, other)| other.itt == task.itt).expect("it was found").0;
        self.host.tasks.remove(&index);
        self.host.ending.push_back(index);
        self.until_idle(false);
    }

    /// Everything that may be sent is sent and compared.
    fn compare(&mut self) {
        let expected = self.bench.tx();
        self.ended.clear();
        self.host.stream.clear();
        self.until_idle(true);
        assert!(self.host.stream == expected, "{} bytes, not {}", self.host.stream.len(), expected.len());
        let refused: Vec<_> = self
            .bench
            .completions()
            .into_iter()
            .filter_map(|completion| match completion {
                Completion::TaskDone(done) => Some((done.itt, done.result.0, done.bytes_sent)),
                _ => None,
            })
            .collect();
        assert_eq!(self.ended, refused);
        self.pdu_bytes += expected.len();
        let tables = self.bench.engine.tables();
        let theirs = tables.commands.iter().map(|entry| {
            let sent = entry.state != CommandState::QUEUED;
            (entry.itt, sent, entry.cmd_sn, entry.exp_stat_sn, entry.bytes_sent)
        });
        let mut ours: Vec<_> = self
            .host
            .tasks
            .values()
            .map(|task| (task.itt, task.tx.sent, task.tx.cmd_sn, task.tx.exp_stat_sn, task.tx.bytes_sent))
            .collect();
        ours.sort_unstable();
        assert_eq!(ours, theirs.collect::<Vec<_>>());
        if let Some(session) = tables.sessions.first() {
            assert_eq!(self.host.cmd_sn, session.cmd_sn);
            // An open window lets all PDUs of software go.
            if CmdSn(session.cmd_sn).le(CmdSn(session.max_cmd_sn)) {
                self.raws = 0;
            }
        }
    }
}

fn campaign(width: Width, rounds: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut results = BTreeMap::<u8, usize>::new();
    let mut bytes = 0;
    for _ in 0..rounds {
        let pace = Pace {
            busy: [0, 50][random.usize(..2)],
            slow: [0, 50][random.usize(..2)],
            latency: [0, 20][random.usize(..2)],
        };
        let mut pair = Pair::new(width, pace, random.u64(..));
        for _ in 0..30 {
            for _ in 0..random.usize(1..10) {
                match random.u8(..20) {
                    _ if !pair.is_open => pair.open(),
                    0 => pair.open(),
                    1..8 => pair.post(),
                    8..12 => pair.send_raw(),
                    12..16 => pair.r2t(),
                    16 => pair.answer(),
                    _ => pair.others(),
                }
            }
            pair.compare();
            if random.u8(..8) == 0 {
                pair.close();
            }
        }
        bytes += pair.pdu_bytes;
        pair.results.iter().for_each(|(result, count)| *results.entry(*result).or_default() += count);
    }
    println!("{width:?}: {bytes} bytes sent; results {results:?}");
    // GOOD, INVALID, NO_CONNECTION, NO_TASK, ITT_IN_USE, BAD_SGL, MEMORY, NOT_SUPPORTED.
    assert!([0, 2, 3, 4, 5, 7, 8, 9].iter().all(|code| results.contains_key(code)), "{results:?}");
}

#[test]
fn descriptors_have_the_results_and_the_bytes_of_the_engine_in_software() {
    campaign(Width::Bits64, length(30), 1);
    campaign(Width::Bits512, length(30), 2);
}

/// 64 PDUs of software wait for the window, and the next one is refused, whoever counts.
#[test]
fn the_queue_of_raw_pdus_has_a_bound() {
    let mut pair = Pair::new(Width::Bits512, Pace { busy: 0, slow: 0, latency: 0 }, 7);
    let open = OpenConn { max_cmd_sn: 9, ..open_conn(BOTH_DIGESTS, 0) };
    assert_eq!(pair.submit(open.emit()), Some(TaskResult::GOOD));
    pair.follow_numbers();
    pair.bench.digests = BOTH_DIGESTS;
    pair.bench.memory.write(SEND_ADDR, &[0; 48]).expect("in host memory");
    let send = SendRaw { flags: raw_flags::CMD_SN, addr: SEND_ADDR, length: 48, ..SendRaw::default() };
    for n in 0..66 {
        let result = pair.submit(send.emit());
        assert_eq!(result, Some(if n < 64 { TaskResult::GOOD } else { TaskResult::TABLE_FULL }), "{n}");
    }
    pair.compare();
}
