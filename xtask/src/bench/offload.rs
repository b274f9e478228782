//! `cargo xtask bench offload`: what a command costs the client's process without and with an offload engine, in instructions that
//! callgrind counts. `intact bench offload` shows them beside the 2013 paper's.
//!
//! The commands run over a session with our target, and the counts of two runs of different lengths are subtracted, so start and login
//! fall out. The engine in software is called through the trait `Engine` alone. What is executed in such a call, the accesses to host memory
//! and everything else below it included, is what hardware would do, and is counted apart.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::callgrind;
use super::report;
use super::servers::{self, Server};

/// Where the result is kept; `studies` contains it.
const KEPT: &str = "crates/studies/src/offload/host-instructions.json";
/// Commands of the two runs.
const COMMANDS: [u32; 2] = [96, 288];
/// How often each is counted; the one in the middle is taken. How many commands a turn of the event loop finds depends on the pace of the target.
const TIMES: usize = 3;
/// Commands under way at a time.
const DEPTH: u32 = 32;
/// Bytes of a command.
const BYTES: [u64; 4] = [512, 4096, 8192, 131_072];
/// The command whose digests' share the paper states, bytes.
const SHARED: u64 = 8192;
/// What is in the name of each call of the engine.
const ENGINE: &str = "SoftwareEngine as ";

/// Arguments of `cargo xtask bench offload`.
#[derive(clap::Args)]
pub struct Options {
    /// Keep the figures for `intact bench offload`, which has to be built again then
    #[arg(long)]
    write: bool,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    json: Option<std::path::PathBuf>,
}

/// Instructions of one command.
#[derive(Debug, Serialize)]
struct Row {
    rw: &'static str,
    bytes: u64,
    digests: bool,
    engine: &'static str,
    instructions: f64,
    engine_instructions: f64,
}

/// What is kept.
#[derive(Serialize)]
struct Kept {
    counted_on: String,
    depth: u32,
    rows: Vec<Row>,
}

/// Instructions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    all: u64,
    engine: u64,
}

/// Counts every case.
pub fn run(root: &Path, intact: &Path, options: &Options) -> Result<()> {
    let server = servers::intact(Command::new(intact), "ram:64M")?;
    let mut rows = Vec::new();
    for rw in ["read", "write"] {
        for bytes in BYTES {
            // Without digests once, for their share.
            for digests in [true, false].into_iter().filter(|digests| *digests || bytes == SHARED) {
                for engine in ["none", "software"] {
                    eprintln!("counting {rw} of {bytes} bytes, digests {digests}, engine {engine}");
                    rows.push(row(intact, &server, (rw, bytes, digests, engine))?);
                }
            }
        }
    }
    let kept = Kept { counted_on: report::machine(root), depth: DEPTH, rows };
    println!("{}\n{}", kept.counted_on, table(&kept.rows));
    let text = serde_json::to_string_pretty(&kept)? + "\n";
    if let Some(path) = &options.json {
        std::fs::write(path, &text)?;
    }
    if options.write {
        std::fs::write(root.join(KEPT), &text)?;
    }
    Ok(())
}

type Case = (&'static str, u64, bool, &'static str);

fn row(intact: &Path, server: &Server, case: Case) -> Result<Row> {
    let (rw, bytes, digests, engine) = case;
    let [few, many] = COMMANDS.map(|commands| middle(|| count(intact, server, case, commands)));
    let (few, many) = (few?, many?);
    let commands = f64::from(COMMANDS[1] - COMMANDS[0]);
    let of_one = |few: u64, many: u64| (many as f64 - few as f64) / commands;
    let row = Row {
        rw,
        bytes,
        digests,
        engine,
        instructions: of_one(few.all, many.all).round(),
        engine_instructions: of_one(few.engine, many.engine).round(),
    };
    ensure!(
        (row.engine_instructions > 0.0) == (engine == "software"),
        "callgrind saw {} instructions in the engine {engine}: does the program still call it through the trait?",
        row.engine_instructions
    );
    Ok(row)
}

/// The count in the middle, by what the host has executed.
fn middle(count: impl Fn() -> Result<Counts>) -> Result<Counts> {
    let mut counts = (0..TIMES).map(|_| count()).collect::<Result<Vec<_>>>()?;
    counts.sort_unstable_by_key(|counts| counts.all - counts.engine);
    Ok(counts[TIMES / 2])
}

fn count(
    intact: &Path,
    server: &Server,
    (rw, bytes, digests, engine): Case,
    commands: u32,
) -> Result<Counts> {
    let (bytes, commands, depth) = (bytes.to_string(), commands.to_string(), DEPTH.to_string());
    let mut arguments = vec!["bench", "offload", "--profile", &server.url, "--engine", engine];
    arguments.extend(["--block", &bytes, "--commands", &commands, "--depth", &depth]);
    arguments.extend((rw == "write").then_some("--write"));
    arguments.extend((!digests).then_some("--no-digests"));
    let what = format!("{rw} of {bytes} bytes, engine {engine}");
    counts(&callgrind::profile(&what, &["--compress-pos=no"], intact, &arguments)?.counts)
}

/// Reads a file of callgrind with one event: all instructions, and those of calls into the engine from outside of it.
fn counts(text: &str) -> Result<Counts> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut inside, mut callee_inside, mut after_call) = (false, false, false);
    let mut counts = Counts { all: 0, engine: 0 };
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            inside = is_engine(&mut names, name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee_inside = is_engine(&mut names, name);
        } else if line.starts_with("calls=") {
            after_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            let cost = cost.with_context(|| format!("callgrind's line has no cost: {line}"))?;
            match (std::mem::take(&mut after_call), inside, callee_inside) {
                (true, false, true) => counts.engine += cost,
                (true, ..) => {}
                (false, ..) => counts.all += cost,
            }
        }
    }
    ensure!(counts.all > 0, "callgrind counted no instruction");
    Ok(counts)
}

/// Whether a function is the engine's. Its name follows its number only the first time.
fn is_engine<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> bool {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    if !name.is_empty() {
        names.insert(number, name);
    }
    names.get(number).is_some_and(|name| name.contains(ENGINE))
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n| command | digests | engine | instructions | inside the engine | host |\n|---|---|---|--:|--:|--:|\n",
    );
    for row in rows {
        text.push_str(&format!(
            "| {} of {} bytes | {} | {} | {} | {} | {} |\n",
            row.rw,
            row.bytes,
            if row.digests { "on" } else { "off" },
            row.engine,
            row.instructions,
            row.engine_instructions,
            row.instructions - row.engine_instructions
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_into_the_engine_count_once_and_only_from_outside() {
        let text = "version: 1\nevents: Ir\n\nfn=(1) agent\n16 100\ncfn=(2) <offload::SoftwareEngine as offload::Engine>::rx\n\
                    calls=3 0\n16 70\ncfn=(3) other\ncalls=1 0\n17 5\n\nfn=(2)\n20 60\ncfn=(4) <offload::SoftwareEngine as \
                    offload::Engine>::poll\ncalls=1 0\n20 10\n\nfn=(4)\n30 10\n\nfn=(3)\n40 5\n";
        assert_eq!(counts(text).unwrap(), Counts { all: 175, engine: 70 });
    }

    #[test]
    fn the_count_in_the_middle_is_that_of_the_host() {
        let runs = std::cell::RefCell::new(vec![(90, 60), (50, 25), (100, 80)]);
        let count = || {
            let (all, engine) = runs.borrow_mut().pop().unwrap();
            Ok(Counts { all, engine })
        };
        assert_eq!(middle(count).unwrap(), Counts { all: 50, engine: 25 });
        assert!(middle(|| anyhow::bail!("no count")).is_err());
    }

    #[test]
    fn nothing_counted_and_a_line_without_a_cost_are_errors() {
        assert!(counts("events: Ir\n").is_err());
        assert!(counts("events: Ir\nfn=(1) x\n16\n").is_err());
    }
}
