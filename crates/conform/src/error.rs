//! What can go wrong between a raw peer and the other end.

use iscsi_wire::{LoginStatus, WireError};
use std::time::Duration;

/// Why a step of a script did not go as written. None of these causes a panic: the other end may send
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The other end closed the connection cleanly (FIN) between two PDUs.
    #[error("the peer closed the connection")]
    Closed,
    /// The other end closed the connection in the middle of a PDU.
    #[error("the peer closed the connection inside a PDU, {got} bytes after its beginning")]
    ClosedInsidePdu {
        /// Bytes of the PDU that had arrived.
        got: usize,
    },
    /// The connection was reset (RST).
    #[error("the peer reset the connection")]
    Reset,
    /// Nothing arrived in time, or not enough.
    #[error("nothing came within {0:?}")]
    Timeout(Duration),
    /// A header digest does not match (RFC 7143 13.1).
    #[error("header digest is {received:08x}, the header's CRC32C is {computed:08x} (RFC 7143 13.1)")]
    HeaderDigest {
        /// Computed from the bytes that arrived.
        computed: u32,
        /// As received.
        received: u32,
    },
    /// A data digest does not match (RFC 7143 13.1).
    #[error("data digest is {received:08x}, the data's CRC32C is {computed:08x} (RFC 7143 13.1)")]
    DataDigest {
        /// Computed from the bytes that arrived.
        computed: u32,
        /// As received.
        received: u32,
    },
    /// A PDU other than the expected one arrived.
    #[error("expected {wanted}, received {got}")]
    Unexpected {
        /// What the script expects.
        wanted: String,
        /// What arrived, in one line.
        got: String,
    },
    /// A login failed with a status other than success (RFC 7143 11.13.5).
    #[error("login refused: {0} ({code:#06x})", code = .0.code())]
    Login(LoginStatus),
    /// A login broke a rule, described in the text.
    #[error("login: {0}")]
    LoginRule(String),
    /// The received bytes do not parse.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The operating system reported an error.
    #[error("{0}")]
    Io(String),
}

impl PeerError {
    /// Is the connection gone, for whatever reason?
    pub fn is_closed(&self) -> bool {
        matches!(self, PeerError::Closed | PeerError::ClosedInsidePdu { .. } | PeerError::Reset)
    }

    pub(crate) fn from_io(error: &std::io::Error, waited: Duration) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, WouldBlock};
        match error.kind() {
            WouldBlock | TimedOut => PeerError::Timeout(waited),
            ConnectionReset | BrokenPipe | ConnectionAborted => PeerError::Reset,
            _ => PeerError::Io(error.to_string()),
        }
    }
}
