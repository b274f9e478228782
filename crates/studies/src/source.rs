//! Where contenders come from.

use published::Paper;
use serde::Serialize;

/// Where a contender comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// As a paper describes it.
    Paper,
    /// What this program uses, or would use on a lesser machine.
    Intact,
    /// Another crate.
    Peer,
    /// Less than what any checksum has to do.
    Limit,
}

/// How a paper is cited.
pub(crate) fn citation(paper: Paper) -> &'static str {
    match paper {
        Paper::Thesis2019 => {
            "Sahu, Hardware Instruction Based CRC32C, a Better Alternative to the TCP One's Complement Checksum (2019)"
        }
        Paper::Note2007 => "Petersen, A Note on Guard Tag Calculation Algorithms (2007)",
    }
}

/// A figure of a paper, by its key in the paper's table, a part of the program.
///
/// # Panics
/// If the table has no such key: keys are constants.
pub(crate) fn figure(table: &str, key: &str) -> f64 {
    let mut lines = table.lines().filter(|line| !line.starts_with('#')).map(str::split_whitespace);
    let value = lines.find_map(|mut fields| (fields.next() == Some(key)).then(|| fields.next()).flatten());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("the paper has no figure {key}"))
}
