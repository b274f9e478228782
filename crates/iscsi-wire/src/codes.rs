//! Code values of PDU fields, each with a description in words. A reserved code is a `WireError`.

use crate::WireError;
use std::fmt;

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident, $field:literal, $section:literal, {
        $($(#[$doc:meta])* $variant:ident = $code:literal: $words:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $(#[doc = $words] $(#[$doc])* $variant = $code,)* }

        impl $name {
            /// All of them, in numerical order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The value on the wire.
            pub const fn code(self) -> u8 {
                self as u8
            }
        }

        //= rfc7143 11 PDU-03
        impl TryFrom<u8> for $name {
            type Error = WireError;
            fn try_from(code: u8) -> Result<Self, WireError> {
                match code {
                    $($code => Ok($name::$variant),)*
                    _ => Err(WireError::ReservedValue { field: $field, value: code.into(), section: $section }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($name::$variant => $words,)* })
            }
        }
    };
}

codes!(
    /// ATTR of a SCSI Command (RFC 7143 11.3.1).
    TaskAttribute, "ATTR", "11.3.1", {
        Untagged = 0: "untagged",
        Simple = 1: "simple",
        Ordered = 2: "ordered",
        HeadOfQueue = 3: "head of queue",
        Aca = 4: "ACA",
    }
);

codes!(
    /// Function of a Task Management Function Request (RFC 7143 11.5.1; from 9 on RFC 7144 6.1, which needs
    /// iSCSIProtocolLevel 2).
    TmfFunction, "Function", "11.5.1", {
        AbortTask = 1: "ABORT TASK",
        AbortTaskSet = 2: "ABORT TASK SET",
        ClearAca = 3: "CLEAR ACA",
        ClearTaskSet = 4: "CLEAR TASK SET",
        LogicalUnitReset = 5: "LOGICAL UNIT RESET",
        TargetWarmReset = 6: "TARGET WARM RESET",
        TargetColdReset = 7: "TARGET COLD RESET",
        TaskReassign = 8: "TASK REASSIGN",
        QueryTask = 9: "QUERY TASK",
        QueryTaskSet = 10: "QUERY TASK SET",
        ITNexusReset = 11: "I_T NEXUS RESET",
        QueryAsyncEvent = 12: "QUERY ASYNCHRONOUS EVENT",
    }
);

impl TmfFunction {
    /// Does the function exist only at iSCSIProtocolLevel 2 (RFC 7144)?
    pub const fn is_level_2(self) -> bool {
        self.code() >= 9
    }
}

codes!(
    /// Response of a Task Management Function Response (RFC 7143 11.6.1; 7 from RFC 7144 6.2).
    TmfResponse, "Response", "11.6.1", {
        FunctionComplete = 0: "function complete",
        TaskDoesNotExist = 1: "task does not exist",
        LunDoesNotExist = 2: "LUN does not exist",
        TaskStillAllegiant = 3: "task still allegiant",
        TaskReassignNotSupported = 4: "task allegiance reassignment not supported",
        FunctionNotSupported = 5: "task management function not supported",
        FunctionAuthorizationFailed = 6: "function authorization failed",
        FunctionSucceeded = 7: "function succeeded",
        FunctionRejected = 255: "function rejected",
    }
);

codes!(
    /// Reason Code of a Logout Request (RFC 7143 11.14.1).
    LogoutReason, "Reason Code", "11.14.1", {
        CloseSession = 0: "close the session",
        CloseConnection = 1: "close the connection",
        RemoveConnectionForRecovery = 2: "remove the connection for recovery",
    }
);

codes!(
    /// Response of a Logout Response (RFC 7143 11.15.1).
    LogoutResponseCode, "Response", "11.15.1", {
        Success = 0: "connection or session closed successfully",
        CidNotFound = 1: "CID not found",
        RecoveryNotSupported = 2: "connection recovery is not supported",
        CleanupFailed = 3: "cleanup failed",
    }
);

codes!(
    /// Type of a SNACK Request (RFC 7143 11.16.1).
    SnackType, "SNACK Type", "11.16.1", {
        DataOrR2t = 0: "Data/R2T SNACK",
        Status = 1: "Status SNACK",
        DataAck = 2: "DataACK",
        RData = 3: "R-Data SNACK",
    }
);

codes!(
    /// Reason of a Reject (RFC 7143 11.17.1).
    RejectReason, "Reason", "11.17.1", {
        DataDigestError = 0x02: "data (payload) digest error",
        SnackReject = 0x03: "SNACK reject",
        ProtocolError = 0x04: "protocol error",
        CommandNotSupported = 0x05: "command not supported",
        TooManyImmediateCommands = 0x06: "immediate command reject, too many immediate commands",
        TaskInProgress = 0x07: "task in progress",
        InvalidDataAck = 0x08: "invalid data ACK",
        InvalidPduField = 0x09: "invalid PDU field",
        LongOperationReject = 0x0a: "long operation reject, cannot generate a Target Transfer Tag",
        /// Only so that it can be recognised: RFC 7143 deprecates it, and it must not be sent.
        NegotiationReset = 0x0b: "negotiation reset (deprecated)",
        WaitingForLogout = 0x0c: "waiting for logout",
    }
);

codes!(
    /// CSG and NSG of the Login PDUs (RFC 7143 11.12.3). The value 2 is reserved.
    LoginStage, "CSG/NSG", "11.12.3", {
        Security = 0: "security negotiation",
        Operational = 1: "login operational negotiation",
        FullFeature = 3: "full feature phase",
    }
);

/// AsyncEvent of an Asynchronous Message (RFC 7143 11.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncEvent {
    /// 0: a SCSI asynchronous event; the sense data is in the data segment.
    ScsiAsyncEvent,
    /// 1: the target requests Logout on this connection within Parameter3 seconds.
    LogoutRequest,
    /// 2: the target will drop or has dropped the connection whose CID is Parameter1.
    ConnectionDrop,
    /// 3: the target will drop or has dropped all connections of the session.
    SessionDrop,
    /// 4: the target requests parameter negotiation on this connection.
    NegotiationRequest,
    /// 5: tasks of the logical unit have been terminated (with TaskReporting=FastAbort only).
    TaskTermination,
    /// 248 to 255: vendor specific, detailed by AsyncVCode.
    Vendor(u8),
}

impl AsyncEvent {
    /// The value on the wire. A `Vendor` below 248, which would collide with the standard's codes, becomes
    /// 255.
    pub const fn code(self) -> u8 {
        match self {
            AsyncEvent::ScsiAsyncEvent => 0,
            AsyncEvent::LogoutRequest => 1,
            AsyncEvent::ConnectionDrop => 2,
            AsyncEvent::SessionDrop => 3,
            AsyncEvent::NegotiationRequest => 4,
            AsyncEvent::TaskTermination => 5,
            AsyncEvent::Vendor(code @ 248..) => code,
            AsyncEvent::Vendor(_) => 255,
        }
    }
}

//= rfc7143 11.9.1 PDU-03
impl TryFrom<u8> for AsyncEvent {
    type Error = WireError;
    fn try_from(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            0 => AsyncEvent::ScsiAsyncEvent,
            1 => AsyncEvent::LogoutRequest,
            2 => AsyncEvent::ConnectionDrop,
            3 => AsyncEvent::SessionDrop,
            4 => AsyncEvent::NegotiationRequest,
            5 => AsyncEvent::TaskTermination,
            248.. => AsyncEvent::Vendor(code),
            _ => {
                let (field, value) = ("AsyncEvent", code.into());
                return Err(WireError::ReservedValue { field, value, section: "11.9.1" });
            }
        })
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            AsyncEvent::ScsiAsyncEvent => "SCSI asynchronous event",
            AsyncEvent::LogoutRequest => "target requests logout",
            AsyncEvent::ConnectionDrop => "target drops the connection",
            AsyncEvent::SessionDrop => "target drops the session",
            AsyncEvent::NegotiationRequest => "target requests parameter negotiation",
            AsyncEvent::TaskTermination => "tasks terminated",
            AsyncEvent::Vendor(code) => return write!(f, "vendor event {code}"),
        })
    }
}
