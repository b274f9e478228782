//! Medium operations of units with protection information (SBC-3 4.22): data and tuples are checked before either is
//! written or shown to anybody. What is checked is the device server's to say ([`scsi::Protection`]); here the bytes are.
//!
//! Guards come of the pass that copies the blocks, with the digests of what is sent: see [`passes`]. Guards that hosts made
//! are stored and sent as they came.
//!
//! Invariant: whoever is here holds the range of its blocks, so that no block meets the tuple of another write.

pub(crate) mod copying;
mod passes;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use blockstore::{Format, InPlace, Record, RecordRun, Records, StoreError};
use bytes::{Bytes, BytesMut};
use engine::SlabRing;
use integrity::Store;
use integrity::t10::{self, Guard, Layout, Tuple};
use payload::Payload;
use scsi::{FormatMark, MediumError, MediumOp, MediumReply, PiField, Protection, ProtectionType};

use self::passes::{Digests, Incoming, Outgoing, into_memory};
use crate::medium::{Done, PIECE_BYTES, Pieces, Source, Surroundings};
use crate::unit::{Access, Unit};

/// Why an operation failed.
enum Failure {
    Store(StoreError),
    Check(PiField, u64),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A unit, its records, and what the command says of them.
struct Medium<'a> {
    unit: &'a Unit,
    records: &'a Records,
    protection: Protection,
    block: usize,
    cancelled: &'a AtomicBool,
}

/// Data-out, and buffers for its blocks.
#[derive(Clone, Copy)]
struct DataOut<'a> {
    pieces: &'a [Bytes],
    slabs: &'a SlabRing,
}

/// Blocks of data-out, without their tuples.
struct Arrived {
    data: BytesMut,
    tuples: Option<Vec<Tuple>>,
    guards: Vec<u16>,
}

/// Carries out `op` with the protection information of its blocks; `None` when they have none.
pub(crate) fn execute(unit: &Unit, op: &MediumOp, with: &Surroundings<'_>) -> Option<Done> {
    let records = unit.store.records()?;
    if let MediumOp::Format(mark) = *op {
        return Some((format(unit, records, mark), Payload::default()));
    }
    let first_lba = match *op {
        MediumOp::WriteSame { lba, .. } | MediumOp::Fill { lba, .. } => lba,
        _ => 0,
    };
    let protection = with.protection.or_else(|| Protection::internal(unit.scsi.protection(), first_lba))?;
    let block = unit.scsi.block_bytes() as usize;
    let medium = Medium { unit, records, protection, block, cancelled: with.cancelled };
    let mut payload = Payload::default();
    let result = match *op {
        MediumOp::Read { lba, blocks } => medium.read_to_initiator(lba, blocks, with).map(|read| {
            payload = read;
            MediumReply::Data
        }),
        _ => medium.change(op, DataOut { pieces: with.data_out, slabs: with.slabs })?,
    };
    Some((result.map_err(|failure| medium.error(&failure)), payload))
}

/// Remembers a format; when one begins no block has a tuple any more.
//= sbc3 5.3.1 FMT-01 FMT-02
fn format(unit: &Unit, records: &Records, mark: FormatMark) -> Result<MediumReply, MediumError> {
    let remembered = match mark {
        FormatMark::Begun => {
            let kind = unit.scsi.protection().number();
            records
                .remember(Format { kind, interrupted: true })
                .and_then(|()| records.reset(0, unit.store.geometry().blocks()))
                .and_then(|()| records.flush())
        }
        FormatMark::Ended(kind) => records.remember(Format { kind: kind.number(), interrupted: false }),
    };
    remembered.map(|()| MediumReply::Done).map_err(|error| unit.medium_error(&error))
}

impl Medium<'_> {
    fn error(&self, failure: &Failure) -> MediumError {
        match failure {
            Failure::Store(error) => self.unit.medium_error(error),
            Failure::Check(field, lba) => {
                self.unit.check_failed(*field);
                MediumError::Protection { field: *field, lba: *lba }
            }
        }
    }

    fn offset(&self, blocks: u64) -> u64 {
        blocks * self.block as u64
    }

    fn kind(&self) -> ProtectionType {
        self.protection.kind
    }

    /// Checks a block as it is on the medium.
    //= sbc3 4.22.4 PI-07 PI-08 PI-15
    #[inline(always)]
    fn check(&self, lba: u64, record: Record, guard: u16, data: &[u8]) -> Result<(), Failure> {
        match record {
            Record::Guarded(tuple) => {
                let checked = self.protection.check(lba, tuple, guard);
                checked.map_err(|field| Failure::Check(field, lba))
            }
            _ => self.check_without_tuple(lba, record, guard, data),
        }
    }

    /// Checks a block whose tuple says nothing of it.
    #[inline(never)]
    fn check_without_tuple(&self, lba: u64, record: Record, guard: u16, data: &[u8]) -> Result<(), Failure> {
        let torn = match record {
            Record::Guarded(_) => false,
            // All bytes are looked at: that needs no branch for each, and hardly ever is one of them not zero.
            Record::Unwritten => guard != 0 || data.iter().fold(0, |all, byte| all | byte) != 0,
            Record::Unchecked(_, digest) => integrity::crc32c(data) != digest,
        };
        match torn && self.protection.checks_guards() {
            true => Err(Failure::Check(PiField::Guard, lba)),
            false => Ok(()),
        }
    }

    /// Checks blocks from `lba` on, each of which begins a `stride` of `bytes`: as many as there are guards.
    fn check_all(
        &self,
        lba: u64,
        records: impl Iterator<Item = Record>,
        guards: &[u16],
        bytes: &[u8],
        stride: usize,
    ) -> Result<(), Failure> {
        // Guards come first: at their end no record is taken any more.
        let blocks = guards.iter().zip(records).zip(bytes.chunks_exact(stride));
        (lba..).zip(blocks).try_for_each(|(lba, ((&guard, record), block))| {
            self.check(lba, record, guard, &block[..self.block])
        })
    }

    fn guards(&self, data: &[u8]) -> Vec<u16> {
        let mut guards = vec![0; data.len() / self.block];
        t10::guards(Guard::Crc16, data, Layout::plain(self.block), &mut guards)
            .expect("whole blocks, and a place for each");
        guards
    }

    /// Blocks, their records and the guards of their data, checked.
    fn read(&self, source: Source, lba: u64, blocks: u64) -> Result<(Vec<u8>, RecordRun, Vec<u16>), Failure> {
        let count = blocks as usize;
        let (mut data, mut guards) = (vec![0; count * self.block], vec![0; count]);
        let records = self.records_from(source, lba, count)?;
        let mut out = Outgoing::new(self.block, &mut data, &mut guards, None, None);
        let (store, offset) = (&self.unit.store, self.offset(lba));
        match store.in_place() {
            Some(memory) => {
                memory.read_in_place(offset, self.offset(blocks), &mut |blocks| out.take(blocks))?
            }
            None => {
                source.read(self.unit, offset, out.there())?;
                out.take_there();
            }
        }
        self.check_all(lba, records.iter(), &guards, &data, self.block)?;
        Ok((data, records, guards))
    }

    fn records_from(&self, source: Source, lba: u64, blocks: usize) -> Result<RecordRun, StoreError> {
        match source {
            Source::Cache => self.records.read(lba, blocks),
            Source::Medium => self.records.read_medium(lba, blocks),
        }
    }

    /// Checks blocks where they lie.
    fn verify(&self, lba: u64, blocks: u64) -> Result<(), Failure> {
        let run = self.records_from(Source::Medium, lba, blocks as usize)?;
        let (mut records, mut at, mut checked) = (run.iter(), lba, Ok(()));
        let mut look = |data: &[u8]| {
            let guards = self.guards(data);
            if checked.is_ok() {
                checked = self.check_all(at, records.by_ref(), &guards, data, self.block);
            }
            at += guards.len() as u64;
        };
        let (store, offset, len) = (&self.unit.store, self.offset(lba), self.offset(blocks));
        match store.in_place() {
            Some(memory) => memory.read_in_place(offset, len, &mut look)?,
            None => {
                let mut data = vec![0; len as usize];
                store.read_medium(offset, &mut data)?;
                look(&data);
            }
        }
        checked
    }

    //= sbc3 4.22.3 PI-11 PI-16
    fn read_to_initiator(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<Payload, Failure> {
        let wire = self.protection.wire_block_bytes(self.block as u32) as usize;
        let count = blocks as usize;
        let (run_bytes, offset) = (with.digest_chunk_bytes, self.offset(lba));
        let mut buffer = with.slabs.take(count * wire);
        let mut guards = vec![0; count];
        let _held = self.unit.hold(lba, blocks, Access::Look);
        let records = self.records.read(lba, count)?;
        let mut tuples: Option<Vec<Tuple>> = self.protection.transferred.then(|| records.tuples().collect());
        let mut out = Outgoing::new(self.block, &mut buffer, &mut guards, tuples.as_deref_mut(), run_bytes);
        let store = &self.unit.store;
        match store.in_place() {
            Some(memory) => {
                memory.read_in_place(offset, self.offset(blocks), &mut |blocks| out.take(blocks))?
            }
            None if self.protection.transferred => {
                let mut data = with.slabs.take(count * self.block);
                store.read(offset, &mut data)?;
                out.take(&data);
            }
            None => {
                store.read(offset, out.there())?;
                out.take_there();
            }
        }
        let mut chunk_crcs = out.finish();
        self.check_all(lba, records.iter(), &guards, &buffer, wire)?;
        let hosts_own = || guards.iter().zip(records.tuples()).any(|(&made, stored)| made != stored.guard);
        if self.protection.transferred && hosts_own() {
            // Guards that are not checked are sent as the host made them, whatever they are.
            for (sent, tuple) in buffer.chunks_exact_mut(wire).zip(records.tuples()) {
                sent[self.block..].copy_from_slice(&tuple.to_bytes());
            }
            chunk_crcs = run_bytes.map(|run| Digests::of(&buffer, run as usize)).unwrap_or_default();
        }
        let chunked_bytes = if run_bytes.is_some() { buffer.len() } else { 0 };
        buffer.truncate(with.read_length.min(buffer.len() as u64) as usize);
        let chunk_bytes = run_bytes.unwrap_or_default();
        Ok(Payload { chunked_bytes, bytes: buffer.freeze(), chunk_bytes, chunk_crcs })
    }

    /// Takes blocks of data-out apart; `first` says how many blocks come before them.
    fn arrived(&self, data_out: DataOut<'_>, first: u64, blocks: u64) -> Arrived {
        let count = blocks as usize;
        let mut incoming = self.incoming(data_out, first, blocks);
        let (mut data, mut guards) = (data_out.slabs.take(count * self.block), vec![0; count]);
        let tuples = if self.protection.transferred {
            let mut tuples = vec![Tuple::default(); count];
            incoming.strip(&mut data, &mut guards, &mut tuples, Store::Temporal);
            Some(tuples)
        } else {
            incoming.copy(&mut data, &mut guards, Store::Temporal);
            None
        };
        Arrived { data, tuples, guards }
    }

    fn incoming<'a>(&self, data_out: DataOut<'a>, first: u64, blocks: u64) -> Incoming<'a> {
        let wire = u64::from(self.protection.wire_block_bytes(self.block as u32));
        Incoming::new(Pieces::new(data_out.pieces).range(first * wire, blocks * wire), wire as usize)
    }

    /// The record of a block that is written.
    //= sbc3 4.22.4 PI-06 PI-08 PI-09
    #[inline(always)]
    fn record(&self, lba: u64, tuple: Option<Tuple>, guard: u16, data: &[u8]) -> Result<Record, Failure> {
        let Some(tuple) = tuple else { return Ok(Record::Guarded(self.protection.made(lba, guard))) };
        if let Err(field) = self.protection.check(lba, tuple, guard) {
            return Err(Failure::Check(field, lba));
        }
        Ok(match self.kind().escapes(tuple) {
            true => Record::Unchecked(tuple, integrity::crc32c(data)),
            false => Record::Guarded(tuple),
        })
    }

    fn records_of(&self, lba: u64, arrived: &Arrived) -> Result<RecordRun, Failure> {
        let mut records = RecordRun::with_capacity(arrived.guards.len());
        let blocks = arrived.data.chunks_exact(self.block).zip(&arrived.guards).enumerate();
        for (i, (data, &guard)) in blocks {
            let tuple = arrived.tuples.as_ref().map(|tuples| tuples[i]);
            records.push(self.record(lba + i as u64, tuple, guard, data)?);
        }
        Ok(records)
    }

    /// Writes blocks with their records, each of them in one step; all of them in one where that was asked for, which the device
    /// server grants only for as many as the store takes so.
    //= sbc4 5.43 ATM-01
    fn put(&self, lba: u64, data: &[&[u8]], records: &RecordRun, durable: bool) -> Result<(), Failure> {
        let durability = self.unit.durability(durable);
        Ok(self.unit.store.write_atomic(self.offset(lba), data, Some(records), durability)?)
    }

    /// The records of blocks with these guards, whose tuples are made here.
    fn made(&self, lba: u64, guards: &[u16]) -> RecordRun {
        let made = |(lba, &guard): (u64, &u16)| Record::Guarded(self.protection.made(lba, guard));
        (lba..).zip(guards).map(made).collect()
    }

    /// Writes blocks that have no tuples yet.
    fn write_made(&self, lba: u64, data: &[u8], durable: bool) -> Result<(), Failure> {
        self.put(lba, &[data], &self.made(lba, &self.guards(data)), durable)
    }

    /// The first byte, as it travels, in which the medium differs from what arrived.
    //= sbc3 5.2 PI-13
    fn difference(
        &self,
        source: Source,
        lba: u64,
        arrived: &Arrived,
        one: bool,
    ) -> Result<Option<u64>, Failure> {
        let blocks = if one { 1 } else { arrived.guards.len() as u64 };
        let mut done = 0;
        // All of them, whoever waits for it: what follows may be a write.
        while done < blocks {
            let part = self.per_piece().min(blocks - done);
            let found = self.difference_in(source, lba, arrived, done..done + part)?;
            if found.is_some() {
                return Ok(found);
            }
            done += part;
        }
        Ok(None)
    }

    /// As [`Self::difference`], in these blocks of what arrived.
    fn difference_in(
        &self,
        source: Source,
        lba: u64,
        arrived: &Arrived,
        blocks: Range<u64>,
    ) -> Result<Option<u64>, Failure> {
        let wire = u64::from(self.protection.wire_block_bytes(self.block as u32));
        let first = blocks.start as usize;
        let (medium, records, _) = self.read(source, lba + blocks.start, blocks.end - blocks.start)?;
        let there = arrived.data[first * self.block..].chunks_exact(self.block);
        let pairs = medium.chunks_exact(self.block).zip(there);
        for (i, ((here, there), record)) in (first..).zip(pairs.zip(records.iter())) {
            let tuple = |tuple: Tuple| tuple.to_bytes();
            let sent = arrived.tuples.as_ref().map(|tuples| tuple(tuples[i]));
            let at = match here.iter().zip(there).position(|(a, b)| a != b) {
                Some(at) => Some(at),
                None => sent.and_then(|sent| {
                    let differs = tuple(record.tuple()).iter().zip(sent).position(|(a, b)| *a != b);
                    differs.map(|at| self.block + at)
                }),
            };
            if let Some(at) = at {
                return Ok(Some(i as u64 * wire + at as u64));
            }
        }
        Ok(None)
    }

    /// Everything but a read; `None`: there is nothing to do with protection information.
    fn change(&self, op: &MediumOp, data_out: DataOut<'_>) -> Option<Result<MediumReply, Failure>> {
        let done = |result: Result<(), Failure>| Some(result.map(|()| MediumReply::Done));
        match *op {
            MediumOp::Write { lba, blocks, durable } => done(self.write(lba, blocks, durable, data_out)),
            MediumOp::WriteAtomic { lba, blocks, durable } => {
                done(self.write_gathered(lba, blocks, durable, data_out))
            }
            MediumOp::WriteAndVerify { lba, blocks, bytchk, durable: _ } => {
                Some(self.write_and_verify(lba, blocks, bytchk, data_out))
            }
            MediumOp::Unmap { ref ranges, durable } => done(self.unmap(ranges, durable)),
            MediumOp::WriteSame { lba, blocks, unmap, zero: true, durable } => {
                done(self.zero(lba, blocks, unmap, durable))
            }
            MediumOp::WriteSame { lba, blocks, durable, .. } => {
                done(self.write_same(lba, blocks, durable, data_out))
            }
            MediumOp::Fill { lba, blocks, ref pattern, durable } => {
                done(self.fill(lba, blocks, pattern, durable))
            }
            MediumOp::CompareAndWrite { lba, blocks, durable } => {
                Some(self.compare_and_write(lba, blocks, durable, data_out))
            }
            MediumOp::OrWrite { lba, blocks, and, durable } => {
                done(self.or_write(lba, blocks, and, durable, data_out))
            }
            MediumOp::Verify { lba, blocks } => {
                let _held = self.unit.hold(lba, blocks, Access::Look);
                done(self.pieces(lba, blocks, |lba, blocks| self.verify(lba, blocks)))
            }
            MediumOp::Compare { lba, blocks, one_block } => {
                Some(self.compare(lba, blocks, one_block, data_out))
            }
            MediumOp::Read { .. }
            | MediumOp::Flush
            | MediumOp::Settle
            | MediumOp::LbaStatus { .. }
            | MediumOp::Prefetch { .. }
            | MediumOp::Copy { .. }
            | MediumOp::Format(_) => None,
        }
    }

    /// Blocks of one piece.
    fn per_piece(&self) -> u64 {
        (PIECE_BYTES / self.block as u64).max(1)
    }

    /// Calls `f` with the parts of a range, first block and number of blocks, none of them more than [`PIECE_BYTES`], until nobody
    /// waits for them any more.
    fn pieces(
        &self,
        lba: u64,
        blocks: u64,
        mut f: impl FnMut(u64, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let most = self.per_piece();
        let (mut at, end) = (lba, lba + blocks);
        while at < end && !self.cancelled.load(Ordering::Acquire) {
            let part = (end - at).min(most);
            f(at, part)?;
            at += part;
        }
        Ok(())
    }

    //= sbc3 4.22.4 PI-16
    fn write(&self, lba: u64, blocks: u64, durable: bool, data_out: DataOut<'_>) -> Result<(), Failure> {
        if !self.protection.transferred {
            return self.write_unsealed(lba, blocks, durable, data_out);
        }
        match self.unit.store.in_place() {
            Some(memory) => self.write_sealed(memory, lba, blocks, durable, data_out),
            None => self.write_gathered(lba, blocks, durable, data_out),
        }
    }

    /// Writes blocks that are checked, or written all or nothing: they are put together first.
    fn write_gathered(
        &self,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: DataOut<'_>,
    ) -> Result<(), Failure> {
        let arrived = self.arrived(data_out, 0, blocks);
        let records = self.records_of(lba, &arrived)?;
        let _held = self.unit.hold(lba, blocks, Access::Change);
        self.put(lba, &[&arrived.data], &records, durable)
    }

    /// Writes blocks that came with tuples into memory: checked where they arrived, all of them first, and copied once.
    fn write_sealed(
        &self,
        memory: &dyn InPlace,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: DataOut<'_>,
    ) -> Result<(), Failure> {
        let mut records = RecordRun::with_capacity(blocks as usize);
        self.incoming(data_out, 0, blocks).look(self.block, |data, tuple, guard| {
            records.push(self.record(lba + records.len() as u64, tuple, guard, data)?);
            Ok::<_, Failure>(())
        })?;
        let (mut incoming, len) = (self.incoming(data_out, 0, blocks), self.offset(blocks));
        let _held = self.unit.hold(lba, blocks, Access::Change);
        let mut done = 0;
        let written = memory.write_in_place(self.offset(lba), len, &mut |to| {
            incoming.copy_data(to, into_memory(len));
            done += to.len() / self.block;
        });
        self.keep_records(lba, records, done, durable)?;
        Ok(written?)
    }

    /// Writes the records of so many blocks as were written in place, also if the others could not be.
    fn keep_records(
        &self,
        lba: u64,
        mut records: RecordRun,
        done: usize,
        durable: bool,
    ) -> Result<(), Failure> {
        records.truncate(done);
        Ok(self.records.write(lba, &records, self.unit.durability(durable))?)
    }

    /// Writes blocks that came without tuples: there is nothing to check, so they go to their place at once, and the
    /// guards come of that copy.
    fn write_unsealed(
        &self,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: DataOut<'_>,
    ) -> Result<(), Failure> {
        let len = self.offset(blocks);
        let mut guards = vec![0; blocks as usize];
        let mut incoming = self.incoming(data_out, 0, blocks);
        let _held = self.unit.hold(lba, blocks, Access::Change);
        if let Some(memory) = self.unit.store.in_place() {
            let mut done = 0;
            let written = memory.write_in_place(self.offset(lba), len, &mut |to| {
                let count = to.len() / self.block;
                incoming.copy(to, &mut guards[done..done + count], into_memory(len));
                done += count;
            });
            self.keep_records(lba, self.made(lba, &guards), done, durable)?;
            return Ok(written?);
        }
        let mut places = guards.iter_mut();
        incoming.look(self.block, |_, _, guard| {
            places.by_ref().take(1).for_each(|place| *place = guard);
            Ok::<_, Failure>(())
        })?;
        let pieces = Pieces::new(data_out.pieces).range(0, len);
        self.put(lba, &pieces, &self.made(lba, &guards), durable)
    }

    fn write_and_verify(
        &self,
        lba: u64,
        blocks: u64,
        bytchk: bool,
        data_out: DataOut<'_>,
    ) -> Result<MediumReply, Failure> {
        let arrived = self.arrived(data_out, 0, blocks);
        let records = self.records_of(lba, &arrived)?;
        let _held = self.unit.hold(lba, blocks, Access::Decide);
        self.put(lba, &[&arrived.data], &records, true)?;
        if !bytchk {
            self.pieces(lba, blocks, |lba, blocks| self.verify(lba, blocks))?;
            return Ok(MediumReply::Done);
        }
        Ok(match self.difference(Source::Medium, lba, &arrived, false)? {
            Some(byte_offset) => MediumReply::Miscompare { byte_offset },
            None => MediumReply::Done,
        })
    }

    fn unmap(&self, ranges: &[(u64, u64)], durable: bool) -> Result<(), Failure> {
        for &(lba, blocks) in ranges.iter().filter(|(_, blocks)| *blocks > 0) {
            let _held = self.unit.hold(lba, blocks, Access::Change);
            self.unit.store.unmap(self.offset(lba), self.offset(blocks))?;
        }
        Ok(self.unit.flush_if(durable)?)
    }

    //= sbc3 4.22.4 PI-15
    fn zero(&self, lba: u64, blocks: u64, unmap: bool, durable: bool) -> Result<(), Failure> {
        let _held = self.unit.hold(lba, blocks, Access::Change);
        self.pieces(lba, blocks, |lba, blocks| {
            let (offset, len) = (self.offset(lba), self.offset(blocks));
            match unmap {
                true => self.unit.store.unmap(offset, len)?,
                false => self.unit.store.write_zeroes(offset, len, false)?,
            }
            Ok(())
        })?;
        Ok(self.unit.flush_if(durable)?)
    }

    //= sbc3 5.43 PI-12
    fn write_same(&self, lba: u64, blocks: u64, durable: bool, data_out: DataOut<'_>) -> Result<(), Failure> {
        let arrived = self.arrived(data_out, 0, 1);
        let tuple = arrived.tuples.as_ref().map(|tuples| tuples[0]);
        let record = |lba: u64| {
            let tuple = tuple.map(|tuple| self.protection.repeated(lba, tuple));
            self.record(lba, tuple, arrived.guards[0], &arrived.data)
        };
        let _held = self.unit.hold(lba, blocks, Access::Change);
        self.pieces(lba, blocks, |lba, blocks| {
            let mut records = RecordRun::with_capacity(blocks as usize);
            for lba in lba..lba + blocks {
                records.push(record(lba)?);
            }
            self.put(lba, &[&arrived.data.repeat(blocks as usize)], &records, durable)
        })
    }

    fn fill(&self, lba: u64, blocks: u64, pattern: &[u8], durable: bool) -> Result<(), Failure> {
        let _held = self.unit.hold(lba, blocks, Access::Change);
        self.pieces(lba, blocks, |lba, blocks| {
            self.write_made(lba, &pattern.repeat(blocks as usize), durable)
        })
    }

    fn compare_and_write(
        &self,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: DataOut<'_>,
    ) -> Result<MediumReply, Failure> {
        let expected = self.arrived(data_out, 0, blocks);
        let new = self.arrived(data_out, blocks, blocks);
        let records = self.records_of(lba, &new)?;
        let _held = self.unit.hold(lba, blocks, Access::Decide);
        // The tuples of the first half belong to what is looked for: they are compared and not checked besides.
        if let Some(byte_offset) = self.difference(Source::Cache, lba, &expected, false)? {
            return Ok(MediumReply::Miscompare { byte_offset });
        }
        self.put(lba, &[&new.data], &records, durable)?;
        Ok(MediumReply::Done)
    }

    /// The guard of what comes of it is made anew; the tags are those that came.
    fn or_write(
        &self,
        lba: u64,
        blocks: u64,
        and: bool,
        durable: bool,
        data_out: DataOut<'_>,
    ) -> Result<(), Failure> {
        let arrived = self.arrived(data_out, 0, blocks);
        self.records_of(lba, &arrived)?;
        let _held = self.unit.hold(lba, blocks, Access::Decide);
        let Arrived { mut data, tuples, .. } = arrived;
        let merge = |new: u8, medium: u8| if and { new & medium } else { new | medium };
        let mut at = lba;
        for piece in data.chunks_mut(self.per_piece() as usize * self.block) {
            let count = (piece.len() / self.block) as u64;
            let (medium, ..) = self.read(Source::Cache, at, count)?;
            piece.iter_mut().zip(&medium).for_each(|(new, medium)| *new = merge(*new, *medium));
            at += count;
        }
        let guards = self.guards(&data);
        let tuples = tuples.map(|tuples| {
            tuples.iter().zip(&guards).map(|(&tuple, &guard)| Tuple { guard, ..tuple }).collect()
        });
        let merged = Arrived { data, tuples, guards };
        let records = self.records_of(lba, &merged)?;
        self.put(lba, &[&merged.data], &records, durable)
    }

    fn compare(
        &self,
        lba: u64,
        blocks: u64,
        one_block: bool,
        data_out: DataOut<'_>,
    ) -> Result<MediumReply, Failure> {
        let mut arrived = self.arrived(data_out, 0, if one_block { 1 } else { blocks });
        self.records_of(lba, &arrived)?;
        let _held = self.unit.hold(lba, blocks, Access::Look);
        let wire = u64::from(self.protection.wire_block_bytes(self.block as u32));
        let first = arrived.tuples.as_ref().map(|tuples| tuples[0]);
        for at in 0..if one_block { blocks } else { 1 } {
            if let (true, Some(tuples), Some(first)) = (one_block, &mut arrived.tuples, first) {
                tuples[0] = self.protection.repeated(lba + at, first);
            }
            if let Some(offset) = self.difference(Source::Medium, lba + at, &arrived, one_block)? {
                return Ok(MediumReply::Miscompare { byte_offset: at * wire + offset });
            }
        }
        Ok(MediumReply::Done)
    }
}
