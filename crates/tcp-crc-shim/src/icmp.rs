//! The path MTU as a host behind a shim must see it: reduced by the room for the CRC, because the packet that was too long had been stamped
//! (RFC 1191 section 4, RFC 4443 section 3.2).

/// Protocol numbers.
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// Smallest MTU of an IPv6 link (RFC 8200 section 5); hosts accept no smaller one. For IPv4, the size every host accepts (RFC 791 3.1).
const MIN_MTU_V6: u32 = 1280;
const MIN_MTU_V4: u16 = 576;

/// Lowers the MTU in "fragmentation needed" and "packet too big" by `growth_bytes` and mends the checksum. Returns whether the packet was
/// such a message and was changed.
pub(crate) fn lower_path_mtu(packet: &mut [u8], growth_bytes: u16) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => lower_v4(packet, growth_bytes),
        Some(6) => lower_v6(packet, growth_bytes),
        _ => None,
    }
    .is_some()
}

fn lower_v4(packet: &mut [u8], growth_bytes: u16) -> Option<()> {
    let at = usize::from(packet[0] & 15) * 4;
    let is_first = packet.len() >= 20 && packet[9] == ICMP && packet[6] & 0x1f == 0 && packet[7] == 0;
    let message = packet.get_mut(at..at + 8).filter(|_| is_first && at >= 20)?;
    // Type 3, code 4; the MTU of the next hop in the last two bytes (0 from routers older than RFC 1191).
    let mtu = u16::from_be_bytes([message[6], message[7]]);
    if message[..2] != [3, 4] || mtu < MIN_MTU_V4 {
        return None;
    }
    let lowered = mtu.saturating_sub(growth_bytes).max(MIN_MTU_V4).to_be_bytes();
    replace(message, 6, lowered);
    Some(())
}

fn lower_v6(packet: &mut [u8], growth_bytes: u16) -> Option<()> {
    // Routers send their errors without extension headers.
    let message = packet.get_mut(..48).filter(|packet| packet[6] == ICMP_V6)?.get_mut(40..)?;
    let mtu = u32::from_be_bytes([message[4], message[5], message[6], message[7]]);
    if message[..2] != [2, 0] || mtu <= MIN_MTU_V6 {
        return None;
    }
    let lowered = mtu.saturating_sub(growth_bytes.into()).max(MIN_MTU_V6).to_be_bytes();
    replace(message, 4, [lowered[0], lowered[1]]);
    replace(message, 6, [lowered[2], lowered[3]]);
    Some(())
}

/// Replaces a word of an ICMP message and updates its checksum by the difference (RFC 1624), so that a wrong one stays wrong.
fn replace(message: &mut [u8], at: usize, word: [u8; 2]) {
    let read = |bytes: &[u8]| u32::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let sum =
        u32::from(!(read(&message[2..4]) as u16)) + u32::from(!(read(&message[at..]) as u16)) + read(&word);
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !(((folded & 0xffff) + (folded >> 16)) as u16);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message[at..at + 2].copy_from_slice(&word);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones_sum(bytes: &[u8]) -> u16 {
        let words =
            bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
        words.fold(0, |sum, word| (sum + word) % 0xffff) as u16
    }

    fn message(mtu: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, ICMP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([3, 4, 0, 0, 0, 0]);
        packet.extend(mtu.to_be_bytes());
        packet.extend(1..=28);
        let sum = !ones_sum(&packet[20..]);
        packet[22..24].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn the_mtu_is_lowered_and_the_sum_stays_right() {
        for (mtu, growth, lowered) in [(1400, 8, 1392), (9000, 12, 8988), (580, 8, 576)] {
            let mut packet = message(mtu);
            assert!(lower_path_mtu(&mut packet, growth));
            assert_eq!(packet[26..28], u16::to_be_bytes(lowered));
            assert_eq!(ones_sum(&packet[20..]), 0, "right again: all ones, which is zero modulo 65,535");
        }
    }

    #[test]
    fn version_6_has_a_longer_field_and_a_higher_bound() {
        for (mtu, lowered) in [(66_000u32, 65_992u32), (1284, 1280)] {
            let mut packet = vec![0x60, 0, 0, 0, 0, 8, ICMP_V6, 64];
            packet.extend([0xfd; 32]);
            packet.extend([2, 0, 0, 0]);
            packet.extend(mtu.to_be_bytes());
            let sum = !ones_sum(&packet[40..]);
            packet[42..44].copy_from_slice(&sum.to_be_bytes());
            assert!(lower_path_mtu(&mut packet, 8));
            assert_eq!(packet[44..48], lowered.to_be_bytes());
            assert_eq!(ones_sum(&packet[40..]), 0);
        }
    }

    #[test]
    fn everything_else_stays() {
        let other_code = {
            let mut packet = message(1400);
            packet[21] = 3;
            packet
        };
        let piece = {
            let mut packet = message(1400);
            packet[7] = 1;
            packet
        };
        for packet in [
            other_code,
            piece,
            message(0),
            message(1400)[..27].to_vec(),
            vec![0x45],
            vec![0x60; 40],
            Vec::new(),
        ] {
            let mut after = packet.clone();
            assert!(!lower_path_mtu(&mut after, 8));
            assert_eq!(after, packet);
        }
    }
}
