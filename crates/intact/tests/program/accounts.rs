//! Who may act as whom: accounts proved by CHAP, and what a host may do that says another one's name.

use std::net::SocketAddr;
use std::path::Path;

use crate::common::{PATIENCE, Serve};
use crate::support::{IQN, secret_file, serve, target};
use conform::{ChapScript, Command, LoginScript, PeerError, RawPeer, Session, Transcript};
use iscsi_core::wire::{Isid, LoginStatus, Lun};

const HOST: &str = "iqn.2004-10.com.example:host";
const ALICE: (&str, &str) = ("alice", "the secret of alice");
const BOB: (&str, &str) = ("bob", "the secret of bob..");
const ISID: Isid = Isid([0x80, 1, 2, 3, 4, 5]);

fn start(directory: &Path, more: &str) -> Serve {
    let mut chap = "[target.chap]\n".to_owned();
    for (name, secret) in [ALICE, BOB] {
        let file = secret_file(directory, name, secret);
        chap +=
            &format!("[[target.chap.account]]\nname = \"{name}\"\nsecret_file = \"{}\"\n", file.display());
    }
    serve(directory, 1, &(target(IQN, &chap, &["ram:1M"]) + more))
}

/// A login with this account, as the host with the ISID above.
fn login(portal: SocketAddr, (name, secret): (&str, &str)) -> Result<Session, PeerError> {
    let peer = RawPeer::connect(portal, PATIENCE, &Transcript::default())?;
    let mut script = LoginScript::new(HOST, Some(IQN));
    script.isid = ISID;
    script.chap = Some(ChapScript {
        user: name.to_owned(),
        secret: secret.to_owned(),
        algorithms: "7".to_owned(),
        target: None,
    });
    Session::log_in(peer, script, Lun::from_index(0))
}

/// Runs a command until no unit attention comes in between.
fn status(session: &mut Session, command: &Command) -> u8 {
    loop {
        let outcome = session.run(command).unwrap();
        if !outcome.is_unit_attention() {
            return outcome.status;
        }
    }
}

const GOOD: u8 = 0;
const RESERVATION_CONFLICT: u8 = 0x18;

fn write() -> Command {
    Command::write_16(0, vec![7; 512], 512)
}

fn reserve_out(action: u8, kind: u8, key: u64, new_key: u64) -> Command {
    let list = [key.to_be_bytes(), new_key.to_be_bytes(), [0; 8]].concat();
    Command::write([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

fn refused_with(tried: Result<Session, PeerError>, wanted: LoginStatus) {
    match tried {
        Err(PeerError::Login(status)) => assert_eq!(status, wanted),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was let in"),
    }
}

// covers: SEC-13 SES-01 PR-13
#[test]
fn sec_13_nobody_takes_over_the_session_or_the_reservation_of_another_account() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), "");
    let portal = server.portal();
    let mut alice = login(portal, ALICE).unwrap();
    assert_eq!(status(&mut alice, &reserve_out(0, 0, 0, 7)), GOOD);
    assert_eq!(status(&mut alice, &reserve_out(1, 3, 7, 0)), GOOD);

    refused_with(login(portal, BOB), LoginStatus::AuthorizationFailure);
    assert_eq!(status(&mut alice, &write()), GOOD, "her session goes on");
    let line = server.log_line("login refused");
    assert!(line.contains("alice") && line.contains("bob") && line.contains("0202"), "{line}");

    // Her own login after a crash of her host takes the session over as ever.
    let mut again = login(portal, ALICE).unwrap();
    assert_eq!(status(&mut again, &write()), GOOD, "and has her reservation");
    again.log_out().unwrap();

    // With her gone, the name is free to be said, and her reservation still is hers.
    let mut bob = login(portal, BOB).unwrap();
    assert_eq!(status(&mut bob, &write()), RESERVATION_CONFLICT);
    assert_eq!(status(&mut bob, &reserve_out(2, 3, 7, 0)), RESERVATION_CONFLICT);
    bob.log_out().unwrap();
    let mut alice = login(portal, ALICE).unwrap();
    assert_eq!(status(&mut alice, &write()), GOOD);
}

#[test]
fn whoever_runs_the_server_learns_who_was_refused_and_why() {
    const ELSEWHERE: &str = "iqn.2004-10.com.example:moved";
    let directory = tempfile::tempdir().unwrap();
    let moved = target(ELSEWHERE, "redirect = [\"192.0.2.9:3260\"]", &[]);
    let server = start(directory.path(), &moved);
    let portal = server.portal();
    refused_with(login(portal, ("carol", "the secret of carol")), LoginStatus::AuthenticationFailure);
    refused_with(login(portal, ("alice", "the secret of carol")), LoginStatus::AuthenticationFailure);
    let mut peer = RawPeer::connect(portal, PATIENCE, &Transcript::default()).unwrap();
    let redirected = peer.login(&LoginScript::new(HOST, Some(ELSEWHERE)));
    assert!(
        matches!(redirected, Err(PeerError::Login(LoginStatus::TargetMovedTemporarily))),
        "{redirected:?}"
    );

    let logins = server.ls("logins");
    assert_eq!((&logins[0]["account"], &logins[1]["account"]), (&"carol".into(), &"alice".into()));
    assert_ne!(logins[0]["what"], logins[1]["what"], "an unknown name is not a wrong secret");
    let (_, table) = server.ask(&["ls", "logins"]);
    assert!(table.contains("ACCOUNT") && table.contains("carol"), "{table}");
    assert!(
        table.contains("redirected") && table.contains("The last refusal: the secret is wrong"),
        "{table}"
    );
    assert!(server.log_line("redirected").contains("INFO"), "no warning where all is well");
}
