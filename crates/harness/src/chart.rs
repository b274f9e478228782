//! Line charts as SVG: logarithmic or linear axes, intervals of confidence, and names at the ends of their lines.
//!
//! A chart is one element that needs nothing else: no script, no font, no other file. Colours are classes, set once by
//! [`STYLE`] for light and for dark surroundings; people who do not see red or green can tell the hues apart, and no two kinds
//! of line differ by hue alone.
//!
//! What is not here: other kinds of chart, and interaction beyond the tooltips that browsers give to `<title>`.

use std::fmt::Write;

use serde::Serialize;

/// Size of every chart.
const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 440.0;
/// The plane that lines are drawn in.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 386.0;
/// Least distance between two names.
const NAME_STEP: f64 = 15.0;
/// How many hues [`STYLE`] knows.
const HUES: usize = 10;

/// The colours, for the head of a page or of a chart that stands alone.
pub const STYLE: &str = "\
.chart{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:12px}
.chart .bg{fill:#fff}.chart .ink{fill:#1c2430}.chart .mute{fill:#5b6675}
.chart .grid{stroke:#e4e8ee}.chart .faint{stroke:#f1f3f6}.chart .axis{stroke:#8d97a5}
.chart .h0{color:#0b62c4}.chart .h1{color:#c2500a}.chart .h2{color:#12805c}.chart .h3{color:#9b2fae}
.chart .h4{color:#0d8aa3}.chart .h5{color:#b3243b}.chart .h6{color:#7a6a00}.chart .h7{color:#4c4fb8}
.chart .h8{color:#8a5524}.chart .h9{color:#56762f}
.chart .limit{color:#7d8794}
@media (prefers-color-scheme:dark){
.chart .bg{fill:#12161c}.chart .ink{fill:#e6eaf0}.chart .mute{fill:#98a3b3}
.chart .grid{stroke:#29303a}.chart .faint{stroke:#1d232b}.chart .axis{stroke:#66717f}
.chart .h0{color:#62adff}.chart .h1{color:#ff9a4d}.chart .h2{color:#43cf9f}.chart .h3{color:#dc8bef}
.chart .h4{color:#4fd3ea}.chart .h5{color:#ff7b8f}.chart .h6{color:#d9c64a}.chart .h7{color:#a3a6ff}
.chart .h8{color:#d6a56c}.chart .h9{color:#a9cf79}
.chart .limit{color:#95a0ae}}
";

/// How values become places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Even steps, from zero.
    Linear,
    /// Each decade as long as the next.
    Decades,
    /// Each doubling as long as the next; marks are powers of two, in Ki and Mi from 1024.
    Doublings,
}

/// One axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// How values become places.
    pub scale: Scale,
}

/// The meaning of a line, which decides its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Measured here: solid, with points and its name.
    Measured,
    /// Figures from elsewhere for the series of the same hue: dashed, thin, without a name.
    Reference,
    /// An upper limit: grey, dotted, with its name.
    Limit,
}

/// One value, and how far it may be off to either side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its place on the horizontal axis.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// How far the value may be off; 0: no interval is drawn.
    pub error: f64,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// At the end of the line.
    pub name: String,
    /// What it means.
    pub role: Role,
    /// Number of its colour; any number.
    pub hue: usize,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

/// A chart.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// The stem of its file's name.
    pub id: String,
    /// Above it.
    pub title: String,
    /// Below the title: what the figures are of.
    pub subtitle: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    /// A chart without lines; `x` and `y` are label and scale.
    pub fn new(id: &str, title: &str, subtitle: &str, x: (&str, Scale), y: (&str, Scale)) -> Self {
        let axis = |(label, scale): (&str, Scale)| Axis { label: label.to_owned(), scale };
        let [id, title, subtitle] = [id, title, subtitle].map(str::to_owned);
        Self { id, title, subtitle, x: axis(x), y: axis(y), series: Vec::new() }
    }

    /// The same chart with another line, through points without an interval; `hue` is its colour.
    #[must_use]
    pub fn line(
        mut self,
        name: impl Into<String>,
        role: Role,
        hue: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, error: 0.0 }).collect();
        self.series.push(Series { name: name.into(), role, hue, points });
        self
    }
}

/// An axis with its range, ready to place values.
struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Span {
    /// The range that holds all `values`, between the places `from` and `to`.
    fn over(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let (low, high) = usable.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (1.0, 2.0) } else { (low, high) };
        let (low, high) = match scale {
            Scale::Linear => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Decades => (one_two_five(low, false), one_two_five(high, true)),
            Scale::Doublings => (low, if high > low { high } else { low * 2.0 }),
        };
        Self { scale, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(-0.02, 1.02) * (self.to - self.from)
    }

    /// Where marks are, and what they say; a mark that says nothing is a faint line.
    fn marks(&self) -> Vec<(f64, String)> {
        let inside = |v: &f64| *v >= self.low * 0.999 && *v <= self.high * 1.001;
        match self.scale {
            Scale::Linear => {
                let step = one_two_five(self.high / 6.0, true);
                (0..8).map(|n| f64::from(n) * step).filter(inside).map(|v| (v, short(v))).collect()
            }
            Scale::Decades => {
                let many = (self.high / self.low).log10() > 3.2;
                let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let values = decades.flat_map(|e| [1.0, 2.0, 5.0].map(|m| (m, m * 10f64.powi(e))));
                values
                    .filter(|(_, v)| inside(v))
                    .map(|(m, v)| (v, if many && m != 1.0 { String::new() } else { short(v) }))
                    .collect()
            }
            Scale::Doublings => {
                let (low, high) = (self.low.log2().ceil() as i32, self.high.log2().floor() as i32);
                let step = if high - low > 7 { 2 } else { 1 };
                (low..=high)
                    .map(|e| (2f64.powi(e), e))
                    .map(|(v, e)| (v, if (e - low) % step == 0 { binary(v) } else { String::new() }))
                    .collect()
            }
        }
    }
}

impl Chart {
    /// The chart as an element for a page whose style holds [`STYLE`].
    pub fn inline(&self) -> String {
        self.svg("", "")
    }

    /// The chart as a file of its own.
    pub fn standalone(&self) -> String {
        let style = format!(
            "<style>\n{STYLE}</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n"
        );
        self.svg(" xmlns=\"http://www.w3.org/2000/svg\"", &style)
    }

    fn svg(&self, namespace: &str, head: &str) -> String {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let x = Span::over(self.x.scale, points().map(|p| p.x), LEFT + 8.0, RIGHT - 8.0);
        let y = Span::over(self.y.scale, points().map(|p| p.y), BOTTOM, TOP);
        let mut svg = format!(
            "<svg{namespace} class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             role=\"img\" aria-label=\"{0}\">\n{head}\
             <text class=\"ink\" x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\">{0}</text>\n\
             <text class=\"mute\" x=\"16\" y=\"45\">{1}</text>\n",
            escape(&self.title),
            escape(&self.subtitle)
        );
        self.draw_axes(&mut svg, &x, &y);
        // References lie below what was measured here.
        for role in [Role::Limit, Role::Reference, Role::Measured] {
            self.series.iter().filter(|s| s.role == role).for_each(|s| self.draw_line(&mut svg, s, &x, &y));
        }
        self.draw_names(&mut svg, &x, &y);
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String, x: &Span, y: &Span) {
        for (value, text) in y.marks() {
            let at = y.place(value);
            let class = if text.is_empty() { "faint" } else { "grid" };
            put(svg, format_args!("<path class=\"{class}\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>"));
            if !text.is_empty() {
                let (tx, ty) = (LEFT - 8.0, at + 4.0);
                put(
                    svg,
                    format_args!(
                        "<text class=\"mute\" x=\"{tx}\" y=\"{ty:.1}\" text-anchor=\"end\">{text}</text>"
                    ),
                );
            }
        }
        for (value, text) in x.marks() {
            let at = x.place(value);
            let class = if text.is_empty() { "faint" } else { "grid" };
            put(svg, format_args!("<path class=\"{class}\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/>"));
            if !text.is_empty() {
                let ty = BOTTOM + 18.0;
                put(
                    svg,
                    format_args!(
                        "<text class=\"mute\" x=\"{at:.1}\" y=\"{ty}\" text-anchor=\"middle\">{text}</text>"
                    ),
                );
            }
        }
        put(svg, format_args!("<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>"));
        let (middle, below) = ((LEFT + RIGHT) / 2.0, BOTTOM + 40.0);
        let label = escape(&self.x.label);
        put(
            svg,
            format_args!(
                "<text class=\"ink\" x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"
            ),
        );
        let (middle, label) = ((TOP + BOTTOM) / 2.0, escape(&self.y.label));
        put(
            svg,
            format_args!(
                "<text class=\"ink\" transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">{label}</text>"
            ),
        );
    }

    fn draw_line(&self, svg: &mut String, series: &Series, x: &Span, y: &Span) {
        let class = class_of(series);
        let at = |p: &Point| (x.place(p.x), y.place(p.y));
        let mut path = String::new();
        for (n, point) in series.points.iter().enumerate() {
            let (px, py) = at(point);
            let _ = write!(path, "{}{px:.1} {py:.1}", if n == 0 { 'M' } else { 'L' });
        }
        let look = match series.role {
            Role::Measured => "stroke-width=\"2.2\" stroke-linejoin=\"round\"",
            Role::Reference => "stroke-width=\"1.4\" stroke-dasharray=\"5 4\" opacity=\".75\"",
            Role::Limit => "stroke-width=\"1.6\" stroke-dasharray=\"1.5 3.5\" stroke-linecap=\"round\"",
        };
        put(svg, format_args!("<g class=\"{class}\" stroke=\"currentColor\" fill=\"none\" {look}>"));
        put(svg, format_args!("<path d=\"{path}\"><title>{}</title></path>", escape(&series.name)));
        if series.role == Role::Measured {
            for point in &series.points {
                let (px, py) = at(point);
                let (high, low) =
                    (y.place(point.y + point.error), y.place((point.y - point.error).max(y.low)));
                // Shorter than the point itself, it could not be seen.
                if low - high > 6.0 {
                    let (l, r) = (px - 3.0, px + 3.0);
                    put(
                        svg,
                        format_args!(
                            "<path stroke-width=\"1.2\" d=\"M{px:.1} {high:.1}V{low:.1}M{l:.1} {high:.1}H{r:.1}M{l:.1} {low:.1}H{r:.1}\"/>"
                        ),
                    );
                }
                put(
                    svg,
                    format_args!(
                        "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.6\" fill=\"currentColor\" stroke=\"none\"><title>{}: {} at {}{}</title></circle>",
                        escape(&series.name),
                        short(point.y),
                        point.x,
                        if point.error > 0.0 { format!(", ±{}", short(point.error)) } else { String::new() }
                    ),
                );
            }
        }
        svg.push_str("</g>\n");
    }

    /// Names stand where their lines end, moved apart where lines end close to each other.
    fn draw_names(&self, svg: &mut String, x: &Span, y: &Span) {
        let named = self.series.iter().filter(|s| s.role != Role::Reference);
        let mut ends: Vec<(&Series, f64, f64)> =
            named.filter_map(|s| s.points.last().map(|p| (s, x.place(p.x), y.place(p.y)))).collect();
        ends.sort_by(|a, b| a.2.total_cmp(&b.2));
        let wanted: Vec<f64> = ends.iter().map(|end| end.2).collect();
        for ((series, end_x, end_y), at) in ends.iter().zip(apart(&wanted, NAME_STEP, TOP, BOTTOM)) {
            let class = class_of(series);
            let (from, to, text) = (end_x + 5.0, RIGHT + 16.0, RIGHT + 20.0);
            put(
                svg,
                format_args!(
                    "<g class=\"{class}\"><path d=\"M{from:.1} {end_y:.1}L{to} {at:.1}\" stroke=\"currentColor\" \
                     stroke-width=\".8\" opacity=\".6\"/><text x=\"{text}\" y=\"{:.1}\" fill=\"currentColor\" \
                     font-weight=\"500\">{}</text></g>",
                    at + 4.0,
                    escape(&series.name)
                ),
            );
        }
    }
}

fn class_of(series: &Series) -> String {
    match series.role {
        Role::Limit => "limit".to_owned(),
        _ => format!("h{}", series.hue % HUES),
    }
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    let _ = writeln!(svg, "{element}");
}

/// Places in the order of `wanted` (ascending), at least `step` from each other, as near as may be, within the bounds if
/// they fit.
fn apart(wanted: &[f64], step: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for n in 1..places.len() {
        places[n] = places[n].max(places[n - 1] + step);
    }
    // Names that were pushed beyond the end push the earlier ones back; there is room at the beginning.
    let mut limit = bottom.max(top + step * wanted.len().saturating_sub(1) as f64);
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - step;
    }
    places
}

/// The nearest of 1, 2, 5, 10, 20, ... above or below a positive value, or the value itself if it is one of them.
fn one_two_five(value: f64, above: bool) -> f64 {
    let decade = 10f64.powi(value.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade);
    match above {
        true => steps.into_iter().find(|s| *s >= value * 0.9999).unwrap_or(steps[3]),
        false => steps.into_iter().rev().find(|s| *s <= value * 1.0001).unwrap_or(steps[0]),
    }
}

/// A number with three significant digits.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A power of two: 64, 1 Ki, 64 Ki, 1 Mi.
fn binary(value: f64) -> String {
    let value = value as u64;
    match value {
        0..1024 => value.to_string(),
        1024..1_048_576 => format!("{} Ki", value >> 10),
        _ => format!("{} Mi", value >> 20),
    }
}

/// `text` for an element or an attribute of SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |name: &str, role, y: f64| Series {
            name: name.to_owned(),
            role,
            hue: 1,
            points: [64.0, 1500.0, 65536.0].map(|x| Point { x, y: y / x.sqrt(), error: 0.1 }).to_vec(),
        };
        Chart {
            id: "a".to_owned(),
            title: "a < b & \"c\"".to_owned(),
            subtitle: "s".to_owned(),
            x: Axis { label: "bytes".to_owned(), scale: Scale::Doublings },
            y: Axis { label: "cycles".to_owned(), scale: Scale::Decades },
            series: vec![
                line("ours", Role::Measured, 10.0),
                line("theirs", Role::Reference, 20.0),
                line("limit", Role::Limit, 10.0),
            ],
        }
    }

    #[test]
    fn a_chart_has_every_line_once_and_names_at_their_ends() {
        let svg = chart().standalone();
        assert_eq!(svg.matches("<circle").count(), 3, "only what was measured has points");
        assert_eq!(svg.matches(">ours</text>").count(), 1);
        assert_eq!(svg.matches(">limit</text>").count(), 1);
        assert!(!svg.contains(">theirs</text>") && svg.contains("stroke-dasharray=\"5 4\""));
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_inline_chart_names_no_address() {
        assert!(!chart().inline().contains("http"));
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        let mut nothing = chart();
        nothing.series.clear();
        assert!(nothing.inline().ends_with("</svg>\n"));
        nothing.series.push(Series { name: "x".to_owned(), role: Role::Measured, hue: 99, points: vec![] });
        assert!(!nothing.inline().contains("NaN"));
        nothing.series[0].points = vec![Point { x: 64.0, y: 0.0, error: 0.0 }];
        assert!(!nothing.inline().contains("NaN"), "zero has no logarithm");
    }

    #[test]
    fn names_do_not_overlap_and_stay_inside() {
        let places = apart(&[100.0, 101.0, 102.0, 299.0, 300.0], 15.0, 50.0, 300.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 15.0 - 1e-9), "{places:?}");
        assert!(places.iter().all(|place| (50.0..=300.0).contains(place)), "{places:?}");
    }

    #[test]
    fn marks_are_round() {
        let span = Span::over(Scale::Decades, [0.06, 130.0].into_iter(), 0.0, 1.0);
        assert_eq!((span.low, span.high), (0.05, 200.0));
        assert_eq!((span.place(0.05), span.place(200.0)), (0.0, 1.0));
        let texts: Vec<String> = span.marks().into_iter().map(|(_, t)| t).filter(|t| !t.is_empty()).collect();
        assert_eq!(texts, ["0.1", "1", "10", "100"]);
        let bytes = Span::over(Scale::Doublings, [64.0, 65536.0].into_iter(), 0.0, 1.0);
        let texts: Vec<String> =
            bytes.marks().into_iter().map(|(_, t)| t).filter(|t| !t.is_empty()).collect();
        assert_eq!(texts, ["64", "256", "1 Ki", "4 Ki", "16 Ki", "64 Ki"]);
        let linear = Span::over(Scale::Linear, [3.0, 97.0].into_iter(), 0.0, 1.0);
        assert_eq!(linear.marks()[1].1, "20");
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.1234, "0.123"), (0.05, "0.05"), (12.34, "12.3"), (1234.6, "1235"), (200.0, "200")]
        {
            assert_eq!(short(value), text);
        }
    }
}
