//! Tuples supplied by the caller (Data Integrity Extensions): data and tuples are in separate buffers, each in any number of
//! pieces, and are interleaved only for the transfer.
//!
//! The guard towards the caller is the CRC or the IP checksum; on the wire and on the medium it is the CRC. When one is
//! converted into the other, the data is never without protection:
//!
//! * write: the copy that is sent is made and its CRC computed in one pass; then the checksum is verified over that copy. The
//!   checksum detects a change before this point, the CRC a change after it.
//! * read: the checksum is computed over the received bytes; then the CRC is verified while the same bytes are copied to the
//!   caller. The CRC detects a change before this point, the checksum a change after it.
//!
//! The IP checksum detects neither 16-bit words that changed places, nor 0000h that became FFFFh: see `docs/protection.md`.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Deref;

use bytes::BytesMut;
use integrity::ip_checksum;
use integrity::t10::{Guard, TUPLE_BYTES, Tuple};
use iscsi_core::initiator::command::{WriteBuilder, WriteData};

use super::scatter::{Gather, total};
use super::send::GROUP_SECTORS;
use super::{PiFailure, PiPlace, Protection};

/// Data and tuples to write.
#[derive(Clone, Copy, Debug)]
pub struct HostBuffers<'a> {
    /// Whole blocks, in pieces of any length.
    pub data: &'a [IoSlice<'a>],
    /// A tuple for each block, [`TUPLE_BYTES`] long, big-endian; also in pieces of any length.
    pub tuples: &'a [IoSlice<'a>],
    /// The kind of their guards.
    pub guard: Guard,
}

/// Buffers for data and tuples that are read.
#[derive(Debug)]
pub struct HostBuffersMut<'a, 'b> {
    /// Room for whole blocks, in pieces of any length.
    pub data: &'a mut [IoSliceMut<'b>],
    /// Room for [`TUPLE_BYTES`] for each block; also in pieces of any length.
    pub tuples: &'a mut [IoSliceMut<'b>],
    /// The kind of guards to return.
    pub guard: Guard,
}

/// The guards of `data`, blocks of `block_bytes` bytes each, for a caller that keeps tuples. The IP checksum is cheaper and does
/// not detect everything that the CRC detects: the head of this module says what.
//= dix 2 DIX-03
pub fn guards(guard: Guard, data: &[u8], block_bytes: usize) -> Vec<u16> {
    let mut guards = vec![0; data.len() / block_bytes.max(1)];
    let layout = integrity::t10::Layout::plain(block_bytes);
    let whole = &data[..guards.len() * block_bytes];
    integrity::t10::guards(guard, whole, layout, &mut guards).map_or_else(|_| Vec::new(), |()| guards)
}

impl Protection {
    /// The tuples of `data`, whole blocks from `lba` on, with guards of the kind `guard` and our tags.
    pub fn tuples(&self, lba: u64, data: &[u8], guard: Guard) -> Vec<Tuple> {
        let guards = guards(guard, data, self.block);
        guards.into_iter().zip(lba..).map(|(guard, lba)| self.made(lba, guard)).collect()
    }

    /// Interleaves the caller's data and tuples in `space`, checking them. The tuples are sent unchanged, except that a guard
    /// that is an IP checksum becomes the CRC of the same bytes. The result is digested in runs of `digest_runs` bytes, if given
    /// ([`Disk::digest_runs`](crate::Disk::digest_runs)).
    ///
    /// # Errors
    /// The first block whose tuple does not match; nothing may be sent then.
    ///
    /// # Panics
    /// If the number of tuples differs from the number of blocks, or `space` does not have exactly the room for them.
    //= dix 2 DIX-01 DIX-02 DIX-04
    pub fn write_host(
        &self,
        lba: u64,
        from: HostBuffers<'_>,
        space: BytesMut,
        digest_runs: Option<u32>,
    ) -> Result<WriteData, PiFailure> {
        let blocks = total(from.data) / self.block;
        assert_eq!(space.len(), self.wire_bytes(blocks), "room for blocks and tuples");
        let mut builder = WriteBuilder::new(space, digest_runs);
        self.put_host(&mut builder, lba, from)?;
        Ok(builder.finish())
    }

    /// Appends the caller's data with its tuples.
    pub(super) fn put_host(
        &self,
        builder: &mut WriteBuilder,
        mut lba: u64,
        from: HostBuffers<'_>,
    ) -> Result<(), PiFailure> {
        let (data_bytes, tuple_bytes) = (total(from.data), total(from.tuples));
        let blocks = data_bytes / self.block;
        assert_eq!((data_bytes, tuple_bytes), (blocks * self.block, blocks * TUPLE_BYTES), "a tuple each");
        let (mut data, mut tuples) = (Gather::new(from.data), Gather::new(from.tuples));
        let (mut block, mut tuple) = (Vec::new(), Vec::new());
        loop {
            let sectors = data.take(self.block, GROUP_SECTORS, &mut block);
            if sectors.is_empty() {
                return Ok(());
            }
            let count = sectors.len() / self.block;
            let (mut given, mut made) =
                ([Tuple::default(); GROUP_SECTORS], [Tuple::default(); GROUP_SECTORS]);
            for (given, made) in given[..count].iter_mut().zip(&mut made) {
                let bytes = tuples.take(TUPLE_BYTES, 1, &mut tuple);
                *given = bytes.first_chunk().map_or_else(Tuple::default, |bytes| Tuple::from_bytes(*bytes));
                *made = *given;
            }
            let before = builder.written().len();
            let verbatim = |tuple: &Tuple| from.guard == Guard::Crc16 && self.kind.escapes(*tuple);
            if given[..count].iter().any(verbatim) {
                // A tuple that is not checked is sent unchanged, whatever its guard.
                for ((sector, given), made) in sectors.chunks_exact(self.block).zip(&given).zip(&mut made) {
                    if verbatim(given) {
                        builder.put(sector);
                        builder.put(&given.to_bytes());
                    } else {
                        builder.put_sectors(sector, self.block, std::slice::from_mut(made));
                    }
                }
            } else {
                builder.put_sectors(sectors, self.block, &mut made[..count]);
            }
            let sent = builder.written()[before..].chunks_exact(self.block + TUPLE_BYTES);
            for ((sent, given), made) in sent.zip(&given).zip(&made) {
                let computed = match from.guard {
                    Guard::Crc16 => made.guard,
                    // Computed over the copy that is sent, which already contains its CRC.
                    Guard::IpChecksum => ip_checksum(&sent[..self.block]),
                };
                self.check(lba, *given, computed, PiPlace::BeforeSending)?;
                lba = lba.wrapping_add(1);
            }
        }
    }

    /// Copies blocks that arrived, each followed by its tuple, to the caller's buffers for data and tuples, and checks them.
    ///
    /// # Errors
    /// The first block that fails a check; the content of the buffers is undefined then.
    ///
    /// # Panics
    /// If the buffers do not exactly fit the blocks in `pieces` and their tuples.
    //= dix 2 DIX-01 DIX-02 DIX-04
    pub fn take_host<S: Deref<Target = [u8]>>(
        &self,
        lba: u64,
        pieces: &[S],
        to: HostBuffersMut<'_, '_>,
    ) -> Result<super::Checked, PiFailure> {
        let blocks = total(to.data) / self.block;
        assert_eq!(total(to.tuples), blocks * TUPLE_BYTES, "a tuple for each block");
        self.deliver(lba, pieces, to.data, Some((to.tuples, to.guard)))
    }
}
