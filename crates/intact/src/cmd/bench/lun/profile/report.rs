//! The result of a run of a profile, for people and for programs.

use std::process::ExitCode;

use hdrhistogram::Histogram;
use initiator::{Disk, EngineKind};
use serde::Serialize;

use super::dss::DssLoad;
use super::oltp::OltpLoad;
use super::run::{Profile, Settings, Tally};
use crate::cmd::FAILED;
use crate::cmd::bench::lun::course::Course;
use crate::cmd::bench::lun::report::{Latency, title};
use crate::output;

/// Commands of one kind.
#[derive(Debug, Serialize)]
struct Kind {
    reads: u64,
    writes: u64,
    iops: f64,
    /// 10^6 bytes per second.
    mb_per_s: f64,
    latency_us: Latency,
}

#[derive(Debug, Serialize)]
struct Checkpoints {
    /// Those that ended in the measured time.
    completed: u64,
    /// Those that did not begin because the last one had not ended.
    late: u64,
    /// From the first write to the end of the flush.
    took_us: Latency,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct Report {
    profile: Profile,
    /// What carried out the commands.
    engine: &'static str,
    header_digest: bool,
    data_digest: bool,
    /// Protection information was made and checked here.
    protection: bool,
    seed: u64,
    region_bytes: u64,
    /// Commands to data outstanding at a time.
    depth: usize,
    seconds: f64,
    /// Completed writes of the log; null without transactions.
    transactions_per_s: Option<f64>,
    log: Option<Kind>,
    data: Kind,
    checkpoints: Option<Checkpoints>,
    /// Of this process: user and system, all threads.
    cpu_seconds: f64,
    /// `None`: the engine compared them, and does not say how many.
    digests_verified: Option<u64>,
    digests_failed: u64,
    errors: u64,
    first_error: Option<String>,
    session_losses: u64,
}

impl Report {
    pub fn of_oltp(settings: &Settings, disk: &Disk, load: &OltpLoad) -> Self {
        let seconds = load.course.elapsed.as_secs_f64();
        let (took, late) = load.checkpoints();
        let log = kind(&load.log, seconds);
        Self {
            transactions_per_s: Some(log.iops),
            log: Some(log),
            checkpoints: Some(checkpoints(took, late)),
            ..Self::new(settings, settings.depth, disk, &load.course, &load.data)
        }
    }

    pub fn of_dss(settings: &Settings, disk: &Disk, load: &DssLoad) -> Self {
        Self::new(settings, load.depth(), disk, &load.course, &load.data)
    }

    fn new(settings: &Settings, depth: usize, disk: &Disk, course: &Course, data: &Tally) -> Self {
        let digests = disk.session().opening().login.params.digests;
        let info = disk.session().info();
        let link = info.as_ref().map(|info| info.link.digests);
        let seconds = course.elapsed.as_secs_f64();
        let engine = disk.session().options().engine();
        Self {
            profile: settings.profile,
            engine: engine.name(),
            header_digest: digests.header,
            data_digest: digests.data,
            protection: settings.unit.is_protected(),
            seed: settings.seed,
            region_bytes: settings.region_bytes,
            depth,
            seconds,
            transactions_per_s: None,
            log: None,
            data: kind(data, seconds),
            checkpoints: None,
            cpu_seconds: course.cpu.as_secs_f64(),
            digests_verified: (engine == EngineKind::None)
                .then(|| link.map_or(0, |d| d.header_verified + d.data_verified)),
            digests_failed: match engine {
                EngineKind::None => link.map_or(0, |d| d.header_failed + d.data_failed),
                _ => info.as_ref().map_or(0, |info| info.data_digest_errors),
            },
            errors: course.errors,
            first_error: course.first_error.clone(),
            session_losses: info.map_or(0, |info| info.losses),
        }
    }

    fn title(&self) -> String {
        title(self.header_digest, self.data_digest, self.protection)
    }
}

fn kind(tally: &Tally, seconds: f64) -> Kind {
    let per_s = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
    Kind {
        reads: tally.reads,
        writes: tally.writes,
        iops: per_s((tally.reads + tally.writes) as f64),
        mb_per_s: per_s(tally.bytes as f64 / 1e6),
        latency_us: Latency::of(&tally.latency),
    }
}

fn checkpoints(took: &Histogram<u64>, late: u64) -> Checkpoints {
    Checkpoints { completed: took.len(), late, took_us: Latency::of(took) }
}

/// Prints all runs side by side; commands that failed make it a failure.
pub fn print(reports: &[Report], json: bool) -> ExitCode {
    let code = output::show(json, reports, || table(reports));
    let mut failed = reports.iter().filter(|report| report.errors > 0).peekable();
    if failed.peek().is_none() {
        return code;
    }
    for report in failed {
        let first = report.first_error.as_deref().unwrap_or_default();
        eprintln!("intact: {}: {} commands failed, the first with {first}", report.title(), report.errors);
    }
    ExitCode::from(FAILED)
}

/// A line of the table: its name, and its value in each run; none where the profile has none.
type Row = (&'static str, fn(&Report) -> Option<String>);

const ROWS: [Row; 15] = [
    ("transactions/s", |r| r.transactions_per_s.map(|n| format!("{n:.0}"))),
    ("log MB/s", |r| r.log.as_ref().map(|log| format!("{:.1}", log.mb_per_s))),
    ("log p50 us", |r| r.log.as_ref().map(|log| format!("{:.1}", log.latency_us.p50))),
    ("log p99 us", |r| r.log.as_ref().map(|log| format!("{:.1}", log.latency_us.p99))),
    ("log p99.9 us", |r| r.log.as_ref().map(|log| format!("{:.1}", log.latency_us.p999))),
    ("data IOPS", |r| Some(format!("{:.0}", r.data.iops))),
    ("data MB/s", |r| Some(format!("{:.1}", r.data.mb_per_s))),
    ("data p50 us", |r| Some(format!("{:.1}", r.data.latency_us.p50))),
    ("data p99 us", |r| Some(format!("{:.1}", r.data.latency_us.p99))),
    ("data p99.9 us", |r| Some(format!("{:.1}", r.data.latency_us.p999))),
    ("checkpoints", |r| r.checkpoints.as_ref().map(|c| c.completed.to_string())),
    ("longest checkpoint ms", |r| r.checkpoints.as_ref().map(|c| format!("{:.1}", c.took_us.max / 1000.0))),
    ("client CPU s", |r| Some(format!("{:.2}", r.cpu_seconds))),
    ("digests verified", |r| Some(r.digests_verified.map_or("by the engine".to_owned(), |n| n.to_string()))),
    ("errors", |r| Some(r.errors.to_string())),
];

fn table(reports: &[Report]) -> String {
    let titles: Vec<String> = reports.iter().map(Report::title).collect();
    let heading: Vec<&str> = std::iter::once("").chain(titles.iter().map(String::as_str)).collect();
    let mut table = output::Table::new(&heading);
    for (name, value) in ROWS {
        let values: Option<Vec<String>> = reports.iter().map(value).collect();
        if let Some(values) = values {
            table.row(std::iter::once(name.to_owned()).chain(values).collect());
        }
    }
    let first = &reports[0];
    let what = match first.profile {
        Profile::Oltp => "transactions",
        Profile::Dss => "scans",
    };
    format!(
        "{what}, {} of the LUN, depth {}, {:.1} s, seed {}\n{}",
        output::bytes(first.region_bytes),
        first.depth,
        first.seconds,
        first.seed,
        table.text()
    )
}
