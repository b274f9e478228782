//! The paper's findings, and the same figures here.

use super::caches::Regime;
use super::contenders::{SARWATE, SLICING_8};
use super::derived::{NONE, copy_and_crc, projection, protocol};
use super::papers::figure;
use super::report::{Query, Report, Split};
use super::sandbox::Way;
use super::turns::{LARGE_PDU_BYTES, PDU_BYTES};
use harness::document::{Block, Table};

/// The verdict on a claim on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Reproduced,
    Refuted,
    NotMeasured,
}

/// One claim: the paper's figure, ours, and the range that confirms it.
struct Finding {
    place: &'static str,
    claim: &'static str,
    paper: f64,
    here: Option<f64>,
    /// The values here that reproduce the claim.
    holds: fn(f64) -> bool,
    decimals: usize,
}

impl Finding {
    fn verdict(&self) -> Verdict {
        match self.here {
            None => Verdict::NotMeasured,
            Some(here) if (self.holds)(here) => Verdict::Reproduced,
            Some(_) => Verdict::Refuted,
        }
    }
}

/// The paper's findings, and what this program's own way makes of them.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "The paper's claims. A claim is reproduced if it holds here in kind, whatever the processors' age has made of the number; a saving, if it is at least \
         half of the paper's.",
        &["where", "claim", "paper", "here", "ratio", "verdict"],
    );
    for finding in findings(report) {
        let number = |value: f64| format!("{value:.*}", finding.decimals);
        let verdict = match finding.verdict() {
            Verdict::Reproduced => "reproduced",
            Verdict::Refuted => "refuted",
            Verdict::NotMeasured => "not measurable here",
        };
        table.rows.push(vec![
            finding.place.to_owned(),
            finding.claim.to_owned(),
            number(finding.paper),
            finding.here.map_or(NONE.to_owned(), number),
            finding.here.map_or(NONE.to_owned(), |here| format!("{:.2}", here / finding.paper)),
            verdict.to_owned(),
        ]);
    }
    vec![
        Block::Heading(1, "What the paper found".to_owned()),
        Block::Table(table),
        Block::Text(
            "Not as in the paper: markers are gone from the standard (RFC 7143), and those here are synthetic; the copy warms the cache for the CRC also \
             where it is a small part of the two; no packet came from a network card; emptying the caches takes address translations along."
                .to_owned(),
        ),
    ]
}

fn split(report: &Report, contender: &'static str, bytes: usize) -> Option<Split> {
    report.by_difference(Query::new(Way::Layered, contender, bytes))
}

fn saved_share(report: &Report, contender: &'static str, regime: Regime) -> Option<f64> {
    let (apart, together) = copy_and_crc(report, contender, LARGE_PDU_BYTES, regime)?;
    Some((apart - together) / apart)
}

fn findings(report: &Report) -> Vec<Finding> {
    [shares(report), protocols(report), passes(report)].into_iter().flatten().collect()
}

/// Figures 11 and 15.
fn shares(report: &Report) -> Vec<Finding> {
    let large = |contender| split(report, contender, LARGE_PDU_BYTES);
    let total = |contender| large(contender).map(|split| split.sum());
    vec![
        Finding {
            place: "Figure 11",
            claim: "with Sarwate's CRC, the CRC is most of a PDU of 8 KiB: share",
            paper: figure("fig11-crc-share-8192"),
            here: large(SARWATE).map(|split| split.crc / split.sum()),
            holds: |share| share > 0.5,
            decimals: 2,
        },
        Finding {
            place: "Figure 11",
            claim: "cycles per byte of Sarwate's CRC",
            paper: figure("fig11-crc-cycles-per-byte"),
            here: large(SARWATE).map(|split| split.crc / LARGE_PDU_BYTES as f64),
            holds: |cycles| (3.0..10.0).contains(&cycles),
            decimals: 2,
        },
        Finding {
            place: "Figure 11",
            claim: "cycles per byte of the copy into a cold buffer",
            paper: figure("fig11-copy-cycles-per-byte"),
            here: large(SARWATE).map(|split| split.copy / LARGE_PDU_BYTES as f64),
            holds: |cycles| (1.0..4.0).contains(&cycles),
            decimals: 2,
        },
        Finding {
            place: "Figure 15",
            claim: "with Slicing-by-8, the CRC costs as much as the copy: ratio",
            paper: 1.0,
            here: large(SLICING_8).map(|split| split.crc / split.copy),
            holds: |ratio| (0.5..2.0).contains(&ratio),
            decimals: 2,
        },
        Finding {
            place: "Figure 15",
            claim: "Slicing-by-8 halves a PDU of 8 KiB: Sarwate's whole over its",
            paper: figure("fig11-total-cycles-8192") / figure("fig15-total-cycles-8192"),
            here: total(SARWATE).zip(total(SLICING_8)).map(|(a, b)| a / b),
            holds: |ratio| ratio > 1.5,
            decimals: 2,
        },
    ]
}

/// Figures 11 and 12: the protocol.
fn protocols(report: &Report) -> Vec<Finding> {
    let of_size = |bytes| split(report, SARWATE, bytes).map(|split| split.protocol);
    let sizes: Vec<f64> = PDU_BYTES.into_iter().filter_map(of_size).collect();
    let spread = sizes.iter().copied().reduce(f64::max).zip(sizes.iter().copied().reduce(f64::min));
    let cold = |pdus| protocol(report, pdus, Regime::Cold);
    vec![
        Finding {
            place: "Figure 11",
            claim: "the protocol does not depend on the size of a PDU: largest over smallest",
            paper: 1.0,
            here: spread.map(|(most, least)| most / least),
            holds: |ratio| ratio < 1.5,
            decimals: 2,
        },
        Finding {
            place: "Figure 12",
            claim: "protocol of a PDU, cycles, one PDU in a read, cold",
            paper: figure("fig12-protocol-cycles-8k"),
            here: cold(1),
            holds: |cycles| cycles <= 2.0 * 1800.0,
            decimals: 0,
        },
        Finding {
            place: "Figure 12",
            claim: "the same, eight PDUs in a read",
            paper: figure("fig12-protocol-cycles-64k"),
            here: cold(8),
            holds: |cycles| cycles <= 770.0,
            decimals: 0,
        },
        Finding {
            place: "Figure 12",
            claim: "later PDUs of a read find warm caches: one PDU over eight",
            paper: figure("fig12-protocol-cycles-8k") / figure("fig12-protocol-cycles-64k"),
            here: cold(1).zip(cold(8)).map(|(one, eight)| one / eight),
            holds: |ratio| ratio > 1.5,
            decimals: 2,
        },
        Finding {
            place: "section 5.1",
            claim: "protocol of a PDU with a perfect cache, cycles",
            paper: figure("fig12-protocol-cycles-warm"),
            here: protocol(report, 1, Regime::Warm),
            holds: |cycles| cycles <= 430.0,
            decimals: 0,
        },
    ]
}

/// Figures 14, 16 and 17.
fn passes(report: &Report) -> Vec<Finding> {
    let crc = |contender| {
        Some(
            report.marked(Query::new(Way::Layered, contender, LARGE_PDU_BYTES))?.crc / LARGE_PDU_BYTES as f64,
        )
    };
    let projected = |way, contender| projection(report, way, contender, LARGE_PDU_BYTES);
    vec![
        Finding {
            place: "Figure 14",
            claim: "Sarwate's cycles per byte over those of Slicing-by-8",
            paper: figure("fig14-sarwate-cycles-per-byte") / figure("fig14-slicing-8-cycles-per-byte"),
            here: crc(SARWATE).zip(crc(SLICING_8)).map(|(a, b)| a / b),
            holds: |ratio| ratio > 2.0,
            decimals: 2,
        },
        Finding {
            place: "Figure 16",
            claim: "interleaving saves of copy and CRC, Sarwate, 8 KiB: share",
            paper: figure("fig16-sarwate-saved-share"),
            here: saved_share(report, SARWATE, Regime::Cold),
            holds: |share| share > 0.09,
            decimals: 2,
        },
        Finding {
            place: "Figure 16",
            claim: "the same, Slicing-by-8",
            paper: figure("fig16-slicing-8-saved-share"),
            here: saved_share(report, SLICING_8, Regime::Cold),
            holds: |share| share > 0.16,
            decimals: 2,
        },
        Finding {
            place: "section 3.3",
            claim: "interleaving saves with the kernel in use, cold: share (ours)",
            paper: figure("fig16-slicing-8-saved-share"),
            here: saved_share(report, report.in_use(), Regime::Cold),
            holds: |share| share > 0.16,
            decimals: 2,
        },
        Finding {
            place: "section 3.3",
            claim: "the same, all warm (ours)",
            paper: figure("fig16-slicing-8-saved-share"),
            here: saved_share(report, report.in_use(), Regime::Warm),
            holds: |share| share > 0.16,
            decimals: 2,
        },
        Finding {
            place: "Figure 17",
            claim: "both changes together make reads faster: ratio of the projections",
            paper: figure("fig17-mb-per-s-slicing-8") / figure("fig17-mb-per-s-sarwate"),
            here: projected(Way::Interleaved, SLICING_8)
                .zip(projected(Way::Layered, SARWATE))
                .map(|(fast, slow)| fast / slow),
            holds: |ratio| ratio > 1.5,
            decimals: 2,
        },
    ]
}
