//! The rows that a target must keep, run against any target.
//!
//! A row is a text (in `rows/target`), or a function where text cannot say it. It adapts to what the target negotiates, returns *not
//! applicable* with the reason where its rule cannot be observed, and never takes longer than its steps' timeouts. A rule that the
//! target breaks while another row's script runs counts as a failure of the row it belongs to.

pub(crate) mod bundle;
mod ctx;
mod options;
mod rows;
pub(crate) mod talk;

pub use crate::text::ParseError;
pub(crate) use ctx::RowSession;
pub use ctx::{Ctx, Scratch};
pub use options::{Credentials, Options};

use crate::{Report, RowReport, Stop, Verdict, text};

/// The result of a row's script: success, a broken rule, or not applicable.
pub type RowResult = Result<(), Stop>;

/// A row of the conformance table for targets.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its id, for instance `NUM-03`.
    pub id: &'static str,
    /// A one-line description.
    pub title: &'static str,
    script: Script,
}

/// How a row is played.
#[derive(Clone, Copy, Debug)]
enum Script {
    /// As code.
    Code(fn(&mut Ctx) -> RowResult),
    /// As text.
    Text(&'static text::Row),
}

impl Row {
    const fn new(id: &'static str, title: &'static str, run: fn(&mut Ctx) -> RowResult) -> Self {
        Row { id, title, script: Script::Code(run) }
    }

    fn of_text(row: &'static text::Row) -> Self {
        Row { id: &row.id, title: &row.title, script: Script::Text(row) }
    }

    /// Reads rows as text; `file` is the name of their file, for messages. They stay in memory as long as the program runs.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Row>, ParseError> {
        let rows = text::Row::parse(text::Tested::Target, file, text)?;
        Ok(rows.into_iter().map(|row| Row::of_text(Box::leak(Box::new(row)))).collect())
    }

    /// Is it written as text?
    pub fn is_text(&self) -> bool {
        matches!(self.script, Script::Text(_))
    }

    /// Runs the row.
    pub fn verdict(&self, ctx: &mut Ctx) -> Verdict {
        ctx.begin(self.id);
        let result = match self.script {
            Script::Code(run) => run(ctx),
            Script::Text(row) => text::play_with_target(row, ctx),
        };
        ctx.end();
        Verdict::of(result, || ctx.transcript().to_string())
    }
}

/// All rows, in the order of the table.
pub fn rows() -> Vec<Row> {
    rows::all()
}

/// Runs the rows that `options` selects. An error when the target cannot be reached, or `filter` names no row.
pub fn run(options: &Options) -> Result<Report, String> {
    run_with(options, |_| {})
}

/// Like [`run`], reporting each row's result as soon as it is known.
pub fn run_with(options: &Options, mut progress: impl FnMut(&RowReport)) -> Result<Report, String> {
    let wanted: Vec<Row> = rows().into_iter().filter(|row| options.wants(row.id)).collect();
    if wanted.is_empty() {
        return Err(format!(
            "no row is named {}; ids look like NUM-03, sections like NUM",
            options.filter.join(", ")
        ));
    }
    let mut ctx = Ctx::new(options.clone())?;
    let mut report =
        Report { peer: ctx.describe(), rows: Vec::new(), with_transcripts: options.verbose_transcripts };
    let mut gone = None;
    for row in &wanted {
        let mut verdict = match gone {
            None => row.verdict(&mut ctx),
            Some(during) => {
                Verdict::NotApplicable { why: format!("the target accepts no connection since {during}") }
            }
        };
        if gone.is_none() && !ctx.reachable() {
            let why = "the target stopped accepting connections".to_owned();
            verdict = Verdict::Fail { why, transcript: ctx.transcript().to_string() };
            gone = (!ctx.wait_reachable()).then_some(row.id);
        }
        let row = RowReport { id: row.id.to_owned(), title: row.title.to_owned(), verdict };
        progress(&row);
        report.rows.push(row);
    }
    for seen in ctx.findings() {
        let Some(row) = report.rows.iter_mut().find(|row| row.id == seen.finding.row) else {
            continue;
        };
        if !row.verdict.is_fail() {
            let why = format!("seen while {} ran: {}", seen.during, seen.finding.words);
            row.verdict = Verdict::Fail { why, transcript: seen.transcript.clone() };
        }
    }
    Ok(report)
}
