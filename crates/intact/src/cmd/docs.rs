//! `intact completions SHELL` and `intact man`: for packages.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::Shell;

use super::{FAILED, fail};

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

/// Prints the manual pages of the command and its subcommands, one after the other.
pub fn man(mut command: clap::Command) -> ExitCode {
    // Gives subcommands their full names and usage lines.
    command.build();
    let mut pages = Vec::new();
    let mut render = |command: &clap::Command| {
        let title = command.get_display_name().unwrap_or(command.get_name()).to_uppercase();
        clap_mangen::Man::new(command.clone()).title(title).render(&mut pages)
    };
    let subcommands = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let mut result = render(&command);
    for subcommand in subcommands {
        result = result.and_then(|()| render(subcommand));
    }
    match result {
        Ok(()) => print(&pages),
        Err(error) => fail(FAILED, format_args!("the manual page cannot be made: {error}")),
    }
}

fn print(bytes: &[u8]) -> ExitCode {
    match io::stdout().write_all(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format_args!("cannot write: {error}")),
    }
}
