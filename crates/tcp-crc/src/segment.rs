//! TCP super-segments. Those that a kernel leaves for a NIC to cut are cut here, so that each segment has a CRC of its own. Segments
//! received one by one are joined again, as a NIC's receive offload does (`Documentation/networking/segmentation-offloads.rst`).

use crate::packet::{Flags, Packet, TCP_HEADER_BYTES, sum_of, sum_of_header};

const CHECKSUM_AT: usize = 16;
const FLAGS_AT: usize = 13;
/// Longest packet that the length fields of both IP versions can express.
const MAX_PACKET_BYTES: usize = 65535;

/// Cuts the packet in `bytes` into segments of `mss_bytes` of data, the last one shorter, and passes each to `each`. A packet with no more
/// data than that, or without a size, is passed unchanged; what is no packet is not passed.
///
/// Each segment has its own sequence number, IPv4 identification and length; FIN and PSH stay with the last segment, CWR with the first.
/// **Neither IPv4's nor TCP's sum is computed**: stamping or stripping a segment computes both; otherwise use [`finish_sums`].
///
/// No data are copied: the headers of a segment are written in front of its data, over data of segments before it. So after a cut, `bytes`
/// are of no use. `head` is only working memory.
pub fn cut(bytes: &mut [u8], mss_bytes: u16, head: &mut Vec<u8>, mut each: impl FnMut(&Packet<'_>)) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let mss = usize::from(mss_bytes);
    if mss == 0 || packet.data().len() <= mss {
        return each(&packet);
    }
    let tcp_at = packet.ip_header().len();
    let header_bytes = tcp_at + packet.tcp_header().len();
    let data_bytes = packet.data().len();
    let last = data_bytes.div_ceil(mss) - 1;
    let (is_ipv4, first) = (packet.is_ipv4(), packet.sequence_number());
    head.clear();
    head.extend_from_slice(&packet.bytes()[..header_bytes]);
    let identification = u16::from_be_bytes([head[4], head[5]]);
    let flags = head[tcp_at + FLAGS_AT];
    for i in 0..=last {
        let at = i * mss;
        let segment = &mut bytes[at..(at + mss).min(data_bytes) + header_bytes];
        segment[..header_bytes].copy_from_slice(head);
        set_ip_length(segment);
        if is_ipv4 {
            segment[4..6].copy_from_slice(&identification.wrapping_add(i as u16).to_be_bytes());
        }
        segment[tcp_at + 4..][..4].copy_from_slice(&first.wrapping_add(at as u32).to_be_bytes());
        let not_last = if i == last { 0 } else { Flags::FIN | Flags::PSH };
        let not_first = if i == 0 { 0 } else { Flags::CWR };
        segment[tcp_at + FLAGS_AT] = flags & !(not_last | not_first);
        if let Ok(segment) = Packet::parse(segment) {
            each(&segment);
        }
    }
}

/// Computes IPv4's header sum and TCP's sum of a packet, if it carries a whole TCP segment.
pub fn finish_sums(bytes: &mut [u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let (tcp_at, is_ipv4, length) = (packet.ip_header().len(), packet.is_ipv4(), packet.bytes().len());
    let (pseudo, pseudo_bytes) = packet.pseudo_header(length - tcp_at);
    bytes[tcp_at + CHECKSUM_AT..][..2].fill(0);
    let sum = !sum_of(&[&pseudo[..pseudo_bytes], &bytes[tcp_at..length]]);
    bytes[tcp_at + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    if is_ipv4 {
        set_ipv4_sum(&mut bytes[..tcp_at]);
    }
}

fn set_ip_length(packet: &mut [u8]) {
    let length = packet.len() as u16;
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&length.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
    }
}

fn set_ipv4_sum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !sum_of_header(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Consecutive segments of one connection, without a gap and differing only in their data, as one packet.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    packet: Vec<u8>,
    tcp_at: usize,
    data_at: usize,
    /// Data of the first segment; no later one has more.
    mss_bytes: usize,
    segments: usize,
    /// The last segment was shorter or had PSH, so no more may follow.
    closed: bool,
}

/// A packet of [`Joined`], ready to be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Super<'a> {
    /// The packet. With several segments, its TCP sum is that of the pseudo header alone, not inverted: the form that a kernel expects for
    /// a sum to be completed by others. With a single one the sum is right.
    pub bytes: &'a [u8],
    /// Offset of TCP.
    pub tcp_at: usize,
    /// Offset of the data.
    pub data_at: usize,
    /// Data in each segment but the last.
    pub mss_bytes: usize,
    /// The number of segments in it.
    pub segments: usize,
}

impl Joined {
    /// Takes `packet` if it is the next one. A packet not taken must be forwarded after [`Joined::take`]. A segment without data, or with
    /// flags other than ACK and PSH, is never taken.
    pub fn push(&mut self, packet: &Packet<'_>) -> bool {
        let flags = packet.flags();
        if packet.data().is_empty() || flags.0 & !Flags::PSH != Flags::ACK {
            return false;
        }
        if self.segments == 0 {
            self.packet.clear();
            self.packet.extend_from_slice(packet.bytes());
            self.tcp_at = packet.ip_header().len();
            self.data_at = self.tcp_at + packet.tcp_header().len();
            self.mss_bytes = packet.data().len();
        } else if self.closed || !self.is_followed_by(packet) {
            return false;
        } else {
            self.packet[self.tcp_at + FLAGS_AT] |= flags.0;
            self.packet.extend_from_slice(packet.data());
        }
        self.segments += 1;
        self.closed = flags.0 & Flags::PSH != 0 || packet.data().len() < self.mss_bytes;
        true
    }

    fn is_followed_by(&self, packet: &Packet<'_>) -> bool {
        let (ours, theirs) = (&self.packet[..self.data_at], packet.bytes());
        let data = packet.data();
        if theirs.len() - data.len() != self.data_at
            || packet.ip_header().len() != self.tcp_at
            || data.len() > self.mss_bytes
            || self.packet.len() + data.len() > MAX_PACKET_BYTES
        {
            return false;
        }
        let tcp = self.tcp_at;
        let first = u32::from_be_bytes([ours[tcp + 4], ours[tcp + 5], ours[tcp + 6], ours[tcp + 7]]);
        let next = first.wrapping_add((self.packet.len() - self.data_at) as u32);
        // IP's length, and IPv4's identification and sum, differ from packet to packet.
        let same_ip = match packet.is_ipv4() {
            true => {
                ours[..2] == theirs[..2] && ours[6..10] == theirs[6..10] && ours[12..tcp] == theirs[12..tcp]
            }
            false => ours[..4] == theirs[..4] && ours[6..tcp] == theirs[6..tcp],
        };
        // Ports; acknowledgement number and header length; window; the bytes after Checksum.
        let same = |from: usize, to: usize| ours[from..to] == theirs[from..to];
        same_ip
            && next == packet.sequence_number()
            && same(tcp, tcp + 4)
            && same(tcp + 8, tcp + FLAGS_AT)
            && same(tcp + 14, tcp + CHECKSUM_AT)
            && same(tcp + 18, self.data_at)
    }

    /// The packet joined so far, if any; this is empty afterwards.
    pub fn take(&mut self) -> Option<Super<'_>> {
        let segments = std::mem::take(&mut self.segments);
        if segments > 1 {
            set_ip_length(&mut self.packet);
            if self.packet[0] >> 4 == 4 {
                set_ipv4_sum(&mut self.packet[..self.tcp_at]);
            }
            // This cannot fail: the packet was made of parsed packets, and its lengths are right.
            let (pseudo, pseudo_bytes) =
                Packet::parse(&self.packet).ok()?.pseudo_header(self.packet.len() - self.tcp_at);
            let sum = sum_of(&[&pseudo[..pseudo_bytes]]);
            self.packet[self.tcp_at + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        }
        (segments > 0).then_some(Super {
            bytes: &self.packet,
            tcp_at: self.tcp_at,
            data_at: self.data_at,
            mss_bytes: self.mss_bytes,
            segments,
        })
    }
}

const _: () = assert!(CHECKSUM_AT + 2 < TCP_HEADER_BYTES);
