//! All-or-nothing writes over a store that has none: a journal next to it (for a file, `PATH.atomic`; see `format.rs`).
//!
//! A write goes to the journal first and is durable there before its blocks are touched. So at every moment either the old blocks or
//! the record is whole. After a crash, opening the store replays the whole records and ignores the torn ones, whose writes never
//! touched a block.
//!
//! * A record stays valid until a mark retires it. Marks follow a flush of the store and retire up to [`SLOTS`] records at once. An
//!   all-or-nothing write costs one durable write to the journal and a cached one to its blocks. Since it is durable in the journal,
//!   FUA costs no more.
//! * A change of blocks by other means waits until the journal's records of them are retired. Otherwise the next start would bring the
//!   older data back.
//! * Space is allocated up front: holes become allocated zeros, and the journal is overwritten again and again. So a full file system
//!   is reported before anything has changed.
//! * A write may fail between the two steps, or in the journal without the journal being able to forget it. Then the content of its
//!   blocks after the next start is unknown. They cannot be read or written until the store is reopened, which finishes the write.
//!
//! * Blocks with protection information go through a [log](crate::log) instead. Journals of earlier versions may hold the records of
//!   such blocks behind their data: both are replayed together when such a journal is finished.
//!
//! Invariant: a slot is reused only after a mark on the medium says that its old record is retired; marks never go back.

mod format;
mod ring;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use self::format::{
    HEAD_BYTES, Header, MARKS, MAX_ATOMIC_BYTES, Mark, SLOTS, SLOTS_AT, file_bytes, headers, slot_at,
};
use self::ring::{Ring, Stuck};
use crate::gather::total_bytes;
use crate::record::RECORD_BYTES;
use crate::store::{Identity, allocate};
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Op, Placement,
    RecordRun, Records, StoreError, not_atomic, read_then_crc32c,
};

/// Bytes written at a time when a journal is created.
const FILL_BYTES: usize = 256 * 1024;

/// Whether opening the journal starts a new life of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Begins,
    /// Something else next to the volume (its log) starts the new life.
    Stays,
}

/// A store with a journal for all-or-nothing writes; see the head of the module.
pub struct JournaledStore {
    data: Arc<dyn BlockStore>,
    journal: Arc<dyn BlockStore>,
    identity: Identity,
    /// Most bytes of a write.
    max: u64,
    /// Bytes of a slot after its header.
    slot_bytes: u64,
    ring: Mutex<Ring>,
    /// The phase of a write has changed.
    moved: Condvar,
    /// Copy of [`Ring::live`]: while it is 0, the lock is not needed.
    live: AtomicU64,
    /// A write could not be finished.
    any_stuck: AtomicBool,
    /// Held while a mark is written.
    turn: Mutex<Turn>,
}

/// Content and place of the next mark.
#[derive(Default)]
struct Turn {
    place: u64,
    generation: u64,
}

impl JournaledStore {
    /// Attaches `journal` to `data` for writes of up to `max_bytes` bytes at once, after finishing the interrupted writes that it
    /// records. `identity` distinguishes the store from others that had its place: a journal that has unfinished work for another
    /// store is refused. A new journal holds zeros; one that is too small grows.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the remedy, [`StoreError::NoSpace`], and those of reading and writing both.
    pub fn new(
        data: Arc<dyn BlockStore>,
        journal: Arc<dyn BlockStore>,
        identity: [u8; 16],
        max_bytes: u64,
    ) -> Result<Self, StoreError> {
        check_max(&data.geometry(), max_bytes)?;
        Self::with_slots(data, journal, identity, (max_bytes, max_bytes), Life::Begins)
    }

    fn with_slots(
        data: Arc<dyn BlockStore>,
        journal: Arc<dyn BlockStore>,
        identity: Identity,
        (max, slot_bytes): (u64, u64),
        life: Life,
    ) -> Result<Self, StoreError> {
        let store = JournaledStore {
            data,
            journal,
            identity,
            max,
            slot_bytes,
            ring: Mutex::new(Ring::new(0)),
            moved: Condvar::new(),
            live: AtomicU64::new(0),
            any_stuck: AtomicBool::new(false),
            turn: Mutex::default(),
        };
        store.recover(&mut store.turn.lock(), life)?;
        Ok(store)
    }

    /// Finishes the interrupted writes to `data` that `journal` records and leaves the journal with nothing to do, because `data` will
    /// now be changed without it. A new journal stays as it is.
    ///
    /// # Errors
    /// Those of [`JournaledStore::new`].
    pub(crate) fn finish(
        data: Arc<dyn BlockStore>,
        journal: Arc<dyn BlockStore>,
        identity: Identity,
        life: Life,
    ) -> Result<(), StoreError> {
        let Some((_, mark)) = Mark::read(&*journal)? else { return Ok(()) };
        Self::with_slots(data, journal, identity, (0, mark.slot_bytes), life).map(drop)
    }

    /// Bytes of a journal for writes of up to `max_bytes`.
    pub fn journal_bytes(max_bytes: u64) -> u64 {
        file_bytes(max_bytes.min(MAX_ATOMIC_BYTES))
    }

    /// Finishes interrupted writes and starts again with an empty journal.
    fn recover(&self, turn: &mut Turn, life: Life) -> Result<(), StoreError> {
        let found = Mark::read(&*self.journal)?;
        let mut first = 0;
        if let Some((_, mark)) = found {
            let headers = headers(&*self.journal, &mark)?;
            // Larger than any number found, torn records included, so that the new mark is the one that counts.
            first = headers.last().map_or(mark.first, |header| header.number) + 1;
            for header in headers {
                if let Some(data) = header.data(&*self.journal, mark.slot_bytes)? {
                    self.repeat(&mark, &header, &data)?;
                }
            }
        }
        if self.geometry().read_only || self.journal.geometry().read_only {
            return Ok(());
        }
        self.data.flush()?;
        self.allocate_journal(found.map_or(0, |(_, mark)| file_bytes(mark.slot_bytes)))?;
        // Not over the mark that counts: the new one may be torn.
        turn.place = found.map_or(0, |(place, _)| (place + 1) % MARKS);
        // The new generation marks any copy of the journal that is restored later as out of date.
        let label = self.data.label();
        turn.generation = self.generation() + u64::from(label.is_some() && life == Life::Begins);
        self.write_mark(turn, first)?;
        self.update(|ring| *ring = Ring::new(first));
        // Only now: until the journal is empty, its content belongs to the previous generation.
        label.map_or(Ok(()), |label| label.set_journal_generation(turn.generation))
    }

    /// The journal generation of the volume.
    fn generation(&self) -> u64 {
        self.data.label().map_or(0, |label| label.journal_generation())
    }

    /// Replays a record.
    fn repeat(&self, mark: &Mark, header: &Header, data: &[u8]) -> Result<(), StoreError> {
        let geometry = self.geometry();
        let len = u64::from(header.len);
        let of_this_time = mark.generation.is_none_or(|generation| generation == self.generation());
        if mark.identity != self.identity
            || !of_this_time
            || geometry.check_range(header.offset, len).is_err()
        {
            return Err(StoreError::Unusable(format!(
                "{} has a write that was not finished, for another {} or of another time of it; put the files back that belong \
                 together, or move the journal away to do without that write",
                self.journal.description(),
                self.data.description()
            )));
        }
        let (data, records) = data.split_at(header.len as usize);
        let beside = match (records, self.data.records()) {
            ([], _) => None,
            (_, Some(beside)) if records.len() as u64 == records_bytes(&geometry, len) => {
                let block = u64::from(geometry.logical_block_bytes);
                Some(beside.place(header.offset / block))
            }
            _ => {
                return Err(StoreError::Unusable(format!(
                    "{} was interrupted in a write with protection information; open it once with pi= and block= as they were",
                    self.data.description()
                )));
            }
        };
        if !geometry.read_only {
            if let Some((side, at)) = beside {
                side.write(at, &[records], Durability::Cached)?;
            }
            return self.data.write(header.offset, &[data], Durability::Cached);
        }
        let mut now = vec![0; data.len() + records.len()];
        self.data.read(header.offset, &mut now[..data.len()])?;
        if let Some((side, at)) = beside {
            side.read(at, &mut now[data.len()..])?;
        }
        if now.split_at(data.len()) == (data, records) {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "{} was interrupted in a write of all or nothing; open it without ro once to finish it",
            self.data.description()
        )))
    }

    /// Makes the journal as large as needed, and allocates the space of the part that is new.
    fn allocate_journal(&self, used: u64) -> Result<(), StoreError> {
        let wanted = file_bytes(self.slot_bytes);
        if self.journal.geometry().size_bytes < wanted {
            self.journal.resize(wanted)?;
        }
        let zeroes = vec![0; FILL_BYTES];
        let mut at = used.max(SLOTS_AT);
        while at < wanted {
            let part = (wanted - at).min(FILL_BYTES as u64);
            self.journal.write(at, &[&zeroes[..part as usize]], Durability::Cached)?;
            at += part;
        }
        self.journal.flush()
    }

    /// Writes the mark at its next place. A mark whose write fails may be torn: the next attempt goes to the same place, and the other
    /// mark is whole.
    fn write_mark(&self, turn: &mut Turn, first: u64) -> Result<(), StoreError> {
        let mark = Mark {
            slot_bytes: self.slot_bytes,
            records: false,
            identity: self.identity,
            first,
            generation: Some(turn.generation),
        };
        self.journal.write(turn.place * HEAD_BYTES as u64, &[&mark.to_bytes()], Durability::Durable)?;
        turn.place = (turn.place + 1) % MARKS;
        Ok(())
    }

    /// Records on the medium that everything below `first` is retired: its blocks were written, and flushed since.
    fn mark(&self, first: u64) -> Result<(), StoreError> {
        let mut turn = self.turn.lock();
        if self.ring.lock().first() >= first {
            return Ok(());
        }
        self.write_mark(&mut turn, first)?;
        self.update(|ring| ring.advance(first));
        Ok(())
    }

    fn update<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        let mut ring = self.ring.lock();
        let result = change(&mut ring);
        self.live.store(ring.live(), Ordering::Release);
        drop(ring);
        self.moved.notify_all();
        result
    }

    /// From now on the content of this write's blocks after the next start is unknown.
    fn mark_stuck(&self, number: u64) {
        self.any_stuck.store(true, Ordering::Release);
        self.update(|ring| ring.mark_stuck(number));
    }

    /// Returns when everything below `until` is retired.
    fn settle(&self, until: u64) -> Result<(), StoreError> {
        let placed = {
            let mut ring = self.ring.lock();
            loop {
                if ring.first() >= until {
                    return Ok(());
                }
                let placed = ring.placed();
                if placed >= until {
                    break placed;
                }
                if ring.is_stuck(placed) {
                    return Err(unfinished(&*self.data));
                }
                self.moved.wait(&mut ring);
            }
        };
        self.data.flush()?;
        self.mark(placed)
    }

    /// Retires what is in the way of a change of a range that is not all or nothing.
    fn make_way(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        if self.live.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let until = self.ring.lock().in_the_way(offset, len);
        match until {
            Ok(None) => Ok(()),
            Ok(Some(until)) => self.settle(until).map_err(|error| of_the_journal(error, offset)),
            Err(Stuck) => Err(StoreError::MediumWrite { offset }),
        }
    }

    /// Fails for blocks whose content is unknown.
    fn check_known(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        if self.any_stuck.load(Ordering::Acquire) && self.ring.lock().in_the_way(offset, len) == Err(Stuck) {
            return Err(StoreError::MediumRead { offset });
        }
        Ok(())
    }

    /// Takes a number whose slot is free; waits for one.
    fn take(&self, offset: u64, len: u64) -> Result<u64, StoreError> {
        loop {
            let full = {
                let mut ring = self.ring.lock();
                if ring.in_the_way(offset, len) == Err(Stuck) {
                    return Err(StoreError::MediumWrite { offset });
                }
                let taken = ring.take(offset, len);
                self.live.store(ring.live(), Ordering::Release);
                match taken {
                    Some(number) => return Ok(number),
                    None => ring.first() + 1,
                }
            };
            self.settle(full).map_err(|error| of_the_journal(error, offset))?;
        }
    }

    fn record(&self, number: u64, offset: u64, len: u64, src: &[&[u8]]) -> Result<(), StoreError> {
        let mut pieces = vec![&[][..]];
        pieces.extend_from_slice(src);
        let data_crc = pieces.iter().fold(0, |crc, piece| integrity::crc32c_append(crc, piece));
        let header = Header { number, offset, len: len as u32, records_len: 0, data_crc };
        let head = header.to_bytes(false);
        pieces[0] = &head;
        self.journal.write(slot_at(number, self.slot_bytes), &pieces, Durability::Durable)
    }
}

/// Size of the records for this many bytes of blocks, in bytes.
fn records_bytes(geometry: &Geometry, bytes: u64) -> u64 {
    bytes / u64::from(geometry.logical_block_bytes) * RECORD_BYTES as u64
}

impl Drop for JournaledStore {
    /// Leaves nothing to do for the next start, if possible: the file is then complete without its journal.
    fn drop(&mut self) {
        let placed = self.ring.lock().placed();
        if self.live.load(Ordering::Acquire) > 0 && self.data.flush().is_ok() {
            let _ = self.mark(placed);
        }
    }
}

/// Checks the size of an all-or-nothing write against the store.
pub(crate) fn check_max(geometry: &Geometry, max_bytes: u64) -> Result<(), StoreError> {
    let block = u64::from(geometry.logical_block_bytes);
    if max_bytes == 0 || max_bytes > MAX_ATOMIC_BYTES || !max_bytes.is_multiple_of(block) {
        return Err(StoreError::Unusable(format!(
            "writes of {max_bytes} bytes cannot be all or nothing here; use whole blocks of {block} bytes, at most 1M (atomic=64K)"
        )));
    }
    Ok(())
}

fn unfinished(data: &dyn BlockStore) -> StoreError {
    StoreError::FlushFailed(format!("a write of all or nothing to {} was not finished", data.description()))
}

/// Turns an error of the journal into one of the store at `offset`.
fn of_the_journal(error: StoreError, offset: u64) -> StoreError {
    match error {
        StoreError::MediumRead { .. } | StoreError::MediumWrite { .. } => StoreError::MediumWrite { offset },
        StoreError::Io { source, .. } => StoreError::Io { op: Op::Write, offset, source },
        other => other,
    }
}

impl BlockStore for JournaledStore {
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
        if let Err(error) = self.check_known(offset, dst.len() as u64) {
            dst.fill(0);
            return Err(error);
        }
        self.data.read(offset, dst)
    }

    fn read_now(&self, offset: u64, dst: &mut [u8]) -> Result<bool, StoreError> {
        match self.any_stuck.load(Ordering::Acquire) {
            true => Ok(false),
            false => self.data.read_now(offset, dst),
        }
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        if self.any_stuck.load(Ordering::Acquire) {
            return read_then_crc32c(self, offset, dst, crc);
        }
        self.data.read_crc32c(offset, dst, crc)
    }

    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        if self.live.load(Ordering::Acquire) != 0 {
            self.make_way(offset, total_bytes(src, offset, self.geometry().size_bytes)?)?;
        }
        self.data.write(offset, src, durability)
    }

    fn atomic_write_bytes_max(&self) -> u64 {
        self.max
    }

    /// Always durable.
    fn write_atomic(
        &self,
        offset: u64,
        src: &[&[u8]],
        records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        let geometry = self.geometry();
        let len = total_bytes(src, offset, geometry.size_bytes)?;
        geometry.check_range(offset, len)?;
        if geometry.read_only {
            return Err(StoreError::ReadOnly);
        }
        if len > self.max || records.is_some() {
            return Err(not_atomic(self));
        }
        if len == 0 {
            return Ok(());
        }
        allocate(&*self.data, offset, len)?;
        let number = self.take(offset, len)?;
        if let Err(error) = self.record(number, offset, len, src) {
            // Nothing was written to the blocks, and nothing needs to be. If the record reached the journal all the same, it must be
            // retired before the old data is read. Otherwise the next start could bring back a write that was reported as failed.
            self.update(|ring| ring.place(number));
            if self.settle(number + 1).is_err() {
                self.mark_stuck(number);
            }
            return Err(of_the_journal(error, offset));
        }
        let written = self.data.write(offset, src, Durability::Cached);
        match &written {
            Ok(()) => self.update(|ring| ring.place(number)),
            Err(_) => self.mark_stuck(number),
        }
        written
    }

    fn overwrites_in_place(&self) -> bool {
        false // the journal keeps copies
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        None // other calls would have to wait, and be refused, in there too
    }

    /// Also frees slots now and then: the flush has already paid most of the cost.
    fn flush(&self) -> Result<(), StoreError> {
        if self.live.load(Ordering::Acquire) < SLOTS / 2 {
            return self.data.flush();
        }
        let placed = self.ring.lock().placed();
        self.data.flush()?;
        // The flush is done. If the mark fails, it fails again for the write that needs a slot.
        let _ = self.mark(placed);
        Ok(())
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.make_way(offset, len)?;
        self.data.unmap(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), StoreError> {
        self.make_way(offset, len)?;
        self.data.write_zeroes(offset, len, may_unmap)
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, StoreError> {
        self.data.extents(offset, len, max)
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.data.resize(size_bytes)
    }

    fn medium_bytes(&self) -> Result<u64, StoreError> {
        self.data.medium_bytes()
    }

    fn make_writable(&self) -> Result<(), StoreError> {
        if !self.geometry().read_only {
            return Ok(());
        }
        self.journal.make_writable()?;
        self.data.make_writable()?;
        self.recover(&mut self.turn.lock(), Life::Begins)
    }

    fn records(&self) -> Option<&Records> {
        self.data.records()
    }

    fn label(&self) -> Option<&Arc<Label>> {
        self.data.label()
    }

    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        if let Err(error) = self.check_known(offset, dst.len() as u64) {
            dst.fill(0);
            return Err(error);
        }
        self.data.read_medium(offset, dst)
    }

    fn medium_reads(&self) -> MediumReads {
        self.data.medium_reads()
    }

    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        // No mark may be written meanwhile: journaled data may not have reached its blocks, whatever a flush says from here on.
        let mut turn = self.turn.lock();
        let failed = self.data.reopen()?;
        let failed = failed.or(self.journal.reopen()?);
        match self.recover(&mut turn, Life::Begins) {
            Ok(()) => self.any_stuck.store(false, Ordering::Release),
            Err(error) => {
                // The blocks of the remaining writes must not be read or overwritten, and no mark may pass them.
                self.any_stuck.store(true, Ordering::Release);
                self.update(Ring::mark_all_stuck);
                return Err(error);
            }
        }
        Ok(failed)
    }
}
