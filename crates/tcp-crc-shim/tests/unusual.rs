//! Packets of unusual shapes between two real TCPs, with both back ends: jumbo frames, IPv6 extension headers, segments that overlap with
//! other boundaries, fragments. No wrong byte is delivered; what is not judged is handed on or discarded by a rule, and counted.

mod support;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use support::{asking, lab, strict, until};
use tcp_crc::{Codepoints, Config, Method, Packet, finish_sums, stamp, strip};
use tcp_crc_shim::Backend::{self, Bpf, Tun};
use tcp_crc_shim::lab::{Damager, End, Lab, Middle, Pass, Plan, content, sum_errors};

const BACKENDS: [Backend; 2] = [Tun, Bpf];

fn plan(backend: Backend, config: Config, middle: Middle) -> Plan {
    Plan { backends: [backend; 2], middle, ..Plan::both(Some(config)) }
}

/// Moves all of `data` to the server; every byte must be right.
fn moves(mut from: &TcpStream, mut to: &TcpStream, data: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(data).unwrap());
        let mut received = vec![0; data.len()];
        to.read_exact(&mut received).unwrap();
        assert!(received == data, "other bytes have arrived");
    });
}

/// Gets nothing for as long as `condition` takes to hold.
fn gets_nothing_until(mut stream: &TcpStream, what: &str, condition: impl FnMut() -> bool) {
    until(what, condition);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "{what}");
}

fn ip(namespace: &engine::netns::NetNs, line: &str) {
    let mut command = Command::new("ip");
    command.args(line.split(' ')).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = namespace.within(|| command.output().unwrap()).unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Bytes before TCP, without options and extension headers.
fn ip_bytes(packet: &Packet<'_>) -> usize {
    if packet.is_ipv4() { 20 } else { 40 }
}

#[test]
fn jumbo_frames() {
    for backend in BACKENDS {
        let longest = Arc::new(AtomicUsize::new(0));
        let (damager, count) = Damager::new(7, 3);
        let (mut damage, seen) = (damager.middle(), Arc::clone(&longest));
        let middle: Middle = Box::new(move |end, packet| {
            seen.fetch_max(packet.len(), Ordering::Relaxed);
            damage(end, packet)
        });
        let jumbo = Plan { mtu_bytes: 9000, ..plan(backend, strict(&[Method::Whole]), middle) };
        let Some(lab) = lab(jumbo) else { return };
        for v6 in [false, true] {
            longest.store(0, Ordering::Relaxed);
            let transfer = lab.transfer(v6, &content(3, 4 << 20)).unwrap();
            assert_eq!((transfer.bytes, transfer.wrong), (4 << 20, 0), "{backend:?}, IPv6 {v6}");
            assert_eq!(longest.load(Ordering::Relaxed), 9000, "{backend:?}, IPv6 {v6}: full, and not longer");
        }
        let damaged: u64 = count.iter().map(|kind| kind.load(Ordering::Relaxed)).sum();
        assert!(damaged > 50, "{damaged}");
        assert_eq!(lab.seen(End::Server).unwrap().total.bad_crc, damaged, "{backend:?}");
        assert_eq!(sum_errors(lab.host(End::Server)).unwrap(), 0);
    }
}

/// Puts extension headers of 8 bytes, with padding in them, before the TCP of an IPv6 packet (RFC 8200 4).
fn extend(packet: &mut Vec<u8>, kinds: &[u8]) {
    if packet[0] >> 4 != 6 || packet[6] != 6 {
        return;
    }
    let mut next = 6;
    for kind in kinds.iter().rev() {
        // The routing header has type 253 (RFC 3692) and no segments left; the others have an option PadN.
        let body = if *kind == 43 { [253, 0, 0, 0, 0, 0] } else { [1, 4, 0, 0, 0, 0] };
        packet.splice(40..40, [next, 0].into_iter().chain(body));
        next = *kind;
    }
    packet[6] = next;
    let payload = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
}

const HOP_BY_HOP: u8 = 0;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// A laboratory whose hosts leave room in their packets, and whose network puts extension headers into those with data.
fn extending(backend: Backend, config: Config, kinds: &'static [u8], damage: bool) -> Option<Lab> {
    let (damager, _) = Damager::new(5, 4);
    let mut damager = damager.middle();
    let middle: Middle = Box::new(move |end, packet| {
        let is_wanted = Packet::parse(packet)
            .is_ok_and(|packet| !packet.flags().syn() && (damage || !packet.data().is_empty()));
        let mut packets = match if damage { damager(end, packet) } else { Pass::On } {
            Pass::These(packets) => packets,
            _ => vec![std::mem::take(packet)],
        };
        if is_wanted {
            packets.iter_mut().for_each(|packet| extend(packet, kinds));
        }
        Pass::These(packets)
    });
    let lab = lab(plan(backend, config, middle))?;
    for end in [End::Client, End::Server] {
        let (device, net) = (if backend == Tun { "crc0" } else { "eth0" }, end as u8 + 1);
        ip(lab.host(end), &format!("-6 route change default via fd77:{net}::1 dev {device} mtu 1400"));
    }
    Some(lab)
}

#[test]
fn extension_headers_before_tcp_are_walked() {
    let all: [&'static [u8]; 2] = [&[HOP_BY_HOP, DESTINATION], &[DESTINATION, DESTINATION, DESTINATION]];
    for backend in BACKENDS {
        for kinds in all {
            let config = strict(&[Method::Whole]);
            let Some(lab) = extending(backend, config, kinds, true) else { return };
            let (client, server) = lab.connect(true).unwrap();
            moves(&client, &server, &content(1, 300_000));
            moves(&server, &client, &content(2, 300_000));
            for end in [End::Client, End::Server] {
                let seen = lab.seen(end).unwrap();
                let about = format!("{backend:?} {kinds:?} {end:?}: {seen:?}");
                assert!(seen.total.verified > 100 && seen.total.bad_crc > 10, "{about}");
                assert_eq!(
                    (seen.total.missing, seen.packets.malformed, seen.packets.unknown),
                    (0, 0, 0),
                    "{about}"
                );
            }
            assert_eq!(sum_errors(lab.host(End::Server)).unwrap(), 0);
        }
    }
}

#[test]
fn a_segment_behind_an_authentication_header_is_handed_on_and_counted() {
    for backend in BACKENDS {
        let config = strict(&[Method::Whole]);
        let Some(lab) = extending(backend, config, &[AUTHENTICATION], false) else { return };
        let (mut client, server) = lab.connect(true).unwrap();
        client.write_all(b"no key is known for this").unwrap();
        gets_nothing_until(&server, "segments that cannot be read are counted", || {
            lab.seen(End::Server).unwrap().packets.malformed >= 2
        });
    }
}

/// The segment that `first` and `second` make together, from the middle of the one to the middle of the other, with the CRC of its own.
fn across(first: &[u8], second: &[u8], method: Method, isn: u32) -> Option<Vec<u8>> {
    let (one, two) = (Packet::parse(first).ok()?, Packet::parse(second).ok()?);
    let halves = [one.data().len() / 2, two.data().len() / 2];
    let after = one.sequence_number().wrapping_add(one.data().len() as u32);
    if two.sequence_number() != after || halves.contains(&0) {
        return None;
    }
    let data = [&one.data()[halves[0]..], &two.data()[..halves[1]]].concat();
    let mut bare = Vec::new();
    strip(&one, Codepoints::Historic, &mut bare);
    let header = Packet::parse(&bare).ok().map(|packet| packet.bytes().len() - packet.data().len())?;
    bare.truncate(header);
    bare.extend_from_slice(&data);
    let tcp_at = ip_bytes(&one);
    let sequence_number = one.sequence_number().wrapping_add(halves[0] as u32);
    bare[tcp_at + 4..][..4].copy_from_slice(&sequence_number.to_be_bytes());
    match one.is_ipv4() {
        true => bare[2..4].copy_from_slice(&((header + data.len()) as u16).to_be_bytes()),
        false => bare[4..6].copy_from_slice(&((header + data.len() - 40) as u16).to_be_bytes()),
    }
    finish_sums(&mut bare);
    let mut out = Vec::new();
    stamp(&Packet::parse(&bare).ok()?, method, Codepoints::Historic, isn, &mut out).ok()?;
    Some(out)
}

/// Before two segments that follow each other it sends one that overlaps both: with its own CRC, or damaged and with the CRC of before.
fn overlapping(method: Method, counts: Arc<[AtomicU64; 2]>) -> Middle {
    let mut isn = 0;
    let mut held: Option<Vec<u8>> = None;
    let mut damaged = false;
    Box::new(move |end, packet| {
        let Ok(read) = Packet::parse(packet) else { return Pass::On };
        if end == End::Server && read.flags().syn() {
            isn = read.sequence_number();
        }
        if end == End::Client || read.data().is_empty() {
            return Pass::On;
        }
        let Some(first) = held.take() else {
            // Held once, for what follows it; the peer's TCP waits for no single segment when many are in flight.
            let more = read.data().len() > 1000 && read.flags().0 & 8 == 0;
            held = more.then(|| packet.clone());
            return if more { Pass::Drop } else { Pass::On };
        };
        let mut all = Vec::new();
        if let Some(mut third) = across(&first, packet, method, isn) {
            damaged = !damaged;
            if damaged {
                let (at, end) = (third.len() - 300, third.len());
                third[at..end].rotate_left(2);
                finish_sums(&mut third);
            }
            let really = damaged
                && Packet::parse(&third)
                    .is_ok_and(|third| tcp_crc::check(&third, method, Codepoints::Historic, isn).is_err());
            counts[usize::from(really)].fetch_add(1, Ordering::Relaxed);
            all.push(third);
        }
        all.extend([first, packet.clone()]);
        Pass::These(all)
    })
}

#[test]
fn segments_that_overlap_with_other_boundaries() {
    for (backend, method) in [(Tun, Method::Placed), (Bpf, Method::Placed), (Tun, Method::Whole)] {
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let middle = overlapping(method, Arc::clone(&counts));
        let Some(lab) = lab(plan(backend, strict(&[method]), middle)) else { return };
        for v6 in [false, true] {
            let (client, server) = lab.connect(v6).unwrap();
            moves(&client, &server, &content(4, 1 << 20));
        }
        let [right, wrong] = [0, 1].map(|which: usize| counts[which].load(Ordering::Relaxed));
        assert!(right > 100 && wrong > 100, "{backend:?}: {right} right ones, {wrong} wrong ones");
        let total = lab.seen(End::Server).unwrap().total;
        assert_eq!((total.bad_crc, total.missing), (wrong, 0), "{backend:?}: {total:?}");
        assert_eq!(sum_errors(lab.host(End::Server)).unwrap(), 0);
    }
}

#[test]
fn what_is_sent_again_after_the_path_became_narrower() {
    for backend in BACKENDS {
        let cut_again = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&cut_again);
        let mut lengths = HashMap::new();
        let middle: Middle = Box::new(move |end, packet| {
            if let (End::Server, Ok(packet)) = (end, Packet::parse(packet))
                && !packet.data().is_empty()
            {
                let length = packet.data().len();
                let before = lengths.insert((packet.is_ipv4(), packet.sequence_number()), length);
                count.fetch_add(u64::from(before.is_some_and(|before| before != length)), Ordering::Relaxed);
            }
            Pass::On
        });
        let Some(lab) = lab(plan(backend, strict(&[Method::Placed]), middle)) else { return };
        let open = [false, true].map(|v6| lab.connect(v6).unwrap());
        for (client, server) in &open {
            moves(client, server, &content(1, 100_000));
        }
        // From here on the network answers full segments with "fragmentation needed" or "packet too big".
        ip(lab.network(), "link set m1 mtu 1300");
        for (client, server) in &open {
            moves(client, server, &content(2, 400_000));
        }
        assert!(cut_again.load(Ordering::Relaxed) > 0, "{backend:?}: the same number, another length");
        let total = lab.seen(End::Server).unwrap().total;
        assert_eq!((total.bad_crc, total.missing, total.resegmented), (0, 0, 0), "{backend:?}: {total:?}");
    }
}

/// Cuts a packet with data into two fragments (RFC 791 3.2, RFC 8200 4.5), of which the second begins `overlap` bytes early.
fn fragment(bytes: &[u8], overlap: usize) -> Option<Vec<Vec<u8>>> {
    let packet = Packet::parse(bytes).ok().filter(|packet| packet.data().len() > 100)?;
    let (header, payload) = packet.bytes().split_at(ip_bytes(&packet));
    let middle = payload.len() / 16 * 8;
    let piece = |offset: usize, more: u16, payload: &[u8]| {
        if header.len() == 40 {
            let mut piece = header.to_vec();
            piece[6] = 44;
            piece[4..6].copy_from_slice(&(payload.len() as u16 + 8).to_be_bytes());
            piece.extend([6, 0]);
            piece.extend((offset as u16 | more).to_be_bytes());
            piece.extend(packet.sequence_number().to_be_bytes());
            piece.extend(payload);
            return piece;
        }
        let mut piece = [header, payload].concat();
        let length = piece.len() as u16;
        piece[2..4].copy_from_slice(&length.to_be_bytes());
        piece[6..8].copy_from_slice(&(more << 13 | (offset / 8) as u16).to_be_bytes());
        piece[10..12].fill(0);
        let sum = integrity::ip_checksum(&piece[..20]);
        piece[10..12].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    let second = middle - overlap;
    Some(vec![piece(0, 1, &payload[..middle]), piece(second, 0, &payload[second..])])
}

fn fragmenting(overlap: usize, mut only_first: Option<usize>) -> Middle {
    Box::new(move |end, packet| {
        if end == End::Client || only_first == Some(0) {
            return Pass::On;
        }
        let Some(pieces) = fragment(packet, overlap) else { return Pass::On };
        only_first = only_first.map(|left| left - 1);
        Pass::These(pieces)
    })
}

#[test]
fn fragments_are_handed_on_and_counted_or_discarded_by_a_strict_shim() {
    for backend in BACKENDS {
        let lenient = plan(backend, asking(&[Method::Data]), fragmenting(0, None));
        let Some(lenient) = lab(lenient) else { return };
        for v6 in [false, true] {
            let (client, server) = lenient.connect(v6).unwrap();
            moves(&client, &server, &content(2, 20_000));
        }
        let seen = lenient.seen(End::Server).unwrap();
        assert!(
            seen.packets.fragments > 40 && seen.packets.fragments_discarded == 0,
            "{backend:?}: {seen:?}"
        );

        let Some(lab) = lab(plan(backend, strict(&[Method::Data]), fragmenting(0, None))) else { return };
        for v6 in [false, true] {
            let before = lab.seen(End::Server).unwrap().packets.fragments_discarded;
            let (mut client, server) = lab.connect(v6).unwrap();
            client.write_all(&content(2, 1000)).unwrap();
            gets_nothing_until(&server, "fragments are discarded", || {
                lab.seen(End::Server).unwrap().packets.fragments_discarded >= before + 2
            });
        }
    }
}

#[test]
fn fragments_that_overlap_are_not_put_together() {
    for backend in BACKENDS {
        let Some(lab) = lab(plan(backend, asking(&[Method::Data]), fragmenting(16, Some(4)))) else { return };
        for v6 in [false, true] {
            let (client, server) = lab.connect(v6).unwrap();
            moves(&client, &server, &content(2, 200_000));
        }
        let seen = lab.seen(End::Server).unwrap();
        assert_eq!(seen.packets.fragments, 8, "{backend:?}: {seen:?}");
        assert_eq!((seen.total.bad_crc, seen.total.missing), (0, 0), "{backend:?}: {seen:?}");
    }
}
