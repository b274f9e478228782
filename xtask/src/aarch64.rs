//! The aarch64 step of `check`: the kernels of `integrity` for that architecture, and the
//! algorithms of `published`, compiled and tested on any machine
//! with QEMU's user-mode emulation.
//!
//! There are two possible compilers: rustup's target, or Debian's `rustc-web` with the standard library of arm64.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::workspace::cargo;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// The emulator, with the folder where Debian's cross compiler keeps the C library that the tests load.
const EMULATOR: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";
/// Compilers that may have the target's standard library: the usual one, then Debian's.
const COMPILERS: [&str; 2] = ["rustc", "/usr/bin/rustc"];

/// What this machine lacks for the step, if anything.
pub fn missing() -> Option<&'static str> {
    let starts = |program: &str| {
        let status =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if compiler().is_none() {
        Some(
            "the target: rustup target add aarch64-unknown-linux-gnu (or Debian's rustc-web, see docs/ci.md)",
        )
    } else if !starts(LINKER) {
        Some("the linker: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    } else if !starts("qemu-aarch64") {
        Some("the emulator: apt-get install qemu-user")
    } else {
        None
    }
}

/// The first compiler that has the target's standard library.
fn compiler() -> Option<&'static str> {
    COMPILERS.into_iter().find(|compiler| {
        let out = Command::new(compiler)
            .args(["--print", "target-libdir", "--target", TARGET])
            .stderr(Stdio::null())
            .output();
        out.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
    })
}

/// The command that runs the tests of `integrity` with all its kernels, and those of `published`, under emulation.
pub fn command(root: &Path) -> Result<Command> {
    let compiler = compiler().context("no compiler has the target")?;
    let mut command = Command::new(cargo());
    command
        .args([
            "test",
            "--package",
            "intact-integrity",
            "--package",
            "intact-published",
            "--lib",
            "--tests",
            "--no-fail-fast",
            "--target",
            TARGET,
        ])
        .env("RUSTC", compiler)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR)
        .env("ALL_KERNELS_EXPECTED", "1")
        // No other step compiles the code for this architecture.
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-D warnings")
        .current_dir(root);
    Ok(command)
}
