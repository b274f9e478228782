//! `cargo xtask bench protection`: what protection information of type 1 costs our target, digests on, by I/O size.
//!
//! Two servers, with and without room for tuples, take turns with one load generator. Against the one with tuples the
//! generator runs twice: as a host without support for them, for which the target generates and checks guards; and as a
//! host that sends and checks tuples itself.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::judge::Rounds;
use super::place::{self, PLACEMENTS};
use super::progress;
use super::rows::PROTECTED_ROWS;
use super::{Sample, median, servers};

/// The line before the table in docs/performance.md.
pub const BEGIN: &str = "<!-- begin: cargo xtask bench protection --write -->";

/// Bytes of a logical block.
const BLOCKS: [u32; 2] = [512, 4096];
/// The allowed cost: the minimum throughput as a fraction of that without.
const FLOOR: f64 = 0.90;
/// The hosts that take turns: name, and text appended to the server's URL.
const HOSTS: [(&str, &str); 3] = [("off", ""), ("the target's", ""), ("end to end", "?pi=1")];

/// All samples of one load: for each of [`HOSTS`], round by round.
#[derive(Default, Serialize)]
pub struct Cell {
    block_bytes: u32,
    load: &'static str,
    placement: &'static str,
    samples: [Vec<Sample>; HOSTS.len()],
}

impl Cell {
    fn median(&self, host: usize, f: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples[host].iter().map(f))
    }

    /// Median over the rounds of the ratio of `host` to the first host in the same round.
    fn ratio(&self, host: usize, f: impl Fn(&Sample) -> f64) -> f64 {
        Rounds::ratios(self.samples[host].iter().map(&f), self.samples[0].iter().map(&f)).median()
    }
}

/// Measures all cells.
pub fn run(intact: &Path, seconds: f64, rounds: usize) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for block_bytes in BLOCKS {
        let lun = |room: &str| format!("ram:{},block={block_bytes}{room}", servers::VOLUME_BYTES);
        let without = servers::intact(place::target(intact), &lun(""))?;
        let with = servers::intact(place::target(intact), &lun(",pi=1"))?;
        for server in [&without, &with] {
            place::fill(intact, server)?;
        }
        let first = cells.len();
        let rows = || PROTECTED_ROWS.iter().flat_map(|row| PLACEMENTS.iter().map(move |place| (row, place)));
        cells.extend(rows().map(|(row, place)| Cell {
            block_bytes,
            load: row.name,
            placement: place.name,
            ..Cell::default()
        }));
        for round in 0..rounds {
            for ((row, place), cell) in rows().zip(&mut cells[first..]) {
                for (host, server) in [&without, &with, &with].into_iter().enumerate() {
                    let client = place.client(intact);
                    let sample = super::measure(client, server, HOSTS[host].1, row, true, seconds)?;
                    cell.samples[host].push(sample);
                }
            }
            progress::show(format_args!("blocks of {block_bytes} bytes: round {} of {rounds}", round + 1));
        }
        progress::end();
    }
    Ok(cells)
}

/// The table as Markdown.
pub fn markdown(cells: &[Cell], machine: &str, seconds: f64, rounds: usize) -> String {
    let mut text = format!(
        "{machine}\n{rounds} rounds of {seconds} s, in turn within each, pinned; medians. Digests on everywhere; the floor is {FLOOR:.2}.\n\n"
    );
    text.push_str("| block | load | placement | without, MB/s | made and checked by the target | of without | target CPU | end to end | of without | target CPU | client CPU |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for cell in cells {
        let speed = |host: usize| format!("{:.0}", cell.median(host, |x| x.mb_per_s));
        let of = |host: usize| format!("**{:.2}**", cell.ratio(host, |x| x.iops));
        let target = |host: usize| format!("{:.2}", cell.ratio(host, Sample::target_cpu_per_100k));
        let client = cell.ratio(2, |x| x.cpu_seconds / x.ios());
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {client:.2} |",
            cell.block_bytes,
            cell.load,
            cell.placement,
            speed(0),
            speed(1),
            of(1),
            target(1),
            speed(2),
            of(2),
            target(2),
        );
    }
    let short: Vec<String> = cells
        .iter()
        .filter(|cell| cell.ratio(1, |x| x.iops) < FLOOR)
        .map(|cell| format!("{} at {}, {}", cell.load, cell.block_bytes, cell.placement))
        .collect();
    let verdict = match short.is_empty() {
        true => format!("Made and checked by the target, nothing falls short of {FLOOR:.2}."),
        false => format!("Made and checked by the target, short of {FLOOR:.2}: {}.", short.join("; ")),
    };
    text.push_str(&format!("\n{verdict} CPU: time per I/O as a multiple of that without.\n"));
    text
}
