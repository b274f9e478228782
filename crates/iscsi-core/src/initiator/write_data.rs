//! Data of a write, stable from here on, with the checksums that fall out of the copy that made it.
//!
//! Checksums are kept of runs of [`CHUNK_BYTES`], of which the digest of any PDU is combined. Sectors with protection
//! information do not end where runs do: one that lies across the end of a run is copied with its guard first, and its
//! parts are digested from the cache.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use integrity::Store;
use integrity::t10::{self, TUPLE_BYTES, Tuple};
use smallvec::SmallVec;

use crate::pdu_writer::TxData;

/// Run length of the checksums kept with write data, bytes: small enough that the runs of any sensible negotiation are made of
/// whole ones, large enough that joining them costs nothing beside computing them.
const CHUNK_BYTES: usize = 16 * 1024;

/// Data of a write: bytes that do not change any more, with their checksums if those were computed while copying.
#[derive(Clone, Debug, Default)]
pub struct WriteData {
    bytes: Bytes,
    /// CRC32C of each run of [`CHUNK_BYTES`], the last one shorter; empty when none were computed.
    crcs: SmallVec<[u32; 4]>,
}

impl From<Bytes> for WriteData {
    /// Takes shared, immutable bytes as they are: nothing is copied.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, crcs: SmallVec::new() }
    }
}

impl WriteData {
    /// Copies the caller's bytes into `space` (of the same length), digesting what is stored when `digest` says so. What the
    /// caller does with its memory afterwards can neither change what travels nor make a digest wrong.
    ///
    /// # Panics
    /// When the lengths differ.
    //= rfc7143 11.2.3 DIG-15
    pub fn copy_from(source: &[u8], space: BytesMut, digest: bool) -> Self {
        assert_eq!(source.len(), space.len(), "the copy has the length of the original");
        let mut builder = WriteBuilder::new(space, digest);
        builder.put(source);
        builder.finish()
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A copy of them, for those who look at what is sent.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// The part `range` as the data of one PDU, with its checksum when the kept ones make it up.
    pub(super) fn part(&self, range: Range<usize>) -> TxData {
        let crc32c = self.crc_of(&range);
        TxData { bytes: self.bytes.slice(range), crc32c }
    }

    fn crc_of(&self, range: &Range<usize>) -> Option<u32> {
        let whole = range.start.is_multiple_of(CHUNK_BYTES)
            && (range.end.is_multiple_of(CHUNK_BYTES) || range.end == self.len());
        if self.crcs.is_empty() || range.is_empty() || !whole {
            return None;
        }
        let first = range.start / CHUNK_BYTES;
        let mut crc = *self.crcs.get(first)?;
        for n in first + 1..range.end.div_ceil(CHUNK_BYTES) {
            let chunk_bytes = CHUNK_BYTES.min(self.len() - n * CHUNK_BYTES) as u64;
            crc = integrity::crc32c_combine(crc, *self.crcs.get(n)?, chunk_bytes);
        }
        Some(crc)
    }
}

/// Puts write data together: each byte is copied once, and digested in the same pass when that is wanted.
///
/// ```
/// use iscsi_core::initiator::command::WriteBuilder;
/// use integrity::t10::Tuple;
/// let mut builder = WriteBuilder::new(bytes::BytesMut::zeroed(2 * 520), true);
/// let mut tuples = [Tuple { ref_tag: 8, ..Tuple::default() }, Tuple { ref_tag: 9, ..Tuple::default() }];
/// builder.put_sectors(&[0x5a; 1024], 512, &mut tuples);
/// assert_eq!(builder.written()[512..520], tuples[0].to_bytes());
/// assert_eq!(builder.finish().len(), 1040);
/// ```
#[derive(Debug)]
pub struct WriteBuilder {
    space: BytesMut,
    filled: usize,
    digest: bool,
    /// CRC32C of what the last, unfinished chunk holds.
    crc: u32,
    crcs: SmallVec<[u32; 4]>,
}

impl WriteBuilder {
    /// Data that will fill `space`, digested when `digest` says so.
    pub fn new(space: BytesMut, digest: bool) -> Self {
        Self { space, filled: 0, digest, crc: 0, crcs: SmallVec::new() }
    }

    /// What was put so far.
    pub fn written(&self) -> &[u8] {
        &self.space[..self.filled]
    }

    /// Appends a copy of `source`.
    ///
    /// # Panics
    /// When there is no room for it.
    pub fn put(&mut self, source: &[u8]) {
        let mut rest = source;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.room_in_chunk()));
            let to = &mut self.space[self.filled..self.filled + now.len()];
            if self.digest {
                let copied = integrity::copy_crc32c(self.crc, to, now, Store::Temporal);
                self.crc = copied.expect("the copy has the length of the original");
            } else {
                to.copy_from_slice(now);
            }
            self.advance(now.len());
            rest = later;
        }
    }

    /// Appends the sectors of `data`, each of `sector_bytes` bytes, with its tuple behind it: the tags are those in `tuples`,
    /// the guard is that of the bytes that were stored, and is left in `tuples`.
    ///
    /// # Panics
    /// When `data` are not as many sectors as there are tuples, or there is no room for them.
    //= sbc3 4.22.3 PI-17
    pub fn put_sectors(&mut self, data: &[u8], sector_bytes: usize, tuples: &mut [Tuple]) {
        assert_eq!(Some(data.len()), sector_bytes.checked_mul(tuples.len()), "a tuple for each sector");
        let stride = sector_bytes + TUPLE_BYTES;
        let (mut data, mut tuples) = (data, tuples);
        while !tuples.is_empty() {
            let fit = if self.digest { self.room_in_chunk() / stride } else { tuples.len() };
            let count = fit.clamp(1, tuples.len());
            let (sectors, later) = data.split_at(count * sector_bytes);
            let (these, others) = std::mem::take(&mut tuples).split_at_mut(count);
            let to = &mut self.space[self.filled..self.filled + count * stride];
            if !self.digest || fit == 0 {
                t10::insert(to, sectors, sector_bytes, these, Store::Temporal)
                    .expect("the room is that of the sectors with their tuples");
                self.digest_in_place(count * stride);
            } else {
                let digest =
                    integrity::insert_crc32c_t10(self.crc, to, sectors, sector_bytes, these, Store::Temporal);
                self.crc = digest.expect("the room is that of the sectors with their tuples");
                self.advance(count * stride);
            }
            (data, tuples) = (later, others);
        }
    }

    /// The data; what was not filled of the space is no part of them.
    pub fn finish(mut self) -> WriteData {
        if self.digest && !self.filled.is_multiple_of(CHUNK_BYTES) {
            self.crcs.push(self.crc);
        }
        self.space.truncate(self.filled);
        WriteData { bytes: self.space.freeze(), crcs: self.crcs }
    }

    fn room_in_chunk(&self) -> usize {
        CHUNK_BYTES - self.filled % CHUNK_BYTES
    }

    /// Takes `count` bytes for put and digests them where they lie.
    fn digest_in_place(&mut self, count: usize) {
        let end = self.filled + count;
        while self.filled < end {
            let part = self.room_in_chunk().min(end - self.filled);
            if self.digest {
                self.crc = integrity::crc32c_append(self.crc, &self.space[self.filled..self.filled + part]);
            }
            self.advance(part);
        }
    }

    fn advance(&mut self, count: usize) {
        self.filled += count;
        if self.digest && self.filled.is_multiple_of(CHUNK_BYTES) {
            self.crcs.push(std::mem::take(&mut self.crc));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way to put sectors leaves the same bytes and the digests of them, wherever chunks end.
    #[test]
    fn sectors_with_tuples_are_digested_as_they_travel() {
        for sector in [512, 520, 4096, 32 * 1024] {
            for before in [0, 4, CHUNK_BYTES - 8, CHUNK_BYTES] {
                let count = 3 * CHUNK_BYTES / sector + 2;
                let data: Vec<u8> = (0..count * sector).map(|n| ((n * 31) >> 3) as u8).collect();
                let mut tuples: Vec<Tuple> =
                    (0..count as u32).map(|n| Tuple { guard: 0, app_tag: 7, ref_tag: n }).collect();
                let mut plain = vec![9; before];
                for (n, sector) in data.chunks(sector).enumerate() {
                    plain.extend_from_slice(sector);
                    let guard = integrity::crc16_t10dif(sector);
                    plain.extend_from_slice(&Tuple { guard, ..tuples[n] }.to_bytes());
                }
                for digest in [true, false] {
                    let mut builder = WriteBuilder::new(BytesMut::zeroed(plain.len() + 100), digest);
                    builder.put(&plain[..before]);
                    builder.put_sectors(&data, sector, &mut tuples);
                    assert!(builder.written() == plain);
                    let data = builder.finish();
                    assert_eq!(data.len(), plain.len());
                    let whole = data.part(0..plain.len());
                    assert_eq!(whole.crc32c, digest.then(|| integrity::crc32c(&plain)));
                    let second = data.part(CHUNK_BYTES..3 * CHUNK_BYTES);
                    let crc = integrity::crc32c(&plain[CHUNK_BYTES..3 * CHUNK_BYTES]);
                    assert_eq!(second.crc32c, digest.then_some(crc));
                }
            }
        }
    }
}
