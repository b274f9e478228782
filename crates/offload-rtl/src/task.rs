//! A task in the tables of the engine, as `engine_pkg.sv` packs it, and what control asks of the tables.

use crate::packed::Bits;

/// What the tables have of a task from POST_TASK (`task_post_t`). Byte strings as on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskPost {
    /// Bits of `task_flags`.
    pub flags: u8,
    /// ATTR, 0 to 4.
    pub attr: u8,
    /// PRI, 0 to 15.
    pub priority: u8,
    /// Expected Data Transfer Length in bytes.
    pub edtl: u32,
    /// Logical unit.
    pub lun: [u8; 8],
    /// CDB.
    pub cdb: [u8; 16],
    /// Returned in completions.
    pub user: u64,
    /// Address of the area for sense data.
    pub sense_addr: u64,
}

impl TaskPost {
    pub(crate) fn pack(&self) -> [u32; 12] {
        let bits = Bits::new().put(self.sense_addr.into(), 64).put(self.user.into(), 64);
        let bits = bits.put(u128::from_le_bytes(self.cdb), 128).put(u64::from_le_bytes(self.lun).into(), 64);
        let bits = bits.put(self.edtl.into(), 32).put(self.priority.into(), 4).put(self.attr.into(), 3);
        bits.put(self.flags.into(), 8).words
    }

    pub(crate) fn unpack(words: &[u32; 12]) -> Self {
        let mut bits = Bits::of(words);
        let (sense_addr, user) = (bits.take(64), bits.take(64));
        let cdb = u128::from(bits.take(64)) | u128::from(bits.take(64)) << 64;
        Self {
            sense_addr,
            user,
            cdb: cdb.to_le_bytes(),
            lun: bits.take(64).to_le_bytes(),
            edtl: bits.take(32) as u32,
            priority: bits.take(4) as u8,
            attr: bits.take(3) as u8,
            flags: bits.take(8) as u8,
        }
    }
}

/// The part of an entry that the transmit side writes (`task_tx_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TxPart {
    /// The command was sent.
    pub sent: bool,
    /// Its CmdSN.
    pub cmd_sn: u32,
    /// The ExpStatSN that it was sent with.
    pub exp_stat_sn: u32,
    /// Bytes of the task's memory that were sent.
    pub bytes_sent: u32,
    /// R2Ts whose data was sent, modulo 16.
    pub bursts_done: u8,
}

impl TxPart {
    pub(crate) fn pack(&self) -> [u32; 4] {
        let bits = Bits::new().put(self.bursts_done.into(), 4).put(self.bytes_sent.into(), 32);
        bits.put(self.exp_stat_sn.into(), 32).put(self.cmd_sn.into(), 32).put(self.sent.into(), 1).words
    }

    pub(crate) fn unpack(words: &[u32; 4]) -> Self {
        let mut bits = Bits::of(words);
        Self {
            bursts_done: bits.take(4) as u8,
            bytes_sent: bits.take(32) as u32,
            exp_stat_sn: bits.take(32) as u32,
            cmd_sn: bits.take(32) as u32,
            sent: bits.take(1) != 0,
        }
    }
}

/// The part of an entry that the receive side writes (`task_rx_t`).
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

impl RxPart {
    pub(crate) fn unpack(words: &[u32; 4]) -> Self {
        let mut bits = Bits::of(words);
        // Whether the walk of the list goes on where it was is the circuit's own.
        bits.take(1);
        Self {
            r2ts: bits.take(4) as u8,
            bytes_received: bits.take(32) as u32,
            next_offset: bits.take(32) as u32,
            next_sn: bits.take(32) as u32,
        }
    }
}

/// An element of the data_address table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Element {
    /// Address in host memory.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Offset of its first byte in the task's memory.
    pub begin: u32,
    /// Index of the element behind it, if the list has one.
    pub next: u16,
}

impl Element {
    /// All but `next` (`element_t`).
    pub(crate) fn pack(&self) -> [u32; 4] {
        Bits::new().put(self.begin.into(), 32).put(self.length.into(), 32).put(self.addr.into(), 64).words
    }

    pub(crate) fn unpack(words: &[u32; 4], next: u16) -> Self {
        let mut bits = Bits::of(words);
        Self { begin: bits.take(32) as u32, length: bits.take(32) as u32, addr: bits.take(64), next }
    }
}

/// The indices of the first and the last element of a list (`list_t`), if it has any.
pub(crate) fn ends_of_list(list: u64) -> Option<(u16, u16)> {
    (list >> 32 & 1 != 0).then_some(((list >> 16) as u16, list as u16))
}

/// What control asks of the tables, one at a time: the next after the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRequest {
    /// An entry for a task with this tag; the reply has its index.
    PostBegin(u32),
    /// The next element of its list: address and length.
    PostElement(u64, u32),
    /// The task is complete.
    PostEnd(TaskPost),
    /// The task is given up before its end.
    PostCancel,
    /// The task with this tag ends, with this code of `TaskResult`.
    EndTask(u32, u8),
    /// The entry at an index.
    Peek(u8),
}
