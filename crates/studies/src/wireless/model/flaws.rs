//! What is wrong in the thesis' models, each with the number that shows it.

use wireless::chain::Chain;
use wireless::mac::{AckForm, Mac};

use super::link::RATES;
use crate::wireless::report::{Row, Section};

/// The errors that no row of an equation has shown.
pub(super) fn section() -> Section {
    let of = |r_ack, form| Mac::B.with_r_ack(r_ack).throughput_mbit_s(1460.0, 1500.0, form);
    let all = RATES.map(|r_ack| of(r_ack, AckForm::Printed));
    let spread = all[RATES.len() - 1] / all[0];
    let neighbours = Chain::FIGURE_3_3.may_send_at_once(&[1, 2, 4]);
    let mut section = Section::new(
        "Further errors of the thesis",
        "Those of 3.6, 3.14, 3.4.2, 4.3.4 and 4.5 stand with their equations above.",
    );
    section.rows = vec![
        Row::holds(
            "3.7",
            "Table 3.2 is all that 3.7 needs; here: 3.7 at R_ACK 11 over R_ACK 1",
            "",
            spread,
            spread < 1.01,
        )
        .note("R_ACK is missing, and is worth this factor"),
        Row::holds(
            "3.4.2",
            "{B, C, E} may send at once (1: yes)",
            "",
            f64::from(u8::from(neighbours)),
            neighbours,
        )
        .note("B and C are neighbours"),
        Row {
            ours: None,
            ..Row::holds("5.1.5", "a semaphore's up waits and takes, its down gives back", "", 0.0, false)
        }
        .note("the other way round: down waits and takes, up gives back and wakes"),
    ];
    section
}
