use super::{FINAL, ResponseNumbers};
use crate::{AsyncEvent, Bhs, Itt, Lun, Opcode, WireError};

/// Asynchronous Message (RFC 7143 11.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// Logical unit; with a SCSI event or task termination only.
    pub lun: Lun,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// What happened.
    pub event: AsyncEvent,
    /// AsyncVCode, for vendor events.
    pub vcode: u8,
    /// Parameter1: mostly the CID.
    pub parameter1: u16,
    /// Parameter2: mostly Time2Wait, in seconds.
    pub parameter2: u16,
    /// Parameter3: mostly Time2Retain or a deadline, in seconds.
    pub parameter3: u16,
}

impl AsyncMessage {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::AsyncMessage)?;
        Ok(AsyncMessage {
            lun: bhs.lun(),
            numbers: ResponseNumbers::parse(bhs),
            event: AsyncEvent::try_from(bhs.u8_at(36))?,
            vcode: bhs.u8_at(37),
            parameter1: bhs.u16_at(38),
            parameter2: bhs.u16_at(40),
            parameter3: bhs.u16_at(42),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::AsyncMessage, false);
        bhs.put_flag(FINAL, true);
        bhs.put_u32(16, Itt::RESERVED.0);
        bhs.put_lun(self.lun);
        self.numbers.put(&mut bhs);
        bhs.put_u8(36, self.event.code());
        bhs.put_u8(37, self.vcode);
        bhs.put_u16(38, self.parameter1);
        bhs.put_u16(40, self.parameter2);
        bhs.put_u16(42, self.parameter3);
        bhs
    }
}
