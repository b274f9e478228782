//! Laboratories for the tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

use tcp_crc::{Config, Counters, Method, Offer, OnMissing, Packet, State, finish_sums};
use tcp_crc_shim::SetupError;
use tcp_crc_shim::lab::{End, Lab, Middle, Pass, Plan};

/// Builds a laboratory. Without the rights or a program that it needs, it says so and the test is skipped; on CI it
/// fails.
pub fn lab(plan: Plan) -> Option<Lab> {
    built(Lab::build(plan))
}

/// What was built, or nothing, as of [`lab`].
pub fn built<T>(result: Result<T, SetupError>) -> Option<T> {
    let error = match result {
        Ok(built) => return Some(built),
        Err(error @ (SetupError::System { .. } | SetupError::Missing { .. } | SetupError::Switch { .. })) => {
            error
        }
        // Root has BPF wherever the tests run, so for root a refusal is no reason to skip a test.
        Err(error @ SetupError::Bpf { .. }) if !rustix::process::geteuid().is_root() => error,
        Err(error) => panic!("{error}"),
    };
    left_out(&error.to_string());
    None
}

/// Says that a test is left out and why; on CI that is a failure.
pub fn left_out(why: &str) {
    let on_ci = !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"));
    assert!(!on_ci, "on CI no test may be left out: {why}");
    eprintln!("left out: {why}");
}

pub fn asking(methods: &[Method]) -> Config {
    Config { offer: Offer::of(methods), ..Config::default() }
}

pub fn strict(methods: &[Method]) -> Config {
    Config { on_missing: OnMissing::Strict, ..asking(methods) }
}

/// Both ends ask for `method`, and `middle` handles the packets in transit.
pub fn both(config: Config, middle: Middle) -> Plan {
    Plan { middle, ..Plan::both(Some(config)) }
}

/// The only connection of the shim of `end`.
pub fn only(lab: &Lab, end: End) -> (State, Counters) {
    let seen = lab.seen(end).expect("there is a shim");
    assert_eq!(seen.lost, 0, "a device refused packets of {end:?}");
    let [connection] = seen.connections[..] else { panic!("not one connection: {:?}", seen.connections) };
    (connection.1, connection.2)
}

/// The states of both ends.
pub fn states(lab: &Lab) -> [State; 2] {
    [End::Client, End::Server].map(|end| only(lab, end).0)
}

/// Waits until `condition` holds; it must within 15 seconds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "it did not happen: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Replaces every option of `kind` by NOPs, as middleboxes do, and mends the sum.
fn take_out(packet: &mut [u8], kind: u8) -> bool {
    let Ok(read) = Packet::parse(packet) else { return false };
    let tcp_at = if read.is_ipv4() { 20 } else { 40 };
    let found: Vec<_> = read
        .options()
        .filter(|option| option.kind == kind)
        .map(|option| (option.at, option.body.len() + 2))
        .collect();
    for (at, length) in &found {
        packet[tcp_at + 20 + at..][..*length].fill(1);
    }
    finish_sums(packet);
    !found.is_empty()
}

/// Removes `kind` from packets for `towards`, after the first `after` packets that had it.
pub fn stripper(kind: u8, towards: End, after: usize) -> Middle {
    let mut had = 0;
    Box::new(move |end, packet| {
        let has =
            Packet::parse(packet).is_ok_and(|packet| packet.options().any(|option| option.kind == kind));
        if end == towards && has {
            had += 1;
            if had > after {
                take_out(packet, kind);
            }
        }
        Pass::On
    })
}
