//! The rows for initiators, each a play of an evil target with the initiator under test.
//!
//! The initiator is driven through [`InitiatorUnderTest`]. It is judged by the target's transcript, by what the
//! evil target's watch found along the way, and by the results of the operations: whatever the target does, the
//! initiator must not deliver a wrong byte, and every operation must end.

mod discovery;
mod login;
mod management;
mod negotiation;
mod order;
mod play;
mod recovery;
mod sessions;
mod traffic;
mod wire;

pub use play::{DriveUrl, InitiatorUnderTest, Op, OpResult};

use crate::{Report, RowReport, Stop, Verdict};
use play::Stage;

type RowResult = Result<(), Stop>;

/// A row of the conformance table for initiators.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its id, for instance `NOP-03`.
    pub id: &'static str,
    /// A one-line description.
    pub title: &'static str,
    script: fn(&Stage<'_>) -> RowResult,
}

impl Row {
    const fn new(id: &'static str, title: &'static str, script: fn(&Stage<'_>) -> RowResult) -> Self {
        Row { id, title, script }
    }

    /// Plays the row with this initiator.
    pub fn run(&self, drive: &dyn InitiatorUnderTest) -> Verdict {
        let stage = Stage::new(self.id, drive);
        let result = (self.script)(&stage);
        Verdict::of(result, || stage.shown())
    }
}

/// All rows, in the order of the table.
pub fn rows() -> Vec<Row> {
    let mut all = [
        wire::ROWS,
        negotiation::ROWS,
        login::ROWS,
        discovery::ROWS,
        traffic::ROWS,
        order::ROWS,
        management::ROWS,
        recovery::ROWS,
        sessions::ROWS,
    ]
    .concat();
    let order = [
        "PDU", "AHS", "DIG", "TXT", "KEY", "LGN", "SEC", "NAM", "SES", "DSC", "TXR", "NUM", "MCS", "DAT",
        "UNS", "R2T", "RES", "RSP", "ERL", "SNK", "TMF", "FAB", "ASY", "LGO", "NOP", "REJ", "P2",
    ];
    all.sort_by_key(|row| {
        let section = row.id.split('-').next().unwrap_or_default();
        (order.iter().position(|name| *name == section), row.id)
    });
    all
}

/// Plays the rows that `filter` names by id or section (all, when it is empty).
pub fn run(drive: &dyn InitiatorUnderTest, filter: &[&str]) -> Report {
    let mut report = Report { peer: "initiator".to_owned(), rows: Vec::new(), with_transcripts: true };
    for row in rows() {
        let section = row.id.split('-').next().unwrap_or_default();
        if filter.is_empty() || filter.iter().any(|want| *want == row.id || *want == section) {
            let verdict = row.run(drive);
            report.rows.push(RowReport { id: row.id.to_owned(), title: row.title.to_owned(), verdict });
        }
    }
    report
}
