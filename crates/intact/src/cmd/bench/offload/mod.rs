//! `intact bench offload`: the study [`offload`], and the commands of which a profiler counts the instructions that it shows.

mod counted;
#[cfg(feature = "rtl")]
mod waveform;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use iscsi_core::params::DigestPolicy;
use studies::offload::{self, Report};

use crate::cmd::client::ClientArgs;
use crate::cmd::forms::Forms;
#[cfg(not(feature = "rtl"))]
use crate::cmd::{MISUSED, fail};

/// Arguments of `intact bench offload`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench offload\n  \
    intact bench offload --html offload.html\n  \
    intact bench offload --trace read.fst\n  \
    intact bench offload --trace write.fst --trace-of write\n\n\
    Exit codes: 0 shown; 1 it failed; 2 wrong usage.")]
pub struct Args {
    /// Write the waveform of one read or write of 1024 bytes by the circuit to this file (FST, for GTKWave or Surfer), and show
    /// nothing else. The program must be built with the circuits.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "full", "html", "markdown"])]
    trace: Option<PathBuf>,
    /// Of what the waveform is.
    #[arg(long, value_name = "COMMAND", default_value = "read", requires = "trace")]
    trace_of: Traced,
    #[command(flatten)]
    profile: Profile,
    #[command(flatten)]
    forms: Forms,
}

/// What a waveform shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Traced {
    Read,
    Write,
}

/// What a profiler counts.
#[derive(Debug, clap::Args)]
struct Profile {
    /// Only send commands to this LUN, for a profiler, and print how many: see `cargo xtask bench offload`.
    /// Writes destroy what is on it.
    #[arg(long = "profile", value_name = "URL")]
    url: Option<String>,
    /// Bytes of a command.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = blockstore::parse_size, requires = "url")]
    block: u64,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "url")]
    commands: u32,
    /// How many of them are under way at a time.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "url")]
    depth: u32,
    /// Write instead of read.
    #[arg(long, requires = "url")]
    write: bool,
    /// With neither digest instead of both.
    #[arg(long, requires = "url")]
    no_digests: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Profile {
    fn policy(&self) -> DigestPolicy {
        if self.no_digests { DigestPolicy::Off } else { DigestPolicy::Required }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    match (&args.trace, &args.profile.url) {
        (Some(path), _) => waveform(path, args.trace_of, args.forms.json()),
        (None, Some(url)) => counted::run(&args.profile, url),
        (None, None) => args.forms.show(Ok(Report::read()), offload::document),
    }
}

#[cfg(feature = "rtl")]
fn waveform(path: &Path, traced: Traced, json: bool) -> ExitCode {
    waveform::write(path, traced, json)
}

#[cfg(not(feature = "rtl"))]
fn waveform(_: &Path, _: Traced, _: bool) -> ExitCode {
    let remedy = "scripts/setup.sh rtl, and then cargo build --release -p intact --features rtl";
    fail(
        MISUSED,
        format_args!("this program was built without the circuits, so it has no waveform: {remedy}"),
    )
}
