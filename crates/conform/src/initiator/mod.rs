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

pub use crate::text::ParseError;
pub(crate) use play::{Play, Played, Stage, pairs_of, ping, reworded};

use crate::{Report, RowReport, Stop, Verdict, script, text};

pub(crate) type RowResult = Result<(), Stop>;

/// The files of rows as text: name and contents.
const TEXTS: &[(&str, &str)] = &[
    ("pdu.rows", include_str!("../../rows/initiator/pdu.rows")),
    ("dat.rows", include_str!("../../rows/initiator/dat.rows")),
    ("uns.rows", include_str!("../../rows/initiator/uns.rows")),
    ("r2t.rows", include_str!("../../rows/initiator/r2t.rows")),
    ("rsp.rows", include_str!("../../rows/initiator/rsp.rows")),
    ("asy.rows", include_str!("../../rows/initiator/asy.rows")),
    ("nop.rows", include_str!("../../rows/initiator/nop.rows")),
    ("txt.rows", include_str!("../../rows/initiator/txt.rows")),
    ("key.rows", include_str!("../../rows/initiator/key.rows")),
];

/// A row of the conformance table for initiators.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its id, for instance `NOP-03`.
    pub id: &'static str,
    /// A one-line description.
    pub title: &'static str,
    script: Script,
}

/// How a row is played.
#[derive(Clone, Copy, Debug)]
enum Script {
    /// As code.
    Code(fn(&Stage<'_>) -> RowResult),
    /// As text.
    Text(&'static text::Row),
}

impl Row {
    const fn new(id: &'static str, title: &'static str, script: fn(&Stage<'_>) -> RowResult) -> Self {
        Row { id, title, script: Script::Code(script) }
    }

    fn of_text(row: &'static text::Row) -> Self {
        Row { id: &row.id, title: &row.title, script: Script::Text(row) }
    }

    /// Reads rows as text; `file` is the name of their file, for messages. They stay in memory as long as the program runs.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Row>, ParseError> {
        let rows = text::Row::parse(text::Tested::Initiator, file, text)?;
        Ok(rows.into_iter().map(|row| Row::of_text(Box::leak(Box::new(row)))).collect())
    }

    /// Is it written as text?
    pub fn is_text(&self) -> bool {
        matches!(self.script, Script::Text(_))
    }

    /// Plays the row with this initiator.
    pub fn run(&self, drive: &dyn InitiatorUnderTest) -> Verdict {
        let stage = Stage::new(self.id, drive);
        let result = match self.script {
            Script::Code(run) => run(&stage),
            Script::Text(row) => text::play_with_initiator(row, &stage),
        };
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
    static READ: std::sync::OnceLock<Vec<text::Row>> = std::sync::OnceLock::new();
    let texts = READ.get_or_init(|| text::Row::of_crate(text::Tested::Initiator, TEXTS));
    all.extend(texts.iter().map(Row::of_text));
    all.sort_by_key(|row| (script::place(row.id), row.id));
    all
}

/// Plays the rows that `filter` names by id or section (all, when it is empty).
pub fn run(drive: &dyn InitiatorUnderTest, filter: &[&str]) -> Report {
    let mut report = Report { peer: "initiator".to_owned(), rows: Vec::new(), with_transcripts: true };
    for row in rows() {
        let section = script::section(row.id);
        if filter.is_empty() || filter.iter().any(|want| *want == row.id || *want == section) {
            let verdict = row.run(drive);
            report.rows.push(RowReport { id: row.id.to_owned(), title: row.title.to_owned(), verdict });
        }
    }
    report
}
