//! Figures 6.14 (response time), 6.15 (processors) and 6.16 (hops) in real time, with the kernel's TCP.

use wireless::link::LinkSetup;

use super::Live;
use super::programs::{Load, our_initiator, our_target};
use crate::wireless::lab::bench::B;
use crate::wireless::lab::several::response_rows;
use crate::wireless::report::{Row, Section};
use harness::document::Table;

/// Connections and commands outstanding: one of each; as the thesis did it; one connection with as many commands.
const SESSIONS: [(&str, u16, usize); 3] =
    [("1, depth 1", 1, 1), ("2 connections", 2, 2), ("1, depth 2", 1, 2)];

/// Figure 6.14.
pub(super) fn response(live: &Live) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.14: response time",
        "Mean time of a read, measured by the initiator; 802.11b with the lab's latency.",
    );
    let sizes: &[u32] = if live.quick { &[2, 128] } else { &[2, 8, 32, 128] };
    let mut table = Table::new("ms.", &["KiB", SESSIONS[0].0, SESSIONS[1].0, SESSIONS[2].0]);
    let mut ratios = Vec::new();
    for &kib in sizes {
        let mut times = [0.0; SESSIONS.len()];
        for ((name, connections, depth), time) in SESSIONS.into_iter().zip(&mut times) {
            let load = Load { connections, ..Load::reads(kib, depth, live.seconds()) };
            let what = format!("6.14, {kib} KiB, {name}");
            *time = live
                .mean(&what, &B, |stage| Ok(our_initiator(stage, &our_target(stage)?, load)?.command_ms))?;
        }
        ratios.push(times[1] / times[0]);
        table.rows.push([vec![kib.to_string()], times.map(|ms| format!("{ms:.2}")).to_vec()].concat());
    }
    section.rows = response_rows(&ratios);
    section.tables.push(table);
    Ok(section)
}

/// Figure 6.15.
pub(super) fn processors(live: &Live) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.15: load of the processors",
        "Processor time of both ends over the time of the run, reads and writes of 128 KiB. The thesis' percentages are of a processor of 733 MHz, \
         with the driver of its wireless card; here the link's own work is the medium's, and is not counted.",
    );
    let mut table = Table::new(
        "Percent of one processor, and ms of it for a megabyte.",
        &["load", "session", "initiator, %", "target, %", "initiator, ms/MB", "target, ms/MB"],
    );
    let mut per_mb = Vec::new();
    for (name, writes) in [("read", false), ("write", true)] {
        for (session, connections, depth) in SESSIONS {
            let load = Load { connections, writes, ..Load::reads(128, depth, 2.0 * live.seconds()) };
            let what = format!("6.15, {name}, {session}");
            let ran = live.cell(&what, &B, |stage| our_initiator(stage, &our_target(stage)?, load))?;
            let costs = [ran.client_cpu, ran.server_cpu];
            per_mb.push(costs[0] / ran.mb_s);
            let mut row = vec![name.to_owned(), session.to_owned()];
            row.extend(costs.map(|cpu| format!("{:.2}", cpu * 100.0)));
            row.extend(costs.map(|cpu| format!("{:.2}", cpu / ran.mb_s * 1e3)));
            table.rows.push(row);
        }
    }
    section.rows = vec![
        Row::out_of_reach(
            "6.15",
            "41 % of the initiator with one connection, 53 % with two",
            "their percentages are those of a processor of 733 MHz and the driver of its card",
        ),
        Row::holds(
            "6.15",
            "reads of 128 KiB: time of the initiator for a megabyte, two connections over one: above 1",
            "",
            per_mb[1] / per_mb[0],
            per_mb[1] > per_mb[0],
        ),
    ];
    section.tables.push(table);
    Ok(section)
}

/// Figure 6.16, by hops.
pub(super) fn hops(live: &Live) -> Result<Section, String> {
    let mut section = Section::new(
        "Figure 6.16: hops",
        "Reads over one to three hops in one cell: each packet crosses the air as often. What the thesis found for 2.5 and 3.8 ms of ping is in \
         the simulated figure, by latency and by hops.",
    );
    let mut table = Table::new("MB/s.", &["KiB", "session", "1 hop", "2 hops", "3 hops", "2 / 1", "3 / 1"]);
    for kib in [2, 128] {
        for (name, connections, depth) in SESSIONS {
            let mut mb_s = [0.0; 3];
            for (hops, mb_s) in (1..).zip(&mut mb_s) {
                let link = LinkSetup { hops, ..B };
                let load = Load { connections, ..Load::reads(kib, depth, live.seconds()) };
                let what = format!("6.16, {kib} KiB, {name}, {hops} hops");
                *mb_s = live
                    .mean(&what, &link, |stage| Ok(our_initiator(stage, &our_target(stage)?, load)?.mb_s))?;
            }
            let ratios = [mb_s[1] / mb_s[0], mb_s[2] / mb_s[0]];
            if (kib, connections) == (128, 2) {
                section.rows.push(
                    Row::against(
                        "6.16",
                        "128 KiB, 2 connections, one more hop in one cell",
                        "",
                        ratios[0],
                        "6.16-128k-1",
                        0.10,
                    )
                    .note("the air is the limit at this size, and each hop crosses it again"),
                );
            }
            let mut row = vec![kib.to_string(), name.to_owned()];
            row.extend(mb_s.iter().chain(&ratios).map(|figure| format!("{figure:.3}")));
            table.rows.push(row);
        }
    }
    section.tables.push(table);
    Ok(section)
}
