//! The CRC units against `integrity` and against a CRC that takes one bit at a time.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use offload_rtl::{Beat64, BeatWide, Crc64, CrcWide, Cycle, Polynomial, TableBits, WideBuild};

const POLYNOMIALS: [Polynomial; 3] = [Polynomial::Crc32c, Polynomial::Crc32, Polynomial::Koopman];
const ONES: u32 = u32::MAX;
/// The wide units for CRC32C.
const WIDE: [WideBuild; 4] =
    [WideBuild::Engine(Polynomial::Crc32c), WideBuild::Bits512, WideBuild::Bits1024, WideBuild::Bits2048];
const TABLES: [TableBits; 2] = [TableBits::Four, TableBits::Five];
/// Messages of each test.
const MESSAGES: usize = 4000;

/// One bit at a time, as the definition says.
fn bitwise(polynomial: u32, init: u32, xor_out: u32, bytes: &[u8]) -> u32 {
    let reflected = polynomial.reverse_bits();
    let register = bytes.iter().fold(init, |register, byte| {
        (0..8).fold(register ^ u32::from(*byte), |r, _| (r >> 1) ^ if r & 1 == 1 { reflected } else { 0 })
    });
    register ^ xor_out
}

/// What a unit takes in a cycle.
trait Unit {
    /// Bytes of a beat.
    fn beat(&self) -> usize;
    /// Bytes of one bit of `keep`.
    const GRAIN: usize;
    /// Offers up to a beat of bytes, the rest of the beat filled with rubbish.
    fn offer(&mut self, bytes: Option<(&[u8], bool)>, random: &mut fastrand::Rng) -> Cycle;
}

/// `bytes`, and rubbish up to the end of `beat`.
fn fill(beat: &mut [u8], bytes: &[u8], random: &mut fastrand::Rng) {
    let (exist, absent) = beat.split_at_mut(bytes.len());
    exist.copy_from_slice(bytes);
    absent.fill_with(|| random.u8(1..));
}

impl Unit for Crc64 {
    const GRAIN: usize = 1;
    fn beat(&self) -> usize {
        8
    }
    fn offer(&mut self, bytes: Option<(&[u8], bool)>, random: &mut fastrand::Rng) -> Cycle {
        self.cycle(bytes.map(|(bytes, last)| {
            let mut data = [0; 8];
            fill(&mut data, bytes, random);
            Beat64 { data, keep: ((1_u16 << bytes.len()) - 1) as u8, last }
        }))
    }
}

impl Unit for CrcWide {
    const GRAIN: usize = 4;
    fn beat(&self) -> usize {
        self.build().bytes()
    }
    fn offer(&mut self, bytes: Option<(&[u8], bool)>, random: &mut fastrand::Rng) -> Cycle {
        let data = &mut [0; 256][..self.beat()];
        self.cycle(bytes.map(|(bytes, last)| {
            fill(data, bytes, random);
            BeatWide { data, keep: ((1_u128 << (bytes.len() / 4)) - 1) as u64, last }
        }))
    }
}

/// Sends each message with a gap of `gaps` percent of the cycles; the digests in their order, and the cycles until the last.
fn run<U: Unit>(
    unit: &mut U,
    messages: &[Vec<u8>],
    gaps: u8,
    random: &mut fastrand::Rng,
) -> (Vec<u32>, usize) {
    let mut beats = VecDeque::new();
    let width = unit.beat();
    for message in messages {
        let count = message.len().div_ceil(width).max(1);
        beats.extend((0..count).map(|i| {
            let end = message.len().min((i + 1) * width);
            (&message[i * width..end], i + 1 == count)
        }));
    }
    let limit = 1000 + beats.len() * 100;
    let mut digests = Vec::new();
    for cycle in 1..=limit {
        let offered = if random.u8(..100) < gaps { None } else { beats.front().copied() };
        let said = unit.offer(offered, random);
        if said.accepted {
            beats.pop_front();
        }
        digests.extend(said.digest);
        if digests.len() == messages.len() {
            assert!(beats.is_empty(), "a digest came before its message had ended");
            return (digests, cycle);
        }
    }
    panic!("{} of {} digests in {limit} cycles", digests.len(), messages.len());
}

/// A narrow unit with tables of either kind, for CRC32C.
fn narrow_units(seed: u16) -> [Crc64; 2] {
    TABLES.map(|tables| {
        let mut unit = Crc64::new(tables, seed);
        unit.set_polynomial(Polynomial::Crc32c.value(), ONES, ONES);
        unit
    })
}

/// The wide units for CRC32C.
fn wide_units(seed: u16) -> [CrcWide; 4] {
    WIDE.map(|build| CrcWide::new(build, ONES, ONES, seed))
}

fn messages<U: Unit>(unit: &U, least: usize, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let mut message = |_| {
        let most = if random.u8(..8) == 0 { 40 } else { 5 };
        let grains = random.usize(least..=most * unit.beat() / U::GRAIN);
        (0..grains * U::GRAIN).map(|_| random.u8(..)).collect()
    };
    (0..MESSAGES).map(&mut message).collect()
}

fn compare(digests: &[u32], messages: &[Vec<u8>], expected: impl Fn(&[u8]) -> u32) {
    for (digest, message) in digests.iter().zip(messages) {
        assert_eq!(*digest, expected(message), "{} bytes", message.len());
    }
}

#[test]
fn narrow_unit_is_the_definition_for_every_polynomial() {
    let mut random = fastrand::Rng::with_seed(1);
    for (tables, polynomial) in TABLES.into_iter().flat_map(|tables| POLYNOMIALS.map(|of| (tables, of))) {
        let mut unit = Crc64::new(tables, 1);
        for (init, xor_out) in [(ONES, ONES), (0, 0), (random.u32(..), random.u32(..))] {
            unit.set_polynomial(polynomial.value(), init, xor_out);
            for gaps in [0, 40] {
                let messages = messages(&unit, 0, &mut random);
                let (digests, _) = run(&mut unit, &messages, gaps, &mut random);
                compare(&digests, &messages, |bytes| bitwise(polynomial.value(), init, xor_out, bytes));
                if (polynomial, init, xor_out) == (Polynomial::Crc32c, ONES, ONES) {
                    compare(&digests, &messages, integrity::crc32c);
                }
            }
        }
    }
}

#[test]
fn narrow_unit_takes_polynomials_that_nobody_chose() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut units = TABLES.map(|tables| Crc64::new(tables, 2));
    for turn in 0..100 {
        let unit = &mut units[turn % 2];
        let (polynomial, init, xor_out) = (random.u32(..) | 1, random.u32(..), random.u32(..));
        unit.set_polynomial(polynomial, init, xor_out);
        let message: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
        let (digests, _) = run(unit, std::slice::from_ref(&message), 20, &mut random);
        assert_eq!(digests, [bitwise(polynomial, init, xor_out, &message)], "{polynomial:#x}");
    }
}

#[test]
fn wide_unit_is_the_definition_for_every_polynomial() {
    let mut random = fastrand::Rng::with_seed(3);
    let others = [Polynomial::Crc32, Polynomial::Koopman].map(|of| (WideBuild::Engine(of), of));
    for (build, polynomial) in WIDE.map(|build| (build, Polynomial::Crc32c)).into_iter().chain(others) {
        for (init, xor_out) in [(ONES, ONES), (random.u32(..), random.u32(..))] {
            let mut unit = CrcWide::new(build, init, xor_out, 3);
            for gaps in [0, 40] {
                let messages = messages(&unit, 1, &mut random);
                let (digests, _) = run(&mut unit, &messages, gaps, &mut random);
                compare(&digests, &messages, |bytes| bitwise(polynomial.value(), init, xor_out, bytes));
                if (polynomial, init, xor_out) == (Polynomial::Crc32c, ONES, ONES) {
                    compare(&digests, &messages, integrity::crc32c);
                }
            }
        }
    }
}

/// Every byte of every beat alone, in all units: a lane that is dropped, or a byte enable that is not, changes one of them.
#[test]
fn each_byte_and_each_byte_enable_counts() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut narrow = narrow_units(4);
    for length in 1..=16 {
        let messages: Vec<Vec<u8>> =
            (0..length).map(|at| (0..length).map(|i| u8::from(i == at)).collect()).collect();
        for unit in &mut narrow {
            compare(&run(unit, &messages, 0, &mut random).0, &messages, integrity::crc32c);
        }
    }
    for mut wide in wide_units(4) {
        for length in (4..=2 * wide.beat()).step_by(4) {
            let messages: Vec<Vec<u8>> =
                (0..length).map(|at| (0..length).map(|i| u8::from(i == at)).collect()).collect();
            compare(&run(&mut wide, &messages, 0, &mut random).0, &messages, integrity::crc32c);
        }
    }
}

/// The paper's engine needs 0.03 s; 138 cycles are 0.88 us at its clock of 156.25 MHz.
#[test]
fn a_new_polynomial_takes_137_or_138_cycles() {
    for (tables, cycles) in TABLES.into_iter().zip([137, 138]) {
        let mut unit = Crc64::new(tables, 5);
        for polynomial in POLYNOMIALS {
            assert_eq!(unit.set_polynomial(polynomial.value(), ONES, ONES), cycles);
        }
    }
}

#[test]
fn nothing_is_accepted_before_a_polynomial() {
    for tables in TABLES {
        let mut unit = Crc64::new(tables, 6);
        for _ in 0..300 {
            let said = unit.cycle(Some(Beat64 { data: [0; 8], keep: 0xff, last: true }));
            assert_eq!(said, Cycle { accepted: false, digest: None });
        }
    }
}

/// A beat in each cycle: messages of whole beats follow each other without a gap, in the wide unit also those with a tail.
#[test]
fn units_take_a_beat_in_each_cycle() {
    let mut random = fastrand::Rng::with_seed(7);
    let headers = vec![vec![1; 48]; 1000];
    for unit in &mut narrow_units(7) {
        assert_eq!(run(unit, &headers, 0, &mut random).1, 6 * 1000 + 4);
    }
    let short = vec![vec![1; 52]; 1000];
    for (wide, digest_after) in wide_units(7).iter_mut().zip([17, 23, 26, 30]) {
        assert_eq!(run(wide, &short, 0, &mut random).1, 1000 + digest_after, "{:?}", wide.build());
    }
}

/// What the zeros of a tail cost in the narrow unit: 8 cycles a byte, which the next message hides if it is as long.
#[test]
fn a_tail_delays_only_short_messages() {
    let mut random = fastrand::Rng::with_seed(8);
    let long = vec![vec![1; 268]; 100];
    let short = vec![vec![1; 12]; 100];
    for unit in &mut narrow_units(8) {
        let cycles = run(unit, &long, 0, &mut random).1;
        assert_eq!(cycles, 34 * 100 + 4 + 32);
        let cycles = run(unit, &short, 0, &mut random).1;
        assert!(cycles > 32 * 100, "{cycles}");
    }
}

#[test]
fn golden_vectors_pass_all_units() {
    let text = include_str!("../../../vectors/crc32c.txt");
    let mut random = fastrand::Rng::with_seed(9);
    let mut narrow = narrow_units(9);
    let mut wide = wide_units(9);
    let mut seen = [0; 2];
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (digest, bytes) = vector(line);
        let message = [bytes];
        for unit in &mut narrow {
            assert_eq!(run(unit, &message, 0, &mut random).0, [digest], "{line}");
        }
        seen[0] += 1;
        if !message[0].is_empty() && message[0].len().is_multiple_of(4) {
            for unit in &mut wide {
                assert_eq!(run(unit, &message, 0, &mut random).0, [digest], "{line}");
            }
            seen[1] += 1;
        }
    }
    assert!(seen[0] > 5 && seen[1] > 2, "{seen:?}");
}

/// The digest and the bytes of a line of `vectors/crc32c.txt`.
fn vector(line: &str) -> (u32, Vec<u8>) {
    let hex = |text: &str| -> Vec<u8> {
        let pairs = text.as_bytes().as_chunks::<2>().0.iter();
        let pairs = pairs.map(|pair| std::str::from_utf8(pair).expect("ASCII"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
    };
    let mut fields = line.splitn(3, ' ').map(|field| if field == "-" { "" } else { field });
    let digest = hex(fields.next().expect("a digest")).try_into().expect("four bytes");
    (u32::from_le_bytes(digest), hex(fields.next().expect("data")))
}
