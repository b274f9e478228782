//! The combination of digests: against the digest of the concatenation, and for consistency.

use crate::support::Random;
use integrity::kernels;
use integrity::{CombineBy, crc32c, crc32c_combine, crc32c_combine_blocks};

#[test]
fn combination_is_associative_for_lengths_of_any_size() {
    let mut random = Random(8);
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let [a, b, c] = [(); 3].map(|()| random.next() as u32);
        let [m, n] = [(); 2].map(|()| random.next() >> (1 + random.below(63)));
        let want = crc32c_combine(crc32c_combine(a, b, m), c, n);
        for kernel in kernels::available() {
            let got = kernel.combine(a, kernel.combine(b, c, n), m + n);
            assert_eq!(got, want, "{}: lengths {m} and {n}", kernel.name());
        }
    }
}

#[test]
fn combining_with_nothing_changes_nothing() {
    assert_eq!(crc32c_combine(0x1234_5678, 0, 0), 0x1234_5678);
    assert_eq!(crc32c_combine(0, 0x1234_5678, u64::MAX), 0x1234_5678);
}

#[test]
fn a_prepared_length_combines_like_any_other() {
    let mut random = Random(12);
    let few = [0, 1, 7, 512, 4096, 65_536, u64::from(u32::MAX), u64::MAX / 8, u64::MAX];
    let lengths = few.into_iter().chain((0..if cfg!(miri) { 2 } else { 50 }).map(|_| random.next()));
    for len in lengths.collect::<Vec<_>>() {
        let by = CombineBy::new(len);
        let (a, b) = (random.next() as u32, random.next() as u32);
        let want = crc32c_combine(a, b, len);
        assert_eq!(by.combine(a, b), want, "{len} bytes");
        for kernel in kernels::available() {
            assert_eq!(kernel.combine_by(a, b, &by), want, "{}: {len} bytes", kernel.name());
        }
    }
}

#[test]
fn the_digests_of_blocks_fold_into_that_of_their_bytes() {
    let block_lens = if cfg!(miri) { &[520][..] } else { &[1, 13, 512, 520, 4096] };
    for &block_bytes in block_lens {
        let by = CombineBy::new(block_bytes as u64);
        let data = Random(13).bytes(70 * block_bytes);
        let crcs: Vec<u32> = data.chunks(block_bytes).map(crc32c).collect();
        let start = crc32c(b"what came before");
        for count in (0..=crcs.len()).step_by(if cfg!(miri) { 23 } else { 1 }) {
            let want = integrity::crc32c_append(start, &data[..count * block_bytes]);
            assert_eq!(crc32c_combine_blocks(start, &crcs[..count], &by), want, "{count} x {block_bytes}");
            for kernel in kernels::available() {
                let got = kernel.combine_blocks(start, &crcs[..count], &by);
                assert_eq!(got, want, "{}: {count} blocks of {block_bytes} bytes", kernel.name());
            }
        }
    }
}

#[test]
fn a_digest_that_changed_or_moved_changes_the_fold() {
    let by = CombineBy::new(512);
    let crcs: Vec<u32> = (0..20).map(|i| crc32c(&[i; 512])).collect();
    let want = crc32c_combine_blocks(0, &crcs, &by);
    for at in 0..crcs.len() {
        let mut wrong = crcs.clone();
        wrong[at] ^= 1 << at;
        assert_ne!(crc32c_combine_blocks(0, &wrong, &by), want, "digest {at} changed");
        let mut moved = crcs.clone();
        moved.swap(at, (at + 1) % crcs.len());
        assert_ne!(crc32c_combine_blocks(0, &moved, &by), want, "digest {at} moved");
    }
}
