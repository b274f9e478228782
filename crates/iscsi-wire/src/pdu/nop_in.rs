use super::{FINAL, ResponseNumbers};
use crate::{Bhs, Itt, Lun, Opcode, Ttt, WireError};

/// NOP-In (RFC 7143 11.19): answer to a NOP-Out, or the target's own ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// To be copied into the answer when `ttt` is not reserved.
    pub lun: Lun,
    /// Initiator Task Tag of the NOP-Out that this answers, else reserved.
    pub itt: Itt,
    /// Not reserved when the target requests an answer.
    pub ttt: Ttt,
    /// StatSN (the next one, not consumed, when `itt` is reserved), ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
}

impl NopIn {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::NopIn)?;
        Ok(NopIn {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            numbers: ResponseNumbers::parse(bhs),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::NopIn, false);
        bhs.put_flag(FINAL, true);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        self.numbers.put(&mut bhs);
        bhs
    }
}
