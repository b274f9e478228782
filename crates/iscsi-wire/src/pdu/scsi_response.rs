use super::{FINAL, ResidualCount, ResponseNumbers};
use crate::{Bhs, DataSn, Itt, Opcode, WireError};

const BIDI_OVERFLOW: u8 = 0x10;
const BIDI_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;

/// SCSI Response (RFC 7143 11.4). Sense data, after its two length bytes, is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// Response: 0 completed at target, 1 target failure, 0x80 and above vendor specific.
    pub response: u8,
    /// SCSI status; meaningful when `response` is 0.
    pub status: u8,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// SNACK Tag, after an R-Data SNACK; else 0.
    pub snack_tag: u32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// ExpDataSN: how many R2T and Data-In PDUs the target sent for the command.
    pub exp_data_sn: DataSn,
    /// o, u and Bidirectional Read Residual Count.
    pub bidi_residual_count: ResidualCount,
    /// O, U and Residual Count.
    pub residual_count: ResidualCount,
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
        Ok(ScsiResponse {
            response,
            status: bhs.u8_at(3),
            itt: bhs.itt(),
            snack_tag: bhs.u32_at(20),
            numbers: ResponseNumbers::parse(bhs),
            exp_data_sn: DataSn(bhs.u32_at(36)),
            bidi_residual_count: ResidualCount {
                overflow: bhs.flag(BIDI_OVERFLOW),
                underflow: bhs.flag(BIDI_UNDERFLOW),
                bytes: bhs.u32_at(40),
            },
            residual_count: ResidualCount {
                overflow: bhs.flag(OVERFLOW),
                underflow: bhs.flag(UNDERFLOW),
                bytes: bhs.u32_at(44),
            },
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::ScsiResponse, false);
        bhs.put_flag(FINAL, true);
        bhs.put_flag(BIDI_OVERFLOW, self.bidi_residual_count.overflow);
        bhs.put_flag(BIDI_UNDERFLOW, self.bidi_residual_count.underflow);
        bhs.put_flag(OVERFLOW, self.residual_count.overflow);
        bhs.put_flag(UNDERFLOW, self.residual_count.underflow);
        bhs.put_u8(2, self.response);
        bhs.put_u8(3, self.status);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.snack_tag);
        self.numbers.put(&mut bhs);
        bhs.put_u32(36, self.exp_data_sn.0);
        bhs.put_u32(40, self.bidi_residual_count.bytes);
        bhs.put_u32(44, self.residual_count.bytes);
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
