//! SendTargets (rows DSC).

use std::time::Duration;

use conform::{LoginScript, Session};
use iscsi_core::wire::{Lun, keys};
use target::config::{AccessRule, AccessRules, Config, Limits, NamePattern, PortalConfig};

use crate::support::*;

fn names(pairs: &[(String, String)]) -> Vec<&str> {
    pairs.iter().filter(|(key, _)| key == keys::TARGET_NAME).map(|(_, value)| value.as_str()).collect()
}

fn addresses(pairs: &[(String, String)]) -> Vec<&str> {
    pairs.iter().filter(|(key, _)| key == keys::TARGET_ADDRESS).map(|(_, value)| value.as_str()).collect()
}

fn with_targets(count: usize) -> Config {
    let targets = (0..count).map(|n| target(&format!("iqn.2026-01.org.example:t{n:03}"))).collect();
    Config { targets, limits: Limits { shards: 2, ..Limits::default() }, ..config() }
}

fn hidden(mut config: Config, index: usize) -> Config {
    let rule = AccessRule { initiators: vec![NamePattern::parse("*:friend").unwrap()], networks: Vec::new() };
    config.targets[index].access = AccessRules { rules: vec![rule] };
    config
}

// covers: DSC-02 DSC-06
#[test]
fn dsc_02_all_targets_that_the_initiator_may_see_with_all_their_portals() {
    for count in [0, 1, 3] {
        let lab = Lab::start(with_targets(count));
        let mut session = lab.login(&lab.discovery_script("a"));
        assert_eq!(names(&send_targets(&mut session, "All")).len(), count);
    }
    let mut config = hidden(with_targets(3), 1);
    config.portals = vec![portal(1), portal(7)];
    config.targets[2].portals = Some(vec![7]);
    let lab = Lab::start(config);
    let [one, seven] = lab.server.portals()[..] else { panic!() };
    let mut friend = lab.login(&lab.discovery_script("friend"));
    let seen = send_targets(&mut friend, "All");
    let (t, one, seven) = ("iqn.2026-01.org.example:t00", format!("{one},1"), format!("{seven},7"));
    let expected = [
        ("TargetName", format!("{t}0")),
        ("TargetAddress", one.clone()),
        ("TargetAddress", seven.clone()),
        ("TargetName", format!("{t}1")),
        ("TargetAddress", one),
        ("TargetAddress", seven.clone()),
        ("TargetName", format!("{t}2")),
        ("TargetAddress", seven),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    assert_eq!(seen, expected);
    let mut foe = lab.login(&lab.discovery_script("foe"));
    assert_eq!(names(&send_targets(&mut foe, "All")), [format!("{t}0"), format!("{t}2")]);
}

// covers: DSC-03
#[test]
fn dsc_03_one_by_name_and_nothing_of_unknown_and_forbidden_ones() {
    let lab = Lab::start(hidden(with_targets(3), 1));
    let mut session = lab.login(&lab.discovery_script("foe"));
    let t = "iqn.2026-01.org.example:t00";
    assert_eq!(names(&send_targets(&mut session, &format!("{t}0"))), [format!("{t}0")]);
    assert!(send_targets(&mut session, &format!("{t}1")).is_empty(), "forbidden");
    assert!(send_targets(&mut session, &format!("{t}9")).is_empty(), "unknown");
    assert!(send_targets(&mut session, "no name at all").is_empty());
    // The connection survives.
    assert_eq!(names(&send_targets(&mut session, "All")).len(), 2);
}

// covers: DSC-04
#[test]
fn dsc_04_a_normal_session_hears_of_its_own_target_only() {
    let lab = Lab::start(with_targets(2));
    let own = "iqn.2026-01.org.example:t000";
    let script = LoginScript { target_name: Some(own.into()), ..lab.script("a") };
    let mut session = lab.login(&script);
    assert_eq!(names(&send_targets(&mut session, "")), [own]);
    assert_eq!(names(&send_targets(&mut session, own)), [own]);
    assert!(names(&send_targets(&mut session, "iqn.2026-01.org.example:t001")).is_empty());
    let all = send_targets(&mut session, "All");
    assert_eq!(all, [("SendTargets".to_owned(), "Reject".to_owned())]);
}

// covers: DSC-02 DSC-05
#[test]
fn dsc_05_500_targets_for_an_initiator_that_takes_512_bytes_at_a_time() {
    let lab = Lab::start(with_targets(500));
    let script = lab.discovery_script("a").key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512");
    let mut session = lab.login(&script);
    let (pairs, pdus) = text(&mut session, &[(keys::SEND_TARGETS, "All")]);
    assert!(pdus > 20, "{pdus} PDUs");
    assert_eq!(pairs.len(), 1000);
    let mut expected: Vec<String> = (0..500).map(|n| format!("iqn.2026-01.org.example:t{n:03}")).collect();
    expected.sort();
    assert_eq!(names(&pairs), expected);
}

// covers: DSC-06
#[test]
fn dsc_06_a_wildcard_portal_is_told_as_the_address_that_was_reached() {
    for (listen, reach) in [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
        let mut config = config();
        config.portals = vec![PortalConfig { address: listen.parse().unwrap(), group_tag: 3 }];
        let lab = Lab::start(config);
        let reached = std::net::SocketAddr::new(reach.parse().unwrap(), lab.address().port());
        let script = lab.discovery_script("a");
        let mut session = Session::log_in(lab.connect_to(reached), script, Lun(0)).unwrap();
        let seen = send_targets(&mut session, "All");
        assert_eq!(addresses(&seen), [format!("{reached},3")], "{listen} {reach}");
    }
}

// covers: DSC-07
#[test]
fn dsc_07_level_0_and_one_connection_whatever_is_offered() {
    let lab = Lab::start(config());
    let script =
        lab.discovery_script("a").key(keys::ERROR_RECOVERY_LEVEL, "2").key(keys::MAX_CONNECTIONS, "8");
    let session = lab.login(&script);
    let answer = |key: &str| {
        session.logged_in.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    assert_eq!(answer(keys::ERROR_RECOVERY_LEVEL).as_deref(), Some("0"));
    assert_eq!(answer(keys::MAX_CONNECTIONS).as_deref(), Some("Irrelevant"));
}

// covers: DSC-08
#[test]
fn dsc_08_unnamed_discovery_is_one_per_initiator_isid_and_portal() {
    let mut config = config();
    config.portals = vec![portal(1), portal(2)];
    let lab = Lab::start(config);
    let script = lab.discovery_script("a");
    let mut first = lab.login(&script);
    let elsewhere = lab.connect_to(lab.server.portals()[1]);
    let mut elsewhere = Session::log_in(elsewhere, script.clone(), Lun(0)).unwrap();
    assert_eq!(lab.sessions().len(), 2);
    let mut again = lab.login(&script);
    first.peer.until_closed().unwrap();
    assert_eq!(lab.sessions().len(), 2);
    again.ping().unwrap();
    elsewhere.ping().unwrap();
    // One that names a target is not attached to it either.
    let mut naming = lab.login(&lab.discovery_script("b").key("TargetName", TARGET));
    naming.ping().unwrap();
    assert!(lab.sessions().iter().all(|session| session.names.target.is_none()));
    naming.log_out().unwrap();
    lab.wait_for_sessions(2);
    // A normal session with that ISID is a different session.
    let normal = LoginScript { isid: script.isid, ..lab.script("a") };
    lab.login(&normal).ping().unwrap();
    again.ping().unwrap();
}

/// A discovery session is for one query and its answer: it does not take another session's place, and lasts only as
/// long as a login may.
// covers: LGN-20
#[test]
fn discovery_sessions_are_short_and_in_nobodys_way() {
    let mut config = config();
    (config.limits.max_sessions, config.limits.login_timeout) = (1, Duration::from_secs(1));
    let lab = Lab::start(config);
    let mut first = lab.login(&lab.discovery_script("a"));
    let mut host = lab.session("host");
    let mut second = lab.login(&lab.discovery_script("b"));
    first.peer.until_closed().unwrap();
    second.peer.until_closed().unwrap();
    host.ping().unwrap();
}
