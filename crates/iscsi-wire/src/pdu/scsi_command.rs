use super::{FINAL, put_request_numbers};
use crate::{Bhs, CmdSn, Itt, Lun, Opcode, StatSn, TaskAttribute, WireError};

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTR: u8 = 0x07;

/// SCSI Command (RFC 7143 11.3). CDB bytes beyond 16 are in an AHS; immediate data is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I: does not advance CmdSN.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows.
    pub final_bit: bool,
    /// R: data from the target is expected.
    pub read: bool,
    /// W: data to the target is expected.
    pub write: bool,
    /// ATTR: how the task is ordered in the task set.
    pub attr: TaskAttribute,
    /// PRI, 0 to 15 (RFC 7144 5.1); to be ignored below iSCSIProtocolLevel 2.
    pub priority: u8,
    /// Logical unit.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Expected Data Transfer Length in bytes; of the write part when R and W are both set.
    pub expected_data_transfer_length: u32,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// The first 16 bytes of the CDB; shorter CDBs are followed by zeros.
    pub cdb: [u8; 16],
}

impl ScsiCommand {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::ScsiCommand)?;
        Ok(ScsiCommand {
            immediate: bhs.immediate(),
            final_bit: bhs.flag(FINAL),
            read: bhs.flag(READ),
            write: bhs.flag(WRITE),
            attr: TaskAttribute::try_from(bhs.u8_at(1) & ATTR)?,
            priority: bhs.u8_at(2) >> 4,
            lun: bhs.lun(),
            itt: bhs.itt(),
            expected_data_transfer_length: bhs.u32_at(20),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
            cdb: bhs.bytes_at(32),
        })
    }

    /// Writes the header. A `priority` above 15 is written as 15.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::ScsiCommand, self.immediate);
        bhs.put_flag(FINAL, self.final_bit);
        bhs.put_flag(READ, self.read);
        bhs.put_flag(WRITE, self.write);
        bhs.put_flag(self.attr.code(), true);
        bhs.put_u8(2, self.priority.min(15) << 4);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.expected_data_transfer_length);
        put_request_numbers(&mut bhs, self.cmd_sn, self.exp_stat_sn);
        bhs.put(32, self.cdb);
        bhs
    }
}
