//! `intact group`: the access states of target port groups of the server on this machine (SPC-4 5.15).

use std::path::PathBuf;
use std::process::ExitCode;

use target::observe::AccessStateInfo;
use target::observe::control::{Answer, Request, ask};

use super::lun::print_changes;
use super::{FAILED, fail};
use crate::output::print;

/// Arguments of `intact group`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a group, prints the states. Every initiator is told of a change by a unit attention. It lasts until the\n\
    configuration gives the group another state, a host sets one, or the server is started again.\n\n\
    Examples:\n  intact group iqn.2026-01.io.intact:disk\n  \
    intact group iqn.2026-01.io.intact:disk 2 standby\n\n\
    Exit codes: 0 changed or printed; 1 it cannot be, or no server answers; 2 wrong usage."
)]
pub struct Args {
    /// The target.
    #[arg(value_name = "IQN")]
    target: String,
    /// The target port group: the group_tag of its portals.
    #[arg(value_name = "GROUP", requires = "state")]
    group: Option<u16>,
    /// active-optimized, active-non-optimized, standby, unavailable or transitioning.
    #[arg(value_name = "STATE")]
    state: Option<String>,
    /// The control socket of the server, when it is not in its usual place.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let Args { target, group, state, control } = args;
    let request = match (group, state) {
        (Some(group), Some(state)) => Request::SetAccessState { target, group, state },
        _ => Request::AccessStates { target },
    };
    match ask(control.as_deref(), &request) {
        Ok(Answer::Changed(lines)) => print_changes(&lines),
        Ok(Answer::AccessStates(states)) => print(&table(&states)),
        Ok(_) => fail(FAILED, "the server answered something else; is it of the same version?"),
        Err(error) => fail(FAILED, error),
    }
}

fn table(states: &[AccessStateInfo]) -> String {
    let line = |info: &AccessStateInfo| format!("{:<5} {:<6} {}\n", info.lun, info.group, info.state);
    let lines: String = states.iter().map(line).collect();
    format!("{:<5} {:<6} STATE\n{lines}", "LUN", "GROUP")
}
