//! `intact wireless model`: the study [`model`].

use std::process::ExitCode;

use studies::wireless::model;

use crate::cmd::forms::Forms;

/// Arguments of `intact wireless model`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact wireless model                        the tables\n  \
    intact wireless model --html model.html      with plots, as a page that needs no network\n\n\
    Exit codes: 0 done; 1 it failed; 2 wrong usage.")]
pub struct Args {
    /// Shorter runs of the medium where it is compared with equations.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    args.forms.show(Ok(model::report(args.quick)), |report, _| report.document())
}
