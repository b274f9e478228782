//! Knows what every block may hold: the judge of every read, and of the medium itself.
//!
//! Each block is written with a stamp: writer, block and version, with a filling derived from them. Versions of a block only grow, and its
//! writer has at most one write of it outstanding. So any later read must return at least the newest version that was acknowledged or read
//! before, and at most the newest that was submitted. A lost write, a write that is applied again after a newer one, a torn block, a block
//! from elsewhere: each violates that.
//!
//! A power cut may revert what was acknowledged and not flushed, but never what was flushed or written through. Commands that span a power
//! cut prove nothing about the medium. Every version lost in a cut is owed: a successful flush by its writer asserts that everything
//! acknowledged before the flush is on the medium, or that the loss was reported to the writer.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::store::{BLOCK_BYTES, SimStore};
use crate::verdict::Verdict;

const MAGIC: u32 = 0x494e_5441;

/// A version of a block: 0 is the initial zeros.
pub type Version = u64;

/// Who wrote a block, and which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Number of the writer.
    pub writer: u32,
    /// Version.
    pub version: Version,
}

/// Fills the block at `lba` according to `stamp`.
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

/// The stamp of a block that is intact and belongs at `lba`.
///
/// # Errors
/// What is wrong with the block.
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
    /// The oldest version that may still be read.
    floor: Version,
    /// Newest version that was acknowledged.
    acknowledged: Version,
    /// The writer to which it was acknowledged.
    writer: u32,
    /// Newest version of which that writer has a report that it may be lost.
    told: Version,
    /// The version that a power cut may not revert.
    durable: Version,
    /// Newest version that was submitted.
    latest: Version,
}

/// The knowledge about some blocks at the time a command was submitted.
#[derive(Clone, Debug)]
pub struct Before {
    epoch: u32,
    floors: Vec<Version>,
}

impl Before {
    /// The epoch at that time.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// A block that lost an acknowledged version in a power cut without a report to its writer.
#[derive(Clone, Copy)]
struct Owed {
    lba: u64,
    /// The epoch that began with the cut.
    epoch: u32,
    /// The version left after the cut.
    left: Version,
}

#[derive(Default)]
struct Books {
    blocks: Vec<Block>,
    /// Power cuts so far.
    epoch: u32,
    /// Blocks that several initiators write by COMPARE AND WRITE: the attempts at each version, then the known winner of each.
    tried: FxHashMap<(u64, Stamp), u32>,
    winners: FxHashMap<(u64, Version), u32>,
    /// Versions whose COMPARE AND WRITE was acknowledged.
    granted: FxHashSet<(u64, Version)>,
    /// By writer.
    owed: FxHashMap<u32, Vec<Owed>>,
}

/// See the module. Clones share the same state.
#[derive(Clone)]
pub struct Oracle {
    books: Arc<Mutex<Books>>,
    verdict: Verdict,
}

impl Oracle {
    /// An oracle for a medium of `blocks` blocks of zeros.
    pub fn new(blocks: usize, verdict: Verdict) -> Self {
        let books = Books { blocks: vec![Block::default(); blocks], ..Books::default() };
        Self { books: Arc::new(Mutex::new(books)), verdict }
    }

    /// Reports a finding that needs no state.
    pub fn broken(&self, what: String) {
        self.verdict.broken(what);
    }

    /// Starts a write of one of the caller's own blocks: returns its version.
    pub fn begin_write(&self, lba: u64) -> Version {
        let block = &mut self.books.lock().blocks[lba as usize];
        block.latest += 1;
        block.latest
    }

    /// The state before a command that reads or flushes `lbas`.
    pub fn before(&self, lbas: std::ops::Range<u64>) -> Before {
        let books = self.books.lock();
        let floors = books.blocks[lbas.start as usize..lbas.end as usize].iter().map(|b| b.floor).collect();
        Before { epoch: books.epoch, floors }
    }

    /// A write was acknowledged; `through`: it had FUA.
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

    /// The state that a flush must make durable.
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

    /// `writer` received a report that it may have lost the blocks in `ranges`. That covers everything it wrote there before, however it is
    /// lost and whenever.
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

    /// A read from `lba` on returned `data`. Returns the stamps of the blocks up to the first wrong one.
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

    /// Power cuts so far: an observation from before the last one says nothing about the present content.
    pub fn epoch(&self) -> u32 {
        self.books.lock().epoch
    }

    /// Starts a COMPARE AND WRITE of `stamp`.
    pub fn begin_swap(&self, lba: u64, stamp: Stamp) {
        let mut books = self.books.lock();
        *books.tried.entry((lba, stamp)).or_default() += 1;
        let block = &mut books.blocks[lba as usize];
        block.latest = block.latest.max(stamp.version);
    }

    /// A COMPARE AND WRITE was acknowledged.
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

    /// A COMPARE AND WRITE did not find the data that the initiator had seen in epoch `seen`; the epoch may have passed even if the command
    /// was sent later. `carried_once`: it was submitted once, and no initiator repeats such a command.
    pub fn miscompared(&self, seen: u32, lba: u64, stamp: Stamp, carried_once: bool) {
        let books = self.books.lock();
        // Another attempt of the same initiator counts as well: its view of the block may have been outdated.
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

    /// The medium has lost power: its content must be at least what was durable.
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

    /// The end of a run: every block of the medium must have permitted content.
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
    /// Version `stamp.version` of a shared block has one known writer, so no other may turn up.
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

    /// An oracle that has seen a COMPARE AND WRITE to the first version acknowledged, and one to the second start.
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
        // The medium never got the first version: the cut reverts it.
        oracle.power_cut(&SimStore::new(1, Placement::Inline));
        oracle.miscompared(seen, 0, SECOND, true);
        assert_eq!(verdict.first(), None);
    }
}
