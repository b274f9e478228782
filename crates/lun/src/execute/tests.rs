//! What reaches the medium, and what is read from it: a store whose cache and medium are two, and may differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;

use blockstore::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Placement,
    ProtectedStore, RamStore, RecordRun, Records, StoreError, not_atomic, read_then_crc32c,
};
use bytes::Bytes;
use engine::SlabRing;
use integrity::arena::CHUNK_BYTES;
use scsi::{DataOut, Nexus, PiField, Protection, Step};

use super::*;
use crate::NEVER;
use crate::testing::unit_on;

const BLOCK: u64 = 512;
const SIZE: u64 = 4 << 20;

/// Memory with a write-back cache before it.
struct Cached {
    cache: RamStore,
    medium: RamStore,
    flushes: AtomicU32,
    /// What goes to the medium arrives there wrong.
    spoils: AtomicBool,
    /// Set by the first write.
    written: AtomicBool,
    /// Length of the longest read, bytes.
    longest_read: AtomicU64,
}

impl Cached {
    fn new() -> Arc<Self> {
        let ram = || RamStore::new(SIZE, BLOCK as u32).unwrap();
        Arc::new(Self {
            cache: ram(),
            medium: ram(),
            flushes: AtomicU32::new(0),
            spoils: AtomicBool::new(false),
            written: AtomicBool::new(false),
            longest_read: AtomicU64::new(0),
        })
    }

    fn on_medium(&self, lba: u64, blocks: u64) -> Vec<u8> {
        let mut data = vec![0; (blocks * BLOCK) as usize];
        self.medium.read(lba * BLOCK, &mut data).unwrap();
        data
    }
}

impl BlockStore for Cached {
    fn geometry(&self) -> Geometry {
        self.cache.geometry()
    }
    fn placement(&self) -> Placement {
        Placement::Offload
    }
    fn description(&self) -> String {
        "cached".to_owned()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.longest_read.fetch_max(dst.len() as u64, Ordering::Relaxed);
        self.cache.read(offset, dst)
    }
    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        read_then_crc32c(self, offset, dst, crc)
    }
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        self.cache.write(offset, src, Durability::Cached)?;
        self.written.store(true, Ordering::Release);
        if durability == Durability::Durable {
            let mut data = src.concat();
            if self.spoils.load(Ordering::Relaxed) {
                data[0] ^= 1;
            }
            self.medium.write(offset, &[&data], Durability::Cached)?;
        }
        Ok(())
    }
    fn atomic_write_bytes_max(&self) -> u64 {
        0
    }
    fn write_atomic(
        &self,
        _offset: u64,
        _src: &[&[u8]],
        _records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        Err(not_atomic(self))
    }
    fn overwrites_in_place(&self) -> bool {
        true
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let mut all = vec![0; SIZE as usize];
        self.cache.read(0, &mut all)?;
        self.medium.write(0, &[&all], Durability::Cached)
    }
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.cache.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.cache.write_zeroes(offset, len, may_unmap)
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        self.cache.extents(offset, len, max)
    }
    fn resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(blockstore::fixed_size(self))
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        Ok(SIZE)
    }
    fn make_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn records(&self) -> Option<&Records> {
        None
    }
    fn label(&self) -> Option<&Arc<Label>> {
        None
    }
    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.longest_read.fetch_max(dst.len() as u64, Ordering::Relaxed);
        self.medium.read(offset, dst)
    }
    fn medium_reads(&self) -> MediumReads {
        MediumReads::Direct
    }
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        Ok(None)
    }
}

/// A unit with blocks of its own, and with protection information if that is asked for.
fn unit(protected: bool) -> (Unit, Arc<Cached>) {
    let cached = Cached::new();
    let store: Arc<dyn BlockStore> = match protected {
        false => Arc::clone(&cached) as _,
        true => {
            let side = RamStore::new(ProtectedStore::side_bytes(&cached.geometry()).unwrap(), 4096).unwrap();
            Arc::new(ProtectedStore::new(Arc::clone(&cached) as _, Arc::new(side), 1).unwrap())
        }
    };
    (unit_on(store), cached)
}

fn run(unit: &Unit, op: &MediumOp, data_out: &[u8]) -> Result<MediumReply, MediumError> {
    run_until(&NEVER, unit, op, data_out)
}

fn run_until(
    cancelled: &AtomicBool,
    unit: &Unit,
    op: &MediumOp,
    data_out: &[u8],
) -> Result<MediumReply, MediumError> {
    let slabs = SlabRing::new(64 << 10, 4);
    // In pieces that end nowhere near a block.
    let pieces: Vec<Bytes> = data_out.chunks(70_001).map(Bytes::copy_from_slice).collect();
    let with = Surroundings {
        slabs: &slabs,
        data_out: &pieces,
        read_length: u64::MAX,
        digest_chunk_bytes: None,
        protection: None,
        cancelled,
    };
    execute(unit, op, &with).0
}

fn pattern(blocks: u64, seed: usize) -> Vec<u8> {
    (0..(blocks * BLOCK) as usize).map(|at| (at / 7 + at / 1021 * 3 + seed) as u8 | 1).collect()
}

/// Zeros that were asked to be durable are on the medium as written data are.
// covers: MOD-03
#[test]
fn what_makes_zeros_is_as_durable_as_a_write() {
    for protected in [false, true] {
        let zeros = |unmap, durable| MediumOp::WriteSame { lba: 8, blocks: 4, unmap, zero: true, durable };
        let unmap = |durable| MediumOp::Unmap { ranges: vec![(8, 4)], durable };
        for make in [&unmap as &dyn Fn(bool) -> MediumOp, &|durable| zeros(true, durable), &|durable| {
            zeros(false, durable)
        }] {
            let (unit, cached) = unit(protected);
            let data = pattern(16, 1);
            run(&unit, &MediumOp::Write { lba: 0, blocks: 16, durable: true }, &data).unwrap();
            run(&unit, &make(false), &[]).unwrap();
            assert_eq!(cached.on_medium(0, 16), data, "cached, while WCE is 1");
            run(&unit, &make(true), &[]).unwrap();
            assert_eq!(cached.on_medium(8, 4), vec![0; 4 * BLOCK as usize], "{:?}", make(true));
            assert_eq!(cached.on_medium(12, 4), data[12 * BLOCK as usize..]);
        }
    }
}

// covers: MOD-03
#[test]
fn a_durable_write_takes_its_records_along() {
    let (data, side) = (Cached::new(), Cached::new());
    let store = ProtectedStore::new(Arc::clone(&data) as _, Arc::clone(&side) as _, 1).unwrap();
    store.flush().unwrap();
    let unit = unit_on(Arc::new(store));
    let blocks = SIZE / BLOCK;
    let all = |store: &RamStore| {
        let mut bytes = vec![0; SIZE as usize];
        store.read(0, &mut bytes).unwrap();
        bytes
    };
    let before = side.on_medium(0, blocks);
    run(&unit, &MediumOp::Write { lba: 8, blocks: 4, durable: false }, &pattern(4, 1)).unwrap();
    assert_eq!(data.on_medium(8, 4), vec![0; 4 * BLOCK as usize], "cached, while WCE is 1");
    assert_eq!(side.on_medium(0, blocks), before);
    let new = pattern(4, 2);
    run(&unit, &MediumOp::Write { lba: 8, blocks: 4, durable: true }, &new).unwrap();
    assert_eq!(data.on_medium(8, 4), new);
    assert_eq!(side.on_medium(0, blocks), all(&side.cache));
    assert_ne!(side.on_medium(0, blocks), before);
}

fn nexus() -> Nexus {
    Nexus::new("iqn.2025-01.org.example:host,i,0x00023d000001", 1, 1)
}

/// MODE SELECT(6) of the caching page; what the device server then asks of the medium.
fn set_write_cache(unit: &Unit, on: bool) -> Option<MediumOp> {
    let mut list = [0; 24];
    (list[4], list[5], list[6]) = (0x08, 0x12, if on { 4 } else { 0 });
    let mut execution = unit.scsi.begin(&nexus(), &[0x15, 0x10, 0, 0, 24, 0]);
    execution.data_out(&unit.scsi, &DataOut::new(&[&list]));
    match execution.step() {
        Step::Medium(op) => Some(op.clone()),
        Step::Done(outcome) => {
            assert_eq!(outcome.status, scsi::Status::Good, "{:?}", outcome.sense);
            None
        }
        Step::NeedDataOut { .. } => panic!("it had its data"),
    }
}

// covers: MOD-03
#[test]
fn a_write_cache_that_is_switched_off_is_empty_and_stays_so() {
    let (unit, cached) = unit(false);
    let data = pattern(8, 1);
    let write = MediumOp::Write { lba: 0, blocks: 8, durable: false };
    run(&unit, &write, &data).unwrap();
    assert_eq!(cached.on_medium(0, 8), vec![0; 8 * BLOCK as usize]);
    let asked = set_write_cache(&unit, false).expect("what is cached goes to the medium first");
    assert!(!unit.scsi.write_cache());
    run(&unit, &asked, &[]).unwrap();
    assert_eq!(cached.on_medium(0, 8), data);
    // A write that was taken up while WCE was 1, and is carried out now.
    let newer = pattern(8, 2);
    run(&unit, &write, &newer).unwrap();
    assert_eq!(cached.on_medium(0, 8), newer);

    assert_eq!(set_write_cache(&unit, false), None, "it was off");
    assert_eq!(set_write_cache(&unit, true), None);
    assert_eq!(cached.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn switching_the_write_cache_off_waits_for_writes_under_way() {
    let (unit, cached) = unit(false);
    let (begun, may_settle) = mpsc::channel();
    std::thread::scope(|scope| {
        let (unit, cached) = (&unit, &cached);
        scope.spawn(move || {
            let _held = unit.hold(5, 1, Access::Change);
            begun.send(()).unwrap();
            // The other one can only wait now; the write still goes to the cache alone.
            cached.write(5 * BLOCK, &[&pattern(1, 3)], Durability::Cached).unwrap();
        });
        may_settle.recv().unwrap();
        run(unit, &MediumOp::Settle, &[]).unwrap();
    });
    assert_eq!(cached.on_medium(5, 1), pattern(1, 3));
}

/// The medium has other data than the cache: whoever verifies has to see those.
#[test]
fn verification_reads_the_medium() {
    for protected in [false, true] {
        let (unit, cached) = unit(protected);
        let data = pattern(8, 1);
        let verify_data = MediumOp::Compare { lba: 0, blocks: 8, one_block: false };
        let verify = MediumOp::Verify { lba: 0, blocks: 8 };
        run(&unit, &MediumOp::Write { lba: 0, blocks: 8, durable: true }, &data).unwrap();
        assert_eq!(run(&unit, &verify_data, &data), Ok(MediumReply::Done));
        assert_eq!(run(&unit, &verify, &[]), Ok(MediumReply::Done));

        let mut rotten = data.clone();
        rotten[3 * BLOCK as usize + 5] ^= 0x40;
        cached.medium.write(0, &[&rotten], Durability::Cached).unwrap();
        let differs = run(&unit, &verify_data, &data);
        if protected {
            // Which block it is, the tuple beside it says.
            let wrong = MediumError::Protection { field: PiField::Guard, lba: 3 };
            assert_eq!((differs, run(&unit, &verify, &[])), (Err(wrong), Err(wrong)));
        } else {
            assert_eq!(differs, Ok(MediumReply::Miscompare { byte_offset: 3 * BLOCK + 5 }));
        }
        // What is only read is what was written.
        let caw = MediumOp::CompareAndWrite { lba: 3, blocks: 1, durable: false };
        let block = &data[3 * BLOCK as usize..4 * BLOCK as usize];
        assert_eq!(run(&unit, &caw, &[block, block].concat()), Ok(MediumReply::Done));
    }
}

#[test]
fn write_and_verify_finds_what_the_medium_made_of_it() {
    for protected in [false, true] {
        let (unit, cached) = unit(protected);
        let data = pattern(8, 1);
        let both = |bytchk| MediumOp::WriteAndVerify { lba: 0, blocks: 8, bytchk, durable: false };
        for bytchk in [false, true] {
            assert_eq!(run(&unit, &both(bytchk), &data), Ok(MediumReply::Done));
        }
        cached.spoils.store(true, Ordering::Relaxed);
        let found = run(&unit, &both(true), &data);
        if protected {
            let wrong = MediumError::Protection { field: PiField::Guard, lba: 0 };
            assert_eq!((found, run(&unit, &both(false), &data)), (Err(wrong), Err(wrong)));
        } else {
            assert_eq!(found, Ok(MediumReply::Miscompare { byte_offset: 0 }));
        }
    }
}

/// Every block says where it is, so that one from elsewhere is found, with the digest of each run and without.
#[test]
fn a_read_brings_the_blocks_of_its_place_and_their_digests() {
    for protected in [false, true] {
        let (unit, _) = unit(protected);
        let data = pattern(64, 1);
        run(&unit, &MediumOp::Write { lba: 0, blocks: 64, durable: false }, &data).unwrap();
        let slabs = SlabRing::new(64 << 10, 4);
        for digest_chunk_bytes in [None, Some(1000)] {
            let with = Surroundings {
                slabs: &slabs,
                data_out: &[],
                read_length: u64::MAX,
                digest_chunk_bytes,
                protection: None,
                cancelled: &NEVER,
            };
            let (reply, payload) = execute(&unit, &MediumOp::Read { lba: 9, blocks: 5 }, &with);
            assert_eq!(reply, Ok(MediumReply::Data));
            let expected = &data[9 * BLOCK as usize..14 * BLOCK as usize];
            assert!(payload.bytes == expected, "protected {protected}");
            let digests: Vec<u32> = match digest_chunk_bytes {
                None => Vec::new(),
                Some(run) => expected.chunks(run as usize).map(integrity::crc32c).collect(),
            };
            assert_eq!(payload.chunk_crcs.to_vec(), digests);
        }
    }
}

/// What was written before the memory ended is there, with its records, and what follows is as it was.
// covers: PI-15
#[test]
fn a_write_for_which_memory_ends_leaves_no_block_unreadable() {
    for sealed in [false, true] {
        // Memory for one chunk, of which the last blocks are written, and then blocks of the next one.
        let data = RamStore::new(SIZE, BLOCK as u32).unwrap().with_resident_limit(CHUNK_BYTES as u64);
        let side = RamStore::new(ProtectedStore::side_bytes(&data.geometry()).unwrap(), 4096).unwrap();
        let unit = unit_on(Arc::new(ProtectedStore::new(Arc::new(data), Arc::new(side), 1).unwrap()));
        let (lba, blocks) = (CHUNK_BYTES as u64 / BLOCK - 2, 8);
        let mut protection = Protection::internal(unit.scsi.protection(), lba).unwrap();
        protection.transferred = sealed;
        let plain = pattern(blocks, 1);
        let mut data_out = Vec::new();
        for (lba, block) in (lba..).zip(plain.chunks(BLOCK as usize)) {
            data_out.extend_from_slice(block);
            if sealed {
                data_out.extend_from_slice(&protection.made(lba, integrity::crc16_t10dif(block)).to_bytes());
            }
        }
        let slabs = SlabRing::new(64 << 10, 4);
        let pieces = [Bytes::from(data_out)];
        let mut with = Surroundings {
            slabs: &slabs,
            data_out: &pieces,
            read_length: u64::MAX,
            digest_chunk_bytes: None,
            protection: Some(protection),
            cancelled: &NEVER,
        };
        let (written, _) = execute(&unit, &MediumOp::Write { lba, blocks, durable: false }, &with);
        assert!(written.is_err(), "sealed {sealed}: {written:?}");
        (with.data_out, with.protection) = (&[], None);
        let (reply, payload) = execute(&unit, &MediumOp::Read { lba, blocks }, &with);
        assert_eq!(reply, Ok(MediumReply::Data), "sealed {sealed}");
        let (before, after) = payload.bytes.split_at(2 * BLOCK as usize);
        assert!(before == &plain[..before.len()] && after.iter().all(|byte| *byte == 0), "sealed {sealed}");
    }
}

#[test]
fn lba_status_has_a_descriptor_for_each_run_of_blocks_as_many_as_are_wanted() {
    const CHUNK: u64 = 64 << 10;
    let store = RamStore::new(8 * CHUNK, BLOCK as u32).unwrap();
    for chunk in [1, 4, 5] {
        store.write(chunk * CHUNK, &[&[7; 512]], Durability::Cached).unwrap();
    }
    let unit = unit_on(Arc::new(store));
    let status = |lba, max_descriptors| match run(&unit, &MediumOp::LbaStatus { lba, max_descriptors }, &[])
        .unwrap()
    {
        MediumReply::LbaStatus(list) => {
            let plain = |d: &scsi::LbaStatusDescriptor| {
                (d.lba, u64::from(d.blocks), d.provisioning == scsi::Provisioning::Mapped)
            };
            list.iter().map(plain).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let per_chunk = CHUNK / BLOCK;
    let all = [(0, 1, false), (1, 1, true), (2, 2, false), (4, 2, true), (6, 2, false)]
        .map(|(chunk, chunks, mapped)| (chunk * per_chunk, chunks * per_chunk, mapped));
    assert_eq!(status(0, 100), all);
    for most in 1..=5 {
        assert_eq!(status(0, most), all[..most as usize], "at most {most}");
    }
    assert_eq!(status(3, 2), [(3, per_chunk - 3, false), all[1]]);
}

/// Longer than what is combined at a time, so that each piece has to meet its own data.
#[test]
fn or_write_combines_every_piece_with_its_own_data() {
    let blocks = (PIECE_BYTES / BLOCK) * 2 + 3;
    for and in [false, true] {
        let (unit, cached) = unit(false);
        let (before, new) = (pattern(blocks, 1), pattern(blocks, 90));
        run(&unit, &MediumOp::Write { lba: 2, blocks, durable: true }, &before).unwrap();
        run(&unit, &MediumOp::OrWrite { lba: 2, blocks, and, durable: true }, &new).unwrap();
        let combine = |(a, b): (&u8, &u8)| if and { a & b } else { a | b };
        let expected: Vec<u8> = before.iter().zip(&new).map(combine).collect();
        assert!(cached.on_medium(2, blocks) == expected, "and {and}");
    }
}

/// Commands that look at the medium and are not reads: what they find first and what they take of memory for it.
#[test]
fn blocks_are_compared_and_combined_in_pieces_with_and_without_protection() {
    let blocks = (PIECE_BYTES / BLOCK) * 2 + 3;
    for protected in [false, true] {
        let (unit, cached) = unit(protected);
        let before = pattern(blocks, 1);
        run(&unit, &MediumOp::Write { lba: 2, blocks, durable: true }, &before).unwrap();
        let mut other = before.clone();
        let at = (2 * PIECE_BYTES + BLOCK + 7) as usize;
        other[at] ^= 0x40;
        let looks = [
            (MediumOp::Compare { lba: 2, blocks, one_block: false }, &before, &other),
            (MediumOp::WriteAndVerify { lba: 2, blocks, bytchk: true, durable: true }, &before, &before),
            (MediumOp::WriteAndVerify { lba: 2, blocks, bytchk: false, durable: true }, &before, &before),
            (MediumOp::Verify { lba: 2, blocks }, &before, &before),
        ];
        for (op, same, different) in looks {
            assert_eq!(run(&unit, &op, same), Ok(MediumReply::Done), "{op:?}");
            if different != same {
                let miscompare = MediumReply::Miscompare { byte_offset: at as u64 };
                assert_eq!(run(&unit, &op, different), Ok(miscompare), "{op:?}");
            }
        }
        let swap = MediumOp::CompareAndWrite { lba: 2, blocks, durable: true };
        let miscompare = MediumReply::Miscompare { byte_offset: at as u64 };
        assert_eq!(run(&unit, &swap, &[&other[..], &before[..]].concat()), Ok(miscompare));
        assert_eq!(run(&unit, &swap, &[&before[..], &other[..]].concat()), Ok(MediumReply::Done));
        run(&unit, &MediumOp::OrWrite { lba: 2, blocks, and: false, durable: true }, &before).unwrap();
        let combined: Vec<u8> = before.iter().zip(&other).map(|(a, b)| a | b).collect();
        assert!(cached.on_medium(2, blocks) == combined, "protected {protected}");
        assert!(cached.longest_read.load(Ordering::Relaxed) <= PIECE_BYTES, "protected {protected}");
    }
}

/// One block that is sent once and belongs to every block of a range, whose last piece is shorter than the others.
#[test]
fn a_repeated_block_is_written_and_compared_in_every_piece_with_and_without_protection() {
    let blocks = (PIECE_BYTES / BLOCK) * 2 + 3;
    for protected in [false, true] {
        let (unit, cached) = unit(protected);
        let (block, other) = (pattern(1, 1), pattern(1, 2));
        let same = MediumOp::WriteSame { lba: 2, blocks, unmap: false, zero: false, durable: true };
        let compare = MediumOp::Compare { lba: 2, blocks, one_block: true };
        run(&unit, &same, &block).unwrap();
        assert!(cached.on_medium(2, blocks) == block.repeat(blocks as usize), "protected {protected}");
        assert_eq!(cached.on_medium(2 + blocks, 1), vec![0; BLOCK as usize]);
        assert_eq!(run(&unit, &compare, &block), Ok(MediumReply::Done));
        assert_eq!(run(&unit, &compare, &other), Ok(MediumReply::Miscompare { byte_offset: 0 }));
        let differs = other.iter().zip(&block).position(|(a, b)| a != b).unwrap() as u64;
        run(&unit, &MediumOp::Write { lba: blocks, blocks: 1, durable: true }, &other).unwrap();
        let byte_offset = (blocks - 2) * BLOCK + differs;
        assert_eq!(run(&unit, &compare, &block), Ok(MediumReply::Miscompare { byte_offset }));
    }
}

/// The longest command: nobody may have to wait for its end who has aborted it.
#[test]
fn a_long_write_same_ends_soon_after_it_was_cancelled() {
    for protected in [false, true] {
        let (unit, cached) = unit(protected);
        let blocks = 3 * PIECE_BYTES / BLOCK;
        let block = pattern(1, 1);
        let ops = [
            MediumOp::WriteSame { lba: 0, blocks, unmap: false, zero: false, durable: false },
            MediumOp::Fill { lba: 0, blocks, pattern: Bytes::from(block.clone()), durable: false },
        ];
        for op in ops {
            cached.cache.unmap(0, SIZE).unwrap();
            cached.written.store(false, Ordering::Release);
            // It is cancelled while its first piece is written.
            run_until(&cached.written, &unit, &op, &block).unwrap();
            let mut after = vec![0; SIZE as usize];
            cached.read(0, &mut after).unwrap();
            let written = after.chunks(BLOCK as usize).filter(|found| **found == block[..]).count() as u64;
            assert_eq!(written, PIECE_BYTES / BLOCK, "{op:?}");
            run(&unit, &op, &block).unwrap();
            cached.read(0, &mut after).unwrap();
            let written = after.chunks(BLOCK as usize).filter(|found| **found == block[..]).count() as u64;
            assert_eq!(written, blocks, "{op:?}");
        }
    }
}

/// A read of memory that ran beside a decision may have seen half of it.
#[test]
fn a_look_during_which_a_decision_came_is_repeated() {
    let unit = unit_on(Arc::new(RamStore::new(SIZE, BLOCK as u32).unwrap()));
    let looks = AtomicU32::new(0);
    let mut decide_once = true;
    unit.look(0, 8, || {
        looks.fetch_add(1, Ordering::Relaxed);
        if std::mem::take(&mut decide_once) {
            drop(unit.hold(3, 1, Access::Decide));
        }
    });
    assert_eq!(looks.load(Ordering::Relaxed), 2);
    unit.look(0, 8, || looks.fetch_add(1, Ordering::Relaxed));
    assert_eq!(looks.load(Ordering::Relaxed), 3, "nobody decided meanwhile");
}
