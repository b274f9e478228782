//! What surrounds the transmit module: command table, data_address table, PDUs of software, host memory and the TCP side, each with pauses.

use std::collections::{BTreeMap, VecDeque};

use offload::{FlatMemory, HostMem};
use offload_rtl::{
    Burst, Element, MemBeat, Peek, RawBeat, Snack, TaskView, Tx, TxCycle, TxInputs, TxPost, TxReady, Width,
};

/// How the surroundings behave.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// In so many percent of the cycles the TCP side takes no beat.
    pub busy: u8,
    /// In so many percent of the cycles host memory neither takes a read nor answers.
    pub slow: u8,
    /// Cycles from a read to its first byte, at most.
    pub latency: usize,
}

/// No pauses, and host memory that answers after a microsecond at 195 MHz.
pub const FULL: Pace = Pace { busy: 0, slow: 0, latency: 195 };

/// A read of host memory that is under way.
struct Read {
    due: usize,
    bytes: Vec<u8>,
    at: usize,
    fault: bool,
}

/// The circuit that is in the middle.
pub trait Circuit {
    /// One cycle.
    fn cycle(&mut self, given: &TxInputs) -> TxCycle;
    fn width(&self) -> Width;
}

impl Circuit for Tx {
    fn cycle(&mut self, given: &TxInputs) -> TxCycle {
        Self::cycle(self, given)
    }

    fn width(&self) -> Width {
        Self::width(self)
    }
}

pub struct Host<C> {
    pub circuit: C,
    pub random: fastrand::Rng,
    pace: Pace,
    pub cycles: usize,
    pub exp_stat_sn: u32,
    pub max_cmd_sn: u32,
    pub cmd_sn: u32,
    /// The command table, by index.
    pub tasks: BTreeMap<u8, TaskView>,
    elements: Vec<Element>,
    /// PDUs of software: without a CmdSN of their own, and with one.
    raw: [VecDeque<RawBeat>; 2],
    pub snacks: BTreeMap<u8, Snack>,
    reads: VecDeque<Read>,
    /// What the cycle before asked.
    before: Option<TxCycle>,
    looks: VecDeque<(usize, u8)>,
    answered: bool,
    /// Commands that have left the table, until the circuit has heard of it.
    pub ending: VecDeque<u8>,
    pub stream: Vec<u8>,
    /// Beats of the stream, and the cycles of the first and the last.
    pub beats: Option<(usize, usize)>,
    /// Tasks whose memory was refused.
    pub faults: Vec<u32>,
}

impl<C: Circuit> Host<C> {
    pub fn new(circuit: C, pace: Pace, seed: u64) -> Self {
        let mut host = Self {
            circuit,
            random: fastrand::Rng::with_seed(seed),
            pace,
            cycles: 0,
            exp_stat_sn: 0,
            max_cmd_sn: 0,
            cmd_sn: 0,
            tasks: BTreeMap::new(),
            elements: Vec::new(),
            raw: Default::default(),
            snacks: BTreeMap::new(),
            reads: VecDeque::new(),
            before: None,
            looks: VecDeque::new(),
            answered: false,
            ending: VecDeque::new(),
            stream: Vec::new(),
            beats: None,
            faults: Vec::new(),
        };
        // The narrow CRC unit fills its tables first.
        let mut memory = FlatMemory::new(0, 0);
        (0..200).for_each(|_| drop(host.step(&mut memory, TxInputs::default())));
        host
    }

    /// Puts a list into the data_address table; returns its first element. The table is emptied when no task uses it.
    pub fn list(&mut self, elements: &[(u64, u32)]) -> u16 {
        if self.tasks.is_empty() {
            self.elements.clear();
        }
        let first = self.elements.len() as u16;
        let mut begin = 0;
        for (addr, length) in elements {
            let next = self.elements.len() as u16 + 1;
            self.elements.push(Element { addr: *addr, length: *length, begin, next });
            begin += length;
        }
        assert!(self.elements.len() <= 1024, "the data_address table has 1024 elements");
        first
    }

    /// Elements that have room.
    pub fn elements_free(&self) -> usize {
        if self.tasks.is_empty() { 1024 } else { 1024 - self.elements.len() }
    }

    /// A PDU of software: header segments, and data without its padding.
    pub fn stage_raw(&mut self, numbered: bool, header: &[u8], data: &[u8]) {
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        for segment in [header, &padded] {
            let width = self.circuit.width().bytes();
            let mut rest = segment;
            while !rest.is_empty() {
                let (beat, behind) = rest.split_at(width.min(rest.len()));
                rest = behind;
                let beat = RawBeat { bytes: beat.to_vec(), last: rest.is_empty() };
                self.raw[usize::from(numbered)].push_back(beat);
            }
        }
    }

    fn percent(&mut self, percent: u8) -> bool {
        percent > 0 && self.random.u8(..100) < percent
    }

    /// One cycle with `given`, completed by what the surroundings say.
    pub fn step(&mut self, memory: &mut FlatMemory, mut given: TxInputs) -> TxCycle {
        given.exp_stat_sn = self.exp_stat_sn;
        given.ended = self.ending.front().copied();
        given.max_cmd_sn = self.max_cmd_sn;
        given.ready.stream = !self.percent(self.pace.busy);
        given.ready.memory = !self.percent(self.pace.slow);
        if let Some(before) = &self.before {
            given.element = self.elements.get(usize::from(before.element)).copied().unwrap_or_default();
            // An index that was answered is not asked for again.
            given.snack =
                before.snack_take.filter(|_| !self.answered).map(|index| self.snacks.remove(&index));
            given.raw = self.raw[usize::from(before.raw_numbered)].front().cloned();
        }
        if let Some((_, index)) = self.looks.front().filter(|(due, _)| *due <= self.cycles) {
            given.looked = Some(self.tasks.get(index).copied());
            self.looks.pop_front();
        }
        self.answered = given.snack.is_some();
        let width = self.circuit.width().bytes();
        if !self.percent(self.pace.slow)
            && let Some(read) = self.reads.front().filter(|read| read.due <= self.cycles)
        {
            let end = read.bytes.len().min(read.at + width);
            let bytes = read.bytes[read.at..end].to_vec();
            given.mem_data = Some(MemBeat { bytes, last: end == read.bytes.len(), fault: read.fault });
        }
        let said = self.circuit.cycle(&given);
        self.cycles += 1;
        assert_eq!(said.state.failed, 0, "an assert of the circuit has failed");
        self.take(&given, &said, memory);
        self.before = Some(said.clone());
        said
    }

    fn take(&mut self, given: &TxInputs, said: &TxCycle, memory: &mut FlatMemory) {
        self.cmd_sn = said.state.cmd_sn;
        if said.taken.ended {
            self.ending.pop_front();
        }
        if said.taken.mem_data
            && let (Some(read), Some(beat)) = (self.reads.front_mut(), &given.mem_data)
        {
            read.at += beat.bytes.len();
            if beat.last {
                self.reads.pop_front();
            }
        }
        if let Some((addr, length)) = said.read {
            // What is refused is answered with anything.
            let mut bytes = vec![0xee; length as usize];
            let fault = memory.read(addr, &mut bytes).is_err();
            let due = self.cycles + self.random.usize(0..=self.pace.latency);
            self.reads.push_back(Read { due, bytes, at: 0, fault });
        }
        if let Some(index) = said.look {
            self.looks.push_back((self.cycles + self.random.usize(0..3), index));
        }
        if let Some((index, part)) = said.write {
            self.tasks.get_mut(&index).expect("a part of a task that exists").tx = part;
        }
        if said.taken.raw
            && let Some(before) = &self.before
        {
            self.raw[usize::from(before.raw_numbered)].pop_front();
        }
        if !said.bytes.is_empty() {
            self.stream.extend(&said.bytes);
            let (first, _) = self.beats.unwrap_or((self.cycles, 0));
            self.beats = Some((first, self.cycles));
        }
    }

    /// Runs with `given` until `done`; without room in it nothing is begun.
    pub fn until(&mut self, memory: &mut FlatMemory, given: &TxInputs, done: impl Fn(&TxCycle) -> bool) {
        let taken = (0..5000).any(|_| done(&self.step(memory, given.clone())));
        assert!(taken, "nobody takes {given:?}");
    }

    pub fn post(&mut self, memory: &mut FlatMemory, post: TxPost) {
        self.until(memory, &TxInputs { post: Some(post), ..TxInputs::default() }, |said| said.taken.post);
    }

    pub fn r2t(&mut self, memory: &mut FlatMemory, burst: Burst) {
        self.until(memory, &TxInputs { r2t: Some(burst), ..TxInputs::default() }, |said| said.taken.r2t);
    }

    /// A task has left the command table.
    pub fn end(&mut self, memory: &mut FlatMemory, index: u8) {
        self.tasks.remove(&index);
        self.ending.push_back(index);
        self.until(memory, &TxInputs::default(), |said| said.taken.ended);
    }

    /// Runs until everything that may be sent was sent; ends the tasks whose memory is refused.
    pub fn drain(&mut self, memory: &mut FlatMemory) {
        let limit = self.cycles + 20_000_000;
        let mut quiet = 0;
        while quiet < 2 {
            assert!(self.cycles < limit, "it does not come to an end");
            let said = self.step(
                memory,
                TxInputs { ready: TxReady { room: true, ..TxReady::default() }, ..TxInputs::default() },
            );
            quiet = if said.state.idle { quiet + 1 } else { 0 };
            if let Some(itt) = said.fault {
                let found = self.tasks.iter().find(|(_, task)| task.itt == itt);
                let index = *found.expect("the fault of a task that exists").0;
                self.faults.push(itt);
                self.end(memory, index);
            }
        }
    }

    /// The R2T table.
    pub fn peek(&mut self, memory: &mut FlatMemory) -> Vec<Peek> {
        let mut all = Vec::new();
        for place in 0.. {
            let given = TxInputs { peek_at: place, ..TxInputs::default() };
            for _ in 0..offload_rtl::PEEK_CYCLES {
                self.step(memory, given.clone());
            }
            match self.step(memory, given).peek {
                Some(entry) => all.push(entry),
                None => break,
            }
        }
        all
    }
}
