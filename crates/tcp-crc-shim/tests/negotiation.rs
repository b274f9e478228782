//! Two real TCPs that open connections through shims, with various obstacles in between.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;

use support::{asking, both, lab, only, states, strict, stripper, until};
use tcp_crc::{Method, Packet, Plain, State, cut, finish_sums};
use tcp_crc_shim::lab::{End, Lab, Middle, Pass, Plan, content, untouched};

const BYTES: usize = 300_000;

fn moves_bytes(lab: &Lab, v6: bool) {
    let transfer = lab.transfer(v6, &content(5, BYTES)).unwrap();
    assert_eq!((transfer.bytes, transfer.wrong), (BYTES as u64, 0));
}

/// Thesis, Table 7.2, by value: the client's request, the server's request, and what both get.
#[test]
fn table_7_2_between_two_kernels() {
    let rows = [
        (3, 3, 3),
        (3, 4, 4),
        (3, 5, 5),
        (4, 3, 4),
        (4, 4, 4),
        (4, 5, 4),
        (5, 3, 5),
        (5, 4, 4),
        (5, 5, 5),
        (6, 6, 6),
    ];
    for (client, server, chosen) in rows {
        let method = |value| Method::from_value(value).unwrap();
        let [client, server] = [client, server].map(|value| Some(strict(&[method(value)])));
        let Some(lab) = lab(Plan { client, server, ..Plan::both(None) }) else { return };
        for v6 in [false, true] {
            moves_bytes(&lab, v6);
        }
        for end in [End::Client, End::Server] {
            let seen = lab.seen(end).unwrap();
            assert_eq!(seen.connections.len(), 2, "IPv4 and IPv6");
            for (_, state, counters) in seen.connections {
                assert_eq!(state, State::Protected(method(chosen)), "{client:?} {server:?}");
                assert!(counters.stamped > 0 && counters.verified > 0, "{counters:?}");
                assert_eq!((counters.bad_crc, counters.bad_sum, counters.missing), (0, 0, 0));
            }
        }
    }
}

#[test]
fn a_silent_peer_gets_plain_tcp() {
    let ours = Some(strict(&[Method::Whole, Method::Placed]));
    for (client, server, end) in [(ours, None, End::Client), (None, ours, End::Server)] {
        for v6 in [false, true] {
            let Some(lab) = lab(Plan { client, server, ..Plan::both(None) }) else { return };
            moves_bytes(&lab, v6);
            assert_eq!(only(&lab, end).0, State::Plain(Plain::PeerSilent));
        }
    }
}

#[test]
fn requests_that_are_taken_out_lead_to_plain_tcp() {
    // From the SYN: the server is never asked. From the SYN-ACK: the client gets no answer, and its bare segments show that to the server.
    for (towards, server) in [(End::Server, Plain::PeerSilent), (End::Client, Plain::AnswerStripped)] {
        for v6 in [false, true] {
            let Some(lab) = lab(both(strict(&[Method::Data]), stripper(14, towards, 0))) else { return };
            moves_bytes(&lab, v6);
            assert_eq!(states(&lab), [State::Plain(Plain::PeerSilent), State::Plain(server)]);
        }
    }
}

#[test]
fn crcs_that_vanish_are_counted_or_end_the_connection() {
    let Some(lenient) = lab(both(asking(&[Method::Data]), stripper(15, End::Server, 20))) else { return };
    moves_bytes(&lenient, false);
    assert_eq!(states(&lenient), [State::Protected(Method::Data); 2]);
    assert!(only(&lenient, End::Server).1.missing > 10);

    for v6 in [false, true] {
        let Some(lab) = lab(both(strict(&[Method::Data]), stripper(15, End::Server, 20))) else { return };
        let (mut client, mut server) = lab.connect(v6).unwrap();
        let written = std::thread::spawn(move || {
            let data = content(5, BYTES);
            (0..100).find_map(|_| client.write_all(&data).err()).map(|error| error.kind())
        });
        let read = server.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(read, Err(std::io::ErrorKind::ConnectionReset), "the server's program is told");
        let written = written.join().unwrap();
        assert!(
            matches!(written, Some(std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)),
            "and so is the client's: {written:?}"
        );
        assert!(lab.seen(End::Server).unwrap().packets.resets > 0);
    }
}

#[test]
fn through_a_translator_values_4_and_6_work() {
    for method in [Method::Data, Method::Placed] {
        let Some(lab) = lab(Plan { nat: true, ..Plan::both(Some(strict(&[method]))) }) else { return };
        let (client, server) = lab.connect(false).unwrap();
        let [ours, seen] = [client.local_addr().unwrap().ip(), server.peer_addr().unwrap().ip()];
        assert_ne!(ours, seen, "the address must have been translated for this to show anything");
        drop((client, server));
        moves_bytes(&lab, false);
        for end in [End::Client, End::Server] {
            let seen = lab.seen(end).unwrap();
            assert!(
                seen.connections.iter().all(|(_, state, _)| *state == State::Protected(method)),
                "{seen:?}"
            );
            assert_eq!((seen.total.bad_crc, seen.total.missing), (0, 0));
        }
    }
}

#[test]
fn a_middlebox_that_cuts_segments_again_is_told_and_no_byte_of_it_arrives() {
    let middle: Middle = Box::new(|_, packet| {
        let mut pieces = Vec::new();
        cut(&mut packet.clone(), 700, &mut Vec::new(), |piece| pieces.push(piece.bytes().to_vec()));
        pieces.iter_mut().for_each(|piece| finish_sums(piece));
        if pieces.is_empty() { Pass::On } else { Pass::These(pieces) }
    });
    let Some(lab) = lab(both(asking(&[Method::Data]), middle)) else { return };
    let (mut client, mut server) = lab.connect(false).unwrap();
    client.write_all(b"short enough").unwrap();
    let mut buffer = [0; 4096];
    assert_eq!(server.read(&mut buffer).unwrap(), 12);
    client.set_nonblocking(true).unwrap();
    let _ = client.write(&content(5, BYTES)).unwrap();
    until("re-segmentation is told", || only(&lab, End::Server).1.resegmented > 0);
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.read(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn syn_cookies_remember_nothing_and_the_shim_does() {
    let switches = vec![("ipv4/tcp_syncookies", "2")];
    let Some(lab) = lab(Plan { switches, ..Plan::both(Some(strict(&[Method::Whole]))) }) else { return };
    for v6 in [false, true] {
        moves_bytes(&lab, v6);
    }
    let seen = lab.seen(End::Server).unwrap();
    assert!(
        seen.connections.iter().all(|(_, state, _)| *state == State::Protected(Method::Whole)),
        "{seen:?}"
    );
}

#[test]
fn a_reset_passes_as_it_is() {
    let Some(lab) = lab(both(strict(&[Method::Whole]), untouched())) else { return };
    let (client, mut server) = lab.connect(false).unwrap();
    server.write_all(b"unread, so that closing resets").unwrap();
    client.peek(&mut [0]).unwrap();
    drop(client);
    let error = server.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn both_directions_at_once_with_losses_and_a_full_header() {
    let mut count = 0;
    let middle: Middle = Box::new(move |_, packet| {
        let has_data = Packet::parse(packet).is_ok_and(|packet| !packet.data().is_empty());
        count += usize::from(has_data);
        if has_data && count % 29 == 0 { Pass::Drop } else { Pass::On }
    });
    let Some(lab) = lab(both(strict(&[Method::Whole]), middle)) else { return };
    let (client, server) = lab.connect(false).unwrap();
    let data = &content(9, 2 << 20);
    std::thread::scope(|scope| {
        for stream in [&client, &server] {
            scope.spawn(move || {
                let mut stream = stream;
                stream.write_all(data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let (mut stream, mut received) = (stream, Vec::new());
                stream.read_to_end(&mut received).unwrap();
                assert!(received == *data, "{} bytes", received.len());
            });
        }
    });
    let total = [End::Client, End::Server].map(|end| only(&lab, end).1);
    assert!(total.iter().all(|counters| (counters.bad_crc, counters.missing) == (0, 0)), "{total:?}");
    // Timestamps and three SACK blocks leave four bytes: value 5 takes six.
    assert!(total.iter().any(|counters| counters.bare_sent + counters.sack_blocks_dropped > 0), "{total:?}");
}
