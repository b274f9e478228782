//! A text exchange of a session.

use iscsi_wire::Itt;

use crate::Time;

/// The one text exchange under way on a connection.
#[derive(Debug)]
pub(super) struct TextExchange {
    pub itt: Itt,
    /// MaxRecvDataSegmentLength that it declares, bytes.
    pub declares: Option<u32>,
    pub received: Vec<u8>,
    /// It is a SendTargets; otherwise it declares a length, or is an empty exchange that the target requested.
    pub send_targets: bool,
    /// F of our last request.
    pub asked_final: bool,
    pub deadline: Time,
}

impl TextExchange {
    /// Its deadline.
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Whether the caller waits for the targets that it returns.
    pub(super) fn wants_targets(&self) -> bool {
        self.send_targets
    }
}
