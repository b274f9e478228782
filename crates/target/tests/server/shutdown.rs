//! Shutdown: orderly if initiators and stores cooperate, in bounded time if they do not (rows ASY, LGN-20).

use std::sync::Arc;
use std::time::{Duration, Instant};

use blockstore::Op;
use conform::{Command, Frame, PeerError};
use iscsi_core::wire::{AsyncEvent, LoginStage, LoginStatus};

use crate::support::*;

// covers: ASY-01 LGN-20
#[test]
fn asy_01_initiators_are_asked_to_log_out_and_newcomers_to_come_later() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    let server = Arc::clone(&lab.server);
    let end = std::thread::spawn(move || server.shutdown(Duration::from_secs(600)));
    let (message, _) = next_async(&mut session);
    assert_eq!(message.event, AsyncEvent::LogoutRequest);
    assert_eq!(message.parameter3, 600);
    // Work in progress may be completed.
    session.run_good(&write(1, 1)).unwrap();
    assert_eq!(lab.refusal(&lab.script("b")), LoginStatus::ServiceUnavailable);
    assert_eq!(lab.refusal(&lab.discovery_script("b")), LoginStatus::ServiceUnavailable);
    session.log_out().unwrap();
    end.join().unwrap();
    assert!(std::net::TcpStream::connect(lab.address()).is_err(), "nobody listens any more");
}

// covers: ASY-01
#[test]
fn asy_01_whoever_does_not_log_out_is_dropped_when_the_time_is_over() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    let mut discovery = lab.login(&lab.discovery_script("a"));
    let mut idle = lab.connect();
    let mut half = lab.connect();
    let script = lab.script("half");
    half.login_step(script.request(LoginStage::Security, None), &script.names()).unwrap();
    // A peer that neither reads nor closes, with more data queued for it than fits into the sockets.
    let mut deaf = lab.session("deaf");
    for _ in 0..24 {
        deaf.start(&Command::read_16(0, 2048, BLOCK)).unwrap();
    }
    lab.server.shutdown(Duration::from_secs(1));
    let closed: Vec<_> = session.peer.until_closed().unwrap();
    assert!(closed.iter().any(|rx| rx.bhs.opcode() == 0x32), "it was asked first");
    discovery.peer.until_closed().unwrap();
    idle.until_closed().unwrap();
    half.until_closed().unwrap();
    drop(deaf);
}

#[test]
fn a_store_that_hangs_delays_the_end_and_does_not_prevent_it() {
    let (lab, gate) = Lab::gated(config());
    let (mut a, mut b) = (lab.session("a"), lab.session("b"));
    gate.close(&[Op::Write, Op::Flush]);
    a.start(&write(1, 1)).unwrap();
    gate.wait_for_waiting(1);
    let begun = Instant::now();
    lab.server.shutdown(Duration::ZERO);
    assert!(begun.elapsed() < STEP);
    a.peer.until_closed().unwrap();
    b.peer.until_closed().unwrap();
}

#[test]
fn a_server_that_nobody_shuts_down_ends_when_it_is_dropped() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    let address = lab.address();
    drop(lab);
    session.peer.until_closed().unwrap();
    std::net::TcpStream::connect(address).unwrap_err();
}

#[test]
fn connections_on_their_way_between_shards_are_closed_at_the_end() {
    for _ in 0..10 {
        let lab = Lab::start(config());
        let peers: Vec<_> = (0..40)
            .map(|_| {
                let (mut peer, script) = (lab.connect(), lab.script("a"));
                let request = script.request(LoginStage::Security, None);
                peer.send(&Frame::of(request).data(conform::text_of(&script.names()))).unwrap();
                peer
            })
            .collect();
        lab.server.shutdown(Duration::ZERO);
        for mut peer in peers {
            match peer.until_closed() {
                Ok(_) | Err(PeerError::Reset) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
