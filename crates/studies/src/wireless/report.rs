//! A result compared with the thesis: sections of rows, tables and charts; each row has our number, the thesis' number where it
//! gives one, and a verdict.
//!
//! Within one [`SCHEMA`] the names and meanings of fields do not change; fields may be added.

use serde::Serialize;

use super::papers::{self, Figure};
use harness::chart::{Chart, short};
use harness::document::{Block, Document, Table, Trust};

/// Version of the JSON format.
pub const SCHEMA: u32 = 1;

/// The verdict on a claim of the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our number agrees with the thesis, within the tolerance of the row; or the equation holds.
    Reproduced,
    /// Our data contradict it.
    Refuted,
    /// It cannot be reproduced here; the note says why.
    NotReproducible,
}

impl Verdict {
    /// For a cell of a table.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Refuted => "refuted",
            Verdict::NotReproducible => "not reproducible",
        }
    }
}

/// A claim of the thesis and the verdict on it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Number of the equation or the figure.
    pub item: &'static str,
    pub what: String,
    pub unit: &'static str,
    pub ours: Option<f64>,
    pub thesis: Option<Figure>,
    pub verdict: Verdict,
    pub note: String,
}

impl Row {
    /// Our number and the thesis' figure `key`; they may differ by `tolerance`, a share.
    pub fn against(
        item: &'static str,
        what: &str,
        unit: &'static str,
        ours: f64,
        key: &str,
        tolerance: f64,
    ) -> Row {
        let thesis = papers::figure(key);
        let fits = thesis.is_some_and(|figure| figure.allows(ours, tolerance));
        let verdict = if fits { Verdict::Reproduced } else { Verdict::Refuted };
        Row { item, what: what.to_owned(), unit, ours: Some(ours), thesis, verdict, note: String::new() }
    }

    /// A claim without a number of the thesis: whether it `holds`, and the number that shows it.
    pub fn holds(item: &'static str, what: &str, unit: &'static str, ours: f64, holds: bool) -> Row {
        let verdict = if holds { Verdict::Reproduced } else { Verdict::Refuted };
        Row {
            item,
            what: what.to_owned(),
            unit,
            ours: Some(ours),
            thesis: None,
            verdict,
            note: String::new(),
        }
    }

    /// A claim that nothing here can decide.
    pub fn out_of_reach(item: &'static str, what: &str, why: &str) -> Row {
        let (verdict, note) = (Verdict::NotReproducible, why.to_owned());
        Row { item, what: what.to_owned(), unit: "", ours: None, thesis: None, verdict, note }
    }

    /// The same with a remark.
    pub fn note(self, note: impl Into<String>) -> Row {
        Row { note: note.into(), ..self }
    }

    fn cells(&self) -> Vec<String> {
        let theirs = self.thesis.map(|figure| match figure.least == figure.most {
            true => short(figure.least),
            false => format!("{} to {}", short(figure.least), short(figure.most)),
        });
        let ratio = self.ours.zip(self.thesis).map(|(ours, theirs)| format!("{:.2}", ours / theirs.middle()));
        let none = || "-".to_owned();
        vec![
            self.item.to_owned(),
            self.what.clone(),
            self.unit.to_owned(),
            self.ours.map_or_else(none, short),
            theirs.unwrap_or_else(none),
            ratio.unwrap_or_else(none),
            self.verdict.text().to_owned(),
            self.note.clone(),
        ]
    }
}

/// A part of the result.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Section {
    pub title: String,
    pub text: String,
    pub rows: Vec<Row>,
    pub tables: Vec<Table>,
    pub charts: Vec<Chart>,
}

impl Section {
    /// A section without figures.
    pub(crate) fn new(title: &str, text: impl Into<String>) -> Section {
        Section { title: title.to_owned(), text: text.into(), ..Section::default() }
    }
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) schema: u32,
    pub(crate) command: &'static str,
    pub(crate) title: &'static str,
    /// Of what is measured in real time: reasons not to trust it. `None`: everything is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) distrust: Option<Vec<String>>,
    pub(crate) sections: Vec<Section>,
}

impl Report {
    /// All rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(|section| &section.rows)
    }

    /// For people: first the verdict on every claim, then the sections.
    pub fn document(&self) -> Document {
        let mut blocks = Vec::new();
        let count = |verdict| self.rows().filter(|row| row.verdict == verdict).count();
        blocks.push(Block::Text(format!(
            "The thesis: Gao Yan, Performance Analysis and Design of iSCSI over Wireless Network, 2004. Of {} claims {} are \
             reproduced, {} are refuted, and {} are not reproducible here; the note of a row says why.",
            self.rows().count(),
            count(Verdict::Reproduced),
            count(Verdict::Refuted),
            count(Verdict::NotReproducible)
        )));
        for section in &self.sections {
            blocks.push(Block::Heading(1, section.title.clone()));
            blocks.push(Block::Text(section.text.clone()));
            if !section.rows.is_empty() {
                let heading = ["item", "what", "unit", "ours", "thesis", "ratio", "verdict", "note"];
                let mut table = Table::new("", &heading);
                table.rows = section.rows.iter().map(Row::cells).collect();
                blocks.push(Block::Table(table));
            }
            blocks.extend(section.tables.iter().cloned().map(Block::Table));
            blocks.extend(section.charts.iter().cloned().map(Block::Chart));
        }
        let trust = self.distrust.clone().map_or(Trust::Computed, Trust::Measured);
        Document { title: self.title.to_owned(), trust, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_by_its_tolerance() {
        let row = |ours| Row::against("6.2", "TCP", "Mbit/s", ours, "6.2-mean", 0.05).verdict;
        assert_eq!((row(5.2), row(5.4)), (Verdict::Reproduced, Verdict::Refuted));
        // A missing key must not count as a success.
        assert_eq!(Row::against("6.2", "TCP", "", 1.0, "no such key", 0.5).verdict, Verdict::Refuted);
    }

    #[test]
    fn the_document_counts_verdicts_and_shows_the_ratio() {
        let mut section = Section::new("part", "text");
        section.rows = vec![
            Row::against("6.2", "TCP", "Mbit/s", 5.06, "6.2-mean", 0.01),
            Row::out_of_reach("6.15", "CPU", "no such card").note("no such card"),
        ];
        let report =
            Report { schema: SCHEMA, command: "x", title: "T", distrust: None, sections: vec![section] };
        let text = report.document().markdown();
        assert!(
            text.contains("1 are\nreproduced, 0 are refuted") || text.contains("1 are reproduced, 0 are"),
            "{text}"
        );
        assert!(text.contains("| 6.2 | TCP | Mbit/s | 5.06 | 5.06 | 1.00 | reproduced |  |"), "{text}");
        assert!(text.contains("| 6.15 | CPU |  | - | - | - | not reproducible | no such card |"), "{text}");
    }
}
