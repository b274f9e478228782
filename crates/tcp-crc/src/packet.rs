//! An IP packet that carries one whole TCP segment (RFC 791, RFC 8200, RFC 9293).

use core::net::IpAddr;
use core::ops::Range;

use thiserror::Error;

use crate::options::{MAX_OPTION_BYTES, OptionError, TcpOptions, kind};

/// Protocol number of TCP.
const TCP: u8 = 6;
/// Bytes of a TCP header without options.
pub(crate) const TCP_HEADER_BYTES: usize = 20;
/// The most IPv6 extension headers that are walked.
const MAX_EXTENSION_HEADERS: usize = 8;

/// Why a packet cannot carry a CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unsuitable {
    /// Neither version 4 nor 6.
    #[error("IP version {0}")]
    Version(u8),
    /// A protocol other than TCP.
    #[error("protocol {0}, not TCP")]
    Protocol(u8),
    /// An IP fragment: a CRC covers whole segments.
    #[error("an IP fragment")]
    Fragment,
    /// Shorter than its own headers claim.
    #[error("the packet ends in its {0} header")]
    Truncated(&'static str),
    /// A length field that contradicts the packet.
    #[error("the {0} header says a length that cannot be")]
    Length(&'static str),
    /// An IPv6 jumbogram (RFC 2675).
    #[error("a jumbogram")]
    Jumbogram,
    /// Too many extension headers, or encrypted ones.
    #[error("IPv6 extension header {0} is not walked")]
    Extension(u8),
    /// The TCP options cannot be parsed.
    #[error(transparent)]
    Options(#[from] OptionError),
}

/// The flags of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const RST: u8 = 4;
    pub(crate) const PSH: u8 = 8;
    pub(crate) const ACK: u8 = 16;
    pub(crate) const CWR: u8 = 128;

    /// The last segment of its direction.
    pub fn fin(self) -> bool {
        self.0 & 1 != 0
    }
    /// The first segment of its direction.
    pub fn syn(self) -> bool {
        self.0 & 2 != 0
    }
    /// The connection is reset.
    pub fn rst(self) -> bool {
        self.0 & 4 != 0
    }
    /// The acknowledgement number is valid.
    pub fn ack(self) -> bool {
        self.0 & 16 != 0
    }
}

/// A packet whose headers have been checked: every length in it is true, every option can be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    tcp_at: usize,
    data_at: usize,
}

impl<'a> Packet<'a> {
    /// Parses the packet at the front of `bytes`; anything after its IP length (padding of a link) is left out.
    ///
    /// # Errors
    /// Why it cannot carry a CRC. The caller decides whether such a packet is forwarded unchanged or discarded.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Unsuitable> {
        let (tcp_at, bytes) = match bytes.first().ok_or(Unsuitable::Truncated("IP"))? >> 4 {
            4 => ipv4(bytes)?,
            6 => ipv6(bytes)?,
            version => return Err(Unsuitable::Version(version)),
        };
        let tcp = &bytes[tcp_at..];
        if tcp.len() < TCP_HEADER_BYTES {
            return Err(Unsuitable::Truncated("TCP"));
        }
        let header_bytes = usize::from(tcp[12] >> 4) * 4;
        if header_bytes < TCP_HEADER_BYTES {
            return Err(Unsuitable::Length("TCP"));
        }
        if tcp.len() < header_bytes {
            return Err(Unsuitable::Truncated("TCP"));
        }
        let packet = Packet { bytes, tcp_at, data_at: tcp_at + header_bytes };
        TcpOptions::new(packet.option_bytes()).try_for_each(|option| option.map(|_| ()))?;
        Ok(packet)
    }

    /// The whole packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The IP header with its options or extension headers.
    pub(crate) fn ip_header(&self) -> &'a [u8] {
        &self.bytes[..self.tcp_at]
    }

    /// The TCP header with its options.
    pub(crate) fn tcp_header(&self) -> &'a [u8] {
        &self.bytes[self.tcp_at..self.data_at]
    }

    /// The data of the segment.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.data_at..]
    }

    fn option_bytes(&self) -> &'a [u8] {
        &self.bytes[self.tcp_at + TCP_HEADER_BYTES..self.data_at]
    }

    /// The TCP options.
    pub fn options(&self) -> impl Iterator<Item = crate::TcpOption<'a>> + use<'a> {
        // `parse` has parsed them all once.
        TcpOptions::new(self.option_bytes()).map_while(Result::ok)
    }

    /// Whether the segment has an option with a digest over the header, which forbids any change (TCP-MD5, TCP-AO).
    pub fn is_signed(&self) -> bool {
        self.options().any(|option| matches!(option.kind, kind::MD5 | kind::AO))
    }

    fn u32_at(&self, at: usize) -> u32 {
        let bytes = &self.bytes[self.tcp_at + at..][..4];
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[self.tcp_at + at], self.bytes[self.tcp_at + at + 1]])
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        self.u16_at(0)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        self.u16_at(2)
    }

    /// Sequence number.
    pub fn sequence_number(&self) -> u32 {
        self.u32_at(4)
    }

    /// Acknowledgement number; valid only with [`Flags::ack`].
    pub fn acknowledgement_number(&self) -> u32 {
        self.u32_at(8)
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        Flags(self.bytes[self.tcp_at + 13])
    }

    /// The Checksum field.
    pub fn checksum(&self) -> u16 {
        self.u16_at(16)
    }

    /// Whether the packet is IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.bytes[0] >> 4 == 4
    }

    /// Source and destination address.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        let [source, destination] = self.address_ranges().map(|range| &self.bytes[range]);
        (address(source), address(destination))
    }

    pub(crate) fn address_ranges(&self) -> [Range<usize>; 2] {
        if self.is_ipv4() { [12..16, 16..20] } else { [8..24, 24..40] }
    }

    /// The pseudo header of a segment of `tcp_bytes` bytes between the packet's addresses (RFC 9293 3.1: 12 bytes, RFC 8200 8.1: 40 bytes),
    /// and its length.
    pub(crate) fn pseudo_header(&self, tcp_bytes: usize) -> ([u8; 40], usize) {
        let mut pseudo = [0; 40];
        let mut length = 0;
        for range in self.address_ranges() {
            let address = &self.bytes[range];
            pseudo[length..][..address.len()].copy_from_slice(address);
            length += address.len();
        }
        if self.is_ipv4() {
            pseudo[length + 1] = TCP;
            pseudo[length + 2..][..2].copy_from_slice(&(tcp_bytes as u16).to_be_bytes());
            (pseudo, 12)
        } else {
            pseudo[length..][..4].copy_from_slice(&(tcp_bytes as u32).to_be_bytes());
            pseudo[length + 7] = TCP;
            (pseudo, 40)
        }
    }

    /// Whether the Checksum field holds TCP's own sum.
    pub fn sum_is_right(&self) -> bool {
        let tcp = &self.bytes[self.tcp_at..];
        let (pseudo, length) = self.pseudo_header(tcp.len());
        sum_of(&[&pseudo[..length], tcp]) == 0xffff
    }
}

/// The one's complement sum of several pieces; each but the last has an even number of bytes.
pub(crate) fn sum_of(pieces: &[&[u8]]) -> u16 {
    sum_with(0, pieces)
}

/// [`sum_of`], with what others have summed up; each piece has an even number of bytes.
pub(crate) fn sum_with(sum: u16, pieces: &[&[u8]]) -> u16 {
    let pieces = pieces.iter().map(|piece| match piece.len() {
        ..=HEADER_BYTES_MAX => u32::from(sum_of_header(piece)),
        _ => u32::from(!integrity::ip_checksum(piece)),
    });
    let sum = u32::from(sum) + pieces.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// Bytes that are summed here: for so few, choosing instructions takes longer than summing.
const HEADER_BYTES_MAX: usize = 60;

/// The one's complement sum of at most a header.
pub(crate) fn sum_of_header(header: &[u8]) -> u16 {
    let (words, rest) = header.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let mut sum: u64 = words.iter().chain([&last]).map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    // The words were added in memory order (RFC 1071 section 2B).
    u16::from_be((sum + (sum >> 16)) as u16)
}

fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default()),
    }
}

/// The offset of TCP, and the packet without padding of the link.
fn ipv4(bytes: &[u8]) -> Result<(usize, &[u8]), Unsuitable> {
    if bytes.len() < 20 {
        return Err(Unsuitable::Truncated("IP"));
    }
    let header_bytes = usize::from(bytes[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    if header_bytes < 20 || total < header_bytes {
        return Err(Unsuitable::Length("IP"));
    }
    if bytes[9] != TCP {
        return Err(Unsuitable::Protocol(bytes[9]));
    }
    // More fragments, or an offset.
    if u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff != 0 {
        return Err(Unsuitable::Fragment);
    }
    let packet = bytes.get(..total).ok_or(Unsuitable::Truncated("IP"))?;
    Ok((header_bytes, packet))
}

fn ipv6(bytes: &[u8]) -> Result<(usize, &[u8]), Unsuitable> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    /// Extension headers that do not have the form next header, length, or that hide what follows: ESP, AH, mobility and above.
    const UNWALKED: [u8; 5] = [50, 51, 135, 139, 140];

    if bytes.len() < 40 {
        return Err(Unsuitable::Truncated("IP"));
    }
    let payload = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    if payload == 0 && bytes[6] == HOP_BY_HOP {
        return Err(Unsuitable::Jumbogram);
    }
    let packet = bytes.get(..40 + payload).ok_or(Unsuitable::Truncated("IP"))?;
    let (mut next, mut at) = (packet[6], 40);
    for _ in 0..MAX_EXTENSION_HEADERS {
        match next {
            TCP => return Ok((at, packet)),
            // A routing header with segments left means that the final destination differs from the one in the IP header, so the pseudo
            // header would differ too (RFC 8200 8.1).
            ROUTING if packet.get(at + 3).is_none_or(|left| *left != 0) => {
                return Err(Unsuitable::Extension(next));
            }
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let [following, length] = packet.get(at..at + 2).ok_or(Unsuitable::Truncated("IP"))? else {
                    return Err(Unsuitable::Truncated("IP"));
                };
                at += 8 + usize::from(*length) * 8;
                next = *following;
                if at > packet.len() {
                    return Err(Unsuitable::Truncated("IP"));
                }
            }
            FRAGMENT => return Err(Unsuitable::Fragment),
            next if UNWALKED.contains(&next) => return Err(Unsuitable::Extension(next)),
            next => return Err(Unsuitable::Protocol(next)),
        }
    }
    Err(Unsuitable::Extension(next))
}

const _: () = assert!(TCP_HEADER_BYTES + MAX_OPTION_BYTES == 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_summed_as_data_are() {
        let random: Vec<u8> = (0..64u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for bytes in [random, vec![0; 64], vec![0xff; 64]] {
            for length in 0..=64 {
                let header = &bytes[..length];
                assert_eq!(sum_of_header(header), !integrity::ip_checksum(header), "{length} bytes");
            }
        }
    }
}
