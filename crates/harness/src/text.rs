//! Text for people: columns, sizes, counts, and nothing that a terminal would obey; and the times that they write.

use std::io::Write;
use std::time::Duration;

/// Writes a line to standard error. A failure to write is ignored.
pub fn complain(what: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Rows in columns as wide as their content.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row. Control characters, which could come from a peer, are not shown.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| plain(cell)).collect());
    }

    /// The text, ending with a newline.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `text` without control characters.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A count with its noun: `1 target`, `2 targets`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Bytes for people: `1 GiB`, `1.5 GiB`, `512 B`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (n.max(1).ilog2() / 10) as usize;
    let value = n as f64 / (1u64 << (10 * unit)) as f64;
    let text = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{text} {}", units[unit])
}

/// A time: `10`, `0.5`, `10s`, `500ms`, `2m`.
///
/// # Errors
/// The text is no time; the error says which forms there are.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit) = if let Some(digits) = lower.strip_suffix("ms") {
        (digits, 0.001)
    } else if let Some(digits) = lower.strip_suffix('s') {
        (digits, 1.0)
    } else if let Some(digits) = lower.strip_suffix('m') {
        (digits, 60.0)
    } else {
        (lower.as_str(), 1.0)
    };
    let wrong = || format!("`{text}` is no time; write 10, 0.5, 10s, 500ms or 2m");
    let seconds: f64 = digits.parse::<f64>().map_err(|_| wrong())? * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (n, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1024, "1 KiB"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn columns_line_up_and_hide_control_characters() {
        let mut table = Table::new(&["A", "LONG"]);
        table.row(vec!["äöü\u{1b}".to_owned(), "x".to_owned()]);
        assert_eq!(table.text(), "A     LONG\näöü?  x\n");
    }

    #[test]
    fn times_as_people_write_them() {
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "-1", "nan", "inf", "1e300"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
