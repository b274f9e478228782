//! Observes every connection, independently of the products: cuts the bytes into PDUs, writes the transcript, passes each PDU to the
//! `rules`, and decides where a flipped bit would be covered by a digest.
//!
//! It sees what is sent, before anything on the way can harm it. A PDU that does not parse is a finding, except from hosts whose purpose is
//! to send such PDUs.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use iscsi_wire::{Bhs, LoginStage, Opcode, Pdu, one_line, padded_length};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::agreed::Agreed;
use crate::network::{FAR, Flips, NEAR, Side};
use crate::rules::{Rules, SessionId};
use crate::verdict::Verdict;
use crate::world::Nanos;

/// Digest bytes.
const DIGEST_BYTES: usize = 4;
/// Longest text that is kept, bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Most lines of a transcript.
const MAX_LINES: usize = 200_000;

/// A part of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// BHS, AHS and header digest.
    Header,
    /// Data segment, padding and data digest.
    Data,
}

/// One direction of a connection.
#[derive(Default)]
struct Stream {
    /// Stored bytes of the current PDU: its BHS, its AHS, and its data if they are text.
    kept: Vec<u8>,
    /// Bytes of it seen so far.
    seen: usize,
    /// Its length with digests; 0 until the BHS is complete.
    length: usize,
    header_digest: bool,
    data_digest: bool,
    /// Offset of the next byte in the stream.
    at: u64,
    flip: Option<Part>,
    blind_flip: bool,
}

impl Stream {
    /// Takes bytes of the current PDU, and stores those that are needed: the BHS, the AHS, and data that are text.
    fn keep(&mut self, bytes: &[u8]) {
        let wanted = match self.kept.first_chunk().map(|bhs| Bhs::from_bytes(*bhs)) {
            None => Bhs::SIZE,
            Some(bhs) if matches!(bhs.opcode(), 0x03 | 0x04 | 0x23 | 0x24) => Bhs::SIZE + MAX_TEXT_BYTES,
            Some(bhs) => Bhs::SIZE + bhs.total_ahs_length(),
        };
        let room = wanted.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.seen += bytes.len();
    }
}

struct ConnWatch {
    /// Number of the initiator's host, for the transcript.
    host: u8,
    streams: [Stream; 2],
    text: Vec<u8>,
    session: Option<SessionId>,
    full_feature: bool,
    hostile: bool,
}

/// See the module.
pub struct Watch {
    conns: FxHashMap<usize, ConnWatch>,
    rules: Rules,
    verdict: Verdict,
    transcript: Option<Vec<String>>,
    hostile: FxHashSet<IpAddr>,
    /// PDUs seen.
    pub pdus: u64,
    /// Bits that were flipped.
    pub flips: u64,
    /// A checksum over everything that was sent and when: two runs with the same sum are the same run.
    pub sum: u64,
}

/// A time in readable form: seconds.
pub fn stamp(now: Nanos) -> String {
    format!("{:>4}.{:06}", now / 1_000_000_000, now / 1_000 % 1_000_000)
}

impl Watch {
    /// Reports its findings to `verdict`. Hosts in `hostile` may send arbitrary data.
    pub fn new(verdict: Verdict, transcript: bool, hostile: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            conns: FxHashMap::default(),
            rules: Rules::new(verdict.clone()),
            verdict,
            transcript: transcript.then(Vec::new),
            hostile: hostile.into_iter().collect(),
            pdus: 0,
            flips: 0,
            sum: 0,
        }
    }

    /// The transcript so far.
    pub fn take_transcript(&mut self) -> Vec<String> {
        self.transcript.take().unwrap_or_default()
    }

    /// Adds a line to the transcript; `line` is called only when there is one.
    pub fn note(&mut self, now: Nanos, line: impl FnOnce() -> String) {
        if let Some(transcript) = &mut self.transcript
            && transcript.len() < MAX_LINES
        {
            transcript.push(format!("{} {}", stamp(now), line()));
        }
    }

    pub(crate) fn opened(&mut self, now: Nanos, conn: usize, from: SocketAddr) {
        let host = match from.ip() {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(_) => 0,
        };
        let watch = ConnWatch {
            host,
            streams: Default::default(),
            text: Vec::new(),
            session: None,
            full_feature: false,
            hostile: self.hostile.contains(&from.ip()),
        };
        self.conns.insert(conn, watch);
        self.note(now, || format!("-- I{host} connection {conn} stands"));
    }

    /// `conn` is disturbed from outside.
    pub(crate) fn harmed(&mut self, conn: usize) {
        self.rules.harmed(conn);
    }

    pub(crate) fn closed(&mut self, now: Nanos, conn: usize, side: Side) {
        let Some(host) = self.conns.get(&conn).map(|c| c.host) else { return };
        self.rules.closed(conn, side == NEAR);
        let who = if side == NEAR { format!("I{host}") } else { format!("T (of I{host})") };
        self.note(now, || format!("-- {who} closes connection {conn}"));
    }

    /// Flips a bit of the next PDU that `side` of `conn` sends and that has a digest over that part.
    pub fn flip_next(&mut self, conn: usize, side: Side, part: Part) {
        if let Some(watch) = self.conns.get_mut(&conn) {
            watch.streams[side.0].flip = Some(part);
        }
    }

    /// Flips a bit of the next data that `side` sends, whether or not a digest covers it: the judge must notice.
    pub fn flip_blindly(&mut self, conn: usize, side: Side) {
        if let Some(watch) = self.conns.get_mut(&conn) {
            watch.streams[side.0].blind_flip = true;
        }
    }

    /// `side` has handed bytes to its system.
    pub(crate) fn sent(&mut self, now: Nanos, conn: usize, side: Side, pieces: &[Bytes], flips: &mut Flips) {
        let Some(mut watch) = self.conns.remove(&conn) else { return };
        for piece in pieces {
            self.sum = self.sum.rotate_left(7) ^ (now << 20) ^ piece.len() as u64;
            if !watch.hostile {
                let mut left = &piece[..];
                while !left.is_empty() {
                    let n = self.feed(now, conn, &mut watch, side, left, flips);
                    left = &left[n..];
                }
            }
        }
        self.conns.insert(conn, watch);
    }

    /// Takes bytes of at most one PDU; returns how many.
    fn feed(
        &mut self,
        now: Nanos,
        conn: usize,
        watch: &mut ConnWatch,
        side: Side,
        bytes: &[u8],
        flips: &mut Flips,
    ) -> usize {
        let stream = &mut watch.streams[side.0];
        let target_length = if stream.length == 0 { Bhs::SIZE } else { stream.length };
        let n = bytes.len().min(target_length - stream.seen);
        stream.at += n as u64;
        stream.keep(&bytes[..n]);
        if stream.length == 0 && stream.seen == Bhs::SIZE {
            self.begin_pdu(now, conn, watch, side, flips);
        }
        let stream = &mut watch.streams[side.0];
        if stream.length > 0 && stream.seen == stream.length {
            let kept = std::mem::take(&mut stream.kept);
            stream.seen = 0;
            stream.length = 0;
            self.pdu(now, conn, watch, side, &kept);
            let stream = &mut watch.streams[side.0];
            stream.kept = kept;
            stream.kept.clear();
        }
        n
    }

    /// The BHS of a PDU is complete: its length is known, and where a bit may be flipped.
    fn begin_pdu(&mut self, now: Nanos, conn: usize, watch: &mut ConnWatch, side: Side, flips: &mut Flips) {
        let stream = &mut watch.streams[side.0];
        let Some(bhs) = stream.kept.first_chunk().map(|bytes| Bhs::from_bytes(*bytes)) else { return };
        let header = Bhs::SIZE + bhs.total_ahs_length() + if stream.header_digest { DIGEST_BYTES } else { 0 };
        let data = match bhs.data_segment_length() {
            0 => 0,
            length => padded_length(length) + if stream.data_digest { DIGEST_BYTES } else { 0 },
        };
        stream.length = header + data;
        for word in bhs.as_bytes().chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            self.sum = (self.sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let start = stream.at - Bhs::SIZE as u64;
        let place = match stream.flip {
            Some(Part::Header) if stream.header_digest => Some((start, header)),
            Some(Part::Data) if stream.data_digest && data > 0 => Some((start + header as u64, data)),
            _ if stream.blind_flip && data > 0 && matches!(bhs.opcode(), 0x05 | 0x25) => {
                stream.blind_flip = false;
                Some((start + header as u64, bhs.data_segment_length()))
            }
            _ => None,
        };
        let Some((from, length)) = place else { return };
        stream.flip = None;
        self.rules.harmed(conn);
        // The byte is derived from state here, so that the run's random generator is not used.
        let at = from + self.sum % length as u64;
        flips.push(at);
        self.flips += 1;
        let host = watch.host;
        self.note(now, || {
            format!("!! a bit of the next PDU on connection {conn} of I{host} flips (byte {})", at - start)
        });
    }

    fn pdu(&mut self, now: Nanos, conn: usize, watch: &mut ConnWatch, side: Side, kept: &[u8]) {
        let Some(bhs) = kept.first_chunk().map(|bytes| Bhs::from_bytes(*bytes)) else { return };
        let ahs_end = (Bhs::SIZE + bhs.total_ahs_length()).min(kept.len());
        let ahs = &kept[Bhs::SIZE..ahs_end];
        self.pdus += 1;
        let cid = self.rules.cid_of(conn);
        let host = watch.host;
        let text = text_of(&bhs, &kept[ahs_end..]);
        self.note(now, || {
            let arrow = if side == NEAR { format!("I{host}>") } else { format!("T{host}<") };
            let mut line = one_line(&bhs, ahs);
            if let Some(cid) = cid {
                let at = line.find(' ').unwrap_or(line.len());
                line.insert_str(at, &format!(" cid={cid}"));
            }
            for item in text.split(|byte| *byte == 0).filter(|item| !item.is_empty()) {
                let _ = write!(line, " {}", String::from_utf8_lossy(item));
            }
            format!("{arrow} {line}")
        });
        let pdu = match Pdu::parse(&bhs) {
            Ok(pdu) => pdu,
            Err(error) => {
                return self.verdict.broken(format!("connection {conn}: a PDU that does not parse: {error}"));
            }
        };
        match &pdu {
            Pdu::LoginRequest(request) => {
                watch.text.extend_from_slice(text);
                self.rules.login_request(conn, request);
            }
            Pdu::LoginResponse(response) => {
                watch.text.extend_from_slice(text);
                self.rules.login_response(conn, response);
                let last = response.transit && response.nsg == Some(LoginStage::FullFeature);
                if last && response.status.class() == 0 {
                    let agreed = Agreed::from_text(&watch.text);
                    for stream in &mut watch.streams {
                        stream.header_digest = agreed.header_digest;
                        stream.data_digest = agreed.data_digest;
                    }
                    watch.text.clear();
                    watch.full_feature = true;
                    watch.session = self.rules.established(conn, host, response, &agreed);
                }
            }
            _ if !watch.full_feature => {
                let name = Opcode::name(pdu.opcode());
                self.verdict.broken(format!("connection {conn}: {name} before the login has ended"));
            }
            _ => {
                let data = bhs.data_segment_length() as u32;
                if let Some(session) = watch.session {
                    match side {
                        FAR => self.rules.sent_by_target(session, conn, &pdu, data),
                        _ => self.rules.sent_by_initiator(session, conn, &pdu, data),
                    }
                }
            }
        }
    }

    /// Whether `conn` has digests over headers and over data.
    pub fn digests(&self, conn: usize) -> (bool, bool) {
        self.conns
            .get(&conn)
            .map_or((false, false), |c| (c.streams[0].header_digest, c.streams[0].data_digest))
    }
}

/// The text of a PDU that carries text.
fn text_of<'a>(bhs: &Bhs, rest: &'a [u8]) -> &'a [u8] {
    match bhs.opcode() {
        0x03 | 0x04 | 0x23 | 0x24 => &rest[..bhs.data_segment_length().min(rest.len())],
        _ => &[],
    }
}
