//! The log of a volume whose blocks have records (for a file, `PATH.pi-log`; see `format.rs`). It makes the update of a block and its
//! record atomic.
//!
//! Blocks and records are in two stores, and neither promises which of its last writes survive a crash. So a change goes to the log,
//! block and record together, and is read from there. It is put in its place only later, when that part of the log is on the medium:
//!
//! ```text
//! append, cached ──► [flush: the log is on the medium] ──► ... ──► settle: flush the log, put all in place, flush both stores,
//!                                                                  then a mark: the log is empty
//! ```
//!
//! Invariants:
//!
//! 1. **Places change only from what is durable in the log.** Whatever a crash leaves at a place, even part of a block, the start
//!    replays the entry.
//! 2. **The log is a prefix.** Entries are written in order and count up to the first that is not whole. What a crash loses was
//!    written after the last flush, and so is everything written after it: no older write overtakes a newer one.
//! 3. **An entry is retired when its place is durable**: the mark comes after the flush of both stores, and no entry is overwritten
//!    before its mark is durable.
//! 4. **A range that has an entry is not changed by other means** before the log is settled.
//! 5. **An entry that was reported as failed never counts.** It is first revoked on the medium. If that fails, the volume takes no
//!    more changes, and these blocks cannot be read until the next start.
//!
//! A flush of the volume is one flush of the log; a durable write is one entry and a flush. Each byte is written twice, the second
//! time together with its neighbours. Space is allocated up front: the log is written when it is created, and holes become zeros
//! before an entry for them is written. So a full file system refuses a write before anything has changed.

mod format;
mod runs;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use self::format::{ENTRIES_AT, FLUSH_ALIGN, HEAD_BYTES, MARKS, Mark, Place, entry, head};
use self::runs::{Run, Runs, What};
use crate::store::{Identity, allocate};
use crate::{BlockStore, Durability, FailedFlush, Op, StoreError};

pub(crate) use self::format::{Change, Kind, Span};

/// Bytes of a log: room for a second of writing, and less than a second of moving the data to its place.
pub(crate) const LOG_BYTES: u64 = 32 << 20;
/// Bytes written at a time when a log is created, and about as many when runs are put in place.
const PIECE_BYTES: usize = 1 << 20;
/// How often a read is repeated because the log was settled meanwhile; after that, the read blocks settling.
const READS: usize = 3;

/// Which of the two stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The store of the records.
    Side,
    /// The store of the blocks.
    Data,
}

/// How a store is read: through its caches, or from its medium.
pub(crate) type ReadBy = fn(&dyn BlockStore, u64, &mut [u8]) -> Result<(), StoreError>;

/// See the head of the module.
pub(crate) struct Log {
    side: Arc<dyn BlockStore>,
    data: Arc<dyn BlockStore>,
    file: Arc<dyn BlockStore>,
    identity: Identity,
    /// Where the next entry goes; held while an entry is written, and while the log is settled.
    tail: Mutex<Tail>,
    /// The runs that are not in their place, for each [`Part`].
    index: RwLock<[Runs; 2]>,
    /// Whether anything is not in its place.
    live: AtomicBool,
    /// Counts each start and each end of settling: what was read in between may mix old and new data.
    epoch: AtomicU64,
    /// The reason why the log takes no more entries, until it is reopened.
    broken: Mutex<Option<String>>,
}

#[derive(Default)]
struct Tail {
    generation: u64,
    sequence: u64,
    at: u64,
    /// Bytes of the log.
    end: u64,
    /// The journal generation of the label, once the log is open.
    volume_generation: u64,
    /// Where the next mark goes.
    mark_at: u64,
    /// A mark must be written before the next entry: the last one failed, but may have reached the medium all the same.
    overdue: bool,
}

impl Log {
    /// Opens the log of two stores and puts its entries in place. If the stores are read-only, the entries are read from the log
    /// instead. `identity` distinguishes the stores from others that have, or had, their place. A new log holds zeros.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the remedy, [`StoreError::NoSpace`], and those of reading and writing all three.
    pub(crate) fn open(
        (side, data): (Arc<dyn BlockStore>, Arc<dyn BlockStore>),
        file: Arc<dyn BlockStore>,
        identity: Identity,
    ) -> Result<Self, StoreError> {
        let log = Log {
            side,
            data,
            file,
            identity,
            tail: Mutex::default(),
            index: RwLock::default(),
            live: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            broken: Mutex::default(),
        };
        log.recover()?;
        Ok(log)
    }

    /// The stores were opened read-only, and take changes from now on.
    pub(crate) fn make_writable(&self) -> Result<(), StoreError> {
        self.file.make_writable()?;
        self.recover()
    }

    /// The stores below failed a flush and were reopened: the entries of the log are put in place again, as at the start.
    pub(crate) fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        let failed = self.file.reopen()?;
        *self.broken.lock() = None;
        self.recover().map_err(|error| self.breaks(&error))?;
        Ok(failed)
    }

    fn recover(&self) -> Result<(), StoreError> {
        let mut tail = self.tail.lock();
        let found = Mark::read(&*self.file)?;
        self.index.write().iter_mut().for_each(Runs::clear);
        if let Some((_, mark)) = found {
            self.load(&mark)?;
        }
        self.live.store(!self.index.read()[Part::Data as usize].is_empty(), Ordering::Release);
        if self.data.geometry().read_only || self.file.geometry().read_only {
            return Ok(());
        }
        let end = self.file.geometry().size_bytes / FLUSH_ALIGN * FLUSH_ALIGN;
        // The new generation marks any copy of the log that is restored later as out of date.
        let volume_generation = self.data.label().map_or(0, |label| label.journal_generation() + 1);
        *tail = Tail {
            volume_generation,
            generation: found.map_or(0, |(_, mark)| mark.generation),
            end,
            // Not over the mark that counts: the new one may be torn.
            mark_at: found.map_or(0, |(place, _)| (place + 1) % MARKS),
            overdue: true,
            ..Tail::default()
        };
        self.take_space(found.map_or(ENTRIES_AT, |(_, mark)| mark.bytes.max(ENTRIES_AT)), end)?;
        self.settle(&mut tail)?;
        // Only now: until the log is empty, its content belongs to the previous generation.
        self.data.label().map_or(Ok(()), |label| label.set_journal_generation(volume_generation))
    }

    fn volume_generation(&self) -> u64 {
        self.data.label().map_or(0, |label| label.journal_generation())
    }

    /// Loads the entries that count.
    fn load(&self, mark: &Mark) -> Result<(), StoreError> {
        let (mut sequence, mut at) = (0, ENTRIES_AT);
        let mut index = self.index.write();
        loop {
            let look = |at| {
                let place = Place { generation: mark.generation, sequence, at };
                Ok::<_, StoreError>(
                    entry(&*self.file, place, mark.bytes, mark.identity)?.map(|change| (at, change)),
                )
            };
            let found = match look(at)? {
                None if !at.is_multiple_of(FLUSH_ALIGN) => look(at.next_multiple_of(FLUSH_ALIGN))?,
                found => found,
            };
            let Some((place, change)) = found else { return Ok(()) };
            self.check_ours(mark, &change)?;
            Self::index_entry(&mut index, &change, place);
            (sequence, at) = (sequence + 1, place + change.entry_bytes());
        }
    }

    fn check_ours(&self, mark: &Mark, change: &Change) -> Result<(), StoreError> {
        let fits =
            |store: &dyn BlockStore, span: Span| store.geometry().check_range(span.offset, span.len).is_ok();
        if mark.identity == self.identity
            && mark.volume_generation == self.volume_generation()
            && fits(&*self.side, change.side)
            && fits(&*self.data, change.data)
        {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "{} has writes that are not in place, of another volume than {} or of another time; put the files back that belong \
             together, or move the log away to do without these writes",
            self.file.description(),
            self.data.description()
        )))
    }

    fn index_entry(index: &mut [Runs; 2], change: &Change, place: u64) {
        let payload = place + HEAD_BYTES as u64;
        let what = |at| match change.kind {
            Kind::Bytes => What::At(at),
            Kind::Zeroes => What::Zeroes { unmap: false },
            Kind::Unmapped => What::Zeroes { unmap: true },
        };
        index[Part::Side as usize].insert(change.side, what(payload));
        index[Part::Data as usize].insert(change.data, what(payload + change.side.len));
    }

    /// Allocates the space of the log between two offsets.
    fn take_space(&self, from: u64, to: u64) -> Result<(), StoreError> {
        let zeroes = vec![0; PIECE_BYTES];
        let mut at = from;
        while at < to {
            let part = (to - at).min(PIECE_BYTES as u64);
            self.file.write(at, &[&zeroes[..part as usize]], Durability::Cached)?;
            at += part;
        }
        self.file.flush()
    }

    fn store(&self, part: Part) -> &dyn BlockStore {
        match part {
            Part::Side => &*self.side,
            Part::Data => &*self.data,
        }
    }

    /// Changes blocks and their records in one step; for kind [`Kind::Bytes`], `records` and `data` are their new content.
    pub(crate) fn change(
        &self,
        change: &Change,
        records: &[u8],
        data: &[&[u8]],
        durability: Durability,
    ) -> Result<(), StoreError> {
        if change.kind != Kind::Unmapped {
            self.take_space_of(change)?;
        }
        self.append(change, records, data).map_err(|error| of_the_log(error, change.data.offset))?;
        if durability == Durability::Durable && self.flush().is_err() {
            // It is unknown whether the entry is on the medium.
            self.give_up(&self.tail.lock(), change);
            return Err(StoreError::MediumWrite { offset: change.data.offset });
        }
        Ok(())
    }

    /// Makes holes in the ranges of the change into allocated zeros. Settling the log may release some of them again.
    fn take_space_of(&self, change: &Change) -> Result<(), StoreError> {
        let take = || {
            allocate(&*self.side, change.side.offset, change.side.len)?;
            allocate(&*self.data, change.data.offset, change.data.len)
        };
        match take() {
            Err(StoreError::NoSpace) if self.live.load(Ordering::Acquire) => {
                self.settle(&mut self.tail.lock())?;
                take()
            }
            taken => taken,
        }
    }

    fn append(&self, change: &Change, records: &[u8], data: &[&[u8]]) -> Result<(), StoreError> {
        let records_crc = integrity::crc32c(records);
        let payload_crc = data.iter().fold(records_crc, |crc, piece| integrity::crc32c_append(crc, piece));
        let mut pieces = Vec::with_capacity(data.len() + 2);
        let mut tail = self.tail.lock();
        self.check_whole()?;
        let bytes = change.entry_bytes();
        if tail.overdue || tail.at + bytes > tail.end {
            self.settle(&mut tail)?;
        }
        let place = Place { generation: tail.generation, sequence: tail.sequence, at: tail.at };
        let head = head(place, change, payload_crc, self.identity);
        pieces.extend([&head[..], records]);
        pieces.extend_from_slice(data);
        if let Err(error) = self.file.write(tail.at, &pieces, Durability::Cached) {
            // The entry may be whole on the medium.
            let taken_back = self.file.write(tail.at, &[&[0; HEAD_BYTES]], Durability::Cached);
            if taken_back.and_then(|()| self.file.flush()).is_err() {
                self.give_up(&tail, change);
            }
            return Err(error);
        }
        Self::index_entry(&mut self.index.write(), change, tail.at);
        self.live.store(true, Ordering::Release);
        (tail.at, tail.sequence) = (tail.at + bytes, tail.sequence + 1);
        Ok(())
    }

    /// Takes no more changes: the content of this change's ranges after the next start is unknown.
    fn give_up(&self, _held: &Tail, change: &Change) {
        self.breaks(&StoreError::MediumWrite { offset: change.data.offset });
        let mut index = self.index.write();
        index[Part::Side as usize].insert(change.side, What::Unknown);
        index[Part::Data as usize].insert(change.data, What::Unknown);
        self.live.store(true, Ordering::Release);
    }

    fn breaks(&self, error: &StoreError) -> StoreError {
        let why = || match error {
            // The volume itself reports what failed.
            StoreError::FlushFailed(why) => why.clone(),
            error => format!("{}: {error}; open the volume again", self.file.description()),
        };
        StoreError::FlushFailed(self.broken.lock().get_or_insert_with(why).clone())
    }

    /// Checks beforehand whether the volume takes changes. If the write of the log were refused instead, that would look like a
    /// failed write with an unknown effect.
    fn check_whole(&self) -> Result<(), StoreError> {
        self.broken.lock().as_ref().map_or(Ok(()), |why| Err(StoreError::FlushFailed(why.clone())))?;
        self.file.label().map_or(Ok(()), |label| label.check_flushed())
    }

    /// Returns when every change so far is on the medium.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.check_whole()?;
        let before = {
            let tail = self.tail.lock();
            (tail.generation, tail.sequence)
        };
        self.file.flush().map_err(|error| self.breaks(&error))?;
        let mut tail = self.tail.lock();
        if (tail.generation, tail.sequence) == before {
            tail.at = tail.at.next_multiple_of(FLUSH_ALIGN);
        }
        Ok(())
    }

    /// If the range overlaps anything that is not in its place, puts everything in its place, durably.
    pub(crate) fn make_way(&self, part: Part, span: Span) -> Result<(), StoreError> {
        if !self.live.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut tail = self.tail.lock();
        if self.has(part, span) { self.settle(&mut tail) } else { Ok(()) }
    }

    /// Whether any part of a range is not in its place.
    pub(crate) fn has(&self, part: Part, span: Span) -> bool {
        self.index.read()[part as usize].within(span).next().is_some()
    }

    /// Puts everything in its place, durably, and empties the log. After an error everything is where it was.
    fn settle(&self, tail: &mut Tail) -> Result<(), StoreError> {
        self.check_whole()?;
        let live = self.live.load(Ordering::Acquire);
        if !live && !tail.overdue {
            return Ok(());
        }
        self.file.flush().map_err(|error| self.breaks(&error))?;
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let settled = self.place_all(live).and_then(|()| self.begin_generation(tail));
        self.epoch.fetch_add(1, Ordering::AcqRel);
        settled
    }

    fn place_all(&self, live: bool) -> Result<(), StoreError> {
        if live {
            // Nothing changes the index while the tail is held.
            let index = self.index.read();
            for part in [Part::Side, Part::Data] {
                self.place(part, index[part as usize].iter())?;
            }
        }
        self.side.flush()?;
        self.data.flush()
    }

    fn place<'a>(&self, part: Part, runs: impl Iterator<Item = &'a Run>) -> Result<(), StoreError> {
        let store = self.store(part);
        let (mut start, mut bytes) = (0, Vec::new());
        let write = |start: u64, bytes: &mut Vec<u8>| {
            let written = match bytes.is_empty() {
                true => Ok(()),
                false => store.write(start, &[bytes], Durability::Cached),
            };
            bytes.clear();
            written
        };
        for Run { span, what } in runs {
            if start + bytes.len() as u64 != span.offset || bytes.len() >= PIECE_BYTES {
                write(start, &mut bytes)?;
                start = span.offset;
            }
            match *what {
                What::At(at) => {
                    let from = bytes.len();
                    bytes.resize(from + span.len as usize, 0);
                    self.file.read(at, &mut bytes[from..])?;
                }
                What::Zeroes { unmap } => {
                    write(start, &mut bytes)?;
                    match unmap && part == Part::Data {
                        true => store.unmap(span.offset, span.len)?,
                        false => store.write_zeroes(span.offset, span.len, part == Part::Side)?,
                    }
                }
                What::Unknown => {}
            }
        }
        write(start, &mut bytes)
    }

    /// Everything is in its place: the entries so far are retired.
    fn begin_generation(&self, tail: &mut Tail) -> Result<(), StoreError> {
        // If this fails, the mark may have reached the medium all the same, so nothing may be written in the previous generation.
        (tail.generation, tail.overdue) = (tail.generation + 1, true);
        let Tail { end: bytes, generation, volume_generation, .. } = *tail;
        let mark = Mark { bytes, generation, volume_generation, identity: self.identity };
        mark.write(&*self.file, tail.mark_at)?;
        tail.mark_at = (tail.mark_at + 1) % MARKS;
        (tail.sequence, tail.at, tail.overdue) = (0, ENTRIES_AT, false);
        self.live.store(false, Ordering::Release);
        self.index.write().iter_mut().for_each(Runs::clear);
        Ok(())
    }

    /// Fills `dst` with the current content of a range.
    pub(crate) fn read(&self, part: Part, offset: u64, dst: &mut [u8], by: ReadBy) -> Result<(), StoreError> {
        for _ in 0..READS {
            let before = self.epoch.load(Ordering::Acquire);
            self.read_once(part, offset, dst, by)?;
            if self.epoch.load(Ordering::Acquire) == before {
                return Ok(());
            }
        }
        let _not_settled = self.tail.lock();
        self.read_once(part, offset, dst, by)
    }

    fn read_once(&self, part: Part, offset: u64, dst: &mut [u8], by: ReadBy) -> Result<(), StoreError> {
        let store = self.store(part);
        if !self.live.load(Ordering::Acquire) {
            return by(store, offset, dst);
        }
        let span = Span { offset, len: dst.len() as u64 };
        store.geometry().check_range(span.offset, span.len)?;
        let runs: Vec<Run> = self.index.read()[part as usize].within(span).collect();
        let elsewhere: u64 = runs.iter().map(|run| run.span.len).sum();
        if elsewhere < span.len {
            by(store, offset, dst)?;
        }
        for Run { span, what } in runs {
            let from = (span.offset - offset) as usize;
            let read = match what {
                What::At(at) => by(&*self.file, at, &mut dst[from..from + span.len as usize]),
                What::Zeroes { .. } => {
                    dst[from..from + span.len as usize].fill(0);
                    Ok(())
                }
                What::Unknown => Err(StoreError::MediumRead { offset: span.offset }),
            };
            if let Err(error) = read {
                dst.fill(0);
                return Err(of_the_log(error, span.offset));
            }
        }
        Ok(())
    }
}

impl Drop for Log {
    /// Leaves nothing to do for the next start, if possible.
    fn drop(&mut self) {
        if !self.data.geometry().read_only {
            let _ = self.settle(&mut self.tail.lock());
        }
    }
}

/// Turns an error of the log into one of the volume at `offset`.
fn of_the_log(error: StoreError, offset: u64) -> StoreError {
    match error {
        StoreError::MediumRead { .. } => StoreError::MediumRead { offset },
        StoreError::MediumWrite { .. } => StoreError::MediumWrite { offset },
        StoreError::Io { source, .. } => StoreError::Io { op: Op::Write, offset, source },
        other => other,
    }
}
