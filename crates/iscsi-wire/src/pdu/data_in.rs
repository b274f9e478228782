use super::{FINAL, put_response_numbers, response_numbers};
use crate::{Bhs, CmdSn, DataSn, Itt, Lun, Opcode, StatSn, Ttt, WireError};

const ACKNOWLEDGE: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

/// SCSI Data-In (RFC 7143 11.7). The data is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// F: last PDU of its sequence.
    pub final_bit: bool,
    /// A: the target requests a DataACK SNACK.
    pub acknowledge: bool,
    /// O: `residual_count` bytes did not fit. With S only.
    pub overflow: bool,
    /// U: `residual_count` bytes were not needed. With S only.
    pub underflow: bool,
    /// S: carries the command's status, no SCSI Response follows.
    pub status_bit: bool,
    /// SCSI status. With S only.
    pub status: u8,
    /// To be copied into the DataACK, with A only.
    pub lun: Lun,
    /// Initiator Task Tag of the command.
    pub itt: Itt,
    /// To be copied into the DataACK, with A only; else reserved.
    pub ttt: Ttt,
    /// StatSN. With S only.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
    /// DataSN inside the command.
    pub data_sn: DataSn,
    /// Offset of the data in the command's buffer, in bytes.
    pub buffer_offset: u32,
    /// Residual Count in bytes. With S only.
    pub residual_count: u32,
}

impl DataIn {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::DataIn)?;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = response_numbers(bhs);
        Ok(DataIn {
            final_bit: bhs.flag(FINAL),
            acknowledge: bhs.flag(ACKNOWLEDGE),
            overflow: bhs.flag(OVERFLOW),
            underflow: bhs.flag(UNDERFLOW),
            status_bit: bhs.flag(STATUS),
            status: bhs.u8_at(3),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            data_sn: DataSn(bhs.u32_at(36)),
            buffer_offset: bhs.u32_at(40),
            residual_count: bhs.u32_at(44),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataIn, false);
        bhs.put_flag(FINAL, self.final_bit);
        bhs.put_flag(ACKNOWLEDGE, self.acknowledge);
        bhs.put_flag(OVERFLOW, self.overflow);
        bhs.put_flag(UNDERFLOW, self.underflow);
        bhs.put_flag(STATUS, self.status_bit);
        bhs.put_u8(3, self.status);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        put_response_numbers(&mut bhs, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_u32(36, self.data_sn.0);
        bhs.put_u32(40, self.buffer_offset);
        bhs.put_u32(44, self.residual_count);
        bhs
    }
}
