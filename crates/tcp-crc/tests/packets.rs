//! Packets with their CRC, compared with the definition and an independent CRC32C, and under every kind of damage.

mod support;

use proptest::prelude::*;
use support::{ACK, MSS_1460, SYN, Segment, TIMESTAMPS, mend_sums, pseudo_header, tcp_at, tcp_sum};
use tcp_crc::{Codepoints, Fault, MAX_OPTION_BYTES, Method, Packet, check, clamp_mss, stamp, strip};

const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
const ISN: u32 = 1000;

fn stamped(segment: &Segment, method: Method, codepoints: Codepoints) -> Vec<u8> {
    let packet = segment.bytes();
    let mut out = Vec::new();
    stamp(&Packet::parse(&packet).unwrap(), method, codepoints, ISN, &mut out).unwrap();
    out
}

fn judge(bytes: &[u8], method: Method) -> Result<(), Fault> {
    check(&Packet::parse(bytes).unwrap(), method, Codepoints::Historic, ISN)
}

/// The offset of the content of the option with the CRC.
fn crc_at(packet: &[u8], length: u8) -> usize {
    let header_bytes = usize::from(packet[tcp_at(packet) + 12] >> 4) * 4;
    let header = &packet[..tcp_at(packet) + header_bytes];
    header.windows(2).rposition(|pair| pair == [15, length]).unwrap() + 2
}

#[test]
fn the_bytes_are_those_of_the_definition() {
    for v6 in [false, true] {
        let segment = Segment { v6, seq: ISN + 77, ..Segment::new(ACK, b"a block, and one byte more") };
        for method in Method::ALL {
            let packet = stamped(&segment, method, Codepoints::Historic);
            let tcp = tcp_at(&packet);
            let at = crc_at(&packet, if method == Method::Split { 4 } else { 6 });

            let mut zeroed = packet.clone();
            zeroed[tcp + 16..][..2].fill(0);
            zeroed[at..][..method.crc_bytes()].fill(0);
            let mut covered = Vec::new();
            match method {
                Method::Data => {}
                Method::Placed => covered.extend([0, 0, 0, 77, 0, 0, 0, segment.data.len() as u8]),
                Method::Split | Method::Whole => {
                    covered = pseudo_header(&packet, packet.len() - tcp);
                    let header_bytes = packet.len() - tcp - segment.data.len();
                    covered.extend(&zeroed[tcp..][..header_bytes]);
                }
            }
            covered.extend(&segment.data);
            let crc = CRC.checksum(&covered).to_be_bytes();

            let checksum = &packet[tcp + 16..][..2];
            if method == Method::Split {
                assert_eq!(
                    (checksum, &packet[at..at + 2]),
                    (&crc[..2], &crc[2..]),
                    "high half in Checksum, low half in the option"
                );
            } else {
                assert_eq!(
                    (checksum, &packet[at..at + 4]),
                    (&tcp_sum(&packet, tcp).to_be_bytes()[..], &crc[..])
                );
            }
        }
    }
}

#[test]
fn without_data_value_4_covers_nothing() {
    let packet = stamped(&Segment::new(ACK, b""), Method::Data, Codepoints::Historic);
    let at = crc_at(&packet, 6);
    assert_eq!(packet[at..at + 4], [0; 4]);
    assert_eq!(judge(&packet, Method::Data), Ok(()));
}

#[test]
fn what_the_sum_cannot_see_every_crc_finds() {
    let data: Vec<u8> = (0..1460).map(|i| (i * 7 + i / 256) as u8).collect();
    let swap = |packet: &mut [u8], a: usize, b: usize, bytes: usize| {
        for i in 0..bytes {
            packet.swap(a + i, b + i);
        }
    };
    for method in Method::ALL {
        let packet = stamped(&Segment::new(ACK, &data), method, Codepoints::Historic);
        let data_at = packet.len() - data.len();
        let sum = tcp_sum(&packet, 20);
        for (a, b, bytes) in [(0, 2, 2), (100, 1000, 2), (64, 128, 64), (0, 1396, 64)] {
            let mut damaged = packet.clone();
            swap(&mut damaged, data_at + a, data_at + b, bytes);
            assert_ne!(damaged, packet);
            assert_eq!(tcp_sum(&damaged, 20), sum, "the sum must be blind for this to show anything");
            assert!(matches!(judge(&damaged, method), Err(Fault::Crc { .. })), "{method:?}, {bytes} bytes");
        }
    }
}

#[test]
fn good_data_at_a_wrong_place_is_found_by_value_6_and_by_the_header_and_not_by_value_4() {
    for (method, found) in [(Method::Data, false), (Method::Placed, true), (Method::Whole, true)] {
        let mut packet = stamped(&Segment::new(ACK, b"block"), method, Codepoints::Historic);
        // Swaps the high and low word of the sequence number: the sum stays.
        let seq = tcp_at(&packet) + 4;
        packet.swap(seq, seq + 2);
        packet.swap(seq + 1, seq + 3);
        assert_eq!(matches!(judge(&packet, method), Err(Fault::Crc { .. })), found, "{method:?}");
    }
}

#[test]
fn a_translator_may_change_addresses_and_ports_under_values_4_and_6() {
    for (method, survives) in [(Method::Data, true), (Method::Placed, true), (Method::Whole, false)] {
        let mut packet = stamped(&Segment::new(ACK, b"block"), method, Codepoints::Historic);
        packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
        packet[20..22].copy_from_slice(&50000u16.to_be_bytes());
        support::mend_sums(&mut packet);
        assert_eq!(judge(&packet, method).is_ok(), survives, "{method:?}");
    }
}

#[test]
fn a_wrong_sum_is_discarded_although_the_crc_matches() {
    let mut packet = stamped(&Segment::new(ACK, b"block"), Method::Data, Codepoints::Historic);
    packet[20 + 14] ^= 1;
    assert_eq!(judge(&packet, Method::Data), Err(Fault::Sum));
}

#[test]
fn an_option_of_another_length_or_two_of_them_are_refused() {
    let packet = stamped(&Segment::new(ACK, b"block"), Method::Split, Codepoints::Historic);
    assert_eq!(judge(&packet, Method::Data), Err(Fault::Malformed));
    let twice =
        Segment { options: [15, 6, 0, 0, 0, 0, 15, 6, 0, 0, 0, 0].to_vec(), ..Segment::new(ACK, b"") };
    assert_eq!(judge(&twice.bytes(), Method::Data), Err(Fault::Malformed));
    assert_eq!(judge(&Segment::new(ACK, b"").bytes(), Method::Data), Err(Fault::Bare));
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), 0..4usize).prop_map(|(timestamps, blocks)| {
        let mut options = if timestamps { TIMESTAMPS.to_vec() } else { Vec::new() };
        if blocks > 0 {
            options.extend([1, 1, 5, 2 + 8 * blocks as u8]);
            options.extend((0..8 * blocks as u8).map(|i| i | 0x80));
        }
        options
    })
}

fn segments() -> impl Strategy<Value = Segment> {
    segments_of(prop_oneof![Just(0), data_bytes()])
}

/// The data length of a segment with data, in bytes.
fn data_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![1..64usize, 1400..1461usize]
}

fn segments_of(data_bytes: impl Strategy<Value = usize>) -> impl Strategy<Value = Segment> {
    let data = data_bytes.prop_flat_map(|n| proptest::collection::vec(any::<u8>(), n));
    (any::<bool>(), any::<u32>(), any::<u32>(), options(), data).prop_map(|(v6, seq, ack, options, data)| {
        Segment { v6, seq, ack, options, ..Segment::new(ACK, &data) }
    })
}

fn methods() -> impl Strategy<Value = (Method, Codepoints)> {
    let codepoints = prop_oneof![Just(Codepoints::Historic), Just(Codepoints::Experimental)];
    (proptest::sample::select(Method::ALL.to_vec()), codepoints)
}

fn kinds(packet: &[u8]) -> Vec<(u8, Vec<u8>)> {
    Packet::parse(packet).unwrap().options().map(|option| (option.kind, option.body.to_vec())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_stamped_is_accepted_and_stripped_again((method, codepoints) in methods(), segment in segments()) {
        let packet = segment.bytes();
        let parsed = Packet::parse(&packet).unwrap();
        let mut wire = Vec::new();
        let Ok(dropped) = stamp(&parsed, method, codepoints, ISN, &mut wire) else {
            // Only acknowledgements full of SACK blocks lack room, and never with value 3 of kind 15.
            prop_assert!(segment.data.is_empty() && segment.options.len() > 28);
            prop_assert!((method, codepoints) != (Method::Split, Codepoints::Historic));
            return Ok(());
        };
        let stamped = Packet::parse(&wire).unwrap();
        let header_bytes = wire.len() - tcp_at(&wire) - segment.data.len();
        prop_assert!(header_bytes <= 20 + MAX_OPTION_BYTES);
        prop_assert_eq!(check(&stamped, method, codepoints, ISN), Ok(()));

        let mut back = Vec::new();
        strip(&stamped, codepoints, &mut back);
        let stripped = Packet::parse(&back).unwrap();
        prop_assert!(stripped.sum_is_right());
        prop_assert_eq!(tcp_sum(&back, tcp_at(&back)), stripped.checksum());
        prop_assert_eq!(stripped.data(), parsed.data());
        prop_assert_eq!(&back[tcp_at(&back)..][..12], &packet[tcp_at(&packet)..][..12]);
        // Every option is present again, except SACK blocks that were dropped; timestamps always are.
        let (before, after) = (kinds(&packet), kinds(&back));
        if dropped == 0 {
            prop_assert_eq!(before, after);
        } else {
            prop_assert!(!segment.data.is_empty());
            let timestamps = |options: &[(u8, Vec<u8>)]| options.iter().filter(|(kind, _)| *kind == 8).cloned().collect::<Vec<_>>();
            prop_assert_eq!(timestamps(&before), timestamps(&after));
        }
    }

    #[test]
    fn any_flip_of_what_is_covered_is_found((method, codepoints) in methods(), segment in segments_of(data_bytes()), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let packet = segment.bytes();
        let mut wire = Vec::new();
        stamp(&Packet::parse(&packet).unwrap(), method, codepoints, ISN, &mut wire).unwrap();
        let data_at = wire.len() - segment.data.len();
        wire[data_at + at.index(segment.data.len())] ^= 1 << bit;
        let fault = check(&Packet::parse(&wire).unwrap(), method, codepoints, ISN);
        prop_assert!(matches!(fault, Err(Fault::Crc { said, computed }) if said != computed), "not found");
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in prop_oneof![Just(0x45u8), Just(0x4f), Just(0x60)], (method, codepoints) in methods()) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() { *first = version }
        if version >> 4 == 4 && bytes.len() > 9 {
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes[6] &= 0x40;
            bytes[7] = 0;
            bytes[9] = 6;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut out = Vec::new();
            let _ = check(&packet, method, codepoints, ISN);
            strip(&packet, codepoints, &mut out);
            let _ = stamp(&packet, method, codepoints, ISN, &mut out);
        }
    }
}

#[test]
fn the_mss_is_written_where_it_was_read() {
    // An option of the MSS's kind whose length is that of none comes first, and another option's length where its value would be.
    let options = [&[2, 2, 254, 4, 0xfd, 0xfd], MSS_1460, &[1, 1]].concat();
    let mut packet = Segment { options, ..Segment::new(SYN, b"") }.bytes();
    let mut out = Vec::new();
    clamp_mss(&Packet::parse(&packet).unwrap(), 8, None, &mut out);
    let at = tcp_at(&packet) + 20 + 8;
    packet[at..][..2].copy_from_slice(&1452u16.to_be_bytes());
    mend_sums(&mut packet);
    assert_eq!(out, packet);
}
