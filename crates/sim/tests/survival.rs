//! Sessions over the air to which something happens.
#![forbid(unsafe_code)]

use std::time::Duration;

use sim::plan::SECOND;
use sim::survival::{Mishap, Survival, Survived};
use wireless::link::LinkSetup;
use wireless::mac::Mac;

const LINK: LinkSetup = LinkSetup { latency_ns: 2_000_000, ..LinkSetup::of(Mac::B.with_r_ack(1.0)) };

/// TCP's shortest timeout, ms: that of a connection whose segments arrive.
const RTO_MS: f64 = 200.0;

/// Four connections, reads and writes. That every command ended once, with the right data, is what `run` has checked.
fn run(mishap: Mishap, time2wait_s: u16, seed: u64) -> Survived {
    let survival = Survival {
        link: LINK,
        connections: 4,
        depth: 8,
        bytes: 8192,
        writes: 50,
        commands: 600,
        ping: Duration::from_secs(5),
        time2wait_s,
        mishap,
    };
    let survived = survival.run(seed).expect("every invariant holds");
    println!("{mishap:?}: {survived:?}");
    assert_eq!((survived.done, survived.failed, survived.sessions_lost), (600, 0, 0), "{mishap:?}");
    survived
}

#[test]
fn a_killed_connection_costs_no_command_and_no_timeout_where_tasks_need_not_wait() {
    for seed in 1..=5 {
        let (undisturbed, killed) = (run(Mishap::Nothing, 0, seed), run(Mishap::Killed, 0, seed));
        assert!(killed.stall_ms < RTO_MS, "{killed:?}");
        assert!(killed.mb_s > 0.95 * undisturbed.mb_s, "{killed:?}, {undisturbed:?}");
        assert_ne!(killed, undisturbed, "the connection was killed");
    }
}

#[test]
fn tasks_of_a_killed_connection_wait_for_time2wait() {
    let longest = (1..=5).map(|seed| run(Mishap::Killed, 2, seed).stall_ms).fold(0.0, f64::max);
    assert!((2000.0..2000.0 + RTO_MS).contains(&longest), "{longest}");
}

#[test]
fn after_a_second_of_silence_it_goes_on_with_the_next_timeout_of_tcp() {
    // Timeouts double: 200, 400 and 800 ms after the last segment that arrived.
    let stall_ms = run(Mishap::Silence, 2, 1).stall_ms;
    assert!((1000.0..1000.0 + 4.0 * RTO_MS).contains(&stall_ms), "{stall_ms}");
}

#[test]
fn a_connection_that_delivers_nothing_holds_up_the_others_until_it_is_given_up() {
    // Commands are carried out in order, so the session waits: for the connection, or until pings give it up.
    let brief = run(Mishap::Starved(SECOND), 2, 1).stall_ms;
    assert!((800.0..1000.0 + RTO_MS).contains(&brief), "{brief}");
    let long = run(Mishap::Starved(60 * SECOND), 2, 1).stall_ms;
    assert!((10_000.0..13_000.0).contains(&long), "two ping intervals of 5 s, and Time2Wait: {long}");
}
