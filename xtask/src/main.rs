//! The project's own tasks: `cargo xtask check | tidy | cite | fuzz | mutants | sim | powercut | kill | database | bench | ns3 | bpf | vectors`.
//!
//! `check` is the only gate while working and on CI; the others are its steps, or tasks that take too long for it. `docs/ci.md`
//! lists every check.
#![forbid(unsafe_code)]

mod aarch64;
mod bench;
mod bpf;
mod check;
mod cite;
mod fuzz;
mod miri;
mod mutants;
mod ns3;
mod powercut;
mod rust_source;
mod sim;
mod tidy;
mod vectors;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The gate: fmt, tidy, cite, clippy, doc, deny, tests, sim and aarch64, each one timed; ends with `N passed, N failed`
    Check(check::Args),
    /// The house rules that no compiler checks: which crate may import which, forbidden words, file length,
    /// manifests, links
    Tidy,
    /// Which rows of conformance/*.md have code, which have a test, and what is missing for the rows in scope
    Cite(cite::Args),
    /// Run each fuzz target for a while
    Fuzz(fuzz::Args),
    /// Plant faults in the crates of the data path, one at a time, and report those that no test notices; takes hours
    Mutants(mutants::Args),
    /// Run whole targets and initiators from seeds on a virtual clock
    #[command(disable_help_flag = true)]
    Sim(sim::Args),
    /// Replay power cuts and killed processes over all combinations of options
    Powercut(powercut::PowercutArgs),
    /// Kill the server under load repeatedly, over combinations of options
    Kill(powercut::KillArgs),
    /// Kill the target of a PostgreSQL repeatedly, and at last its host: nothing committed may be missing; needs the Linux guest
    Database(powercut::DatabaseArgs),
    /// Measure our target: next to another one, idle, with protection information, over several connections
    Bench(bench::Args),
    /// Compare the model of 802.11 with ns-3's; needs libns3-dev and g++, else nothing is compared
    Ns3(ns3::Args),
    /// Rebuild the object of the BPF programs after a change of their source (clang, llvm, libbpf-dev)
    Bpf,
    /// Write the golden vectors of checksums in vectors/
    Vectors,
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one task; `false` means that it ran and found an error.
fn run(task: Task) -> Result<bool> {
    let root = workspace::root()?;
    match task {
        Task::Check(args) => check::run(&root, &args),
        Task::Tidy => tidy::run(&root),
        Task::Cite(args) => cite::run(&root, &args),
        Task::Fuzz(args) => fuzz::run(&root, &args),
        Task::Mutants(args) => mutants::run(&root, &args),
        Task::Sim(args) => sim::run(&root, &args),
        Task::Powercut(args) => powercut::powercut(&root, &args),
        Task::Kill(args) => powercut::kill(&root, &args),
        Task::Database(args) => powercut::database(&root, &args),
        Task::Bench(args) => bench::run(&root, &args),
        Task::Ns3(args) => ns3::run(&root, &args),
        Task::Bpf => bpf::run(&root),
        Task::Vectors => vectors::run(&root),
    }
}
