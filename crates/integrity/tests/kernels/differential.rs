//! Every kernel against the bit-wise reference, and the reference against an independent implementation.
//!
//! The data is pseudo-random from fixed seeds, so that a failure can be repeated. Under Miri the ranges are thinned.

use crate::support::{ALIGNMENTS, Aligned, Random, STORES, under_test};
use integrity::kernels::{self, Kernel};
use integrity::{Store, copy_crc32c};

/// Beyond the lengths at which a kernel changes its code path: on x86-64, runs are braided from 1280 bytes on.
const MAX_LEN: usize = if cfg!(all(target_arch = "x86_64", not(miri))) { 2400 } else { 1024 };
/// Bytes on either side of a copy's destination that must not change.
const CANARY: usize = 128;
const CANARY_BYTE: u8 = 0xc5;

/// Strides that thin a test where every step is a thousand times slower.
const LEN_STEP: usize = if cfg!(miri) { 37 } else { 1 };
const ALIGN_STEP: usize = if cfg!(miri) { 21 } else { 1 };

fn reference(crc: u32, data: &[u8]) -> u32 {
    kernels::reference().append(crc, data)
}

/// The reference's values for every length from 0: `prefixes(crc, data)[n]` is that of `data[..n]`.
fn prefixes(crc: u32, data: &[u8]) -> Vec<u32> {
    let mut answers = vec![crc];
    for byte in data.chunks(1) {
        answers.push(reference(answers[answers.len() - 1], byte));
    }
    answers
}

/// Copies with canaries on both sides and checks the digest, the bytes, and that nothing else changed.
fn check_copy(
    kernel: &Kernel,
    crc: u32,
    want: u32,
    src: &[u8],
    dst: &mut Aligned,
    align: usize,
    store: Store,
) {
    let what = || format!("{} {store:?}: {} bytes to alignment {align}", kernel.name(), src.len());
    let at = CANARY + align;
    dst.bytes_mut().fill(CANARY_BYTE);
    let got = kernel.copy(crc, &mut dst.bytes_mut()[at..at + src.len()], src, store).expect("equal lengths");
    assert_eq!(got, want, "digest: {}", what());
    assert!(dst.bytes()[at..at + src.len()] == *src, "bytes: {}", what());
    let (before, after) = (&dst.bytes()[..at], &dst.bytes()[at + src.len()..]);
    assert!(before.iter().all(|b| *b == CANARY_BYTE), "written before dst: {}", what());
    assert!(after.iter().all(|b| *b == CANARY_BYTE), "written after dst: {}", what());
}

// covers: DIG-02
#[test]
fn the_reference_agrees_with_an_independent_implementation() {
    let oracle = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let data = Random(1).bytes(5000);
    for len in (0..data.len()).step_by(113) {
        assert_eq!(reference(0, &data[..len]), oracle.checksum(&data[..len]), "{len} bytes");
    }
}

// covers: DIG-02
#[test]
fn every_length_at_every_alignment() {
    let mut random = Random(2);
    let data = Aligned::of(&random.bytes(MAX_LEN + ALIGNMENTS));
    for align in (0..ALIGNMENTS).step_by(ALIGN_STEP) {
        for crc in [0, random.next() as u32] {
            let src = &data.bytes()[align..align + MAX_LEN];
            let want = prefixes(crc, src);
            for kernel in under_test() {
                for len in (0..=MAX_LEN).step_by(LEN_STEP) {
                    let got = kernel.append(crc, &src[..len]);
                    assert_eq!(got, want[len], "{}: {len} bytes, alignment {align}", kernel.name());
                }
            }
        }
    }
}

#[test]
fn long_runs() {
    let mut random = Random(3);
    let (count, longest) = if cfg!(miri) { (2, 9000) } else { (150, 300_000) };
    let data = Aligned::of(&random.bytes(longest + ALIGNMENTS));
    let mut dst = Aligned::filled(longest + 2 * CANARY + ALIGNMENTS, 0);
    for round in 0..count {
        // Lengths of all magnitudes, and block sizes plus or minus a little.
        let len = match round % 3 {
            0 => random.below(longest),
            1 => {
                let shift = random.below(8);
                random.below(longest >> shift)
            }
            _ => (4096 * (1 + random.below(longest / 4096 - 1)) + random.below(32)).saturating_sub(16),
        };
        let align = random.below(ALIGNMENTS);
        let crc = random.next() as u32;
        let src = &data.bytes()[align..align + len];
        let want = reference(crc, src);
        for kernel in under_test() {
            let got = kernel.append(crc, src);
            assert_eq!(got, want, "{}: {len} bytes, alignment {align}", kernel.name());
            for store in STORES {
                check_copy(kernel, crc, want, src, &mut dst, random.below(ALIGNMENTS), store);
            }
        }
    }
}

#[test]
fn every_split_point_appends_and_combines() {
    let data = Random(4).bytes(if cfg!(miri) { 300 } else { 2100 });
    let whole = reference(0, &data);
    let heads = prefixes(0, &data);
    for kernel in kernels::available() {
        let name = kernel.name();
        for at in (0..=data.len()).step_by(LEN_STEP) {
            let (head, tail) = data.split_at(at);
            assert_eq!(kernel.append(heads[at], tail), whole, "{name}: append, split at {at}");
            assert_eq!(kernel.append(0, head), heads[at], "{name}: head, split at {at}");
            let joined = kernel.combine(heads[at], kernel.append(0, tail), tail.len() as u64);
            assert_eq!(joined, whole, "{name}: combine, split at {at}");
        }
    }
}

#[test]
fn copies_of_every_length() {
    let mut random = Random(5);
    let data = Aligned::of(&random.bytes(MAX_LEN + ALIGNMENTS));
    let mut dst = Aligned::filled(MAX_LEN + 2 * CANARY + ALIGNMENTS, 0);
    for dst_align in (0..ALIGNMENTS).step_by(ALIGN_STEP) {
        let src_align = random.below(ALIGNMENTS);
        let crc = random.next() as u32;
        let src = &data.bytes()[src_align..src_align + MAX_LEN];
        let want = prefixes(crc, src);
        for kernel in under_test() {
            for len in (0..=MAX_LEN).step_by(LEN_STEP) {
                for store in STORES {
                    check_copy(kernel, crc, want[len], &src[..len], &mut dst, dst_align, store);
                }
            }
        }
    }
}

#[test]
fn copies_at_every_pair_of_alignments() {
    const LENGTHS: [usize; 14] = [1, 3, 7, 63, 64, 67, 128, 255, 256, 319, 512, 577, 1500, 4096];
    let longest = LENGTHS[LENGTHS.len() - 1];
    let mut random = Random(6);
    let data = Aligned::of(&random.bytes(longest + ALIGNMENTS));
    let mut dst = Aligned::filled(longest + 2 * CANARY + ALIGNMENTS, 0);
    for src_align in (0..ALIGNMENTS).step_by(ALIGN_STEP) {
        for len in LENGTHS.into_iter().step_by(if cfg!(miri) { 4 } else { 1 }) {
            let src = &data.bytes()[src_align..src_align + len];
            let crc = random.next() as u32;
            let want = reference(crc, src);
            for kernel in under_test() {
                for dst_align in (0..ALIGNMENTS).step_by(ALIGN_STEP) {
                    for store in STORES {
                        check_copy(kernel, crc, want, src, &mut dst, dst_align, store);
                    }
                }
            }
        }
    }
}

/// A fused copy must detect damage anywhere: in lanes, heads, tails and at page boundaries.
// covers: DIG-14
#[test]
#[cfg_attr(miri, ignore = "many long copies, none of a new shape")]
fn a_flipped_bit_at_any_page_boundary_changes_the_digest_of_a_copy() {
    const PAGE: usize = 4096;
    let mut src = Aligned::of(&Random(7).bytes(4 * PAGE));
    let mut dst = vec![0; 4 * PAGE - 100];
    // The run starts and ends inside a page and crosses three boundaries.
    let range = 50..4 * PAGE - 50;
    for kernel in under_test() {
        for store in STORES {
            let clean = kernel.copy(0, &mut dst, &src.bytes()[range.clone()], store).expect("equal lengths");
            for boundary in [PAGE, 2 * PAGE, 3 * PAGE] {
                for at in (boundary - 9..boundary + 9).chain([range.start, range.end - 1]) {
                    src.bytes_mut()[at] ^= 1 << (at % 8);
                    let dirty =
                        kernel.copy(0, &mut dst, &src.bytes()[range.clone()], store).expect("equal lengths");
                    assert_ne!(dirty, clean, "{} {store:?}: flip at {at} unseen", kernel.name());
                    src.bytes_mut()[at] ^= 1 << (at % 8);
                }
            }
        }
    }
}

#[test]
fn a_copy_between_different_lengths_is_refused() {
    for (dst_len, src) in [(3, &b"four"[..]), (5, b"four"), (0, b"four"), (1, b"")] {
        let mut dst = [0xaa; 5];
        for kernel in kernels::available() {
            for store in STORES {
                let refused = kernel.copy(7, &mut dst[..dst_len], src, store).expect_err("different lengths");
                assert_eq!((refused.needed, refused.given), (src.len(), dst_len));
                assert!(refused.to_string().contains("destination"), "{refused}");
            }
        }
        assert!(copy_crc32c(7, &mut dst[..dst_len], src, Store::Temporal).is_err());
        assert_eq!(dst, [0xaa; 5], "nothing was copied");
    }
}

#[test]
fn headers() {
    let mut random = Random(11);
    for _ in 0..if cfg!(miri) { 3 } else { 1000 } {
        let header: [u8; 48] = random.bytes(48).try_into().expect("48 bytes");
        let want = reference(0, &header);
        assert_eq!(integrity::crc32c_header(&header), want);
        for kernel in kernels::available() {
            assert_eq!(kernel.header(&header), want, "{}", kernel.name());
        }
    }
}

/// An emulated machine without the instructions would pass every test of the kernels, because they would be skipped.
#[test]
fn an_emulated_machine_has_every_instruction() {
    if std::env::var_os("ALL_KERNELS_EXPECTED").is_none() {
        return;
    }
    for kernel in kernels::all() {
        assert!(kernel.available(), "{}", kernel.name());
    }
}
