use super::{CONTINUE, ResponseNumbers, login_stages, put_login_stages};
use crate::{Bhs, Isid, Itt, LoginStage, LoginStatus, Opcode, Tsih, WireError};

/// Login Response (RFC 7143 11.13). The text is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// T: the target moves to `nsg` now.
    pub transit: bool,
    /// C: the text continues in the next PDU.
    pub continue_bit: bool,
    /// CSG: the current stage.
    pub csg: LoginStage,
    /// NSG: the next stage; `Some` exactly when `transit`.
    pub nsg: Option<LoginStage>,
    /// Version-max, the highest version supported.
    pub version_max: u8,
    /// Version-active, the version in use.
    pub version_active: u8,
    /// ISID, as in the request.
    pub isid: Isid,
    /// TSIH; the target's choice in the final response of a leading login.
    pub tsih: Tsih,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: ResponseNumbers,
    /// Status-Class and Status-Detail.
    pub status: LoginStatus,
}

impl LoginResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::LoginResponse)?;
        let (transit, csg, nsg) = login_stages(bhs)?;
        Ok(LoginResponse {
            transit,
            continue_bit: bhs.flag(CONTINUE),
            csg,
            nsg,
            version_max: bhs.u8_at(2),
            version_active: bhs.u8_at(3),
            isid: Isid(bhs.bytes_at(8)),
            tsih: Tsih(bhs.u16_at(14)),
            itt: bhs.itt(),
            numbers: ResponseNumbers::parse(bhs),
            status: LoginStatus::from(bhs.u16_at(36)),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LoginResponse, false);
        put_login_stages(&mut bhs, self.transit, self.csg, self.nsg);
        bhs.put_flag(CONTINUE, self.continue_bit);
        bhs.put_u8(2, self.version_max);
        bhs.put_u8(3, self.version_active);
        bhs.put(8, self.isid.0);
        bhs.put_u16(14, self.tsih.0);
        bhs.put_u32(16, self.itt.0);
        self.numbers.put(&mut bhs);
        bhs.put_u16(36, self.status.code());
        bhs
    }
}
