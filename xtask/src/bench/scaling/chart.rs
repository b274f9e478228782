//! The speed of a target that has a part of a processor, as a picture.

use std::fmt::Write as _;

use super::{Cell, Figures, Part};
use crate::bench::judge::Rounds;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// The plane of the lines.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 480.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 370.0;
const COLOURS: [&str; 4] = ["#7aa6c2", "#1f5f8b", "#d9a066", "#b5541c"];

/// Percent of the speed with a whole processor, over the percent of a processor that was given.
pub fn svg(figures: &Figures) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Speed of a target with a share of one processor</text>\n\
         <text x=\"10\" y=\"38\">percent of its speed with the whole; dashed: as much speed as processor</text>\n"
    );
    for percent in [0, 25, 50, 75, 100] {
        let (x, y) = place(f64::from(percent), f64::from(percent));
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{RIGHT}\" y2=\"{y}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{percent}</text>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{percent} %</text>\n",
            LEFT - 8.0,
            y + 4.0,
            BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" y1=\"{BOTTOM}\" x2=\"{RIGHT}\" y2=\"{TOP}\" stroke=\"#888\" stroke-dasharray=\"4\"/>"
    );
    let shares: Vec<&Cell> = figures.cells.iter().filter(|cell| cell.part == Part::Shares).collect();
    for (n, cells) in shares.chunk_by(|a, b| a.load.name() == b.load.name()).enumerate() {
        line(&mut svg, n, cells);
    }
    svg.push_str("</svg>\n");
    svg
}

fn place(x: f64, y: f64) -> (f64, f64) {
    (LEFT + (RIGHT - LEFT) * x / 100.0, BOTTOM - (BOTTOM - TOP) * y / 100.0)
}

fn line(svg: &mut String, number: usize, cells: &[&Cell]) {
    let Some(whole) = cells.last() else { return };
    let colour = COLOURS[number % COLOURS.len()];
    let points: Vec<String> = cells
        .iter()
        .map(|cell| {
            let ratios =
                Rounds::ratios(cell.runs.iter().map(|r| r.rate()), whole.runs.iter().map(|r| r.rate()));
            let (x, y) = place(f64::from(cell.arrangement.share.unwrap_or(100)), ratios.median() * 100.0);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let y = TOP + 20.0 * (number + 1) as f64;
    let _ = write!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
         <line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
         <text x=\"{}\" y=\"{}\">{}</text>\n",
        points.join(" "),
        RIGHT + 30.0,
        RIGHT + 36.0,
        y + 4.0,
        cells[0].load.name(),
        x = RIGHT + 10.0,
    );
}
