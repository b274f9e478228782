use super::{FINAL, put_response_numbers, response_numbers};
use crate::{Bhs, CmdSn, Itt, LogoutResponseCode, Opcode, StatSn, WireError};

/// Logout Response (RFC 7143 11.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// The outcome.
    pub response: LogoutResponseCode,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
    /// Least time before a reconnect, in seconds.
    pub time2wait: u16,
    /// Longest time for which tasks are kept after `time2wait`, in seconds.
    pub time2retain: u16,
}

impl LogoutResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::LogoutResponse)?;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = response_numbers(bhs);
        Ok(LogoutResponse {
            response: LogoutResponseCode::try_from(bhs.u8_at(2))?,
            itt: bhs.itt(),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            time2wait: bhs.u16_at(40),
            time2retain: bhs.u16_at(42),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LogoutResponse, false);
        bhs.put_flag(FINAL, true);
        bhs.put_u8(2, self.response.code());
        bhs.put_u32(16, self.itt.0);
        put_response_numbers(&mut bhs, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_u16(40, self.time2wait);
        bhs.put_u16(42, self.time2retain);
        bhs
    }
}
