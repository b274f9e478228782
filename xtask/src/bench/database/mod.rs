//! `cargo xtask bench database`: pgbench in the Linux guest, on our target and on tgt in turn, digests off and on.
//!
//! One guest serves all runs. For each it logs in, mounts, starts PostgreSQL, reads the database into its cache, and runs
//! pgbench over a local socket. Both targets keep their volume in a file of the same folder, written completely beforehand, through the
//! system's cache, with a write cache that the host flushes; `fsync` is on.
//!
//! The guest is user-mode Linux, whose system calls are slow, so much of a transaction's time is its own. Three columns show how
//! much: the guest's processor time, the time in which its disk had commands outstanding, and a run with `fsync` off, which
//! hardly waits for a target at all. One load is measured twice in each round: its ratio to itself is the judge of the page.

mod guest;
mod page;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::place::{self, Surroundings};
use super::servers::{self, Server};
use super::{progress, report};

/// The lines before the tables in docs/database.md: volumes on a disk, and in memory.
const BEGIN: [&str; 2] = [
    "<!-- begin: cargo xtask bench database --write -->",
    "<!-- begin: cargo xtask bench database --directory /dev/shm/volumes --write -->",
];
/// Bytes of each volume.
const VOLUME_BYTES: u64 = 1536 << 20;

/// Arguments of `cargo xtask bench database`.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Measured seconds of each of the six runs of a round
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// pgbench's scale: 100,000 accounts each
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Folder for the volumes, 1.5 GiB each, which stay there, so that another run starts at once; default: a temporary one. In
    /// /dev/shm a flush costs nothing, which compares the targets and not a disk
    #[arg(long)]
    directory: Option<PathBuf>,
    /// How long our target looks for news before it sleeps, µs, instead of its default
    #[arg(long)]
    poll_us: Option<u32>,
    #[command(flatten)]
    pub output: report::Output,
}

/// What takes turns.
struct Contender {
    name: &'static str,
    /// Its place among the servers.
    server: usize,
    digests: bool,
    fsync: bool,
}

const fn contender(name: &'static str, server: usize, digests: bool, fsync: bool) -> Contender {
    Contender { name, server, digests, fsync }
}

const OURS_OFF: usize = 0;
const OURS_ON: usize = 1;
const OURS_AGAIN: usize = 2;
const TGT_OFF: usize = 3;
const TGT_ON: usize = 4;
const NO_FSYNC: usize = 5;
const CONTENDERS: [Contender; 6] = [
    contender("intact, digests off", 0, false, true),
    contender("intact, digests on", 0, true, true),
    contender("intact, digests on, again", 0, true, true),
    contender("tgt, digests off", 1, false, true),
    contender("tgt, digests on", 1, true, true),
    contender("without fsync (intact, digests on)", 0, true, false),
];

/// One run of pgbench.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sample {
    /// Its place in [`CONTENDERS`].
    contender: usize,
    transactions: u64,
    tps: f64,
    latency_ms: f64,
    /// Of the guest's disk: commands, bytes, and the time that all of them took together. Linux counts a flush as a write too.
    writes: u64,
    written_bytes: u64,
    write_ms: u64,
    flushes: u64,
    flush_ms: u64,
    reads: u64,
    /// How long commands were outstanding, and how long the run took.
    busy_ms: u64,
    wall_ms: u64,
    #[serde(default)]
    cpu: Cpu,
}

/// Processor time of one run, seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Cpu {
    target: f64,
    /// The guest with all that runs in it.
    guest: f64,
    /// The process that is the guest's network.
    network: f64,
}

/// Measures, and prints the tables.
pub fn run(root: &Path, built: &Path, options: &Options) -> Result<()> {
    let intact = options.output.binary(built);
    let scratch = tempfile::Builder::new().prefix("bench").tempdir_in(root.join("target"))?;
    let folder = options.directory.as_deref().unwrap_or(scratch.path());
    fs::create_dir_all(folder)?;
    let system = file_system(folder)?;
    let samples = measure(root, intact, scratch.path(), folder, options)?;
    let text = page::markdown(&samples, &report::machine(root), &system, options);
    let begin = BEGIN[usize::from(system == "tmpfs")];
    options.output.publish(root, "docs/database.md", begin, &text).map(drop)
}

/// Per contender, round by round.
fn measure(
    root: &Path,
    intact: &Path,
    scratch: &Path,
    folder: &Path,
    options: &Options,
) -> Result<Vec<Vec<Sample>>> {
    let ready = folder.join(format!("scale-{}-is-ready", options.scale));
    let volumes = ["intact.img", "tgt.img"].map(|name| folder.join(name));
    if !ready.exists() {
        volumes.iter().try_for_each(|volume| zeros(volume))?;
    }
    let servers = [
        servers::configured(place::target(intact), scratch, &ours(&volumes[0], options))?,
        servers::tgt_on(place::target("tgtd"), scratch, &volumes[1])?,
    ];
    let mut samples = vec![Vec::new(); CONTENDERS.len()];
    let total = options.rounds * CONTENDERS.len();
    let mut guest = guest::Guest::boot(root, &servers, &knobs(&servers, options, ready.exists())?)?;
    while let Some(sample) = guest.next_sample(&servers, || Ok(File::create(&ready).map(drop)?))? {
        let of: &mut Vec<Sample> = samples.get_mut(sample.contender).context("a run of nobody")?;
        of.push(sample);
        // After each run: one that is interrupted leaves what it has measured.
        options.output.keep(&samples)?;
        progress::show(format_args!("{} of {total} runs", samples.iter().map(Vec::len).sum::<usize>()));
    }
    progress::end();
    if samples.iter().any(|of| of.len() != options.rounds) {
        bail!("runs are missing");
    }
    Ok(samples)
}

/// Our target's configuration: one volume, nothing else.
fn ours(volume: &Path, options: &Options) -> String {
    let limits = options.poll_us.map_or(String::new(), |us| format!("[limits]\npoll_us = {us}\n"));
    let lun = format!("[[target.lun]]\nstore = \"file:{}\"\n", volume.display());
    format!("{limits}[[target]]\nname = \"iqn.2026-01.org.example:database\"\n{lun}")
}

/// The kind of file system that a folder is in, such as ext2/ext3 or tmpfs.
fn file_system(folder: &Path) -> Result<String> {
    let output =
        Command::new("stat").args(["-f", "-c", "%T"]).arg(folder).output().context("cannot run stat")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A file of zeros, on the disk: neither target has to allocate blocks while it is measured.
fn zeros(path: &Path) -> Result<()> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    let piece = vec![0; 1 << 20];
    for _ in 0..VOLUME_BYTES / piece.len() as u64 {
        file.write_all(&piece)?;
    }
    Ok(file.sync_all()?)
}

/// What the scenario reads: the targets, the runs in their order, and how they are.
fn knobs(servers: &[Server], options: &Options, ready: bool) -> Result<Vec<String>> {
    let targets: Vec<String> = servers.iter().map(target).collect::<Result<_>>()?;
    // Each round begins with another contender, so none always follows the same one.
    let runs = (0..options.rounds)
        .flat_map(|round| (0..CONTENDERS.len()).map(move |n| (n + round) % CONTENDERS.len()));
    let runs: Vec<String> = runs
        .map(|n| {
            let Contender { server, digests, fsync, .. } = CONTENDERS[n];
            let digest = if digests { "CRC32C" } else { "None" };
            format!("{n}:{server}:{digest}:{}", if fsync { "on" } else { "off" })
        })
        .collect();
    Ok(vec![
        format!("RIG_DB_TARGETS={}", targets.join(" ")),
        format!("RIG_DB_RUNS={}", runs.join(" ")),
        format!("RIG_DB_SCALE={}", options.scale),
        format!("RIG_DB_S={}", options.seconds),
        format!("RIG_DB_READY={}", u8::from(ready)),
    ])
}

/// Port, name and unit of a server.
fn target(server: &Server) -> Result<String> {
    let mut parts = server.url.rsplit('/');
    let (lun, name) = (parts.next(), parts.next());
    let port = server.portal.rsplit(':').next();
    let (Some(lun), Some(name), Some(port)) = (lun, name, port) else { bail!("{} is no URL", server.url) };
    Ok(format!("{port},{name},{lun}"))
}
