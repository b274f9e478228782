use super::{FINAL, ResponseNumbers};
use crate::{Bhs, Itt, Lun, Opcode, R2tSn, Ttt, WireError};

/// Ready To Transfer (RFC 7143 11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// Logical unit.
    pub lun: Lun,
    /// Initiator Task Tag of the command.
    pub itt: Itt,
    /// Target Transfer Tag of the requested sequence.
    pub ttt: Ttt,
    /// StatSN (the next one; an R2T does not consume it), ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// R2TSN inside the command.
    pub r2t_sn: R2tSn,
    /// Offset of the requested data, in bytes.
    pub buffer_offset: u32,
    /// Length of the requested data, in bytes.
    pub desired_data_transfer_length: u32,
}

impl R2t {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::R2t)?;
        Ok(R2t {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            numbers: ResponseNumbers::parse(bhs),
            r2t_sn: R2tSn(bhs.u32_at(36)),
            buffer_offset: bhs.u32_at(40),
            desired_data_transfer_length: bhs.u32_at(44),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::R2t, false);
        bhs.put_flag(FINAL, true);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        self.numbers.put(&mut bhs);
        bhs.put_u32(36, self.r2t_sn.0);
        bhs.put_u32(40, self.buffer_offset);
        bhs.put_u32(44, self.desired_data_transfer_length);
        bhs
    }
}
