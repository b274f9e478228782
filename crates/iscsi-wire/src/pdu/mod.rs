//! The PDUs of RFC 7143 section 11, one struct and one file each.
//!
//! `parse` reads a header with the right opcode and refuses reserved codes. `to_bhs` writes one with
//! DataSegmentLength and TotalAHSLength zero (the writer, which has the segments, sets them). Bits that the
//! standard fixes at 1 are written as 1 and, like reserved bits, ignored on receipt. Fields that have a
//! meaning only together with another (for instance Status without the S bit) are read and written unchanged.
//= rfc7143 11 PDU-02

mod async_message;
mod data_in;
mod data_out;
mod login_request;
mod login_response;
mod logout_request;
mod logout_response;
mod nop_in;
mod nop_out;
mod r2t;
mod reject;
mod scsi_command;
mod scsi_response;
mod snack_request;
mod task_management_request;
mod task_management_response;
mod text_request;
mod text_response;

pub use async_message::AsyncMessage;
pub use data_in::DataIn;
pub use data_out::DataOut;
pub use login_request::LoginRequest;
pub use login_response::LoginResponse;
pub use logout_request::LogoutRequest;
pub use logout_response::LogoutResponse;
pub use nop_in::NopIn;
pub use nop_out::NopOut;
pub use r2t::R2t;
pub use reject::Reject;
pub use scsi_command::ScsiCommand;
pub use scsi_response::ScsiResponse;
pub use snack_request::SnackRequest;
pub use task_management_request::TaskManagementRequest;
pub use task_management_response::TaskManagementResponse;
pub use text_request::TextRequest;
pub use text_response::TextResponse;

use crate::{Bhs, CmdSn, LoginStage, Opcode, StatSn, WireError};

/// F (or T) of byte 1.
const FINAL: u8 = 0x80;
/// C of byte 1 in Text and Login PDUs.
const CONTINUE: u8 = 0x40;

macro_rules! pdus {
    ($($name:ident),* $(,)?) => {
        /// Any PDU of RFC 7143.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Pdu { $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)* }

        impl Pdu {
            /// Reads the PDU that the opcode names.
            pub fn parse(bhs: &Bhs) -> Result<Pdu, WireError> {
                match Opcode::try_from(bhs.opcode())? { $(Opcode::$name => $name::parse(bhs).map(Pdu::$name),)* }
            }

            /// Writes the header; see `to_bhs` of the PDU.
            pub fn to_bhs(&self) -> Bhs {
                match self { $(Pdu::$name(pdu) => pdu.to_bhs(),)* }
            }

            /// Its opcode.
            pub const fn opcode(&self) -> Opcode {
                match self { $(Pdu::$name(_) => Opcode::$name,)* }
            }
        }

        $(impl From<$name> for Pdu {
            fn from(pdu: $name) -> Pdu { Pdu::$name(pdu) }
        })*
    };
}

pdus!(
    NopOut,
    ScsiCommand,
    TaskManagementRequest,
    LoginRequest,
    TextRequest,
    DataOut,
    LogoutRequest,
    SnackRequest,
    NopIn,
    ScsiResponse,
    TaskManagementResponse,
    LoginResponse,
    TextResponse,
    DataIn,
    LogoutResponse,
    R2t,
    AsyncMessage,
    Reject,
);

/// Writes CmdSN and ExpStatSN, which have the same place in all requests that carry both.
fn put_request_numbers(bhs: &mut Bhs, cmd_sn: CmdSn, exp_stat_sn: StatSn) {
    bhs.put_u32(24, cmd_sn.0);
    bhs.put_u32(28, exp_stat_sn.0);
}

/// The numbers of a target, which have the same place in all of its PDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseNumbers {
    /// StatSN. Where a PDU takes none, its own description says what it means; in Data-In it counts with S only.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts now.
    pub max_cmd_sn: CmdSn,
}

impl ResponseNumbers {
    fn parse(bhs: &Bhs) -> Self {
        Self {
            stat_sn: StatSn(bhs.u32_at(24)),
            exp_cmd_sn: CmdSn(bhs.u32_at(28)),
            max_cmd_sn: CmdSn(bhs.u32_at(32)),
        }
    }

    fn put(&self, bhs: &mut Bhs) {
        bhs.put_u32(24, self.stat_sn.0);
        bhs.put_u32(28, self.exp_cmd_sn.0);
        bhs.put_u32(32, self.max_cmd_sn.0);
    }
}

/// Residual Count with the two flags that say what it counts (RFC 7143 11.4.1, 11.4.5): at most one of them is set, and without
/// either there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidualCount {
    /// O: `bytes` did not fit.
    pub overflow: bool,
    /// U: `bytes` were not needed.
    pub underflow: bool,
    /// The count in bytes.
    pub bytes: u32,
}

impl ResidualCount {
    /// The difference between the Expected Data Transfer Length and the SCSI transfer length, both in bytes.
    //= rfc7143 11.4.5 RES-01 RES-02
    pub fn of(expected: u32, transferred: u64) -> Self {
        let expected = u64::from(expected);
        let bytes = u32::try_from(expected.abs_diff(transferred)).unwrap_or(u32::MAX);
        Self { overflow: transferred > expected, underflow: transferred < expected, bytes }
    }

    /// Whether both flags are set, which no target may do.
    pub fn is_contradictory(&self) -> bool {
        self.overflow && self.underflow
    }
}

/// T, CSG and NSG of byte 1 of the Login PDUs. NSG is reserved, so ignored, while T is 0.
fn login_stages(bhs: &Bhs) -> Result<(bool, LoginStage, Option<LoginStage>), WireError> {
    let (flags, transit) = (bhs.u8_at(1), bhs.flag(FINAL));
    let csg = LoginStage::try_from(flags >> 2 & 3)?;
    let nsg = if transit { Some(LoginStage::try_from(flags & 3)?) } else { None };
    Ok((transit, csg, nsg))
}

fn put_login_stages(bhs: &mut Bhs, transit: bool, csg: LoginStage, nsg: Option<LoginStage>) {
    bhs.put_flag(FINAL, transit);
    bhs.put_flag(csg.code() << 2, true);
    if let Some(nsg) = nsg.filter(|_| transit) {
        bhs.put_flag(nsg.code(), true);
    }
}
