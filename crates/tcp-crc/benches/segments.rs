//! What the codec takes for a segment: cutting it off a super-segment, stamping, checking, stripping, and joining it to others again.
//!
//! Every step in turn, in many short turns, of which the fastest counts: work of others lengthens a turn and shortens none. Every result is
//! checked. `cargo bench -p intact-tcp-crc --bench segments [-- rounds]`, by default 400.

use std::hint::black_box;
use std::time::Instant;

use tcp_crc::{Config, Direction, Flow, Joined, Method, Offer, Packet, cut, finish_sums};

/// Data of a segment with timestamps and a CRC in an Ethernet frame, bytes.
const MSS_BYTES: u16 = 1440;
/// Segments in a super-segment.
const SEGMENTS: usize = 44;
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
const MSS: [u8; 4] = [2, 4, 0x05, 0xb4];
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A packet (IPv4) of the only connection.
fn packet(back: bool, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let [from, to] = if back { [2, 1] } else { [1, 2] };
    let [source, destination] = if back { [3260u16, 40000] } else { [40000, 3260] };
    let header_bytes = 20 + options.len();
    let [mut sequence, acknowledged] = if back { [5000u32, 1001] } else { [1000, 5001] };
    sequence += u32::from(flags & SYN == 0);
    let mut packet = vec![0x45, 0];
    packet.extend(((20 + header_bytes + data.len()) as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(acknowledged.to_be_bytes());
    packet.extend([(header_bytes / 4) as u8 * 16, flags, 0x10, 0, 0, 0, 0, 0]);
    packet.extend(options);
    packet.extend(data);
    finish_sums(&mut packet);
    packet
}

/// Both ends of a protected connection.
fn connection(method: Method) -> [Flow; 2] {
    let config = Config { offer: Offer::of(&[method]), ..Config::default() };
    let mut ends = [Flow::new(config), Flow::new(config)];
    let options = [&MSS[..], &TIMESTAMPS].concat();
    for (back, flags) in [(false, SYN), (true, SYN | ACK), (false, ACK)] {
        let bytes = packet(back, flags, if flags & SYN == 0 { &TIMESTAMPS } else { &options }, &[]);
        let (mut asks, mut seen) = (Vec::new(), Vec::new());
        let (from, to) = if back { (1, 0) } else { (0, 1) };
        ends[from].handle(Direction::Out, &Packet::parse(&bytes).expect("made here"), &mut asks);
        ends[to].handle(Direction::In, &Packet::parse(&asks).expect("a request"), &mut seen);
    }
    ends
}

/// Nanoseconds for one segment: cut, cut and stamped, checked and stripped, joined.
struct Turn {
    steps: [f64; 4],
}

fn turn([client, server]: &mut [Flow; 2], bytes: &[u8], wire: &mut [Vec<u8>], back: &mut [Vec<u8>]) -> Turn {
    let each = |began: Instant| began.elapsed().as_nanos() as f64 / SEGMENTS as f64;
    let data = Packet::parse(bytes).expect("made here").data();
    let (mut scratch, mut copies) = (Vec::new(), [bytes.to_vec(), bytes.to_vec()]);
    let began = Instant::now();
    cut(&mut copies[0], MSS_BYTES, &mut scratch, |piece| {
        black_box(piece);
    });
    let cut_alone = each(began);
    let mut number = 0;
    let began = Instant::now();
    cut(&mut copies[1], MSS_BYTES, &mut scratch, |piece| {
        client.handle(Direction::Out, piece, &mut wire[number]);
        number += 1;
    });
    let stamped = each(began);
    let began = Instant::now();
    for (segment, out) in wire.iter().zip(back.iter_mut()) {
        server.handle(Direction::In, &Packet::parse(segment).expect("a segment"), out);
    }
    let stripped = each(began);
    let mut joined = Joined::default();
    let began = Instant::now();
    for segment in &*back {
        assert!(joined.push(&Packet::parse(segment).expect("a segment")));
    }
    let whole = joined.take().expect("segments");
    let joining = each(began);
    assert!(whole.bytes.ends_with(data), "what was cut comes back");
    Turn { steps: [cut_alone, stamped, stripped, joining] }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse::<u32>().ok()).unwrap_or(400);
    // `cargo test --benches` only checks.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { rounds.max(1) } else { 1 };
    let data: Vec<u8> = (0..SEGMENTS as u32 * u32::from(MSS_BYTES))
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let bytes = packet(false, ACK, &TIMESTAMPS, &data);
    let mut buffers = [vec![Vec::new(); SEGMENTS], vec![Vec::new(); SEGMENTS]];
    let mut ends = Method::ALL.map(connection);
    let mut best = [[f64::INFINITY; 4]; Method::ALL.len()];
    for _ in 0..rounds {
        for (ends, best) in ends.iter_mut().zip(&mut best) {
            let [wire, back] = &mut buffers;
            let turn = turn(ends, &bytes, wire, back);
            best.iter_mut().zip(turn.steps).for_each(|(best, ns)| *best = best.min(ns));
        }
    }
    println!(
        "kernel of CRC32C: {}; ns for a segment of {MSS_BYTES} bytes of data, the fastest of {rounds}",
        integrity::kernel_name()
    );
    println!("value   cut   cut+stamp   check+strip   join");
    for (method, [cut, stamp, strip, join]) in Method::ALL.iter().zip(best) {
        println!("{:>5}  {cut:>4.0}   {stamp:>9.0}   {strip:>11.0}   {join:>4.0}", method.value());
    }
}
