//! Why a login ended without a session, and what can be done about it (RFC 7143 11.13.5).

use iscsi_wire::{LoginStage, LoginStatus};

use super::address::TargetAddress;
use crate::error::ProtocolViolation;

/// How to react to a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Log in at the addresses given instead.
    Follow,
    /// Trying again is useless until something is changed.
    Stop,
    /// Try again later.
    Retry,
}

/// Why a login ended without a session. The connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    /// The target refused the login.
    #[error("the target refused the login in the {stage} stage: {status} (status {:04x}h, RFC 7143 11.13.5)", status.code())]
    Refused {
        /// The status it returned.
        status: LoginStatus,
        /// Stage of the login.
        stage: LoginStage,
    },
    /// The target is at another address.
    #[error("the target has moved (status 010{}h, RFC 7143 11.13.5)", if *permanently { 2 } else { 1 })]
    Redirected {
        /// Whether the old address should be forgotten.
        permanently: bool,
        /// Where it is; never empty.
        addresses: Vec<TargetAddress>,
    },
    /// The target broke a rule.
    #[error("the target breaks the protocol: {0}")]
    Violation(#[from] ProtocolViolation),
    /// No authentication method is acceptable to both sides.
    #[error(
        "no authentication method suits both sides: the target answered AuthMethod={answer} (RFC 7143 12.1)"
    )]
    NoCommonMethod {
        /// The target's answer.
        answer: String,
    },
    /// The target was required to prove itself and did not.
    #[error("{what} ({rule})")]
    TargetNotProven {
        /// The rule.
        rule: &'static str,
        /// What happened.
        what: &'static str,
    },
    /// The negotiated result does not meet our requirements.
    #[error("{0}")]
    Unacceptable(ProtocolViolation),
}

impl LoginFailure {
    /// What to do about it.
    //= rfc7143 11.13.5 LGN-14
    pub fn advice(&self) -> Advice {
        match self {
            Self::Redirected { .. } => Advice::Follow,
            Self::Refused { status, .. } if status.class() == 3 => Advice::Retry,
            _ => Advice::Stop,
        }
    }

    /// What a person can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Refused { status, .. } => match status {
                LoginStatus::AuthenticationFailure => {
                    "check the CHAP name and secret, and whether the target wants CHAP at all"
                }
                LoginStatus::AuthorizationFailure => {
                    "allow this initiator name (or its address) on the target, or set the name that is allowed"
                }
                LoginStatus::NotFound => "check the target name; `intact ls` shows what the portal offers",
                LoginStatus::TargetRemoved => "the target was removed: ask who runs it where its data went",
                LoginStatus::UnsupportedVersion => "the target speaks another version of iSCSI than 0",
                LoginStatus::TooManyConnections => "close other connections of this session",
                LoginStatus::MissingParameter => "the target wants a key that was not sent: report it",
                LoginStatus::SessionDoesNotExist => "the session is gone: log in anew",
                LoginStatus::ServiceUnavailable => "the target is starting or stopping: try again",
                LoginStatus::OutOfResources => "the target is full: try again, or raise its limits",
                s if s.class() == 3 => "see the target's log, then try again",
                _ => "see the target's log for its reason",
            },
            Self::Redirected { .. } => "log in at the address given",
            Self::Violation(_) => "report it to the target's maker",
            Self::NoCommonMethod { .. } => {
                "configure CHAP on both sides, or on neither; a URL without user offers none"
            }
            Self::TargetNotProven { .. } => {
                "check the secret configured for the target's own proof (mutual CHAP), on both sides"
            }
            Self::Unacceptable(_) => "relax what is required here, or change the target's configuration",
        }
    }

    /// The rule that refused, as a document and section.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::Redirected { .. } => "RFC 7143 11.13.5",
            Self::Violation(violation) | Self::Unacceptable(violation) => violation.rule,
            Self::NoCommonMethod { .. } => "RFC 7143 12.1",
            Self::TargetNotProven { rule, .. } => rule,
        }
    }
}
