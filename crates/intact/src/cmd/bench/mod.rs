//! `intact bench`: the speed of a LUN and of checksums on this machine, where the
//! cycles of a received PDU go, the cost of guards on the way to a disk, and the offload engine beside a paper's.
//!
//! The benchmarks of a LUN are here; the others are studies of the crate `studies`, and here is only their command line.

mod checksum;
mod crowd;
mod fastpath;
mod guard;
mod lun;
mod offload;

use std::process::ExitCode;

use clap::Subcommand;

/// Arguments of `intact bench`. Without a subcommand they are those of `lun`, the most frequent benchmark.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    override_usage = "intact bench [lun] [OPTIONS] <URL>\n       intact bench checksum [OPTIONS]\n       intact bench fastpath [OPTIONS]\n       intact bench guard [OPTIONS]\n       intact bench offload [OPTIONS]"
)]
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    lun: lun::Args,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure a LUN: operations and bytes per second, latencies, CPU time. This is the default.
    Lun(Box<lun::Args>),
    /// Measure checksums on this machine: published ones, this program's and those of other crates.
    Checksum(Box<checksum::Args>),
    /// Measure where the cycles of a received PDU go, without sockets.
    Fastpath(Box<fastpath::Args>),
    /// Act as many initiators, for `cargo xtask bench sessions`.
    #[command(hide = true)]
    Crowd(crowd::Args),
    /// Measure the cost of sector guards for a program that writes to a disk.
    Guard(Box<guard::Args>),
    /// Show the offload engine beside the 2013 paper's: cycles, area, clock, and what the host is left to do.
    Offload(Box<offload::Args>),
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match args.what {
        Some(What::Checksum(args)) => checksum::run(&args),
        Some(What::Crowd(args)) => crowd::run(&args),
        Some(What::Fastpath(args)) => fastpath::run(&args),
        Some(What::Guard(args)) => guard::run(&args),
        Some(What::Offload(args)) => offload::run(&args),
        Some(What::Lun(args)) => lun::run(*args),
        None => lun::run(args.lun),
    }
}
