//! What a crowd answers.

use std::net::SocketAddr;

use serde::Serialize;

use super::peers::Done;

/// What the crowd answers: one line of JSON each.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// It answers requests itself, at this address.
    Listening {
        /// Where.
        portals: [SocketAddr; 1],
        /// In place of a TargetName.
        targets: [&'static str; 1],
    },
    /// An order was carried out.
    Done(Done),
}
