//! The kernel for machines without an instruction for CRC32C, and the gain from interleaving it with the copy: Figure
//! 16 of the 2005 paper (Joglekar, Kounavis, Berry) has 32 % fewer cycles than a copy followed by Slicing-by-8.

use std::cell::RefCell;
use std::hint::black_box;

use integrity::Store;
use integrity::kernels::{self, Kernel};
use published::Algorithm;

use crate::contest::{Against, Role, Row, Tally};
use crate::copy::{Walk, memcpy};
use crate::{Scale, at_offset, data};

/// A header, a small run, a run of the paper, a large one.
const LENGTHS: [usize; 4] = [48, 512, 8192, 65_536];
/// A single copy into memory that is in no cache.
const COLD_LENGTHS: [usize; 2] = [8192, 65_536];
/// 32 % fewer cycles, as a ratio of speeds.
const FIGURE_16: f64 = 1.0 / (1.0 - 0.32);

const PAPERS: &str = "slicing-8 of the papers";
const PAPERS_AFTER_COPY: &str = "memcpy, then the papers'";
const SAME_AFTER_COPY: &str = "memcpy, then the same kernel";

static ORACLE: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

fn kernel() -> &'static Kernel {
    kernels::all().iter().find(|kernel| kernel.name() == "slicing-8").expect("it is compiled everywhere")
}

fn papers() -> &'static Algorithm {
    published::find("crc32c-slicing-8").expect("the papers have it")
}

fn digest(len: usize, scale: &Scale, tally: &mut Tally) {
    let mut source = data(len + 8192);
    let run: &[u8] = at_offset(&mut source, 0, len);
    Row::rate(format!("scalar CRC32C of {len} B"), len, scale.calls(len))
        .one(Role::Ours, "slicing-8, braided", || Some(kernel().append(0, black_box(run)).into()))
        .one(Role::Peer, PAPERS, || Some(papers().checksum(black_box(run))))
        .one(Role::Peer, "crc crate, 16 tables", || Some(ORACLE.checksum(black_box(run)).into()))
        .bar(1.0, Against::BestPeer)
        .run(scale.row, tally);
}

fn warm(len: usize, scale: &Scale, tally: &mut Tally) {
    let mut source = data(len + 8192);
    let run: &[u8] = at_offset(&mut source, 0, len);
    let mut destinations = [(); 4].map(|()| vec![0; len + 8192]);
    let [a, b, c, d] = destinations.each_mut().map(|storage| at_offset(storage, 2112, len));
    Row::rate(format!("scalar copy + CRC32C of {len} B in cache"), len, scale.calls(len))
        .one(Role::Ours, "interleaved", || {
            kernel().copy(0, black_box(a), black_box(run), Store::Temporal).ok().map(u64::from)
        })
        .one(Role::Peer, SAME_AFTER_COPY, || {
            memcpy(b, black_box(run));
            Some(kernel().append(0, b).into())
        })
        .one(Role::Peer, PAPERS_AFTER_COPY, || {
            memcpy(c, black_box(run));
            Some(papers().checksum(c))
        })
        .one(Role::Limit, "memcpy", || {
            memcpy(d, black_box(run));
            None
        })
        .bar(FIGURE_16, Against::Named(PAPERS_AFTER_COPY))
        .run(scale.row, tally);
}

fn cold_name(len: usize) -> String {
    format!("scalar copy + CRC32C of {len} B, cold")
}

fn cold(len: usize, source: &[u8], destination: &mut [u8], scale: &Scale, tally: &mut Tally) {
    let extent = destination.len();
    let destination = RefCell::new(destination);
    let walk = RefCell::new(Walk { at: 0 });
    let each = |n: usize, copy: &dyn Fn(&mut [u8], &[u8])| {
        for _ in 0..n {
            let range = walk.borrow_mut().next(len, extent);
            copy(&mut destination.borrow_mut()[range.clone()], &source[range]);
        }
        None
    };
    Row::rate(cold_name(len), len, ((1 << 20) / len).max(1))
        .calls(Role::Ours, "interleaved", |n| {
            each(n, &|dst, src| {
                black_box(kernel().copy(0, dst, src, Store::Temporal)).ok();
            })
        })
        .calls(Role::Peer, SAME_AFTER_COPY, |n| {
            each(n, &|dst, src| {
                memcpy(dst, src);
                black_box(kernel().append(0, dst));
            })
        })
        .calls(Role::Peer, PAPERS_AFTER_COPY, |n| {
            each(n, &|dst, src| {
                memcpy(dst, src);
                black_box(papers().checksum(dst));
            })
        })
        .calls(Role::Limit, "memcpy", |n| each(n, &memcpy))
        .bar(FIGURE_16, Against::Named(PAPERS_AFTER_COPY))
        .run(scale.long_row, tally);
}

/// Runs all rows of this module.
pub fn rows(scale: &Scale, tally: &mut Tally) {
    for len in LENGTHS {
        digest(len, scale, tally);
    }
    for len in &LENGTHS[1..] {
        warm(*len, scale, tally);
    }
    if COLD_LENGTHS.iter().any(|len| tally.wants(&cold_name(*len))) {
        let source = vec![0x5a; scale.cold_bytes];
        let mut destination = vec![0xa5; scale.cold_bytes];
        for len in COLD_LENGTHS {
            cold(len, &source, &mut destination, scale, tally);
        }
    }
}
