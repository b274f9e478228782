//! The receive side of the engine for one connection, cycle by cycle.

use crate::Width;
use crate::ffi::{ENGINE64, ENGINE512, Model, RxEngineIn, RxEngineOut};

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

/// The part of PostTask that the tables keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxPost {
    /// Bits of `task_flags`.
    pub flags: u8,
    /// ATTR, 0 to 4.
    pub attr: u8,
    /// PRI, 0 to 15.
    pub priority: u8,
    /// Expected Data Transfer Length in bytes.
    pub edtl: u32,
    /// Logical unit, as on the wire.
    pub lun: [u8; 8],
    /// CDB, as on the wire.
    pub cdb: [u8; 16],
    /// Returned in completions.
    pub user: u64,
    /// Address of the area for sense data.
    pub sense_addr: u64,
}

/// The part of an entry that the receive side writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxPart {
    /// DataSN or R2TSN that is expected next.
    pub next_sn: u32,
    /// End of the data received so far in the task's memory, in bytes.
    pub next_offset: u32,
    /// Bytes placed into the task's memory.
    pub bytes_received: u32,
    /// R2Ts that were taken, modulo 16.
    pub r2ts: u8,
}

/// The part of an entry that the transmit side writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxTxPart {
    /// The command was sent.
    pub sent: bool,
    /// Its CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN that it was sent with.
    pub exp_stat_sn: u32,
    /// Bytes of the task's memory that were sent.
    pub bytes_sent: u32,
    /// R2Ts whose data was sent, modulo 16.
    pub bursts_done: u8,
}

/// A request of control. One at a time: the next after the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxRequest {
    /// An entry for a tag; the reply has its index.
    PostBegin(u32),
    /// One more element of its list: address and length.
    PostElement(u64, u32),
    /// The task is complete.
    PostEnd(RxPost),
    /// The task is given up before its end.
    PostCancel,
    /// A task ends with this TaskResult.
    EndTask(u32, u8),
    /// The entry at an index.
    Peek(u8),
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
    pub post: RxPost,
    /// The part of the receive side.
    pub rx: RxPart,
    /// The part of the transmit side.
    pub tx: RxTxPart,
    /// First and last element of its list.
    pub list: Option<(u16, u16)>,
}

/// One element of the data_address table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxElement {
    /// Address in host memory.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Offset of its first byte in the task's memory.
    pub begin: u32,
    /// Index of the next element, if the list has one.
    pub next: u16,
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

/// What the surroundings do in one cycle.
#[derive(Debug, Clone, Copy, Default)]
pub struct RxInputs<'a> {
    /// The next bytes of the stream, one to a beat.
    pub beat: Option<&'a [u8]>,
    /// What fills the rest of the beat.
    pub rubbish: u8,
    /// The host takes the announcement of a run.
    pub run_ready: bool,
    /// The host answers the oldest announcement: true when it refuses.
    pub answer: Option<bool>,
    /// The host takes a write.
    pub write_ready: bool,
    /// The completion buffer has room for four.
    pub room: bool,
    /// It takes a completion now.
    pub done_ready: bool,
    /// The transmit side takes an R2T.
    pub r2t_ready: bool,
    /// The transmit side forgets a task that leaves.
    pub ended_ready: bool,
    /// Software releases raw PDUs.
    pub release: u16,
    /// Control requests something.
    pub request: Option<RxRequest>,
    /// The transmit side writes its part of the entry at an index.
    pub tx_write: Option<(u8, RxTxPart)>,
    /// The transmit side reads an element; the answer comes one cycle later.
    pub tx_element: u16,
    /// The next CmdSN.
    pub cmd_sn: u32,
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
    pub element: RxElement,
    /// StopReason, and the position behind the last byte that counts.
    pub stopped: Option<(u8, u64)>,
    /// ExpCmdSN, MaxCmdSN and the StatSN that is expected next.
    pub numbers: (u32, u32, u32),
    /// Free slots of the ring.
    pub raw_free: u16,
    /// Tasks in the table.
    pub tasks: u16,
    /// A PDU is not finished: its data moves, or a completion waits.
    pub busy: bool,
    /// Asserts of the circuit that have failed since its reset.
    pub failed: u32,
}

/// `rx_engine`: a Rx buffer of 4 KiB at 64 bit and of 64 KiB at 512 bit, 256 tasks, 65536 elements.
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
            run_ready: inputs.run_ready.into(),
            answer_valid: inputs.answer.is_some().into(),
            answer_refused: inputs.answer.unwrap_or(false).into(),
            write_ready: inputs.write_ready.into(),
            done_room: inputs.room.into(),
            done_ready: inputs.done_ready.into(),
            r2t_ready: inputs.r2t_ready.into(),
            ended_ready: inputs.ended_ready.into(),
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
        let element = number(&out.element);
        RxOutputs {
            accepted: inputs.beat.is_some() && out.ready != 0,
            run: (out.run_valid != 0 && inputs.run_ready).then_some((out.run_addr, out.run_length)),
            write: (out.write_valid != 0 && inputs.write_ready)
                .then(|| (out.write_addr, write[written].to_vec())),
            done: (out.done_valid != 0 && inputs.done_ready).then(|| bytes(&out.done)),
            request_taken: inputs.request.is_some() && out.request_ready != 0,
            reply: (out.reply_valid != 0).then(|| reply(out)),
            r2t: (out.r2t_valid != 0).then(|| r2t(out)),
            ended: (out.ended_valid != 0 && inputs.ended_ready).then_some((out.ended_index, out.ended_itt)),
            element: RxElement {
                addr: (element >> 64) as u64,
                length: (element >> 32) as u32,
                begin: element as u32,
                next: out.tx_next,
            },
            stopped: (out.stopped != 0).then_some((out.stop_reason, out.taken)),
            numbers: (out.exp_cmd_sn, out.max_cmd_sn, out.stat_sn),
            raw_free: out.raw_free,
            tasks: out.tasks_used,
            busy: out.busy != 0,
            failed: out.failed - self.ignored,
        }
    }
}

impl RxPost {
    /// The bits of `task_post_t`.
    fn pack(&self) -> [u32; 12] {
        let mut words = [0; 12];
        let mut put = |at: usize, bytes: &[u8]| {
            for (word, bytes) in words[at..].iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*bytes);
            }
        };
        put(0, &self.sense_addr.to_le_bytes());
        put(2, &self.user.to_le_bytes());
        put(4, &self.cdb);
        put(8, &self.lun);
        put(10, &self.edtl.to_le_bytes());
        words[11] = u32::from(self.priority) | u32::from(self.attr) << 4 | u32::from(self.flags) << 7;
        words
    }

    fn unpack(words: &[u32; 12]) -> Self {
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let eight = |at: usize| std::array::from_fn(|i| all[at + i]);
        Self {
            flags: (words[11] >> 7) as u8,
            attr: (words[11] >> 4 & 7) as u8,
            priority: (words[11] & 15) as u8,
            edtl: words[10],
            lun: eight(32),
            cdb: std::array::from_fn(|i| all[16 + i]),
            user: u64::from_le_bytes(eight(8)),
            sense_addr: u64::from_le_bytes(eight(0)),
        }
    }
}

impl RxTxPart {
    /// The bits of `task_tx_t`.
    fn pack(&self) -> [u32; 4] {
        let fields = u128::from(self.sent) << 100
            | u128::from(self.cmd_sn) << 68
            | u128::from(self.exp_stat_sn) << 36
            | u128::from(self.bytes_sent) << 4
            | u128::from(self.bursts_done & 15);
        std::array::from_fn(|i| (fields >> (32 * i)) as u32)
    }

    fn unpack(words: &[u32; 4]) -> Self {
        let fields = number(words);
        Self {
            sent: fields >> 100 & 1 != 0,
            cmd_sn: (fields >> 68) as u32,
            exp_stat_sn: (fields >> 36) as u32,
            bytes_sent: (fields >> 4) as u32,
            bursts_done: (fields & 15) as u8,
        }
    }
}

impl RxPart {
    /// The bits of `task_rx_t`.
    fn unpack(words: &[u32; 4]) -> Self {
        let fields = number(words);
        Self {
            next_sn: (fields >> 69) as u32,
            next_offset: (fields >> 37) as u32,
            bytes_received: (fields >> 5) as u32,
            r2ts: (fields >> 1 & 15) as u8,
        }
    }
}

fn number(words: &[u32; 4]) -> u128 {
    words.iter().rev().fold(0, |number, word| number << 32 | u128::from(*word))
}

fn words(bytes: &[u8; 64]) -> [u32; 16] {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

fn bytes(words: &[u32; 16]) -> [u8; 64] {
    std::array::from_fn(|i| words[i / 4].to_le_bytes()[i % 4])
}

/// The codes of `request_t`.
fn put_request(ports: &mut RxEngineIn, request: RxRequest) {
    ports.request_valid = 1;
    ports.request = match request {
        RxRequest::PostBegin(itt) => {
            ports.request_tag = itt;
            0
        }
        RxRequest::PostElement(addr, length) => {
            (ports.request_addr, ports.request_length) = (addr, length);
            1
        }
        RxRequest::PostEnd(post) => {
            ports.post = post.pack();
            2
        }
        RxRequest::PostCancel => 3,
        RxRequest::EndTask(itt, result) => {
            (ports.request_tag, ports.request_result) = (itt, result);
            4
        }
        RxRequest::Peek(index) => {
            ports.request_index = index;
            5
        }
    };
}

fn reply(out: &RxEngineOut) -> RxReply {
    let list = out.copy_list;
    RxReply {
        result: out.reply,
        index: out.reply_index,
        entry: RxEntry {
            itt: out.copy_tag,
            post: RxPost::unpack(&out.copy_post),
            rx: RxPart::unpack(&out.copy_rx),
            tx: RxTxPart::unpack(&out.copy_tx),
            list: (list >> 32 & 1 != 0).then_some(((list >> 16) as u16, list as u16)),
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
