//! CRC32C in TCP: which errors which checksum misses, what the CRC costs in the kernel, how fast streams are with it, and damage that
//! only the CRC detects ([`demo`]).

mod cost;
pub mod demo;
mod errors;
mod missed;
mod throughput;

use clap::ValueEnum;
use harness::Failure;
use harness::document::{Document, Extent, Trust};
use harness::progress::Progress;
use serde::Serialize;

/// What to measure, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// A part; may be repeated. Without it all.
    #[arg(long, value_enum, value_name = "PART")]
    part: Vec<Part>,
    /// missed: damaged segments of each class.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    trials: u32,
    /// missed: what segments and errors are drawn from.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// cost, throughput: rounds, over which the median is taken: everything in turn in each.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// cost: segments of each measurement.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    segments: u32,
    /// throughput: seconds of each measurement; a round has eight.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The errors that each checksum misses, by class
    Missed,
    /// The time of a segment in the kernel's programs
    Cost,
    /// Throughput and processor time of a stream: plain, by a shim, by the kernel's programs
    Throughput,
}

/// The result of the parts that were asked for.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<missed::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<cost::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    throughput: Option<throughput::Report>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.ok_or_else(|| "seconds are from 0.1 to 60".to_owned())
}

/// Measures.
///
/// # Errors
/// BPF or TUN is not to be had here, or wrong bytes arrived.
pub fn measure(options: &Options, progress: Progress) -> Result<Report, Failure> {
    let wanted = |part| options.part.is_empty() || options.part.contains(&part);
    // What can fail goes first.
    let cost = wanted(Part::Cost)
        .then(|| cost::Report::measure(options.rounds, options.segments, &progress.bar(0)))
        .transpose()
        .map_err(|error| error.to_string())?;
    let throughput = wanted(Part::Throughput)
        .then(|| throughput::Report::measure(options.rounds, options.seconds, &progress.bar(0)))
        .transpose()
        .map_err(|error| error.to_string())?;
    let missed =
        wanted(Part::Missed).then(|| missed::Report::count(options.trials, options.seed, &progress.bar(0)));
    Ok(Report { missed, cost, throughput })
}

/// The figures for people.
pub fn document(report: &Report, _: Extent) -> Document {
    let mut blocks = Vec::new();
    blocks.extend(report.missed.iter().flat_map(missed::blocks));
    blocks.extend(report.cost.iter().flat_map(cost::blocks));
    blocks.extend(report.throughput.iter().flat_map(throughput::blocks));
    let cost = report.cost.iter().map(cost::Report::reasons);
    let reasons: Vec<_> = cost.chain(report.throughput.iter().map(throughput::Report::reasons)).collect();
    Document {
        title: "CRC32C in TCP".to_owned(),
        trust: if reasons.is_empty() { Trust::Computed } else { Trust::Measured(reasons.concat()) },
        blocks,
    }
}
