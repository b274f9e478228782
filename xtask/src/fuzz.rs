//! `cargo xtask fuzz`: runs every fuzz target for a while, starting from the corpus in the
//! repository. The targets are built together and run as many at a time as there are processors.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

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

/// Runs the targets; `false` when one of them finds something.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    if !exists(root) {
        bail!("there is no fuzz/Cargo.toml");
    }
    if let Some(missing) = missing() {
        bail!("missing: {missing}");
    }
    let known = targets(root)?;
    let wanted = if args.targets.is_empty() { known.clone() } else { args.targets.clone() };
    if let Some(unknown) = wanted.iter().find(|target| !known.contains(target)) {
        bail!("there is no fuzz target `{unknown}`; there are: {}", known.join(", "));
    }
    // Before the runs, which would wait for each other's builds.
    let only = if let [one] = wanted.as_slice() { Some(one) } else { None };
    let built = cargo_fuzz(root, "build").args(only).status().context("cargo fuzz did not start")?;
    if !built.success() {
        bail!("the fuzz targets do not build");
    }
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<&str>> {
        let mut failed = Vec::new();
        while let Some(target) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            println!("fuzz: {target} for {} s", args.seconds);
            let output = fuzz(root, target, args.seconds)?;
            print!("fuzz: {target} ended\n{}", shown(&output));
            if !output.status.success() {
                failed.push(target.as_str());
            }
        }
        Ok(failed)
    };
    let failed = thread::scope(|scope| -> Result<Vec<&str>> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let failed = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        Ok(failed.collect::<Result<Vec<_>>>()?.concat())
    })?;
    match failed.as_slice() {
        [] => println!("fuzz: {} targets, nothing found", wanted.len()),
        _ => println!("fuzz: found something in {}; the inputs are in fuzz/artifacts", failed.join(", ")),
    }
    Ok(failed.is_empty())
}

fn cargo_fuzz(root: &Path, command: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["+nightly", "fuzz", command])
        // The cargo that runs this program sets these for its own toolchain.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .current_dir(root);
    cargo
}

fn fuzz(root: &Path, target: &str, seconds: u32) -> Result<Output> {
    // New inputs go to the first folder, so a run leaves the corpus in the repository unchanged.
    let found = root.join("fuzz/target/found").join(target);
    std::fs::create_dir_all(&found)?;
    let corpus = root.join("fuzz/corpus").join(target);
    cargo_fuzz(root, "run")
        .arg(target)
        .args([&found, &corpus])
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_TIMEOUT_S}"))
        .arg(format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"))
        .arg("-print_final_stats=1")
        .output()
        .context("cargo fuzz did not start")
}

/// What people see of a run: all of it if it found something, otherwise its statistics.
fn shown(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let counts = |line: &&str| !output.status.success() || line.starts_with("stat::");
    text.lines().filter(counts).map(|line| format!("{line}\n")).collect()
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
