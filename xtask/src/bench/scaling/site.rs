//! The targets of the comparison, one for each store and number of shards, and a run against one of them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::TempDir;

use super::share::Share;
use super::{Arrangement, Load, Processors, STORES};
use crate::bench::rows::Row;
use crate::bench::servers::{self, Server, Thread, VOLUME_BYTES};
use crate::bench::{Sample, measure, place};

/// The names of a target's shards begin so.
const SHARD: &str = "shard-";

/// What one run says.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub sample: Sample,
    /// The share of the time in which each shard was busy.
    pub busy: Vec<f64>,
}

impl Run {
    /// Commands per second.
    pub fn rate(&self) -> f64 {
        self.sample.iops
    }

    /// CPU time of the target for a command, microseconds.
    pub fn target_us(&self) -> f64 {
        self.sample.target_cpu_seconds / self.sample.ios() * 1e6
    }

    /// CPU time of the clients for a command, microseconds.
    pub fn client_us(&self) -> f64 {
        self.sample.cpu_seconds / self.sample.ios() * 1e6
    }

    /// Processors that the target used.
    pub fn used(&self) -> f64 {
        self.sample.target_cpu_seconds / self.sample.seconds()
    }

    /// How much more the busiest shard does than the average: 1.0 is even.
    pub fn imbalance(&self) -> f64 {
        let sum: f64 = self.busy.iter().sum();
        self.busy.iter().copied().fold(0.0, f64::max) * self.busy.len() as f64 / sum
    }
}

struct Target {
    store: &'static str,
    shards: usize,
    server: Server,
}

/// See the head of the module.
pub struct Site {
    targets: Vec<Target>,
    client: std::path::PathBuf,
    processors: usize,
    /// Where the system has shares; otherwise why not.
    pub share: Result<Share>,
    _scratch: TempDir,
}

impl Site {
    /// Starts the targets, with volumes that were written. Files go into a folder of their own in `files`.
    pub fn start(intact: &Path, files: &Path, loads: &[Load], shards: &[usize]) -> Result<Self> {
        let scratch = tempfile::tempdir_in(files).context("no place for the files")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut targets = Vec::new();
        for store in STORES.into_iter().filter(|store| loads.iter().any(|load| load.store == *store)) {
            for &shards in shards {
                let name = format!("{store}-{shards}");
                let volume = match store {
                    "file" => format!("file:{},size={VOLUME_BYTES}", scratch.path().join(&name).display()),
                    _ => format!("ram:{VOLUME_BYTES}"),
                };
                // Polling before sleep costs CPU time that is nobody's work: it is off.
                let tables = format!(
                    "[limits]\nshards = {shards}\npoll_us = 0\n[[target]]\nname = \"iqn.2026-01.org.example:{name}\"\n\
                     [[target.lun]]\nstore = \"{volume}\"\n"
                );
                let command = place::fairly(intact, &all(processors));
                let server = servers::configured(command, scratch.path(), &tables)?;
                place::fill(intact, &server)?;
                targets.push(Target { store, shards, server });
            }
        }
        let client = intact.to_owned();
        Ok(Self { targets, client, processors, share: Share::new(), _scratch: scratch })
    }

    /// Measures `load` once, arranged like this.
    pub fn run(&self, load: &Load, arrangement: &Arrangement, seconds: f64) -> Result<Run> {
        let here = |target: &&Target| (target.store, target.shards) == (load.store, arrangement.shards);
        let server = &self.targets.iter().find(here).context("no target has so many shards")?.server;
        let (cores, generator) = match arrangement.processors {
            Processors::Apart => ("0".to_owned(), place::fairly(&self.client, "1")),
            Processors::Together => {
                (all(self.processors), place::fairly(&self.client, &all(self.processors)))
            }
        };
        place::move_to(server, &cores)?;
        let Some(percent) = arrangement.share else {
            return self.measure(server, generator, load, arrangement, seconds);
        };
        let Ok(share) = &self.share else { bail!("there are no shares of processors") };
        share.set(percent)?;
        share.take(server.process.id())?;
        let run = self.measure(server, generator, load, arrangement, seconds);
        share.release(server.process.id())?;
        run
    }

    fn measure(
        &self,
        server: &Server,
        generator: Command,
        load: &Load,
        arrangement: &Arrangement,
        seconds: f64,
    ) -> Result<Run> {
        let row = Row { depth: arrangement.depth, sessions: arrangement.sessions, ..*load.row };
        let query = match arrangement.connections {
            1 => String::new(),
            n => format!("?connections={n}"),
        };
        let before = server.threads()?;
        let sample = measure(generator, server, &query, &row, load.digests, seconds)?;
        let after = server.threads()?;
        if arrangement.processors == Processors::Apart {
            stayed(&before, &after, 0)?;
        }
        let busy = busy(&before, &after, sample.seconds());
        if busy.len() != arrangement.shards {
            bail!("the target has {} shards instead of {}", busy.len(), arrangement.shards);
        }
        Ok(Run { sample, busy })
    }
}

/// All processors, as `taskset -c` writes them.
fn all(processors: usize) -> String {
    format!("0-{}", processors - 1)
}

/// CPU time of a thread between the two readings, seconds.
fn spent(before: &[Thread], now: &Thread) -> f64 {
    let then = before.iter().find(|thread| thread.id == now.id);
    now.cpu_seconds - then.map_or(0.0, |thread| thread.cpu_seconds)
}

/// Whether each thread that worked did so on `processor`.
fn stayed(before: &[Thread], after: &[Thread], processor: usize) -> Result<()> {
    let strayed = |thread: &&Thread| spent(before, thread) > 0.0 && thread.processor != processor;
    match after.iter().find(strayed) {
        Some(thread) => bail!("{} ran on processor {}, not {processor}", thread.name, thread.processor),
        None => Ok(()),
    }
}

/// The share of the time in which each shard was busy, by its number.
fn busy(before: &[Thread], after: &[Thread], seconds: f64) -> Vec<f64> {
    let mut shards: Vec<(usize, f64)> = after
        .iter()
        .filter_map(|thread| {
            let number = thread.name.strip_prefix(SHARD)?.parse().ok()?;
            Some((number, spent(before, thread) / seconds))
        })
        .collect();
    shards.sort_by_key(|&(number, _)| number);
    shards.into_iter().map(|(_, busy)| busy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: u64, name: &str, cpu_seconds: f64, processor: usize) -> Thread {
        Thread { id, name: name.to_owned(), cpu_seconds, processor }
    }

    #[test]
    fn only_shards_count_as_busy_and_in_the_order_of_their_numbers() {
        let before =
            [thread(1, "intact", 1.0, 0), thread(3, "shard-1", 2.0, 0), thread(2, "shard-0", 1.0, 0)];
        let after = [thread(1, "intact", 9.0, 0), thread(3, "shard-1", 2.5, 0), thread(2, "shard-0", 2.0, 0)];
        assert_eq!(busy(&before, &after, 2.0), [0.5, 0.25]);
    }

    #[test]
    fn a_thread_that_worked_elsewhere_is_found_and_one_that_slept_there_is_not_meant() {
        let before = [thread(1, "shard-0", 1.0, 1), thread(2, "store", 1.0, 1)];
        let asleep = [thread(1, "shard-0", 2.0, 0), thread(2, "store", 1.0, 1)];
        stayed(&before, &asleep, 0).unwrap();
        let strayed = [thread(1, "shard-0", 2.0, 0), thread(2, "store", 1.1, 1)];
        assert!(stayed(&before, &strayed, 0).unwrap_err().to_string().contains("store ran on processor 1"));
    }
}
