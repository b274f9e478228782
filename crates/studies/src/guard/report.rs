//! The result: the source of all tables and charts, and what `--json` prints.
//!
//! Within one [`SCHEMA`] the names and meanings of fields do not change; fields may be added.

use serde::Serialize;

use super::disks::DiskFacts;
use crate::source::Origin;
use harness::machine::Machine;
use harness::noise::Noise;
use harness::statistics::Summary;

/// Version of the JSON format.
pub(super) const SCHEMA: u32 = 1;

/// One algorithm at one size on one disk.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    /// [`DiskFacts::id`].
    pub disk: &'static str,
    pub name: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    pub origin: Origin,
    /// Of one I/O.
    pub bytes: usize,
    /// In all turns together.
    pub writes: u64,
    /// 10^6 bytes per second.
    pub mb_per_s: Summary,
    /// CPU time of the writing thread, user and kernel, as a share of the time that passed.
    pub cpu_percent: Summary,
    /// CPU time of the writing thread for 10^9 bytes.
    pub cpu_seconds_per_gb: Summary,
}

/// The requested extent.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    pub runs: u32,
    pub turn_seconds: f64,
    pub region_bytes: u64,
    pub sector_bytes: usize,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) schema: u32,
    pub(crate) benchmark: &'static str,
    pub(crate) machine: Machine,
    /// The guard kernel in use.
    pub(crate) kernel: &'static str,
    pub(crate) noise: Noise,
    pub(crate) settings: Settings,
    pub(crate) disks: Vec<DiskFacts>,
    pub(crate) measurements: Vec<Measurement>,
}

impl Report {
    /// The measurement of that name and size on that disk.
    pub(crate) fn find(&self, disk: &str, name: &str, bytes: usize) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.disk == disk && m.name == name && m.bytes == bytes)
    }

    /// All of one disk, by algorithm, sizes ascending.
    pub(crate) fn of<'a>(&'a self, disk: &'a str) -> impl Iterator<Item = &'a Measurement> {
        self.measurements.iter().filter(move |m| m.disk == disk)
    }
}
