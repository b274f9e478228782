//! Writes are all or nothing, whenever the power fails or the process dies, and whatever fails.

use std::sync::atomic::AtomicUsize;

use integrity::t10::Tuple;

use super::*;
use crate::{
    Fault, FaultError, FaultRule, FaultStore, FileOptions, ProtectedStore, RamStore, Record, StoreSpec,
};

const SECTOR: usize = 512;
const ME: Identity = [1; 16];
const MAX: u64 = 8 * SECTOR as u64;

/// The record of a block of this value.
fn beside(value: u8) -> Record {
    match value {
        0 => Record::Unwritten,
        value => Record::Guarded(Tuple { guard: value.into(), app_tag: 1, ref_tag: 2 }),
    }
}

fn records(value: u8, blocks: usize) -> RecordRun {
    std::iter::repeat_n(beside(value), blocks).collect()
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

/// A write that reached the journal but not its blocks, as if the process had died in between.
fn interrupted(data: &Arc<RamStore>, journal: &Arc<RamStore>, offset: u64, byte: u8) -> u64 {
    let store = over(data, journal, ME).unwrap();
    let number = store.take(offset, MAX).unwrap();
    store.record(number, offset, MAX, &[&[byte; MAX as usize]]).unwrap();
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
    // A file that is too small for the journal's record is another file, too.
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
    let large =
        Mark { slot_bytes: MAX_ATOMIC_BYTES, records: false, identity: ME, first: 1, generation: None };
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
    // A record that is whole on the medium although it was reported as failed is not replayed either: a mark follows it.
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1 << 20 }).nth(1));
    store.write_atomic(1024, &[&[7; MAX as usize]], None, Durability::Durable).unwrap_err();
    std::mem::forget(store);
    assert_eq!(at::<1>(&open().unwrap(), 1024), [0]);
    // And no limit is promised for which there is no room.
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
    // Everything else continues, as long as there are slots.
    for round in 0..SLOTS - 1 {
        write(64 * 1024, round as u8).unwrap();
    }
    assert!(matches!(write(64 * 1024, 99), Err(StoreError::FlushFailed(_))));
    assert_eq!(at::<1>(&store, 64 * 1024), [30]);
    drop(store);
    assert_eq!(at::<512>(&over(&data, &journal, ME).unwrap(), 1024), [8; 512]);
}

// covers: ATM-01
#[test]
fn nothing_is_over_before_its_blocks_were_flushed() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    let (faulty, faults) = FaultStore::new(Arc::clone(&data));
    let store = JournaledStore::new(Arc::new(faulty), Arc::clone(&journal) as _, ME, MAX).unwrap();
    for round in 0..SLOTS / 2 {
        store.write_atomic(round * 512, &[&[7; 512]], None, Durability::Cached).unwrap();
    }
    let kept = || {
        let (_, mark) = Mark::read(&*journal).unwrap().unwrap();
        headers(&*journal, &mark).unwrap().len() as u64
    };
    let rule = faults.arm(FaultRule::new(Op::Flush, Fault::Error(FaultError::FlushFailed)));
    assert!(store.flush().is_err());
    assert!(store.write(0, &[&[9; 512]], Durability::Cached).is_err());
    assert_eq!(kept(), SLOTS / 2);
    faults.disarm(rule);
    store.flush().unwrap();
    assert_eq!(kept(), 0);
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
    // Read-only: writes are refused, and it can be made writable.
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

/// A file whose journal has unfinished work, as if the process had died midway; optionally with records of the blocks, as earlier
/// versions wrote them.
fn unfinished_file(directory: &std::path::Path, records_of: Option<u8>) -> std::path::PathBuf {
    let opened = |suffix: &str, bytes: u64| {
        let how = FileOptions { size_bytes: Some(bytes), ..Default::default() };
        crate::FileStore::open(directory.join(suffix), &how).unwrap()
    };
    let file = opened("disk", 1 << 20);
    let identity = file.identity();
    let data: Arc<dyn BlockStore> = Arc::new(file);
    let journal = opened("disk.atomic", file_bytes(MAX + 128));
    match records_of {
        None => {
            let store = JournaledStore::new(data, Arc::new(journal), identity, MAX).unwrap();
            let number = store.take(512, MAX).unwrap();
            store.record(number, 512, MAX, &[&[7; MAX as usize]]).unwrap();
        }
        Some(kind) => {
            let side = opened("disk.pi", ProtectedStore::side_bytes(&data.geometry()).unwrap());
            ProtectedStore::new(data, Arc::new(side), kind).unwrap();
            let mark = Mark { slot_bytes: MAX + 128, records: true, identity, first: 5, generation: None };
            journal.write(0, &[&mark.to_bytes()], Durability::Durable).unwrap();
            let (blocks, run) = ([7; MAX as usize], records(7, 8));
            let data_crc = integrity::crc32c(&[&blocks, run.as_bytes()].concat());
            let header = Header { number: 5, offset: 512, len: MAX as u32, records_len: 128, data_crc };
            let at = slot_at(5, MAX + 128);
            journal
                .write(at, &[&header.to_bytes(true), &blocks, run.as_bytes()], Durability::Durable)
                .unwrap();
        }
    }
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
    // The record is whole on the medium, and no mark can retire it.
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

/// Blocks in their place may have been lost with the failed flush, and others must still be written.
// covers: ATM-01
#[test]
fn a_store_that_is_opened_again_carries_out_once_more_what_its_journal_has() {
    let (data, journal) = (ram(1 << 20), ram(file_bytes(MAX)));
    let (faulty, faults) = FaultStore::new(Arc::clone(&data));
    let store = JournaledStore::new(Arc::new(faulty), Arc::clone(&journal) as _, ME, MAX).unwrap();
    let write = |offset, byte: u8| store.write_atomic(offset, &[&[byte; 4096]], None, Durability::Durable);
    write(8192, 5).unwrap();
    data.write(8192, &[&[0; 4096]], Durability::Cached).unwrap();
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1024 }).nth(1));
    write(1024, 7).unwrap_err();

    let rule = faults.arm(FaultRule::new(Op::Write, Fault::Error(FaultError::Medium)));
    store.reopen().unwrap_err();
    faults.disarm(rule);
    let mut seen = [1; 512];
    for offset in [1024, 8192] {
        assert!(store.read(offset, &mut seen).is_err(), "nobody knows what is there");
        assert!(store.read_medium(offset, &mut seen).is_err());
        assert!(write(offset, 9).is_err());
    }
    store.flush().unwrap();

    assert_eq!(store.reopen().unwrap(), None);
    assert_eq!((at::<4096>(&store, 1024), at::<4096>(&store, 8192)), ([7; 4096], [5; 4096]));
    write(1024, 9).unwrap();
    drop(store);
    assert_eq!(at::<4096>(&over(&data, &journal, ME).unwrap(), 1024), [9; 4096]);
}
