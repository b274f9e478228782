//! `intact ls WHAT|URL`: calls the module for the requested list.

use std::process::ExitCode;

use initiator::IscsiUrl;

use super::client::ClientArgs;
use super::server::ServerArgs;
use super::{MISUSED, fail, list, portal};

/// Arguments of `intact ls`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  intact ls iscsi://127.0.0.1\n  intact ls sessions\n  intact ls logins --json\n\n\
    Exit codes: 0 listed; 1 the portal or the server cannot be asked; 2 wrong usage."
)]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port][/target], or sessions, luns, targets or logins of the server on this machine.
    #[arg(value_name = "URL|WHAT")]
    what: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    if IscsiUrl::is_url(&args.what) {
        return portal::run(&args.what, &args.client, args.server.json);
    }
    match list::What::parse(&args.what) {
        Some(what) => list::run(what, &args.server),
        None => fail(
            MISUSED,
            format_args!(
                "`{}` cannot be listed; write a URL such as iscsi://127.0.0.1, or sessions, luns, targets or logins",
                args.what
            ),
        ),
    }
}
