//! Properties specific to the volume in memory.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use blockstore::{BlockStore, Durability, Extent, InPlace, Placement, RamStore, StoreError};

const CHUNK: u64 = 65536;
const TIB: u64 = 1 << 40;

#[test]
fn a_hundred_tebibytes_cost_what_was_written() {
    let size = 100 * TIB;
    let store = RamStore::new(size, 4096).unwrap();
    assert_eq!(store.resident_bytes(), 0);
    for offset in [0, 50 * TIB + 12 * 4096, size - 4096] {
        store.write(offset, &[&[7; 4096]], Durability::Cached).unwrap();
    }
    assert_eq!(store.resident_bytes(), 3 * CHUNK);
    let mut dst = [0; 8192];
    store.read(size - 8192, &mut dst).unwrap();
    assert_eq!((dst[..4096].to_vec(), dst[4096..].to_vec()), (vec![0; 4096], vec![7; 4096]));

    let extents = store.extents(0, size, 8).unwrap();
    assert_eq!(extents[0], Extent { offset: 0, len: CHUNK, mapped: true });
    assert_eq!(extents[1], Extent { offset: CHUNK, len: 50 * TIB - CHUNK, mapped: false });
    assert_eq!(extents[2], Extent { offset: 50 * TIB, len: CHUNK, mapped: true });
    assert_eq!(extents[4], Extent { offset: size - CHUNK, len: CHUNK, mapped: true });
    assert_eq!(extents.len(), 5);

    store.unmap(0, size).unwrap();
    assert_eq!(store.resident_bytes(), 0);
    assert_eq!(store.extents(0, size, 8).unwrap(), [Extent { offset: 0, len: size, mapped: false }]);
}

#[test]
fn unmap_frees_whole_chunks_and_zeroes_the_edges() {
    let store = RamStore::new(8 * CHUNK, 512).unwrap();
    store.write(0, &[&[9; 8 * CHUNK as usize]], Durability::Cached).unwrap();
    store.unmap(512, 3 * CHUNK).unwrap(); // chunks 1 and 2 whole
    assert_eq!(store.resident_bytes(), 6 * CHUNK);
    let mut dst = vec![0; 4 * CHUNK as usize];
    store.read(0, &mut dst).unwrap();
    let holds = |byte, range: std::ops::Range<u64>| {
        dst[range.start as usize..range.end as usize].iter().all(|&b| b == byte)
    };
    assert!(holds(9, 0..512) && holds(0, 512..3 * CHUNK + 512) && holds(9, 3 * CHUNK + 512..4 * CHUNK));

    store.write_zeroes(4 * CHUNK, CHUNK, false).unwrap();
    assert_eq!(store.resident_bytes(), 6 * CHUNK, "zeroing without may_unmap keeps the memory");
    store.write_zeroes(4 * CHUNK, CHUNK, true).unwrap();
    assert_eq!(store.resident_bytes(), 5 * CHUNK);
}

#[test]
fn a_memory_limit_is_no_space_until_unmapped() {
    let store = RamStore::new(TIB, 512).unwrap().with_resident_limit(2 * CHUNK);
    store.write(0, &[&[1; 512]], Durability::Cached).unwrap();
    store.write(CHUNK, &[&[1; 512]], Durability::Cached).unwrap();
    let full = store.write(5 * CHUNK, &[&[1; 512]], Durability::Cached);
    assert!(matches!(full, Err(StoreError::NoSpace)));
    assert_eq!(store.resident_bytes(), 2 * CHUNK);
    store.write(1024, &[&[1; 512]], Durability::Cached).unwrap();
    store.unmap(0, CHUNK).unwrap();
    store.write(5 * CHUNK, &[&[1; 512]], Durability::Cached).unwrap();
}

#[test]
fn extents_stop_after_a_bounded_scan() {
    // One chunk in every GiB: the whole table must be scanned, and the limit of the scan, not of the list,
    // ends it.
    let store = RamStore::new(8 << 30, 512).unwrap();
    for gib in 0..8u64 {
        store.write(gib << 30, &[&[1; 512]], Durability::Cached).unwrap();
    }
    let extents = store.extents(0, 8 << 30, usize::MAX).unwrap();
    let covered: u64 = extents.iter().map(|extent| extent.len).sum();
    assert_eq!(covered, 4 << 30);
    assert_eq!(store.extents(0, 8 << 30, 0).unwrap().len(), 1);
}

#[test]
fn sizes_and_blocks_that_make_no_sense_are_refused_with_a_remedy() {
    for (size, block, hint) in [
        (1000, 512, "1024"),
        (0, 512, "at least"),
        (4096, 0, "power of two"),
        (4096, 256, "power of two"),
        (4096, 513, "power of two"),
        (1 << 20, 131_072, "power of two"),
        ((1 << 50) + 512, 512, "1024T"),
        (u64::MAX, 512, "smaller blocks"),
    ] {
        let error = RamStore::new(size, block).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(hint), "{size}/{block}: {error}");
    }
    let largest = RamStore::new(1 << 50, 512).unwrap();
    largest.write((1 << 50) - 512, &[&[1; 512]], Durability::Cached).unwrap();
}

#[test]
fn ranges_that_wrap_or_leave_the_store_are_refused() {
    let store = RamStore::new(CHUNK, 512).unwrap();
    let mut dst = [0xEE; 512];
    for offset in [CHUNK, CHUNK - 511, u64::MAX, u64::MAX - 511] {
        assert!(matches!(store.read(offset, &mut dst), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.read_crc32c(offset, &mut dst, 0), Err(StoreError::OutOfRange { .. })));
        let write = store.write(offset, &[&[1; 512]], Durability::Cached);
        assert!(matches!(write, Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.unmap(offset, 512), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.write_zeroes(offset, 512, true), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.extents(offset, 512, 1), Err(StoreError::OutOfRange { .. })));
    }
    assert!(matches!(store.unmap(1, u64::MAX), Err(StoreError::OutOfRange { .. })));
    assert_eq!(dst, [0xEE; 512]);
    assert_eq!(store.resident_bytes(), 0);
    store.read(CHUNK, &mut []).unwrap();
    assert_eq!(store.placement(), Placement::Inline);
}

/// Two writers overwrite each other with different patterns. A reader must never see a logical block that is
/// half of one and half of the other, nor a digest of bytes other than those it got.
#[test]
fn a_block_read_beside_writers_is_whole() {
    const BLOCK: usize = 4096;
    const SPAN: usize = 3 * CHUNK as usize;
    let start = CHUNK - BLOCK as u64; // crosses chunks
    let store = RamStore::new(8 * CHUNK, BLOCK as u32).unwrap();
    let done = AtomicBool::new(false);
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for byte in [0x11u8, 0x22] {
            let (store, barrier, done) = (&store, &barrier, &done);
            scope.spawn(move || {
                let data = vec![byte; SPAN];
                barrier.wait();
                while !done.load(Ordering::Relaxed) {
                    // Slices of odd length: the copy of one block takes several steps.
                    let slices: Vec<&[u8]> = data.chunks(1000).collect();
                    store.write(start, &slices, Durability::Cached).unwrap();
                }
            });
        }
        scope.spawn(|| {
            barrier.wait();
            while !done.load(Ordering::Relaxed) {
                store.unmap(start, SPAN as u64).unwrap();
            }
        });
        barrier.wait();
        let mut dst = vec![0; SPAN];
        let mut torn = 0;
        for _ in 0..2000 {
            let crc = store.read_crc32c(start, &mut dst, 0).unwrap();
            torn += dst.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != block[0])).count();
            torn += usize::from(crc != integrity::crc32c_append(0, &dst));
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(torn, 0);
    });
    store.unmap(0, 8 * CHUNK).unwrap();
    assert_eq!(store.resident_bytes(), 0, "the count survived the race of writers and unmap");
}

#[test]
fn an_atomic_write_that_finds_no_memory_leaves_nothing() {
    let store = RamStore::new(TIB, 512).unwrap().with_resident_limit(3 * CHUNK);
    store.write(CHUNK, &[&[1; 512]], Durability::Cached).unwrap();
    // Chunks 0 to 2, of which 1 exists.
    let long = vec![2; 2 * CHUNK as usize + 512];
    store.write_atomic(0, &[&long[..700], &long[700..]], None, Durability::Durable).unwrap();
    let mut seen = vec![0; long.len() + 512];
    store.read(0, &mut seen).unwrap();
    assert!(seen[..long.len()] == long && seen[long.len()..] == [0; 512]);
    // Chunks 2 to 4: there is no memory for 3 and 4.
    store.unmap(0, CHUNK).unwrap();
    let full = store.write_atomic(2 * CHUNK + 512, &[&[3; 2 * CHUNK as usize]], None, Durability::Cached);
    assert!(matches!(full, Err(StoreError::NoSpace)));
    assert_eq!(store.resident_bytes(), 2 * CHUNK);
    store.read(2 * CHUNK, &mut seen[..1024]).unwrap();
    assert!(seen[..512] == [2; 512] && seen[512..1024] == [0; 512]);

    let max = store.atomic_write_bytes_max() as usize;
    let longer = store.write_atomic(0, &[&vec![1; max + 512]], None, Durability::Cached);
    assert!(matches!(longer, Err(StoreError::Unusable(why)) if why.contains("write less")));
    let beyond = store.write_atomic(TIB - 512, &[&[1; 1024]], None, Durability::Cached);
    assert!(matches!(beyond, Err(StoreError::OutOfRange { .. })));
}

#[test]
fn what_is_shown_and_filled_in_place_is_what_is_read_and_written() {
    let store = RamStore::new(8 * CHUNK, 512).unwrap().with_resident_limit(3 * CHUNK);
    let (offset, len) = (CHUNK - 1024, CHUNK + 2048);
    let data: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
    let (mut done, mut cuts) = (0, Vec::new());
    let filled = store.write_in_place(offset, len, &mut |to| {
        to.copy_from_slice(&data[done..done + to.len()]);
        (done, cuts) = (done + to.len(), [&cuts[..], &[to.len()]].concat());
    });
    filled.unwrap();
    assert_eq!(cuts, [1024, CHUNK as usize, 1024], "cut where chunks end");
    let mut read = vec![0; len as usize];
    store.read(offset, &mut read).unwrap();
    assert_eq!(read, data);

    // From before the data, which was never written, to beyond it.
    let mut shown = Vec::new();
    store.read_in_place(0, 4 * CHUNK, &mut |piece| shown.extend_from_slice(piece)).unwrap();
    let (begin, end) = (offset as usize, (offset + len) as usize);
    assert_eq!((shown.len(), &shown[begin..end]), (4 * CHUNK as usize, &data[..]));
    assert!(shown[..begin].iter().chain(&shown[end..]).all(|&byte| byte == 0));
    assert_eq!(store.resident_bytes(), 3 * CHUNK, "looking takes no memory");

    let full = store.write_in_place(4 * CHUNK, 512, &mut |_| panic!("there is no memory for it"));
    assert!(matches!(full, Err(StoreError::NoSpace)));
    let outside = store.write_in_place(8 * CHUNK - 512, 1024, &mut |_| panic!("it is outside"));
    assert!(matches!(outside, Err(StoreError::OutOfRange { .. })));
    let outside = store.read_in_place(u64::MAX, 2, &mut |_| panic!("it is outside"));
    assert!(matches!(outside, Err(StoreError::OutOfRange { .. })));
}

#[test]
fn fetching_early_changes_nothing_and_asks_for_nothing_that_is_not_there() {
    let store = RamStore::new(8 * CHUNK, 512).unwrap();
    store.write(CHUNK, &[&[7; 512]], Durability::Cached).unwrap();
    let lines = |offset, len| store.prefetch(offset, len).lines();
    assert_eq!(
        (lines(CHUNK, 4096), lines(2 * CHUNK - 512, 4096)),
        (64, 8),
        "to the end of what lies side by side"
    );
    for (offset, len) in [(0, 4096), (2 * CHUNK, 4096), (8 * CHUNK, 512), (u64::MAX, 4096), (CHUNK, 0)] {
        assert_eq!(lines(offset, len), 0, "{offset} {len}");
    }
    assert_eq!(store.resident_bytes(), CHUNK);
    // It does not wait for a chunk that is being written.
    store.write_in_place(CHUNK, 512, &mut |_| assert_eq!(store.prefetch(CHUNK, 512).lines(), 0)).unwrap();
}

#[test]
fn a_chunk_that_was_unmapped_holds_nothing_of_what_was_there() {
    let store = RamStore::new(64 * CHUNK, 512).unwrap();
    let secret = vec![0xee; CHUNK as usize];
    (0..64).for_each(|n| store.write(n * CHUNK, &[&secret], Durability::Cached).unwrap());
    // Some whole and one in part, in one call.
    store.unmap(CHUNK, 40 * CHUNK + 512).unwrap();
    assert_eq!(store.resident_bytes(), 24 * CHUNK);
    let mut seen = vec![1; CHUNK as usize];
    for n in 1..41 {
        store.write(n * CHUNK + 512, &[&[7; 512]], Durability::Cached).unwrap();
        store.read(n * CHUNK, &mut seen).unwrap();
        let others = seen[..512].iter().chain(&seen[1024..]);
        assert!(
            others.copied().all(|byte| byte == 0) && seen[512..1024].iter().all(|byte| *byte == 7),
            "{n}"
        );
    }
    store.read(41 * CHUNK, &mut seen).unwrap();
    assert!(seen[..512].iter().all(|byte| *byte == 0) && seen[512..].iter().all(|byte| *byte == 0xee));
    store.read(0, &mut seen).unwrap();
    assert!(seen == secret);
}
