//! Protection information for the blocks of a store: one record for each block, in a separate store (for a file, `PATH.pi`; for memory,
//! memory).
//!
//! ```text
//! 0      "INTACTPI", version, type, state,      4096 bytes
//!        at 16 the generation of the records
//! 4096   record of block 0, of block 1, ...     16 bytes each: tuple (all bits inverted), digest, zeros
//! ```
//!
//! Changes of a file's blocks and records go through a [log](crate::log), which makes each write atomic: a crash leaves the old block with
//! its old record or the new block with its new one. In memory, of which a crash leaves nothing, they are written one after the other.
//! Remaining damage is detected:
//!
//! * A tuple whose guard is checked detects it by the guard.
//! * A record of zeros says that the block was never written; its data must then be zeros. (Holes of the side file read as such records,
//!   which is why tuples are stored inverted.)
//! * A tuple with which a host turned the checks off has the CRC32C of the data next to it.
//!
//! Version 2 is a side file with a log: programs that do not know the log must not change one without the other. Version 3 adds the
//! generation, which is also in the label of the volume: records restored from another time are refused. Earlier versions become version 3
//! when they are opened with a log. Left out: a guard of the record itself. Damage to a record is detected like damage to its block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::gather::{Gather, total_bytes};
use crate::log::{Change, Kind, Log, Part, ReadBy, Span};
use crate::record::{RECORD_BYTES, RecordRun};
use crate::store::check_extent_range;
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Placement,
    StoreError, not_atomic, read_then_crc32c,
};

/// Bytes before the first record.
const HEAD_BYTES: u64 = 4096;
const MAGIC: &[u8; 8] = b"INTACTPI";
/// Versions 1 (without a log), 2 (with a log, without a generation) and 3.
const VERSIONS: [u8; 3] = [1, 2, 3];
/// Where the generation of the records is.
const GENERATION_AT: usize = 16;
/// Bytes of blocks that are written with their records in one step; longer writes take several steps.
const STEP_BYTES: u64 = 1 << 20;
/// Records that are reset with one write.
const RESET_RECORDS: usize = 4096;

/// What the side store records about the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Type of the protection information, 0 to 3.
    pub kind: u8,
    /// A format started and did not finish.
    pub interrupted: bool,
}

/// Blocks and their records.
struct Parts {
    data: Arc<dyn BlockStore>,
    side: Arc<dyn BlockStore>,
    log: Option<Log>,
    /// A change has bypassed the log.
    direct: AtomicBool,
}

impl Parts {
    fn read(&self, part: Part, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read_by(part, offset, dst, |store, offset, dst| store.read(offset, dst))
    }

    fn read_medium(&self, part: Part, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read_by(part, offset, dst, |store, offset, dst| store.read_medium(offset, dst))
    }

    fn read_by(&self, part: Part, offset: u64, dst: &mut [u8], by: ReadBy) -> Result<(), StoreError> {
        match (&self.log, part) {
            (Some(log), _) => log.read(part, offset, dst, by),
            (None, Part::Side) => by(&*self.side, offset, dst),
            (None, Part::Data) => by(&*self.data, offset, dst),
        }
    }

    /// To be called before a change of one part alone: settles what the log has of the range.
    fn go_past_log(&self, part: Part, span: Span) -> Result<(), StoreError> {
        let Some(log) = &self.log else { return Ok(()) };
        log.make_way(part, span)?;
        self.direct.store(true, Ordering::Release);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        if let Some(log) = &self.log {
            log.flush()?;
            if !self.direct.load(Ordering::Acquire) {
                return Ok(());
            }
        }
        self.side.flush()?;
        self.data.flush()
    }
}

/// The records of a store.
pub struct Records {
    parts: Arc<Parts>,
    format: Mutex<Format>,
    /// The life of the volume that the records belong to; 0 without a log.
    generation: AtomicU64,
}

impl Records {
    /// Bytes that the side store of `blocks` blocks needs.
    pub(crate) fn bytes_for(blocks: u64) -> Result<u64, StoreError> {
        let bytes = blocks.checked_mul(RECORD_BYTES as u64).and_then(|n| n.checked_add(HEAD_BYTES));
        let bytes = bytes.and_then(|n| n.checked_next_multiple_of(HEAD_BYTES));
        bytes.ok_or_else(|| StoreError::Unusable("the store is too large for protection information".into()))
    }

    /// Opens the records; new ones are formatted with type `kind`.
    fn open(parts: Arc<Parts>, kind: u8) -> Result<Self, StoreError> {
        let mut head = [0; GENERATION_AT + 8];
        parts.side.read(0, &mut head)?;
        let made = match (&head[..8], head[8], head[9], head[10]) {
            (magic, 0, 0, 0) if magic.iter().all(|&byte| byte == 0) => Format { kind, interrupted: false },
            (magic, version, kind @ 0..=3, state @ 0..=1)
                if magic == MAGIC && VERSIONS.contains(&version) =>
            {
                Format { kind, interrupted: state == 1 }
            }
            _ => {
                return Err(StoreError::Unusable(format!(
                    "{} holds no protection information of this version; move it away to begin anew",
                    parts.side.description()
                )));
            }
        };
        let records = Records { parts, format: Mutex::new(made), generation: AtomicU64::new(0) };
        // Records of earlier versions have no generation, which reads as 0.
        let generation = head[GENERATION_AT..].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        if records.parts.log.is_some() && head[8] != 0 {
            records.check_life(generation)?;
            records.generation.store(generation, Ordering::Relaxed);
        }
        if !records.parts.side.geometry().read_only {
            records.begin_life()?;
        }
        Ok(records)
    }

    /// Records of another time would refuse good blocks, or accept bad ones.
    fn check_life(&self, generation: u64) -> Result<(), StoreError> {
        let Parts { data, side, .. } = &*self.parts;
        if data.label().is_none_or(|label| label.knows_records_of(generation)) {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "{} is of another time than the label of {} says; put the files of the volume back that belong together, all from one \
             copy; without such a copy move the label away, and what does not belong together fails its checks when it is read",
            side.description(),
            data.description()
        )))
    }

    /// Stores in the records to which life of the volume they belong, before anything of it is changed. Without a log they have no room for
    /// that, and they are not restored from copies.
    fn begin_life(&self) -> Result<(), StoreError> {
        if self.parts.log.is_none() {
            return Ok(());
        }
        let say = |generation| {
            self.generation.store(generation, Ordering::Relaxed);
            self.remember(self.format())
        };
        match self.parts.data.label() {
            Some(label) => label.begin_life_of_records(self.generation.load(Ordering::Relaxed), say),
            None => say(0),
        }
    }

    /// The format as last stored.
    pub fn format(&self) -> Format {
        *self.format.lock()
    }

    /// Stores a format durably.
    ///
    /// # Errors
    /// Those of a write.
    pub fn remember(&self, format: Format) -> Result<(), StoreError> {
        let mut head = vec![0; 512];
        head[..8].copy_from_slice(MAGIC);
        let version = if self.parts.log.is_some() { VERSIONS[2] } else { VERSIONS[0] };
        head[8..11].copy_from_slice(&[version, format.kind, u8::from(format.interrupted)]);
        let generation = self.generation.load(Ordering::Relaxed);
        head[GENERATION_AT..GENERATION_AT + 8].copy_from_slice(&generation.to_be_bytes());
        self.parts.side.write(0, &[&head], Durability::Durable)?;
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
        self.parts.read(Part::Side, Self::at(lba), records.as_flattened_mut())?;
        Ok(RecordRun::from_stored(records))
    }

    /// Like [`read`](Self::read), bypassing caches.
    ///
    /// # Errors
    /// Those of a read.
    pub fn read_medium(&self, lba: u64, blocks: usize) -> Result<RecordRun, StoreError> {
        let mut records = vec![[0; RECORD_BYTES]; blocks];
        self.parts.read_medium(Part::Side, Self::at(lba), records.as_flattened_mut())?;
        Ok(RecordRun::from_stored(records))
    }

    /// Writes the records of the blocks from `lba` on, without their blocks. Where a crash must not separate the two, use
    /// [`BlockStore::write_atomic`] for both.
    ///
    /// # Errors
    /// Those of a write.
    pub fn write(&self, lba: u64, records: &RecordRun, durability: Durability) -> Result<(), StoreError> {
        self.parts.go_past_log(Part::Side, Self::span(lba, records.len() as u64))?;
        self.parts.side.write(Self::at(lba), &[records.as_bytes()], durability)
    }

    fn span(lba: u64, blocks: u64) -> Span {
        Span { offset: Self::at(lba), len: blocks * RECORD_BYTES as u64 }
    }

    /// The store of the records, and the position of a block's record in it.
    pub(crate) fn place(&self, lba: u64) -> (&dyn BlockStore, u64) {
        (&*self.parts.side, Self::at(lba))
    }

    /// Marks blocks as unwritten, without changing their data.
    ///
    /// # Errors
    /// Those of a write.
    pub fn reset(&self, lba: u64, blocks: u64) -> Result<(), StoreError> {
        self.parts.go_past_log(Part::Side, Self::span(lba, blocks))?;
        let (mut at, end) = (lba, lba + blocks);
        while at < end {
            let part = (end - at).min(RESET_RECORDS as u64);
            self.parts.side.write_zeroes(Self::at(at), part * RECORD_BYTES as u64, true)?;
            at += part;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.parts.side.flush()
    }
}

/// Checks the block size: protection information is for blocks of 512 and 4096 bytes.
pub(crate) fn check_protectable(geometry: &Geometry) -> Result<(), StoreError> {
    if matches!(geometry.logical_block_bytes, 512 | 4096) {
        return Ok(());
    }
    let block = geometry.logical_block_bytes;
    Err(StoreError::Unusable(format!(
        "blocks of {block} bytes have no protection information; use block=512 or block=4096, or leave pi= away"
    )))
}

/// A store that keeps records for its blocks. [`write_atomic`](BlockStore::write_atomic) writes both; a caller that writes blocks alone
/// must keep the [records](BlockStore::records) up to date.
pub struct ProtectedStore {
    parts: Arc<Parts>,
    records: Records,
    /// Most bytes of an all-or-nothing write.
    atomic_bytes_max: u64,
}

impl ProtectedStore {
    /// Combines the records in `side` with `data`; a new side store is formatted with type `kind`, 0 to 3. A crash may leave a block
    /// without its record, so this is for stores that do not survive a crash.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when `side` is too small or holds something else, and those of reading and writing it.
    pub fn new(data: Arc<dyn BlockStore>, side: Arc<dyn BlockStore>, kind: u8) -> Result<Self, StoreError> {
        // Each block has a record, and a record is shorter than a block.
        let max = data.atomic_write_bytes_max().min(side.atomic_write_bytes_max());
        Self::over(Parts { data, side, log: None, direct: AtomicBool::new(false) }, kind, max)
    }

    /// Like [`new`](Self::new), with a log that keeps each block and its record consistent after a crash. Changes that are only in the log
    /// are put in their place. `identity` distinguishes the store from others that have, or had, its place. Writes of up to
    /// `atomic_bytes_max` bytes are offered as all or nothing.
    ///
    /// # Errors
    /// Those of `new`; [`StoreError::Unusable`] for a log of another store or another time, and those of reading and writing it.
    pub fn with_log(
        data: Arc<dyn BlockStore>,
        (side, kind): (Arc<dyn BlockStore>, u8),
        log: Arc<dyn BlockStore>,
        identity: [u8; 16],
        atomic_bytes_max: u64,
    ) -> Result<Self, StoreError> {
        Self::check_side(&*data, &*side)?;
        let log = Log::open((Arc::clone(&side), Arc::clone(&data)), log, identity)?;
        let parts = Parts { data, side, log: Some(log), direct: AtomicBool::new(false) };
        Self::over(parts, kind, atomic_bytes_max.min(STEP_BYTES))
    }

    fn over(parts: Parts, kind: u8, atomic_bytes_max: u64) -> Result<Self, StoreError> {
        Self::check_side(&*parts.data, &*parts.side)?;
        let parts = Arc::new(parts);
        let records = Records::open(Arc::clone(&parts), kind)?;
        Ok(ProtectedStore { parts, records, atomic_bytes_max })
    }

    fn check_side(data: &dyn BlockStore, side: &dyn BlockStore) -> Result<(), StoreError> {
        let needed = Records::bytes_for(data.geometry().blocks())?;
        let found = side.geometry().size_bytes;
        if found >= needed {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "{} has {found} bytes, the protection information needs {needed}; enlarge it",
            side.description()
        )))
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.geometry().logical_block_bytes)
    }

    /// The spans of blocks and of their records.
    fn spans(&self, offset: u64, len: u64) -> (Span, Span) {
        let block = self.block_bytes();
        let blocks = (offset + len).div_ceil(block) - offset / block;
        (Records::span(offset / block, blocks), Span { offset, len })
    }

    fn write_step(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: &[u8],
        durability: Durability,
    ) -> Result<(), StoreError> {
        let Parts { data, side, log, .. } = &*self.parts;
        let len = src.iter().map(|piece| piece.len() as u64).sum();
        let (beside, span) = self.spans(offset, len);
        if let Some(log) = log {
            let beside = Span { len: records.len() as u64, ..beside };
            let change = Change { side: beside, data: span, kind: Kind::Bytes };
            return log.change(&change, records, src, durability);
        }
        let mut before = vec![0; records.len()];
        side.read(beside.offset, &mut before)?;
        let written = side.write(beside.offset, &[records], durability).and_then(|()| {
            match data.atomic_write_bytes_max() {
                0 => data.write(offset, src, durability),
                _ => data.write_atomic(offset, src, None, durability),
            }
        });
        if written.is_err() {
            side.write(beside.offset, &[&before], durability)?;
        }
        written
    }

    /// Makes a range zeros, with the records of blocks that were never written.
    fn zero(&self, offset: u64, len: u64, kind: Kind) -> Result<(), StoreError> {
        let geometry = self.geometry();
        geometry.check_range(offset, len)?;
        if geometry.read_only {
            return Err(StoreError::ReadOnly);
        }
        let (side, data) = self.spans(offset, len);
        let parts = &*self.parts;
        if let Some(log) = &parts.log {
            return log.change(&Change { side, data, kind }, &[], &[], Durability::Cached);
        }
        match kind {
            Kind::Unmapped => parts.data.unmap(offset, len)?,
            Kind::Zeroes | Kind::Bytes => parts.data.write_zeroes(offset, len, false)?,
        }
        let block = self.block_bytes();
        self.records.reset(offset / block, side.len / RECORD_BYTES as u64)
    }

    /// Bytes that the side store of a store of this geometry needs.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if that does not fit in 64 bits.
    pub fn side_bytes(geometry: &Geometry) -> Result<u64, StoreError> {
        Records::bytes_for(geometry.blocks())
    }
}

impl BlockStore for ProtectedStore {
    fn geometry(&self) -> Geometry {
        self.parts.data.geometry()
    }
    fn placement(&self) -> Placement {
        self.parts.data.placement()
    }
    fn description(&self) -> String {
        self.parts.data.description()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.parts.read(Part::Data, offset, dst)
    }
    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false) // a read must find blocks and records consistent
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        match self.parts.log {
            Some(_) => read_then_crc32c(self, offset, dst, crc),
            None => self.parts.data.read_crc32c(offset, dst, crc),
        }
    }
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        let len = total_bytes(src, offset, self.geometry().size_bytes)?;
        self.parts.go_past_log(Part::Data, Span { offset, len })?;
        self.parts.data.write(offset, src, durability)
    }
    fn atomic_write_bytes_max(&self) -> u64 {
        self.atomic_bytes_max
    }
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let geometry = self.geometry();
        let len = total_bytes(src, offset, geometry.size_bytes)?;
        geometry.check_range(offset, len)?;
        if geometry.read_only {
            return Err(StoreError::ReadOnly);
        }
        let Some(records) = records else {
            return match len > self.atomic_bytes_max {
                true => Err(not_atomic(self)),
                false => self.write_step(offset, src, &[], durability),
            };
        };
        let block = self.block_bytes();
        if records.len() as u64 * block != len || !offset.is_multiple_of(block) {
            return Err(not_atomic(self));
        }
        let (mut gather, mut at) = (Gather::new(src), offset);
        for records in records.chunks((STEP_BYTES / block) as usize) {
            let (mut step, mut left) = (Vec::with_capacity(src.len()), records.len() * block as usize);
            at += left as u64;
            while let Some(run) = gather.next_run(left).filter(|_| left > 0) {
                left -= run.len();
                step.push(run);
            }
            let from = at - records.len() as u64 * block;
            self.write_step(from, &step, records.as_flattened(), durability)?;
        }
        Ok(())
    }
    fn overwrites_in_place(&self) -> bool {
        self.parts.data.overwrites_in_place() && self.parts.side.overwrites_in_place()
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        self.parts.data.in_place().filter(|_| self.parts.log.is_none())
    }
    fn flush(&self) -> Result<(), StoreError> {
        if self.geometry().read_only { Ok(()) } else { self.parts.flush() }
    }
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.zero(offset, len, Kind::Unmapped)
    }
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.zero(offset, len, if may_unmap { Kind::Unmapped } else { Kind::Zeroes })
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        if let Some(log) = &self.parts.log {
            let span = Span { offset, len };
            if self.geometry().read_only && log.has(Part::Data, span) {
                check_extent_range(self.geometry().size_bytes, offset, len)?;
                return Ok(vec![Extent { offset, len, mapped: true }]);
            }
            log.make_way(Part::Data, span)?;
        }
        self.parts.data.extents(offset, len, max)
    }
    /// The records grow first: at no time is there a block without one.
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        let needed = Records::bytes_for(size_bytes / self.block_bytes())?;
        if needed > self.parts.side.geometry().size_bytes {
            self.parts.side.resize(needed)?;
        }
        self.parts.data.resize(size_bytes)
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.parts.data.medium_bytes()
    }
    fn make_writable(&self) -> Result<(), StoreError> {
        let Parts { data, side, log, .. } = &*self.parts;
        if !self.geometry().read_only {
            return Ok(());
        }
        let Some(log) = log else {
            return Err(StoreError::Unusable(format!(
                "{} has protection information and no log yet; open it without ro",
                self.description()
            )));
        };
        side.make_writable()?;
        data.make_writable()?;
        log.make_writable()?;
        self.records.begin_life()
    }
    fn records(&self) -> Option<&Records> {
        Some(&self.records)
    }
    fn label(&self) -> Option<&Arc<Label>> {
        self.parts.data.label()
    }
    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.parts.read_medium(Part::Data, offset, dst)
    }
    fn medium_reads(&self) -> MediumReads {
        self.parts.data.medium_reads()
    }
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        // All stores share one label, so its failed flush is returned once.
        let Parts { data, side, log, .. } = &*self.parts;
        let failed = data.reopen()?;
        let failed = failed.or(side.reopen()?);
        match log {
            Some(log) => Ok(failed.or(log.reopen()?)),
            None => Ok(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use integrity::t10::Tuple;

    use super::*;
    use crate::{RamStore, Record};

    /// The tuple of a block that was never written.
    const UNWRITTEN: Tuple = Tuple { guard: 0xffff, app_tag: 0xffff, ref_tag: 0xffff_ffff };

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
    fn in_memory_a_write_without_room_leaves_the_records_of_what_is_there() {
        let data = RamStore::new(1 << 20, 512).unwrap().with_resident_limit(64 << 10);
        let side = Arc::new(RamStore::new(64 << 10, 512).unwrap());
        let store = ProtectedStore::new(Arc::new(data), side, 1).unwrap();
        let record = Record::Guarded(Tuple { guard: 7, app_tag: 1, ref_tag: 2 });
        let run: RecordRun = std::iter::repeat_n(record, 4).collect();
        let write = |lba: u64| store.write_atomic(lba * 512, &[&[7; 2048]], Some(&run), Durability::Cached);
        write(126).unwrap_err();
        write(0).unwrap();
        assert!(matches!(write(1024), Err(StoreError::NoSpace)));
        let kept = |lba| store.records().unwrap().read(lba, 4).unwrap().iter().collect::<Vec<_>>();
        assert_eq!((kept(0), kept(1024)), (vec![record; 4], vec![Record::Unwritten; 4]));
        assert_eq!(kept(126), [Record::Unwritten; 4], "one that meets two chunks, of which one fits");
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
