//! The miri step of `check`: a short test of every kernel (`crates/integrity/tests/miri`, and `miri.rs` in `crates/published/tests`) in an interpreter that checks
//! each access to memory. It is slow and needs a nightly compiler, so it runs only when requested.

use std::path::Path;
use std::process::{Command, Stdio};

/// The interpreter emulates a machine with the given features. It cannot interpret AVX-512; those kernels are covered
/// by the tests between inaccessible pages and the address sanitizer of the fuzz targets.
const FEATURES: &str = "+sse4.2,+pclmulqdq,+avx2,+vpclmulqdq";

/// What this machine lacks for the step, if anything.
pub fn missing() -> Option<&'static str> {
    let status = nightly(&["miri", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => None,
        _ => Some("Miri: rustup toolchain install nightly --component miri,rust-src"),
    }
}

/// The command that runs the tests in the interpreter.
pub fn command(root: &Path) -> Command {
    let mut command = nightly(&[
        "miri",
        "test",
        "--package",
        "intact-integrity",
        "--package",
        "intact-published",
        "--test",
        "miri",
    ]);
    if cfg!(target_arch = "x86_64") {
        command.env("RUSTFLAGS", format!("-C target-feature={FEATURES}"));
    }
    command.current_dir(root);
    command
}

fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // The cargo that runs this program sets these for its own toolchain.
    command.arg("+nightly").args(args).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}
