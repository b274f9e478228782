//! `intact group`: the access states of target port groups of the server on this machine (SPC-4 5.15).

use std::process::ExitCode;

use scsi::AccessState;
use server::control::{Answer, Request};
use target::observe::AccessStateInfo;

use super::server::{ServerArgs, unexpected};
use crate::output::{self, Table};

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
    /// Its new state.
    #[arg(value_name = "STATE", value_parser = AccessState::ALL.map(AccessState::name))]
    state: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let Args { target, group, state, server } = args;
    if let (Some(group), Some(state)) = (group, state) {
        return server.change(&Request::SetAccessState { target, group, state });
    }
    match server.ask(&Request::AccessStates { target }) {
        Ok(Answer::AccessStates(states)) => output::show(server.json, &states, || table(&states)),
        Ok(_) => unexpected(),
        Err(code) => code,
    }
}

fn table(states: &[AccessStateInfo]) -> String {
    let mut table = Table::new(&["LUN", "GROUP", "STATE"]);
    for info in states {
        table.row(vec![info.lun.to_string(), info.group.to_string(), info.state.to_string()]);
    }
    table.text()
}
