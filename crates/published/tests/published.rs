//! The papers' algorithms against independent oracles, and against their papers' own values.

use std::hint::black_box;
use std::time::{Duration, Instant};

use published::{Algorithm, Build, Family, Paper};

/// Every length up to this one is tested at some alignment: it is longer than the shortest runs of every lane and fold.
const MAX_LEN: usize = if cfg!(miri) { 260 } else { 1100 };
const LEN_STEP: usize = if cfg!(miri) { 13 } else { 1 };
/// Around the steps of the algorithms: three lanes of 1024 and of 8192 bytes, folds after 720, 5552 and 131072 bytes.
const LONG: [usize; 9] = [1440, 3071, 3073, 5553, 11105, 24575, 24585, 52000, 262_145];

fn data(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let step = |state: &mut u64| {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 56) as u8
    };
    (0..len).map(|_| step(&mut state)).collect()
}

fn of(family: Family) -> impl Iterator<Item = &'static Algorithm> {
    published::all().iter().filter(move |algorithm| algorithm.family == family && algorithm.available())
}

/// Compares every implementation of a family with `oracle`, for random data and for the data that carries most and
/// least.
fn compare(family: Family, oracle: impl Fn(&[u8]) -> u64) {
    let longest = LONG[LONG.len() - 1] + 64;
    for source in [data(longest), vec![0xff; longest], vec![0; longest]] {
        let short = (0..=MAX_LEN).step_by(LEN_STEP);
        for len in short.chain(LONG.into_iter().take(if cfg!(miri) { 2 } else { LONG.len() })) {
            let at = len % 17;
            let run = &source[at..at + len];
            let want = oracle(run);
            for algorithm in of(family) {
                assert_eq!(algorithm.checksum(run), want, "{}: {len} bytes at {at}", algorithm.name);
            }
        }
    }
}

#[test]
fn crc32c_is_what_an_independent_implementation_says() {
    let oracle = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    compare(Family::Crc32c, |run| oracle.checksum(run).into());
}

#[test]
fn t10_is_what_an_independent_implementation_says() {
    let oracle = crc::Crc::<u16>::new(&crc::CRC_16_T10_DIF);
    compare(Family::T10, |run| oracle.checksum(run).into());
}

#[test]
fn adler_is_what_an_independent_implementation_says() {
    compare(Family::Adler32, |run| adler2::adler32_slice(run).into());
}

#[test]
fn fletcher_is_the_two_sums_modulo_65535() {
    // End-around carry gives 65535 where a remainder would be 0, unless everything was zero.
    let reduce = |sum: u64| if sum == 0 { 0 } else { (sum - 1) % 65535 + 1 };
    compare(Family::Fletcher32, |run| {
        let words: Vec<u64> =
            run.chunks(2).map(|w| u64::from(w[0]) + 256 * u64::from(*w.get(1).unwrap_or(&0))).collect();
        let sum0: u64 = words.iter().sum();
        let sum1: u64 = words.iter().rev().enumerate().map(|(i, word)| (i as u64 + 1) * word).sum();
        reduce(sum1) << 16 | reduce(sum0)
    });
}

#[test]
fn ones_complement_is_the_sum_of_big_endian_words_modulo_65535() {
    compare(Family::OnesComplement, |run| {
        let sum: u64 =
            run.chunks(2).map(|w| 256 * u64::from(w[0]) + u64::from(*w.get(1).unwrap_or(&0))).sum();
        0xffff - if sum == 0 { 0 } else { (sum - 1) % 65535 + 1 }
    });
}

#[test]
fn xor_is_the_parity_of_every_bit() {
    compare(Family::Xor, |run| {
        (0..8).map(|bit| (run.iter().filter(|byte| **byte >> bit & 1 == 1).count() as u64 & 1) << bit).sum()
    });
}

fn check(name: &str, data: &[u8], want: u64) {
    let algorithm = published::find(name).expect(name);
    if algorithm.available() {
        assert_eq!(algorithm.checksum(data), want, "{name} of {data:02x?}");
    }
}

#[test]
fn published_values() {
    // Sahu 2019, Figure 5.2: the prefixes of "123456789".
    let prefixes = [
        0x90f5_99e3,
        0x7355_c460,
        0x107b_2fb2,
        0xf63a_f4ee,
        0x18d1_2335,
        0x4135_7186,
        0x1242_97ea,
        0x6087_809a,
        0xe306_9283,
    ];
    for algorithm in of(Family::Crc32c) {
        for (i, want) in prefixes.into_iter().enumerate() {
            check(algorithm.name, &b"123456789"[..=i], want);
        }
    }
    check("adler-32", b"", 1);
    check("adler-32", b"Wikipedia", 0x11e6_0398);
    check("fletcher-32", b"abcde", 0xf04f_c729);
    check("fletcher-32", b"abcdef", 0x5650_2d2a);
    check("fletcher-32", b"abcdefgh", 0xebe1_9591);
    for algorithm in of(Family::OnesComplement) {
        // RFC 1071, section 3: the example's sum is ddf2.
        check(algorithm.name, &[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7], 0x220d);
        check(algorithm.name, &[], 0xffff);
    }
    for algorithm in of(Family::T10) {
        check(algorithm.name, b"123456789", 0xd0db);
    }
}

#[test]
fn an_internet_checksum_in_its_place_makes_the_sum_vanish() {
    for algorithm in of(Family::OnesComplement) {
        let mut packet = data(1500);
        packet[16..18].fill(0);
        let sum = algorithm.checksum(&packet) as u16;
        packet[16..18].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(algorithm.checksum(&packet), 0, "{}", algorithm.name);
    }
}

#[test]
fn every_algorithm_of_the_papers_is_there_once() {
    let count = |paper, build| {
        published::all()
            .iter()
            .filter(|algorithm| (algorithm.paper, algorithm.build) == (paper, build))
            .count()
    };
    assert_eq!((count(Paper::Thesis2019, Build::Paper), count(Paper::Note2007, Build::Paper)), (13, 5));
    for algorithm in published::all() {
        let of = published::find(algorithm.build_of).expect(algorithm.build_of);
        assert_eq!((of.build, of.family, of.paper), (Build::Paper, algorithm.family, algorithm.paper));
        assert_eq!(algorithm.build == Build::Paper, algorithm.build_of == algorithm.name);
    }
    for (i, algorithm) in published::all().iter().enumerate() {
        let found = published::find(algorithm.name).expect(algorithm.name);
        assert!(std::ptr::eq(found, algorithm), "two are called {}", algorithm.name);
        assert!(
            published::all()[..i].iter().all(|other| other.title != algorithm.title),
            "{}",
            algorithm.title
        );
    }
    assert!(published::find("crc32").is_none());
}

/// An emulated machine without the instructions would pass every test, because the algorithms would be skipped.
#[test]
fn an_emulated_machine_has_every_instruction() {
    if std::env::var_os("ALL_KERNELS_EXPECTED").is_none() {
        return;
    }
    for algorithm in published::all() {
        assert!(algorithm.available(), "{}", algorithm.name);
    }
}

/// Every bit of a message counts: flipping it changes every checksum here.
#[test]
fn a_flipped_bit_changes_every_checksum() {
    let mut message = data(if cfg!(miri) { 48 } else { 997 });
    for algorithm in published::all().iter().filter(|algorithm| algorithm.available()) {
        let clean = algorithm.checksum(&message);
        for at in 0..message.len() {
            message[at] ^= 1 << (at % 8);
            assert_ne!(algorithm.checksum(&message), clean, "{}: flip at {at}", algorithm.name);
            message[at] ^= 1 << (at % 8);
        }
    }
}

/// A step of one bit must take its full time. A compiler that recognises a CRC in the loop replaces it by a table, and
/// then the two algorithms that the papers call bit by bit are as fast as the byte-wise ones (1.1 times their time;
/// otherwise 3 times and more).
#[test]
#[cfg_attr(miri, ignore = "an interpreter's time says nothing")]
fn bit_by_bit_takes_the_time_of_bits() {
    const MIN_RATIO: f64 = 2.0;
    let run = data(4096);
    for (bits, bytes) in [("crc32c-bitwise", "crc32c-byte"), ("t10-reference", "t10-table")] {
        // They take turns, and the fastest call of each counts, because that one was not interrupted.
        let mut fastest = [Duration::MAX; 2];
        for _ in 0..200 {
            for (name, fastest) in [bits, bytes].into_iter().zip(&mut fastest) {
                let algorithm = published::find(name).expect(name);
                let start = Instant::now();
                black_box(algorithm.checksum(black_box(&run)));
                *fastest = start.elapsed().min(*fastest);
            }
        }
        let ratio = fastest[0].as_secs_f64() / fastest[1].as_secs_f64();
        assert!(ratio > MIN_RATIO, "{bits} takes {ratio:.2} times as long as {bytes}: it has become a table");
    }
}

/// Copies in pieces of odd lengths: the pieces arrive, nothing beyond them is written, and the checksum goes on from piece to piece.
#[test]
fn interleaved_copies_digest_what_they_copy() {
    let oracle = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let copies: Vec<_> =
        published::all().iter().filter_map(|algorithm| published::interleaved(algorithm.name)).collect();
    assert!(copies.len() >= 4);
    for copy in copies.into_iter().filter(|copy| copy.needs.met()) {
        for len in (0..=MAX_LEN).step_by(LEN_STEP) {
            let source = data(len + 16);
            let source = &source[len % 16..][..len];
            let mut there = vec![0xa5; len + 9];
            let (first, second) = source.split_at(len / 3);
            let crc = copy.copy(0, &mut there[1..][..first.len()], first).unwrap();
            let crc = copy.copy(crc, &mut there[1 + first.len()..][..second.len()], second).unwrap();
            assert_eq!(crc, oracle.checksum(source), "{}: {len} bytes", copy.name);
            assert_eq!(&there[1..=len], source, "{}: {len} bytes", copy.name);
            assert!(there[0] == 0xa5 && there[len + 1..].iter().all(|byte| *byte == 0xa5), "{}", copy.name);
        }
        assert!(copy.copy(0, &mut [0; 3], &[0; 4]).is_err());
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_the_machine_has_is_found() {
    use published::Needs;
    let (crc, product) = (is_x86_feature_detected!("sse4.2"), is_x86_feature_detected!("pclmulqdq"));
    assert_eq!((Needs::CrcInstruction.met(), Needs::CrcAndCarrylessProduct.met()), (crc, crc && product));
}
