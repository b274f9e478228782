//! What can go wrong, in words for an operator: what happened, which rule, what to do.

use std::io;
use std::net::SocketAddr;

use iscsi_core::error::ProtocolViolation;
use iscsi_core::initiator::login::{KeyLine, LoginFailure};
use iscsi_core::initiator::session::CloseReason;
use iscsi_core::pdu_reader::FramingError;
use iscsi_core::wire::{LoginStatus, Lun, RejectReason};

use crate::protection::error::PiFailure;
use crate::sense::Sense;
use crate::unit::lost::LostWrites;

// SCSI status codes (SAM-5 5.3.1).
pub(crate) const GOOD: u8 = 0x00;
pub(crate) const CHECK_CONDITION: u8 = 0x02;
pub(crate) const BUSY: u8 = 0x08;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;
pub(crate) const TASK_SET_FULL: u8 = 0x28;
pub(crate) const TASK_ABORTED: u8 = 0x40;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host has no address.
    #[error("{host} cannot be resolved: {error}")]
    Resolve {
        /// Host as given.
        host: String,
        /// The system's reason.
        error: io::Error,
    },
    /// No TCP connection.
    #[error("no connection to {address}: {error}")]
    Connect {
        /// Address tried last.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// The login was refused or failed.
    #[error("login at {address}: {failure}")]
    Login {
        /// Address of the portal.
        address: SocketAddr,
        /// What happened.
        failure: LoginFailure,
        /// The keys exchanged so far.
        keys: Vec<KeyLine>,
    },
    /// The portal sent something that is not iSCSI.
    #[error("{address} does not speak iSCSI: {error}")]
    Framing {
        /// Address of the portal.
        address: SocketAddr,
        /// What is wrong with the bytes.
        error: FramingError,
    },
    /// The portal closed the connection while we were logging in.
    #[error("{address} closed the connection during the login")]
    Closed {
        /// Address of the portal.
        address: SocketAddr,
    },
    /// The login took too long.
    #[error("{address} did not finish the login in time")]
    LoginTimeout {
        /// Address of the portal.
        address: SocketAddr,
    },
    /// Redirected again and again.
    #[error("redirected {0} times without end (RFC 7143 11.13.5)")]
    TooManyRedirects(u32),
    /// The configuration contradicts itself.
    #[error("{0}")]
    Configuration(#[from] ProtocolViolation),
    /// The engine that was asked for cannot serve such a session.
    #[error("{0}")]
    NotOffloaded(#[from] NotOffloaded),
    /// The session was closed before it could answer.
    #[error("the session ended: {0}")]
    Ended(CloseReason),
    /// A problem on this machine.
    #[error("{0}")]
    Local(#[from] io::Error),
}

/// Why an engine does not serve a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotOffloaded {
    /// It counts CmdSN for each connection by itself, and a session of several connections has one count.
    #[error("an engine serves sessions of one connection only: it counts CmdSN by itself (RFC 7143 4.2.2.1)")]
    Connections,
    /// It neither generates nor checks protection information.
    #[error("an engine has no protection information (docs/engine-interface.md, \"What is implemented\")")]
    Protection,
    /// The program contains no circuit.
    #[error(
        "this program contains no circuit for engine=rtl (docs/engine-interface.md, \"The split initiator\")"
    )]
    NoCircuit,
    /// It refuses the negotiated parameters, with this result.
    #[error("the engine does not take a connection with the negotiated parameters: {0}")]
    Parameters(String),
}

impl NotOffloaded {
    /// The rule that it follows.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Connections => "RFC 7143 4.2.2.1",
            Self::Protection | Self::NoCircuit | Self::Parameters(_) => "docs/engine-interface.md",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Connections => "ask for one connection, or leave the engine out (engine=none)",
            Self::Protection => "leave pi=1 out, or the engine (engine=none)",
            Self::NoCircuit => {
                "build intact with it (scripts/setup.sh rtl; cargo build -p intact --features rtl); a program of your own brings it \
                 by Options::set_circuit; or leave the engine out (engine=none)"
            }
            Self::Parameters(_) => "leave the engine out (engine=none)",
        }
    }
}

impl ConnectError {
    /// The rule of a standard that was violated, if there is one.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::Login { failure, .. } => Some(failure.rule()),
            Self::Framing { .. } => Some("RFC 7143 11.2"),
            Self::TooManyRedirects(_) => Some("RFC 7143 11.13.5"),
            Self::Configuration(violation) => Some(violation.rule),
            Self::NotOffloaded(refusal) => Some(refusal.rule()),
            Self::Ended(CloseReason::Violation(violation)) => Some(violation.rule),
            _ => None,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Resolve { .. } => "check the spelling of the host, or give its address".into(),
            Self::Connect { address, error } => match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    format!("nothing listens on port {}: start the target, or give its port", address.port())
                }
                io::ErrorKind::TimedOut => "check route and firewall between here and there".into(),
                _ => "check the network between here and there".into(),
            },
            Self::Login { failure: LoginFailure::Refused { status, .. }, keys, .. }
                if *status == LoginStatus::AuthenticationFailure
                    && !keys.iter().any(|line| line.key == "CHAP_N") =>
            {
                "the target wants CHAP: write user%password@ before the host, or set LIBISCSI_CHAP_USERNAME and \
                 LIBISCSI_CHAP_PASSWORD"
                    .into()
            }
            Self::Login { failure, .. } => failure.remedy().into(),
            Self::Framing { .. } => {
                "check the port: something else than an iSCSI target answers there".into()
            }
            Self::Closed { .. } => {
                "see the target's log; a target that hides, or limits logins, closes without a word".into()
            }
            Self::LoginTimeout { .. } => "see the target's log, then try again".into(),
            Self::TooManyRedirects(_) => {
                "the target's redirections lead in a circle: see its configuration".into()
            }
            Self::Configuration(_) => "change the configuration".into(),
            Self::NotOffloaded(refusal) => refusal.remedy().into(),
            Self::Ended(_) => "see the target's log: the login went well, and then it was lost".into(),
            Self::Local(_) => "see the limits of this process (descriptors, memory)".into(),
        }
    }

    /// The portal that it concerns, if it concerns one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Connect { address, .. }
            | Self::Login { address, .. }
            | Self::Framing { address, .. }
            | Self::Closed { address }
            | Self::LoginTimeout { address } => Some(*address),
            _ => None,
        }
    }

    /// Whether trying again may help although nobody changes anything.
    pub(crate) fn is_passing(&self) -> bool {
        use iscsi_core::initiator::login::Advice;
        match self {
            Self::Login { failure, .. } => failure.advice() == Advice::Retry,
            Self::Configuration(_) | Self::NotOffloaded(_) | Self::Local(_) | Self::TooManyRedirects(_) => {
                false
            }
            _ => true,
        }
    }

    /// The keys exchanged before the login failed.
    pub fn keys(&self) -> &[KeyLine] {
        match self {
            Self::Login { keys, .. } => keys,
            _ => &[],
        }
    }
}

/// Why a command returned no data.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The device server reported CHECK CONDITION.
    #[error("the target refuses the command: {0}")]
    CheckCondition(Sense),
    /// Another SCSI status than GOOD.
    #[error("the target answers with SCSI status {0:02x}h")]
    Status(u8),
    /// Compared data differ.
    #[error(
        "the data on the medium differ at byte {offset} of those compared (COMPARE AND WRITE, SBC-3 5.2)"
    )]
    Miscompare {
        /// First byte that differs, as far as the target reports it.
        offset: u64,
    },
    /// The target failed (iSCSI response code other than 0).
    #[error("the target failed to carry the command out: response {0:02x}h (RFC 7143 11.4.3)")]
    TargetFailure(u8),
    /// Data kept arriving with wrong digests.
    #[error("data arrived damaged: its digest does not match (RFC 7143 7.8)")]
    DataDigest,
    /// A block's protection information failed a check, here or at the target.
    #[error("{0}")]
    Protection(#[from] PiFailure),
    /// The target refused the PDU.
    #[error("the target rejects the command: {0} (RFC 7143 11.17)")]
    Rejected(RejectReason),
    /// It took too long.
    #[error("the command took too long and was aborted; whether it was carried out is not known")]
    TimedOut,
    /// The session or connection was lost while a command was outstanding that must not be executed twice.
    #[error(
        "the connection was lost; whether the command was carried out is not known, and it is none that may be done twice: look at what the medium holds"
    )]
    OutcomeUnknown,
    /// A task management function, for example a reset of the logical unit, aborted the command.
    #[error("the command was aborted together with others; whether it was carried out is not known")]
    Aborted,
    /// Less data than requested, although the status was good.
    #[error("{got} bytes arrived where {expected} were asked for")]
    Short {
        /// Bytes that arrived.
        got: usize,
        /// Bytes requested.
        expected: usize,
    },
    /// Data in an answer that makes no sense.
    #[error("the answer to {0} makes no sense")]
    Malformed(&'static str),
    /// The request does not fit the device.
    #[error("{0}")]
    Request(String),
    /// The unit has lost writes that it had acknowledged; the flush itself succeeded. Reported once to each
    /// opened [`Disk`](crate::Disk). A caller that still has the data must write it again, and flush again.
    #[error("{0}")]
    LostWrites(Box<LostWrites>),
    /// Since the session was lost, the LUN leads to another volume; nothing is sent to it.
    #[error("LUN {lun} is another volume now: it was {was}, it is {is}; nothing was written to that one")]
    OtherVolume {
        /// The LUN.
        lun: Lun,
        /// The name of the volume that it was.
        was: String,
        /// The name of the one that is there now.
        is: String,
    },
    /// The session has ended and did not recover.
    #[error("the session is over: {0}")]
    SessionLost(String),
}

impl IoError {
    /// The thread of the session has ended, and all answers it owed are lost.
    pub(crate) fn loop_ended() -> Self {
        Self::SessionLost("its event loop has ended".to_owned())
    }

    /// What to do about it; `None` if the error text already says so.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::CheckCondition(sense) => return sense.remedy(),
            Self::Status(BUSY | TASK_SET_FULL) => {
                "the target is busy: try again, with fewer commands at a time"
            }
            Self::Status(RESERVATION_CONFLICT) => {
                "another initiator has reserved the unit: let it release the reservation, or preempt it"
            }
            Self::Status(_) | Self::TargetFailure(_) | Self::Rejected(_) => "see the target's log",
            Self::Short { .. } | Self::Malformed(_) => {
                "the target breaks a rule: `intact conform` shows which, its maker wants to know"
            }
            Self::DataDigest => "something between here and there damages data: check cables, cards, memory",
            Self::TimedOut => "see whether the target is well, or give commands more time",
            Self::Aborted => "somebody has reset the unit or the target: find out who, then try again",
            Self::LostWrites(_) => "write them again from where they came, and flush again",
            Self::OtherVolume { .. } => {
                "find out what happened to the volume at the target: its LUNs were changed, or it was replaced or begun anew"
            }
            Self::SessionLost(_) => "see whether the target runs and can be reached, then try again",
            Self::Miscompare { .. } | Self::Protection(_) | Self::OutcomeUnknown | Self::Request(_) => {
                return None;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_helped_says_how() {
        let sense = |key, asc| IoError::CheckCondition(Sense { key, asc, ..Sense::default() });
        for (error, word) in [
            (sense(5, 0x25), "intact ls"),
            (sense(5, 0x20), "intact inq"),
            (sense(7, 0x27), "unprotect"),
            (IoError::CheckCondition(Sense { key: 7, asc: 0x27, ascq: 7, ..Sense::default() }), "no room"),
            (sense(3, 0x11), "intact scrub"),
            (sense(2, 0x04), "ready"),
            (
                IoError::CheckCondition(Sense { key: 2, asc: 4, ascq: 0xb, ..Sense::default() }),
                "intact group",
            ),
            (IoError::Status(RESERVATION_CONFLICT), "reserved"),
            (IoError::Status(TASK_SET_FULL), "fewer"),
            (IoError::SessionLost(String::new()), "reached"),
        ] {
            let remedy = error.remedy().unwrap_or_default();
            assert!(remedy.contains(word), "{error}: {remedy}");
        }
        assert_eq!(IoError::OutcomeUnknown.remedy(), None, "its words say it");
    }
}
