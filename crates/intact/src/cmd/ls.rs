//! `intact ls WHAT`: hands over to the file that knows what is asked for.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{MISUSED, fail, list};

/// Arguments of `intact ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  intact ls sessions\n  intact ls logins --json\n\n\
    Exit codes: 0 listed; 1 the server cannot be asked; 2 wrong usage.")]
pub struct Args {
    /// sessions, luns, targets or logins of the server on this machine.
    #[arg(value_name = "WHAT")]
    what: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The control socket of the server, when it is not in its usual place.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match list::What::parse(&args.what) {
        Some(what) => list::run(what, args.control.as_deref(), args.json),
        None => fail(
            MISUSED,
            format_args!("`{}` cannot be listed; write sessions, luns, targets or logins", args.what),
        ),
    }
}
