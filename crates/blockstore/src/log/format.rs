//! The on-disk format of the log, version 1. Numbers are big-endian.
//!
//! ```text
//! 0      mark: "INTACTLG", version, bytes of the log, generation, generation of the volume, identity, CRC32C      4096 bytes
//! 4096   mark: the other one; the one with the larger generation is right                                      4096 bytes
//! 8192   entries, each from a multiple of 512 on
//!
//! entry: "INTACTLE", generation, sequence, its own place, offset and length in the side store, offset and length in
//!        the store of data, kind, CRC32C of what follows, CRC32C of the identity and all that, zeros: 128 bytes;
//!        of kind 0 (bytes) then those for the side store and those for the store of data
//! ```
//!
//! The entries that count are those of the mark's generation, in sequence from 0, up to the first that is not whole. An entry begins
//! where the previous one ended, or at the next multiple of 4096. The latter happens after a flush, so that no page with durable data
//! is written again.

use crate::store::Identity;
use crate::{BlockStore, StoreError};

/// Most bytes of blocks and records in one entry.
pub(super) const MAX_PAYLOAD_BYTES: u64 = 2 << 20;
/// Bytes of a mark.
const MARK_BYTES: usize = 4096;
/// Number of places for marks.
pub(super) const MARKS: u64 = 2;
/// Where entries begin.
pub(super) const ENTRIES_AT: u64 = MARKS * MARK_BYTES as u64;
/// Bytes of an entry before its payload.
pub(super) const HEAD_BYTES: usize = 128;
/// Entries begin at multiples of this.
pub(super) const ENTRY_ALIGN: u64 = 512;
/// The first entry after a flush begins at a multiple of this.
pub(super) const FLUSH_ALIGN: u64 = 4096;
const MARK_MAGIC: &[u8; 8] = b"INTACTLG";
const ENTRY_MAGIC: &[u8; 8] = b"INTACTLE";
const VERSION: u32 = 1;
const MARK_SEALED: usize = 52;
const HEAD_SEALED: usize = 72;
/// No real generation comes near it.
const MAX_GENERATION: u64 = u64::MAX / 2;

/// Whose log it is, and which of its entries count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Bytes of the log.
    pub(super) bytes: u64,
    /// Entries of other generations are retired.
    pub(super) generation: u64,
    /// The generation of the volume when the log was opened; see `Label::journal_generation`.
    pub(super) volume_generation: u64,
    pub(super) identity: Identity,
}

/// What an entry does to its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The ranges hold the payload.
    Bytes,
    /// The ranges hold zeros.
    Zeroes,
    /// The ranges hold zeros, and their space is released.
    Unmapped,
}

/// A run of bytes of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A change of both stores in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) side: Span,
    pub(crate) data: Span,
    pub(crate) kind: Kind,
}

impl Change {
    pub(super) fn payload_bytes(&self) -> u64 {
        match self.kind {
            Kind::Bytes => self.side.len.saturating_add(self.data.len),
            Kind::Zeroes | Kind::Unmapped => 0,
        }
    }

    /// Bytes of the entry of this change.
    pub(super) fn entry_bytes(&self) -> u64 {
        (HEAD_BYTES as u64).saturating_add(self.payload_bytes()).saturating_add(ENTRY_ALIGN - 1) / ENTRY_ALIGN
            * ENTRY_ALIGN
    }
}

/// Identifies one entry among all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) sequence: u64,
    pub(super) at: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

fn put(bytes: &mut [u8], at: usize, numbers: &[u64]) {
    for (place, number) in bytes[at..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// CRC32C over the identity, which only this volume has, and `bytes`: an image of another log inside the data is not mistaken for
/// ours.
fn seal_of(identity: Identity, bytes: &[u8]) -> u32 {
    integrity::crc32c_append(integrity::crc32c(&identity), bytes)
}

impl Mark {
    fn to_bytes(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(MARK_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
        put(&mut bytes, 12, &[self.bytes, self.generation, self.volume_generation]);
        bytes[36..52].copy_from_slice(&self.identity);
        let crc = integrity::crc32c(&bytes[..MARK_SEALED]);
        bytes[MARK_SEALED..MARK_SEALED + 4].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[36..52]);
        let mark = Mark {
            bytes: u64_at(bytes, 12),
            generation: u64_at(bytes, 20),
            volume_generation: u64_at(bytes, 28),
            identity,
        };
        let right = &bytes[..8] == MARK_MAGIC
            && u32_at(bytes, 8) == VERSION
            && u32_at(bytes, MARK_SEALED) == integrity::crc32c(&bytes[..MARK_SEALED])
            && mark.generation < MAX_GENERATION;
        right.then_some(mark)
    }

    /// Writes the mark; it is durable when this returns.
    pub(super) fn write(self, log: &dyn BlockStore, place: u64) -> Result<(), StoreError> {
        log.write(place * MARK_BYTES as u64, &[&self.to_bytes()], crate::Durability::Durable)
    }

    /// Whether these bytes may be a part of the very first mark of a log, torn before anything else was written.
    fn is_begun(bytes: &[u8; MARK_BYTES]) -> bool {
        &bytes[..8] == MARK_MAGIC
            && [0, VERSION].contains(&u32_at(bytes, 8))
            && bytes[MARK_SEALED + 4..].iter().all(|&byte| byte == 0)
    }

    /// The mark that counts and its place; `None`: the log is new.
    pub(super) fn read(log: &dyn BlockStore) -> Result<Option<(u64, Self)>, StoreError> {
        let mut found: Option<(u64, Mark)> = None;
        // The power may fail while the first mark is written; at that time there is no entry.
        let mut first = [0; HEAD_BYTES];
        log.read(ENTRIES_AT, &mut first)?;
        let unused = first.iter().all(|&byte| byte == 0);
        let mut blank = true;
        for place in 0..MARKS {
            let mut bytes = [0; MARK_BYTES];
            log.read(place * MARK_BYTES as u64, &mut bytes)?;
            blank &= bytes.iter().all(|&byte| byte == 0) || place == 0 && unused && Self::is_begun(&bytes);
            let mark = Mark::from_bytes(&bytes).map(|mark| (place, mark));
            found = found.into_iter().chain(mark).max_by_key(|(_, mark)| mark.generation);
        }
        let unusable = |what: &str| {
            Err(StoreError::Unusable(format!(
                "{} {what}; restore it from a copy, or move it away to begin a new one: blocks that were written shortly before a \
                 crash then fail their checks",
                log.description()
            )))
        };
        match found {
            None if !blank => unusable("is no log of this version"),
            Some((_, mark)) if mark.bytes > log.geometry().size_bytes => unusable("was cut off"),
            found => Ok(found),
        }
    }
}

/// The head of an entry.
pub(super) fn head(place: Place, change: &Change, payload_crc: u32, identity: Identity) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..8].copy_from_slice(ENTRY_MAGIC);
    let Change { side, data, kind } = *change;
    put(
        &mut bytes,
        8,
        &[place.generation, place.sequence, place.at, side.offset, side.len, data.offset, data.len],
    );
    let kind: u32 = match kind {
        Kind::Bytes => 0,
        Kind::Zeroes => 1,
        Kind::Unmapped => 2,
    };
    bytes[64..68].copy_from_slice(&kind.to_be_bytes());
    bytes[68..72].copy_from_slice(&payload_crc.to_be_bytes());
    let crc = seal_of(identity, &bytes[..HEAD_SEALED]);
    bytes[HEAD_SEALED..HEAD_SEALED + 4].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The change whose entry is at `place`, if the entry is whole; `bytes` is the size of the log.
pub(super) fn entry(
    log: &dyn BlockStore,
    place: Place,
    bytes: u64,
    identity: Identity,
) -> Result<Option<Change>, StoreError> {
    let payload_at = place.at + HEAD_BYTES as u64;
    if payload_at > bytes {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    log.read(place.at, &mut head)?;
    let found = Place { generation: u64_at(&head, 8), sequence: u64_at(&head, 16), at: u64_at(&head, 24) };
    let kind = match u32_at(&head, 64) {
        0 => Kind::Bytes,
        1 => Kind::Zeroes,
        2 => Kind::Unmapped,
        _ => return Ok(None),
    };
    let span = |at| Span { offset: u64_at(&head, at), len: u64_at(&head, at + 8) };
    let change = Change { side: span(32), data: span(48), kind };
    let right = &head[..8] == ENTRY_MAGIC
        && u32_at(&head, HEAD_SEALED) == seal_of(identity, &head[..HEAD_SEALED])
        && found == place
        && change.payload_bytes() <= MAX_PAYLOAD_BYTES
        && payload_at + change.payload_bytes() <= bytes;
    if !right {
        return Ok(None);
    }
    let mut payload = vec![0; change.payload_bytes() as usize];
    log.read(payload_at, &mut payload)?;
    Ok((integrity::crc32c(&payload) == u32_at(&head, 68)).then_some(change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, RamStore};

    /// What is found in a log of these bytes.
    fn found(bytes: &[(u64, &[u8])]) -> Result<bool, StoreError> {
        let log = RamStore::new(1 << 20, 512).unwrap();
        for (at, bytes) in bytes {
            log.write(*at, &[bytes], Durability::Cached).unwrap();
        }
        Mark::read(&log).map(|mark| mark.is_some())
    }

    #[test]
    fn only_the_first_mark_may_be_torn_and_only_while_there_is_no_entry() {
        let mark = Mark { bytes: 1 << 20, generation: 1, volume_generation: 1, identity: [7; 16] };
        let whole = mark.to_bytes();
        let torn = &whole[..512];
        let mut torn_in_seal = [0; 512];
        torn_in_seal[..MARK_SEALED - 8].copy_from_slice(&whole[..MARK_SEALED - 8]);
        assert!(found(&[(0, torn)]).unwrap(), "the rest of a mark is zeros");
        assert!(!found(&[]).unwrap(), "a new log");
        assert!(!found(&[(0, &torn_in_seal)]).unwrap(), "begun: the log is new");
        let second = MARK_BYTES as u64;
        assert!(found(&[(second, &torn_in_seal)]).is_err(), "the second mark follows a first one");
        assert!(found(&[(0, &torn_in_seal), (ENTRIES_AT, &[1; 512])]).is_err(), "an entry follows a mark");
        assert!(found(&[(0, &[7; 512])]).is_err(), "something else is there");
        assert!(
            found(&[(0, &torn_in_seal), (1024, &[7; 512])]).is_err(),
            "a mark is no longer than its seal"
        );
    }
}
