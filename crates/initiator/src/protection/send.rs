//! What is written: data get their tuples in the pass that copies and digests them.

use bytes::BytesMut;
use integrity::t10::Tuple;
use iscsi_core::initiator::command::{WriteBuilder, WriteData};

use super::Protection;
use super::scatter::Gather;

/// Sectors that are gone over at a time, so that what is done with them twice is done in the cache.
pub(super) const GROUP_SECTORS: usize = 32;

impl Protection {
    /// Copies `data`, whole blocks from `lba` on, into `space` with a tuple behind each; digests what is stored when `digest`
    /// says so, in the same pass.
    ///
    /// # Panics
    /// When `data` are no whole blocks, or `space` has not [`Protection::wire_bytes`] of them.
    //= sbc3 4.22.3 PI-17
    pub fn write_data(&self, lba: u64, data: &[u8], space: BytesMut, digest: bool) -> WriteData {
        assert!(data.len().is_multiple_of(self.block), "whole blocks");
        assert_eq!(space.len(), self.wire_bytes(data.len() / self.block), "room for blocks and tuples");
        let mut builder = WriteBuilder::new(space, digest);
        self.put_made(&mut builder, lba, data);
        builder.finish()
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
