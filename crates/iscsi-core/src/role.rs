//! The two ends of a connection.

/// Which end we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We opened the connection.
    Initiator,
    /// We accepted it.
    Target,
}
