//! Where the workspace is, which files belong to it, and what cargo knows about its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The folder of the workspace's `Cargo.toml`.
pub fn root() -> Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = xtask.parent().context("xtask has no parent folder")?;
    Ok(root.to_path_buf())
}

/// The files of the project, relative to `root`: those that git tracks or would add, and that exist.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let out = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git is needed to list the project's files")?;
    if !out.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let mut files: Vec<PathBuf> = out
        .stdout
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()))
        .filter(|path| root.join(path).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// One package of the workspace, with the fields that the checks need.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub license: Option<String>,
    pub rust_version: Option<String>,
    pub manifest_path: PathBuf,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

/// One line of a package's dependency tables.
#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// `None` for `[dependencies]`, else `dev` or `build`.
    pub kind: Option<String>,
}

/// Something that cargo builds from a package.
#[derive(Deserialize)]
pub struct Target {
    pub kind: Vec<String>,
    pub src_path: PathBuf,
}

impl Target {
    /// Whether this is code that ships (a library or a program), as opposed to tests, benches and examples.
    pub fn is_product(&self) -> bool {
        self.kind.iter().any(|kind| kind == "lib" || kind == "bin")
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The packages of the workspace, from `cargo metadata`, with their short names.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    let out = Command::new(cargo())
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo metadata did not start")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let mut metadata: Metadata = serde_json::from_slice(&out.stdout).context("cargo metadata")?;
    for package in &mut metadata.packages {
        shorten(&mut package.name);
        package.dependencies.iter_mut().for_each(|dependency| shorten(&mut dependency.name));
    }
    Ok(metadata.packages)
}

/// What the names of our packages begin with, because in a registry the short ones belong to others. The folder and the library of a
/// package have its short name.
const PREFIX: &str = "intact-";

fn shorten(name: &mut String) {
    *name = short(name).to_owned();
}

/// The short name of a package.
pub fn short(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

/// The package that has this short name, as cargo wants it named.
pub fn package_named(short: &str) -> String {
    format!("{PREFIX}{short}")
}

/// The cargo that runs this program.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Whether this runs on CI, where no step may be skipped.
pub fn on_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_finds_itself() {
        let root = root().unwrap();
        assert!(root.join("Cargo.toml").is_file());
        let files = files(&root).unwrap();
        assert!(files.contains(&PathBuf::from("xtask/src/workspace.rs")));
        assert!(packages(&root).unwrap().iter().any(|package| package.name == "xtask"));
    }
}
