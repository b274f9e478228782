//! `cargo xtask bench connections`: one session with one connection next to sessions with several, symmetric and asymmetric,
//! at the same total queue depth. It shows the CPU cost of the connections themselves at each end.
//!
//! Loopback has no delay and no loss, so several connections cannot gain anything here; the simulator shows where they help
//! (docs/mcs.md). The contenders take turns within each round, and a ratio is the median of the ratios within the rounds.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::judge::Rounds;
use super::place::{self, PLACEMENTS};
use super::progress;
use super::report::Placed;
use super::rows::Row;
use super::{How, Sample, measure, median, servers};

/// The line before the table in docs/mcs.md.
pub const BEGIN: &str = "<!-- begin: cargo xtask bench connections --write -->";

/// Options of `cargo xtask bench connections`.
#[derive(clap::Args)]
pub struct Options {
    /// Number of connections in the sessions that have several
    #[arg(long, default_value_t = 4)]
    connections: u16,
    /// Only rows whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Also measure sending each command on the connection with the fewest bytes in flight, instead of filling one after the other
    #[arg(long)]
    spread: bool,
}

const ROWS: [Row; 5] = [
    super::rows::row("4 KiB random read, depth 1", "read", "random", 4096, 1),
    super::rows::row("4 KiB random read, depth 32", "read", "random", 4096, 32),
    super::rows::row("4 KiB random write, depth 32", "write", "random", 4096, 32),
    super::rows::row("128 KiB sequential read, depth 8", "read", "sequential", 128 << 10, 8),
    super::rows::row("128 KiB sequential write, depth 8", "write", "sequential", 128 << 10, 8),
];

/// A kind of session.
struct Contender {
    name: String,
    query: String,
}

/// A kind of session under a load.
#[derive(Serialize)]
pub struct Cell {
    #[serde(serialize_with = "name")]
    row: Placed,
    session: String,
    samples: Vec<Sample>,
}

fn name<S: serde::Serializer>(row: &Placed, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&row.name())
}

/// Measures every cell; the cells of a row are adjacent.
pub fn run(intact: &Path, options: &Options, how: &How) -> Result<Vec<Cell>> {
    let scratch = tempfile::tempdir().context("no place for the target's configuration")?;
    let server = servers::asymmetric(place::target(intact), scratch.path())?;
    let n = options.connections;
    let mut contenders = vec![
        Contender { name: "1 connection".into(), query: "?connections=1".into() },
        Contender { name: format!("{n} connections"), query: format!("?connections={n}") },
        Contender { name: format!("{n}, asymmetric"), query: format!("?connections={n}&asymmetric=1") },
    ];
    if options.spread {
        let query = format!("?connections={n}&scheduling=least_bytes");
        contenders.push(Contender { name: format!("{n}, spread"), query });
    }
    let wanted = |row: &&Row| options.only.as_deref().is_none_or(|part| row.name.contains(part));
    let rows = ROWS.iter().filter(wanted);
    let rows: Vec<Placed> =
        rows.flat_map(|row| PLACEMENTS.iter().map(|place| Placed { row, place })).collect();
    let mut cells: Vec<Cell> = rows
        .iter()
        .flat_map(|row| {
            contenders.iter().map(|c| Cell { row: *row, session: c.name.clone(), samples: vec![] })
        })
        .collect();
    place::fill(intact, &server)?;
    let total = how.rounds * cells.len();
    for round in 0..how.rounds {
        for (r, Placed { row, place }) in rows.iter().enumerate() {
            for turn in 0..contenders.len() {
                // A different one goes first in each round.
                let c = (turn + round) % contenders.len();
                let at = r * contenders.len() + c;
                let query = &contenders[c].query;
                let run = measure(place.client(intact), &server, query, row, false, how.seconds)?;
                cells[at].samples.push(run);
                let done = cells.iter().map(|cell| cell.samples.len()).sum::<usize>();
                progress::show(format_args!("{done} of {total} runs"));
            }
        }
    }
    progress::end();
    Ok(cells)
}

/// The table.
pub fn markdown(cells: &[Cell], machine: &str, how: &How) -> String {
    let mut text = format!(
        "{machine}\n{} rounds of {} s, the sessions in turn within each, pinned; medians. CPU time is µs per command; a ratio is to one \
         connection.\n\n",
        how.rounds, how.seconds
    );
    text.push_str("| load | session | speed | ratio | client CPU | ratio | target CPU | ratio |\n|---|---|---|---|---|---|---|---|\n");
    for cells in cells.chunk_by(|a, b| a.row.name() == b.row.name()) {
        for cell in cells {
            let row = cell.row.row;
            let median = |f: &dyn Fn(&Sample) -> f64| median(cell.samples.iter().map(f));
            let ratio = |f: &dyn Fn(&Sample) -> f64| {
                Rounds::ratios(cell.samples.iter().map(f), cells[0].samples.iter().map(f)).median()
            };
            let speed = match row.counts_commands() {
                true => format!("{:.0} IOPS", median(&|x| x.iops)),
                false => format!("{:.0} MB/s", median(&|x| x.mb_per_s)),
            };
            let client = |x: &Sample| x.cpu_seconds / x.ios() * 1e6;
            let target = |x: &Sample| x.target_cpu_seconds / x.ios() * 1e6;
            let _ = writeln!(
                text,
                "| {} | {} | {speed} | **{:.2}** | {:.2} | **{:.2}** | {:.2} | **{:.2}** |",
                cell.row.name(),
                cell.session,
                ratio(&|x| x.iops),
                median(&client),
                ratio(&client),
                median(&target),
                ratio(&target),
            );
        }
    }
    text
}
