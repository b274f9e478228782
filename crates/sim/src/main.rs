//! `cargo xtask sim`: runs seeds, prints the findings and the speed.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use sim::campaign::{self, Outcome};
use sim::kept::Campaign;
use sim::{Plan, Report, Run, Sabotage, run_seed};

/// Without a progress bar, a line is printed every so many seeds: about every two minutes on two cores.
const NEWS_EVERY: u64 = 50_000;

/// The same for runs of a map.
const CAMPAIGN_NEWS_EVERY: usize = 1000;

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

/// Pages of the documentation; without --write they are printed, or compared with the files.
#[derive(Subcommand)]
enum Page {
    /// The map of several connections: docs/mcs-table.txt, docs/mcs.svg, and its summary in docs/mcs.md
    Table {
        /// Seeds of each cell
        #[arg(long, default_value_t = sim::table::SEEDS, value_parser = clap::value_parser!(u64).range(2..))]
        seeds: u64,
        #[command(flatten)]
        how: How,
        /// Where the results of single runs are kept
        #[arg(long, value_name = "FILE", default_value = "target/sim-table.txt")]
        keep: PathBuf,
    },
    /// connections=auto against fixed numbers of connections: docs/mcs-auto.txt
    Auto {
        /// Runs of each cell and setting; each takes about 40 minutes of a processor for the whole map
        #[arg(long, default_value_t = 3)]
        seeds: u64,
        #[command(flatten)]
        how: How,
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

/// How a campaign is run. Interrupted, it continues where it was, if the program is still the same.
#[derive(clap::Args)]
struct How {
    /// Write the files; without it the map is printed
    #[arg(long)]
    write: bool,
    /// Stop after this many seconds at the latest, and continue the next time
    #[arg(long)]
    seconds: Option<u64>,
}

impl How {
    /// Runs a campaign that reports how many of its runs are done; `None`: its time was over before.
    fn run<T>(
        &self,
        keep: &Path,
        run: impl Fn(Campaign<'_>, &(dyn Fn(usize, usize) + Sync)) -> Result<Option<T>, String>,
    ) -> anyhow::Result<Option<T>> {
        let template = "{bar:30} {human_pos} of {human_len} runs, {eta} left";
        let style = ProgressStyle::with_template(template).expect("the template is constant");
        let progress = ProgressBar::new(0).with_style(style);
        let until = self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let news = |done: usize, all: usize| {
            progress.set_length(all as u64);
            progress.set_position(done as u64);
            if progress.is_hidden() && done.is_multiple_of(CAMPAIGN_NEWS_EVERY) {
                eprintln!("sim: {done} of {all} runs");
            }
        };
        let result = run(Campaign { path: keep, until }, &news);
        progress.finish_and_clear();
        let result = result.map_err(anyhow::Error::msg)?;
        if result.is_none() {
            println!("sim: the time is over; run it again to continue");
        }
        Ok(result)
    }
}

/// Runs the map of connections=auto.
fn auto(how: &How, seeds: u64, keep: &Path) -> anyhow::Result<ExitCode> {
    if let Some(lines) = how.run(keep, |campaign, news| sim::auto_map::run(seeds, campaign, news))? {
        let text = sim::auto::page(&lines, seeds);
        match how.write {
            true => fs::write("docs/mcs-auto.txt", text)?,
            false => print!("{text}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the map of several connections.
fn table(how: &How, seeds: u64, keep: &Path) -> anyhow::Result<ExitCode> {
    if let Some(lines) = how.run(keep, |campaign, news| sim::table::run(seeds, campaign, news))? {
        let (text, summary) = (sim::table::text(&lines, seeds), sim::table::summary(&lines, seeds));
        if !how.write {
            print!("{text}\n{summary}");
            return Ok(ExitCode::SUCCESS);
        }
        fs::write("docs/mcs-table.txt", text)?;
        fs::write("docs/mcs.svg", sim::table::picture(&lines))?;
        put_between_marks(Path::new("docs/mcs.md"), "cargo xtask sim table --write", &summary)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces what a page has between the marks of a command.
fn put_between_marks(page: &Path, command: &str, what: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(page)?;
    let begin = format!("<!-- begin: {command} -->\n");
    let parts = text.split_once(&begin).and_then(|(head, rest)| {
        let end = rest.find("<!-- end -->")?;
        Some((head, &rest[end..]))
    });
    let (head, tail) = parts.with_context(|| format!("{}: no marks of {command}", page.display()))?;
    Ok(fs::write(page, format!("{head}{begin}{what}\n{tail}"))?)
}

/// Writes the pages, or reports which files differ.
fn pages(page: &Page) -> anyhow::Result<ExitCode> {
    let write = match page {
        Page::Auto { how, seeds, keep } => return auto(how, *seeds, keep),
        Page::Table { how, seeds, keep } => return table(how, *seeds, keep),
        Page::Recovery { write } => *write,
    };
    let path = "docs/recovery-transcript.md";
    let text = sim::recovery::page().map_err(anyhow::Error::msg)?;
    if write {
        fs::write(path, text)?;
    } else if fs::read_to_string(path)? != text {
        println!("{path} is not what it would be now: run this with --write, and look at what has changed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
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
        None => many(campaign::Campaign {
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
        report.losses.recoveries,
        report.losses.gave_up,
        report.virtual_ns as f64 / 1e9,
        report.sum
    )
}

/// Whether the medium does in this build what it does in every other: this one is optimised, that of the tests is not.
fn medium_is_the_same() -> bool {
    let (reference, hash) = wireless::saturation::REFERENCE;
    let found = reference.run().hash;
    if found != hash {
        println!(
            "the medium's reference run has the fingerprint {found}, and not {hash}: this build differs from others"
        );
    }
    found == hash
}

fn many(campaign: campaign::Campaign) -> ExitCode {
    if !medium_is_the_same() {
        return ExitCode::FAILURE;
    }
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
