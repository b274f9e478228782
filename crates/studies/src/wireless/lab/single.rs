//! Figures that need one connection, or two at one size: 6.4 to 6.6 and 6.15 to 6.18.

use sim::trial::Trial;
use wireless::link::LinkSetup;

use super::bench::{B, Lab, text};
use crate::wireless::papers::middle;
use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

const KIB: u32 = 1024;
/// Round trips of the thesis' ping without hops, over one hop and over two, ms.
const PINGS_MS: [f64; 3] = [1.2, 2.5, 3.8];
/// MTUs that are plotted; the thesis names 1500 and 2260.
const MTUS: [u32; 5] = [576, 1000, 1500, 2000, 2260];
/// Queue depths of Figure 6.18.
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Figures 6.4 and 6.5.
pub(super) fn nfs(_: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Figures 6.4 and 6.5: against NFS",
        "Discrete events have no NFS: `intact wireless lab --figure 6.4` measures it in real time. What its round trips predict is in \
         `intact wireless model`.",
    );
    let why = "needs an NFS client and server over a link in real time: live/results.md";
    section.rows = vec![
        Row::out_of_reach("6.4", "iSCSI over NFS v3, reads of 4 to 128 KiB", why),
        Row::out_of_reach("6.5", "time of a file of 1 GB, iSCSI and NFS v3", why),
    ];
    Ok(section)
}

/// Figure 6.6.
pub(super) fn one_connection(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.6: one connection",
        "Reads at depth 1, by size. The one parameter (4 ms) is fitted to 2 KiB.",
    );
    let mut table = Table::new("", &["KiB", "MB/s", "reads/s", "ms"]);
    let mut line = Vec::new();
    for &kib in lab.sizes_kib() {
        let cell = lab.cell(Trial::reads(B, kib * KIB))?;
        line.push((f64::from(kib), cell.mb_s.mean));
        table.rows.push(vec![
            kib.to_string(),
            text(&cell),
            format!("{:.1}", cell.per_s),
            format!("{:.2}", cell.command_ms),
        ]);
    }
    section.rows = vec![
        Row::against("6.6", "2 KiB", "MB/s", line[0].1, "6.6-2k", 0.10).note("fitted"),
        Row::against("6.6", "128 KiB", "MB/s", line[line.len() - 1].1, "6.6-128k", 0.10),
    ];
    section.tables.push(table);
    section.charts.push(
        Chart::new(
            "figure-6-6",
            "Figure 6.6: reads over one connection",
            "802.11b, depth 1",
            ("KiB of a read", Scale::Doublings),
            ("MB/s", Scale::Linear),
        )
        .line("here", Role::Measured, 0, line)
        .line(
            "the thesis, 2 and 128 KiB",
            Role::Limit,
            1,
            [(2.0, middle("6.6-2k")), (128.0, middle("6.6-128k"))],
        ),
    );
    Ok(section)
}

/// Figure 6.15.
pub(super) fn processors(_: &Lab) -> Result<Section, String> {
    let mut section = Section::new("Figure 6.15: load of the processors", "");
    section.rows = vec![Row::out_of_reach(
        "6.15",
        "41 % of the initiator with one connection, 53 % with two",
        "includes the driver of a PCMCIA card on a processor of 733 MHz; processors cost nothing in discrete events. What it costs \
         today's processors is in live/results.md, and at full speed in docs/mcs.md",
    )];
    Ok(section)
}

/// Throughput over hops by that without: size, session, how, and the ratios of one hop and of two.
type Ratio = (u32, &'static str, &'static str, [f64; 2]);

/// Figure 6.16.
pub(super) fn latency(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.16: latency",
        "The thesis gives each case by its ping: 1.2, 2.5 and 3.8 ms for none, one and two hops. `ping`: only the latency is added. `hops`: the packets \
         cross the air as often as that, in one cell. Two connections at depth 2, as the thesis did it; then one at depth 2, and one at depth 1.",
    );
    let (table, ratios) = by_hops(lab)?;
    section.rows = latency_rows(&ratios);
    section.tables.push(table);
    Ok(section)
}

fn by_hops(lab: &Lab) -> Result<(Table, Vec<Ratio>), String> {
    let longer =
        |n: usize| LinkSetup { latency_ns: B.latency_ns + ((PINGS_MS[n] - PINGS_MS[0]) * 5e5) as u64, ..B };
    let hops = |n: usize| LinkSetup { hops: n as u32 + 1, ..B };
    let mut table = Table::new(
        "MB/s of reads.",
        &["KiB", "session", "how", "1.2 ms", "2.5 ms", "3.8 ms", "2.5 / 1.2", "3.8 / 1.2"],
    );
    let mut ratios = Vec::new();
    for kib in [2, 128] {
        for (session, connections, depth) in
            [("2 connections", 2, 2), ("1, depth 2", 1, 2), ("1, depth 1", 1, 1)]
        {
            for (how, link) in [("ping", &longer as &dyn Fn(usize) -> LinkSetup), ("hops", &hops)] {
                let mut figures = [0.0; 3];
                for (n, figure) in figures.iter_mut().enumerate() {
                    *figure = lab.mb_s(Trial { connections, depth, ..Trial::reads(link(n), kib * KIB) })?;
                }
                let ratio = [figures[1] / figures[0], figures[2] / figures[0]];
                ratios.push((kib, session, how, ratio));
                let mut row = vec![kib.to_string(), session.to_owned(), how.to_owned()];
                row.extend(figures.iter().chain(&ratio).map(|figure| format!("{figure:.3}")));
                table.rows.push(row);
            }
        }
    }
    Ok((table, ratios))
}

fn latency_rows(ratios: &[Ratio]) -> Vec<Row> {
    let ratio = |kib, session, how, n: usize| {
        let found = ratios.iter().find(|(k, s, h, _)| (*k, *s, *h) == (kib, session, how));
        found.map_or(0.0, |found| found.3[n])
    };
    let wait = "the air is the limit at this size, and each hop crosses it again";
    vec![
        Row::against(
            "6.16",
            "2 KiB, 2 connections, 2.5 ms by ping",
            "",
            ratio(2, "2 connections", "ping", 0),
            "6.16-2k-1",
            0.10,
        ),
        Row::against(
            "6.16",
            "2 KiB, 2 connections, 3.8 ms by ping",
            "",
            ratio(2, "2 connections", "ping", 1),
            "6.16-2k-2",
            0.10,
        )
        .note("two commands do not fill the link; four would"),
        Row::against(
            "6.16",
            "128 KiB, 2 connections, 2.5 ms by ping",
            "",
            ratio(128, "2 connections", "ping", 0),
            "6.16-128k-1",
            0.10,
        ),
        Row::against(
            "6.16",
            "128 KiB, 2 connections, 3.8 ms by ping",
            "",
            ratio(128, "2 connections", "ping", 1),
            "6.16-128k-2",
            0.10,
        )
        .note("latency does not matter where the air is the limit; in one cell hops would halve it"),
        Row::against(
            "6.16",
            "128 KiB, 2 connections, one more hop in one cell",
            "",
            ratio(128, "2 connections", "hops", 0),
            "6.16-128k-1",
            0.10,
        )
        .note(wait),
        Row::against(
            "6.16",
            "2 KiB, one connection, 2.5 ms by ping",
            "",
            ratio(2, "1, depth 1", "ping", 0),
            "6.16-one-2k-1",
            0.10,
        ),
        Row::against(
            "6.16",
            "128 KiB, one connection, 2.5 ms by ping",
            "",
            ratio(128, "1, depth 1", "ping", 0),
            "6.16-one-128k-1",
            0.10,
        )
        .note("1.3 ms are nothing to a command of 220 ms; only a hop in the same cell can cost this much"),
    ]
}

/// Figure 6.17.
pub(super) fn mtu(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.17: MTU",
        "Reads by two connections at depth 2, as the thesis did it, and by one at the same depth.",
    );
    let mut table = Table::new("MB/s.", &["MTU", "2 KiB, two", "2 KiB, one", "128 KiB, two", "128 KiB, one"]);
    let mut lines = [Vec::new(), Vec::new()];
    for mtu in MTUS {
        let mut row = vec![mtu.to_string()];
        for (line, kib) in lines.iter_mut().zip([2, 128]) {
            for connections in [2, 1] {
                let cell =
                    lab.cell(Trial { connections, depth: 2, ..Trial::reads(B.with_mtu(mtu), kib * KIB) })?;
                row.push(text(&cell));
                if connections == 2 {
                    line.push((f64::from(mtu), cell.mb_s.mean));
                }
            }
        }
        table.rows.push(row);
    }
    let [small, large] = lines;
    section.rows = vec![
        Row::against("6.17", "128 KiB, MTU 1500", "MB/s", large[2].1, "6.17-1500", 0.10),
        Row::against("6.17", "128 KiB, MTU 2260", "MB/s", large[4].1, "6.17-2260", 0.10),
        Row::against(
            "6.17",
            "2 KiB, two connections, MTU 2260: their figure at MTU 1500",
            "MB/s",
            small[4].1,
            "6.11-2k-2",
            0.10,
        )
        .note("at this MTU, the largest of their cards, an answer of 2 KiB is one frame; at 1500 it is two"),
    ];
    section.tables.push(table);
    section.charts.push(
        Chart::new(
            "figure-6-17",
            "Figure 6.17: throughput by MTU",
            "802.11b, two connections, depth 2",
            ("MTU, bytes", Scale::Linear),
            ("MB/s", Scale::Linear),
        )
        .line("128 KiB", Role::Measured, 0, large)
        .line("2 KiB", Role::Measured, 1, small)
        .line(
            "the thesis, 128 KiB",
            Role::Limit,
            2,
            [(1500.0, middle("6.17-1500")), (2260.0, middle("6.17-2260"))],
        ),
    );
    Ok(section)
}

/// Figure 6.18.
pub(super) fn queue(lab: &Lab) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.18: queue depth",
        "Reads of 4 KiB. The thesis used two connections; one connection at the same depth is next to them.",
    );
    let mut table = Table::new("Reads per second.", &["depth", "two connections", "one connection"]);
    let mut lines = [Vec::new(), Vec::new()];
    for depth in DEPTHS {
        let mut row = vec![depth.to_string()];
        for (line, connections) in lines.iter_mut().zip([2, 1]) {
            let cell = lab.cell(Trial { connections, depth, ..Trial::reads(B, 4 * KIB) })?;
            line.push((depth as f64, cell.per_s));
            row.push(format!("{:.1}", cell.per_s));
        }
        table.rows.push(row);
    }
    let [two, one] = lines;
    section.rows = vec![
        Row::against("6.18", "depth 1", "1/s", two[0].1, "6.18-1", 0.10),
        Row::against("6.18", "depth 8", "1/s", two[3].1, "6.18-8", 0.10),
        Row::holds(
            "6.18",
            "depth 32 over depth 8: no more",
            "",
            two[5].1 / two[3].1,
            (two[5].1 / two[3].1 - 1.0).abs() < 0.05,
        ),
    ];
    section.tables.push(table);
    section.charts.push(
        Chart::new(
            "figure-6-18",
            "Figure 6.18: reads of 4 KiB by queue depth",
            "802.11b",
            ("commands under way", Scale::Doublings),
            ("reads/s", Scale::Linear),
        )
        .line("two connections", Role::Measured, 0, two)
        .line("one connection", Role::Measured, 1, one)
        .line("the thesis", Role::Limit, 2, [(1.0, middle("6.18-1")), (8.0, middle("6.18-8"))]),
    );
    Ok(section)
}
