//! The receive side of the engine for one connection, cycle by cycle.

use crate::Width;
use crate::ffi::{Model, model};
use crate::packed::{bytes, words};
use crate::task::{Element, RxPart, StoreRequest, TaskPost, TxPart, ends_of_list};

/// Inputs of `rx_engine` in one cycle, for either width. The same as in the shim.
#[repr(C)]
#[derive(Clone, Default)]
struct RxEngineIn {
    data: [u32; 16],
    post: [u32; 12],
    tx_task: [u32; 4],
    restart_position: u64,
    raw_addr: u64,
    request_addr: u64,
    max_data: u32,
    max_burst: u32,
    raw_slot_bytes: u32,
    open_cmd_sn: u32,
    open_max_cmd_sn: u32,
    open_stat_sn: u32,
    cmd_sn: u32,
    request_tag: u32,
    request_length: u32,
    conn: u16,
    raw_slots: u16,
    release_slots: u16,
    tx_element: u16,
    count: u8,
    rst: u8,
    open: u8,
    restart: u8,
    header_digest: u8,
    data_digest: u8,
    max_outstanding_r2t: u8,
    valid: u8,
    run_ready: u8,
    answer_valid: u8,
    answer_refused: u8,
    write_ready: u8,
    done_room: u8,
    done_ready: u8,
    release: u8,
    request_valid: u8,
    request: u8,
    request_result: u8,
    request_index: u8,
    tx_look: u8,
    tx_index: u8,
    tx_write: u8,
    tx_write_index: u8,
    r2t_ready: u8,
    ended_ready: u8,
}

/// Outputs of `rx_engine`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct RxEngineOut {
    write_data: [u32; 16],
    done: [u32; 16],
    copy_post: [u32; 12],
    copy_rx: [u32; 4],
    copy_tx: [u32; 4],
    element: [u32; 4],
    run_addr: u64,
    write_addr: u64,
    taken: u64,
    r2t_lun: u64,
    copy_list: u64,
    run_length: u32,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    stat_sn: u32,
    copy_tag: u32,
    r2t_itt: u32,
    r2t_ttt: u32,
    r2t_sn: u32,
    r2t_offset: u32,
    r2t_length: u32,
    ended_itt: u32,
    /// Asserts that have failed so far.
    failed: u32,
    raw_free: u16,
    tx_next: u16,
    tasks_used: u16,
    ready: u8,
    run_valid: u8,
    write_valid: u8,
    write_first: u8,
    write_count: u8,
    done_valid: u8,
    stopped: u8,
    stop_reason: u8,
    request_ready: u8,
    reply_valid: u8,
    reply: u8,
    reply_index: u8,
    tx_looked: u8,
    tx_found: u8,
    r2t_valid: u8,
    r2t_index: u8,
    ended_valid: u8,
    ended_index: u8,
    busy: u8,
}

model!(ENGINE64, RxEngineIn, RxEngineOut, rx_engine64_new, rx_engine64_free, rx_engine64_cycle);
model!(ENGINE512, RxEngineIn, RxEngineOut, rx_engine512_new, rx_engine512_free, rx_engine512_cycle);

/// What OPEN_CONN says, as far as the receive side needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxConnection {
    /// Index of the connection.
    pub conn: u16,
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength in bytes: 4096 at most at 64 bit, 65536 at 512.
    pub max_data: u32,
    /// MaxBurstLength in bytes.
    pub max_burst: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u8,
    /// Address of the ring of raw PDUs.
    pub raw_addr: u64,
    /// Length of one slot in bytes.
    pub raw_slot_bytes: u32,
    /// Number of slots.
    pub raw_slots: u16,
    /// CmdSN of the next command.
    pub cmd_sn: u32,
    /// MaxCmdSN as last received.
    pub max_cmd_sn: u32,
    /// StatSN that is expected next.
    pub stat_sn: u32,
}

/// The reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxReply {
    /// TaskResult.
    pub result: u8,
    /// Index of the entry, of `PostBegin` and `Peek`.
    pub index: u8,
    /// The entry, of `Peek`.
    pub entry: RxEntry,
}

/// An entry of the command table, and the first element of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxEntry {
    /// Initiator Task Tag.
    pub itt: u32,
    /// What was posted.
    pub post: TaskPost,
    /// The part of the receive side.
    pub rx: RxPart,
    /// The part of the transmit side.
    pub tx: TxPart,
    /// First and last element of its list.
    pub list: Option<(u16, u16)>,
}

/// An R2T that is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxR2t {
    /// Index of the task.
    pub index: u8,
    /// Initiator Task Tag.
    pub itt: u32,
    /// Target Transfer Tag.
    pub ttt: u32,
    /// R2TSN.
    pub r2t_sn: u32,
    /// Offset of the requested data in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
    /// Logical unit, as on the wire.
    pub lun: [u8; 8],
}

/// What the surroundings take in one cycle.
#[derive(Debug, Clone, Copy, Default)]
pub struct RxReady {
    /// The host takes the announcement of a run.
    pub run: bool,
    /// The host takes a write.
    pub write: bool,
    /// The completion buffer takes a completion.
    pub done: bool,
    /// The transmit side takes an R2T.
    pub r2t: bool,
    /// The transmit side forgets a task that leaves.
    pub ended: bool,
}

/// What the surroundings do in one cycle.
#[derive(Debug, Clone, Copy, Default)]
pub struct RxInputs<'a> {
    /// The next bytes of the stream, one to a beat.
    pub beat: Option<&'a [u8]>,
    /// What fills the rest of the beat.
    pub rubbish: u8,
    /// What they take.
    pub ready: RxReady,
    /// The host answers the oldest announcement: true when it refuses.
    pub answer: Option<bool>,
    /// The completion buffer has room for four.
    pub room: bool,
    /// Software releases raw PDUs.
    pub release: u16,
    /// Control requests something.
    pub request: Option<StoreRequest>,
    /// The transmit side writes its part of the entry at an index.
    pub tx_write: Option<(u8, TxPart)>,
    /// The transmit side reads an element; the answer comes one cycle later.
    pub tx_element: u16,
    /// The next CmdSN.
    pub cmd_sn: u32,
}

/// The state of the circuit.
#[derive(Debug, Clone, Copy)]
pub struct RxState {
    /// ExpCmdSN, MaxCmdSN and the StatSN that is expected next.
    pub numbers: (u32, u32, u32),
    /// Free slots of the ring.
    pub raw_free: u16,
    /// Tasks in the table.
    pub tasks: u16,
    /// A PDU is not finished: its data moves, or a completion waits.
    pub busy: bool,
    /// Asserts that have failed since its reset.
    pub failed: u32,
}

/// What the circuit did in one cycle, as far as its surroundings took it.
#[derive(Debug, Clone)]
pub struct RxOutputs {
    /// The beat was accepted.
    pub accepted: bool,
    /// A run was announced: address and length.
    pub run: Option<(u64, u32)>,
    /// Bytes were written.
    pub write: Option<(u64, Vec<u8>)>,
    /// A completion.
    pub done: Option<[u8; 64]>,
    /// The request was taken.
    pub request_taken: bool,
    /// The reply to the request before.
    pub reply: Option<RxReply>,
    /// An R2T.
    pub r2t: Option<RxR2t>,
    /// A task has left: index and tag.
    pub ended: Option<(u8, u32)>,
    /// The element that was asked for in the cycle before.
    pub element: Element,
    /// StopReason, and the position behind the last byte that counts.
    pub stopped: Option<(u8, u64)>,
    /// What it is in.
    pub state: RxState,
}

/// `rx_engine` with 256 tasks: at 64 bit a Rx buffer of 4 KiB and 1024 elements, as it is synthesised; at 512 bit 64 KiB and 65536.
pub struct RxEngine {
    model: Model<RxEngineIn, RxEngineOut>,
    idle: RxEngineIn,
    width: Width,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl RxEngine {
    /// After power-up, with random contents from `seed`, and a reset. It receives nothing before `open`.
    pub fn new(width: Width, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => ENGINE64,
            Width::Bits512 => ENGINE512,
        };
        let mut model = Model::new(functions, seed);
        let reset = RxEngineIn { rst: 1, ..RxEngineIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).failed).last().unwrap_or(0);
        Self { model, idle: RxEngineIn::default(), width, ignored }
    }

    /// The width of a beat.
    pub fn width(&self) -> Width {
        self.width
    }

    /// A connection begins: all tables are empty, and the stream is at position 0.
    pub fn open(&mut self, connection: &RxConnection) {
        self.idle = RxEngineIn {
            conn: connection.conn,
            header_digest: connection.header_digest.into(),
            data_digest: connection.data_digest.into(),
            max_data: connection.max_data,
            max_burst: connection.max_burst,
            max_outstanding_r2t: connection.max_outstanding_r2t,
            raw_addr: connection.raw_addr,
            raw_slot_bytes: connection.raw_slot_bytes,
            raw_slots: connection.raw_slots,
            open_cmd_sn: connection.cmd_sn,
            open_max_cmd_sn: connection.max_cmd_sn,
            open_stat_sn: connection.stat_sn,
            cmd_sn: connection.cmd_sn,
            ..RxEngineIn::default()
        };
        self.model.cycle(&RxEngineIn { open: 1, ..self.idle.clone() });
    }

    /// RESYNC: the next beat begins with a PDU, at `position` of the stream.
    pub fn restart(&mut self, position: u64) {
        self.model.cycle(&RxEngineIn { restart: 1, restart_position: position, ..self.idle.clone() });
    }

    /// One cycle.
    pub fn cycle(&mut self, inputs: &RxInputs) -> RxOutputs {
        let mut ports = RxEngineIn {
            run_ready: inputs.ready.run.into(),
            answer_valid: inputs.answer.is_some().into(),
            answer_refused: inputs.answer.unwrap_or(false).into(),
            write_ready: inputs.ready.write.into(),
            done_room: inputs.room.into(),
            done_ready: inputs.ready.done.into(),
            r2t_ready: inputs.ready.r2t.into(),
            ended_ready: inputs.ready.ended.into(),
            release: (inputs.release > 0).into(),
            release_slots: inputs.release,
            tx_element: inputs.tx_element,
            cmd_sn: inputs.cmd_sn,
            ..self.idle.clone()
        };
        if let Some(bytes) = inputs.beat {
            let mut beat = [inputs.rubbish; 64];
            beat[..bytes.len()].copy_from_slice(bytes);
            ports.data = words(&beat);
            ports.count = bytes.len() as u8;
            ports.valid = 1;
        }
        if let Some((index, task)) = inputs.tx_write {
            (ports.tx_write, ports.tx_write_index) = (1, index);
            ports.tx_task = task.pack();
        }
        if let Some(request) = inputs.request {
            put_request(&mut ports, request);
        }
        let out = self.model.cycle(&ports);
        self.outputs(inputs, &out)
    }

    fn outputs(&self, inputs: &RxInputs, out: &RxEngineOut) -> RxOutputs {
        let write = bytes(&out.write_data);
        let first = usize::from(out.write_first);
        let written = first..first + usize::from(out.write_count);
        RxOutputs {
            accepted: inputs.beat.is_some() && out.ready != 0,
            run: (out.run_valid != 0 && inputs.ready.run).then_some((out.run_addr, out.run_length)),
            write: (out.write_valid != 0 && inputs.ready.write)
                .then(|| (out.write_addr, write[written].to_vec())),
            done: (out.done_valid != 0 && inputs.ready.done).then(|| bytes(&out.done)),
            request_taken: inputs.request.is_some() && out.request_ready != 0,
            reply: (out.reply_valid != 0).then(|| reply(out)),
            r2t: (out.r2t_valid != 0).then(|| r2t(out)),
            ended: (out.ended_valid != 0 && inputs.ready.ended).then_some((out.ended_index, out.ended_itt)),
            element: Element::unpack(&out.element, out.tx_next),
            stopped: (out.stopped != 0).then_some((out.stop_reason, out.taken)),
            state: RxState {
                numbers: (out.exp_cmd_sn, out.max_cmd_sn, out.stat_sn),
                raw_free: out.raw_free,
                tasks: out.tasks_used,
                busy: out.busy != 0,
                failed: out.failed - self.ignored,
            },
        }
    }
}

/// The codes of `request_t`.
fn put_request(ports: &mut RxEngineIn, request: StoreRequest) {
    ports.request_valid = 1;
    ports.request = match request {
        StoreRequest::PostBegin(itt) => {
            ports.request_tag = itt;
            0
        }
        StoreRequest::PostElement(addr, length) => {
            (ports.request_addr, ports.request_length) = (addr, length);
            1
        }
        StoreRequest::PostEnd(post) => {
            ports.post = post.pack();
            2
        }
        StoreRequest::PostCancel => 3,
        StoreRequest::EndTask(itt, result) => {
            (ports.request_tag, ports.request_result) = (itt, result);
            4
        }
        StoreRequest::Peek(index) => {
            ports.request_index = index;
            5
        }
    };
}

fn reply(out: &RxEngineOut) -> RxReply {
    RxReply {
        result: out.reply,
        index: out.reply_index,
        entry: RxEntry {
            itt: out.copy_tag,
            post: TaskPost::unpack(&out.copy_post),
            rx: RxPart::unpack(&out.copy_rx),
            tx: TxPart::unpack(&out.copy_tx),
            list: ends_of_list(out.copy_list),
        },
    }
}

fn r2t(out: &RxEngineOut) -> RxR2t {
    RxR2t {
        index: out.r2t_index,
        itt: out.r2t_itt,
        ttt: out.r2t_ttt,
        r2t_sn: out.r2t_sn,
        offset: out.r2t_offset,
        length: out.r2t_length,
        lun: out.r2t_lun.to_le_bytes(),
    }
}
