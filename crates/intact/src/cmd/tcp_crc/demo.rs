//! `intact tcp-crc demo`: the study [`demo`].

use std::process::ExitCode;

use studies::tcp_crc::demo::{self, Options};

use super::{Backend, Protocol};
use crate::cmd::forms::Forms;
use crate::cmd::{FAILED, MISUSED, fail, failure};

/// Arguments of `intact tcp-crc demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It takes root, /dev/net/tun and ip (and BPF for --backend bpf); nothing outside its own network namespaces is touched.\n\n\
    Examples:\n  intact tcp-crc demo\n  intact tcp-crc demo --ipv6 --values 6 --damaged 1000000 --every 1 --markdown damage\n\n\
    Exit codes: 0 without a CRC wrong bytes arrived and with it none; 1 anything else; 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    protocol: Protocol,
    /// What adds the CRC at both ends.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let config = match args.protocol.config() {
        Ok(config) => config,
        Err(error) => return fail(MISUSED, error),
    };
    let outcome = match demo::measure(&args.options, config, args.backend.choose(), args.forms.progress()) {
        Ok(outcome) => outcome,
        Err(why) => return failure(&why),
    };
    let shown = outcome.is_shown();
    let code = args.forms.show(Ok(outcome), demo::document);
    if code != ExitCode::SUCCESS || shown {
        return code;
    }
    fail(FAILED, "this is not what a CRC is for: see the table")
}
