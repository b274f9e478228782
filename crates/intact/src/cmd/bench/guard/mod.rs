//! `intact bench guard`: what guard tags cost a program that writes to a disk.
//!
//! Petersen 2007, section 3, Figures 1 and 2: one thread writes I/Os of one size after another and computes a guard for
//! each sector of 512 bytes, by the note's algorithms; the results are bytes per second and the load of the processor.
//! This program's own way is measured next to them. The disk is a store of this program: memory, a file through the page
//! cache, or a file with each write on the medium before the next begins.
//!
//! Invariants:
//! - The guards of every write are compared with those of a second implementation, and what was written is read back;
//!   a difference ends the run.
//! - Algorithms take turns, so that a disturbance of the machine affects all alike; if there was one, the result says so
//!   first.
//!
//! What is not here: more than one thread, reads, and the note's Table 2, which is in `intact bench checksum`.

mod algorithms;
mod disks;
mod report;
mod tables;
mod turns;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use self::algorithms::Algorithm;
use self::disks::{Disk, Kind};
use self::report::{Report, SCHEMA, Settings};
use self::tables::document;
use self::turns::Plan;
use crate::cmd::bench::kit::arguments;
use crate::cmd::bench::kit::clock::Clock;
use crate::cmd::bench::kit::oracle::SECTOR_BYTES;
use crate::cmd::client::{parse_size, parse_time};
use crate::cmd::forms::Forms;
use crate::cmd::{FAILED, MISUSED, fail};
use crate::output::{self, Table};
use harness::machine::Machine;
use harness::noise::{Noise, Snapshot};

/// Sizes of an I/O.
const SIZES: [usize; 10] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
/// The note's number of runs.
const RUNS: u32 = 10;
const TURN: Duration = Duration::from_millis(50);
const REGION_BYTES: u64 = 256 << 20;
/// The extent of --quick.
const QUICK_SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
const QUICK_RUNS: u32 = 2;
const QUICK_TURN: Duration = Duration::from_millis(5);
const QUICK_REGION_BYTES: u64 = 16 << 20;
/// Largest disk and longest turn, so that a wrong unit neither fills the memory nor takes for ever.
const MAX_REGION_BYTES: u64 = 16 << 30;
const MAX_TURN: Duration = Duration::from_secs(60);

/// Arguments of `intact bench guard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench guard                              everything: a few minutes\n  \
    intact bench guard --quick                      a first impression: seconds\n  \
    intact bench guard --disk file --dir /mnt/array --html guard.html\n\n\
    Exit codes: 0 measured; 1 it failed, or a guard was wrong; 2 wrong usage. A noisy machine is no failure: the result\n\
    says so.")]
pub struct Args {
    /// Only these disks.
    #[arg(long, value_enum, value_delimiter = ',')]
    disk: Vec<Kind>,
    /// Only these algorithms, by the names of --list.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    algorithms: Vec<String>,
    /// Bytes of an I/O: multiples of 512 [default: 4k to 2m].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<u64>,
    /// Turns of each algorithm at each size on each disk [default: 10, as in the note].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Time of a turn [default: 50ms].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    turn: Option<Duration>,
    /// Bytes of each disk, over which writes go from the beginning to the end and again [default: 256M].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    region: Option<u64>,
    /// The folder for the file, which has no name once it is open [default: that for temporary files].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Fewer and shorter turns, fewer sizes, and small disks.
    #[arg(long)]
    quick: bool,
    /// List what can be measured.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    if args.list {
        return output::print(&list());
    }
    match measure(args) {
        Ok(report) => args.forms.show(&report, document),
        Err(code) => code,
    }
}

fn list() -> String {
    let mut table = Table::new(&["NAME", "WHAT", "SOURCE"]);
    for algorithm in algorithms::all() {
        let cells = [algorithm.name, algorithm.title, algorithm.source];
        table.row(cells.map(str::to_owned).to_vec());
    }
    table.text()
}

fn wanted_algorithms(args: &Args) -> Result<Vec<Algorithm>, ExitCode> {
    let mut all = algorithms::all();
    if let Some(unknown) = args.algorithms.iter().find(|name| all.iter().all(|a| a.name != **name)) {
        let what = format_args!("nothing to measure is called {unknown}; --list says what there is");
        return Err(fail(MISUSED, what));
    }
    all.retain(|a| args.algorithms.is_empty() || args.algorithms.iter().any(|name| name == a.name));
    Ok(all)
}

fn plan(args: &Args) -> Result<Plan, ExitCode> {
    let quick = |quick, else_| if args.quick { quick } else { else_ };
    let sizes =
        arguments::sizes(&args.sizes, SECTOR_BYTES).map_err(|failure| crate::cmd::failure(&failure))?;
    let sizes = sizes.unwrap_or_else(|| quick(QUICK_SIZES.to_vec(), SIZES.to_vec()));
    let runs = args.runs.unwrap_or(if args.quick { QUICK_RUNS } else { RUNS });
    let turn = args.turn.unwrap_or(if args.quick { QUICK_TURN } else { TURN });
    let region_bytes = args.region.unwrap_or(if args.quick { QUICK_REGION_BYTES } else { REGION_BYTES });
    if turn.is_zero() || turn > MAX_TURN {
        return Err(fail(MISUSED, format_args!("a turn lasts more than nothing and at most {MAX_TURN:?}")));
    }
    let largest = sizes.iter().copied().max().unwrap_or(SECTOR_BYTES) as u64;
    if !(largest..=MAX_REGION_BYTES).contains(&region_bytes)
        || !region_bytes.is_multiple_of(SECTOR_BYTES as u64)
    {
        let what = format_args!(
            "--region is whole sectors of {SECTOR_BYTES}, from the largest I/O ({largest} bytes) to {MAX_REGION_BYTES}"
        );
        return Err(fail(MISUSED, what));
    }
    Ok(Plan { sizes, runs, turn, region_bytes })
}

fn measure(args: &Args) -> Result<Report, ExitCode> {
    let algorithms = wanted_algorithms(args)?;
    let plan = plan(args)?;
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let kinds = if args.disk.is_empty() { &Kind::ALL[..] } else { &args.disk };
    let failed = |error: String| fail(FAILED, error);
    let disks: Vec<Disk> = Kind::ALL
        .iter()
        .filter(|kind| kinds.contains(kind))
        .map(|&kind| Disk::open(kind, &dir, plan.region_bytes))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let machine = Machine::this();
    let rows = turns::rows(&disks, &algorithms, &plan);
    let bar = args.forms.progress().bar(rows.len() as u64 * u64::from(plan.runs));
    let before = Snapshot::take();
    let mut clock = Clock::start();
    let rows = turns::run(rows, &disks, &algorithms, &plan, &mut clock, &bar).map_err(failed)?;
    bar.finish_and_clear();
    let after = Snapshot::take();
    let noise = Noise::judge(&before, &after, &turns::round_factors(&rows), &clock.core_drift(), &machine);
    Ok(Report {
        schema: SCHEMA,
        benchmark: "guard",
        machine,
        kernel: integrity::t10::kernel_name(),
        noise,
        settings: Settings {
            runs: plan.runs,
            turn_seconds: plan.turn.as_secs_f64(),
            region_bytes: plan.region_bytes,
            sector_bytes: SECTOR_BYTES,
        },
        disks: disks.iter().map(Disk::facts).collect(),
        measurements: rows.iter().map(|row| row.measurement(&disks, &algorithms)).collect(),
    })
}
