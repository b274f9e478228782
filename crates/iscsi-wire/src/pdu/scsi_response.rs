use super::{FINAL, put_response_numbers, response_numbers};
use crate::{Bhs, CmdSn, DataSn, Itt, Opcode, StatSn, WireError};

const BIDI_OVERFLOW: u8 = 0x10;
const BIDI_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;

/// SCSI Response (RFC 7143 11.4). Sense data, after its two length bytes, is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// o: `bidi_residual_count` bytes of the read part did not fit.
    pub bidi_overflow: bool,
    /// u: `bidi_residual_count` bytes of the read part were not needed.
    pub bidi_underflow: bool,
    /// O: `residual_count` bytes did not fit.
    pub overflow: bool,
    /// U: `residual_count` bytes were not needed.
    pub underflow: bool,
    /// Response: 0 completed at target, 1 target failure, 0x80 and above vendor specific.
    pub response: u8,
    /// SCSI status; meaningful when `response` is 0.
    pub status: u8,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// SNACK Tag, after an R-Data SNACK; else 0.
    pub snack_tag: u32,
    /// StatSN.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
    /// ExpDataSN: how many R2T and Data-In PDUs the target sent for the command.
    pub exp_data_sn: DataSn,
    /// Bidirectional Read Residual Count in bytes.
    pub bidi_residual_count: u32,
    /// Residual Count in bytes.
    pub residual_count: u32,
}

impl ScsiResponse {
    /// `response`: the target has executed the command; `status` holds the result.
    pub const COMPLETED_AT_TARGET: u8 = 0x00;
    /// `response`: the target failed to deliver a status.
    pub const TARGET_FAILURE: u8 = 0x01;

    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::ScsiResponse)?;
        let response = bhs.u8_at(2);
        //= rfc7143 11.4.3 PDU-03
        if matches!(response, 0x02..=0x7f) {
            let (field, value) = ("Response", response.into());
            return Err(WireError::ReservedValue { field, value, section: "11.4.3" });
        }
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = response_numbers(bhs);
        Ok(ScsiResponse {
            bidi_overflow: bhs.flag(BIDI_OVERFLOW),
            bidi_underflow: bhs.flag(BIDI_UNDERFLOW),
            overflow: bhs.flag(OVERFLOW),
            underflow: bhs.flag(UNDERFLOW),
            response,
            status: bhs.u8_at(3),
            itt: bhs.itt(),
            snack_tag: bhs.u32_at(20),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            exp_data_sn: DataSn(bhs.u32_at(36)),
            bidi_residual_count: bhs.u32_at(40),
            residual_count: bhs.u32_at(44),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::ScsiResponse, false);
        bhs.put_flag(FINAL, true);
        bhs.put_flag(BIDI_OVERFLOW, self.bidi_overflow);
        bhs.put_flag(BIDI_UNDERFLOW, self.bidi_underflow);
        bhs.put_flag(OVERFLOW, self.overflow);
        bhs.put_flag(UNDERFLOW, self.underflow);
        bhs.put_u8(2, self.response);
        bhs.put_u8(3, self.status);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.snack_tag);
        put_response_numbers(&mut bhs, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_u32(36, self.exp_data_sn.0);
        bhs.put_u32(40, self.bidi_residual_count);
        bhs.put_u32(44, self.residual_count);
        bhs
    }

    /// Status Qualifier (RFC 7144 5.2) of a SCSI Response header. Not a field of the struct because the bytes
    /// are reserved, and so to be ignored, below iSCSIProtocolLevel 2.
    pub fn status_qualifier(bhs: &Bhs) -> u16 {
        bhs.u16_at(8)
    }

    /// Sets the Status Qualifier in a header made by `to_bhs`. Only at iSCSIProtocolLevel 2.
    pub fn set_status_qualifier(bhs: &mut Bhs, qualifier: u16) {
        bhs.put_u16(8, qualifier);
    }
}
