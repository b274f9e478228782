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
use std::time::Duration;

use self::algorithms::Algorithm;
use self::disks::{Disk, Kind};
pub use self::report::Report;
use self::report::{SCHEMA, Settings};
pub use self::tables::document;
use self::turns::Plan;
use crate::clock::Clock;
use crate::oracle::SECTOR_BYTES;
use crate::sizes::sizes;
use harness::Failure;
use harness::machine::Machine;
use harness::noise::{Noise, Snapshot};
use harness::progress::Progress;
use harness::text::{Table, parse_time};

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

/// What to measure, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only these disks.
    #[arg(long, value_enum, value_delimiter = ',')]
    disk: Vec<Kind>,
    /// Only these algorithms, by the names of --list.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    algorithms: Vec<String>,
    /// Bytes of an I/O: multiples of 512 [default: 4k to 2m].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = blockstore::parse_size)]
    sizes: Vec<u64>,
    /// Turns of each algorithm at each size on each disk [default: 10, as in the note].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Time of a turn [default: 50ms].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    turn: Option<Duration>,
    /// Bytes of each disk, over which writes go from the beginning to the end and again [default: 256M].
    #[arg(long, value_name = "SIZE", value_parser = blockstore::parse_size)]
    region: Option<u64>,
    /// The folder for the file, which has no name once it is open [default: that for temporary files].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Fewer and shorter turns, fewer sizes, and small disks.
    #[arg(long)]
    quick: bool,
}

/// What can be measured: a table for people.
pub fn list() -> String {
    let mut table = Table::new(&["NAME", "WHAT", "SOURCE"]);
    for algorithm in algorithms::all() {
        let cells = [algorithm.name, algorithm.title, algorithm.source];
        table.row(cells.map(str::to_owned).to_vec());
    }
    table.text()
}

fn wanted_algorithms(options: &Options) -> Result<Vec<Algorithm>, Failure> {
    let mut all = algorithms::all();
    if let Some(unknown) = options.algorithms.iter().find(|name| all.iter().all(|a| a.name != **name)) {
        let what = format!("nothing to measure is called {unknown}; --list says what there is");
        return Err(Failure::Misused(what));
    }
    all.retain(|a| options.algorithms.is_empty() || options.algorithms.iter().any(|name| name == a.name));
    Ok(all)
}

fn plan(options: &Options) -> Result<Plan, Failure> {
    let quick = |quick, else_| if options.quick { quick } else { else_ };
    let sizes = sizes(&options.sizes, SECTOR_BYTES)?;
    let sizes = sizes.unwrap_or_else(|| quick(QUICK_SIZES.to_vec(), SIZES.to_vec()));
    let runs = options.runs.unwrap_or(if options.quick { QUICK_RUNS } else { RUNS });
    let turn = options.turn.unwrap_or(if options.quick { QUICK_TURN } else { TURN });
    let region_bytes =
        options.region.unwrap_or(if options.quick { QUICK_REGION_BYTES } else { REGION_BYTES });
    if turn.is_zero() || turn > MAX_TURN {
        return Err(Failure::Misused(format!("a turn lasts more than nothing and at most {MAX_TURN:?}")));
    }
    let largest = sizes.iter().copied().max().unwrap_or(SECTOR_BYTES) as u64;
    if !(largest..=MAX_REGION_BYTES).contains(&region_bytes)
        || !region_bytes.is_multiple_of(SECTOR_BYTES as u64)
    {
        let what = format!(
            "--region is whole sectors of {SECTOR_BYTES}, from the largest I/O ({largest} bytes) to {MAX_REGION_BYTES}"
        );
        return Err(Failure::Misused(what));
    }
    Ok(Plan { sizes, runs, turn, region_bytes })
}

/// Measures.
///
/// # Errors
/// What was asked for is not there, a disk failed, or a guard was wrong.
pub fn measure(options: &Options, progress: Progress) -> Result<Report, Failure> {
    let algorithms = wanted_algorithms(options)?;
    let plan = plan(options)?;
    let dir = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let kinds = if options.disk.is_empty() { &Kind::ALL[..] } else { &options.disk };
    let disks: Vec<Disk> = Kind::ALL
        .iter()
        .filter(|kind| kinds.contains(kind))
        .map(|&kind| Disk::open(kind, &dir, plan.region_bytes))
        .collect::<Result<_, _>>()?;
    let machine = Machine::this();
    let rows = turns::rows(&disks, &algorithms, &plan);
    let bar = progress.bar(rows.len() as u64 * u64::from(plan.runs));
    let before = Snapshot::take();
    let mut clock = Clock::start();
    let rows = turns::run(rows, &disks, &algorithms, &plan, &mut clock, &bar)?;
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
