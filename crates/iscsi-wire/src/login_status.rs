//! Status-Class and Status-Detail of a Login Response (RFC 7143 11.13.5).

use std::fmt;

macro_rules! statuses {
    ($($name:ident = $code:literal: $words:literal,)*) => {
        /// The outcome of a login. Codes that the standard does not list are kept, because their class alone
        /// tells an initiator what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum LoginStatus {
            $(#[doc = $words] $name,)*
            /// A code that RFC 7143 does not list: class in the upper byte, detail in the lower.
            Other(u16),
        }

        impl LoginStatus {
            /// All that have a name.
            pub const ALL: &'static [LoginStatus] = &[$(LoginStatus::$name),*];

            /// Status-Class in the upper byte, Status-Detail in the lower.
            pub const fn code(self) -> u16 {
                match self { $(LoginStatus::$name => $code,)* LoginStatus::Other(code) => code }
            }
        }

        impl From<u16> for LoginStatus {
            fn from(code: u16) -> Self {
                match code { $($code => LoginStatus::$name,)* _ => LoginStatus::Other(code) }
            }
        }

        impl fmt::Display for LoginStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(LoginStatus::$name => $words,)*
                    LoginStatus::Other(code) => return write!(f, "login status {code:#06x}"),
                })
            }
        }
    };
}

statuses! {
    Success = 0x0000: "login proceeds",
    TargetMovedTemporarily = 0x0101: "target moved temporarily",
    TargetMovedPermanently = 0x0102: "target moved permanently",
    InitiatorError = 0x0200: "initiator error",
    AuthenticationFailure = 0x0201: "authentication failure",
    AuthorizationFailure = 0x0202: "authorization failure: the initiator may not use this target",
    NotFound = 0x0203: "target not found",
    TargetRemoved = 0x0204: "target removed",
    UnsupportedVersion = 0x0205: "iSCSI version not supported",
    TooManyConnections = 0x0206: "too many connections on this session",
    MissingParameter = 0x0207: "missing parameter",
    CannotIncludeInSession = 0x0208: "target does not support the session spanning to this connection",
    SessionTypeNotSupported = 0x0209: "session type not supported",
    SessionDoesNotExist = 0x020a: "session does not exist",
    InvalidDuringLogin = 0x020b: "invalid request during login",
    TargetError = 0x0300: "target hardware or software error",
    ServiceUnavailable = 0x0301: "service unavailable",
    OutOfResources = 0x0302: "out of resources",
}

impl LoginStatus {
    /// Status-Class: 0 success, 1 redirection, 2 initiator error, 3 target error.
    pub const fn class(self) -> u8 {
        self.code().to_be_bytes()[0]
    }

    /// Status-Detail inside the class.
    pub const fn detail(self) -> u8 {
        self.code().to_be_bytes()[1]
    }

    /// Is the class 0? Only then does the login continue.
    pub const fn is_success(self) -> bool {
        self.class() == 0
    }
}
