//! Throughput against loss, round trip and number of connections, at the same total queue depth: what several connections gain, and where
//! they cost. The network is the one with congestion windows (see [`crate::network`]); the stacks are the real ones.
//!
//! A figure is the mean of [`SEEDS`] runs. Processors cost nothing here, so the comparison shows how well the protocol and TCP use the
//! wire, not how fast a machine runs the protocol.

use std::fmt::Write as _;

use crate::load::LoadPlan;
use crate::network::PathConfig;
use crate::plan::{InitiatorPlan, Plan, US};
use crate::run::{Run, Sabotage};

/// The numbers of connections compared.
pub const CONNECTIONS: [u16; 4] = [1, 2, 4, 8];
/// Runs that each figure averages.
pub const SEEDS: u64 = 3;
/// The wire, bytes per second: 1 Gbit/s.
const BANDWIDTH: u64 = 125_000_000;

/// The workload of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Name in the table.
    pub name: &'static str,
    /// Blocks of one read.
    pub blocks: u64,
    /// Reads outstanding, over all connections.
    pub depth: usize,
    /// Reads per run.
    pub operations: u32,
}

/// The workloads of the table.
pub const WORKS: [Work; 2] = [
    Work { name: "reads of 64 KiB, 32 at a time", blocks: 128, depth: 32, operations: 1500 },
    Work { name: "reads of 4 KiB, 8 at a time", blocks: 8, depth: 8, operations: 3000 },
];
/// Round trips, microseconds.
pub const ROUND_TRIPS_US: [u64; 4] = [100, 1_000, 10_000, 40_000];
/// Lost segments per million.
pub const LOSSES_PPM: [u32; 4] = [0, 100, 1_000, 10_000];

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The workload.
    pub work: Work,
    /// Round trip, microseconds.
    pub round_trip_us: u64,
    /// Lost segments per million.
    pub loss_ppm: u32,
    /// Connections of the session.
    pub connections: u16,
}

impl Cell {
    fn plan(&self, seed: u64) -> Plan {
        let blocks = 8192;
        let path = PathConfig {
            delay_ns: self.round_trip_us * US / 2,
            jitter_ns: 0,
            bandwidth: Some(BANDWIDTH),
            loss_ppm: self.loss_ppm,
            segment_bytes: 1448,
            send_buffer_bytes: 4 << 20,
            receive_window_bytes: 4 << 20,
            queue_bytes: 512 << 10,
            congestion: true,
            air: None,
        };
        let load = LoadPlan {
            operations: self.work.operations,
            depth: self.work.depth,
            max_blocks: self.work.blocks,
            ..LoadPlan::steady(1, 0..blocks)
        };
        let initiator = InitiatorPlan::steady(path, self.connections, load);
        Plan::steady(seed, blocks, initiator.bounds.clone(), vec![initiator])
    }

    /// Throughput of one run, megabytes per second; `Err`: the invariant that did not hold.
    pub fn measure(&self, seed: u64) -> Result<f64, String> {
        let report = Run::new(self.plan(seed), false, Sabotage::None).finish();
        match report.broken {
            Some(what) => Err(what),
            None => Ok(report.bytes as f64 / 1e6 / (report.busy_ns[0].max(1) as f64 / 1e9)),
        }
    }

    /// Mean of [`SEEDS`] runs.
    ///
    /// # Errors
    /// The invariant that did not hold.
    pub fn mean(&self) -> Result<f64, String> {
        let sum: f64 = (1..=SEEDS).map(|seed| self.measure(seed)).sum::<Result<f64, String>>()?;
        Ok(sum / SEEDS as f64)
    }
}

/// A line of the table: its text and its figures.
///
/// # Errors
/// The invariant that did not hold.
pub fn line(work: Work, round_trip_us: u64, loss_ppm: u32) -> Result<(String, Vec<f64>), String> {
    let cell = |connections| Cell { work, round_trip_us, loss_ppm, connections };
    let figures: Vec<f64> = CONNECTIONS.iter().map(|n| cell(*n).mean()).collect::<Result<_, _>>()?;
    let loss = f64::from(loss_ppm) / 10_000.0;
    let mut text = format!("{:>8.1} {loss:>7.2}", round_trip_us as f64 / 1000.0);
    for figure in &figures {
        let _ = write!(text, " {figure:>8.1}");
    }
    let best = figures.iter().copied().fold(0.0, f64::max);
    let ratio = figures[2] / figures[0];
    let verdict = match ratio {
        r if r >= 1.05 => "more help",
        r if r <= 0.95 => "more LOSE",
        _ => "no matter",
    };
    let _ = write!(text, " {ratio:>7.2} {verdict} (best {best:.1})");
    Ok((text, figures))
}

/// The whole table as text and as a picture.
///
/// # Errors
/// The invariant that did not hold.
pub fn write() -> Result<(String, String), String> {
    let mut text = String::from(
        "Throughput of a session, MB/s, by round trip (ms) and loss (% of segments), with 1, 2, 4 and 8 connections\n\
         at the same total queue depth, on a wire of 1 Gbit/s (125 MB/s) with congestion control on each connection.\n\
         `4/1` is what 4 connections bring against 1. Mean of 3 runs. Written by `cargo xtask sim table --write`.\n",
    );
    let mut curves = Vec::new();
    for work in WORKS {
        let _ = write!(text, "\n{}\n     rtt    loss", work.name);
        for n in CONNECTIONS {
            let _ = write!(text, " {n:>8}");
        }
        text.push_str("     4/1\n");
        for round_trip in ROUND_TRIPS_US {
            for loss in LOSSES_PPM {
                let (line, figures) = line(work, round_trip, loss)?;
                text.push_str(&line);
                text.push('\n');
                if work == WORKS[0] && loss == 1_000 {
                    curves.push((round_trip, figures));
                }
            }
        }
    }
    Ok((text, picture(&curves)))
}

/// Throughput over connections at 0.1 % loss, a curve for each round trip.
fn picture(curves: &[(u64, Vec<f64>)]) -> String {
    let x = |i: usize| 70 + i * 150;
    let y = |figure: f64| 300.0 - figure * 2.0;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"640\" height=\"360\" fill=\"white\"/>\n\
         <text x=\"70\" y=\"24\">MB/s of a session, reads of 64 KiB, 32 at a time, 0.1 % loss, 1 Gbit/s</text>\n",
    );
    for step in (0..=125).step_by(25) {
        let at = y(f64::from(step));
        let _ = writeln!(
            svg,
            "<line x1=\"60\" x2=\"540\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"52\" y=\"{:.1}\" text-anchor=\"end\">{step}</text>",
            at + 4.0
        );
    }
    for (i, n) in CONNECTIONS.iter().enumerate() {
        let _ = writeln!(svg, "<text x=\"{}\" y=\"324\" text-anchor=\"middle\">{n}</text>", x(i));
    }
    svg.push_str("<text x=\"300\" y=\"348\" text-anchor=\"middle\">connections</text>\n");
    for ((round_trip, figures), colour) in curves.iter().zip(["#1b6ca8", "#2e8b57", "#c46210", "#8b1a1a"]) {
        let points: Vec<String> =
            figures.iter().enumerate().map(|(i, figure)| format!("{},{:.1}", x(i), y(*figure))).collect();
        let last = y(figures[figures.len() - 1]) + 4.0;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        let label = *round_trip as f64 / 1000.0;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{last:.1}\" fill=\"{colour}\">{label} ms</text>", x(3) + 8);
    }
    svg.push_str("</svg>\n");
    svg
}
