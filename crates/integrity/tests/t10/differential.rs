//! Every guard kernel against the bit-wise reference. Under Miri the ranges are thinned.

use integrity::t10::kernels;

use crate::support::{Random, reference, under_test};

const MAX_LEN: usize = 1024;
const ALIGNMENTS: usize = 64;
const LEN_STEP: usize = if cfg!(miri) { 37 } else { 1 };
const ALIGN_STEP: usize = if cfg!(miri) { 21 } else { 1 };

/// The reference's values for every length from 0.
fn prefixes(crc: u16, data: &[u8]) -> Vec<u16> {
    let mut answers = vec![crc];
    for byte in data.chunks(1) {
        answers.push(reference(answers[answers.len() - 1], byte));
    }
    answers
}

/// The part of `data` that starts at an address with this alignment.
fn aligned(data: &[u8], align: usize) -> &[u8] {
    let start = data.as_ptr().addr().wrapping_neg() % ALIGNMENTS;
    &data[start + align..]
}

#[test]
fn every_length_at_every_alignment() {
    let mut random = Random(10);
    let data = random.bytes(MAX_LEN + 2 * ALIGNMENTS);
    for align in (0..ALIGNMENTS).step_by(ALIGN_STEP) {
        for crc in [0, random.next() as u16] {
            let src = &aligned(&data, align)[..MAX_LEN];
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
    let mut random = Random(11);
    let (count, longest) = if cfg!(miri) { (2, 5000) } else { (150, 200_000) };
    let data = random.bytes(longest + 2 * ALIGNMENTS);
    for round in 0..count {
        let len = match round % 2 {
            0 => random.below(longest),
            _ => random.below(longest >> (round % 8)),
        };
        let src = &aligned(&data, random.below(ALIGNMENTS))[..len];
        let crc = random.next() as u16;
        let want = reference(crc, src);
        for kernel in under_test() {
            assert_eq!(kernel.append(crc, src), want, "{}: {len} bytes", kernel.name());
        }
    }
}

#[test]
fn every_split_point() {
    let data = Random(12).bytes(if cfg!(miri) { 300 } else { 2100 });
    let heads = prefixes(0, &data);
    for kernel in kernels::available() {
        for at in (0..=data.len()).step_by(LEN_STEP) {
            let (head, tail) = data.split_at(at);
            assert_eq!(kernel.append(0, head), heads[at], "{}: head, split at {at}", kernel.name());
            let got = kernel.append(heads[at], tail);
            assert_eq!(got, heads[data.len()], "{}: split at {at}", kernel.name());
        }
    }
}

/// A run near the end of a page, where a kernel may not load as it does elsewhere.
#[test]
fn short_runs_beside_the_end_of_a_page() {
    const PAGE: usize = 4096;
    let data = Random(13).bytes(3 * PAGE);
    let page = data.as_ptr().addr().wrapping_neg() % PAGE;
    for len in (0..=70).step_by(LEN_STEP) {
        for before in 0..=len {
            let src = &data[page + PAGE - before..][..len];
            let want = reference(0xbeef, src);
            for kernel in under_test() {
                assert_eq!(
                    kernel.append(0xbeef, src),
                    want,
                    "{}: {len} bytes, {before} before",
                    kernel.name()
                );
            }
        }
    }
}
