use super::{FINAL, ResidualCount, ResponseNumbers};
use crate::{Bhs, DataSn, Itt, Lun, Opcode, Ttt, WireError};

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
    /// StatSN (with S only), ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// DataSN inside the command.
    pub data_sn: DataSn,
    /// Offset of the data in the command's buffer, in bytes.
    pub buffer_offset: u32,
    /// O, U and Residual Count. With S only.
    pub residual_count: ResidualCount,
}

impl DataIn {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::DataIn)?;
        Ok(DataIn {
            final_bit: bhs.flag(FINAL),
            acknowledge: bhs.flag(ACKNOWLEDGE),
            status_bit: bhs.flag(STATUS),
            status: bhs.u8_at(3),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            numbers: ResponseNumbers::parse(bhs),
            data_sn: DataSn(bhs.u32_at(36)),
            buffer_offset: bhs.u32_at(40),
            residual_count: ResidualCount {
                overflow: bhs.flag(OVERFLOW),
                underflow: bhs.flag(UNDERFLOW),
                bytes: bhs.u32_at(44),
            },
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataIn, false);
        bhs.put_flag(FINAL, self.final_bit);
        bhs.put_flag(ACKNOWLEDGE, self.acknowledge);
        bhs.put_flag(OVERFLOW, self.residual_count.overflow);
        bhs.put_flag(UNDERFLOW, self.residual_count.underflow);
        bhs.put_flag(STATUS, self.status_bit);
        bhs.put_u8(3, self.status);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        self.numbers.put(&mut bhs);
        bhs.put_u32(36, self.data_sn.0);
        bhs.put_u32(40, self.buffer_offset);
        bhs.put_u32(44, self.residual_count.bytes);
        bhs
    }
}
