use super::{FINAL, ResponseNumbers};
use crate::{Bhs, DataSn, Itt, Opcode, RejectReason, WireError};

/// Reject (RFC 7143 11.17). The data segment is the header of the offending PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// DataSN/R2TSN: the next one expected, if a DataACK or SNACK was rejected; else reserved.
    pub data_sn: DataSn,
}

impl Reject {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::Reject)?;
        Ok(Reject {
            reason: RejectReason::try_from(bhs.u8_at(2))?,
            numbers: ResponseNumbers::parse(bhs),
            data_sn: DataSn(bhs.u32_at(36)),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::Reject, false);
        bhs.put_flag(FINAL, true);
        bhs.put_u32(16, Itt::RESERVED.0);
        bhs.put_u8(2, self.reason.code());
        self.numbers.put(&mut bhs);
        bhs.put_u32(36, self.data_sn.0);
        bhs
    }
}
