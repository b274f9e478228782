use super::{CONTINUE, login_stages, put_login_stages, put_request_numbers};
use crate::{Bhs, Cid, CmdSn, Isid, Itt, LoginStage, Opcode, StatSn, Tsih, WireError};

/// Login Request (RFC 7143 11.12). Always immediate; the text is the data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// T: the initiator is ready to move to `nsg`.
    pub transit: bool,
    /// C: the text continues in the next PDU.
    pub continue_bit: bool,
    /// CSG: the current stage.
    pub csg: LoginStage,
    /// NSG: the next stage; `Some` exactly when `transit`.
    pub nsg: Option<LoginStage>,
    /// Version-max, the highest version supported.
    pub version_max: u8,
    /// Version-min, the lowest version supported.
    pub version_min: u8,
    /// ISID.
    pub isid: Isid,
    /// TSIH; 0 for a new session.
    pub tsih: Tsih,
    /// Initiator Task Tag, the same throughout the login.
    pub itt: Itt,
    /// CID of this connection.
    pub cid: Cid,
    /// CmdSN; in the leading login the first of the session.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
}

impl LoginRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, WireError> {
        bhs.expect(Opcode::LoginRequest)?;
        let (transit, csg, nsg) = login_stages(bhs)?;
        Ok(LoginRequest {
            transit,
            continue_bit: bhs.flag(CONTINUE),
            csg,
            nsg,
            version_max: bhs.u8_at(2),
            version_min: bhs.u8_at(3),
            isid: Isid(bhs.bytes_at(8)),
            tsih: Tsih(bhs.u16_at(14)),
            itt: bhs.itt(),
            cid: Cid(bhs.u16_at(20)),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.exp_stat_sn(),
        })
    }

    /// Writes the header.
    pub fn to_bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LoginRequest, true);
        put_login_stages(&mut bhs, self.transit, self.csg, self.nsg);
        bhs.put_flag(CONTINUE, self.continue_bit);
        bhs.put_u8(2, self.version_max);
        bhs.put_u8(3, self.version_min);
        bhs.put(8, self.isid.0);
        bhs.put_u16(14, self.tsih.0);
        bhs.put_u32(16, self.itt.0);
        bhs.put_u16(20, self.cid.0);
        put_request_numbers(&mut bhs, self.cmd_sn, self.exp_stat_sn);
        bhs
    }
}
