//! What every block may hold: the judge of every read, and of the medium itself.
//!
//! Each block is written with a stamp: who, which block, which version, and a filling that follows from them. Versions of a block
//! only grow, and its writer has at most one write of it under way, so that whatever is read later must be at least the newest
//! version that was acknowledged or read before, and at most the newest that was submitted. A lost write, a write that is applied
//! again after a newer one, a torn block, a block from elsewhere: each breaks that.
//!
//! A power cut may take back what was acknowledged and not flushed, never what was flushed or written through; commands that
//! span one prove nothing about the medium. What it has taken is owed: a flush that ends well for its writer proves that all that was
//! acknowledged before it began is on the medium, or that its writer was told what is lost.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::store::{BLOCK_BYTES, SimStore};
use crate::verdict::Verdict;

const MAGIC: u32 = 0x494e_5441;

/// A version of a block: 0 is the zeros of the beginning.
pub type Version = u64;

/// Who wrote a block, and which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Number of the writer.
    pub writer: u32,
    /// Version.
    pub version: Version,
}

/// The bytes of block `lba` as `stamp` says.
pub fn fill(lba: u64, stamp: Stamp, block: &mut [u8]) {
    if stamp.version == 0 {
        return block.fill(0);
    }
    let mut state = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stamp.version << 20 ^ u64::from(stamp.writer);
    for word in block.chunks_exact_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        word.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    block[..4].copy_from_slice(&MAGIC.to_le_bytes());
    block[4..8].copy_from_slice(&stamp.writer.to_le_bytes());
    block[8..16].copy_from_slice(&lba.to_le_bytes());
    block[16..24].copy_from_slice(&stamp.version.to_le_bytes());
}

/// The stamp of a block that is whole and belongs at `lba`.
///
/// # Errors
/// What is wrong with it.
pub fn stamp_of(lba: u64, block: &[u8]) -> Result<Stamp, String> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
    let stamp = Stamp { writer: (word(0) >> 32) as u32, version: word(16) };
    if stamp.version == 0 && block.iter().all(|byte| *byte == 0) {
        return Ok(Stamp { writer: 0, version: 0 });
    }
    if word(0) as u32 != MAGIC {
        return Err(format!("block {lba} holds no block of ours: {:02x?}...", &block[..24]));
    }
    if word(8) != lba {
        return Err(format!("block {lba} holds what was written to block {}", word(8)));
    }
    let mut right = [0; BLOCK_BYTES];
    fill(lba, stamp, &mut right);
    match right.iter().zip(block).position(|(a, b)| a != b) {
        None => Ok(stamp),
        Some(at) => Err(format!("block {lba}, version {}, is wrong from byte {at} on", stamp.version)),
    }
}

#[derive(Clone, Copy, Default)]
struct Block {
    /// No older version may be read any more.
    floor: Version,
    /// Newest version that was acknowledged.
    acknowledged: Version,
    /// Who was told so.
    writer: u32,
    /// Newest version of which that writer was told that it may be lost.
    told: Version,
    /// Newest version that a power cut may not take.
    durable: Version,
    /// Newest version that was submitted.
    latest: Version,
}

/// What was known of some blocks when a command was submitted.
#[derive(Clone, Debug)]
pub struct Before {
    epoch: u32,
    floors: Vec<Version>,
}

impl Before {
    /// The epoch of that time.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// A block of which a power cut has taken an acknowledged version, and its writer was not told.
#[derive(Clone, Copy)]
struct Owed {
    lba: u64,
    /// The epoch that began with the cut.
    epoch: u32,
    /// What was left.
    left: Version,
}

#[derive(Default)]
struct Books {
    blocks: Vec<Block>,
    /// Power cuts so far.
    epoch: u32,
    /// Blocks that several write by COMPARE AND WRITE: who tried to write a version, and who is known to have.
    tried: FxHashMap<(u64, Stamp), u32>,
    winners: FxHashMap<(u64, Version), u32>,
    /// Versions whose COMPARE AND WRITE was acknowledged.
    granted: FxHashSet<(u64, Version)>,
    /// By writer.
    owed: FxHashMap<u32, Vec<Owed>>,
}

/// See the module. Clones are the same judge.
#[derive(Clone)]
pub struct Oracle {
    books: Arc<Mutex<Books>>,
    verdict: Verdict,
}

impl Oracle {
    /// For a medium of `blocks` blocks of zeros.
    pub fn new(blocks: usize, verdict: Verdict) -> Self {
        let books = Books { blocks: vec![Block::default(); blocks], ..Books::default() };
        Self { books: Arc::new(Mutex::new(books)), verdict }
    }

    /// Tells of a finding that needs no books.
    pub fn broken(&self, what: String) {
        self.verdict.broken(what);
    }

    /// A write of the caller's own block begins: its version.
    pub fn begin_write(&self, lba: u64) -> Version {
        let block = &mut self.books.lock().blocks[lba as usize];
        block.latest += 1;
        block.latest
    }

    /// The time before a command, for what is to be read or flushed.
    pub fn before(&self, lbas: std::ops::Range<u64>) -> Before {
        let books = self.books.lock();
        let floors = books.blocks[lbas.start as usize..lbas.end as usize].iter().map(|b| b.floor).collect();
        Before { epoch: books.epoch, floors }
    }

    /// A write was acknowledged; `through`: with FUA.
    pub fn written(&self, before: &Before, lba: u64, stamp: Stamp, through: bool) {
        let mut books = self.books.lock();
        if before.epoch != books.epoch {
            return;
        }
        let Stamp { writer, version } = stamp;
        let block = &mut books.blocks[lba as usize];
        block.acknowledge(writer, version);
        block.floor = block.floor.max(version);
        if through {
            block.durable = block.durable.max(version);
        }
    }

    /// What a flush will have to cover.
    pub fn begin_flush(&self) -> Before {
        let books = self.books.lock();
        Before { epoch: books.epoch, floors: books.blocks.iter().map(|b| b.acknowledged).collect() }
    }

    /// A flush of `writer` was acknowledged.
    pub fn flushed(&self, before: &Before, writer: u32) {
        let mut books = self.books.lock();
        let due = |owed: &&Owed| {
            before.epoch >= owed.epoch
                || before.floors.get(owed.lba as usize).is_some_and(|had| *had > owed.left)
        };
        if let Some(&Owed { lba, left, .. }) = books.owed.get(&writer).and_then(|all| all.iter().find(due)) {
            let what = "a flush ended well, and nobody was told what a power cut has taken";
            self.broken(format!("{what}: block {lba} of I{writer} was left at version {left}"));
        }
        if before.epoch != books.epoch {
            return;
        }
        for (block, acknowledged) in books.blocks.iter_mut().zip(&before.floors) {
            block.durable = block.durable.max(*acknowledged);
        }
    }

    /// `writer` was told that it may have lost the blocks in `ranges`: what it wrote there before, and whatever takes it, sooner or
    /// later.
    pub fn told(&self, writer: u32, ranges: &[std::ops::Range<u64>]) {
        let mut books = self.books.lock();
        let is_told = |lba: u64| ranges.iter().any(|range| range.contains(&lba));
        for (lba, block) in (0..).zip(&mut books.blocks) {
            if block.writer == writer && is_told(lba) {
                block.told = block.acknowledged;
            }
        }
        if let Some(owed) = books.owed.get_mut(&writer) {
            owed.retain(|owed| !is_told(owed.lba));
        }
    }

    /// A read from `lba` on has brought `data`. The stamps of the blocks, as far as they are right.
    pub fn read(&self, before: &Before, lba: u64, data: &[u8]) -> Vec<Stamp> {
        let mut stamps = Vec::with_capacity(before.floors.len());
        for ((lba, block), floor) in (lba..).zip(data.chunks_exact(BLOCK_BYTES)).zip(&before.floors) {
            match stamp_of(lba, block) {
                Err(what) => {
                    self.broken(format!("a wrong byte was delivered: {what}"));
                    return stamps;
                }
                Ok(stamp) => {
                    stamps.push(stamp);
                    if let Err(what) = self.may_be(before.epoch, lba, stamp, *floor) {
                        self.broken(what);
                        return stamps;
                    }
                }
            }
        }
        stamps
    }

    fn may_be(&self, epoch: u32, lba: u64, stamp: Stamp, floor: Version) -> Result<(), String> {
        let mut books = self.books.lock();
        let this_epoch = epoch == books.epoch;
        let block = &mut books.blocks[lba as usize];
        if stamp.version > block.latest {
            return Err(format!("block {lba} has version {}, which nobody has written", stamp.version));
        }
        if this_epoch && stamp.version < floor {
            let what = "a write was lost, or an older one was applied after it";
            return Err(format!("{what}: block {lba} has version {} after {floor} was seen", stamp.version));
        }
        if this_epoch {
            block.floor = block.floor.max(stamp.version);
        }
        books.learn_winner(lba, stamp, this_epoch)
    }

    /// Power cuts so far: what was seen before the last one says nothing of what is there now.
    pub fn epoch(&self) -> u32 {
        self.books.lock().epoch
    }

    /// A COMPARE AND WRITE of `stamp` begins.
    pub fn begin_swap(&self, lba: u64, stamp: Stamp) {
        let mut books = self.books.lock();
        *books.tried.entry((lba, stamp)).or_default() += 1;
        let block = &mut books.blocks[lba as usize];
        block.latest = block.latest.max(stamp.version);
    }

    /// It was acknowledged.
    pub fn swapped(&self, before: &Before, lba: u64, stamp: Stamp) {
        let mut books = self.books.lock();
        if before.epoch != books.epoch {
            return;
        }
        if let Err(what) = books.learn_winner(lba, stamp, true) {
            self.broken(what);
        }
        if !books.granted.insert((lba, stamp.version)) {
            let version = stamp.version;
            self.broken(format!("COMPARE AND WRITE of block {lba} to version {version} succeeded twice"));
        }
        let block = &mut books.blocks[lba as usize];
        block.floor = block.floor.max(stamp.version);
        block.acknowledge(stamp.writer, stamp.version);
    }

    /// It found something else than what the initiator had seen in epoch `seen`, which may be over although the command was sent
    /// after it; `carried_once`: it was submitted once, and no initiator carries such a command out again.
    pub fn miscompared(&self, seen: u32, lba: u64, stamp: Stamp, carried_once: bool) {
        let books = self.books.lock();
        // Another one of the same initiator counts as well: its view of the block may have been an old one.
        let same = |(l, s): &(u64, Stamp)| *l == lba && s.version == stamp.version;
        let tries: u32 = books.tried.iter().filter(|(key, _)| same(key)).map(|(_, count)| *count).sum();
        let others = tries > 1;
        let moved_on = books.blocks[lba as usize].latest > stamp.version;
        if carried_once && seen == books.epoch && !others && !moved_on {
            drop(books);
            self.broken(format!(
                "COMPARE AND WRITE of block {lba} found other data than version {}",
                stamp.version - 1
            ));
        }
    }

    /// The power of the medium has gone: what is on it must be what nobody may take back.
    pub fn power_cut(&self, store: &SimStore) {
        let mut books = self.books.lock();
        books.epoch += 1;
        for lba in 0..books.blocks.len() as u64 {
            let content = store.peek(lba);
            let (durable, latest) = {
                let block = &books.blocks[lba as usize];
                (block.durable, block.latest)
            };
            match stamp_of(lba, &content) {
                Err(what) => return self.verdict.broken(format!("on the medium after a power cut: {what}")),
                Ok(stamp) if stamp.version < durable || stamp.version > latest => {
                    return self.verdict.broken(format!(
                        "the power cut has taken what was flushed: block {lba} has version {}, {durable} was durable",
                        stamp.version
                    ));
                }
                Ok(stamp) => {
                    let epoch = books.epoch;
                    let block = &mut books.blocks[lba as usize];
                    let taken = (block.acknowledged > stamp.version.max(block.told)).then_some(block.writer);
                    block.floor = stamp.version;
                    block.acknowledged = stamp.version;
                    // What is there after a cut is on the medium.
                    block.durable = stamp.version;
                    if let Some(writer) = taken {
                        let owed = Owed { lba, epoch, left: stamp.version };
                        books.owed.entry(writer).or_default().push(owed);
                    }
                    books.winners.retain(|(l, version), _| *l != lba || *version <= stamp.version);
                    books.granted.retain(|(l, version)| *l != lba || *version <= stamp.version);
                }
            }
        }
    }

    /// The end: every block of the medium must be one that may be there.
    pub fn check_medium(&self, store: &SimStore) {
        let count = self.books.lock().blocks.len() as u64;
        for lba in 0..count {
            let before = self.before(lba..lba + 1);
            self.read(&before, lba, &store.peek(lba));
        }
    }
}

impl Block {
    fn acknowledge(&mut self, writer: u32, version: Version) {
        if version > self.acknowledged {
            (self.acknowledged, self.writer) = (version, writer);
        }
    }
}

impl Books {
    /// Version `stamp.version` of a shared block is known to be of one writer: of no other then.
    fn learn_winner(&mut self, lba: u64, stamp: Stamp, this_epoch: bool) -> Result<(), String> {
        let shared = self.tried.contains_key(&(lba, stamp));
        if !shared || !this_epoch {
            return Ok(());
        }
        let winner = *self.winners.entry((lba, stamp.version)).or_insert(stamp.writer);
        if winner != stamp.writer {
            return Err(format!(
                "COMPARE AND WRITE of block {lba} to version {} succeeded for initiators {winner} and {}",
                stamp.version, stamp.writer
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use blockstore::Placement;

    use super::*;

    const FIRST: Stamp = Stamp { writer: 1, version: 1 };
    const SECOND: Stamp = Stamp { writer: 1, version: 2 };

    /// A judge to whom a COMPARE AND WRITE to the first version was acknowledged, and that saw one to the second begin.
    fn judge() -> (Oracle, Verdict) {
        let verdict = Verdict::default();
        let oracle = Oracle::new(1, verdict.clone());
        oracle.begin_swap(0, FIRST);
        oracle.swapped(&oracle.before(0..1), 0, FIRST);
        oracle.begin_swap(0, SECOND);
        (oracle, verdict)
    }

    #[test]
    fn a_miscompare_without_a_reason_is_found() {
        let (oracle, verdict) = judge();
        oracle.miscompared(oracle.epoch(), 0, SECOND, true);
        assert!(verdict.is_broken());
    }

    #[test]
    fn what_was_seen_before_a_power_cut_may_be_gone_after_it() {
        let (oracle, verdict) = judge();
        let seen = oracle.epoch();
        // The medium never got the first version: the cut takes it.
        oracle.power_cut(&SimStore::new(1, Placement::Inline));
        oracle.miscompared(seen, 0, SECOND, true);
        assert_eq!(verdict.first(), None);
    }
}
