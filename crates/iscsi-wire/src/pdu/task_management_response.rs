use super::{FINAL, put_response_numbers, response_numbers};
use crate::{Bhs, CmdSn, Itt, Opcode, StatSn, TmfResponse, WireError};

/// Task Management Function Response (RFC 7143 11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// The outcome.
    pub response: TmfResponse,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
    /// Additional Response Information of RFC 7144 6.2; zero below iSCSIProtocolLevel 2.
    pub additional: [u8; 3],
}

impl TaskManagementResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::TaskManagementResponse)?;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = response_numbers(bhs);
        Ok(TaskManagementResponse {
            response: TmfResponse::try_from(bhs.u8_at(2))?,
            itt: bhs.itt(),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            additional: bhs.bytes_at(8),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TaskManagementResponse, false);
        bhs.put_flag(FINAL, true);
        bhs.put_u8(2, self.response.code());
        bhs.put_u32(16, self.itt.0);
        put_response_numbers(&mut bhs, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put(8, self.additional);
        bhs
    }
}
