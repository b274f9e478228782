//! `cargo xtask bench scaling`: shards of a target against sessions of its clients, on the processors that both are given: one
//! each, all together, and shares of one. And the shapes that decision 002 chooses from: several sessions, or one with several
//! connections, at the same total queue depth.
//!
//! All arrangements of a load take turns within each round, another first in each, and a ratio is of the same round. Two arrangements are
//! measured twice: the ratio to themselves says what the machine adds (the judge of the page). The clients share the processors with
//! the target when both have all of them, so its CPU time for a command says more of shards than the rate does.

mod chart;
mod page;
mod share;
mod site;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;

use self::site::{Run, Site};
use super::place::Surroundings;
use super::rows::{Row, row};
use super::{progress, report};

/// Where the tables go in docs/scaling.md.
const BEGIN: &str = "<!-- begin: cargo xtask bench scaling -->";
/// What the volumes are made of.
const STORES: [&str; 2] = ["RAM", "file"];
/// Percents of a processor.
const SHARES: [u32; 4] = [25, 50, 75, 100];
/// Of rounds and seconds with --quick.
const QUICK: (usize, f64) = (3, 0.1);

const ROWS: [Row; 8] = [
    row("4 KiB random read", "read", "random", 4096, 32),
    row("4 KiB random write", "write", "random", 4096, 32),
    row("8 KiB sequential read", "read", "sequential", 8192, 8),
    row("8 KiB sequential write", "write", "sequential", 8192, 8),
    row("128 KiB sequential read", "read", "sequential", 128 << 10, 8),
    row("128 KiB sequential write", "write", "sequential", 128 << 10, 8),
    row("1 MiB sequential read", "read", "sequential", 1 << 20, 8),
    row("1 MiB sequential write", "write", "sequential", 1 << 20, 8),
];
/// Those whose shapes are compared, and those for shares.
const SHAPED: [&str; 3] = ["4 KiB random read", "128 KiB sequential read", "128 KiB sequential write"];
const SHARED: [&str; 2] = ["4 KiB random read", "128 KiB sequential read"];

/// Options of `cargo xtask bench scaling`.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// A first impression: three rounds of a tenth of a second, volumes in memory only
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "write"])]
    quick: bool,
    /// Only loads whose name contains this, for example "128 KiB" or "digests on"
    #[arg(long, conflicts_with = "write")]
    only: Option<String>,
    /// Only this part
    #[arg(long, value_enum, conflicts_with = "write")]
    part: Option<Part>,
    /// A folder for the volumes in files
    #[arg(long, default_value = "target")]
    files: PathBuf,
    #[command(flatten)]
    pub output: report::Output,
}

impl Options {
    fn rounds(&self) -> usize {
        if self.quick { QUICK.0 } else { self.rounds }
    }

    fn seconds(&self) -> f64 {
        if self.quick { QUICK.1 } else { self.seconds }
    }
}

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Part {
    /// Shards against sessions
    Grid,
    /// Sessions against connections, at the same total depth
    Shapes,
    /// Shares of a processor
    Shares,
}

/// What is done to which volume.
#[derive(Clone, Copy, Debug)]
struct Load {
    row: &'static Row,
    digests: bool,
    store: &'static str,
}

impl Load {
    fn name(&self) -> String {
        let digests = if self.digests { "on" } else { "off" };
        format!("{}, digests {digests}, {}", self.row.name, self.store)
    }
}

/// Which processors both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Processors {
    /// The target the first, the clients the second.
    Apart,
    /// Both have all.
    Together,
}

/// How a load is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Arrangement {
    processors: Processors,
    shards: usize,
    sessions: usize,
    /// Of each session.
    connections: usize,
    /// Of each session.
    depth: u32,
    /// Percent of the processor that the target gets; all of it if none.
    share: Option<u32>,
}

impl Arrangement {
    fn apart(row: &Row) -> Self {
        Self {
            processors: Processors::Apart,
            shards: 1,
            sessions: 1,
            connections: 1,
            depth: row.depth,
            share: None,
        }
    }

    fn together(row: &Row, shards: usize, sessions: usize) -> Self {
        Self { processors: Processors::Together, shards, sessions, ..Self::apart(row) }
    }
}

/// A load in an arrangement, and its runs, one for each round.
#[derive(Debug, Serialize)]
struct Cell {
    part: Part,
    #[serde(serialize_with = "name")]
    load: Load,
    arrangement: Arrangement,
    runs: Vec<Run>,
}

fn name<S: serde::Serializer>(load: &Load, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&load.name())
}

/// All figures.
#[derive(Debug, Serialize)]
struct Figures {
    /// Those of a load are adjacent.
    cells: Vec<Cell>,
    /// The number of a cell and its second run of each round, for two of them.
    controls: Vec<(usize, Vec<Run>)>,
    /// Why there are no shares.
    no_shares: Option<String>,
}

/// Measures, and prints the tables.
pub fn run(root: &Path, built: &Path, options: &Options) -> Result<()> {
    let intact = options.output.binary(built);
    let figures = measure(intact, &root.join(&options.files), options)?;
    options.output.keep(&figures)?;
    let text = page::markdown(&figures, &report::machine(root), options);
    if options.output.publish(root, "docs/scaling.md", BEGIN, &text)? {
        fs::write(root.join("docs/scaling.svg"), chart::svg(&figures))?;
    }
    Ok(())
}

fn measure(intact: &Path, files: &Path, options: &Options) -> Result<Figures> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut cells = cells(processors, options);
    if cells.is_empty() {
        bail!("no load has such a name");
    }
    let mut shards: Vec<usize> = cells.iter().map(|cell| cell.arrangement.shards).collect();
    shards.sort_unstable();
    shards.dedup();
    let loads: Vec<Load> = cells.iter().map(|cell| cell.load).collect();
    let site = Site::start(intact, files, &loads, &shards)?;
    let no_shares = site.share.as_ref().err().map(|error| format!("{error:#}"));
    if let Some(why) = &no_shares {
        eprintln!("SKIPPED: shares of a processor: {why}");
        cells.retain(|cell| cell.part != Part::Shares);
    }
    let mut controls: Vec<(usize, Vec<Run>)> = controlled(&cells).map(|at| (at, Vec::new())).collect();
    let turns = turns(&cells);
    let total = options.rounds() * (cells.len() + controls.len());
    let mut done = 0;
    for round in 0..options.rounds() {
        for turn in &turns {
            let mut order: Vec<usize> = turn.clone().collect();
            let first = round % order.len();
            order.rotate_left(first);
            let again: Vec<usize> =
                controls.iter().map(|(at, _)| *at).filter(|at| turn.contains(at)).collect();
            for (n, at) in order.iter().chain(&again).copied().enumerate() {
                let cell = &mut cells[at];
                let run = site.run(&cell.load, &cell.arrangement, options.seconds())?;
                match controls.iter_mut().find(|(control, _)| n >= turn.len() && *control == at) {
                    Some((_, runs)) => runs.push(run),
                    None => cell.runs.push(run),
                }
                done += 1;
                progress::show(format_args!("{done} of {total} runs: {}", cells[at].load.name()));
            }
        }
    }
    progress::end();
    Ok(Figures { cells, controls, no_shares })
}

/// The numbers of the cells of each load.
fn turns(cells: &[Cell]) -> Vec<std::ops::Range<usize>> {
    let mut from = 0;
    let of_a_load = cells.chunk_by(|a, b| a.part == b.part && a.load.name() == b.load.name());
    of_a_load
        .map(|cells| {
            from += cells.len();
            from - cells.len()..from
        })
        .collect()
}

/// The first load with the processors apart, and with most shards: what the judge measures again.
fn controlled(cells: &[Cell]) -> impl Iterator<Item = usize> {
    let first = turns(cells).first().cloned().unwrap_or(0..0);
    let last = first.end.saturating_sub(1);
    [first.start, last].into_iter().take(first.len().min(2))
}

/// 1, 2, 4 and so on up to `most`, and `most`.
fn doublings(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

fn cells(processors: usize, options: &Options) -> Vec<Cell> {
    let stores = if options.quick { &STORES[..1] } else { &STORES[..] };
    let loads = |stores: &[&'static str], names: &[&str]| -> Vec<Load> {
        let mut loads = Vec::new();
        for &store in stores {
            for row in ROWS.iter().filter(|row| names.is_empty() || names.contains(&row.name)) {
                loads.extend([false, true].map(|digests| Load { row, digests, store }));
            }
        }
        loads.retain(|load| options.only.as_deref().is_none_or(|part| load.name().contains(part)));
        loads
    };
    let parts: [(Part, Vec<Load>); 3] = [
        (Part::Grid, loads(stores, &[])),
        (Part::Shapes, loads(&STORES[..1], &SHAPED)),
        (Part::Shares, loads(&STORES[..1], &SHARED)),
    ];
    let mut cells = Vec::new();
    for (part, loads) in parts.into_iter().filter(|(part, _)| options.part.is_none_or(|only| only == *part)) {
        for load in loads {
            let cell = |arrangement| Cell { part, load, arrangement, runs: Vec::new() };
            cells.extend(arrangements(part, load.row, processors).into_iter().map(cell));
        }
    }
    cells
}

fn arrangements(part: Part, row: &Row, processors: usize) -> Vec<Arrangement> {
    match part {
        Part::Grid => {
            // More shards than sessions would leave shards without work.
            let mut all = vec![Arrangement::apart(row), Arrangement::together(row, 1, 1)];
            for n in doublings(processors).into_iter().filter(|n| *n > 1) {
                all.extend([Arrangement::together(row, 1, n), Arrangement::together(row, n, n)]);
            }
            all
        }
        Part::Shapes => {
            let n = processors.min(row.depth as usize);
            let one = Arrangement::together(row, processors, 1);
            let depth = row.depth / n as u32;
            vec![one, Arrangement { connections: n, ..one }, Arrangement { sessions: n, depth, ..one }]
        }
        Part::Shares => {
            let all = Arrangement::apart(row);
            SHARES.map(|percent| Arrangement { share: Some(percent), ..all }).to_vec()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        Cli::try_parse_from([&["scaling"], arguments].concat()).unwrap().options
    }

    #[test]
    fn shards_double_up_to_the_processors() {
        assert_eq!(doublings(1), [1]);
        assert_eq!(doublings(2), [1, 2]);
        assert_eq!(doublings(6), [1, 2, 4, 6]);
        assert_eq!(doublings(8), [1, 2, 4, 8]);
    }

    #[test]
    fn all_loads_are_measured_and_the_depth_of_shapes_is_the_same_in_all() {
        let cells = cells(2, &options(&[]));
        let grid = cells.iter().filter(|cell| cell.part == Part::Grid).count();
        assert_eq!(grid, ROWS.len() * 2 * STORES.len() * 4);
        for cell in cells.iter().filter(|cell| cell.part == Part::Shapes) {
            assert_eq!(cell.arrangement.depth * cell.arrangement.sessions as u32, cell.load.row.depth);
        }
        assert!(SHAPED.iter().chain(&SHARED).all(|name| ROWS.iter().any(|row| row.name == *name)));
    }

    #[test]
    fn the_judge_measures_both_placements_of_one_load() {
        let cells = cells(4, &options(&["--only", "128 KiB"]));
        let controlled: Vec<Arrangement> = controlled(&cells).map(|at| cells[at].arrangement).collect();
        assert_eq!(controlled.iter().map(|a| a.shards).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(controlled[0].processors, Processors::Apart);
    }

    #[test]
    fn a_part_of_the_loads_cannot_replace_the_page() {
        for part in [&["--quick"][..], &["--only", "x"], &["--part", "grid"]] {
            assert!(Cli::try_parse_from([&["scaling", "--write"], part].concat()).is_err());
        }
    }
}
