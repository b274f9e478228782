//! What every package must state: licence, `rust-version`, the workspace's lints, and no `unsafe` outside of
//! the three crates that need it.

use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;
use crate::rust_source::RustSource;
use crate::workspace::Package;

/// The crates that may use `unsafe`, each block with its reason.
const UNSAFE_ALLOWED: &[&str] = &["integrity", "engine", "offload-rtl"];
const LICENSE: &str = "Apache-2.0 OR MIT";

/// Checks the manifest and the crate roots of every package.
pub fn check(root: &Path, packages: &[Package]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in packages {
        let manifest = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path);
        let mut say = |text: &str| findings.push(Finding::error(manifest, 0, text));
        if package.license.as_deref() != Some(LICENSE) {
            say("no `license.workspace = true`");
        }
        if package.rust_version.is_none() {
            say("no `rust-version.workspace = true`");
        }
        let text = std::fs::read_to_string(&package.manifest_path)?;
        let table: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
        let lints = table.get("lints").and_then(|lints| lints.get("workspace"));
        if lints.and_then(toml::Value::as_bool) != Some(true) {
            say("no `[lints] workspace = true`");
        }
        if UNSAFE_ALLOWED.contains(&package.name.as_str()) {
            continue;
        }
        for target in package.targets.iter().filter(|target| target.is_product()) {
            let text = std::fs::read_to_string(&target.src_path)?;
            if !forbids_unsafe(&text) {
                let path = target.src_path.strip_prefix(root).unwrap_or(&target.src_path);
                findings.push(Finding::error(
                    path,
                    0,
                    "no `#![forbid(unsafe_code)]` at the head of the crate",
                ));
            }
        }
    }
    for pin in ["rust-toolchain", "rust-toolchain.toml"] {
        if root.join(pin).exists() {
            findings.push(Finding::error(
                Path::new(pin),
                0,
                "`rust-version` is stated, the toolchain is not pinned",
            ));
        }
    }
    Ok(findings)
}

fn forbids_unsafe(text: &str) -> bool {
    RustSource::parse(text, false).lines.iter().any(|line| line.code.contains("#![forbid(unsafe_code)]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_forbids_nothing() {
        assert!(forbids_unsafe("//! Head.\n#![forbid(unsafe_code)]\n"));
        assert!(!forbids_unsafe("// #![forbid(unsafe_code)]\n"));
    }
}
