//! `cargo xtask fuzz`: runs every fuzz target for a while, starting from the corpus in the
//! repository.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub struct Args {
    /// Targets to run; by default all of fuzz/fuzz_targets
    pub targets: Vec<String>,
    /// How long each target runs, in seconds
    #[arg(long, default_value_t = DEFAULT_SECONDS)]
    pub seconds: u32,
}

/// Default run time of a target, in seconds.
pub const DEFAULT_SECONDS: u32 = 60;
/// One input may take this long before it counts as a hang.
const INPUT_TIMEOUT_S: u32 = 10;
/// Memory above which a target counts as allocating whatever its peer claims.
const MEMORY_LIMIT_MIB: u32 = 1024;

/// Whether the project has fuzz targets.
pub fn exists(root: &Path) -> bool {
    root.join("fuzz/Cargo.toml").is_file()
}

/// What this machine lacks to run them, if anything.
pub fn missing() -> Option<&'static str> {
    let works = |args: &[&str]| {
        let status = Command::new("cargo").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !works(&["+nightly", "--version"]) {
        Some("a nightly toolchain: rustup toolchain install nightly --profile minimal")
    } else if !works(&["+nightly", "fuzz", "--version"]) {
        Some("cargo-fuzz: cargo install cargo-fuzz --locked")
    } else {
        None
    }
}

/// Runs the targets one after the other; `false` when one of them finds something.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    if !exists(root) {
        bail!("there is no fuzz/Cargo.toml");
    }
    if let Some(missing) = missing() {
        bail!("missing: {missing}");
    }
    let known = targets(root)?;
    let wanted = if args.targets.is_empty() { &known } else { &args.targets };
    if let Some(unknown) = wanted.iter().find(|target| !known.contains(target)) {
        bail!("there is no fuzz target `{unknown}`; there are: {}", known.join(", "));
    }
    let mut failed = Vec::new();
    for target in wanted {
        println!("fuzz: {target} for {} s", args.seconds);
        // New inputs go to the first folder, so a run leaves the corpus in the repository unchanged.
        let found = root.join("fuzz/target/found").join(target);
        std::fs::create_dir_all(&found)?;
        let corpus = root.join("fuzz/corpus").join(target);
        let status = Command::new("cargo")
            .args(["+nightly", "fuzz", "run", target])
            .args([&found, &corpus])
            .arg("--")
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-timeout={INPUT_TIMEOUT_S}"))
            .arg(format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"))
            .arg("-print_final_stats=1")
            // The cargo that runs this program sets these for its own toolchain.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .current_dir(root)
            .status()
            .context("cargo fuzz did not start")?;
        if !status.success() {
            failed.push(target.as_str());
        }
    }
    match failed.as_slice() {
        [] => println!("fuzz: {} targets, nothing found", wanted.len()),
        _ => println!("fuzz: found something in {}; the inputs are in fuzz/artifacts", failed.join(", ")),
    }
    Ok(failed.is_empty())
}

/// The fuzz targets of the project.
fn targets(root: &Path) -> Result<Vec<String>> {
    let files = workspace::files(root)?;
    Ok(files
        .iter()
        .filter(|path| {
            path.starts_with("fuzz/fuzz_targets") && path.extension().is_some_and(|ext| ext == "rs")
        })
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect())
}
