//! What was acknowledged is there after the target was killed under load: our own client writes to a volume in a file, the
//! server is killed with SIGKILL at random points and started again, and the client comes back by itself.
//!
//! Each block of a volume holds its own number and a generation, all over its length. A writer knows which generation of a
//! block it has submitted last, and which one it may rely on: in a store with a write cache the one written before a flush
//! that ended, without one (WCE=0, or FUA) the one whose write ended. A killed process loses its memory and not the system's
//! cache; that a flush reaches the medium is tested with the stores.
//!
//! `INTACT_KILLS` is how often each server is killed: `cargo xtask kill` sets it.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{IQN, serve, serve_at, target, until};
use initiator::{Disk, IoError, IscsiUrl, Session, Ticket, WriteData};

const BLOCK_BYTES: usize = 4096;
const WRITERS: usize = 4;
const BLOCKS_PER_WRITER: usize = 128;
/// Blocks of one write, at most.
const MOST_BLOCKS: usize = 16;
const KILLS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Writes into the cache, and SYNCHRONIZE CACHE.
    Flush,
    /// A volume without write cache.
    NoCache,
    /// Writes with FUA.
    ForceUnitAccess,
}

/// What the writers know of a block.
#[derive(Default)]
struct Known {
    /// The generation that was submitted last.
    submitted: AtomicU64,
    /// The generation that must be there at least.
    safe: AtomicU64,
}

/// Numbers that differ from run to run; a failure names the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// A block of this number and generation.
fn block(number: usize, generation: u64) -> Vec<u8> {
    let mut unit = [0; 16];
    unit[..8].copy_from_slice(&(number as u64).to_be_bytes());
    unit[8..].copy_from_slice(&generation.to_be_bytes());
    unit.repeat(BLOCK_BYTES / 16)
}

/// The generation of a block; the words of an error when it is not one whole block of its own.
fn generation_of(number: usize, bytes: &[u8]) -> Result<u64, String> {
    let (units, _) = bytes.as_chunks::<16>();
    if units.iter().any(|unit| *unit != units[0]) {
        return Err(format!("block {number} is torn"));
    }
    let half = |at: usize| u64::from_be_bytes(units[0][at..at + 8].try_into().unwrap());
    match (half(0), half(8)) {
        (0, 0) => Ok(0),
        (own, generation) if own == number as u64 => Ok(generation),
        (other, _) => Err(format!("block {number} holds block {other}")),
    }
}

/// Holds the blocks of the file or the volume against what must be there.
fn check(known: &[Known], seed: u64, mut read: impl FnMut(u64, &mut [u8])) {
    // Taken first: a writer may be told of more while this reads.
    let safe: Vec<u64> = known.iter().map(|known| known.safe.load(Ordering::SeqCst)).collect();
    let mut bytes = vec![0; BLOCKS_PER_WRITER * BLOCK_BYTES];
    let mut number = 0;
    for safe in safe.chunks(BLOCKS_PER_WRITER) {
        let bytes = &mut bytes[..safe.len() * BLOCK_BYTES];
        read((number * BLOCK_BYTES) as u64, bytes);
        for (safe, bytes) in safe.iter().zip(bytes.chunks(BLOCK_BYTES)) {
            let found = generation_of(number, bytes).unwrap_or_else(|why| panic!("{why}; seed {seed}"));
            let submitted = known[number].submitted.load(Ordering::SeqCst);
            assert!(
                (*safe..=submitted).contains(&found),
                "block {number} holds generation {found}; {safe} was acknowledged, {submitted} submitted; seed {seed}"
            );
            number += 1;
        }
    }
}

fn open(portal: SocketAddr) -> Disk {
    let url = IscsiUrl::parse(&format!("iscsi://{portal}/{IQN}/0")).unwrap();
    let session = Session::connect(url.options().unwrap()).unwrap();
    Disk::open(&session, url.unit().unwrap().1).unwrap()
}

/// WRITE (16) of whole blocks.
fn write(disk: &Disk, mode: Mode, number: usize, data: Vec<u8>) -> Ticket {
    let logical = disk.capacity().block_bytes as usize;
    let mut cdb = [0; 16];
    cdb[0] = 0x8a;
    cdb[1] = if mode == Mode::ForceUnitAccess { 0x08 } else { 0 };
    cdb[2..10].copy_from_slice(&((number * BLOCK_BYTES / logical) as u64).to_be_bytes());
    cdb[10..14].copy_from_slice(&((data.len() / logical) as u32).to_be_bytes());
    disk.submit(&cdb, 0, WriteData::from(bytes::Bytes::from(data)))
}

/// One writer: rounds of writes to its own blocks, none twice in a round, until told to end.
fn load(
    disk: &Disk,
    mode: Mode,
    writer: usize,
    known: &[Known],
    random: &mut Random,
    end: &AtomicBool,
    rounds: &AtomicU64,
) {
    let (first, mut generation) = (writer * BLOCKS_PER_WRITER, 0);
    while !end.load(Ordering::Relaxed) {
        generation += 1;
        let (mut at, mut under_way) = (first + random.below(MOST_BLOCKS), Vec::new());
        while at < first + BLOCKS_PER_WRITER {
            let count = (1 + random.below(MOST_BLOCKS)).min(first + BLOCKS_PER_WRITER - at);
            let blocks = at..at + count;
            let data: Vec<u8> = blocks.clone().flat_map(|number| block(number, generation)).collect();
            for number in blocks.clone() {
                known[number].submitted.store(generation, Ordering::SeqCst);
            }
            under_way.push((blocks, write(disk, mode, at, data)));
            at += count + random.below(MOST_BLOCKS);
        }
        let mut written = Vec::new();
        for (blocks, ticket) in under_way {
            ticket.wait().unwrap();
            if mode == Mode::Flush {
                written.push(blocks);
            } else {
                blocks.for_each(|number| known[number].safe.store(generation, Ordering::SeqCst));
            }
        }
        if mode == Mode::Flush {
            match disk.flush() {
                Ok(()) => written
                    .into_iter()
                    .flatten()
                    .for_each(|number| known[number].safe.store(generation, Ordering::SeqCst)),
                // The server was killed in between: nothing of this round is relied on.
                Err(IoError::LostWrites(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // Nobody else writes here: all that was acknowledged is what is read, also when the session was lost meanwhile.
        let mut bytes = vec![0; BLOCKS_PER_WRITER * BLOCK_BYTES];
        disk.read((first * BLOCK_BYTES) as u64, &mut bytes).unwrap();
        for (number, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
            let found = generation_of(number, bytes).unwrap();
            assert_eq!(found, known[number].submitted.load(Ordering::SeqCst), "block {number} read back");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// `options`: of the store, besides its size.
fn survives(mode: Mode, options: &str) {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("{mode:?}{options}: seed {seed}");
    let kills = std::env::var("INTACT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    // What its log has is not in the file yet.
    let in_file = !options.contains("pi=");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk.img");
    let config = config(&file, mode, options);
    let mut server = serve(directory.path(), 1, &config);
    let portal = server.portal();
    let known: Vec<Known> = (0..WRITERS * BLOCKS_PER_WRITER).map(|_| Known::default()).collect();
    let (end, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let image = File::open(&file).unwrap();
    let from_file = |offset: u64, bytes: &mut [u8]| image.read_exact_at(bytes, offset).unwrap();
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&end);
        for writer in 0..WRITERS {
            let (known, end, rounds) = (&known, &end, &rounds);
            let mut random = Random(seed.wrapping_add(writer as u64) | 1);
            scope.spawn(move || {
                let disk = open(portal);
                load(&disk, mode, writer, known, &mut random, end, rounds);
            });
        }
        let mut random = Random(seed);
        for kill in 0..kills {
            // So many rounds, and then a moment that falls anywhere into one.
            let goal = rounds.load(Ordering::Relaxed) + 2 + random.below(24) as u64;
            until("the writers come back and go on", || rounds.load(Ordering::Relaxed) >= goal);
            std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
            server.signal(crate::common::Signal::KILL);
            server.wait();
            if in_file {
                check(&known, seed, from_file);
            }
            server = serve_at(directory.path(), &[portal], &config);
            if !in_file {
                let disk = open(portal);
                check(&known, seed, |offset, bytes| {
                    let read = disk.read(offset, bytes);
                    read.unwrap_or_else(|error| panic!("unreadable after a kill: {error}; seed {seed}"));
                });
            }
            println!("{mode:?}{options}: kill {kill} after {} rounds", rounds.load(Ordering::Relaxed));
        }
        let goal = rounds.load(Ordering::Relaxed) + 4 * WRITERS as u64;
        until("the writers come back after the last kill", || rounds.load(Ordering::Relaxed) >= goal);
    });
    // All writers have ended well: everything submitted is acknowledged, and a new session reads it.
    let disk = open(portal);
    disk.flush().unwrap();
    for known in &known {
        known.safe.store(known.submitted.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    check(&known, seed, |offset, bytes| disk.read(offset, bytes).unwrap());
    assert!(rounds.load(Ordering::Relaxed) > 0);
}

fn config(file: &Path, mode: Mode, options: &str) -> String {
    // Without the wait that the standard proposes between a loss and the next login.
    let keys = "[target.negotiation]\ndefault_time2wait_s = 0\nheader_digest = \"required\"\ndata_digest = \"required\"";
    let size = WRITERS * BLOCKS_PER_WRITER * BLOCK_BYTES;
    let store = format!("file:{},size={size}{options}", file.display());
    let cache = if mode == Mode::NoCache { "write_cache = false\n" } else { "" };
    target(IQN, keys, &[&store]) + cache
}

/// Lets the writers end also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_was_flushed_is_there() {
    survives(Mode::Flush, "");
}

#[test]
fn without_a_write_cache_what_was_acknowledged_is_there() {
    survives(Mode::NoCache, "");
}

#[test]
fn what_was_written_with_fua_is_there() {
    survives(Mode::ForceUnitAccess, "");
}

#[test]
fn with_a_journal_what_was_flushed_is_there() {
    survives(Mode::Flush, ",atomic=64K");
}

// covers: PI-15
#[test]
fn with_protection_information_every_block_is_readable_and_what_was_flushed_is_there() {
    survives(Mode::Flush, ",pi=1");
}

// covers: PI-15
#[test]
fn with_protection_information_and_without_a_write_cache_what_was_acknowledged_is_there() {
    survives(Mode::NoCache, ",block=4096,pi=3,atomic=64K");
}

#[test]
fn the_check_sees_torn_foreign_and_lost_blocks() {
    assert_eq!(generation_of(3, &block(3, 9)), Ok(9));
    assert_eq!(generation_of(3, &[0; BLOCK_BYTES]), Ok(0));
    let mut torn = block(3, 9);
    torn[BLOCK_BYTES / 2..].copy_from_slice(&block(3, 8)[BLOCK_BYTES / 2..]);
    assert!(generation_of(3, &torn).unwrap_err().contains("torn"));
    assert!(generation_of(3, &block(4, 9)).unwrap_err().contains("block 4"));
    let known = [Known { submitted: 9.into(), safe: 8.into() }];
    let holds = |generation: u64| {
        let known = &known;
        std::panic::catch_unwind(move || {
            check(known, 0, |_, bytes| bytes.copy_from_slice(&block(0, generation)));
        })
        .is_ok()
    };
    assert_eq!([holds(7), holds(8), holds(9), holds(10)], [false, true, true, false]);
}
