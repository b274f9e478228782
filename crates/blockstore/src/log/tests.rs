//! The behaviour of the log, apart from crashes, which `power_cuts.rs` replays.

use super::*;
use crate::{
    Fault, FaultError, FaultRule, FaultStore, FileOptions, FileStore, ProtectedStore, RamStore, Record,
    RecordRun, StoreSpec,
};
use integrity::t10::Tuple;

const ME: Identity = [1; 16];
const SIZE: u64 = 1 << 20;

fn ram(bytes: u64) -> Arc<RamStore> {
    Arc::new(RamStore::new(bytes, 512).unwrap())
}

/// The stores of a volume, which persist when it is closed.
struct Stores {
    data: Arc<RamStore>,
    side: Arc<RamStore>,
    log: Arc<RamStore>,
}

impl Stores {
    fn new() -> Self {
        Stores { data: ram(SIZE), side: ram(64 << 10), log: ram(64 << 10) }
    }

    fn open(&self) -> ProtectedStore {
        self.over(Arc::clone(&self.data) as _, Arc::clone(&self.log) as _).unwrap()
    }

    fn over(
        &self,
        data: Arc<dyn BlockStore>,
        log: Arc<dyn BlockStore>,
    ) -> Result<ProtectedStore, StoreError> {
        ProtectedStore::with_log(data, (Arc::clone(&self.side) as _, 1), log, ME, 4096)
    }
}

fn run(value: u8, blocks: usize) -> RecordRun {
    let record = Record::Guarded(Tuple { guard: value.into(), app_tag: 1, ref_tag: 2 });
    std::iter::repeat_n(record, blocks).collect()
}

fn write(
    store: &ProtectedStore,
    lba: u64,
    value: u8,
    blocks: usize,
    durability: Durability,
) -> Result<(), StoreError> {
    store.write_atomic(lba * 512, &[&vec![value; blocks * 512]], Some(&run(value, blocks)), durability)
}

fn holds(store: &ProtectedStore, lba: u64, value: u8) -> bool {
    let mut block = [0; 512];
    store.read(lba * 512, &mut block).unwrap();
    let record = store.records().unwrap().read(lba, 1).unwrap();
    block == [value; 512] && (record == run(value, 1) || value == 0 && record.iter().eq([Record::Unwritten]))
}

fn byte(store: &dyn BlockStore, offset: u64) -> u8 {
    let mut byte = [0];
    store.read(offset, &mut byte).unwrap();
    byte[0]
}

#[test]
fn a_write_is_read_from_the_log_and_comes_to_its_place_later() {
    let stores = Stores::new();
    let store = stores.open();
    write(&store, 3, 7, 4, Durability::Cached).unwrap();
    write(&store, 4, 8, 1, Durability::Durable).unwrap();
    assert!(holds(&store, 3, 7) && holds(&store, 4, 8) && holds(&store, 5, 7) && holds(&store, 7, 0));
    assert_eq!(byte(&*stores.data, 4 * 512), 0, "nothing is in its place");
    store.unmap(5 * 512, 512).unwrap();
    assert!(holds(&store, 5, 0) && holds(&store, 6, 7));
    drop(store);
    assert_eq!(byte(&*stores.data, 4 * 512), 8, "a store that is closed leaves nothing to do");
    let log = stores.open();
    assert!(holds(&log, 3, 7) && holds(&log, 4, 8) && holds(&log, 5, 0) && holds(&log, 6, 7));
}

#[test]
fn more_than_the_log_has_room_for_is_put_in_place_on_the_way() {
    let stores = Stores::new();
    let store = stores.open();
    for round in 0..200u64 {
        write(&store, round * 7 % 1500, (round % 250) as u8 + 1, 8, Durability::Cached).unwrap();
        assert!(holds(&store, round * 7 % 1500, (round % 250) as u8 + 1));
    }
    assert!(holds(&store, 199 * 7 + 7, 200));
}

#[test]
fn what_the_log_has_is_carried_out_by_the_next_start_and_of_another_volume_refused() {
    let stores = Stores::new();
    let store = stores.open();
    write(&store, 3, 7, 4, Durability::Durable).unwrap();
    std::mem::forget(store);
    let (data, side, log) = (ram(SIZE), ram(64 << 10), &stores.log);
    let other = ProtectedStore::with_log(data, (side, 1), Arc::clone(log) as _, [2; 16], 0);
    assert!(matches!(other, Err(StoreError::Unusable(why)) if why.contains("belong together")));
    assert!(holds(&stores.open(), 6, 7));
    assert_eq!(byte(&*stores.data, 6 * 512), 7);
}

#[test]
fn a_write_whose_error_was_told_never_comes_back() {
    let stores = Stores::new();
    let (log, faults) = FaultStore::new(Arc::clone(&stores.log));
    let store = stores.over(Arc::clone(&stores.data) as _, Arc::new(log)).unwrap();
    write(&store, 3, 7, 4, Durability::Durable).unwrap();
    // The whole entry is on the medium although it is reported as failed.
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1 << 20 }).nth(1));
    write(&store, 3, 8, 4, Durability::Cached).unwrap_err();
    assert!(holds(&store, 3, 7));
    write(&store, 4, 9, 1, Durability::Cached).unwrap();
    // And now it cannot be revoked either: its blocks cannot be read, and the volume takes no more changes.
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1 << 20 }).nth(1));
    let rule = faults.arm(FaultRule::new(Op::Write, Fault::Error(FaultError::NoSpace)));
    write(&store, 3, 8, 1, Durability::Cached).unwrap_err();
    faults.disarm(rule);
    assert!(matches!(store.read(3 * 512, &mut [0; 512]), Err(StoreError::MediumRead { offset: 1536 })));
    assert!(matches!(write(&store, 9, 1, 1, Durability::Cached), Err(StoreError::FlushFailed(_))));
    assert!(store.flush().is_err() && holds(&store, 4, 9) && holds(&store, 5, 7));
    std::mem::forget(store);
    let store = stores.open();
    assert!(holds(&store, 3, 8) && holds(&store, 4, 9) && holds(&store, 6, 7));
}

#[test]
fn a_flush_that_failed_is_final() {
    let stores = Stores::new();
    let (log, faults) = FaultStore::new(Arc::clone(&stores.log));
    let store = stores.over(Arc::clone(&stores.data) as _, Arc::new(log)).unwrap();
    write(&store, 3, 7, 1, Durability::Cached).unwrap();
    faults.arm(FaultRule::new(Op::Flush, Fault::Error(FaultError::FlushFailed)).nth(1));
    assert!(store.flush().is_err());
    assert!(store.flush().is_err() && write(&store, 4, 8, 1, Durability::Cached).is_err());
    assert!(holds(&store, 3, 7), "and what is there can be read");
}

// covers: PI-15
#[test]
fn without_space_nothing_changes_and_a_place_that_fails_loses_nothing() {
    let stores = Stores::new();
    let (data, faults) = FaultStore::new(Arc::clone(&stores.data));
    let store = stores.over(Arc::new(data), Arc::clone(&stores.log) as _).unwrap();
    write(&store, 3, 7, 1, Durability::Durable).unwrap();
    let rule = faults.arm(FaultRule::new(Op::WriteZeroes, Fault::Error(FaultError::NoSpace)));
    assert!(matches!(write(&store, 1024, 8, 8, Durability::Cached), Err(StoreError::NoSpace)));
    assert!(holds(&store, 1024, 0) && holds(&store, 3, 7));
    faults.disarm(rule);
    write(&store, 1024, 8, 8, Durability::Cached).unwrap();
    // A place that cannot be written: the log serves everything, as long as it has room.
    let rule = faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 100 }));
    while write(&store, 5, 9, 8, Durability::Cached).is_ok() {}
    assert!(holds(&store, 3, 7) && holds(&store, 5, 9) && holds(&store, 1024, 8));
    faults.disarm(rule);
    write(&store, 5, 10, 8, Durability::Durable).unwrap();
    assert!(holds(&store, 3, 7) && holds(&store, 5, 10) && holds(&store, 1024, 8));
}

#[test]
fn a_mark_that_failed_and_is_there_all_the_same_takes_no_entry_with_it() {
    let stores = Stores::new();
    let (log, faults) = FaultStore::new(Arc::clone(&stores.log));
    let store = stores.over(Arc::clone(&stores.data) as _, Arc::new(log)).unwrap();
    write(&store, 3, 7, 1, Durability::Durable).unwrap();
    faults.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 1 << 20 }).nth(1).in_range(0..8192));
    assert!(store.extents(0, 512 * 10, 1).is_err(), "it cannot be settled");
    write(&store, 4, 8, 1, Durability::Durable).unwrap();
    std::mem::forget(store);
    let store = stores.open();
    assert!(holds(&store, 3, 7) && holds(&store, 4, 8));
}

#[test]
fn a_block_that_is_written_alone_comes_after_what_the_log_has_of_it() {
    let stores = Stores::new();
    let store = stores.open();
    write(&store, 3, 7, 4, Durability::Cached).unwrap();
    store.write(4 * 512, &[&[9; 512]], Durability::Cached).unwrap();
    store.records().unwrap().write(4, &run(9, 1), Durability::Cached).unwrap();
    store.flush().unwrap();
    std::mem::forget(store);
    let store = stores.open();
    assert!(holds(&store, 3, 7) && holds(&store, 4, 9) && holds(&store, 5, 7));
}

// covers: FMT-01
#[test]
fn a_format_leaves_nothing_in_the_log() {
    let stores = Stores::new();
    let store = stores.open();
    write(&store, 3, 7, 4, Durability::Cached).unwrap();
    let records = store.records().unwrap();
    records.reset(0, store.geometry().blocks()).unwrap();
    store.write(0, &[&[0; 8192]], Durability::Cached).unwrap();
    store.flush().unwrap();
    std::mem::forget(store);
    assert!(holds(&stores.open(), 3, 0) && holds(&stores.open(), 6, 0));
}

#[test]
fn what_is_no_log_is_refused() {
    let stores = Stores::new();
    stores.log.write(4096, &[&[1; 512]], Durability::Cached).unwrap();
    let refused = stores.over(Arc::clone(&stores.data) as _, Arc::clone(&stores.log) as _);
    assert!(matches!(refused, Err(StoreError::Unusable(why)) if why.contains("this version")));
    let stores = Stores::new();
    drop(stores.open());
    let cut = ram(32 << 10);
    let mut head = [0; 8192];
    stores.log.read(0, &mut head).unwrap();
    cut.write(0, &[&head], Durability::Cached).unwrap();
    let refused = stores.over(Arc::clone(&stores.data) as _, cut);
    assert!(matches!(refused, Err(StoreError::Unusable(why)) if why.contains("cut off")));
}

fn spec(path: &std::path::Path, options: &str) -> Result<Arc<dyn BlockStore>, StoreError> {
    format!("file:{}{options}", path.display()).parse::<StoreSpec>().unwrap().open()
}

#[test]
fn a_file_has_its_log_beside_it_and_one_of_another_time_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let beside = directory.path().join("disk.pi-log");
    let store = spec(&path, ",size=1M,pi=1").unwrap();
    assert_eq!(store.atomic_write_bytes_max(), 0);
    store.write_atomic(0, &[&[7; 1024]], Some(&run(7, 2)), Durability::Durable).unwrap();
    let how = FileOptions::default();
    assert!(FileStore::open(&beside, &how).err().unwrap().to_string().contains("in use"));
    // The log with its entry, and the place without it.
    let copy = std::fs::read(&beside).unwrap();
    drop(store);
    assert_eq!(spec(&path, ",pi=1,atomic=4096").unwrap().atomic_write_bytes_max(), 4096);
    std::fs::write(&beside, &copy).unwrap();
    let refused = spec(&path, ",pi=1").err().unwrap().to_string();
    assert!(refused.contains("another time"), "{refused}");
}

#[test]
fn a_volume_that_is_only_read_is_read_with_what_its_log_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let store = spec(&path, ",size=1M,pi=1").unwrap();
    store.write_atomic(0, &[&[7; 1024]], Some(&run(7, 2)), Durability::Durable).unwrap();
    let copy = directory.path().join("copy");
    std::fs::copy(directory.path().join("disk.pi-log"), &copy).unwrap();
    let unplaced = std::fs::read(&path).unwrap();
    drop(store);
    // As a crash would have left it: nothing is in its place, and the log and the label are those of that time.
    std::fs::write(&path, &unplaced).unwrap();
    std::fs::copy(&copy, directory.path().join("disk.pi-log")).unwrap();
    let store = spec(&path, ",ro,pi=1").unwrap();
    assert_eq!((byte(&store, 0), byte(&store, 1023), byte(&store, 1024)), (7, 7, 0));
    assert_eq!(store.records().unwrap().read(0, 2).unwrap(), run(7, 2));
    assert_eq!(store.extents(0, 4096, 4).unwrap().len(), 1);
    assert!(matches!(
        store.write_atomic(0, &[&[1; 512]], Some(&run(1, 1)), Durability::Cached),
        Err(StoreError::ReadOnly)
    ));
    store.make_writable().unwrap();
    store.write_atomic(512, &[&[8; 512]], Some(&run(8, 1)), Durability::Durable).unwrap();
    drop(store);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((bytes[0], bytes[512], bytes[1024]), (7, 8, 0));
}

#[test]
fn what_does_not_fit_its_records_or_is_too_long_is_refused() {
    let store = Stores::new().open();
    let put = |offset, len: usize, records: Option<usize>| {
        let records = records.map(|blocks| run(1, blocks));
        store.write_atomic(offset, &[&vec![1; len]], records.as_ref(), Durability::Cached)
    };
    let refused = |result: Result<(), StoreError>| {
        result.is_err_and(|error| error.to_string().contains("all or nothing"))
    };
    assert!(refused(put(0, 1024, Some(1))) && refused(put(0, 512, Some(2))), "not as many records as blocks");
    assert!(refused(put(256, 512, Some(1))), "between two blocks");
    put(0, 4096, None).unwrap();
    assert!(refused(put(0, 4096 + 512, None)), "longer than what is offered");
    put(512, 8192, Some(16)).unwrap();
    assert!(put(SIZE - 512, 1024, Some(2)).is_err(), "beyond the end");
}

/// A write with records may have any length; it is done in steps, whatever pieces it comes in.
#[test]
fn a_long_write_is_done_in_steps() {
    let stores = Stores { data: ram(8 << 20), side: ram(512 << 10), log: ram(4 << 20) };
    let store = stores.open();
    let bytes: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 509) as u8).collect();
    let guards = |n: u64| Record::Guarded(Tuple { guard: n as u16, app_tag: 1, ref_tag: n as u32 });
    let records: RecordRun = (0..bytes.len() as u64 / 512).map(guards).collect();
    let pieces: Vec<&[u8]> = [&bytes[..700], &bytes[700..1_500_000], &bytes[1_500_000..]].to_vec();
    store.write_atomic(1024, &pieces, Some(&records), Durability::Durable).unwrap();
    let mut read = vec![0; bytes.len()];
    store.read(1024, &mut read).unwrap();
    assert!(read == bytes);
    assert!(store.records().unwrap().read(2, records.len()).unwrap() == records);
}
