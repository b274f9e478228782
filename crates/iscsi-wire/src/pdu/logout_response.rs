use super::{FINAL, ResponseNumbers};
use crate::{Bhs, Itt, LogoutResponseCode, Opcode, WireError};

/// Logout Response (RFC 7143 11.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// The outcome.
    pub response: LogoutResponseCode,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// Least time before a reconnect, in seconds.
    pub time2wait: u16,
    /// Longest time for which tasks are kept after `time2wait`, in seconds.
    pub time2retain: u16,
}

impl LogoutResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::LogoutResponse)?;
        Ok(LogoutResponse {
            response: LogoutResponseCode::try_from(bhs.u8_at(2))?,
            itt: bhs.itt(),
            numbers: ResponseNumbers::parse(bhs),
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
        self.numbers.put(&mut bhs);
        bhs.put_u16(40, self.time2wait);
        bhs.put_u16(42, self.time2retain);
        bhs
    }
}
