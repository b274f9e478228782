//! The paper's claims with a verdict, and the bars of this project.

use super::figures::{NONE, Report};
use super::papers::{self, figure};
use harness::document::{Block, Table};

/// A command that counts it was not run yet.
const NOT_YET: &str = "not measured yet";

/// One claim or bar: a figure to compare with, ours, and what counts.
struct Finding {
    place: &'static str,
    claim: &'static str,
    paper: f64,
    here: Option<f64>,
    /// The values here that reproduce the claim, or reach the bar.
    holds: fn(f64) -> bool,
    decimals: usize,
}

impl Finding {
    fn verdict(&self, yes: &'static str, no: &'static str) -> &'static str {
        match self.here {
            None => NOT_YET,
            Some(here) if (self.holds)(here) => yes,
            Some(_) => no,
        }
    }

    fn row(&self, yes: &'static str, no: &'static str) -> Vec<String> {
        let number = |value: f64| format!("{value:.*}", self.decimals);
        vec![
            self.place.to_owned(),
            self.claim.to_owned(),
            number(self.paper),
            self.here.map_or(NONE.to_owned(), number),
            self.here.map_or(NONE.to_owned(), |here| format!("{:.2}", here / self.paper)),
            self.verdict(yes, no).to_owned(),
        ]
    }
}

/// Both tables, and what is wrong in the paper.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let mut claims = Table::new(
        "The paper's claims. A claim is reproduced if it holds here in kind; another part of another make has another clock. What these \
         circuits and this host do not reproduce is not refuted for the paper's.",
        &["where", "claim", "paper", "here", "ratio", "verdict"],
    );
    claims.rows.extend(paper(report).iter().map(|finding| finding.row("reproduced", "not reproduced")));
    let mut bars =
        Table::new("The bars of this project.", &["circuit", "bar", "bar", "here", "ratio", "verdict"]);
    bars.rows.extend(own(report).iter().map(|finding| finding.row("reached", "not reached")));
    vec![
        Block::Heading(1, "What the paper claims".to_owned()),
        Block::Table(claims),
        Block::Heading(1, "The bars".to_owned()),
        Block::Table(bars),
    ]
}

fn paper(report: &Report) -> Vec<Finding> {
    [stages(report), circuits(report), host(report)].into_iter().flatten().collect()
}

fn stages(report: &Report) -> Vec<Finding> {
    let narrow = report.rx_stages(64);
    let rx = figure("table2-rx-parse-header-digest") + figure("table2-rx-data-digest-store");
    let (rate, sent) = (report.rx_rate(64, 1024), report.tx_rate(64, 1024));
    vec![
        Finding {
            place: "Table 2",
            claim: "data and its digest take a beat of 64 bit in each cycle: cycles of a frame",
            paper: papers::cycles(figure("table2-rx-data-digest-store")),
            here: narrow.map(|stages| f64::from(stages.data_parsed - stages.header_parsed)),
            holds: |cycles| cycles <= 184.0,
            decimals: 1,
        },
        Finding {
            place: "Table 2",
            claim: "receive without TOE and DMA at 64 bit: cycles of a frame",
            paper: papers::cycles(rx),
            here: narrow.map(|stages| f64::from(stages.left_buffer)),
            holds: |cycles| cycles <= 216.0,
            decimals: 1,
        },
        Finding {
            place: "Table 2",
            claim: "the transmit stages have the printed sum, us",
            paper: figure("table2-tx-total"),
            here: Some(papers::sum("tx", &papers::TX_STAGES)),
            holds: |sum| (sum - 1.449).abs() < 0.005,
            decimals: 3,
        },
        Finding {
            place: "section 4",
            claim: "receive with digests, share of the raw rate (here with 1 KiB in a PDU)",
            paper: figure("rx-gbit-per-s") * 1e9 / figure("clock") / figure("bits-per-cycle"),
            here: rate.map(|rate| rate.data_bits_per_cycle() / 64.0),
            holds: |share| share >= 0.73,
            decimals: 3,
        },
        Finding {
            place: "section 4",
            claim: "transmit with digests, share of the raw rate (here with 1 KiB in a PDU)",
            paper: figure("tx-gbit-per-s") * 1e9 / figure("clock") / figure("bits-per-cycle"),
            here: sent.map(|rate| rate.data_bits_per_cycle() / 64.0),
            holds: |share| share >= 0.78,
            decimals: 3,
        },
    ]
}

fn circuits(report: &Report) -> Vec<Finding> {
    vec![
        Finding {
            place: "Table 3",
            claim: "a CRC unit of 64 bit whose polynomial changes, LUT6 (the paper's has 4 block RAMs besides)",
            paper: figure("crc-unit-lut"),
            here: report.area.get("crc_unit").and_then(|area| area.lut6()).map(f64::from),
            holds: |luts| luts <= 540.0,
            decimals: 0,
        },
        Finding {
            place: "section 4",
            claim: "the receive path at 64 bit has the clock of 10 Gbit/s, MHz (here an ECP5)",
            paper: figure("clock") / 1e6,
            here: report.rx_clock(64).map(|hz| hz / 1e6),
            holds: |mhz| mhz >= 156.25,
            decimals: 2,
        },
        Finding {
            place: "section 4",
            claim: "the transmit module at 64 bit has it, MHz (here an ECP5)",
            paper: figure("clock") / 1e6,
            here: report.clock("tx_64").map(|hz| hz / 1e6),
            holds: |mhz| mhz >= 156.25,
            decimals: 2,
        },
        Finding {
            place: "section 4",
            claim: "a new polynomial by partial reconfiguration, ms",
            paper: figure("reconfiguration-partial") * 1e3,
            here: report.clock("crc64").map(|hz| f64::from(report.cycles.set_poly) / hz * 1e3),
            holds: |ms| ms <= 30.0,
            decimals: 5,
        },
    ]
}

fn host(report: &Report) -> Vec<Finding> {
    let least = figure("fig12-software-cpu-least") / figure("fig12-engine-cpu");
    let digests = |rw| {
        let instructions = |digests| Some(report.host(rw, 8192, digests, "none")?.host());
        Some(1.0 - instructions(false)? / instructions(true)?)
    };
    vec![
        Finding {
            place: "Figure 12",
            claim: "an engine frees the host: times less work (the paper: of a core), writes of 128 KiB",
            paper: least,
            here: report.host_ratio("write", 128 << 10),
            holds: |ratio| ratio >= 10.0,
            decimals: 1,
        },
        Finding {
            place: "Figure 12",
            claim: "the same, writes of 512 B",
            paper: least,
            here: report.host_ratio("write", 512),
            holds: |ratio| ratio >= 10.0,
            decimals: 1,
        },
        Finding {
            place: "section 2.4",
            claim: "digests are half of the instructions of a transfer of 8 KB in software: share, writes",
            paper: figure("digest-share-8k"),
            here: digests("write"),
            holds: |share| (0.4..0.6).contains(&share),
            decimals: 2,
        },
        Finding {
            place: "section 2.4",
            claim: "the same, reads",
            paper: figure("digest-share-8k"),
            here: digests("read"),
            holds: |share| (0.4..0.6).contains(&share),
            decimals: 2,
        },
    ]
}

fn own(report: &Report) -> Vec<Finding> {
    [circuit_bars(report), host_bars(report)].into_iter().flatten().collect()
}

fn circuit_bars(report: &Report) -> Vec<Finding> {
    let mhz = |circuit: &str| report.clock(circuit).map(|hz| hz / 1e6);
    let luts = |circuit: &str| report.area.get(circuit).map(|area| f64::from(area.lut4_with_ram));
    let beats = |bytes| report.rx_rate(512, bytes).map(|rate| rate.beats_per_cycle());
    let sent = |bytes| report.tx_rate(512, bytes).map(|rate| rate.beats_per_cycle());
    let bar = |place, claim, paper, here, holds: fn(f64) -> bool, decimals| Finding {
        place,
        claim,
        paper,
        here,
        holds,
        decimals,
    };
    vec![
        bar("crc_wide", "clock at 512 bit, MHz", 195.3, mhz("crc_wide"), |mhz| mhz >= 195.3, 1),
        bar("crc_wide_of_4", "the same, stretch", 390.6, mhz("crc_wide_of_4"), |mhz| mhz >= 390.6, 1),
        bar(
            "crc_wide_2048",
            "clock at 2048 bit, MHz (400 Gbit/s)",
            195.3,
            mhz("crc_wide_2048"),
            |mhz| mhz >= 195.3,
            1,
        ),
        bar("rx_checked", "clock at 512 bit, MHz", 195.3, mhz("rx_checked_512"), |mhz| mhz >= 195.3, 1),
        bar("tx", "clock at 512 bit, MHz", 195.3, mhz("tx_512"), |mhz| mhz >= 195.3, 1),
        bar(
            "rx_checked, tx",
            "LUT4 at 512 bit (the bar is for all of Rx and Tx)",
            60_000.0,
            luts("rx_checked_512").zip(luts("tx_512")).map(|(rx, tx)| rx + tx),
            |luts| luts <= 60_000.0,
            0,
        ),
        bar("rx_checked", "beats per cycle, 8 KiB", 0.97, beats(8192), |rate| rate >= 0.97, 3),
        bar("rx_checked", "beats per cycle, 512 B", 0.85, beats(512), |rate| rate >= 0.85, 3),
        bar("engine, transmit", "beats per cycle, 8 KiB", 0.97, sent(8192), |rate| rate >= 0.97, 3),
        bar("engine, transmit", "beats per cycle, 512 B", 0.85, sent(512), |rate| rate >= 0.85, 3),
        bar(
            "crc64",
            "SET_POLY, us",
            1.0,
            report.clock("crc64").map(|hz| f64::from(report.cycles.set_poly) / hz * 1e6),
            |us| us < 1.0,
            2,
        ),
        bar(
            "crc_unit",
            "LUT6 at 64 bit, without block RAM",
            540.0,
            report.area.get("crc_unit").and_then(|area| area.lut6()).map(f64::from),
            |luts| luts < 540.0,
            0,
        ),
    ]
}

fn host_bars(report: &Report) -> Vec<Finding> {
    let bar = |claim, rw, bytes| Finding {
        place: "host",
        claim,
        paper: 10.0,
        here: report.host_ratio(rw, bytes),
        holds: |ratio| ratio >= 10.0,
        decimals: 1,
    };
    vec![
        bar("times fewer instructions, writes of 128 KiB", "write", 128 << 10),
        bar("the same, reads of 128 KiB", "read", 128 << 10),
        bar("the same, reads of 4 KiB", "read", 4096),
    ]
}
