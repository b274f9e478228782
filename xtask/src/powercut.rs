//! `cargo xtask powercut` and `cargo xtask kill`: long campaigns of two tests that the gate runs briefly. The first replays power
//! cuts and killed processes below the stores of `blockstore`, the second kills `intact serve` under load; both over combinations
//! of options.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::cargo;

/// How many servers one run of the second test kills.
const SERVERS: u64 = 6;

#[derive(clap::Args)]
pub struct PowercutArgs {
    /// Number of power cuts
    #[arg(long, default_value_t = 10_000)]
    cuts: u64,
    /// The first seed; a failure names its own
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
pub struct KillArgs {
    /// Total number of servers to kill
    #[arg(long, default_value_t = 10_000)]
    rounds: u64,
}

/// Replays cuts; `false` means that a block was wrong, lost or unreadable.
pub fn powercut(root: &Path, args: &PowercutArgs) -> Result<bool> {
    let numbers = [("INTACT_POWER_CUTS", args.cuts), ("INTACT_POWER_SEED", args.seed)];
    test(root, &["--package", "intact-blockstore", "--lib", "power_cuts::"], &numbers)
}

/// Kills servers; `false` means the same as for `powercut`.
pub fn kill(root: &Path, args: &KillArgs) -> Result<bool> {
    let kills = args.rounds.div_ceil(SERVERS);
    test(root, &["--package", "intact", "--test", "durability"], &[("INTACT_KILLS", kills)])
}

fn test(root: &Path, which: &[&str], numbers: &[(&str, u64)]) -> Result<bool> {
    let status = Command::new(cargo())
        .args(["test", "--quiet"])
        .args(which)
        .args(["--", "--nocapture"])
        .envs(numbers.iter().map(|(name, number)| (name, number.to_string())))
        .current_dir(root)
        .status()
        .context("cargo did not start")?;
    Ok(status.success())
}
