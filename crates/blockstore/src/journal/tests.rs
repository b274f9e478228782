//! All or nothing, whenever the power goes or the process dies, and in whatever way something fails.

use std::sync::atomic::AtomicUsize;

use integrity::t10::Tuple;

use super::*;
use crate::{
    Fault, FaultError, FaultRule, FaultStore, FileOptions, ProtectedStore, RamStore, Record, StoreSpec,
};

const SECTOR: usize = 512;
const BLOCKS: usize = 48;
const ME: Identity = [1; 16];
const MAX: u64 = 8 * SECTOR as u64;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}

/// A power supply, which ends in the middle of a call.
struct Power {
    calls_left: Mutex<Option<usize>>,
    random: Mutex<Random>,
}

/// A disk that loses power: sectors of what was not flushed are there afterwards, or not.
struct Medium {
    now: Vec<u8>,
    stable: Vec<u8>,
    /// Sectors that were written since the last flush, with what they held after each write.
    loose: Vec<(usize, [u8; SECTOR])>,
}

#[derive(Clone)]
struct Disk {
    medium: Arc<Mutex<Medium>>,
    power: Arc<Power>,
    /// Even of a sector only a part may be written.
    fragile: bool,
}

impl Disk {
    fn new(bytes: usize, power: &Arc<Power>, fragile: bool) -> Self {
        let medium = Medium { now: vec![0; bytes], stable: vec![0; bytes], loose: Vec::new() };
        Disk { medium: Arc::new(Mutex::new(medium)), power: Arc::clone(power), fragile }
    }

    fn on(&self) -> Result<bool, StoreError> {
        let mut left = self.power.calls_left.lock();
        match &mut *left {
            Some(0) => Err(StoreError::Gone("the power".into())),
            Some(left) => {
                *left -= 1;
                Ok(*left > 0)
            }
            None => Ok(true),
        }
    }

    /// The power comes back; `lost`: it was lost, and not only the process.
    fn restart(&self, lost: bool) {
        let medium = &mut *self.medium.lock();
        for (sector, bytes) in medium.loose.drain(..) {
            if !lost || self.power.random.lock().below(2) == 0 {
                medium.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
        }
        medium.now = medium.stable.clone();
    }

    fn put(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<(), StoreError> {
        let whole = self.on()?;
        let medium = &mut *self.medium.lock();
        let first = offset as usize / SECTOR;
        let last = (offset as usize + bytes.len()).div_ceil(SECTOR);
        let mut after = medium.now[first * SECTOR..last * SECTOR].to_vec();
        after[offset as usize - first * SECTOR..][..bytes.len()].copy_from_slice(bytes);
        for (sector, bytes) in (first..).zip(after.chunks_exact(SECTOR)) {
            // In the call in which the power goes, any of them.
            let outcome = if whole { 4 } else { self.power.random.lock().below(5) };
            let written = match outcome {
                0 => continue,
                1 if self.fragile => 20,
                2 if self.fragile => 42,
                _ => SECTOR,
            };
            let mut kept = [0; SECTOR];
            kept.copy_from_slice(&medium.now[sector * SECTOR..][..SECTOR]);
            kept[..written].copy_from_slice(&bytes[..written]);
            medium.now[sector * SECTOR..][..SECTOR].copy_from_slice(&kept);
            medium.loose.push((sector, kept));
            if whole && durability == Durability::Durable {
                medium.stable[sector * SECTOR..][..SECTOR].copy_from_slice(bytes);
                medium.loose.retain(|(other, _)| *other != sector);
            }
        }
        if whole { Ok(()) } else { Err(StoreError::Gone("the power".into())) }
    }
}

impl BlockStore for Disk {
    fn geometry(&self) -> Geometry {
        RamStore::new(self.medium.lock().now.len() as u64, 512).unwrap().geometry()
    }
    fn placement(&self) -> Placement {
        Placement::Offload
    }
    fn description(&self) -> String {
        "a disk".to_owned()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.geometry().check_range(offset, dst.len() as u64)?;
        dst.copy_from_slice(&self.medium.lock().now[offset as usize..][..dst.len()]);
        Ok(())
    }
    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        read_then_crc32c(self, offset, dst, crc)
    }
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        self.put(offset, &src.concat(), durability)
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
        false
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }
    fn flush(&self) -> Result<(), StoreError> {
        let whole = self.on()?;
        let medium = &mut *self.medium.lock();
        for (sector, bytes) in medium.loose.drain(..) {
            if whole || self.power.random.lock().below(2) == 0 {
                medium.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
        }
        if whole { Ok(()) } else { Err(StoreError::Gone("the power".into())) }
    }
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.put(offset, &vec![0; len as usize], Durability::Cached)
    }
    fn write_zeroes(&self, offset: u64, len: u64, _may_unmap: bool) -> Result<(), StoreError> {
        self.unmap(offset, len)
    }
    fn extents(&self, offset: u64, len: u64, _max: usize) -> Result<Vec<Extent>, StoreError> {
        Ok(vec![Extent { offset, len, mapped: true }])
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        let medium = &mut *self.medium.lock();
        medium.now.resize(size_bytes as usize, 0);
        medium.stable.resize(size_bytes as usize, 0);
        Ok(())
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.geometry().size_bytes)
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
}

/// What each block may hold: the value that is durable, and those that were written after it.
struct Blocks(Vec<Vec<u8>>);

impl Blocks {
    fn write(&mut self, at: std::ops::Range<usize>, value: u8) {
        self.0[at].iter_mut().for_each(|block| block.push(value));
    }
    fn durable(&mut self, at: std::ops::Range<usize>) {
        self.0[at].iter_mut().for_each(|block| drop(block.drain(..block.len() - 1)));
    }
}

/// What stands beside a block of this value.
fn beside(value: u8) -> Record {
    match value {
        0 => Record::Unwritten,
        value => Record::Guarded(Tuple { guard: value.into(), app_tag: 1, ref_tag: 2 }),
    }
}

fn records(value: u8, blocks: usize) -> RecordRun {
    std::iter::repeat_n(beside(value), blocks).collect()
}

/// One life: random writes until the power goes after so many calls, a start, a look. Whether it ended before the power did.
/// `protected`: with records, which are to be those of their blocks wherever nothing but all-or-nothing writes was interrupted.
fn live(seed: u64, calls: usize, lost: bool, protected: bool) -> bool {
    let random = Random(seed << 32 | calls as u64);
    let power = Arc::new(Power { calls_left: Mutex::new(None), random: Mutex::new(random) });
    let disk = Disk::new(BLOCKS * SECTOR, &power, false);
    let side = Disk::new(2 * HEAD_BYTES, &power, false);
    let journal = Disk::new(file_bytes(MAX) as usize, &power, true);
    let open = || {
        let mut data: Arc<dyn BlockStore> = Arc::new(disk.clone());
        if protected {
            data = Arc::new(ProtectedStore::new(data, Arc::new(side.clone()), 1)?);
        }
        JournaledStore::new(data, Arc::new(journal.clone()), ME, MAX)
    };
    let mut blocks = Blocks(vec![vec![0]; BLOCKS]);
    // Blocks beside which their own record has to be.
    let mut paired = [true; BLOCKS];
    let mut store = Some(open().unwrap());
    *power.calls_left.lock() = Some(calls);
    // The stream is the same for each moment at which the power goes.
    let mut stream = Random(seed + 1);
    let mut last = None;
    for number in 0..110usize {
        let (what, len) = (stream.below(16), 1 + stream.below(8));
        let at = stream.below(BLOCKS - len);
        let (range, value) = (at..at + len, 1 + (number % 255) as u8);
        let (offset, bytes) = ((at * SECTOR) as u64, vec![value; len * SECTOR]);
        let now = store.as_ref().unwrap();
        let result = match what {
            0..=9 => {
                blocks.write(range.clone(), value);
                let (a, b) = bytes.split_at(len * SECTOR / 3);
                last = Some((range.clone(), value));
                let run = protected.then(|| records(value, len));
                let result = now.write_atomic(offset, &[a, b], run.as_ref(), Durability::Cached);
                result.map(|()| {
                    blocks.durable(range.clone());
                    paired[range].fill(true);
                })
            }
            10..=12 => {
                let durable = what == 12;
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                blocks.write(range.clone(), value);
                paired[range.clone()].fill(false);
                let kept = now.records().map(|kept| kept.write(at as u64, &records(value, len), durability));
                let result = kept.unwrap_or(Ok(())).and_then(|()| now.write(offset, &[&bytes], durability));
                result.map(|()| {
                    if durable {
                        blocks.durable(range.clone());
                        paired[range].fill(true);
                    }
                })
            }
            13 => {
                blocks.write(range.clone(), 0);
                paired[range].fill(false);
                let result = now.unmap(offset, bytes.len() as u64);
                result.and_then(|()| now.records().map_or(Ok(()), |kept| kept.reset(at as u64, len as u64)))
            }
            14 => now.flush().map(|()| {
                blocks.durable(0..BLOCKS);
                paired.fill(true);
            }),
            // A start without need.
            _ if stream.below(2) == 0 => {
                store = None;
                open().map(|opened| store = Some(opened))
            }
            _ => Ok(()),
        };
        if result.is_err() {
            break;
        }
        last = None;
    }
    drop(store);
    let ended = *power.calls_left.lock() != Some(0);
    *power.calls_left.lock() = None;
    disk.restart(lost);
    side.restart(lost);
    journal.restart(lost);
    let store = open().unwrap();
    let context = format!("seed {seed}, the power went in call {calls}, lost: {lost}");
    let mut found = vec![0; BLOCKS * SECTOR];
    store.read(0, &mut found).unwrap();
    let found: Vec<u8> = found
        .chunks_exact(SECTOR)
        .map(|block| {
            assert!(block.iter().all(|byte| *byte == block[0]), "{context}: half a block");
            block[0]
        })
        .collect();
    for (lba, (found, allowed)) in found.iter().zip(&blocks.0).enumerate() {
        assert!(allowed.contains(found), "{context}: block {lba} holds {found}, not one of {allowed:?}");
    }
    if let Some((range, value)) = last {
        let new = found[range.clone()].iter().filter(|found| **found == value).count();
        assert!(new == 0 || new == range.len(), "{context}: {new} blocks of {}", range.len());
        if new > 0 {
            paired[range].fill(true);
        }
    }
    if let Some(kept) = store.records() {
        let kept = kept.read(0, BLOCKS).unwrap();
        for (lba, (record, value)) in kept.iter().zip(&found).enumerate() {
            assert!(
                !paired[lba] || record == beside(*value),
                "{context}: block {lba} holds {value}, {record:?}"
            );
        }
    }
    ended
}

// covers: ATM-01
#[test]
fn whenever_the_power_goes_a_write_is_there_or_not() {
    for seed in 1..=4 {
        for lost in [true, false] {
            let ended = (1..).find(|calls| live(seed, *calls, lost, false)).unwrap();
            assert!(ended > 150, "{ended} calls are few");
        }
    }
}

// covers: ATM-01 PI-15
#[test]
fn whenever_the_power_goes_a_block_has_the_protection_information_of_its_write() {
    for (seed, lost) in [(5, true), (6, true), (5, false)] {
        let ended = (1..).find(|calls| live(seed, *calls, lost, true)).unwrap();
        assert!(ended > 200, "{ended} calls are few");
    }
}

fn ram(bytes: u64) -> Arc<RamStore> {
    Arc::new(RamStore::new(bytes, 512).unwrap())
}

fn over(
    data: &Arc<RamStore>,
    journal: &Arc<RamStore>,
    identity: Identity,
) -> Result<JournaledStore, StoreError> {
    JournaledStore::new(Arc::clone(data) as _, Arc::clone(journal) as _, identity, MAX)
}

fn at<const N: usize>(store: &dyn BlockStore, offset: u64) -> [u8; N] {
    let mut bytes = [0; N];
    store.read(offset, &mut bytes).unwrap();
    bytes
}

/// A write that got into the journal and no further, as if the process had died there.
fn interrupted(data: &Arc<RamStore>, journal: &Arc<RamStore>, offset: u64, byte: u8) -> u64 {
    let store = over(data, journal, ME).unwrap();
    let number = store.take(offset, MAX).unwrap();
    store.record(number, offset, MAX, &[&[byte; MAX as usize]], None).unwrap();
    std::mem::forget(store);
    number
}

// covers: ATM-01
#[test]
fn a_start_finishes_what_is_whole_and_leaves_what_is_torn() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    let slot = slot_at(interrupted(&data, &journal, 1024, 7), MAX) + HEAD_BYTES as u64;
    for torn in [true, false] {
        let mut byte = at::<1>(&*journal, slot + 4000);
        byte[0] ^= 1;
        journal.write(slot + 4000, &[&byte], Durability::Cached).unwrap();
        let again = ram(file_bytes(MAX));
        let mut copy = vec![0; file_bytes(MAX) as usize];
        journal.read(0, &mut copy).unwrap();
        again.write(0, &[&copy], Durability::Cached).unwrap();
        over(&data, &again, ME).unwrap();
        assert_eq!(at::<1>(&*data, 1024), [if torn { 0 } else { 7 }]);
    }
}

#[test]
fn a_journal_with_something_to_do_for_another_store_is_refused_and_one_without_is_taken() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    interrupted(&data, &journal, 1024, 7);
    let refused = over(&data, &journal, [2; 16]).err().unwrap().to_string();
    assert!(refused.contains("another") && refused.contains("move the journal away"), "{refused}");
    // A file that is too small for what is in the journal is another one, too.
    assert!(over(&ram(2048), &journal, ME).is_err());
    assert_eq!(at::<1>(&*data, 1024), [0]);
    drop(over(&data, &journal, ME).unwrap());
    assert_eq!(at::<1>(&*data, 1024), [7]);
    data.write(1024, &[&[9; 512]], Durability::Cached).unwrap();
    drop(over(&data, &journal, [2; 16]).unwrap());
    assert_eq!(at::<1>(&*data, 1024), [9], "what is over is not repeated");
}

#[test]
fn what_is_no_journal_is_refused() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    journal.write(5000, &[&[1]], Durability::Cached).unwrap();
    assert!(
        matches!(over(&data, &journal, ME), Err(StoreError::Unusable(why)) if why.contains("this version"))
    );
    let large = Mark { slot_bytes: MAX_ATOMIC_BYTES, records: false, identity: ME, first: 1 };
    journal.write(0, &[&large.to_bytes()], Durability::Cached).unwrap();
    assert!(matches!(over(&data, &journal, ME), Err(StoreError::Unusable(why)) if why.contains("cut off")));
    for max in [0, 511, 513, MAX_ATOMIC_BYTES + 512] {
        let odd = JournaledStore::new(ram(1 << 20), ram(1 << 20), ME, max);
        assert!(matches!(odd, Err(StoreError::Unusable(why)) if why.contains("atomic=64K")), "{max}");
    }
}

#[test]
fn a_journal_grows_and_what_it_held_is_finished_first() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    interrupted(&data, &journal, 1024, 7);
    let open = |max| JournaledStore::new(Arc::clone(&data) as _, Arc::clone(&journal) as _, ME, max).unwrap();
    for (max, byte) in [(4 * MAX, 8), (SECTOR as u64, 9)] {
        let store = open(max);
        assert_eq!(at::<1>(&store, 1024), [byte - 1]);
        assert_eq!(store.atomic_write_bytes_max(), max);
        assert!(matches!(
            store.write_atomic(0, &[&vec![0; max as usize + 512]], None, Durability::Cached),
            Err(StoreError::Unusable(_))
        ));
        store.write_atomic(1024, &[&vec![byte; max as usize]], None, Durability::Cached).unwrap();
        std::mem::forget(store);
    }
    data.write(1024, &[&[0; 512]], Durability::Cached).unwrap();
    assert_eq!(at::<1>(&open(MAX), 1024), [9]);
}

#[test]
fn a_journal_without_room_changes_nothing() {
    let data = ram(1 << 20);
    let (journal, faults) = FaultStore::new(ram(file_bytes(MAX)));
    let journal: Arc<dyn BlockStore> = Arc::new(journal);
    let open = || JournaledStore::new(Arc::clone(&data) as _, Arc::clone(&journal), ME, MAX);
    let store = open().unwrap();
    for fault in [Fault::Error(FaultError::NoSpace), Fault::Torn { keep_bytes: 4600 }] {
        faults.arm(FaultRule::new(Op::Write, fault).nth(1));
        let error = store.write_atomic(1024, &[&[7; MAX as usize]], None, Durability::Durable).unwrap_err();
        assert!(matches!(error, StoreError::NoSpace | StoreError::MediumWrite { offset: 1024 }), "{error}");
    }
    // One that is there as a whole although it was reported as failed is not repeated either: a mark comes after it.
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1 << 20 }).nth(1));
    store.write_atomic(1024, &[&[7; MAX as usize]], None, Durability::Durable).unwrap_err();
    std::mem::forget(store);
    assert_eq!(at::<1>(&open().unwrap(), 1024), [0]);
    // And nothing is promised that there is no room for.
    faults.arm(FaultRule::new(Op::Write, Fault::Error(FaultError::NoSpace)).nth(1));
    let larger = JournaledStore::new(Arc::clone(&data) as _, Arc::clone(&journal), ME, 2 * MAX);
    assert!(matches!(larger, Err(StoreError::NoSpace)));
}

#[test]
fn while_the_journal_fails_nobody_changes_what_it_may_still_repeat() {
    let data = ram(1 << 20);
    let (journal, faults) = FaultStore::new(ram(file_bytes(MAX)));
    let store = JournaledStore::new(Arc::clone(&data) as _, Arc::new(journal), ME, MAX).unwrap();
    store.write_atomic(0, &[&[7; 1024]], None, Durability::Cached).unwrap();
    let rule = faults.arm(FaultRule::new(Op::Write, Fault::Error(FaultError::Medium)));
    assert!(matches!(
        store.write(512, &[&[1; 512]], Durability::Cached),
        Err(StoreError::MediumWrite { offset: 512 })
    ));
    assert!(store.unmap(0, 512).is_err() && store.write_zeroes(1023, 1, false).is_err());
    assert_eq!(at::<1024>(&store, 0), [7; 1024]);
    store.write(1024, &[&[1; 512]], Durability::Cached).unwrap();
    faults.disarm(rule);
    store.write(512, &[&[1; 512]], Durability::Cached).unwrap();
}

// covers: ATM-01
#[test]
fn without_space_for_its_blocks_nothing_changes_and_what_is_half_written_nobody_reads() {
    let data = ram(1 << 20);
    let journal = ram(file_bytes(MAX));
    let (faulty, faults) = FaultStore::new(Arc::clone(&data));
    let store = JournaledStore::new(Arc::new(faulty), Arc::clone(&journal) as _, ME, MAX).unwrap();
    let write =
        |offset, byte: u8| store.write_atomic(offset, &[&[byte; MAX as usize]], None, Durability::Durable);
    faults.arm(FaultRule::new(Op::WriteZeroes, Fault::Error(FaultError::NoSpace)).nth(1));
    assert!(matches!(write(1024, 7), Err(StoreError::NoSpace)));
    assert_eq!(at::<1>(&store, 1024), [0]);
    write(1024, 7).unwrap();
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1024 }).nth(1));
    assert!(write(1024, 8).is_err());
    let mut seen = [1; 512];
    let error = store.read(1024 + MAX - 512, &mut seen).unwrap_err();
    assert!(matches!(error, StoreError::MediumRead { .. }) && seen == [0; 512], "{error}");
    assert!(store.read_crc32c(1024, &mut seen, 0).is_err() && write(1024, 9).is_err());
    assert!(store.write(1024, &[&[9; 512]], Durability::Cached).is_err());
    // All else goes on, as long as there are slots.
    for round in 0..SLOTS - 1 {
        write(64 * 1024, round as u8).unwrap();
    }
    assert!(matches!(write(64 * 1024, 99), Err(StoreError::FlushFailed(_))));
    assert_eq!(at::<1>(&store, 64 * 1024), [30]);
    drop(store);
    assert_eq!(at::<512>(&over(&data, &journal, ME).unwrap(), 1024), [8; 512]);
}

#[test]
fn many_at_once_share_the_slots() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    let store = over(&data, &journal, ME).unwrap();
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let (store, turn) = (&store, &turn);
            scope.spawn(move || {
                let place = worker * 64 * 1024;
                for round in 1..=200u64 {
                    let byte = (round % 251) as u8;
                    let offset = place + round % 8 * 512;
                    if round % 5 == 0 {
                        store.write(offset, &[&[byte; 512]], Durability::Cached).unwrap();
                    } else {
                        store.write_atomic(offset, &[&[byte; 4096]], None, Durability::Cached).unwrap();
                    }
                    if turn.fetch_add(1, Ordering::Relaxed) % 50 == 0 {
                        store.flush().unwrap();
                    }
                    assert_eq!(at::<512>(store, offset), [byte; 512]);
                }
            });
        }
    });
    drop(store);
    let before = at::<{ 512 * 1024 }>(&*data, 0);
    drop(over(&data, &journal, ME).unwrap());
    assert!(at::<{ 512 * 1024 }>(&*data, 0) == before, "nothing was left to do");
}

fn spec(path: &std::path::Path, options: &str) -> Result<Arc<dyn BlockStore>, StoreError> {
    format!("file:{}{options}", path.display()).parse::<StoreSpec>().unwrap().open()
}

#[test]
fn a_file_has_its_journal_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let beside = directory.path().join("disk.atomic");
    let store = spec(&path, ",size=1M,atomic=64K").unwrap();
    assert_eq!(store.atomic_write_bytes_max(), 64 << 10);
    store.write_atomic(512, &[&[5; 64 << 10]], None, Durability::Cached).unwrap();
    assert_eq!(at::<512>(&store, 1024), [5; 512]);
    let how = FileOptions::default();
    assert!(crate::FileStore::open(&beside, &how).err().unwrap().to_string().contains("in use"));
    assert!(spec(&path, ",atomic=64K").err().unwrap().to_string().contains("in use"));
    store.resize(2 << 20).unwrap();
    store.write_atomic((2 << 20) - 4096, &[&[6; 4096]], None, Durability::Cached).unwrap();
    assert!(matches!(
        store.write_atomic((2 << 20) - 512, &[&[6; 1024]], None, Durability::Cached),
        Err(StoreError::OutOfRange { .. })
    ));
    drop(store);
    // Read-only: nobody writes, and it can be made writable.
    let store = spec(&path, ",ro,atomic=64K").unwrap();
    assert!(matches!(
        store.write_atomic(0, &[&[1; 512]], None, Durability::Cached),
        Err(StoreError::ReadOnly)
    ));
    store.make_writable().unwrap();
    store.write_atomic(0, &[&[1; 512]], None, Durability::Cached).unwrap();
    assert_eq!(at::<1>(&store, 0), [1]);
    drop(store);
    std::fs::write(&beside, []).unwrap();
    assert_eq!(spec(&path, ",ro,atomic=64K").unwrap().atomic_write_bytes_max(), 0);
    assert_eq!(spec(&path, ",atomic=1M").unwrap().atomic_write_bytes_max(), 1 << 20);
    assert!(spec(&path, ",atomic=100").err().unwrap().to_string().contains("whole blocks"));
}

#[test]
fn an_unfinished_file_is_not_opened_to_be_read_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = unfinished_file(directory.path(), None);
    let refused = spec(&path, ",ro,atomic=4096").err().unwrap().to_string();
    assert!(refused.contains("without ro"), "{refused}");
    assert_eq!(at::<1>(&spec(&path, ",atomic=4096").unwrap(), 512), [7]);
    assert_eq!(at::<1>(&spec(&path, ",ro,atomic=4096").unwrap(), 512), [7]);
}

/// A file with a journal that has something to do for it, as if the process had died in the middle.
fn unfinished_file(directory: &std::path::Path, records_of: Option<u8>) -> std::path::PathBuf {
    let opened = |suffix: &str, bytes: u64| {
        let how = FileOptions { size_bytes: Some(bytes), ..Default::default() };
        crate::FileStore::open(directory.join(suffix), &how).unwrap()
    };
    let file = opened("disk", 1 << 20);
    let identity = file.identity();
    let mut data: Arc<dyn BlockStore> = Arc::new(file);
    if let Some(kind) = records_of {
        let side = opened("disk.pi", ProtectedStore::side_bytes(&data.geometry()).unwrap());
        data = Arc::new(ProtectedStore::new(data, Arc::new(side), kind).unwrap());
    }
    let wrong = data.records().is_some() && {
        let journal = Arc::new(RamStore::new(file_bytes(2 * MAX), 512).unwrap());
        let store = JournaledStore::new(Arc::clone(&data), journal, identity, MAX).unwrap();
        store.write_atomic(512, &[&[7; MAX as usize]], Some(&records(7, 7)), Durability::Cached).is_ok()
    };
    assert!(!wrong, "a record for each block");
    let run = records_of.map(|_| records(7, 8));
    let journal = opened("disk.atomic", file_bytes(MAX + 128));
    let store = JournaledStore::new(data, Arc::new(journal), identity, MAX).unwrap();
    let number = store.take(512, MAX).unwrap();
    store.record(number, 512, MAX, &[&[7; MAX as usize]], run.as_ref()).unwrap();
    directory.join("disk")
}

#[test]
fn a_use_of_the_file_without_a_journal_finishes_what_the_journal_has_and_nothing_comes_back_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = unfinished_file(directory.path(), None);
    let refused = spec(&path, ",ro").err().unwrap().to_string();
    assert!(refused.contains("without ro"), "{refused}");
    let store = spec(&path, "").unwrap();
    assert_eq!(at::<1>(&store, 512), [7]);
    store.write(512, &[&[9; 512]], Durability::Durable).unwrap();
    drop(store);
    assert_eq!(at::<1>(&spec(&path, ",ro").unwrap(), 512), [9]);
    assert_eq!(at::<1>(&spec(&path, ",atomic=4096").unwrap(), 512), [9]);
}

#[test]
fn a_file_with_protection_information_is_not_opened_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = unfinished_file(directory.path(), Some(1));
    for options in ["", ",ro", ",atomic=4096", ",ro,atomic=4096"] {
        let refused = spec(&path, options).err().unwrap().to_string();
        assert!(refused.contains("give pi="), "{options}: {refused}");
    }
    let store = spec(&path, ",pi=1").unwrap();
    assert_eq!(at::<1>(&store, 512), [7]);
    assert_eq!(store.records().unwrap().read(1, 8).unwrap(), records(7, 8));
}

// covers: ATM-01
#[test]
fn a_write_that_failed_does_not_come_back_after_the_old_data_were_read() {
    let (data, inner) = (ram(1 << 20), ram(file_bytes(MAX)));
    let (journal, faults) = FaultStore::new(Arc::clone(&inner));
    let store = JournaledStore::new(Arc::clone(&data) as _, Arc::new(journal), ME, MAX).unwrap();
    // The record is there as a whole, and no mark can say that it is over.
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1 << 20 }).nth(1));
    let rule = faults.arm(FaultRule::new(Op::Write, Fault::Error(FaultError::Medium)));
    store.write_atomic(1024, &[&[7; MAX as usize]], None, Durability::Durable).unwrap_err();
    let mut seen = [0; 512];
    assert!(matches!(store.read(1024, &mut seen), Err(StoreError::MediumRead { offset: 1024 })));
    assert!(store.write(1024, &[&[9; 512]], Durability::Cached).is_err());
    faults.disarm(rule);
    std::mem::forget(store);
    assert_eq!(at::<1>(&over(&data, &inner, ME).unwrap(), 1024), [7]);
}

#[test]
fn what_is_unfinished_with_its_protection_information_is_finished_with_it_and_not_without() {
    let directory = tempfile::tempdir().unwrap();
    let path = unfinished_file(directory.path(), Some(1));
    let (kept, away) = (directory.path().join("disk.pi"), directory.path().join("away"));
    std::fs::rename(&kept, &away).unwrap();
    for options in ["", ",atomic=4096"] {
        let refused = spec(&path, options).err().unwrap().to_string();
        assert!(refused.contains("with pi="), "{refused}");
    }
    std::fs::rename(&away, &kept).unwrap();
    for (options, remedy) in
        [(",ro,pi=1,atomic=4096", "without ro"), (",pi=1,block=4096,atomic=4096", "block=")]
    {
        let refused = spec(&path, options).err().unwrap().to_string();
        assert!(refused.contains(remedy), "{refused}");
    }
    for options in [",pi=1,atomic=4096", ",ro,pi=1,atomic=4096"] {
        let store = spec(&path, options).unwrap();
        assert_eq!(at::<{ MAX as usize }>(&store, 512), [7; MAX as usize]);
        let kept: Vec<Record> = store.records().unwrap().read(0, 10).unwrap().iter().collect();
        assert_eq!((kept[0], kept[9]), (beside(0), beside(0)));
        assert_eq!(kept[1..9], [beside(7); 8]);
    }
}

// covers: ATM-01
#[test]
fn where_the_protection_information_cannot_be_written_nothing_changes_or_nobody_reads() {
    let (data, journal, side) = (ram(4 << 20), ram(file_bytes(2 * MAX)), ram(256 << 10));
    let open = |side: Arc<dyn BlockStore>| {
        let data = Arc::new(ProtectedStore::new(Arc::clone(&data) as _, side, 1).unwrap());
        JournaledStore::new(data, Arc::clone(&journal) as _, ME, MAX).unwrap()
    };
    let (faulty, faults) = FaultStore::new(Arc::clone(&side));
    let store = open(Arc::new(faulty));
    // Records of another chunk of memory than that of the head, which is there.
    let write = |byte: u8| {
        let records = records(byte, 8);
        store.write_atomic(5000 * 512, &[&[byte; MAX as usize]], Some(&records), Durability::Durable)
    };
    faults.arm(FaultRule::new(Op::WriteZeroes, Fault::Error(FaultError::NoSpace)).nth(1));
    assert!(matches!(write(7), Err(StoreError::NoSpace)));
    assert_eq!(at::<1>(&store, 5000 * 512), [0]);
    write(7).unwrap();
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 20 }).nth(1));
    assert!(write(8).is_err() && write(9).is_err());
    assert!(store.read(5007 * 512, &mut [0; 512]).is_err());
    drop(store);
    let store = open(Arc::clone(&side) as _);
    assert_eq!(at::<{ MAX as usize }>(&store, 5000 * 512), [8; MAX as usize]);
    assert_eq!(store.records().unwrap().read(5000, 8).unwrap(), records(8, 8));
}
