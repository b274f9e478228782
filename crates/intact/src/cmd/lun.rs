//! `intact lun resize|protect|unprotect|reopen`: changes a logical unit of the server on this machine while it is used. And `intact lun
//! identity`, for a volume that no server has open.

use std::process::ExitCode;

use server::control::Request;
use target::observe::LunChange;

use super::server::ServerArgs;

/// Arguments of `intact lun`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Sessions, tasks and reservations stay; every initiator is told by a unit attention. What is changed lasts until the\n\
    configuration is read again: write it there too.\n\n\
    Examples:\n  truncate -s 20G /srv/disk0 && intact lun resize iqn.2026-01.io.intact:disk 0\n  \
    intact lun resize iqn.2026-01.io.intact:disk 1 20G\n  \
    intact lun protect iqn.2026-01.io.intact:disk 0\n  \
    intact lun reopen iqn.2026-01.io.intact:disk 0\n\n\
    Exit codes: 0 changed; 1 it cannot be, or no server answers; 2 wrong usage."
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make it larger: to the current size of its file or device, or to the given size.
    Resize {
        #[command(flatten)]
        unit: Unit,
        /// Its new size. A unit does not shrink.
        #[arg(value_name = "SIZE", value_parser = blockstore::parse_size)]
        size: Option<u64>,
    },
    /// Refuse writes.
    Protect(Unit),
    /// Accept writes again.
    Unprotect(Unit),
    /// Accept writes again after a failed flush, which `intact ls luns` shows. Check the disk first: what was written since the last
    /// good flush may be lost, and reads then return what the disk has. Hosts are notified as after a loss of power.
    Reopen(Unit),
    /// Show the identity of a file that is not being served, or give a copy a new one.
    Identity(super::identity::Args),
}

#[derive(Debug, clap::Args)]
struct Unit {
    /// Its target.
    #[arg(value_name = "IQN")]
    target: String,
    /// Its number.
    #[arg(value_name = "LUN")]
    lun: u16,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let (unit, change) = match args.what {
        What::Identity(args) => return super::identity::run(args),
        What::Resize { unit, size } => (unit, LunChange::Size(size)),
        What::Protect(unit) => (unit, LunChange::WriteProtect(true)),
        What::Unprotect(unit) => (unit, LunChange::WriteProtect(false)),
        What::Reopen(unit) => (unit, LunChange::Reopened),
    };
    unit.server.change(&Request::ChangeLun { target: unit.target, lun: unit.lun, change })
}
