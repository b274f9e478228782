//! The result of a run, for people and for programs.

use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use initiator::{Disk, EngineKind, SessionInfo, TuningInfo};
use serde::Serialize;

use super::workload::{Direction, Load, Pattern, Plan};
use crate::cmd::FAILED;
use crate::output;

/// Latencies, microseconds.
#[derive(Debug, Serialize)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub fn of(latency: &Histogram<u64>) -> Self {
        let us = |ns: f64| ns / 1000.0;
        let at = |quantile| us(latency.value_at_quantile(quantile) as f64);
        Self {
            mean: us(latency.mean()),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: us(latency.max() as f64),
        }
    }
}

/// How a session chose the number of its connections.
#[derive(Debug, Serialize)]
pub struct Tuning {
    /// Wanted at the end.
    pub wanted: u16,
    /// Most that it may have.
    pub most: u16,
    /// Other numbers tried, and kept.
    pub trials: u32,
    pub won: u32,
}

impl From<TuningInfo> for Tuning {
    fn from(info: TuningInfo) -> Self {
        Self { wanted: info.wanted, most: info.most, trials: info.trials, won: info.won }
    }
}

/// One run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What carried out the commands.
    engine: &'static str,
    header_digest: bool,
    data_digest: bool,
    /// Protection information was made and checked here.
    protection: bool,
    rw: Direction,
    read_percent: u8,
    pattern: Pattern,
    block_bytes: usize,
    depth: usize,
    sessions: usize,
    /// Of each session, at the end.
    connections: usize,
    /// What the first session did with `connections=auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections_auto: Option<Tuning>,
    seconds: f64,
    reads: u64,
    writes: u64,
    iops: f64,
    /// 10^6 bytes per second.
    mb_per_s: f64,
    latency_us: Latency,
    /// Of this process: user and system, all threads.
    cpu_seconds: f64,
    /// Per 10^9 bytes.
    cpu_seconds_per_gb: f64,
    cpu_seconds_per_100k_ios: f64,
    /// `None`: the engine compared them, and does not say how many.
    digests_verified: Option<u64>,
    digests_failed: u64,
    errors: u64,
    first_error: Option<String>,
    session_losses: u64,
}

impl Report {
    /// Combines the results of all sessions.
    pub fn new(plan: &Plan, disks: &[Disk], loads: Vec<Load>) -> Result<Self, String> {
        let mut latency = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
        let (mut reads, mut writes, mut errors, mut first_error) = (0, 0, 0, None);
        let (mut elapsed, mut cpu) = (Duration::ZERO, Duration::ZERO);
        for load in loads {
            latency.add(&load.latency).map_err(|error| error.to_string())?;
            reads += load.reads;
            writes += load.writes;
            errors += load.course.errors;
            first_error = first_error.or(load.course.first_error);
            // All sessions are of one process: each saw the CPU time of all.
            elapsed = elapsed.max(load.course.elapsed);
            cpu = cpu.max(load.course.cpu);
        }
        let infos: Vec<_> = disks.iter().filter_map(|disk| disk.session().info()).collect();
        let ios = (reads + writes) as f64;
        let seconds = elapsed.as_secs_f64();
        let bytes = ios * plan.block_bytes as f64;
        let per = |total: f64, n: f64| if n > 0.0 { total / n } else { 0.0 };
        let digests = disks[0].session().opening().login.params.digests;
        let engine = disks[0].session().options().engine();
        Ok(Self {
            engine: engine.name(),
            header_digest: digests.header,
            data_digest: digests.data,
            protection: plan.unit.is_protected(),
            rw: plan.direction,
            read_percent: plan.read_percent,
            pattern: plan.pattern,
            block_bytes: plan.block_bytes,
            depth: plan.depth,
            sessions: disks.len(),
            connections: infos.first().map_or(0, |info| info.connections.len()),
            connections_auto: infos.first().and_then(|info| info.tuning()).map(Tuning::from),
            seconds,
            reads,
            writes,
            iops: per(ios, seconds),
            mb_per_s: per(bytes / 1e6, seconds),
            latency_us: Latency::of(&latency),
            cpu_seconds: cpu.as_secs_f64(),
            cpu_seconds_per_gb: per(cpu.as_secs_f64(), bytes / 1e9),
            cpu_seconds_per_100k_ios: per(cpu.as_secs_f64(), ios / 1e5),
            digests_verified: (engine == EngineKind::None).then(|| {
                let verified =
                    |i: &SessionInfo| i.link.digests.header_verified + i.link.digests.data_verified;
                infos.iter().map(verified).sum()
            }),
            digests_failed: match engine {
                EngineKind::None => {
                    infos.iter().map(|i| i.link.digests.header_failed + i.link.digests.data_failed).sum()
                }
                _ => infos.iter().map(|i| i.data_digest_errors).sum(),
            },
            errors,
            first_error,
            session_losses: infos.iter().map(|info| info.losses).sum(),
        })
    }

    fn title(&self) -> String {
        title(self.header_digest, self.data_digest, self.protection)
    }
}

/// The head of the column of a run.
pub fn title(header_digest: bool, data_digest: bool, protection: bool) -> String {
    let digests = match (header_digest, data_digest) {
        (false, false) => "DIGESTS OFF",
        (true, true) => "DIGESTS ON",
        (true, false) => "HEADER DIGEST",
        (false, true) => "DATA DIGEST",
    };
    format!("{digests}{}", if protection { ", PI" } else { "" })
}

/// Prints all runs side by side; commands that failed make it a failure.
pub fn print(reports: &[Report], json: bool) -> ExitCode {
    let code = output::show(json, reports, || table(reports));
    match reports.iter().any(|report| report.errors > 0) {
        true => {
            for report in reports.iter().filter(|report| report.errors > 0) {
                let first = report.first_error.as_deref().unwrap_or_default();
                eprintln!(
                    "intact: {}: {} commands failed, the first with {first}",
                    report.title(),
                    report.errors
                );
            }
            ExitCode::from(FAILED)
        }
        false => code,
    }
}

/// A line of the table: its name, and its value in each run.
type Row = (&'static str, fn(&Report) -> String);

/// The connections of a session, if they are worth a word.
fn connections(report: &Report) -> String {
    let n = report.connections;
    match &report.connections_auto {
        Some(auto) => {
            format!(
                ", connections=auto: {n} at the end, {} trials of other numbers, {} kept",
                auto.trials, auto.won
            )
        }
        None if n > 1 => format!(" of {n} connections"),
        None => String::new(),
    }
}

fn table(reports: &[Report]) -> String {
    let titles: Vec<String> = reports.iter().map(Report::title).collect();
    let heading: Vec<&str> = std::iter::once("").chain(titles.iter().map(String::as_str)).collect();
    let mut table = output::Table::new(&heading);
    let rows: [Row; 10] = [
        ("IOPS", |r| format!("{:.0}", r.iops)),
        ("MB/s", |r| format!("{:.1}", r.mb_per_s)),
        ("p50 us", |r| format!("{:.1}", r.latency_us.p50)),
        ("p99 us", |r| format!("{:.1}", r.latency_us.p99)),
        ("p99.9 us", |r| format!("{:.1}", r.latency_us.p999)),
        ("max us", |r| format!("{:.1}", r.latency_us.max)),
        ("client CPU s per GB", |r| format!("{:.3}", r.cpu_seconds_per_gb)),
        ("client CPU s per 100k I/O", |r| format!("{:.3}", r.cpu_seconds_per_100k_ios)),
        ("digests verified", |r| r.digests_verified.map_or("by the engine".to_owned(), |n| n.to_string())),
        ("errors", |r| r.errors.to_string()),
    ];
    for (name, value) in rows {
        table.row(std::iter::once(name.to_owned()).chain(reports.iter().map(value)).collect());
    }
    let first = &reports[0];
    let what = match first.rw {
        Direction::Read => "read".to_owned(),
        Direction::Write => "write".to_owned(),
        Direction::Mix => format!("{} % read", first.read_percent),
    };
    let pattern = match first.pattern {
        Pattern::Random => "random",
        Pattern::Sequential => "sequential",
    };
    format!(
        "{} {pattern} {what}, depth {}, {} session{}{}{}, {:.1} s\n{}",
        output::bytes(first.block_bytes as u64),
        first.depth,
        first.sessions,
        if first.sessions == 1 { "" } else { "s" },
        if first.engine == "none" { String::new() } else { format!(", engine {}", first.engine) },
        connections(first),
        first.seconds,
        table.text()
    )
}
