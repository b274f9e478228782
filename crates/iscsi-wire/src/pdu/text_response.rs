use super::{CONTINUE, FINAL, put_response_numbers, response_numbers};
use crate::{Bhs, CmdSn, Itt, Lun, Opcode, StatSn, Ttt, WireError};

/// Text Response (RFC 7143 11.11). The text is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the exchange is over; then `ttt` is reserved.
    pub final_bit: bool,
    /// C: the text continues in the next PDU.
    pub continue_bit: bool,
    /// To be copied into the next request, with `ttt`.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// To be copied into the next request; reserved with F.
    pub ttt: Ttt,
    /// StatSN.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
}

impl TextResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::TextResponse)?;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = response_numbers(bhs);
        Ok(TextResponse {
            final_bit: bhs.flag(FINAL),
            continue_bit: bhs.flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TextResponse, false);
        bhs.put_flag(FINAL, self.final_bit);
        bhs.put_flag(CONTINUE, self.continue_bit);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        put_response_numbers(&mut bhs, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs
    }
}
