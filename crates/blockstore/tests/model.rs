//! Random operations on a store and on a plain vector must agree.

use std::sync::Arc;

use blockstore::{
    BlockStore, DelayStore, Durability, FaultStore, FileOptions, FileStore, RamStore, StatsStore, StoreError,
};
use proptest::prelude::*;

const START_BYTES: u64 = 5 * 65536 + 4096;

#[derive(Clone, Debug)]
enum Step {
    Read { offset: u64, len: u64 },
    Write { offset: u64, len: u64, seed: u8, cut: usize, durable: bool },
    Unmap { offset: u64, len: u64 },
    WriteZeroes { offset: u64, len: u64, may_unmap: bool },
    Extents { offset: u64, len: u64, max: usize },
    Flush,
    Grow { blocks: u64 },
}

/// Ranges of every kind: aligned or not, tiny or across several chunks, some beyond the end.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let any = (0..START_BYTES + 20_000, 0..3u64 * 65536);
    let blocks = (0..START_BYTES / 512, 0..64u64).prop_map(|(at, len)| (at * 512, len * 512));
    let chunks = (0..5u64, 1..4u64).prop_map(|(at, len)| (at * 65536, len * 65536));
    let tiny = (0..START_BYTES, 0..3u64);
    prop_oneof![any, blocks, chunks, tiny]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => range().prop_map(|(offset, len)| Step::Read { offset, len }),
        5 => (range(), any::<u8>(), 1..70_000usize, any::<bool>()).prop_map(|((offset, len), seed, cut, durable)| {
            Step::Write { offset, len, seed, cut, durable }
        }),
        2 => range().prop_map(|(offset, len)| Step::Unmap { offset, len }),
        2 => (range(), any::<bool>())
            .prop_map(|((offset, len), may_unmap)| Step::WriteZeroes { offset, len, may_unmap }),
        2 => (range(), 0..5usize).prop_map(|((offset, len), max)| Step::Extents { offset, len, max }),
        1 => Just(Step::Flush),
        1 => (1..40u64).prop_map(|blocks| Step::Grow { blocks }),
    ]
}

/// CRC32C bit by bit: an oracle that shares nothing with the kernels.
fn crc32c_bitwise(crc: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!crc, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    })
}

fn part(model: &[u8], offset: u64, len: u64) -> Option<std::ops::Range<usize>> {
    let end = offset.checked_add(len).filter(|&end| end <= model.len() as u64)?;
    Some(offset as usize..end as usize)
}

/// The result must be success exactly when the range is inside.
fn check(result: Result<(), StoreError>, inside: bool) -> Result<(), TestCaseError> {
    match result {
        Ok(()) => prop_assert!(inside, "a range outside was accepted"),
        Err(StoreError::OutOfRange { .. }) => prop_assert!(!inside, "a range inside was refused"),
        Err(error) => prop_assert!(false, "{error}"),
    }
    Ok(())
}

fn run(store: &dyn BlockStore, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = vec![0u8; START_BYTES as usize];
    for step in steps {
        match *step {
            Step::Read { offset, len } => {
                let inside = part(&model, offset, len);
                let mut dst = vec![0xEE; len as usize];
                check(store.read(offset, &mut dst), inside.is_some())?;
                if let Some(range) = inside {
                    prop_assert!(dst == model[range.clone()], "read {offset}+{len}");
                    dst.fill(0xEE);
                    let at_once = store.read_now(offset, &mut dst).unwrap();
                    prop_assert!(!at_once || dst == model[range.clone()], "read_now {offset}+{len}");
                    dst.fill(0xEE);
                    let crc = store.read_crc32c(offset, &mut dst, 0x1234_5678).unwrap();
                    prop_assert!(dst == model[range], "read_crc32c {offset}+{len}");
                    prop_assert_eq!(crc, crc32c_bitwise(0x1234_5678, &dst));
                }
            }
            Step::Write { offset, len, seed, cut, durable } => {
                let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
                let inside = part(&model, offset, len);
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                let slices: Vec<&[u8]> = data.chunks(cut).collect();
                check(store.write(offset, &slices, durability), inside.is_some())?;
                if let Some(range) = inside {
                    model[range].copy_from_slice(&data);
                }
            }
            Step::Unmap { offset, len } => {
                let inside = part(&model, offset, len);
                check(store.unmap(offset, len), inside.is_some())?;
                if let Some(range) = inside {
                    model[range].fill(0);
                }
            }
            Step::WriteZeroes { offset, len, may_unmap } => {
                let inside = part(&model, offset, len);
                check(store.write_zeroes(offset, len, may_unmap), inside.is_some())?;
                if let Some(range) = inside {
                    model[range].fill(0);
                }
            }
            Step::Extents { offset, len, max } => match store.extents(offset, len, max) {
                Ok(extents) => {
                    prop_assert!(part(&model, offset, len).is_some() && len > 0);
                    prop_assert!(!extents.is_empty() && extents.len() <= max.max(1));
                    let mut at = offset;
                    for extent in &extents {
                        prop_assert!(extent.offset == at && extent.len > 0, "gap in {extents:?}");
                        at += extent.len;
                        let range = part(&model, extent.offset, extent.len).unwrap();
                        let zero = model[range].iter().all(|&byte| byte == 0);
                        prop_assert!(extent.mapped || zero, "data in a hole: {extent:?}");
                    }
                    prop_assert!(at <= offset + len);
                }
                Err(error) => check(Err(error), part(&model, offset, len).is_some() && len > 0)?,
            },
            Step::Flush => store.flush().unwrap(),
            Step::Grow { blocks } => {
                let size = model.len() as u64 + blocks * 512;
                store.resize(size).unwrap();
                model.resize(size as usize, 0);
                prop_assert_eq!(store.geometry().size_bytes, size);
                prop_assert!(store.resize(size - 512).is_err(), "shrinking must be refused");
            }
        }
    }
    let mut all = vec![0xEE; model.len()];
    store.read(0, &mut all).unwrap();
    prop_assert!(all == model, "the whole store at the end");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ram_store_agrees_with_a_vector(steps in prop::collection::vec(step(), 1..40)) {
        let store = RamStore::new(START_BYTES, 512).unwrap();
        run(&store, &steps)?;
        store.unmap(0, store.geometry().size_bytes).unwrap();
        prop_assert!(store.resident_bytes() <= 65536, "only the last, partial chunk may stay");
    }

    #[test]
    fn file_store_agrees_with_a_vector(steps in prop::collection::vec(step(), 1..30)) {
        let directory = tempfile::tempdir().unwrap();
        let options = FileOptions { size_bytes: Some(START_BYTES), ..FileOptions::default() };
        run(&FileStore::open(directory.path().join("disk"), &options).unwrap(), &steps)?;
    }

    #[test]
    fn stacked_wrappers_change_nothing(steps in prop::collection::vec(step(), 1..20)) {
        let inner: Arc<dyn BlockStore> = Arc::new(RamStore::new(START_BYTES, 512).unwrap());
        let (fault, _handle) = FaultStore::new(inner);
        let (delay, _gate) = DelayStore::new(Box::new(fault), std::time::Duration::ZERO);
        run(&StatsStore::new(delay), &steps)?;
    }
}
