use super::{FINAL, put_request_numbers};
use crate::{Bhs, CmdSn, Itt, Lun, Opcode, StatSn, Ttt, WireError};

/// NOP-Out (RFC 7143 11.18): a ping, its answer, or a plain carrier of ExpStatSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// I: does not advance CmdSN.
    pub immediate: bool,
    /// Copied from the NOP-In when `ttt` is not reserved.
    pub lun: Lun,
    /// Initiator Task Tag; reserved when no answer is wanted.
    pub itt: Itt,
    /// Target Transfer Tag of the NOP-In that this answers, else reserved.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl NopOut {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::NopOut)?;
        Ok(NopOut {
            immediate: bhs.immediate(),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::NopOut, self.immediate);
        bhs.put_flag(FINAL, true);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        put_request_numbers(&mut bhs, self.cmd_sn, self.exp_stat_sn);
        bhs
    }
}
