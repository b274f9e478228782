//! `cargo xtask bench stack`: the whole product with one CRC forced at both ends, over TCP on the loopback, reading PDUs of 8 KiB: what
//! the 2005 paper did with a real stack (section 5.2), and what came of the throughput that its sandbox projects (Figure 17).
//!
//! Target and client have a core each. All CRCs take turns within each round, in slices and in alternating order, another first in each
//! round; the CRC in use is measured twice (the judge). The client's CPU time counts: the paper's figure is bits per cycle of the initiator.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::judge::{Judge, Rounds};
use super::place::{self, PLACEMENTS, Surroundings};
use super::rows::{Row, row};
use super::servers::{self, Server, VOLUME_BYTES};
use super::{Sample, measure, median, progress, report, turns};

/// Where the table goes in docs/fastpath.md.
const BEGIN: &str = "<!-- begin: cargo xtask bench stack -->";
const JUDGE: Judge = Judge { median_max: 0.03, quarters_max: 0.10 };
/// Names the CRC that a process uses (`integrity::KERNEL_VARIABLE`).
const KERNEL_VARIABLE: &str = "INTACT_CRC32C_KERNEL";
/// Data of a PDU, bytes.
const PDU_BYTES: usize = 8192;
/// By how much the paper's stack got faster with Slicing-by-8 in place of Sarwate's CRC, bits per cycle.
const PAPER: f64 = 1.15;

/// What both ends compute, and the sandbox's way and CRC whose projection is next to it.
struct Crc {
    title: &'static str,
    /// The kernel that is forced; the one in use if none.
    kernel: Option<&'static str>,
    digests: bool,
    projected: Option<(&'static str, &'static str)>,
}

const CRCS: [Crc; 5] = [
    Crc {
        title: "Sarwate",
        kernel: Some("sarwate"),
        digests: true,
        projected: Some(("layered", "crc32c-byte")),
    },
    Crc {
        title: "Slicing-by-8, one chain",
        kernel: Some("slicing-8-serial"),
        digests: true,
        projected: Some(("layered", "crc32c-slicing-8")),
    },
    Crc { title: "Slicing-by-8, braided", kernel: Some("slicing-8"), digests: true, projected: None },
    Crc { title: "the kernel in use", kernel: None, digests: true, projected: Some(("as_built", IN_USE)) },
    Crc { title: "no digests", kernel: None, digests: false, projected: None },
];
/// Places in [`CRCS`].
const SARWATE: usize = 0;
const SLICING_8: usize = 1;
const CONTROL: usize = 3;
/// Parts into which the measured time of a CRC in a round is divided: what disturbs the machine for a second then meets all CRCs.
const SLICES: usize = 4;
/// Stands for the name of the kernel in use.
const IN_USE: &str = "";

/// A load, and what the URL asks for.
struct Load {
    row: Row,
    query: &'static str,
}

const LOADS: [Load; 2] = [
    Load {
        row: row("8 KiB sequential read, depth 8", "read", "sequential", 8192, 8),
        query: "?max_recv_data_segment_length=8192&poll_us=0",
    },
    // The paper's Table 2. Any order needs a session without recovery of PDUs.
    Load {
        row: row(
            "32 KiB sequential read, 8 connections, 40 deep, any order",
            "read",
            "sequential",
            32 << 10,
            40,
        ),
        query: "?max_recv_data_segment_length=8192&connections=8&erl=0&scheduling=round_robin&data_pdu_in_order=no\
                &data_sequence_in_order=no&poll_us=0",
    },
];

/// Options of `cargo xtask bench stack`.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Measured seconds of each CRC in a round
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// A first impression: three rounds of a tenth of a second
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "write"])]
    quick: bool,
    #[command(flatten)]
    pub output: report::Output,
}

impl Options {
    fn rounds(&self) -> usize {
        if self.quick { 3 } else { self.rounds }
    }

    fn seconds(&self) -> f64 {
        if self.quick { 0.1 } else { self.seconds }
    }
}

/// What `intact bench fastpath` says of one processor that receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Projection {
    way: String,
    contender: String,
    pdu_bytes: usize,
    mb_per_s: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Frequency {
    cycle_hz: f64,
}

/// The sandbox's result, as far as it counts here.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sandbox {
    kernel: String,
    frequency: Frequency,
    ten_gigabit_mb_per_s: f64,
    projections: Vec<Projection>,
}

impl Sandbox {
    fn projected(&self, crc: &Crc) -> Option<f64> {
        let (way, contender) = crc.projected?;
        let contender = if contender == IN_USE { self.kernel.as_str() } else { contender };
        let found = self.projections.iter().find(|projection| {
            (projection.way.as_str(), projection.contender.as_str()) == (way, contender)
                && projection.pdu_bytes == PDU_BYTES
        });
        found.map(|projection| projection.mb_per_s)
    }
}

/// All figures.
#[derive(Serialize)]
struct Figures {
    sandbox: Sandbox,
    /// By load and CRC, one for each round.
    samples: Vec<Vec<Vec<Sample>>>,
    /// By load: the CRC in use again.
    again: Vec<Vec<Sample>>,
}

/// Measures, and prints the table.
pub fn run(root: &Path, built: &Path, options: &Options) -> Result<()> {
    let intact = options.output.binary(built);
    let figures = measure_all(intact, options)?;
    options.output.keep(&figures)?;
    let text = markdown(&figures, &report::machine(root), options);
    options.output.publish(root, "docs/fastpath.md", BEGIN, &text).map(drop)
}

fn measure_all(intact: &Path, options: &Options) -> Result<Figures> {
    let scratch = tempfile::tempdir().context("no place for the configuration")?;
    let tables = format!(
        "[limits]\nshards = 1\npoll_us = 0\n[negotiation]\ndata_pdu_in_order = false\ndata_sequence_in_order = false\nerror_recovery_level = 0\n[[target]]\nname = \"iqn.2026-01.org.example:stack\"\n\
         [[target.lun]]\nstore = \"ram:{VOLUME_BYTES}\"\n"
    );
    let server = |crc: &Crc| -> Result<Server> {
        let server = servers::configured(forced(place::target(intact), crc), scratch.path(), &tables)?;
        place::fill(intact, &server)?;
        Ok(server)
    };
    let sandbox = sandbox(intact, options)?;
    let servers: Vec<Server> = CRCS.iter().map(server).collect::<Result<_>>()?;
    let mut samples = vec![vec![Vec::new(); CRCS.len()]; LOADS.len()];
    let mut again = vec![Vec::new(); LOADS.len()];
    for round in 0..options.rounds() {
        for (n, load) in LOADS.iter().enumerate() {
            let run = |at: usize| {
                let client = forced(PLACEMENTS[1].client(intact), &CRCS[at]);
                let (digests, seconds) = (CRCS[at].digests, options.seconds() / SLICES as f64);
                measure(client, &servers[at], load.query, &load.row, digests, seconds)
            };
            // The last place is the CRC in use again.
            let order: Vec<usize> = (0..CRCS.len()).map(|turn| (turn + round) % CRCS.len()).collect();
            let order = [&order[..], &[CRCS.len()]].concat();
            let mut of_round: Vec<Option<Sample>> = vec![None; order.len()];
            for slice in 0..SLICES {
                for place in turns(slice, order.len()).map(|turn| order[turn]) {
                    let more = run(if place == CRCS.len() { CONTROL } else { place })?;
                    match &mut of_round[place] {
                        Some(sample) => sample.add(&more),
                        none => *none = Some(more),
                    }
                }
            }
            again[n].extend(of_round.pop().flatten());
            for (samples, sample) in samples[n].iter_mut().zip(of_round) {
                samples.extend(sample);
            }
            progress::show(format_args!("round {} of {}", round + 1, options.rounds()));
        }
    }
    progress::end();
    Ok(Figures { sandbox, samples, again })
}

/// `program`, computing this CRC.
fn forced(mut program: Command, crc: &Crc) -> Command {
    if let Some(kernel) = crc.kernel {
        program.env(KERNEL_VARIABLE, kernel);
    }
    program
}

fn sandbox(intact: &Path, options: &Options) -> Result<Sandbox> {
    let mut command = PLACEMENTS[1].client(intact);
    command.args(["bench", "fastpath", "--quick", "--json"]);
    if !options.quick {
        command.args(["--rounds", "9"]);
    }
    let output = command.output().context("cannot run intact bench fastpath")?;
    if !output.status.success() {
        bail!("intact bench fastpath: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("intact bench fastpath printed no JSON")
}

/// 10^6 bytes per second that one processor of the client would receive if it did nothing else.
fn of_a_processor(sample: &Sample, row: &Row) -> f64 {
    1e3 / sample.client_cpu_per_gb(row)
}

fn markdown(figures: &Figures, machine: &str, options: &Options) -> String {
    let sandbox = &figures.sandbox;
    let mut text = format!(
        "{machine}\n{} rounds of {} s, in turn within each, both ends on cores of their own with the same CRC; header and data digests; \
         medians, and the quarters of the ratios. A processor's: the bytes that the initiator received for each second of its CPU time. \
         Projected: Figure 17 of the sandbox for the same CRC, where the sandbox has it. 10 Gbit/s Ethernet carries {:.0} MB/s of such \
         PDUs.\n\n",
        options.rounds(),
        options.seconds(),
        sandbox.ten_gigabit_mb_per_s
    );
    for (load, (samples, again)) in LOADS.iter().zip(figures.samples.iter().zip(&figures.again)) {
        let rate = |sample: &Sample| of_a_processor(sample, &load.row);
        let same = Rounds::ratios(again.iter().map(rate), samples[CONTROL].iter().map(rate));
        text.push_str(&JUDGE.says(load.row.name, "bytes for each second of the initiator's CPU time", &same));
        text.push('\n');
    }
    text.push_str(
        "| load | CRC | MB/s | a processor's, MB/s | bits per cycle | over Sarwate | quarters | target, cycles per byte | projected, MB/s | \
         measured over projected |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (load, samples) in LOADS.iter().zip(&figures.samples) {
        for (crc, of_crc) in CRCS.iter().zip(samples) {
            line(&mut text, sandbox, load, crc, of_crc, &samples[SARWATE]);
        }
    }
    let samples = &figures.samples[0];
    let rate = |sample: &Sample| of_a_processor(sample, &LOADS[0].row);
    let gain =
        Rounds::ratios(samples[SLICING_8].iter().map(rate), samples[SARWATE].iter().map(rate)).median();
    // Half of the gain confirms it in kind, as for the figures of the sandbox.
    let verdict = if gain - 1.0 >= (PAPER - 1.0) / 2.0 { "reproduced" } else { "refuted" };
    let _ = writeln!(
        text,
        "\nThe paper (section 5.2): Slicing-by-8 in place of Sarwate's CRC in the initiator of UNH gave {PAPER:.2} times the bits per cycle \
         with 8 KiB. Here {gain:.2}: *{verdict}*."
    );
    text
}

fn line(
    text: &mut String,
    sandbox: &Sandbox,
    load: &Load,
    crc: &Crc,
    samples: &[Sample],
    sarwate: &[Sample],
) {
    let rate = |sample: &Sample| of_a_processor(sample, &load.row);
    let over = Rounds::ratios(samples.iter().map(rate), sarwate.iter().map(rate));
    let middle = |figure: &dyn Fn(&Sample) -> f64| median(samples.iter().map(figure));
    let own = middle(&rate);
    let hz = sandbox.frequency.cycle_hz;
    // A projection is for single PDUs of 8 KiB.
    let projected = sandbox.projected(crc).filter(|_| load.row.block_bytes == PDU_BYTES as u64);
    let _ = writeln!(
        text,
        "| {} | {} | {:.0} | {own:.0} | {:.2} | {} | {:.2} | {} | {} |",
        load.row.name,
        crc.title,
        middle(&|sample| sample.mb_per_s),
        own * 8e6 / hz,
        over.cells(),
        middle(&|sample| sample.target_cpu_per_gb(&load.row)) * hz / 1e9,
        projected.map_or(String::from("-"), |projected| format!("{projected:.0}")),
        projected.map_or(String::from("-"), |projected| format!("{:.2}", own / projected)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn sample(cpu_seconds: f64) -> Sample {
        Sample {
            iops: 1e5,
            mb_per_s: 819.2,
            reads: 1_000_000,
            writes: 0,
            cpu_seconds,
            errors: 0,
            digests_verified: 0,
            digests_failed: 0,
            target_cpu_seconds: 8.192,
        }
    }

    fn figures(sarwate: f64, slicing: f64, again: f64) -> Figures {
        let of = |cpu: f64| vec![sample(cpu); 3];
        let projection = |way: &str, contender: &str, mb_per_s| Projection {
            way: way.to_owned(),
            contender: contender.to_owned(),
            pdu_bytes: PDU_BYTES,
            mb_per_s,
        };
        let sandbox = Sandbox {
            kernel: "k".to_owned(),
            frequency: Frequency { cycle_hz: 2e9 },
            ten_gigabit_mb_per_s: 1169.0,
            projections: vec![
                projection("layered", "crc32c-byte", 500.0),
                projection("as_built", "k", 8192.0),
            ],
        };
        let of_load = || vec![of(sarwate), of(slicing), of(4.0), of(2.0), of(1.0)];
        Figures { sandbox, samples: vec![of_load(), of_load()], again: vec![of(again), of(again)] }
    }

    fn text(sarwate: f64, slicing: f64, again: f64) -> String {
        markdown(&figures(sarwate, slicing, again), "M", &Cli::parse_from(["stack"]).options)
    }

    #[test]
    fn a_processors_share_stands_beside_its_projection() {
        let text = text(8.192, 8.192, 2.0);
        assert!(
            text.contains("| Sarwate | 819 | 1000 | 4.00 | **1.000** | 1.000 - 1.000 | 2.00 | 500 | 2.00 |"),
            "{text}"
        );
        assert!(text.contains(
            "| the kernel in use | 819 | 4096 | 16.38 | **4.096** | 4.096 - 4.096 | 2.00 | 8192 | 0.50 |"
        ));
        assert!(
            text.contains("| no digests | 819 | 8192 | 32.77 | **8.192** | 8.192 - 8.192 | 2.00 | - | - |")
        );
    }

    #[test]
    fn slices_count_by_their_time() {
        let (mut all, slow) = (sample(2.0), Sample { iops: 5e4, mb_per_s: 409.6, ..sample(4.0) });
        all.add(&slow);
        // 10 s, and 20 s at half the rate.
        assert!((all.seconds() - 30.0).abs() < 1e-9);
        assert_eq!(all.reads, 2_000_000);
        assert!((all.mb_per_s - 819.2 * 2.0 / 3.0).abs() < 1e-9);
        assert_eq!((all.cpu_seconds, all.target_cpu_seconds), (6.0, 2.0 * 8.192));
        let order = |slice| turns(slice, 3).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
    }

    #[test]
    fn the_papers_gain_is_confirmed_by_at_least_half_of_it() {
        assert!(text(8.0, 7.0, 2.0).contains("Here 1.14: *reproduced*"));
        assert!(text(8.0, 7.8, 2.0).contains("Here 1.03: *refuted*"));
    }

    #[test]
    fn a_load_that_differs_from_itself_makes_the_page_untrusted() {
        assert!(crate::tidy::distrust(&text(8.0, 7.0, 2.0)).is_empty());
        assert!(!crate::tidy::distrust(&text(8.0, 7.0, 2.2)).is_empty());
    }
}
