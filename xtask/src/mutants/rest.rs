//! Tries the faults that cannot be written with a switch as cargo-mutants does: a build for each.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::list::Fault;
use super::record::Verdict;

/// A fault that keeps the tests busy longer than this counts as noticed, in seconds.
const TIMEOUT_S: u32 = 600;

/// Plants `faults` in the tree at `root`, one at a time, and runs the tests of `test_packages`, or of the crate of each fault; the
/// result is that of [`results`]. What cargo-mutants writes is kept in `output`.
pub(super) fn plant(root: &Path, output: &Path, faults: &[&Fault], test_packages: &[String]) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(output)?;
    let mut command = Command::new("cargo");
    command.arg("mutants").arg("--output").arg(output);
    command.args(faults.iter().flat_map(|fault| ["--package", fault.package.as_str()]));
    command.args(faults.iter().flat_map(|fault| ["--re".to_owned(), exactly(&fault.name)]));
    if !test_packages.is_empty() {
        command.arg("--test-package").arg(test_packages.join(","));
    }
    // That the tests pass without a fault is known.
    command.args([
        "--baseline",
        "skip",
        "--timeout",
        &TIMEOUT_S.to_string(),
        "--no-shuffle",
        "--colors",
        "never",
    ]);
    // The cargo that runs this program sets it for its own build.
    let status =
        command.env_remove("CARGO").current_dir(root).status().context("cargo mutants did not start")?;
    // 2: some were missed, 3: some timed out.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants ended with {status}; see above");
    Ok(())
}

/// What cargo-mutants has found so far in `output`; `noticed` is the verdict for those it caught, `passed` for those it missed.
pub(super) fn results(output: &Path, noticed: Verdict, passed: Verdict) -> Result<Vec<(String, Verdict)>> {
    let files = [
        ("caught.txt", noticed),
        ("timeout.txt", Verdict::OutOfTime),
        ("unviable.txt", Verdict::NoProgram),
        ("missed.txt", passed),
    ];
    let mut results = Vec::new();
    for (file, verdict) in files {
        let path = output.join("mutants.out").join(file);
        if path.exists() {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            results.extend(text.lines().map(|line| (line.to_owned(), verdict)));
        }
    }
    Ok(results)
}

/// A regular expression for this name alone.
fn exactly(name: &str) -> String {
    let mut escaped = String::from("^");
    for c in name.chars() {
        if !(c.is_alphanumeric() || c == '_' || c == ' ') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped + "$"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_pattern() {
        assert_eq!(exactly("a.rs:1: replace * with +"), r"^a\.rs\:1\: replace \* with \+$");
    }

    #[test]
    fn the_files_of_cargo_mutants_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("mutants.out");
        std::fs::create_dir_all(&out).expect("made");
        std::fs::write(out.join("caught.txt"), "a\nb\n").expect("written");
        std::fs::write(out.join("missed.txt"), "c\n").expect("written");
        let found = results(folder.path(), Verdict::Caught, Verdict::PassedOwn).expect("read");
        let expected = [("a", Verdict::Caught), ("b", Verdict::Caught), ("c", Verdict::PassedOwn)];
        assert_eq!(found, expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }
}
