//! A tree of its own with all faults planted, and the programs of its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::blame::{Blame, CompilerError, Sites};
use super::list::Fault;
use super::rewrite::{rewrite, with_switch};
use crate::workspace::cargo;

/// A separate tree. It is kept, together with its build.
pub(super) struct Tree {
    folder: PathBuf,
    build: PathBuf,
}

/// What became of the faults, each by its number: the position in the list, from 1.
#[derive(Debug, Default)]
pub(super) struct Planted {
    /// Switched on by the environment.
    pub(super) switched: BTreeSet<u32>,
    /// They do not compile.
    pub(super) no_program: BTreeSet<u32>,
}

/// The names of the faults that do not compile, for the next time.
#[derive(Default, Deserialize, Serialize)]
struct TakenOut {
    no_program: BTreeSet<String>,
    no_switch: BTreeSet<String>,
}

/// The program of some tests.
#[derive(Clone, Debug)]
pub(super) struct TestProgram {
    pub(super) package: String,
    /// Of the library, or of the file in `tests`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Where tests are run: the folder of the package.
    pub(super) folder: PathBuf,
}

/// A line that cargo writes with `--message-format json`.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Line {
    CompilerMessage {
        message: CompilerError,
    },
    CompilerArtifact {
        manifest_path: PathBuf,
        target: TargetName,
        profile: Profile,
        executable: Option<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct TargetName {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Tree {
    /// The tree in `folder`, which is built in `build`.
    pub(super) fn new(folder: PathBuf, build: PathBuf) -> Self {
        Self { folder, build }
    }

    /// Brings the tree to the last commit of `root`; returns the commit.
    pub(super) fn check_out(&self, root: &Path) -> Result<String> {
        let edited = git(root, &["status", "--porcelain", "--", "crates"])?;
        ensure!(edited.is_empty(), "commit first: faults are planted in the last commit\n{edited}");
        let path = self.folder.to_string_lossy();
        if !self.folder.exists() {
            git(root, &["clone", "--quiet", "--shared", ".", &path])?;
        }
        let commit = git(root, &["rev-parse", "HEAD"])?;
        // A tree that has the commit already, with faults planted, need not be built again.
        if git(&self.folder, &["rev-parse", "HEAD"])? != commit {
            git(&self.folder, &["fetch", "--quiet", "origin", "HEAD"])?;
            git(&self.folder, &["checkout", "--quiet", "--force", "--detach", &commit])?;
        }
        Ok(commit)
    }

    /// Plants the faults, without those that do not compile. Which these are is kept in `taken_out`.
    pub(super) fn plant(&self, faults: &[Fault], taken_out: &Path) -> Result<Planted> {
        let before = std::fs::read(taken_out).ok();
        let before: TakenOut = before.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let numbers = |names: &BTreeSet<String>| -> BTreeSet<u32> {
            (1..)
                .zip(faults)
                .filter(|(_, fault)| names.contains(&fault.name))
                .map(|(number, _)| number)
                .collect()
        };
        let (mut no_program, mut no_switch) = (numbers(&before.no_program), numbers(&before.no_switch));
        let files = self.originals(faults)?;
        loop {
            let (texts, switched) = rewrite_all(&files, faults, |number| {
                !no_program.contains(&number) && !no_switch.contains(&number)
            })?;
            for (file, text) in &texts {
                write_if_changed(&self.folder.join(file), text)?;
            }
            let errors = self.errors(faults)?;
            if errors.is_empty() {
                let names = |numbers: &BTreeSet<u32>| {
                    numbers.iter().map(|&number| faults[number as usize - 1].name.clone()).collect()
                };
                let found = TakenOut { no_program: names(&no_program), no_switch: names(&no_switch) };
                std::fs::write(taken_out, serde_json::to_vec(&found)?)?;
                return Ok(Planted { switched, no_program });
            }
            let before = no_program.len() + no_switch.len();
            blame(&errors, &texts, &mut no_program, &mut no_switch)?;
            let more = no_program.len() + no_switch.len() - before;
            println!("mutants: {} errors of the compiler, {more} faults taken out", errors.len());
            ensure!(more > 0, "the tree does not compile, and no planted fault is the reason: {errors:?}");
        }
    }

    /// The files with faults, and the roots of their crates, as they were committed.
    fn originals(&self, faults: &[Fault]) -> Result<BTreeMap<PathBuf, String>> {
        let mut files: BTreeSet<PathBuf> = faults.iter().map(|fault| fault.file.clone()).collect();
        for fault in faults {
            let root = fault.file.ancestors().find(|folder| folder.ends_with("src"));
            files.insert(root.with_context(|| fault.name.clone())?.join("lib.rs"));
        }
        let read = |file: PathBuf| -> Result<(PathBuf, String)> {
            let name = format!("HEAD:{}", file.display());
            let out = Command::new("git").args(["show", &name]).current_dir(&self.folder).output()?;
            ensure!(out.status.success(), "git show {name}: {}", String::from_utf8_lossy(&out.stderr));
            Ok((file, String::from_utf8(out.stdout)?))
        };
        files.into_iter().map(read).collect()
    }

    /// The errors of the compiler in the crates with faults.
    fn errors(&self, faults: &[Fault]) -> Result<Vec<CompilerError>> {
        let packages: BTreeSet<&str> = faults.iter().map(|fault| fault.package.as_str()).collect();
        let (_, lines) = self.cargo(&["check", "--keep-going"], packages)?;
        let errors = lines.into_iter().filter_map(|line| match line {
            Line::CompilerMessage { message } if message.level == "error" => Some(message),
            _ => None,
        });
        // The last one only counts the others.
        Ok(errors.filter(|error| !error.spans.is_empty()).collect())
    }

    /// Builds the tests of `packages`.
    pub(super) fn tests(&self, packages: BTreeSet<&str>) -> Result<Vec<TestProgram>> {
        let (built, lines) = self.cargo(&["test", "--no-run"], packages.clone())?;
        ensure!(built, "the tests of {packages:?} do not compile; see above");
        let mut tests = Vec::new();
        for line in lines {
            let Line::CompilerArtifact { manifest_path, target, profile, executable: Some(path) } = line
            else {
                continue;
            };
            if profile.test {
                let folder = manifest_path.parent().context("a manifest without a folder")?.to_path_buf();
                let package = package_in(&folder, &packages)?;
                tests.push(TestProgram { package, name: target.name, path, folder });
            }
        }
        ensure!(!tests.is_empty(), "no tests in {packages:?}");
        Ok(tests)
    }

    /// Runs cargo; returns whether it succeeded, and what it wrote.
    fn cargo(&self, task: &[&str], packages: BTreeSet<&str>) -> Result<(bool, Vec<Line>)> {
        let mut command = Command::new(cargo());
        command.args(task).args(["--quiet", "--message-format", "json"]);
        command.args(packages.into_iter().flat_map(|name| ["--package", name]));
        command.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.build).stderr(Stdio::inherit());
        let out = command.output().context("cargo did not start")?;
        let mut lines = Vec::new();
        // The tests of a crate may write lines of their own while they are built.
        for line in out.stdout.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{")) {
            lines.push(serde_json::from_slice(line).context("a line of cargo")?);
        }
        Ok((out.status.success(), lines))
    }
}

/// The texts of the files with the wanted faults, and the numbers of those that are in them.
fn rewrite_all(
    files: &BTreeMap<PathBuf, String>,
    faults: &[Fault],
    wanted: impl Fn(u32) -> bool,
) -> Result<(BTreeMap<String, String>, BTreeSet<u32>)> {
    let (mut texts, mut switched) = (BTreeMap::new(), BTreeSet::new());
    for (file, original) in files {
        let here = (1..).zip(faults).filter(|(number, fault)| fault.file == *file && wanted(*number));
        let mut new = rewrite(original, here).with_context(|| file.display().to_string())?;
        switched.append(&mut new.planted);
        if file.ends_with("src/lib.rs") {
            new.text = with_switch(&new.text);
        }
        texts.insert(file.to_string_lossy().into_owned(), new.text);
    }
    Ok((texts, switched))
}

/// The package whose folder this is: `packages` are named as cargo names them.
fn package_in(folder: &Path, packages: &BTreeSet<&str>) -> Result<String> {
    let short = folder.file_name().unwrap_or_default().to_string_lossy();
    let package = packages.iter().find(|name| crate::workspace::short(name) == short);
    Ok((*package.with_context(|| format!("{}: no package", folder.display()))?).to_owned())
}

/// Finds the faults that the errors speak of.
fn blame(
    errors: &[CompilerError],
    texts: &BTreeMap<String, String>,
    no_program: &mut BTreeSet<u32>,
    no_switch: &mut BTreeSet<u32>,
) -> Result<()> {
    let mut sites: BTreeMap<&str, Sites> = BTreeMap::new();
    for error in errors {
        let mut found = None;
        for (file, at) in error.places() {
            let Some((file, text)) = texts.get_key_value(file) else { continue };
            if !sites.contains_key(file.as_str()) {
                sites.insert(file, Sites::of(text)?);
            }
            found = found.or_else(|| sites[file.as_str()].blame(error, at));
        }
        match found {
            Some(Blame::NoProgram(number)) => drop(no_program.insert(number)),
            Some(Blame::NoSwitch(mut numbers)) => no_switch.append(&mut numbers),
            None => bail!("an error away from all planted faults: {} {:?}", error.message, error.spans),
        }
    }
    Ok(())
}

fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let out = Command::new("git").args(args).current_dir(folder).output().context("git did not start")?;
    ensure!(out.status.success(), "git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
