//! The medium against the models and against ns-3.

use wireless::contention::{Cell, bianchi_mbit_s};
use wireless::mac::{AckForm, Mac};
use wireless::medium::AfterCollision;
use wireless::saturation::{REFERENCE, Saturated, Saturation};

const SEEDS: u64 = 20;

fn saturated(mac: Mac, stations: usize, seed: u64) -> Saturation {
    let after_collision = AfterCollision::Difs;
    let (payload_bytes, packet_bytes) = (1472, 1500);
    Saturation {
        mac,
        stations,
        payload_bytes,
        packet_bytes,
        p_error: 0.0,
        after_collision,
        seconds: 20.0,
        seed,
    }
}

fn run(mac: Mac, stations: usize, seed: u64) -> Saturated {
    saturated(mac, stations, seed).run()
}

fn mean_mbit_s(one: impl Fn(u64) -> Saturation) -> f64 {
    (0..SEEDS).map(|seed| one(seed).run().mbit_s).sum::<f64>() / SEEDS as f64
}

#[test]
fn one_sender_is_equation_3_7() {
    let expected = Mac::B.throughput_mbit_s(1472.0, 1500.0, AckForm::Standard);
    let got = mean_mbit_s(|seed| saturated(Mac::B, 1, seed));
    assert!((got / expected - 1.0).abs() < 0.002, "{got}, expected {expected}");
}

#[test]
fn several_senders_are_within_1_5_percent_of_bianchi_under_his_assumption() {
    for stations in [1, 2, 5, 10, 20] {
        let expected = bianchi_mbit_s(&Mac::B, stations as u32, 1472.0, 1500.0);
        let after_collision = AfterCollision::TimeOut;
        let got = mean_mbit_s(|seed| Saturation { after_collision, ..saturated(Mac::B, stations, seed) });
        println!("n = {stations}: {got:.3}, Bianchi {expected:.3}, {:+.2} %", (got / expected - 1.0) * 100.0);
        assert!((got / expected - 1.0).abs() < 0.015, "n = {stations}: {got}, expected {expected}");
    }
}

#[test]
fn ns_3_says_the_same() {
    // Debian's libns3-dev 3.37: acknowledgements at 11 Mbit/s, 8 bytes of LLC, payload of 1472 bytes; measured once.
    let mac = Mac { l_llc_bytes: 8.0, ..Mac::B.with_r_ack(11.0) };
    for (stations, ns3) in [(1, 6.251), (2, 6.549), (5, 6.506), (10, 6.188)] {
        let got = mean_mbit_s(|seed| saturated(mac, stations, seed));
        println!("n = {stations}: {got:.3}, ns-3 {ns3:.3}, {:+.2} %", (got / ns3 - 1.0) * 100.0);
        assert!((got / ns3 - 1.0).abs() < 0.005, "n = {stations}: {got}, ns-3 {ns3}");
    }
}

#[test]
fn failures_are_those_of_the_fixed_point() {
    for stations in [2, 5, 10, 20] {
        let expected = Cell::of(&Mac::B, stations as u32, 0.0).solve().p_failure;
        let got = run(Mac::B, stations, 1).p_failure;
        println!("n = {stations}: P_f {got:.4}, 3.15 {expected:.4}");
        assert!((got - expected).abs() < 0.015, "n = {stations}: {got}, 3.15 says {expected}");
    }
}

#[test]
fn errors_cost_what_they_destroy() {
    let of = |p_error| Saturation { p_error, ..saturated(Mac::B, 1, 1) }.run();
    let (clean, tenth, third) = (of(0.0), of(0.1), of(0.3));
    assert!(clean.mbit_s > tenth.mbit_s && tenth.mbit_s > third.mbit_s);
    assert_eq!(clean.counts.errors, 0);
    assert!((third.p_failure - 0.3).abs() < 0.02);
}

#[test]
fn stations_have_equal_shares() {
    let shares = run(Mac::B, 5, 3).by_station;
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(*most < least + least / 5, "{shares:?}");
}

#[test]
fn a_seed_is_a_run() {
    // The simulator compares it as well, in an optimised build (`cargo xtask sim`).
    let (reference, hash) = REFERENCE;
    assert_eq!(reference.run().hash, hash);
    assert_eq!(run(Mac::B, 5, 42), reference.run());
    assert_ne!(run(Mac::B, 5, 43).hash, hash);
}
