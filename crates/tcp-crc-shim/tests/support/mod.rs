//! Laboratories of the tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

use tcp_crc::{Config, Counters, Method, Offer, OnMissing, State};
use tcp_crc_shim::SetupError;
use tcp_crc_shim::lab::{End, Lab, Middle, Plan};

/// Builds a laboratory. Where the tester may not, or a program is missing, it says so, and fails on CI.
pub fn lab(plan: Plan) -> Option<Lab> {
    let error = match Lab::build(plan) {
        Ok(lab) => return Some(lab),
        Err(error @ (SetupError::System { .. } | SetupError::Missing { .. } | SetupError::Switch { .. })) => {
            error
        }
        Err(error) => panic!("{error}"),
    };
    let on_ci = !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"));
    assert!(!on_ci, "on CI no test may be left out: {error}");
    eprintln!("left out: {error}");
    None
}

pub fn asking(methods: &[Method]) -> Config {
    Config { offer: Offer::of(methods), ..Config::default() }
}

pub fn strict(methods: &[Method]) -> Config {
    Config { on_missing: OnMissing::Strict, ..asking(methods) }
}

/// Both ends ask for `method`, and `middle` happens on the way.
pub fn both(config: Config, middle: Middle) -> Plan {
    Plan { middle, ..Plan::both(Some(config)) }
}

/// The only connection that the shim of `end` has.
pub fn only(lab: &Lab, end: End) -> (State, Counters) {
    let seen = lab.seen(end).expect("there is a shim");
    assert_eq!(seen.lost, 0, "a device refused packets of {end:?}");
    let [connection] = seen.connections[..] else { panic!("not one connection: {:?}", seen.connections) };
    connection
}

/// Where both ends stand.
pub fn states(lab: &Lab) -> [State; 2] {
    [End::Client, End::Server].map(|end| only(lab, end).0)
}

/// Waits for what must come.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "it did not happen: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
