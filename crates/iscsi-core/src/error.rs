//! Faults, whose they are, and what happens next.
//!
//! Three kinds of fault reach a session: bytes that do not parse ([`WireError`]), a peer that breaks a rule
//! ([`ProtocolViolation`]), and data that does not match its digest. [`Disposition::of`] is the one table of what follows for
//! each role and error recovery level (RFC 7143 7.7-7.10, 7.1). [`Level`] says what a level can recover.

use std::borrow::Cow;

use iscsi_wire::{RejectReason, WireError};

use crate::pdu_reader::FramingError;
use crate::role::Role;

/// A rule that the peer broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({rule})")]
pub struct ProtocolViolation {
    /// The rule, as document and section: "RFC 7143 6.2".
    pub rule: &'static str,
    /// What the peer did, in words.
    pub what: Cow<'static, str>,
}

impl ProtocolViolation {
    /// A violation of `rule`.
    pub fn new(rule: &'static str, what: impl Into<Cow<'static, str>>) -> Self {
        Self { rule, what: what.into() }
    }
}

impl From<WireError> for ProtocolViolation {
    fn from(error: WireError) -> Self {
        Self::new("RFC 7143 11", error.to_string())
    }
}

/// An ErrorRecoveryLevel; each one includes those below it (RFC 7143 7.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// The level with this number.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// PDUs that were lost or damaged are requested again, on the connection where they were missed.
    //= rfc7143 7.1.5 ERL-02
    pub const fn recovers_pdus(self) -> bool {
        self.0 >= 1
    }

    /// The tasks of a lost connection can continue on another one.
    pub const fn recovers_connections(self) -> bool {
        self.0 >= 2
    }
}

/// What went wrong on a connection in full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The start of the next PDU cannot be found: the header digest does not match, or a length is impossible.
    Framing,
    /// The data digest does not match; the header is sound.
    DataDigest,
    /// A sequence number was skipped: a PDU is lost.
    Missing,
    /// A lost PDU was requested again but did not arrive.
    NotRecovered,
    /// The transport is gone, or the peer is silent.
    Lost,
    /// An opcode that we do not know or do not accept in this place.
    UnknownOpcode,
    /// A field holds a reserved code, or contradicts the state of a task, but the PDU boundaries are sound.
    InvalidField,
    /// A request that is well-formed but not allowed now.
    NotAllowedNow,
    /// Header fields that contradict each other: the peer can no longer be trusted with the session (RFC 7143 7.7).
    Format,
}

impl From<&FramingError> for Fault {
    fn from(error: &FramingError) -> Self {
        match error {
            FramingError::HeaderDigest
            | FramingError::NotALogin { .. }
            | FramingError::DataTooLong { .. } => Self::Framing,
        }
    }
}

/// The response to a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Answer with a Reject PDU and continue. The state of the task determines what follows for it.
    Reject(RejectReason),
    /// Request it again: a target by R2T, an initiator by SNACK.
    AskAgain,
    /// The task to which it belongs fails.
    FailTask,
    /// Close the connection on which it happened. [`Level`] determines what becomes of its tasks and of the session.
    DropConnection,
    /// Close every connection of the session.
    DropSession,
}

impl Disposition {
    /// The table.
    ///
    /// At error recovery level 0 a PDU that a target rejects costs at most its task, not the session. An initiator cannot send a
    /// Reject: a target that breaks a rule loses the session.
    //= rfc7143 7.7 PDU-08
    pub const fn of(fault: Fault, level: Level, role: Role) -> Self {
        match (fault, role) {
            //= rfc7143 7.8 DIG-07
            (Fault::Framing | Fault::NotRecovered | Fault::Lost, _) => Self::DropConnection,
            (Fault::Format, _) => Self::DropSession,
            //= rfc7143 7.8 DIG-09 DIG-12
            (Fault::DataDigest, Role::Target) => Self::Reject(RejectReason::DataDigestError),
            (Fault::DataDigest | Fault::Missing, Role::Initiator) if level.recovers_pdus() => Self::AskAgain,
            (Fault::DataDigest, Role::Initiator) => Self::DropConnection,
            (Fault::Missing, Role::Initiator) => Self::DropSession,
            (Fault::Missing, Role::Target) if level.recovers_pdus() => Self::AskAgain,
            (Fault::Missing, Role::Target) => Self::FailTask,
            (Fault::UnknownOpcode, Role::Target) => Self::Reject(RejectReason::CommandNotSupported),
            (Fault::InvalidField, Role::Target) => Self::Reject(RejectReason::InvalidPduField),
            (Fault::NotAllowedNow, Role::Target) => Self::Reject(RejectReason::ProtocolError),
            (Fault::UnknownOpcode | Fault::InvalidField | Fault::NotAllowedNow, Role::Initiator) => {
                Self::DropSession
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTS: [Fault; 9] = [
        Fault::Framing,
        Fault::DataDigest,
        Fault::Missing,
        Fault::NotRecovered,
        Fault::Lost,
        Fault::UnknownOpcode,
        Fault::InvalidField,
        Fault::NotAllowedNow,
        Fault::Format,
    ];

    // covers: PDU-08
    #[test]
    fn no_disposition_asks_for_what_its_role_or_level_does_not_have() {
        for (fault, number) in FAULTS.into_iter().flat_map(|fault| [0, 1, 2].map(|number| (fault, number))) {
            let of = |role| Disposition::of(fault, Level::new(number), role);
            let (target, initiator) = (of(Role::Target), of(Role::Initiator));
            assert!(!matches!(initiator, Disposition::Reject(_)), "{fault:?}: initiators send no Reject");
            if number == 0 {
                assert_ne!(target, Disposition::AskAgain, "{fault:?} at level 0");
                assert_ne!(initiator, Disposition::AskAgain, "{fault:?} at level 0");
            }
            let costs_session = [target, initiator].contains(&Disposition::DropSession);
            let on_the_way = matches!(fault, Fault::Framing | Fault::DataDigest | Fault::Lost);
            assert!(!(costs_session && on_the_way), "{fault:?}: a bad wire is no reason to end a session");
        }
        let asks = |fault, role| Disposition::of(fault, Level::new(1), role) == Disposition::AskAgain;
        assert!(asks(Fault::Missing, Role::Target) && asks(Fault::Missing, Role::Initiator));
        assert!(asks(Fault::DataDigest, Role::Initiator), "by SNACK");
    }
}
