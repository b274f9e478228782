//! `intact bench checksum`: the study [`checksum`].

use std::process::ExitCode;

use studies::checksum::{self, Options};

use crate::cmd::forms::Forms;
use crate::output;

/// Arguments of `intact bench checksum`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench checksum                            everything, as the papers did: a few minutes\n  \
    intact bench checksum --quick                    a first impression: seconds\n  \
    intact bench checksum --part kernels --sizes 48,4k,1m --html checksums.html\n\n\
    Exit codes: 0 measured; 1 it failed, or a checksum was wrong; 2 wrong usage. A noisy machine is no failure: the\n\
    result says so.")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// List what can be measured, and what this machine can run.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    match args.list {
        true => output::print(&checksum::list()),
        false => args.forms.show(checksum::measure(&args.options, args.forms.progress()), checksum::document),
    }
}
