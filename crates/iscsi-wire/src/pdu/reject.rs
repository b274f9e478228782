use super::{FINAL, put_response_numbers, response_numbers};
use crate::{Bhs, CmdSn, DataSn, Itt, Opcode, RejectReason, StatSn, WireError};

/// Reject (RFC 7143 11.17). The data segment is the header of the offending PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// StatSN.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
    /// DataSN/R2TSN: the next one expected, if a DataACK or SNACK was rejected; else reserved.
    pub data_sn: DataSn,
}

impl Reject {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::Reject)?;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = response_numbers(bhs);
        Ok(Reject {
            reason: RejectReason::try_from(bhs.u8_at(2))?,
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            data_sn: DataSn(bhs.u32_at(36)),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::Reject, false);
        bhs.put_flag(FINAL, true);
        bhs.put_u32(16, Itt::RESERVED.0);
        bhs.put_u8(2, self.reason.code());
        put_response_numbers(&mut bhs, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_u32(36, self.data_sn.0);
        bhs
    }
}
