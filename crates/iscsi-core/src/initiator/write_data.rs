//! Write data that no longer changes, with the checksums computed by the copy that made it.
//!
//! Checksums are kept for runs as long as the PDUs will be ([`Params::write_run_bytes`]), so that each PDU has its digest.
//! Sectors with protection information do not end where runs do: a sector that crosses the end of a run is copied with its guard
//! first, and its parts are then digested from the cache.
//!
//! [`Params::write_run_bytes`]: crate::params::Params::write_run_bytes

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use integrity::Store;
use integrity::t10::{self, TUPLE_BYTES, Tuple};
use smallvec::SmallVec;

use crate::pdu_writer::{Assemble, TxData, TxSegment};

/// Data of a write: bytes that no longer change, with their checksums if those were computed while copying, or a source that
/// assembles such bytes.
#[derive(Clone, Debug, Default)]
pub struct WriteData(Held);

#[derive(Clone, Debug)]
enum Held {
    Bytes {
        bytes: Bytes,
        /// Length of the runs, bytes; not 0 if there are checksums.
        run_bytes: usize,
        /// CRC32C of each run, the last one shorter; empty when none were computed.
        crcs: SmallVec<[u32; 4]>,
    },
    Assembled(Arc<dyn Assemble>),
}

impl Default for Held {
    fn default() -> Self {
        Self::Bytes { bytes: Bytes::new(), run_bytes: 0, crcs: SmallVec::new() }
    }
}

impl From<Bytes> for WriteData {
    /// Takes shared, immutable bytes without copying them.
    fn from(bytes: Bytes) -> Self {
        Self(Held::Bytes { bytes, run_bytes: 0, crcs: SmallVec::new() })
    }
}

impl From<Arc<dyn Assemble>> for WriteData {
    fn from(source: Arc<dyn Assemble>) -> Self {
        Self(Held::Assembled(source))
    }
}

impl WriteData {
    /// Copies the caller's bytes into `space` (of the same length), and digests the stored copy in runs of `run_bytes`, if given.
    /// Whatever the caller does with its memory afterwards can neither change what is sent nor make a digest wrong.
    ///
    /// # Panics
    /// When the lengths differ.
    //= rfc7143 11.2.3 DIG-15
    pub fn copy_from(source: &[u8], space: BytesMut, run_bytes: Option<u32>) -> Self {
        assert_eq!(source.len(), space.len(), "the copy has the length of the original");
        let mut builder = WriteBuilder::new(space, run_bytes);
        builder.put(source);
        builder.finish()
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Bytes { bytes, .. } => bytes.len(),
            Held::Assembled(source) => source.total_bytes(),
        }
    }

    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the data, for inspection.
    pub fn to_vec(&self) -> Vec<u8> {
        self.part(0..self.len()).bytes().to_vec()
    }

    /// The part `range` as the data of one PDU, with its checksum if that follows from the kept ones.
    ///
    /// # Panics
    /// When `range` is no part of it.
    pub fn part(&self, range: Range<usize>) -> TxSegment {
        match &self.0 {
            Held::Bytes { bytes, run_bytes, crcs } => {
                let crc32c = crc_of(&range, bytes.len(), *run_bytes, crcs);
                TxSegment::Made(TxData { bytes: bytes.slice(range), crc32c })
            }
            Held::Assembled(source) => TxSegment::Later(Arc::clone(source), range),
        }
    }
}

/// The CRC32C of `range`, a part of `len` bytes whose runs of `run` bytes have the checksums `crcs`; `None` if it is not made of
/// whole runs.
fn crc_of(range: &Range<usize>, len: usize, run: usize, crcs: &[u32]) -> Option<u32> {
    let whole = range.start.is_multiple_of(run) && (range.end.is_multiple_of(run) || range.end == len);
    if crcs.is_empty() || range.is_empty() || !whole {
        return None;
    }
    let first = range.start / run;
    let mut crc = *crcs.get(first)?;
    for n in first + 1..range.end.div_ceil(run) {
        crc = integrity::crc32c_combine(crc, *crcs.get(n)?, run.min(len - n * run) as u64);
    }
    Some(crc)
}

/// Assembles write data: each byte is copied once, and digested in the same pass if wanted.
///
/// ```
/// use iscsi_core::initiator::command::WriteBuilder;
/// use integrity::t10::Tuple;
/// let mut builder = WriteBuilder::new(bytes::BytesMut::zeroed(2 * 520), Some(8192));
/// let mut tuples = [Tuple { ref_tag: 8, ..Tuple::default() }, Tuple { ref_tag: 9, ..Tuple::default() }];
/// builder.put_sectors(&[0x5a; 1024], 512, &mut tuples);
/// assert_eq!(builder.written()[512..520], tuples[0].to_bytes());
/// assert_eq!(builder.finish().len(), 1040);
/// ```
#[derive(Debug)]
pub struct WriteBuilder {
    space: BytesMut,
    filled: usize,
    /// Length of the runs to digest, bytes; `None` if there is no digest.
    run_bytes: Option<usize>,
    /// CRC32C of the bytes in the last, unfinished run.
    crc: u32,
    crcs: SmallVec<[u32; 4]>,
}

impl WriteBuilder {
    /// Data that will fill `space`, digested in runs of `run_bytes`, if given.
    pub fn new(space: BytesMut, run_bytes: Option<u32>) -> Self {
        let run_bytes = run_bytes.map(|bytes| bytes.max(1) as usize);
        Self { space, filled: 0, run_bytes, crc: 0, crcs: SmallVec::new() }
    }

    /// The bytes put so far.
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
            let (now, later) = rest.split_at(rest.len().min(self.room_in_run()));
            let to = &mut self.space[self.filled..self.filled + now.len()];
            if self.run_bytes.is_some() {
                let copied = integrity::copy_crc32c(self.crc, to, now, Store::Temporal);
                self.crc = copied.expect("the copy has the length of the original");
            } else {
                to.copy_from_slice(now);
            }
            self.advance(now.len());
            rest = later;
        }
    }

    /// Appends the sectors of `data`, each of `sector_bytes` bytes and followed by its tuple. The tags are those in `tuples`. The
    /// guard is computed from the bytes as stored, and is left in `tuples`.
    ///
    /// # Panics
    /// When `data` are not as many sectors as there are tuples, or there is no room for them.
    //= sbc3 4.22.3 PI-17
    pub fn put_sectors(&mut self, data: &[u8], sector_bytes: usize, tuples: &mut [Tuple]) {
        assert_eq!(Some(data.len()), sector_bytes.checked_mul(tuples.len()), "a tuple for each sector");
        let stride = sector_bytes + TUPLE_BYTES;
        let (mut data, mut tuples) = (data, tuples);
        while !tuples.is_empty() {
            let fit = self.room_in_run() / stride;
            let count = fit.clamp(1, tuples.len());
            let (sectors, later) = data.split_at(count * sector_bytes);
            let (these, others) = std::mem::take(&mut tuples).split_at_mut(count);
            let to = &mut self.space[self.filled..self.filled + count * stride];
            if self.run_bytes.is_none() || fit == 0 {
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

    /// The data, without the unfilled part of the space.
    pub fn finish(mut self) -> WriteData {
        let run_bytes = self.run_bytes.unwrap_or_default();
        if run_bytes > 0 && !self.filled.is_multiple_of(run_bytes) {
            self.crcs.push(self.crc);
        }
        self.space.truncate(self.filled);
        WriteData(Held::Bytes { bytes: self.space.freeze(), run_bytes, crcs: self.crcs })
    }

    /// The data as the data segment of one PDU, with its digest if it has one.
    pub fn finish_segment(self) -> TxData {
        let filled = self.filled;
        self.finish().part(0..filled).make()
    }

    /// Bytes up to the end of the run; without digests there is no end to it.
    fn room_in_run(&self) -> usize {
        self.run_bytes.map_or(usize::MAX, |run| run - self.filled % run)
    }

    /// Takes `count` bytes for put and digests them where they lie.
    fn digest_in_place(&mut self, count: usize) {
        let end = self.filled + count;
        while self.filled < end {
            let part = self.room_in_run().min(end - self.filled);
            if self.run_bytes.is_some() {
                self.crc = integrity::crc32c_append(self.crc, &self.space[self.filled..self.filled + part]);
            }
            self.advance(part);
        }
    }

    fn advance(&mut self, count: usize) {
        self.filled += count;
        if self.run_bytes.is_some_and(|run| self.filled.is_multiple_of(run)) {
            self.crcs.push(std::mem::take(&mut self.crc));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_BYTES: usize = 16 * 1024;

    /// All ways to put sectors yield the same bytes and their digests, wherever runs end.
    #[test]
    fn sectors_with_tuples_are_digested_as_they_travel() {
        for sector in [512, 520, 4096, 32 * 1024] {
            for before in [0, 4, RUN_BYTES - 8, RUN_BYTES] {
                let count = 3 * RUN_BYTES / sector + 2;
                let data: Vec<u8> = (0..count * sector).map(|n| ((n * 31) >> 3) as u8).collect();
                let mut tuples: Vec<Tuple> =
                    (0..count as u32).map(|n| Tuple { guard: 0, app_tag: 7, ref_tag: n }).collect();
                let mut plain = vec![9; before];
                for (n, sector) in data.chunks(sector).enumerate() {
                    plain.extend_from_slice(sector);
                    let guard = integrity::crc16_t10dif(sector);
                    plain.extend_from_slice(&Tuple { guard, ..tuples[n] }.to_bytes());
                }
                for run_bytes in [Some(RUN_BYTES as u32), None] {
                    let mut builder = WriteBuilder::new(BytesMut::zeroed(plain.len() + 100), run_bytes);
                    builder.put(&plain[..before]);
                    builder.put_sectors(&data, sector, &mut tuples);
                    assert!(builder.written() == plain);
                    let mut segment =
                        WriteBuilder::new(BytesMut::zeroed(plain.len() + 100), run_bytes.and(Some(u32::MAX)));
                    segment.put(&plain);
                    let segment = segment.finish_segment();
                    assert!(*segment.bytes == plain[..], "all of it, and nothing else");
                    assert_eq!(segment.crc32c, run_bytes.map(|_| integrity::crc32c(&plain)));
                    let data = builder.finish();
                    assert_eq!(data.len(), plain.len());
                    let whole = data.part(0..plain.len()).make();
                    assert_eq!(whole.crc32c, run_bytes.map(|_| integrity::crc32c(&plain)));
                    let second = data.part(RUN_BYTES..3 * RUN_BYTES).make();
                    let crc = integrity::crc32c(&plain[RUN_BYTES..3 * RUN_BYTES]);
                    assert_eq!(second.crc32c, run_bytes.map(|_| crc));
                }
            }
        }
    }
}
