//! `intact bench checksum`: repeats the measurements of two papers on this machine, next to this program's own kernels.
//!
//! - Sahu 2019, chapters 5 and 6 and Tables A.1 to A.6: thirteen checksums, cycles per byte by size of the buffer;
//! - Petersen 2007, Table 2: five checksums of one large buffer;
//! - this program's kernels next to other crates, memcpy and a plain read.
//!
//! Invariants:
//! - Every result is compared with one computed in another way; a wrong one ends the run.
//! - Contenders take turns, so that a disturbance affects all alike; the result begins with a warning if there
//!   was one.
//!
//! Not here: figures of other architectures.

mod contenders;
mod memory;
mod papers;
mod report;
mod sampling;
mod tables;

use clap::ValueEnum;
use integrity::{KERNEL_VARIABLE, kernels};

use self::contenders::{Contender, Group};
pub use self::report::Report;
use self::report::{GroupFacts, SCHEMA, Settings};
use self::sampling::Plan;
pub use self::tables::document;
use crate::clock::Clock;
use crate::sizes::sizes;
use harness::Failure;
use harness::machine::Machine;
use harness::noise::{Noise, Snapshot};
use harness::progress::Progress;
use harness::text::Table;

/// Maximum number of samples; all are kept in memory.
const MAX_SAMPLES: u32 = 1_000_000;
/// The samples of --quick.
const QUICK_SIZES: [usize; 5] = [64, 1500, 4096, 9000, 65536];
const QUICK_SAMPLES: usize = 100;
const QUICK_MEMORY_BYTES: u64 = 64 << 20;
const QUICK_MEMORY_RUNS: usize = 3;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The thesis' thirteen, by size.
    Papers,
    /// This program's kernels, other crates, and limits, by size.
    Kernels,
    /// The note's five over one large buffer.
    Memory,
}

/// What to measure, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// Only these algorithms, by the names of --list; a * at the end matches anything.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    algorithms: Vec<String>,
    /// Sizes in bytes, instead of those of the thesis.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = blockstore::parse_size)]
    sizes: Vec<u64>,
    /// Samples of each algorithm at each size [default: 1000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SAMPLES)))]
    samples: Option<u32>,
    /// The large buffer [default: 1 GiB, or half of the memory that is free].
    #[arg(long, value_name = "SIZE", value_parser = blockstore::parse_size)]
    memory: Option<u64>,
    /// Fewer samples and sizes, and a smaller buffer.
    #[arg(long)]
    quick: bool,
}

/// What will be measured.
struct Selection {
    groups: Vec<Group>,
    memory: Vec<Contender>,
}

/// What can be measured, and what this machine can run: a table for people.
pub fn list() -> String {
    let mut table = Table::new(&["NAME", "WHAT", "SOURCE", "PART", "ON THIS MACHINE"]);
    let mut row = |contender: Contender, part: &str| {
        let runs = contender.substitute.map_or("yes".to_owned(), |kernel| format!("no; {kernel} instead"));
        table.row(vec![contender.name, contender.title, contender.source, part.to_owned(), runs]);
    };
    for group in contenders::groups() {
        let part = if group.id == "papers" { "papers" } else { "kernels" };
        group.contenders.into_iter().for_each(|contender| row(contender, part));
    }
    memory::contenders().into_iter().for_each(|contender| row(contender, "memory"));
    format!("{}\n{}\n", table.text(), kernel_in_use())
}

/// Which CRC32C kernel is selected, why, and how to select another one.
fn kernel_in_use() -> String {
    let choice = integrity::kernel_choice();
    let names: Vec<&str> = kernels::available().map(kernels::Kernel::name).collect();
    format!(
        "CRC32C kernel in use: {} ({choice}).\n{KERNEL_VARIABLE} in the environment names another one: {}.",
        choice.kernel().name(),
        names.join(", ")
    )
}

fn select(options: &Options) -> Result<Selection, Failure> {
    let wants = |part| options.part.is_empty() || options.part.contains(&part);
    let mut groups = contenders::groups();
    groups.retain(|group| wants(if group.id == "papers" { Part::Papers } else { Part::Kernels }));
    let mut memory = if wants(Part::Memory) { memory::contenders() } else { Vec::new() };
    for pattern in &options.algorithms {
        let all = groups.iter().flat_map(|group| &group.contenders).chain(&memory);
        if !all.into_iter().any(|contender| matches(pattern, &contender.name)) {
            let what = format!("nothing to measure is called {pattern}; --list says what there is");
            return Err(Failure::Misused(what));
        }
    }
    let wanted = |contender: &Contender| {
        options.algorithms.is_empty()
            || options.algorithms.iter().any(|pattern| matches(pattern, &contender.name))
    };
    groups.iter_mut().for_each(|group| group.contenders.retain(wanted));
    groups.retain(|group| !group.contenders.is_empty());
    memory.retain(wanted);
    if let Some(sizes) = wanted_sizes(options)? {
        for group in &mut groups {
            group.sizes = sizes.iter().copied().filter(|bytes| bytes.is_multiple_of(group.unit)).collect();
        }
    }
    Ok(Selection { groups, memory })
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// The requested sizes, ascending, if any.
fn wanted_sizes(options: &Options) -> Result<Option<Vec<usize>>, Failure> {
    let quick = || options.quick.then(|| QUICK_SIZES.to_vec());
    Ok(sizes(&options.sizes, 1)?.or_else(quick))
}

/// Measures.
///
/// # Errors
/// What was asked for is not there, or a checksum was wrong.
pub fn measure(options: &Options, progress: Progress) -> Result<Report, Failure> {
    let Selection { groups, memory } = select(options)?;
    let samples = options.samples.map_or(if options.quick { QUICK_SAMPLES } else { 1000 }, |n| n as usize);
    let plan = Plan { samples };
    let memory_runs = if options.quick { QUICK_MEMORY_RUNS } else { memory::NOTE_RUNS };
    let default_bytes = if options.quick { QUICK_MEMORY_BYTES } else { memory::default_bytes() };
    let memory_bytes = options.memory.unwrap_or(default_bytes);
    if memory_bytes == 0 {
        return Err(Failure::Misused("the large buffer has at least one byte".to_owned()));
    }
    let machine = Machine::this();
    let bar = progress.bar(plan.turns(&groups) + (memory.len() * memory_runs) as u64);
    let before = Snapshot::take();
    let mut clock = Clock::start();
    bar.set_message("samples");
    let all = sampling::run(&groups, &plan, &mut clock, &bar)?;
    bar.set_message("one large buffer");
    let runs = memory::run(memory, memory_bytes, memory_runs, &bar)?;
    bar.finish_and_clear();
    let after = Snapshot::take();
    let frequency = clock.frequency();
    let mut noise =
        Noise::judge(&before, &after, &sampling::round_factors(&all), &clock.core_drift(), &machine);
    let measurements = report::measurements(&groups, &all, &frequency);
    let memory = report::memory(&runs);
    noise.reasons.extend(report::tables_in_place_of_bits(&measurements, &memory));
    Ok(Report {
        schema: SCHEMA,
        benchmark: "checksum",
        machine,
        kernel: integrity::kernel_name(),
        noise,
        settings: Settings { samples, memory_bytes, memory_runs },
        measurements,
        groups: groups
            .into_iter()
            .map(|Group { id, title, about, method, sizes, .. }| GroupFacts {
                id,
                title,
                about,
                method,
                sizes,
            })
            .collect(),
        memory,
        frequency,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_or_beginnings() {
        assert!(matches("crc32c/*", "crc32c/intact") && matches("*", "x") && matches("xor", "xor"));
        assert!(!matches("crc32c", "crc32c/intact") && !matches("copy/*", "crc32c/intact"));
    }
}
