use super::{FINAL, ResponseNumbers};
use crate::{Bhs, Itt, Opcode, TmfResponse, WireError};

/// Task Management Function Response (RFC 7143 11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// The outcome.
    pub response: TmfResponse,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// Additional Response Information of RFC 7144 6.2; zero below iSCSIProtocolLevel 2.
    pub additional: [u8; 3],
}

impl TaskManagementResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::TaskManagementResponse)?;
        Ok(TaskManagementResponse {
            response: TmfResponse::try_from(bhs.u8_at(2))?,
            itt: bhs.itt(),
            numbers: ResponseNumbers::parse(bhs),
            additional: bhs.bytes_at(8),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TaskManagementResponse, false);
        bhs.put_flag(FINAL, true);
        bhs.put_u8(2, self.response.code());
        bhs.put_u32(16, self.itt.0);
        self.numbers.put(&mut bhs);
        bhs.put(8, self.additional);
        bhs
    }
}
