//! The output of `cite`: per section the rows with code, with a test, and what is missing for the rows in
//! scope.

use std::fmt::Write;

use serde::Serialize;

use super::citations::{Citations, Place};
use super::scope::{Duty, Scope};
use super::table::{Row, section};

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    sections: Vec<Section>,
    rows: Vec<RowReport>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Section {
    table: String,
    name: String,
    rows: usize,
    in_scope: usize,
    with_code: usize,
    with_test: usize,
    missing_code: Vec<String>,
    missing_test: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RowReport {
    #[serde(flatten)]
    row: Row,
    in_scope: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out_because: Option<String>,
    missing_code: bool,
    missing_test: bool,
    code: Vec<Place>,
    tests: Vec<Place>,
}

impl Report {
    /// Joins rows, scope and citations.
    pub fn new(rows: Vec<Row>, scope: &Scope, mut citations: Citations) -> Self {
        let mut problems = scope.problems(&rows);
        problems.append(&mut citations.problems);
        let rows: Vec<RowReport> = rows
            .into_iter()
            .map(|row| {
                let code = citations.code.remove(&row.id).unwrap_or_default();
                let tests = citations.tests.remove(&row.id).unwrap_or_default();
                RowReport {
                    in_scope: scope.demands(&row.id, Duty::Code) || scope.demands(&row.id, Duty::Test),
                    left_out_because: scope.reason(&row.id).map(str::to_owned),
                    missing_code: code.is_empty() && scope.demands(&row.id, Duty::Code),
                    missing_test: tests.is_empty() && scope.demands(&row.id, Duty::Test),
                    code,
                    tests,
                    row,
                }
            })
            .collect();
        let mut sections: Vec<Section> = Vec::new();
        for report in &rows {
            let name = section(&report.row.id);
            let known =
                sections.iter().position(|known| known.name == name && known.table == report.row.table);
            let at = known.unwrap_or_else(|| {
                sections.push(Section {
                    table: report.row.table.clone(),
                    name: name.to_owned(),
                    rows: 0,
                    in_scope: 0,
                    with_code: 0,
                    with_test: 0,
                    missing_code: Vec::new(),
                    missing_test: Vec::new(),
                });
                sections.len() - 1
            });
            let section = &mut sections[at];
            section.rows += 1;
            section.in_scope += usize::from(report.in_scope);
            section.with_code += usize::from(!report.code.is_empty());
            section.with_test += usize::from(!report.tests.is_empty());
            if report.missing_code {
                section.missing_code.push(report.row.id.clone());
            }
            if report.missing_test {
                section.missing_test.push(report.row.id.clone());
            }
        }
        Self { sections, rows, problems }
    }

    /// No row in scope lacks code or a test, and every citation is right.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && !self.rows.iter().any(|row| row.missing_code || row.missing_test)
    }

    /// The report as readable text.
    pub fn to_text(&self, verbose: bool) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = self.write_text(verbose, &mut text);
        text
    }

    fn write_text(&self, verbose: bool, out: &mut String) -> std::fmt::Result {
        let mut table = "";
        for section in &self.sections {
            if section.table != table {
                table = &section.table;
                writeln!(out, "{table}\n  section  rows  in scope  code  test  missing")?;
            }
            write!(
                out,
                "  {:<7} {:>5} {:>9} {:>5} {:>5}",
                section.name, section.rows, section.in_scope, section.with_code, section.with_test
            )?;
            write_ids(out, "code", &section.missing_code)?;
            write_ids(out, "test", &section.missing_test)?;
            writeln!(out)?;
        }
        if verbose {
            for row in self.rows.iter().filter(|row| row.in_scope) {
                writeln!(out, "{} {}", row.row.id, row.row.requirement)?;
                for (kind, places) in [("code", &row.code), ("test", &row.tests)] {
                    for place in places {
                        writeln!(out, "    {kind} {}:{}", place.path, place.line)?;
                    }
                }
            }
        }
        let left_out: Vec<&RowReport> =
            self.rows.iter().filter(|row| row.left_out_because.is_some()).collect();
        if !left_out.is_empty() {
            writeln!(out, "left out of the scope:")?;
        }
        for row in left_out {
            let covered =
                if row.code.is_empty() || row.tests.is_empty() { "" } else { " [has code and test now]" };
            writeln!(
                out,
                "  {}: {}{covered}",
                row.row.id,
                row.left_out_because.as_deref().unwrap_or_default()
            )?;
        }
        for problem in &self.problems {
            writeln!(out, "error: {problem}")?;
        }
        let in_scope = self.rows.iter().filter(|row| row.in_scope).count();
        let no_code = self.rows.iter().filter(|row| row.missing_code).count();
        let no_test = self.rows.iter().filter(|row| row.missing_test).count();
        writeln!(
            out,
            "cite: {in_scope} rows in scope, {no_code} without code, {no_test} without test, {} problems",
            self.problems.len()
        )
    }
}

fn write_ids(out: &mut String, kind: &str, ids: &[String]) -> std::fmt::Result {
    if ids.is_empty() {
        return Ok(());
    }
    let numbers: Vec<&str> =
        ids.iter().map(|id| id.split_once('-').map_or(id.as_str(), |(_, n)| n)).collect();
    write!(out, "  {kind}: {}", numbers.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cite_test: bool) -> Report {
        let row = |id: &str| Row {
            id: id.into(),
            requirement: "r".into(),
            level: "MUST".into(),
            table: "t".into(),
        };
        let scope: Scope =
            toml::from_str("sections = ['AB']\n[[excluded]]\nrow = 'AB-02'\nreason = 'later'\n").unwrap();
        let mut citations = Citations::default();
        let place = Place { path: "a.rs".into(), line: 1 };
        citations.code.insert("AB-01".into(), vec![place.clone()]);
        if cite_test {
            citations.tests.insert("AB-01".into(), vec![place]);
        }
        Report::new(vec![row("AB-01"), row("AB-02"), row("CD-01")], &scope, citations)
    }

    #[test]
    fn a_row_in_scope_without_test_fails() {
        assert!(!report(false).is_clean());
        let text = report(false).to_text(false);
        assert!(text.contains("test: 01") && text.contains("AB-02: later"), "{text}");
        assert!(report(true).is_clean());
    }

    #[test]
    fn the_json_names_places() {
        let json = serde_json::to_value(report(true)).unwrap();
        assert_eq!(json["rows"][0]["code"][0]["path"], "a.rs");
        assert_eq!(json["sections"][0]["in_scope"], 1);
    }
}
