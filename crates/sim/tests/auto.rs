//! Sessions that choose the number of their connections, in some cells of the map that `cargo xtask sim auto` runs.
#![forbid(unsafe_code)]

use initiator::Scheduling;
use sim::auto::{Cell, Measured, Setting, Wire};

const GIGABIT: Wire = Wire::Ethernet(125_000_000);
const FAST: Wire = Wire::Ethernet(12_500_000);

fn run(cell: Cell, setting: Setting) -> Measured {
    let run = cell.run(setting, 1).expect("every invariant holds");
    println!("{:.2} MB/s, later {:.2}, wants {}: {cell:?}, {setting:?}", run.whole, run.later, run.wanted);
    run
}

fn fixed(connections: u16) -> Setting {
    Setting::Fixed(connections, Scheduling::LeastOutstandingBytes)
}

#[test]
fn where_windows_are_the_limit_it_opens_connections() {
    let cell = Cell { wire: FAST, round_trip_us: 10_000, loss_ppm: 10_000, bytes: 128 << 10 };
    let (auto, one, eight) = (run(cell, Setting::Auto), run(cell, fixed(1)), run(cell, fixed(8)));
    assert_eq!(auto.wanted, 8);
    assert!(auto.later > 5.0 * one.later && auto.later > 0.85 * eight.later);
}

#[test]
fn without_losses_it_is_a_session_of_one_connection() {
    let cell = Cell { wire: GIGABIT, round_trip_us: 100, loss_ppm: 0, bytes: 16 << 10 };
    let (auto, one) = (run(cell, Setting::Auto), run(cell, fixed(1)));
    assert_eq!(auto.wanted, 1);
    assert!(auto.whole > 0.999 * one.whole);
}

#[test]
fn where_depth_is_the_limit_it_stays_with_one() {
    let cell = Cell { wire: FAST, round_trip_us: 100_000, loss_ppm: 0, bytes: 2 << 10 };
    assert_eq!(run(cell, Setting::Auto).wanted, 1);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let cell = Cell { wire: Wire::B, round_trip_us: 10_000, loss_ppm: 10_000, bytes: 16 << 10 };
    let run = |seed| cell.run(Setting::Auto, seed).expect("every invariant holds");
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
