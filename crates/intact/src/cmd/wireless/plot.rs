//! Charts of functions and of series that are computed.

use crate::cmd::bench::kit::chart::{Axis, Chart, Point, Role, Scale, Series};

/// A chart without lines; `x` and `y` are label and scale.
pub fn chart(id: &str, title: &str, subtitle: &str, x: (&str, Scale), y: (&str, Scale)) -> Chart {
    let axis = |(label, scale): (&str, Scale)| Axis { label: label.to_owned(), scale };
    let (title, subtitle) = (title.to_owned(), subtitle.to_owned());
    Chart { id: id.to_owned(), title, subtitle, x: axis(x), y: axis(y), series: Vec::new() }
}

/// Adds lines.
pub trait Lines {
    /// A line through `points`; `hue` is its colour.
    fn line(self, name: &str, role: Role, hue: usize, points: impl IntoIterator<Item = (f64, f64)>) -> Self;
}

impl Lines for Chart {
    fn line(
        mut self,
        name: &str,
        role: Role,
        hue: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, error: 0.0 }).collect();
        self.series.push(Series { name: name.to_owned(), role, hue, points });
        self
    }
}
