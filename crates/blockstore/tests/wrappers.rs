//! What each wrapper adds. That they change nothing else is tested in `model.rs`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use blockstore::{
    BlockStore, DelayStore, Durability, Extent, FailedFlush, Fault, FaultError, FaultHandle, FaultRule,
    FaultStore, Geometry, InPlace, Label, MediumReads, Op, OpCount, OpSet, Placement, RamStore, RecordRun,
    Records, StatsStore, StoreError, StoreSpec,
};
use integrity::Prefetch;
use parking_lot::Mutex;

const SIZE: u64 = 1 << 20;

fn faulty() -> (Arc<RamStore>, FaultStore<Arc<RamStore>>, FaultHandle) {
    let ram = Arc::new(RamStore::new(SIZE, 512).unwrap());
    let (store, handle) = FaultStore::new(Arc::clone(&ram));
    (ram, store, handle)
}

fn write(store: &impl BlockStore, offset: u64, byte: u8) -> Result<(), StoreError> {
    store.write(offset, &[&[byte; 256], &[byte; 256]], Durability::Cached)
}

fn block(store: &impl BlockStore, offset: u64) -> [u8; 512] {
    let mut dst = [0; 512];
    store.read(offset, &mut dst).unwrap();
    dst
}

#[test]
fn each_fault_error_is_raised_as_named() {
    let (ram, store, handle) = faulty();
    let errors = [
        (FaultError::Medium, "failed to write at byte 512"),
        (FaultError::NoSpace, "no space"),
        (FaultError::ReadOnly, "read-only"),
        (FaultError::Gone, "gone"),
        (FaultError::FlushFailed, "flush failed"),
        (FaultError::Io(ErrorKind::TimedOut), "cannot write at byte 512"),
    ];
    for (error, hint) in errors {
        let id = handle.arm(FaultRule::new(Op::Write, Fault::Error(error)));
        let text = write(&store, 512, 1).unwrap_err().to_string();
        assert!(text.contains(hint), "{text}");
        assert_eq!(handle.faults(id), 1);
        handle.disarm(id);
    }
    assert_eq!(block(&ram, 512), [0; 512]);
    write(&store, 512, 1).unwrap();
    assert_eq!(block(&ram, 512), [1; 512]);
}

#[test]
fn a_read_fault_leaves_nothing_stale_and_names_its_byte() {
    let (_ram, store, handle) = faulty();
    handle.arm(FaultRule::new(Op::Read, Fault::Error(FaultError::Medium)).in_range(1000..1001));
    let mut dst = [0xEE; 1024];
    let error = store.read_crc32c(512, &mut dst, 0).unwrap_err();
    assert!(matches!(error, StoreError::MediumRead { offset: 1000 }), "{error}");
    assert_eq!(dst, [0; 1024]);
    store.read(1001, &mut dst).unwrap();
    store.read(0, &mut dst[..1000]).unwrap();
}

#[test]
fn rules_count_and_are_spent() {
    let (_ram, store, handle) = faulty();
    let id = handle.arm(FaultRule::new(Op::Flush, Fault::Error(FaultError::FlushFailed)).nth(3));
    let results: Vec<bool> = (0..5).map(|_| store.flush().is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true]);
    assert_eq!(handle.faults(id), 1);
    handle.clear();

    let rule = FaultRule::new(OpSet::of(&[Op::Unmap, Op::WriteZeroes]), Fault::Error(FaultError::NoSpace));
    handle.arm(FaultRule { skip: 1, times: Some(2), ..rule });
    let results = [
        store.unmap(0, 512).is_ok(),
        store.write_zeroes(0, 512, true).is_ok(),
        write(&store, 0, 1).is_ok(),
        store.unmap(0, 512).is_ok(),
        store.unmap(0, 512).is_ok(),
    ];
    assert_eq!(results, [true, false, true, false, true]);
    handle.arm(FaultRule::new(OpSet::ALL, Fault::Error(FaultError::Gone)));
    assert!(store.extents(0, 512, 1).is_err() && store.resize(2 * SIZE).is_err());
}

#[test]
fn a_flipped_bit_goes_unnoticed_in_either_direction() {
    let (ram, store, handle) = faulty();
    write(&store, 512, 0xF0).unwrap();
    let id = handle.arm(FaultRule::new(Op::Read, Fault::BitFlip { offset: 600, mask: 1 }));
    let mut expected = [0xF0; 512];
    expected[88] = 0xF1;
    assert_eq!(block(&store, 512), expected);
    let mut dst = [0; 512];
    let crc = store.read_crc32c(512, &mut dst, 0).unwrap();
    assert_eq!((dst, crc), (expected, integrity::crc32c_append(0, &expected)));
    assert_eq!(block(&ram, 512), [0xF0; 512], "the medium is as it was");
    handle.disarm(id);

    handle.arm(FaultRule::new(Op::Write, Fault::BitFlip { offset: 600, mask: 1 }));
    write(&store, 512, 0xF0).unwrap();
    assert_eq!(block(&ram, 512), expected);
    write(&store, 1024, 0xF0).unwrap();
    assert_eq!(block(&ram, 1024), [0xF0; 512], "a write that does not cover the byte is not changed");
}

#[test]
fn a_torn_write_keeps_its_head_and_a_lost_one_nothing() {
    let (ram, store, handle) = faulty();
    handle.arm(FaultRule::new(Op::Write, Fault::Torn { keep_bytes: 300 }).nth(1));
    let error = write(&store, 512, 7).unwrap_err();
    assert!(matches!(error, StoreError::MediumWrite { offset: 812 }), "{error}");
    let after = block(&ram, 512);
    assert_eq!((&after[..300], &after[300..]), (&[7; 300][..], &[0; 212][..]));

    handle.clear();
    handle.arm(FaultRule::new(OpSet::of(&[Op::Write, Op::Unmap]), Fault::Lost));
    write(&store, 512, 9).unwrap();
    store.unmap(512, 512).unwrap();
    assert_eq!(block(&ram, 512), after);
    assert!(matches!(write(&store, SIZE, 9), Err(StoreError::OutOfRange { .. })));
}

#[test]
fn a_closed_gate_holds_operations_until_opened() {
    let ram = Arc::new(RamStore::new(SIZE, 512).unwrap());
    let (store, gate) = DelayStore::new(Arc::clone(&ram), Duration::ZERO);
    assert_eq!(store.placement(), Placement::Offload);
    gate.close(Op::Write.into());
    store.flush().unwrap(); // not concerned
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for offset in [0, 512] {
            let (store, sender) = (&store, sender.clone());
            scope.spawn(move || {
                write(store, offset, 1).unwrap();
                sender.send(offset).unwrap();
            });
        }
        gate.wait_for_waiting(2);
        assert!(receiver.try_recv().is_err());
        assert_eq!(ram.resident_bytes(), 0, "nothing reached the store");

        gate.let_pass(1);
        let first = receiver.recv().unwrap();
        assert_eq!(gate.waiting(), 1);
        assert_eq!(block(&ram, first), [1; 512]);
        assert_eq!(block(&ram, 512 - first), [0; 512]);

        gate.open();
        assert_eq!(receiver.recv().unwrap(), 512 - first);
    });
    assert_eq!(gate.waiting(), 0);
    write(&store, 0, 2).unwrap();
}

#[test]
fn stats_count_operations_bytes_and_errors() {
    let (_ram, faulty, handle) = faulty();
    let store = StatsStore::new(faulty);
    let stats = store.stats();
    write(&store, 0, 1).unwrap();
    write(&store, 512, 1).unwrap();
    handle.arm(FaultRule::new(Op::Write, Fault::Error(FaultError::NoSpace)));
    write(&store, 0, 1).unwrap_err();
    block(&store, 0);
    store.read_crc32c(0, &mut [0; 1024], 0).unwrap();
    store.flush().unwrap();
    store.unmap(0, 2048).unwrap();
    store.write_zeroes(0, 100, true).unwrap();
    store.extents(0, 512, 1).unwrap();
    store.resize(SIZE - 512).unwrap_err();

    let count = |ops, bytes, errors| OpCount { ops, bytes, errors };
    assert_eq!(stats.get(Op::Write), count(3, 1024, 1));
    assert_eq!(stats.get(Op::Read), count(2, 1536, 0));
    assert_eq!(stats.get(Op::Flush), count(1, 0, 0));
    assert_eq!(stats.get(Op::Unmap), count(1, 2048, 0));
    assert_eq!(stats.get(Op::WriteZeroes), count(1, 100, 0));
    assert_eq!(stats.get(Op::Extents), count(1, 512, 0));
    assert_eq!(stats.get(Op::Resize), count(1, 0, 1));
    assert_eq!(stats.get(Op::Open), OpCount::default());
}

/// A store that answers every call in a way of its own, and remembers which calls reached it.
struct Probe {
    calls: Mutex<Vec<&'static str>>,
    /// With protection information and a label.
    inner: Arc<dyn BlockStore>,
}

impl Probe {
    fn called<T>(&self, name: &'static str, answer: T) -> Result<T, StoreError> {
        self.calls.lock().push(name);
        Ok(answer)
    }
}

impl InPlace for Probe {
    fn read_in_place(&self, _: u64, _: u64, _: &mut dyn FnMut(&[u8])) -> Result<(), StoreError> {
        self.called("read_in_place", ())
    }
    fn prefetch(&self, _: u64, _: usize) -> Prefetch {
        Prefetch::default()
    }
    fn write_in_place(&self, _: u64, _: u64, _: &mut dyn FnMut(&mut [u8])) -> Result<(), StoreError> {
        self.called("write_in_place", ())
    }
}

const GEOMETRY: Geometry = Geometry {
    size_bytes: SIZE,
    logical_block_bytes: 512,
    physical_block_bytes: 4096,
    rotational: true,
    discard_granularity_bytes: 8192,
    read_only: false,
};

fn failed_flush() -> FailedFlush {
    FailedFlush { reason: "the probe says so".to_owned(), unflushed_bytes: 7 }
}

impl BlockStore for Probe {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }
    fn placement(&self) -> Placement {
        Placement::Inline
    }
    fn description(&self) -> String {
        "probe".to_owned()
    }
    fn read(&self, _: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        dst.fill(1);
        self.called("read", ())
    }
    fn read_now(&self, _: u64, dst: &mut [u8]) -> Result<bool, StoreError> {
        dst.fill(2);
        self.called("read_now", true)
    }
    fn read_medium(&self, _: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        dst.fill(3);
        self.called("read_medium", ())
    }
    fn medium_reads(&self) -> MediumReads {
        MediumReads::CacheDropped
    }
    fn read_crc32c(&self, _: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        dst.fill(4);
        self.called("read_crc32c", crc + 100)
    }
    fn write(&self, _: u64, _: &[&[u8]], _: Durability) -> Result<(), StoreError> {
        self.called("write", ())
    }
    fn atomic_write_bytes_max(&self) -> u64 {
        65_536
    }
    fn write_atomic(
        &self,
        _: u64,
        _: &[&[u8]],
        _: Option<&RecordRun>,
        _: Durability,
    ) -> Result<(), StoreError> {
        self.called("write_atomic", ())
    }
    fn overwrites_in_place(&self) -> bool {
        true
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        Some(self)
    }
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        self.called("reopen", Some(failed_flush()))
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.called("flush", ())
    }
    fn unmap(&self, _: u64, _: u64) -> Result<(), StoreError> {
        self.called("unmap", ())
    }
    fn write_zeroes(&self, _: u64, _: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.called(if may_unmap { "write_zeroes, unmap" } else { "write_zeroes" }, ())
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        self.called("extents", vec![Extent { offset, len, mapped: false }; max])
    }
    fn resize(&self, _: u64) -> Result<(), StoreError> {
        self.called("resize", ())
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.called("medium_bytes", 3 << 20)
    }
    fn make_writable(&self) -> Result<(), StoreError> {
        self.called("make_writable", ())
    }
    fn records(&self) -> Option<&Records> {
        self.inner.records()
    }
    fn label(&self) -> Option<&Arc<Label>> {
        self.inner.label()
    }
}

/// Every call reaches the store below, and its answer comes back.
fn passes_on(name: &str, store: &dyn BlockStore, probe: &Probe) {
    let called = |expected: &str| {
        let calls = std::mem::take(&mut *probe.calls.lock());
        assert_eq!(calls, [expected], "{name}");
    };
    assert_eq!((store.geometry(), store.atomic_write_bytes_max()), (GEOMETRY, 65_536), "{name}");
    assert!(store.overwrites_in_place() && store.description().contains("probe"), "{name}");
    assert_eq!(store.medium_reads(), MediumReads::CacheDropped, "{name}");
    assert_eq!(store.records().unwrap().format(), probe.inner.records().unwrap().format(), "{name}");
    assert!(Arc::ptr_eq(store.label().unwrap(), probe.inner.label().unwrap()), "{name}");
    let mut dst = [0; 512];
    store.read(0, &mut dst).unwrap();
    called("read");
    assert_eq!(dst, [1; 512], "{name}");
    store.read_medium(0, &mut dst).unwrap();
    called("read_medium");
    assert_eq!(dst, [3; 512], "{name}");
    assert_eq!(store.read_crc32c(0, &mut dst, 5).unwrap(), 105, "{name}");
    called("read_crc32c");
    assert_eq!(dst, [4; 512], "{name}");
    store.write(0, &[&[0; 512]], Durability::Cached).unwrap();
    called("write");
    store.write_atomic(0, &[&[0; 512]], None, Durability::Durable).unwrap();
    called("write_atomic");
    store.flush().unwrap();
    called("flush");
    store.unmap(0, 512).unwrap();
    called("unmap");
    store.write_zeroes(0, 512, true).unwrap();
    called("write_zeroes, unmap");
    store.write_zeroes(0, 512, false).unwrap();
    called("write_zeroes");
    let extent = Extent { offset: 512, len: 1024, mapped: false };
    assert_eq!(store.extents(512, 1024, 2).unwrap(), [extent; 2], "{name}");
    called("extents");
    store.resize(2 << 20).unwrap();
    called("resize");
    assert_eq!(store.medium_bytes().unwrap(), 3 << 20, "{name}");
    called("medium_bytes");
    store.make_writable().unwrap();
    called("make_writable");
    assert_eq!(store.reopen().unwrap(), Some(failed_flush()), "{name}");
    called("reopen");
}

#[test]
fn the_store_below_is_seen_through_every_wrapper() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("file:{},size=1M,pi=1", folder.path().join("disk").display());
    let inner = spec.parse::<StoreSpec>().unwrap().open().unwrap();
    let probe = Arc::new(Probe { calls: Mutex::default(), inner });
    let (delayed, _gate) = DelayStore::new(Arc::clone(&probe), Duration::ZERO);
    let (faulty, handle) = FaultStore::new(Arc::clone(&probe));
    let counting = StatsStore::new(Arc::clone(&probe));
    let wrappers: [(&str, &dyn BlockStore, Placement); 3] = [
        ("delay", &delayed, Placement::Offload),
        ("fault", &faulty, Placement::Inline),
        ("stats", &counting, Placement::Inline),
    ];
    for (name, store, placement) in wrappers {
        passes_on(name, store, &probe);
        assert_eq!(store.placement(), placement, "{name}");
        // What would go past the wrapper is not offered.
        assert!(store.in_place().is_none(), "{name}");
        assert!(!store.read_now(0, &mut [0; 512]).unwrap(), "{name}");
        assert!(probe.calls.lock().is_empty(), "{name}");
    }
    // A pointer is no wrapper: it offers everything.
    let pointers: [(&str, &dyn BlockStore); 3] =
        [("&", &&*probe), ("Arc", &probe), ("Box", &Box::new(&*probe))];
    for (name, store) in pointers {
        passes_on(name, store, &probe);
        assert!(store.placement() == Placement::Inline && store.in_place().is_some(), "{name}");
        assert!(store.read_now(0, &mut [0; 512]).unwrap(), "{name}");
        probe.calls.lock().clear();
    }
    assert_eq!(counting.stats().get(Op::Read), OpCount { ops: 3, bytes: 1536, errors: 0 });
    assert_eq!(counting.stats().get(Op::Write), OpCount { ops: 2, bytes: 1024, errors: 0 });
    // Nothing but the operations that the rule names is affected by it.
    handle.arm(FaultRule::new(Op::Read, Fault::Error(FaultError::Medium)));
    let atomic = |store: &dyn BlockStore| store.write_atomic(512, &[&[1; 512]], None, Durability::Cached);
    atomic(&faulty).unwrap();
    assert!(faulty.read_medium(0, &mut [0; 512]).is_err());
    for (fault, fails, reaches) in [
        (Fault::Error(FaultError::NoSpace), true, false),
        (Fault::Torn { keep_bytes: 100 }, true, false),
        (Fault::Lost, false, false),
        (Fault::BitFlip { offset: 600, mask: 1 }, false, true),
    ] {
        handle.clear();
        handle.arm(FaultRule::new(Op::Write, fault.clone()));
        probe.calls.lock().clear();
        assert_eq!(atomic(&faulty).is_err(), fails, "{fault:?}");
        assert_eq!(probe.calls.lock().contains(&"write_atomic"), reaches, "{fault:?}");
    }
}

#[test]
fn a_run_of_records_knows_its_length() {
    let mut run = RecordRun::with_capacity(2);
    assert!(run.is_empty());
    run.push(blockstore::Record::Unwritten);
    assert_eq!((run.is_empty(), run.len()), (false, 1));
    run.truncate(0);
    assert!(run.is_empty());
}

/// Protection information is no reason to read something else than the medium.
#[test]
fn a_volume_with_protection_information_reads_its_medium() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, options: &str| {
        format!("file:{},size=1M,pi=1{options}", folder.path().join(name).display())
    };
    for (spec, in_memory) in
        [("ram:1M,pi=1".to_owned(), true), (file("a", ""), false), (file("b", ",atomic=64K"), false)]
    {
        let store = spec.parse::<StoreSpec>().unwrap().open().unwrap();
        write(&store, 512, 7).unwrap();
        let mut dst = [1; 1024];
        assert!(!store.read_now(512, &mut dst).unwrap(), "it may be between a block and its record: {spec}");
        assert_eq!(dst, [1; 1024], "{spec}");
        store.read_medium(512, &mut dst).unwrap();
        assert_eq!(dst[..], [[7; 512], [0; 512]].concat(), "{spec}");
        assert_eq!(store.medium_reads() == MediumReads::Memory, in_memory, "{spec}");
        assert!(store.read_medium(SIZE, &mut dst).is_err(), "{spec}");
    }
}
