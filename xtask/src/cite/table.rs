//! The rows of `conformance/*.md`: table rows whose first cell is an id, and rows written in running text as
//! `KEY-29: what it demands (MUST, T)`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// One checkable rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Such as `NUM-03`.
    pub id: String,
    pub requirement: String,
    /// MUST, SHOULD, MAY of the iSCSI table; M, O, X of the SCSI table; empty where the table has no such
    /// column.
    pub level: String,
    /// The table that contains it: the file's name without its extension.
    pub table: String,
}

/// The section of a row id: `NUM` of `NUM-03`.
pub fn section(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

/// Whether `text` has the form of a row id: two to four capitals or digits, the first one a capital; a dash;
/// two capital hexadecimal digits.
pub fn is_row_id(text: &str) -> bool {
    let Some((section, number)) = text.split_once('-') else { return false };
    (2..=4).contains(&section.len())
        && section.starts_with(|c: char| c.is_ascii_uppercase())
        && section.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
        && number.len() == 2
        && number.chars().all(|c| c.is_ascii_digit() || ('A'..='F').contains(&c))
}

/// Reads all tables of a folder, in the order of their names.
pub fn read_folder(folder: &Path) -> Result<Vec<Row>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "md"))
        .collect();
    paths.sort();
    let mut rows: Vec<Row> = Vec::new();
    for path in paths {
        let table = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for row in parse(&std::fs::read_to_string(&path)?, &table) {
            if let Some(first) = rows.iter().find(|first| first.id == row.id) {
                bail!("row {} stands twice: in {} and in {}", row.id, first.table, row.table);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn parse(text: &str, table: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut level_column = None;
    for line in text.lines() {
        let cells: Vec<&str> = line.strip_prefix('|').map(cells).unwrap_or_default();
        match cells.first().copied() {
            Some("Id") => level_column = cells.iter().position(|cell| *cell == "Lvl"),
            Some(id) if is_row_id(id) => rows.push(Row {
                id: id.to_owned(),
                requirement: cells.get(1).copied().unwrap_or_default().to_owned(),
                level: level_column.and_then(|at| cells.get(at)).copied().unwrap_or_default().to_owned(),
                table: table.to_owned(),
            }),
            Some(_) => {}
            None => rows.extend(inline_rows(line, table)),
        }
    }
    rows
}

/// The cells of a Markdown table row, without the first bar. A bar inside backticks does not separate cells.
fn cells(line: &str) -> Vec<&str> {
    let (mut cells, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match c {
            '`' => quoted = !quoted,
            '|' if !quoted => {
                cells.push(line[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    cells
}

fn inline_rows(line: &str, table: &str) -> Vec<Row> {
    let starts: Vec<(usize, &str)> = line
        .split(' ')
        .scan(0, |at, word| {
            let start = *at;
            *at += word.len() + 1;
            Some((start, word))
        })
        .filter_map(|(at, word)| Some((at, word.strip_suffix(':')?)))
        .filter(|(_, id)| is_row_id(id))
        .collect();
    let ends = starts.iter().skip(1).map(|&(at, _)| at).chain([line.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&(at, id), end)| {
            let text = line[at + id.len() + 1..end].trim();
            let level =
                ["MUST", "SHOULD", "MAY"].into_iter().find(|level| text.contains(&format!("({level}")));
            Row {
                id: id.to_owned(),
                requirement: text.to_owned(),
                level: level.unwrap_or_default().to_owned(),
                table: table.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_ids() {
        for id in ["NUM-03", "R2T-01", "P2-07", "VPD-8F", "UA-01"] {
            assert!(is_row_id(id), "{id}");
        }
        for other in ["SHA3-256", "NUM-3", "num-03", "SBC-3", "A-01", "2PD-01", "UTF-8", "NUM-0G"] {
            assert!(!is_row_id(other), "{other}");
        }
    }

    #[test]
    fn rows_of_tables_and_of_text() {
        let text = "| Id | Requirement | Lvl |\n|---|---|---|\n| AB-01 | a `x|y` b | MUST |\n\
                    | Id | Key |\n| AB-02 | k |\n\
                    AB-29: one thing (MUST, T). AB-30: another (SHOULD, B).\n| Other | cell |\n";
        let rows = parse(text, "t");
        let shown: Vec<(&str, &str, &str)> =
            rows.iter().map(|row| (row.id.as_str(), row.requirement.as_str(), row.level.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("AB-01", "a `x|y` b", "MUST"),
                ("AB-02", "k", ""),
                ("AB-29", "one thing (MUST, T).", "MUST"),
                ("AB-30", "another (SHOULD, B).", "SHOULD"),
            ]
        );
    }
}
