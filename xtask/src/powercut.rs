//! `cargo xtask powercut`, `kill` and `database`: long campaigns of three tests that the gate runs briefly. The first replays power
//! cuts and killed processes below the stores of `blockstore`, the second kills `intact serve` under load; both over combinations
//! of options. The third kills it under PostgreSQL.

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

#[derive(clap::Args)]
#[command(after_help = "Example:\n    cargo xtask database --cycles 3 --scale 1")]
pub struct DatabaseArgs {
    /// How often the target is killed
    #[arg(long, default_value_t = 10)]
    cycles: u64,
    /// How often the guest is killed afterwards, in turn with the target and alone
    #[arg(long, default_value_t = 2)]
    cuts: u64,
    /// pgbench's scale: 100,000 accounts each
    #[arg(long, default_value_t = 10)]
    scale: u64,
    /// Transactions of each of the four clients in a cycle
    #[arg(long, default_value_t = 300)]
    transactions: u64,
}

/// Replays cuts; `false` means that a block was wrong, lost or unreadable.
pub fn powercut(root: &Path, args: &PowercutArgs) -> Result<bool> {
    let numbers = [("INTACT_POWER_CUTS", args.cuts), ("INTACT_POWER_SEED", args.seed)];
    test(root, &["--package", "intact-blockstore", "--lib", "power_cuts::"], &numbers)
}

/// Kills servers; `false` means the same as for `powercut`.
pub fn kill(root: &Path, args: &KillArgs) -> Result<bool> {
    let kills = args.rounds.div_ceil(SERVERS);
    test(root, &["--package", "intact", "--test", "program", "durability::"], &[("INTACT_KILLS", kills)])
}

/// Kills the target of a database; `false` means that it has lost a transaction or cannot be read.
pub fn database(root: &Path, args: &DatabaseArgs) -> Result<bool> {
    let numbers = [
        ("INTACT_DATABASE_CYCLES", args.cycles),
        ("INTACT_DATABASE_CUTS", args.cuts),
        ("INTACT_DATABASE_SCALE", args.scale),
        ("INTACT_DATABASE_TRANSACTIONS", args.transactions),
    ];
    test(root, &["--package", "intact", "--test", "program", "database::"], &numbers)
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
