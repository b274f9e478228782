//! What is written: data get their tuples in the pass that copies and digests them. The copy of a caller's memory is made at
//! once; that of bytes that nobody can change, when they are sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use engine::SlabRing;
use integrity::t10::Tuple;
use iscsi_core::initiator::command::{Assemble, WriteBuilder, WriteData};
use iscsi_core::pdu_writer::TxData;

use super::Protection;
use super::scatter::Gather;

/// Sectors that are gone over at a time, so that what is done with them twice is done in the cache.
pub(super) const GROUP_SECTORS: usize = 64;

impl Protection {
    /// Copies `data`, whole blocks from `lba` on, into `space` with a tuple behind each; digests what is stored, in the same pass,
    /// in runs of `digest_runs` bytes, if that is given ([`Disk::digest_runs`](crate::Disk::digest_runs)).
    ///
    /// # Panics
    /// When `data` are no whole blocks, or `space` has not [`Protection::wire_bytes`] of them.
    //= sbc3 4.22.3 PI-17
    pub fn write_data(&self, lba: u64, data: &[u8], space: BytesMut, digest_runs: Option<u32>) -> WriteData {
        assert!(data.len().is_multiple_of(self.block), "whole blocks");
        assert_eq!(space.len(), self.wire_bytes(data.len() / self.block), "room for blocks and tuples");
        let mut builder = WriteBuilder::new(space, digest_runs);
        self.put_made(&mut builder, lba, data);
        builder.finish()
    }

    /// As [`Protection::write_data`] for bytes that nobody can change any more: each PDU gets its blocks and their tuples, in
    /// memory of `slabs`, and its digest if `digest` says so, when it is sent.
    ///
    /// # Panics
    /// When `data` are no whole blocks.
    pub fn write_bytes(&self, lba: u64, data: Bytes, slabs: SlabRing, digest: bool) -> WriteData {
        assert!(data.len().is_multiple_of(self.block), "whole blocks");
        let woven = Woven { protection: self.clone(), lba, data, slabs, digest };
        WriteData::from(Arc::new(woven) as Arc<dyn Assemble>)
    }

    /// Puts `data` with tuples that are made for it.
    pub(super) fn put_made(&self, builder: &mut WriteBuilder, mut lba: u64, data: &[u8]) {
        let (pieces, mut scratch) = ([data], Vec::new());
        let mut gather = Gather::new(&pieces);
        loop {
            let sectors = gather.take(self.block, GROUP_SECTORS, &mut scratch);
            if sectors.is_empty() {
                return;
            }
            let mut tuples = [Tuple::default(); GROUP_SECTORS];
            let tuples = &mut tuples[..sectors.len() / self.block];
            for tuple in &mut *tuples {
                *tuple = self.made(lba, 0);
                lba = lba.wrapping_add(1);
            }
            builder.put_sectors(sectors, self.block, tuples);
        }
    }
}

/// Blocks that get their tuples when they are sent.
#[derive(Debug)]
struct Woven {
    protection: Protection,
    lba: u64,
    data: Bytes,
    slabs: SlabRing,
    digest: bool,
}

impl Assemble for Woven {
    fn total_bytes(&self) -> usize {
        self.protection.wire_bytes(self.data.len() / self.protection.block)
    }

    /// A block across the border of two PDUs is made for either.
    fn part(&self, range: Range<usize>) -> TxData {
        let (block, wire) = (self.protection.block, self.protection.wire_bytes(1));
        let (first, end) = (range.start / wire, range.end.div_ceil(wire));
        let space = self.slabs.take((end - first) * wire);
        let whole = range.start == first * wire && range.end == end * wire;
        let mut builder = WriteBuilder::new(space, (self.digest && whole).then_some(u32::MAX));
        let lba = self.lba.wrapping_add(first as u64);
        self.protection.put_made(&mut builder, lba, &self.data[first * block..end * block]);
        let TxData { bytes, crc32c } = builder.finish_segment();
        TxData { bytes: bytes.slice(range.start - first * wire..range.end - first * wire), crc32c }
    }
}
