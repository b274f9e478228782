//! `intact bench offload`: the study [`offload`], and the commands of which a profiler counts the instructions that it shows.

mod counted;

use std::process::ExitCode;

use iscsi_core::params::DigestPolicy;
use studies::offload::{self, Report};

use crate::cmd::client::ClientArgs;
use crate::cmd::forms::Forms;

/// Arguments of `intact bench offload`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench offload\n  \
    intact bench offload --html offload.html\n\n\
    Exit codes: 0 shown; 1 it failed; 2 wrong usage.")]
pub struct Args {
    #[command(flatten)]
    profile: Profile,
    #[command(flatten)]
    forms: Forms,
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
    match &args.profile.url {
        Some(url) => counted::run(&args.profile, url),
        None => args.forms.show(Ok(Report::read()), offload::document),
    }
}
