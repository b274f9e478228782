//! Turns PDUs into the bytes of the wire, with their digests, as a queue of segments for a gathering send
//! (RFC 7143 11.2, 13.1).
//!
//! Headers, digests and short data go into one growing arena; longer data stays where it is and is sent from there. What is
//! digested is what travels: `TxData` is immutable and shared, so no later change of the caller's memory can reach it.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use iscsi_wire::Bhs;

use crate::digest::{self, DigestScope};

/// Data up to this many bytes is copied behind its header instead of taking a segment of its own: cheaper than an iovec.
const INLINE_DATA_BYTES: usize = 512;
/// Space that the header arena asks for at a time, bytes.
const ARENA_BYTES: usize = 16 * 1024;
/// Used arenas that are kept for their return.
const MAX_USED_ARENAS: usize = 8;

/// The data segment of a PDU to send.
#[derive(Clone, Debug, Default)]
pub struct TxData {
    /// The bytes, stable from here on.
    pub bytes: Bytes,
    /// Their CRC32C when it was computed while they were copied; otherwise the writer computes it.
    pub crc32c: Option<u32>,
}

impl From<Bytes> for TxData {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, crc32c: None }
    }
}

/// One PDU to send. The writer sets the length fields of the header.
#[derive(Clone, Debug)]
pub struct TxPdu {
    /// The basic header segment.
    pub bhs: Bhs,
    /// Additional header segments, already padded to four bytes.
    pub ahs: Bytes,
    /// The data segment.
    pub data: TxData,
}

impl TxPdu {
    /// A PDU without AHS and data.
    pub fn header_only(bhs: Bhs) -> Self {
        Self { bhs, ahs: Bytes::new(), data: TxData::default() }
    }

    /// A PDU with a data segment and no AHS.
    pub fn with_data(bhs: Bhs, data: impl Into<TxData>) -> Self {
        Self { bhs, ahs: Bytes::new(), data: data.into() }
    }
}

/// The sending half of a connection's framing.
#[derive(Debug)]
pub struct PduWriter {
    digests: DigestScope,
    arena: BytesMut,
    /// Arenas whose space is used up; they come back when what was written in them has been sent.
    used_arenas: VecDeque<BytesMut>,
    segments: VecDeque<Bytes>,
    queued_bytes: usize,
}

impl Default for PduWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl PduWriter {
    /// A writer for the login phase: no digests.
    pub fn new() -> Self {
        Self {
            digests: DigestScope::NONE,
            arena: BytesMut::new(),
            used_arenas: VecDeque::new(),
            segments: VecDeque::new(),
            queued_bytes: 0,
        }
    }

    /// Puts negotiated digests in force for the PDUs pushed from now on.
    //= rfc7143 13.1 DIG-04
    pub fn set_digests(&mut self, digests: DigestScope) {
        self.digests = digests;
    }

    /// Queues one PDU.
    ///
    /// # Panics
    /// When the data segment exceeds 2^24-1 bytes or the AHS 1020 bytes: the session splits data long before.
    pub fn push(&mut self, pdu: TxPdu) {
        let TxPdu { mut bhs, ahs, data } = pdu;
        bhs.set_total_ahs_length(ahs.len());
        bhs.set_data_segment_length(data.bytes.len());
        let layout = self.digests.layout(&bhs);
        self.queued_bytes += layout.total;
        if self.arena.capacity() - self.arena.len() < Bhs::SIZE + ahs.len() + INLINE_DATA_BYTES + 16 {
            self.next_arena();
        }
        self.arena.put_slice(bhs.as_bytes());
        self.arena.put_slice(&ahs);
        if self.digests.header {
            let mut crc = integrity::crc32c_header(bhs.as_bytes());
            if !ahs.is_empty() {
                crc = integrity::crc32c_append(crc, &ahs);
            }
            self.arena.put_slice(&digest::to_wire(crc));
        }
        if layout.data_len == 0 {
            return;
        }
        // Padding is always zero: no byte of memory that we did not write leaves with it.
        //= rfc7143 11.1 PDU-01 PDU-10
        let padding = &[0u8; 3][..layout.covered_end - layout.data_start - layout.data_len];
        let crc = self.digests.data.then(|| {
            let crc = data.crc32c.unwrap_or_else(|| integrity::crc32c(&data.bytes));
            if padding.is_empty() { crc } else { integrity::crc32c_append(crc, padding) }
        });
        if data.bytes.len() <= INLINE_DATA_BYTES {
            self.arena.put_slice(&data.bytes);
        } else {
            self.seal_arena();
            self.segments.push_back(data.bytes);
        }
        self.arena.put_slice(padding);
        if let Some(crc) = crc {
            self.arena.put_slice(&digest::to_wire(crc));
        }
    }

    /// Bytes queued and not yet sent.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Fills `slices` with the front of the queue for one gathering send and returns how many were set.
    pub fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.seal_arena();
        let mut n = 0;
        for (slot, segment) in slices.iter_mut().zip(&self.segments) {
            *slot = IoSlice::new(segment);
            n += 1;
        }
        n
    }

    /// Takes up to `max` segments off the queue, for a driver that owns what it sends.
    pub fn take(&mut self, max: usize, out: &mut Vec<Bytes>) {
        self.seal_arena();
        let n = max.min(self.segments.len());
        for segment in self.segments.drain(..n) {
            self.queued_bytes -= segment.len();
            out.push(segment);
        }
    }

    /// Drops the first `sent` bytes of the queue: they are on their way.
    pub fn advance(&mut self, mut sent: usize) {
        self.queued_bytes -= sent;
        while sent > 0 {
            let front = self.segments.front_mut().expect("no more was sent than gathered");
            if front.len() > sent {
                front.advance(sent);
                return;
            }
            sent -= front.len();
            self.segments.pop_front();
        }
    }

    /// Goes on in an arena with space: an old one if its bytes are sent, so that a busy connection allocates nothing.
    fn next_arena(&mut self) {
        self.seal_arena();
        if self.arena.try_reclaim(ARENA_BYTES) {
            return;
        }
        let free = self.used_arenas.iter_mut().position(|arena| arena.try_reclaim(ARENA_BYTES));
        let next = free
            .and_then(|i| self.used_arenas.remove(i))
            .unwrap_or_else(|| BytesMut::with_capacity(ARENA_BYTES));
        let used = std::mem::replace(&mut self.arena, next);
        self.used_arenas.push_back(used);
        self.used_arenas.truncate(MAX_USED_ARENAS);
    }

    fn seal_arena(&mut self) {
        if !self.arena.is_empty() {
            self.segments.push_back(self.arena.split().freeze());
        }
    }
}
