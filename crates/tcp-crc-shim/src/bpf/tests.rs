//! The programs in the kernel compared with the Rust codec, packet by packet: both see the same segments and must give the same results.

#[allow(unreachable_pub, reason = "the tests of `tcp-crc` have the same file")]
#[path = "../../../tcp-crc/tests/support/mod.rs"]
mod packets;

use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use fastrand::Rng;
use tcp_crc::{
    Action, Codepoints, Config, Counters, Direction, Fault, Flow, Method, Offer, OnMissing, Packet, State,
};

use super::{Kernel, OBJECT};
use packets::{ACK, FIN, Segment, TIMESTAMPS, mend_sums, syn, syn_ack, take_out};

/// Results of the programs: the packet goes on, or is discarded (`<linux/pkt_cls.h>`).
const ON: u32 = u32::MAX;
const SHOT: u32 = 2;
/// The longest packet with which the kernel runs a program, in bytes.
const BYTES_MAX: usize = 3000;

/// If the user may not load programs, the test says so and is skipped; on CI it fails.
fn kernel(config: Config) -> Option<Kernel> {
    let error = match Kernel::load(0, config, 1000) {
        Ok(kernel) => return Some(kernel),
        Err(error) => error,
    };
    let on_ci = !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"));
    let may = std::process::Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    assert!(!on_ci && !may, "{error}");
    eprintln!("left out: {error}");
    None
}

/// Runs one program with a packet; returns its result and the packet as it left it.
fn run(kernel: &mut Kernel, name: &'static str, packet: &[u8]) -> (u32, Vec<u8>) {
    let ethertype: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    let frame = [&[2; 12][..], &ethertype, packet].concat();
    let mut out = vec![0; frame.len() + 64];
    let program: &mut SchedClassifier = kernel.program(name).unwrap();
    let options = TestRunOptions { data_in: Some(&frame), data_out: Some(&mut out), ..TestRunOptions::new() };
    let result = program.test_run(options).unwrap();
    out.truncate(result.data_size_out as usize);
    (result.return_value, out.split_off(14))
}

/// One host in two forms: as the codec and as the programs.
struct Twins {
    config: Config,
    model: Flow,
    kernel: Kernel,
    seen: Vec<u8>,
}

impl Twins {
    fn new(config: Config) -> Option<Twins> {
        Some(Twins { config, model: Flow::new(config), kernel: kernel(config)?, seen: Vec::new() })
    }

    /// Both forget the connection: reloading the programs would take a second.
    fn forget(&mut self) {
        self.model = Flow::new(self.config);
        for flows in &mut self.kernel.flows {
            let keys: Vec<_> = flows.keys().flatten().collect();
            keys.iter().for_each(|key| flows.remove(key).unwrap());
        }
    }

    /// A SYN or SYN-ACK of the host's own TCP: the codec writes the request, as `sockops` does.
    fn asks(&mut self, segment: &Segment) {
        let bytes = segment.bytes();
        let action = self.model.handle(Direction::Out, &Packet::parse(&bytes).unwrap(), &mut self.seen);
        let wire = if action == Action::Rewritten { &self.seen } else { &bytes };
        let (answer, after) = run(&mut self.kernel, "tcp_crc_egress", wire);
        assert_eq!((answer, &after), (ON, wire), "a SYN is followed and not changed");
    }

    /// Another segment of the host's own TCP, without and with the room that `sockops` makes. The codec must accept the programs' output.
    fn sends(&mut self, segment: &Segment, isn: u32) {
        let mut sent = segment.clone();
        let action =
            self.model.handle(Direction::Out, &Packet::parse(&sent.bytes()).unwrap(), &mut self.seen);
        let State::Protected(method) = self.model.state() else {
            let (answer, after) = run(&mut self.kernel, "tcp_crc_egress", &sent.bytes());
            return assert_eq!((answer, after), (ON, sent.bytes()));
        };
        let room: &[u8] = match self.config.codepoints {
            Codepoints::Historic => &[15, 6, 0, 0, 0, 0, 1, 1],
            Codepoints::Experimental => &[254, 8, b'C', b'D', 0, 0, 0, 0],
        };
        if sent.options.len() + room.len() <= 40 {
            sent.options.extend(room);
        }
        let (answer, after) = run(&mut self.kernel, "tcp_crc_egress", &sent.bytes());
        assert_eq!(answer, ON);
        let packet = Packet::parse(&after).unwrap();
        assert_eq!(packet.data(), segment.data);
        if action == Action::Keep {
            return assert_eq!(after, sent.bytes(), "no room: as it was");
        }
        let verdict = tcp_crc::check(&packet, method, self.config.codepoints, isn);
        assert_eq!(verdict, Ok(()), "{sent:?}");
        let theirs = Packet::parse(&self.seen).unwrap();
        let sack = |packet: &Packet<'_>| {
            packet.options().find(|option| option.kind == 5).map(|option| option.body.to_vec())
        };
        assert_eq!(sack(&packet), sack(&theirs), "the same blocks give way");
    }

    /// A packet from the network.
    fn receives(&mut self, bytes: &[u8]) {
        let (answer, after) = run(&mut self.kernel, "tcp_crc_ingress", bytes);
        let Ok(packet) = Packet::parse(bytes) else {
            return assert_eq!((answer, &after[..]), (ON, bytes), "what cannot be read goes on");
        };
        match self.model.handle(Direction::In, &packet, &mut self.seen) {
            // TCP itself verifies its sum, after the programs.
            Action::Keep | Action::Rewritten | Action::Discard(Fault::Sum) => {
                assert_eq!((answer, &after[..]), (ON, bytes), "{packet:?}");
            }
            Action::Discard(fault) => assert_eq!(answer, SHOT, "{fault}: {packet:?}"),
            Action::Reset => {
                assert_eq!(answer, ON);
                let reset = Packet::parse(&after).unwrap();
                assert!(reset.flags().rst(), "{reset:?}");
                // A packet whose sum was wrong keeps a wrong sum: TCP discards it, as it would have discarded the segment.
                assert_eq!(reset.sum_is_right(), packet.sum_is_right());
                assert_eq!(reset.sequence_number(), packet.sequence_number());
            }
        }
    }

    /// Both have the same state and counters for the connection.
    fn agree(&self) -> Counters {
        let [(_, state, counters)] = self.kernel.connections()[..] else { panic!("not one connection") };
        assert_eq!(state, self.model.state());
        let model = self.model.counters();
        // The codec checks TCP's sum and counts wrong ones; the programs leave that to the kernel's TCP, which counts TcpInCsumErrors. So
        // their `resegmented` counts any wrong CRCs in a row, whatever the sums are.
        let resegmented = counters.resegmented;
        assert!(resegmented >= model.resegmented, "{counters:?} {model:?}");
        let verified = model.verified + model.bad_sum;
        assert_eq!(counters, Counters { verified, bad_sum: 0, resegmented, ..model });
        counters
    }
}

fn configs() -> Vec<Config> {
    let offers = [[Method::Data], [Method::Whole], [Method::Placed]];
    let mut configs = Vec::new();
    for methods in offers {
        for codepoints in [Codepoints::Historic, Codepoints::Experimental] {
            for on_missing in [OnMissing::Lenient, OnMissing::Strict] {
                configs.push(Config { offer: Offer::of(&methods), codepoints, on_missing, mtu_bytes: None });
            }
        }
    }
    configs
}

/// The peer's shim rewrites what the peer sends.
fn from_peer(peer: &mut Flow, segment: &Segment) -> Vec<u8> {
    let (bytes, mut out) = (segment.bytes(), Vec::new());
    match peer.handle(Direction::Out, &Packet::parse(&bytes).unwrap(), &mut out) {
        Action::Rewritten => out,
        _ => bytes,
    }
}

/// A client opens a connection to a peer.
fn open(twins: &mut Twins, v6: bool) -> Flow {
    let mut peer = Flow::new(twins.config);
    twins.asks(&Segment { v6, ..syn() });
    let mut out = Vec::new();
    peer.handle(Direction::In, &Packet::parse(&twins.seen).unwrap(), &mut out);
    let answer = from_peer(&mut peer, &Segment { v6, ..syn_ack() });
    // The codec lowers the MSS in the SYN-ACK; the kernel's TCP makes room without that.
    let (verdict, after) = run(&mut twins.kernel, "tcp_crc_ingress", &answer);
    assert_eq!((verdict, &after), (ON, &answer));
    twins.model.handle(Direction::In, &Packet::parse(&answer).unwrap(), &mut twins.seen);
    peer
}

fn sack(blocks: usize) -> Vec<u8> {
    let mut option = vec![1, 1, 5, 2 + 8 * blocks as u8];
    option.extend((0..8 * blocks).map(|i| [15, 6, 5, 254][i % 4]));
    option
}

/// A segment with random length, flags, options and sequence number.
fn any_segment(rng: &mut Rng, v6: bool, back: bool) -> Segment {
    let base = if back { 5000 } else { 1000 };
    let length = match rng.u8(..8) {
        0 => 0,
        1 => rng.usize(1..20),
        2 => rng.usize(2000..BYTES_MAX - 200),
        _ => rng.usize(1..1461),
    };
    let mut data = vec![0; length];
    rng.fill(&mut data);
    let options = match rng.u8(..4) {
        0 => Vec::new(),
        1 => [TIMESTAMPS, &sack(rng.usize(1..4))].concat(),
        // The codec can pack four blocks, the programs cannot: they drop one more.
        2 => sack(rng.usize(1..4)),
        _ => TIMESTAMPS.to_vec(),
    };
    let flags = ACK | if rng.u8(..20) == 0 { FIN } else { 0 } | if rng.bool() { 8 } else { 0 };
    let seq = rng.u32(..).wrapping_add(base);
    Segment { v6, back, flags, seq, options, ..Segment::new(ACK, &data) }
}

/// Damages a packet in transit, with or without mending the sums.
fn damage(rng: &mut Rng, packet: &mut Vec<u8>) {
    let tcp_at = if packet[0] >> 4 == 4 { 20 } else { 40 };
    match rng.u8(..8) {
        // Damages the data, with mended sums.
        0 | 1 if packet.len() > tcp_at + 60 => {
            let at = rng.usize(tcp_at + 60..packet.len());
            packet[at] ^= 1 << rng.u8(..8);
            mend_sums(packet);
        }
        2 => {
            let at = rng.usize(tcp_at..packet.len());
            packet[at] ^= rng.u8(1..);
        }
        3 => take_out(packet, 15),
        4 => take_out(packet, 254),
        5 => {
            packet.truncate(rng.usize(tcp_at..packet.len()));
        }
        // Swaps two words of the data, so that the sum stays right.
        6 if packet.len() > tcp_at + 64 => {
            let end = packet.len() & !1;
            let (a, b) = (end - 2, end - 4);
            packet.swap(a, b);
            packet.swap(a + 1, b + 1);
        }
        _ => {}
    }
}

/// The number of segments tested for each of the 24 combinations of configuration and IP version.
fn rounds() -> usize {
    let all: usize = std::env::var("SEGMENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    all.div_ceil(24)
}

#[test]
fn what_the_programs_write_the_codec_accepts_and_what_it_discards_they_discard() {
    for (seed, config) in configs().into_iter().enumerate() {
        let Some(mut twins) = Twins::new(config) else { return };
        let mut all = Counters::default();
        for v6 in [false, true] {
            twins.forget();
            let mut peer = open(&mut twins, v6);
            let mut rng = Rng::with_seed(seed as u64);
            for round in 0..rounds() {
                if round % 2 == 0 {
                    twins.sends(&any_segment(&mut rng, v6, false), 1000);
                    continue;
                }
                let mut packet = from_peer(&mut peer, &any_segment(&mut rng, v6, true));
                // The first segment is intact, so that the connection is established.
                if round > 1 {
                    damage(&mut rng, &mut packet);
                }
                let rst =
                    Packet::parse(&packet).is_ok_and(|packet| packet.flags().rst() || packet.flags().syn());
                let ports = packet.len() > 44 && !rst;
                if ports && is_of_the_connection(&packet) {
                    twins.receives(&packet);
                }
            }
            let counters = twins.agree();
            all.add(&counters);
            assert!(counters.stamped > 0 && counters.verified > 0 && counters.bad_crc > 0, "{counters:?}");
        }
        assert_eq!(twins.kernel.totals().0, all);
    }
}

/// Whether the damage has left the ports unchanged: otherwise both sides would look for another connection.
fn is_of_the_connection(packet: &[u8]) -> bool {
    let whole = Segment { v6: packet[0] >> 4 == 6, ..Segment::new(ACK, b"").back() }.bytes();
    let at = packets::tcp_at(packet);
    packet[at..at + 4] == whole[at..at + 4]
}

#[test]
fn table_7_2_and_silent_peers_by_the_programs() {
    let peers = [None, Some(Method::Split), Some(Method::Data), Some(Method::Whole), Some(Method::Placed)];
    for ours in [Method::Data, Method::Whole, Method::Placed] {
        let config = Config { offer: Offer::of(&[ours]), ..Config::default() };
        let Some(mut host) = Twins::new(config) else { return };
        for theirs in peers {
            let offer = theirs.map_or(Offer::NONE, |method| Offer::of(&[method]));
            let mut out = Vec::new();
            // As a client.
            let mut peer = Flow::new(Config { offer, ..config });
            host.asks(&syn());
            peer.handle(Direction::In, &Packet::parse(&host.seen).unwrap(), &mut out);
            let answer = from_peer(&mut peer, &syn_ack());
            run(&mut host.kernel, "tcp_crc_ingress", &answer);
            host.model.handle(Direction::In, &Packet::parse(&answer).unwrap(), &mut out);
            host.agree();
            // As a server. A peer that asks for nothing takes no place in the table.
            host.forget();
            let mut peer = Flow::new(Config { offer, ..config });
            let asks = from_peer(&mut peer, &Segment { back: true, ..syn() });
            run(&mut host.kernel, "tcp_crc_ingress", &asks);
            host.model.handle(Direction::In, &Packet::parse(&asks).unwrap(), &mut out);
            assert_eq!(host.kernel.connections(), [], "our TCP has not answered");
            host.asks(&Segment { back: false, ..syn_ack() });
            if theirs.is_some() {
                host.agree();
            }
            host.forget();
        }
    }
}

#[test]
fn an_answer_that_is_taken_out_leads_to_plain_tcp() {
    let config =
        Config { offer: Offer::of(&[Method::Data]), on_missing: OnMissing::Strict, ..Config::default() };
    let Some(mut server) = Twins::new(config) else { return };
    let asks = from_peer(&mut Flow::new(config), &syn());
    run(&mut server.kernel, "tcp_crc_ingress", &asks);
    let mut out = Vec::new();
    server.model.handle(Direction::In, &Packet::parse(&asks).unwrap(), &mut out);
    server.asks(&syn_ack());
    server.receives(&Segment { seq: 1001, ..Segment::new(ACK, b"bare") }.bytes());
    server.agree();
    assert!(matches!(server.model.state(), State::Plain(_)));
}

#[test]
fn what_cannot_be_read_goes_on_as_it_is() {
    let config = Config { offer: Offer::of(&[Method::Whole]), ..Config::default() };
    let Some(mut kernel) = kernel(config) else { return };
    let mut rng = Rng::with_seed(3);
    for round in 0..4000 {
        let v6 = round % 2 == 0;
        let mut packet = any_segment(&mut rng, v6, round % 3 == 0).bytes();
        packet.truncate(rng.usize(if v6 { 41 } else { 21 }..=packet.len()));
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(1..packet.len().min(110));
            packet[at] = rng.u8(..);
        }
        for name in ["tcp_crc_ingress", "tcp_crc_egress"] {
            let (answer, after) = run(&mut kernel, name, &packet);
            assert_eq!((answer, &after), (ON, &packet));
        }
    }
}

#[test]
fn the_object_is_of_its_source() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let crc = ["state.h", "segment.h", "flow.h", "tcp_crc.bpf.c"]
        .iter()
        .fold(0, |crc, name| integrity::crc32c_append(crc, &std::fs::read(folder.join(name)).unwrap()));
    let mark = format!("CRC32C of the source: {crc:08x}");
    let is_there = OBJECT.windows(mark.len()).any(|window| window == mark.as_bytes());
    assert!(is_there, "the source has changed: cargo xtask bpf");
}

#[test]
fn value_3_is_refused_with_the_reason() {
    let config = Config { offer: Offer::of(&[Method::Split]), ..Config::default() };
    let Err(error) = Kernel::load(0, config, 10) else { panic!("loaded") };
    assert!(error.to_string().contains("value 3") && error.to_string().contains("--backend tun"), "{error}");
}
