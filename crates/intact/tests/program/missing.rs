//! A server with a disk that is not there at its start: the others are served, and it comes when it can.

use std::fs;

use crate::common::{run, text};
use crate::support::{IQN, serve, target, until, write_config};
use conform::{Command, LoginScript, RawPeer, Session, Transcript};
use iscsi_core::wire::Lun;

const OTHER: &str = "iqn.2004-10.com.example:other";

fn log_in(portal: std::net::SocketAddr, name: &str) -> Session {
    let peer = RawPeer::connect(portal, crate::common::PATIENCE, &Transcript::default()).unwrap();
    let script = LoginScript::new("iqn.2004-10.com.example:host", Some(name));
    Session::log_in(peer, script, Lun::from_index(0)).unwrap()
}

/// Sense key, code and qualifier of TEST UNIT READY; `None` when it is ready.
fn ready(session: &mut Session) -> Option<(u8, u8, u8)> {
    session.run(&Command::test_unit_ready()).unwrap().sense_code()
}

#[test]
fn one_missing_disk_keeps_no_other_from_being_served_and_comes_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let gone = directory.path().join("gone");
    let store = format!("file:{}", gone.display());
    let config = target(IQN, "", &["ram:1M"]) + &target(OTHER, "", &[&store]);
    let file = write_config(directory.path(), &["127.0.0.1:0".parse().unwrap()], &config);
    let checked = run(&["check", "--open", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    assert!(text(&checked).contains(&format!("LUN 0 of {OTHER}")), "{}", text(&checked));
    let strict = run(&["serve", "--require-every-store", "-c", file.to_str().unwrap()]);
    assert_eq!(strict.status.code(), Some(1), "{}", text(&strict));

    let server = serve(directory.path(), 1, &config);
    let mut good = log_in(server.portal(), IQN);
    good.clear_unit_attentions().unwrap();
    assert_eq!(ready(&mut good), None);
    let mut waiting = log_in(server.portal(), OTHER);
    until("it says why it is not ready", || ready(&mut waiting) == Some((2, 0x04, 0x03)));
    let (_, listed) = server.ask(&["ls", "luns"]);
    assert!(listed.contains("missing") && listed.contains("is not ready"), "{listed}");

    fs::File::create(&gone).unwrap().set_len(1 << 20).unwrap();
    server.log_line("is there now");
    until("it is told of as something new", || matches!(ready(&mut waiting), Some((6, _, _))));
    waiting.clear_unit_attentions().unwrap();
    waiting.run_good(&Command::write_16(0, vec![7; 512], 512)).unwrap();
    let units = server.ls("luns");
    let unit = units.as_array().unwrap().iter().find(|unit| unit["target"] == OTHER).unwrap();
    assert_eq!((&unit["missing"], &unit["size_bytes"]), (&serde_json::Value::Null, &(1 << 20).into()));
    assert_eq!(run(&["check", "--open", file.to_str().unwrap()]).status.code(), Some(1), "it is locked now");
}
