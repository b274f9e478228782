//! `cargo xtask ns3`: saturated stations in ns-3 and in our medium, next to each other. ns-3 is an independent model, by other people; it
//! comes with Debian (libns3-dev) and needs a C++ compiler. Without them nothing is compared, and that is said.
//!
//! Both have the same parameters: 11 Mbit/s, acknowledgements too, 1472 bytes of payload in 1500, 8 bytes of LLC. The program for ns-3 is
//! `crates/wireless/ns3/saturation.cc`; ours is the example `saturation` of the crate. Both are called alike and print one number.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench::put_into_page;
use crate::workspace::{cargo, on_ci};

const SOURCE: &str = "crates/wireless/ns3/saturation.cc";
/// What it uses of ns-3. `pkg-config` would add the GNU Scientific Library, which it does not use.
const LIBRARIES: [&str; 6] =
    ["ns3-applications", "ns3-wifi", "ns3-internet", "ns3-mobility", "ns3-network", "ns3-core"];
const PAGE: &str = "docs/wireless-models.md";
const BEGIN: &str = "<!-- begin: cargo xtask ns3 --write -->";
/// Stations that send, and how much the two may differ.
const ROWS: [(u32, f64); 4] = [(1, 0.005), (2, 0.005), (5, 0.03), (10, 0.03)];

/// Arguments of `cargo xtask ns3`.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each number of stations
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Virtual seconds of a run
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Put the result into docs/wireless-models.md
    #[arg(long)]
    write: bool,
}

/// Mean of several runs, and half of its 95 % confidence interval, Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mean {
    value: f64,
    by: f64,
}

impl Mean {
    fn of(runs: &[f64]) -> Mean {
        let n = runs.len() as f64;
        let value = runs.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = runs.iter().map(|run| (run - value).powi(2)).sum();
        Mean { value, by: 1.96 * (squares / (n - 1.0).max(1.0) / n.max(1.0)).sqrt() }
    }
}

/// Compares; `false`: they differ by more than they may.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let Some(version) = version() else {
        let missing = "ns-3 is not here, so nothing was compared: apt-get install libns3-dev g++ pkg-config";
        ensure!(!on_ci(), "{missing}");
        eprintln!("LEFT OUT: {missing}");
        return Ok(true);
    };
    let (ours, theirs) = (build_ours(root)?, build_theirs(root)?);
    let mut text = format!(
        "ns-3 {version} and the medium, mean of {} seeds of {} s each, Mbit/s with 95 % confidence:\n\n\
         | n | medium | ns-3 | difference | allowed |\n|---|---|---|---|---|\n",
        args.seeds, args.seconds
    );
    let mut same = true;
    for (stations, allowed) in ROWS {
        let runs = |program: &dyn Fn() -> Command| -> Result<Mean> {
            let run = |seed: u64| {
                let mut command = program();
                command.args([stations.to_string(), args.seconds.to_string(), seed.to_string()]);
                number(command)
            };
            Ok(Mean::of(&(1..=args.seeds).map(run).collect::<Result<Vec<f64>>>()?))
        };
        let (ours, theirs) = (runs(&|| Command::new(&ours))?, runs(&|| Command::new(&theirs))?);
        let difference = ours.value / theirs.value - 1.0;
        same &= difference.abs() <= allowed;
        let _ = writeln!(
            text,
            "| {stations} | {:.3} ±{:.3} | {:.3} ±{:.3} | {:+.2} % | {:.1} % |",
            ours.value,
            ours.by,
            theirs.value,
            theirs.by,
            difference * 100.0,
            allowed * 100.0
        );
    }
    println!("{text}");
    if args.write {
        put_into_page(&root.join(PAGE), BEGIN, &text)?;
    }
    if !same {
        println!("they differ by more than is allowed");
    }
    Ok(same)
}

/// Of the installed ns-3.
fn version() -> Option<String> {
    let output = Command::new("pkg-config").args(["--modversion", LIBRARIES[1]]).output().ok()?;
    let compiler = Command::new("g++").arg("--version").output().is_ok();
    let version = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && compiler).then(|| version.trim().to_owned())
}

fn build_theirs(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/ns3");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("saturation");
    // ns-3 3.37 is not C++20. Its libraries need each other, also where the program does not.
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-O1", "-Wl,--no-as-needed", "-o"])
        .args([&program, &root.join(SOURCE)])
        .args(LIBRARIES.map(|library| format!("-l{library}")))
        .status()
        .context("g++ did not start")?;
    ensure!(compiled.success(), "g++ refused {SOURCE}");
    Ok(program)
}

fn build_ours(root: &Path) -> Result<PathBuf> {
    let built = Command::new(cargo())
        .args([
            "build",
            "--quiet",
            "--profile",
            "sim",
            "--package",
            "intact-wireless",
            "--example",
            "saturation",
        ])
        .current_dir(root)
        .status()
        .context("cargo did not start")?;
    ensure!(built.success(), "the example saturation could not be built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("sim/examples/saturation"))
}

/// The number that a program prints.
fn number(mut command: Command) -> Result<f64> {
    let output = command.output().with_context(|| format!("{:?} did not start", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    ensure!(output.status.success(), failed());
    said.trim().parse().with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_its_confidence() {
        let mean = Mean::of(&[9.0, 10.0, 11.0]);
        assert!((mean.value - 10.0).abs() < 1e-9 && (mean.by - 1.96 / 3f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_number_is_an_error_that_names_the_program() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            number(command)
        };
        assert_eq!(shell("echo 6.25").unwrap(), 6.25);
        for wrong in ["echo six", "echo 6; exit 1"] {
            assert!(format!("{:#}", shell(wrong).unwrap_err()).contains("sh"), "{wrong}");
        }
    }
}
