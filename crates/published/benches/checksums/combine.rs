//! The digest of a concatenation from the digests of its parts.

use std::hint::black_box;

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use integrity::{CombineBy, crc32c, crc32c_combine, crc32c_combine_blocks};

use crate::contest::{Against, Role, Row, Tally};
use crate::{Scale, data};

const BLOCK_BYTES: usize = 4096;
const BY_BLOCK: CombineBy = CombineBy::new(BLOCK_BYTES as u64);

/// Runs all rows of this module.
pub fn rows(scale: &Scale, tally: &mut Tally) {
    let by = black_box(&BY_BLOCK);
    Row::latency("combine of 4 KiB blocks", scale.calls(64))
        .calls(Role::Ours, "CombineBy", |n| {
            Some((0..n as u32).fold(0, |sum, i| sum ^ by.combine(i, 7)).into())
        })
        .calls(Role::Ours, "crc32c_combine", |n| {
            let len = black_box(4096);
            Some((0..n as u32).fold(0, |sum, i| sum ^ crc32c_combine(i, 7, len)).into())
        })
        .bar(1.0, Against::Known(3.0))
        .run(scale.row, tally);
    Row::latency("combine of 4 KiB blocks, each needing the one before", scale.calls(64))
        .calls(Role::Ours, "CombineBy", |n| Some((0..n).fold(1, |crc, _| by.combine(crc, 7)).into()))
        .calls(Role::Ours, "crc32c_combine", |n| {
            Some((0..n).fold(1, |crc, _| crc32c_combine(crc, 7, black_box(4096))).into())
        })
        .bar(1.0, Against::Known(7.2))
        .run(scale.row, tally);

    let blocks = data(64 * BLOCK_BYTES);
    let crcs: Vec<u32> = blocks.chunks(BLOCK_BYTES).map(crc32c).collect();
    let fold = |combine: &dyn Fn(u32, u32) -> u32| Some(crcs.iter().fold(0, |a, b| combine(a, *b)).into());
    Row::latency("fold of 64 digests of 4 KiB blocks", scale.calls(4096))
        .one(Role::Ours, "crc32c_combine_blocks", || Some(crc32c_combine_blocks(0, &crcs, by).into()))
        .one(Role::Ours, "crc32c_combine", || fold(&|a, b| crc32c_combine(a, b, black_box(4096))))
        .one(Role::Peer, "crc-fast", || {
            fold(&|a, b| crc_fast::checksum_combine(Crc32Iscsi, a.into(), b.into(), 4096) as u32)
        })
        .one(Role::Peer, "crc32c crate", || fold(&|a, b| crc32c::crc32c_combine(a, b, BLOCK_BYTES)))
        .bar(1.0, Against::Known(200.0))
        .run(scale.row, tally);
}
