//! CRC32C of a header and of runs of bytes.

use std::hint::black_box;
use std::num::NonZeroUsize;

use integrity::{crc32c, crc32c_blocks, kernels};

use crate::contest::{Against, Role, Row, Tally};
use crate::{Scale, at_offset, data};

/// Length, and the best figure known from elsewhere, GB/s.
const LENGTHS: [(usize, Option<f64>); 13] = [
    (64, Some(14.9)),
    (128, Some(21.9)),
    (256, Some(42.8)),
    (512, None),
    (1500, None),
    (2048, None),
    (4096, Some(99.0)),
    (8192, None),
    (9000, None),
    (65_536, None),
    (262_144, None),
    (1 << 20, None),
    (8 << 20, None),
];

/// Makes `n` calls in which each header contains the digest of the previous one, at byte `AT`.
fn dependent<const AT: usize>(n: usize, digest: impl Fn(&[u8; 48]) -> u32) -> Option<u64> {
    let mut header = black_box([0x5a; 48]);
    for _ in 0..n {
        // Eight bytes, because a load of eight bytes after a store of four waits for the store to reach the cache.
        let link = u64::from(digest(&header));
        header[AT..AT + 8].copy_from_slice(&link.to_le_bytes());
    }
    Some(u64::from_le_bytes(*header[AT..].first_chunk().expect("eight bytes")))
}

fn header_rows(scale: &Scale, tally: &mut Tally) {
    fn row<const AT: usize>(name: &str, scale: &Scale) -> Row<'static> {
        Row::latency(name, scale.calls(48))
            .calls(Role::Ours, "crc32c_header", |n| dependent::<AT>(n, integrity::crc32c_header))
            .calls(Role::Ours, "crc32c", |n| dependent::<AT>(n, |h| crc32c(h)))
            .calls(Role::Peer, "crc-fast", |n| dependent::<AT>(n, |h| crc_fast::crc32_iscsi(h)))
            .calls(Role::Peer, "crc32c crate", |n| dependent::<AT>(n, |h| crc32c::crc32c(h)))
            .bar(1.0, Against::BestPeer)
            .bar(2.0, Against::Known(7.1))
    }
    row::<40>("48-byte header, digest of the one before in its last word", scale).run(scale.row, tally);
    row::<24>("48-byte header, digest of the one before in its fourth word", scale).run(scale.row, tally);
    row::<0>("48-byte header, digest of the one before in its first word", scale).run(scale.row, tally);
}

fn append_row(len: usize, known: Option<f64>, scale: &Scale, tally: &mut Tally) {
    let mut storage = data(len + 8192);
    let src: &[u8] = at_offset(&mut storage, 0, len);
    let table = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let mut row = Row::rate(format!("CRC32C of {len} B"), len, scale.calls(len))
        .one(Role::Ours, "integrity", || Some(crc32c(black_box(src)).into()))
        .one(Role::Peer, "crc-fast", || Some(crc_fast::crc32_iscsi(black_box(src)).into()))
        .one(Role::Peer, "crc32c crate", || Some(crc32c::crc32c(black_box(src)).into()))
        .one(Role::Limit, "read", || {
            black_box(published::read_only(black_box(src)));
            None
        });
    if len <= 4096 {
        row = row.one(Role::Peer, "crc crate", || Some(table.checksum(black_box(src)).into()));
    }
    for kernel in kernels::available().filter(|k| k.name() != integrity::kernel_name()).take(3) {
        row = row.one(Role::Ours, kernel.name(), || Some(kernel.append(0, black_box(src)).into()));
    }
    row = row.bar(if len <= 256 { 1.15 } else { 1.0 }, Against::BestPeer);
    if len == 4096 {
        row = row.bar(1.25, Against::Named("crc-fast"));
    }
    if let Some(known) = known {
        row = row.bar(if len <= 256 { 1.15 } else { 1.0 }, Against::Known(known));
    }
    row.run(scale.row, tally);
}

fn block_rows(scale: &Scale, tally: &mut Tally) {
    const BLOCK: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
    for len in [65_536, 262_144] {
        let data = data(len);
        let mut crcs = vec![0; len / BLOCK];
        let mut peers = crcs.clone();
        Row::rate(format!("CRC32C of {len} B and of each 4 KiB of it"), len, scale.calls(len))
            .one(Role::Ours, "crc32c_blocks", || {
                Some(crc32c_blocks(0, black_box(&data), BLOCK, &mut crcs).expect("a digest per block").into())
            })
            .one(Role::Peer, "crc-fast twice", || {
                for (crc, block) in peers.iter_mut().zip(data.chunks(BLOCK.get())) {
                    *crc = crc_fast::crc32_iscsi(block);
                }
                black_box(&mut peers);
                Some(crc_fast::crc32_iscsi(black_box(&data)).into())
            })
            .one(Role::Limit, "crc32c, the whole only", || Some(crc32c(black_box(&data)).into()))
            .bar(1.0, Against::BestPeer)
            .bar(0.9, Against::Named("crc32c, the whole only"))
            .run(scale.row, tally);
    }
}

/// Runs all rows of this module.
pub fn rows(scale: &Scale, tally: &mut Tally) {
    header_rows(scale, tally);
    for (len, known) in LENGTHS {
        append_row(len, known, scale, tally);
    }
    block_rows(scale, tally);
}
