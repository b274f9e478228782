//! Several senders and errors: equations 3.8 to 3.15, and the medium against them.

use wireless::contention::{Cell, Chances, bianchi_mbit_s};
use wireless::mac::{AckForm, Mac};
use wireless::medium::AfterCollision;
use wireless::saturation::{Saturated, Saturation};

use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

/// Values of P_e that are plotted.
const ERRORS: [f64; 3] = [0.0, 0.1, 0.3];
/// Values of n for which others have published figures.
const STATIONS: [u32; 5] = [1, 2, 5, 10, 20];
/// Virtual time of a run of the medium, seconds.
const RUN_SECONDS: f64 = 20.0;

fn chances(stations: u32, p_error: f64) -> Chances {
    Cell::of(&Mac::B, stations, p_error).solve()
}

/// S (3.13) of payload of 1460 bytes.
fn utilization(chances: Chances) -> f64 {
    chances.utilization(8.0 * 1460.0 / 11.0, Mac::B.cycle_us(1500.0, AckForm::Standard))
}

/// Rates by 3.8 to 3.12 in units of 1 / T_cycle: of success, of transmissions, of errors, of collisions.
fn rates(chances: Chances) -> [f64; 4] {
    let success = chances.success_share();
    let transmit = success / (1.0 - chances.p_failure);
    let error = (transmit - success) * chances.p_error / chances.p_failure.max(f64::MIN_POSITIVE);
    [success, transmit, error, (transmit - success - error) / 2.0]
}

/// Equations 3.8 to 3.15.
pub(super) fn section() -> Section {
    let mut section = Section::new(
        "Several senders and errors (3.8 to 3.15)",
        "Rates in units of 1 / T_cycle. Rows 3.8 to 3.12 are for 5 stations that always send and P_e = 0.1; W = 32, m = 5.",
    );
    section.rows = rows();
    section.charts = charts();
    section
}

fn rows() -> Vec<Row> {
    let chances_5 = chances(5, 0.1);
    let [success, transmit, error, collision] = rates(chances_5);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let p_f = chances_5.p_failure;
    let cell = Cell { doublings: 1, ..Cell::of(&Mac::B, 2, 0.0) };
    let (printed, right) = (cell.attempt_printed_3_14(0.4), cell.attempt(0.4));
    let falls = utilization(chances(5, 0.0)) > utilization(chances_5)
        && utilization(chances_5) > utilization(chances(20, 0.1));
    let mut rows = vec![
        Row::holds(
            "3.8",
            "successes of the transmissions",
            "",
            success / transmit,
            near(success / transmit, 1.0 - p_f),
        ),
        Row::holds(
            "3.9",
            "failures: two for a collision, one for an error",
            "",
            transmit - success,
            near(transmit - success, 2.0 * collision + error),
        ),
        Row::holds(
            "3.10",
            "failures by collision to those by errors: P_c / P_e",
            "",
            2.0 * collision / error,
            near(2.0 * collision / error, chances_5.p_collision / chances_5.p_error),
        ),
        Row::holds(
            "3.11",
            "every cycle is a success, a collision or an error",
            "",
            success + collision + error,
            near(success + collision + error, 1.0),
        ),
        Row::holds(
            "3.12",
            "rate of successes, which follows from the four above",
            "",
            success,
            near(success + collision + error, 1.0),
        ),
        Row::holds(
            "3.13",
            "S falls in P_c and in P_e; here, for 5 stations",
            "",
            utilization(chances_5),
            falls,
        ),
        Row::holds(
            "3.14",
            "chance to send in a slot as printed, P_f = 0.4, m = 1",
            "",
            printed,
            printed > 0.0,
        )
        .note(format!("a W too many: negative; without it, as in 3.15, {right:.4}")),
    ];
    rows.extend(fixed_points());
    rows
}

/// Equation 3.15.
fn fixed_points() -> Vec<Row> {
    let mut rows = Vec::new();
    for (stations, expected) in STATIONS.into_iter().zip([0.0, 0.0586, 0.1812, 0.2925, 0.4007]) {
        let p_f = chances(stations, 0.0).p_failure;
        rows.push(Row::holds(
            "3.15",
            &format!("P_f, n = {stations}, P_e = 0"),
            "",
            p_f,
            (p_f - expected).abs() < 5e-5,
        ));
    }
    let alone = chances(1, 0.3).p_failure;
    rows.push(Row::holds(
        "3.15",
        "P_f of one sender is P_e; here P_e = 0.3",
        "",
        alone,
        (alone - 0.3).abs() < 1e-9,
    ));
    rows
}

fn charts() -> Vec<Chart> {
    let axis = ("stations that always send", Scale::Linear);
    let mut failures = Chart::new(
        "failures",
        "Equation 3.15: failures by the number of stations",
        "W = 32, m = 5",
        axis,
        ("P_f", Scale::Linear),
    );
    let mut shares = Chart::new(
        "utilization",
        "Equation 3.13: the share of time that payload takes",
        "1460 bytes, 11 Mbit/s",
        axis,
        ("S", Scale::Linear),
    );
    for (hue, p_error) in ERRORS.into_iter().enumerate() {
        let all = (1..=20).map(|n| (f64::from(n), chances(n, p_error)));
        let name = format!("P_e = {p_error}");
        failures = failures.line(&name, Role::Measured, hue, all.clone().map(|(n, c)| (n, c.p_failure)));
        shares = shares.line(&name, Role::Measured, hue, all.map(|(n, c)| (n, utilization(c))));
    }
    vec![failures, shares]
}

/// The medium, frame by frame, against Bianchi's model and against 3.15: means of `seeds` runs.
pub(super) fn medium_section(seeds: u64) -> Section {
    let run = |n: u32, after_collision, seed| -> Saturated {
        let (payload_bytes, packet_bytes) = (1472, 1500);
        let (mac, stations, seconds, p_error) = (Mac::B, n as usize, RUN_SECONDS, 0.0);
        Saturation { mac, stations, payload_bytes, packet_bytes, p_error, after_collision, seconds, seed }
            .run()
    };
    let mut section = Section::new(
        "The medium against the equations",
        format!(
            "The medium counts every frame of DCF; means of {seeds} runs of {RUN_SECONDS} s, 1472 bytes of payload, R_ACK 2. \
             Bianchi assumes that after a collision everybody waits as long as those who sent; real stations wait DIFS."
        ),
    );
    let mut table = Table::new(
        "Saturation throughput, Mbit/s, and the share of transmissions that fail.",
        &["n", "medium, time-out", "Bianchi", "ratio", "medium, DIFS", "P_f on the medium", "P_f by 3.15"],
    );
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for n in STATIONS {
        let mean = |after, of: fn(&Saturated) -> f64| {
            (0..seeds).map(|seed| of(&run(n, after, seed))).sum::<f64>() / seeds as f64
        };
        let timed = mean(AfterCollision::TimeOut, |s| s.mbit_s);
        let difs = mean(AfterCollision::Difs, |s| s.mbit_s);
        let p_f = mean(AfterCollision::TimeOut, |s| s.p_failure);
        let bianchi = bianchi_mbit_s(&Mac::B, n, 1472.0, 1500.0);
        for (line, value) in lines.iter_mut().zip([timed, difs, bianchi]) {
            line.push((f64::from(n), value));
        }
        let three = [timed, bianchi, timed / bianchi, difs, p_f, chances(n, 0.0).p_failure];
        table
            .rows
            .push(std::iter::once(n.to_string()).chain(three.map(|value| format!("{value:.3}"))).collect());
    }
    let [timed, difs, bianchi] = lines;
    section.tables.push(table);
    section.charts.push(
        Chart::new(
            "saturation",
            "Saturation throughput by the number of stations",
            "802.11b, 1472 bytes of payload",
            ("stations that always send", Scale::Linear),
            ("Mbit/s", Scale::Linear),
        )
        .line("medium, time-out", Role::Measured, 0, timed)
        .line("medium, DIFS", Role::Measured, 1, difs)
        .line("Bianchi", Role::Limit, 0, bianchi),
    );
    section
}
