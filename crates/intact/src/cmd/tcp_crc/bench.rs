//! `intact tcp-crc bench`: the study [`tcp_crc`].

use std::process::ExitCode;

use studies::tcp_crc::{self, Options};

use crate::cmd::forms::Forms;

/// Arguments of `intact tcp-crc bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "missed: segments are damaged in memory, and every checksum judges them; it takes no rights. cost: the kernel runs the programs \
    of `--backend bpf` with packets and takes the time; it takes root. throughput: a stream between two network namespaces, plain, by a shim and by \
    the kernel's programs in turn; it takes root, and a machine with nothing else to do.\n\n\
    Examples:\n  intact tcp-crc bench --part missed --trials 1000000 --html missed.html\n  intact tcp-crc bench --part throughput --seconds 2\n  intact tcp-crc bench --markdown results\n\n\
    Exit codes: 0 done; 1 BPF or TUN is not to be had here, or wrong bytes arrived; 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    args.forms.show(tcp_crc::measure(&args.options, args.forms.progress()), tcp_crc::document)
}
