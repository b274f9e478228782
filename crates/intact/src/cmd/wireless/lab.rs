//! `intact wireless lab`: the study [`lab`].

use std::process::ExitCode;

use studies::wireless::lab::{self, Options};

use crate::cmd::forms::Forms;

/// Arguments of `intact wireless lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact wireless lab --quick                    a first impression\n  \
    intact wireless lab --figure 6.11,6.18         two figures\n  \
    intact wireless lab --html lab.html            everything that is simulated, with charts\n  \
    intact wireless lab --figure 6.4               NFS, in real time (root, NFS-Ganesha, QEMU)\n  \
    intact wireless lab --live --html live.html    everything that is measured in real time\n\n\
    Exit codes: 0 done; 1 an invariant did not hold, or a measurement failed; 2 wrong usage.")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let report = lab::measure(&args.options, args.forms.progress());
    args.forms.show(report, |report, _| report.document())
}
