//! Protection information beside the blocks of a store: one record for each block in a store of its own (for a file,
//! `PATH.pi`; for memory, memory).
//!
//! ```text
//! 0      "INTACTPI", version, type, state       4096 bytes
//! 4096   record of block 0, of block 1, ...     16 bytes each: tuple (all bits inverted), digest, zeros
//! ```
//!
//! Data and records are not written in one step, so a crash may leave one without the other, in either order. It is
//! *found* whichever came first, without a journal:
//!
//! * A tuple whose guard is checked finds it by the guard.
//! * A record of zeros says that the block was never written; its data must then be zeros. (Holes of the side file read as
//!   such records, which is why tuples are inverted there.)
//! * A tuple that a host sent to turn the checks off has the CRC32C of the data beside it.
//!
//! Left out: a guard of the record itself. Damage to a record is found like damage to its block.

use std::sync::Arc;

use integrity::t10::Tuple;
use parking_lot::Mutex;

use crate::{BlockStore, Durability, Extent, Geometry, InPlace, Label, Placement, StoreError};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 16;
/// Bytes before the first record.
const HEAD_BYTES: u64 = 4096;
const MAGIC: &[u8; 8] = b"INTACTPI";
const VERSION: u8 = 1;
/// Records that are reset with one write.
const RESET_RECORDS: usize = 4096;
/// A tuple of a block that was never written.
const UNWRITTEN: Tuple = Tuple { guard: 0xffff, app_tag: 0xffff, ref_tag: 0xffff_ffff };

/// What is kept beside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// It was never written, or deallocated since: its data are zeros, its tuple all ones.
    Unwritten,
    /// It was written with this tuple, whose guard is that of its data.
    Guarded(Tuple),
    /// It was written with a tuple that is not checked; the CRC32C is that of its data.
    Unchecked(Tuple, u32),
}

impl Record {
    /// The tuple as it travels.
    #[inline]
    pub fn tuple(self) -> Tuple {
        match self {
            Record::Unwritten => UNWRITTEN,
            Record::Guarded(tuple) | Record::Unchecked(tuple, _) => tuple,
        }
    }

    #[inline]
    fn from_bytes(bytes: [u8; RECORD_BYTES]) -> Self {
        let record = u128::from_be_bytes(bytes);
        let (inverted, digest, unchecked) = ((record >> 64) as u64, (record >> 32) as u32, record as u32);
        let tuple = Tuple::from_bytes((!inverted).to_be_bytes());
        match (inverted, unchecked) {
            (0, 0) => Record::Unwritten,
            (_, 0) => Record::Guarded(tuple),
            _ => Record::Unchecked(tuple, digest),
        }
    }

    #[inline]
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let high = |tuple: Tuple| u128::from(!u64::from_be_bytes(tuple.to_bytes())) << 64;
        let record = match self {
            Record::Unwritten => 0,
            Record::Guarded(tuple) => high(tuple),
            Record::Unchecked(tuple, digest) => high(tuple) | u128::from(digest) << 32 | 1,
        };
        record.to_be_bytes()
    }
}

/// What is kept beside blocks that follow each other, in the form in which it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordRun(Vec<[u8; RECORD_BYTES]>);

impl RecordRun {
    /// None yet, with room for so many.
    pub fn with_capacity(blocks: usize) -> Self {
        Self(Vec::with_capacity(blocks))
    }

    /// Adds that of the next block.
    #[inline]
    pub fn push(&mut self, record: Record) {
        self.0.push(record.to_bytes());
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without blocks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they are kept.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }

    /// The tuples as they travel. All kinds of records have them in the same place: no record is told from another, and none is
    /// put together in memory by halves, which a load of the whole would then wait for.
    #[inline]
    pub fn tuples(&self) -> impl ExactSizeIterator<Item = Tuple> + '_ {
        self.0.iter().map(|record| {
            let (tuple, _) = record.split_first_chunk().expect("a record begins with a tuple");
            Tuple::from_bytes((!u64::from_be_bytes(*tuple)).to_be_bytes())
        })
    }

    /// One after the other.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record> + Clone + '_ {
        self.0.iter().copied().map(Record::from_bytes)
    }
}

impl FromIterator<Record> for RecordRun {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        Self(records.into_iter().map(Record::to_bytes).collect())
    }
}

/// What the side store remembers of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Type of the protection information, 0 to 3.
    pub kind: u8,
    /// A format began and did not end.
    pub interrupted: bool,
}

/// The records of a store.
pub struct Records {
    side: Arc<dyn BlockStore>,
    format: Mutex<Format>,
}

impl Records {
    /// Bytes that the side store of `blocks` blocks needs.
    pub(crate) fn bytes_for(blocks: u64) -> Result<u64, StoreError> {
        let bytes = blocks.checked_mul(RECORD_BYTES as u64).and_then(|n| n.checked_add(HEAD_BYTES));
        let bytes = bytes.and_then(|n| n.checked_next_multiple_of(HEAD_BYTES));
        bytes.ok_or_else(|| StoreError::Unusable("the store is too large for protection information".into()))
    }

    /// Opens the records in `side`; a new one is formatted with type `kind`.
    pub(crate) fn open(side: Arc<dyn BlockStore>, kind: u8) -> Result<Self, StoreError> {
        let mut head = [0; 11];
        side.read(0, &mut head)?;
        let made = match (&head[..8], head[8], head[9], head[10]) {
            (magic, 0, 0, 0) if magic.iter().all(|&byte| byte == 0) => Format { kind, interrupted: false },
            (magic, VERSION, kind @ 0..=3, state @ 0..=1) if magic == MAGIC => {
                Format { kind, interrupted: state == 1 }
            }
            _ => {
                return Err(StoreError::Unusable(format!(
                    "{} holds no protection information of this version; move it away to begin anew",
                    side.description()
                )));
            }
        };
        let records = Records { side, format: Mutex::new(made) };
        if head[8] == 0 && !records.side.geometry().read_only {
            records.remember(made)?;
        }
        Ok(records)
    }

    /// The format as it was last remembered.
    pub fn format(&self) -> Format {
        *self.format.lock()
    }

    /// Remembers a format on stable storage.
    ///
    /// # Errors
    /// Those of a write.
    pub fn remember(&self, format: Format) -> Result<(), StoreError> {
        let mut head = vec![0; 512];
        head[..8].copy_from_slice(MAGIC);
        head[8..11].copy_from_slice(&[VERSION, format.kind, u8::from(format.interrupted)]);
        self.side.write(0, &[&head], Durability::Durable)?;
        *self.format.lock() = format;
        Ok(())
    }

    fn at(lba: u64) -> u64 {
        HEAD_BYTES + lba * RECORD_BYTES as u64
    }

    /// The records of `blocks` blocks from `lba` on.
    ///
    /// # Errors
    /// Those of a read.
    pub fn read(&self, lba: u64, blocks: usize) -> Result<RecordRun, StoreError> {
        let mut records = vec![[0; RECORD_BYTES]; blocks];
        self.side.read(Self::at(lba), records.as_flattened_mut())?;
        Ok(RecordRun(records))
    }

    /// Writes the records of the blocks from `lba` on.
    ///
    /// # Errors
    /// Those of a write.
    pub fn write(&self, lba: u64, records: &RecordRun, durability: Durability) -> Result<(), StoreError> {
        self.side.write(Self::at(lba), &[records.as_bytes()], durability)
    }

    /// The store that the records are in, and where those of a range of blocks are there.
    pub(crate) fn place(&self, lba: u64, blocks: u64) -> (&dyn BlockStore, u64, u64) {
        (&*self.side, Self::at(lba), blocks * RECORD_BYTES as u64)
    }

    /// Makes blocks unwritten.
    ///
    /// # Errors
    /// Those of a write.
    pub fn reset(&self, lba: u64, blocks: u64) -> Result<(), StoreError> {
        let (mut at, end) = (lba, lba + blocks);
        while at < end {
            let part = (end - at).min(RESET_RECORDS as u64);
            self.side.write_zeroes(Self::at(at), part * RECORD_BYTES as u64, true)?;
            at += part;
        }
        Ok(())
    }

    /// Everything written so far to stable storage.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.side.flush()
    }
}

/// Protection information is for blocks of 512 and 4096 bytes.
pub(crate) fn check_protectable(geometry: &Geometry) -> Result<(), StoreError> {
    if matches!(geometry.logical_block_bytes, 512 | 4096) {
        return Ok(());
    }
    let block = geometry.logical_block_bytes;
    Err(StoreError::Unusable(format!(
        "blocks of {block} bytes have no protection information; use block=512 or block=4096, or leave pi= away"
    )))
}

/// A store with records beside its blocks. Its own reads and writes are of the data alone: whoever writes keeps the
/// [records](BlockStore::records) up to date.
pub struct ProtectedStore {
    data: Arc<dyn BlockStore>,
    records: Records,
}

impl ProtectedStore {
    /// Puts the records in `side` beside `data`; a new side store is formatted with type `kind`, 0 to 3.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when `side` is too small or holds something else, and those of reading and writing it.
    pub fn new(data: Arc<dyn BlockStore>, side: Arc<dyn BlockStore>, kind: u8) -> Result<Self, StoreError> {
        let needed = Records::bytes_for(data.geometry().blocks())?;
        let found = side.geometry().size_bytes;
        if found < needed {
            return Err(StoreError::Unusable(format!(
                "{} has {found} bytes, the protection information needs {needed}; enlarge it",
                side.description()
            )));
        }
        Ok(ProtectedStore { data, records: Records::open(side, kind)? })
    }

    /// Bytes that the side store of a store of this geometry needs.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when that is more than 64 bits hold.
    pub fn side_bytes(geometry: &Geometry) -> Result<u64, StoreError> {
        Records::bytes_for(geometry.blocks())
    }
}

impl BlockStore for ProtectedStore {
    fn geometry(&self) -> Geometry {
        self.data.geometry()
    }
    fn placement(&self) -> Placement {
        self.data.placement()
    }
    fn description(&self) -> String {
        self.data.description()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.data.read(offset, dst)
    }
    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        self.data.read_crc32c(offset, dst, crc)
    }
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        self.data.write(offset, src, durability)
    }
    fn atomic_write_bytes_max(&self) -> u64 {
        // Each block has a record, and a record is shorter than a block.
        self.data.atomic_write_bytes_max().min(self.records.side.atomic_write_bytes_max())
    }
    /// Against a loss of power only what lies below can help: a record that is here without its block, or the other way round, is
    /// found.
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let Some(records) = records else { return self.data.write_atomic(offset, src, None, durability) };
        let lba = offset / u64::from(self.geometry().logical_block_bytes);
        let before = self.records.read(lba, records.len())?;
        let written = self
            .records
            .write(lba, records, durability)
            .and_then(|()| self.data.write_atomic(offset, src, None, durability));
        if written.is_err() {
            self.records.write(lba, &before, durability)?;
        }
        written
    }
    fn overwrites_in_place(&self) -> bool {
        self.data.overwrites_in_place() && self.records.side.overwrites_in_place()
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        self.data.in_place()
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.records.flush()?;
        self.data.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.data.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.data.write_zeroes(offset, len, may_unmap)
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        self.data.extents(offset, len, max)
    }
    /// The records grow first: at no moment is there a block without one.
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        let block = u64::from(self.geometry().logical_block_bytes);
        let needed = Records::bytes_for(size_bytes / block)?;
        if needed > self.records.side.geometry().size_bytes {
            self.records.side.resize(needed)?;
        }
        self.data.resize(size_bytes)
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.data.medium_bytes()
    }
    fn make_writable(&self) -> Result<(), StoreError> {
        self.records.side.make_writable()?;
        self.data.make_writable()
    }
    fn records(&self) -> Option<&Records> {
        Some(&self.records)
    }
    fn label(&self) -> Option<&Arc<Label>> {
        self.data.label()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamStore;

    fn store(side: &Arc<RamStore>) -> Result<ProtectedStore, StoreError> {
        let data = Arc::new(RamStore::new(64 * 512, 512).unwrap());
        ProtectedStore::new(data, Arc::clone(side) as Arc<dyn BlockStore>, 1)
    }

    #[test]
    fn records_come_back_as_they_were_written_and_after_a_reset_are_unwritten() {
        let side = Arc::new(RamStore::new(8192, 512).unwrap());
        let store = store(&side).unwrap();
        let records = store.records().unwrap();
        let tuple = Tuple { guard: 1, app_tag: 0xffff, ref_tag: 3 };
        let written = [
            Record::Guarded(tuple),
            Record::Unchecked(tuple, 0),
            Record::Unchecked(UNWRITTEN, 0xdead_beef),
            Record::Guarded(Tuple::default()),
        ];
        let read = |lba, blocks| records.read(lba, blocks).unwrap().iter().collect::<Vec<_>>();
        assert_eq!(read(0, 64), [Record::Unwritten; 64]);
        records.write(60, &written.into_iter().collect(), Durability::Cached).unwrap();
        assert_eq!(read(60, 4), written);
        let tuples: Vec<Tuple> = records.read(59, 5).unwrap().tuples().collect();
        assert_eq!(tuples, [UNWRITTEN, tuple, tuple, UNWRITTEN, Tuple::default()]);
        records.reset(61, 3).unwrap();
        assert_eq!(read(60, 2), [written[0], Record::Unwritten]);
        assert_eq!(Record::Unwritten.tuple(), UNWRITTEN);
    }

    #[test]
    fn blocks_that_a_larger_size_brings_have_their_records() {
        let side = Arc::new(RamStore::new(4096 + 64 * 16 + 3072, 512).unwrap());
        let store = store(&side).unwrap();
        store.resize(1024 * 512).unwrap();
        assert_eq!((store.geometry().blocks(), store.medium_bytes().unwrap()), (1024, 1024 * 512));
        let read = store.records().unwrap().read(1000, 24).unwrap();
        assert!(read.len() == 24 && read.iter().all(|record| record == Record::Unwritten));
        assert!(matches!(store.resize(512), Err(StoreError::Unusable(_))), "it does not shrink");
    }

    #[test]
    fn the_format_is_remembered_and_what_is_something_else_is_refused() {
        let side = Arc::new(RamStore::new(8192, 512).unwrap());
        let new = store(&side).unwrap();
        assert_eq!(new.records().unwrap().format(), Format { kind: 1, interrupted: false });
        new.records().unwrap().remember(Format { kind: 3, interrupted: true }).unwrap();
        let again = store(&side).unwrap();
        assert_eq!(again.records().unwrap().format(), Format { kind: 3, interrupted: true });
        side.write(0, &[&[7; 512]], Durability::Cached).unwrap();
        assert!(matches!(store(&side), Err(StoreError::Unusable(why)) if why.contains("move it away")));
        let small = Arc::new(RamStore::new(4096, 512).unwrap());
        assert!(matches!(store(&small), Err(StoreError::Unusable(why)) if why.contains("enlarge")));
    }
}
