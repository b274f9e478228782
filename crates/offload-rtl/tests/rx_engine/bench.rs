//! The circuit and the engine in software side by side: the same descriptors and the same bytes, each with host memory of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use offload::encoding::{
    Abort, CompletionKind, OpenConn, PostTask, Resync, SessionEntry, SglElement, TaskDone, TaskResult,
    conn_flags, task_flags,
};
use offload::{Engine, FlatMemory, HostMem, SoftwareEngine};
use offload_rtl::{
    RxConnection, RxEngine, RxEntry, RxInputs, RxOutputs, RxR2t, RxReady, RxReply, StoreRequest, TaskPost,
    TxPart, Width,
};

use super::random::{BASE, DATA_ADDR, LIST_ADDR, MEMORY_BYTES};

/// How often the surroundings of the circuit are busy, in percent of the cycles.
#[derive(Clone, Copy)]
pub struct Pace {
    pub gaps: u8,
    pub busy: u8,
    pub cut: bool,
    /// Cycles from an announcement to its answer, at least.
    pub latency: usize,
}

/// No completion: a PDU has waited for a slot of the ring.
pub const WAITED: CompletionKind = CompletionKind(0);

pub const FULL: Pace = Pace { gaps: 0, busy: 0, cut: false, latency: 1 };

/// What the circuit has for its surroundings.
#[derive(Default)]
struct Host {
    /// Whether each announced run is refused, and in how many cycles that may be said.
    answers: VecDeque<(bool, usize)>,
    completions: Vec<[u8; 64]>,
    r2ts: Vec<RxR2t>,
    replies: Vec<RxReply>,
}

pub struct Bench {
    pub rtl: RxEngine,
    pub twin: SoftwareEngine,
    rtl_memory: FlatMemory,
    twin_memory: FlatMemory,
    host: Host,
    pub pace: Pace,
    pub random: fastrand::Rng,
    open: OpenConn,
    cmd_sn: u32,
    /// Of each task in the circuit: its index, and what the transmit side knows of it.
    tasks: BTreeMap<u32, (u8, TxPart)>,
    /// Position of the stream up to which the circuit has got it.
    given: u64,
    pub cycles: usize,
    /// Kinds of completions so far, each with its result, action or reason.
    pub seen: BTreeSet<(CompletionKind, u8)>,
    /// The cycle of the last write.
    pub last_write: usize,
}

impl Bench {
    pub fn new(width: Width, open: OpenConn, seed: u64) -> Self {
        let memory = FlatMemory::new(BASE, MEMORY_BYTES);
        let mut bench = Self {
            rtl: RxEngine::new(width, seed as u16),
            twin: SoftwareEngine::new(),
            rtl_memory: memory.clone(),
            twin_memory: memory,
            host: Host::default(),
            pace: FULL,
            random: fastrand::Rng::with_seed(seed),
            open,
            cmd_sn: open.cmd_sn,
            tasks: BTreeMap::new(),
            given: 0,
            cycles: 0,
            seen: BTreeSet::new(),
            last_write: 0,
        };
        // The narrow CRC unit fills its tables.
        (0..200).for_each(|_| assert_eq!(bench.rtl.cycle(&RxInputs::default()).state.failed, 0));
        bench.reopen(open);
        bench
    }

    /// A new connection in place of the one before.
    pub fn reopen(&mut self, open: OpenConn) {
        self.twin.submit(&mut self.twin_memory, &Abort { itt: u32::MAX, ..Abort::default() }.emit()).unwrap();
        self.twin.submit(&mut self.twin_memory, &open.emit()).unwrap();
        let answers = std::iter::from_fn(|| self.twin.poll()).last().unwrap();
        assert_eq!(answers[1], TaskResult::GOOD.0, "the connection opens");
        self.rtl.open(&RxConnection {
            conn: open.conn,
            header_digest: open.flags & conn_flags::HEADER_DIGEST != 0,
            data_digest: open.flags & conn_flags::DATA_DIGEST != 0,
            max_data: open.max_recv_data_segment_length,
            max_burst: open.max_burst_length,
            max_outstanding_r2t: open.max_outstanding_r2t as u8,
            raw_addr: open.raw_addr,
            raw_slot_bytes: open.raw_slot_bytes,
            raw_slots: open.raw_slots,
            cmd_sn: open.cmd_sn,
            max_cmd_sn: open.max_cmd_sn,
            stat_sn: open.exp_stat_sn,
        });
        (self.host, self.tasks, self.given) = (Host::default(), BTreeMap::new(), 0);
        (self.open, self.cmd_sn) = (open, open.cmd_sn);
    }

    pub fn params(&self) -> &OpenConn {
        &self.open
    }

    pub fn session(&self) -> SessionEntry {
        self.twin.session(0).expect("the connection is open")
    }

    /// One cycle of the circuit, with what its surroundings do.
    fn cycle(&mut self, beat: Option<&[u8]>, request: Option<StoreRequest>, more: RxInputs) -> RxOutputs {
        let busy = self.pace.busy;
        let mut ready = || self.random.u8(..100) >= busy;
        let [run, write, room, done, r2t, ended] = std::array::from_fn(|_| ready());
        let inputs = RxInputs {
            beat,
            request,
            ready: RxReady { run, write, done, r2t, ended },
            room,
            answer: match self.host.answers.front() {
                Some((refused, 0)) => Some(*refused),
                _ => None,
            },
            rubbish: self.random.u8(..),
            cmd_sn: self.cmd_sn,
            ..more
        };
        let out = self.rtl.cycle(&inputs);
        self.cycles += 1;
        assert_eq!(out.state.failed, 0, "an assert of the circuit has failed");
        if inputs.answer.is_some() {
            self.host.answers.pop_front();
        }
        for (_, wait) in &mut self.host.answers {
            *wait = wait.saturating_sub(1);
        }
        if let Some((addr, length)) = out.run {
            let refused = self.rtl_memory.read(addr, &mut vec![0; length as usize]).is_err();
            self.host.answers.push_back((refused, self.pace.latency - 1));
        }
        if let Some((addr, bytes)) = &out.write {
            self.last_write = self.cycles;
            self.rtl_memory.write(*addr, bytes).expect("what was announced is in memory");
        }
        self.host.completions.extend(out.done);
        self.host.replies.extend(out.reply);
        if let Some((index, itt)) = out.ended {
            self.host.r2ts.retain(|r2t| r2t.index != index);
            assert_eq!(self.tasks.remove(&itt).expect("a task that was posted").0, index);
        }
        self.host.r2ts.extend(out.r2t);
        out
    }

    /// Cycles until nothing has happened for so long that nothing will.
    fn settle(&mut self) {
        let patience = if self.rtl.width() == Width::Bits64 { 150 } else { 60 };
        let pace = self.pace;
        self.pace.busy = pace.busy.min(40);
        let mut quiet = 0;
        while quiet < patience {
            let out = self.cycle(None, None, RxInputs::default());
            let active = out.state.busy
                || out.run.is_some()
                || out.reply.is_some()
                || out.r2t.is_some()
                || !self.host.answers.is_empty();
            quiet = if active { 0 } else { quiet + 1 };
        }
        self.pace = pace;
    }

    fn request(&mut self, request: StoreRequest) -> RxReply {
        while !self.cycle(None, Some(request), RxInputs::default()).request_taken {}
        while self.host.replies.is_empty() {
            self.cycle(None, None, RxInputs::default());
        }
        self.host.replies.remove(0)
    }

    /// POST_TASK on both sides; they must agree about the result.
    pub fn post(&mut self, post: &PostTask, list: &[SglElement]) -> TaskResult {
        let bytes: Vec<u8> = list.iter().flat_map(SglElement::emit).collect();
        for memory in [&mut self.twin_memory, &mut self.rtl_memory] {
            memory.write(LIST_ADDR, &bytes).expect("the list has its place");
        }
        let post = PostTask { sgl_addr: LIST_ADDR, sgl_elements: list.len() as u16, ..*post };
        self.twin.submit(&mut self.twin_memory, &post.emit()).unwrap();
        let result = self.twin.poll().map_or(TaskResult::GOOD, |done| TaskDone::parse(&done).result);
        let begun = self.request(StoreRequest::PostBegin(post.itt));
        let mut replied = begun.result;
        if replied == TaskResult::GOOD.0 {
            for element in list {
                self.request(StoreRequest::PostElement(element.addr, element.length));
            }
            replied = self.request(StoreRequest::PostEnd(task_post(&post))).result;
        }
        assert_eq!(replied, result.0, "POST_TASK {post:?} {list:?}");
        if result == TaskResult::GOOD {
            self.tasks.insert(post.itt, (begun.index, TxPart::default()));
        }
        result
    }

    /// A read of one byte for each element, which only the circuit sees.
    pub fn post_to_circuit(&mut self, itt: u32, list: &[(u64, u32)]) -> TaskResult {
        let begun = self.request(StoreRequest::PostBegin(itt));
        assert_eq!(begun.result, TaskResult::GOOD.0);
        for (addr, length) in list {
            self.request(StoreRequest::PostElement(*addr, *length));
        }
        let edtl = list.iter().map(|(_, length)| length).sum();
        let post = TaskPost { flags: task_flags::READ, edtl, ..TaskPost::default() };
        let result = TaskResult(self.request(StoreRequest::PostEnd(post)).result);
        if result == TaskResult::GOOD {
            self.tasks.insert(itt, (begun.index, TxPart::default()));
        }
        result
    }

    /// Ends a task that only the circuit has seen.
    pub fn end_in_circuit(&mut self, itt: u32) {
        let reply = self.request(StoreRequest::EndTask(itt, TaskResult::ABORTED.0));
        assert_eq!(reply.result, TaskResult::GOOD.0);
        self.host.completions.clear();
    }

    /// A task that software gives up while its list is fetched: only the circuit sees it.
    pub fn post_and_cancel(&mut self, itt: u32, elements: u32) {
        if self.request(StoreRequest::PostBegin(itt)).result == TaskResult::GOOD.0 {
            for _ in 0..elements {
                self.request(StoreRequest::PostElement(DATA_ADDR, 16));
            }
            self.request(StoreRequest::PostCancel);
        }
    }

    pub fn abort(&mut self, itt: u32) {
        self.twin.submit(&mut self.twin_memory, &Abort { itt, ..Abort::default() }.emit()).unwrap();
        let mut done: Vec<_> = std::iter::from_fn(|| self.twin.poll()).collect();
        let result = done.pop().expect("ABORT has an end")[1];
        let reply = self.request(StoreRequest::EndTask(itt, TaskResult::ABORTED.0));
        assert_eq!((reply.result, std::mem::take(&mut self.host.completions)), (result, done));
    }

    /// The transmit side sends all that may be sent; its part of the entries is then as in the engine in software.
    pub fn transmit(&mut self) {
        let mut some = vec![0; 65536];
        while self.twin.tx(&mut self.twin_memory, 0, &mut some) == some.len() {}
        let refused: Vec<_> = std::iter::from_fn(|| self.twin.poll()).collect();
        for done in refused {
            let done = TaskDone::parse(&done);
            assert_eq!(done.result, TaskResult::MEMORY);
            let end = StoreRequest::EndTask(done.itt, done.result.0);
            // It was sent, and what was sent of it counts.
            self.write_tx(done.itt, TxPart { sent: true, bytes_sent: done.bytes_sent, ..TxPart::default() });
            self.request(end);
            let record = self.host.completions.pop().expect("the task has an end");
            assert_eq!(TaskDone::parse(&record), done);
        }
        let tables = self.twin.tables();
        self.cmd_sn = tables.sessions[0].cmd_sn;
        for command in &tables.commands {
            let (index, before) = self.tasks[&command.itt];
            let answered = self.host.r2ts.iter().filter(|r2t| r2t.index == index).count() as u8;
            let waits = tables.r2ts.iter().any(|r2t| r2t.itt == command.itt);
            assert!(!waits, "all bursts were sent");
            self.write_tx(
                command.itt,
                TxPart {
                    sent: command.state.0 != 1,
                    cmd_sn: command.cmd_sn,
                    exp_stat_sn: command.exp_stat_sn,
                    bytes_sent: command.bytes_sent,
                    bursts_done: before.bursts_done.wrapping_add(answered),
                },
            );
        }
        self.host.r2ts.clear();
    }

    fn write_tx(&mut self, itt: u32, tx: TxPart) {
        let index = self.tasks[&itt].0;
        self.tasks.insert(itt, (index, tx));
        self.cycle(None, None, RxInputs { tx_write: Some((index, tx)), ..RxInputs::default() });
    }

    /// Gives bytes to the engine in software only; the circuit gets them by `catch_up`. Returns how many it took.
    pub fn lead(&mut self, bytes: &[u8]) -> usize {
        self.twin.rx(&mut self.twin_memory, 0, bytes)
    }

    /// Gives the circuit what the engine in software has had, and bytes behind that it must not use; both sides must show the same.
    pub fn catch_up(&mut self, bytes: &[u8], behind: &[u8]) {
        let all = [bytes, behind].concat();
        let width = self.rtl.width().bytes();
        let (mut sent, mut next, mut idle, mut stopped) = (0, None, 0, None);
        while sent < all.len() && idle < 400 && stopped.is_none() {
            let most = width.min(all.len() - sent);
            let count = *next.get_or_insert_with(|| {
                if self.pace.cut && self.random.bool() { self.random.usize(1..=most) } else { most }
            });
            let offered = self.random.u8(..100) >= self.pace.gaps;
            let out = self.cycle(offered.then(|| &all[sent..sent + count]), None, RxInputs::default());
            if out.accepted {
                sent += count;
                next = None;
            }
            let active = out.accepted || out.state.busy || !offered;
            idle = if active { 0 } else { idle + 1 };
            stopped = out.stopped;
        }
        self.settle();
        self.compare();
        let stopped = self.cycle(None, None, RxInputs::default()).stopped;
        if let Some((reason, taken)) = stopped {
            assert_eq!((reason, taken), (self.session().stop_reason.0, self.session().rx_position));
        } else {
            self.given += sent as u64;
            assert!(behind.is_empty(), "bytes behind a stop need one");
        }
    }

    /// RESYNC at the position of the next PDU, which is `skipped` bytes behind what was taken.
    pub fn resync(&mut self, skipped: u64) {
        let taken = self.session().rx_position;
        let resync = Resync { position: taken + skipped, ..Resync::default() };
        self.twin.submit(&mut self.twin_memory, &resync.emit()).unwrap();
        assert_eq!(self.twin.poll().expect("RESYNC has an end")[1], TaskResult::GOOD.0);
        let rubbish = vec![0x5a; skipped as usize];
        assert_eq!(self.twin.rx(&mut self.twin_memory, 0, &rubbish), rubbish.len());
        self.rtl.restart(resync.position);
        self.given = resync.position;
        self.compare();
    }

    /// Software releases raw PDUs, and what waited for them goes on.
    pub fn release(&mut self, slots: u16) {
        self.twin.release_raw(0, slots);
        self.twin.rx(&mut self.twin_memory, 0, &[]);
        self.cycle(None, None, RxInputs { release: slots, ..RxInputs::default() });
        self.settle();
        self.compare();
    }

    /// Completions, host memory, and all that the tables of the receive side show.
    pub fn compare(&mut self) {
        let expected: Vec<_> = std::iter::from_fn(|| self.twin.poll()).collect();
        let completions = std::mem::take(&mut self.host.completions);
        for (is, should) in completions.iter().zip(&expected) {
            assert_eq!(is, should, "completions");
            self.seen.insert((CompletionKind(should[0]), should[1]));
        }
        assert_eq!(completions.len(), expected.len(), "number of completions: {expected:?}");
        assert!(self.rtl_memory == self.twin_memory, "host memory");
        let out = self.cycle(None, None, RxInputs::default());
        let session = self.session();
        assert_eq!(
            out.state.numbers,
            (session.exp_cmd_sn, session.max_cmd_sn, session.next_stat_sn),
            "numbers"
        );
        assert_eq!(session.exp_stat_sn, session.next_stat_sn, "at level 0 no status is held");
        assert_eq!((out.state.raw_free, out.state.tasks), (session.raw_slots_free, session.commands));
        let tables = self.twin.tables();
        let r2ts: Vec<_> = tables.r2ts.iter().filter(|r2t| r2t.ttt != u32::MAX).collect();
        assert_eq!(r2ts.len(), self.host.r2ts.len(), "R2Ts");
        for (is, should) in self.host.r2ts.iter().zip(r2ts) {
            let expected = (should.itt, should.ttt, should.r2t_sn, should.offset, should.length);
            assert_eq!((is.itt, is.ttt, is.r2t_sn, is.offset, is.length), expected);
        }
        assert_eq!(tables.commands.len(), self.tasks.len());
    }

    /// The command table and the data_address table, entry by entry.
    pub fn compare_tables(&mut self) {
        let tables = self.twin.tables();
        for command in &tables.commands {
            let (index, tx) = self.tasks[&command.itt];
            let reply = self.request(StoreRequest::Peek(index));
            assert_eq!(reply.result, TaskResult::GOOD.0);
            let RxEntry { itt, post, rx, tx: tx_there, list } = reply.entry;
            assert_eq!((itt, post.flags, post.edtl), (command.itt, command.flags, command.edtl));
            assert_eq!((post.lun, post.user), (command.lun, command.user));
            let received = (rx.next_sn, rx.next_offset, rx.bytes_received);
            assert_eq!(received, (command.next_sn, command.next_offset, command.bytes_received));
            assert_eq!(tx_there, TxPart { bursts_done: tx.bursts_done & 15, ..tx });
            let mut at = list.map(|(first, _)| first);
            for should in tables.data_addresses.iter().filter(|element| element.itt == command.itt) {
                let ask = RxInputs { tx_element: at.expect("one more element"), ..RxInputs::default() };
                self.cycle(None, None, ask);
                let is = self.cycle(None, None, RxInputs::default()).element;
                assert_eq!(
                    (is.addr, is.length, is.begin),
                    (should.addr, should.length, should.buffer_offset)
                );
                at = list.filter(|(_, last)| at != Some(*last)).map(|_| is.next);
            }
            assert_eq!(at, None, "no more elements");
        }
        assert_eq!(self.host.completions, Vec::<[u8; 64]>::new());
    }

    /// The completions of the circuit after `bytes`; the engine in software was asked for its own already.
    pub fn completions_of(&mut self, bytes: &[u8]) -> Vec<[u8; 64]> {
        for beat in bytes.chunks(self.rtl.width().bytes()) {
            while !self.cycle(Some(beat), None, RxInputs::default()).accepted {}
        }
        self.settle();
        std::mem::take(&mut self.host.completions)
    }

    /// Memory as the circuit has left it.
    pub fn data(&mut self, addr: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.rtl_memory.read(addr, &mut data).expect("in host memory");
        data
    }
}

fn task_post(post: &PostTask) -> TaskPost {
    TaskPost {
        flags: post.flags,
        attr: post.attr,
        priority: post.priority,
        edtl: post.edtl,
        lun: post.lun,
        cdb: post.cdb,
        user: post.user,
        sense_addr: post.sense_addr,
    }
}
