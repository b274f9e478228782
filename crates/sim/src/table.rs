//! The map of several connections (docs/mcs.md): throughput against link, loss, round trip, load and number of connections, at the same
//! total queue depth: what several connections gain, and where they cost. The stacks are the real ones; the network is the one with
//! congestion windows (see [`crate::network`]), or a link of 802.11.
//!
//! A figure is the mean of many seeds, with its 95 % confidence interval. Processors cost nothing here, so the comparison shows how well
//! the protocol and TCP use the wire, not how fast a machine runs the protocol.

use std::fmt::Write as _;

use initiator::Scheduling;

use crate::auto::Wire;
use crate::kept::{Campaign, keys};
use crate::load::LoadPlan;
use crate::plan::{InitiatorPlan, Plan};
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::store::BLOCK_BYTES;

/// The numbers of connections compared.
pub const CONNECTIONS: [u16; 4] = [1, 2, 4, 8];
/// Seeds of each figure, unless others are asked for.
pub const SEEDS: u64 = 100;
/// 1 Gbit/s.
const GIGABIT: Wire = Wire::Ethernet(125_000_000);
/// A difference that is smaller than this share does not matter, however certain it is.
const MATTERS: f64 = 0.01;
/// Standard errors of a 95 % confidence interval.
const CI95: f64 = 1.96;
/// Negative cells that the summary lists.
const WORST: usize = 12;

/// The workload of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The link.
    pub wire: Wire,
    /// Bytes of one read.
    pub bytes: u64,
    /// Reads outstanding, over all connections.
    pub depth: usize,
    /// How they are spread over the connections.
    pub scheduling: Scheduling,
    /// Reads per run.
    pub operations: u32,
}

use Scheduling::{FillFirst, LeastOutstandingBytes as Spread};

const fn work(wire: Wire, kib: u64, depth: usize, scheduling: Scheduling, operations: u32) -> Work {
    Work { wire, bytes: kib << 10, depth, scheduling, operations }
}

/// The workloads of the map. On Ethernet each is there twice: as the product does it, and spread.
pub const WORKS: [Work; 12] = [
    work(GIGABIT, 64, 32, FillFirst, 1500),
    work(GIGABIT, 64, 32, Spread, 1500),
    work(GIGABIT, 4, 8, FillFirst, 3000),
    work(GIGABIT, 4, 8, Spread, 3000),
    work(Wire::B, 2, 2, Spread, 400),
    work(Wire::B, 2, 8, Spread, 600),
    work(Wire::B, 16, 8, Spread, 300),
    work(Wire::B, 128, 8, Spread, 80),
    work(Wire::G, 2, 2, Spread, 400),
    work(Wire::G, 2, 8, Spread, 600),
    work(Wire::G, 16, 8, Spread, 300),
    work(Wire::G, 128, 8, Spread, 80),
];

impl Work {
    /// Its name on the map.
    pub fn name(&self) -> String {
        let how =
            if self.scheduling == FillFirst { "one connection filled before the next" } else { "spread" };
        format!("{}, reads of {} KiB, {} at a time, {how}", self.wire.name(), self.bytes >> 10, self.depth)
    }

    fn is_air(&self) -> bool {
        !matches!(self.wire, Wire::Ethernet(_))
    }

    /// Round trips without queues, microseconds.
    fn round_trips_us(&self) -> &'static [u64] {
        if self.is_air() { &[100, 10_000, 100_000] } else { &[100, 1_000, 10_000, 40_000] }
    }

    /// Lost segments per million; over the air, those that the medium's retries do not repair.
    fn losses_ppm(&self) -> [u32; 4] {
        if self.is_air() { [0, 1_000, 10_000, 30_000] } else { [0, 100, 1_000, 10_000] }
    }
}

/// A line of the map: all numbers of connections under the same conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The workload.
    pub work: Work,
    /// Round trip without queues, microseconds.
    pub round_trip_us: u64,
    /// Lost segments per million.
    pub loss_ppm: u32,
}

impl Row {
    /// All of them, in the order of the map.
    pub fn all() -> impl Iterator<Item = Self> {
        let trips =
            |work: Work| work.round_trips_us().iter().map(move |&round_trip_us| (work, round_trip_us));
        WORKS.into_iter().flat_map(trips).flat_map(|(work, round_trip_us)| {
            work.losses_ppm().map(|loss_ppm| Self { work, round_trip_us, loss_ppm })
        })
    }

    fn plan(&self, connections: u16, seed: u64) -> Plan {
        let blocks = 8192;
        let load = LoadPlan {
            operations: self.work.operations,
            depth: self.work.depth,
            max_blocks: self.work.bytes / BLOCK_BYTES as u64,
            ..LoadPlan::steady(1, 0..blocks)
        };
        let path = self.work.wire.path(self.round_trip_us, self.loss_ppm, seed);
        let scheduling = self.work.scheduling;
        let initiator = InitiatorPlan { scheduling, ..InitiatorPlan::steady(path, connections, load) };
        Plan::steady(seed, blocks, initiator.bounds.clone(), vec![initiator])
    }

    /// Throughput of one run, megabytes per second.
    ///
    /// # Errors
    /// The invariant that did not hold.
    pub fn measure(&self, connections: u16, seed: u64) -> Result<f64, String> {
        let report = Run::new(self.plan(connections, seed), false, Sabotage::None).finish();
        match report.broken {
            Some(what) => Err(format!("{self:?}, {connections} connections, seed {seed}: {what}")),
            None => Ok(report.bytes as f64 / 1e6 / (report.busy_ns[0].max(1) as f64 / 1e9)),
        }
    }
}

/// A mean and half of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// It is within this of the true one with 95 % confidence.
    pub by: f64,
}

impl Mean {
    /// Of samples, of which there are at least two.
    pub fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        let value = samples.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = samples.iter().map(|sample| (sample - value).powi(2)).sum();
        Self { value, by: CI95 * (squares / (n - 1.0).max(1.0) / n.max(1.0)).sqrt() }
    }

    /// The ratio of two means of runs that are independent of each other.
    fn over(self, other: Self) -> Self {
        let share = |mean: Self| mean.by / mean.value.max(1e-9);
        let value = self.value / other.value.max(1e-9);
        Self { value, by: value * share(self).hypot(share(other)) }
    }
}

/// What a number of connections is worth against one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It is faster by more than chance and more than 1 %.
    Gain,
    /// Neither.
    None,
    /// It is slower by more than chance and more than 1 %.
    Cost,
}

impl Worth {
    fn of(ratio: Mean) -> Self {
        match ratio {
            Mean { value, by } if value - by > 1.0 + MATTERS => Self::Gain,
            Mean { value, by } if value + by < 1.0 - MATTERS => Self::Cost,
            _ => Self::None,
        }
    }

    fn mark(self) -> char {
        match self {
            Self::Gain => '+',
            Self::None => ' ',
            Self::Cost => '-',
        }
    }
}

/// The result of a line, by number of connections.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its conditions.
    pub row: Row,
    /// Throughput, MB/s.
    pub mb_s: [Mean; CONNECTIONS.len()],
}

impl Line {
    fn to_one(self, setting: usize) -> Mean {
        self.mb_s[setting].over(self.mb_s[0])
    }

    fn worth(self, setting: usize) -> Worth {
        Worth::of(self.to_one(setting))
    }
}

/// Runs the map with this many seeds, or what is missing of it in the campaign's file. `None`: the campaign's time was over before.
///
/// # Errors
/// The file cannot be used, or an invariant did not hold.
pub fn run(
    seeds: u64,
    campaign: Campaign<'_>,
    news: impl Fn(usize, usize) + Sync,
) -> Result<Option<Vec<Line>>, String> {
    let rows: Vec<Row> = Row::all().collect();
    let keys = keys(rows.len(), CONNECTIONS.len(), seeds);
    let measure =
        |(row, setting, seed): (usize, usize, u64)| Ok([rows[row].measure(CONNECTIONS[setting], seed)?]);
    let results = campaign.run(&keys, measure, news)?;
    Ok(results.map(|results| {
        let samples = |row: usize, setting: usize| -> Vec<f64> {
            (1..=seeds).map(|seed| results[&(row, setting, seed)][0]).collect()
        };
        let line = |n: usize| std::array::from_fn(|setting| Mean::of(&samples(n, setting)));
        rows.iter().enumerate().map(|(n, row)| Line { row: *row, mb_s: line(n) }).collect()
    }))
}

/// The map as text.
pub fn text(lines: &[Line], seeds: u64) -> String {
    let mut text = format!(
        "Throughput of a session, MB/s, with 1, 2, 4 and 8 connections at the same total queue depth. Columns: round trip\n\
         without queues (ms), loss (% of segments; over the air: after the medium's retries), and for each number of\n\
         connections the mean of {seeds} seeds with its 95 % confidence interval. + and -: faster or slower than one connection,\n\
         by more than chance and by more than 1 %. Written by `cargo xtask sim table --write`.\n",
    );
    let mut work = None;
    for line in lines {
        if work.replace(line.row.work) != Some(line.row.work) {
            let _ = write!(text, "\n{}\n     rtt    loss", line.row.work.name());
            CONNECTIONS.iter().for_each(|n| {
                let _ = write!(text, " {n:>16} ");
            });
            text.push('\n');
        }
        let (trip, loss) = (line.row.round_trip_us as f64 / 1e3, f64::from(line.row.loss_ppm) / 1e4);
        let _ = write!(text, "{trip:>8.1} {loss:>7.2}");
        for (setting, mean) in line.mb_s.iter().enumerate() {
            let _ = write!(text, " {:>8.3} ±{:>6.3}{}", mean.value, mean.by, line.worth(setting).mark());
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text
}

fn percent(mean: Mean) -> String {
    format!("{:.2} ±{:.2}", mean.value, mean.by)
}

/// What the map says together, as Markdown.
pub fn summary(lines: &[Line], seeds: u64) -> String {
    let mut text = format!(
        "{} lines, {seeds} seeds for each number of connections. Cells in which a number of connections is faster than one, no different, or\n\
         slower, by more than chance (95 %) and more than 1 %:\n\n\
         | load | lines | 2: + | 2: - | 4: + | 4: - | 8: + | 8: - |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
        lines.len()
    );
    for work in WORKS {
        let of: Vec<&Line> = lines.iter().filter(|line| line.row.work == work).collect();
        let _ = write!(text, "| {} | {} |", work.name(), of.len());
        for setting in 1..CONNECTIONS.len() {
            let count = |worth| of.iter().filter(|line| line.worth(setting) == worth).count();
            let _ = write!(text, " {} | {} |", count(Worth::Gain), count(Worth::Cost));
        }
        text.push('\n');
    }
    text + &costs(lines) + &claims(lines)
}

/// The cells in which several connections cost most.
fn costs(lines: &[Line]) -> String {
    let settings = 1..CONNECTIONS.len();
    let all = lines.iter().flat_map(|line| settings.clone().map(move |setting| (line, setting)));
    let mut costs: Vec<_> = all.filter(|(line, setting)| line.worth(*setting) == Worth::Cost).collect();
    costs.sort_by(|(a, n), (b, m)| a.to_one(*n).value.total_cmp(&b.to_one(*m).value));
    let mut text = format!(
        "\n{} of the {} cells with several connections are negative. The worst:\n\n\
         | load | round trip, ms | loss, % | connections | to one |\n|---|--:|--:|--:|--:|\n",
        costs.len(),
        lines.len() * settings.len()
    );
    for (line, setting) in costs.iter().take(WORST) {
        let Row { work, round_trip_us, loss_ppm } = line.row;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            work.name(),
            round_trip_us as f64 / 1e3,
            f64::from(loss_ppm) / 1e4,
            CONNECTIONS[*setting],
            percent(line.to_one(*setting))
        );
    }
    text
}

/// A claim of the thesis, and the lines that answer it: link, KiB of a read, depth, number of connections.
struct Claim {
    what: &'static str,
    thesis: &'static str,
    line: (Wire, u64, usize, u16),
}

const CLAIMS: [Claim; 5] = [
    Claim { what: "6.11: 2 KiB, two connections", thesis: "2.12", line: (Wire::B, 2, 2, 2) },
    Claim { what: "6.11: 2 KiB, more than two", thesis: "less than two", line: (Wire::B, 2, 8, 4) },
    Claim { what: "6.11: 128 KiB, two connections", thesis: "1.03", line: (Wire::B, 128, 8, 2) },
    Claim { what: "6.9: 802.11g, 2 KiB, two targets", thesis: "1.10", line: (Wire::G, 2, 2, 2) },
    Claim {
        what: "6.13: Ethernet, 4 KiB, two connections",
        thesis: "no such gain",
        line: (GIGABIT, 4, 8, 2),
    },
];

/// The thesis' claims next to the same at equal depth: on a clean link, and with 1 % of the segments lost.
fn claims(lines: &[Line]) -> String {
    let mut text = String::from(
        "\nWhat the thesis found for several connections, each with a command of its own, and the same number against **one** at equal total\n\
         depth here (round trip 0.1 ms; spread):\n\n\
         | figure | thesis | without loss | 1 % lost |\n|---|--:|--:|--:|\n",
    );
    for Claim { what, thesis, line: (wire, kib, depth, connections) } in CLAIMS {
        let setting = CONNECTIONS.iter().position(|n| *n == connections).unwrap_or(0);
        let ratio = |loss| {
            let is_it = |line: &&Line| {
                let Row { work, round_trip_us, loss_ppm } = line.row;
                (work.wire, work.bytes >> 10, work.depth, work.scheduling) == (wire, kib, depth, Spread)
                    && (round_trip_us, loss_ppm) == (100, loss)
            };
            lines.iter().find(is_it).map_or_else(String::new, |line| percent(line.to_one(setting)))
        };
        let _ = writeln!(text, "| {what} | {thesis} | {} | {} |", ratio(0), ratio(10_000));
    }
    text
}

/// Throughput of the first workload over connections at 0.1 % loss, a curve for each round trip.
pub fn picture(lines: &[Line]) -> String {
    let x = |i: usize| 70 + i * 150;
    let y = |figure: f64| 300.0 - figure * 2.0;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"640\" height=\"360\" fill=\"white\"/>\n\
         <text x=\"70\" y=\"24\">MB/s of a session, reads of 64 KiB, 32 at a time, 0.1 % loss, 1 Gbit/s</text>\n",
    );
    for step in (0..=125).step_by(25) {
        let at = y(f64::from(step));
        let _ = writeln!(
            svg,
            "<line x1=\"60\" x2=\"540\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"52\" y=\"{:.1}\" text-anchor=\"end\">{step}</text>",
            at + 4.0
        );
    }
    for (i, n) in CONNECTIONS.iter().enumerate() {
        let _ = writeln!(svg, "<text x=\"{}\" y=\"324\" text-anchor=\"middle\">{n}</text>", x(i));
    }
    svg.push_str("<text x=\"300\" y=\"348\" text-anchor=\"middle\">connections</text>\n");
    let curves = lines.iter().filter(|line| line.row.work == WORKS[0] && line.row.loss_ppm == 1_000);
    for (line, colour) in curves.zip(["#1b6ca8", "#2e8b57", "#c46210", "#8b1a1a"]) {
        let points: Vec<String> =
            line.mb_s.iter().enumerate().map(|(i, mean)| format!("{},{:.1}", x(i), y(mean.value))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for (i, mean) in line.mb_s.iter().enumerate() {
            let (low, high) = (y(mean.value - mean.by), y(mean.value + mean.by));
            let _ = writeln!(
                svg,
                "<line x1=\"{0}\" x2=\"{0}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                x(i)
            );
        }
        let last = y(line.mb_s[CONNECTIONS.len() - 1].value) + 4.0;
        let label = line.row.round_trip_us as f64 / 1e3;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{last:.1}\" fill=\"{colour}\">{label} ms</text>", x(3) + 8);
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(samples: [&[f64]; 4]) -> Line {
        Line { row: Row::all().next().unwrap(), mb_s: samples.map(Mean::of) }
    }

    #[test]
    fn a_difference_counts_that_is_neither_chance_nor_small() {
        let one: &[f64] = &[9.9, 10.0, 10.1];
        let line = line([one, &[11.9, 12.0, 12.1], &[5.0, 10.0, 15.0], &[8.9, 9.0, 9.1]]);
        let worth: Vec<Worth> = (0..4).map(|setting| line.worth(setting)).collect();
        assert_eq!(worth, [Worth::None, Worth::Gain, Worth::None, Worth::Cost]);
        // Certain, but half a percent.
        assert_eq!(Worth::of(Mean { value: 0.995, by: 0.0 }), Worth::None);
        let mean = Mean::of(one);
        assert!((mean.value - 10.0).abs() < 1e-9 && (mean.by - 1.96 * 0.1 / 3f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn the_pages_show_every_line_the_negative_cells_and_the_thesis() {
        let rows: Vec<Row> = Row::all().collect();
        let lines: Vec<Line> = rows
            .iter()
            .map(|row| Line { row: *row, mb_s: [10.0, 12.0, 9.0, 10.0].map(|value| Mean { value, by: 0.1 }) })
            .collect();
        let text = text(&lines, 7);
        let shown =
            text.lines().filter(|line| line.contains("10.000 ± 0.100    12.000 ± 0.100+    9.000")).count();
        assert_eq!(shown, rows.len(), "{text}");
        let summary = summary(&lines, 7);
        let count = rows.len();
        assert!(summary.contains(&format!("{count} of the {} cells", count * 3)), "{summary}");
        assert!(
            summary.contains("| 6.11: 2 KiB, two connections | 2.12 | 1.20 ±0.02 | 1.20 ±0.02 |"),
            "{summary}"
        );
        assert_eq!(summary.matches("| 4 | 0.90 ±").count(), WORST);
        assert_eq!(picture(&lines).matches("polyline").count(), 4);
    }
}
