//! Tells the harness which compiler built it from which commit: a result says both.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = says(&rustc, &["--version"]).unwrap_or_else(|| "an unknown compiler".to_owned());
    println!("cargo::rustc-env=INTACT_COMPILER={compiler}");
    let commit = says("git", &["rev-parse", "--short=7", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=INTACT_COMMIT={commit}");
    println!("cargo::rustc-env=INTACT_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    // A path that does not exist would have the script run every time; without git, or from a package, there is none.
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = says("git", &["rev-parse", "--git-path", path])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The first line of what a program prints, if it ends well.
fn says(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
