//! RST segments for both ends of a connection that a shim ends (RFC 9293 3.5.2, RFC 5961 3.2).

use crate::packet::{Flags, Packet, TCP_HEADER_BYTES};
use crate::segment::finish_sums;

/// Writes a RST for the receiver of `packet`, as if from its sender, and one for the sender, as if from the receiver.
///
/// The receiver accepts its RST if the packet was the one it expected (RFC 5961 3.2). Otherwise it queries the sender, which has ended by
/// then and sends a RST itself.
pub fn resets(packet: &Packet<'_>, to_receiver: &mut Vec<u8>, to_sender: &mut Vec<u8>) {
    let (sequence, acknowledgement) = (packet.sequence_number(), packet.acknowledgement_number());
    let after = sequence
        .wrapping_add(packet.data().len() as u32 + u32::from(packet.flags().syn() || packet.flags().fin()));
    write(packet, false, [sequence, acknowledgement], to_receiver);
    write(packet, true, [acknowledgement, after], to_sender);
}

fn write(packet: &Packet<'_>, back: bool, numbers: [u32; 2], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(packet.ip_header());
    let tcp = out.len();
    let length = (tcp + TCP_HEADER_BYTES) as u16;
    let [source, destination] = packet.address_ranges();
    if packet.is_ipv4() {
        out[2..4].copy_from_slice(&length.to_be_bytes());
    } else {
        out[4..6].copy_from_slice(&(length - 40).to_be_bytes());
    }
    out.extend_from_slice(&packet.tcp_header()[..TCP_HEADER_BYTES]);
    if back {
        out[source.clone()].copy_from_slice(&packet.bytes()[destination.clone()]);
        out[destination].copy_from_slice(&packet.bytes()[source]);
        out[tcp..][..2].copy_from_slice(&packet.destination_port().to_be_bytes());
        out[tcp + 2..][..2].copy_from_slice(&packet.source_port().to_be_bytes());
    }
    out[tcp + 4..][..4].copy_from_slice(&numbers[0].to_be_bytes());
    out[tcp + 8..][..4].copy_from_slice(&numbers[1].to_be_bytes());
    out[tcp + 12] = (TCP_HEADER_BYTES as u8 / 4) << 4;
    out[tcp + 13] = Flags::RST | Flags::ACK;
    // Window and urgent pointer have no meaning in a RST.
    out[tcp + 14..][..2].fill(0);
    out[tcp + 18..][..2].fill(0);
    finish_sums(out);
}
