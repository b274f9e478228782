//! Tuples of the caller's own (Data Integrity Extensions): data and tuples lie in buffers of their own, each in as many pieces
//! as the caller likes, and meet only on the way.
//!
//! The guard towards the caller is the CRC or the checksum of IP; on the wire and on the medium it is the CRC. Where one is
//! turned into the other there is no moment at which the data have neither:
//!
//! * write: the copy that is sent is made and its CRC computed in one pass; then the checksum is verified, over that copy. What
//!   changes before is found by the checksum, what changes afterwards by the CRC.
//! * read: the checksum is computed over what arrived, then the CRC is verified while the same bytes are copied to the caller.
//!   What changed before is found by the CRC, what changes afterwards by the checksum.
//!
//! The checksum of IP does not see 16-bit words that changed places, nor 0000h that became FFFFh: see `docs/protection.md`.

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
    /// Whole blocks, cut in pieces of any length.
    pub data: &'a [IoSlice<'a>],
    /// A tuple for each, [`TUPLE_BYTES`] long, high bytes first; cut in pieces of any length too.
    pub tuples: &'a [IoSlice<'a>],
    /// What their guards are.
    pub guard: Guard,
}

/// Places for data and tuples that are read.
#[derive(Debug)]
pub struct HostBuffersMut<'a, 'b> {
    /// Room for whole blocks, cut in pieces of any length.
    pub data: &'a mut [IoSliceMut<'b>],
    /// Room for [`TUPLE_BYTES`] for each; cut in pieces of any length too.
    pub tuples: &'a mut [IoSliceMut<'b>],
    /// What guards are wanted.
    pub guard: Guard,
}

/// The guards of `data`, blocks of `block_bytes` bytes each, as a caller makes them who keeps tuples. The checksum of IP is
/// the cheaper one and does not see everything that the CRC sees: the head of this module says what.
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

    /// Interleaves the caller's data and tuples in `space`, checking them: the tuples travel as they came, but for a guard that
    /// is the checksum of IP, which becomes the CRC of the same bytes. They are digested in runs of `digest_runs` bytes, if that
    /// is given ([`Disk::digest_runs`](crate::Disk::digest_runs)).
    ///
    /// # Errors
    /// The first block whose tuple does not fit; then nothing is to be sent.
    ///
    /// # Panics
    /// When there are not as many tuples as blocks, or `space` has not room for just these.
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

    /// Puts the caller's data with its tuples.
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
                // A tuple that is not checked travels as it came, whatever its guard.
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
                    // Of the copy that is sent, whose CRC is in it already.
                    Guard::IpChecksum => ip_checksum(&sent[..self.block]),
                };
                self.check(lba, *given, computed, PiPlace::BeforeSending)?;
                lba = lba.wrapping_add(1);
            }
        }
    }

    /// Copies blocks that arrived, each with its tuple behind it, to the caller's places for data and tuples, and checks them.
    ///
    /// # Errors
    /// The first block that fails a check; the places hold nothing to rely on then.
    ///
    /// # Panics
    /// When the places are not exactly those of the blocks in `pieces` and their tuples.
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
