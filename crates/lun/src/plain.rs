//! Blocks without protection information: what the store holds is what travels.

use std::ops::Range;

use blockstore::StoreError;
use bytes::Bytes;
use payload::Payload;
use smallvec::SmallVec;

use crate::blocks::{Blocks, Combine, Failure, Source, range};
use crate::surroundings::Surroundings;
use crate::unit::{Access, Unit};

/// Longest read that is looked for in the cache of a store that blocks, bytes. Up to here the way to a worker thread and back costs
/// more than it saves: 64 and 128 KiB from the page cache take 0.6 to 0.96 of the CPU time on the shard (docs/performance.md). A longer
/// copy would keep the shard's other sessions waiting for tens of microseconds.
const NOW_BYTES: u64 = 128 << 10;

/// A unit without protection information.
pub(crate) struct Plain<'a> {
    pub unit: &'a Unit,
}

/// Blocks in the pieces in which they arrived.
pub(crate) struct Run {
    pieces: SmallVec<[Bytes; 8]>,
}

impl Plain<'_> {
    fn bytes(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.unit.scsi.block_bytes())
    }

    fn put_pieces(&self, lba: u64, pieces: &[&[u8]], durable: bool) -> Result<(), StoreError> {
        self.unit.store.write(self.bytes(lba), pieces, self.unit.durability(durable))
    }

    /// Reads on the shard from a store that blocks, if the read is short and all that it needs is at hand; `None`: a worker has to do it.
    pub(crate) fn read_now(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Option<Payload> {
        let unit = self.unit;
        let len = self.bytes(blocks).min(with.read_length);
        if !unit.offload || len > NOW_BYTES {
            return None;
        }
        let _held = unit.try_look(lba, blocks)?;
        let mut buffer = with.slabs.take(len as usize);
        // An error here comes again in the worker, which reports it.
        if !unit.store.read_now(self.bytes(lba), &mut buffer).unwrap_or(false) {
            return None;
        }
        Some(match with.digest_chunk_bytes {
            None => Payload::plain(buffer.freeze()),
            Some(chunk) => {
                let crcs = buffer.chunks(chunk as usize).map(integrity::crc32c).collect();
                let chunked_bytes = buffer.len();
                Payload { chunked_bytes, bytes: buffer.freeze(), chunk_bytes: chunk, chunk_crcs: crcs }
            }
        })
    }
}

impl Blocks for Plain<'_> {
    type Run = Run;
    type Records = ();

    fn unit(&self) -> &Unit {
        self.unit
    }

    fn wire_block_bytes(&self) -> u64 {
        self.bytes(1)
    }

    /// The digests of what will travel are computed in the pass that copies it.
    fn read(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<Payload, Failure> {
        let (unit, offset) = (self.unit, self.bytes(lba));
        let len = self.bytes(blocks).min(with.read_length) as usize;
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

    fn write(&self, lba: u64, blocks: u64, durable: bool, with: &Surroundings<'_>) -> Result<(), Failure> {
        let _held = self.unit.hold(lba, blocks, Access::Change);
        Ok(self.put_pieces(lba, &range(with.data_out, 0, self.bytes(blocks)), durable)?)
    }

    fn sent(&self, first: u64, blocks: u64, with: &Surroundings<'_>) -> Run {
        let (mut skip, mut left) = (self.bytes(first), self.bytes(blocks));
        let mut pieces = SmallVec::new();
        for piece in with.data_out {
            let from = skip.min(piece.len() as u64);
            let n = (piece.len() as u64 - from).min(left);
            if n > 0 {
                pieces.push(piece.slice(from as usize..(from + n) as usize));
            }
            (skip, left) = (skip - from, left - n);
        }
        Run { pieces }
    }

    fn own(&self, block: Bytes) -> Run {
        Run { pieces: [block].into_iter().collect() }
    }

    fn repeated(&self, block: Run, times: u64) -> Run {
        self.own(block.pieces.concat().repeat(times as usize).into())
    }

    fn place(&self, run: &mut Run, _lba: u64, blocks: u64) {
        // A repeated run is one piece.
        run.pieces.iter_mut().for_each(|piece| piece.truncate(self.bytes(blocks) as usize));
    }

    fn check(&self, _lba: u64, _run: &Run) -> Result<(), Failure> {
        Ok(())
    }

    fn put(&self, lba: u64, run: &Run, (): &(), durable: bool) -> Result<(), Failure> {
        Ok(self.put_pieces(lba, &range(&run.pieces, 0, u64::MAX), durable)?)
    }

    fn put_atomic(&self, lba: u64, run: &Run, (): &(), durable: bool) -> Result<(), Failure> {
        let data = range(&run.pieces, 0, u64::MAX);
        let durability = self.unit.durability(durable);
        Ok(self.unit.store.write_atomic(self.bytes(lba), &data, None, durability)?)
    }

    fn verify(&self, lba: u64, blocks: u64, with: &Surroundings<'_>) -> Result<(), Failure> {
        let mut medium = with.slabs.take(self.bytes(blocks) as usize);
        Ok(self.unit.store.read_medium(self.bytes(lba), &mut medium)?)
    }

    fn difference(
        &self,
        source: Source,
        lba: u64,
        run: &Run,
        part: Range<u64>,
        with: &Surroundings<'_>,
    ) -> Result<Option<u64>, Failure> {
        let (start, len) = (self.bytes(part.start), self.bytes(part.end - part.start));
        let mut medium = with.slabs.take(len as usize);
        source.read(self.unit, self.bytes(lba) + start, &mut medium)?;
        let mut at = 0;
        for there in range(&run.pieces, start, len) {
            let here = &medium[at..at + there.len()];
            if here != there {
                let differs = here.iter().zip(there).position(|(a, b)| a != b).unwrap_or(0);
                return Ok(Some(start + (at + differs) as u64));
            }
            at += there.len();
        }
        Ok(None)
    }

    fn combine(
        &self,
        lba: u64,
        run: &Run,
        part: Range<u64>,
        how: Combine,
        with: &Surroundings<'_>,
    ) -> Result<(), Failure> {
        let (start, len) = (self.bytes(part.start), self.bytes(part.end - part.start));
        let mut medium = with.slabs.take(len as usize);
        self.unit.store.read(self.bytes(lba) + start, &mut medium)?;
        let mut at = 0;
        for new in range(&run.pieces, start, len) {
            how.into(&mut medium[at..at + new.len()], new);
            at += new.len();
        }
        Ok(self.put_pieces(lba + part.start, &[&medium], how.durable)?)
    }
}
