//! Runs the tests of the crates above on faults that survived the tests of their own crate.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::lines;
use crate::workspace::package_named;

/// Their tests run complete sessions through all the other crates: on sockets, in the simulator, and by the rows of the standard.
const ABOVE: [&str; 4] = ["target", "initiator", "sim", "conform"];
/// The file that lists the faults noticed by those tests, next to the files of cargo-mutants.
pub(super) const CAUGHT: &str = "caught_above.txt";
/// The file that lists the faults already tried.
const TRIED: &str = "tried_above.txt";
/// A fault that keeps the tests busy longer than this counts as noticed, in seconds, including the build.
const TIMEOUT_S: u32 = 900;

#[derive(serde::Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(serde::Deserialize)]
struct Outcome {
    scenario: serde_json::Value,
    summary: String,
    diff_path: Option<PathBuf>,
}

/// A fault that survived, and the change that plants it.
#[derive(Debug, PartialEq, Eq)]
struct Survivor {
    name: String,
    file: PathBuf,
    diff: PathBuf,
}

/// Tries the survivors of a part that have not been tried yet.
pub(super) fn look_again(root: &Path, part: &Path) -> Result<()> {
    let text = std::fs::read_to_string(part.join("outcomes.json")).context("what cargo-mutants found")?;
    let tried = lines(&part.join(TRIED))?;
    let mut survivors = survivors(&text, part)?;
    survivors.retain(|survivor| !tried.contains(&survivor.name));
    if survivors.is_empty() {
        return Ok(());
    }
    let tree = Tree::new(root)?;
    ensure!(tree.tests_pass()?, "the tests of {} fail without any fault", ABOVE.join(", "));
    for (at, survivor) in survivors.iter().enumerate() {
        println!("{} of {}: {}", at + 1, survivors.len(), survivor.name);
        let passed = tree.with(survivor, Tree::tests_pass)?;
        if !passed {
            append(&part.join(CAUGHT), &survivor.name)?;
        }
        append(&part.join(TRIED), &survivor.name)?;
    }
    Ok(())
}

/// The faults that cargo-mutants reports as missed.
fn survivors(outcomes: &str, part: &Path) -> Result<Vec<Survivor>> {
    let Outcomes { outcomes } = serde_json::from_str(outcomes).context("outcomes.json")?;
    let missed = outcomes.into_iter().filter(|outcome| outcome.summary == "MissedMutant");
    missed
        .map(|outcome| {
            let mutant = &outcome.scenario["Mutant"];
            let text = |key: &str| mutant[key].as_str().with_context(|| format!("a mutant without `{key}`"));
            let diff = outcome.diff_path.context("a mutant without its diff")?;
            Ok(Survivor { name: text("name")?.to_owned(), file: text("file")?.into(), diff: part.join(diff) })
        })
        .collect()
}

fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    Ok(writeln!(file, "{line}")?)
}

/// A separate tree to plant faults in, at the last commit. It is kept for the next part, together with its build.
struct Tree(PathBuf);

impl Tree {
    fn new(root: &Path) -> Result<Self> {
        let tree = root.join("target/mutants-above");
        let git = |folder: &Path, args: &[&str]| -> Result<()> {
            let status = Command::new("git").args(args).current_dir(folder).status()?;
            ensure!(status.success(), "git {} failed", args.join(" "));
            Ok(())
        };
        let path = tree.to_string_lossy();
        if !tree.exists() {
            git(root, &["clone", "--quiet", "--shared", ".", &path])?;
        }
        git(&tree, &["fetch", "--quiet", "origin", "HEAD"])?;
        git(&tree, &["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        Ok(Self(tree))
    }

    /// Runs `f` with a fault in the tree.
    fn with(&self, survivor: &Survivor, f: impl FnOnce(&Self) -> Result<bool>) -> Result<bool> {
        let patch = |how: &[&str]| -> Result<()> {
            let mut command = Command::new("patch");
            command.args(["--quiet", "--force"]).args(how).arg(&survivor.file);
            let diff = std::fs::File::open(&survivor.diff)?;
            let status = command.stdin(diff).current_dir(&self.0).status().context("patch did not start")?;
            ensure!(status.success(), "`{}` does not fit into the last commit: commit first", survivor.name);
            Ok(())
        };
        patch(&["--forward"])?;
        let done = f(self);
        patch(&["--reverse"])?;
        done
    }

    fn tests_pass(&self) -> Result<bool> {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT_S.to_string()).args(["cargo", "test", "--quiet"]);
        command.args(ABOVE.iter().flat_map(|name| ["--package".to_owned(), package_named(name)]));
        command.current_dir(&self.0).env_remove("CARGO").stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.status().context("timeout(1) did not start")?.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_those_that_were_missed_with_the_change_that_plants_them() {
        let outcomes = r#"{"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            {"scenario": {"Mutant": {"name": "a.rs:1:2: x", "file": "a.rs"}}, "summary": "CaughtMutant", "diff_path": "diff/1"},
            {"scenario": {"Mutant": {"name": "b.rs:1:2: y", "file": "b.rs"}}, "summary": "MissedMutant", "diff_path": "diff/2"}
        ]}"#;
        let expected =
            Survivor { name: "b.rs:1:2: y".to_owned(), file: "b.rs".into(), diff: "part/diff/2".into() };
        assert_eq!(survivors(outcomes, Path::new("part")).expect("right"), [expected]);
        assert!(survivors("{}", Path::new("part")).is_err());
    }
}
