//! Blocks with protection information (SBC-3 4.22): data and tuples are checked before either is written or shown to anybody. The
//! device server decides what is checked ([`Protection`]); this module does it.
//!
//! Guards are computed in the pass that copies the blocks, together with the digests of what is sent: see [`passes`]. Guards that hosts
//! made are stored and sent as they came.
//!
//! Invariant: the caller holds the range of the blocks, so that no block meets the tuple of another write.

pub(crate) mod copying;
mod passes;

use std::ops::Range;

use blockstore::{Format, InPlace, Record, RecordRun, Records};
use bytes::{Bytes, BytesMut};
use integrity::Store;
use integrity::t10::{self, Guard, Layout, Tuple};
use payload::Payload;
use scsi::{FormatMark, MediumError, MediumOp, MediumReply, PiField, Protection, ProtectionType};

use self::passes::{Digests, Incoming, Outgoing, into_memory};
use crate::blocks::{Blocks, Combine, Failure, Source, range};
use crate::surroundings::Surroundings;
use crate::unit::{Access, Unit};

/// A unit whose blocks have tuples, their records, and what the command says of them.
pub(crate) struct Protected<'a> {
    unit: &'a Unit,
    records: &'a Records,
    protection: Protection,
    block: usize,
}

/// Blocks of data-out, apart from their tuples.
pub(crate) struct Run {
    data: BytesMut,
    tuples: Option<Vec<Tuple>>,
    guards: Vec<u16>,
    /// The tuple that was sent, where one block is [repeated](Blocks::repeated).
    repeated: Option<Tuple>,
}

/// Remembers a format; when one begins no block has a tuple any more.
//= sbc3 5.3.1 FMT-01 FMT-02
pub(crate) fn format(unit: &Unit, mark: FormatMark) -> Result<MediumReply, MediumError> {
    let Some(records) = unit.store.records() else { return Ok(MediumReply::Done) };
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

impl<'a> Protected<'a> {
    /// The blocks of `unit` for `op`; `None` if they have no protection information.
    pub(crate) fn of_command(unit: &'a Unit, op: &MediumOp, with: &Surroundings<'_>) -> Option<Self> {
        let records = unit.store.records()?;
        let first_lba = match *op {
            MediumOp::WriteSame { lba, .. } | MediumOp::Fill { lba, .. } => lba,
            _ => 0,
        };
        let internal = || Protection::internal(unit.scsi.protection(), first_lba);
        let protection = with.protection.or_else(internal)?;
        Some(Self { unit, records, protection, block: unit.scsi.block_bytes() as usize })
    }

    /// The same for an operation that is no command's own and begins at `lba`.
    fn internal(unit: &'a Unit, lba: u64) -> Option<Self> {
        let protection = Protection::internal(unit.scsi.protection(), lba)?;
        let records = unit.store.records()?;
        Some(Self { unit, records, protection, block: unit.scsi.block_bytes() as usize })
    }
}

impl Protected<'_> {
    fn offset(&self, blocks: u64) -> u64 {
        blocks * self.block as u64
    }

    /// Bytes of a block as it travels.
    fn wire(&self) -> usize {
        self.protection.wire_block_bytes(self.block as u32) as usize
    }

    fn kind(&self) -> ProtectionType {
        self.protection.kind
    }

    /// Checks a block as it is on the medium.
    //= sbc3 4.22.4 PI-07 PI-08 PI-15
    #[inline(always)]
    fn check_block(&self, lba: u64, record: Record, guard: u16, data: &[u8]) -> Result<(), Failure> {
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
            self.check_block(lba, record, guard, &block[..self.block])
        })
    }

    fn guards(&self, data: &[u8]) -> Vec<u16> {
        let mut guards = vec![0; data.len() / self.block];
        t10::guards(Guard::Crc16, data, Layout::plain(self.block), &mut guards)
            .expect("whole blocks, and a place for each");
        guards
    }

    /// Blocks, their records and the guards of their data, checked.
    fn checked(
        &self,
        source: Source,
        lba: u64,
        blocks: u64,
    ) -> Result<(Vec<u8>, RecordRun, Vec<u16>), Failure> {
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

    fn records_from(&self, source: Source, lba: u64, blocks: usize) -> Result<RecordRun, Failure> {
        Ok(match source {
            Source::Cache => self.records.read(lba, blocks)?,
            Source::Medium => self.records.read_medium(lba, blocks)?,
        })
    }

    fn incoming<'d>(&self, data_out: &'d [Bytes], first: u64, blocks: u64) -> Incoming<'d> {
        let wire = self.wire() as u64;
        Incoming::new(range(data_out, first * wire, blocks * wire), wire as usize)
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

    /// Writes blocks with their records, each of them in one step; all of them in one where that was asked for, which the device
    /// server grants only for as many as the store takes so.
    //= sbc4 5.43 ATM-01
    fn put_pieces(
        &self,
        lba: u64,
        data: &[&[u8]],
        records: &RecordRun,
        durable: bool,
    ) -> Result<(), Failure> {
        let durability = self.unit.durability(durable);
        Ok(self.unit.store.write_atomic(self.offset(lba), data, Some(records), durability)?)
    }

    /// The records of blocks with these guards, whose tuples are made here.
    fn made(&self, lba: u64, guards: &[u16]) -> RecordRun {
        let made = |(lba, &guard): (u64, &u16)| Record::Guarded(self.protection.made(lba, guard));
        (lba..).zip(guards).map(made).collect()
    }

    /// Writes blocks that came with tuples into memory: checked where they arrived, all of them first, and copied once.
    fn write_sealed(
        &self,
        memory: &dyn InPlace,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: &[Bytes],
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
        data_out: &[Bytes],
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
        let pieces = range(data_out, 0, len);
        self.put_pieces(lba, &pieces, &self.made(lba, &guards), durable)
    }
}

impl Blocks for Protected<'_> {
    type Run = Run;
    type Records = RecordRun;

    fn unit(&self) -> &Unit {
        self.unit
    }

    fn wire_block_bytes(&self) -> u64 {
        self.wire() as u64
    }

    //= sbc3 4.22.3 PI-11 PI-16
    fn read(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<Payload, Failure> {
        let (wire, count) = (self.wire(), blocks as usize);
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

    //= sbc3 4.22.4 PI-16
    fn write(&self, lba: u64, blocks: u64, durable: bool, with: &Surroundings<'_>) -> Result<(), Failure> {
        if !self.protection.transferred {
            return self.write_unsealed(lba, blocks, durable, with.data_out);
        }
        if let Some(memory) = self.unit.store.in_place() {
            return self.write_sealed(memory, lba, blocks, durable, with.data_out);
        }
        let run = self.sent(0, blocks, with);
        let records = self.check(lba, &run)?;
        let _held = self.unit.hold(lba, blocks, Access::Change);
        self.put(lba, &run, &records, durable)
    }

    /// The blocks apart from their tuples.
    fn sent(&self, first: u64, blocks: u64, with: &Surroundings<'_>) -> Run {
        let count = blocks as usize;
        let mut incoming = self.incoming(with.data_out, first, blocks);
        let (mut data, mut guards) = (with.slabs.take(count * self.block), vec![0; count]);
        let tuples = if self.protection.transferred {
            let mut tuples = vec![Tuple::default(); count];
            incoming.strip(&mut data, &mut guards, &mut tuples, Store::Temporal);
            Some(tuples)
        } else {
            incoming.copy(&mut data, &mut guards, Store::Temporal);
            None
        };
        Run { data, tuples, guards, repeated: None }
    }

    fn own(&self, block: Bytes) -> Run {
        let guards = self.guards(&block);
        Run { data: BytesMut::from(block), tuples: None, guards, repeated: None }
    }

    fn repeated(&self, block: Run, times: u64) -> Run {
        let times = times as usize;
        let repeated = block.tuples.as_ref().map(|tuples| tuples[0]);
        Run {
            data: BytesMut::from(&*block.data.repeat(times)),
            tuples: repeated.map(|tuple| vec![tuple; times]),
            guards: block.guards.repeat(times),
            repeated,
        }
    }

    fn place(&self, run: &mut Run, lba: u64, blocks: u64) {
        let count = blocks as usize;
        run.data.truncate(count * self.block);
        run.guards.truncate(count);
        if let (Some(tuples), Some(sent)) = (&mut run.tuples, run.repeated) {
            tuples.truncate(count);
            (lba..).zip(tuples).for_each(|(lba, tuple)| *tuple = self.protection.repeated(lba, sent));
        }
    }

    fn check(&self, lba: u64, run: &Run) -> Result<RecordRun, Failure> {
        let mut records = RecordRun::with_capacity(run.guards.len());
        let blocks = run.data.chunks_exact(self.block).zip(&run.guards).enumerate();
        for (i, (data, &guard)) in blocks {
            let tuple = run.tuples.as_ref().map(|tuples| tuples[i]);
            records.push(self.record(lba + i as u64, tuple, guard, data)?);
        }
        Ok(records)
    }

    fn put(&self, lba: u64, run: &Run, records: &RecordRun, durable: bool) -> Result<(), Failure> {
        self.put_pieces(lba, &[&run.data], records, durable)
    }

    fn put_atomic(&self, lba: u64, run: &Run, records: &RecordRun, durable: bool) -> Result<(), Failure> {
        self.put(lba, run, records, durable)
    }

    /// Checks blocks where they lie.
    fn verify(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<(), Failure> {
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
                let mut data = with.slabs.take(len as usize);
                store.read_medium(offset, &mut data)?;
                look(&data);
            }
        }
        checked
    }

    fn difference(
        &self,
        source: Source,
        lba: u64,
        run: &Run,
        part: Range<u64>,
        _with: &Surroundings<'_>,
    ) -> Result<Option<u64>, Failure> {
        let first = part.start as usize;
        let (medium, records, _) = self.checked(source, lba + part.start, part.end - part.start)?;
        let there = run.data[first * self.block..].chunks_exact(self.block);
        let pairs = medium.chunks_exact(self.block).zip(there);
        for (i, ((here, there), record)) in (first..).zip(pairs.zip(records.iter())) {
            let sent = run.tuples.as_ref().map(|tuples| tuples[i].to_bytes());
            let in_data = here.iter().zip(there).position(|(a, b)| a != b);
            let differs = in_data.or_else(|| {
                let stored = record.tuple().to_bytes();
                let at = stored.iter().zip(sent?).position(|(a, b)| *a != b)?;
                Some(self.block + at)
            });
            if let Some(at) = differs {
                return Ok(Some((i * self.wire() + at) as u64));
            }
        }
        Ok(None)
    }

    /// The guard of the result is computed again; the tags are those that were sent.
    fn combine(
        &self,
        lba: u64,
        run: &Run,
        part: Range<u64>,
        how: Combine,
        _with: &Surroundings<'_>,
    ) -> Result<(), Failure> {
        let lba = lba + part.start;
        let part = part.start as usize..part.end as usize;
        let (mut medium, ..) = self.checked(Source::Cache, lba, part.len() as u64)?;
        how.into(&mut medium, &run.data[part.start * self.block..part.end * self.block]);
        let guards = self.guards(&medium);
        let tuples = run.tuples.as_ref().map(|tuples| {
            let sealed = tuples[part].iter().zip(&guards);
            sealed.map(|(&tuple, &guard)| Tuple { guard, ..tuple }).collect()
        });
        let combined = Run { data: BytesMut::from(&*medium), tuples, guards, repeated: None };
        let records = self.check(lba, &combined)?;
        self.put(lba, &combined, &records, how.durable)
    }
}
