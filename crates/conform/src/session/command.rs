//! A SCSI command as a script describes it.

use iscsi_wire::{Lun, TaskAttribute};

/// How much unsolicited data a write sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsolicited {
    /// None: the target requests it by R2T. Legal whatever was negotiated.
    #[default]
    No,
    /// This many bytes in the command PDU, F set.
    Immediate(usize),
    /// This many bytes in the command PDU, then Data-Out PDUs until `total` bytes are sent, F on the last.
    Burst {
        /// Bytes in the command PDU.
        immediate: usize,
        /// Bytes in total.
        total: usize,
    },
}

/// A SCSI command. The constructors make legal ones; every field may be changed.
#[derive(Clone, Debug)]
pub struct Command {
    /// The CDB; bytes beyond the 16th go into an Extended CDB AHS.
    pub cdb: Vec<u8>,
    /// R bit.
    pub read: bool,
    /// W bit.
    pub write: bool,
    /// Expected Data Transfer Length in bytes.
    pub edtl: u32,
    /// Bidirectional Read Expected Data Transfer Length in bytes: adds its AHS.
    pub bidi_read_length: Option<u32>,
    /// The data of a write.
    pub data: Vec<u8>,
    /// How much of it is sent without R2T.
    pub unsolicited: Unsolicited,
    /// I bit.
    pub immediate: bool,
    /// ATTR.
    pub attr: TaskAttribute,
    /// A logical unit other than the session's.
    pub lun: Option<Lun>,
}

impl Command {
    fn new(cdb: impl Into<Vec<u8>>) -> Self {
        Command {
            cdb: cdb.into(),
            read: false,
            write: false,
            edtl: 0,
            bidi_read_length: None,
            data: Vec::new(),
            unsolicited: Unsolicited::No,
            immediate: false,
            attr: TaskAttribute::Simple,
            lun: None,
        }
    }

    /// A command without data.
    pub fn none(cdb: impl Into<Vec<u8>>) -> Self {
        Self::new(cdb)
    }

    /// A command that reads at most `edtl` bytes.
    pub fn read(cdb: impl Into<Vec<u8>>, edtl: u32) -> Self {
        Command { read: true, edtl, ..Self::new(cdb) }
    }

    /// A command that writes `data`.
    pub fn write(cdb: impl Into<Vec<u8>>, data: impl Into<Vec<u8>>) -> Self {
        let data = data.into();
        let edtl = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Command { write: true, edtl, data, ..Self::new(cdb) }
    }

    /// TEST UNIT READY.
    pub fn test_unit_ready() -> Self {
        Self::none([0; 6])
    }

    /// INQUIRY of the standard data.
    pub fn inquiry(allocation_length: u16, edtl: u32) -> Self {
        let [high, low] = allocation_length.to_be_bytes();
        Self::read([0x12, 0, 0, high, low, 0], edtl)
    }

    /// REPORT LUNS.
    pub fn report_luns(allocation_length: u32, edtl: u32) -> Self {
        let mut cdb = [0; 12];
        cdb[0] = 0xa0;
        cdb[6..10].copy_from_slice(&allocation_length.to_be_bytes());
        Self::read(cdb, edtl)
    }

    /// READ CAPACITY (16).
    pub fn read_capacity_16() -> Self {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        Self::read(cdb, 32)
    }

    /// READ (16) of `blocks` blocks of `block_size` bytes.
    pub fn read_16(lba: u64, blocks: u32, block_size: u32) -> Self {
        Self::read(read_write_16(0x88, lba, blocks), blocks.saturating_mul(block_size))
    }

    /// WRITE (16) of as many blocks as `data` has.
    pub fn write_16(lba: u64, data: impl Into<Vec<u8>>, block_size: u32) -> Self {
        let data = data.into();
        let blocks = data.len() / block_size.max(1) as usize;
        Self::write(read_write_16(0x8a, lba, u32::try_from(blocks).unwrap_or(u32::MAX)), data)
    }

    /// With this much data sent without R2T.
    pub fn unsolicited(mut self, unsolicited: Unsolicited) -> Self {
        self.unsolicited = unsolicited;
        self
    }

    /// With a different Expected Data Transfer Length, in bytes.
    pub fn edtl(mut self, edtl: u32) -> Self {
        self.edtl = edtl;
        self
    }

    /// With the I bit.
    pub fn immediate(mut self) -> Self {
        self.immediate = true;
        self
    }

    /// For this logical unit.
    pub fn lun(mut self, lun: Lun) -> Self {
        self.lun = Some(lun);
        self
    }

    /// With this task attribute.
    pub fn attr(mut self, attr: TaskAttribute) -> Self {
        self.attr = attr;
        self
    }
}

fn read_write_16(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
