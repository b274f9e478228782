//! `cargo xtask tidy`: the house rules that no compiler checks. One file per kind of rule.

mod cycles;
mod dependencies;
mod files;
mod manifests;
mod ratchets;
mod syncs;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
pub use files::{DISTRUST, distrust};

use crate::{rust_source, workspace};

/// One finding of tidy about the tree.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// Counted from 1; 0 means the whole file.
    pub line: usize,
    pub text: String,
    /// Reported, but does not fail the run.
    pub warning: bool,
}

impl Finding {
    fn error(path: &Path, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, text: text.into(), warning: false }
    }

    fn warning(path: &Path, line: usize, text: impl Into<String>) -> Self {
        Self { warning: true, ..Self::error(path, line, text) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        match self.line {
            0 => write!(f, "{kind}: {}: {}", self.path.display(), self.text),
            line => write!(f, "{kind}: {}:{line}: {}", self.path.display(), self.text),
        }
    }
}

/// Runs all rules over the workspace at `root` and prints the findings; `true` when there is no error.
pub fn run(root: &Path) -> Result<bool> {
    let paths = workspace::files(root)?;
    let sources = rust_source::read_all(root, &paths)?;
    let packages = workspace::packages(root)?;

    let mut findings = Vec::new();
    findings.extend(dependencies::check(root, &packages));
    findings.extend(manifests::check(root, &packages)?);
    for file in &sources {
        findings.extend(words::check(file));
        findings.extend(syncs::check(file));
        findings.extend(files::check_length(file));
    }
    findings.extend(ratchets::check(root, &sources)?);
    findings.extend(files::check_texts(root, &paths)?);

    findings.sort_by(|a, b| (a.warning, &a.path, a.line).cmp(&(b.warning, &b.path, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| !finding.warning).count();
    println!("tidy: {} files, {errors} errors, {} warnings", paths.len(), findings.len() - errors);
    Ok(errors == 0)
}
