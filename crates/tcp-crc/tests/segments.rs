//! Super-segments cut and joined, and connections reset.

mod support;

use proptest::prelude::*;
use support::{ACK, FIN, RST, SYN, Segment, mend_sums, tcp_at, tcp_sum};
use tcp_crc::{Joined, Packet, cut, finish_sums, resets};

const PSH: u8 = 8;
const CWR: u8 = 128;

fn pieces(segment: &Segment, mss_bytes: u16) -> Vec<Vec<u8>> {
    let mut whole = segment.bytes();
    let mut pieces = Vec::new();
    cut(&mut whole, mss_bytes, &mut Vec::new(), |piece| {
        let mut piece = piece.bytes().to_vec();
        finish_sums(&mut piece);
        pieces.push(piece);
    });
    pieces
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn each_segment_has_its_own_numbers_and_flags() {
    for v6 in [false, true] {
        let whole = Segment { v6, seq: u32::MAX - 1500, ..Segment::new(ACK | PSH | FIN | CWR, &data(3100)) };
        let pieces = pieces(&whole, 1448);
        let read: Vec<_> = pieces
            .iter()
            .map(|piece| {
                let packet = Packet::parse(piece).unwrap();
                assert_eq!(packet.bytes().len(), piece.len(), "IP says the whole length");
                assert!(packet.sum_is_right());
                assert_eq!(tcp_sum(piece, tcp_at(piece)), packet.checksum(), "by an independent sum as well");
                (packet.sequence_number(), packet.flags().0, packet.data().len())
            })
            .collect();
        assert_eq!(
            read,
            [(u32::MAX - 1500, ACK | CWR, 1448), (u32::MAX - 52, ACK, 1448), (1395, ACK | PSH | FIN, 204)]
        );
        if !v6 {
            let identifications: Vec<_> = pieces.iter().map(|piece| [piece[4], piece[5]]).collect();
            assert_eq!(identifications, [[0, 1], [0, 2], [0, 3]]);
        }
    }
}

#[test]
fn what_is_short_enough_or_has_no_size_is_as_it_was() {
    for (bytes, mss) in [(0, 1448), (1448, 1448), (3000, 0)] {
        let whole = Segment::new(ACK | PSH | FIN, &data(bytes));
        assert_eq!(pieces(&whole, mss), [whole.bytes()]);
    }
}

fn join(packets: &[Vec<u8>]) -> (usize, Vec<u8>) {
    let mut joined = Joined::default();
    let taken = packets.iter().take_while(|packet| joined.push(&Packet::parse(packet).unwrap())).count();
    let bytes = joined.take().map(|joined| {
        assert_eq!(joined.segments, taken);
        joined.bytes.to_vec()
    });
    assert!(joined.take().is_none(), "it is empty afterwards");
    (taken, bytes.unwrap_or_default())
}

#[test]
fn what_differs_in_anything_is_not_joined() {
    let first = Segment::new(ACK, &data(100));
    let next = Segment { seq: 1100, ..first.clone() };
    assert_eq!(join(&[first.bytes(), next.bytes()]).0, 2, "the rows below differ from this one");
    let edit = |at: usize, value: u8| {
        let mut packet = next.bytes();
        packet[at] = value;
        mend_sums(&mut packet);
        packet
    };
    let rows = [
        ("a gap", Segment { seq: 1101, ..next.clone() }.bytes()),
        ("again", Segment { seq: 1000, ..next.clone() }.bytes()),
        ("another acknowledgement", Segment { ack: 9, ..next.clone() }.bytes()),
        ("the other direction", next.clone().back().bytes()),
        ("longer", Segment { data: data(101), ..next.clone() }.bytes()),
        ("without data", Segment { data: Vec::new(), ..next.clone() }.bytes()),
        ("FIN", Segment { flags: ACK | FIN, ..next.clone() }.bytes()),
        ("SYN", Segment { flags: SYN, ..next.clone() }.bytes()),
        ("RST", Segment { flags: ACK | RST, ..next.clone() }.bytes()),
        ("urgent", Segment { flags: ACK | 32, ..next.clone() }.bytes()),
        (
            "other timestamps",
            Segment { options: vec![1, 1, 8, 10, 0, 0, 0, 8, 0, 0, 0, 9], ..next.clone() }.bytes(),
        ),
        ("no options", Segment { options: Vec::new(), ..next.clone() }.bytes()),
        ("another version of IP", Segment { v6: true, ..next.clone() }.bytes()),
        ("congestion was met", edit(1, 3)),
        ("another time to live", edit(8, 63)),
        ("another port", edit(21, 1)),
        ("another window", edit(34, 0x11)),
    ];
    for (what, packet) in rows {
        assert_eq!(join(&[first.bytes(), packet]).0, 1, "{what}");
    }
}

#[test]
fn a_short_segment_or_push_is_the_last_and_ip_sets_the_bound() {
    let at = |seq: usize, flags: u8, bytes: usize| {
        Segment { seq: seq as u32, ..Segment::new(flags, &data(bytes)) }.bytes()
    };
    assert_eq!(join(&[at(0, ACK, 100), at(100, ACK, 99), at(199, ACK, 99)]).0, 2);
    assert_eq!(join(&[at(0, ACK, 100), at(100, ACK | PSH, 100), at(200, ACK, 100)]).0, 2);
    let many: Vec<_> = (0..50).map(|i| at(i * 1448, ACK, 1448)).collect();
    let (taken, bytes) = join(&many);
    assert_eq!(taken, (65535 - 52) / 1448);
    assert_eq!(Packet::parse(&bytes).unwrap().data().len(), taken * 1448);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_cut_joins_to_the_same_packet(v6: bool, seq: u32, push: bool, mss in 1u16..2000, bytes in 1usize..20_000) {
        let bytes = bytes.min(usize::from(mss) * 40);
        let flags = if push { ACK | PSH } else { ACK };
        let whole = Segment { v6, seq, ..Segment::new(flags, &data(bytes)) };
        let pieces = pieces(&whole, mss);
        let (taken, mut joined) = join(&pieces);
        prop_assert_eq!(taken, pieces.len());
        if pieces.len() > 1 {
            // The sum is to be completed by others: it is that of the pseudo header, not inverted.
            let tcp = tcp_at(&joined);
            let pseudo = support::ones_sum(&support::pseudo_header(&joined, joined.len() - tcp));
            prop_assert_eq!(joined[tcp + 16..][..2].to_vec(), pseudo.to_be_bytes().to_vec());
        }
        finish_sums(&mut joined);
        prop_assert_eq!(joined, whole.bytes());
    }
}

#[test]
fn both_ends_get_a_reset_that_they_believe() {
    for v6 in [false, true] {
        let segment = Segment { v6, seq: 7000, ack: 9000, ..Segment::new(ACK | FIN, b"12345") }.bytes();
        let packet = Packet::parse(&segment).unwrap();
        let (mut receiver, mut sender) = (Vec::new(), Vec::new());
        resets(&packet, &mut receiver, &mut sender);
        let [receiver, sender] = [&receiver, &sender].map(|bytes| Packet::parse(bytes).unwrap());
        for reset in [&receiver, &sender] {
            assert!(reset.flags().rst() && reset.sum_is_right() && reset.data().is_empty());
        }
        let (from, to) = packet.addresses();
        assert_eq!(receiver.addresses(), (from, to));
        assert_eq!(sender.addresses(), (to, from));
        assert_eq!((sender.source_port(), sender.destination_port()), (3260, 40000));
        assert_eq!(receiver.sequence_number(), 7000, "what the receiver waits for");
        assert_eq!((sender.sequence_number(), sender.acknowledgement_number()), (9000, 7006));
    }
}
