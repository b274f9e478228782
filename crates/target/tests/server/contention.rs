//! Eight nexuses on four shards work on the same blocks. Whatever they decide by COMPARE AND WRITE, and whatever they discard and
//! write repeatedly, nothing is lost and no partial change is visible. Tested on memory, where shards work concurrently, on a
//! file, where worker threads do, and on memory with delays before each operation, so that operations interleave wherever they
//! can.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockstore::{BlockStore, Placement, StoreSpec};
use conform::{Command, Session};

use crate::hooked::Hooked;
use crate::support::*;

const NEXUSES: u64 = 8;
const BYTES: usize = BLOCK as usize;

/// Runs `work` concurrently as each of eight nexuses, on every kind of store; then `check` examines the result.
fn contend(work: impl Fn(u64, &mut Session) + Sync, check: impl Fn(&mut Session)) {
    let folder = tempfile::tempdir().unwrap();
    let open = |spec: &str| spec.parse::<StoreSpec>().unwrap().open().unwrap();
    let hesitant =
        |placement| Hooked::new(16 << 20, placement, |_, _| (0..3).for_each(|_| std::thread::yield_now()));
    let stores: [Arc<dyn BlockStore>; 5] = [
        open("ram:16M"),
        open(&format!("file:{},size=16M", folder.path().join("disk").display())),
        open("ram:16M,pi=1"),
        Arc::new(hesitant(Placement::Inline)),
        Arc::new(hesitant(Placement::Offload)),
    ];
    for store in stores {
        let lab = Lab::with_store(config(), 0, store);
        std::thread::scope(|scope| {
            for id in 1..=NEXUSES {
                let (lab, work) = (&lab, &work);
                scope.spawn(move || work(id, &mut lab.session(&format!("host{id}"))));
            }
        });
        check(&mut lab.session("judge"));
    }
}

/// A block that contains `words`.
fn block(words: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.resize(BYTES, 0);
    bytes
}

fn word(block: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(block[at * 8..at * 8 + 8].try_into().unwrap())
}

fn read_blocks(session: &mut Session, lba: u64, blocks: u32) -> Vec<u8> {
    session.run_good(&Command::read_16(lba, blocks, BLOCK)).unwrap().data
}

fn write_blocks(session: &mut Session, lba: u64, data: Vec<u8>) {
    session.run_good(&Command::write_16(lba, data, BLOCK)).unwrap();
}

/// COMPARE AND WRITE of one block; false if the block differed.
fn swap(session: &mut Session, lba: u64, expected: &[u8], new: &[u8]) -> bool {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    let outcome = session.run(&Command::write(cdb, [expected, new].concat())).unwrap();
    match sense(&outcome) {
        None => outcome.is_good(),
        Some((0xe, 0x1d, 0)) => false,
        other => panic!("COMPARE AND WRITE ended with {other:x?}"),
    }
}

fn unmap(session: &mut Session, lba: u64, blocks: u32) {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(lba.to_be_bytes());
    list.extend(blocks.to_be_bytes());
    list.extend([0; 4]);
    session.run_good(&Command::write([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list)).unwrap();
}

fn write_same(session: &mut Session, lba: u64, blocks: u32, data: Vec<u8>, discard: bool) {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x93, if discard { 8 } else { 0 });
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    session.run_good(&Command::write(cdb, data)).unwrap();
}

/// The result of GET LBA STATUS from `lba` on: first block, blocks, and whether they are deallocated.
fn status(session: &mut Session, lba: u64) -> Vec<(u64, u64, bool)> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x9e, 0x12);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&1024u32.to_be_bytes());
    let data = session.run_good(&Command::read(cdb, 1024)).unwrap().data;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let descriptors = data[8..].chunks_exact(16);
    descriptors.map(|d| (number(&d[..8]), number(&d[8..12]), d[12] & 0xf == 1)).collect()
}

// covers: CAW-01 TSK-08
#[test]
fn caw_01_a_counter_loses_no_increment() {
    const EACH: u64 = 60;
    contend(
        |_, session| {
            for _ in 0..EACH {
                loop {
                    let now = read_blocks(session, 5, 1);
                    if swap(session, 5, &now, &block(&[word(&now, 0) + 1])) {
                        break;
                    }
                }
            }
        },
        |session| assert_eq!(word(&read_blocks(session, 5, 1), 0), NEXUSES * EACH),
    );
}

// As VMFS does: a node is written first and then linked by ATS of the head.
#[test]
fn caw_01_a_list_that_all_build_has_every_node_once() {
    const EACH: u64 = 25;
    contend(
        |id, session| {
            for n in 0..EACH {
                let node = 100 + id * EACH + n;
                loop {
                    let head = read_blocks(session, 0, 1);
                    write_blocks(session, node, block(&[word(&head, 0), id]));
                    if swap(session, 0, &head, &block(&[node, word(&head, 1) + 1])) {
                        break;
                    }
                }
            }
        },
        |session| {
            let head = read_blocks(session, 0, 1);
            assert_eq!(word(&head, 1), NEXUSES * EACH);
            let (mut at, mut seen) = (word(&head, 0), Vec::new());
            while at != 0 {
                assert!(!seen.contains(&at), "block {at} is in the list twice");
                seen.push(at);
                let node = read_blocks(session, at, 1);
                assert_eq!(word(&node, 1), (at - 100) / EACH, "somebody else's node at block {at}");
                at = word(&node, 0);
            }
            assert_eq!(seen.len() as u64, NEXUSES * EACH);
        },
    );
}

// A lock of one block, taken by ATS and released by every command that makes zeros. The holder counts with plain reads and writes.
#[test]
fn a_lock_that_is_let_go_by_discards_is_held_by_one() {
    const EACH: u64 = 16;
    contend(
        |id, session| {
            let (free, mine) = (block(&[]), block(&[id]));
            for n in 0..EACH {
                while !swap(session, 8, &free, &mine) {}
                let counted = word(&read_blocks(session, 9, 1), 0);
                assert!(read_blocks(session, 8, 1) == mine, "somebody else has the lock of nexus {id}");
                write_blocks(session, 9, block(&[counted + 1]));
                match n % 4 {
                    0 => unmap(session, 8, 1),
                    1 => write_same(session, 8, 1, free.clone(), true),
                    2 => write_same(session, 8, 1, free.clone(), false),
                    _ => assert!(swap(session, 8, &mine, &free), "the lock was not held"),
                }
            }
        },
        |session| assert_eq!(word(&read_blocks(session, 9, 1), 0), NEXUSES * EACH),
    );
}

// Writes, discards and patterns on the same blocks, with counters among them that are never discarded, and GET LBA STATUS.
#[test]
fn every_block_is_of_one_command_whoever_discards_around_it() {
    const EACH: u64 = 40;
    const AREA: u64 = 300;
    let bumped = AtomicU64::new(0);
    contend(
        |id, session| {
            for n in 0..EACH {
                let (from, blocks) = (1024 + (n * 37 + id * 53) % (AREA - 40), (n % 39 + 1) as u32);
                match (n + id) % 5 {
                    0 => write_blocks(session, from, vec![id as u8; blocks as usize * BYTES]),
                    1 => unmap(session, from, blocks),
                    2 => write_same(session, from, blocks, vec![id as u8; BYTES], false),
                    3 => write_same(session, from, blocks, vec![0; BYTES], true),
                    _ => {
                        // The adjacent blocks on both sides are discarded all the time.
                        let counter = 1024 + AREA;
                        unmap(session, counter - 1, 1);
                        unmap(session, counter + 1, 127);
                        let now = read_blocks(session, counter, 1);
                        if swap(session, counter, &now, &block(&[word(&now, 0) + 1])) {
                            bumped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                for (at, seen) in read_blocks(session, from, blocks).chunks(BYTES).enumerate() {
                    assert!(seen.iter().all(|byte| *byte == seen[0]), "block {} is mixed", from + at as u64);
                    assert!(u64::from(seen[0]) <= NEXUSES, "block {} is nobody's", from + at as u64);
                }
                let mut next = 1024;
                for (lba, blocks, _) in status(session, 1024) {
                    assert!(lba == next && blocks > 0, "the list has a gap before block {lba}");
                    next = lba + blocks;
                }
            }
        },
        |session| {
            assert_eq!(word(&read_blocks(session, 1024 + AREA, 1), 0), bumped.swap(0, Ordering::Relaxed));
            for (lba, blocks, deallocated) in status(session, 1024) {
                let blocks = blocks.min(AREA) as u32;
                let zeros = read_blocks(session, lba, blocks).iter().all(|byte| *byte == 0);
                assert!(zeros || !deallocated, "blocks {lba} and on are deallocated and hold something");
            }
        },
    );
}
