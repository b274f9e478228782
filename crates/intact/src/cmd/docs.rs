//! `intact completions SHELL` and `intact man`: for packages.

use std::io;
use std::process::ExitCode;

use clap_complete::Shell;

use super::{FAILED, fail};
use crate::output::print;

/// Arguments of `intact completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Prints a completion script.
pub fn completions(args: CompletionsArgs, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "intact", &mut script);
    print(&script)
}

/// Prints the manual pages of the command, its subcommands and theirs, one after the other.
pub fn man(mut command: clap::Command) -> ExitCode {
    // Gives subcommands their full names and usage lines.
    command.build();
    let mut pages = Vec::new();
    match render(&command, &mut pages) {
        Ok(()) => print(&pages),
        Err(error) => fail(FAILED, format_args!("the manual page cannot be made: {error}")),
    }
}

fn render(command: &clap::Command, pages: &mut Vec<u8>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or(command.get_name()).to_uppercase();
    clap_mangen::Man::new(command.clone()).title(title).render(pages)?;
    let mut subcommands = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    subcommands.try_for_each(|subcommand| render(subcommand, pages))
}
