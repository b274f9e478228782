//! Packets as a host makes them, and two shims with something in between.
#![allow(dead_code, reason = "each test binary uses its own part")]

use tcp_crc::{Action, Config, Direction, Flow, Packet, State};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

pub const MSS_1460: &[u8] = &[2, 4, 0x05, 0xb4];
/// Timestamps as Linux lays them out.
pub const TIMESTAMPS: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];

/// A segment whose fields tests may change.
#[derive(Clone, Debug)]
pub struct Segment {
    pub v6: bool,
    /// From the server to the client.
    pub back: bool,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub options: Vec<u8>,
    pub data: Vec<u8>,
}

impl Segment {
    pub fn new(flags: u8, data: &[u8]) -> Segment {
        let options = if flags & SYN != 0 { [MSS_1460, TIMESTAMPS].concat() } else { TIMESTAMPS.to_vec() };
        Segment { v6: false, back: false, flags, seq: 1000, ack: 5001, options, data: data.to_vec() }
    }

    pub fn back(self) -> Segment {
        Segment { back: true, ..self }
    }

    /// The packet, with right sums.
    pub fn bytes(&self) -> Vec<u8> {
        assert!(self.options.len() <= 40 && self.options.len().is_multiple_of(4));
        let mut tcp = Vec::new();
        let ports: [u16; 2] = if self.back { [3260, 40000] } else { [40000, 3260] };
        tcp.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([((20 + self.options.len()) / 4 * 16) as u8, self.flags, 0x10, 0, 0, 0, 0, 0]);
        tcp.extend(&self.options);
        tcp.extend(&self.data);
        let mut packet = self.ip(tcp.len());
        let tcp_at = packet.len();
        packet.extend(tcp);
        let sum = tcp_sum(&packet, tcp_at);
        packet[tcp_at + 16..][..2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn ip(&self, tcp_bytes: usize) -> Vec<u8> {
        let [from, to] = if self.back { [2, 1] } else { [1, 2] };
        if self.v6 {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend((tcp_bytes as u16).to_be_bytes());
            ip.extend([6, 64]);
            for host in [from, to] {
                ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
            return ip;
        }
        let mut ip = vec![0x45, 0];
        ip.extend(((20 + tcp_bytes) as u16).to_be_bytes());
        ip.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        let sum = !ones_sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip
    }
}

/// The one's complement sum, word by word, independent of the product's.
pub fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The correct Checksum, whatever the field holds.
pub fn tcp_sum(packet: &[u8], tcp_at: usize) -> u16 {
    let mut covered = pseudo_header(packet, packet.len() - tcp_at);
    covered.extend(&packet[tcp_at..]);
    let checksum_at = covered.len() - (packet.len() - tcp_at) + 16;
    covered[checksum_at..][..2].fill(0);
    !ones_sum(&covered)
}

/// The pseudo header, written from the standards.
pub fn pseudo_header(packet: &[u8], tcp_bytes: usize) -> Vec<u8> {
    let mut pseudo = Vec::new();
    if packet[0] >> 4 == 4 {
        pseudo.extend(&packet[12..20]);
        pseudo.extend([0, 6]);
        pseudo.extend((tcp_bytes as u16).to_be_bytes());
    } else {
        pseudo.extend(&packet[8..40]);
        pseudo.extend((tcp_bytes as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, 6]);
    }
    pseudo
}

/// Offset of TCP in packets of [`Segment`].
pub fn tcp_at(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 20 } else { 40 }
}

/// Corrects the sums of a packet after a middlebox has changed it.
pub fn mend_sums(packet: &mut [u8]) {
    let at = tcp_at(packet);
    if at == 20 {
        packet[10..12].fill(0);
        let sum = !ones_sum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let sum = tcp_sum(packet, at);
    packet[at + 16..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// Removes every option of `kind` from a packet by replacing it with NOPs, as middleboxes do.
pub fn take_out(packet: &mut [u8], kind: u8) {
    let at = tcp_at(packet) + 20;
    let end = tcp_at(packet) + usize::from(packet[tcp_at(packet) + 12] >> 4) * 4;
    let mut here = at;
    while here < end {
        match packet[here] {
            0 => break,
            1 => here += 1,
            found => {
                let length = usize::from(packet[here + 1]);
                if found == kind {
                    packet[here..here + length].fill(1);
                }
                here += length;
            }
        }
    }
    mend_sums(packet);
}

/// Two shims, one at each end of a connection.
pub struct Pair {
    pub client: Flow,
    pub server: Flow,
}

/// What reached the other end's TCP.
#[derive(Debug, PartialEq, Eq)]
pub enum Through {
    Arrived(Vec<u8>),
    Lost,
    Discarded,
    Reset,
}

impl Pair {
    pub fn new(client: Config, server: Config) -> Pair {
        Pair { client: Flow::new(client), server: Flow::new(server) }
    }

    /// Sends a segment from one end's TCP to the other's; `between` may change or drop the packet.
    pub fn send(&mut self, segment: &Segment, between: impl Fn(&mut Vec<u8>) -> bool) -> Through {
        let (from, to) = match segment.back {
            false => (&mut self.client, &mut self.server),
            true => (&mut self.server, &mut self.client),
        };
        let packet = segment.bytes();
        let mut out = Vec::new();
        let mut wire = match from.handle(Direction::Out, &Packet::parse(&packet).unwrap(), &mut out) {
            Action::Keep => packet,
            Action::Rewritten => out.clone(),
            other => panic!("a segment of our own: {other:?}"),
        };
        if !between(&mut wire) {
            return Through::Lost;
        }
        match to.handle(Direction::In, &Packet::parse(&wire).unwrap(), &mut out) {
            Action::Keep => Through::Arrived(wire),
            Action::Rewritten => Through::Arrived(out),
            Action::Discard(_) => Through::Discarded,
            Action::Reset => Through::Reset,
        }
    }

    /// The three segments of an open, and then a segment with data from each end.
    pub fn open(&mut self, between: impl Fn(&mut Vec<u8>) -> bool + Copy) {
        self.send(&syn(), between);
        self.send(&syn_ack(), between);
        self.send(&Segment { seq: 1001, ..Segment::new(ACK, b"") }, between);
        self.send(&Segment { seq: 1001, ..Segment::new(ACK, b"question") }, between);
        self.send(&answer(b"answer"), between);
    }

    pub fn states(&self) -> [State; 2] {
        [self.client.state(), self.server.state()]
    }
}

pub fn syn() -> Segment {
    Segment { ack: 0, ..Segment::new(SYN, b"") }
}

pub fn syn_ack() -> Segment {
    Segment { seq: 5000, ack: 1001, ..Segment::new(SYN | ACK, b"") }.back()
}

pub fn answer(data: &[u8]) -> Segment {
    Segment { seq: 5001, ack: 1009, ..Segment::new(ACK, data) }.back()
}

/// Nothing happens in transit.
pub fn clean(_: &mut Vec<u8>) -> bool {
    true
}
