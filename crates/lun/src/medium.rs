//! Carries out the device server's medium operations on a store (SBC-3 clause 5, rule "verify before visible").
//!
//! Runs on the shard for stores that never block and on a worker thread for the others; it is the same code. Every operation on
//! blocks holds the right to them first ([`Unit::hold`]), so that no write slips between the two halves of a COMPARE AND WRITE,
//! and nobody sees half a block.

use std::sync::atomic::{AtomicBool, Ordering};

use blockstore::StoreError;
use bytes::Bytes;
use engine::SlabRing;
use payload::Payload;
use scsi::{LbaStatusDescriptor, MediumError, MediumOp, MediumReply, Protection, Provisioning};
use smallvec::SmallVec;

use crate::protected::{self, copying};
use crate::unit::{Access, Unit};

/// Blocks of the medium are read in pieces of this many bytes to be compared, checked and combined: no command takes more memory
/// than that besides its data-out, and besides one copy of it where it has to be put together with protection information.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// Zeros are made in pieces of this many bytes: cheap as they are, a store may have to write them.
const ZERO_PIECE_BYTES: u64 = 64 << 20;

/// What surrounds an operation.
pub struct Surroundings<'a> {
    /// Buffers for what is read.
    pub slabs: &'a SlabRing,
    /// The data-out of the command.
    pub data_out: &'a [Bytes],
    /// Most bytes of data-in that the initiator takes: more is not read.
    pub read_length: u64,
    /// Compute a CRC32C over each run of this many bytes of data-in while copying them.
    pub digest_chunk_bytes: Option<u32>,
    /// What becomes of protection information.
    pub protection: Option<Protection>,
    /// Nobody waits for the result any more: what is left of a long operation is not done.
    pub cancelled: &'a AtomicBool,
}

/// For operations that nobody can cancel.
pub static NEVER: AtomicBool = AtomicBool::new(false);

/// A reply, and the data that it may bring.
pub(crate) type Done = (Result<MediumReply, MediumError>, Payload);

/// Carries out `op` on `unit`.
pub(crate) fn execute(unit: &Unit, op: &MediumOp, with: &Surroundings<'_>) -> Done {
    if let Some(done) = protected::execute(unit, op, with) {
        return done;
    }
    if let MediumOp::Read { lba, blocks } = *op {
        return match read(unit, lba, blocks, with) {
            Ok(payload) => (Ok(MediumReply::Data), payload),
            Err(error) => (Err(unit.medium_error(&error)), Payload::default()),
        };
    }
    let reply = match *op {
        MediumOp::Copy { from, from_lba, to, lba, blocks, durable } => {
            copy(unit, (from, from_lba), (to, lba), blocks, durable)
        }
        _ => change(unit, op, with).map_err(|error| unit.medium_error(&error)),
    };
    (reply, Payload::default())
}

/// Longest read that is looked for in the cache of a store that blocks, bytes. Of longer ones the copy costs more than the way to a
/// worker thread and back, and several are copied there at the same time.
const NOW_BYTES: u64 = 32 << 10;

/// Carries out a short plain read of a store that blocks, on the shard, if everything that it needs is at hand; `None`: it is a
/// worker's.
pub(crate) fn execute_now(unit: &Unit, op: &MediumOp, with: &Surroundings<'_>) -> Option<Done> {
    let MediumOp::Read { lba, blocks } = *op else { return None };
    let len = blocks.saturating_mul(block_bytes(unit)).min(with.read_length);
    if !unit.offload || len > NOW_BYTES || with.protection.is_some() || unit.store.records().is_some() {
        return None;
    }
    let _held = unit.try_look(lba, blocks)?;
    let mut buffer = with.slabs.take(len as usize);
    // What fails here fails again where it is looked at more closely.
    if !unit.store.read_now(lba * block_bytes(unit), &mut buffer).unwrap_or(false) {
        return None;
    }
    let payload = match with.digest_chunk_bytes {
        None => Payload::plain(buffer.freeze()),
        Some(chunk) => {
            let crcs = buffer.chunks(chunk as usize).map(integrity::crc32c).collect();
            let chunked_bytes = buffer.len();
            Payload { chunked_bytes, bytes: buffer.freeze(), chunk_bytes: chunk, chunk_crcs: crcs }
        }
    };
    Some((Ok(MediumReply::Data), payload))
}

/// Copies blocks from one unit of the target to another. Each side is held only while it is read or written: whoever waits for
/// one range may hold no other.
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

fn block_bytes(unit: &Unit) -> u64 {
    u64::from(unit.scsi.block_bytes())
}

/// Reads into a buffer that nobody else holds, with the digests of what will travel computed in the same pass.
fn read(unit: &Unit, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<Payload, StoreError> {
    let offset = lba * block_bytes(unit);
    let len = (blocks * block_bytes(unit)).min(with.read_length) as usize;
    let mut buffer = with.slabs.take(len);
    let Some(chunk) = with.digest_chunk_bytes else {
        unit.look(lba, blocks, || unit.store.read(offset, &mut buffer))?;
        return Ok(Payload::plain(buffer.freeze()));
    };
    let crcs = unit.look(lba, blocks, || {
        let pieces = buffer.chunks_mut(chunk as usize).zip((offset..).step_by(chunk as usize));
        pieces.map(|(piece, at)| unit.store.read_crc32c(at, piece, 0)).collect::<Result<_, _>>()
    })?;
    Ok(Payload { chunked_bytes: len, bytes: buffer.freeze(), chunk_bytes: chunk, chunk_crcs: crcs })
}

fn change(unit: &Unit, op: &MediumOp, with: &Surroundings<'_>) -> Result<MediumReply, StoreError> {
    let (store, data_out) = (&unit.store, with.data_out);
    let bytes = |blocks: u64| blocks * block_bytes(unit);
    match *op {
        MediumOp::Read { .. } | MediumOp::Copy { .. } | MediumOp::Format(_) => Ok(MediumReply::Done),
        MediumOp::Write { lba, blocks, durable } => {
            let _held = unit.hold(lba, blocks, Access::Change);
            write(unit, bytes(lba), &Pieces::new(data_out).range(0, bytes(blocks)), durable)?;
            Ok(MediumReply::Done)
        }
        MediumOp::WriteAtomic { lba, blocks, durable } => {
            let _held = unit.hold(lba, blocks, Access::Decide);
            let data = Pieces::new(data_out);
            store.write_atomic(bytes(lba), &data.range(0, bytes(blocks)), None, unit.durability(durable))?;
            Ok(MediumReply::Done)
        }
        MediumOp::Flush => store.flush().map(|()| MediumReply::Done),
        MediumOp::Settle => {
            // Writes that looked at WCE before are done once this is held.
            let _held = unit.hold(0, unit.scsi.blocks(), Access::Decide);
            store.flush().map(|()| MediumReply::Done)
        }
        MediumOp::Unmap { ref ranges, durable } => unmap(unit, ranges, durable),
        MediumOp::WriteSame { lba, blocks, unmap, zero, durable } => {
            let _held = unit.hold(lba, blocks, Access::Change);
            let range = (bytes(lba), bytes(blocks));
            match zero {
                true => zeros(unit, with.cancelled, range, unmap, durable)?,
                false => fill(unit, with.cancelled, range, &one_block(unit, data_out), durable)?,
            }
            Ok(MediumReply::Done)
        }
        MediumOp::Fill { lba, blocks, ref pattern, durable } => {
            let _held = unit.hold(lba, blocks, Access::Change);
            fill(unit, with.cancelled, (bytes(lba), bytes(blocks)), pattern, durable)?;
            Ok(MediumReply::Done)
        }
        MediumOp::CompareAndWrite { lba, blocks, durable } => {
            let _held = unit.hold(lba, blocks, Access::Decide);
            let data = Pieces::new(data_out);
            let range = (bytes(lba), bytes(blocks));
            if let Some(byte_offset) = first_difference(unit, Source::Cache, range, &data, 0)? {
                return Ok(MediumReply::Miscompare { byte_offset });
            }
            write(unit, bytes(lba), &data.range(bytes(blocks), bytes(blocks)), durable)?;
            Ok(MediumReply::Done)
        }
        MediumOp::OrWrite { lba, blocks, and, durable } => {
            let _held = unit.hold(lba, blocks, Access::Decide);
            or_write(unit, bytes(lba), bytes(blocks), and, durable, data_out)?;
            Ok(MediumReply::Done)
        }
        MediumOp::Prefetch { lba, blocks } => {
            let _held = unit.hold(lba, blocks, Access::Look);
            each_piece(bytes(lba), bytes(blocks), |offset, piece| store.read(offset, piece))?;
            Ok(MediumReply::Done)
        }
        MediumOp::Verify { lba, blocks } => {
            let _held = unit.hold(lba, blocks, Access::Look);
            verify(unit, bytes(lba), bytes(blocks))
        }
        MediumOp::Compare { lba, blocks, one_block } => {
            let _held = unit.hold(lba, blocks, Access::Look);
            let period = if one_block { block_bytes(unit) } else { 0 };
            let data = Pieces::new(data_out);
            let range = (bytes(lba), bytes(blocks));
            Ok(compared(first_difference(unit, Source::Medium, range, &data, period)?))
        }
        MediumOp::WriteAndVerify { lba, blocks, bytchk, durable: _ } => {
            let _held = unit.hold(lba, blocks, Access::Decide);
            write_and_verify(unit, (bytes(lba), bytes(blocks)), bytchk, &Pieces::new(data_out))
        }
        MediumOp::LbaStatus { lba, max_descriptors } => lba_status(unit, lba, max_descriptors),
    }
}

fn write(unit: &Unit, offset: u64, pieces: &[&[u8]], durable: bool) -> Result<(), StoreError> {
    unit.store.write(offset, pieces, unit.durability(durable))
}

/// Calls `f` with the pieces of a range, offset and length, none longer than `most`, until nobody waits for them any more.
fn piecewise(
    cancelled: &AtomicBool,
    (offset, len): (u64, u64),
    most: u64,
    mut f: impl FnMut(u64, u64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut done = 0;
    while done < len && !cancelled.load(Ordering::Acquire) {
        let n = (len - done).min(most);
        f(offset + done, n)?;
        done += n;
    }
    Ok(())
}

fn unmap(unit: &Unit, ranges: &[(u64, u64)], durable: bool) -> Result<MediumReply, StoreError> {
    let block = block_bytes(unit);
    for &(lba, blocks) in ranges.iter().filter(|(_, blocks)| *blocks > 0) {
        let _held = unit.hold(lba, blocks, Access::Change);
        unit.store.unmap(lba * block, blocks * block)?;
    }
    unit.flush_if(durable)?;
    Ok(MediumReply::Done)
}

fn one_block(unit: &Unit, data_out: &[Bytes]) -> Vec<u8> {
    Pieces::new(data_out).to_vec(block_bytes(unit))
}

fn zeros(
    unit: &Unit,
    cancelled: &AtomicBool,
    range: (u64, u64),
    unmap: bool,
    durable: bool,
) -> Result<(), StoreError> {
    piecewise(cancelled, range, ZERO_PIECE_BYTES, |offset, len| match unmap {
        true => unit.store.unmap(offset, len),
        false => unit.store.write_zeroes(offset, len, false),
    })?;
    unit.flush_if(durable)
}

/// What is verified must have been written: the medium is read back, so the data goes there first.
fn write_and_verify(
    unit: &Unit,
    (offset, len): (u64, u64),
    bytchk: bool,
    data: &Pieces<'_>,
) -> Result<MediumReply, StoreError> {
    write(unit, offset, &data.range(0, len), true)?;
    if !bytchk {
        return verify(unit, offset, len);
    }
    Ok(compared(first_difference(unit, Source::Medium, (offset, len), data, 0)?))
}

fn compared(first_difference: Option<u64>) -> MediumReply {
    first_difference.map_or(MediumReply::Done, |byte_offset| MediumReply::Miscompare { byte_offset })
}

fn verify(unit: &Unit, offset: u64, len: u64) -> Result<MediumReply, StoreError> {
    each_piece(offset, len, |offset, piece| unit.store.read_medium(offset, piece))?;
    Ok(MediumReply::Done)
}

/// Writes `block` over and over.
fn fill(
    unit: &Unit,
    cancelled: &AtomicBool,
    range: (u64, u64),
    block: &[u8],
    durable: bool,
) -> Result<(), StoreError> {
    let per_piece = (PIECE_BYTES / block_bytes(unit)).max(1).min(range.1 / block_bytes(unit)) as usize;
    let pattern = block.repeat(per_piece);
    piecewise(cancelled, range, pattern.len() as u64, |offset, len| {
        write(unit, offset, &[&pattern[..len as usize]], durable)
    })
}

fn or_write(
    unit: &Unit,
    offset: u64,
    len: u64,
    and: bool,
    durable: bool,
    data_out: &[Bytes],
) -> Result<(), StoreError> {
    let data = Pieces::new(data_out);
    let mut done = 0;
    each_piece(offset, len, |at, piece| {
        unit.store.read(at, piece)?;
        let mut i = 0;
        for part in data.range(done, piece.len() as u64) {
            for (medium, new) in piece[i..].iter_mut().zip(part) {
                *medium = if and { *medium & new } else { *medium | new };
            }
            i += part.len();
        }
        done += piece.len() as u64;
        write(unit, at, &[piece], durable)
    })
}

/// Where blocks are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Wherever they are at hand.
    Cache,
    /// The medium: they are verified.
    Medium,
}

impl Source {
    pub(crate) fn read(self, unit: &Unit, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Source::Cache => unit.store.read(offset, dst),
            Source::Medium => unit.store.read_medium(offset, dst),
        }
    }
}

/// Compares the medium with data-out, or with its first `period` bytes over and over; the first byte that differs.
fn first_difference(
    unit: &Unit,
    source: Source,
    (offset, len): (u64, u64),
    data: &Pieces<'_>,
    period: u64,
) -> Result<Option<u64>, StoreError> {
    let block = if period > 0 { data.to_vec(period) } else { Vec::new() };
    let mut found = None;
    let mut done = 0u64;
    each_piece(offset, len, |at, piece| {
        if found.is_some() {
            return Ok(());
        }
        source.read(unit, at, piece)?;
        let mut i = 0;
        let mut compare = |part: &[u8]| {
            let here = &piece[i..i + part.len()];
            if found.is_none() && here != part {
                let first = here.iter().zip(part).position(|(a, b)| a != b).unwrap_or(0);
                found = Some(done + (i + first) as u64);
            }
            i += part.len();
        };
        if period > 0 {
            (0..piece.len() / block.len()).for_each(|_| compare(&block));
        } else {
            data.range(done, piece.len() as u64).into_iter().for_each(compare);
        }
        done += piece.len() as u64;
        Ok(())
    })?;
    Ok(found)
}

fn lba_status(unit: &Unit, lba: u64, max_descriptors: u32) -> Result<MediumReply, StoreError> {
    let geometry = unit.store.geometry();
    let block = block_bytes(unit);
    let (mut at, end) = (lba * block, geometry.size_bytes);
    let mut list: Vec<LbaStatusDescriptor> = Vec::new();
    'all: while at < end {
        for extent in unit.store.extents(at, end - at, max_descriptors as usize)? {
            // A block is deallocated only when all of it is.
            let (first, last) = if extent.mapped {
                (extent.offset / block, (extent.offset + extent.len).div_ceil(block))
            } else {
                (extent.offset.div_ceil(block), (extent.offset + extent.len) / block)
            };
            at = extent.offset + extent.len;
            let first = list.last().map_or(lba, |d| d.lba + u64::from(d.blocks)).max(first);
            let provisioning = if extent.mapped { Provisioning::Mapped } else { Provisioning::Deallocated };
            let mut from = first;
            while from < last {
                let blocks = u32::try_from(last - from).unwrap_or(u32::MAX);
                let full = list.len() == max_descriptors as usize;
                match list.last_mut() {
                    Some(d) if d.provisioning == provisioning && d.blocks.checked_add(blocks).is_some() => {
                        d.blocks += blocks
                    }
                    _ if full => break 'all,
                    _ => list.push(LbaStatusDescriptor { lba: from, blocks, provisioning }),
                }
                from += u64::from(blocks);
            }
        }
    }
    Ok(MediumReply::LbaStatus(list))
}

/// Calls `f` with the pieces of a range, each in a buffer of its own length.
fn each_piece(
    offset: u64,
    len: u64,
    mut f: impl FnMut(u64, &mut [u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut buffer = vec![0; len.min(PIECE_BYTES) as usize];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(PIECE_BYTES);
        f(offset + done, &mut buffer[..n as usize])?;
        done += n;
    }
    Ok(())
}

/// Data-out as the pieces in which it arrived.
pub(crate) struct Pieces<'a>(&'a [Bytes]);

impl<'a> Pieces<'a> {
    pub(crate) fn new(pieces: &'a [Bytes]) -> Self {
        Self(pieces)
    }

    /// `len` bytes from `start` on, without copying.
    pub(crate) fn range(&self, start: u64, len: u64) -> SmallVec<[&'a [u8]; 8]> {
        let (mut skip, mut left) = (start, len);
        let mut out = SmallVec::new();
        for piece in self.0 {
            let size = piece.len() as u64;
            if skip >= size {
                skip -= size;
                continue;
            }
            let n = (size - skip).min(left);
            if n == 0 {
                break;
            }
            out.push(&piece[skip as usize..(skip + n) as usize]);
            (skip, left) = (0, left - n);
        }
        out
    }

    fn to_vec(&self, len: u64) -> Vec<u8> {
        self.range(0, len).concat()
    }
}

#[cfg(test)]
mod tests;
