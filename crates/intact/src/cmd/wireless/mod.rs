//! `intact wireless`: storage over 802.11, and the experiments of the 2004 thesis about several connections on such links.
//!
//! The models and the medium are in the crate `wireless`, their comparison with the thesis in `studies`.

mod lab;
mod model;
mod run;

use std::process::ExitCode;

use clap::Subcommand;

/// Arguments of `intact wireless`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact wireless model\n  \
    intact wireless model --html model.html\n  \
    intact wireless lab --quick\n  \
    intact wireless run --link 802.11b --peer 'iperf3 -s -1' -- iperf3 -c 10.77.0.2\n\n\
    Exit codes: 0 done; 1 it failed; 2 wrong usage.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print and plot the thesis' equations, with its numbers next to ours, and its errors.
    Model(model::Args),
    /// Repeat the thesis' experiments in discrete events, with the real target and initiator.
    Lab(lab::Args),
    /// Run a program on an emulated link, in real time, in a network of its own.
    Run(run::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    match &args.what {
        What::Model(args) => model::run(args),
        What::Lab(args) => lab::run(args),
        What::Run(args) => run::run(args),
    }
}
