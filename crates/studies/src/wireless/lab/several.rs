//! Figures that compare numbers of connections or of targets: 6.7 to 6.14. Each twice: as the thesis did it, where the depth grows
//! with the number, and next to one connection at the same total depth.

use iscsi_core::params::Asymmetric;
use sim::trial::{Between, Trial};

use super::bench::{B, Cell, ETHERNET, G, Lab, text};
use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

const KIB: u32 = 1024;

/// What a figure has several of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    /// Targets in one machine, each with a session of its own.
    Targets,
    /// Connections of one session.
    Connections,
}

/// A figure of this kind.
struct Figure {
    number: &'static str,
    several: Several,
    between: Between,
    place: &'static str,
    writes: bool,
}

/// All numbers of one size: as the thesis did it, and one connection at the same depth.
struct Line {
    kib: u32,
    wide: Vec<Cell>,
    deep: Vec<Cell>,
    /// As wide, with commands and data apart; only even numbers of connections.
    apart: Vec<Option<Cell>>,
    /// As wide, with each half of the connections in one direction, as the thesis describes it (4.3.3).
    halves: Vec<Option<Cell>>,
}

const NUMBERS: [u16; 4] = [1, 2, 3, 4];

impl Figure {
    fn measure(&self, lab: &Lab) -> Result<Vec<Line>, String> {
        let line = |kib: u32| {
            let one = Trial { writes: self.writes, ..Trial::reads(self.between, kib * KIB) };
            let (mut wide, mut deep) = (Vec::new(), Vec::new());
            let (mut apart, mut halves) = (Vec::new(), Vec::new());
            for number in NUMBERS {
                let depth = usize::from(number);
                let trial = match self.several {
                    Several::Targets => Trial { sessions: number as u8, depth, ..one },
                    Several::Connections => Trial { connections: number, depth, ..one },
                };
                wide.push(lab.cell(trial)?);
                deep.push(lab.cell(Trial { depth, ..one })?);
                let can = self.several == Several::Connections && number % 2 == 0;
                let cell = |asymmetric| can.then(|| lab.cell(Trial { asymmetric, ..trial })).transpose();
                apart.push(cell(Asymmetric::Pairs)?);
                halves.push(cell(Asymmetric::Halves)?);
            }
            Ok(Line { kib, wide, deep, apart, halves })
        };
        lab.sizes_kib().iter().map(|kib| line(*kib)).collect()
    }

    fn section(&self, lines: &[Line]) -> Section {
        let what = if self.several == Several::Targets { "targets" } else { "connections in one session" };
        let direction = if self.writes { "writes" } else { "reads" };
        let title = format!("Figure {}: {direction}, 1 to 4 {what}, {}", self.number, self.place);
        let mut section = Section::new(
            &title,
            "n of them have n commands under way, one each, as in the thesis. `depth n`: one connection with as many commands. `apart`: commands on one \
             half of the connections, data and status on the other. `halves`: all that the initiator sends on one half, all that the target sends on the \
             other, the thesis' own mode (4.3.3).",
        );
        let mut table = Table::new(
            "MB/s.",
            &[
                "KiB",
                "1",
                "2",
                "depth 2",
                "3",
                "depth 3",
                "4",
                "depth 4",
                "2, apart",
                "4, apart",
                "2, halves",
                "4, halves",
            ],
        );
        for line in lines {
            let mut row = vec![line.kib.to_string(), text(&line.wide[0])];
            for n in 1..NUMBERS.len() {
                row.extend([text(&line.wide[n]), text(&line.deep[n])]);
            }
            for apart in [&line.apart, &line.halves] {
                row.extend([1, 3].map(|n| apart[n].as_ref().map_or("-".to_owned(), text)));
            }
            table.rows.push(row);
        }
        section.tables.push(table);
        let points = |of: &dyn Fn(&Line) -> f64| {
            lines.iter().map(|line| (f64::from(line.kib), of(line))).collect::<Vec<_>>()
        };
        let id = format!("figure-{}", self.number.replace('.', "-"));
        let mut plot = Chart::new(
            &id,
            &title,
            "dashed: one connection at the same total depth",
            ("KiB of a command", Scale::Doublings),
            ("MB/s", Scale::Linear),
        );
        for (n, number) in NUMBERS.iter().enumerate() {
            plot = plot.line(number.to_string(), Role::Measured, n, points(&|line| line.wide[n].mb_s.mean));
            plot = plot.line("", Role::Reference, n, points(&|line| line.deep[n].mb_s.mean));
        }
        section.charts.push(plot);
        let alike = lines.iter().map(|line| line.wide[1].mb_s.mean / line.deep[1].mb_s.mean);
        let largest = alike.fold(0.0, f64::max);
        section.rows.push(
            Row::holds(
                self.number,
                "two at depth 2 over one at depth 2, best size: above 1.05 would be a gain of connections",
                "",
                largest,
                largest > 1.05,
            )
            .note("what looks like a gain of connections is one of queue depth"),
        );
        section
    }
}

fn wide(lines: &[Line], kib: u32, number: usize) -> f64 {
    lines.iter().find(|line| line.kib == kib).map_or(0.0, |line| line.wide[number - 1].mb_s.mean)
}

fn targets(
    lab: &Lab,
    number: &'static str,
    between: Between,
    place: &'static str,
    writes: bool,
) -> Result<Section, String> {
    let figure = Figure { number, several: Several::Targets, between, place, writes };
    let lines = figure.measure(lab)?;
    let mut section = figure.section(&lines);
    let gain = wide(&lines, 2, 2) / wide(&lines, 2, 1);
    let (two, four) = (wide(&lines, 128, 2), wide(&lines, 128, 4));
    let b = place == "802.11b";
    let mut rows =
        vec![Row::against(number, "2 KiB, two targets over one", "", gain, "6.7-small", 0.10).note(
            "here twice the commands under way are worth more than 10 %; what cost theirs is not said",
        )];
    if b {
        rows.push(Row::against(number, "128 KiB, two targets", "MB/s", two, "6.7-128k", 0.10));
    }
    let below = four < 0.99 * two;
    let row = Row::holds(number, "four targets below two, 128 KiB", "", four / two, below);
    rows.push(if below { row } else { row.note("the link does not mind; what cost theirs is not said") });
    section.rows.splice(0..0, rows);
    Ok(section)
}

/// Figures 6.7 to 6.10.
pub(super) fn targets_b_reads(lab: &Lab) -> Result<Section, String> {
    targets(lab, "6.7", B.into(), "802.11b", false)
}
pub(super) fn targets_b_writes(lab: &Lab) -> Result<Section, String> {
    targets(lab, "6.8", B.into(), "802.11b", true)
}
pub(super) fn targets_g_reads(lab: &Lab) -> Result<Section, String> {
    targets(lab, "6.9", G.into(), "802.11g", false)
}
pub(super) fn targets_g_writes(lab: &Lab) -> Result<Section, String> {
    targets(lab, "6.10", G.into(), "802.11g", true)
}

fn connections(
    lab: &Lab,
    number: &'static str,
    between: Between,
    place: &'static str,
    writes: bool,
) -> Result<(Section, Vec<Line>), String> {
    let figure = Figure { number, several: Several::Connections, between, place, writes };
    let lines = figure.measure(lab)?;
    Ok((figure.section(&lines), lines))
}

/// Figure 6.11.
pub(super) fn connections_reads(lab: &Lab) -> Result<Section, String> {
    let (mut section, lines) = connections(lab, "6.11", B.into(), "802.11b", false)?;
    let best =
        (1..=NUMBERS.len()).max_by(|a, b| wide(&lines, 2, *a).total_cmp(&wide(&lines, 2, *b))).unwrap_or(1);
    let rows = [
        Row::against("6.11", "2 KiB, one connection", "MB/s", wide(&lines, 2, 1), "6.11-2k-1", 0.10),
        Row::against("6.11", "2 KiB, two connections", "MB/s", wide(&lines, 2, 2), "6.11-2k-2", 0.10)
            .note("at MTU 1500 an answer is a full frame and a part of one; their figure is what MTU 2260 gives (Figure 6.17)"),
        Row::against("6.11", "128 KiB, two connections", "MB/s", wide(&lines, 128, 2), "6.11-128k-2", 0.10),
        Row::holds("6.11", "the best number of connections at 2 KiB: two", "", best as f64, best == 2)
            .note("more commands under way fill the link better, until it is full"),
    ];
    section.rows.splice(0..0, rows);
    Ok(section)
}

/// Figure 6.12.
pub(super) fn connections_writes(lab: &Lab) -> Result<Section, String> {
    let (mut section, lines) = connections(lab, "6.12", B.into(), "802.11b", true)?;
    let gain = wide(&lines, 2, 2) / wide(&lines, 2, 1);
    section
        .rows
        .insert(0, Row::holds("6.12", "2 KiB, two connections over one: a gain", "", gain, gain > 1.05));
    Ok(section)
}

/// Figure 6.13.
pub(super) fn ethernet(lab: &Lab) -> Result<Section, String> {
    let (mut section, lines) = connections(lab, "6.13", ETHERNET, "100 Mbit/s Ethernet", false)?;
    let gain = wide(&lines, 128, 2) / wide(&lines, 128, 1);
    section.rows.insert(
        0,
        Row::holds(
            "6.13",
            "128 KiB, two connections over one: no gain as over the air",
            "",
            gain,
            gain < 1.2,
        ),
    );
    Ok(section)
}

/// Figure 6.14.
pub(super) fn response_time(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.14: response time",
        "Mean time of a read. Two connections have two commands under way; in a closed system the mean time is the depth over the rate (Little's law).",
    );
    let mut table = Table::new("ms.", &["KiB", "1, depth 1", "2, depth 2", "1, depth 2"]);
    let mut ratios = Vec::new();
    for &kib in lab.sizes_kib() {
        let of = |connections, depth| lab.cell(Trial { connections, depth, ..Trial::reads(B, kib * KIB) });
        let times = [of(1, 1)?.command_ms, of(2, 2)?.command_ms, of(1, 2)?.command_ms];
        ratios.push(times[1] / times[0]);
        table.rows.push(std::iter::once(kib.to_string()).chain(times.map(|ms| format!("{ms:.2}"))).collect());
    }
    section.rows = response_rows(&ratios);
    section.tables.push(table);
    Ok(section)
}

/// What the thesis says of Figure 6.14, beside the time with two connections over that with one: of the smallest size and of the largest.
pub(super) fn response_rows(ratios: &[f64]) -> Vec<Row> {
    let why = "two commands share the link, so each takes longer, not less; half would need the rate of four";
    let row = |what, ratio, figure| Row::against("6.14", what, "", ratio, figure, 0.10).note(why);
    vec![
        row("2 KiB, two connections over one", ratios[0], "6.14-small"),
        row("128 KiB, two connections over one", ratios[ratios.len() - 1], "6.14-128k"),
    ]
}
