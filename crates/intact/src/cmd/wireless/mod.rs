//! `intact wireless`: storage over 802.11, and the thesis of 2004 that asked what several connections are worth there.
//!
//! The models and the medium are in the crate `wireless`; here they are set against the thesis' numbers, which are in `papers/`,
//! and shown.

mod lab;
mod model;
mod papers;
mod plot;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Arguments of `intact wireless`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact wireless model\n  \
    intact wireless model --html model.html\n  \
    intact wireless lab --quick\n\n\
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
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    match &args.what {
        What::Model(args) => model::run(args),
        What::Lab(args) => lab::run(args),
    }
}
