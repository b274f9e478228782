use super::{CONTINUE, FINAL, ResponseNumbers};
use crate::{Bhs, Itt, Lun, Opcode, Ttt, WireError};

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
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
}

impl TextResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::TextResponse)?;
        Ok(TextResponse {
            final_bit: bhs.flag(FINAL),
            continue_bit: bhs.flag(CONTINUE),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            numbers: ResponseNumbers::parse(bhs),
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
        self.numbers.put(&mut bhs);
        bhs
    }
}
