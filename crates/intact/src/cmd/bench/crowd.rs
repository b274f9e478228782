//! `intact bench crowd`: the [`crowd`], whose answers are lines of JSON.

use std::process::ExitCode;

use studies::crowd::{self, Answer, Options};

use crate::cmd::{FAILED, fail};
use crate::output;

/// Arguments of `intact bench crowd`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
}

/// Runs the command until its standard input ends.
pub fn run(args: &Args) -> ExitCode {
    let answer = |answer: &Answer| {
        // A client that reads no answers gives no more orders either.
        let _ = output::show(true, answer, String::new);
    };
    match crowd::obey(&args.options, answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(FAILED, why),
    }
}
