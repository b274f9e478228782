//! What each wrapper adds. That they change nothing else is tested in `model.rs`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use blockstore::{
    BlockStore, DelayStore, Durability, Fault, FaultError, FaultHandle, FaultRule, FaultStore, Op, OpCount,
    OpSet, Placement, RamStore, StatsStore, StoreError, StoreSpec,
};

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

#[test]
fn what_the_inner_store_has_is_seen_through_every_wrapper() {
    let inner: Arc<dyn BlockStore> = "ram:1M,pi=1".parse::<StoreSpec>().unwrap().open().unwrap();
    let (delayed, _gate) = DelayStore::new(inner, Duration::ZERO);
    let (faulty, _handle) = FaultStore::new(delayed);
    let store = Box::new(StatsStore::new(faulty));
    assert_eq!(store.records().unwrap().format().kind, 1);
    store.resize(2 << 20).unwrap();
    assert_eq!(store.medium_bytes().unwrap(), 2 << 20);
    store.make_writable().unwrap();
}
