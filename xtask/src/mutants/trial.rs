//! Runs a program of tests with a fault switched on.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::rewrite::VARIABLE;
use super::tree::TestProgram;

/// How a run of tests ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed,
    /// The first test that failed; empty if the program ended otherwise.
    Failed(String),
    OutOfTime,
}

/// How long tests may take. An endless loop uses processor time, which does not depend on what else the machine does; tests that wait
/// for what never comes use none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Limits {
    /// Of the clock.
    pub(super) clock: Duration,
    /// Of the processors.
    pub(super) processor: Duration,
}

/// Runs the tests with a fault, 0 for none; ends them at the first that fails, and at either limit.
pub(super) fn run(program: &TestProgram, fault: u32, limits: Limits) -> Result<Ended> {
    let deadline = Instant::now() + limits.clock;
    let seconds = limits.processor.as_secs().max(1);
    let mut command = Command::new("prlimit");
    command.arg(format!("--cpu={seconds}:{}", seconds + 5)).arg(&program.path);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.env(VARIABLE, fault.to_string()).env("RUST_BACKTRACE", "0");
    // A failing input is not made smaller, and above all not kept for the next fault.
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    // Its own group: what the tests start ends with them.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| program.path.display().to_string())?;
    let stdout = child.stdout.take().context("no output")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) = failed(&line) {
                    end(&mut child)?;
                    return Ok(Ended::Failed(test.to_owned()));
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                end(&mut child)?;
                return Ok(Ended::OutOfTime);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait()?;
    Ok(match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => Ended::OutOfTime,
        _ if status.success() => Ended::Passed,
        _ => Ended::Failed(String::new()),
    })
}

/// The test that failed, from a line of the test harness.
fn failed(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Ends the program and all that it has started.
fn end(child: &mut Child) -> Result<()> {
    // It may have ended by itself.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_names_the_test_that_failed() {
        assert_eq!(failed("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed("test a::b ... ok"), None);
        assert_eq!(failed("test result: FAILED. 1 passed; 1 failed"), None);
    }
}
