//! The two hosts between which throughput is measured: every way brings what was sent, with a CRC where there should be one
//! and single segments on the wire where there should be some.

mod support;

use support::{asking, built, until};
use tcp_crc::{Method, State};
use tcp_crc_shim::lab::{Span, Way, Wire, content};

const BYTES: usize = 4 << 20;
/// So many they are if each is full.
const SEGMENTS: u64 = BYTES as u64 / 1460;

/// Sends through a span, and returns it.
fn carries(way: Way) -> Option<Span> {
    let span = built(Span::build(way))?;
    let arrived = span.transfer(&content(3, BYTES)).unwrap();
    assert_eq!((arrived.bytes, arrived.wrong), (BYTES as u64, 0), "{way:?}");
    let packets = span.wire_packets().unwrap();
    let singles = match way {
        Way::Plain(wire) => wire == Wire::Singles,
        Way::Tun(config, wire) => wire == Wire::Singles || !config.offer.is_none(),
        Way::Bpf(_) => true,
    };
    assert_eq!(packets >= SEGMENTS, singles, "{way:?}: {packets} packets");
    Some(span)
}

#[test]
fn a_stream_passes_without_a_back_end() {
    for wire in [Wire::Supers, Wire::Singles] {
        let Some(span) = carries(Way::Plain(wire)) else { return };
        assert!(span.seen().is_empty());
    }
}

#[test]
fn shims_add_a_crc_if_they_ask_for_one() {
    for (wire, methods) in
        [(Wire::Supers, &[][..]), (Wire::Singles, &[]), (Wire::Supers, &[Method::Data, Method::Placed])]
    {
        let Some(span) = carries(Way::Tun(asking(methods), wire)) else { return };
        let [client, server] = &span.seen()[..] else { panic!("not two shims") };
        assert_eq!(server.connections.len(), 1);
        let protected = server.connections[0].1 == State::Protected(Method::Placed);
        assert_eq!(protected, !methods.is_empty());
        let many = [client.total.stamped, server.total.verified].map(|count| count >= SEGMENTS);
        assert_eq!(many, [protected; 2], "{client:?} {server:?}");
        assert_eq!((server.total.bad_crc, client.packets.unknown, server.packets.unknown), (0, 0, 0));
    }
}

#[test]
fn the_kernels_programs_add_a_crc_if_they_ask_for_one() {
    for methods in [&[][..], &[Method::Data]] {
        let Some(span) = carries(Way::Bpf(asking(methods))) else { return };
        let [client, server] = &span.seen()[..] else { panic!("not two hosts") };
        let many = [client.total.stamped, server.total.verified].map(|count| count >= SEGMENTS);
        assert_eq!(many, [!methods.is_empty(); 2], "{client:?} {server:?}");
        assert_eq!((client.packets.uncut, server.total.bad_crc), (0, 0));
    }
}

#[test]
fn a_stream_pours_until_it_is_dropped() {
    let Some(span) = built(Span::build(Way::Plain(Wire::Supers))) else { return };
    let pour = span.pour("reno").unwrap();
    assert_eq!(pour.congestion(), "reno");
    until("a lot has arrived", || pour.received() > 64 << 20);
    drop(pour);
    // A kernel without the wish has its own.
    assert_ne!(span.pour("none such").unwrap().congestion(), "none such");
}
