//! `intact reload`: like SIGHUP to the server on this machine, and prints the result.

use std::process::ExitCode;

use server::control::Request;

use super::server::ServerArgs;

/// Arguments of `intact reload`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The server was started with -c FILE. A file that cannot be used changes nothing.\n\n\
    Example:\n  intact check /etc/intact.toml && intact reload\n\n\
    Exit codes: 0 read and applied; 1 the old configuration stays, or no server answers; 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    args.server.change(&Request::Reload)
}
