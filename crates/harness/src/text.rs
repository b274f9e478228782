//! Text for people: columns, sizes, counts, and nothing that a terminal would obey.

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
}
