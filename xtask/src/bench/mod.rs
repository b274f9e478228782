//! `cargo xtask bench target`: our target next to Debian's tgt, both tuned, interleaved in one run, by our load generator; and
//! `cargo xtask bench protection`: our target with protection information next to itself without it ([`protection`]); and
//! `cargo xtask bench data-path`: our target next to an earlier build of itself, pinned ([`pinned`]); and
//! `cargo xtask bench connections`: sessions with several connections next to a session with one ([`connections`]); and
//! `cargo xtask bench backup`: a database's load alone, and beside a running backup ([`backup`]); and
//! `cargo xtask bench database`: PostgreSQL in the Linux guest, on our target and on tgt ([`database`]); and
//! `cargo xtask bench fastpath`: instructions and cache misses of a received PDU, counted ([`fastpath`]); and
//! `cargo xtask bench offload`: what a command costs the host without and with an offload engine, counted ([`offload`]); and
//! `cargo xtask bench idle`: the cost of unused targets and units ([`idle`]); and
//! `cargo xtask bench scaling`: shards against sessions, on the processors that are given ([`scaling`]); and
//! `cargo xtask bench sessions`: what many sessions on one target cost each other ([`sessions`]); and
//! `cargo xtask bench stack`: the whole product with one CRC forced at both ends ([`stack`]); and
//! `cargo xtask bench pages`: the pages of the checksums and of the guards ([`pages`]).
//!
//! How such a table can mislead, and the countermeasures. Machines are noisy, so every cell is the median of several rounds in
//! which the targets take turns within seconds. Absolute figures only apply to this machine, so the ratios count. A generator that
//! is slower than the target measures itself, so its own CPU time is stated next to the target's. A wrong answer is fast, so every
//! digest received is checked and a run with a failed command has no result.

mod backup;
mod callgrind;
mod connections;
mod database;
mod fastpath;
mod idle;
mod judge;
mod offload;
mod pages;
mod pinned;
mod place;
mod progress;
mod protection;
mod report;
mod rows;
mod scaling;
mod servers;
mod sessions;
mod stack;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use self::place::{PLACEMENTS, Surroundings};
pub use self::report::write as put_into_page;
use self::report::{Placed, Table};
use self::rows::{ROWS, Row};
use self::servers::Server;

/// The part of a volume that is written and read, bytes.
const REGION_BYTES: u64 = 512 << 20;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The load of a database on our target, alone and beside a backup of the same unit. Needs two cores; root for the congestion
    /// control and for priority
    #[command(after_help = "Example:\n    cargo xtask bench backup --rounds 3 --only RAM")]
    Backup(backup::Options),
    /// Sessions with one connection and with several, symmetric and asymmetric: speed, and CPU time of both ends
    Connections {
        #[command(flatten)]
        what: connections::Options,
        #[command(flatten)]
        how: How,
    },
    /// Our target next to tgt, on a volume in memory, one connection; needs the package tgt
    Target {
        /// Only rows whose name contains this
        #[arg(long)]
        only: Option<String>,
        #[command(flatten)]
        how: How,
    },
    /// PostgreSQL in the Linux guest, on our target and on tgt in turn, digests off and on; needs tgt, postgresql, the guest and two cores
    #[command(
        after_help = "Example:\n    cargo xtask bench database --rounds 1 --seconds 5 --directory volumes"
    )]
    Database(database::Options),
    /// Our target next to an earlier build of itself, both ends pinned, on one core and on two: precise enough to show a tenth.
    /// Needs two cores; root for the congestion control and for priority
    #[command(
        after_help = "Example:\n    cargo xtask bench data-path --baseline ../old/target/release/intact --pairs 15"
    )]
    DataPath(pinned::Options),
    /// Instructions and cache misses of one received PDU, counted by callgrind; needs valgrind
    Fastpath(fastpath::Options),
    /// The cost of a thousand unused targets and hundreds of unused units; needs qemu-io with its iSCSI driver
    Idle {
        /// Seconds over which CPU time and wake-ups are counted
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Write the table into docs/performance.md
        #[arg(long)]
        write: bool,
    },
    /// Instructions of a command in the client's process, without an offload engine and with one, counted by callgrind; needs valgrind
    Offload(offload::Options),
    /// Take the figures of docs/checksums.md, docs/guards.md and docs/fastpath.md again; the machine must be quiet
    Pages {
        /// Maximum number of attempts for each, until its program trusts the figures
        #[arg(long, default_value_t = 3)]
        attempts: usize,
        /// Only this page
        #[arg(long, value_name = "PAGE", value_parser = clap::builder::PossibleValuesParser::new(pages::names()))]
        only: Option<String>,
    },
    /// Shards against sessions: speed, CPU time of both ends and the load of each shard, on one processor each, on all together and on
    /// shares of one. Needs two cores; root for the congestion control, for priority and for shares
    #[command(
        after_help = "Examples:\n    cargo xtask bench scaling --write\n    cargo xtask bench scaling --quick --only \"128 KiB\""
    )]
    Scaling(scaling::Options),
    /// Many sessions on one target: CPU time of a command and of a login, memory and wake-ups of idle sessions. Needs two cores, and
    /// more open files than sessions; root for the congestion control and for priority
    #[command(after_help = "Example:\n    cargo xtask bench sessions --idle 100 1000 --rounds 3")]
    Sessions(sessions::Options),
    /// The whole product with one CRC forced at both ends, next to what the sandbox of `intact bench fastpath` projects. Needs two cores;
    /// root for the congestion control and for priority
    #[command(after_help = "Example:\n    cargo xtask bench stack --quick")]
    Stack(stack::Options),
    /// Our target with protection information, type 1, next to itself without
    Protection {
        #[command(flatten)]
        how: How,
    },
}

impl What {
    /// Whether it says which build is measured.
    fn has_binary(&self) -> bool {
        let output = match self {
            Self::Backup(options) => &options.output,
            Self::DataPath(options) => &options.output,
            Self::Database(options) => &options.output,
            Self::Scaling(options) => &options.output,
            Self::Sessions(options) => &options.output,
            Self::Stack(options) => &options.output,
            _ => return false,
        };
        output.binary.is_some()
    }

    /// The surroundings in which a comparison runs; the others need none.
    fn surroundings(&self) -> Option<&Surroundings> {
        match self {
            Self::Connections { how, .. } | Self::Target { how, .. } | Self::Protection { how } => {
                Some(&how.surroundings)
            }
            Self::Backup(options) => Some(&options.surroundings),
            Self::DataPath(options) => Some(&options.surroundings),
            Self::Database(options) => Some(&options.surroundings),
            Self::Scaling(options) => Some(&options.surroundings),
            Self::Sessions(options) => Some(&options.surroundings),
            Self::Stack(options) => Some(&options.surroundings),
            Self::Fastpath(_) | Self::Idle { .. } | Self::Offload(_) | Self::Pages { .. } => None,
        }
    }
}

/// How to measure, and where the result goes.
#[derive(clap::Args)]
struct How {
    #[command(flatten)]
    surroundings: Surroundings,
    /// Measured seconds of each cell and round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Write the table into its page of docs, and its picture, if it has one, next to that page
    #[arg(long)]
    write: bool,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl How {
    fn keep_json(&self, figures: &impl Serialize) -> Result<()> {
        match &self.json {
            Some(path) => Ok(fs::write(path, serde_json::to_string_pretty(figures)?)?),
            None => Ok(()),
        }
    }
}

/// Whose turn it is in a slice of a round: in every other slice the last of `count` is first.
fn turns(slice: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| if slice.is_multiple_of(2) { turn } else { count - 1 - turn })
}

/// The generator's own figures for one run, and what the run cost the target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    iops: f64,
    mb_per_s: f64,
    reads: u64,
    writes: u64,
    cpu_seconds: f64,
    errors: u64,
    digests_verified: u64,
    digests_failed: u64,
    #[serde(default)]
    target_cpu_seconds: f64,
}

impl Sample {
    fn ios(&self) -> f64 {
        (self.reads + self.writes) as f64
    }

    /// Measured time, seconds.
    fn seconds(&self) -> f64 {
        self.ios() / self.iops
    }

    /// The figures of both runs together.
    fn add(&mut self, other: &Sample) {
        let seconds = self.seconds() + other.seconds();
        let bytes = self.mb_per_s * self.seconds() + other.mb_per_s * other.seconds();
        self.reads += other.reads;
        self.writes += other.writes;
        self.cpu_seconds += other.cpu_seconds;
        self.errors += other.errors;
        self.digests_verified += other.digests_verified;
        self.digests_failed += other.digests_failed;
        self.target_cpu_seconds += other.target_cpu_seconds;
        (self.iops, self.mb_per_s) = (self.ios() / seconds, bytes / seconds);
    }

    /// Seconds of the target's CPU time per 10^9 bytes.
    fn target_cpu_per_gb(&self, row: &Row) -> f64 {
        self.target_cpu_seconds / (self.ios() * row.block_bytes as f64 / 1e9)
    }

    /// Seconds of the target's CPU time per 100,000 commands.
    fn target_cpu_per_100k(&self) -> f64 {
        self.target_cpu_seconds / (self.ios() / 1e5)
    }

    /// Seconds of the generator's CPU time per 10^9 bytes.
    fn client_cpu_per_gb(&self, row: &Row) -> f64 {
        self.cpu_seconds / (self.ios() * row.block_bytes as f64 / 1e9)
    }
}

/// Runs the task.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    if !args.what.has_binary() {
        build(root)?;
    }
    let intact = release_binary(root);
    if let Some(surroundings) = args.what.surroundings()
        && !surroundings.are_here()?
    {
        return Ok(true);
    }
    match &args.what {
        What::Connections { what, how } => {
            let cells = connections::run(&intact, what, how)?;
            how.keep_json(&cells)?;
            let text = connections::markdown(&cells, &report::machine(root), how);
            println!("{text}");
            if how.write {
                report::write(&root.join("docs/mcs.md"), connections::BEGIN, &text)?;
            }
        }
        What::Backup(options) => backup::run(root, &intact, options)?,
        What::Database(options) => database::run(root, &intact, options)?,
        What::DataPath(options) => pinned::run(root, &intact, options)?,
        What::Target { only, how } => targets(root, &intact, only.as_deref(), how)?,
        What::Scaling(options) => scaling::run(root, &intact, options)?,
        What::Sessions(options) => sessions::run(root, &intact, options)?,
        What::Stack(options) => stack::run(root, &intact, options)?,
        What::Fastpath(options) => fastpath::run(root, &intact, options)?,
        What::Idle { seconds, write } => {
            let table = idle::run(&intact, *seconds)?;
            let text =
                format!("{}\nCPU time and wake-ups over {seconds} s.\n\n{table}", report::machine(root));
            println!("{text}");
            if *write {
                report::write(&performance(root), idle::BEGIN, &text)?;
            }
        }
        What::Offload(options) => offload::run(root, &intact, options)?,
        What::Pages { attempts, only } => pages::run(root, &intact, *attempts, only.as_deref())?,
        What::Protection { how } => {
            let cells = protection::run(&intact, how.seconds, how.rounds)?;
            how.keep_json(&cells)?;
            let text = protection::markdown(&cells, &report::machine(root), how.seconds, how.rounds);
            println!("{text}");
            if how.write {
                report::write(&performance(root), protection::BEGIN, &text)?;
            }
        }
    }
    Ok(true)
}

fn performance(root: &Path) -> PathBuf {
    root.join("docs/performance.md")
}

fn targets(root: &Path, intact: &Path, only: Option<&str>, how: &How) -> Result<()> {
    let scratch = tempfile::tempdir().context("no place for the servers' files")?;
    let volume = format!("ram:{}", servers::VOLUME_BYTES);
    let servers = [
        servers::intact(place::target(intact), &volume)?,
        servers::tgt(place::target("tgtd"), scratch.path())?,
    ];
    for server in &servers {
        place::fill(intact, server)?;
    }
    let rows = ROWS.iter().filter(|row| only.is_none_or(|part| row.name.contains(part)));
    let rows: Vec<Placed> =
        rows.flat_map(|row| PLACEMENTS.iter().map(|place| Placed { row, place })).collect();
    let mut table = Table::new(&rows);
    let total = how.rounds * rows.len() * 2 * servers.len();
    let mut done = 0;
    for _ in 0..how.rounds {
        for (r, Placed { row, place }) in rows.iter().enumerate() {
            for digests in [false, true] {
                for (s, server) in servers.iter().enumerate() {
                    let run = measure(place.client(intact), server, "", row, digests, how.seconds)?;
                    table.add(r, digests, s, run);
                    done += 1;
                    progress::show(format_args!("{done} of {total} runs"));
                }
            }
        }
    }
    progress::end();
    how.keep_json(&table)?;
    let text = table.markdown(&report::machine(root), how.seconds, how.rounds);
    println!("{text}");
    if how.write {
        report::write(&performance(root), report::BEGIN, &text)?;
        fs::write(root.join("docs/performance.svg"), table.svg())?;
    }
    Ok(())
}

/// The median of `values`.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    judge::Rounds::new(values).median()
}

fn build(root: &Path) -> Result<()> {
    let status = Command::new("cargo")
        .args(["build", "--release", "-q", "-p", "intact"])
        .current_dir(root)
        .status()?;
    if !status.success() {
        bail!("cargo build --release -p intact failed");
    }
    Ok(())
}

fn release_binary(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release/intact")
}

/// One run of the load generator, started by `generator`, against one server, with `query` appended to its URL.
fn measure(
    mut generator: Command,
    server: &Server,
    query: &str,
    row: &Row,
    digests: bool,
    seconds: f64,
) -> Result<Sample> {
    let before = server.cpu_seconds()?;
    let output = generator
        .args([
            "bench",
            "--json",
            "--overwrite",
            "--warmup",
            "0s",
            "--region",
            &REGION_BYTES.to_string(),
            "--rw",
            row.rw,
            "--pattern",
            row.pattern,
        ])
        .args([
            "--block",
            &row.block_bytes.to_string(),
            "--depth",
            &row.depth.to_string(),
            "--sessions",
            &row.sessions.to_string(),
            "--time",
            &format!("{seconds}s"),
        ])
        .args(["--digests", if digests { "on" } else { "off" }])
        .arg(format!("{}{query}", server.url))
        .output()
        .context("cannot run intact bench")?;
    let target_cpu_seconds = server.cpu_seconds()? - before;
    if !output.status.success() {
        bail!("{} against {}: {}", row.name, server.name, String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut samples: Vec<Sample> =
        serde_json::from_slice(&output.stdout).context("intact bench printed no JSON")?;
    let Some(mut sample) = samples.pop() else { bail!("intact bench measured nothing") };
    if sample.errors > 0 || sample.digests_failed > 0 {
        bail!(
            "{} against {}: {} commands and {} digests failed",
            row.name,
            server.name,
            sample.errors,
            sample.digests_failed
        );
    }
    sample.target_cpu_seconds = target_cpu_seconds;
    Ok(sample)
}
