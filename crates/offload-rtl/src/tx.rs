//! The transmit module of one connection.

use crate::Width;
use crate::ffi::{Model, model};
use crate::packed::{Bits, words};
use crate::task::{Element, TaskPost, TxPart};

/// Inputs of `tx` in one cycle, for either width. Packed structs of `tx_pkg` are words, the lowest first. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct TxIn {
    mem_data: [u32; 16],
    raw_data: [u32; 16],
    look_post: [u32; 12],
    look_tx: [u32; 4],
    r2t: [u32; 7],
    snack: [u32; 7],
    element: [u32; 4],
    open_cmd_sn: u32,
    max_send: u32,
    max_burst: u32,
    first_burst: u32,
    exp_stat_sn: u32,
    max_cmd_sn: u32,
    look_tag: u32,
    post: u16,
    look_first: u16,
    element_next: u16,
    peek_at: u16,
    rst: u8,
    open: u8,
    header_digest: u8,
    data_digest: u8,
    initial_r2t: u8,
    immediate_data: u8,
    room: u8,
    post_valid: u8,
    looked: u8,
    look_found: u8,
    r2t_valid: u8,
    snack_answer: u8,
    snack_wanted: u8,
    raw_valid: u8,
    raw_last: u8,
    raw_words: u8,
    ended_valid: u8,
    ended_index: u8,
    mem_ready: u8,
    mem_data_valid: u8,
    mem_count: u8,
    mem_last: u8,
    mem_fault: u8,
    ready: u8,
}

/// Outputs of `tx`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct TxOut {
    mem_addr: u64,
    data: [u32; 16],
    write_tx: [u32; 4],
    peek: [u32; 7],
    peek_sent: u32,
    peek_data_sn: u32,
    mem_bytes: u32,
    cmd_sn: u32,
    fault_tag: u32,
    /// Asserts that have failed so far.
    failed: u32,
    element: u16,
    post_ready: u8,
    look: u8,
    look_index: u8,
    write: u8,
    write_index: u8,
    r2t_ready: u8,
    snack_take: u8,
    snack_index: u8,
    raw_numbered: u8,
    raw_ready: u8,
    ended_ready: u8,
    fault: u8,
    peek_valid: u8,
    mem_valid: u8,
    mem_data_ready: u8,
    valid: u8,
    count: u8,
    idle: u8,
}

model!(TX64, TxIn, TxOut, tx64_new, tx64_free, tx64_cycle);
model!(TX512, TxIn, TxOut, tx512_new, tx512_free, tx512_cycle);

/// What login has settled; lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxSettings {
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
    /// InitialR2T=Yes.
    pub initial_r2t: bool,
    /// ImmediateData=Yes.
    pub immediate_data: bool,
    /// Largest data segment that is sent: at most [`Width::buffer_bytes`].
    pub max_send: u32,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
}

/// The answer of the command table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskView {
    /// Initiator Task Tag.
    pub itt: u32,
    /// From POST_TASK.
    pub post: TaskPost,
    /// From here.
    pub tx: TxPart,
    /// Its first element in the data_address table.
    pub first: u16,
}

/// What is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxPost {
    /// The command with this index.
    Command {
        /// Index in the command table.
        index: u8,
        /// It takes no CmdSN.
        immediate: bool,
    },
    /// A PDU of software.
    Raw {
        /// It takes a CmdSN.
        numbered: bool,
        /// CmdSN is written.
        counts: bool,
    },
    /// The entry of the SNACK table with this index.
    Snack(u8),
}

/// Data that a write has to send: an entry of the R2T table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Index of the command.
    pub index: u8,
    /// Target Transfer Tag; ffffffffh for unsolicited data.
    pub ttt: u32,
    /// Logical unit as on the wire.
    pub lun: [u8; 8],
    /// R2TSN.
    pub r2t_sn: u32,
    /// Offset of its first byte in the task's memory.
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
}

impl Burst {
    fn pack(&self) -> [u32; 7] {
        let bits =
            Bits::new().put(self.length.into(), 32).put(self.offset.into(), 32).put(self.r2t_sn.into(), 32);
        let bits = bits.put(u64::from_le_bytes(self.lun).into(), 64);
        bits.put(self.ttt.into(), 32).put(self.index.into(), 8).words
    }

    pub(crate) fn unpack(words: &[u32; 7]) -> Self {
        let mut bits = Bits::of(words);
        let [length, offset, r2t_sn] = std::array::from_fn(|_| bits.take(32) as u32);
        let lun = bits.take(64).to_le_bytes();
        Self { length, offset, r2t_sn, lun, ttt: bits.take(32) as u32, index: bits.take(8) as u8 }
    }
}

/// What the SNACK table has of a SNACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snack {
    /// 0 data or R2T, 1 status, 2 DataACK.
    pub snack_type: u8,
    /// Initiator Task Tag.
    pub itt: u32,
    /// Target Transfer Tag.
    pub ttt: u32,
    /// Logical unit as on the wire.
    pub lun: [u8; 8],
    /// BegRun.
    pub beg_run: u32,
    /// RunLength.
    pub run_length: u32,
}

/// A part of a PDU of software: of its header segments, or of its data with the padding. At most a beat; all but the last are full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBeat {
    /// Whole words.
    pub bytes: Vec<u8>,
    /// The header segments, or the data, end here.
    pub last: bool,
}

/// Bytes that host memory answers with: at most a beat; all but the last of a read are full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemBeat {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The read ends here.
    pub last: bool,
    /// Host memory refuses it.
    pub fault: bool,
}

/// What the surroundings of the transmit module take in one cycle.
#[derive(Debug, Clone, Copy, Default)]
pub struct TxReady {
    /// PDUs may be begun.
    pub room: bool,
    /// Host memory takes a read.
    pub memory: bool,
    /// A beat of the stream is taken.
    pub stream: bool,
}

/// Inputs of one cycle.
#[derive(Debug, Clone, Default)]
pub struct TxInputs {
    /// ExpStatSN.
    pub exp_stat_sn: u32,
    /// MaxCmdSN.
    pub max_cmd_sn: u32,
    /// What the surroundings take.
    pub ready: TxReady,
    /// To be queued.
    pub post: Option<TxPost>,
    /// An R2T.
    pub r2t: Option<Burst>,
    /// The command with this index has ended.
    pub ended: Option<u8>,
    /// The answer to a look-up: the task, if there is one.
    pub looked: Option<Option<TaskView>>,
    /// The element that the cycle before has named.
    pub element: Element,
    /// The answer to the question about a SNACK: what it requests, if it is still wanted.
    pub snack: Option<Option<Snack>>,
    /// What is next of the PDUs of software that were selected in the cycle before.
    pub raw: Option<RawBeat>,
    /// Host memory answers.
    pub mem_data: Option<MemBeat>,
    /// The place in the R2T table whose entry the next cycle shows.
    pub peek_at: u16,
}

/// An entry of the R2T table, as software sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peek {
    /// The entry.
    pub burst: Burst,
    /// Bytes that were sent.
    pub sent: u32,
    /// DataSN of the next Data-Out.
    pub data_sn: u32,
}

/// What the module took of its inputs in one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxTaken {
    /// `post`.
    pub post: bool,
    /// `r2t`.
    pub r2t: bool,
    /// `ended`: nothing of the command is left here.
    pub ended: bool,
    /// `raw`.
    pub raw: bool,
    /// `mem_data`.
    pub mem_data: bool,
}

/// The state of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxState {
    /// CmdSN of the next command.
    pub cmd_sn: u32,
    /// Nothing more leaves before something comes in.
    pub idle: bool,
    /// Asserts of the circuit that have failed since its reset.
    pub failed: u32,
}

/// What the module said in one cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxCycle {
    /// What was taken of its inputs.
    pub taken: TxTaken,
    /// The command with this index is looked up.
    pub look: Option<u8>,
    /// Its part that is to be written.
    pub write: Option<(u8, TxPart)>,
    /// The element whose contents the next cycle needs.
    pub element: u16,
    /// The SNACK that is asked for, until `snack` answers.
    pub snack_take: Option<u8>,
    /// Which PDUs of software are selected: those that take a CmdSN, or the others.
    pub raw_numbered: bool,
    /// A read of host memory that was taken: address and bytes.
    pub read: Option<(u64, u32)>,
    /// Initiator Task Tag of the task whose memory was refused; nothing is begun until it has ended.
    pub fault: Option<u32>,
    /// Bytes of the stream that were taken.
    pub bytes: Vec<u8>,
    /// The entry of the R2T table that the cycle before has named.
    pub peek: Option<Peek>,
    /// What it is in.
    pub state: TxState,
}

/// `tx` for one width: with a Tx buffer of 4 KiB at 64 bit, and of 64 KiB at 512 bit; its R2T table has 512 entries, as it is synthesised.
pub struct Tx {
    model: Model<TxIn, TxOut>,
    width: Width,
    settings: TxSettings,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl Tx {
    /// After power-up, with random contents from `seed`, a reset, and OPEN_CONN.
    pub fn open(width: Width, settings: TxSettings, cmd_sn: u32, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => TX64,
            Width::Bits512 => TX512,
        };
        let mut model = Model::new(functions, seed);
        let reset = TxIn { rst: 1, ..TxIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).failed).last().unwrap_or(0);
        let mut tx = Self { model, width, settings, ignored };
        let open = TxIn { open: 1, open_cmd_sn: cmd_sn, ..tx.inputs(&TxInputs::default()) };
        tx.model.cycle(&open);
        tx
    }

    /// SET_PARAMS.
    pub fn set_max_send(&mut self, max_send: u32) {
        self.settings.max_send = max_send;
    }

    fn inputs(&self, given: &TxInputs) -> TxIn {
        let settings = &self.settings;
        let mut inputs = TxIn {
            header_digest: settings.header_digest.into(),
            data_digest: settings.data_digest.into(),
            initial_r2t: settings.initial_r2t.into(),
            immediate_data: settings.immediate_data.into(),
            max_send: settings.max_send,
            max_burst: settings.max_burst,
            first_burst: settings.first_burst,
            post_valid: given.post.is_some().into(),
            post: given.post.map_or(0, post_bits),
            ..common_inputs(given)
        };
        if let Some(beat) = &given.raw {
            inputs.raw_valid = 1;
            inputs.raw_last = beat.last.into();
            inputs.raw_words = (beat.bytes.len() / 4) as u8;
            inputs.raw_data = words(&beat.bytes);
        }
        inputs
    }

    /// One cycle.
    pub fn cycle(&mut self, given: &TxInputs) -> TxCycle {
        let inputs = self.inputs(given);
        let out = self.model.cycle(&inputs);
        common_outputs(given, &out, self.ignored)
    }

    /// The width of a beat.
    pub fn width(&self) -> Width {
        self.width
    }
}

impl TxIn {
    /// Answers a question about a task with its tag.
    pub(crate) fn answer_tag(&mut self, itt: u32) {
        self.look_tag = itt;
    }
}

impl TxOut {
    /// Asserts that have failed so far.
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }
}

/// Inputs that the module has inside the engine too.
pub fn common_inputs(given: &TxInputs) -> TxIn {
    let task = given.looked.flatten();
    let mut inputs = TxIn {
        exp_stat_sn: given.exp_stat_sn,
        max_cmd_sn: given.max_cmd_sn,
        room: given.ready.room.into(),
        r2t_valid: given.r2t.is_some().into(),
        r2t: given.r2t.as_ref().map_or([0; 7], Burst::pack),
        ended_valid: given.ended.is_some().into(),
        ended_index: given.ended.unwrap_or(0),
        looked: given.looked.is_some().into(),
        look_found: task.is_some().into(),
        element: given.element.pack(),
        element_next: given.element.next,
        snack_answer: given.snack.is_some().into(),
        snack_wanted: given.snack.flatten().is_some().into(),
        snack: given.snack.flatten().as_ref().map_or([0; 7], snack_bits),
        mem_ready: given.ready.memory.into(),
        ready: given.ready.stream.into(),
        peek_at: given.peek_at,
        ..TxIn::default()
    };
    if let Some(task) = task {
        inputs.look_tag = task.itt;
        inputs.look_post = task.post.pack();
        inputs.look_tx = task.tx.pack();
        inputs.look_first = task.first;
    }
    if let Some(beat) = &given.mem_data {
        inputs.mem_data_valid = 1;
        inputs.mem_last = beat.last.into();
        inputs.mem_fault = beat.fault.into();
        inputs.mem_count = beat.bytes.len() as u8;
        inputs.mem_data = words(&beat.bytes);
    }
    inputs
}

/// Outputs; those that it does not have inside the engine are 0 there. `ignored` asserts failed before the reset.
pub fn common_outputs(given: &TxInputs, out: &TxOut, ignored: u32) -> TxCycle {
    let sent = if given.ready.stream && out.valid != 0 { usize::from(out.count) } else { 0 };
    TxCycle {
        taken: TxTaken {
            post: given.post.is_some() && out.post_ready != 0,
            r2t: given.r2t.is_some() && out.r2t_ready != 0,
            ended: given.ended.is_some() && out.ended_ready != 0,
            raw: given.raw.is_some() && out.raw_ready != 0,
            mem_data: given.mem_data.is_some() && out.mem_data_ready != 0,
        },
        look: (out.look != 0).then_some(out.look_index),
        write: (out.write != 0).then(|| (out.write_index, TxPart::unpack(&out.write_tx))),
        element: out.element,
        snack_take: (out.snack_take != 0).then_some(out.snack_index),
        raw_numbered: out.raw_numbered != 0,
        read: (given.ready.memory && out.mem_valid != 0).then_some((out.mem_addr, out.mem_bytes)),
        fault: (out.fault != 0).then_some(out.fault_tag),
        bytes: out.data.iter().flat_map(|word| word.to_le_bytes()).take(sent).collect(),
        peek: (out.peek_valid != 0).then(|| Peek {
            burst: Burst::unpack(&out.peek),
            sent: out.peek_sent,
            data_sn: out.peek_data_sn,
        }),
        state: TxState { cmd_sn: out.cmd_sn, idle: out.idle != 0, failed: out.failed - ignored },
    }
}

fn post_bits(post: TxPost) -> u16 {
    let (kind, numbered, counts, index) = match post {
        TxPost::Command { index, immediate } => (0, !immediate, false, index),
        TxPost::Raw { numbered, counts } => (1, numbered, counts, 0),
        TxPost::Snack(index) => (2, false, false, index),
    };
    kind << 10 | u16::from(numbered) << 9 | u16::from(counts) << 8 | u16::from(index)
}

fn snack_bits(snack: &Snack) -> [u32; 7] {
    let bits = Bits::new().put(snack.run_length.into(), 32).put(snack.beg_run.into(), 32);
    let bits = bits.put(u64::from_le_bytes(snack.lun).into(), 64);
    bits.put(snack.ttt.into(), 32).put(snack.itt.into(), 32).put(snack.snack_type.into(), 2).words
}
