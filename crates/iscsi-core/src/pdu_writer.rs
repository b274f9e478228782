//! Encodes PDUs into the bytes of the wire, with their digests, as a queue of segments for a gathering send
//! (RFC 7143 11.2, 13.1).
//!
//! Headers, digests and short data are written into one growing arena; longer data is sent from where it is. The bytes that are
//! digested are the bytes that are sent: `TxData` is immutable and shared, so later changes of the caller's memory cannot reach
//! it.
//!
//! Data that is assembled for sending ([`Assemble`]) is assembled when its turn comes, a few PDUs ahead of the driver. So it is
//! in the cache when the kernel takes it, and it needs memory for a few PDUs only, however many commands wait for their answers.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use iscsi_wire::{Bhs, Opcode};

use crate::digest::{self, DigestScope};

/// Data up to this many bytes is copied behind its header instead of getting a segment of its own: cheaper than an iovec.
const INLINE_DATA_BYTES: usize = 512;
/// Space that the header arena allocates at a time, bytes.
const ARENA_BYTES: usize = 16 * 1024;
/// Most used arenas that are kept for reuse.
const MAX_USED_ARENAS: usize = 8;
/// Data is assembled as long as less than this is queued for the driver, bytes. The cost of a system call is negligible for that
/// much, and it fits into the second-level cache together with its source.
const MADE_BYTES: usize = 256 * 1024;

/// Bytes to send.
#[derive(Clone, Debug, Default)]
pub struct TxData {
    /// The bytes, which do not change from here on.
    pub bytes: Bytes,
    /// Their CRC32C if it was computed while they were copied; otherwise the writer computes it.
    pub crc32c: Option<u32>,
}

impl From<Bytes> for TxData {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, crc32c: None }
    }
}

/// Assembles data when it is sent.
pub trait Assemble: Debug + Send + Sync {
    /// Length of the data, bytes.
    fn total_bytes(&self) -> usize;

    /// The bytes `range` of the data, which do not change from here on and are the same in every call.
    fn part(&self, range: Range<usize>) -> TxData;
}

/// The data segment of a PDU to send.
#[derive(Clone, Debug)]
pub enum TxSegment {
    /// Bytes that exist.
    Made(TxData),
    /// Bytes assembled when the PDU is sent: the range of the source's data.
    Later(Arc<dyn Assemble>, Range<usize>),
}

impl TxSegment {
    /// Length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(data) => data.bytes.len(),
            Self::Later(_, range) => range.len(),
        }
    }

    /// True without data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, for inspection.
    pub fn bytes(&self) -> Bytes {
        self.clone().make().bytes
    }

    /// The bytes, assembled now if necessary.
    pub(crate) fn make(self) -> TxData {
        match self {
            Self::Made(data) => data,
            Self::Later(source, range) => {
                let (len, data) = (range.len(), source.part(range));
                assert_eq!(data.bytes.len(), len, "the header has said how much data follows");
                data
            }
        }
    }
}

impl Default for TxSegment {
    fn default() -> Self {
        Self::Made(TxData::default())
    }
}

impl<T: Into<TxData>> From<T> for TxSegment {
    fn from(data: T) -> Self {
        Self::Made(data.into())
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
    pub data: TxSegment,
}

impl TxPdu {
    /// A PDU without AHS and data.
    pub fn header_only(bhs: Bhs) -> Self {
        Self { bhs, ahs: Bytes::new(), data: TxSegment::default() }
    }

    /// A PDU with a data segment and no AHS.
    pub fn with_data(bhs: Bhs, data: impl Into<TxSegment>) -> Self {
        Self { bhs, ahs: Bytes::new(), data: data.into() }
    }
}

/// The sending half of a connection's framing.
#[derive(Debug)]
pub struct PduWriter {
    digests: DigestScope,
    arena: BytesMut,
    /// Arenas without space; they are reused once the bytes written in them have been sent.
    used_arenas: VecDeque<BytesMut>,
    segments: VecDeque<Segment>,
    /// PDUs whose data is still to be assembled, and those behind them, with the digests in effect when they were pushed.
    waiting: VecDeque<(TxPdu, DigestScope)>,
    /// Bytes that are encoded and not yet sent.
    made_bytes: usize,
    /// Bytes of the waiting PDUs.
    waiting_bytes: usize,
    /// Bytes of PDUs other than Data-In, in both.
    answer_bytes: usize,
    /// Those of them that are in the arena.
    arena_answer_bytes: usize,
}

/// Bytes that are ready to be sent.
#[derive(Debug)]
struct Segment {
    bytes: Bytes,
    /// Those of them that belong to PDUs other than Data-In.
    answer_bytes: usize,
}

/// Whether a PDU is not Data-In. A command accounts for the memory of its Data-In; other PDUs are queued without anything
/// accounting for them.
fn is_answer(bhs: &Bhs) -> bool {
    bhs.opcode() != Opcode::DataIn.code()
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
            waiting: VecDeque::new(),
            made_bytes: 0,
            waiting_bytes: 0,
            answer_bytes: 0,
            arena_answer_bytes: 0,
        }
    }

    /// Puts negotiated digests into effect for the PDUs pushed from now on.
    //= rfc7143 13.1 DIG-04
    pub fn set_digests(&mut self, digests: DigestScope) {
        self.digests = digests;
    }

    /// Queues one PDU.
    ///
    /// # Panics
    /// When the data segment exceeds 2^24-1 bytes or the AHS 1020 bytes: the session splits data well below that.
    pub fn push(&mut self, mut pdu: TxPdu) {
        pdu.bhs.set_total_ahs_length(pdu.ahs.len());
        pdu.bhs.set_data_segment_length(pdu.data.len());
        let total = self.digests.layout(&pdu.bhs).total;
        self.answer_bytes += if is_answer(&pdu.bhs) { total } else { 0 };
        if self.waiting.is_empty() && matches!(pdu.data, TxSegment::Made(_)) {
            self.encode(pdu, self.digests);
        } else {
            self.waiting_bytes += total;
            self.waiting.push_back((pdu, self.digests));
        }
    }

    /// Queues bytes that are PDUs already, digests included, behind everything that was pushed before.
    ///
    /// # Panics
    /// When a PDU that was pushed before waits for its data to be assembled: a connection has one maker of its PDUs.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        assert!(self.waiting.is_empty(), "a connection has one maker of its PDUs");
        self.seal_arena();
        self.made_bytes += bytes.len();
        self.answer_bytes += bytes.len();
        self.segments.push_back(Segment { answer_bytes: bytes.len(), bytes });
    }

    /// Encodes waiting PDUs, up to an amount worth a call of the driver.
    fn make(&mut self) {
        while self.made_bytes < MADE_BYTES
            && let Some((pdu, digests)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= self.encode(pdu, digests);
        }
    }

    /// Encodes a PDU into segments; returns its length on the wire, bytes.
    fn encode(&mut self, pdu: TxPdu, digests: DigestScope) -> usize {
        let TxPdu { bhs, ahs, data } = pdu;
        let (layout, data) = (digests.layout(&bhs), data.make());
        let of_answer = |bytes: usize| if is_answer(&bhs) { bytes } else { 0 };
        self.made_bytes += layout.total;
        if self.arena.capacity() - self.arena.len() < Bhs::SIZE + ahs.len() + INLINE_DATA_BYTES + 16 {
            self.next_arena();
        }
        self.arena_answer_bytes += of_answer(layout.data_start);
        self.arena.put_slice(bhs.as_bytes());
        self.arena.put_slice(&ahs);
        if digests.header {
            let mut crc = integrity::crc32c_header(bhs.as_bytes());
            if !ahs.is_empty() {
                crc = integrity::crc32c_append(crc, &ahs);
            }
            self.arena.put_slice(&digest::to_wire(crc));
        }
        if layout.data_len == 0 {
            return layout.total;
        }
        // Padding is always zero: no memory that we did not write is ever sent.
        //= rfc7143 11.1 PDU-01 PDU-10
        let padding = &[0u8; 3][..layout.covered_end - layout.data_start - layout.data_len];
        let crc = digests.data.then(|| {
            let crc = data.crc32c.unwrap_or_else(|| integrity::crc32c(&data.bytes));
            if padding.is_empty() { crc } else { integrity::crc32c_append(crc, padding) }
        });
        if layout.data_len <= INLINE_DATA_BYTES {
            self.arena_answer_bytes += of_answer(layout.data_len);
            self.arena.put_slice(&data.bytes);
        } else {
            self.seal_arena();
            self.segments.push_back(Segment { bytes: data.bytes, answer_bytes: of_answer(layout.data_len) });
        }
        self.arena_answer_bytes += of_answer(layout.total - layout.data_start - layout.data_len);
        self.arena.put_slice(padding);
        if let Some(crc) = crc {
            self.arena.put_slice(&digest::to_wire(crc));
        }
        layout.total
    }

    /// Bytes queued and not yet sent.
    pub fn queued_bytes(&self) -> usize {
        self.made_bytes + self.waiting_bytes
    }

    /// The bytes of [`PduWriter::queued_bytes`] that belong to PDUs other than Data-In.
    pub fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Fills `slices` with the front of the queue for one gathering send and returns how many were set.
    pub fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.make();
        self.seal_arena();
        let mut n = 0;
        for (slot, segment) in slices.iter_mut().zip(&self.segments) {
            *slot = IoSlice::new(&segment.bytes);
            n += 1;
        }
        n
    }

    /// Takes up to `max` segments off the queue, for a driver that owns the bytes it sends. PDUs behind data to be assembled may
    /// remain; their turn comes when these are sent.
    pub fn take(&mut self, max: usize, out: &mut Vec<Bytes>) {
        self.take_bytes(max, usize::MAX, out);
    }

    /// As [`PduWriter::take`], and at most `bytes_max` bytes: the last segment may be cut anywhere.
    pub fn take_bytes(&mut self, max: usize, bytes_max: usize, out: &mut Vec<Bytes>) {
        self.make();
        self.seal_arena();
        let mut room = bytes_max;
        for _ in 0..max {
            let Some(front) = self.segments.front_mut() else { return };
            if front.bytes.len() > room {
                if room > 0 {
                    let part = front.bytes.split_to(room);
                    let answered = room.min(front.answer_bytes);
                    front.answer_bytes -= answered;
                    self.answer_bytes -= answered;
                    self.made_bytes -= room;
                    out.push(part);
                }
                return;
            }
            let Some(Segment { bytes, answer_bytes }) = self.segments.pop_front() else { return };
            room -= bytes.len();
            self.made_bytes -= bytes.len();
            self.answer_bytes -= answer_bytes;
            out.push(bytes);
        }
    }

    /// Drops the first `sent` bytes of the queue: the driver has sent them.
    pub fn advance(&mut self, mut sent: usize) {
        self.made_bytes -= sent;
        while sent > 0 {
            let front = self.segments.front_mut().expect("no more was sent than gathered");
            let part = sent.min(front.bytes.len());
            let answered = part.min(front.answer_bytes);
            front.answer_bytes -= answered;
            self.answer_bytes -= answered;
            if front.bytes.len() > sent {
                front.bytes.advance(sent);
                return;
            }
            sent -= part;
            self.segments.pop_front();
        }
    }

    /// Continues in an arena with space: a used one if its bytes have been sent, so that a busy connection allocates nothing.
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
            let answer_bytes = std::mem::take(&mut self.arena_answer_bytes);
            self.segments.push_back(Segment { bytes: self.arena.split().freeze(), answer_bytes });
        }
    }
}
