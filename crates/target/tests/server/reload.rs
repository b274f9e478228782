//! Configuration changes while sessions exist.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use blockstore::{DelayStore, RamStore};
use conform::{Command, Session};
use iscsi_core::wire::{AsyncEvent, LoginStatus, Lun};
use target::config::{AccessRule, AccessRules, NamePattern, PortalConfig};

use crate::support::*;

fn report_luns(session: &mut Session) -> Vec<u8> {
    let data = session.run_good(&Command::report_luns(256, 256)).unwrap().data;
    data[8..].chunks(8).map(|lun| lun[1]).collect()
}

#[test]
fn units_that_come_and_go_are_announced_and_have_their_nexuses() {
    let mut config = config();
    config.targets[0].luns.push(ram(1));
    let lab = Lab::start(config.clone());
    let mut session = lab.session("a");
    session.lun = Lun::from_index(1);
    session.clear_unit_attentions().unwrap();
    session.run_good(&write(1, 0x11)).unwrap();
    session.lun = Lun::from_index(0);
    session.run_good(&write(1, 0x10)).unwrap();

    config.targets[0].luns = vec![ram(0), ram(2)];
    lab.server.apply(config.clone()).unwrap();
    let (event, _) = next_async(&mut session);
    assert_eq!(event.event, AsyncEvent::ScsiAsyncEvent);
    assert_eq!(sense(&test_unit_ready(&mut session)), Some((6, 0x3f, 0x0e)));
    assert_eq!(byte_at(&mut session, 1), 0x10, "the unit that stays has its data");
    assert_eq!(report_luns(&mut session), [0, 2]);
    session.lun = Lun::from_index(2);
    assert_eq!(sense(&test_unit_ready(&mut session)), Some((6, 0x29, 0x00)), "new to this nexus");
    session.clear_unit_attentions().unwrap();
    session.run_good(&write(1, 0x12)).unwrap();
    session.lun = Lun::from_index(1);
    assert_eq!(sense(&test_unit_ready(&mut session)), Some((5, 0x25, 0x00)), "the unit that went");

    // The same configuration again: no session is notified.
    lab.server.apply(config).unwrap();
    session.lun = Lun::from_index(2);
    assert!(test_unit_ready(&mut session).is_good());
    assert_eq!(byte_at(&mut session, 1), 0x12);
}

// A change reaches the shards one after the other, while commands arrive.
#[test]
fn no_command_meets_a_new_unit_without_its_unit_attention() {
    let mut config = config();
    let lab = Lab::start(config.clone());
    let mut sessions: Vec<Session> = (0..4).map(|_| lab.session("a")).collect();
    for number in 1..30 {
        let racing = {
            config.targets[0].luns.push(ram(number));
            config.clone()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| lab.server.apply(racing).unwrap());
            for session in &mut sessions {
                scope.spawn(move || {
                    session.lun = Lun::from_index(number);
                    loop {
                        match sense(&test_unit_ready(session)) {
                            Some((5, 0x25, 0x00)) => {}
                            Some((6, 0x29, 0x00)) => break,
                            other => panic!("unit {number} answered first with {other:x?}"),
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_unit_whose_properties_change_keeps_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut config = config();
    config.targets[0].luns[0].store = format!("file:{},size=1M", path.display()).parse().unwrap();
    config.targets[0].luns.push(ram(1));
    let lab = Lab::start(config.clone());
    let mut session = lab.session("a");
    for lun in [0, 1] {
        session.lun = Lun::from_index(lun);
        session.clear_unit_attentions().unwrap();
        session.run_good(&write(1, 7)).unwrap();
    }
    for lun in &mut config.targets[0].luns {
        lun.read_only = true;
        lun.product = Some("CHANGED".into());
    }
    lab.server.apply(config).unwrap();
    next_async(&mut session);
    for lun in [0, 1] {
        session.lun = Lun::from_index(lun);
        session.clear_unit_attentions().unwrap();
        assert_eq!(byte_at(&mut session, 1), 7, "LUN {lun} lost its data");
        assert_eq!(sense(&session.run(&write(1, 8)).unwrap()), Some((7, 0x27, 0)));
    }
}

#[test]
fn sessions_that_are_no_longer_allowed_are_asked_to_log_out() {
    let config = config();
    let lab = Lab::start(config.clone());
    let (mut friend, mut foe) = (lab.session("friend"), lab.session("foe"));
    let mut closed = config;
    let rule = AccessRule { initiators: vec![NamePattern::parse("*:friend").unwrap()], networks: Vec::new() };
    closed.targets[0].access = AccessRules { rules: vec![rule] };
    lab.server.apply(closed).unwrap();
    let (event, _) = next_async(&mut foe);
    assert_eq!(event.event, AsyncEvent::LogoutRequest);
    foe.log_out().unwrap();
    lab.wait_for_sessions(1);
    friend.ping().unwrap();
    assert_eq!(lab.refusal(&lab.script("foe")), LoginStatus::AuthorizationFailure);
}

#[test]
fn portals_come_go_and_change_their_group() {
    let mut config = config();
    let lab = Lab::start(config.clone());
    let first = lab.address();
    let fixed = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    config.portals.push(PortalConfig { address: fixed, group_tag: 1 });
    lab.server.apply(config.clone()).unwrap();
    let mut session = Session::log_in(lab.connect_to(fixed), lab.script("a"), Lun(0)).unwrap();
    config.portals[1].group_tag = 9;
    lab.server.apply(config.clone()).unwrap();
    session.ping().unwrap();
    let tagged = Session::log_in(lab.connect_to(fixed), lab.script("a"), Lun(0)).unwrap();
    let tag = tagged.logged_in.pairs.iter().find(|(key, _)| key == "TargetPortalGroupTag");
    assert_eq!(tag.map(|(_, value)| value.as_str()), Some("9"));
    config.portals.pop();
    lab.server.apply(config).unwrap();
    assert_eq!(lab.server.portals(), [first]);
    session.ping().unwrap();
    until(|| std::net::TcpStream::connect(fixed).is_err());
    lab.session("b").ping().unwrap();
}

#[test]
fn a_change_that_cannot_be_had_changes_nothing() {
    let config = config();
    let lab = Lab::start(config.clone());
    let mut session = lab.session("a");
    let mut broken = config.clone();
    broken.targets[0].luns.push(target::config::LunConfig::new(1, "file:/nonexistent/disk".parse().unwrap()));
    lab.server.apply(broken).unwrap_err();
    let mut taken = config;
    taken.portals.push(PortalConfig { address: lab.address(), group_tag: 2 });
    lab.server.apply(taken).unwrap_err();
    assert!(test_unit_ready(&mut session).is_good());
    assert_eq!(report_luns(&mut session), [0]);
    assert_eq!(lab.server.portals().len(), 1);
}

/// Hosts would continue to write to it, because they think it is the same disk.
#[test]
fn another_store_is_not_given_the_identity_of_one_that_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let lun = |number, file: &str| target::config::LunConfig {
        serial: Some("0123456789abcdef".to_owned()),
        ..target::config::LunConfig::new(
            number,
            format!("file:{},size=1M", folder.path().join(file).display()).parse().unwrap(),
        )
    };
    let with = |luns: Vec<target::config::LunConfig>| {
        let mut config = config();
        config.targets[0].luns = luns;
        config
    };
    let lab = Lab::start(with(vec![lun(0, "a")]));
    for taking in [vec![lun(0, "b")], vec![lun(1, "b")]] {
        let refused = lab.server.apply(with(taking)).unwrap_err().to_string();
        assert!(refused.contains("0123456789abcdef") && refused.contains("another store"), "{refused}");
    }
    lab.server.apply(with(vec![lun(1, "a")])).unwrap();
    // After it is removed, no session is served by it any more.
    lab.server.apply(with(Vec::new())).unwrap();
    lab.server.apply(with(vec![lun(0, "b")])).unwrap();
}

#[test]
fn commands_for_a_unit_that_goes_are_not_acknowledged() {
    let mut config = config();
    config.targets[0].luns.push(ram(1));
    let (lab, gate) = Lab::gated(config.clone());
    let mut session = lab.session("a");
    let waiting = session.start(&Command::write_16(20, vec![2; 512], BLOCK)).unwrap();
    let r2t = session.expect_r2t(&waiting).unwrap();
    gate.close(&[blockstore::Op::Write]);
    let at_store = session.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    config.targets[0].luns.remove(0);
    lab.server.apply(config).unwrap();
    next_async(&mut session);
    session.serve(&waiting, &r2t).unwrap();
    gate.open();
    for sent in [&waiting, &at_store] {
        assert_eq!(session.finish(sent).unwrap().status, 0x40, "TASK ABORTED");
    }
    session.lun = Lun::from_index(1);
    session.clear_unit_attentions().unwrap();
    session.run_good(&write(1, 1)).unwrap();
}

/// A command at the store keeps a removed volume open: for as long, the volume is what a later configuration gets, however many
/// changes come in between.
#[test]
fn a_volume_that_a_command_still_uses_comes_back_as_the_same_volume() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.targets[0].luns.push(ram(1));
    config.targets[0].luns[0].store =
        format!("file:{},size=1M", folder.path().join("volume").display()).parse().unwrap();
    let (store, gate) = DelayStore::new(RamStore::new(16 << 20, BLOCK).unwrap(), Duration::ZERO);
    let (gate, once) = (Barrier(gate), Mutex::new(Some(store)));
    // Who opens the volume a second time gets an empty one.
    let lab = Lab::with_open(config.clone(), move |_| {
        let store = once.lock().unwrap().take();
        Ok(store.map_or_else(
            || Arc::new(RamStore::new(16 << 20, BLOCK).unwrap()) as _,
            |store| Arc::new(store) as _,
        ))
    });
    let mut session = lab.session("a");
    session.run_good(&write(5, 7)).unwrap();
    gate.close(&[blockstore::Op::Write]);
    let at_store = session.start(&write(10, 1)).unwrap();
    gate.wait_for_waiting(1);
    let volume = config.targets[0].luns.remove(0);
    lab.server.apply(config.clone()).unwrap();
    next_async(&mut session);
    lab.server.apply(config.clone()).unwrap();
    config.targets[0].luns.insert(0, volume);
    lab.server.apply(config).unwrap();
    gate.open();
    assert_eq!(session.finish(&at_store).unwrap().status, 0x40, "TASK ABORTED");
    assert_eq!(byte_at(&mut lab.session("b"), 5), 7);
}

#[test]
fn what_is_read_at_the_start_only_stays_and_is_told() {
    let mut config = config();
    let lab = Lab::start(config.clone());
    config.limits.shards += 1;
    config.limits.store_threads += 1;
    config.limits.store_concurrency_per_lun += 1;
    config.limits.buffer_bytes_max *= 2;
    config.limits.poll_time = std::time::Duration::from_micros(7);
    config.state_dir = Some("/nowhere".into());
    // Every time, as long as the server keeps the old values.
    for _ in 0..2 {
        let lines = lab.server.apply(config.clone()).unwrap();
        for name in [
            "limits.buffer_bytes_max",
            "limits.shards",
            "limits.store_threads",
            "limits.store_concurrency_per_lun",
            "limits.poll_us",
            "state_dir",
        ] {
            let told = format!("{name} is read at the start only");
            assert!(lines.iter().any(|line| line.starts_with(&told)), "{name}: {lines:?}");
        }
        assert_eq!(lines.len(), 6, "{lines:?}");
    }
}

/// The volume behind a LUN is determined when a command is received: commands received for the old volume then reach neither.
#[test]
fn commands_under_way_do_not_follow_when_two_units_change_places() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("file:{},size=1M", folder.path().join(name).display()).parse().unwrap();
    let mut config = config();
    config.targets[0].luns.push(ram(1));
    for (lun, name) in config.targets[0].luns.iter_mut().zip(["one", "two"]) {
        lun.store = file(name);
    }
    let lab = Lab::start(config.clone());
    let mut session = lab.session("a");
    for (lun, byte) in [(0, 0x10), (1, 0x20)] {
        session.lun = Lun::from_index(lun);
        session.clear_unit_attentions().unwrap();
        session.run_good(&write(7, byte)).unwrap();
    }
    session.lun = Lun::from_index(0);
    let asked = session.start(&Command::write_16(7, vec![0xee; 512], BLOCK)).unwrap();
    let r2t = session.expect_r2t(&asked).unwrap();
    // It is not this one's turn: a command before it is missing.
    let missing = session.take_cmd_sn(false);
    let held = session.start(&write(7, 0xdd)).unwrap();
    // The answered ping arrived after it.
    session.ping().unwrap();

    for (lun, name) in config.targets[0].luns.iter_mut().zip(["two", "one"]) {
        lun.store = file(name);
    }
    lab.server.apply(config).unwrap();
    next_async(&mut session);
    session.serve(&asked, &r2t).unwrap();
    let itt = session.itt();
    let mut nop = session.nop(itt, true);
    (nop.immediate, nop.cmd_sn) = (false, missing);
    session.peer.send(&conform::Frame::of(nop)).unwrap();
    for sent in [&asked, &held] {
        assert_eq!(session.finish(sent).unwrap().status, 0x40, "TASK ABORTED");
    }
    for (lun, byte) in [(0, 0x20), (1, 0x10)] {
        session.lun = Lun::from_index(lun);
        session.clear_unit_attentions().unwrap();
        assert_eq!(byte_at(&mut session, 7), byte, "LUN {lun}");
    }
}
