//! `cargo xtask check`: the only gate. Every step is named and timed, and all steps run even after one has failed. The last line
//! counts: `N passed, N failed`, where each test is one and each other step is one.

mod test_output;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use self::test_output::run_tests;
use crate::workspace::{cargo, on_ci};
use crate::{aarch64, cite, fuzz, miri, sim, tidy};

#[derive(clap::Args)]
pub struct Args {
    /// Run only these steps
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// Also run every fuzz target for this many seconds
    #[arg(long, value_name = "SECONDS")]
    fuzz: Option<u32>,
}

/// The steps, in the order in which they run: the fast ones first, and last the one that runs only when named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    Fmt,
    Tidy,
    Cite,
    Clippy,
    Doc,
    Deny,
    Tests,
    Sim,
    Aarch64,
    Fuzz,
    Miri,
}

/// The result of a step.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// One line for each failed test: its name and the start of its message.
    failures: Vec<String>,
}

impl Count {
    /// A step that is one check.
    fn single(ok: bool) -> Self {
        Self { passed: usize::from(ok), failed: usize::from(!ok), ..Self::default() }
    }
}

/// Runs the steps; `true` when nothing failed.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let mut done: Vec<(Step, Count, Duration)> = Vec::new();
    for &step in Step::value_variants() {
        let wanted = match step {
            _ if !args.only.is_empty() => args.only.contains(&step),
            Step::Fuzz => args.fuzz.is_some() && fuzz::exists(root),
            Step::Miri => false,
            _ => true,
        };
        if !wanted {
            continue;
        }
        println!("=== {}", name(step));
        let start = Instant::now();
        let count = run_step(root, step, args)?;
        done.push((step, count, start.elapsed()));
    }
    println!("=== summary");
    let mut total = Count::default();
    for (step, count, time) in &done {
        let verdict = if count.failed == 0 { "ok" } else { "FAILED" };
        println!("{:<7} {verdict:<7} {:>7.1} s  {}", name(*step), time.as_secs_f64(), details(count));
        total.passed += count.passed;
        total.failed += count.failed;
        total.ignored += count.ignored;
    }
    // A CI page often shows only the end of the output.
    for failure in done.iter().flat_map(|(_, count, _)| &count.failures) {
        println!("FAILED {failure}");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(total.failed == 0)
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn details(count: &Count) -> String {
    match (count.passed, count.failed, count.ignored) {
        (0 | 1, 0, 0) | (0, 1, 0) => String::new(),
        (passed, failed, ignored) => format!("{passed} passed, {failed} failed, {ignored} ignored"),
    }
}

fn run_step(root: &Path, step: Step, args: &Args) -> Result<Count> {
    let ok = match step {
        Step::Fmt => run_cargo(root, &["fmt", "--all", "--check"], &[])?,
        Step::Clippy => {
            let lint = |scope: &[&str]| {
                let args = [&["clippy", "--quiet"], scope, &["--", "-D", "warnings"]].concat();
                run_cargo(root, &args, &[("OFFLOAD_RTL_UNLINKED", "1")])
            };
            let circuits = ["--features", "intact-offload-rtl/verilator,intact/rtl"];
            // Code that claims to need no standard library is compiled without one. What needs the circuits of `rtl/` is compiled, though
            // not linked: `make rtl`, which tests it, needs tools of its own. There too the whole workspace is named, so that other
            // packages keep their features and are not compiled again.
            lint(&["--workspace", "--all-targets"])?
                & lint(&["--package", "intact-integrity", "--no-default-features"])?
                & lint(&[&["--workspace", "--all-targets"], &circuits[..]].concat())?
        }
        // Every link must resolve.
        Step::Doc => run_cargo(
            root,
            &["doc", "--workspace", "--no-deps", "--quiet"],
            &[("RUSTDOCFLAGS", "-D warnings")],
        )?,
        Step::Deny => {
            return match deny_missing() {
                Some(missing) => {
                    println!("{}: left out, missing {missing}", name(step));
                    Ok(Count::default())
                }
                None => Ok(Count::single(run_cargo(
                    root,
                    &["deny", "check", "bans", "licenses", "sources"],
                    &[],
                )?)),
            };
        }
        Step::Tidy => tidy::run(root)?,
        Step::Cite => cite::run(root, &cite::Args::default())?,
        Step::Tests => {
            let mut command = Command::new(cargo());
            command.args(["test", "--workspace", "--no-fail-fast"]).current_dir(root);
            return run_tests(command);
        }
        Step::Sim => sim::gate(root)?,
        Step::Aarch64 => {
            return match aarch64::missing() {
                Some(missing) => Ok(left_out(step, missing)),
                None => run_tests(aarch64::command(root)?),
            };
        }
        Step::Fuzz => return run_fuzz(root, args.fuzz),
        Step::Miri => {
            return match miri::missing() {
                Some(missing) => Ok(left_out(step, missing)),
                None => run_tests(miri::command(root)),
            };
        }
    };
    Ok(Count::single(ok))
}

/// What this machine lacks for the rules of `deny.toml`, if anything. The tool takes longer to build than all of our code, and
/// the rules only concern a change of dependencies. So its absence is only reported, even on CI.
fn deny_missing() -> Option<&'static str> {
    let mut command = Command::new(cargo());
    let status = command.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => None,
        _ => Some("cargo-deny: cargo install cargo-deny --locked"),
    }
}

fn run_cargo(root: &Path, args: &[&str], variables: &[(&str, &str)]) -> Result<bool> {
    let mut command = Command::new(cargo());
    command.args(args).envs(variables.iter().copied()).current_dir(root);
    Ok(command.status().context("cargo did not start")?.success())
}

/// A step whose tools are missing is skipped with a message; on CI it fails.
fn left_out(step: Step, missing: &str) -> Count {
    println!("{}: left out, missing {missing}", name(step));
    Count { failed: usize::from(on_ci()), ..Count::default() }
}

/// A short run of the fuzz targets.
fn run_fuzz(root: &Path, seconds: Option<u32>) -> Result<Count> {
    if let Some(missing) = fuzz::missing() {
        return Ok(left_out(Step::Fuzz, missing));
    }
    let args = fuzz::Args { targets: Vec::new(), seconds: seconds.unwrap_or(fuzz::DEFAULT_SECONDS) };
    Ok(Count::single(fuzz::run(root, &args)?))
}
