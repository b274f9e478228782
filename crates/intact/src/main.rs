//! The command `intact`: one subcommand per file in `cmd`.
#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "help texts show what is optional in brackets")]

mod cmd;
mod output;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

const AFTER_HELP: &str = "Logical units are named by URLs: iscsi://[user[%password]@]host[:port]/target/lun[?key=value&...]; \
    docs/initiator.md has the keys.\n\n\
    Examples:\n  intact serve\n  intact ls iscsi://127.0.0.1\n\n\
    Exit codes: 0 done; 1 it failed, or data differ; 2 wrong usage or configuration.";

/// iSCSI with every byte accounted for: a target, an initiator, and tools for both.
#[derive(Debug, Parser)]
#[command(name = "intact", version, after_help = AFTER_HELP, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve volumes over iSCSI.
    Serve(cmd::serve::Args),
    /// Check a configuration file: report each problem with line and remedy.
    Check(cmd::check::Args),
    /// List what a portal offers, or sessions, LUNs, targets or logins of the server on this machine.
    Ls(cmd::ls::Args),
    /// Change a LUN of the server on this machine while it is used: its size, its write protection.
    Lun(cmd::lun::Args),
    /// Show or change the access states of target port groups (ALUA) of the server on this machine.
    Group(cmd::group::Args),
    /// Make the server on this machine read its configuration again.
    Reload(cmd::reload::Args),
    /// Show what a LUN reports about itself.
    Inq(cmd::inq::Args),
    /// Copy between files and LUNs.
    Cp(cmd::cp::Args),
    /// Examine a target step by step, and report what is wrong.
    Doctor(cmd::doctor::Args),
    /// Reset a LUN or a target, or end its commands.
    Reset(cmd::reset::Args),
    /// Make a LUN check its whole medium, and list the bad blocks.
    Scrub(cmd::scrub::Args),
    /// Measure a LUN, checksums, or guards on the way to a disk: bytes per second, latencies, CPU time.
    Bench(cmd::bench::Args),
    /// Storage over 802.11: the models and experiments of a thesis, with its numbers next to ours, and an emulated link.
    Wireless(cmd::wireless::Args),
    /// Test a target against the rows of the conformance table.
    Conform(cmd::conform::Args),
    /// Let unmodified programs' TCP connections carry a CRC32C, and show what that finds.
    TcpCrc(cmd::tcp_crc::Args),
    /// Print a completion script for a shell.
    #[command(hide = true)]
    Completions(cmd::docs::CompletionsArgs),
    /// Print the manual page.
    #[command(hide = true)]
    Man,
}

/// Commands that end or overwrite something. They are never suggested for a misspelled word.
const NEVER_SUGGESTED: [&str; 2] = ["reset", "cp"];

/// Parses the command line with clap, without suggestions that would do harm.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(arguments).map_err(|mut error| {
        let harmful = match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::String(name)) => NEVER_SUGGESTED.contains(&name.as_str()),
            Some(ContextValue::Strings(names)) => {
                names.iter().any(|name| NEVER_SUGGESTED.contains(&name.as_str()))
            }
            _ => false,
        };
        if harmful {
            error.remove(ContextKind::SuggestedSubcommand);
        }
        error
    })
}

fn main() -> ExitCode {
    let cli = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    if !matches!(cli.command, Command::Serve(_)) {
        cmd::client::log_to_stderr();
    }
    match cli.command {
        Command::Serve(args) => cmd::serve::run(args),
        Command::Check(args) => cmd::check::run(args),
        Command::Ls(args) => cmd::ls::run(args),
        Command::Lun(args) => cmd::lun::run(args),
        Command::Group(args) => cmd::group::run(args),
        Command::Reload(args) => cmd::reload::run(args),
        Command::Inq(args) => cmd::inq::run(args),
        Command::Cp(args) => cmd::cp::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Reset(args) => cmd::reset::run(args),
        Command::Scrub(args) => cmd::scrub::run(args),
        Command::Bench(args) => cmd::bench::run(args),
        Command::Wireless(args) => cmd::wireless::run(&args),
        Command::Conform(args) => cmd::conform::run(args),
        Command::TcpCrc(args) => cmd::tcp_crc::run(args),
        Command::Completions(args) => cmd::docs::completions(args, Cli::command()),
        Command::Man => cmd::docs::man(Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_has_an_example_and_its_exit_codes() {
        let cli = super::Cli::command();
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                help.contains("Example") && help.contains("Exit codes: 0"),
                "{}: {help}",
                command.get_name()
            );
        }
    }

    #[test]
    fn no_suggestion_does_harm() {
        let said = |word: &str| match super::parse(["intact", word, "x"].map(Into::into)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("`{word}` is a command"),
        };
        for word in ["target", "create", "delete", "rest", "rese", "cpy"] {
            let text = said(word);
            for harmful in super::NEVER_SUGGESTED {
                assert!(!text.contains(&format!("'{harmful}'")), "{text}");
            }
            assert!(text.contains("unrecognized subcommand"), "{text}");
        }
        assert!(said("serv").contains("'serve'"), "the others are still helped");
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
