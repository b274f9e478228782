//! Stores that fail in every way: the initiator is notified, and the server continues.

use std::sync::{Arc, Mutex};

use blockstore::{Op, Placement, RamStore};
use conform::Command;
use iscsi_core::wire::Lun;

use crate::hooked::Hooked;
use crate::support::*;

#[test]
fn a_store_that_panics_ends_its_command_and_nothing_else() {
    for placement in [Placement::Offload, Placement::Inline] {
        let superstitious = |_, offset| {
            if offset == 13 * 512 {
                std::panic::resume_unwind(Box::new("expected by the test"));
            }
        };
        let store = Hooked::new(16 << 20, placement, superstitious);
        let lab = Lab::with_store(config(), 0, Arc::new(store));
        let mut session = lab.session("a");
        for command in [read(13), write(13, 1)] {
            assert_eq!(sense(&session.run(&command).unwrap()), Some((4, 0x44, 0)), "{placement:?}");
        }
        session.run_good(&write(14, 1)).unwrap();
        // Lost operations hold nothing: the session ends, and so does the server.
        session.log_out().unwrap();
        lab.wait_for_sessions(0);
    }
}

/// For a store that blocks, the shard itself does short reads of available data, and a worker does the rest.
#[test]
fn what_is_at_hand_of_a_store_that_blocks_is_read_at_once() {
    let workers_reads = |op, _| {
        if op == Op::Read {
            std::panic::resume_unwind(Box::new("a worker reads"));
        }
    };
    let store = Hooked::new(16 << 20, Placement::Offload, workers_reads).reading_now();
    let lab = Lab::with_store(config(), 0, Arc::new(store));
    let mut session = lab.session("a");
    session.run_good(&write(3, 0x5a)).unwrap();
    let done = session.run_good(&read(3)).unwrap();
    assert!(done.data.len() == BLOCK as usize && done.data.iter().all(|byte| *byte == 0x5a));
    let blocks = |n| Command::read_16(0, n, BLOCK);
    session.run_good(&blocks(256)).unwrap();
    assert_eq!(sense(&session.run(&blocks(257)).unwrap()), Some((4, 0x44, 0)), "more than 128 KiB");
}

/// A read of a block that is being written goes to a worker, which waits for the write.
#[test]
fn a_read_at_once_does_not_see_a_write_under_way() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let (begun, writing) = std::sync::mpsc::channel();
    let hold_writes = move |op, offset| {
        if op == Op::Write && offset == 3 * u64::from(BLOCK) {
            begun.send(()).unwrap();
            held.lock().unwrap().recv().unwrap();
        }
    };
    let store = Hooked::new(16 << 20, Placement::Offload, hold_writes).reading_now();
    let lab = Lab::with_store(config(), 0, Arc::new(store));
    let mut session = lab.session("a");
    let written = session.start(&write(3, 0x5a)).unwrap();
    writing.recv().unwrap();
    let seen = session.start(&read(3)).unwrap();
    // Another block is not in use, and its read comes after that one in order.
    session.run_good(&read(4)).unwrap();
    assert!(session.stashed(seen.itt).is_none());
    release.send(()).unwrap();
    assert!(session.finish(&written).unwrap().is_good());
    let seen = session.finish(&seen).unwrap();
    assert!(seen.is_good() && seen.data.iter().all(|byte| *byte == 0x5a));
}

/// However many units hang, each with all of its threads, the commands of another unit end before theirs.
#[test]
fn hanging_units_delay_nobody_else() {
    const HUNG: u16 = 12;
    let mut config = config();
    config.limits.store_threads = 8;
    config.targets[0].luns = (0..=HUNG).map(ram).collect();
    let gates = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&gates);
    let lab = Lab::with_open(config, move |lun| {
        let ram = RamStore::new(16 << 20, BLOCK).unwrap();
        let (store, gate) = blockstore::DelayStore::new(ram, std::time::Duration::ZERO);
        if lun.number < HUNG {
            made.lock().unwrap().push(Barrier(gate));
        }
        Ok(Arc::new(store))
    });
    let gates = std::mem::take(&mut *gates.lock().unwrap());
    let mut session = lab.session("a");
    gates.iter().for_each(|gate| gate.close(&[Op::Write]));
    let mut stuck = Vec::new();
    for lun in 0..HUNG {
        session.lun = Lun::from_index(lun);
        session.clear_unit_attentions().unwrap();
        for lba in 0..8 {
            stuck.push(session.start(&write(lba, 1)).unwrap());
        }
    }
    gates.iter().for_each(|gate| gate.wait_for_waiting(1));
    session.lun = Lun::from_index(HUNG);
    session.clear_unit_attentions().unwrap();
    for lba in 0..100 {
        session.run_good(&write(lba, 2)).unwrap();
    }
    // The same with several at a time: one after the other if there is only one thread for them.
    let together: Vec<_> = (0..8).map(|lba| session.start(&write(lba, 3)).unwrap()).collect();
    for sent in &together {
        assert!(session.finish(sent).unwrap().is_good());
    }
    assert!(stuck.iter().all(|sent| session.stashed(sent.itt).is_none()), "none of the others has ended");
    drop(gates);
    for sent in &stuck {
        assert!(session.finish(sent).unwrap().is_good());
    }
}

#[test]
fn an_expected_length_within_a_block_is_read_as_far_as_it_goes() {
    for offload in [false, true] {
        let (lab, _gate) = match offload {
            true => {
                let (lab, gate) = Lab::gated(config());
                (lab, Some(gate))
            }
            false => (Lab::start(config()), None),
        };
        let script = lab.script("a").key("DataDigest", "CRC32C");
        let script = script.key("MaxRecvDataSegmentLength", "513");
        let mut session = lab.login(&script);
        session.clear_unit_attentions().unwrap();
        let data: Vec<u8> = (0..8 * 512u32).map(|i| (i % 251) as u8).collect();
        session.run_good(&Command::write_16(0, data.clone(), BLOCK)).unwrap();
        for edtl in [1u32, 100, 511, 513, 1500, 4096] {
            let outcome = session.run(&Command::read_16(0, 8, BLOCK).edtl(edtl)).unwrap();
            assert!(outcome.is_good(), "{}", outcome.words());
            assert!(outcome.data == data[..edtl as usize], "{edtl} bytes");
        }
    }
}

// One command queries the whole unit, on a shard that has other work.
#[test]
fn get_lba_status_of_a_whole_empty_unit_ends() {
    let store = RamStore::new(1 << 40, BLOCK).unwrap();
    let lab = Lab::with_store(config(), 0, Arc::new(store));
    let mut session = lab.session("a");
    for allocation in [0u32, 8, 24, 1 << 16] {
        let mut cdb = [0u8; 16];
        (cdb[0], cdb[1]) = (0x9e, 0x12);
        cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
        session.run_good(&Command::read(cdb, allocation)).unwrap();
    }
    session.ping().unwrap();
}

// Cached writes that are still in the store when SYNCHRONIZE CACHE arrives do not concern it; those that completed
// before do.
#[test]
fn synchronize_cache_is_durable_for_what_ended_before_it() {
    let (lab, gate) = Lab::gated(config());
    let mut session = lab.session("a");
    session.run_good(&write(1, 1)).unwrap();
    gate.close(&[Op::Flush]);
    let sync = session.start(&Command::none([0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
    gate.wait_for_waiting(1);
    session.ping().unwrap();
    assert_eq!(session.stashed(sync.itt), None, "GOOD before the flush was done");
    gate.open();
    assert!(session.finish(&sync).unwrap().is_good());
}

// A command on the whole medium leaves the shard after its first steps, even if the store is memory.
#[test]
fn format_unit_does_not_hold_up_a_shard() {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&threads);
    let watch = move |op, _| {
        if matches!(op, Op::Unmap | Op::WriteZeroes) {
            seen.lock().unwrap().push(std::thread::current().name().unwrap_or_default().to_owned());
        }
    };
    let store = Hooked::new(1 << 30, Placement::Inline, watch);
    let lab = Lab::with_store(config(), 0, Arc::new(store));
    let mut session = lab.session("a");
    session.run_good(&write(100, 1)).unwrap();
    session.run_good(&Command::none([0x04, 0, 0, 0, 0, 0])).unwrap();
    assert_eq!(byte_at(&mut session, 100), 0);
    let threads = threads.lock().unwrap();
    let on_shards = threads.iter().filter(|name| name.starts_with("shard")).count();
    assert!(threads.len() >= 32 && on_shards <= 2, "{on_shards} of {} steps", threads.len());
}
