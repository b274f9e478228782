//! `cargo xtask mutants`: plants one fault at a time in the crates of the data path with cargo-mutants, and reports those that the
//! tests of the same crate do not notice.
//!
//! A campaign of many hours, in parts that may run on several machines; it is not a step of the gate. A fault that passes the tests
//! of its crate is tried with the tests of the crates above (`above`). Known survivors of both are listed in
//! `conformance/mutants.toml`, each with the reason why no test can or need notice it.

mod above;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::package_named;

/// The crates that carry data from the wire to the medium.
const CRATES: [&str; 7] = ["iscsi-core", "scsi", "blockstore", "engine", "payload", "lun", "target"];
/// A fault that keeps the tests of its crate busy longer than this counts as noticed, in seconds.
const TIMEOUT_S: u32 = 400;
/// Known survivors.
const KNOWN: &str = "conformance/mutants.toml";

#[derive(clap::Args)]
pub struct Args {
    /// Crates to plant faults in; by default all of the data path
    pub crates: Vec<String>,
    /// One part of the campaign: K/N, from 0/N
    #[arg(long, value_name = "K/N", default_value = "0/1", value_parser = shard)]
    pub shard: String,
    /// Number of faults tried at a time, each with its own build folder
    #[arg(long, default_value_t = 1)]
    pub jobs: u32,
    /// Run nothing: count the results of the parts so far
    #[arg(long)]
    pub score: bool,
}

fn shard(text: &str) -> Result<String, String> {
    let parts =
        text.split_once('/').and_then(|(k, n)| Some((k.parse::<u32>().ok()?, n.parse::<u32>().ok()?)));
    match parts {
        Some((k, n)) if k < n => Ok(text.to_owned()),
        _ => Err("K/N with K below N, such as 3/16".to_owned()),
    }
}

/// Runs a part; `false` when a fault survived that is not known.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let crates = crates_of(args)?;
    // All parts of one campaign have the same crates; otherwise they would not be parts of one whole.
    let folder = root.join("target/mutants").join(crates.join("+"));
    if !args.score {
        plant(root, &folder, &crates, args)?;
    }
    let known = Known::read(&root.join(KNOWN))?;
    let mut found = Found::default();
    for part in parts(&folder)? {
        found.add(&part)?;
    }
    Ok(report(&found, &known))
}

fn crates_of(args: &Args) -> Result<Vec<&str>> {
    if let Some(unknown) = args.crates.iter().find(|name| !CRATES.contains(&name.as_str())) {
        bail!("no faults are planted in `{unknown}`; in: {}", CRATES.join(", "));
    }
    let all = args.crates.is_empty();
    Ok(CRATES.into_iter().filter(|name| all || args.crates.iter().any(|wanted| wanted == name)).collect())
}

fn plant(root: &Path, folder: &Path, crates: &[&str], args: &Args) -> Result<()> {
    let works = Command::new("cargo").args(["mutants", "--version"]).stdout(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        bail!("missing: cargo-mutants: cargo install cargo-mutants --locked");
    }
    let output = folder.join(args.shard.replace('/', "-of-"));
    std::fs::create_dir_all(&output)?;
    let mut command = Command::new("cargo");
    command.arg("mutants").args(crates.iter().flat_map(|name| ["--package".to_owned(), package_named(name)]));
    // Every part is a fair sample of the whole: it takes faults from all files.
    command.args(["--shard", &args.shard, "--sharding", "round-robin"]).arg("--output").arg(&output);
    command.args(["--timeout", &TIMEOUT_S.to_string(), "--jobs", &args.jobs.to_string()]);
    command.args(["--no-shuffle", "--colors", "never"]);
    // The cargo that runs this program sets these for its own build.
    let status =
        command.env_remove("CARGO").current_dir(root).status().context("cargo mutants did not start")?;
    // 2: some were missed, 3: some timed out. Both are reported below.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants ended with {status}; see above");
    above::look_again(root, &output.join("mutants.out"))
}

/// The folders with the results of the parts.
fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("{}: no part has run: leave out --score", folder.display()))?;
    let mut parts = Vec::new();
    for entry in entries {
        let part = entry?.path().join("mutants.out");
        if part.is_dir() {
            parts.push(part);
        }
    }
    Ok(parts)
}

/// The results for the faults.
#[derive(Default)]
struct Found {
    caught: usize,
    /// The number of caught faults that were caught only by the tests of the crates above.
    caught_above: usize,
    timed_out: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Found {
    fn add(&mut self, part: &Path) -> Result<()> {
        let caught_above: BTreeSet<String> = lines(&part.join(above::CAUGHT))?.into_iter().collect();
        self.caught += lines(&part.join("caught.txt"))?.len() + caught_above.len();
        self.caught_above += caught_above.len();
        self.timed_out += lines(&part.join("timeout.txt"))?.len();
        self.unviable += lines(&part.join("unviable.txt"))?.len();
        let missed = lines(&part.join("missed.txt"))?;
        self.missed.extend(missed.into_iter().filter(|mutant| !caught_above.contains(mutant)));
        Ok(())
    }

    /// Noticed faults per 1,000 that compile.
    fn per_mille(&self) -> usize {
        let noticed = self.caught + self.timed_out;
        noticed * 1000 / (noticed + self.missed.len()).max(1)
    }
}

/// The lines of a file; none if it does not exist.
fn lines(path: &Path) -> Result<Vec<String>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Known survivors: the name that cargo-mutants gives them, without the position in the file, and the reason.
#[derive(Default)]
struct Known(BTreeMap<String, String>);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile {
    #[serde(default)]
    survivor: Vec<Survivor>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    mutant: String,
    reason: String,
}

impl Known {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let file: KnownFile = toml::from_str(text)?;
        let mut known = BTreeMap::new();
        for Survivor { mutant, reason } in file.survivor {
            ensure!(!reason.trim().is_empty(), "`{mutant}` has no reason");
            ensure!(placeless(&mutant) == mutant, "`{mutant}`: leave out line and column, they change");
            ensure!(known.insert(mutant.clone(), reason).is_none(), "`{mutant}` is there twice");
        }
        Ok(Self(known))
    }
}

/// `file.rs:LINE:COLUMN: what` without line and column, which change with every edit.
fn placeless(mutant: &str) -> String {
    let (place, what) = mutant.split_once(": ").unwrap_or((mutant, ""));
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {what}")
}

/// Reports the results; `false` when a fault survived that is not known.
fn report(found: &Found, known: &Known) -> bool {
    let is_known = |mutant: &&String| known.0.contains_key(&placeless(mutant));
    let (expected, new): (Vec<&String>, Vec<&String>) = found.missed.iter().partition(is_known);
    for mutant in &new {
        println!("survived: {mutant}");
    }
    let score = found.per_mille();
    println!(
        "mutants: {} caught ({} of them by the crates above), {} timed out, {} survived ({} of them known), {} do not compile; score {}.{} %",
        found.caught,
        found.caught_above,
        found.timed_out,
        found.missed.len(),
        expected.len(),
        found.unviable,
        score / 10,
        score % 10
    );
    if !new.is_empty() {
        println!("mutants: write a test that fails with each, or enter it in {KNOWN} with the reason");
    }
    new.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_known_by_its_file_and_what_was_changed() {
        let known = "[[survivor]]\nmutant = \"a.rs: replace f with ()\"\nreason = \"only logs\"";
        let known = Known::parse(known).expect("right");
        let missed = |mutant: &str| Found { missed: vec![mutant.to_owned()], ..Found::default() };
        assert!(report(&missed("a.rs:12:5: replace f with ()"), &known));
        assert!(!report(&missed("b.rs:12:5: replace f with ()"), &known));
        assert!(!report(&missed("a.rs:12:5: replace g with ()"), &known));
    }

    #[test]
    fn a_known_survivor_needs_a_reason_and_no_place() {
        let parse = |mutant: &str, reason: &str| {
            Known::parse(&format!("[[survivor]]\nmutant = \"{mutant}\"\nreason = \"{reason}\""))
        };
        assert!(parse("a.rs: replace f with ()", "only logs").is_ok());
        assert!(parse("a.rs: replace f with ()", " ").is_err());
        assert!(parse("a.rs:1:2: replace f with ()", "only logs").is_err());
        assert!(Known::parse("").is_ok());
    }

    #[test]
    fn the_score_counts_what_compiles() {
        let missed = vec![String::new()];
        let found = Found { caught: 7, timed_out: 1, unviable: 5, missed, ..Found::default() };
        assert_eq!(found.per_mille(), 888);
        assert_eq!(Found::default().per_mille(), 0);
    }

    #[test]
    fn a_part_is_one_of_so_many() {
        assert_eq!(shard("3/16").as_deref(), Ok("3/16"));
        for wrong in ["16/16", "3", "a/b", "1/0"] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parts_are_counted_together() {
        let folder = tempfile::tempdir().expect("a folder");
        for (part, caught, missed) in [("0-of-2", "a\nb\n", ""), ("1-of-2", "c\n", "x.rs:1:1: y\n")] {
            let out = folder.path().join(part).join("mutants.out");
            std::fs::create_dir_all(&out).expect("made");
            std::fs::write(out.join("caught.txt"), caught).expect("written");
            std::fs::write(out.join("missed.txt"), missed).expect("written");
        }
        let mut found = Found::default();
        for part in parts(folder.path()).expect("there") {
            found.add(&part).expect("read");
        }
        assert_eq!((found.caught, found.missed.len(), found.per_mille()), (3, 1, 750));
        let above = folder.path().join("1-of-2/mutants.out").join(above::CAUGHT);
        std::fs::write(above, "x.rs:1:1: y\n").expect("written");
        let mut found = Found::default();
        for part in parts(folder.path()).expect("there") {
            found.add(&part).expect("read");
        }
        assert_eq!((found.caught, found.caught_above, found.missed.len()), (4, 1, 0));
    }
}
