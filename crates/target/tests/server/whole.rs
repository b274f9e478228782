//! WRITE ATOMIC and SANITIZE on whole servers: offered only if the store can keep their guarantees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockstore::{BlockStore, Fault, FaultError, FaultRule, FaultStore, Op, RamStore};
use conform::{Command, Session};
use iscsi_core::wire::{TmfFunction, TmfResponse};

use crate::support::*;

/// The maximum transfer of unit 0, 1 MiB: 2048 blocks, 17 chunks of the store if it starts within one.
const BLOCKS: usize = 2048;

fn write_atomic(lba: u64, blocks: usize, byte: u8) -> Command {
    let mut cdb = [0; 16];
    cdb[0] = 0x9c;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[12..14].copy_from_slice(&(blocks as u16).to_be_bytes());
    Command::write(cdb, vec![byte; blocks * BLOCK as usize])
}

fn bytes_at(session: &mut Session, lba: u64, blocks: u32) -> Vec<u8> {
    session.run_good(&Command::read_16(lba, blocks, BLOCK)).unwrap().data
}

/// MAXIMUM ATOMIC TRANSFER LENGTH, alignment and granularity of page B0h.
fn atomic_limits(session: &mut Session) -> [u32; 3] {
    let page = session.run_good(&Command::read([0x12, 1, 0xb0, 0, 64, 0], 64)).unwrap().data;
    [44, 48, 52].map(|at| u32::from_be_bytes(page[at..at + 4].try_into().unwrap()))
}

// covers: ATM-01 VPD-B0
#[test]
fn atm_01_who_reads_meanwhile_sees_one_write_or_another_and_no_mixture() {
    no_mixture(config());
}

// covers: ATM-01 VPD-B0
#[test]
fn atm_01_a_file_with_a_journal_shows_no_mixture_either() {
    let directory = tempfile::tempdir().unwrap();
    let config = on_file(directory.path(), ",atomic=1M");
    let spec = config.targets[0].luns[0].store.clone();
    no_mixture(config);
    // A server that shut down cleanly has left no work: a program that changes the file now keeps its change.
    let path = directory.path().join("disk");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 512], 7 * 512).unwrap();
    let mut first = [0; 512];
    spec.open().unwrap().read(7 * 512, &mut first).unwrap();
    assert_eq!(first, [0xee; 512]);
}

// covers: ATM-01 PI-16
#[test]
fn atm_01_a_journal_takes_protection_information_along() {
    let directory = tempfile::tempdir().unwrap();
    no_mixture(on_file(directory.path(), ",pi=1,atomic=1M"));
}

/// Unit 0 of this configuration on a file.
fn on_file(directory: &std::path::Path, options: &str) -> target::config::Config {
    let mut config = config();
    let store = format!("file:{},size=16M{options}", directory.join("disk").display());
    config.targets[0].luns[0].store = store.parse().unwrap();
    config
}

fn no_mixture(config: target::config::Config) {
    let lab = Lab::start(config);
    let mut session = lab.session("a");
    assert_eq!(atomic_limits(&mut session), [BLOCKS as u32, 1, 1]);
    session.run_good(&write_atomic(7, BLOCKS, 1)).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in ["b", "c"] {
            let (lab, ended) = (&lab, &ended);
            scope.spawn(move || {
                let mut session = lab.session(reader);
                while !ended.load(Ordering::Relaxed) {
                    let data = bytes_at(&mut session, 7, BLOCKS as u32);
                    assert!(data[0] > 0 && data.iter().all(|byte| *byte == data[0]), "half a write");
                }
            });
        }
        for round in 2..60 {
            session.run_good(&write_atomic(7, BLOCKS, round)).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    let longer = session.run(&write_atomic(7, BLOCKS + 1, 9)).unwrap();
    assert_eq!(sense(&longer), Some((5, 0x24, 0)));
}

fn fails_half_way(protection: Option<u8>) {
    let ram = || RamStore::new(16 << 20, BLOCK).unwrap();
    let (store, faults) = FaultStore::new(ram());
    let store: Arc<dyn BlockStore> = match protection {
        Some(kind) => {
            Arc::new(blockstore::ProtectedStore::new(Arc::new(store), Arc::new(ram()), kind).unwrap())
        }
        None => Arc::new(store),
    };
    let lab = Lab::with_store(config(), 0, store);
    let mut session = lab.session("a");
    session.run_good(&write_atomic(0, 8, 1)).unwrap();
    for fault in [Fault::Torn { keep_bytes: 1024 }, Fault::Error(FaultError::NoSpace)] {
        faults.arm(FaultRule::new(Op::Write, fault).nth(1));
        assert_eq!(session.run(&write_atomic(0, 8, 2)).unwrap().status, 2);
        assert_eq!(bytes_at(&mut session, 0, 8), [1; 8 * BLOCK as usize]);
    }
    session.run_good(&write_atomic(0, 8, 2)).unwrap();
    assert_eq!(bytes_at(&mut session, 0, 8), [2; 8 * BLOCK as usize]);
}

// covers: ATM-01
#[test]
fn atm_01_one_that_fails_leaves_what_was_there() {
    fails_half_way(None);
}

// covers: ATM-01
#[test]
fn atm_01_one_that_fails_leaves_the_protection_information_that_was_there() {
    fails_half_way(Some(1));
}

// covers: ATM-01 SAN-01
#[test]
fn a_file_alone_promises_neither() {
    let directory = tempfile::tempdir().unwrap();
    let lab = Lab::start(on_file(directory.path(), ""));
    let mut session = lab.session("a");
    assert_eq!(atomic_limits(&mut session), [0, 0, 0]);
    assert_eq!(sense(&session.run(&write_atomic(0, 1, 1)).unwrap()), Some((5, 0x20, 0)));
    let erase = Command::none([0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(sense(&session.run(&erase).unwrap()), Some((5, 0x20, 0)));
}

// covers: SAN-01
#[test]
fn san_01_what_is_in_memory_is_overwritten() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    session.run_good(&write(5, 0x77)).unwrap();
    let pattern = Command::write([0x48, 1, 0, 0, 0, 0, 0, 0, 6, 0], [1, 0, 0, 2, 0xab, 0xcd]);
    session.run_good(&pattern).unwrap();
    assert_eq!(bytes_at(&mut session, 5, 1)[..4], [0xab, 0xcd, 0xab, 0xcd]);
    session.run_good(&Command::none([0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
    assert_eq!(byte_at(&mut session, 5), 0);
}

const BLOCK_ERASE: [u8; 10] = [0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0];
const BLOCK_ERASE_IMMED: [u8; 10] = [0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0];
const IN_PROGRESS: (u8, u8, u8) = (2, 4, 0x1b);

// covers: SAN-01
#[test]
fn san_01_goes_on_when_its_task_is_aborted_and_its_nexus_lost() {
    let (lab, gate) = Lab::gated(config());
    let mut session = lab.session("a");
    session.run_good(&write(5, 0x77)).unwrap();
    gate.close(&[Op::WriteZeroes]);
    let erase = session.start(&Command::none(BLOCK_ERASE)).unwrap();
    gate.wait_for_waiting(1);
    assert_eq!(sense(&test_unit_ready(&mut session)), Some(IN_PROGRESS));
    assert_eq!(session.abort(erase.itt, erase.cmd_sn).unwrap(), TmfResponse::FunctionComplete);
    manage(&mut session, TmfFunction::LogicalUnitReset);
    drop(session);
    let mut session = lab.session("b");
    assert_eq!(sense(&test_unit_ready(&mut session)), Some(IN_PROGRESS));
    gate.open();
    until(|| test_unit_ready(&mut session).status == 0);
    assert_eq!(byte_at(&mut session, 5), 0);
}

// covers: SAN-01
#[test]
fn san_01_with_immed_the_status_comes_first() {
    let (lab, gate) = Lab::gated(config());
    let mut session = lab.session("a");
    session.run_good(&write(5, 0x77)).unwrap();
    gate.close(&[Op::WriteZeroes]);
    session.run_good(&Command::none(BLOCK_ERASE_IMMED)).unwrap();
    gate.wait_for_waiting(1);
    assert_eq!(sense(&session.run(&read(5)).unwrap()), Some(IN_PROGRESS));
    gate.open();
    until(|| test_unit_ready(&mut session).status == 0);
    assert_eq!(byte_at(&mut session, 5), 0);
}

#[test]
fn a_server_that_ends_does_not_wait_for_it() {
    let mut config = config();
    config.targets[0].luns[0].store = "ram:1024T".parse().unwrap();
    let lab = Lab::start(config);
    let mut session = lab.session("a");
    session.run_good(&Command::none(BLOCK_ERASE_IMMED)).unwrap();
    assert_eq!(sense(&test_unit_ready(&mut session)), Some(IN_PROGRESS));
    drop(session);
    lab.server.shutdown(std::time::Duration::ZERO);
}
