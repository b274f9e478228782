//! Figures 6.1 to 6.3: TCP by itself.

use wireless::link::LinkSetup;
use wireless::stream::{Stream, Streamed};

use super::bench::{B, Lab};
use crate::wireless::papers::middle;
use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

/// Seconds of the thesis' run with Chariot.
const SECONDS: f64 = 26.0;
/// Its runs with netperf.
const RUNS: u64 = 10;

fn stream(hops: u32, seed: u64) -> Streamed {
    // No disk takes part.
    let link = LinkSetup { hops, latency_ns: 0, ..B };
    Stream { link, connections: 1, seconds: SECONDS, seed }.run()
}

/// Figure 6.1.
pub(super) fn windows(_: &Lab) -> Result<Section, String> {
    let run = stream(1, 1);
    let least = run.by_second.iter().copied().fold(f64::INFINITY, f64::min);
    let most = run.by_second.iter().copied().fold(0.0, f64::max);
    let mut section = Section::new(
        "Figure 6.1: TCP from station to station, Windows",
        "One connection for 26 s, by second. The TCP is Reno with selective acknowledgements and a window of 64 KiB.",
    );
    section.rows = vec![
        Row::against("6.1", "mean", "Mbit/s", run.mbit_s, "6.1-mean", 0.10),
        Row::against("6.1", "fastest second", "Mbit/s", most, "6.1-most", 0.10),
        Row::against("6.1", "slowest second", "Mbit/s", least, "6.1-least", 0.10)
            .note("nothing disturbs the link here; what disturbed theirs is not said"),
    ];
    let seconds = run.by_second.iter().enumerate().map(|(second, mbit_s)| (second as f64 + 1.0, *mbit_s));
    section.charts.push(
        Chart::new(
            "figure-6-1",
            "Figure 6.1: TCP by second",
            "802.11b, one connection",
            ("second", Scale::Linear),
            ("Mbit/s", Scale::Linear),
        )
        .line("here", Role::Measured, 0, seconds)
        .line(
            "the thesis' mean",
            Role::Limit,
            1,
            [1.0, SECONDS].map(|second| (second, middle("6.1-mean"))),
        ),
    );
    Ok(section)
}

/// Figure 6.2.
pub(super) fn linux(_: &Lab) -> Result<Section, String> {
    let runs: Vec<f64> = (1..=RUNS).map(|seed| stream(1, seed).mbit_s).collect();
    let mut section = Section::new(
        "Figure 6.2: TCP from station to station, Linux",
        "Ten runs, each with a seed of its own.",
    );
    let mean = runs.iter().sum::<f64>() / RUNS as f64;
    section.rows = vec![Row::against("6.2", "mean of ten runs", "Mbit/s", mean, "6.2-mean", 0.10)];
    section.charts.push(
        Chart::new(
            "figure-6-2",
            "Figure 6.2: TCP, ten runs",
            "802.11b, one connection",
            ("run", Scale::Linear),
            ("Mbit/s", Scale::Linear),
        )
        .line(
            "here",
            Role::Measured,
            0,
            runs.iter().enumerate().map(|(run, mbit_s)| (run as f64 + 1.0, *mbit_s)),
        )
        .line(
            "the thesis' mean",
            Role::Limit,
            1,
            [1.0, RUNS as f64].map(|run| (run, middle("6.2-mean"))),
        ),
    );
    Ok(section)
}

/// Figure 6.3.
pub(super) fn access_point(_: &Lab) -> Result<Section, String> {
    let by_hops = [1, 2, 3].map(|hops| stream(hops, 1).mbit_s);
    let mut section = Section::new(
        "Figure 6.3: TCP through an access point",
        "To a host on the access point's wire a packet crosses the air once, as from station to station. To another station it crosses twice, on \
         the same channel. The thesis says only that both are slower.",
    );
    section.rows = vec![
        Row::holds(
            "6.3",
            "through an access point to a station, over station to station: below 1",
            "",
            by_hops[1] / by_hops[0],
            by_hops[1] < by_hops[0],
        ),
        Row::out_of_reach(
            "6.3",
            "to a host on the wire",
            "one crossing of the air is the same figure as 6.2; what their access point took itself is not known",
        ),
    ];
    let mut table = Table::new("By hops in one cell.", &["hops", "Mbit/s"]);
    table.rows = by_hops
        .iter()
        .enumerate()
        .map(|(n, mbit_s)| vec![(n + 1).to_string(), format!("{mbit_s:.2}")])
        .collect();
    section.tables.push(table);
    Ok(section)
}
