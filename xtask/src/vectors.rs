//! `cargo xtask vectors`: writes the golden vectors of checksums in `vectors/`, from the definitions in the tests of
//! `integrity`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::cargo;

/// Writes the files; `false` when the written files fail their tests.
pub fn run(root: &Path) -> Result<bool> {
    let status = Command::new(cargo())
        .args(["test", "--quiet", "--package", "intact-integrity", "--test", "vectors"])
        .env("WRITE_VECTORS", "1")
        .current_dir(root)
        .status()
        .context("cargo did not start")?;
    Ok(status.success())
}
