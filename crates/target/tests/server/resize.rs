//! Units that change in use: size, write protection, number, and the effect on their registrations.

use std::fs::OpenOptions;
use std::path::Path;

use conform::{Command, Session};
use iscsi_core::wire::{AsyncEvent, Lun};
use target::config::{Config, LunConfig};
use target::observe::{LunChange, ServerView};

use crate::support::*;

const MIB: u64 = 1 << 20;

fn on_file(number: u16, path: &Path, more: &str) -> LunConfig {
    LunConfig::new(number, format!("file:{}{more}", path.display()).parse().unwrap())
}

fn with_luns(luns: Vec<LunConfig>) -> Config {
    let mut config = config();
    config.targets[0].luns = luns;
    config
}

fn set_len(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn blocks(session: &mut Session) -> u64 {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let data = session.run_good(&Command::read(cdb, 32)).unwrap().data;
    u64::from_be_bytes(data[..8].try_into().unwrap()) + 1
}

/// The sense key and code of the next asynchronous event, and its unit.
fn event(session: &mut Session) -> (Option<u16>, u8, u8, u8) {
    let (message, received) = next_async(session);
    assert_eq!(message.event, AsyncEvent::ScsiAsyncEvent);
    let sense = &received.data[2..];
    (message.lun.to_index(), sense[2] & 0xf, sense[12], sense[13])
}

fn at(lab: &Lab, host: &str, lun: u16) -> Session {
    let mut session = lab.session(host);
    session.lun = Lun::from_index(lun);
    session.clear_unit_attentions().unwrap();
    session
}

// covers: UA-03 ASY-04
#[test]
fn ua_03_a_file_that_grows_grows_its_unit_and_nothing_else_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let config =
        with_luns(vec![on_file(0, &path, ",size=1M"), on_file(1, &folder.path().join("other"), ",size=1M")]);
    drop(Lab::start(config.clone()));
    let config = with_luns(vec![on_file(0, &path, ""), config.targets[0].luns[1].clone()]);
    let lab = Lab::start(config.clone());
    let mut sessions = [at(&lab, "a", 0), at(&lab, "b", 0)];
    assert_eq!(blocks(&mut sessions[0]), MIB / 512);
    pr_out(&mut sessions[0], 0, 0, 0, 7);
    let data = vec![3; 512];
    let waiting = sessions[0].start(&Command::write_16(20, data, BLOCK)).unwrap();
    let r2t = sessions[0].expect_r2t(&waiting).unwrap();

    set_len(&path, 3 * MIB + 100);
    let lines = lab.server.apply(config.clone()).unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("LUN 0") && lines[0].contains("3145728 bytes"), "{lines:?}");
    for session in &mut sessions {
        assert_eq!(event(session), (Some(0), 6, 0x2a, 0x09));
        let other = Command::read_16(0, 1, BLOCK);
        assert_eq!(sense(&session.run(&other).unwrap()), Some((6, 0x2a, 0x09)), "on every nexus");
        assert_eq!(blocks(session), 3 * MIB / 512, "whole blocks only");
    }
    // Commands in progress continue, and registrations stay.
    sessions[0].serve(&waiting, &r2t).unwrap();
    assert!(sessions[0].finish(&waiting).unwrap().is_good());
    assert_eq!(pr_keys(&mut sessions[0]), [7]);
    sessions[1].run_good(&write(3 * MIB / 512 - 1, 9)).unwrap();
    assert_eq!(byte_at(&mut sessions[0], 3 * MIB / 512 - 1), 9);
    assert!(test_unit_ready(&mut sessions[0]).is_good());

    // If nothing is new, nothing is reported.
    assert!(lab.server.apply(config).unwrap().is_empty());
    assert!(test_unit_ready(&mut sessions[1]).is_good());
}

#[test]
fn a_unit_grows_as_configured_and_does_not_shrink() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let units = |file: &str, ram: &str| {
        with_luns(vec![on_file(0, &path, file), LunConfig::new(1, ram.parse().unwrap())])
    };
    let lab = Lab::start(units(",size=1M,pi=1", "ram:1M"));
    let mut session = at(&lab, "a", 1);
    session.run_good(&write(1, 5)).unwrap();
    assert_eq!(lab.server.apply(units(",size=2M,pi=1", "ram:4M")).unwrap().len(), 2);
    assert_eq!((event(&mut session).0, event(&mut session).0), (Some(0), Some(1)));
    session.clear_unit_attentions().unwrap();
    assert_eq!(blocks(&mut session), 4 * MIB / 512);
    assert_eq!(byte_at(&mut session, 1), 5);
    session.lun = Lun::from_index(0);
    session.clear_unit_attentions().unwrap();
    assert_eq!(blocks(&mut session), 2 * MIB / 512);
    session.run_good(&write(4000, 6)).unwrap();
    assert_eq!(byte_at(&mut session, 4000), 6, "with its protection information");
    // No unit shrinks: a unit with a smaller configured size stays as it is, and the other changes are made.
    for (file, ram, which) in [(",size=1M,pi=1", "ram:4M", "LUN 0"), (",size=2M,pi=1", "ram:1M", "LUN 1")] {
        let lines = lab.server.apply(units(file, ram)).unwrap();
        assert!(lines.len() == 1 && lines[0].contains(which), "{lines:?}");
        assert!(lines[0].contains("keeps its") && lines[0].contains("1048576"), "{lines:?}");
        assert!(lab.server.apply(units(file, ram)).unwrap().is_empty(), "it is said once");
        assert!(test_unit_ready(&mut session).is_good());
        assert_eq!(byte_at(&mut session, 4000), 6);
    }
    for (file, ram, why) in [
        (",size=2M", "ram:4M", "protection information"),
        (",size=2M,pi=1,block=4096", "ram:4M", "other blocks"),
        (",size=2M,atomic=64K", "ram:4M", "another journal"),
    ] {
        let error = lab.server.apply(units(file, ram)).unwrap_err().to_string();
        assert!(error.contains(why), "{file} {ram}: {error}");
        assert!(test_unit_ready(&mut session).is_good());
    }
    // A file that shrank on its own is reported, and the other changes are made.
    set_len(&path, MIB);
    let lines = lab.server.apply(units(",size=2M,pi=1", "ram:8M")).unwrap();
    assert!(lines.iter().any(|line| line.contains("fewer than")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("LUN 1") && line.contains("8388608")), "{lines:?}");
}

// covers: PR-13
#[test]
fn pr_13_registrations_go_with_their_disk_wherever_it_goes() {
    for in_state_dir in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
        let set = |luns: Vec<LunConfig>| {
            let state_dir = in_state_dir.then(|| folder.path().to_owned());
            Config { state_dir, ..with_luns(luns) }
        };
        let sized = |number, path: &Path| on_file(number, path, ",size=1M");
        let lab = Lab::start(set(vec![sized(0, &a), sized(1, &b)]));
        let mut session = at(&lab, "a", 0);
        pr_out_aptpl(&mut session, 7);
        session.run_good(&write(1, 0xaa)).unwrap();
        session.lun = Lun::from_index(1);
        session.clear_unit_attentions().unwrap();
        pr_out_aptpl(&mut session, 8);

        // They swap places, and then one moves on.
        for (luns, keys) in [
            (vec![sized(0, &b), sized(1, &a)], [(0, vec![8], 0), (1, vec![7], 0xaa)]),
            (vec![sized(0, &b), sized(5, &a)], [(0, vec![8], 0), (5, vec![7], 0xaa)]),
            (vec![sized(0, &c), sized(5, &a)], [(0, vec![], 0), (5, vec![7], 0xaa)]),
        ] {
            lab.server.apply(set(luns.clone())).unwrap();
            next_async(&mut session);
            for (lun, keys, byte) in &keys {
                session.lun = Lun::from_index(*lun);
                session.clear_unit_attentions().unwrap();
                assert_eq!(pr_keys(&mut session), *keys, "LUN {lun} of {luns:?}");
                assert_eq!(byte_at(&mut session, 1), *byte);
            }
        }
        // The same after a restart.
        drop(lab);
        let lab = Lab::start(set(vec![sized(0, &c), sized(5, &a)]));
        assert_eq!(pr_keys(&mut at(&lab, "a", 0)), [0; 0]);
        assert_eq!(pr_keys(&mut at(&lab, "a", 5)), [7]);
    }
}

/// REGISTER with APTPL.
#[track_caller]
fn pr_out_aptpl(session: &mut Session, key: u64) {
    let mut list = [[0; 8], key.to_be_bytes(), [0; 8]].concat();
    list[20] = 1;
    session.run_good(&Command::write([0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], list)).unwrap();
}

#[test]
fn a_disk_with_another_identity_keeps_registrations_and_store() {
    let lab = Lab::start(with_luns(vec![ram(0)]));
    let mut session = at(&lab, "a", 0);
    pr_out(&mut session, 0, 0, 0, 7);
    session.run_good(&write(1, 4)).unwrap();
    let changed = LunConfig { serial: Some("ANOTHER".into()), ..ram(0) };
    lab.server.apply(with_luns(vec![changed])).unwrap();
    next_async(&mut session);
    session.clear_unit_attentions().unwrap();
    assert_eq!((pr_keys(&mut session), byte_at(&mut session, 1)), (vec![7], 4));
    assert!(pr_out(&mut session, 0, 0, 7, 9).is_good(), "it is the new unit that is asked");
}

// A session that was asked to log out still holds the unit and its lock.
#[test]
fn a_file_is_served_again_while_somebody_still_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = || on_file(1, &folder.path().join("disk"), ",size=1M");
    let (lab, gate) = Lab::gated(with_luns(vec![ram(0), file()]));
    let mut session = lab.session("a");
    gate.close(&[blockstore::Op::Write]);
    let held = session.start(&write(1, 1)).unwrap();
    gate.wait_for_waiting(1);
    let without = Config { targets: Vec::new(), ..config() };
    lab.server.apply(without).unwrap();
    lab.server.apply(with_luns(vec![file()])).unwrap();
    at(&lab, "b", 1).run_good(&write(1, 2)).unwrap();
    gate.open();
    let _ = session.finish(&held);
}

// covers: SNS-03
#[test]
fn sns_03_write_protection_is_set_and_lifted_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    drop(Lab::start(with_luns(vec![on_file(0, &path, ",size=1M")])));
    // As in a configuration file: both the unit and its file are read-only.
    let protected = LunConfig { read_only: true, ..on_file(0, &path, ",ro") };
    let lab = Lab::start(with_luns(vec![protected.clone()]));
    let mut sessions = [at(&lab, "a", 0), at(&lab, "b", 0)];
    pr_out(&mut sessions[1], 0, 0, 0, 7);
    assert_eq!(provisioning(&mut sessions[0]), 0, "nothing is unmapped where nothing is written");
    for (config, protected, thin_now) in [
        (on_file(0, &path, ""), false, true),
        (protected.clone(), true, false),
        (on_file(0, &path, ""), false, false),
    ] {
        lab.server.apply(with_luns(vec![config])).unwrap();
        for session in &mut sessions {
            assert_eq!(event(session), (Some(0), 6, 0x2a, 0x01));
            assert_eq!(sense(&test_unit_ready(session)), Some((6, 0x2a, 0x01)), "on every nexus");
            if thin_now {
                // The capabilities of the file are known once it is open for writing.
                assert_eq!(event(session), (Some(0), 6, 0x3f, 0x03));
                assert_eq!(sense(&test_unit_ready(session)), Some((6, 0x3f, 0x03)));
            }
            assert_eq!(provisioning(session), 0xe4, "as after a restart");
            let header = session.run_good(&Command::read([0x1a, 8, 0x3f, 0, 255, 0], 255)).unwrap().data;
            assert_eq!(header[2] & 0x80 != 0, protected, "WP");
            let wrote = session.run(&write(1, 1)).unwrap();
            assert_eq!(sense(&wrote), protected.then_some((7, 0x27, 0x00)));
            byte_at(session, 1);
        }
        assert_eq!(pr_keys(&mut sessions[0]), [7]);
    }
    // A file that another process reads cannot be opened for writing.
    drop((sessions, lab));
    let lab = Lab::start(with_luns(vec![protected]));
    let reader = on_file(0, &path, ",ro").store.open().unwrap();
    let error = lab.server.apply(with_luns(vec![on_file(0, &path, "")])).unwrap_err().to_string();
    assert!(error.contains("another server"), "{error}");
    drop(reader);
    lab.server.apply(with_luns(vec![on_file(0, &path, "")])).unwrap();
    at(&lab, "a", 0).run_good(&write(1, 1)).unwrap();
}

/// The unit's support of UNMAP and WRITE SAME, from the logical block provisioning page.
fn provisioning(session: &mut Session) -> u8 {
    session.run_good(&Command::read([0x12, 1, 0xb2, 0, 64, 0], 64)).unwrap().data[5]
}

#[test]
fn units_are_changed_by_the_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let lab = Lab::start(with_luns(vec![on_file(3, &path, ",size=1M")]));
    let mut session = at(&lab, "a", 3);
    let name = lab.server.targets()[0].name.clone();
    let change = |change| lab.server.change_lun(&name, 3, change);
    let lines = change(LunChange::Size(Some(2 * MIB))).unwrap();
    assert_eq!(lines, [format!("LUN 3 of {name} has 2097152 bytes now")]);
    assert_eq!(event(&mut session), (Some(3), 6, 0x2a, 0x09));
    assert!(change(LunChange::Size(Some(MIB))).unwrap_err().contains("no unit shrinks"));
    assert!(change(LunChange::Size(Some(3 * MIB + 1000))).unwrap_err().contains("whole blocks"));
    // The initial size in the file neither shrinks the unit nor causes an error, now or at the next start.
    let lines = lab.server.apply(with_luns(vec![on_file(3, &path, ",size=1M")])).unwrap();
    assert!(lines.len() == 1 && lines[0].contains("keeps its 2097152 bytes"), "{lines:?}");
    assert_eq!(change(LunChange::Size(None)).unwrap(), [""; 0]);
    change(LunChange::WriteProtect(true)).unwrap();
    assert_eq!(event(&mut session), (Some(3), 6, 0x2a, 0x01));
    session.clear_unit_attentions().unwrap();
    assert_eq!(sense(&session.run(&write(1, 1)).unwrap()), Some((7, 0x27, 0)));
    assert!(lab.server.luns()[0].face.read_only);
    assert!(lab.server.change_lun(&name, 4, LunChange::Size(None)).unwrap_err().contains("intact ls luns"));
    assert!(lab.server.change_lun("iqn.none", 3, LunChange::Size(None)).is_err());
    drop((session, lab));
    let lab = Lab::start(with_luns(vec![on_file(3, &path, ",size=1M")]));
    assert_eq!(blocks(&mut at(&lab, "a", 3)), 2 * MIB / 512);
}

#[test]
fn a_port_that_the_system_chose_can_be_named_later() {
    let lab = Lab::start(config());
    let address = lab.address();
    let mut named = config();
    named.portals[0].address = address;
    assert!(lab.server.apply(named.clone()).unwrap().is_empty());
    named.portals[0].group_tag = 7;
    let lines = lab.server.apply(named.clone()).unwrap();
    assert!(lines.contains(&format!("{address} has portal group tag 7")), "{lines:?}");
    assert!(lines.len() == 2 && lines[0].contains("LUN 0") && lines[0].contains("other ports"), "{lines:?}");
    let chosen_again = config();
    let lines = lab.server.apply(chosen_again).unwrap();
    let listening: Vec<_> = lines.iter().filter(|line| line.contains("listening on")).collect();
    assert_eq!(listening.len(), 2, "another port is chosen, and this one left: {lines:?}");
    assert_ne!(lab.address(), address);
}
