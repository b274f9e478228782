//! Rewriting of options: the request in a SYN, the CRC in a segment, and checking and removing both.

use integrity::{Store, copy_crc32c, copy_crc32c_sum, crc32c_append};
use thiserror::Error;

use crate::coverage::crc_of_head;
use crate::method::{Codepoints, Method, Offer};
use crate::options::{Encoded, Layout, MAX_OPTION_BYTES, TcpOption, kind};
use crate::packet::{Packet, TCP_HEADER_BYTES, sum_of, sum_of_header, sum_with};

/// Offset of the Checksum field in a TCP header.
const CHECKSUM_AT: usize = 16;
/// Longest IP packet.
const MAX_PACKET_BYTES: usize = 65535;
/// No peer is asked to send segments smaller than this: RFC 9293 3.7.1's default for IPv4 less the most that options may take.
const MIN_MSS_BYTES: u16 = 536 - MAX_OPTION_BYTES as u16;

/// An option does not fit into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the TCP options, or the packet, have no room for {0} bytes more")]
pub struct NoRoom(pub usize);

/// What is wrong with a segment that should carry a CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// It has no CRC.
    #[error("no CRC is there")]
    Bare,
    /// A data option whose length is not the method's, or more than one data option.
    #[error("the option of the CRC is malformed")]
    Malformed,
    /// The CRC does not match the bytes.
    #[error("the CRC says {said:08x}, the bytes {computed:08x}")]
    Crc {
        /// The CRC in the packet.
        said: u32,
        /// The CRC of its bytes.
        computed: u32,
    },
    /// TCP's own sum is wrong, in a method that keeps it.
    #[error("TCP's sum is wrong")]
    Sum,
}

/// Puts the CRC of `method` into `packet` and writes the result to `out`, whose content is replaced. `isn` is the initial sequence number
/// of the packet's sender (used only by [`Method::Placed`]).
///
/// TCP's own sum is computed, whatever the Checksum field held. Returns how many SACK blocks were dropped for the CRC.
///
/// # Errors
/// If there is no room (`has_room` says in which segments); then `out` is left empty.
pub fn stamp(
    packet: &Packet<'_>,
    method: Method,
    codepoints: Codepoints,
    isn: u32,
    out: &mut Vec<u8>,
) -> Result<usize, NoRoom> {
    let option = codepoints.encode_data(method);
    let needed = option.bytes().len();
    // Not emptied before: a buffer that has held a segment like this one is only written over.
    match stamped(packet, method, codepoints, isn, &option, out) {
        Some(dropped) => Ok(dropped),
        None => {
            out.clear();
            Err(NoRoom(needed))
        }
    }
}

/// [`stamp`] by this option. Without room, `out` may hold anything.
fn stamped(
    packet: &Packet<'_>,
    method: Method,
    codepoints: Codepoints,
    isn: u32,
    option: &Encoded,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let mut layout = without(packet, |option| codepoints.data(option.kind, option.body).is_some());
    let dropped = layout.make_room(option.bytes().len(), !packet.data().is_empty())?;
    let crc_at = TCP_HEADER_BYTES + layout.append(option);
    let written = write_headers(packet, &mut layout, out)?;
    let (pseudo, pseudo_bytes) = packet.pseudo_header(out.len() - written.tcp_at);
    let pseudo = &pseudo[..pseudo_bytes];
    let (header, data) = out[written.tcp_at..].split_at_mut(written.header_bytes);
    let offset = packet.sequence_number().wrapping_sub(isn);
    let head = crc_of_head(method, pseudo, header, offset, data.len());
    // The lengths are equal: `write_headers` has made room for these data. A sum is not what value 3 has in its place.
    let (crc, data_sum) = match method {
        Method::Split => (copy_crc32c(head, data, packet.data(), Store::Temporal).ok()?, 0),
        _ => copy_crc32c_sum(head, data, packet.data()).ok()?,
    };
    let bytes = crc.to_be_bytes();
    if method == Method::Split {
        header[CHECKSUM_AT..][..2].copy_from_slice(&bytes[..2]);
        header[crc_at..][..2].copy_from_slice(&bytes[2..]);
    } else {
        header[crc_at..][..4].copy_from_slice(&bytes);
        let sum = !sum_with(!data_sum, &[pseudo, header]);
        header[CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    }
    Some(dropped)
}

/// Judges a segment that should carry the CRC of `method`; `isn` as in [`stamp`].
///
/// # Errors
/// What is wrong. A segment with a [`Fault`] other than [`Fault::Bare`] must be discarded.
pub fn check(packet: &Packet<'_>, method: Method, codepoints: Codepoints, isn: u32) -> Result<(), Fault> {
    let claim = Claim::read(packet, method, codepoints, isn)?;
    claim.compare(crc32c_append(claim.head, packet.data()))?;
    if method != Method::Split && !packet.sum_is_right() {
        return Err(Fault::Sum);
    }
    Ok(())
}

/// [`check`] and [`strip`] in one pass over the data: what was found right is what `out` holds. After an error it is empty.
///
/// # Errors
/// Those of [`check`].
pub(crate) fn take_out(
    packet: &Packet<'_>,
    method: Method,
    codepoints: Codepoints,
    isn: u32,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let taken = taken_out(packet, method, codepoints, isn, out);
    if taken.is_err() {
        out.clear();
    }
    taken
}

/// [`take_out`], but after an error `out` may hold anything.
fn taken_out(
    packet: &Packet<'_>,
    method: Method,
    codepoints: Codepoints,
    isn: u32,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let claim = Claim::read(packet, method, codepoints, isn)?;
    let mut layout = without(packet, |option| codepoints.data(option.kind, option.body).is_some());
    // A packet that gets shorter always fits, and its data have the same length.
    let written = write_headers(packet, &mut layout, out).ok_or(Fault::Malformed)?;
    let (header, data) = out[written.tcp_at..].split_at_mut(written.header_bytes);
    let (computed, data_sum) =
        copy_crc32c_sum(claim.head, data, packet.data()).map_err(|_| Fault::Malformed)?;
    claim.compare(computed)?;
    let sum = |header: &[u8]| {
        let (pseudo, pseudo_bytes) = packet.pseudo_header(header.len() + packet.data().len());
        sum_with(!data_sum, &[&pseudo[..pseudo_bytes], header])
    };
    if method != Method::Split && sum(packet.tcp_header()) != 0xffff {
        return Err(Fault::Sum);
    }
    let checksum = !sum(header);
    header[CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The CRC that a segment carries, and that of what it covers before the data.
struct Claim {
    said: u32,
    head: u32,
}

impl Claim {
    fn read(packet: &Packet<'_>, method: Method, codepoints: Codepoints, isn: u32) -> Result<Claim, Fault> {
        let mut found = packet.options().filter_map(|option| {
            let content = codepoints.data(option.kind, option.body)?;
            let end = TCP_HEADER_BYTES + option.at + option.wire_bytes();
            Some((end - content.len(), content))
        });
        let (at, content) = found.next().ok_or(Fault::Bare)?;
        if found.next().is_some() || content.len() != method.crc_bytes() {
            return Err(Fault::Malformed);
        }
        let header = packet.tcp_header();
        let mut zeroed = [0; TCP_HEADER_BYTES + MAX_OPTION_BYTES];
        let zeroed = &mut zeroed[..header.len()];
        zeroed.copy_from_slice(header);
        zeroed[CHECKSUM_AT..][..2].fill(0);
        zeroed[at..][..content.len()].fill(0);

        let (pseudo, pseudo_bytes) = packet.pseudo_header(header.len() + packet.data().len());
        let offset = packet.sequence_number().wrapping_sub(isn);
        let head = crc_of_head(method, &pseudo[..pseudo_bytes], zeroed, offset, packet.data().len());
        let said = match content {
            [a, b, c, d] => u32::from_be_bytes([*a, *b, *c, *d]),
            [a, b] => u32::from(packet.checksum()) << 16 | u32::from(u16::from_be_bytes([*a, *b])),
            _ => return Err(Fault::Malformed),
        };
        Ok(Claim { said, head })
    }

    fn compare(&self, computed: u32) -> Result<(), Fault> {
        if self.said == computed { Ok(()) } else { Err(Fault::Crc { said: self.said, computed }) }
    }
}

/// Whether a segment like this one has room for the CRC of `method`. The sender stamps every such segment, so one that arrives without a
/// CRC was changed on the path. Segments without data keep their SACK blocks, and are sent bare if that leaves no room.
pub(crate) fn has_room(packet: &Packet<'_>, method: Method, codepoints: Codepoints) -> bool {
    let needed = codepoints.encode_data(method).bytes().len();
    without(packet, |_| false).make_room(needed, !packet.data().is_empty()).is_some()
}

/// Writes `packet` without the CRC and with TCP's own sum to `out`, whose content is replaced.
pub fn strip(packet: &Packet<'_>, codepoints: Codepoints, out: &mut Vec<u8>) {
    out.clear();
    let mut layout = without(packet, |option| codepoints.data(option.kind, option.body).is_some());
    // A packet that gets shorter always fits.
    if let Some(written) = rebuild(packet, &mut layout, out) {
        make_sum(packet, &written, out);
    }
}

/// Writes a SYN or SYN-ACK that asks for `offer` to `out`, whose content is replaced. An earlier request in it is removed. If the whole
/// offer has no room, the values of the thesis are written first. Returns what it asks for.
///
/// # Errors
/// If no part of the offer has room; then `out` is left empty.
pub fn request(
    packet: &Packet<'_>,
    offer: Offer,
    codepoints: Codepoints,
    out: &mut Vec<u8>,
) -> Result<Offer, NoRoom> {
    out.clear();
    let mut layout = without(packet, |option| codepoints.request(option.kind, option.body).is_some());
    let mut asked = Offer::NONE;
    let mut refused = NoRoom(0);
    for method in offer.methods() {
        let option = codepoints.encode_request(method);
        match layout.make_room(option.bytes().len(), false) {
            Some(_) => {
                layout.append(&option);
                asked.add(method);
            }
            None => refused = NoRoom(option.bytes().len()),
        }
    }
    if asked.is_none() {
        return Err(refused);
    }
    let written = rebuild(packet, &mut layout, out).ok_or(refused)?;
    make_sum(packet, &written, out);
    Ok(asked)
}

/// The request in a SYN or SYN-ACK.
pub(crate) fn requested(packet: &Packet<'_>, codepoints: Codepoints) -> Offer {
    let mut offer = Offer::NONE;
    for option in packet.options() {
        if let Some([value]) = codepoints.request(option.kind, option.body)
            && let Some(method) = Method::from_value(*value)
        {
            offer.add(method);
        }
    }
    offer
}

/// The most bytes by which stamping lengthens a full segment: with timestamps (12 bytes as hosts lay them out, 10 without padding) or
/// without any option.
pub fn growth_bytes(method: Method, codepoints: Codepoints, timestamps: bool) -> u16 {
    const TIMESTAMPS_BYTES: usize = 10;
    let (packed, padded) = if timestamps { (TIMESTAMPS_BYTES, 12) } else { (0, 0) };
    let stamped = packed + codepoints.encode_data(method).bytes().len();
    (stamped.next_multiple_of(4) - padded) as u16
}

/// Whether a SYN or SYN-ACK shows that its sender uses timestamps.
pub(crate) fn has_timestamps(packet: &Packet<'_>) -> bool {
    packet.options().any(|option| option.kind == kind::TIMESTAMPS)
}

/// Writes a SYN or SYN-ACK to `out`, whose content is replaced, with its Maximum Segment Size reduced by `bytes`, so that the receiver
/// leaves room for the CRC. A host sends no more than its own link takes either (RFC 9293 3.7.1), so the size is first limited to that of
/// `mtu_bytes`. Without the MSS option segments are small enough; then `out` is left empty.
pub fn clamp_mss(packet: &Packet<'_>, bytes: u16, mtu_bytes: Option<u16>, out: &mut Vec<u8>) {
    out.clear();
    let Some(option) = packet.options().find(is_mss) else { return };
    let said = u16::from_be_bytes([option.body[0], option.body[1]]);
    let headers = TCP_HEADER_BYTES as u16 + if packet.is_ipv4() { 20 } else { 40 };
    let mss = mtu_bytes.map_or(said, |mtu| said.min(mtu.saturating_sub(headers)));
    let clamped = mss.saturating_sub(bytes).max(MIN_MSS_BYTES.min(mss));
    let mut layout = without(packet, |_| false);
    if let Some(written) = rebuild(packet, &mut layout, out) {
        // Options keep their order, so the MSS is found again by parsing the result.
        let options = &out[written.tcp_at + TCP_HEADER_BYTES..][..written.header_bytes - TCP_HEADER_BYTES];
        let at = crate::TcpOptions::new(options).flatten().find(is_mss).map(|option| option.at);
        if let Some(at) = at {
            let at = written.tcp_at + TCP_HEADER_BYTES + at + 2;
            out[at..][..2].copy_from_slice(&clamped.to_be_bytes());
        }
        make_sum(packet, &written, out);
    }
}

/// Whether `option` is an MSS of the right length. An option of that kind and another length is passed on as it is.
fn is_mss(option: &TcpOption<'_>) -> bool {
    option.kind == kind::MSS && option.body.len() == 2
}

/// The options of `packet` except those that `leave_out` selects.
fn without(packet: &Packet<'_>, leave_out: impl Fn(&TcpOption<'_>) -> bool) -> Layout {
    Layout::of(packet.options(), |option| !leave_out(option))
}

/// Offsets in a packet that was written.
struct Written {
    tcp_at: usize,
    header_bytes: usize,
}

/// Writes `packet` with other options and a Checksum of zero; IP's lengths and header checksum are right. Returns nothing if the result is
/// longer than IP allows.
fn rebuild(packet: &Packet<'_>, layout: &mut Layout, out: &mut Vec<u8>) -> Option<Written> {
    let written = write_headers(packet, layout, out)?;
    out[written.tcp_at + written.header_bytes..].copy_from_slice(packet.data());
    Some(written)
}

/// [`rebuild`] without the data, for which there is room at the end.
fn write_headers(packet: &Packet<'_>, layout: &mut Layout, out: &mut Vec<u8>) -> Option<Written> {
    let options = layout.padded();
    let ip = packet.ip_header();
    let tcp_at = ip.len();
    let header_bytes = TCP_HEADER_BYTES + options.len();
    let total = tcp_at + header_bytes + packet.data().len();
    // IPv6 does not count its 40 bytes of header; the same bound for both is simpler, and no TCP segment is that long.
    let length = u16::try_from(total).ok().filter(|_| total <= MAX_PACKET_BYTES)?;
    out.resize(total, 0);
    out[..tcp_at].copy_from_slice(ip);
    if packet.is_ipv4() {
        out[2..4].copy_from_slice(&length.to_be_bytes());
        out[10..12].fill(0);
        let sum = !sum_of_header(&out[..tcp_at]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        out[4..6].copy_from_slice(&(length - 40).to_be_bytes());
    }
    let tcp = &mut out[tcp_at..][..header_bytes];
    tcp[..TCP_HEADER_BYTES].copy_from_slice(&packet.tcp_header()[..TCP_HEADER_BYTES]);
    tcp[12] = ((header_bytes / 4) as u8) << 4 | (tcp[12] & 15);
    tcp[CHECKSUM_AT..][..2].fill(0);
    tcp[TCP_HEADER_BYTES..].copy_from_slice(options);
    Some(Written { tcp_at, header_bytes })
}

fn make_sum(packet: &Packet<'_>, written: &Written, out: &mut [u8]) {
    let (pseudo, pseudo_bytes) = packet.pseudo_header(out.len() - written.tcp_at);
    let sum = !sum_of(&[&pseudo[..pseudo_bytes], &out[written.tcp_at..]]);
    out[written.tcp_at + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
}
