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
mod run;

use std::process::ExitCode;

use initiator::{Disk, Workload};

use self::dss::DssLoad;
use self::generator::{Dss, LOG_STEP_BYTES, MIN_REGION_BYTES, Oltp, SCAN_BYTES};
use self::oltp::OltpLoad;
pub use self::report::{Report, print};
pub use self::run::{Profile, Settings};
use crate::cmd::{FAILED, MISUSED, fail};

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
