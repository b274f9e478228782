//! What real TCPs send in addition to data and acknowledgements, through two shims.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recv, send, sendto};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use support::{both, lab, only, states, strict, until};
use tcp_crc::{Method, Packet, State, finish_sums};
use tcp_crc_shim::Backend::{Bpf, Tun};
use tcp_crc_shim::lab::{End, Lab, Middle, Pass, Plan, content, untouched};

const PROTECTED: [State; 2] = [State::Protected(Method::Whole); 2];

/// Checks that nothing was wrong at either end.
fn all_was_well(lab: &Lab) {
    assert_eq!(states(lab), PROTECTED);
    for end in [End::Client, End::Server] {
        let counters = only(lab, end).1;
        assert_eq!((counters.bad_crc, counters.bad_sum, counters.missing), (0, 0, 0), "{end:?}");
    }
}

#[test]
fn probes_of_a_closed_window() {
    let probes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&probes);
    let mut closed = false;
    let middle: Middle = Box::new(move |end, packet| {
        if let Ok(packet) = Packet::parse(packet) {
            let tcp_at = if packet.is_ipv4() { 20 } else { 40 };
            match end {
                End::Client => closed = packet.bytes()[tcp_at + 14..][..2] == [0, 0],
                End::Server => {
                    _ = count.fetch_add(u64::from(closed && packet.data().is_empty()), Ordering::Relaxed)
                }
            }
        }
        Pass::On
    });
    let Some(lab) = lab(both(strict(&[Method::Whole]), middle)) else { return };
    let (mut client, mut server) = lab.connect(false).unwrap();
    let data = content(1, 16 << 20);
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        until("two probes", || probes.load(Ordering::Relaxed) >= 2);
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == data);
    all_was_well(&lab);
}

#[test]
fn keep_alives() {
    let Some(lab) = lab(both(strict(&[Method::Whole]), untouched())) else { return };
    let (client, mut server) = lab.connect(false).unwrap();
    let second = Duration::from_secs(1);
    SockRef::from(&client)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(second).with_interval(second))
        .unwrap();
    let before = only(&lab, End::Server).1.verified;
    until("two keep-alives", || only(&lab, End::Server).1.verified >= before + 2);
    (&client).write_all(b"still there").unwrap();
    assert_eq!(server.read(&mut [0; 100]).unwrap(), 11);
    all_was_well(&lab);
}

#[test]
fn urgent_data() {
    let Some(lab) = lab(both(strict(&[Method::Whole]), untouched())) else { return };
    let (mut client, mut server) = lab.connect(false).unwrap();
    client.write_all(b"abc").unwrap();
    send(&client, b"!", SendFlags::OOB).unwrap();
    client.write_all(b"def").unwrap();
    let mut urgent = [0; 1];
    until("an urgent byte", || recv(&server, &mut urgent, RecvFlags::OOB).is_ok());
    assert_eq!(urgent, *b"!");
    let mut rest = [0; 6];
    server.read_exact(&mut rest).unwrap();
    assert_eq!(rest, *b"abcdef");
    all_was_well(&lab);
}

#[test]
fn congestion_that_is_marked() {
    let (marked, echoed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (Arc::clone(&marked), Arc::clone(&echoed));
    let middle: Middle = Box::new(move |end, bytes| {
        let Ok(packet) = Packet::parse(bytes) else { return Pass::On };
        const ECE: u8 = 0x40;
        let echoes = end == End::Client && !packet.flags().syn() && packet.flags().0 & ECE != 0;
        counts.1.fetch_add(u64::from(echoes), Ordering::Relaxed);
        if packet.is_ipv4() && bytes[1] & 3 != 0 {
            bytes[1] |= 3;
            finish_sums(bytes);
            counts.0.fetch_add(1, Ordering::Relaxed);
        }
        Pass::On
    });
    let switches = vec![("ipv4/tcp_ecn", "1")];
    let Some(lab) = lab(Plan { switches, ..both(strict(&[Method::Whole]), middle) }) else { return };
    let transfer = lab.transfer(false, &content(2, 400_000)).unwrap();
    assert_eq!((transfer.bytes, transfer.wrong), (400_000, 0));
    assert!(
        marked.load(Ordering::Relaxed) > 0 && echoed.load(Ordering::Relaxed) > 0,
        "{marked:?} {echoed:?}"
    );
    all_was_well(&lab);
}

/// Drops the first SYN of each end, so that both are on their way when they are sent again.
fn crossing() -> Middle {
    let mut asked = [false; 2];
    Box::new(move |end, packet| {
        let flags = Packet::parse(packet).map(|packet| packet.flags());
        if flags.is_ok_and(|flags| flags.syn() && !flags.ack()) && asked != [true; 2] {
            asked[end as usize] = true;
            return Pass::Drop;
        }
        Pass::On
    })
}

#[test]
fn a_simultaneous_open() {
    for (backend, v6) in [(Tun, false), (Tun, true), (Bpf, false), (Bpf, true)] {
        let backends = [backend; 2];
        let plan = Plan { backends, ..both(strict(&[Method::Whole]), crossing()) };
        let Some(lab) = lab(plan) else { return };
        let open = |end: End, other: End, port: u16, peer: u16| {
            let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
            let socket = Socket::new(domain, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::new(end.address(v6), port).into()).unwrap();
            let address = SocketAddr::new(other.address(v6), peer);
            socket.connect_timeout(&address.into(), Duration::from_secs(15)).unwrap();
            std::net::TcpStream::from(socket)
        };
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                lab.host(End::Server).within(|| open(End::Server, End::Client, 4002, 4001)).unwrap()
            });
            let here = || open(End::Client, End::Server, 4001, 4002);
            let mut client = lab.host(End::Client).within(here).unwrap();
            let mut server = there.join().unwrap();
            client.write_all(b"from the one").unwrap();
            server.write_all(b"from the other").unwrap();
            let mut buffer = [0; 100];
            let read = server.read(&mut buffer).unwrap();
            assert_eq!(buffer[..read], *b"from the one");
            let read = client.read(&mut buffer).unwrap();
            assert_eq!(buffer[..read], *b"from the other");
            all_was_well(&lab);
        });
    }
}

#[test]
fn data_in_a_syn() {
    // Bits: client, server, data without a cookie at either end, every listener (tcp_fastopen of ip-sysctl).
    let switches = vec![("ipv4/tcp_fastopen", "1543")];
    let in_syn = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&in_syn);
    let middle: Middle = Box::new(move |_, packet| {
        let has = Packet::parse(packet).is_ok_and(|packet| packet.flags().syn() && !packet.data().is_empty());
        count.fetch_add(u64::from(has), Ordering::Relaxed);
        Pass::On
    });
    let Some(lab) = lab(Plan { switches, ..both(strict(&[Method::Whole]), middle) }) else { return };
    let address = SocketAddr::new(End::Server.address(false), 4000);
    let listener = lab.host(End::Server).within(|| TcpListener::bind(address)).unwrap().unwrap();
    let client = lab
        .host(End::Client)
        .within(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            // MSG_FASTOPEN of <linux/socket.h>.
            let fast_open = SendFlags::from_bits_retain(0x2000_0000);
            assert_eq!(sendto(&socket, b"early", fast_open, &address).unwrap(), 5);
            std::net::TcpStream::from(socket)
        })
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut buffer = [0; 5];
    server.read_exact(&mut buffer).unwrap();
    assert_eq!(buffer, *b"early");
    (&client).write_all(b"later").unwrap();
    server.read_exact(&mut buffer).unwrap();
    assert_eq!(buffer, *b"later");
    assert!(in_syn.load(Ordering::Relaxed) > 0, "the data must have been in the SYN");
    until("an acknowledgement", || only(&lab, End::Client).1.verified > 0);
    all_was_well(&lab);
}
