//! How a shim handles each packet that it gets from a device: cut, stamp, judge, join. It does no I/O: packets go to a [`Ports`].

use engine::tun::{Gso, VnetHeader};
use serde::{Deserialize, Serialize};
use tcp_crc::{
    Action, Config, Direction, Flow, Flows, Joined, OnMissing, Packet, Plain, State, Unsuitable, cut,
    finish_sums, resets,
};

use crate::icmp;

/// The two destinations of packets.
pub trait Ports {
    /// To the programs' own TCP.
    fn inside(&mut self, header: &VnetHeader, packet: &[u8]);
    /// To the network.
    fn outside(&mut self, header: &VnetHeader, packet: &[u8]);
}

/// Packets that no connection's counters include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounters {
    /// Packets other than TCP, forwarded.
    pub not_tcp: u64,
    /// TCP of connections that are not in the table, forwarded: opened before the shim started, or when the table was full.
    pub unknown: u64,
    /// Fragments of IP packets, forwarded.
    pub fragments: u64,
    /// Fragments of IP packets from the network, discarded because the policy is strict.
    pub fragments_discarded: u64,
    /// Packets with unreadable headers or options, forwarded: TCP itself discards them.
    pub malformed: u64,
    /// Connections that were reset because their CRC vanished.
    pub resets: u64,
    /// Super-segments that were cut.
    pub cut: u64,
    /// Segments that were forwarded as part of a longer one.
    pub joined: u64,
    /// ICMP messages with a path MTU, lowered by the room that a CRC takes.
    pub path_mtu_lowered: u64,
    /// Super-segments discarded where they cannot be cut (BPF): the device's `gso_max_segs` is no longer 1.
    #[serde(default)]
    pub uncut: u64,
    /// What was not let through because a CRC is required ([`OnMissing::Required`]).
    #[serde(default)]
    pub turned_away: TurnedAway,
}

/// Connections that were reset because they would have been plain, by the reason, and segments without a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedAway {
    /// [`Plain::PeerSilent`].
    pub peer_silent: u64,
    /// [`Plain::NoCommonMethod`].
    pub no_common_method: u64,
    /// [`Plain::AnswerStripped`].
    pub answer_stripped: u64,
    /// [`Plain::Signed`].
    pub signed: u64,
    /// [`Plain::NoRoom`].
    pub no_room: u64,
    /// Segments of connections that are not in the table.
    pub unknown_segments: u64,
}

impl TurnedAway {
    /// The connections, without regard to the reason.
    pub fn connections(&self) -> u64 {
        self.peer_silent + self.no_common_method + self.answer_stripped + self.signed + self.no_room
    }

    fn count(&mut self, why: Plain) {
        match why {
            Plain::NoCommonMethod | Plain::NotOffered => self.no_common_method += 1,
            Plain::PeerSilent | Plain::RequestsLost => self.peer_silent += 1,
            Plain::AnswerStripped => self.answer_stripped += 1,
            Plain::Signed => self.signed += 1,
            Plain::NoRoom => self.no_room += 1,
        }
    }
}

/// One shim: the connections of one queue, and working memory for a packet.
pub struct Shim {
    flows: Flows,
    on_missing: OnMissing,
    growth_bytes: u16,
    counters: PacketCounters,
    arrived: Arrived,
    segment: Vec<u8>,
    written: Vec<u8>,
}

/// Judged segments that wait to be forwarded, and buffers.
#[derive(Default)]
struct Arrived {
    joined: Joined,
    written: Vec<u8>,
    resets: [Vec<u8>; 2],
}

impl Shim {
    /// A shim for at most `connections_max` connections; further ones stay plain.
    pub fn new(config: Config, connections_max: usize) -> Shim {
        let growth = |method| tcp_crc::growth_bytes(method, config.codepoints, false);
        Shim {
            flows: Flows::new(config, connections_max),
            on_missing: config.on_missing,
            growth_bytes: config.offer.methods().map(growth).max().unwrap_or(0),
            counters: PacketCounters::default(),
            arrived: Arrived::default(),
            segment: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Its connections.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Its counters of packets that belong to no connection.
    pub fn counters(&self) -> PacketCounters {
        self.counters
    }

    /// Handles a packet from the programs' TCP at `now_ms`. `bytes` is what a device has read; it may be cut in place.
    pub fn outbound(&mut self, now_ms: u64, header: &VnetHeader, bytes: &mut [u8], ports: &mut impl Ports) {
        let Shim { flows, counters, segment, written, .. } = self;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(why) => {
                count(counters, why);
                return ports.outside(header, bytes);
            }
        };
        let resets = &mut self.arrived.resets;
        let Some((_, flow)) = flows.find(now_ms, Direction::Out, &packet) else {
            counters.unknown += 1;
            if self.on_missing == OnMissing::Required && !packet.flags().rst() {
                counters.turned_away.unknown_segments += 1;
                return answer(&packet, resets, |reset| ports.inside(&VnetHeader::default(), reset));
            }
            return ports.outside(header, bytes);
        };
        let before = flow.state();
        let mss_bytes = if flow.is_plain() { 0 } else { super_bytes(header) };
        counters.cut += u64::from(is_super(mss_bytes, &packet));
        let packet_bytes = packet.bytes().len();
        let mut keep = false;
        cut(bytes, mss_bytes, segment, |piece| match flow.handle(Direction::Out, piece, written) {
            Action::Rewritten => ports.outside(&VnetHeader::default(), written),
            Action::Keep if piece.bytes().len() == packet_bytes => keep = true,
            Action::Keep => {
                written.extend_from_slice(piece.bytes());
                finish_sums(written);
                ports.outside(&VnetHeader::default(), written);
            }
            // It may not go out without a CRC.
            Action::Discard(_) => {}
            Action::Reset => {
                count_refusal(flow, before, counters);
                let [there, back] = &mut *resets;
                tcp_crc::resets(piece, there, back);
                ports.inside(&VnetHeader::default(), back);
                if piece.flags().ack() {
                    ports.outside(&VnetHeader::default(), there);
                }
            }
        });
        if keep {
            ports.outside(header, bytes);
        }
    }

    /// Handles a packet from the network at `now_ms`. `bytes` is what a device has read; its sums may be completed in place, and it may be
    /// cut there.
    pub fn inbound(&mut self, now_ms: u64, header: &VnetHeader, bytes: &mut [u8], ports: &mut impl Ports) {
        // A single packet with an unfinished sum has never been on a wire: a program on this machine sent it.
        let mut header = *header;
        if header.sum_unfinished && header.gso == Gso::None && Packet::parse(bytes).is_ok() {
            finish_sums(bytes);
            header = VnetHeader::default();
        }
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(why) => {
                self.flush(ports);
                return self.unsuitable(why, &header, bytes, ports);
            }
        };
        let Shim { flows, counters, arrived, segment, written, .. } = self;
        let Some((_, flow)) = flows.find(now_ms, Direction::In, &packet) else {
            counters.unknown += 1;
            arrived.flush(counters, ports);
            if self.on_missing == OnMissing::Required && !packet.flags().rst() {
                counters.turned_away.unknown_segments += 1;
                let resets = &mut arrived.resets;
                return answer(&packet, resets, |reset| ports.outside(&VnetHeader::default(), reset));
            }
            return ports.inside(&header, bytes);
        };
        let mss_bytes = if flow.is_plain() { 0 } else { super_bytes(&header) };
        let is_super = is_super(mss_bytes, &packet);
        cut(bytes, mss_bytes, segment, |piece| {
            // Segments joined by a NIC or the kernel had right sums; after cutting, the sums must be made.
            if !is_super {
                return arrived.judge(flow, piece, Some(&header), counters, ports);
            }
            written.clear();
            written.extend_from_slice(piece.bytes());
            finish_sums(written);
            let mended = Packet::parse(written);
            arrived.judge(flow, mended.as_ref().unwrap_or(piece), None, counters, ports);
        });
    }

    /// Forwards what waits to be joined with more. To be called when no packet is waiting to be read.
    pub fn flush(&mut self, ports: &mut impl Ports) {
        self.arrived.flush(&mut self.counters, ports);
    }

    fn unsuitable(&mut self, why: Unsuitable, header: &VnetHeader, bytes: &mut [u8], ports: &mut impl Ports) {
        if why == Unsuitable::Fragment && self.on_missing != OnMissing::Lenient {
            self.counters.fragments_discarded += 1;
            return;
        }
        count(&mut self.counters, why);
        if icmp::lower_path_mtu(bytes, self.growth_bytes) {
            self.counters.path_mtu_lowered += 1;
        }
        ports.inside(header, bytes);
    }
}

impl Arrived {
    /// Judges one segment from the network, and forwards it, joins it, or resets its connection. `header` belongs to a segment that was
    /// received alone.
    fn judge(
        &mut self,
        flow: &mut Flow,
        piece: &Packet<'_>,
        header: Option<&VnetHeader>,
        counters: &mut PacketCounters,
        ports: &mut impl Ports,
    ) {
        let before = flow.state();
        match flow.handle(Direction::In, piece, &mut self.written) {
            Action::Discard(_) => {}
            // Its sum was not checked. The kernel will do that, so it is not joined with anything.
            Action::Keep => {
                self.flush(counters, ports);
                ports.inside(header.unwrap_or(&VnetHeader::default()), piece.bytes());
            }
            Action::Rewritten => self.join(counters, ports),
            Action::Reset => {
                counters.resets += u64::from(matches!(flow.state(), State::Protected(_)));
                count_refusal(flow, before, counters);
                self.flush(counters, ports);
                let [there, back] = &mut self.resets;
                resets(piece, there, back);
                ports.inside(&VnetHeader::default(), there);
                ports.outside(&VnetHeader::default(), back);
            }
        }
    }

    /// Joins the rewritten segment to those that wait, or forwards both.
    fn join(&mut self, counters: &mut PacketCounters, ports: &mut impl Ports) {
        let push = |arrived: &mut Arrived| {
            Packet::parse(&arrived.written).is_ok_and(|packet| arrived.joined.push(&packet))
        };
        if push(self) {
            return;
        }
        self.flush(counters, ports);
        if !push(self) {
            ports.inside(&VnetHeader::default(), &self.written);
        }
    }

    fn flush(&mut self, counters: &mut PacketCounters, ports: &mut impl Ports) {
        let Some(packet) = self.joined.take() else { return };
        if packet.segments == 1 {
            // CRC and sum were found right.
            let header = VnetHeader { sum_verified: true, ..VnetHeader::default() };
            return ports.inside(&header, packet.bytes);
        }
        counters.joined += packet.segments as u64;
        let header = VnetHeader {
            sum_unfinished: true,
            gso: if packet.bytes[0] >> 4 == 4 { Gso::TcpV4 } else { Gso::TcpV6 },
            header_bytes: packet.data_at as u16,
            gso_bytes: packet.mss_bytes as u16,
            sum_start: packet.tcp_at as u16,
            sum_offset: TCP_CHECKSUM_AT,
            ..VnetHeader::default()
        };
        ports.inside(&header, packet.bytes);
    }
}

/// Offset of the Checksum field in a TCP header.
const TCP_CHECKSUM_AT: u16 = 16;

fn super_bytes(header: &VnetHeader) -> u16 {
    match header.gso {
        Gso::TcpV4 | Gso::TcpV6 => header.gso_bytes,
        Gso::None | Gso::Other(_) => 0,
    }
}

fn is_super(mss_bytes: u16, packet: &Packet<'_>) -> bool {
    mss_bytes != 0 && packet.data().len() > usize::from(mss_bytes)
}

/// Counts a connection that has just been refused.
fn count_refusal(flow: &Flow, before: State, counters: &mut PacketCounters) {
    if let State::Refused(why) = flow.state()
        && before != flow.state()
    {
        counters.turned_away.count(why);
    }
}

/// Answers a segment of an unknown connection with a RST, as a host without such a connection does.
fn answer(packet: &Packet<'_>, [there, back]: &mut [Vec<u8>; 2], send: impl FnOnce(&[u8])) {
    resets(packet, there, back);
    send(back);
}

fn count(counters: &mut PacketCounters, why: Unsuitable) {
    match why {
        Unsuitable::Protocol(_) | Unsuitable::Version(_) => counters.not_tcp += 1,
        Unsuitable::Fragment => counters.fragments += 1,
        _ => counters.malformed += 1,
    }
}
