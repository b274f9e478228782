//! Writing: blocks get their tuples in the pass that copies and digests them. Data in a caller's buffer is copied at once; data
//! that can no longer change is copied when it is sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use engine::SlabRing;
use integrity::t10::Tuple;
use iscsi_core::initiator::command::{Assemble, WriteBuilder, WriteData};
use iscsi_core::pdu_writer::TxData;

use super::Protection;
use super::scatter::Gather;

/// Sectors processed at a time, so that the second pass over them finds them in the cache.
pub(super) const GROUP_SECTORS: usize = 64;

impl Protection {
    /// Copies `data`, whole blocks from `lba` on, into `space` with a tuple after each block. In the same pass it digests what is
    /// stored, in runs of `digest_runs` bytes, if given ([`Disk::digest_runs`](crate::Disk::digest_runs)).
    ///
    /// # Panics
    /// If `data` is not whole blocks, or `space` does not have [`Protection::wire_bytes`] for them.
    //= sbc3 4.22.3 PI-17
    pub fn write_data(&self, lba: u64, data: &[u8], space: BytesMut, digest_runs: Option<u32>) -> WriteData {
        assert!(data.len().is_multiple_of(self.block), "whole blocks");
        assert_eq!(space.len(), self.wire_bytes(data.len() / self.block), "room for blocks and tuples");
        let mut builder = WriteBuilder::new(space, digest_runs);
        self.put_made(&mut builder, lba, data);
        builder.finish()
    }

    /// Like [`Protection::write_data`], for bytes that can no longer change: the blocks, tuples and (with `digest`) digest of each
    /// PDU are assembled in memory of `slabs` when the PDU is sent.
    ///
    /// # Panics
    /// If `data` is not whole blocks.
    pub fn write_bytes(&self, lba: u64, data: Bytes, slabs: SlabRing, digest: bool) -> WriteData {
        assert!(data.len().is_multiple_of(self.block), "whole blocks");
        let woven = Woven { protection: self.clone(), lba, data, slabs, digest };
        WriteData::from(Arc::new(woven) as Arc<dyn Assemble>)
    }

    /// Appends `data` with generated tuples.
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

    fn part(&self, range: Range<usize>) -> TxData {
        let wire = self.protection.wire_bytes(1);
        let mut builder = WriteBuilder::new(self.slabs.take(range.len()), self.digest.then_some(u32::MAX));
        let (whole, end) = (range.start.div_ceil(wire), range.end / wire);
        if whole > end {
            self.put_cut(&mut builder, range);
        } else {
            self.put_cut(&mut builder, range.start..whole * wire);
            self.put_blocks(&mut builder, whole..end);
            self.put_cut(&mut builder, end * wire..range.end);
        }
        builder.finish_segment()
    }
}

impl Woven {
    fn put_blocks(&self, builder: &mut WriteBuilder, blocks: Range<usize>) {
        let (lba, block) = (self.lba.wrapping_add(blocks.start as u64), self.protection.block);
        self.protection.put_made(builder, lba, &self.data[blocks.start * block..blocks.end * block]);
    }

    /// Appends a part of one block: a block that spans two PDUs is generated for each of them.
    fn put_cut(&self, builder: &mut WriteBuilder, range: Range<usize>) {
        let wire = self.protection.wire_bytes(1);
        let (n, in_block) = (range.start / wire, range.start % wire);
        if !range.is_empty() {
            let mut whole = WriteBuilder::new(self.slabs.take(wire), None);
            self.put_blocks(&mut whole, n..n + 1);
            builder.put(&whole.written()[in_block..in_block + range.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_core::wire::Lun;
    use scsi::ProtectionType;

    use super::*;
    use crate::protection::{PiTags, UnitProtection};

    // covers: PI-17 DIG-15
    #[test]
    fn pi_17_pdus_cut_anywhere_have_the_same_bytes_and_their_digests() {
        for block in [512, 4096] {
            let unit = UnitProtection { kind: ProtectionType::Type1, ..UnitProtection::default() };
            let tags = PiTags { app_tag: 7, ..PiTags::default() };
            let protection = Protection::new(&unit, Lun(0), block, tags, Arc::default()).unwrap();
            let data: Bytes = (0..9 * block).map(|n| ((n * 31) >> 3) as u8).collect::<Vec<_>>().into();
            let wire = protection.wire_bytes(9);
            let all = protection.write_data(40, &data, BytesMut::zeroed(wire), None).to_vec();
            for digest in [false, true] {
                let (slabs, data) = (SlabRing::new(1 << 16, 4), data.clone());
                let woven = Woven { protection: protection.clone(), lba: 40, data, slabs, digest };
                assert_eq!(woven.total_bytes(), wire);
                for pdu in [100, 511, 520, 521, 1040, 4104, 5000, wire - 1, wire] {
                    for start in (0..wire).step_by(pdu) {
                        let range = start..wire.min(start + pdu);
                        let part = woven.part(range.clone());
                        assert_eq!(part.bytes, all[range.clone()], "{block} {range:?}");
                        assert_eq!(part.crc32c, digest.then(|| integrity::crc32c(&all[range])));
                    }
                }
            }
        }
    }
}
