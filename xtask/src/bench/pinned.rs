//! `cargo xtask bench data-path`: our target next to an earlier build of itself, precise enough to show a difference of a
//! tenth.
//!
//! The two builds take turns in pairs, and alternate in going first. A ratio is the median of the pairs' ratios, and the
//! quartiles say how far to trust it. The same build of the client is used with both. [`place`] lists the other requirements.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::place::{self, PLACEMENTS, Surroundings};
use super::progress;
use super::report::{self, Placed};
use super::rows::{Row, row};
use super::servers::{self, Server};
use super::{Sample, measure, median};

/// The line before the table in docs/performance.md.
const BEGIN: &str = "<!-- begin: cargo xtask bench data-path --write -->";

/// Options of `cargo xtask bench data-path`.
#[derive(clap::Args)]
pub struct Options {
    /// The build to compare with: an `intact` of an earlier commit, built with --release
    #[arg(long)]
    baseline: PathBuf,
    /// The client; by default the build to be compared
    #[arg(long)]
    client: Option<PathBuf>,
    /// Pairs of runs for each cell; the median counts
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Only cells whose name contains this, for example "64 KiB" or "two cores"; if repeated, all of them must match
    #[arg(long)]
    only: Vec<String>,
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// A folder for the volume of the rows with a file, on a file system that knows what it has cached (tmpfs does not)
    #[arg(long, default_value = "target")]
    files: PathBuf,
    #[command(flatten)]
    pub output: report::Output,
}

const ROWS: [Row; 16] = [
    row("4 KiB random read, depth 1", "read", "random", 4096, 1),
    row("4 KiB random read, depth 32", "read", "random", 4096, 32),
    row("4 KiB random write, depth 1", "write", "random", 4096, 1),
    row("4 KiB random write, depth 32", "write", "random", 4096, 32),
    row("64 KiB random read, depth 1", "read", "random", 64 << 10, 1),
    row("64 KiB random read, depth 8", "read", "random", 64 << 10, 8),
    row("64 KiB random write, depth 1", "write", "random", 64 << 10, 1),
    row("64 KiB random write, depth 8", "write", "random", 64 << 10, 8),
    row("128 KiB sequential read, depth 1", "read", "sequential", 128 << 10, 1),
    row("128 KiB sequential read, depth 8", "read", "sequential", 128 << 10, 8),
    row("128 KiB sequential write, depth 1", "write", "sequential", 128 << 10, 1),
    row("128 KiB sequential write, depth 8", "write", "sequential", 128 << 10, 8),
    row("1 MiB sequential read, depth 1", "read", "sequential", 1 << 20, 1),
    row("1 MiB sequential read, depth 8", "read", "sequential", 1 << 20, 8),
    row("1 MiB sequential write, depth 1", "write", "sequential", 1 << 20, 1),
    row("1 MiB sequential write, depth 8", "write", "sequential", 1 << 20, 8),
];

/// One row in one placement.
#[derive(Serialize)]
struct Cell {
    name: String,
    #[serde(skip)]
    row: &'static Row,
    /// The baseline and the build compared with it.
    pairs: Vec<[Sample; 2]>,
}

/// Measures, and prints the table.
pub fn run(root: &Path, built: &Path, options: &Options) -> Result<()> {
    let binary = options.output.binary(built);
    let client = options.client.as_deref().unwrap_or(binary);
    let scratch = tempfile::tempdir_in(root.join(&options.files)).context("no place for the files")?;
    let mut cells = Vec::new();
    let memory = format!("ram:{}", servers::VOLUME_BYTES);
    let file =
        |name: &str| format!("file:{},size={}", scratch.path().join(name).display(), servers::VOLUME_BYTES);
    for (store, luns) in
        [("memory", [memory.clone(), memory.clone()]), ("file", [file("baseline"), file("compared")])]
    {
        measure_store(store, [&options.baseline, binary], luns, client, options, &mut cells)?;
    }
    options.output.keep(&cells)?;
    let text = markdown(&cells, &report::machine(root), options);
    options.output.publish(root, "docs/performance.md", BEGIN, &text).map(drop)
}

fn measure_store(
    store: &str,
    binaries: [&Path; 2],
    luns: [String; 2],
    client: &Path,
    options: &Options,
    cells: &mut Vec<Cell>,
) -> Result<()> {
    let places = ROWS.iter().flat_map(|row| PLACEMENTS.iter().map(move |place| Placed { row, place }));
    let named = places.map(|placed| (format!("{store}, {}", placed.name()), placed));
    let wanted = |name: &str| options.only.iter().all(|part| name.contains(part));
    let wanted: Vec<(String, Placed)> = named.filter(|(name, _)| wanted(name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let [old, new] = luns;
    let servers: [Server; 2] = [
        servers::intact(place::target(binaries[0]), &old)?,
        servers::intact(place::target(binaries[1]), &new)?,
    ];
    for server in &servers {
        place::fill(client, server)?;
    }
    for (name, placed) in wanted {
        let mut pairs = Vec::new();
        for n in 0..options.pairs {
            let run = |server: &Server| {
                measure(placed.place.client(client), server, "", placed.row, true, options.seconds)
            };
            // They alternate in going first.
            let (first, second) = (n % 2, 1 - n % 2);
            let one = run(&servers[first])?;
            let other = run(&servers[second])?;
            pairs.push(if first == 0 { [one, other] } else { [other, one] });
            progress::show(format_args!("{name}: {} of {} pairs", n + 1, options.pairs));
        }
        cells.push(Cell { name, row: placed.row, pairs });
    }
    progress::end();
    Ok(())
}

fn markdown(cells: &[Cell], machine: &str, options: &Options) -> String {
    let mut text = format!(
        "{machine}\n{} pairs of {} s, pinned, digests on; medians, and the quarters of the ratios. CPU is of the target, µs per \
         command; ratios are to the baseline.\n\n",
        options.pairs, options.seconds
    );
    text.push_str(
        "| load | rate | ratio | quarters | CPU | ratio | quarters |\n|---|---|---|---|---|---|---|\n",
    );
    let cpu = |sample: &Sample| sample.target_cpu_seconds / sample.ios() * 1e6;
    for cell in cells {
        let compared = |figure: &dyn Fn(&Sample) -> f64| {
            let mut ratios: Vec<f64> =
                cell.pairs.iter().map(|[old, new]| figure(new) / figure(old)).collect();
            ratios.sort_by(f64::total_cmp);
            let quarter = |n: usize| ratios[(ratios.len() - 1) * n / 4];
            let here = median(cell.pairs.iter().map(|[_, new]| figure(new)));
            (here, quarter(2), format!("{:.2} - {:.2}", quarter(1), quarter(3)))
        };
        let (iops, rate, rates) = compared(&|sample| sample.iops);
        let (time, times, all_times) = compared(&cpu);
        let speed = match cell.row.counts_commands() {
            true => format!("{iops:.0} IOPS"),
            false => format!("{:.0} MB/s", iops * cell.row.block_bytes as f64 / 1e6),
        };
        let _ = writeln!(
            text,
            "| {} | {speed} | **{rate:.2}** | {rates} | {time:.2} | **{times:.2}** | {all_times} |",
            cell.name
        );
    }
    text
}
