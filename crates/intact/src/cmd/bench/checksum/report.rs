//! The result: everything that tables and charts are made of, and what `--json` prints.
//!
//! The names of fields and what they mean stay as they are within one [`SCHEMA`]; fields may be added.

use serde::Serialize;

use super::contenders::{Contender, Group, Method};
use super::memory::Runs;
use super::sampling::Samples;
use crate::cmd::bench::kit::clock::Frequency;
use crate::cmd::bench::kit::machine::Machine;
use crate::cmd::bench::kit::noise::Noise;
use crate::cmd::bench::kit::source::Origin;
use crate::cmd::bench::kit::statistics::Summary;

/// Version of the form.
pub const SCHEMA: u32 = 1;

/// One contender at one size.
#[derive(Debug, Serialize)]
pub struct Measurement {
    pub group: &'static str,
    pub name: String,
    pub title: String,
    pub source: String,
    pub origin: Origin,
    /// The kernel that was measured in its place, on a machine without the instructions.
    pub substitute: Option<String>,
    pub method: Method,
    pub calls_per_sample: usize,
    /// How many of the samples were taken again, because another program had run during them.
    pub retaken_samples: usize,
    pub bytes: usize,
    pub cycles_per_byte: Summary,
    /// 10^9 bytes per second, from the median.
    pub gb_per_s: f64,
}

/// One algorithm over the large buffer.
#[derive(Debug, Serialize)]
pub struct MemoryMeasurement {
    pub name: String,
    pub title: String,
    pub source: String,
    pub origin: Origin,
    /// 10^6 bytes per second.
    pub mb_per_s: Summary,
}

/// What a group is about.
#[derive(Debug, Serialize)]
pub struct GroupFacts {
    pub id: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub method: Method,
    pub sizes: Vec<usize>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
pub struct Settings {
    pub samples: usize,
    pub memory_bytes: u64,
    pub memory_runs: usize,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub schema: u32,
    pub benchmark: &'static str,
    pub machine: Machine,
    /// The CRC32C kernel in use.
    pub kernel: &'static str,
    pub frequency: Frequency,
    pub noise: Noise,
    pub settings: Settings,
    pub groups: Vec<GroupFacts>,
    pub measurements: Vec<Measurement>,
    pub memory: Vec<MemoryMeasurement>,
}

/// Puts samples of `groups` into cycles per byte.
pub fn measurements(groups: &[Group], all: &[Samples], frequency: &Frequency) -> Vec<Measurement> {
    // Contenders in their order, each with its sizes: the order of the tables.
    let mut order: Vec<&Samples> = all.iter().collect();
    order.sort_by_key(|samples| (samples.group, samples.contender, samples.bytes));
    order.into_iter().map(|samples| measurement(&groups[samples.group], samples, frequency)).collect()
}

fn measurement(group: &Group, samples: &Samples, frequency: &Frequency) -> Measurement {
    let Contender { name, title, source, origin, substitute, .. } = &group.contenders[samples.contender];
    let cycles_per_byte =
        Summary::of(&samples.ticks).scaled(frequency.cycles_per_tick() / samples.bytes as f64);
    Measurement {
        group: group.id,
        name: name.clone(),
        title: title.clone(),
        source: source.clone(),
        origin: *origin,
        substitute: substitute.clone(),
        method: group.method,
        calls_per_sample: samples.calls,
        retaken_samples: samples.retaken,
        bytes: samples.bytes,
        cycles_per_byte,
        gb_per_s: frequency.gb_per_s(cycles_per_byte.median),
    }
}

/// Puts runs over the large buffer into numbers.
pub fn memory(all: &[Runs]) -> Vec<MemoryMeasurement> {
    let one = |runs: &Runs| MemoryMeasurement {
        name: runs.contender.name.clone(),
        title: runs.contender.title.clone(),
        source: runs.contender.source.clone(),
        origin: runs.contender.origin,
        mb_per_s: Summary::of(&runs.mb_per_s),
    };
    all.iter().map(one).collect()
}

impl Report {
    /// The measurement of that name at that size.
    pub fn find(&self, name: &str, bytes: usize) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.name == name && m.bytes == bytes)
    }

    /// All sizes of one name, ascending.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Measurement> {
        self.measurements.iter().filter(move |m| m.name == name)
    }

    /// Names of a group's contenders with the first measurement of each, in order.
    pub fn contenders<'a>(&'a self, group: &'a str) -> Vec<&'a Measurement> {
        let mut firsts: Vec<&Measurement> = Vec::new();
        for measurement in self.measurements.iter().filter(|m| m.group == group) {
            if firsts.last().is_none_or(|last| last.name != measurement.name) {
                firsts.push(measurement);
            }
        }
        firsts
    }
}
