//! A peer made by hand: PDUs from `iscsi-wire`, digests from an independent crate, and an engine with its host memory.
#![allow(dead_code, reason = "every test file uses a part")]

use crc::{CRC_32_ISCSI, Crc};
use iscsi_wire::{
    Bhs, CmdSn, DataIn, DataSn, Itt, Lun, R2t, R2tSn, ResidualCount, ResponseNumbers, ScsiResponse, StatSn,
    Ttt, padded_length,
};
use offload::encoding::{
    Completion, NeedResync, OpenConn, PostTask, SglElement, TaskDone, conn_flags, task_flags,
};
use offload::{Engine, FlatMemory, HostMem, SoftwareEngine};

/// Where host memory begins.
pub const BASE: u64 = 0x1_0000_0000;
pub const RAW_ADDR: u64 = BASE;
pub const RAW_SLOT_BYTES: u32 = 48 + 1020 + 8192;
pub const RAW_SLOTS: u16 = 8;
pub const SGL_ADDR: u64 = BASE + 0x20000;
pub const SENSE_ADDR: u64 = BASE + 0x30000;
/// The data of tasks.
pub const DATA_ADDR: u64 = BASE + 0x40000;
pub const MEMORY_BYTES: usize = 0xc0000;
pub const LUN: Lun = Lun(0x0003_0000_0000_0000);
pub const BOTH_DIGESTS: u8 = conn_flags::HEADER_DIGEST | conn_flags::DATA_DIGEST;

/// An engine with one connection, and its host.
pub struct Bench<E = SoftwareEngine> {
    pub engine: E,
    pub memory: FlatMemory,
    pub digests: u8,
    pub crc: Crc<u32>,
}

pub fn open_conn(flags: u8, error_recovery_level: u8) -> OpenConn {
    OpenConn {
        flags,
        conn: 0,
        max_outstanding_r2t: 2,
        raw_slots: RAW_SLOTS,
        user: 1,
        raw_addr: RAW_ADDR,
        raw_slot_bytes: RAW_SLOT_BYTES,
        max_recv_data_segment_length: 8192,
        max_send_data_segment_length: 4096,
        max_burst_length: 16384,
        first_burst_length: 8192,
        cmd_sn: 10,
        max_cmd_sn: 30,
        exp_stat_sn: 100,
        snack_delay_us: 1000,
        error_recovery_level,
    }
}

impl Bench {
    /// Opens connection 0 in the software engine.
    pub fn open(open: OpenConn) -> Self {
        Self::with(SoftwareEngine::new(), open)
    }
}

impl<E: Engine> Bench<E> {
    /// Opens connection 0 in `engine`, with data segments that it has room for; the completion must be GOOD.
    pub fn with(engine: E, mut open: OpenConn) -> Self {
        open.max_recv_data_segment_length = open.max_recv_data_segment_length.min(engine.caps().buffer_bytes);
        let mut bench = Self {
            engine,
            memory: FlatMemory::new(BASE, MEMORY_BYTES),
            digests: open.flags & BOTH_DIGESTS,
            crc: Crc::<u32>::new(&CRC_32_ISCSI),
        };
        bench.submit(&open.emit());
        let done = bench.completions();
        assert!(
            matches!(
                done[..],
                [Completion::TaskDone(TaskDone { result: offload::encoding::TaskResult::GOOD, .. })]
            ),
            "{done:?}"
        );
        bench
    }

    pub fn submit(&mut self, record: &[u8; 64]) {
        self.engine.submit(&mut self.memory, record).expect("there is room");
    }

    /// Posts a task whose memory is two elements, so that data crosses from one to the other.
    pub fn post(&mut self, itt: u32, flags: u8, edtl: u32) {
        let first = edtl / 3;
        let addr = self.data_addr(itt);
        let list = [(addr, first), (addr + u64::from(first), edtl - first)];
        let list: Vec<_> = list
            .into_iter()
            .filter(|(_, length)| *length > 0)
            .map(|(addr, length)| SglElement { addr, length })
            .collect();
        let post = self.task_with(itt, flags, edtl, &list);
        self.submit(&post.emit());
    }

    /// A task whose memory is one element.
    pub fn task(&mut self, itt: u32, flags: u8, edtl: u32) -> PostTask {
        let addr = self.data_addr(itt);
        self.task_with(itt, flags, edtl, &[SglElement { addr, length: edtl }])
    }

    /// A task with this list, which is in host memory then.
    pub fn task_with(&mut self, itt: u32, flags: u8, edtl: u32, list: &[SglElement]) -> PostTask {
        let bytes: Vec<u8> = list.iter().flat_map(SglElement::emit).collect();
        self.memory.write(SGL_ADDR, &bytes).expect("in host memory");
        PostTask {
            flags,
            conn: 0,
            itt,
            user: 1000 + u64::from(itt),
            lun: LUN.0.to_be_bytes(),
            cdb: [0x28; 16],
            edtl,
            attr: 0,
            priority: 0,
            sgl_elements: list.len() as u16,
            sgl_addr: SGL_ADDR,
            sense_addr: SENSE_ADDR + 256 * u64::from(itt),
        }
    }

    pub fn data_addr(&self, itt: u32) -> u64 {
        DATA_ADDR + 0x8000 * u64::from(itt)
    }

    /// Posts a read and sends its command.
    pub fn read(&mut self, itt: u32, edtl: u32) {
        self.post(itt, task_flags::READ, edtl);
        self.tx();
    }

    pub fn data_of(&mut self, itt: u32, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.memory.read(self.data_addr(itt), &mut data).expect("in host memory");
        data
    }

    pub fn rx(&mut self, bytes: &[u8]) -> usize {
        self.engine.rx(&mut self.memory, 0, bytes)
    }

    /// All bytes that the engine has to send now.
    pub fn tx(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut some = [0; 777];
        loop {
            let count = self.engine.tx(&mut self.memory, 0, &mut some);
            all.extend_from_slice(&some[..count]);
            if count < some.len() {
                return all;
            }
        }
    }

    /// The PDUs that the engine has to send now: header and data, their digests compared.
    pub fn sent(&mut self) -> Vec<(Bhs, Vec<u8>)> {
        let bytes = self.tx();
        let mut rest = &bytes[..];
        let mut pdus = Vec::new();
        while let Some(first) = rest.first_chunk::<48>() {
            let bhs = Bhs::from_bytes(*first);
            let mut at = 48 + bhs.total_ahs_length();
            if self.digests & conn_flags::HEADER_DIGEST != 0 {
                assert_eq!(self.crc.checksum(&rest[..at]).to_le_bytes(), rest[at..at + 4], "header digest");
                at += 4;
            }
            let length = bhs.data_segment_length();
            let data = rest[at..at + length].to_vec();
            if self.digests & conn_flags::DATA_DIGEST != 0 && length > 0 {
                let end = at + padded_length(length);
                assert_eq!(
                    self.crc.checksum(&rest[at..end]).to_le_bytes(),
                    rest[end..end + 4],
                    "data digest"
                );
                at += 4;
            }
            rest = &rest[at + padded_length(length)..];
            pdus.push((bhs, data));
        }
        assert!(rest.is_empty(), "whole PDUs");
        pdus
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.engine.poll())
            .map(|record| Completion::parse(&record).expect("a defined kind"))
            .collect()
    }

    /// The bytes of a PDU with the digests of the connection.
    pub fn pdu(&self, mut bhs: Bhs, data: &[u8]) -> Vec<u8> {
        bhs.set_data_segment_length(data.len());
        let mut bytes = bhs.as_bytes().to_vec();
        if self.digests & conn_flags::HEADER_DIGEST != 0 {
            bytes.extend(self.crc.checksum(bhs.as_bytes()).to_le_bytes());
        }
        let mut padded = data.to_vec();
        padded.resize(padded_length(data.len()), 0);
        bytes.extend_from_slice(&padded);
        if self.digests & conn_flags::DATA_DIGEST != 0 && !data.is_empty() {
            bytes.extend(self.crc.checksum(&padded).to_le_bytes());
        }
        bytes
    }

    /// One Data-In; `stat_sn` makes it the last one, with status GOOD.
    pub fn data_in(&self, itt: u32, data_sn: u32, offset: u32, data: &[u8], stat_sn: Option<u32>) -> Vec<u8> {
        self.pdu(data_in(itt, data_sn, offset, stat_sn).to_bhs(), data)
    }

    pub fn response(&self, itt: u32, stat_sn: u32, exp_data_sn: u32) -> Vec<u8> {
        self.pdu(response(itt, stat_sn, exp_data_sn).to_bhs(), &[])
    }

    pub fn r2t(&self, itt: u32, ttt: u32, r2t_sn: u32, offset: u32, length: u32) -> Vec<u8> {
        let r2t = R2t {
            lun: LUN,
            itt: Itt(itt),
            ttt: Ttt(ttt),
            numbers: numbers(100),
            r2t_sn: R2tSn(r2t_sn),
            buffer_offset: offset,
            desired_data_transfer_length: length,
        };
        self.pdu(r2t.to_bhs(), &[])
    }
}

/// A status with this StatSN; the target has room for 30 commands.
fn numbers(stat_sn: u32) -> ResponseNumbers {
    ResponseNumbers { stat_sn: StatSn(stat_sn), exp_cmd_sn: CmdSn(11), max_cmd_sn: CmdSn(40) }
}

pub fn data_in(itt: u32, data_sn: u32, offset: u32, stat_sn: Option<u32>) -> DataIn {
    DataIn {
        final_bit: stat_sn.is_some(),
        acknowledge: false,
        status_bit: stat_sn.is_some(),
        status: 0,
        lun: Lun(0),
        itt: Itt(itt),
        ttt: Ttt::RESERVED,
        numbers: numbers(stat_sn.unwrap_or(0)),
        data_sn: DataSn(data_sn),
        buffer_offset: offset,
        residual_count: ResidualCount::default(),
    }
}

pub fn response(itt: u32, stat_sn: u32, exp_data_sn: u32) -> ScsiResponse {
    ScsiResponse {
        response: 0,
        status: 0,
        itt: Itt(itt),
        snack_tag: 0,
        numbers: numbers(stat_sn),
        exp_data_sn: DataSn(exp_data_sn),
        bidi_residual_count: ResidualCount::default(),
        residual_count: ResidualCount::default(),
    }
}

/// Bytes that differ at every place.
pub fn pattern(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|n| (seed.wrapping_mul(31).wrapping_add(n.wrapping_mul(7)) >> 1) as u8 | 1)
        .collect()
}

pub fn task_done(completions: &[Completion]) -> Vec<TaskDone> {
    completions
        .iter()
        .filter_map(|completion| match completion {
            Completion::TaskDone(done) => Some(*done),
            _ => None,
        })
        .collect()
}

pub fn need_resync(completions: &[Completion]) -> Option<NeedResync> {
    completions.iter().find_map(|completion| match completion {
        Completion::NeedResync(need) => Some(*need),
        _ => None,
    })
}
