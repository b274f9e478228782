use super::FINAL;
use crate::{Bhs, Itt, Lun, Opcode, SnackType, StatSn, Ttt, WireError};

/// SNACK Request (RFC 7143 11.16): requests PDUs again, or acknowledges Data-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnackRequest {
    /// What is requested.
    pub snack_type: SnackType,
    /// Logical unit; of the Data-In for DataACK.
    pub lun: Lun,
    /// Initiator Task Tag of the command; reserved for Status SNACK and DataACK.
    pub itt: Itt,
    /// DataACK: Target Transfer Tag of the Data-In; R-Data: the SNACK Tag; else reserved.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// First DataSN, R2TSN or StatSN requested.
    pub beg_run: u32,
    /// How many; 0 means all from `beg_run` on.
    pub run_length: u32,
}

impl SnackRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::SnackRequest)?;
        Ok(SnackRequest {
            snack_type: SnackType::try_from(bhs.u8_at(1) & 0x0f)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.u32_at(20)),
            exp_stat_sn: bhs.exp_stat_sn(),
            beg_run: bhs.u32_at(40),
            run_length: bhs.u32_at(44),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::SnackRequest, false);
        bhs.put_flag(FINAL, true);
        bhs.put_flag(self.snack_type.code(), true);
        bhs.put_lun(self.lun);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.ttt.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        bhs.put_u32(40, self.beg_run);
        bhs.put_u32(44, self.run_length);
        bhs
    }
}
