//! `--profile`: the loads of databases.
//!
//! `oltp` is a database with transactions: pages of 8 KiB at places of a Zipf distribution, 70 % read, `--depth` at a time; one
//! writer of a log, 4 to 32 KiB, sequential, each with FUA and one at a time; and checkpoints every ten seconds. A transaction is
//! complete when its write of the log is, so transactions per second are completed writes of the log. The two kinds do not wait
//! for each other, as a database whose log writer is its own process.
//!
//! `dss` is a database that answers questions about all of it: four scans in steps of 256 KiB.
//!
//! One session does all of it. Reads are checked as those of the plain load: digests by the session, tuples where the URL asks for
//! them, and the length; the contents are not compared.

mod dss;
mod generator;
mod oltp;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use initiator::{Disk, Workload};

use self::dss::DssLoad;
use self::generator::{Dss, LOG_STEP_BYTES, MIN_REGION_BYTES, Oltp, SCAN_BYTES};
use self::oltp::OltpLoad;
pub use self::report::{Report, print};
use super::slots::{Unit, latencies, record};
use crate::cmd::{FAILED, MISUSED, fail};

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
    latency: Histogram<u64>,
    reads: u64,
    writes: u64,
    bytes: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { latency: latencies(), reads: 0, writes: 0, bytes: 0 }
    }
}

impl Tally {
    fn add(&mut self, read: bool, bytes: u64, took: Duration) {
        record(&mut self.latency, took);
        *(if read { &mut self.reads } else { &mut self.writes }) += 1;
        self.bytes += bytes;
    }
}

/// One run over the session of `disk`.
pub fn run(settings: &Settings, disk: &Disk) -> Result<Report, ExitCode> {
    if settings.checkpoint.is_zero() {
        return Err(fail(MISUSED, "--checkpoint 0 never ends one: say how often, such as 10s"));
    }
    if !LOG_STEP_BYTES.is_multiple_of(settings.sector_bytes) {
        let sector = settings.sector_bytes;
        return Err(fail(
            MISUSED,
            format_args!("the LUN has blocks of {sector} bytes; a profile needs 4 KiB at most"),
        ));
    }
    if let Some(most) = disk.info().max_transfer_blocks
        && SCAN_BYTES > u64::from(most) * settings.sector_bytes
    {
        let most = u64::from(most) * settings.sector_bytes;
        return Err(fail(
            MISUSED,
            format_args!("the LUN takes at most {most} bytes in one command; a profile needs 256 KiB"),
        ));
    }
    let small = || {
        let least = MIN_REGION_BYTES >> 20;
        fail(
            MISUSED,
            format_args!("the LUN, or the region of it, is smaller than {least} MiB, which a profile needs"),
        )
    };
    match settings.profile {
        Profile::Oltp => {
            let generator = Oltp::new(settings.region_bytes, settings.seed).ok_or_else(small)?;
            let load = run_to_its_end(disk, OltpLoad::new(settings, generator))?;
            Ok(Report::of_oltp(settings, disk, &load))
        }
        Profile::Dss => {
            let generator = Dss::new(settings.region_bytes).ok_or_else(small)?;
            let load = run_to_its_end(disk, DssLoad::new(settings, generator))?;
            Ok(Report::of_dss(settings, disk, &load))
        }
    }
}

fn run_to_its_end<W: Workload + Send + 'static>(disk: &Disk, load: W) -> Result<W, ExitCode> {
    disk.session().run(load).ok_or_else(|| fail(FAILED, "a session ended in the middle"))
}

/// Bytes that do not compress, the same for the same seed.
fn payload(seed: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; PAYLOAD_BYTES];
    random.fill(&mut bytes);
    Bytes::from(bytes)
}
