//! One connection's framing on a driver: bytes in and out of [`PduReader`] and [`PduWriter`] with the fewest copies and calls.
//!
//! The owner feeds completions and, when it has handled a batch, calls [`Link::flush`]:
//! ```text
//! Received{conn, buffer, result: Ok(n)}  →  link.on_received(buffer, n)
//!                                           while let Some(pdu) = link.next_pdu()? { ... link.push(answer) ... }
//! Sent{conn, segments, result: Ok(())}   →  link.on_sent(segments)
//! after each of them, and after pushing  →  link.flush(driver)        one sendmsg for the batch, and the next receive
//! ```
//!
//! Receiving: PDUs are views of the buffer they arrived in, never copied. One receive takes in several of them if two or more PDUs of the
//! size that is arriving fit into it (`is_long`). Near the end of a buffer, the receive is limited so that the PDU at the end still fits
//! and the next one starts in a fresh buffer: only its first few KiB are ever moved. Quiet connections and logins use a small buffer, so
//! that many of them cost little.
//!
//! Bounds: receiving stops while more than `tx_high_water_bytes` wait to be sent, and resumes below half of that. If the owner sets
//! [`Link::set_answer_high_water`], no PDU is taken while more than that many bytes of answers wait, not counting Data-In PDUs: a peer that
//! does not read its answers cannot make us hold more of them than that and the last one.
//!
//! A receive buffer lives as long as any piece of it is kept. That is cheap while the ring has plenty. When it has not, small pieces are
//! copied out of the buffer; when the ring has none left, all pieces are ([`Pins`]). So the ring bounds the memory that the buffers of all
//! connections take up, whatever pieces peers make us keep.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use iscsi_core::digest::{DIGEST_BYTES, DigestScope};
use iscsi_core::pdu_reader::{DigestCounts, FramingError, PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::wire::{Bhs, MAX_AHS_LENGTH, padded_length};
use smallvec::SmallVec;

use crate::driver::{Driver, Token};
use crate::packing::{Packing, Progress};
use crate::slab::{Pins, SlabRing};

/// Receive buffer of a connection that is logging in or quiet, bytes.
const SMALL_CHUNK_BYTES: usize = 16 * 1024;
/// Smallest receive buffer of a busy connection, bytes.
const MIN_CHUNK_BYTES: usize = 256 * 1024;
/// The most that is moved from one buffer to the next to save receives, or read past a PDU that ends a buffer.
const MOVE_BYTES: usize = 4096;
/// What one receive should bring if that much has arrived, bytes: enough that the call hardly counts, and little enough that all of it is
/// still in the cache when the last of its PDUs is handled.
const RECEIVE_BYTES: usize = 256 * 1024;
/// The same amount of data plus the overhead of its PDUs, bytes, so that a receive of [`RECEIVE_BYTES`] does not end a few bytes before the
/// last PDU does.
const LARGEST_RECEIVE_BYTES: usize = RECEIVE_BYTES + MAX_PDU_OVERHEAD_BYTES;
/// After this many receives of at most [`MOVE_BYTES`] in a row a connection is quiet.
const QUIET_RECEIVES: u8 = 64;
/// The largest size of everything in a PDU but its data: BHS, AHS, and two digests.
const MAX_PDU_OVERHEAD_BYTES: usize = Bhs::SIZE + MAX_AHS_LENGTH + 2 * DIGEST_BYTES;
/// How much may wait to be sent before receiving stops, unless [`Link::set_tx_high_water`] says otherwise, bytes.
const DEFAULT_TX_HIGH_WATER_BYTES: usize = 4 * 1024 * 1024;
/// When receive buffers are scarce, data shorter than the buffer divided by this is copied, so that it does not pin the buffer.
const PINNING_PART: usize = 4;
/// Segments handed to the driver in one send.
const MAX_SEND_SEGMENTS: usize = 1024;

/// Traffic of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes given to the kernel for sending.
    pub tx_bytes: u64,
    /// PDUs received whole.
    pub rx_pdus: u64,
    /// PDUs queued for sending.
    pub tx_pdus: u64,
    /// Bytes of incomplete PDUs moved from one receive buffer to the next.
    pub rx_moved_bytes: u64,
    /// Digests of received PDUs.
    pub digests: DigestCounts,
}

/// One connection's framing.
#[derive(Debug)]
pub struct Link {
    token: Token,
    reader: PduReader,
    writer: PduWriter,
    slabs: SlabRing,

    /// Bytes received and not yet framed; with the driver while a receive is outstanding.
    buffer: BytesMut,
    /// Whole size of the slab that `buffer` is the rest of, bytes.
    chunk_bytes: usize,
    /// Which data may be kept in it.
    pins: Pins,
    /// Size to take next time, when busy, bytes.
    busy_chunk_bytes: usize,
    /// The longest PDU that may arrive, bytes.
    max_pdu_bytes: usize,
    receiving: bool,
    /// The most that the outstanding receive may bring, bytes.
    asked_bytes: usize,
    quiet_receives: u8,
    peer_closed: bool,
    /// Receiving has stopped because too much waits to be sent.
    paused: bool,

    segments: Vec<Bytes>,
    sending: bool,
    in_flight_bytes: usize,
    /// The part of these bytes that belongs to PDUs other than Data-In.
    in_flight_answer_bytes: usize,
    packing: Packing,
    /// The bytes received end in the middle of a PDU; maintained by [`Link::flush_behind_answers`].
    arrives_in_part: bool,
    tx_high_water_bytes: usize,
    answer_high_water_bytes: usize,
    /// PDUs that have arrived are not taken because too many answers wait to be sent.
    holding_back: bool,
    closing: bool,
    fin_sent: bool,

    stats: LinkStats,
}

impl Link {
    /// The framing of the connection that `token` names, in the login phase. Whenever `max_data_bytes` of the reader changes, call
    /// [`Link::set_max_data_bytes`]; until then the link makes room for PDUs of a login.
    pub fn new(token: Token, reader: PduReader, writer: PduWriter, slabs: SlabRing) -> Self {
        Self {
            token,
            reader,
            writer,
            slabs,
            buffer: BytesMut::new(),
            chunk_bytes: 0,
            pins: Pins::Anything,
            busy_chunk_bytes: SMALL_CHUNK_BYTES,
            max_pdu_bytes: MAX_PDU_OVERHEAD_BYTES + 8192,
            receiving: false,
            asked_bytes: 0,
            quiet_receives: QUIET_RECEIVES,
            peer_closed: false,
            paused: false,
            segments: Vec::new(),
            sending: false,
            in_flight_bytes: 0,
            in_flight_answer_bytes: 0,
            packing: Packing::default(),
            arrives_in_part: false,
            tx_high_water_bytes: DEFAULT_TX_HIGH_WATER_BYTES,
            answer_high_water_bytes: usize::MAX,
            holding_back: false,
            closing: false,
            fin_sent: false,
            stats: LinkStats::default(),
        }
    }

    /// The connection.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Continues under a new token, after one driver released the connection and another adopted it. Call [`Link::flush`] there.
    ///
    /// Only between [`Link::on_received`] and the next [`Link::flush`], and with everything sent: a driver that releases a connection drops
    /// the outstanding receive together with its buffer. Bytes received and not yet framed move along.
    pub fn rebind(&mut self, token: Token, slabs: SlabRing) {
        debug_assert!(!self.receiving && !self.sending);
        self.token = token;
        self.slabs = slabs;
    }

    /// Starts to receive.
    pub fn start<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        self.flush(driver);
    }

    /// Takes a completed receive of `n` bytes; 0 means that the peer has closed. Then take PDUs with [`Link::next_pdu`].
    pub fn on_received(&mut self, buffer: BytesMut, n: usize) {
        self.receiving = false;
        self.buffer = buffer;
        self.stats.rx_bytes += n as u64;
        self.peer_closed |= n == 0;
        self.quiet_receives = match n {
            n if n >= self.asked_bytes => 0,
            n if n <= MOVE_BYTES => self.quiet_receives.saturating_add(1).min(QUIET_RECEIVES),
            _ if self.quiet_receives < QUIET_RECEIVES => 0,
            _ => QUIET_RECEIVES,
        };
    }

    /// The next whole PDU that has arrived; `None` when there is none: call [`Link::flush`] then.
    ///
    /// # Errors
    /// The stream cannot be followed any further: close the connection.
    pub fn next_pdu(&mut self) -> Result<Option<RxPdu>, FramingError> {
        if self.closing {
            self.buffer.clear();
            return Ok(None);
        }
        let answers = self.answer_backlog_bytes();
        self.holding_back = answers
            > if self.holding_back { self.answer_high_water_bytes / 2 } else { self.answer_high_water_bytes };
        if self.holding_back {
            return Ok(None);
        }
        let Some(mut pdu) = self.reader.next(&mut self.buffer)? else { return Ok(None) };
        self.stats.rx_pdus += 1;
        if self.pins != Pins::Anything && self.is_too_small_to_keep(pdu.data.len()) {
            pdu.data = Bytes::copy_from_slice(&pdu.data);
        }
        Ok(Some(pdu))
    }

    /// Whether data of this length is copied, so that it does not pin the buffer.
    fn is_too_small_to_keep(&self, bytes: usize) -> bool {
        match self.pins {
            Pins::Anything => false,
            Pins::Large => bytes < self.chunk_bytes / PINNING_PART,
            Pins::Nothing => true,
        }
    }

    /// Queues a PDU for the next [`Link::flush`].
    pub fn push(&mut self, pdu: TxPdu) {
        self.stats.tx_pdus += 1;
        self.writer.push(pdu);
    }

    /// Bytes that have arrived and were not taken, for an owner that frames them itself. Then call [`Link::consume`].
    pub fn received(&self) -> &[u8] {
        if self.closing { &[] } else { &self.buffer }
    }

    /// Takes the first `bytes` of [`Link::received`].
    ///
    /// # Panics
    /// When there are fewer.
    pub fn consume(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
    }

    /// Queues whole PDUs with their digests, made by the owner, for the next [`Link::flush`].
    pub fn push_bytes(&mut self, bytes: Bytes) {
        self.writer.push_bytes(bytes);
    }

    /// Sends what is queued unless a send is outstanding, and receives unless a receive is outstanding or too much waits to be sent.
    pub fn flush<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        self.flush_bytes(driver, usize::MAX);
    }

    /// As [`Link::flush`], but on a slow path the end of what is queued may wait for more, to leave in a full segment (see
    /// `crate::packing`). Returns when to flush again in that case.
    pub fn flush_packed<D: Driver + ?Sized>(&mut self, driver: &mut D, now: Duration) -> Option<Duration> {
        self.flush_held(driver, now, false)
    }

    /// As [`Link::flush_packed`], and what is queued also waits for the rest of a PDU that has arrived in part. For commands, while
    /// others keep the peer busy.
    pub fn flush_behind_answers<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: Duration,
    ) -> Option<Duration> {
        // While a receive is outstanding, the buffer is with the driver, and nothing has changed.
        if !self.receiving {
            self.arrives_in_part = !self.reader.at_boundary(&self.buffer);
        }
        self.flush_held(driver, now, self.arrives_in_part)
    }

    fn flush_held<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: Duration,
        more_is_coming: bool,
    ) -> Option<Duration> {
        let queued_bytes = self.writer.queued_bytes();
        if self.sending || queued_bytes == 0 || self.closing {
            self.flush(driver);
            return None;
        }
        let (token, sent_bytes) = (self.token, self.stats.tx_bytes);
        let progress = Progress { queued_bytes, sent_bytes, more_is_coming };
        let ready = self.packing.ready_bytes(now, progress, || driver.tcp_info(token));
        self.flush_bytes(driver, ready);
        self.packing.asks_at(now)
    }

    /// Sends at most `bytes_max` of what is queued.
    fn flush_bytes<D: Driver + ?Sized>(&mut self, driver: &mut D, bytes_max: usize) {
        if !self.sending && self.writer.queued_bytes() > 0 && bytes_max > 0 && !self.fin_sent {
            let (queued, answers) = (self.writer.queued_bytes(), self.writer.answer_bytes());
            let mut segments = std::mem::take(&mut self.segments);
            self.writer.take_bytes(MAX_SEND_SEGMENTS, bytes_max, &mut segments);
            self.in_flight_bytes = queued - self.writer.queued_bytes();
            self.in_flight_answer_bytes = answers - self.writer.answer_bytes();
            self.sending = true;
            driver.send(self.token, segments);
        }
        if self.closing && !self.fin_sent && self.is_drained() {
            self.fin_sent = true;
            driver.shutdown_write(self.token);
        }
        self.receive(driver);
    }

    /// Takes a completed send and keeps `segments` for the next one. Then call [`Link::flush`].
    pub fn on_sent(&mut self, segments: Vec<Bytes>) {
        self.sending = false;
        self.stats.tx_bytes += self.in_flight_bytes as u64;
        (self.in_flight_bytes, self.in_flight_answer_bytes) = (0, 0);
        self.segments = segments;
    }

    /// Takes the end of the outstanding send if it is there already; true if it was. More can be sent then, without a wait.
    pub fn take_sent<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        let Some(segments) = driver.take_sent(self.token) else { return false };
        self.on_sent(segments);
        true
    }

    /// Applies negotiated digests to everything received from now on, including PDUs that have arrived but were not taken yet.
    pub fn set_rx_digests(&mut self, digests: DigestScope) {
        self.reader.set_digests(digests);
    }

    /// Applies negotiated digests to everything pushed from now on.
    pub fn set_tx_digests(&mut self, digests: DigestScope) {
        self.writer.set_digests(digests);
    }

    /// Sets the largest data segment accepted from now on, in bytes: our declared MaxRecvDataSegmentLength.
    pub fn set_max_data_bytes(&mut self, bytes: usize) {
        self.reader.set_max_data_bytes(bytes);
        self.max_pdu_bytes = padded_length(bytes) + MAX_PDU_OVERHEAD_BYTES;
        let chunk = (self.max_pdu_bytes + self.max_pdu_bytes / 2).next_power_of_two();
        self.busy_chunk_bytes = chunk.max(MIN_CHUNK_BYTES);
    }

    /// Sets how much may wait to be sent before receiving stops, in bytes.
    pub fn set_tx_high_water(&mut self, bytes: usize) {
        self.tx_high_water_bytes = bytes;
    }

    /// Sets how much may wait to be sent, not counting Data-In PDUs, before no more PDUs are taken, in bytes. Unlimited by default.
    pub fn set_answer_high_water(&mut self, bytes: usize) {
        self.answer_high_water_bytes = bytes;
    }

    /// True while PDUs that have arrived are not taken because too many answers wait to be sent: after [`Link::on_sent`] take
    /// them with [`Link::next_pdu`].
    pub fn is_holding_back(&self) -> bool {
        self.holding_back
    }

    /// The part of [`Link::tx_backlog_bytes`] that belongs to PDUs other than Data-In.
    pub fn answer_backlog_bytes(&self) -> usize {
        self.writer.answer_bytes() + self.in_flight_answer_bytes
    }

    /// Bytes queued or with the driver, not yet handed to the kernel.
    pub fn tx_backlog_bytes(&self) -> usize {
        self.writer.queued_bytes() + self.in_flight_bytes
    }

    /// True when everything pushed has been handed to the kernel.
    pub fn is_drained(&self) -> bool {
        self.tx_backlog_bytes() == 0 && !self.sending
    }

    /// True while receiving has stopped because too much waits to be sent.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Closes the connection in order: what is queued is still sent, then FIN. What arrives is discarded until the peer closes too. The
    /// owner closes the token when [`Link::peer_closed`] says so, or after a timeout of its own.
    pub fn close_after_flush(&mut self) {
        self.closing = true;
        self.buffer.clear();
    }

    /// True after [`Link::close_after_flush`].
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// True when the peer has closed its direction.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// True when the received bytes end between two PDUs, that is, when a close by the peer was orderly.
    pub fn at_boundary(&self) -> bool {
        !self.receiving && self.reader.at_boundary(&self.buffer)
    }

    /// Traffic so far.
    pub fn stats(&self) -> LinkStats {
        LinkStats { digests: self.reader.digest_counts(), ..self.stats }
    }

    fn receive<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        if self.receiving || self.peer_closed {
            return;
        }
        let backlog = self.tx_backlog_bytes();
        self.paused =
            self.holding_back || backlog > self.tx_high_water_bytes / if self.paused { 2 } else { 1 };
        if self.paused && !self.closing {
            return;
        }
        self.asked_bytes = if self.closing { self.room_to_discard() } else { self.make_room() };
        self.receiving = true;
        driver.recv_up_to(self.token, std::mem::take(&mut self.buffer), self.asked_bytes);
    }

    /// Any room will do for bytes that will be discarded.
    fn room_to_discard(&mut self) -> usize {
        self.buffer.clear();
        if self.buffer.capacity() < MOVE_BYTES {
            self.buffer = self.slabs.rx_buffer(SMALL_CHUNK_BYTES);
        }
        self.buffer.capacity()
    }

    /// Makes room for the next receive and returns how many bytes it may bring.
    fn make_room(&mut self) -> usize {
        let held = self.buffer.len();
        let missing = self.reader.missing(&self.buffer).max(1);
        let room = self.buffer.capacity() - held;
        let quiet = self.quiet_receives == QUIET_RECEIVES || self.busy_chunk_bytes == SMALL_CHUNK_BYTES;
        let chunk_bytes = if quiet { SMALL_CHUNK_BYTES } else { self.busy_chunk_bytes };
        let small = self.chunk_bytes == SMALL_CHUNK_BYTES;
        let worn = held <= MOVE_BYTES && room < self.chunk_bytes / 2;
        let wrong_size = held <= MOVE_BYTES && small != quiet;
        if missing > room || worn || wrong_size {
            let needed = held + missing + MOVE_BYTES;
            self.chunk_bytes = chunk_bytes;
            if needed > chunk_bytes {
                // A PDU too long for the small buffer ends the quiet state.
                self.quiet_receives = 0;
                self.chunk_bytes = needed.next_power_of_two().max(self.busy_chunk_bytes);
            }
            self.renew_buffer(needed);
        }
        let room = self.buffer.capacity() - held;
        let wanted = if self.chunk_bytes == SMALL_CHUNK_BYTES {
            room
        } else if self.is_long(missing) {
            // Up to the end of this PDU plus the header of the next, so that the next one starts in a buffer that is warm.
            missing + MOVE_BYTES
        } else {
            // If the receive also brings the start of another PDU, there should be room for all of that PDU. A fresh buffer still takes a
            // whole PDU at once if that leaves almost enough room.
            let fresh = held + room == self.chunk_bytes;
            let most = match fresh {
                true => self.receive_bytes(),
                false => room.saturating_sub(self.max_pdu_bytes),
            };
            most.min(LARGEST_RECEIVE_BYTES).saturating_sub(held).max(missing + MOVE_BYTES)
        };
        wanted.min(room)
    }

    /// Whether a PDU that misses this many bytes is received alone. If a second one of its size does not fit, a larger receive would only
    /// end in the middle of that one. For such PDUs the bytes dominate the cost, not the calls.
    fn is_long(&self, missing: usize) -> bool {
        2 * missing > self.receive_bytes()
    }

    /// How much a fresh buffer of a busy connection may take in at once, bytes: one PDU of the longest kind, whose length we have declared,
    /// and more if the rest would still hold another.
    fn receive_bytes(&self) -> usize {
        let roomy = self.chunk_bytes.saturating_sub(self.max_pdu_bytes);
        self.max_pdu_bytes.max(roomy).min(LARGEST_RECEIVE_BYTES)
    }

    /// Moves the held bytes to the front of a buffer of `chunk_bytes`, or of only as much as the PDU needs if the ring has no room.
    ///
    /// If there are few bytes, they are set aside while the old buffer goes back to the ring: if all of its PDUs are done with, it is the
    /// very buffer that the ring hands out next, and its lines are still in the cache.
    fn renew_buffer(&mut self, needed: usize) {
        let held = self.buffer.len();
        self.stats.rx_moved_bytes += held as u64;
        if held > MOVE_BYTES {
            let mut fresh = self.take_buffer(needed);
            fresh.extend_from_slice(&self.buffer);
            self.buffer = fresh;
            return;
        }
        let aside: SmallVec<[u8; MOVE_BYTES]> = SmallVec::from_slice(&self.buffer);
        self.buffer = BytesMut::new();
        self.buffer = self.take_buffer(needed);
        self.buffer.extend_from_slice(&aside);
    }

    fn take_buffer(&mut self, needed: usize) -> BytesMut {
        let least = needed.max(SMALL_CHUNK_BYTES);
        let (buffer, pins) = self.slabs.rx_buffer_within(self.chunk_bytes, least);
        self.pins = pins;
        if pins == Pins::Nothing {
            self.chunk_bytes = least;
            self.quiet_receives = QUIET_RECEIVES;
        }
        buffer
    }
}
