//! Queues: equations 4.1 to 4.5, and the closed model that fits a bounded number of commands.

use wireless::mac::AckBackoff;
use wireless::queues::{
    Station, mean_value_analysis, mm1_time, mmm_heavy_limit, mmm_light_limit, mmm_time, p_queueing,
};

use super::command_time::{FITTED_DELAY_US, transfer};
use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

/// Loads of the whole link that are shown.
const LOADS: [f64; 4] = [0.01, 0.5, 0.9, 0.99];
/// Largest number of servers.
const SERVERS: u32 = 8;
/// Depths of Figure 6.18.
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// A time in a queue that is not overloaded.
fn stable(time: Option<f64>) -> f64 {
    time.unwrap_or(f64::INFINITY)
}

/// m servers that share one link, each with its part of it.
fn split(load: f64, m: u32) -> f64 {
    stable(mmm_time(load, 1.0 / f64::from(m), m))
}

fn mm1(load: f64) -> f64 {
    stable(mm1_time(load, 1.0))
}

/// Equations 4.1 to 4.5.
pub(super) fn section() -> Section {
    let mut section = Section::new(
        "Queues (4.1 to 4.5)",
        "Mean times in units of the service time of the whole link. The thesis' m connections share one link (its own premise), so each has \
         a share of it; then they are slower than one connection at any load. They are faster only where each has a link of its own.",
    );
    section.rows = rows();
    section.tables = tables();
    section.charts = vec![plot()];
    section
}

fn rows() -> Vec<Row> {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let offered: f64 = 2.1;
    let idle = 1.0 / (1.0 + offered + offered.powi(2) / 2.0 + offered.powi(3) / 6.0 / 0.3);
    let written_out = idle * offered.powi(3) / 6.0 / 0.3;
    let p_q = p_queueing(offered, 1.0, 3).unwrap_or(0.0);
    let heavy = stable(mmm_heavy_limit(0.9, 0.5, 2));
    vec![
        Row::holds("4.1", "M/M/1 at a load of 0.9", "", mm1(0.9), near(mm1(0.9), 10.0)),
        Row::holds(
            "4.2",
            "M/M/2 of two links at 0.99 of one; the closed form 1 / (1 - ρ²) says the same",
            "",
            stable(mmm_time(0.99, 1.0, 2)),
            near(stable(mmm_time(0.99, 1.0, 2)), 1.0 / (1.0 - 0.495f64.powi(2))),
        ),
        Row::holds(
            "4.3",
            "P_Q of three servers at ρ = 0.7, as printed and by Erlang's recursion",
            "",
            p_q,
            near(p_q, written_out),
        ),
        Row::holds(
            "4.4",
            "M/M/2 lightly loaded: 1/µ",
            "",
            stable(mmm_time(1e-6, 1.0, 2)),
            (stable(mmm_time(1e-6, 1.0, 2)) - mmm_light_limit(1.0)).abs() < 1e-5,
        ),
        Row::holds(
            "4.5",
            "M/M/2 on a split link, heavily loaded (0.9), over M/M/1: below 1, says the thesis",
            "",
            heavy / mm1(0.9),
            heavy < mm1(0.9) * 0.999,
        )
        .note("with µ_2 = µ_1 / 2, 4.5 is 4.1: there is nothing to gain"),
        Row::holds(
            "4.3.4",
            "lightly loaded, M/M/2 over M/M/1: \"much less\", says the thesis",
            "",
            mmm_light_limit(1.0) / mm1(1e-6),
            mmm_light_limit(1.0) < 0.9 * mm1(1e-6),
        )
        .note("both go to 1/µ"),
    ]
}

fn tables() -> Vec<Table> {
    let mut table =
        Table::new("M/M/2 against M/M/1.", &["load", "M/M/1", "M/M/2, the link split", "M/M/2, two links"]);
    for load in LOADS {
        let times = [mm1(load), split(load, 2), stable(mmm_time(load, 1.0, 2))];
        table
            .rows
            .push(std::iter::once(load.to_string()).chain(times.map(|time| format!("{time:.2}"))).collect());
    }
    let mut by_m =
        Table::new("M/M/m on one link that is split, by m.", &["m", "load 0.01", "0.5", "0.9", "0.99"]);
    for m in 1..=SERVERS {
        by_m.rows.push(
            std::iter::once(m.to_string())
                .chain(LOADS.map(|load| format!("{:.2}", split(load, m))))
                .collect(),
        );
    }
    vec![table, by_m]
}

fn plot() -> Chart {
    let loads = || (1..100).map(|percent| f64::from(percent) / 100.0);
    Chart::new(
        "queues",
        "Mean time by load",
        "in units of the service time of the whole link",
        ("load of the link", Scale::Linear),
        ("time", Scale::Decades),
    )
    .line("M/M/1", Role::Measured, 0, loads().map(|load| (load, mm1(load))))
    .line("M/M/2, split", Role::Measured, 1, loads().map(|load| (load, split(load, 2))))
    .line("M/M/8, split", Role::Measured, 2, loads().map(|load| (load, split(load, 8))))
    .line(
        "M/M/2, two links",
        Role::Measured,
        3,
        loads().map(|load| (load, stable(mmm_time(load, 1.0, 2)))),
    )
}

/// Mean value analysis of reads: the medium is a queue, all else is a delay.
pub(super) fn closed_section() -> Section {
    let rate = |kib: u32, depth| {
        let busy_us = transfer(AckBackoff::Overlapped).read_us(kib << 10, true);
        mean_value_analysis(&[Station::Delay(FITTED_DELAY_US), Station::Queue(busy_us)], depth)
            .throughput_per_s
    };
    let mut section = Section::new(
        "The closed model",
        "An initiator with a fixed queue depth is a closed system: the next command begins when one has ended. Mean value analysis knows \
         only how many commands are under way, not how many connections carry them: two connections of depth 1 are one of depth 2.",
    );
    let mut table = Table::new("Reads per second by depth.", &["KiB", "1", "2", "4", "8", "16", "32"]);
    let mut plot = Chart::new(
        "closed",
        "Reads by queue depth, predicted",
        "802.11b, R_ACK 1, T_delay 4 ms",
        ("commands under way", Scale::Doublings),
        ("reads/s", Scale::Linear),
    );
    for (hue, kib) in [2, 4, 8].into_iter().enumerate() {
        let rates = DEPTHS.map(|depth| rate(kib, depth));
        table
            .rows
            .push(std::iter::once(kib.to_string()).chain(rates.map(|rate| format!("{rate:.0}"))).collect());
        plot = plot.line(
            format!("{kib} KiB"),
            Role::Measured,
            hue,
            DEPTHS.map(f64::from).into_iter().zip(rates),
        );
    }
    section.rows = vec![
        Row::against("6.18", "reads of 4 KiB at depth 8", "1/s", rate(4, 8), "6.18-8", 0.10)
            .note("exponential service; the medium's is more even"),
    ];
    section.tables.push(table);
    section.charts.push(plot);
    section
}
