//! A session that chooses the number of its connections itself (`connections=auto`) against sessions with fixed numbers, on a map of links,
//! round trips, losses and sizes. The stacks are the real ones, the rule among them; processors cost nothing.

use std::time::Duration;

use initiator::{AUTO_CONNECTIONS, Scheduling};
use wireless::link::LinkSetup;
use wireless::mac::Mac;

use crate::air::AirPlan;
use crate::load::{LoadPlan, Measuring};
use crate::network::PathConfig;
use crate::plan::{InitiatorPlan, Plan, US};
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::store::BLOCK_BYTES;

/// Reads outstanding, over all connections.
const DEPTH: usize = 16;
/// Blocks of the medium.
const BLOCKS: u64 = 8192;
/// Parts of a run whose throughput is known, of the longest.
const PARTS: u64 = 2048;

/// What lies between initiator and target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Ethernet of this many bytes per second.
    Ethernet(u64),
    /// An 802.11b link.
    B,
    /// An 802.11g link.
    G,
}

impl Wire {
    /// Its name on the map.
    pub fn name(self) -> String {
        match self {
            Self::Ethernet(rate) => format!("{} Mbit/s", rate * 8 / 1_000_000),
            Self::B => "802.11b".to_owned(),
            Self::G => "802.11g".to_owned(),
        }
    }

    /// What it can carry, bytes per second.
    fn rate(self) -> u64 {
        match self {
            Self::Ethernet(rate) => rate,
            Self::B => 700_000,
            Self::G => 3_500_000,
        }
    }

    /// A path over it: round trip without queues, microseconds, and lost segments per million.
    pub(crate) fn path(self, round_trip_us: u64, loss_ppm: u32, seed: u64) -> PathConfig {
        let delay_ns = round_trip_us * US / 2;
        let wired = PathConfig {
            delay_ns,
            loss_ppm,
            segment_bytes: 1448,
            send_buffer_bytes: 4 << 20,
            receive_window_bytes: 4 << 20,
            queue_bytes: 512 << 10,
            congestion: true,
            ..PathConfig::default()
        };
        let air = |mac| {
            let loss = f64::from(loss_ppm) / 1e6;
            let link = LinkSetup { latency_ns: delay_ns, loss, ..LinkSetup::of(mac) };
            PathConfig { air: Some(AirPlan { link, seed }), ..wired }
        };
        match self {
            Wire::Ethernet(rate) => PathConfig { bandwidth: Some(rate), ..wired },
            Wire::B => air(Mac::B),
            Wire::G => air(Mac::G),
        }
    }
}

/// Bytes per second of the faster Ethernet.
const GIGABIT: u64 = 125_000_000;
/// The links of the map.
pub const WIRES: [Wire; 4] = [Wire::Ethernet(GIGABIT), Wire::Ethernet(12_500_000), Wire::G, Wire::B];
/// Its round trips without queues, microseconds.
pub const ROUND_TRIPS_US: [u64; 4] = [100, 1_000, 10_000, 100_000];
/// Its losses, segments per million.
pub const LOSSES_PPM: [u32; 4] = [0, 1_000, 10_000, 30_000];
/// Its sizes of a read, bytes.
pub const SIZES: [u64; 3] = [2 << 10, 16 << 10, 128 << 10];

/// How many connections a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// So many, used in this way.
    Fixed(u16, Scheduling),
    /// As many as it finds good.
    Auto,
}

/// The settings of the map, the first with one connection and the last by the rule. Those in between spread their commands as the rule
/// does; filling one connection before the next is the same as one connection for all but large reads.
pub const SETTINGS: [Setting; 5] = [
    Setting::Fixed(1, Scheduling::FillFirst),
    Setting::Fixed(2, Scheduling::LeastOutstandingBytes),
    Setting::Fixed(4, Scheduling::LeastOutstandingBytes),
    Setting::Fixed(8, Scheduling::LeastOutstandingBytes),
    Setting::Auto,
];
const ONE: usize = 0;
const AUTO: usize = SETTINGS.len() - 1;

/// One cell of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The link.
    pub wire: Wire,
    /// Round trip without queues, microseconds.
    pub round_trip_us: u64,
    /// Lost segments per million.
    pub loss_ppm: u32,
    /// Bytes of one read.
    pub bytes: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Throughput, 10^6 bytes per second: of the whole run, with everything that the rule has tried.
    pub whole: f64,
    /// That of the second half of its time.
    pub later: f64,
    /// Connections that the rule wants at the end; 0 without the rule.
    pub wanted: u16,
}

impl Cell {
    /// All cells, in the order of the map.
    pub fn all() -> impl Iterator<Item = Self> {
        let cells = WIRES.into_iter().flat_map(|wire| SIZES.map(|bytes| (wire, bytes)));
        let cells =
            cells.flat_map(|(wire, bytes)| ROUND_TRIPS_US.map(|round_trip_us| (wire, bytes, round_trip_us)));
        cells.flat_map(|(wire, bytes, round_trip_us)| {
            LOSSES_PPM.map(|loss_ppm| Self { wire, round_trip_us, loss_ppm, bytes })
        })
    }

    /// How long a run lasts at most: a transfer of some minutes. In the first half the rule finds its number, where it is found at all.
    fn time(&self) -> Duration {
        Duration::from_secs(120) + Duration::from_micros(1000 * self.round_trip_us)
    }

    /// How many bytes a run transfers at most: as many seconds of the whole wire. Few where the rule has no reason to try anything.
    fn most_bytes(&self) -> u64 {
        let lossy = self.loss_ppm > 0 || self.round_trip_us >= 5_000;
        let seconds = match (self.wire, lossy) {
            (Wire::B | Wire::G, _) => 60,
            (Wire::Ethernet(GIGABIT), true) => 8,
            (Wire::Ethernet(GIGABIT), false) => 2,
            (Wire::Ethernet(_), true) => 20,
            (Wire::Ethernet(_), false) => 4,
        };
        self.wire.rate() * seconds
    }

    fn plan(&self, setting: Setting, seed: u64) -> Plan {
        let most = self.most_bytes();
        let load = LoadPlan {
            operations: u32::try_from(most / self.bytes).unwrap_or(u32::MAX),
            depth: DEPTH,
            max_blocks: self.bytes / BLOCK_BYTES as u64,
            ..LoadPlan::steady(1, 0..BLOCKS)
        };
        let (connections, scheduling) = match setting {
            Setting::Fixed(connections, scheduling) => (connections, scheduling),
            Setting::Auto => (AUTO_CONNECTIONS, Scheduling::LeastOutstandingBytes),
        };
        let plan =
            InitiatorPlan::steady(self.wire.path(self.round_trip_us, self.loss_ppm, seed), connections, load);
        let trace_bytes = (most / PARTS).max(self.bytes);
        let measuring = Some(Measuring { until: self.time(), trace_bytes });
        let initiator = InitiatorPlan { measuring, scheduling, tunes: setting == Setting::Auto, ..plan };
        Plan::steady(seed, BLOCKS, initiator.bounds.clone(), vec![initiator])
    }

    /// One run.
    ///
    /// # Errors
    /// The invariant that did not hold.
    pub fn run(&self, setting: Setting, seed: u64) -> Result<Measured, String> {
        let (report, course) = Run::new(self.plan(setting, seed), false, Sabotage::None).finish_with_course();
        if let Some(what) = report.broken {
            return Err(what);
        }
        let rate = |bytes: u64, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9);
        let whole = rate(report.bytes, Duration::from_nanos(report.busy_ns[0]));
        let later = course.trace.last().and_then(|&(end, all)| {
            let half = course.trace.iter().find(|(at, _)| *at >= end / 2)?;
            (half.0 < end).then(|| rate(all - half.1, end - half.0))
        });
        Ok(Measured {
            whole,
            later: later.unwrap_or(whole),
            wanted: course.tuning.map_or(0, |tuning| tuning.wanted),
        })
    }
}

/// Runs of one cell: of each setting, the same seeds in the same order.
pub type Runs = [Vec<Measured>; SETTINGS.len()];

/// What the runs of a cell say.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The cell.
    pub cell: Cell,
    /// Mean throughput of each setting, 10^6 bytes per second, of whole runs.
    pub whole: [f64; SETTINGS.len()],
    /// The rule to one connection, of whole runs, and half of its 95 % interval.
    pub to_one: (f64, f64),
    /// The rule to the best fixed setting: of whole runs, and of their second halves. The best setting is chosen by one half of the seeds
    /// and compared by the other: the largest of several means that contain chance is too large.
    pub to_best: (f64, f64),
    /// Connections that the rule wanted at the end of most runs.
    pub wanted: u16,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    if n > 0.0 { sum / n } else { 0.0 }
}

impl Line {
    /// The line of a cell; each setting must have at least one run.
    pub fn new(cell: Cell, runs: &Runs) -> Self {
        let ratios: Vec<f64> =
            runs[AUTO].iter().zip(&runs[ONE]).map(|(auto, one)| auto.whole / one.whole.max(1e-9)).collect();
        let to_one = mean(ratios.iter().copied());
        let n = ratios.len() as f64;
        let variance = ratios.iter().map(|ratio| (ratio - to_one).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        let mut wanted: Vec<u16> = runs[AUTO].iter().map(|run| run.wanted).collect();
        wanted.sort_unstable();
        Self {
            cell,
            whole: std::array::from_fn(|setting| mean(runs[setting].iter().map(|run| run.whole))),
            // One run says nothing about chance.
            to_one: (to_one, if n > 1.0 { 1.96 * (variance / n).sqrt() } else { f64::INFINITY }),
            to_best: (to_best(runs, |run| run.whole), to_best(runs, |run| run.later)),
            wanted: wanted[wanted.len() / 2],
        }
    }
}

fn to_best(runs: &Runs, of: impl Fn(&Measured) -> f64) -> f64 {
    let several = runs[ONE].len() > 1;
    let half = |setting: usize, rest: usize| {
        let seeds = runs[setting].iter().enumerate().filter(|(seed, _)| !several || seed % 2 == rest);
        mean(seeds.map(|(_, run)| of(run)))
    };
    let compared = |chosen_by: usize, compared_by: usize| {
        let best =
            (ONE..AUTO).max_by(|a, b| half(*a, chosen_by).total_cmp(&half(*b, chosen_by))).unwrap_or(ONE);
        half(AUTO, compared_by) / half(best, compared_by).max(1e-9)
    };
    if several { (compared(0, 1) + compared(1, 0)) / 2.0 } else { compared(0, 0) }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cell { wire, round_trip_us, loss_ppm, bytes } = self.cell;
        write!(
            f,
            "{:<13} {:>5} {:>6.1} {:>5.1}",
            wire.name(),
            bytes >> 10,
            round_trip_us as f64 / 1e3,
            f64::from(loss_ppm) / 1e4
        )?;
        for whole in self.whole {
            write!(f, " {whole:>7.2}")?;
        }
        let mark = match (self.to_one.0 + self.to_one.1 < 0.97, self.to_best.1) {
            (true, _) => "  WORSE THAN ONE",
            (_, ..0.90) => "  below 0.90",
            (_, ..0.95) => "  below 0.95",
            _ => "",
        };
        let ((one, by), (best, later)) = (self.to_one, self.to_best);
        write!(f, " {:>3} {one:>6.2} ±{by:.2} {best:>6.2} {later:>6.2}{mark}", self.wanted)
    }
}

/// The map as text: the lines of all cells, and what they say together.
pub fn page(lines: &[Line], seeds: u64) -> String {
    let mut text = format!(
        "A session with connections=auto against fixed numbers: reads, {DEPTH} at a time, MB/s of whole runs, {seeds} seeds.\n\
         Columns: link, KiB of a read, round trip without queues (ms), loss (%), 1, 2, 4 and 8 connections, auto;\n\
         connections that auto wants at the end; auto to one connection, with its 95 % interval; auto to the best\n\
         fixed number, of whole runs and of their second halves. Written by `cargo xtask sim auto --write`.\n\n"
    );
    for line in lines {
        text += &format!("{line}\n");
    }
    let of = |what: &dyn Fn(&Line) -> bool| {
        let n = lines.iter().filter(|line| what(line)).count();
        format!("{n} of {} cells ({:.1} %)", lines.len(), 100.0 * n as f64 / lines.len().max(1) as f64)
    };
    let worst = lines.iter().map(|line| line.to_one.0).fold(f64::INFINITY, f64::min);
    text += &format!(
        "\nwithin 5 % of the best fixed number, second halves:  {}\n\
         within 10 % of the best fixed number, second halves: {}\n\
         within 5 % of the best fixed number, whole runs:     {}\n\
         more than 3 % below one connection, whole runs:      {}; by more than chance: {}; worst {worst:.2}\n",
        of(&|line| line.to_best.1 >= 0.95),
        of(&|line| line.to_best.1 >= 0.90),
        of(&|line| line.to_best.0 >= 0.95),
        of(&|line| line.to_one.0 < 0.97),
        of(&|line| line.to_one.0 + line.to_one.1 < 0.97),
    );
    text
}
