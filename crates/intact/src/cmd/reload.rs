//! `intact reload`: as SIGHUP to the server on this machine, with the answer.

use std::path::PathBuf;
use std::process::ExitCode;

use target::observe::control::{Answer, Request, ask};

use super::lun::print_changes;
use super::{FAILED, fail};

/// Arguments of `intact reload`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 read and applied; 1 the old configuration stays, or no server answers; 2 wrong usage."
)]
pub struct Args {
    /// The control socket of the server, when it is not in its usual place.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match ask(args.control.as_deref(), &Request::Reload) {
        Ok(Answer::Reload(lines)) => print_changes(&lines),
        Ok(_) => fail(FAILED, "the server answered something else; is it of the same version?"),
        Err(error) => fail(FAILED, error),
    }
}
