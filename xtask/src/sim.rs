//! `cargo xtask sim`: builds the simulator with its profile and passes it its arguments. The simulator documents them
//! (`cargo xtask sim --help`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::cargo;

/// Seeds that the gate runs, if there is enough time.
pub const GATE_SEEDS: &str = "10000";
/// Time limit for the simulator in the gate, seconds.
pub const GATE_SECONDS: &str = "90";

#[derive(clap::Args)]
pub struct Args {
    /// Arguments of the simulator: `--seed N --transcript`, `--seeds N`, `table`, ...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<String>,
}

/// Runs the simulator; `false` means that it found an error.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    simulate(root, &args.rest)
}

/// The step of the gate.
pub fn gate(root: &Path) -> Result<bool> {
    let args = ["--seeds", GATE_SEEDS, "--seconds", GATE_SECONDS].map(str::to_owned);
    simulate(root, &args)
}

fn simulate(root: &Path, args: &[String]) -> Result<bool> {
    let status = Command::new(cargo())
        .args(["run", "--quiet", "--profile", "sim", "--package", "intact-sim", "--"])
        .args(args)
        .current_dir(root)
        .status()
        .context("cargo did not start")?;
    Ok(status.success())
}
