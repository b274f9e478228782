//! Copies of lists, and digests of blocks: calls that consist of several runs.

use std::num::NonZeroUsize;

use crate::support::{ALIGNMENTS, Aligned, Random, STORES};
use integrity::{
    Segment, SegmentMut, Store, copy_crc32c_blocks, copy_crc32c_gather, copy_crc32c_scatter, copy_crc32c_sum,
    crc32c, crc32c_append, crc32c_blocks, ip_checksum,
};

const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };

/// Lengths that add up to `total`: some empty, some of a few bytes, of a marker, and of a page or more.
fn cuts(random: &mut Random, total: usize) -> Vec<(usize, bool)> {
    let (mut cuts, mut left) = (Vec::new(), total);
    while left > 0 {
        let limit = [1, 9, 100, 1000, 6000][random.below(5)];
        let len = random.below(limit).min(left);
        cuts.push((len, random.below(3) > 0));
        left -= len;
    }
    cuts.push((0, true));
    cuts
}

fn expected(crc: u32, data: &[u8], cuts: &[(usize, bool)]) -> u32 {
    let (mut crc, mut rest) = (crc, data);
    for &(len, counts) in cuts {
        let (bytes, after) = rest.split_at(len);
        if counts {
            crc = crc32c_append(crc, bytes);
        }
        rest = after;
    }
    crc
}

#[test]
fn gathered_and_scattered_bytes_arrive_and_only_those_that_count_are_digested() {
    let mut random = Random(14);
    for round in 0..ROUNDS {
        let total = random.below(20_000);
        let (data, cuts) = (random.bytes(total), cuts(&mut random, total));
        let crc = random.next() as u32;
        let want = expected(crc, &data, &cuts);
        for store in STORES {
            let (mut rest, mut list) = (&data[..], Vec::new());
            for &(len, counts) in &cuts {
                let bytes = rest.split_off(..len).expect("cuts add up");
                list.push(Segment { bytes, counts });
            }
            let mut dst = vec![0; total];
            assert_eq!(copy_crc32c_gather(crc, &mut dst, &list, store), Ok(want), "round {round}");
            assert_eq!(dst, data, "round {round}, gathered");

            let mut dst = vec![0; total];
            let (mut rest, mut list) = (&mut dst[..], Vec::new());
            for &(len, counts) in &cuts {
                let bytes = rest.split_off_mut(..len).expect("cuts add up");
                list.push(SegmentMut { bytes, counts });
            }
            assert_eq!(copy_crc32c_scatter(crc, &mut list, &data, store), Ok(want), "round {round}");
            assert_eq!(dst, data, "round {round}, scattered");
        }
    }
}

#[test]
fn lists_of_another_length_are_refused_before_a_byte_is_copied() {
    let list = [Segment { bytes: b"abc", counts: true }, Segment { bytes: b"de", counts: false }];
    for len in [0, 1, 4, 6, 100] {
        let mut dst = vec![0xaa; len];
        let refused = copy_crc32c_gather(0, &mut dst, &list, Store::Temporal).expect_err("another length");
        assert_eq!((refused.needed, refused.given), (5, len));
        assert!(dst.iter().all(|b| *b == 0xaa));

        let (mut a, mut b) = ([0xaa; 3], [0xaa; 2]);
        let mut list =
            [SegmentMut { bytes: &mut a, counts: true }, SegmentMut { bytes: &mut b, counts: false }];
        let refused = copy_crc32c_scatter(0, &mut list, &vec![1; len], Store::Temporal).expect_err("too");
        assert_eq!((refused.needed, refused.given), (len, 5));
        assert_eq!((a, b), ([0xaa; 3], [0xaa; 2]));
    }
}

#[test]
fn every_block_and_the_whole_are_digested() {
    let mut random = Random(15);
    for round in 0..ROUNDS {
        let total = random.below(30_000);
        let data = random.bytes(total);
        let usual = [512, 520, 4096, 4104];
        let block_bytes = if round % 2 == 0 { usual[random.below(4)] } else { 1 + random.below(5000) };
        let block = NonZeroUsize::new(block_bytes).expect("not zero");
        let start = random.next() as u32;
        let each: Vec<u32> = data.chunks(block_bytes).map(crc32c).collect();
        let whole = crc32c_append(start, &data);

        let mut crcs = vec![0; each.len()];
        assert_eq!(crc32c_blocks(start, &data, block, &mut crcs), Ok(whole), "{total} in {block}");
        assert_eq!(crcs, each, "{total} in {block}");
        for store in STORES {
            let (mut dst, mut crcs) = (vec![0; total], vec![0; each.len()]);
            let copied = copy_crc32c_blocks(start, &mut dst, &data, store, block, &mut crcs);
            assert_eq!(copied, Ok(whole), "{total} in {block}, {store:?}");
            assert_eq!((dst, crcs), (data.clone(), each.clone()), "{total} in {block}, {store:?}");
        }
    }
}

#[test]
fn a_list_of_block_digests_of_another_length_is_refused() {
    let block = NonZeroUsize::new(4096).expect("not zero");
    for (total, right) in [(0, 0), (1, 1), (4096, 1), (4097, 2), (8192, 2)] {
        let (data, mut dst) = (vec![1; total], vec![0xaa; total]);
        for wrong in (0..4).filter(|n| *n != right) {
            let mut crcs = vec![7; wrong];
            let refused = crc32c_blocks(0, &data, block, &mut crcs).expect_err("another length");
            assert_eq!((refused.needed, refused.given), (right, wrong));
            let copied = copy_crc32c_blocks(0, &mut dst, &data, Store::Temporal, block, &mut crcs);
            assert_eq!(copied, Err(refused));
            assert!(crcs.iter().all(|crc| *crc == 7) && dst.iter().all(|b| *b == 0xaa), "nothing written");
        }
        let mut crcs = vec![0; right];
        let mut short = vec![0; total + 1];
        let copied = copy_crc32c_blocks(0, &mut short, &data, Store::Temporal, block, &mut crcs);
        assert!(copied.is_err_and(|e| e.buffer == "destination"));
    }
}

/// Against the parts: the bytes, the CRC and the sum, and nothing beside `dst`.
fn check_summed(crc: u32, src: &[u8], dst: &mut Aligned, align: usize) {
    const CANARY: u8 = 0xc5;
    dst.bytes_mut().fill(CANARY);
    let range = align..align + src.len();
    let both = copy_crc32c_sum(crc, &mut dst.bytes_mut()[range.clone()], src);
    assert_eq!(both, Ok((crc32c_append(crc, src), ip_checksum(src))), "{} bytes to {align}", src.len());
    assert!(dst.bytes()[range.clone()] == *src, "{} bytes to {align}", src.len());
    let beside = dst.bytes()[..range.start].iter().chain(&dst.bytes()[range.end..]);
    assert!(beside.into_iter().all(|byte| *byte == CANARY), "{} bytes to {align}", src.len());
}

#[test]
fn a_copy_with_both_checksums_agrees_with_its_parts() {
    const MAX_LEN: usize = if cfg!(miri) { 200 } else { 1700 };
    let step = if cfg!(miri) { 37 } else { 1 };
    let mut random = Random(16);
    let data = Aligned::of(&random.bytes(MAX_LEN + ALIGNMENTS));
    let mut dst = Aligned::filled(MAX_LEN + 2 * ALIGNMENTS, 0);
    for len in (0..=MAX_LEN).step_by(step) {
        // Every alignment of the one with some of the other.
        for align in (0..ALIGNMENTS).step_by(step) {
            let crc = random.next() as u32;
            check_summed(crc, &data.bytes()[align..align + len], &mut dst, random.below(ALIGNMENTS));
            check_summed(crc, &data.bytes()[random.below(ALIGNMENTS)..][..len], &mut dst, align);
        }
    }
    // Around the blocks, and all ones, whose carries are the most.
    for len in [8191, 8192, 8193, 16_385, 65_535] {
        let mut dst = Aligned::filled(len + 7, 0);
        check_summed(3, &random.bytes(len), &mut dst, 3);
        check_summed(3, &vec![0xff; len], &mut dst, 4);
        check_summed(3, &vec![0; len], &mut dst, 5);
    }
}

#[test]
fn a_copy_with_both_checksums_to_another_length_is_refused() {
    let mut dst = [0xaa; 5];
    for len in [0, 4, 6] {
        let refused = copy_crc32c_sum(0, &mut dst, &vec![1; len]).expect_err("another length");
        assert_eq!((refused.buffer, refused.needed, refused.given), ("destination", len, 5));
        assert_eq!(dst, [0xaa; 5]);
    }
}
