//! What the CRC costs in the kernel, for each segment.

use harness::progress::ProgressBar;
use serde::Serialize;
use tcp_crc::{Config, Method, Offer};
use tcp_crc_shim::bpf::cost::Bench;

use harness::chart::{Chart, Role, Scale};
use harness::document::{Block, Table};
use harness::machine::Machine;
use harness::noise::{Noise, Snapshot};
use harness::statistics::median;

/// Data of a segment, in bytes: what is full with timestamps and the option is 1440.
const SIZES: [usize; 5] = [0, 64, 512, 1440, 2880];
/// The size by which rounds are compared.
const FULL: usize = 3;
const METHODS: [Method; 3] = [Method::Data, Method::Whole, Method::Placed];

/// One method and size, in nanoseconds for a segment.
#[derive(Clone, Debug, Serialize)]
struct Row {
    value: u8,
    data_bytes: usize,
    out_ns: f64,
    in_ns: f64,
}

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    rounds: u32,
    segments: u32,
    rows: Vec<Row>,
    noise: Noise,
}

impl Report {
    /// Takes the figures.
    pub(super) fn measure(
        rounds: u32,
        segments: u32,
        bar: &ProgressBar,
    ) -> Result<Self, tcp_crc_shim::SetupError> {
        let machine = Machine::this();
        let before = Snapshot::take();
        let (rows, factors) = rows(rounds, segments, bar)?;
        let noise = Noise::judge(&before, &Snapshot::take(), &factors, &[], &machine);
        Ok(Self { rounds, segments, rows, noise })
    }

    /// Why the figures are not to be trusted.
    pub(super) fn reasons(&self) -> &[String] {
        &self.noise.reasons
    }
}

/// The rows, and how slow each round was.
fn rows(
    rounds: u32,
    segments: u32,
    bar: &ProgressBar,
) -> Result<(Vec<Row>, Vec<f64>), tcp_crc_shim::SetupError> {
    let mut benches = Vec::new();
    for method in METHODS {
        benches.push(Bench::new(Config { offer: Offer::of(&[method]), ..Config::default() })?);
    }
    let mut samples = vec![[const { Vec::new() }; 2]; METHODS.len() * SIZES.len()];
    bar.set_length(u64::from(rounds));
    for _ in 0..rounds {
        for (i, bench) in benches.iter_mut().enumerate() {
            for (j, size) in SIZES.into_iter().enumerate() {
                let both = bench.ns_per_segment(size, segments)?;
                samples[i * SIZES.len() + j].iter_mut().zip(both).for_each(|(all, ns)| all.push(ns));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let full = &samples[FULL][0];
    let typical = median(full).max(1.0);
    let factors = full.iter().map(|ns| ns / typical).collect();
    let ends = METHODS.iter().flat_map(|method| SIZES.map(|size| (method.value(), size)));
    let rows = ends.zip(&samples).map(|((value, data_bytes), [out, back])| Row {
        value,
        data_bytes,
        out_ns: median(out),
        in_ns: median(back),
    });
    Ok((rows.collect(), factors))
}

/// The report for people.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let heading = ["value", "data, bytes", "out, ns", "in, ns", "out, ns/byte", "in, ns/byte"];
    let mut table = Table::new("Time of a segment in the kernel's programs, median", &heading);
    for row in &report.rows {
        let each = |ns: f64| match row.data_bytes {
            0 => String::new(),
            bytes => format!("{:.2}", ns / bytes as f64),
        };
        table.rows.push(vec![
            row.value.to_string(),
            row.data_bytes.to_string(),
            format!("{:.0}", row.out_ns),
            format!("{:.0}", row.in_ns),
            each(row.out_ns),
            each(row.in_ns),
        ]);
    }
    let about = format!(
        "{} rounds of {} segments, every value and size in turn. The connection, the options and the CRC are in it; the device and TCP are not.",
        report.rounds, report.segments
    );
    vec![
        Block::Heading(1, "What the CRC costs in the kernel".to_owned()),
        Block::Text(about),
        Block::Table(table),
        Block::Chart(chart(report)),
        Block::Table(Table::of_facts(report.noise.facts())),
    ]
}

fn chart(report: &Report) -> Chart {
    let (x, y) = (("data, bytes", Scale::Linear), ("ns", Scale::Linear));
    let chart = Chart::new("tcp-crc-cost", "Time of a segment on its way out", "lower is better", x, y);
    METHODS.iter().enumerate().fold(chart, |chart, (hue, method)| {
        let rows = report.rows.iter().filter(|row| row.value == method.value());
        let points = rows.map(|row| (row.data_bytes as f64, row.out_ns));
        chart.line(format!("value {}, out", method.value()), Role::Measured, hue, points)
    })
}
