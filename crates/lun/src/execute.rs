//! Carries out the device server's medium operations on a store (SBC-3 clause 5, rule "verify before visible").
//!
//! Each operation is written once, for plain blocks and for protected ones ([`Blocks`]). It runs on the shard for stores that never
//! block and on a worker thread for the others; it is the same code.
//!
//! * An operation on blocks holds the right to them ([`Unit::hold`]) while it touches the medium. So no write slips between the two
//!   halves of a COMPARE AND WRITE, and no command sees half a block.
//! * Blocks of the medium are compared, checked, combined and filled in pieces of at most [`PIECE_BYTES`]. An operation that nobody waits
//!   for any more ends after a piece, except between a comparison and the write that depends on it.

use std::ops::Range;
use std::sync::atomic::Ordering;

use payload::Payload;
use scsi::{MediumError, MediumOp, MediumReply};

use crate::blocks::{Blocks, Combine, Failure, PIECE_BYTES, Source};
use crate::lba_status::lba_status;
use crate::plain::Plain;
use crate::protected::{self, Protected, copying};
use crate::surroundings::Surroundings;
use crate::unit::{Access, Unit};

/// Zeros are made in pieces of this many bytes: cheap as they are, a store may have to write them.
const ZERO_PIECE_BYTES: u64 = 64 << 20;

/// A reply, and the data that it may bring.
pub(crate) type Done = (Result<MediumReply, MediumError>, Payload);

/// Carries out `op` on `unit`.
pub(crate) fn execute(unit: &Unit, op: &MediumOp, with: &Surroundings<'_>) -> Done {
    match *op {
        MediumOp::Copy { from, from_lba, to, lba, blocks, durable } => {
            (copy(unit, (from, from_lba), (to, lba), blocks, durable), Payload::default())
        }
        MediumOp::Format(mark) => (protected::format(unit, mark), Payload::default()),
        _ => match Protected::of_command(unit, op, with) {
            Some(blocks) => Executor { blocks, with }.execute(op),
            None => Executor { blocks: Plain { unit }, with }.execute(op),
        },
    }
}

/// Carries out a short plain read of a store that blocks, on the shard, if all that it needs is at hand; `None`: a worker has to do
/// it, and nothing was done.
pub(crate) fn execute_now(unit: &Unit, op: &MediumOp, with: &Surroundings<'_>) -> Option<Done> {
    let MediumOp::Read { lba, blocks } = *op else { return None };
    if with.protection.is_some() || unit.store.records().is_some() {
        return None;
    }
    let payload = Plain { unit }.read_now(lba, blocks, with)?;
    Some((Ok(MediumReply::Data), payload))
}

/// Copies blocks from one unit of the target to another. Each side is held only while it is read or written: a command that waits
/// for one range may hold no other.
//= spc4 6.4.6.2 CPY-01
fn copy(
    unit: &Unit,
    (from, from_lba): (u16, u64),
    (to, lba): (u16, u64),
    blocks: u64,
    durable: bool,
) -> Result<MediumReply, MediumError> {
    let (Some(source), Some(destination)) = (unit.neighbour(from), unit.neighbour(to)) else {
        return Err(MediumError::Gone);
    };
    let cargo = copying::load(&source, from_lba, blocks)?;
    copying::unload(&destination, lba, &cargo, durable)?;
    Ok(MediumReply::Done)
}

/// One operation on the blocks of a unit.
struct Executor<'a, B> {
    blocks: B,
    with: &'a Surroundings<'a>,
}

impl<B: Blocks> Executor<'_, B> {
    fn execute(&self, op: &MediumOp) -> Done {
        let mut payload = Payload::default();
        let reply = match *op {
            MediumOp::Read { lba, blocks } => self.blocks.read(lba, blocks, self.with).map(|read| {
                payload = read;
                MediumReply::Data
            }),
            _ => self.change(op),
        };
        (reply.map_err(|failure| failure.report(self.unit())), payload)
    }

    /// Everything but a read.
    fn change(&self, op: &MediumOp) -> Result<MediumReply, Failure> {
        match *op {
            MediumOp::Write { lba, blocks, durable } => self.blocks.write(lba, blocks, durable, self.with)?,
            MediumOp::WriteAtomic { lba, blocks, durable } => self.write_atomic(lba, blocks, durable)?,
            MediumOp::WriteAndVerify { lba, blocks, bytchk, durable: _ } => {
                return self.write_and_verify(lba, blocks, bytchk);
            }
            MediumOp::WriteSame { lba, blocks, unmap, zero: true, durable } => {
                self.zero(lba, blocks, unmap, durable)?
            }
            MediumOp::WriteSame { lba, blocks, durable, .. } => {
                self.fill(lba, blocks, self.blocks.sent(0, 1, self.with), durable)?
            }
            MediumOp::Fill { lba, blocks, ref pattern, durable } => {
                self.fill(lba, blocks, self.blocks.own(pattern.clone()), durable)?
            }
            MediumOp::CompareAndWrite { lba, blocks, durable } => {
                return self.compare_and_write(lba, blocks, durable);
            }
            MediumOp::OrWrite { lba, blocks, and, durable } => {
                self.or_write(lba, blocks, Combine { and, durable })?
            }
            MediumOp::Unmap { ref ranges, durable } => self.unmap(ranges, durable)?,
            MediumOp::Verify { lba, blocks } => {
                let _held = self.unit().hold(lba, blocks, Access::Look);
                self.verify(lba, blocks)?
            }
            MediumOp::Compare { lba, blocks, one_block: false } => return self.compare(lba, blocks),
            MediumOp::Compare { lba, blocks, one_block: true } => return self.compare_each(lba, blocks),
            MediumOp::Prefetch { lba, blocks } => self.prefetch(lba, blocks)?,
            MediumOp::Flush => self.unit().store.flush()?,
            MediumOp::Settle => {
                // Writes that looked at WCE before are done once this is held.
                let _held = self.unit().hold(0, self.unit().scsi.blocks(), Access::Decide);
                self.unit().store.flush()?
            }
            MediumOp::LbaStatus { lba, max_descriptors } => {
                return Ok(lba_status(self.unit(), lba, max_descriptors)?);
            }
            MediumOp::Read { .. } | MediumOp::Copy { .. } | MediumOp::Format(_) => {}
        }
        Ok(MediumReply::Done)
    }

    fn unit(&self) -> &Unit {
        self.blocks.unit()
    }

    /// Bytes of so many blocks in the store.
    fn bytes(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.unit().scsi.block_bytes())
    }

    /// Calls `f` with the parts of `0..blocks`, none longer than `most_bytes`, until nobody waits for them any more.
    fn pieces(
        &self,
        blocks: u64,
        most_bytes: u64,
        mut f: impl FnMut(Range<u64>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let most = (most_bytes / self.bytes(1)).max(1);
        let mut at = 0;
        while at < blocks && !self.with.cancelled.load(Ordering::Acquire) {
            let end = (at + most).min(blocks);
            f(at..end)?;
            at = end;
        }
        Ok(())
    }

    //= sbc4 5.43 ATM-01
    fn write_atomic(&self, lba: u64, blocks: u64, durable: bool) -> Result<(), Failure> {
        let run = self.blocks.sent(0, blocks, self.with);
        let records = self.blocks.check(lba, &run)?;
        let _held = self.unit().hold(lba, blocks, Access::Decide);
        self.blocks.put_atomic(lba, &run, &records, durable)
    }

    /// The medium is read back, so the data goes there first.
    fn write_and_verify(&self, lba: u64, blocks: u64, bytchk: bool) -> Result<MediumReply, Failure> {
        let run = self.blocks.sent(0, blocks, self.with);
        let records = self.blocks.check(lba, &run)?;
        let _held = self.unit().hold(lba, blocks, Access::Decide);
        self.blocks.put(lba, &run, &records, true)?;
        if bytchk {
            return Ok(compared(self.first_difference(Source::Medium, lba, &run, blocks)?));
        }
        self.verify(lba, blocks)?;
        Ok(MediumReply::Done)
    }

    fn unmap(&self, ranges: &[(u64, u64)], durable: bool) -> Result<(), Failure> {
        for &(lba, blocks) in ranges.iter().filter(|(_, blocks)| *blocks > 0) {
            let _held = self.unit().hold(lba, blocks, Access::Change);
            self.unit().store.unmap(self.bytes(lba), self.bytes(blocks))?;
        }
        Ok(self.unit().flush_if(durable)?)
    }

    //= sbc3 4.22.4 PI-15
    fn zero(&self, lba: u64, blocks: u64, unmap: bool, durable: bool) -> Result<(), Failure> {
        let store = &self.unit().store;
        let _held = self.unit().hold(lba, blocks, Access::Change);
        self.pieces(blocks, ZERO_PIECE_BYTES, |part| {
            let (offset, len) = (self.bytes(lba + part.start), self.bytes(part.end - part.start));
            match unmap {
                true => store.unmap(offset, len)?,
                false => store.write_zeroes(offset, len, false)?,
            }
            Ok(())
        })?;
        Ok(self.unit().flush_if(durable)?)
    }

    /// Writes one block to all of these.
    //= sbc3 5.43 PI-12
    fn fill(&self, lba: u64, blocks: u64, block: B::Run, durable: bool) -> Result<(), Failure> {
        let mut run = self.repeated(block, blocks);
        let _held = self.unit().hold(lba, blocks, Access::Change);
        self.pieces(blocks, PIECE_BYTES, |part| {
            let at = lba + part.start;
            self.blocks.place(&mut run, at, part.end - part.start);
            self.blocks.put(at, &run, &self.blocks.check(at, &run)?, durable)
        })
    }

    /// A block as often as it goes into a piece, and no more than `blocks` times.
    fn repeated(&self, block: B::Run, blocks: u64) -> B::Run {
        self.blocks.repeated(block, (PIECE_BYTES / self.bytes(1)).max(1).min(blocks))
    }

    fn compare_and_write(&self, lba: u64, blocks: u64, durable: bool) -> Result<MediumReply, Failure> {
        // The tuples of the first half belong to what is expected: they are compared, and not checked.
        let expected = self.blocks.sent(0, blocks, self.with);
        let new = self.blocks.sent(blocks, blocks, self.with);
        let records = self.blocks.check(lba, &new)?;
        let _held = self.unit().hold(lba, blocks, Access::Decide);
        if let Some(byte_offset) = self.first_difference(Source::Cache, lba, &expected, blocks)? {
            return Ok(MediumReply::Miscompare { byte_offset });
        }
        self.blocks.put(lba, &new, &records, durable)?;
        Ok(MediumReply::Done)
    }

    fn or_write(&self, lba: u64, blocks: u64, how: Combine) -> Result<(), Failure> {
        let run = self.blocks.sent(0, blocks, self.with);
        self.blocks.check(lba, &run)?;
        let _held = self.unit().hold(lba, blocks, Access::Decide);
        self.pieces(blocks, PIECE_BYTES, |part| self.blocks.combine(lba, &run, part, how, self.with))
    }

    fn verify(&self, lba: u64, blocks: u64) -> Result<(), Failure> {
        self.pieces(blocks, PIECE_BYTES, |part| {
            self.blocks.verify(lba + part.start, part.end - part.start, self.with)
        })
    }

    fn compare(&self, lba: u64, blocks: u64) -> Result<MediumReply, Failure> {
        let run = self.blocks.sent(0, blocks, self.with);
        self.blocks.check(lba, &run)?;
        let _held = self.unit().hold(lba, blocks, Access::Look);
        Ok(compared(self.first_difference(Source::Medium, lba, &run, blocks)?))
    }

    /// Compares each of these blocks with the one that was sent.
    fn compare_each(&self, lba: u64, blocks: u64) -> Result<MediumReply, Failure> {
        let block = self.blocks.sent(0, 1, self.with);
        self.blocks.check(lba, &block)?;
        let mut run = self.repeated(block, blocks);
        let _held = self.unit().hold(lba, blocks, Access::Look);
        let mut found = None;
        self.pieces(blocks, PIECE_BYTES, |part| {
            if found.is_none() {
                let (at, count) = (lba + part.start, part.end - part.start);
                self.blocks.place(&mut run, at, count);
                let differs = self.blocks.difference(Source::Medium, at, &run, 0..count, self.with)?;
                found = differs.map(|byte| part.start * self.blocks.wire_block_bytes() + byte);
            }
            Ok(())
        })?;
        Ok(compared(found))
    }

    /// The first byte of a run, as it travels, in which the medium differs. All of it is compared, even if nobody waits any more: a
    /// write may depend on the answer.
    //= sbc3 5.2 PI-13
    fn first_difference(
        &self,
        source: Source,
        lba: u64,
        run: &B::Run,
        blocks: u64,
    ) -> Result<Option<u64>, Failure> {
        let most = (PIECE_BYTES / self.bytes(1)).max(1);
        let mut at = 0;
        while at < blocks {
            let end = (at + most).min(blocks);
            let found = self.blocks.difference(source, lba, run, at..end, self.with)?;
            if found.is_some() {
                return Ok(found);
            }
            at = end;
        }
        Ok(None)
    }

    fn prefetch(&self, lba: u64, blocks: u64) -> Result<(), Failure> {
        let _held = self.unit().hold(lba, blocks, Access::Look);
        self.pieces(blocks, PIECE_BYTES, |part| {
            let mut fetched = self.with.slabs.take(self.bytes(part.end - part.start) as usize);
            Ok(self.unit().store.read(self.bytes(lba + part.start), &mut fetched)?)
        })
    }
}

fn compared(first_difference: Option<u64>) -> MediumReply {
    first_difference.map_or(MediumReply::Done, |byte_offset| MediumReply::Miscompare { byte_offset })
}

#[cfg(test)]
mod tests;
