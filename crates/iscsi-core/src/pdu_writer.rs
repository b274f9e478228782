//! Turns PDUs into the bytes of the wire, with their digests, as a queue of segments for a gathering send
//! (RFC 7143 11.2, 13.1).
//!
//! Headers, digests and short data go into one growing arena; longer data stays where it is and is sent from there. What is
//! digested is what travels: `TxData` is immutable and shared, so no later change of the caller's memory can reach it.
//!
//! Data that are made for sending ([`Assemble`]) are made when their turn comes, a few PDUs ahead of the driver: so they are in
//! the cache when the kernel takes them, and their memory is that of a few PDUs, however many commands wait for their answers.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use iscsi_wire::{Bhs, Opcode};

use crate::digest::{self, DigestScope};

/// Data up to this many bytes is copied behind its header instead of taking a segment of its own: cheaper than an iovec.
const INLINE_DATA_BYTES: usize = 512;
/// Space that the header arena asks for at a time, bytes.
const ARENA_BYTES: usize = 16 * 1024;
/// Used arenas that are kept for their return.
const MAX_USED_ARENAS: usize = 8;
/// Data are made as long as less than this waits for the driver, bytes: a call of the kernel is nothing beside so many, and
/// they fit into the second-level cache with what they are made of.
const MADE_BYTES: usize = 256 * 1024;

/// Bytes to send, as they are.
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

/// Makes data when they are sent.
pub trait Assemble: Debug + Send + Sync {
    /// All of them, bytes.
    fn total_bytes(&self) -> usize;

    /// The bytes `range`, which lies in them, stable from here on: the same ones whenever they are asked for.
    fn part(&self, range: Range<usize>) -> TxData;
}

/// The data segment of a PDU to send.
#[derive(Clone, Debug)]
pub enum TxSegment {
    /// Bytes that are there.
    Made(TxData),
    /// Bytes that are made when the PDU is sent: those of the range.
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

    /// The bytes, for those who look at what is sent.
    pub fn bytes(&self) -> Bytes {
        self.clone().make().bytes
    }

    /// The bytes, made now if they have to be.
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
    /// Arenas whose space is used up; they come back when what was written in them has been sent.
    used_arenas: VecDeque<BytesMut>,
    segments: VecDeque<Segment>,
    /// PDUs whose data are still to be made and those behind them, with the digests that were in force when they came.
    waiting: VecDeque<(TxPdu, DigestScope)>,
    /// Of what is made and not yet sent.
    made_bytes: usize,
    /// Of what is waiting.
    waiting_bytes: usize,
    /// Of both, what is of no Data-In PDU.
    answer_bytes: usize,
    /// Of these, in the arena.
    arena_answer_bytes: usize,
}

/// Bytes that are ready to be sent.
#[derive(Debug)]
struct Segment {
    bytes: Bytes,
    /// Of these, what is of no Data-In PDU.
    answer_bytes: usize,
}

/// Whether a command has memory for what a PDU brings. All others are said without anybody having been asked.
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

    /// Puts negotiated digests in force for the PDUs pushed from now on.
    //= rfc7143 13.1 DIG-04
    pub fn set_digests(&mut self, digests: DigestScope) {
        self.digests = digests;
    }

    /// Queues one PDU.
    ///
    /// # Panics
    /// When the data segment exceeds 2^24-1 bytes or the AHS 1020 bytes: the session splits data long before.
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

    /// Makes what is waiting, as much of it as is worth a call of the driver.
    fn make(&mut self) {
        while self.made_bytes < MADE_BYTES
            && let Some((pdu, digests)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= self.encode(pdu, digests);
        }
    }

    /// Turns a PDU into segments; its length as it travels, bytes.
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
        // Padding is always zero: no byte of memory that we did not write leaves with it.
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

    /// Of [`PduWriter::queued_bytes`], those of all PDUs but Data-In.
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

    /// Takes up to `max` segments off the queue, for a driver that owns what it sends. Behind data that had to be made others may
    /// be left, whose turn comes when these are sent.
    pub fn take(&mut self, max: usize, out: &mut Vec<Bytes>) {
        self.make();
        self.seal_arena();
        let n = max.min(self.segments.len());
        for Segment { bytes, answer_bytes } in self.segments.drain(..n) {
            self.made_bytes -= bytes.len();
            self.answer_bytes -= answer_bytes;
            out.push(bytes);
        }
    }

    /// Drops the first `sent` bytes of the queue: they are on their way.
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
            let answer_bytes = std::mem::take(&mut self.arena_answer_bytes);
            self.segments.push_back(Segment { bytes: self.arena.split().freeze(), answer_bytes });
        }
    }
}
