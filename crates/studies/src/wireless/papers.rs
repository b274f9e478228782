//! The thesis' own figures, read from a table that is part of the program.

use serde::Serialize;

/// A figure of the thesis: one number, or a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub least: f64,
    pub most: f64,
}

impl Figure {
    /// In the middle of its range.
    pub fn middle(self) -> f64 {
        f64::midpoint(self.least, self.most)
    }

    /// Whether `value` is within the range, `share` of it more on both sides.
    pub fn allows(self, value: f64, share: f64) -> bool {
        value >= self.least * (1.0 - share) && value <= self.most * (1.0 + share)
    }
}

/// The figure of that name; `None`: the thesis does not give it in words.
pub(super) fn figure(key: &str) -> Option<Figure> {
    let of_key = |line: &&str| line.split_whitespace().next() == Some(key);
    let line = include_str!("papers/thesis-2004.txt").lines().find(of_key)?;
    let mut numbers = line.split_whitespace().skip(1).map(str::parse);
    match (numbers.next()?, numbers.next()?) {
        (Ok(least), Ok(most)) => Some(Figure { least, most }),
        _ => None,
    }
}

/// The middle of a figure, for a chart; 0 where the thesis does not give it.
pub(super) fn middle(key: &str) -> f64 {
    figure(key).map_or(0.0, Figure::middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_figure() {
        let lines = include_str!("papers/thesis-2004.txt").lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let key = line.split_whitespace().next().unwrap_or_default();
            let figure = figure(key).unwrap_or_else(|| panic!("{line}"));
            assert!(figure.least <= figure.most && figure.least > 0.0, "{line}");
        }
        assert_eq!((figure("6.99"), middle("6.99"), middle("6.18-8")), (None, 0.0, 140.0));
    }

    #[test]
    fn a_range_allows_what_is_in_it() {
        let figure = figure("tcp-mbit-s").unwrap();
        assert!(figure.allows(4.9, 0.0) && figure.allows(5.0, 0.0) && !figure.allows(4.8, 0.01));
        assert!(figure.allows(4.8, 0.03) && (figure.middle() - 5.05).abs() < 1e-9);
    }
}
