//! Opcodes (RFC 7143 11.2.1.2). Bit 5 says who may send: 0 the initiator, 1 the target.

use crate::WireError;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The opcodes that RFC 7143 defines. Vendor opcodes are not among them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        impl Opcode {
            /// All of them, in numerical order.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name),*];

            /// The RFC's title of the PDU, without spaces.
            pub const fn name(self) -> &'static str {
                match self { $(Opcode::$name => stringify!($name),)* }
            }
        }

        impl TryFrom<u8> for Opcode {
            type Error = WireError;
            /// From the six opcode bits.
            fn try_from(code: u8) -> Result<Self, WireError> {
                match code { $($code => Ok(Opcode::$name),)* _ => Err(WireError::UnknownOpcode(code)) }
            }
        }
    };
}

opcodes! {
    /// NOP-Out.
    NopOut = 0x00,
    /// SCSI Command.
    ScsiCommand = 0x01,
    /// SCSI Task Management Function Request.
    TaskManagementRequest = 0x02,
    /// Login Request.
    LoginRequest = 0x03,
    /// Text Request.
    TextRequest = 0x04,
    /// SCSI Data-Out.
    DataOut = 0x05,
    /// Logout Request.
    LogoutRequest = 0x06,
    /// SNACK Request.
    SnackRequest = 0x10,
    /// NOP-In.
    NopIn = 0x20,
    /// SCSI Response.
    ScsiResponse = 0x21,
    /// SCSI Task Management Function Response.
    TaskManagementResponse = 0x22,
    /// Login Response.
    LoginResponse = 0x23,
    /// Text Response.
    TextResponse = 0x24,
    /// SCSI Data-In.
    DataIn = 0x25,
    /// Logout Response.
    LogoutResponse = 0x26,
    /// Ready To Transfer.
    R2t = 0x31,
    /// Asynchronous Message.
    AsyncMessage = 0x32,
    /// Reject.
    Reject = 0x3f,
}

impl Opcode {
    /// The six bits.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// May only an initiator send it? If not, only a target may.
    //= rfc7143 11.2.1.2 PDU-05
    pub const fn is_initiator(self) -> bool {
        self.code() & 0x20 == 0
    }
}
