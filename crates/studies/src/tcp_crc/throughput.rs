//! How fast one stream is between two network namespaces, and what it costs the machine: plain, by a shim and by the kernel's programs.

use std::fmt::Display;
use std::time::{Duration, Instant};

use harness::progress::ProgressBar;
use serde::Serialize;
use tcp_crc::{Config, Method, Offer, State};
use tcp_crc_shim::lab::{Pour, Span, Way, Wire, content};

use harness::chart::{Chart, Role, Scale};
use harness::document::{Block, Table};
use harness::machine::Machine;
use harness::noise::{Noise, Snapshot};
use harness::statistics::median;

/// What is compared once with what was sent, before anything is measured, in bytes.
const COMPARED_BYTES: usize = 16 << 20;
/// What a stream has sent before it is measured, in bytes: its window is open then.
const WARM_BYTES: u64 = 8 << 20;
/// A stream that has not sent that after this time never will.
const WARM_LIMIT: Duration = Duration::from_secs(20);
/// The time between two looks at it.
const WARM_LOOK: Duration = Duration::from_millis(1);
/// The usual congestion control of Linux. BBR, the default of some machines, sends at a pace, which is another measurement.
const CONGESTION: &str = "cubic";
const GIGA: f64 = 1e9;

/// One way of a stream.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    crc: bool,
    /// The case that it is compared with.
    base: usize,
    way: Way,
}

/// Where the cases without a CRC stand, which others are compared with.
const PLAIN: usize = 0;
const PLAIN_SINGLES: usize = 1;
const TUN: usize = 2;
const TUN_SINGLES: usize = 3;
const BPF: usize = 5;

fn cases() -> [Case; 7] {
    let with = |values: &[Method]| Config { offer: Offer::of(values), ..Config::default() };
    let (none, crc) = (with(&[]), with(&[Method::Data, Method::Placed]));
    let case = |name, crc, base, way| Case { name, crc, base, way };
    [
        case("plain TCP", false, PLAIN, Way::Plain(Wire::Supers)),
        case("plain TCP, single segments", false, PLAIN, Way::Plain(Wire::Singles)),
        case("TUN without a CRC", false, PLAIN, Way::Tun(none, Wire::Supers)),
        case("TUN without a CRC, single segments", false, PLAIN_SINGLES, Way::Tun(none, Wire::Singles)),
        case("TUN with a CRC", true, TUN_SINGLES, Way::Tun(crc, Wire::Supers)),
        case("BPF without a CRC", false, PLAIN_SINGLES, Way::Bpf(none)),
        case("BPF with a CRC", true, BPF, Way::Bpf(crc)),
    ]
}

/// What was measured of one case.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: &'static str,
    /// The value in effect; none without a CRC.
    value: Option<u8>,
    gbit_per_s: f64,
    /// Of all processors together, without what others took while nothing was measured.
    cpu_s_per_gb: f64,
    /// Of this process alone: sender, receiver and shims, with the interrupts that the kernel handled in their time. Others do not change it.
    own_cpu_s_per_gb: f64,
    /// The case that it is compared with, and its throughput over that one's: the median of the rounds' ratios.
    base: &'static str,
    ratio: f64,
    /// Each round.
    all_gbit_per_s: Vec<f64>,
}

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    rounds: u32,
    seconds: f64,
    congestion: String,
    compared_bytes: usize,
    /// TUN with a CRC over TUN without, whose super-segments no wire carries.
    tun_ratio_to_supers: f64,
    rows: Vec<Row>,
    noise: Noise,
}

/// One turn.
#[derive(Clone, Copy)]
struct Turn {
    bytes_per_s: f64,
    /// Processors kept busy, by anything and by this process.
    busy: f64,
    own_busy: f64,
}

impl Report {
    /// Takes the figures: every case in turn, `seconds` each, `rounds` times.
    pub(super) fn measure(rounds: u32, seconds: f64, bar: &ProgressBar) -> Result<Self, String> {
        let machine = Machine::this();
        let cases = cases();
        let mut spans = Vec::new();
        let mut values = Vec::new();
        bar.set_length(u64::from(rounds));
        for case in &cases {
            let span = Span::build(case.way).map_err(|error| error.to_string())?;
            values.push(checked(case, &span).map_err(|error| format!("{}: {error}", case.name))?);
            spans.push(span);
        }
        let start = Snapshot::take();
        let (mut quiet, mut turns, mut congestion) = (start, vec![Vec::new(); cases.len()], String::new());
        for _ in 0..rounds {
            let others = idle(&mut quiet, seconds);
            for ((case, span), turns) in cases.iter().zip(&spans).zip(&mut turns) {
                let (turn, used) =
                    turn(span, seconds, others).map_err(|error| format!("{}: {error}", case.name))?;
                turns.push(turn);
                congestion = used;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let noise = Noise::judge(&start, &quiet, &round_factors(&turns), &[], &machine);
        let rows: Vec<Row> = (0..cases.len()).map(|case| row(&cases, values[case], &turns, case)).collect();
        let with = cases.iter().position(|case| case.crc).unwrap_or_default();
        Ok(Self {
            rounds,
            seconds,
            congestion,
            compared_bytes: COMPARED_BYTES,
            tun_ratio_to_supers: ratio(&turns, with, TUN),
            rows,
            noise,
        })
    }

    /// Why the figures are not to be trusted.
    pub(super) fn reasons(&self) -> &[String] {
        &self.noise.reasons
    }
}

/// Whether what arrives is what was sent, with a CRC if and only if there should be one. Returns the value in effect.
fn checked(case: &Case, span: &Span) -> Result<Option<u8>, String> {
    let sent = content(1, COMPARED_BYTES);
    let arrived = span.transfer(&sent).map_err(|error| error.to_string())?;
    if arrived.bytes != sent.len() as u64 || arrived.wrong != 0 {
        return Err(format!(
            "{} of {} bytes arrived, {} of them wrong",
            arrived.bytes,
            sent.len(),
            arrived.wrong
        ));
    }
    let mut value = None;
    for seen in span.seen() {
        if case.crc != (seen.total.stamped > 0 && seen.total.verified > 0) {
            return Err(format!(
                "{} segments were stamped, {} verified",
                seen.total.stamped, seen.total.verified
            ));
        }
        let states = seen.connections.iter().map(|(_, state, _)| *state);
        value = states.fold(value, |value, state| match state {
            State::Protected(method) => Some(method.value()),
            _ => value,
        });
    }
    Ok(value)
}

/// A turn in which nothing is measured, which `quiet` gets longer by. Returns the processors that others kept busy.
fn idle(quiet: &mut Snapshot, seconds: f64) -> f64 {
    let (before, began) = (Snapshot::take(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let after = Snapshot::take();
    *quiet = quiet.and(&before, &after);
    after.busy_s_since(&before) / began.elapsed().as_secs_f64()
}

/// A stream of `seconds`, while others keep `others` processors busy; and its congestion control.
fn turn(span: &Span, seconds: f64, others: f64) -> Result<(Turn, String), impl Display> {
    let pour = span.pour(CONGESTION)?;
    let deadline = Instant::now() + WARM_LIMIT;
    while pour.received() < WARM_BYTES {
        if Instant::now() > deadline {
            return Err(std::io::Error::other(format!("only {} bytes arrived", pour.received())));
        }
        std::thread::sleep(WARM_LOOK);
    }
    let (before, bytes, began) = (Snapshot::take(), pour.received(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let bytes = pour.received() - bytes;
    let took = began.elapsed().as_secs_f64();
    let after = Snapshot::take();
    let turn = Turn {
        bytes_per_s: bytes as f64 / took,
        busy: (after.busy_s_since(&before) / took - others).max(0.0),
        own_busy: after.own_s_since(&before) / took,
    };
    Ok((turn, Pour::congestion(&pour).to_owned()))
}

/// How slow each round was: the geometric mean over all cases.
fn round_factors(turns: &[Vec<Turn>]) -> Vec<f64> {
    let rounds = turns.first().map_or(0, Vec::len);
    let typical: Vec<f64> = turns.iter().map(|turns| median(&speeds(turns))).collect();
    let factor = |round: usize| {
        let logarithms =
            turns.iter().zip(&typical).map(|(turns, typical)| (typical / turns[round].bytes_per_s).ln());
        (logarithms.sum::<f64>() / turns.len() as f64).exp()
    };
    (0..rounds).map(factor).collect()
}

fn speeds(turns: &[Turn]) -> Vec<f64> {
    turns.iter().map(|turn| turn.bytes_per_s).collect()
}

/// How fast `case` is, compared with `base` in the same round.
fn ratio(turns: &[Vec<Turn>], case: usize, base: usize) -> f64 {
    let pairs = turns[case].iter().zip(&turns[base]);
    median(&pairs.map(|(own, base)| own.bytes_per_s / base.bytes_per_s).collect::<Vec<_>>())
}

fn row(cases: &[Case], value: Option<u8>, turns: &[Vec<Turn>], case: usize) -> Row {
    let Case { name, base, .. } = cases[case];
    let speeds = speeds(&turns[case]);
    let cost = |busy: fn(&Turn) -> f64| {
        median(&turns[case].iter().map(|turn| busy(turn) / turn.bytes_per_s * GIGA).collect::<Vec<_>>())
    };
    Row {
        name,
        value,
        gbit_per_s: 8.0 * median(&speeds) / GIGA,
        cpu_s_per_gb: cost(|turn| turn.busy),
        own_cpu_s_per_gb: cost(|turn| turn.own_busy),
        base: cases[base].name,
        ratio: ratio(turns, case, base),
        all_gbit_per_s: speeds.iter().map(|speed| 8.0 * speed / GIGA).collect(),
    }
}

/// The report for people.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let heading = ["", "value", "Gbit/s", "lowest", "highest", "CPU s/GB", "own", "ratio", "to"];
    let mut table = Table::new("One stream, median of the rounds", &heading);
    for row in &report.rows {
        let all = &row.all_gbit_per_s;
        table.rows.push(vec![
            row.name.to_owned(),
            row.value.map_or("-".to_owned(), |value| value.to_string()),
            format!("{:.2}", row.gbit_per_s),
            format!("{:.2}", all.iter().copied().fold(f64::INFINITY, f64::min)),
            format!("{:.2}", all.iter().copied().fold(0.0, f64::max)),
            format!("{:.2}", row.cpu_s_per_gb),
            format!("{:.2}", row.own_cpu_s_per_gb),
            format!("{:.2}", row.ratio),
            row.base.to_owned(),
        ]);
    }
    let about = format!(
        "{} rounds of {} s for each, in turn; {}; MTU 1500; sender, receiver and both back ends on this machine. {} MiB were compared once in each \
         case. The processor time is that of the whole machine (/proc/stat), without what others took in a turn of the same round in which \
         nothing was sent; own is what this process took of it.",
        report.rounds,
        report.seconds,
        report.congestion,
        report.compared_bytes >> 20
    );
    let wire = format!(
        "A CRC for each segment takes super-segments (TSO) off the wire: single segments without a CRC lose {:.0} % of plain TCP's throughput \
         here. A shim without a CRC forwards super-segments whole, as no wire carries them; of that, a shim with one has {:.2}.",
        100.0 * (1.0 - report.rows[PLAIN_SINGLES].ratio),
        report.tun_ratio_to_supers
    );
    vec![
        Block::Heading(1, "Throughput".to_owned()),
        Block::Text(about),
        Block::Table(table),
        Block::Text(wire),
        Block::Chart(chart(report)),
        Block::Table(Table::of_facts(report.noise.facts())),
    ]
}

fn chart(report: &Report) -> Chart {
    let (x, y) = (("round", Scale::Linear), ("Gbit/s", Scale::Linear));
    let chart = Chart::new("tcp-crc-throughput", "Throughput of a stream", "higher is better", x, y);
    report.rows.iter().enumerate().fold(chart, |chart, (hue, row)| {
        let points = (1..).map(f64::from).zip(row.all_gbit_per_s.iter().copied());
        chart.line(row.name, Role::Measured, hue, points)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(speeds: &[f64], busy: f64) -> Vec<Turn> {
        speeds.iter().map(|speed| Turn { bytes_per_s: speed * GIGA, busy, own_busy: busy / 2.0 }).collect()
    }

    #[test]
    fn a_row_compares_within_the_rounds() {
        // The second round of all was half as fast: the ratio does not show it, the round's factor does.
        let mut all = vec![turns(&[4.0, 2.0, 4.0], 2.0); 7];
        all[1] = turns(&[1.0, 0.5, 1.0], 1.0);
        let row = row(&cases(), None, &all, PLAIN_SINGLES);
        assert_eq!((row.gbit_per_s, row.ratio, row.base), (8.0, 0.25, "plain TCP"));
        assert_eq!((row.cpu_s_per_gb, row.own_cpu_s_per_gb), (1.0, 0.5));
        let factors = round_factors(&all);
        assert!([1.0, 2.0, 1.0].iter().zip(&factors).all(|(a, b)| (a - b).abs() < 1e-9), "{factors:?}");
    }

    #[test]
    fn each_case_is_compared_with_one_without_a_crc() {
        let cases = cases();
        for (number, case) in cases.iter().enumerate() {
            assert!(!cases[case.base].crc && case.base <= number, "{}", case.name);
        }
        assert_eq!(cases[TUN_SINGLES].name, "TUN without a CRC, single segments");
        assert_eq!((cases[TUN].name, cases[BPF].name), ("TUN without a CRC", "BPF without a CRC"));
    }
}
