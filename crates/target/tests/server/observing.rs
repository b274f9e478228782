//! What a server reports about itself: its counters and its log of logins are true, and its shards are seen to
//! run.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blockstore::{Fault, FaultError, FaultRule, FaultStore, Op, Placement, RamStore};
use conform::{Command, LoginScript};
use iscsi_core::wire::LoginStage;
use server::metrics::openmetrics;
use target::observe::ServerView;
use target::supervise::Watchdog;

use crate::hooked::Hooked;
use crate::support::*;

/// The value of a sample of LUN 0.
fn sample(lab: &Lab, name: &str, labels: &str) -> u64 {
    let text = openmetrics(lab.server.observe());
    let line = format!("{name}{{target=\"{TARGET}\",lun=\"0\",{labels}}} ");
    let value = text.lines().find_map(|l| l.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("no {line} in {text}")).parse().unwrap()
}

#[test]
fn what_fails_is_counted_by_its_reason_and_moves_no_bytes() {
    for (error, reason) in [
        (FaultError::NoSpace, "no_space"),
        (FaultError::Gone, "not_ready"),
        (FaultError::Medium, "medium_error"),
    ] {
        let (store, faults) = FaultStore::new(RamStore::new(16 << 20, BLOCK).unwrap());
        let lab = Lab::with_store(config(), 0, Arc::new(store));
        let mut session = lab.session("a");
        session.run_good(&write(0, 1)).unwrap();
        faults.arm(FaultRule::new(Op::Write, Fault::Error(error)));
        for lba in 0..3 {
            assert!(!session.run(&write(lba, 2)).unwrap().is_good());
        }
        let lun = lab.server.luns().remove(0);
        assert_eq!(
            (lun.counts.writes, lun.counts.written_bytes, lun.counts.errors),
            (4, u64::from(BLOCK), 3),
            "{reason}"
        );
        assert_eq!(sample(&lab, "intact_lun_errors_total", &format!("op=\"write\",reason=\"{reason}\"")), 3);
        assert_eq!(sample(&lab, "intact_lun_bytes_total", "op=\"write\""), u64::from(BLOCK));
    }
}

#[test]
fn a_command_whose_store_panics_is_counted_too() {
    for placement in [Placement::Offload, Placement::Inline] {
        let superstitious = |_, offset| {
            if offset == 13 * 512 {
                std::panic::resume_unwind(Box::new("expected by the test"));
            }
        };
        let store = Hooked::new(16 << 20, placement, superstitious);
        let lab = Lab::with_store(config(), 0, Arc::new(store));
        let mut session = lab.session("a");
        assert_eq!(sense(&session.run(&write(13, 1)).unwrap()), Some((4, 0x44, 0)));
        assert_eq!(lab.server.luns()[0].counts.errors, 1, "{placement:?}");
        assert_eq!(lab.server.luns()[0].counts.written_bytes, 0, "{placement:?}");
    }
}

#[test]
fn a_host_that_asks_for_the_wrong_thing_is_no_error_of_the_unit() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    assert!(!session.run(&Command::read_16(1 << 40, 1, BLOCK)).unwrap().is_good());
    assert_eq!(lab.server.luns()[0].counts.errors, 0);
    assert_eq!(sample(&lab, "intact_lun_errors_total", "op=\"read\",reason=\"illegal_request\""), 1);
}

#[test]
fn a_discovery_session_adds_no_name_that_it_says() {
    let lab = Lab::start(config());
    let named = "iqn.2026-01.org.example:there-is-none";
    let script = LoginScript { target_name: Some(named.to_owned()), ..lab.discovery_script("a") };
    let mut session = lab.login(&script);
    session.ping().unwrap();
    assert!(!openmetrics(lab.server.observe()).contains(named), "while it lives");
    session.log_out().unwrap();
    lab.wait_for_sessions(0);
    assert!(!openmetrics(lab.server.observe()).contains(named), "and after it");
}

#[test]
fn a_login_that_the_initiator_gives_up_is_told_of() {
    let lab = Lab::start(config());
    // A connection that sends nothing, such as a port check, has started no login.
    drop(lab.connect());
    let script = lab.script("gives-up");
    let mut peer = lab.connect();
    let request = script.request(LoginStage::Security, None);
    peer.login_step(request, &script.names()).unwrap();
    drop(peer);
    let logins = &lab.server.observe().logins;
    until(|| !logins.recent().is_empty());
    let event = logins.recent().remove(0);
    assert!(!event.end.accepted && event.end.what.contains("given up"), "{event:?}");
    assert_eq!(event.initiator.as_deref(), Some("iqn.2026-01.org.example:gives-up"));
    assert_eq!(event.end.stage, "security negotiation");
    assert_eq!(logins.refused_counts().len(), 1);
}

#[test]
fn a_shard_that_stands_still_is_noticed() {
    let (entered, standing) = channel();
    let (leave, left) = channel::<()>();
    let left = Mutex::new(left);
    let stands_still = move |_, offset| {
        if offset == 13 * 512 {
            entered.send(()).unwrap();
            let _ = left.lock().unwrap().recv();
        }
    };
    let store = Hooked::new(16 << 20, Placement::Inline, stands_still);
    let lab = Lab::with_store(config(), 0, Arc::new(store));
    let mut session = lab.session("a");
    let (feed, fed) = channel();
    let interval = Duration::from_millis(400);
    let watchdog =
        Watchdog::start(Arc::clone(&lab.server), interval, move || feed.send(()).unwrap()).unwrap();
    fed.recv_timeout(STEP).unwrap();
    fed.recv_timeout(STEP).unwrap();
    assert!(lab.server.silent_shards(STEP).is_empty());

    let sent = session.start(&write(13, 1)).unwrap();
    standing.recv_timeout(STEP).unwrap();
    assert_eq!(lab.server.silent_shards(Duration::from_millis(300)).len(), 1);
    // Answers that the shard gave before it hung may have fed the watchdog once more.
    while fed.try_recv().is_ok() {}
    assert!(fed.recv_timeout(3 * interval).is_err(), "fed though a shard stands still");
    drop(leave);
    assert!(session.finish(&sent).unwrap().is_good());
    fed.recv_timeout(STEP).unwrap();
    drop(watchdog);
}
