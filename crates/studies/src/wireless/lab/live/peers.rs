//! Other targets and initiators on the same link, in turn with ours.

use wireless::link::LinkSetup;
use wireless::mac::Mac;

use super::programs::{Load, Need, Ran, Served, iperf3, libiscsi, our_initiator, our_target, tgt};
use super::{Live, missing};
use crate::wireless::report::{Row, Section};
use crate::wireless::stage::Stage;
use harness::document::Table;
use harness::statistics::Summary;

const NEEDS: [Need; 4] = [
    ("tgtd", "tgt"),
    ("qemu-img", "qemu-utils"),
    ("*qemu/block-iscsi.so", "qemu-block-extra"),
    ("iperf3", "iperf3"),
];
/// Acknowledgements at 2 Mbit/s, and no latency besides: all that the link can carry.
const LINK: LinkSetup = LinkSetup::of(Mac::B);
/// Commands outstanding.
const DEPTH: usize = 8;
/// What packing is to bring to small reads, MB/s; at most 0.63 fit.
const SMALL_MB_S: f64 = 0.55;
/// Part of iperf3's rate that large reads are to have.
const OF_IPERF: f64 = 0.97;

type Server = fn(&Stage) -> std::io::Result<Served>;
type Client = fn(&Stage, &Served, Load) -> std::io::Result<Ran>;

const PAIRS: [(&str, Server, Client); 4] = [
    ("intact, intact", our_target, our_initiator),
    ("intact, QEMU with libiscsi", our_target, libiscsi),
    ("tgt, intact", tgt, our_initiator),
    ("tgt, QEMU with libiscsi", tgt, libiscsi),
];

/// The comparison.
pub(super) fn figure(live: &Live) -> Result<Section, String> {
    let mut section = Section::new(
        "Other targets and initiators",
        "Reads over one connection at depth 8; 802.11b, acknowledgements at 2 Mbit/s, no latency besides. All pairs of target and initiator in turn \
         within a round. Ours have both digests on, libiscsi the header's, and our initiator compares every digest.",
    );
    if let Some(why) = missing("peers", &NEEDS) {
        section.rows.push(Row::out_of_reach("peers", "tgt and libiscsi beside ours", &why));
        return Ok(section);
    }
    let mut samples = vec![[const { Vec::new() }; 2]; PAIRS.len()];
    let mut tcp = Vec::new();
    for _ in 0..live.rounds() {
        for (pair, (name, server, client)) in PAIRS.into_iter().enumerate() {
            for (size, kib) in [2, 128].into_iter().enumerate() {
                let load = Load::reads(kib, DEPTH, live.seconds());
                let what = format!("{name}, {kib} KiB");
                let ran = live.cell(&what, &LINK, |stage| client(stage, &server(stage)?, load))?;
                samples[pair][size].push(ran.mb_s);
            }
        }
        tcp.push(live.cell("iperf3", &LINK, |stage| iperf3(stage, live.seconds()))?);
    }
    let tcp = Summary::of(&tcp);
    let mut table = Table::new(
        "MB/s, mean of the rounds.",
        &["target, initiator", "2 KiB", "128 KiB", "128 KiB / iperf3"],
    );
    for ((name, ..), [small, large]) in PAIRS.iter().zip(&samples) {
        let (small, large) = (Summary::of(small), Summary::of(large));
        table.rows.push(vec![
            (*name).to_owned(),
            format!("{:.3} ±{:.3}", small.mean, small.ci95),
            format!("{:.3} ±{:.3}", large.mean, large.ci95),
            format!("{:.3}", large.mean / tcp.mean),
        ]);
    }
    table.rows.push(vec![
        "iperf3".to_owned(),
        "-".to_owned(),
        format!("{:.3} ±{:.3}", tcp.mean, tcp.ci95),
        "1".to_owned(),
    ]);
    section.tables.push(table);
    let mean = |pair: usize, size: usize| Summary::of(&samples[pair][size]).mean;
    let small = mean(0, 0);
    let large = mean(0, 1) / tcp.mean;
    section.rows = vec![
        Row::holds("aim", "reads of 2 KiB, depth 8, ours: at least 0.55", "MB/s", small, small >= SMALL_MB_S),
        Row::holds(
            "aim",
            "the same over tgt with libiscsi: above 1",
            "",
            small / mean(3, 0),
            small > mean(3, 0),
        ),
        Row::holds(
            "aim",
            "reads of 128 KiB, depth 8, over iperf3: at least 0.97",
            "",
            large,
            large >= OF_IPERF,
        ),
    ];
    Ok(section)
}
