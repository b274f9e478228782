//! What the loads of all profiles share: the settings of a run, the bytes that it writes, and its tally.

use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use hdrhistogram::Histogram;

use crate::cmd::bench::lun::slots::{Unit, latencies, record};

/// Bytes of random data from which writes take a part.
const PAYLOAD_BYTES: usize = 1 << 20;

/// The load to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Transactions: pages of 8 KiB, 70 % read, at hot places; a log with FUA; checkpoints.
    Oltp,
    /// Four scans in steps of 256 KiB.
    Dss,
}

impl Profile {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        self == Self::Oltp
    }
}

/// A run of a profile.
#[derive(Clone, Debug)]
pub struct Settings {
    pub profile: Profile,
    /// Bytes from the beginning of the unit that are used.
    pub region_bytes: u64,
    pub sector_bytes: u64,
    pub depth: usize,
    pub seed: u64,
    /// Time between the beginnings of two checkpoints.
    pub checkpoint: Duration,
    pub warmup: Duration,
    pub time: Duration,
    pub unit: Unit,
}

/// Commands of one kind in the measured time.
pub struct Tally {
    pub(super) latency: Histogram<u64>,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { latency: latencies(), reads: 0, writes: 0, bytes: 0 }
    }
}

impl Tally {
    pub(super) fn add(&mut self, read: bool, bytes: u64, took: Duration) {
        record(&mut self.latency, took);
        *(if read { &mut self.reads } else { &mut self.writes }) += 1;
        self.bytes += bytes;
    }
}

/// Bytes that do not compress, the same for the same seed.
pub(super) fn payload(seed: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; PAYLOAD_BYTES];
    random.fill(&mut bytes);
    Bytes::from(bytes)
}
