//! One read and one write by the circuit, alone and cycle by cycle, as the timing diagrams and the waveforms of docs/offload.md show them.
//!
//! Both are of 1024 bytes, with both digests on and PDUs of 512 bytes. Half of the write is immediate data, an R2T asks for the rest. Host
//! memory answers in the next cycle, and the peer at once.

use iscsi_wire::{
    Bhs, CmdSn, DataIn, DataSn, Itt, Lun, R2t, R2tSn, ResidualCount, ResponseNumbers, ScsiResponse, StatSn,
    Ttt,
};
use offload::encoding::{Completion, OpenConn, PostTask, SglElement, TaskResult, conn_flags, task_flags};
use offload::{Engine, FlatMemory, HostMem};

use crate::{Ports, RtlEngine};

/// Where host memory begins, and what lies in it.
const BASE: u64 = 0x1_0000_0000;
const SGL_ADDR: u64 = BASE + 0x2_0000;
const SENSE_ADDR: u64 = BASE + 0x3_0000;
const DATA_ADDR: u64 = BASE + 0x4_0000;
const MEMORY_BYTES: usize = 0x5_0000;
const LUN: Lun = Lun(0x0003_0000_0000_0000);
const ITT: Itt = Itt(1);
const TTT: Ttt = Ttt(9);
/// Data of a PDU, bytes.
const PIECE: u32 = 512;
/// Data of the command.
const EDTL: u32 = 2 * PIECE;

/// What is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A read whose data come in two Data-In; the second has the status.
    Read,
    /// A write of which half is immediate data.
    Write,
}

/// A part of a scene: what the host or the peer does, and all that follows from it.
pub struct Phase {
    /// In a few words.
    pub name: &'static str,
    /// The ports of each cycle.
    pub ports: Vec<Ports>,
}

impl Scene {
    /// Carries it out by `engine`, which must be fresh.
    ///
    /// # Panics
    /// The circuit does something else than the engine's interface says.
    pub fn play(self, engine: RtlEngine) -> Vec<Phase> {
        let mut stage = Stage::new(engine);
        match self {
            Scene::Read => stage.read(),
            Scene::Write => stage.write(),
        }
        stage.end()
    }
}

struct Stage {
    engine: RtlEngine,
    memory: FlatMemory,
    phases: Vec<Phase>,
}

impl Stage {
    fn new(engine: RtlEngine) -> Self {
        let mut stage = Self { engine, memory: FlatMemory::new(BASE, MEMORY_BYTES), phases: Vec::new() };
        let digests = conn_flags::HEADER_DIGEST | conn_flags::DATA_DIGEST;
        let open = OpenConn {
            flags: digests | conn_flags::IMMEDIATE_DATA | conn_flags::INITIAL_R2T,
            conn: 0,
            max_outstanding_r2t: 2,
            raw_slots: 8,
            user: 1,
            raw_addr: BASE,
            raw_slot_bytes: 48 + 1020 + 8192,
            max_recv_data_segment_length: stage.engine.caps().buffer_bytes.min(8192),
            max_send_data_segment_length: PIECE,
            max_burst_length: 16384,
            first_burst_length: 8192,
            cmd_sn: 10,
            max_cmd_sn: 30,
            exp_stat_sn: 100,
            snack_delay_us: 1000,
            error_recovery_level: 0,
        };
        stage.engine.submit(&mut stage.memory, &open.emit()).expect("a fresh engine has room");
        stage.done();
        stage
    }

    fn post(&mut self, flags: u8) {
        let list = SglElement { addr: DATA_ADDR, length: EDTL };
        self.memory.write(SGL_ADDR, &list.emit()).expect("in host memory");
        let post = PostTask {
            flags,
            conn: 0,
            itt: ITT.0,
            user: 1001,
            lun: LUN.0.to_be_bytes(),
            cdb: [0x28; 16],
            edtl: EDTL,
            attr: 0,
            priority: 0,
            sgl_elements: 1,
            sgl_addr: SGL_ADDR,
            sense_addr: SENSE_ADDR,
        };
        let ports = self.engine.run_free(&mut self.memory, &[post.emit()], &[]);
        self.phases.push(Phase { name: "POST_TASK", ports });
    }

    fn arrives(&mut self, name: &'static str, pdus: &[Vec<u8>]) {
        let ports = self.engine.run_free(&mut self.memory, &[], &pdus.concat());
        self.phases.push(Phase { name, ports });
    }

    /// Numbers that fit the session.
    fn numbers(&self) -> ResponseNumbers {
        let session = self.engine.session(0).expect("it is open");
        ResponseNumbers {
            stat_sn: StatSn(session.next_stat_sn),
            exp_cmd_sn: CmdSn(session.cmd_sn),
            max_cmd_sn: CmdSn(session.max_cmd_sn),
        }
    }

    fn read(&mut self) {
        self.post(task_flags::READ);
        let data: Vec<u8> = (0..EDTL).map(|n| (n.wrapping_mul(7) >> 1) as u8 | 1).collect();
        let (first, second) = data.split_at(PIECE as usize);
        let header = DataIn {
            final_bit: false,
            acknowledge: false,
            status_bit: false,
            status: 0,
            lun: Lun(0),
            itt: ITT,
            ttt: Ttt::RESERVED,
            numbers: self.numbers(),
            data_sn: DataSn(0),
            buffer_offset: 0,
            residual_count: ResidualCount::default(),
        };
        let last =
            DataIn { final_bit: true, status_bit: true, data_sn: DataSn(1), buffer_offset: PIECE, ..header };
        let pdus = [pdu(header.to_bhs(), first), pdu(last.to_bhs(), second)];
        self.arrives("two Data-In, status with the second", &pdus);
        let mut placed = vec![0; data.len()];
        self.memory.read(DATA_ADDR, &mut placed).expect("in host memory");
        assert!(placed == data, "the data is in the memory of the task");
    }

    fn write(&mut self) {
        self.post(task_flags::WRITE);
        let r2t = R2t {
            lun: LUN,
            itt: ITT,
            ttt: TTT,
            numbers: self.numbers(),
            r2t_sn: R2tSn(0),
            buffer_offset: PIECE,
            desired_data_transfer_length: PIECE,
        };
        self.arrives("R2T", &[pdu(r2t.to_bhs(), &[])]);
        let response = ScsiResponse {
            response: 0,
            status: 0,
            itt: ITT,
            snack_tag: 0,
            numbers: self.numbers(),
            exp_data_sn: DataSn(1),
            bidi_residual_count: ResidualCount::default(),
            residual_count: ResidualCount::default(),
        };
        self.arrives("SCSI Response", &[pdu(response.to_bhs(), &[])]);
    }

    /// The one completion that is due.
    fn done(&mut self) {
        let done: Vec<_> =
            std::iter::from_fn(|| self.engine.poll()).map(|record| Completion::parse(&record)).collect();
        assert!(
            matches!(done[..], [Some(Completion::TaskDone(done))] if (done.result, done.status) == (TaskResult::GOOD, 0)),
            "one completion, GOOD: {done:?}"
        );
    }

    fn end(mut self) -> Vec<Phase> {
        self.done();
        self.phases
    }
}

/// A PDU with both digests. Its data are whole words.
fn pdu(mut bhs: Bhs, data: &[u8]) -> Vec<u8> {
    bhs.set_data_segment_length(data.len());
    let mut bytes = bhs.as_bytes().to_vec();
    bytes.extend(integrity::crc32c(bhs.as_bytes()).to_le_bytes());
    if !data.is_empty() {
        bytes.extend_from_slice(data);
        bytes.extend(integrity::crc32c(data).to_le_bytes());
    }
    bytes
}
