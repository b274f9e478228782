//! Connections and tasks by chance, and where their memory lies.

use fastrand::Rng;
use offload::encoding::{OpenConn, PostTask, SglElement, conn_flags, task_flags};
use offload_rtl::Width;

use crate::common;
pub use crate::common::{BASE, BOTH_DIGESTS};

/// Length of host memory in bytes. What lies outside is refused.
pub const MEMORY_BYTES: usize = 0x8_0000;
/// A list is read from here.
pub const LIST_ADDR: u64 = BASE;
/// The ring of raw PDUs.
pub const RAW_ADDR: u64 = BASE + 0x2000;
pub const RAW_SLOTS: u16 = 4;
/// Sense data, and the data of tasks.
pub const SENSE_ADDR: u64 = BASE + 0x1_8000;
pub const DATA_ADDR: u64 = BASE + 0x2_0000;
pub const DATA_BYTES: u64 = 0x6_0000;

pub fn open_conn(flags: u8, max_data: u32) -> OpenConn {
    OpenConn {
        raw_slots: RAW_SLOTS,
        raw_addr: RAW_ADDR,
        raw_slot_bytes: 48 + 1020 + max_data,
        max_recv_data_segment_length: max_data,
        ..common::open_conn(flags, 0)
    }
}

/// What the Rx buffer of a width holds, in bytes of data.
pub fn max_data(width: Width) -> u32 {
    if width == Width::Bits64 { 4096 } else { 8192 }
}

pub fn random_open(width: Width, random: &mut Rng) -> OpenConn {
    let flags = random.u8(..32) & (BOTH_DIGESTS | conn_flags::INITIAL_R2T | conn_flags::IMMEDIATE_DATA);
    let mut open = open_conn(flags, max_data(width));
    if random.u8(..4) == 0 {
        open.max_recv_data_segment_length = random.u32(512..=max_data(width));
    }
    open.max_outstanding_r2t = random.u16(1..=8);
    let number = random.u32(..).wrapping_mul(random.u32(..2));
    (open.cmd_sn, open.max_cmd_sn) = (number.wrapping_sub(5), number.wrapping_add(random.u32(..20)));
    open.exp_stat_sn = number.wrapping_sub(random.u32(..9));
    if random.u8(..8) == 0 {
        // The last slot lies outside of memory.
        open.raw_addr = BASE + MEMORY_BYTES as u64 - 3 * u64::from(open.raw_slot_bytes);
    }
    open
}

/// A list of `edtl` bytes and more, in elements of any length; one of them may lie outside of memory.
pub fn random_list(edtl: u32, random: &mut Rng) -> Vec<SglElement> {
    let mut list = Vec::new();
    let mut left = edtl + random.u32(..2) * random.u32(..100);
    while left > 0 && list.len() < 200 {
        let length = match random.u8(..4) {
            0 => random.u32(1..=left.min(40)),
            1 => left.min(4096),
            _ => random.u32(1..=left),
        };
        let mut addr = DATA_ADDR + random.u64(..DATA_BYTES - u64::from(length));
        if random.u8(..60) == 0 {
            addr = BASE + MEMORY_BYTES as u64 - u64::from(length / 2);
        }
        list.push(SglElement { addr, length });
        left -= length;
    }
    if random.u8(..40) == 0 {
        let bad = [SglElement { addr: DATA_ADDR, length: 0 }, SglElement { addr: u64::MAX - 8, length: 9 }];
        list.push(bad[random.usize(..2)]);
    }
    if random.u8(..40) == 0 {
        list.pop();
    }
    list
}

/// A task and its list; some are refused.
pub fn random_task(random: &mut Rng) -> (PostTask, Vec<SglElement>) {
    let kind = [0, task_flags::READ, task_flags::READ, task_flags::WRITE][random.usize(..4)];
    let edtl = if kind == 0 { 0 } else { [random.u32(..200), random.u32(..30_000)][random.usize(..2)] };
    let itt = random.u32(..24);
    let mut sense_addr = SENSE_ADDR + 0x100 * u64::from(itt);
    if random.u8(..40) == 0 {
        sense_addr = 16;
    }
    let post = PostTask {
        flags: kind | (random.u8(..2) * task_flags::IMMEDIATE),
        itt,
        user: random.u64(..),
        lun: std::array::from_fn(|_| random.u8(..)),
        cdb: std::array::from_fn(|_| random.u8(..)),
        edtl,
        sense_addr,
        ..PostTask::default()
    };
    (post, random_list(edtl, random))
}

/// What is left of a PDU after one bit has flipped, in about one of eighty.
pub fn random_flip(pdu: &mut [u8], open: &OpenConn, random: &mut Rng) {
    let digests = open.flags & BOTH_DIGESTS;
    // A flip that no digest covers makes another PDU, maybe one whose end is far away.
    if digests == BOTH_DIGESTS && random.u8(..80) == 0 {
        let at = [random.usize(8..52), random.usize(8..pdu.len())][random.usize(..2)];
        pdu[at] ^= 1 << random.u8(..8);
    }
}
