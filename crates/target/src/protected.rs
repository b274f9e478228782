//! Medium operations of units with protection information (SBC-3 4.22): data and tuples are checked before either is
//! written or shown to anybody. What is checked is the device server's to say ([`scsi::Protection`]); here the bytes are.
//!
//! Guards are computed in the pass that takes the tuples out from between the blocks, or puts them there. Guards that
//! hosts made are stored and sent as they came.
//!
//! Invariant: whoever is here holds the range of its blocks, so that no block meets the tuple of another write.

use blockstore::{Format, Record, Records, StoreError};
use bytes::Bytes;
use integrity::Store;
use integrity::t10::{self, Guard, Layout, Tuple};
use iscsi_core::target::actions::DataInPayload;
use scsi::{FormatMark, MediumError, MediumOp, MediumReply, PiField, Protection, ProtectionType};
use smallvec::SmallVec;

use crate::device::{Access, Device};
use crate::medium::{self, Done, PIECE_BYTES, Pieces, Surroundings};

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
    device: &'a Device,
    records: &'a Records,
    protection: Protection,
    block: usize,
}

/// Blocks of data-out, without their tuples.
struct Arrived {
    data: Vec<u8>,
    tuples: Option<Vec<Tuple>>,
    guards: Vec<u16>,
}

/// Carries out `op` with the protection information of its blocks; `None` when they have none.
pub(crate) fn execute(device: &Device, op: &MediumOp, with: &Surroundings<'_>) -> Option<Done> {
    let records = device.store.records()?;
    if let MediumOp::Format(mark) = *op {
        return Some((format(device, records, mark), DataInPayload::default()));
    }
    let first_lba = match *op {
        MediumOp::WriteSame { lba, .. } | MediumOp::Fill { lba, .. } => lba,
        _ => 0,
    };
    let protection = with.protection.or_else(|| Protection::internal(device.unit.protection(), first_lba))?;
    let block = device.unit.block_bytes() as usize;
    let medium = Medium { device, records, protection, block };
    let mut payload = DataInPayload::default();
    let result = match *op {
        MediumOp::Read { lba, blocks } => medium.read_to_initiator(lba, blocks, with).map(|read| {
            payload = read;
            MediumReply::Data
        }),
        _ => medium.change(op, with.data_out)?,
    };
    Some((result.map_err(|failure| medium.error(&failure)), payload))
}

/// Reads blocks for a copy, with their checks where they have any.
pub(crate) fn read_for_copy(device: &Device, lba: u64, blocks: u64) -> Result<Vec<u8>, MediumError> {
    let block = device.unit.block_bytes() as usize;
    let protection = Protection::internal(device.unit.protection(), lba);
    let (Some(records), Some(protection)) = (device.store.records(), protection) else {
        let mut piece = vec![0; blocks as usize * block];
        let read = device.store.read(lba * block as u64, &mut piece);
        return read.map(|()| piece).map_err(|error| medium::medium_error(device, &error));
    };
    let medium = Medium { device, records, protection, block };
    let read = medium.read(lba, blocks);
    read.map(|(data, _)| data).map_err(|failure| medium.error(&failure))
}

/// Writes blocks of a copy, with new tuples where they have any; false: nothing was done, because they have none.
pub(crate) fn write_copy(device: &Device, lba: u64, data: &[u8], durable: bool) -> Result<bool, MediumError> {
    let protection = Protection::internal(device.unit.protection(), lba);
    let (Some(records), Some(protection)) = (device.store.records(), protection) else { return Ok(false) };
    let medium = Medium { device, records, protection, block: device.unit.block_bytes() as usize };
    let written = medium.write_made(lba, data, durable);
    written.map(|()| true).map_err(|failure| medium.error(&failure))
}

/// Remembers a format; when one begins no block has a tuple any more.
//= sbc3 5.3.1 FMT-01 FMT-02
fn format(device: &Device, records: &Records, mark: FormatMark) -> Result<MediumReply, MediumError> {
    let remembered = match mark {
        FormatMark::Begun => {
            let kind = device.unit.protection().number();
            records
                .remember(Format { kind, interrupted: true })
                .and_then(|()| records.reset(0, device.store.geometry().blocks()))
                .and_then(|()| records.flush())
        }
        FormatMark::Ended(kind) => records.remember(Format { kind: kind.number(), interrupted: false }),
    };
    remembered.map(|()| MediumReply::Done).map_err(|error| medium::medium_error(device, &error))
}

impl Medium<'_> {
    fn error(&self, failure: &Failure) -> MediumError {
        match failure {
            Failure::Store(error) => medium::medium_error(self.device, error),
            Failure::Check(field, lba) => {
                self.device.stats.check_failed(*field);
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
    fn check(&self, lba: u64, record: Record, guard: u16, data: &[u8]) -> Result<(), Failure> {
        let torn = match record {
            Record::Guarded(tuple) => {
                let checked = self.protection.check(lba, tuple, guard);
                return checked.map_err(|field| Failure::Check(field, lba));
            }
            Record::Unwritten => guard != 0 || data.iter().any(|&byte| byte != 0),
            Record::Unchecked(_, digest) => integrity::crc32c(data) != digest,
        };
        match torn && self.protection.checks_guards() {
            true => Err(Failure::Check(PiField::Guard, lba)),
            false => Ok(()),
        }
    }

    fn check_all(&self, lba: u64, records: &[Record], guards: &[u16], data: &[u8]) -> Result<(), Failure> {
        let blocks = records.iter().zip(guards).zip(data.chunks_exact(self.block));
        (lba..)
            .zip(blocks)
            .try_for_each(|(lba, ((&record, &guard), data))| self.check(lba, record, guard, data))
    }

    fn guards(&self, data: &[u8]) -> Vec<u16> {
        let mut guards = vec![0; data.len() / self.block];
        t10::guards(Guard::Crc16, data, Layout::plain(self.block), &mut guards)
            .expect("whole blocks, and a place for each");
        guards
    }

    /// Blocks and their records, checked.
    fn read(&self, lba: u64, blocks: u64) -> Result<(Vec<u8>, Vec<Record>), Failure> {
        let mut data = vec![0; blocks as usize * self.block];
        self.device.store.read(self.offset(lba), &mut data)?;
        let records = self.records.read(lba, blocks as usize)?;
        self.check_all(lba, &records, &self.guards(&data), &data)?;
        Ok((data, records))
    }

    //= sbc3 4.22.3 PI-11 PI-16
    fn read_to_initiator(
        &self,
        lba: u64,
        blocks: u64,
        with: &Surroundings<'_>,
    ) -> Result<DataInPayload, Failure> {
        let wire = self.protection.wire_block_bytes(self.block as u32) as usize;
        let count = blocks as usize;
        let mut buffer = with.slabs.take(count * wire);
        {
            let _held = self.device.hold(lba, blocks, Access::Look);
            let records = self.records.read(lba, count)?;
            if self.protection.transferred {
                let mut data = with.slabs.take(count * self.block);
                self.device.store.read(self.offset(lba), &mut data)?;
                let mut tuples: Vec<Tuple> = records.iter().map(|record| record.tuple()).collect();
                t10::insert(&mut buffer, &data, self.block, &mut tuples, Store::Temporal)
                    .expect("as many blocks on either side");
                let sent = buffer.chunks_exact_mut(wire).zip(data.chunks_exact(self.block));
                for (i, (sent, data)) in sent.enumerate() {
                    self.check(lba + i as u64, records[i], tuples[i].guard, data)?;
                    if tuples[i] != records[i].tuple() {
                        // The host's own guard, whatever it is.
                        sent[self.block..].copy_from_slice(&records[i].tuple().to_bytes());
                    }
                }
            } else {
                self.device.store.read(self.offset(lba), &mut buffer)?;
                self.check_all(lba, &records, &self.guards(&buffer), &buffer)?;
            }
        }
        buffer.truncate(with.read_length.min(buffer.len() as u64) as usize);
        let Some(chunk) = with.digest_chunk_bytes else {
            return Ok(DataInPayload { bytes: buffer.freeze(), ..DataInPayload::default() });
        };
        let chunk_crcs: SmallVec<_> = buffer.chunks(chunk as usize).map(integrity::crc32c).collect();
        Ok(DataInPayload {
            chunked_bytes: buffer.len(),
            bytes: buffer.freeze(),
            chunk_bytes: chunk,
            chunk_crcs,
        })
    }

    /// Takes blocks of data-out apart; `first` says how many blocks come before them.
    fn arrived(&self, data_out: &[Bytes], first: u64, blocks: u64) -> Arrived {
        let wire = u64::from(self.protection.wire_block_bytes(self.block as u32));
        let pieces = Pieces::new(data_out).range(first * wire, blocks * wire);
        let count = blocks as usize;
        let mut arrived = Arrived { data: vec![0; count * self.block], tuples: None, guards: vec![0; count] };
        let mut tuples = vec![Tuple::default(); if self.protection.transferred { count } else { 0 }];
        // A block may lie in several pieces: then it is put together first.
        let mut split: Vec<u8> = Vec::with_capacity(wire as usize);
        let mut done = 0;
        for mut piece in pieces {
            while !piece.is_empty() {
                if split.is_empty() && piece.len() >= wire as usize {
                    let whole = piece.len() / wire as usize;
                    let (run, rest) = piece.split_at(whole * wire as usize);
                    self.take_run(run, done, whole, &mut arrived, &mut tuples);
                    (done, piece) = (done + whole, rest);
                    continue;
                }
                let (part, rest) = piece.split_at(piece.len().min(wire as usize - split.len()));
                split.extend_from_slice(part);
                piece = rest;
                if split.len() == wire as usize {
                    self.take_run(&split, done, 1, &mut arrived, &mut tuples);
                    split.clear();
                    done += 1;
                }
            }
        }
        arrived.tuples = self.protection.transferred.then_some(tuples);
        arrived
    }

    /// Takes `count` blocks that lie together.
    fn take_run(&self, run: &[u8], at: usize, count: usize, to: &mut Arrived, tuples: &mut [Tuple]) {
        let data = &mut to.data[at * self.block..(at + count) * self.block];
        let guards = &mut to.guards[at..at + count];
        let taken = if self.protection.transferred {
            let tuples = &mut tuples[at..at + count];
            t10::strip(data, run, self.block, guards, tuples, Store::Temporal)
        } else {
            let layout = Layout::plain(self.block);
            t10::copy_guards(Guard::Crc16, data, run, layout, guards, Store::Temporal)
        };
        taken.expect("as many blocks on either side");
    }

    /// The record of a block that is written.
    //= sbc3 4.22.4 PI-06 PI-08 PI-09
    fn record(&self, lba: u64, tuple: Option<Tuple>, guard: u16, data: &[u8]) -> Result<Record, Failure> {
        let Some(tuple) = tuple else { return Ok(Record::Guarded(self.protection.made(lba, guard))) };
        self.protection.check(lba, tuple, guard).map_err(|field| Failure::Check(field, lba))?;
        Ok(match self.kind().escapes(tuple) {
            true => Record::Unchecked(tuple, integrity::crc32c(data)),
            false => Record::Guarded(tuple),
        })
    }

    fn records_of(&self, lba: u64, arrived: &Arrived) -> Result<Vec<Record>, Failure> {
        let blocks = arrived.data.chunks_exact(self.block).zip(&arrived.guards).enumerate();
        blocks
            .map(|(i, (data, &guard))| {
                let tuple = arrived.tuples.as_ref().map(|tuples| tuples[i]);
                self.record(lba + i as u64, tuple, guard, data)
            })
            .collect()
    }

    fn put(&self, lba: u64, data: &[u8], records: &[Record], durable: bool) -> Result<(), Failure> {
        let durability = medium::durability(durable);
        self.records.write(lba, records, durability)?;
        Ok(self.device.store.write(self.offset(lba), &[data], durability)?)
    }

    /// As [`Self::put`], all or nothing: where the data cannot be written, the records are as they were.
    //= sbc4 5.43 ATM-01
    fn put_atomic(&self, lba: u64, data: &[u8], records: &[Record], durable: bool) -> Result<(), Failure> {
        let durability = medium::durability(durable);
        let before = self.records.read(lba, records.len())?;
        let put = |records: &[Record]| self.records.write(lba, records, durability);
        let written =
            put(records).and_then(|()| self.device.store.write_atomic(self.offset(lba), &[data], durability));
        if written.is_err() {
            put(&before)?;
        }
        Ok(written?)
    }

    /// Writes blocks that came without tuples.
    fn write_made(&self, lba: u64, data: &[u8], durable: bool) -> Result<(), Failure> {
        let made = |(lba, &guard): (u64, &u16)| Record::Guarded(self.protection.made(lba, guard));
        let records: Vec<Record> = (lba..).zip(&self.guards(data)).map(made).collect();
        self.put(lba, data, &records, durable)
    }

    /// The first byte, as it travels, in which the medium differs from what arrived.
    //= sbc3 5.2 PI-13
    fn difference(&self, lba: u64, arrived: &Arrived, one: bool) -> Result<Option<u64>, Failure> {
        let wire = u64::from(self.protection.wire_block_bytes(self.block as u32));
        let blocks = if one { 1 } else { arrived.guards.len() };
        let (medium, records) = self.read(lba, blocks as u64)?;
        for (i, (here, there)) in
            medium.chunks_exact(self.block).zip(arrived.data.chunks_exact(self.block)).enumerate()
        {
            let tuple = |tuple: Tuple| tuple.to_bytes();
            let sent = arrived.tuples.as_ref().map(|tuples| tuple(tuples[i]));
            let at = match here.iter().zip(there).position(|(a, b)| a != b) {
                Some(at) => Some(at),
                None => sent.and_then(|sent| {
                    let differs = tuple(records[i].tuple()).iter().zip(sent).position(|(a, b)| *a != b);
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
    fn change(&self, op: &MediumOp, data_out: &[Bytes]) -> Option<Result<MediumReply, Failure>> {
        let done = |result: Result<(), Failure>| Some(result.map(|()| MediumReply::Done));
        match *op {
            MediumOp::Write { lba, blocks, durable } => {
                done(self.write(lba, blocks, durable, data_out, Self::put))
            }
            MediumOp::WriteAtomic { lba, blocks, durable } => {
                done(self.write(lba, blocks, durable, data_out, Self::put_atomic))
            }
            MediumOp::WriteAndVerify { lba, blocks, bytchk, durable: _ } => {
                Some(self.write_and_verify(lba, blocks, bytchk, data_out))
            }
            MediumOp::Unmap { ref ranges } => done(ranges.iter().try_for_each(|&(lba, blocks)| {
                if blocks == 0 {
                    return Ok(());
                }
                let _held = self.device.hold(lba, blocks, Access::Change);
                self.device.store.unmap(self.offset(lba), self.offset(blocks))?;
                Ok(self.records.reset(lba, blocks)?)
            })),
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
            MediumOp::OrWrite { lba, blocks, durable } => done(self.or_write(lba, blocks, durable, data_out)),
            MediumOp::Verify { lba, blocks } => {
                let _held = self.device.hold(lba, blocks, Access::Look);
                done(self.pieces(lba, blocks, |lba, blocks| self.read(lba, blocks).map(drop)))
            }
            MediumOp::Compare { lba, blocks, one_block } => {
                Some(self.compare(lba, blocks, one_block, data_out))
            }
            MediumOp::Read { .. }
            | MediumOp::Flush
            | MediumOp::LbaStatus { .. }
            | MediumOp::Prefetch { .. }
            | MediumOp::Copy { .. }
            | MediumOp::Format(_) => None,
        }
    }

    /// Calls `f` with the parts of a range, first block and number of blocks, none of them more than [`PIECE_BYTES`].
    fn pieces(
        &self,
        lba: u64,
        blocks: u64,
        mut f: impl FnMut(u64, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let most = (PIECE_BYTES / self.block as u64).max(1);
        let (mut at, end) = (lba, lba + blocks);
        while at < end {
            let part = (end - at).min(most);
            f(at, part)?;
            at += part;
        }
        Ok(())
    }

    //= sbc3 4.22.4 PI-16
    fn write(
        &self,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: &[Bytes],
        put: fn(&Self, u64, &[u8], &[Record], bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let arrived = self.arrived(data_out, 0, blocks);
        let records = self.records_of(lba, &arrived)?;
        let _held = self.device.hold(lba, blocks, Access::Change);
        put(self, lba, &arrived.data, &records, durable)
    }

    fn write_and_verify(
        &self,
        lba: u64,
        blocks: u64,
        bytchk: bool,
        data_out: &[Bytes],
    ) -> Result<MediumReply, Failure> {
        let arrived = self.arrived(data_out, 0, blocks);
        let records = self.records_of(lba, &arrived)?;
        let _held = self.device.hold(lba, blocks, Access::Decide);
        self.put(lba, &arrived.data, &records, true)?;
        if !bytchk {
            self.read(lba, blocks)?;
            return Ok(MediumReply::Done);
        }
        Ok(match self.difference(lba, &arrived, false)? {
            Some(byte_offset) => MediumReply::Miscompare { byte_offset },
            None => MediumReply::Done,
        })
    }

    //= sbc3 4.22.4 PI-15
    fn zero(&self, lba: u64, blocks: u64, unmap: bool, durable: bool) -> Result<(), Failure> {
        let _held = self.device.hold(lba, blocks, Access::Change);
        let (offset, len) = (self.offset(lba), self.offset(blocks));
        match unmap {
            true => self.device.store.unmap(offset, len)?,
            false => self.device.store.write_zeroes(offset, len, false)?,
        }
        self.records.reset(lba, blocks)?;
        if durable {
            self.device.store.flush()?;
        }
        Ok(())
    }

    //= sbc3 5.43 PI-12
    fn write_same(&self, lba: u64, blocks: u64, durable: bool, data_out: &[Bytes]) -> Result<(), Failure> {
        let arrived = self.arrived(data_out, 0, 1);
        let tuple = arrived.tuples.as_ref().map(|tuples| tuples[0]);
        let record = |lba: u64| {
            let tuple = tuple.map(|tuple| self.protection.repeated(lba, tuple));
            self.record(lba, tuple, arrived.guards[0], &arrived.data)
        };
        let _held = self.device.hold(lba, blocks, Access::Change);
        self.pieces(lba, blocks, |lba, blocks| {
            let records = (lba..lba + blocks).map(record).collect::<Result<Vec<_>, _>>()?;
            self.put(lba, &arrived.data.repeat(blocks as usize), &records, durable)
        })
    }

    fn fill(&self, lba: u64, blocks: u64, pattern: &[u8], durable: bool) -> Result<(), Failure> {
        let _held = self.device.hold(lba, blocks, Access::Change);
        self.pieces(lba, blocks, |lba, blocks| {
            self.write_made(lba, &pattern.repeat(blocks as usize), durable)
        })
    }

    fn compare_and_write(
        &self,
        lba: u64,
        blocks: u64,
        durable: bool,
        data_out: &[Bytes],
    ) -> Result<MediumReply, Failure> {
        let expected = self.arrived(data_out, 0, blocks);
        let new = self.arrived(data_out, blocks, blocks);
        let records = self.records_of(lba, &new)?;
        let _held = self.device.hold(lba, blocks, Access::Decide);
        // The tuples of the first half belong to what is looked for: they are compared and not checked besides.
        if let Some(byte_offset) = self.difference(lba, &expected, false)? {
            return Ok(MediumReply::Miscompare { byte_offset });
        }
        self.put(lba, &new.data, &records, durable)?;
        Ok(MediumReply::Done)
    }

    /// The guard of what comes of it is made anew; the tags are those that came.
    fn or_write(&self, lba: u64, blocks: u64, durable: bool, data_out: &[Bytes]) -> Result<(), Failure> {
        let arrived = self.arrived(data_out, 0, blocks);
        self.records_of(lba, &arrived)?;
        let _held = self.device.hold(lba, blocks, Access::Decide);
        let (mut data, _) = self.read(lba, blocks)?;
        data.iter_mut().zip(&arrived.data).for_each(|(medium, new)| *medium |= new);
        let guards = self.guards(&data);
        let tuples = arrived.tuples.map(|tuples| {
            tuples.iter().zip(&guards).map(|(&tuple, &guard)| Tuple { guard, ..tuple }).collect()
        });
        let merged = Arrived { data, tuples, guards };
        let records = self.records_of(lba, &merged)?;
        self.put(lba, &merged.data, &records, durable)
    }

    fn compare(
        &self,
        lba: u64,
        blocks: u64,
        one_block: bool,
        data_out: &[Bytes],
    ) -> Result<MediumReply, Failure> {
        let mut arrived = self.arrived(data_out, 0, if one_block { 1 } else { blocks });
        self.records_of(lba, &arrived)?;
        let _held = self.device.hold(lba, blocks, Access::Look);
        let wire = u64::from(self.protection.wire_block_bytes(self.block as u32));
        let first = arrived.tuples.as_ref().map(|tuples| tuples[0]);
        for at in 0..if one_block { blocks } else { 1 } {
            if let (true, Some(tuples), Some(first)) = (one_block, &mut arrived.tuples, first) {
                tuples[0] = self.protection.repeated(lba + at, first);
            }
            if let Some(offset) = self.difference(lba + at, &arrived, one_block)? {
                return Ok(MediumReply::Miscompare { byte_offset: at * wire + offset });
            }
        }
        Ok(MediumReply::Done)
    }
}
