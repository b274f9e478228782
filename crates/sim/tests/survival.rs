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

/// Four connections, reads and writes, and a target with DefaultTime2Wait 2.
const SURVIVAL: Survival = Survival {
    link: LINK,
    connections: 4,
    depth: 8,
    bytes: 8192,
    writes: 50,
    commands: 600,
    ping: Duration::from_secs(5),
    starved_timeouts: 1,
    time2wait_s: 2,
    mishap: Mishap::Nothing,
};

/// That every command ended once, with the right data, is what `run` has checked.
fn run(survival: Survival, seed: u64) -> Survived {
    let survived = survival.run(seed).expect("every invariant holds");
    println!("{:?}: {survived:?}", survival.mishap);
    let ended = (survived.done, survived.failed, survived.sessions_lost);
    assert_eq!(ended, (600, 0, 0), "{:?}", survival.mishap);
    survived
}

/// The target says at once that it has noticed, and asks nobody to wait for the tasks.
#[test]
fn a_killed_connection_costs_no_command_and_no_timeout() {
    for seed in 1..=5 {
        let undisturbed = run(SURVIVAL, seed);
        let killed = run(Survival { mishap: Mishap::Killed, ..SURVIVAL }, seed);
        assert!(killed.stall_ms < RTO_MS, "{killed:?}");
        assert!(killed.mb_s > 0.95 * undisturbed.mb_s, "{killed:?}, {undisturbed:?}");
        assert_eq!((undisturbed.connections_lost, killed.connections_lost), (0, 1));
    }
}

#[test]
fn after_a_second_of_silence_it_goes_on_with_the_next_timeout_of_tcp() {
    // Timeouts double: 200, 400 and 800 ms after the last segment that arrived.
    let silent = run(Survival { mishap: Mishap::Silence, ..SURVIVAL }, 1);
    assert!((1000.0..1000.0 + 4.0 * RTO_MS).contains(&silent.stall_ms), "{silent:?}");
    assert_eq!(silent.connections_lost, 0, "nobody answers, so nobody is starved");
}

/// Commands are carried out in order, so the session waits: for the connection, or until it is given up.
#[test]
fn a_connection_that_delivers_nothing_is_given_up_while_the_others_answer() {
    for (seconds, seed) in [(1, 1), (60, 1), (60, 2), (60, 3)] {
        let starved = run(Survival { mishap: Mishap::Starved(seconds * SECOND), ..SURVIVAL }, seed);
        // The round trips of this link are half as long again as the shortest timeout, which is the rest of TCP's.
        assert!((RTO_MS..2.5 * RTO_MS).contains(&starved.stall_ms), "{starved:?}");
        assert_eq!(starved.connections_lost, 1);
    }
}

#[test]
fn without_roll_calls_pings_give_it_up() {
    let pinged = Survival { starved_timeouts: 0, ..SURVIVAL };
    let brief = run(Survival { mishap: Mishap::Starved(SECOND), ..pinged }, 1);
    assert!((800.0..1000.0 + RTO_MS).contains(&brief.stall_ms), "{brief:?}");
    let long = run(Survival { mishap: Mishap::Starved(60 * SECOND), ..pinged }, 1);
    assert!((9_500.0..10_500.0).contains(&long.stall_ms), "two ping intervals of 5 s: {long:?}");
}
