//! `cargo xtask sim`: runs seeds, prints what it found and how fast it was.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use sim::{Plan, Report, Run, Sabotage, run_seed};

#[derive(Parser)]
#[command(about = "Target and initiators, whole, from seeds on a virtual clock")]
struct Args {
    #[command(subcommand)]
    page: Option<Page>,
    /// Run this seed only
    #[arg(long)]
    seed: Option<u64>,
    /// Print what happens
    #[arg(long)]
    transcript: bool,
    /// Run so many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Begin with this seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// End after so many seconds at the latest
    #[arg(long)]
    seconds: Option<u64>,
}

/// What the documentation shows; without --write it is compared with what is there.
#[derive(Subcommand)]
enum Page {
    /// Throughput against loss, round trip and connections: docs/mcs-table.txt and docs/mcs.svg
    Table {
        /// Write the files
        #[arg(long)]
        write: bool,
    },
    /// A recovery, PDU by PDU: docs/recovery-transcript.md
    Recovery {
        /// Write the file
        #[arg(long)]
        write: bool,
    },
}

/// Writes pages, or says which are not what they would be.
fn pages(page: &Page) -> anyhow::Result<ExitCode> {
    let (write, files) = match page {
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
        None => many(args.first, args.seeds, args.seconds.map(Duration::from_secs)),
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

fn many(first: u64, count: u64, limit: Option<Duration>) -> ExitCode {
    let begin = Instant::now();
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut totals = Totals::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || limit.is_some_and(|limit| begin.elapsed() > limit) {
                return totals;
            }
            match std::panic::catch_unwind(|| run_seed(seed)) {
                Ok(report) => totals.add(report),
                Err(_) => totals.panicked_in.push(seed),
            }
        }
    };
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            totals.join(worker.join().expect("panics stay within their seeds"));
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let per_minute = totals.seeds as f64 * 60.0 / seconds;
    totals.broken.sort_by_key(|report| report.seed);
    for report in totals.broken.iter().take(20) {
        println!("{}", summary(report));
    }
    totals.panicked_in.sort_unstable();
    if !totals.panicked_in.is_empty() {
        println!("panics in {} seeds: {}", totals.panicked_in.len(), some(&totals.panicked_in));
    }
    totals.gave_up_in.sort_unstable();
    if !totals.gave_up_in.is_empty() {
        println!(
            "operations were given up in {} seeds: {}",
            totals.gave_up_in.len(),
            some(&totals.gave_up_in)
        );
    }
    let broken = totals.broken.first().map(|report| report.seed);
    if let Some(seed) = broken.or(totals.panicked_in.first().copied()) {
        println!("to see it: cargo xtask sim --seed {seed} --transcript");
    }
    println!(
        "sim: {} seeds in {seconds:.1} s ({per_minute:.0} a minute), {} broken; {} operations, {} given up, {} PDUs, {} flips, {} recoveries, {} sessions given up, {:.0} s of virtual time",
        totals.seeds + totals.panicked_in.len() as u64,
        totals.broken.len() + totals.panicked_in.len(),
        totals.done,
        totals.failed,
        totals.pdus,
        totals.flips,
        totals.recoveries,
        totals.gave_up,
        totals.virtual_ns as f64 / 1e9
    );
    if broken.is_none() && totals.panicked_in.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first of them.
fn some(seeds: &[u64]) -> String {
    format!("{:?}", &seeds[..seeds.len().min(20)])
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    done: u64,
    failed: u64,
    pdus: u64,
    flips: u64,
    recoveries: u64,
    gave_up: u64,
    virtual_ns: u64,
    broken: Vec<Report>,
    /// Seeds in which operations were given up.
    gave_up_in: Vec<u64>,
    /// Seeds in which the stacks, or the simulator, panicked.
    panicked_in: Vec<u64>,
}

impl Totals {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.done += report.done;
        self.failed += report.failed;
        self.pdus += report.pdus;
        self.flips += report.flips;
        self.recoveries += report.recoveries;
        self.gave_up += report.gave_up;
        self.virtual_ns += report.virtual_ns;
        if report.failed > 0 {
            self.gave_up_in.push(report.seed);
        }
        if report.broken.is_some() {
            self.broken.push(report);
        }
    }

    fn join(&mut self, other: Self) {
        let Self { seeds, done, failed, pdus, flips, recoveries, .. } = other;
        let Self { gave_up, virtual_ns, broken, gave_up_in, panicked_in, .. } = other;
        self.seeds += seeds;
        self.done += done;
        self.failed += failed;
        self.pdus += pdus;
        self.flips += flips;
        self.recoveries += recoveries;
        self.gave_up += gave_up;
        self.virtual_ns += virtual_ns;
        self.broken.extend(broken);
        self.gave_up_in.extend(gave_up_in);
        self.panicked_in.extend(panicked_in);
    }
}
