//! `cargo xtask sim`: runs seeds, prints the findings and the speed.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use sim::campaign::{Campaign, Outcome};
use sim::{Plan, Report, Run, Sabotage, run_seed};

/// Without a progress bar, a line is printed every so many seeds: about every two minutes on two cores.
const NEWS_EVERY: u64 = 50_000;

/// The same for runs of the map of connections=auto.
const AUTO_NEWS_EVERY: usize = 100;

#[derive(Parser)]
#[command(about = "Target and initiators, whole, from seeds on a virtual clock")]
struct Args {
    #[command(subcommand)]
    page: Option<Page>,
    /// Run this seed only
    #[arg(long)]
    seed: Option<u64>,
    /// Print a transcript
    #[arg(long)]
    transcript: bool,
    /// Run this many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Start with this seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Stop after this many seconds at the latest
    #[arg(long)]
    seconds: Option<u64>,
}

/// Pages of the documentation; without --write they are compared with the files.
#[derive(Subcommand)]
enum Page {
    /// Throughput against loss, round trip and connections: docs/mcs-table.txt and docs/mcs.svg
    Table {
        /// Write the files
        #[arg(long)]
        write: bool,
    },
    /// connections=auto against fixed numbers of connections: docs/mcs-auto.txt. Interrupted, it continues where it was
    Auto {
        /// Write the file; without it the map is printed
        #[arg(long)]
        write: bool,
        /// Runs of each cell and setting; each takes some minutes of a processor for the whole map
        #[arg(long, default_value_t = 3)]
        seeds: u64,
        /// Where the results of single runs are kept
        #[arg(long, value_name = "FILE", default_value = "target/sim-auto.txt")]
        keep: PathBuf,
    },
    /// A recovery, PDU by PDU: docs/recovery-transcript.md
    Recovery {
        /// Write the file
        #[arg(long)]
        write: bool,
    },
}

/// Runs the map of connections=auto.
fn auto(write: bool, seeds: u64, keep: &Path) -> anyhow::Result<ExitCode> {
    let progress = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} runs, {eta} left")
            .expect("the template is constant"),
    );
    let lines = sim::auto_map::run(seeds, keep, |done, all| {
        progress.set_length(all as u64);
        progress.set_position(done as u64);
        if progress.is_hidden() && done.is_multiple_of(AUTO_NEWS_EVERY) {
            eprintln!("sim: {done} of {all} runs");
        }
    });
    progress.finish_and_clear();
    let text = sim::auto::page(&lines.map_err(anyhow::Error::msg)?, seeds);
    match write {
        true => std::fs::write("docs/mcs-auto.txt", text)?,
        false => print!("{text}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages, or reports which files differ.
fn pages(page: &Page) -> anyhow::Result<ExitCode> {
    let (write, files) = match page {
        Page::Auto { write, seeds, keep } => return auto(*write, *seeds, keep),
        Page::Table { write } => {
            let (text, picture) = sim::table::write().map_err(anyhow::Error::msg)?;
            (*write, vec![("docs/mcs-table.txt", text), ("docs/mcs.svg", picture)])
        }
        Page::Recovery { write } => (
            *write,
            vec![("docs/recovery-transcript.md", sim::recovery::page().map_err(anyhow::Error::msg)?)],
        ),
    };
    let mut same = true;
    for (path, text) in files {
        if write {
            std::fs::write(path, text)?;
        } else if std::fs::read_to_string(path)? != text {
            println!(
                "{path} is not what it would be now: run this with --write, and look at what has changed"
            );
            same = false;
        }
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(page) = &args.page {
        return pages(page).unwrap_or_else(|error| {
            eprintln!("sim: {error:#}");
            ExitCode::FAILURE
        });
    }
    match args.seed {
        Some(seed) => one(seed, args.transcript),
        None => many(Campaign {
            first: args.first,
            seeds: args.seeds,
            limit: args.seconds.map(Duration::from_secs),
        }),
    }
}

fn one(seed: u64, transcript: bool) -> ExitCode {
    let report = Run::new(Plan::from_seed(seed), transcript, Sabotage::None).finish();
    for line in &report.transcript {
        println!("{line}");
    }
    println!("{}", summary(&report));
    if report.broken.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn summary(report: &Report) -> String {
    let verdict = report.broken.as_deref().unwrap_or("every invariant holds");
    format!(
        "seed {}: {verdict}; {} operations, {} given up, {} PDUs, {} flips, {} recoveries, {} sessions given up, {:.3} s of virtual time, sum {:016x}",
        report.seed,
        report.done,
        report.failed,
        report.pdus,
        report.flips,
        report.recoveries,
        report.gave_up,
        report.virtual_ns as f64 / 1e9,
        report.sum
    )
}

fn many(campaign: Campaign) -> ExitCode {
    let begin = Instant::now();
    let progress = ProgressBar::new(campaign.seeds).with_style(
        ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} seeds, {eta} left, {msg}")
            .expect("the template is constant"),
    );
    let totals = campaign.run(run_seed, |outcome, totals| {
        if outcome.is_finding() {
            progress.suspend(|| match outcome {
                Outcome::Ended(report) => println!("{}", summary(report)),
                Outcome::Panicked(seed) => println!("seed {seed}: panicked"),
            });
        }
        progress.set_position(totals.seeds);
        progress.set_message(format!("{} broken", totals.broken_in.len()));
        if progress.is_hidden() && totals.seeds.is_multiple_of(NEWS_EVERY) {
            eprintln!("sim: {} seeds, {} broken", totals.seeds, totals.broken_in.len());
        }
    });
    progress.finish_and_clear();
    if !totals.failed_in.is_empty() {
        println!(
            "operations were given up, for want of time, in {} seeds: {}",
            totals.failed_in.len(),
            some(&totals.failed_in)
        );
    }
    if let Some(seed) = totals.broken_in.first() {
        println!(
            "broken: {}; to see it: cargo xtask sim --seed {seed} --transcript",
            some(&totals.broken_in)
        );
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "sim: {} seeds in {seconds:.1} s ({:.0} a minute), {} broken; {} operations, {} given up, {} PDUs, {} flips, {} recoveries, {} sessions given up, {:.0} s of virtual time",
        totals.seeds,
        totals.seeds as f64 * 60.0 / seconds,
        totals.broken_in.len(),
        totals.done,
        totals.failed,
        totals.pdus,
        totals.flips,
        totals.recoveries,
        totals.gave_up,
        totals.virtual_s
    );
    if totals.broken_in.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first twenty.
fn some(seeds: &[u64]) -> String {
    format!("{:?}", &seeds[..seeds.len().min(20)])
}
