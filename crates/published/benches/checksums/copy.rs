//! Copies that digest what they copy, compared with a copy followed by a digest, or by two.

use std::hint::black_box;

use integrity::{Store, copy_crc32c, copy_crc32c_sum, crc32c, ip_checksum, kernels};

use crate::contest::{Against, Role, Row, Tally};
use crate::{Scale, at_offset, data};

const LENGTHS: [usize; 12] =
    [512, 1500, 2048, 4096, 8192, 9000, 16_384, 65_536, 131_072, 262_144, 1 << 20, 4 << 20];
/// A single cold copy.
const COLD_LENGTHS: [usize; 3] = [65_536, 262_144, 1 << 20];

/// A plain copy that the compiler cannot remove.
pub fn memcpy(dst: &mut [u8], src: &[u8]) {
    dst.copy_from_slice(src);
    black_box(dst);
}

fn fused(dst: &mut [u8], src: &[u8], store: Store) -> u64 {
    copy_crc32c(0, dst, src, store).expect("equal lengths").into()
}

fn warm(len: usize, scale: &Scale, tally: &mut Tally) {
    let mut source = data(len + 8192);
    let mut destinations = [(); 3].map(|()| vec![0; len + 8192]);
    let src: &[u8] = at_offset(&mut source, 0, len);
    // The same offset for all, because the distance of the two addresses modulo 4096 affects every copy.
    let [a, b, c] = destinations.each_mut().map(|d| at_offset(d, 2112, len));
    let mut memory = vec![0; len + 8192];
    let plain = at_offset(&mut memory, 2112, len);
    let mut shared = vec![0; len + 8192];
    let shared = std::cell::RefCell::new(at_offset(&mut shared, 2112, len));
    let mut row = Row::rate(format!("copy + CRC32C of {len} B in cache"), len, scale.calls(len))
        .one(Role::Ours, "copy_crc32c", || Some(fused(black_box(a), black_box(src), Store::Temporal)))
        .one(Role::Peer, "memcpy, then crc-fast", || {
            memcpy(b, black_box(src));
            Some(crc_fast::crc32_iscsi(b).into())
        })
        .one(Role::Peer, "memcpy, then crc32c crate", || {
            memcpy(c, black_box(src));
            Some(crc32c::crc32c(c).into())
        })
        .one(Role::Limit, "memcpy", || {
            memcpy(plain, black_box(src));
            None
        });
    row = if len < 65_536 {
        row.bar(1.35, Against::BestPeer)
    } else {
        row.bar(1.0, Against::BestPeer).bar(1.0 / 1.05, Against::Named("memcpy"))
    };
    if len == 4096 {
        row = row.bar(1.35, Against::Known(74.0));
    }
    for kernel in kernels::available().filter(|k| k.name() != integrity::kernel_name()).take(3) {
        let copy = || kernel.copy(0, &mut shared.borrow_mut(), black_box(src), Store::Temporal);
        row = row.one(Role::Ours, kernel.name(), move || Some(copy().expect("equal lengths").into()));
    }
    row.run(if len < 1 << 20 { scale.row } else { scale.long_row }, tally);
}

/// Data of a TCP segment in an Ethernet frame, in a jumbo frame, and of a super-segment.
const SEGMENT_LENGTHS: [usize; 3] = [1440, 8960, 65_160];

/// The copy with both checksums of a TCP segment, compared with its parts.
fn summed(len: usize, scale: &Scale, tally: &mut Tally) {
    let mut source = data(len + 8192);
    let mut destinations = [(); 2].map(|()| vec![0; len + 8192]);
    let src: &[u8] = at_offset(&mut source, 0, len);
    let [a, b] = destinations.each_mut().map(|d| at_offset(d, 2112, len));
    let both = |crc: u32, sum: u16| Some(u64::from(crc) << 16 | u64::from(sum));
    Row::rate(format!("copy + CRC32C + IP checksum of {len} B in cache"), len, scale.calls(len))
        .one(Role::Ours, "copy_crc32c_sum", || {
            let (crc, sum) = copy_crc32c_sum(0, a, black_box(src)).expect("equal lengths");
            both(crc, sum)
        })
        .one(Role::Peer, "memcpy, crc32c, ip_checksum", || {
            memcpy(b, black_box(src));
            both(crc32c(b), ip_checksum(b))
        })
        .bar(1.0, Against::BestPeer)
        .run(scale.row, tally);
}

/// Walks through memory that is in no cache, the same stretch for every contender of a round.
pub struct Walk {
    /// Start of the next step, bytes from the beginning.
    pub at: usize,
}

impl Walk {
    /// The next `len` bytes of `extent`, from the beginning again if they do not fit.
    pub fn next(&mut self, len: usize, extent: usize) -> std::ops::Range<usize> {
        let start = if self.at + len > extent { 0 } else { self.at };
        self.at = start + len;
        start..start + len
    }
}

fn cold_name(len: usize) -> String {
    format!("copy + CRC32C of {len} B, cold")
}

fn cold(len: usize, source: &[u8], destination: &mut [u8], scale: &Scale, tally: &mut Tally) {
    let extent = destination.len();
    let calls = ((1 << 20) / len).max(1);
    let destination = std::cell::RefCell::new(destination);
    // Each contender continues where the previous one stopped, so nothing is warm for the next.
    let walk = std::cell::RefCell::new(Walk { at: 0 });
    let each = |n: usize, copy: &dyn Fn(&mut [u8], &[u8])| {
        for _ in 0..n {
            let range = walk.borrow_mut().next(len, extent);
            copy(&mut destination.borrow_mut()[range.clone()], &source[range]);
        }
        None
    };
    Row::rate(cold_name(len), len, calls)
        .calls(Role::Ours, "copy_crc32c, non-temporal", |n| {
            each(n, &|dst, src| {
                black_box(fused(dst, src, Store::NonTemporal));
            })
        })
        .calls(Role::Ours, "copy_crc32c, temporal", |n| {
            each(n, &|dst, src| {
                black_box(fused(dst, src, Store::Temporal));
            })
        })
        .calls(Role::Peer, "memcpy, then crc-fast", |n| {
            each(n, &|dst, src| {
                memcpy(dst, src);
                black_box(crc_fast::crc32_iscsi(dst));
            })
        })
        .calls(Role::Limit, "memcpy", |n| each(n, &memcpy))
        .bar(1.3, Against::Named("memcpy"))
        .bar(1.3, Against::Known(7.3))
        .run(scale.long_row, tally);
}

/// Runs all rows of this module.
pub fn rows(scale: &Scale, tally: &mut Tally) {
    for len in LENGTHS {
        warm(len, scale, tally);
    }
    for len in SEGMENT_LENGTHS {
        summed(len, scale, tally);
    }
    if COLD_LENGTHS.iter().any(|len| tally.wants(&cold_name(*len))) {
        // Written, not only reserved: pages never touched are all the same page.
        let source = vec![0x5a; scale.cold_bytes];
        let mut destination = vec![0xa5; scale.cold_bytes];
        for len in COLD_LENGTHS {
            cold(len, &source, &mut destination, scale, tally);
        }
    }
}
