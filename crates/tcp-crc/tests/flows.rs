//! Many connections, up to a limit.

mod support;

use support::{ACK, RST, SYN, Segment};
use tcp_crc::{Action, Config, Direction, Flows, Method, Offer, Outcome, Unsuitable};

fn flows(max: usize) -> Flows {
    Flows::new(Config { offer: Offer::of(&[Method::Data]), ..Config::default() }, max)
}

fn with_port(mut packet: Vec<u8>, port: u16) -> Vec<u8> {
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    support::mend_sums(&mut packet);
    packet
}

fn syn_from(port: u16) -> Vec<u8> {
    with_port(Segment::new(SYN, b"").bytes(), port)
}

#[test]
fn connections_beyond_the_bound_stay_plain_and_room_comes_back() {
    let mut flows = flows(2);
    let mut out = Vec::new();
    for port in [1, 2] {
        assert!(matches!(
            flows.handle(0, Direction::Out, &syn_from(port), &mut out),
            Outcome::Flow(_, Action::Rewritten)
        ));
    }
    assert_eq!(flows.handle(0, Direction::Out, &syn_from(3), &mut out), Outcome::Unknown);
    assert_eq!((flows.len(), flows.refused()), (2, 1));
    // The first is reset; its entry stays for late segments and is then removed. The second was never answered.
    flows.handle(1000, Direction::Out, &with_port(Segment::new(RST, b"").bytes(), 1), &mut out);
    assert_eq!(flows.handle(50_000, Direction::Out, &syn_from(3), &mut out), Outcome::Unknown);
    assert!(matches!(flows.handle(62_000, Direction::Out, &syn_from(3), &mut out), Outcome::Flow(..)));
    assert!(matches!(flows.handle(121_000, Direction::Out, &syn_from(4), &mut out), Outcome::Flow(..)));
    assert_eq!(flows.len(), 2);
}

#[test]
fn a_flood_searches_the_table_once_a_second() {
    let mut flows = flows(1);
    let mut out = Vec::new();
    flows.handle(0, Direction::In, &syn_from(1), &mut out);
    assert_eq!(flows.handle(59_500, Direction::In, &syn_from(2), &mut out), Outcome::Unknown);
    // The first may be removed by now, but the table was searched half a second ago.
    assert_eq!(flows.handle(60_000, Direction::In, &syn_from(2), &mut out), Outcome::Unknown);
    assert!(matches!(flows.handle(60_500, Direction::In, &syn_from(2), &mut out), Outcome::Flow(..)));
}

#[test]
fn a_reset_with_a_number_that_cannot_be_ends_nothing() {
    for (seq, believed) in [(5001, true), (5001 + 65_535, true), (5001 + 65_536, false), (5000, false)] {
        let mut flows = flows(1);
        let mut out = Vec::new();
        flows.handle(0, Direction::Out, &syn_from(40000), &mut out);
        flows.handle(0, Direction::In, &support::syn_ack().bytes(), &mut out);
        // Our TCP expects 5001.
        flows.handle(0, Direction::Out, &Segment { seq: 1001, ..Segment::new(ACK, b"") }.bytes(), &mut out);
        flows.handle(0, Direction::In, &Segment { seq, ..Segment::new(RST, b"") }.back().bytes(), &mut out);
        let came = flows.handle(121_000, Direction::Out, &syn_from(2), &mut out);
        assert_eq!(matches!(came, Outcome::Flow(..)), believed, "{seq}: {came:?}");
    }
}

#[test]
fn what_was_counted_stays_counted_when_its_connection_goes() {
    let mut flows = flows(1);
    let mut out = Vec::new();
    let send = |flows: &mut Flows, now: u64, out: &mut Vec<u8>| {
        flows.handle(now, Direction::Out, &Segment { seq: 1001, ..Segment::new(ACK, b"data") }.bytes(), out);
    };
    let open = |flows: &mut Flows, out: &mut Vec<u8>, isn: u32| {
        flows.handle(0, Direction::Out, &Segment { seq: isn, ..support::syn() }.bytes(), out);
        let answer = Segment { ack: isn + 1, options: vec![14, 3, 4, 1], ..support::syn_ack() };
        flows.handle(0, Direction::In, &answer.bytes(), out);
    };
    open(&mut flows, &mut out, 1000);
    send(&mut flows, 0, &mut out);
    assert_eq!(flows.total().stamped, 1);
    // The same ports again, for another connection.
    open(&mut flows, &mut out, 77_000);
    send(&mut flows, 0, &mut out);
    assert_eq!(flows.total().stamped, 2);
    let now = tcp_crc::IDLE_MS + 1;
    assert!(
        matches!(flows.handle(now, Direction::Out, &syn_from(2), &mut out), Outcome::Flow(..)),
        "it gave way"
    );
    assert_eq!(flows.total().stamped, 2);
}

#[test]
fn what_was_open_before_is_handed_on() {
    let mut flows = flows(8);
    let packet = Segment::new(ACK, b"data").bytes();
    assert_eq!(flows.handle(0, Direction::Out, &packet, &mut Vec::new()), Outcome::Unknown);
    assert!(flows.is_empty());
}

#[test]
fn packets_that_are_no_whole_segment_are_told_apart() {
    let mut flows = flows(8);
    let whole = Segment::new(ACK, b"data").bytes();
    let mut say = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = whole.clone();
        change(&mut packet);
        flows.handle(0, Direction::In, &packet, &mut Vec::new())
    };
    assert_eq!(say(&|packet| packet[6] = 0x20), Outcome::Unsuitable(Unsuitable::Fragment));
    assert_eq!(say(&|packet| packet[7] = 3), Outcome::Unsuitable(Unsuitable::Fragment));
    assert_eq!(say(&|packet| packet[9] = 17), Outcome::Unsuitable(Unsuitable::Protocol(17)));
    assert_eq!(say(&|packet| packet.truncate(30)), Outcome::Unsuitable(Unsuitable::Truncated("IP")));
    assert_eq!(say(&|packet| packet[32] = 0x40), Outcome::Unsuitable(Unsuitable::Length("TCP")));
    assert_eq!(say(&|packet| packet[32] = 0xf0), Outcome::Unsuitable(Unsuitable::Truncated("TCP")));
    assert_eq!(say(&|packet| packet[0] = 0x75), Outcome::Unsuitable(Unsuitable::Version(7)));
    assert!(matches!(say(&|packet| packet[43] = 99), Outcome::Unsuitable(Unsuitable::Options(_))));
    assert_eq!(say(&Vec::clear), Outcome::Unsuitable(Unsuitable::Truncated("IP")));
    // Padding that a link adds after the packet is not part of it.
    assert_eq!(say(&|packet| packet.extend([0; 6])), Outcome::Unknown);
}

#[test]
fn ipv6_extension_headers_are_walked_or_refused() {
    let mut flows = flows(8);
    let whole = Segment { v6: true, ..Segment::new(ACK, b"data") }.bytes();
    let mut with = |next: u8, header: &[u8]| {
        let mut packet = whole.clone();
        packet[6] = next;
        packet.splice(40..40, header.iter().copied());
        let payload = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        flows.handle(0, Direction::In, &packet, &mut Vec::new())
    };
    assert_eq!(with(0, &[6, 0, 1, 4, 0, 0, 0, 0]), Outcome::Unknown);
    assert_eq!(with(60, &[6, 0, 1, 4, 0, 0, 0, 0]), Outcome::Unknown);
    assert_eq!(with(43, &[6, 0, 0, 0, 0, 0, 0, 0]), Outcome::Unknown);
    assert_eq!(with(43, &[6, 0, 0, 1, 0, 0, 0, 0]), Outcome::Unsuitable(Unsuitable::Extension(43)));
    assert_eq!(with(44, &[6, 0, 0, 1, 0, 0, 0, 0]), Outcome::Unsuitable(Unsuitable::Fragment));
    assert_eq!(with(50, &[6, 0, 0, 1, 0, 0, 0, 0]), Outcome::Unsuitable(Unsuitable::Extension(50)));
    let endless: Vec<u8> = [60, 0, 1, 4, 0, 0, 0, 0].repeat(20);
    assert_eq!(with(60, &endless), Outcome::Unsuitable(Unsuitable::Extension(60)));
    assert_eq!(with(0, &[6, 255, 1, 4, 0, 0, 0, 0]), Outcome::Unsuitable(Unsuitable::Truncated("IP")));
}
