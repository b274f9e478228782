use super::{CONTINUE, FINAL, put_request_numbers};
use crate::{Bhs, CmdSn, Itt, Lun, Opcode, StatSn, Ttt, WireError};

/// Text Request (RFC 7143 11.10). The text is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// I: does not advance CmdSN.
    pub immediate: bool,
    /// F: the initiator has nothing more to send.
    pub final_bit: bool,
    /// C: the text continues in the next PDU.
    pub continue_bit: bool,
    /// Copied from the answer that carried `ttt`.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Reserved in the first request of an exchange, else as the target assigned it.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl TextRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::TextRequest)?;
        Ok(TextRequest {
            immediate: bhs.immediate(),
            final_bit: bhs.flag(FINAL),
            continue_bit: bhs.flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TextRequest, self.immediate);
        bhs.put_flag(FINAL, self.final_bit);
        bhs.put_flag(CONTINUE, self.continue_bit);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        put_request_numbers(&mut bhs, self.cmd_sn, self.exp_stat_sn);
        bhs
    }
}
