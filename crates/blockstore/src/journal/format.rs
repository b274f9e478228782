//! The on-disk format of the journal, version 3. Journals of version 2 (with protection information) and version 1 are finished,
//! but no longer written. Numbers are big-endian.
//!
//! ```text
//! 0      mark: "INTACTAW", version, bytes of a slot, identity of the store, first number that counts, from version 3 on the
//!        generation of the volume, CRC32C                                                                        4096 bytes
//! 4096   mark: the other one; written in turn; the one with the larger first number counts                       4096 bytes
//! 8192   slot 0: "INTACTAR", number, offset, length, CRC32C of what follows, CRC32C of all that     4096 bytes, then the data
//!                version 2: the length of the records behind the data comes before the last CRC32C
//!        slot 1 ...
//! ```
//!
//! A record is in the slot of its number modulo [`SLOTS`]. A record with a number below the mark's is retired. A record that is
//! torn was never executed.

use crate::record::RECORD_BYTES;
use crate::store::Identity;
use crate::{BlockStore, StoreError};

/// Most bytes that a journal can be configured to take at once.
pub(super) const MAX_ATOMIC_BYTES: u64 = 1 << 20;
/// Records that a journal has room for.
pub(super) const SLOTS: u64 = 32;
/// Bytes of a mark, and of the header before the data in a slot.
pub(super) const HEAD_BYTES: usize = 4096;
/// Places of marks.
pub(super) const MARKS: u64 = 2;
/// Bytes before the first slot.
pub(super) const SLOTS_AT: u64 = MARKS * HEAD_BYTES as u64;
const MARK_MAGIC: &[u8; 8] = b"INTACTAW";
const RECORD_MAGIC: &[u8; 8] = b"INTACTAR";
/// The version that is written. 1 has no generation; 2 has none either, and has room for the records of blocks.
const VERSION: u32 = 3;
const WITH_RECORDS: u32 = 2;
/// Bytes of a mark that its CRC covers: in this version, and in earlier ones.
const MARK_SEALED: usize = 48;
const OLD_MARK_SEALED: usize = 40;
/// Bytes of a header that its CRC covers, without and with the length of records.
const SEALED_BYTES: [usize; 2] = [32, 36];
/// Most bytes of a slot: a write of the greatest length, plus the records of the smallest blocks.
const MAX_SLOT_BYTES: u64 = MAX_ATOMIC_BYTES + MAX_ATOMIC_BYTES / 512 * RECORD_BYTES as u64;
/// No real number comes near it: a mark or a record with a larger one is invalid.
const MAX_NUMBER: u64 = u64::MAX / 2;

/// Which records are retired, and whose journal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Most bytes of data and records in a slot.
    pub(super) slot_bytes: u64,
    /// Whether it may contain records: a version that does not know of them does not recognise it as a journal.
    pub(super) records: bool,
    pub(super) identity: Identity,
    /// Records with smaller numbers are retired.
    pub(super) first: u64,
    /// The generation of the volume when the journal was opened for writing; `None`: written by an earlier version, which had
    /// none.
    pub(super) generation: Option<u64>,
}

/// The header before the data of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) number: u64,
    /// Where in the store, bytes.
    pub(super) offset: u64,
    /// Bytes of data.
    pub(super) len: u32,
    /// Bytes of records behind the data.
    pub(super) records_len: u32,
    /// CRC32C of both.
    pub(super) data_crc: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Appends the CRC32C of the first `len` bytes to them.
fn seal(mut head: [u8; HEAD_BYTES], len: usize) -> [u8; HEAD_BYTES] {
    let crc = integrity::crc32c(&head[..len]);
    head[len..len + 4].copy_from_slice(&crc.to_be_bytes());
    head
}

fn is_sealed(head: &[u8; HEAD_BYTES], len: usize) -> bool {
    u32_at(head, len) == integrity::crc32c(&head[..len])
}

impl Mark {
    pub(super) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MARK_MAGIC);
        let version = match (self.generation, self.records) {
            (Some(_), _) => VERSION,
            (None, true) => WITH_RECORDS,
            (None, false) => 1,
        };
        head[8..12].copy_from_slice(&version.to_be_bytes());
        head[12..16].copy_from_slice(&(self.slot_bytes as u32).to_be_bytes());
        head[16..32].copy_from_slice(&self.identity);
        head[32..40].copy_from_slice(&self.first.to_be_bytes());
        let Some(generation) = self.generation else { return seal(head, OLD_MARK_SEALED) };
        head[40..48].copy_from_slice(&generation.to_be_bytes());
        seal(head, MARK_SEALED)
    }

    fn from_bytes(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let mut identity = [0; 16];
        identity.copy_from_slice(&head[16..32]);
        let version = u32_at(head, 8);
        let generation = (version == VERSION).then(|| u64_at(head, 40));
        let mark = Mark {
            slot_bytes: u32_at(head, 12).into(),
            records: version == WITH_RECORDS,
            identity,
            first: u64_at(head, 32),
            generation,
        };
        let right = &head[..8] == MARK_MAGIC
            && is_sealed(head, if generation.is_some() { MARK_SEALED } else { OLD_MARK_SEALED })
            && (1..=VERSION).contains(&version)
            && (1..=MAX_SLOT_BYTES).contains(&mark.slot_bytes)
            && mark.first < MAX_NUMBER;
        right.then_some(mark)
    }

    /// Whether these bytes may be a part of the very first mark of a journal, torn before anything else was written.
    fn is_begun(head: &[u8; HEAD_BYTES]) -> bool {
        let version = u32_at(head, 8);
        &head[..8] == MARK_MAGIC
            && version <= VERSION
            && head[MARK_SEALED + 4..].iter().all(|&byte| byte == 0)
    }

    /// The mark that counts and its place; `None`: the journal is new.
    pub(super) fn read(journal: &dyn BlockStore) -> Result<Option<(u64, Self)>, StoreError> {
        let mut found: Option<(u64, Mark)> = None;
        // The power may fail while the first mark is written; at that time there is no record.
        let mut slot = [0; HEAD_BYTES];
        journal.read(SLOTS_AT, &mut slot)?;
        let unused = slot.iter().all(|&byte| byte == 0);
        let mut blank = true;
        for place in 0..MARKS {
            let mut head = [0; HEAD_BYTES];
            journal.read(place * HEAD_BYTES as u64, &mut head)?;
            blank &= head.iter().all(|&byte| byte == 0) || place == 0 && unused && Self::is_begun(&head);
            let mark = Mark::from_bytes(&head).map(|mark| (place, mark));
            found = found.into_iter().chain(mark).max_by_key(|(_, mark)| mark.first);
        }
        match found {
            None if !blank => Err(StoreError::Unusable(format!(
                "{} is no journal of this version; if nothing else wrote to it, the version that did can finish its writes: otherwise \
                 move it away to begin anew",
                journal.description()
            ))),
            Some((_, mark)) if file_bytes(mark.slot_bytes) > journal.geometry().size_bytes => {
                Err(StoreError::Unusable(format!(
                    "{} was cut off; restore it from a copy, or move it away to begin anew: a write that was interrupted then stays so",
                    journal.description()
                )))
            }
            found => Ok(found),
        }
    }
}

impl Header {
    /// `records`: as in the mark of its journal.
    pub(super) fn to_bytes(self, records: bool) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(RECORD_MAGIC);
        head[8..16].copy_from_slice(&self.number.to_be_bytes());
        head[16..24].copy_from_slice(&self.offset.to_be_bytes());
        head[24..28].copy_from_slice(&self.len.to_be_bytes());
        head[28..32].copy_from_slice(&self.data_crc.to_be_bytes());
        head[32..36].copy_from_slice(&self.records_len.to_be_bytes());
        seal(head, SEALED_BYTES[usize::from(records)])
    }

    fn from_bytes(head: &[u8; HEAD_BYTES], records: bool) -> Option<Self> {
        let header = Header {
            number: u64_at(head, 8),
            offset: u64_at(head, 16),
            len: u32_at(head, 24),
            records_len: if records { u32_at(head, 32) } else { 0 },
            data_crc: u32_at(head, 28),
        };
        let right = &head[..8] == RECORD_MAGIC
            && is_sealed(head, SEALED_BYTES[usize::from(records)])
            && header.number < MAX_NUMBER
            && header.len > 0;
        right.then_some(header)
    }

    /// Bytes of data and records.
    fn bytes(&self) -> u64 {
        u64::from(self.len) + u64::from(self.records_len)
    }

    /// Reads the data of this record, with the records of their blocks behind it, if all of it is intact.
    pub(super) fn data(
        &self,
        journal: &dyn BlockStore,
        slot_bytes: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut data = vec![0; self.bytes() as usize];
        journal.read(slot_at(self.number, slot_bytes) + HEAD_BYTES as u64, &mut data)?;
        Ok((integrity::crc32c(&data) == self.data_crc).then_some(data))
    }
}

/// Where the slot of a number begins.
pub(super) fn slot_at(number: u64, slot_bytes: u64) -> u64 {
    SLOTS_AT + number % SLOTS * (HEAD_BYTES as u64 + slot_bytes)
}

/// Bytes of a journal with slots of this size.
pub(super) fn file_bytes(slot_bytes: u64) -> u64 {
    (SLOTS_AT + SLOTS * (HEAD_BYTES as u64 + slot_bytes)).next_multiple_of(HEAD_BYTES as u64)
}

/// The headers in the slots that the mark does not retire, by number; their data may be torn.
pub(super) fn headers(journal: &dyn BlockStore, mark: &Mark) -> Result<Vec<Header>, StoreError> {
    let mut headers = Vec::new();
    for slot in 0..SLOTS {
        let mut head = [0; HEAD_BYTES];
        journal.read(slot_at(slot, mark.slot_bytes), &mut head)?;
        let header = Header::from_bytes(&head, mark.records).filter(|header| {
            header.number >= mark.first && header.number % SLOTS == slot && header.bytes() <= mark.slot_bytes
        });
        headers.extend(header);
    }
    headers.sort_unstable_by_key(|header| header.number);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, RamStore};

    /// Places and numbers beyond 4 Gi, as a large volume and an old journal have them.
    #[test]
    fn large_numbers_come_back_as_they_were_written() {
        let header = Header {
            number: 0x0102_0304_0506_0708,
            offset: 0x1112_1314_1516_1718,
            len: 0x2122_2324,
            records_len: 0x3132_3334,
            data_crc: 0x4142_4344,
        };
        assert_eq!(Header::from_bytes(&header.to_bytes(true), true), Some(header));
        let generations = [None, Some(0x5152_5354_5556_5758)];
        for generation in generations {
            let first = header.number;
            let mark = Mark { slot_bytes: 1 << 20, records: false, identity: [7; 16], first, generation };
            assert_eq!(Mark::from_bytes(&mark.to_bytes()), Some(mark));
        }
    }

    #[test]
    fn only_the_first_mark_may_be_torn_and_only_while_there_is_no_record() {
        let found = |bytes: &[(u64, &[u8])]| {
            let journal = RamStore::new(4 << 20, 512).unwrap();
            for (at, bytes) in bytes {
                journal.write(*at, &[bytes], Durability::Cached).unwrap();
            }
            Mark::read(&journal).map(|mark| mark.is_some())
        };
        let mark =
            Mark { slot_bytes: 8192, records: false, identity: [7; 16], first: 1, generation: Some(1) };
        let whole = mark.to_bytes();
        let mut torn = [0; 512];
        torn[..MARK_SEALED - 8].copy_from_slice(&whole[..MARK_SEALED - 8]);
        assert!(found(&[(0, &whole[..512])]).unwrap(), "the rest of a mark is zeros");
        assert!(!found(&[]).unwrap(), "a new journal");
        assert!(!found(&[(0, &torn)]).unwrap(), "begun: the journal is new");
        let second = HEAD_BYTES as u64;
        assert!(found(&[(second, &torn)]).is_err(), "the second mark follows a first one");
        assert!(found(&[(0, &torn), (SLOTS_AT, &[1; 512])]).is_err(), "a record follows a mark");
        assert!(found(&[(0, &[7; 512])]).is_err(), "something else is there");
        assert!(found(&[(0, &torn), (1024, &[7; 512])]).is_err(), "a mark is no longer than its seal");
    }
}
