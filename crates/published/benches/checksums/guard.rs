//! The T10 guard of sectors, alone and in one pass with copy and CRC32C, compared with the best peers run one after the
//! other.

use std::cell::RefCell;
use std::hint::black_box;

use crc_fast::CrcAlgorithm::Crc16T10Dif;
use integrity::t10::{self, Guard, Layout, Tuple, kernels};
use integrity::{Store, copy_crc32c_t10, crc16_t10dif, crc32c, crc64_nvme, insert_crc32c_t10, ip_checksum};

use crate::contest::{Against, Role, Row, Tally};
use crate::copy::{Walk, memcpy};
use crate::{Scale, at_offset, data};

/// A value by which the guards of two runs are compared.
fn sum(guards: &[u16]) -> u64 {
    guards.iter().fold(0, |sum, g| sum.rotate_left(5) ^ u64::from(*g))
}

fn peer_guard(sector: &[u8]) -> u16 {
    crc_fast::checksum(Crc16T10Dif, sector) as u16
}

/// Copies sectors and computes their guards.
type Pass = dyn Fn(&mut [u8], &[u8], &mut [u16]);

/// Guards of 16 KiB of sectors; `known` is the figure of ISA-L, GB/s.
fn guards_of(
    sector_bytes: usize,
    known: f64,
    against_known: f64,
    against_crc_fast: f64,
) -> impl Fn(&Scale, &mut Tally) {
    move |scale, tally| {
        const LEN: usize = 16_384;
        let layout = Layout::plain(sector_bytes);
        let mut storage = data(LEN + 8192);
        let src: &[u8] = at_offset(&mut storage, 0, LEN);
        let mut places = vec![vec![0; LEN / sector_bytes]; 8];
        let mut places = places.iter_mut();
        let mut each = |guard: &'static dyn Fn(&[u8]) -> u16| {
            let guards = places.next().expect("enough places");
            move || {
                for (sector, guard_of) in black_box(src).chunks_exact(sector_bytes).zip(guards.iter_mut()) {
                    *guard_of = guard(sector);
                }
                Some(sum(guards))
            }
        };
        let (by_call, by_peer) = (each(&crc16_t10dif), each(&peer_guard));
        let mut row = Row::rate(format!("T10 guard of each {sector_bytes} B"), LEN, scale.calls(LEN));
        let guards = places.next().expect("enough places");
        row = row.one(Role::Ours, "t10::guards", || {
            t10::guards(Guard::Crc16, black_box(src), layout, guards).expect("shape");
            Some(sum(guards))
        });
        row = row.one(Role::Ours, "crc16_t10dif", by_call).one(Role::Peer, "crc-fast", by_peer);
        for kernel in kernels::available().skip(1).take(3) {
            let guards = places.next().expect("enough places");
            row = row.one(Role::Ours, kernel.name(), move || {
                kernel.guards(Guard::Crc16, black_box(src), layout, guards).expect("shape");
                Some(sum(guards))
            });
        }
        row.bar(against_known, Against::Known(known))
            .bar(against_crc_fast, Against::Named("crc-fast"))
            .run(scale.row, tally);
    }
}

/// Copy, CRC32C and guards by the best peers: the CRC32C of the copy, then the guards.
fn composed(dst: &mut [u8], src: &[u8], guards: &mut [u16]) -> u64 {
    memcpy(dst, src);
    let crc = crc_fast::crc32_iscsi(dst);
    for (sector, guard) in dst.chunks_exact(512).zip(guards.iter_mut()) {
        *guard = peer_guard(sector);
    }
    u64::from(crc) ^ sum(guards) << 32
}

fn one_pass(dst: &mut [u8], src: &[u8], guards: &mut [u16], store: Store) -> u64 {
    let crc = copy_crc32c_t10(0, dst, src, Layout::plain(512), guards, store).expect("shape");
    u64::from(crc) ^ sum(guards) << 32
}

fn warm(len: usize, known: f64, factor: f64, scale: &Scale, tally: &mut Tally) {
    let mut source = data(len + 8192);
    let mut destinations = [(); 4].map(|()| vec![0; len + len / 64 + 8192]);
    let src: &[u8] = at_offset(&mut source, 0, len);
    let [a, b, c, d] = destinations.each_mut().map(|d| at_offset(d, 2112, len + len / 64));
    let (a, b, c) = (&mut a[..len], &mut b[..len], &mut c[..len]);
    let mut guards = [(); 2].map(|()| vec![0; len / 512]);
    let [ours, theirs] = guards.each_mut();
    let mut tuples = vec![Tuple::default(); len / 512];
    Row::rate(format!("copy + CRC32C + T10 of {len} B in cache"), len, scale.calls(len))
        .one(Role::Ours, "copy_crc32c_t10", || Some(one_pass(a, black_box(src), ours, Store::Temporal)))
        .one(Role::Peer, "memcpy, crc-fast twice", || Some(composed(b, black_box(src), theirs)))
        .one(Role::Limit, "memcpy", || {
            memcpy(c, black_box(src));
            None
        })
        .one(Role::Limit, "with tuples (insert)", || {
            insert_crc32c_t10(0, d, black_box(src), 512, &mut tuples, Store::Temporal).expect("shape");
            None
        })
        .bar(factor, Against::Known(known))
        .bar(factor, Against::BestPeer)
        .run(if len < 1 << 20 { scale.row } else { scale.long_row }, tally);
}

fn cold(scale: &Scale, tally: &mut Tally) {
    const NAME: &str = "copy + CRC32C + T10 of 1 MiB, cold";
    const LEN: usize = 1 << 20;
    if !tally.wants(NAME) {
        return;
    }
    // Written, not only reserved: pages never touched are all the same page.
    let source = vec![0x5a; scale.cold_bytes];
    let mut storage = vec![0xa5; scale.cold_bytes + 4096];
    let destination = RefCell::new(at_offset(&mut storage, 0, scale.cold_bytes));
    let walk = RefCell::new(Walk { at: 0 });
    let guards = RefCell::new(vec![0; LEN / 512]);
    let each = |n: usize, pass: &Pass| {
        for _ in 0..n {
            let range = walk.borrow_mut().next(LEN, scale.cold_bytes);
            pass(&mut destination.borrow_mut()[range.clone()], &source[range], &mut guards.borrow_mut());
        }
        None
    };
    Row::rate(NAME, LEN, 1)
        .calls(Role::Ours, "copy_crc32c_t10, non-temporal", |n| {
            each(n, &|dst, src, guards| {
                black_box(one_pass(dst, src, guards, Store::NonTemporal));
            })
        })
        .calls(Role::Ours, "copy_crc32c_t10, temporal", |n| {
            each(n, &|dst, src, guards| {
                black_box(one_pass(dst, src, guards, Store::Temporal));
            })
        })
        .calls(Role::Peer, "memcpy, crc-fast twice", |n| {
            each(n, &|dst, src, guards| {
                black_box(composed(dst, src, guards));
            })
        })
        .calls(Role::Limit, "memcpy", |n| each(n, &|dst, src, _| memcpy(dst, src)))
        .bar(1.6, Against::Known(5.2))
        .bar(1.6, Against::BestPeer)
        .run(scale.long_row, tally);
}

fn other_guards(scale: &Scale, tally: &mut Tally) {
    let mut storage = data(4096 + 8192);
    let src: &[u8] = at_offset(&mut storage, 0, 4096);
    Row::rate("IP checksum of 4096 B", src.len(), scale.calls(src.len()))
        .one(Role::Ours, "ip_checksum", || Some(ip_checksum(black_box(src)).into()))
        .run(scale.row, tally);
    for len in [48, 64, 100, 128, 256, 512, 4096, 65_536] {
        let mut storage = data(len + 8192);
        let src: &[u8] = at_offset(&mut storage, 0, len);
        Row::rate(format!("CRC64-NVMe of {len} B"), len, scale.calls(len))
            .one(Role::Ours, "crc64_nvme", || Some(crc64_nvme(black_box(src))))
            .one(Role::Peer, "crc-fast", || {
                Some(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, black_box(src)))
            })
            .bar(1.0, Against::BestPeer)
            .run(scale.row, tally);
    }
}

fn short(len: usize, scale: &Scale, tally: &mut Tally) {
    let mut storage = data(len + 8192);
    let src: &[u8] = at_offset(&mut storage, 0, len);
    let mut row = Row::rate(format!("T10 guard of {len} B"), len, scale.calls(len))
        .one(Role::Ours, "crc16_t10dif", || Some(crc16_t10dif(black_box(src)).into()))
        .one(Role::Peer, "crc-fast", || Some(peer_guard(black_box(src)).into()));
    for kernel in kernels::available().skip(1).take(2) {
        row = row.one(Role::Ours, kernel.name(), || Some(kernel.append(0, black_box(src)).into()));
    }
    row.bar(1.0, Against::BestPeer).run(scale.row, tally);
}

/// The passes by our own functions, one after the other.
fn three_passes(dst: &mut [u8], src: &[u8], guards: &mut [u16]) -> u64 {
    memcpy(dst, src);
    let crc = crc32c(dst);
    for (sector, guard) in dst.chunks_exact(512).zip(guards.iter_mut()) {
        *guard = crc16_t10dif(sector);
    }
    u64::from(crc) ^ sum(guards) << 32
}

/// One pass against three, in the case where the single pass gains least.
fn few_sectors(len: usize, scale: &Scale, tally: &mut Tally) {
    let mut source = data(len + 8192);
    let src: &[u8] = at_offset(&mut source, 0, len);
    let mut destinations = [(); 2].map(|()| vec![0; len + 8192]);
    let [a, b] = destinations.each_mut().map(|d| at_offset(d, 2112, len));
    let (mut ours, mut theirs) = (vec![0; len / 512], vec![0; len / 512]);
    Row::rate(format!("few sectors: copy + CRC32C + T10 of {len} B"), len, scale.calls(len))
        .one(Role::Ours, "copy_crc32c_t10", || Some(one_pass(a, black_box(src), &mut ours, Store::Temporal)))
        .one(Role::Limit, "memcpy, crc32c, crc16_t10dif", || {
            Some(three_passes(b, black_box(src), &mut theirs))
        })
        .bar(0.95, Against::Named("memcpy, crc32c, crc16_t10dif"))
        .run(scale.row, tally);
}

/// Runs all rows of this module.
pub fn rows(scale: &Scale, tally: &mut Tally) {
    guards_of(512, 45.0, 1.5, 4.0)(scale, tally);
    guards_of(4096, 67.0, 1.25, 2.0)(scale, tally);
    for len in [48, 64, 100, 128] {
        short(len, scale, tally);
    }
    for len in [512, 1024, 2048] {
        few_sectors(len, scale, tally);
    }
    warm(4096, 28.0, 1.5, scale, tally);
    warm(65_536, 18.0, 1.8, scale, tally);
    warm(1 << 20, 16.0, 1.5, scale, tally);
    cold(scale, tally);
    other_guards(scale, tally);
}
