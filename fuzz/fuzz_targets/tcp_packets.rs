//! Arbitrary packets into two shims that have agreed on a method: nothing panics, stamped packets are accepted, and every
//! output is a packet whose options fit and whose data is unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tcp_crc::{
    Action, Codepoints, Config, Direction, Flows, Joined, Method, Offer, OnMissing, Outcome, Packet, check,
    clamp_mss, cut, finish_sums, request, resets, stamp, strip,
};

fn same_data(packet: &Packet<'_>, written: &[u8]) {
    let written = Packet::parse(written).expect("what is written can be read");
    assert_eq!(written.data(), packet.data());
    assert_eq!(written.sequence_number(), packet.sequence_number());
}

/// Cut into segments and joined again, the data is the same; a reset can be parsed.
fn cut_and_join(packet: &Packet<'_>, mss_bytes: u16) {
    let (mut data, mut joined) = (Vec::new(), Joined::default());
    let mut take = |joined: &mut Joined| {
        if let Some(packet) = joined.take() {
            data.extend_from_slice(Packet::parse(packet.bytes).expect("what is joined can be read").data());
        }
    };
    let mut refused = 0;
    cut(&mut packet.bytes().to_vec(), mss_bytes, &mut Vec::new(), |segment| {
        let mut bytes = segment.bytes().to_vec();
        finish_sums(&mut bytes);
        let segment = Packet::parse(&bytes).expect("what is cut can be read");
        assert!(segment.sum_is_right());
        if !joined.push(&segment) {
            take(&mut joined);
            refused += if joined.push(&segment) { 0 } else { segment.data().len() };
        }
    });
    take(&mut joined);
    assert_eq!(data.len() + refused, packet.data().len());
    if refused == 0 {
        assert_eq!(data, packet.data());
    }
    let (mut there, mut back) = (Vec::new(), Vec::new());
    resets(packet, &mut there, &mut back);
    assert!([there, back].iter().all(|bytes| Packet::parse(bytes).is_ok_and(|reset| reset.sum_is_right())));
}

/// Every way to rewrite one packet.
fn rewrite(packet: &Packet<'_>, method: Method, codepoints: Codepoints, isn: u32) {
    let mut out = Vec::new();
    let _ = check(packet, method, codepoints, isn);
    if stamp(packet, method, codepoints, isn, &mut out).is_ok() {
        same_data(packet, &out);
        let stamped = Packet::parse(&out).expect("what is stamped can be read");
        assert_eq!(check(&stamped, method, codepoints, isn), Ok(()));
        let mut back = Vec::new();
        strip(&stamped, codepoints, &mut back);
        same_data(packet, &back);
        assert!(Packet::parse(&back).is_ok_and(|packet| packet.sum_is_right()));
    }
    clamp_mss(packet, 8, None, &mut out);
    if !out.is_empty() {
        same_data(packet, &out);
    }
    if request(packet, Offer::of(&[method]), codepoints, &mut out).is_ok() {
        same_data(packet, &out);
    }
}

fuzz_target!(|input: &[u8]| {
    let [choice, rest @ ..] = input else { return };
    let method = Method::ALL[usize::from(choice & 3)];
    let codepoints = if choice & 4 == 0 { Codepoints::Historic } else { Codepoints::Experimental };
    let on_missing = match choice & 24 {
        0 => OnMissing::Lenient,
        8 => OnMissing::Strict,
        _ => OnMissing::Required,
    };
    let config =
        Config { offer: Offer::of(&[method, Method::Placed]), codepoints, on_missing, mtu_bytes: Some(1500) };
    let mut flows = Flows::new(config, 4);
    let mut out = Vec::new();
    // Each packet is preceded by a length and a direction.
    let mut rest = rest;
    let mut now_ms = 0;
    while let [head, length, more @ ..] = rest {
        let (packet, after) = more.split_at(usize::from(*length).min(more.len()));
        rest = after;
        now_ms += u64::from(head >> 1) * 1000;
        let direction = if head & 1 == 0 { Direction::Out } else { Direction::In };
        if let Outcome::Flow(_, Action::Rewritten) = flows.handle(now_ms, direction, packet, &mut out) {
            same_data(&Packet::parse(packet).expect("it was rewritten"), &out);
        }
        assert!(flows.len() <= 4);
        if let Ok(packet) = Packet::parse(packet) {
            rewrite(&packet, method, codepoints, u32::from(*head));
            cut_and_join(&packet, u16::from(*head >> 1));
        }
    }
});
