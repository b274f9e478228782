//! The whole engine as a circuit, behind the trait of every backend.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::path::Path;

use offload::encoding::{
    CommandEntry, CommandState, DataAddressEntry, R2tEntry, SessionEntry, SessionState, SnackCause,
    SnackEntry as SnackRecord, SnackState, StopReason,
};
use offload::limits::{COMPLETIONS_PER_PDU, MAX_COMPLETIONS};
use offload::{Busy, Caps, Engine, HostMem, Tables};

use crate::Width;
use crate::feed::Feed;
use crate::ffi::{Functions, Model, model};
use crate::packed::{bytes, words};
use crate::snack_table::{PEEK_CYCLES, SnackEntry};
use crate::task::{Element, RxPart, TaskPost, TxPart, ends_of_list};
use crate::tx::Burst;

/// Inputs of `engine` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct EngineIn {
    now: u64,
    descriptor: [u32; 16],
    rx_data: [u32; 16],
    read_data: [u32; 16],
    release_slots: u16,
    element: u16,
    peek_at: u16,
    snack_at: u16,
    rst: u8,
    descriptor_valid: u8,
    rx_room: u8,
    tx_room: u8,
    done_ready: u8,
    release: u8,
    rx_valid: u8,
    rx_count: u8,
    tx_ready: u8,
    read_ready: u8,
    read_data_valid: u8,
    read_count: u8,
    read_last: u8,
    read_fault: u8,
    run_ready: u8,
    answer_valid: u8,
    answer_refused: u8,
    write_ready: u8,
    show: u8,
    show_index: u8,
    show_element: u8,
    advance: u8,
}

/// Outputs of `engine`; packed structs of the circuit in words, the lowest first. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct EngineOut {
    restart_position: u64,
    read_addr: u64,
    run_addr: u64,
    write_addr: u64,
    taken: u64,
    shown_list: u64,
    deadline: u64,
    done: [u32; 16],
    tx_data: [u32; 16],
    write_data: [u32; 16],
    shown_post: [u32; 12],
    shown_rx: [u32; 4],
    shown_tx: [u32; 4],
    element: [u32; 4],
    peek: [u32; 7],
    snack: [u32; 11],
    read_bytes: u32,
    run_length: u32,
    max_recv: u32,
    max_send: u32,
    max_burst: u32,
    first_burst: u32,
    snack_delay: u32,
    cmd_sn: u32,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    stat_sn: u32,
    exp_stat_sn: u32,
    poly: u32,
    shown_tag: u32,
    peek_sent: u32,
    peek_data_sn: u32,
    /// Asserts that have failed so far.
    failed: u32,
    max_outstanding_r2t: u16,
    raw_free: u16,
    tasks_used: u16,
    element_next: u16,
    descriptor_ready: u8,
    done_valid: u8,
    rx_ready: u8,
    opens: u8,
    restart: u8,
    tx_valid: u8,
    tx_count: u8,
    read_valid: u8,
    read_data_ready: u8,
    run_valid: u8,
    write_valid: u8,
    write_first: u8,
    write_count: u8,
    is_open: u8,
    conn_flags: u8,
    stopped: u8,
    stop_reason: u8,
    show_ready: u8,
    shown: u8,
    shown_found: u8,
    peek_valid: u8,
    idle: u8,
    busy: u8,
    recovery_level: u8,
    shown_held: u8,
    snack_valid: u8,
}

model!(WHOLE64, EngineIn, EngineOut, engine64_new, engine64_free, engine64_cycle, engine64_trace);
model!(WHOLE512, EngineIn, EngineOut, engine512_new, engine512_free, engine512_cycle, engine512_trace);
model!(
    ECP5_64,
    EngineIn,
    EngineOut,
    engine64_ecp5_new,
    engine64_ecp5_free,
    engine64_ecp5_cycle,
    engine64_ecp5_trace
);
model!(
    ECP5_512,
    EngineIn,
    EngineOut,
    engine512_ecp5_new,
    engine512_ecp5_free,
    engine512_ecp5_cycle,
    engine512_ecp5_trace
);

/// Why there is no waveform.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the waveform {path}: {why}")]
pub struct WaveformError {
    path: String,
    why: std::io::Error,
}

/// A read of host memory that the circuit has asked for.
struct Read {
    bytes: Vec<u8>,
    at: usize,
    fault: bool,
}

/// What the host does in a cycle, besides its memory.
#[derive(Clone, Copy, Default)]
struct Given<'a> {
    descriptor: Option<&'a [u8; 64]>,
    beat: Option<&'a [u8]>,
    receives: bool,
    sends: bool,
    release: u16,
    /// Time in microseconds, once.
    now_us: Option<u64>,
}

/// The circuit with what lies around it: host memory's answers, the Completion Buffer, the sending side of TCP.
struct Circuit {
    model: Model<EngineIn, EngineOut>,
    width: Width,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
    reads: VecDeque<Read>,
    answers: VecDeque<bool>,
    completions: VecDeque<[u8; 64]>,
    cycles: u64,
    /// Bytes that were sent, and not fetched yet.
    out: VecDeque<u8>,
    last: EngineOut,
}

impl Circuit {
    fn new(functions: Functions<EngineIn, EngineOut>, width: Width, seed: u16) -> Self {
        let mut model = Model::new(functions, seed);
        let reset = EngineIn { rst: 1, ..EngineIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).failed).last().unwrap_or(0);
        let last = model.cycle(&EngineIn::default());
        Self {
            model,
            width,
            ignored,
            reads: VecDeque::new(),
            answers: VecDeque::new(),
            completions: VecDeque::new(),
            cycles: 0,
            out: VecDeque::new(),
            last,
        }
    }

    /// No PDU is begun without room for all that it can cause.
    fn has_room(&self) -> bool {
        self.completions.len() + COMPLETIONS_PER_PDU <= MAX_COMPLETIONS
    }

    /// One cycle. Host memory answers in the next one.
    fn cycle(&mut self, memory: &mut dyn HostMem, given: Given) {
        let room = self.has_room();
        let mut inputs = EngineIn {
            descriptor_valid: given.descriptor.is_some().into(),
            descriptor: given.descriptor.map_or([0; 16], |record| words(record)),
            rx_room: (given.receives && room).into(),
            tx_room: (given.sends && room).into(),
            done_ready: 1,
            release: (given.release > 0).into(),
            release_slots: given.release,
            advance: given.now_us.is_some().into(),
            now: given.now_us.unwrap_or(0),
            tx_ready: 1,
            read_ready: 1,
            run_ready: 1,
            write_ready: 1,
            ..EngineIn::default()
        };
        if let Some(beat) = given.beat {
            (inputs.rx_valid, inputs.rx_count, inputs.rx_data) = (1, beat.len() as u8, words(beat));
        }
        if let Some(read) = self.reads.front() {
            let end = read.bytes.len().min(read.at + self.width.bytes());
            let beat = &read.bytes[read.at..end];
            (inputs.read_data_valid, inputs.read_count) = (1, beat.len() as u8);
            inputs.read_data = words(beat);
            inputs.read_last = (end == read.bytes.len()).into();
            inputs.read_fault = read.fault.into();
        }
        if let Some(refused) = self.answers.pop_front() {
            (inputs.answer_valid, inputs.answer_refused) = (1, refused.into());
        }
        self.last = self.model.cycle(&inputs);
        self.cycles += 1;
        assert_eq!(self.last.failed, self.ignored, "an assert of the circuit has failed");
        self.serve(memory, inputs.read_data_valid != 0);
    }

    /// What the circuit has said in the last cycle.
    fn serve(&mut self, memory: &mut dyn HostMem, answered: bool) {
        let out = &self.last;
        if answered
            && out.read_data_ready != 0
            && let Some(read) = self.reads.front_mut()
        {
            read.at = read.bytes.len().min(read.at + self.width.bytes());
            if read.at == read.bytes.len() {
                self.reads.pop_front();
            }
        }
        if out.read_valid != 0 {
            let mut bytes = vec![0; out.read_bytes as usize];
            let fault = memory.read(out.read_addr, &mut bytes).is_err();
            self.reads.push_back(Read { bytes, at: 0, fault });
        }
        if out.run_valid != 0 {
            self.answers.push_back(memory.check_write(out.run_addr, out.run_length as usize).is_err());
        }
        if out.write_valid != 0 {
            let beat = bytes(&out.write_data);
            let first = usize::from(out.write_first);
            let written = &beat[first..first + usize::from(out.write_count)];
            memory.write(out.write_addr, written).expect("the run was announced, and not refused");
        }
        if out.done_valid != 0 {
            self.completions.push_back(bytes(&out.done));
        }
        if out.tx_valid != 0 {
            self.out.extend(&bytes(&out.tx_data)[..usize::from(out.tx_count)]);
        }
    }

    fn is_at_work(&self) -> bool {
        let out = &self.last;
        let moves = [out.busy, out.run_valid, out.write_valid, out.read_valid, out.done_valid, out.tx_valid];
        out.idle == 0
            || moves.iter().any(|flag| *flag != 0)
            || !self.answers.is_empty()
            || !self.reads.is_empty()
    }

    /// Cycles without work after which there is none: those from a beat of the stream to the decision on its PDU. At 64 bit the
    /// polynomial may change before.
    fn patience(&self) -> usize {
        match self.width {
            Width::Bits64 => 300,
            Width::Bits512 => 60,
        }
    }

    /// Runs until nothing more happens by itself.
    fn settle(&mut self, memory: &mut dyn HostMem, given: Given, patience: usize) {
        let mut quiet = 0;
        while quiet < patience {
            self.cycle(memory, given);
            quiet = if self.is_at_work() { 0 } else { quiet + 1 };
        }
    }

    fn is_open(&self) -> bool {
        self.last.is_open != 0
    }

    /// The command at an index.
    fn show(&mut self, index: u8) -> Option<Shown> {
        let mut asks = true;
        loop {
            let inputs = EngineIn { show: asks.into(), show_index: index, ..EngineIn::default() };
            let out = self.model.cycle(&inputs);
            asks &= out.show_ready == 0;
            if out.shown != 0 {
                return (out.shown_found != 0).then(|| shown(&out));
            }
        }
    }

    fn element(&mut self, index: u16) -> Element {
        let inputs = EngineIn { show_element: 1, element: index, ..EngineIn::default() };
        self.model.cycle(&inputs);
        let out = self.model.cycle(&inputs);
        Element::unpack(&out.element, out.element_next)
    }

    /// What stands at a place of a table.
    fn peek(&mut self, inputs: &EngineIn) -> EngineOut {
        for _ in 0..PEEK_CYCLES {
            self.model.cycle(inputs);
        }
        self.model.cycle(inputs)
    }

    fn snack(&mut self, place: u16) -> Option<SnackRecord> {
        let out = self.peek(&EngineIn { snack_at: place, ..EngineIn::default() });
        let entry = SnackEntry::of(&out.snack);
        (out.snack_valid != 0).then_some(SnackRecord {
            conn: 0,
            snack_type: entry.snack_type,
            state: SnackState(entry.state),
            itt: entry.itt,
            beg_run: entry.beg_run,
            run_length: entry.run_length,
            deadline_us: entry.deadline_us,
            cause: SnackCause(entry.cause),
            ttt: entry.ttt,
            begin_offset: entry.begin_offset,
            end_offset: entry.end_offset,
            lun: entry.lun,
        })
    }

    fn burst(&mut self, place: u16) -> Option<(u8, R2tEntry)> {
        let out = self.peek(&EngineIn { peek_at: place, ..EngineIn::default() });
        let Burst { index, ttt, r2t_sn, offset, length, .. } = Burst::unpack(&out.peek);
        let (sent, data_sn) = (out.peek_sent, out.peek_data_sn);
        let entry = R2tEntry { ttt, r2t_sn, offset, length, sent, data_sn, ..R2tEntry::default() };
        (out.peek_valid != 0).then_some((index, entry))
    }
}

/// A command as the circuit has it, and the first and last element of its list.
struct Shown {
    entry: CommandEntry,
    list: Option<(u16, u16)>,
}

fn shown(out: &EngineOut) -> Shown {
    let post = TaskPost::unpack(&out.shown_post);
    let rx = RxPart::unpack(&out.shown_rx);
    let tx = TxPart::unpack(&out.shown_tx);
    Shown {
        entry: CommandEntry {
            conn: 0,
            flags: post.flags,
            state: match (tx.sent, out.shown_held != 0) {
                (false, _) => CommandState::QUEUED,
                (true, false) => CommandState::SENT,
                (true, true) => CommandState::HELD,
            },
            itt: out.shown_tag,
            lun: post.lun,
            user: post.user,
            edtl: post.edtl,
            cmd_sn: tx.cmd_sn,
            exp_stat_sn: tx.exp_stat_sn,
            next_sn: rx.next_sn,
            next_offset: rx.next_offset,
            bytes_received: rx.bytes_received,
            bytes_sent: tx.bytes_sent,
        },
        list: ends_of_list(out.shown_list),
    }
}

/// What is handed over at the ports of the circuit in one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// A descriptor is taken from the Command Buffer.
    pub descriptor: bool,
    /// A beat of the stream from the peer is taken.
    pub receive: bool,
    /// A read of host memory is requested.
    pub read: bool,
    /// A beat of host memory is taken.
    pub read_data: bool,
    /// A beat is written to host memory.
    pub write: bool,
    /// A beat of the stream to the peer leaves.
    pub send: bool,
    /// A completion leaves.
    pub completion: bool,
}

/// The engine of `rtl/engine/engine.sv`, simulated, with one connection.
///
/// A call runs the circuit until nothing more happens by itself. What it has to send lies here until `tx` fetches it. Each engine is a
/// circuit of its own: a host with several connections has one for each.
pub struct RtlEngine {
    circuit: RefCell<Circuit>,
    caps: Caps,
    feed: Feed,
    now_us: u64,
}

impl RtlEngine {
    /// After power-up, with random contents from `seed`, and a reset. It has the tables of the engine in software, and at 64 bit a buffer of
    /// 4096 bytes.
    pub fn new(width: Width, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => WHOLE64,
            Width::Bits512 => WHOLE512,
        };
        let caps = Caps { connections: 1, buffer_bytes: width.buffer_bytes(), ..Caps::SOFTWARE };
        Self::with(Circuit::new(functions, width, seed), caps)
    }

    /// The same with the tables and buffers of the synthesis (`rtl/ecp5.json`): those that an ECP5-85 has room for.
    ///
    /// # Panics
    /// The file from which the circuits were made does not say how large they are.
    pub fn synthesised(width: Width, seed: u16) -> Self {
        let (functions, name) = match width {
            Width::Bits64 => (ECP5_64, "engine_64"),
            Width::Bits512 => (ECP5_512, "engine_512"),
        };
        let engines: serde_json::Value =
            serde_json::from_str(include_str!("../../../rtl/ecp5.json")).expect("it is JSON");
        let size = |what: &str| engines[name][what].as_u64().expect("a size of the circuit");
        let (commands, buffer_bytes) = (size("Tasks") as u16, size("BufferBytes") as u32);
        let caps = Caps { connections: 1, commands, buffer_bytes, ..Caps::SOFTWARE };
        Self::with(Circuit::new(functions, width, seed), caps)
    }

    fn with(circuit: Circuit, caps: Caps) -> Self {
        Self { circuit: RefCell::new(circuit), caps, feed: Feed::default(), now_us: 0 }
    }

    /// The width of a beat.
    pub fn width(&self) -> Width {
        self.circuit.borrow().width
    }

    /// Writes the waveform of all signals from here on, a cycle being 10 ticks, to a file in the format FST of GTKWave and Surfer. It is
    /// whole when the engine is dropped.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn trace(&mut self, path: &Path) -> Result<(), WaveformError> {
        let failed = |why| WaveformError { path: path.display().to_string(), why };
        // The model does not say why it cannot.
        std::fs::File::create(path).map_err(failed)?;
        let text = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|why| failed(why.into()))?;
        match self.circuit.get_mut().model.trace(&text) {
            true => Ok(()),
            false => Err(failed(std::io::ErrorKind::Other.into())),
        }
    }

    /// Cycles of the clock since the reset, but for those that showed tables.
    pub fn cycles(&self) -> u64 {
        self.circuit.borrow().cycles
    }

    /// Gives bytes until the circuit takes no more of them; returns how many it has accepted.
    fn give(circuit: &mut Circuit, memory: &mut dyn HostMem, bytes: &[u8]) -> usize {
        let receives = Given { receives: true, ..Given::default() };
        let (mut sent, mut refused) = (0, 0);
        while sent < bytes.len() && refused < 400 && circuit.last.stopped == 0 {
            let beat = &bytes[sent..bytes.len().min(sent + circuit.width.bytes())];
            circuit.cycle(memory, Given { beat: Some(beat), ..receives });
            if circuit.last.rx_ready != 0 {
                sent += beat.len();
            }
            let waits = circuit.last.rx_ready == 0 && !circuit.is_at_work();
            refused = if waits { refused + 1 } else { 0 };
        }
        circuit.settle(memory, receives, circuit.patience());
        sent
    }

    /// Gives the circuit descriptors and bytes from the peer, and runs it until nothing more happens, without the stops between the
    /// calls of [`Engine`]: as hardware would. Returns the ports of each cycle. The bytes must be taken as they come: the connection
    /// neither stops nor waits for room. For measurements; host memory answers in the next cycle.
    ///
    /// # Panics
    /// The circuit does not take all of them.
    pub fn run_free(
        &mut self,
        memory: &mut dyn HostMem,
        descriptors: &[[u8; 64]],
        received: &[u8],
    ) -> Vec<Ports> {
        let circuit = self.circuit.get_mut();
        let (mut descriptors, mut at, mut quiet, mut cycles) = (descriptors, 0, 0, Vec::new());
        while !descriptors.is_empty() || at < received.len() || quiet < circuit.patience() {
            let beat = &received[at..received.len().min(at + circuit.width.bytes())];
            let beat = (!beat.is_empty()).then_some(beat);
            let (descriptor, answers) = (descriptors.first(), !circuit.reads.is_empty());
            circuit
                .cycle(memory, Given { descriptor, beat, receives: true, sends: true, ..Given::default() });
            let last = &circuit.last;
            let ports = Ports {
                descriptor: descriptor.is_some() && last.descriptor_ready != 0,
                receive: beat.is_some() && last.rx_ready != 0,
                read: last.read_valid != 0,
                read_data: answers && last.read_data_ready != 0,
                write: last.write_valid != 0,
                send: last.tx_valid != 0,
                completion: last.done_valid != 0,
            };
            assert!(last.stopped == 0 && cycles.len() < 1 << 20, "the circuit takes what comes");
            descriptors = &descriptors[usize::from(ports.descriptor)..];
            at += beat.filter(|_| ports.receive).map_or(0, <[u8]>::len);
            let works = ports != Ports::default() || circuit.is_at_work();
            quiet = if works { 0 } else { quiet + 1 };
            cycles.push(ports);
        }
        self.feed.accepted(received);
        cycles.truncate(cycles.len() - quiet);
        cycles
    }

    fn session_entry(&self, circuit: &Circuit) -> SessionEntry {
        let out = &circuit.last;
        let stopped = out.stopped != 0;
        SessionEntry {
            conn: 0,
            state: if stopped { SessionState::STOPPED } else { SessionState::OPEN },
            flags: out.conn_flags,
            polynomial: out.poly.reverse_bits(),
            cmd_sn: out.cmd_sn,
            exp_cmd_sn: out.exp_cmd_sn,
            max_cmd_sn: out.max_cmd_sn,
            exp_stat_sn: out.exp_stat_sn,
            next_stat_sn: out.stat_sn,
            max_recv_data_segment_length: out.max_recv,
            max_send_data_segment_length: out.max_send,
            max_burst_length: out.max_burst,
            first_burst_length: out.first_burst,
            snack_delay_us: out.snack_delay,
            rx_position: if stopped { out.taken } else { self.feed.had() },
            error_recovery_level: out.recovery_level,
            stop_reason: StopReason(out.stop_reason),
            raw_slots_free: out.raw_free,
            commands: out.tasks_used,
            max_outstanding_r2t: out.max_outstanding_r2t,
        }
    }
}

impl Engine for RtlEngine {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn submit(&mut self, memory: &mut dyn HostMem, record: &[u8; 64]) -> Result<(), Busy> {
        let circuit = self.circuit.get_mut();
        let held = if circuit.is_open() { usize::from(circuit.last.tasks_used) } else { 0 };
        if circuit.completions.len() + held + 1 > MAX_COMPLETIONS {
            return Err(Busy);
        }
        let was_open = circuit.is_open();
        let taken = circuit.last.taken;
        loop {
            circuit.cycle(memory, Given { descriptor: Some(record), ..Given::default() });
            if circuit.last.opens != 0 {
                self.feed = Feed::default();
            }
            if circuit.last.descriptor_ready != 0 {
                break;
            }
        }
        let mut quiet = 0;
        while quiet < 3 {
            circuit.cycle(memory, Given::default());
            if circuit.last.opens != 0 {
                self.feed = Feed::default();
            }
            if circuit.last.restart != 0 {
                self.feed.restart(circuit.last.restart_position, taken);
            }
            quiet = if circuit.is_at_work() { 0 } else { quiet + 1 };
        }
        if was_open && !circuit.is_open() {
            circuit.out.clear();
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<[u8; 64]> {
        self.circuit.get_mut().completions.pop_front()
    }

    fn rx(&mut self, memory: &mut dyn HostMem, conn: u16, bytes: &[u8]) -> usize {
        let circuit = self.circuit.get_mut();
        if conn != 0 || !circuit.is_open() || self.feed.is_stopped() {
            return 0;
        }
        let feed = &mut self.feed;
        let skipped = feed.skip(bytes.len());
        let bytes = &bytes[skipped..];
        let accepted = Self::give(circuit, memory, feed.again());
        feed.accepted_again(accepted);
        let mut used = 0;
        if feed.again().is_empty() && !bytes.is_empty() && circuit.last.stopped == 0 {
            used = Self::give(circuit, memory, bytes);
            feed.accepted(&bytes[..used]);
        }
        if circuit.last.stopped != 0 {
            used -= feed.stop(circuit.last.taken, used);
        }
        skipped + used
    }

    fn tx(&mut self, memory: &mut dyn HostMem, conn: u16, out: &mut [u8]) -> usize {
        let circuit = self.circuit.get_mut();
        if conn != 0 || !circuit.is_open() {
            return 0;
        }
        if circuit.out.len() < out.len() {
            circuit.settle(memory, Given { sends: true, ..Given::default() }, 3);
        }
        let count = circuit.out.len().min(out.len());
        out.iter_mut().zip(circuit.out.drain(..count)).for_each(|(to, from)| *to = from);
        count
    }

    fn release_raw(&mut self, conn: u16, slots: u16) {
        let circuit = self.circuit.get_mut();
        if conn == 0 && circuit.is_open() && slots > 0 {
            let given = Given { release: slots, ..Given::default() };
            circuit.cycle(&mut NoMemory, given);
            circuit.cycle(&mut NoMemory, Given::default());
        }
    }

    fn advance(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        let given = Given { now_us: Some(self.now_us), ..Given::default() };
        let circuit = self.circuit.get_mut();
        circuit.cycle(&mut NoMemory, given);
        circuit.settle(&mut NoMemory, Given::default(), 3);
    }

    fn deadline_us(&self) -> Option<u64> {
        let circuit = self.circuit.borrow();
        let waits = circuit.is_open() && circuit.last.deadline != u64::MAX;
        waits.then_some(circuit.last.deadline)
    }

    fn tables(&self) -> Tables {
        let mut circuit = self.circuit.borrow_mut();
        let mut tables = Tables::default();
        if !circuit.is_open() {
            return tables;
        }
        tables.sessions.push(self.session_entry(&circuit));
        let used = usize::from(circuit.last.tasks_used);
        let mut commands: Vec<(u8, Shown)> =
            (0..=u8::MAX).filter_map(|index| Some((index, circuit.show(index)?))).take(used).collect();
        commands.sort_by_key(|(_, shown)| shown.entry.itt);
        for (_, shown) in &commands {
            tables.commands.push(shown.entry);
            let itt = shown.entry.itt;
            let mut at = shown.list.map(|(first, _)| first);
            for element in 0.. {
                let Some(index) = at else { break };
                let Element { addr, length, begin: buffer_offset, next } = circuit.element(index);
                let conn = 0;
                tables.data_addresses.push(DataAddressEntry {
                    conn,
                    element,
                    itt,
                    addr,
                    length,
                    buffer_offset,
                });
                at = shown.list.filter(|(_, last)| *last != index).map(|_| next);
            }
        }
        for place in 0.. {
            let Some((index, burst)) = circuit.burst(place) else { break };
            let task = commands.iter().find(|(other, _)| *other == index);
            tables.r2ts.extend(task.map(|(_, shown)| R2tEntry { itt: shown.entry.itt, ..burst }));
        }
        tables.snacks.extend((0..).map_while(|place| circuit.snack(place)));
        tables
    }

    fn session(&self, conn: u16) -> Option<SessionEntry> {
        let circuit = self.circuit.borrow();
        (conn == 0 && circuit.is_open()).then(|| self.session_entry(&circuit))
    }
}

/// Where nothing is accessed.
struct NoMemory;

impl HostMem for NoMemory {
    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), offload::MemFault> {
        Err(offload::MemFault { addr, length: into.len() })
    }

    fn write(&mut self, addr: u64, from: &[u8]) -> Result<(), offload::MemFault> {
        Err(offload::MemFault { addr, length: from.len() })
    }

    fn check_write(&mut self, addr: u64, length: usize) -> Result<(), offload::MemFault> {
        Err(offload::MemFault { addr, length })
    }
}
