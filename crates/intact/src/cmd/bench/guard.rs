//! `intact bench guard`: the study [`guard`].

use std::process::ExitCode;

use studies::guard::{self, Options};

use crate::cmd::forms::Forms;
use crate::output;

/// Arguments of `intact bench guard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench guard                              everything: a few minutes\n  \
    intact bench guard --quick                      a first impression: seconds\n  \
    intact bench guard --disk file --dir /mnt/array --html guard.html\n\n\
    Exit codes: 0 measured; 1 it failed, or a guard was wrong; 2 wrong usage. A noisy machine is no failure: the result\n\
    says so.")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// List what can be measured.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    match args.list {
        true => output::print(&guard::list()),
        false => args.forms.show(guard::measure(&args.options, args.forms.progress()), guard::document),
    }
}
