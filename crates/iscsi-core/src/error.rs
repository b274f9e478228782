//! Whose fault it was, and what happens next.
//!
//! Three families reach a session: bytes that do not parse ([`WireError`]), a peer that breaks a rule
//! ([`ProtocolViolation`]), and data that does not match its digest. [`Disposition::of`] is the one table that says what
//! follows at which error recovery level (RFC 7143 7.7-7.10, 7.1).

use std::borrow::Cow;

use iscsi_wire::{RejectReason, WireError};

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

/// What went wrong with a received PDU in full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The data digest does not match; the header is sound.
    DataDigest,
    /// An opcode that we do not know or do not accept in this place.
    UnknownOpcode,
    /// A field holds a reserved code, or contradicts the state of a task, but the PDU boundaries are sound.
    InvalidField,
    /// A request that is well formed but not allowed now.
    NotAllowedNow,
    /// Header fields that contradict each other: the peer cannot be trusted with the session any more (RFC 7143 7.7).
    Format,
}

/// What the session does about a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Answer with a Reject PDU and go on.
    Reject(RejectReason),
    /// Close every connection of the session.
    DropSession,
}

impl Disposition {
    /// The table. At error recovery level 0 a refused PDU costs its task, never the session; what follows for the task is the
    /// business of the task's own state.
    //= rfc7143 7.7 PDU-08
    pub fn of(fault: Fault) -> Self {
        match fault {
            Fault::DataDigest => Self::Reject(RejectReason::DataDigestError),
            Fault::UnknownOpcode => Self::Reject(RejectReason::CommandNotSupported),
            Fault::InvalidField => Self::Reject(RejectReason::InvalidPduField),
            Fault::NotAllowedNow => Self::Reject(RejectReason::ProtocolError),
            Fault::Format => Self::DropSession,
        }
    }
}
