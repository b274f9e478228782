//! `intact tcp-crc bench`: which errors which checksum misses, what the CRC costs in the kernel, and how fast streams are with it.

mod cost;
mod errors;
mod missed;
mod throughput;

use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use crate::cmd::forms::Forms;
use crate::cmd::{FAILED, fail};
use harness::document::Extent;
use harness::document::{Document, Trust};

/// Arguments of `intact tcp-crc bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "missed: segments are damaged in memory, and every checksum judges them; it takes no rights. cost: the kernel runs the programs \
    of `--backend bpf` with packets and takes the time; it takes root. throughput: a stream between two network namespaces, plain, by a shim and by \
    the kernel's programs in turn; it takes root, and a machine with nothing else to do.\n\n\
    Examples:\n  intact tcp-crc bench --part missed --trials 1000000 --html missed.html\n  intact tcp-crc bench --part throughput --seconds 2\n  intact tcp-crc bench --markdown results\n\n\
    Exit codes: 0 done; 1 BPF or TUN is not to be had here, or wrong bytes arrived; 2 wrong usage."
)]
pub struct Args {
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
    #[command(flatten)]
    forms: Forms,
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

#[derive(Serialize)]
struct Report {
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

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let wanted = |part| args.part.is_empty() || args.part.contains(&part);
    // What can fail goes first.
    let cost = match wanted(Part::Cost) {
        true => match cost::Report::measure(args.rounds, args.segments, &args.forms.progress().bar(0)) {
            Ok(cost) => Some(cost),
            Err(error) => return fail(FAILED, error),
        },
        false => None,
    };
    let throughput = match wanted(Part::Throughput) {
        true => match throughput::Report::measure(args.rounds, args.seconds, &args.forms.progress().bar(0)) {
            Ok(throughput) => Some(throughput),
            Err(error) => return fail(FAILED, error),
        },
        false => None,
    };
    let missed = wanted(Part::Missed)
        .then(|| missed::Report::count(args.trials, args.seed, &args.forms.progress().bar(0)));
    args.forms.show(Ok(Report { missed, cost, throughput }), document)
}

fn document(report: &Report, _: Extent) -> Document {
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
