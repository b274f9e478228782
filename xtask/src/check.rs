//! `cargo xtask check`: the one gate. Every step is named and timed, all steps run even after one has failed,
//! and the last line counts: `N passed, N failed`, where each test is one and each other step is one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::workspace::{cargo, on_ci};
use crate::{aarch64, cite, fuzz, miri, sim, tidy};

#[derive(clap::Args)]
pub struct Args {
    /// Run only these steps
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// Also run every fuzz target for so many seconds
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
    Tests,
    Sim,
    Aarch64,
    Fuzz,
    Miri,
}

/// How a step ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Count {
    /// A step that is one check.
    fn single(ok: bool) -> Self {
        Self { passed: usize::from(ok), failed: usize::from(!ok), ignored: 0 }
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
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(total.failed == 0)
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn details(count: &Count) -> String {
    match count {
        Count { passed: 0 | 1, failed: 0, ignored: 0 } | Count { passed: 0, failed: 1, ignored: 0 } => {
            String::new()
        }
        Count { passed, failed, ignored } => format!("{passed} passed, {failed} failed, {ignored} ignored"),
    }
}

fn run_step(root: &Path, step: Step, args: &Args) -> Result<Count> {
    let ok = match step {
        Step::Fmt => run_cargo(root, &["fmt", "--all", "--check"])?,
        Step::Clippy => {
            let lint = |scope: &[&str]| {
                run_cargo(root, &[&["clippy", "--quiet"], scope, &["--", "-D", "warnings"]].concat())
            };
            // What claims to need no standard library is compiled without one.
            lint(&["--workspace", "--all-targets"])?
                & lint(&["--package", "integrity", "--no-default-features"])?
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

fn run_cargo(root: &Path, args: &[&str]) -> Result<bool> {
    let status =
        Command::new(cargo()).args(args).current_dir(root).status().context("cargo did not start")?;
    Ok(status.success())
}

/// Runs the tests of a `cargo test`, passes their output on, and adds up what cargo says about each test program.
fn run_tests(mut command: Command) -> Result<Count> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cargo did not start")?;
    let out = child.stdout.take().context("cargo test has no output")?;
    let mut count = Count::default();
    for line in BufReader::new(out).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        if let Some(result) = parse_result(&line) {
            count.passed += result.passed;
            count.failed += result.failed;
            count.ignored += result.ignored;
        }
    }
    // A test program that did not build, or died, has no result line.
    if !child.wait()?.success() && count.failed == 0 {
        count.failed = 1;
    }
    Ok(count)
}

/// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
fn parse_result(line: &str) -> Option<Count> {
    let counts = line.trim().strip_prefix("test result:")?.split_once('.')?.1;
    let number = |word: &str| {
        let (number, _) = counts.split_once(word)?;
        number.rsplit(';').next()?.trim().parse().ok()
    };
    Some(Count { passed: number(" passed")?, failed: number(" failed")?, ignored: number(" ignored")? })
}

/// A step whose tools are missing is left out with a word, except on CI, where it fails.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; finished in 0.10s";
        assert_eq!(parse_result(line), Some(Count { passed: 12, failed: 3, ignored: 1 }));
        assert_eq!(parse_result("test a::b ... ok"), None);
    }
}
