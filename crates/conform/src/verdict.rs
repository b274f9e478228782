//! The results of rows, and the table that shows them.

use crate::PeerError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why the script of a row ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The rule is broken.
    Fail(String),
    /// The rule cannot be observed here, for this reason.
    NotApplicable(String),
}

impl From<PeerError> for Stop {
    fn from(error: PeerError) -> Self {
        Stop::Fail(error.to_string())
    }
}

impl From<iscsi_wire::WireError> for Stop {
    fn from(error: iscsi_wire::WireError) -> Self {
        Stop::Fail(error.to_string())
    }
}

/// The result of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The rule is kept.
    Pass,
    /// The rule is broken.
    Fail {
        /// What was observed, and what was expected.
        why: String,
        /// The script's transcript.
        transcript: String,
    },
    /// The rule does not apply to this peer, or cannot be observed.
    NotApplicable {
        /// The reason.
        why: String,
    },
}

impl Verdict {
    /// From the result of a script.
    pub(crate) fn of(result: Result<(), Stop>, transcript: impl FnOnce() -> String) -> Self {
        match result {
            Ok(()) => Verdict::Pass,
            Err(Stop::Fail(why)) => Verdict::Fail { why, transcript: transcript() },
            Err(Stop::NotApplicable(why)) => Verdict::NotApplicable { why },
        }
    }

    /// Is it a failure?
    pub fn is_fail(&self) -> bool {
        matches!(self, Verdict::Fail { .. })
    }

    fn word(&self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail { .. } => "FAIL",
            Verdict::NotApplicable { .. } => "n.a.",
        }
    }
}

/// One row of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowReport {
    /// The row's id, for instance `NUM-03`.
    pub id: String,
    /// The row's description.
    pub title: String,
    /// The row's result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The results of all rows that were run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The tested peer.
    pub peer: String,
    /// The rows in the order of the conformance table.
    pub rows: Vec<RowReport>,
    /// Show the transcripts of failed rows?
    #[serde(skip)]
    pub with_transcripts: bool,
}

impl Report {
    /// How many rows passed.
    pub fn passed(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict == Verdict::Pass).count()
    }

    /// How many rows failed.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict.is_fail()).count()
    }

    /// How many rows do not apply.
    pub fn not_applicable(&self) -> usize {
        self.rows.len() - self.passed() - self.failed()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(f, "{:<7} {}  {}", row.id, row.verdict.word(), row.title)?;
            match &row.verdict {
                Verdict::Pass => {}
                Verdict::NotApplicable { why } => writeln!(f, "              {why}")?,
                Verdict::Fail { why, transcript } => {
                    writeln!(f, "              {why}")?;
                    if self.with_transcripts {
                        for line in transcript.lines() {
                            writeln!(f, "              | {line}")?;
                        }
                    }
                }
            }
        }
        let (passed, failed, other) = (self.passed(), self.failed(), self.not_applicable());
        write!(f, "{}: {passed} passed, {failed} failed, {other} not applicable", self.peer)
    }
}
