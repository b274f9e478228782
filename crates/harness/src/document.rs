//! A result for people: headings, text, tables and charts in order, and its forms for a terminal and as Markdown.
//! The form as a page is [`page`](crate::page).

use serde::Serialize;

use crate::chart::Chart;
use crate::text;

/// A part of a document.
#[derive(Clone, Debug)]
pub enum Block {
    /// Level 1 is the title of a part, 2 that of a section.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    /// Figures in rows and columns.
    Table(Table),
    /// A picture; a terminal has none.
    Chart(Chart),
}

/// A table whose first column names things and whose other columns are figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Above the table; may be empty.
    pub caption: String,
    /// The names of the columns.
    pub heading: Vec<String>,
    /// Each has as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: impl Into<String>, heading: &[&str]) -> Self {
        Self {
            caption: caption.into(),
            heading: heading.iter().map(|&cell| cell.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Names and values, without a heading.
    pub fn of_facts(facts: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let rows = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        Self { rows, ..Self::new("", &["", ""]) }
    }
}

/// How much of a result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The tables that compare.
    Summary,
    /// Every figure.
    Everything,
}

/// Whether figures are to be trusted.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// They are computed: no machine can disturb them.
    #[default]
    Computed,
    /// They are measured. Reasons not to trust them; none: the machine was quiet.
    Measured(Vec<String>),
}

impl Trust {
    /// Reasons not to trust the figures.
    pub fn reasons(&self) -> &[String] {
        match self {
            Trust::Computed => &[],
            Trust::Measured(reasons) => reasons,
        }
    }

    /// The verdict in words, and whether it is favourable.
    pub fn verdict(&self) -> (&'static str, bool) {
        match self {
            Trust::Computed => ("computed, not measured", true),
            Trust::Measured(reasons) if reasons.is_empty() => ("the machine was quiet", true),
            Trust::Measured(_) => ("not to be trusted", false),
        }
    }
}

/// A whole result.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The heading of all.
    pub title: String,
    /// Whether the figures are to be trusted.
    pub trust: Trust,
    /// The parts, in order.
    pub blocks: Vec<Block>,
}

impl Document {
    /// For a terminal: charts are left out.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for reason in self.trust.reasons() {
            text.push_str(&format!("NOT TO BE TRUSTED: {reason}\n"));
        }
        let plain: Vec<&Block> =
            self.blocks.iter().filter(|block| !matches!(block, Block::Chart(_))).collect();
        for (n, block) in plain.iter().enumerate() {
            // Without charts, a heading above charts only would have no contents.
            if matches!((block, plain.get(n + 1)), (Block::Heading(..), None | Some(Block::Heading(1, _)))) {
                continue;
            }
            match block {
                Block::Heading(1, heading) => text.push_str(&format!("\n=== {heading} ===\n")),
                Block::Heading(_, heading) => text.push_str(&format!("\n{heading}\n")),
                Block::Text(paragraph) => text.push_str(&format!("{}\n", wrapped(paragraph, 110))),
                Block::Table(table) => {
                    let heading: Vec<&str> = table.heading.iter().map(String::as_str).collect();
                    let mut plain = text::Table::new(&heading);
                    table.rows.iter().for_each(|row| plain.row(row.clone()));
                    let caption = if table.caption.is_empty() { "" } else { &format!("{}\n", table.caption) };
                    // Without names of columns, no line for them.
                    let rows = plain.text();
                    text.push_str(&format!("\n{caption}{}", rows.strip_prefix('\n').unwrap_or(&rows)));
                }
                Block::Chart(_) => {}
            }
        }
        text
    }

    /// As Markdown that shows each chart from the file [`Chart::id`]`.svg` in the same folder.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", self.title);
        for reason in self.trust.reasons() {
            text.push_str(&format!("\n**Not to be trusted:** {reason}.\n"));
        }
        for block in &self.blocks {
            text.push('\n');
            match block {
                Block::Heading(level, heading) => {
                    text.push_str(&format!("{} {heading}\n", "#".repeat(usize::from(*level) + 1)));
                }
                Block::Text(paragraph) => text.push_str(&format!("{}\n", wrapped(paragraph, 118))),
                Block::Table(table) => text.push_str(&markdown_table(table)),
                Block::Chart(chart) => {
                    text.push_str(&format!("![{}]({}.svg)\n", chart.title, chart.id));
                }
            }
        }
        text
    }

    /// The charts, in order.
    pub fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Chart(chart) => Some(chart),
            _ => None,
        })
    }
}

fn markdown_table(table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = String::new();
    if !table.caption.is_empty() {
        text.push_str(&format!("{}\n\n", wrapped(&table.caption, 118)));
    }
    text.push_str(&line(&table.heading));
    text.push_str(&format!("|---|{}\n", "--:|".repeat(table.heading.len().saturating_sub(1))));
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// Lines of at most `width` characters, broken at spaces.
fn wrapped(paragraph: &str, width: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let mut table = Table::new("what it shows", &["name", "figure"]);
        table.rows.push(vec!["a|b".to_owned(), "1".to_owned()]);
        Document {
            title: "T".to_owned(),
            trust: Trust::Measured(vec!["it is noisy".to_owned()]),
            blocks: vec![
                Block::Heading(1, "charts only".to_owned()),
                Block::Heading(1, "part".to_owned()),
                Block::Text("word ".repeat(40).trim().to_owned()),
                Block::Table(table),
            ],
        }
    }

    #[test]
    fn a_terminal_gets_lines_that_fit() {
        let text = document().text();
        assert!(text.contains("NOT TO BE TRUSTED: it is noisy") && text.contains("=== part ==="), "{text}");
        assert!(text.contains("a|b   1\n") && !text.contains("charts only"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }

    #[test]
    fn markdown_keeps_its_columns() {
        let text = document().markdown();
        assert!(text.starts_with("# T\n\n**Not to be trusted:** it is noisy.\n"), "{text}");
        assert!(text.contains("| a\\|b | 1 |\n") && text.contains("|---|--:|\n"), "{text}");
    }
}
