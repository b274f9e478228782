//! The packet controller, alone and with the Rx buffer, against an independent parser of the same stream, with digests from `integrity`.
#![forbid(unsafe_code)]

mod campaign;

use campaign::length;
use offload_rtl::{RxPacket, RxSettings, Segment, Verdict, Width};

/// What a stream consists of, as the sender knows it; the faults are in the bytes already.
struct Stream {
    bytes: Vec<u8>,
    pdus: Vec<Pdu>,
}

/// One PDU that was sent.
struct Pdu {
    header: Vec<u8>,
    /// With padding.
    data: Vec<u8>,
    /// What a fault makes of it.
    verdict: Verdict,
    position: u64,
}

/// What a run gave: PDUs with a verdict, and the cycles from the first beat to the last verdict.
#[derive(Default)]
struct Run {
    pdus: Vec<(Vec<u8>, Vec<u8>, Verdict, u64)>,
    cycles: usize,
}

/// How the TCP side and the taker of segments behave, in percent of the cycles, and whether beats are cut anywhere.
#[derive(Clone, Copy)]
struct Pace {
    gaps: u8,
    busy: u8,
    cut: bool,
}

const FULL: Pace = Pace { gaps: 0, busy: 0, cut: false };
const MAX_DATA: u32 = 8192;
const START: u64 = 0x1_2345_6789;

fn settings(header_digest: bool, data_digest: bool) -> RxSettings {
    RxSettings { header_digest, data_digest, max_data: MAX_DATA }
}

/// A header with random bytes, but for its two lengths.
fn header(ahs_words: u8, data_bytes: u32, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut header: Vec<u8> = (0..48 + 4 * usize::from(ahs_words)).map(|_| random.u8(..)).collect();
    header[4] = ahs_words;
    header[5..8].copy_from_slice(&data_bytes.to_be_bytes()[1..]);
    header
}

fn random_data_bytes(random: &mut fastrand::Rng) -> u32 {
    match random.u8(..10) {
        0..3 => 0,
        3..6 => random.u32(1..=16),
        6..9 => random.u32(1..=600),
        _ => random.u32(600..=MAX_DATA),
    }
}

impl Stream {
    /// PDUs up to and with the one that stops the connection.
    fn until_stop(&self) -> usize {
        let stops = |pdu: &Pdu| matches!(pdu.verdict, Verdict::HeaderDigest | Verdict::TooLong);
        self.pdus.iter().position(stops).map_or(self.pdus.len(), |at| at + 1)
    }

    fn new() -> Self {
        Self { bytes: Vec::new(), pdus: Vec::new() }
    }

    /// Appends a PDU; `fault` is the verdict that it shall get.
    fn push(
        &mut self,
        settings: RxSettings,
        ahs_words: u8,
        data_bytes: u32,
        fault: Verdict,
        random: &mut fastrand::Rng,
    ) {
        let header = header(ahs_words, data_bytes, random);
        let data: Vec<u8> = (0..data_bytes.next_multiple_of(4)).map(|_| random.u8(..)).collect();
        let position = START + self.bytes.len() as u64;
        let begin = self.bytes.len();
        self.bytes.extend(&header);
        if settings.header_digest {
            self.bytes.extend(integrity::crc32c(&header).to_le_bytes());
        }
        let data_begin = self.bytes.len();
        self.bytes.extend(&data);
        if settings.data_digest && !data.is_empty() {
            self.bytes.extend(integrity::crc32c(&data).to_le_bytes());
        }
        let flip = match fault {
            // The lengths stay: a header that ends elsewhere has the digest of other bytes, see the test of that.
            Verdict::HeaderDigest => {
                Some([begin + random.usize(..4), begin + random.usize(8..52)][random.usize(..2)])
            }
            Verdict::DataDigest => Some(random.usize(data_begin..self.bytes.len())),
            Verdict::Good | Verdict::TooLong => None,
        };
        if let Some(at) = flip {
            self.bytes[at] ^= 1 << random.u8(..8);
        }
        let sent = |range: std::ops::Range<usize>| self.bytes[range].to_vec();
        let header = sent(begin..begin + header.len());
        let data = sent(data_begin..data_begin + data.len());
        self.pdus.push(Pdu { header, data, verdict: fault, position });
    }
}

/// Collects segments into PDUs: nothing counts before its verdict.
#[derive(Default)]
struct Collector {
    /// Headers and data in the order of the stream; the last may be unfinished.
    pdus: std::collections::VecDeque<(Vec<u8>, Vec<u8>)>,
    is_open: bool,
}

impl Collector {
    fn take(&mut self, segment: &Segment) {
        assert_eq!(segment.first, !self.is_open, "a segment begins where the one before has ended");
        self.is_open = !segment.last;
        if !segment.is_data && segment.first {
            self.pdus.push_back(Default::default());
        }
        let (header, data) = self.pdus.back_mut().expect("data follows a header");
        if segment.is_data { data.extend(&segment.bytes) } else { header.extend(&segment.bytes) }
    }
}

/// Sends `bytes` until `verdicts` verdicts have come, or the controller has stopped.
fn run(rx: &mut RxPacket, bytes: &[u8], verdicts: usize, pace: Pace, random: &mut fastrand::Rng) -> Run {
    let width = rx.width().bytes();
    let mut run = Run::default();
    let mut collector = Collector::default();
    let (mut sent, mut next) = (0, None);
    let limit = 1000 + 20 * bytes.len();
    while run.pdus.len() < verdicts {
        assert!(run.cycles < limit, "{} of {verdicts} verdicts in {limit} cycles", run.pdus.len());
        let most = width.min(bytes.len() - sent);
        // A beat that waits stays as it is.
        let count =
            *next.get_or_insert_with(|| if pace.cut && most > 0 { random.usize(1..=most) } else { most });
        let offered = (count > 0 && random.u8(..100) >= pace.gaps).then(|| &bytes[sent..sent + count]);
        let said = rx.cycle(offered, random.u8(..), random.u8(..100) >= pace.busy);
        run.cycles += 1;
        assert_eq!(said.failed, 0, "an assert of the circuit has failed");
        if said.accepted {
            sent += count;
            next = None;
        }
        if let Some((verdict, position)) = said.verdict {
            let (header, data) = collector.pdus.pop_front().expect("a verdict comes after its header");
            run.pdus.push((header, data, verdict, position));
            if matches!(verdict, Verdict::HeaderDigest | Verdict::TooLong) {
                break;
            }
        }
        if let Some(segment) = &said.segment {
            collector.take(segment);
        }
        assert!(!said.stopped, "stopped without a verdict");
    }
    run
}

fn compare(run: &Run, stream: &Stream) {
    for ((header, data, verdict, position), pdu) in run.pdus.iter().zip(&stream.pdus) {
        assert_eq!((*verdict, *position), (pdu.verdict, pdu.position));
        assert_eq!(*header, pdu.header, "header at {position:#x}");
        if matches!(verdict, Verdict::Good | Verdict::DataDigest) {
            assert_eq!(*data, pdu.data, "data at {position:#x}");
        }
    }
}

/// Up to 60 PDUs, some with faults, with at most `max_data` bytes of data each.
fn random_stream(settings: RxSettings, random: &mut fastrand::Rng) -> Stream {
    let mut stream = Stream::new();
    for _ in 0..random.usize(1..=60) {
        let ahs_words = if random.u8(..8) == 0 { random.u8(1..=255) } else { 0 };
        let data_bytes = random_data_bytes(random).min(settings.max_data);
        let fault = match random.u8(..60) {
            0 if settings.header_digest => Verdict::HeaderDigest,
            1 => Verdict::TooLong,
            2..6 if settings.data_digest && data_bytes > 0 => Verdict::DataDigest,
            _ => Verdict::Good,
        };
        let data_bytes =
            if fault == Verdict::TooLong { settings.max_data + random.u32(1..9) } else { data_bytes };
        stream.push(settings, ahs_words, data_bytes, fault, random);
    }
    stream
}

/// Streams with random lengths, faults, cuts and pauses. Returns the number of PDUs that were compared.
fn campaign(width: Width, pdus: usize, seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rx = RxPacket::new(width, seed as u16);
    let mut compared = 0;
    while compared < pdus {
        let settings = settings(random.u8(..4) > 0, random.u8(..4) > 0);
        let pace =
            Pace { gaps: [0, 40][random.usize(..2)], busy: [0, 40][random.usize(..2)], cut: random.bool() };
        let stream = random_stream(settings, &mut random);
        let length = stream.pdus.len();
        rx.restart(settings, START);
        let run = run(&mut rx, &stream.bytes, length, pace, &mut random);
        compare(&run, &stream);
        assert_eq!(run.pdus.len(), stream.until_stop());
        compared += run.pdus.len();
    }
    compared
}

#[test]
fn streams_with_faults_give_the_pdus_that_were_sent() {
    let narrow = campaign(Width::Bits64, length(3000), 1);
    let wide = campaign(Width::Bits512, length(3000), 2);
    println!("{narrow} PDUs at 64 bit, {wide} at 512 bit");
}

/// Every bit of a PDU, flipped alone: no flip passes. A flip in the lengths can move the end of the header or of the data, so then
/// the digest is of other bytes, or of more than there are; those flips may also leave the PDU without an end.
#[test]
fn no_flipped_bit_passes() {
    let mut random = fastrand::Rng::with_seed(5);
    let settings = settings(true, true);
    for width in [Width::Bits64, Width::Bits512] {
        let mut rx = RxPacket::new(width, 5);
        let mut stream = Stream::new();
        stream.push(settings, 1, 21, Verdict::Good, &mut random);
        let whole = stream.bytes.len();
        // What follows is enough for the longest header that a flip can claim, and its digest.
        stream.bytes.extend((0..1100).map(|_| random.u8(..)));
        for bit in 0..8 * whole {
            let mut bytes = stream.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            rx.restart(settings, START);
            let run = run(&mut rx, &bytes, 1, FULL, &mut random);
            let expected = if bit < 8 * 56 { Verdict::HeaderDigest } else { Verdict::DataDigest };
            assert_eq!(run.pdus[0].2, expected, "{width:?}, bit {bit}");
        }
    }
}

/// The controller takes nothing before a restart and nothing after a stop, and a restart makes it whole again.
#[test]
fn only_a_restart_ends_a_stop() {
    let mut random = fastrand::Rng::with_seed(6);
    let settings = settings(true, true);
    for width in [Width::Bits64, Width::Bits512] {
        let mut rx = RxPacket::new(width, 6);
        for _ in 0..300 {
            assert!(!rx.cycle(Some(&[1, 2, 3]), 0, true).accepted);
        }
        for fault in [Verdict::HeaderDigest, Verdict::TooLong, Verdict::Good] {
            let mut stream = Stream::new();
            let data_bytes = if fault == Verdict::TooLong { MAX_DATA + 1 } else { 100 };
            stream.push(settings, 0, data_bytes, fault, &mut random);
            rx.restart(settings, START);
            compare(&run(&mut rx, &stream.bytes, 1, FULL, &mut random), &stream);
            for _ in 0..100 {
                let said = rx.cycle(Some(&stream.bytes[..4]), 0, true);
                assert_eq!(said.verdict, None);
                assert_eq!(said.stopped && !said.accepted, fault != Verdict::Good);
                if fault == Verdict::Good {
                    break;
                }
            }
        }
    }
}

/// Beats of payload for each cycle, with both digests: `cargo test ... --test rx_packet beats -- --nocapture` prints them.
#[test]
fn beats_per_cycle_are_above_the_bar() {
    let mut random = fastrand::Rng::with_seed(7);
    let settings = settings(true, true);
    for (width, data_bytes, bar) in [
        (Width::Bits512, 8192, 0.97),
        (Width::Bits512, 512, 0.85),
        (Width::Bits64, 8192, 0.97),
        (Width::Bits64, 512, 0.85),
    ] {
        let mut stream = Stream::new();
        let count = 200;
        for _ in 0..count {
            stream.push(settings, 0, data_bytes, Verdict::Good, &mut random);
        }
        let mut rx = RxPacket::new(width, 7);
        rx.restart(settings, START);
        // The narrow unit fills its tables first.
        (0..200).for_each(|_| assert_eq!(rx.cycle(None, 0, true).failed, 0));
        let run = run(&mut rx, &stream.bytes, count, FULL, &mut random);
        compare(&run, &stream);
        let beats = stream.bytes.len() as f64 / width.bytes() as f64;
        let rate = beats / run.cycles as f64;
        println!(
            "{width:?}: Data-In of {data_bytes} bytes: {beats} beats in {} cycles, {rate:.3}",
            run.cycles
        );
        assert!(rate >= bar, "{width:?}, {data_bytes} bytes: {rate:.3} is below {bar}");
    }
}

/// Sends a stream through the controller and the buffer. What comes out is compared at once: only whole, checked PDUs in order. Returns
/// the cycles to the last of them.
fn run_buffered(rx: &mut RxPacket, stream: &Stream, pace: Pace, random: &mut fastrand::Rng) -> usize {
    let width = rx.width().bytes();
    let (mut sent, mut next, mut done, mut cycles) = (0, None, 0, 0);
    let (mut header, mut data) = (Vec::new(), Vec::new());
    let limit = 1000 + 20 * stream.bytes.len();
    while done < stream.until_stop() {
        assert!(cycles < limit, "{done} PDUs in {limit} cycles");
        let most = width.min(stream.bytes.len() - sent);
        let count =
            *next.get_or_insert_with(|| if pace.cut && most > 0 { random.usize(1..=most) } else { most });
        let offered = (count > 0 && random.u8(..100) >= pace.gaps).then(|| &stream.bytes[sent..sent + count]);
        let said = rx.cycle(offered, random.u8(..), random.u8(..100) >= pace.busy);
        cycles += 1;
        assert_eq!(said.failed, 0, "an assert of the circuit has failed");
        assert!(!said.stopped, "stopped without a verdict");
        if said.accepted {
            sent += count;
            next = None;
        }
        if let Some(segment) = &said.segment {
            let part: &mut Vec<u8> = if segment.is_data { &mut data } else { &mut header };
            part.extend(&segment.bytes);
        }
        let Some((verdict, position)) = said.verdict else { continue };
        let pdu = &stream.pdus[done];
        assert_eq!((verdict, position), (pdu.verdict, pdu.position));
        let held_back: &[u8] = &[];
        let expected_header = if verdict == Verdict::HeaderDigest { held_back } else { &pdu.header };
        let expected_data = if verdict == Verdict::Good { &pdu.data } else { held_back };
        assert_eq!(std::mem::take(&mut header), expected_header, "header at {position:#x}");
        assert_eq!(std::mem::take(&mut data), expected_data, "data at {position:#x}");
        done += 1;
    }
    cycles
}

/// What the buffer of `RxPacket::with_buffer` holds, in bytes of data; PDUs of the tests are not longer than `MAX_DATA`.
fn buffer_bytes(width: Width) -> u32 {
    width.buffer_bytes().min(MAX_DATA)
}

fn buffered_campaign(width: Width, pdus: usize, seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rx = RxPacket::with_buffer(width, seed as u16);
    let mut compared = 0;
    while compared < pdus {
        let settings = RxSettings {
            header_digest: random.u8(..4) > 0,
            data_digest: random.u8(..4) > 0,
            max_data: buffer_bytes(width),
        };
        let pace = Pace {
            gaps: [0, 40][random.usize(..2)],
            busy: [0, 40, 90][random.usize(..3)],
            cut: random.bool(),
        };
        let stream = random_stream(settings, &mut random);
        rx.restart(settings, START);
        run_buffered(&mut rx, &stream, pace, &mut random);
        compared += stream.until_stop();
        let stops = stream.pdus[stream.until_stop() - 1].verdict;
        for _ in 0..if matches!(stops, Verdict::HeaderDigest | Verdict::TooLong) { 50 } else { 0 } {
            let said = rx.cycle(None, 0, true);
            assert_eq!(
                (said.segment, said.verdict, said.stopped),
                (None, None, true),
                "nothing follows a stop"
            );
        }
    }
    compared
}

#[test]
fn nothing_leaves_the_buffer_before_its_digest_was_compared() {
    let narrow = buffered_campaign(Width::Bits64, length(3000), 8);
    let wide = buffered_campaign(Width::Bits512, length(3000), 9);
    println!("{narrow} PDUs at 64 bit, {wide} at 512 bit");
}

/// The longest PDU that a buffer holds, with the longest header, does not wait for itself.
#[test]
fn the_longest_pdu_fits_into_the_buffer() {
    let mut random = fastrand::Rng::with_seed(12);
    for width in [Width::Bits64, Width::Bits512] {
        let max_data = width.buffer_bytes();
        let settings = RxSettings { header_digest: true, data_digest: true, max_data };
        let mut stream = Stream::new();
        for _ in 0..3 {
            stream.push(settings, 255, max_data, Verdict::Good, &mut random);
        }
        let mut rx = RxPacket::with_buffer(width, 12);
        rx.restart(settings, START);
        run_buffered(&mut rx, &stream, FULL, &mut random);
    }
}

/// As without the buffer, up to the last beat that leaves it. The buffer of 4 KiB does not take 8 KiB.
#[test]
fn beats_per_cycle_through_the_buffer_are_above_the_bar() {
    let mut random = fastrand::Rng::with_seed(13);
    for (width, data_bytes, bar) in
        [(Width::Bits512, 8192, 0.97), (Width::Bits512, 512, 0.85), (Width::Bits64, 512, 0.85)]
    {
        let settings = RxSettings { header_digest: true, data_digest: true, max_data: buffer_bytes(width) };
        let mut stream = Stream::new();
        for _ in 0..200 {
            stream.push(settings, 0, data_bytes, Verdict::Good, &mut random);
        }
        let mut rx = RxPacket::with_buffer(width, 13);
        rx.restart(settings, START);
        (0..200).for_each(|_| assert_eq!(rx.cycle(None, 0, true).failed, 0));
        let cycles = run_buffered(&mut rx, &stream, FULL, &mut random);
        let rate = stream.bytes.len() as f64 / width.bytes() as f64 / cycles as f64;
        println!("{width:?} with buffer: Data-In of {data_bytes} bytes: {rate:.3}");
        assert!(rate >= bar, "{width:?}, {data_bytes} bytes: {rate:.3} is below {bar}");
    }
}
