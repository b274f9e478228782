//! Sessions that are reinstated, lost and ended, with commands on worker threads (rows SES, LGO, PR-13).

use conform::{Command, Frame, LoginScript, Session};
use iscsi_core::wire::{Cid, LoginStage, LoginStatus, NopIn, NopOut, Tsih, Ttt, keys};

use blockstore::Op;

use crate::support::*;

fn anew(old: &Session) -> LoginScript {
    LoginScript { tsih: Tsih(0), ..old.same_identity() }
}

fn joining(old: &Session) -> LoginScript {
    LoginScript { cmd_sn: old.cmd_sn, ..old.same_identity() }.joining(old.logged_in.tsih, Cid(1))
}

// covers: SES-01
#[test]
fn ses_01_reinstatement_waits_for_commands_at_the_store_and_kills_those_that_it_has_not() {
    let mut config = config();
    // One worker for the unit: the second write waits in its lane.
    config.limits.store_concurrency_per_lun = 1;
    let (lab, gate) = Lab::gated(config);
    let mut old = lab.session("a");
    gate.close(&[Op::Write]);
    old.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    old.start(&write(11, 1)).unwrap();
    old.ping().unwrap();
    // The whole login except its last response, which waits for the store.
    let script = anew(&old);
    let mut peer = lab.connect();
    let last = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    let mut pairs = script.names();
    pairs.push((keys::MAX_RECV_DATA_SEGMENT_LENGTH.into(), "8192".into()));
    peer.send(&Frame::of(last).data(conform::text_of(&pairs))).unwrap();
    old.peer.until_closed().unwrap();
    assert_eq!(lab.sessions().len(), 1, "the old session is held by its write");
    gate.open();
    let reply = peer.login_reply(last).unwrap();
    assert_eq!(reply.response.status, LoginStatus::Success);
    assert_ne!(reply.response.tsih, old.logged_in.tsih);
    let mut other = lab.session("b");
    assert_eq!(byte_at(&mut other, 11), 0, "a command that had not begun executed for a dead session");
    assert_eq!(lab.sessions().len(), 2);
}

// covers: SES-01 SES-05
#[test]
fn ses_01_many_that_wait_for_the_same_end_and_the_last_one_wins() {
    let mut config = config();
    config.limits.max_connections = 3000;
    let (lab, gate) = Lab::gated(config);
    let mut old = lab.session("a");
    gate.close(&[Op::Write]);
    old.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    let script = anew(&old);
    let last = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    let mut waiting: Vec<_> = (0..1500)
        .map(|_| {
            let mut peer = lab.connect();
            peer.send(&Frame::of(last).data(conform::text_of(&script.names()))).unwrap();
            peer
        })
        .collect();
    // The last one is certain to be the last when all others have been closed in its favour.
    let mut winner = waiting.pop().unwrap();
    for peer in &mut waiting {
        peer.until_closed().unwrap();
    }
    gate.open();
    assert_eq!(winner.login_reply(last).unwrap().response.status, LoginStatus::Success);
    assert_eq!(lab.sessions().len(), 1);
}

// Data that arrives before a reinstatement is complete stays in the kernel.
#[test]
fn ses_01_a_peer_that_floods_us_while_its_login_waits_takes_no_memory() {
    let (lab, gate) = Lab::gated(config());
    let mut old = lab.session("a");
    gate.close(&[Op::Write]);
    old.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    let script = anew(&old);
    let mut stream = std::net::TcpStream::connect(lab.address()).unwrap();
    let last = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    let login = Frame::of(last).data(conform::text_of(&script.names())).encode(Default::default());
    std::io::Write::write_all(&mut stream, &login).unwrap();
    old.peer.until_closed().unwrap();
    stream.set_nonblocking(true).unwrap();
    let ping = NopOut {
        immediate: true,
        lun: Default::default(),
        itt: iscsi_core::wire::Itt(7),
        ttt: Ttt::RESERVED,
        cmd_sn: script.cmd_sn,
        exp_stat_sn: Default::default(),
    };
    let pings = Frame::of(ping).encode(Default::default()).repeat(1000);
    let (mut taken, mut full) = (0usize, 0);
    // Full many times in a row, during which the server certainly ran: it does not read.
    while full < 200 {
        match std::io::Write::write(&mut stream, &pings) {
            Ok(n) => (taken, full) = (taken + n, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                lab.sessions();
                full += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(taken < 64 << 20, "{taken} bytes were taken from a peer that has no session");
    }
    gate.open();
    lab.wait_for_sessions(1);
}

// A session that is ending has no TSIH that could be named.
#[test]
fn lgn_04_a_session_that_is_ending_cannot_be_joined() {
    let (lab, gate) = Lab::gated(config());
    let mut old = lab.session("a");
    gate.close(&[Op::Write]);
    old.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    let script = anew(&old);
    let mut peer = lab.connect();
    let last = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    peer.send(&Frame::of(last).data(conform::text_of(&script.names()))).unwrap();
    old.peer.until_closed().unwrap();
    assert_eq!(lab.refusal(&joining(&old)), LoginStatus::SessionDoesNotExist);
    gate.open();
    assert_eq!(peer.login_reply(last).unwrap().response.status, LoginStatus::Success);
}

#[test]
fn ses_01_a_login_that_waits_too_long_is_told_so() {
    let mut config = config();
    config.limits.login_timeout = std::time::Duration::from_millis(300);
    let (lab, gate) = Lab::gated(config);
    let mut old = lab.session("a");
    gate.close(&[Op::Write]);
    old.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    assert_eq!(lab.refusal(&anew(&old)), LoginStatus::TargetError);
    gate.open();
    lab.wait_for_sessions(0);
    lab.login(&anew(&old)).ping().unwrap();
}

// covers: SES-02 PR-13
#[test]
fn ses_02_unit_attention_29_07_and_registrations_survive() {
    let lab = Lab::start(config());
    let mut old = lab.login(&lab.script("a"));
    assert_eq!(sense(&test_unit_ready(&mut old)), Some((6, 0x29, 0x00)), "a nexus that is new to the unit");
    assert!(test_unit_ready(&mut old).is_good());
    assert!(pr_out(&mut old, 0, 0, 0, 0xabcd).is_good());
    assert!(pr_out(&mut old, 1, 3, 0xabcd, 0).is_good());
    let mut new = lab.login(&anew(&old));
    assert_eq!(sense(&test_unit_ready(&mut new)), Some((6, 0x29, 0x07)), "a nexus that was lost");
    assert!(test_unit_ready(&mut new).is_good());
    assert_eq!(pr_keys(&mut new), [0xabcd]);
    new.run_good(&write(0, 1)).unwrap();
    // Another ISID is another nexus: it is not registered.
    let mut other = lab.session("a");
    assert_eq!(other.run(&write(0, 2)).unwrap().status, 0x18);
    // An SPC-2 reservation ends with the nexus.
    assert!(pr_out(&mut new, 3, 0, 0xabcd, 0).is_good(), "CLEAR");
    let _ = test_unit_ready(&mut other);
    new.run_good(&Command::none([0x16, 0, 0, 0, 0, 0])).unwrap();
    assert_eq!(other.run(&write(0, 2)).unwrap().status, 0x18);
    let _newer = lab.login(&anew(&new));
    other.run_good(&write(0, 2)).unwrap();
}

// covers: SES-03 LGO-04
#[test]
fn ses_03_a_replaced_connection_takes_its_commands_along_and_the_nexus_is_told() {
    let (lab, gate) = Lab::gated(config());
    let mut old = lab.session("a");
    gate.close(&[Op::Write]);
    old.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    let mut new = lab.login(&joining(&old));
    assert_eq!(new.logged_in.tsih, old.logged_in.tsih);
    old.peer.until_closed().unwrap();
    gate.open();
    assert_eq!(sense(&test_unit_ready(&mut new)), Some((6, 0x47, 0x7f)));
    assert!(test_unit_ready(&mut new).is_good(), "told once");
    // Without commands there is nothing to report.
    let mut third = lab.login(&joining(&new));
    assert!(test_unit_ready(&mut third).is_good());
}

// covers: SES-04 LGO-04
#[test]
fn ses_04_a_session_without_connection_is_kept_for_its_time_and_not_longer() {
    let lab = Lab::start(config());
    let timers = |wait: &str, retain: &str| {
        lab.script("a").key(keys::DEFAULT_TIME2WAIT, wait).key(keys::DEFAULT_TIME2RETAIN, retain)
    };
    // Time2Retain 20: the session waits for its initiator.
    let long = lab.login(&timers("0", "20"));
    let (tsih, script) = (long.logged_in.tsih, joining(&long));
    drop(long);
    until(|| lab.sessions().iter().any(|info| info.names.tsih == tsih.0 && info.connections.is_empty()));
    let mut back = lab.login(&script);
    assert_eq!(back.logged_in.tsih, tsih);
    back.ping().unwrap();
    // Times 0 and 1: the session is gone, and so is its TSIH.
    for (wait, retain) in [("0", "0"), ("1", "0"), ("0", "1")] {
        let short = lab.login(&timers(wait, retain));
        let script = joining(&short);
        drop(short);
        lab.wait_for_sessions(1);
        assert_eq!(lab.refusal(&script), LoginStatus::SessionDoesNotExist, "{wait} {retain}");
    }
    back.ping().unwrap();
}

// covers: LGN-20
#[test]
fn lgn_20_sessions_without_connection_yield_to_those_with_one() {
    let mut config = config();
    config.limits.max_sessions = 4;
    let lab = Lab::start(config);
    let lost: Vec<Session> = (0..4)
        .map(|n| {
            let script = lab.script(&format!("lost{n}"));
            lab.login(&script.key(keys::DEFAULT_TIME2WAIT, "0").key(keys::DEFAULT_TIME2RETAIN, "3600"))
        })
        .collect();
    assert_eq!(lab.refusal(&lab.script("early")), LoginStatus::OutOfResources);
    let scripts: Vec<LoginScript> = lost.iter().map(joining).collect();
    drop(lost);
    until(|| lab.sessions().iter().all(|info| info.connections.is_empty()));
    // One initiator returns to its own session; three others need the room.
    let mut back = lab.login(&scripts[3]);
    let mut new: Vec<Session> = (0..3).map(|n| lab.session(&format!("new{n}"))).collect();
    assert_eq!(lab.refusal(&lab.script("late")), LoginStatus::OutOfResources);
    lab.wait_for_sessions(4);
    for script in &scripts[..3] {
        assert_eq!(lab.refusal(script), LoginStatus::SessionDoesNotExist);
    }
    new.iter_mut().chain([&mut back]).for_each(|session| session.ping().unwrap());
}

// covers: SES-05
#[test]
fn ses_05_two_peers_with_one_identity_replace_each_other_and_nothing_more() {
    let lab = Lab::start(config());
    let script = lab.script("a");
    let mut bystander = lab.session("b");
    let mut holder = lab.login(&script);
    for _ in 0..100 {
        let next = lab.login(&script);
        holder.peer.until_closed().unwrap();
        holder = next;
    }
    holder.ping().unwrap();
    bystander.ping().unwrap();
    assert_eq!(lab.sessions().len(), 2);
}

#[test]
fn a_session_may_send_as_many_commands_as_its_target_says() {
    for queue_depth in [1, 5] {
        let mut config = config();
        config.targets[0].queue_depth = queue_depth;
        let lab = Lab::start(config);
        let answer = lab.session("a").ping_with(b"window").unwrap();
        let answer = NopIn::parse(&answer.bhs).unwrap();
        assert_eq!(answer.numbers.max_cmd_sn.0.wrapping_sub(answer.numbers.exp_cmd_sn.0) + 1, queue_depth);
    }
    // A discovery session has no target.
    let lab = Lab::start(config());
    let answer = lab.login(&lab.discovery_script("a")).ping_with(b"window").unwrap();
    let answer = NopIn::parse(&answer.bhs).unwrap();
    assert_eq!(answer.numbers.max_cmd_sn.0.wrapping_sub(answer.numbers.exp_cmd_sn.0) + 1, 16);
}
