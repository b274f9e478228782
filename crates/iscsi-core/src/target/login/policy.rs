//! What a login requests from its surroundings, and their answers: who may log in where, on which terms, and why not.

use iscsi_wire::{Cid, Isid, LoginRequest, LoginStatus, Tsih, keys};

use crate::chap::{ChapAlgorithm, Credentials, Secret};
use crate::error::ProtocolViolation;
use crate::names::IscsiName;
use crate::negotiation::{DIGEST_REQUIRED, shown};
use crate::params::{Bounds, Params};

/// Names and identifiers in the first login request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginNames {
    /// InitiatorName.
    pub initiator: IscsiName,
    /// TargetName; `None` in a discovery session that names none.
    pub target: Option<IscsiName>,
    /// SessionType=Discovery.
    pub discovery: bool,
    /// ISID of the request.
    pub isid: Isid,
    /// TSIH of the request: zero requests a new session.
    pub tsih: Tsih,
    /// CID of the request.
    pub cid: Cid,
}

impl LoginNames {
    /// Reads the names of the first request.
    ///
    /// # Errors
    /// A name is missing or is none.
    pub(super) fn read(request: &LoginRequest, pairs: &[(&str, &str)]) -> Result<Self, Refusal> {
        let get = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        //= rfc7143 11.13.5 LGN-05 KEY-04 KEY-05
        let missing = |name: &str| {
            Refusal::new(
                LoginStatus::MissingParameter,
                "RFC 7143 6.3",
                format!("{name} is not in the first login request"),
                format!("configure {name} on the initiator"),
            )
        };
        let initiator =
            IscsiName::parse(get(keys::INITIATOR_NAME).ok_or_else(|| missing(keys::INITIATOR_NAME))?)?;
        //= rfc7143 13.21 KEY-20
        let discovery = match get(keys::SESSION_TYPE) {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(other) => {
                let what = format!("SessionType={} is unknown", shown(other));
                return Err(Refusal::new(
                    LoginStatus::SessionTypeNotSupported,
                    "RFC 7143 13.21",
                    what,
                    "use Normal or Discovery",
                ));
            }
        };
        let target = match get(keys::TARGET_NAME) {
            Some(name) => Some(IscsiName::parse(name)?),
            None if discovery => None,
            None => return Err(missing(keys::TARGET_NAME)),
        };
        let LoginRequest { isid, tsih, cid, .. } = *request;
        Ok(Self { initiator, target, discovery, isid, tsih, cid })
    }

    /// Whether `key=value` says again what these names say.
    pub(super) fn repeats(&self, key: &str, value: &str) -> bool {
        match key {
            keys::INITIATOR_NAME => IscsiName::parse(value).is_ok_and(|name| name == self.initiator),
            keys::TARGET_NAME => IscsiName::parse(value).is_ok_and(|name| Some(name) == self.target),
            keys::SESSION_TYPE => value == if self.discovery { "Discovery" } else { "Normal" },
            _ => false,
        }
    }
}

/// How the initiator must prove itself.
#[derive(Clone, Debug)]
pub enum AuthPolicy {
    /// No proof is required.
    None,
    /// By CHAP.
    Chap {
        /// Algorithms that may be used.
        algorithms: Vec<ChapAlgorithm>,
        /// Our own name and secret, if the initiator asks us to prove ourselves.
        mutual: Option<Credentials>,
    },
}

/// Terms on which an initiator may log in.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How it must prove itself.
    pub auth: AuthPolicy,
    /// Bounds of the negotiation.
    pub bounds: Bounds,
    /// Tag of the portal group that it reached.
    pub portal_group_tag: u16,
    /// TargetAlias to send, if any.
    pub target_alias: Option<String>,
    /// Parameters of the session that this connection joins; `None` for the leading connection of a new one.
    pub joins: Option<Params>,
}

/// Decisions that the login requests from its surroundings.
pub trait LoginPolicy {
    /// Whether, and on which terms, the initiator may continue. Called once, before authentication.
    ///
    /// # Errors
    /// The refusal that ends the login, with its status (not found, not authorised, moved, no such session...).
    fn admit(&mut self, names: &LoginNames) -> Result<Admission, Refusal>;
    /// The secret of a CHAP name that may speak for this initiator.
    ///
    /// # Errors
    /// Why there is none.
    fn secret_of(&mut self, names: &LoginNames, chap_name: &str) -> Result<Secret, NoSecret>;
    /// Remembers a challenge of ours, to recognise it when it is sent back on any connection.
    fn challenge_issued(&mut self, challenge: &[u8]);
    /// Whether `challenge` is one of ours.
    fn was_issued(&mut self, challenge: &[u8]) -> bool;
    /// Fills `bytes` from a cryptographically strong source.
    fn fill_random(&mut self, bytes: &mut [u8]);
}

/// Why a CHAP name proves nothing, whatever response comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSecret {
    /// There is no account of that name.
    UnknownName,
    /// There is one, and it may not speak for this initiator.
    OtherInitiator,
}

/// Longest CHAP name of a refused login that is kept for the log, characters.
const MAX_TRIED_NAME_CHARS: usize = 255;

/// Why a login ended without a session: the status for the initiator, and what a person needs to fix the cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({rule}); {remedy}")]
pub struct Refusal {
    /// The status sent to the initiator.
    pub status: LoginStatus,
    /// The rule that refused.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// TargetAddress values of a redirection.
    pub redirect: Vec<String>,
    /// The CHAP name to be proved, if the login got that far. For the log: the initiator receives the status alone.
    pub chap_name: Option<String>,
}

impl Refusal {
    /// A refusal with `status`.
    pub fn new(
        status: LoginStatus,
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status, rule, what: what.into(), remedy: remedy.into(), redirect: Vec::new(), chap_name: None }
    }

    /// The same of a login that tried to be `chap_name`.
    pub fn tried_as(mut self, chap_name: &str) -> Self {
        self.chap_name = Some(chap_name.chars().take(MAX_TRIED_NAME_CHARS).collect());
        self
    }

    pub(super) fn initiator_error(
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(LoginStatus::InitiatorError, rule, what, remedy)
    }

    pub(super) fn authentication(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(LoginStatus::AuthenticationFailure, "RFC 7143 12.1", what, remedy)
    }
}

impl From<ProtocolViolation> for Refusal {
    fn from(violation: ProtocolViolation) -> Self {
        let remedy = if violation.rule == DIGEST_REQUIRED {
            "let the initiator offer CRC32C for HeaderDigest and DataDigest, or do not require it here"
        } else {
            "the initiator breaks the protocol: report it to its maker"
        };
        Self::initiator_error(violation.rule, violation.what, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_required_digest_can_be_cured_by_configuration() {
        let remedy = |rule| Refusal::from(ProtocolViolation::new(rule, "what")).remedy;
        assert!(remedy(DIGEST_REQUIRED).starts_with("let the initiator offer CRC32C"));
        assert!(remedy("RFC 7143 13.1").starts_with("the initiator breaks the protocol"));
    }
}
