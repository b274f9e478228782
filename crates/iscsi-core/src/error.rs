//! Whose fault it was, and what happens next.
//!
//! Three families reach a session: bytes that do not parse ([`WireError`]), a peer that breaks a rule
//! ([`ProtocolViolation`]), and data that does not match its digest. [`Disposition::of`] is the one table that says what
//! follows for which role at which error recovery level (RFC 7143 7.7-7.10, 7.1). [`Level`] says what a level can recover.

use std::borrow::Cow;

use iscsi_wire::{RejectReason, WireError};

use crate::negotiation::Role;
use crate::pdu_reader::FramingError;

/// A rule that the peer broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({rule})")]
pub struct ProtocolViolation {
    /// The rule, as document and section: "RFC 7143 6.2".
    pub rule: &'static str,
    /// What the peer did, for a person.
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
    /// A level by its number.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// PDUs that were lost or damaged are asked for again, on the connection where they were missed.
    //= rfc7143 7.1.5 ERL-02
    pub const fn recovers_pdus(self) -> bool {
        self.0 >= 1
    }

    /// The tasks of a connection that is lost can go on over another one.
    pub const fn recovers_connections(self) -> bool {
        self.0 >= 2
    }
}

/// What went wrong on a connection in full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The beginning of the next PDU cannot be found: a header digest that does not match, or a length that cannot be.
    Framing,
    /// The data digest does not match; the header is sound.
    DataDigest,
    /// A number of a sequence was left out: a PDU is lost.
    Missing,
    /// What was lost did not come although it was asked for.
    NotRecovered,
    /// The transport is gone, or the peer says nothing.
    Lost,
    /// An opcode that we do not know or do not accept in this place.
    UnknownOpcode,
    /// A field holds a reserved code, or contradicts the state of a task, but the PDU boundaries are sound.
    InvalidField,
    /// A request that is well formed but not allowed now.
    NotAllowedNow,
    /// Header fields that contradict each other: the peer cannot be trusted with the session any more (RFC 7143 7.7).
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

/// What is done about a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Answer with a Reject PDU and go on. What follows for the task is the business of the task's own state.
    Reject(RejectReason),
    /// Ask for it again: an R2T of a target, a SNACK of an initiator.
    AskAgain,
    /// The task to which it belongs fails.
    FailTask,
    /// Close the connection on which it happened. What becomes of its tasks and of the session, [`Level`] says.
    DropConnection,
    /// Close every connection of the session.
    DropSession,
}

impl Disposition {
    /// The table.
    ///
    /// At error recovery level 0 a target refuses a PDU at the cost of its task, never of the session. An initiator has no Reject
    /// PDU to answer with: a target that breaks a rule loses the session.
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
