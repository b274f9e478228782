//! A program under callgrind, which counts instructions: the same run costs the same, whatever else the machine does.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What a run has left.
pub struct Profile {
    /// Callgrind's file.
    pub counts: String,
    /// What the program has printed.
    pub output: String,
}

/// Runs a program with these arguments under callgrind with these options; `what` names the run in errors.
pub fn profile(what: &str, options: &[&str], program: &Path, arguments: &[&str]) -> Result<Profile> {
    let scratch = tempfile::tempdir().context("no place for the counts")?;
    let file = scratch.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args(options)
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(arguments)
        .output()
        .context("valgrind is needed; on Debian: apt-get install valgrind")?;
    ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    let counts = std::fs::read_to_string(&file).context("callgrind wrote nothing")?;
    Ok(Profile { counts, output: String::from_utf8_lossy(&output.stdout).into_owned() })
}
