//! The miri step of `check`: the short walk through every kernel (`crates/integrity/tests/miri`) in an interpreter that
//! sees each access to memory. Slow and in need of a nightly compiler, so it runs only when asked for.

use std::path::Path;
use std::process::{Command, Stdio};

/// The interpreter has the machine that it is told to have. It cannot interpret AVX-512; those kernels have the tests
/// between forbidden pages and the address sanitizer of the fuzz targets.
const FEATURES: &str = "+sse4.2,+pclmulqdq,+avx2,+vpclmulqdq";

/// What is missing on this machine for the step, if anything.
pub fn missing() -> Option<&'static str> {
    let status = nightly(&["miri", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => None,
        _ => Some("Miri: rustup toolchain install nightly --component miri,rust-src"),
    }
}

/// The command that runs the tests in the interpreter.
pub fn command(root: &Path) -> Command {
    let mut command = nightly(&["miri", "test", "--package", "integrity", "--test", "miri"]);
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
