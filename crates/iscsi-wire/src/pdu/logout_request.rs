use super::{FINAL, put_request_numbers};
use crate::{Bhs, Cid, CmdSn, Itt, LogoutReason, Opcode, StatSn, WireError};

/// Logout Request (RFC 7143 11.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I: does not advance CmdSN.
    pub immediate: bool,
    /// What to close, and why.
    pub reason: LogoutReason,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// The connection to close; not meaningful when the session is closed.
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl LogoutRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::LogoutRequest)?;
        Ok(LogoutRequest {
            immediate: bhs.immediate(),
            reason: LogoutReason::try_from(bhs.u8_at(1) & 0x7f)?,
            itt: bhs.itt(),
            cid: Cid(bhs.u16_at(20)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LogoutRequest, self.immediate);
        bhs.put_flag(FINAL, true);
        bhs.put_flag(self.reason.code(), true);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u16(20, self.cid.0);
        put_request_numbers(&mut bhs, self.cmd_sn, self.exp_stat_sn);
        bhs
    }
}
