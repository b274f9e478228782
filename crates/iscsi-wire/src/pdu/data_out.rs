use super::FINAL;
use crate::{Bhs, DataSn, Itt, Lun, Opcode, StatSn, Ttt, WireError};

/// SCSI Data-Out (RFC 7143 11.7). The data is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// F: last PDU of its sequence.
    pub final_bit: bool,
    /// Logical unit; copied from the R2T.
    pub lun: Lun,
    /// Initiator Task Tag of the command.
    pub itt: Itt,
    /// Target Transfer Tag of the R2T, reserved for unsolicited data.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// DataSN inside the sequence.
    pub data_sn: DataSn,
    /// Offset of the data in the command's buffer, in bytes.
    pub buffer_offset: u32,
}

impl DataOut {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::DataOut)?;
        Ok(DataOut {
            final_bit: bhs.flag(FINAL),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            exp_stat_sn: bhs.exp_stat_sn(),
            data_sn: DataSn(bhs.u32_at(36)),
            buffer_offset: bhs.u32_at(40),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataOut, false);
        bhs.put_flag(FINAL, self.final_bit);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        bhs.put_u32(36, self.data_sn.0);
        bhs.put_u32(40, self.buffer_offset);
        bhs
    }
}
