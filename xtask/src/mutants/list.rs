//! The faults that cargo-mutants knows how to plant, and a sample of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::workspace::package_named;

/// A fault, as cargo-mutants lists it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Fault {
    /// `file:line:column: what is changed`. It names the fault in all results.
    pub(super) name: String,
    pub(super) package: String,
    /// From the root of the workspace.
    pub(super) file: PathBuf,
    pub(super) genre: Genre,
    /// What stands there instead; empty where something is only taken out.
    pub(super) replacement: String,
    pub(super) span: Span,
}

/// What kind of thing is changed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash)]
pub(super) enum Genre {
    /// The body of a function becomes one value.
    FnValue,
    BinaryOperator,
    /// `!` or `-` is taken out.
    UnaryOperator,
    /// The arm is taken out; a later one takes everything.
    MatchArm,
    MatchArmGuard,
    /// The field has the value of the struct's base.
    StructField,
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Span {
    pub(super) start: Place,
}

/// A place in a file; both count from 1.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Whether cargo-mutants is there.
pub(super) fn installed() -> Result<()> {
    let works = Command::new("cargo").args(["mutants", "--version"]).stdout(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        bail!("missing: cargo-mutants: cargo install cargo-mutants --locked");
    }
    Ok(())
}

/// All faults of `crates` in the tree.
pub(super) fn all(tree: &Path, crates: &[&str]) -> Result<Vec<Fault>> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json"]);
    command.args(crates.iter().flat_map(|name| ["--package".to_owned(), package_named(name)]));
    // The cargo that runs this program sets it for its own build.
    command.env_remove("CARGO").current_dir(tree).stderr(Stdio::inherit());
    let out = command.output().context("cargo mutants did not start")?;
    ensure!(out.status.success(), "cargo mutants --list ended with {}", out.status);
    let faults: Vec<Fault> = serde_json::from_slice(&out.stdout).context("the list of cargo mutants")?;
    ensure!(!faults.is_empty(), "cargo mutants lists no faults in {}", crates.join(", "));
    Ok(faults)
}

/// The first `size` of these faults in a random order that `seed` decides; a larger sample contains the smaller one. A fault keeps its
/// place in the order when other lines of its file change.
pub(super) fn sample<'a>(
    faults: impl Iterator<Item = (u32, &'a Fault)>,
    size: Option<usize>,
    seed: u64,
) -> Vec<u32> {
    let mut same: HashMap<String, u32> = HashMap::new();
    let mut order: Vec<(Vec<u8>, u32)> = Vec::new();
    for (number, fault) in faults {
        let name = placeless(&fault.name);
        let key = Sha256::new().chain_update(seed.to_be_bytes()).chain_update(&name);
        let nth = same.entry(name).or_default();
        order.push((key.chain_update(nth.to_be_bytes()).finalize().to_vec(), number));
        *nth += 1;
    }
    order.sort_unstable();
    order.truncate(size.unwrap_or(order.len()));
    order.into_iter().map(|(_, number)| number).collect()
}

/// The name of a fault without line and column, which change with every edit.
pub(super) fn placeless(name: &str) -> String {
    let (place, what) = name.split_once(": ").unwrap_or((name, ""));
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_cargo_mutants_writes_it() {
        let json = r#"[{"file": "crates/a/src/lib.rs", "function": null, "genre": "BinaryOperator",
            "name": "crates/a/src/lib.rs:46:24: replace * with +", "package": "intact-a", "replacement": "+",
            "span": {"end": {"column": 25, "line": 46}, "start": {"column": 24, "line": 46}}},
            {"file": "b.rs", "genre": "OfALaterVersion", "name": "b.rs:1:1: x", "package": "b", "replacement": "",
            "span": {"start": {"column": 1, "line": 1}}}]"#;
        let faults: Vec<Fault> = serde_json::from_str(json).expect("right");
        assert_eq!(faults[0].span.start, Place { line: 46, column: 24 });
        assert_eq!((faults[0].genre, faults[1].genre), (Genre::BinaryOperator, Genre::Other));
    }

    #[test]
    fn a_larger_sample_contains_the_smaller_one() {
        let faults: Vec<Fault> = (1..=100).map(|line| fault(line, line / 2)).collect();
        let take = |faults: &[Fault], size, seed| sample((1..).zip(faults), size, seed);
        let (small, large) = (take(&faults, Some(10), 1), take(&faults, Some(20), 1));
        assert_eq!(small, large[..10]);
        assert_ne!(small, take(&faults, Some(10), 2));
        let mut whole = take(&faults, None, 1);
        whole.sort_unstable();
        assert_eq!(whole, (1..=100).collect::<Vec<_>>());
        // Lines before them, and another fault of no consequence for these.
        let mut moved: Vec<Fault> = (1..=100).map(|line| fault(line + 7, line / 2)).collect();
        moved.push(fault(200, 200));
        let still: Vec<u32> = take(&moved, None, 1).into_iter().filter(|&number| number <= 100).collect();
        assert_eq!(still, take(&faults, None, 1));
    }

    /// Two at a time have the same name but for their line.
    fn fault(line: usize, what: usize) -> Fault {
        Fault {
            name: format!("a.rs:{line}:1: replace f with {what}"),
            package: String::new(),
            file: PathBuf::new(),
            genre: Genre::Other,
            replacement: String::new(),
            span: Span { start: Place { line, column: 1 } },
        }
    }
}
