//! Two shims with something in between: the tables of the thesis, silent peers, middleboxes, and every fallback to plain TCP.

mod support;

use support::{
    ACK, MSS_1460, Pair, RST, SYN, Segment, TIMESTAMPS, Through, answer, clean, syn, syn_ack, take_out,
};
use tcp_crc::{
    Action, Codepoints, Config, Direction, Fault, Flow, Method, Offer, OnMissing, Packet, Plain, State,
    check, growth_bytes, strip,
};

fn asking(methods: &[Method]) -> Config {
    Config { offer: Offer::of(methods), ..Config::default() }
}

fn strict(methods: &[Method]) -> Config {
    Config { on_missing: OnMissing::Strict, ..asking(methods) }
}

fn data(through: Through) -> Vec<u8> {
    let Through::Arrived(packet) = through else { panic!("{through:?}") };
    Packet::parse(&packet).unwrap().data().to_vec()
}

#[test]
fn all_nine_rows_of_table_7_2_on_the_wire() {
    let values = [3, 4, 5].map(|value| Method::from_value(value).unwrap());
    for ours in values {
        for theirs in values {
            let mut pair = Pair::new(strict(&[ours]), strict(&[theirs]));
            pair.open(clean);
            let chosen = Offer::of(&[ours]).join(Offer::of(&[theirs])).unwrap();
            assert_eq!(pair.states(), [State::Protected(chosen); 2], "{ours:?} {theirs:?}");
            let [client, server] = [pair.client.counters(), pair.server.counters()];
            assert_eq!((client.stamped, client.verified), (2, 1));
            assert_eq!((server.stamped, server.verified), (1, 2));
        }
    }
}

#[test]
fn value_6_and_the_experimental_codepoints() {
    let config = Config { codepoints: Codepoints::Experimental, ..strict(&[Method::Whole, Method::Placed]) };
    let mut pair = Pair::new(config, config);
    pair.open(clean);
    assert_eq!(pair.states(), [State::Protected(Method::Placed); 2]);
    // Ends that use other codepoints do not see each other's request.
    let mut pair = Pair::new(config, asking(&[Method::Placed]));
    pair.open(clean);
    assert_eq!(pair.states(), [State::Plain(Plain::PeerSilent); 2]);
}

#[test]
fn a_peer_that_does_not_answer_gets_plain_tcp() {
    let mut pair = Pair::new(strict(&[Method::Data]), asking(&[]));
    pair.open(clean);
    assert_eq!(pair.states(), [State::Plain(Plain::PeerSilent), State::Plain(Plain::NoCommonMethod)]);
    assert_eq!(data(pair.send(&answer(b"plain"), clean)), b"plain");
}

#[test]
fn a_middlebox_that_takes_requests_out_means_plain_tcp_at_both_ends() {
    // In both directions; in the SYN alone; in the SYN-ACK alone.
    let strip_all = |packet: &mut Vec<u8>| {
        take_out(packet, 14);
        true
    };
    let mut pair = Pair::new(strict(&[Method::Whole]), strict(&[Method::Whole]));
    pair.open(strip_all);
    assert_eq!(pair.states(), [State::Plain(Plain::PeerSilent); 2]);

    let of_the_answer = |packet: &mut Vec<u8>| {
        if packet[20..22] == 3260u16.to_be_bytes() {
            take_out(packet, 14);
        }
        true
    };
    let mut pair = Pair::new(strict(&[Method::Whole]), strict(&[Method::Whole]));
    pair.open(of_the_answer);
    assert_eq!(pair.states(), [State::Plain(Plain::PeerSilent), State::Plain(Plain::AnswerStripped)]);
    assert_eq!(data(pair.send(&answer(b"plain"), of_the_answer)), b"plain");
}

#[test]
fn a_middlebox_that_takes_crcs_out_later_is_counted_or_ends_the_connection() {
    for (config, outcome) in
        [(asking(&[Method::Data]), None), (strict(&[Method::Data]), Some(Through::Reset))]
    {
        let mut pair = Pair::new(config, config);
        pair.open(clean);
        let through = pair.send(&answer(b"bare"), |packet| {
            take_out(packet, 15);
            true
        });
        assert_eq!(pair.client.counters().missing, 1);
        match outcome {
            Some(reset) => assert_eq!(through, reset),
            None => assert_eq!(data(through), b"bare"),
        }
    }
}

#[test]
fn a_middlebox_that_discards_requests_delays_the_open_and_no_more() {
    // A SYN with kind 14 is always discarded.
    let discarding =
        |packet: &mut Vec<u8>| packet[33] & SYN == 0 || !packet[40..].windows(2).any(|pair| pair == [14, 3]);
    let mut pair = Pair::new(strict(&[Method::Data]), strict(&[Method::Data]));
    assert_eq!(pair.send(&syn(), discarding), Through::Lost);
    assert_eq!(pair.send(&syn(), discarding), Through::Lost);
    assert!(matches!(pair.send(&syn(), discarding), Through::Arrived(_)));
    pair.send(&syn_ack(), discarding);
    pair.send(&Segment { seq: 1001, ..Segment::new(ACK, b"question") }, discarding);
    assert_eq!(pair.states(), [State::Plain(Plain::RequestsLost), State::Plain(Plain::PeerSilent)]);
    assert_eq!(data(pair.send(&answer(b"answer"), discarding)), b"answer");
}

#[test]
fn an_answer_that_did_arrive_counts_although_its_acknowledgement_was_lost() {
    for method in Method::ALL {
        let mut pair = Pair::new(strict(&[method]), strict(&[method]));
        pair.send(&syn(), clean);
        pair.send(&syn_ack(), clean);
        // The client's acknowledgements are lost. The server repeats its SYN-ACK, the third time without the request.
        pair.send(&Segment { seq: 1001, ..Segment::new(ACK, b"") }, |_| false);
        pair.send(&syn_ack(), clean);
        pair.send(&syn_ack(), clean);
        assert_eq!(pair.states(), [State::Protected(method), State::Plain(Plain::RequestsLost)]);
        assert_eq!(
            data(pair.send(&Segment { seq: 1001, ..Segment::new(ACK, b"question") }, clean)),
            b"question"
        );
        assert_eq!(pair.states(), [State::Protected(method); 2]);
        assert_eq!(data(pair.send(&answer(b"answer"), clean)), b"answer");
    }
}

#[test]
fn a_simultaneous_open_agrees() {
    let mut pair = Pair::new(strict(&[Method::Split]), strict(&[Method::Data, Method::Placed]));
    // Both SYNs are in flight at the same time: each is sent before the other arrives.
    let server_syn = Segment { seq: 5000, ..syn() }.back();
    let mut out = Vec::new();
    let mut wires = Vec::new();
    for (flow, segment) in [(&mut pair.client, syn()), (&mut pair.server, server_syn)] {
        let packet = segment.bytes();
        assert_eq!(
            flow.handle(Direction::Out, &Packet::parse(&packet).unwrap(), &mut out),
            Action::Rewritten
        );
        wires.push(out.clone());
    }
    pair.server.handle(Direction::In, &Packet::parse(&wires[0]).unwrap(), &mut out);
    pair.client.handle(Direction::In, &Packet::parse(&wires[1]).unwrap(), &mut out);
    let client_answer = Segment { seq: 1000, ack: 5001, ..Segment::new(SYN | ACK, b"") };
    pair.send(&client_answer, clean);
    pair.send(&syn_ack(), clean);
    assert_eq!(pair.states(), [State::Protected(Method::Data); 2]);
    assert_eq!(data(pair.send(&answer(b"answer"), clean)), b"answer");
}

#[test]
fn a_forged_or_late_syn_changes_nothing_of_a_connection_that_stands() {
    let mut pair = Pair::new(strict(&[Method::Placed]), strict(&[Method::Placed]));
    pair.open(clean);
    let forged = Segment { seq: 99, options: MSS_1460.to_vec(), ..syn() };
    pair.send(&Segment { back: true, ..forged.clone() }, clean);
    let mut out = Vec::new();
    let packet = forged.bytes();
    pair.server.handle(Direction::In, &Packet::parse(&packet).unwrap(), &mut out);
    // A SYN-ACK that lacks the request, or acknowledges another SYN, changes nothing either.
    let bare = Segment { options: MSS_1460.to_vec(), ..syn_ack() }.bytes();
    pair.client.handle(Direction::In, &Packet::parse(&bare).unwrap(), &mut out);
    assert_eq!(pair.client.state(), State::Protected(Method::Placed));
    assert_eq!(data(pair.send(&Segment { seq: 1009, ..Segment::new(ACK, b"on") }, clean)), b"on");
}

#[test]
fn a_syn_ack_that_answers_another_syn_is_not_believed() {
    let mut pair = Pair::new(strict(&[Method::Data]), strict(&[Method::Data]));
    pair.send(&syn(), clean);
    let other = Segment { ack: 7, options: MSS_1460.to_vec(), ..syn_ack() }.bytes();
    pair.client.handle(Direction::In, &Packet::parse(&other).unwrap(), &mut Vec::new());
    assert_eq!(pair.client.state(), State::Opening);
}

#[test]
fn the_ports_may_be_used_again() {
    let mut pair = Pair::new(strict(&[Method::Placed]), strict(&[Method::Placed]));
    pair.open(clean);
    pair.send(&Segment { seq: 1009, ..Segment::new(RST, b"") }, clean);
    assert!(pair.client.has_ended() && pair.server.has_ended());
    pair.send(&Segment { seq: 70_000, ..syn() }, clean);
    pair.send(&Segment { seq: 90_000, ack: 70_001, ..syn_ack() }, clean);
    let first = Segment { seq: 70_001, ..Segment::new(ACK, b"again") };
    assert_eq!(data(pair.send(&first, clean)), b"again");
    assert_eq!(pair.states(), [State::Protected(Method::Placed); 2]);
    assert!(!pair.client.has_ended());
}

#[test]
fn signed_connections_are_left_alone() {
    let md5: Vec<u8> = [19, 18].into_iter().chain([0; 16]).chain([1, 1]).collect();
    let signed = Segment { options: [MSS_1460, &md5].concat(), ..syn() };
    let mut flow = Flow::new(strict(&[Method::Data]));
    let packet = signed.bytes();
    assert_eq!(flow.handle(Direction::Out, &Packet::parse(&packet).unwrap(), &mut Vec::new()), Action::Keep);
    assert_eq!(flow.state(), State::Plain(Plain::Signed));
}

#[test]
fn a_full_segment_fits_into_the_mtu_after_it_was_stamped() {
    for codepoints in [Codepoints::Historic, Codepoints::Experimental] {
        for method in Method::ALL {
            for timestamps in [&[][..], TIMESTAMPS] {
                let config = Config { codepoints, ..strict(&[method]) };
                let mut pair = Pair::new(config, config);
                let with = |segment: Segment| Segment { options: [MSS_1460, timestamps].concat(), ..segment };
                pair.send(&with(syn()), clean);
                let Through::Arrived(arrived) = pair.send(&with(syn_ack()), clean) else { panic!() };
                let mss = Packet::parse(&arrived).unwrap().options().find(|option| option.kind == 2).unwrap();
                let mss = u16::from_be_bytes([mss.body[0], mss.body[1]]);
                assert_eq!(mss, 1460 - growth_bytes(method, codepoints, !timestamps.is_empty()));
                // A full segment of the client's TCP at that MSS.
                let full = vec![9; usize::from(mss) - timestamps.len()];
                let segment =
                    Segment { seq: 1001, options: timestamps.to_vec(), ..Segment::new(ACK, &full) }.bytes();
                let mut wire = Vec::new();
                pair.client.handle(Direction::Out, &Packet::parse(&segment).unwrap(), &mut wire);
                assert_eq!(wire.len(), 1500, "{method:?} {codepoints:?}: exact, neither more nor less");
            }
        }
    }
}

#[test]
fn a_peer_that_takes_more_than_our_link_makes_no_stamped_segment_longer_than_that() {
    for (mtu_bytes, expected) in [(None, 8960 - 4), (Some(1500), 1460 - 4), (Some(9500), 8960 - 4)] {
        let mut pair = Pair::new(Config { mtu_bytes, ..strict(&[Method::Data]) }, strict(&[Method::Data]));
        let jumbo = |segment: Segment| Segment {
            options: [&[2, 4, 0x23, 0x00], support::TIMESTAMPS].concat(),
            ..segment
        };
        pair.send(&jumbo(syn()), clean);
        let Through::Arrived(arrived) = pair.send(&jumbo(syn_ack()), clean) else { panic!() };
        let mss = Packet::parse(&arrived).unwrap().options().find(|option| option.kind == 2).unwrap();
        assert_eq!(u16::from_be_bytes([mss.body[0], mss.body[1]]), expected, "{mtu_bytes:?}");
    }
}

#[test]
fn a_request_keeps_within_40_bytes_and_value_6_gives_way_first() {
    // With a Fast Open cookie of 16 bytes, a SYN of Linux has three bytes left.
    let cookie: Vec<u8> = [34, 18].into_iter().chain([7; 16]).collect();
    let options =
        [MSS_1460, &[4, 2], &[8, 10, 0, 0, 0, 1, 0, 0, 0, 0], &[3, 3, 7], &cookie, &[1, 1, 1]].concat();
    let packet = Segment { options, ..syn() }.bytes();
    let mut flow = Flow::new(strict(&[Method::Whole, Method::Placed]));
    let mut wire = Vec::new();
    assert_eq!(flow.handle(Direction::Out, &Packet::parse(&packet).unwrap(), &mut wire), Action::Rewritten);
    let asked: Vec<u8> = Packet::parse(&wire)
        .unwrap()
        .options()
        .filter(|option| option.kind == 14)
        .map(|option| option.body[0])
        .collect();
    assert_eq!(asked, [5]);
}

#[test]
fn pieces_cut_again_by_a_middlebox_are_discarded_and_told() {
    let mut pair = Pair::new(asking(&[Method::Data]), asking(&[Method::Data]));
    pair.open(clean);
    for _ in 0..8 {
        let through = pair.send(&answer(b"a segment that is cut in two"), |packet| {
            let shorter = packet.len() - 10;
            packet.truncate(shorter);
            packet[2..4].copy_from_slice(&(shorter as u16).to_be_bytes());
            support::mend_sums(packet);
            true
        });
        assert_eq!(through, Through::Discarded);
    }
    assert_eq!((pair.client.counters().bad_crc, pair.client.counters().resegmented), (8, 1));
}

#[test]
fn acknowledgements_full_of_sack_blocks_go_bare_and_are_no_breach() {
    let mut pair = Pair::new(strict(&[Method::Data]), strict(&[Method::Data]));
    pair.open(clean);
    let sack: Vec<u8> = [1, 1, 5, 26].into_iter().chain([0x80; 24]).collect();
    let full = Segment { options: [TIMESTAMPS, &sack].concat(), ..answer(b"") };
    assert!(matches!(pair.send(&full, clean), Through::Arrived(_)));
    assert_eq!((pair.server.counters().bare_sent, pair.client.counters().bare_received), (1, 1));
    // With data, a SACK block is dropped.
    assert_eq!(data(pair.send(&Segment { data: b"data".to_vec(), ..full }, clean)), b"data");
    assert_eq!(pair.server.counters().sack_blocks_dropped, 1);
}

fn requiring() -> Config {
    Config { on_missing: OnMissing::Required, ..asking(&[Method::Data]) }
}

#[test]
fn where_a_crc_is_required_the_reason_for_plain_tcp_is_that_of_the_reset() {
    // The client requires it: the server's answer is refused. Then the server: its own SYN-ACK is.
    let mut client = Pair::new(requiring(), asking(&[]));
    client.send(&syn(), clean);
    assert_eq!(client.send(&syn_ack(), clean), Through::Reset);
    assert_eq!(client.states()[0], State::Refused(Plain::PeerSilent));
    let mut flow = Flow::new(requiring());
    let mut out = Vec::new();
    let mut handle = |direction, segment: &Segment| {
        let bytes = segment.bytes();
        flow.handle(direction, &Packet::parse(&bytes).unwrap(), &mut out)
    };
    assert_eq!(handle(Direction::In, &syn()), Action::Keep);
    assert_eq!(handle(Direction::Out, &syn_ack()), Action::Reset);
    assert_eq!(handle(Direction::Out, &answer(b"late")), Action::Reset, "and all that follows");
    assert_eq!(flow.state(), State::Refused(Plain::PeerSilent));
}

#[test]
fn where_a_crc_is_required_every_syn_asks_and_has_no_data() {
    let mut flow = Flow::new(requiring());
    let mut out = Vec::new();
    for _ in 0..10 {
        let bytes = syn().bytes();
        assert_eq!(flow.handle(Direction::Out, &Packet::parse(&bytes).unwrap(), &mut out), Action::Rewritten);
    }
    let bytes = Segment { data: b"early".to_vec(), ..syn() }.bytes();
    let action = flow.handle(Direction::Out, &Packet::parse(&bytes).unwrap(), &mut out);
    assert!(matches!(action, Action::Discard(_)), "{action:?}");
    assert_eq!(flow.state(), State::Opening);
}

/// A connection compares and strips in one pass: with every bit wrong once, it must agree with the functions that do one of both.
#[test]
fn a_connection_judges_as_check_does_and_hands_on_what_strip_writes() {
    const CLIENT_ISN: u32 = 1000;
    for method in Method::ALL {
        let mut pair = Pair::new(asking(&[method]), asking(&[method]));
        pair.open(clean);
        let segment = Segment { seq: 1009, ..Segment::new(ACK, b"data of an odd length: 27 b") };
        let (mut wire, mut out, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        let plain = segment.bytes();
        pair.client.handle(Direction::Out, &Packet::parse(&plain).unwrap(), &mut wire);
        let (mut bad_sums, mut bad_crcs) = (0, 0);
        for bit in 0..8 * wire.len() {
            let mut damaged = wire.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let Ok(packet) = Packet::parse(&damaged) else { continue };
            // Another connection, or no segment of one that is open.
            if bit < 8 * 24 || packet.flags().0 != ACK {
                continue;
            }
            let want = check(&packet, method, Codepoints::Historic, CLIENT_ISN);
            match (pair.server.clone().handle(Direction::In, &packet, &mut out), want) {
                (Action::Keep, Err(Fault::Bare)) => {}
                (Action::Discard(fault), Err(want)) => {
                    assert_eq!(fault, want, "{method:?}, bit {bit}");
                    bad_sums += usize::from(fault == Fault::Sum);
                    bad_crcs += usize::from(fault != Fault::Sum);
                    assert!(out.is_empty(), "{method:?}, bit {bit}");
                }
                other => panic!("{method:?}, bit {bit}: {other:?}"),
            }
        }
        assert!(bad_crcs > 8 * 27, "{method:?}: {bad_crcs}");
        assert_eq!(bad_sums > 15, method != Method::Split, "{method:?}: {bad_sums}");
        let packet = Packet::parse(&wire).unwrap();
        assert_eq!(pair.server.handle(Direction::In, &packet, &mut out), Action::Rewritten);
        strip(&packet, Codepoints::Historic, &mut alone);
        assert_eq!(out, alone, "{method:?}");
    }
}
