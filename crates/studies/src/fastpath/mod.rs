//! `intact bench fastpath`: where the cycles of a received PDU go, with the sockets taken away.
//!
//! The sandbox of the 2005 paper on software iSCSI (sections 3.3, 4 and 5; Figures 11, 12 and 14 to 17), with this program's initiator in
//! place of the paper's: protocol, CRC and copy apart, with cold and warm caches, for every CRC, and with the CRC after the copy or in it.
//!
//! Invariants:
//! - Every byte that was delivered is compared, and every command has completed; a difference ends the run.
//! - Subjects take turns, so that a disturbance of the machine affects all alike; if there was one, the result says so first.

mod caches;
mod contenders;
mod derived;
mod findings;
mod markers;
mod marks;
mod outbound;
mod papers;
mod profiled;
mod queue;
mod report;
mod sandbox;
mod tables;
mod tcp;
mod threads;
mod turns;

use std::time::Duration;

use self::caches::Purge;
use self::contenders::Contender;
pub use self::profiled::Profiled;
pub use self::report::Report;
use self::report::{ContenderFacts, Figure17, SCHEMA, Settings};
pub use self::tables::document;
use self::turns::{LARGE_PDU_BYTES, Plan};
use crate::clock::Clock;
use harness::Failure;
use harness::machine::Machine;
use harness::noise::{Noise, Snapshot};
use harness::progress::Progress;
use harness::text::Table;

const FULL: Plan = Plan { rounds: 25, cold_commands: 8 };
/// The extent of --quick.
const QUICK: Plan = Plan { rounds: 4, cold_commands: 2 };
/// How long threads receive at the same time, and the most threads that are asked for.
const TURN: Duration = Duration::from_millis(100);
const QUICK_TURN: Duration = Duration::from_millis(10);
const MAX_THREADS: usize = 64;
/// What goes over the loopback to see what TCP costs, bytes.
const TCP_BYTES: u64 = 2 << 30;
const QUICK_TCP_BYTES: u64 = 256 << 20;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds [default: 25].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Receive on up to N threads at the same time as well [default: all processors, at most 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Fewer rounds, and fewer commands in each.
    #[arg(long)]
    quick: bool,
}

/// The CRCs that can be measured: a table for people.
pub fn list() -> String {
    let mut table = Table::new(&["NAME", "WHAT"]);
    contenders::all()
        .iter()
        .for_each(|contender| table.row(vec![contender.name.to_owned(), contender.title.to_owned()]));
    table.text()
}

/// Measures.
///
/// # Errors
/// A byte was wrong, or a command did not complete.
pub fn measure(options: &Options, progress: Progress) -> Result<Report, Failure> {
    let mut plan = if options.quick { QUICK } else { FULL };
    plan.rounds = options.rounds.unwrap_or(plan.rounds);
    let contenders = contenders::all();
    let machine = Machine::this();
    let mut rows = turns::rows(plan.subjects(&contenders), &contenders);
    let bar = progress.bar(rows.len() as u64 * u64::from(plan.rounds + 1));
    let before = Snapshot::take();
    let mut clock = Clock::start();
    let purge = Purge::new();
    turns::run(&mut rows, &plan, &purge, &mut clock, &bar)?;
    let tcp = tcp::seconds_per_byte(if options.quick { QUICK_TCP_BYTES } else { TCP_BYTES }).ok();
    let sent = outbound::run(plan.rounds)?;
    let threads = options.threads.map_or(machine.cpus.clamp(1, MAX_THREADS), usize::from);
    let turn = if options.quick { QUICK_TURN } else { TURN };
    let rates = match contenders.last() {
        Some(in_use) => threads::run(in_use, threads, plan.rounds, turn)?,
        None => Vec::new(),
    };
    bar.finish_and_clear();
    let after = Snapshot::take();
    let noise = Noise::judge(&before, &after, &turns::round_factors(&rows), &clock.core_drift(), &machine);
    let frequency = clock.frequency();
    let facts = |contender: &Contender| ContenderFacts {
        name: contender.name,
        title: contender.title,
        origin: contender.origin,
        in_use: contender.is_in_use(),
    };
    let mut report = Report {
        schema: SCHEMA,
        benchmark: "fastpath",
        machine,
        kernel: integrity::kernel_name(),
        noise,
        settings: Settings { rounds: plan.rounds, purged_bytes: purge.bytes() },
        figure_17: Figure17 {
            tcp_cycles_per_byte: tcp.map(|seconds| seconds * frequency.cycle_hz),
            ten_gigabit_mb_per_s: derived::line_rate(LARGE_PDU_BYTES),
            projections: Vec::new(),
        },
        contenders: contenders.iter().map(facts).collect(),
        measurements: rows.iter().map(|row| report::measurement(row, &frequency)).collect(),
        outbound: outbound::summary(&sent, &frequency),
        threads: threads::summary(&rates, &frequency),
        frequency,
    };
    report.figure_17.projections = derived::projections(&report);
    Ok(report)
}
