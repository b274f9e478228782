//! Damage that TCP's sum does not detect: two hosts and a forwarder in network namespaces. The forwarder sends a damaged twin before
//! segments with data, and the twin's sum is right. Without a CRC the twin arrives; with one it is discarded.

use std::sync::atomic::Ordering;

use harness::Failure;
use harness::chart::{Chart, Role, Scale};
use harness::document::{Block, Document, Extent, Table, Trust};
use harness::progress::Progress;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tcp_crc::{Config, Method};
use tcp_crc_shim::Backend;
use tcp_crc_shim::lab::{Damage, Damager, End, Lab, Plan, content, sum_errors};

/// Bytes of one connection of a transfer.
const ROUND_BYTES: usize = 4 << 20;
/// Maximum number of connections in a transfer.
const ROUNDS_MAX: u64 = 100_000;

/// What is damaged, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Minimum number of damaged segments in each of the two transfers.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    damaged: u64,
    /// Damage one in this many segments.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// IPv6 in place of IPv4.
    #[arg(long)]
    ipv6: bool,
    /// Seed of the damage.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A transfer through damage.
#[derive(Clone, Debug, Serialize)]
struct Run {
    crc: bool,
    bytes: u64,
    damaged: Vec<(&'static str, u64)>,
    wrong_bytes: u64,
    discarded: u64,
    tcp_in_csum_errors: u64,
    sha256_sent: String,
    sha256_arrived: String,
    /// Damaged segments and wrong bytes after each connection.
    course: Vec<(u64, u64)>,
}

impl Run {
    fn damaged_segments(&self) -> u64 {
        self.damaged.iter().map(|(_, count)| count).sum()
    }
}

/// The two transfers.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    ip_version: u8,
    backend: &'static str,
    values: Vec<u8>,
    every: u32,
    seed: u64,
    without: Run,
    with: Run,
    shown: bool,
}

impl Outcome {
    /// Whether wrong bytes arrived without a CRC, and with it none.
    pub fn is_shown(&self) -> bool {
        self.shown
    }
}

/// Damages a transfer without a CRC, and one with the CRC as `config` has it, by `backend`.
///
/// # Errors
/// The hosts cannot be made here, or a transfer failed.
pub fn measure(
    options: &Options,
    config: Config,
    backend: Backend,
    progress: Progress,
) -> Result<Outcome, Failure> {
    let without = transfer(options, backend, None, progress)?;
    let with = transfer(options, backend, Some(config), progress)?;
    let shown = without.wrong_bytes > 0
        && with.wrong_bytes == 0
        && with.sha256_sent == with.sha256_arrived
        && (1..=with.damaged_segments()).contains(&with.discarded)
        && without.tcp_in_csum_errors == 0;
    Ok(Outcome {
        ip_version: if options.ipv6 { 6 } else { 4 },
        backend: match backend {
            Backend::Tun => "tun",
            Backend::Bpf => "bpf",
        },
        values: config.offer.methods().map(Method::value).collect(),
        every: options.every,
        seed: options.seed,
        without,
        with,
        shown,
    })
}

/// Connections one after the other until enough segments were damaged.
fn transfer(
    options: &Options,
    backend: Backend,
    config: Option<Config>,
    progress: Progress,
) -> Result<Run, String> {
    let (damager, count) = Damager::new(options.seed, options.every);
    let backends = [backend; 2];
    let plan = Plan { middle: damager.middle(), backends, ..Plan::both(config) };
    let lab = Lab::build(plan).map_err(|error| error.to_string())?;
    let bar = progress.bar(options.damaged);
    bar.set_message(if config.is_some() { "with a CRC   " } else { "without a CRC" });
    let damaged =
        || Damage::ALL.iter().zip(&*count).map(|(kind, count)| (kind.name(), count.load(Ordering::Relaxed)));
    let (mut sent, mut arrived) = (Sha256::new(), Sha256::new());
    let (mut bytes, mut wrong_bytes, mut course) = (0, 0, Vec::new());
    for round in 0..ROUNDS_MAX {
        let data = content(options.seed + round, ROUND_BYTES);
        sent.update(&data);
        let transfer = lab
            .transfer_each(options.ipv6, &data, |part| arrived.update(part))
            .map_err(|error| format!("the transfer failed: {error}"))?;
        bytes += transfer.bytes;
        wrong_bytes += transfer.wrong;
        let so_far: u64 = damaged().map(|(_, count)| count).sum();
        course.push((so_far, wrong_bytes));
        bar.set_position(so_far.min(options.damaged));
        if so_far >= options.damaged {
            break;
        }
    }
    bar.finish_and_clear();
    let errors = [End::Client, End::Server].map(|end| sum_errors(lab.host(end)));
    let tcp_in_csum_errors = errors
        .into_iter()
        .sum::<std::io::Result<u64>>()
        .map_err(|error| format!("/proc/net/snmp: {error}"))?;
    let hex = |hash: Sha256| hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Run {
        crc: config.is_some(),
        bytes,
        damaged: damaged().collect(),
        wrong_bytes,
        discarded: lab.seen(End::Server).map_or(0, |seen| seen.total.bad_crc),
        tcp_in_csum_errors,
        sha256_sent: hex(sent),
        sha256_arrived: hex(arrived),
        course,
    })
}

/// The counts for people.
pub fn document(outcome: &Outcome, _: Extent) -> Document {
    let runs = [&outcome.without, &outcome.with];
    let mut table = Table::new("What was damaged and what arrived", &["", "without a CRC", "with a CRC"]);
    let mut row = |name: &str, cell: &dyn Fn(&Run) -> String| {
        table.rows.push([name.to_owned()].into_iter().chain(runs.iter().map(|run| cell(run))).collect());
    };
    row("bytes sent", &|run| run.bytes.to_string());
    for (i, kind) in Damage::ALL.iter().enumerate() {
        row(&format!("segments damaged: {}", kind.name()), &|run| run.damaged[i].1.to_string());
    }
    row("segments damaged", &|run| run.damaged_segments().to_string());
    row("discarded for their CRC", &|run| run.discarded.to_string());
    row("discarded for TCP's sum (TcpInCsumErrors)", &|run| run.tcp_in_csum_errors.to_string());
    row("wrong bytes delivered", &|run| run.wrong_bytes.to_string());
    row("SHA-256 sent", &|run| run.sha256_sent[..16].to_owned());
    row("SHA-256 arrived", &|run| run.sha256_arrived[..16].to_owned());
    let values: Vec<String> = outcome.values.iter().map(u8::to_string).collect();
    let about = format!(
        "IPv{}, value {} asked for, by {}. A forwarder sends a damaged twin before one of {} segments with data; the twin's 16-bit sum is right. \
         Seed {}.",
        outcome.ip_version,
        values.join(", "),
        outcome.backend,
        outcome.every,
        outcome.seed
    );
    Document {
        title: "Damage that TCP's sum does not see".to_owned(),
        // The counts are exact, however busy the machine is.
        trust: Trust::Measured(Vec::new()),
        blocks: vec![Block::Text(about), Block::Table(table), Block::Chart(chart(outcome))],
    }
}

fn chart(outcome: &Outcome) -> Chart {
    let course = |run: &Run| run.course.iter().map(|(x, y)| (*x as f64, *y as f64)).collect::<Vec<_>>();
    Chart::new(
        "tcp-crc-damage",
        "Wrong bytes that arrive",
        "TCP's sum is right in every damaged segment",
        ("damaged segments", Scale::Linear),
        ("wrong bytes delivered", Scale::Linear),
    )
    .line("without a CRC", Role::Measured, 1, course(&outcome.without))
    .line("with a CRC", Role::Measured, 0, course(&outcome.with))
}
