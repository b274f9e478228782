//! Both engines, each with host memory of its own, and the stream that they get.

use std::collections::BTreeSet;

use fastrand::Rng;
use offload::encoding::{
    Completion, CompletionKind, DescriptorKind, OpenConn, PostTask, Resync, SessionEntry, SglElement,
    TaskResult,
};
use offload::limits::MAX_COMPLETIONS;
use offload::{Engine, FlatMemory, HostMem, SoftwareEngine, Tables};
use offload_rtl::{RtlEngine, Width};

use super::random::{BASE, LIST_ADDR, MEMORY_BYTES, RAW_SLOTS};

/// No completion: a PDU has waited for a slot of the ring.
pub const WAITED: CompletionKind = CompletionKind(0);
/// No completion: a PDU with this opcode was sent.
pub const SENT: CompletionKind = CompletionKind(1);

/// An engine, its memory, and how much of the stream it has taken.
struct Side<E> {
    engine: E,
    memory: FlatMemory,
    taken: usize,
}

impl<E: Engine> Side<E> {
    fn new(engine: E) -> Self {
        Self { engine, memory: FlatMemory::new(BASE, MEMORY_BYTES), taken: 0 }
    }

    fn submit(&mut self, record: &[u8; 64]) {
        self.engine.submit(&mut self.memory, record).expect("there is room");
    }

    fn completions(&mut self) -> Vec<[u8; 64]> {
        std::iter::from_fn(|| self.engine.poll()).collect()
    }

    /// Gives what is left of the stream, at most `most` bytes. Returns whether any were taken.
    fn receive(&mut self, stream: &[u8], most: usize) -> bool {
        let rest = &stream[self.taken..];
        let used = self.engine.rx(&mut self.memory, 0, &rest[..rest.len().min(most)]);
        self.taken += used;
        used > 0
    }

    fn transmit(&mut self) -> Vec<u8> {
        let (mut all, mut some) = (Vec::new(), [0; 777]);
        loop {
            let count = self.engine.tx(&mut self.memory, 0, &mut some);
            all.extend_from_slice(&some[..count]);
            if count < some.len() {
                return all;
            }
        }
    }
}

pub struct Pair {
    software: Side<SoftwareEngine>,
    rtl: Side<RtlEngine>,
    stream: Vec<u8>,
    /// Completions of the engine in software that the circuit still owes.
    owed: Vec<[u8; 64]>,
    /// Completions since the connection was opened, or since they were taken.
    completions: Vec<[u8; 64]>,
    pub seen: BTreeSet<(CompletionKind, u8)>,
    pub sent_bytes: usize,
    /// SNACKs and DataACKs that were sent.
    pub snacks: usize,
}

impl Pair {
    pub fn new(width: Width, seed: u64) -> Self {
        Self::with(RtlEngine::new(width, seed as u16))
    }

    pub fn with(rtl: RtlEngine) -> Self {
        Self {
            software: Side::new(SoftwareEngine::new()),
            rtl: Side::new(rtl),
            stream: Vec::new(),
            owed: Vec::new(),
            completions: Vec::new(),
            seen: BTreeSet::new(),
            sent_bytes: 0,
            snacks: 0,
        }
    }

    pub fn width(&self) -> Width {
        self.rtl.engine.width()
    }

    pub fn software_tables(&self) -> Tables {
        self.software.engine.tables()
    }

    pub fn session(&self) -> Option<SessionEntry> {
        self.software.engine.session(0)
    }

    pub fn is_stopped(&self) -> bool {
        self.session().is_some_and(|session| session.stop_reason.0 != 0)
    }

    /// Position of the first byte of the stream that the engine in software has not taken.
    pub fn taken(&self) -> u64 {
        self.session().expect("the connection is open").rx_position
    }

    /// Bytes of the stream that the engine in software has not taken.
    pub fn left(&self) -> usize {
        self.stream.len() - self.software.taken
    }

    /// Both have taken all of the stream.
    pub fn has_all(&self) -> bool {
        self.software.taken == self.stream.len() && self.rtl.taken == self.stream.len()
    }

    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        for memory in [&mut self.software.memory, &mut self.rtl.memory] {
            memory.write(addr, bytes).expect("in host memory");
        }
    }

    /// Host memory, the same in both.
    pub fn data(&mut self, addr: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.rtl.memory.read(addr, &mut data).expect("in host memory");
        data
    }

    /// The completions of both since the last call.
    pub fn take_completions(&mut self) -> Vec<Completion> {
        self.completions.drain(..).map(|record| Completion::parse(&record).expect("a defined kind")).collect()
    }

    pub fn open(&mut self, open: &OpenConn) -> Option<u8> {
        self.stream.clear();
        self.completions.clear();
        (self.software.taken, self.rtl.taken) = (0, 0);
        self.submit(&open.emit())
    }

    /// Executes a descriptor with both. Returns its result, if it is known yet.
    pub fn submit(&mut self, record: &[u8; 64]) -> Option<u8> {
        self.software.submit(record);
        self.rtl.submit(record);
        let result = self.compare(&format!("{record:02x?}"));
        result.last().map(|done| done[1])
    }

    /// Executes a descriptor with the circuit only.
    pub fn circuit_only(&mut self, record: &[u8; 64]) -> u8 {
        self.rtl.submit(record);
        self.rtl.completions().last().expect("a TASK_DONE")[1]
    }

    pub fn post(&mut self, post: &PostTask, list: &[SglElement]) {
        let bytes: Vec<u8> = list.iter().flat_map(SglElement::emit).collect();
        self.write(LIST_ADDR, &bytes);
        let post = PostTask { sgl_addr: LIST_ADDR, sgl_elements: list.len() as u16, ..*post };
        self.submit(&post.emit());
    }

    /// Gives a PDU to the engine in software; the circuit gets it by `catch_up`. Returns whether it has taken all, and goes on.
    pub fn lead(&mut self, pdu: &[u8]) -> bool {
        self.stream.extend(pdu);
        self.software.receive(&self.stream, usize::MAX);
        self.owed.extend(self.software.completions());
        self.software.taken == self.stream.len() && !self.is_stopped()
    }

    /// Both get what is left of the stream, the circuit in random pieces.
    pub fn catch_up(&mut self, random: &mut Rng) {
        self.software.receive(&self.stream, usize::MAX);
        self.owed.extend(self.software.completions());
        let pieces = random.bool();
        loop {
            let most = if pieces { random.usize(1..3000) } else { usize::MAX };
            if !self.rtl.receive(&self.stream, most) {
                break;
            }
        }
        if !self.has_all() && !self.is_stopped() {
            self.seen.insert((WAITED, 0));
        }
        self.compare("a stretch of the stream");
    }

    /// Both get what is left of the stream in one piece.
    pub fn catch_up_at_once(&mut self) {
        self.software.receive(&self.stream, usize::MAX);
        self.rtl.receive(&self.stream, usize::MAX);
        self.compare("a stretch of the stream");
    }

    /// The same until both have taken all of the stream, or it has stopped: software takes raw PDUs over meanwhile.
    pub fn catch_up_fully(&mut self, random: &mut Rng) {
        self.catch_up(random);
        while !self.has_all() && !self.is_stopped() {
            self.release(random.u16(1..=RAW_SLOTS + 1));
            self.catch_up(random);
        }
    }

    /// Software lets the stream go on behind all that was sent.
    pub fn resync(&mut self, random: &mut Rng) {
        let position = self.taken() + self.left() as u64;
        assert_eq!(self.submit(&Resync { position, ..Resync::default() }.emit()), Some(TaskResult::GOOD.0));
        self.catch_up(random);
    }

    /// Time goes on for both.
    pub fn advance(&mut self, now_us: u64) {
        self.software.engine.advance(now_us);
        self.rtl.engine.advance(now_us);
        assert_eq!(self.rtl.engine.deadline_us(), self.software.engine.deadline_us());
        self.compare("an advance of time");
    }

    /// Cycles of the circuit so far.
    pub fn cycles(&self) -> u64 {
        self.rtl.engine.cycles()
    }

    /// Both get a PDU while they have no room for its completions; then all completions are fetched.
    pub fn receive_without_room(&mut self, pdu: &[u8]) {
        // Each causes a TASK_DONE: no descriptor has this kind.
        for _ in 3..MAX_COMPLETIONS {
            self.software.submit(&[0; 64]);
            self.rtl.submit(&[0; 64]);
        }
        self.stream.extend(pdu);
        self.catch_up_at_once();
    }

    /// Everything that may be sent.
    pub fn transmit(&mut self) {
        let (software, rtl) = (self.software.transmit(), self.rtl.transmit());
        assert!(rtl == software, "{} bytes sent, not {}", rtl.len(), software.len());
        self.note_opcodes(&software);
        self.sent_bytes += software.len();
        self.compare("what is sent");
    }

    /// Opcodes of what was sent: a PDU begins behind the one before it.
    fn note_opcodes(&mut self, mut bytes: &[u8]) {
        let flags = self.session().map_or(0, |session| session.flags);
        while let Some(header) = bytes.first_chunk::<48>() {
            self.seen.insert((SENT, header[0] & 0x3f));
            self.snacks += usize::from(header[0] & 0x3f == 0x10);
            let data = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let digests = [flags & 1 != 0, flags & 2 != 0 && data > 0].iter().filter(|has| **has).count();
            let length = 48 + 4 * usize::from(header[4]) + data.next_multiple_of(4) + 4 * digests;
            bytes = &bytes[length..];
        }
        assert!(bytes.is_empty(), "whole PDUs are sent");
    }

    /// Software releases raw PDUs, and what waited for them goes on.
    pub fn release(&mut self, slots: u16) {
        self.software.engine.release_raw(0, slots);
        self.rtl.engine.release_raw(0, slots);
        self.software.receive(&self.stream, usize::MAX);
        self.rtl.receive(&self.stream, usize::MAX);
        self.compare("a release");
    }

    /// Completions, host memory and tables. Returns the completions.
    fn compare(&mut self, after: &str) -> Vec<[u8; 64]> {
        let mut expected = std::mem::take(&mut self.owed);
        expected.extend(self.software.completions());
        let completions = self.rtl.completions();
        for (is, should) in completions.iter().zip(&expected) {
            assert_eq!(is, should, "completions after {after}");
            let what = (CompletionKind(should[0]), should[1]);
            // Every connection begins with a descriptor that is done: for a task it says something.
            let of_task = should[16] == DescriptorKind::POST_TASK.0;
            if what != (CompletionKind::TASK_DONE, TaskResult::GOOD.0) || of_task {
                self.seen.insert(what);
            }
        }
        assert_eq!(completions.len(), expected.len(), "completions after {after}: {expected:02x?}");
        assert!(self.rtl.memory == self.software.memory, "host memory after {after}");
        let (mut is, should) = (self.rtl.engine.tables(), self.software.engine.tables());
        // The circuit takes bytes behind a PDU that waits.
        if !self.has_all() && !self.is_stopped() {
            is.sessions[0].rx_position = should.sessions[0].rx_position;
        }
        assert_eq!(is, should, "tables after {after}");
        self.completions.extend(&expected);
        expected
    }
}
