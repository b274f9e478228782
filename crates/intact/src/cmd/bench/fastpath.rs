//! `intact bench fastpath`: the study [`fastpath`].

use std::process::ExitCode;

use studies::fastpath::{self, Options, Profiled};

use crate::cmd::failure;
use crate::cmd::forms::Forms;
use crate::output;

/// Arguments of `intact bench fastpath`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact bench fastpath                       everything: a few minutes\n  \
    intact bench fastpath --quick               a first impression: seconds\n  \
    intact bench fastpath --html fastpath.html\n\n\
    Exit codes: 0 measured; 1 it failed, or a byte was wrong; 2 wrong usage. A noisy machine is no failure: the result\n\
    says so.")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// List the CRCs that can be measured.
    #[arg(long)]
    list: bool,
    /// Only receive 256 PDUs of 8 KiB in this way, for a profiler, and print how many: see `cargo xtask bench fastpath`.
    #[arg(long, value_name = "WAY", conflicts_with_all = ["rounds", "threads", "quick", "list"])]
    profile: Option<Profiled>,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    if args.list {
        return output::print(&fastpath::list());
    }
    match args.profile {
        Some(what) => match what.run() {
            Ok(pdus) => output::print(&format!("{pdus}\n")),
            Err(why) => failure(&why),
        },
        None => args.forms.show(fastpath::measure(&args.options, args.forms.progress()), fastpath::document),
    }
}
