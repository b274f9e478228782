//! TUN devices in the test's own network namespace. Without root the test is skipped with a message; on CI that is a failure.

use std::io;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::netns::NetNs;
use engine::tun::{Framing, Gso, MAX_PACKET_BYTES, Tun, VnetHeader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PATIENCE: Duration = Duration::from_secs(10);

/// A namespace, or `None` if the test lacks the permission to create one.
fn namespace() -> Option<NetNs> {
    let missing = match NetNs::create() {
        Ok(namespace) if std::path::Path::new("/dev/net/tun").exists() => return Some(namespace),
        Ok(_) => "there is no /dev/net/tun".to_owned(),
        Err(error) => format!("no network namespace can be made: {error}"),
    };
    let on_ci = !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"));
    assert!(!on_ci, "on CI no test may be left out: {missing}");
    eprintln!("left out: {missing}");
    None
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Opens a device in `namespace` and gives it an address.
fn device(namespace: &NetNs, framing: Framing, address: &str) -> Tun {
    namespace
        .within(|| {
            let tun = Tun::open("tt%d", framing).unwrap();
            ip(&format!("addr add {address} dev {}", tun.name()));
            ip(&format!("link set {} up", tun.name()));
            tun
        })
        .unwrap()
}

/// Waits for something to read on one of `tuns`.
fn wait(tuns: &[&Tun], limit: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> =
        tuns.iter().map(|tun| PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec::try_from(limit).unwrap())).unwrap() > 0
}

/// Whether a packet is in IPv6: the kernel solicits routers and reports its groups whenever it likes.
fn is_of_the_kernel(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6
}

#[test]
fn packets_go_both_ways() {
    let Some(namespace) = namespace() else { return };
    let tun = device(&namespace, Framing::Packets, "10.9.0.1/24");
    let socket = namespace.within(|| UdpSocket::bind("10.9.0.1:4000").unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"question", "10.9.0.2:5000").unwrap();

    let mut buffer = vec![0; MAX_PACKET_BYTES];
    let mut packet = loop {
        assert!(wait(&[&tun], PATIENCE), "nothing came");
        let (_, read) = tun.receive(&mut buffer).unwrap();
        if !is_of_the_kernel(&buffer) {
            break buffer[..read].to_vec();
        }
    };
    assert_eq!(packet[12..20], [10, 9, 0, 1, 10, 9, 0, 2]);
    assert_eq!(packet[28..], *b"question");

    // The answer: addresses and ports change places, which leaves both checksums as they are.
    for at in [12, 13, 14, 15] {
        packet.swap(at, at + 4);
    }
    packet.swap(20, 22);
    packet.swap(21, 23);
    tun.send(&VnetHeader::default(), &packet).unwrap();
    let (read, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..read], from.ip()), (&b"question"[..], Ipv4Addr::new(10, 9, 0, 2).into()));
    // Nothing more of the socket's, and then nothing at all, without waiting for it.
    let end = loop {
        match tun.receive(&mut buffer) {
            Ok((_, read)) => assert!(is_of_the_kernel(&buffer), "{:02x?}", &buffer[..read]),
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_device_goes_with_its_last_queue() {
    let Some(namespace) = namespace() else { return };
    namespace
        .within(|| {
            let there = |name: &str| {
                Command::new("ip").args(["link", "show", name]).output().unwrap().status.success()
            };
            let queues = Tun::open_queues("tq%d", Framing::Offload, 3).unwrap();
            assert_eq!(queues.iter().map(Tun::name).collect::<Vec<_>>(), ["tq0"; 3]);
            assert!(there("tq0"));
            let taken = Tun::open("tq0", Framing::Offload).unwrap_err();
            assert_eq!(taken.raw_os_error(), Some(rustix::io::Errno::INVAL.raw_os_error()));
            drop(queues);
            // A program that another test starts holds copies of this process's descriptors until it runs.
            let end = Instant::now() + PATIENCE;
            while there("tq0") {
                assert!(Instant::now() < end, "the device is still there");
            }
        })
        .unwrap();
}

/// Two namespaces whose devices are joined by copying packets: super-segments with unfinished checksums cross unchanged.
#[test]
fn super_segments_cross() {
    const BYTES: usize = 8 << 20;
    let (Some(left), Some(right)) = (namespace(), namespace()) else { return };
    let near = device(&left, Framing::Offload, "10.9.0.1/24");
    let far = device(&right, Framing::Offload, "10.9.0.2/24");
    let listener = right.within(|| TcpListener::bind("10.9.0.2:4000").unwrap()).unwrap();
    let (done, largest) = (AtomicBool::new(false), AtomicU64::new(0));

    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; MAX_PACKET_BYTES];
            while !done.load(Ordering::Relaxed) {
                wait(&[&near, &far], Duration::from_millis(20));
                for (from, to) in [(&near, &far), (&far, &near)] {
                    while let Ok((header, read)) = from.receive(&mut buffer) {
                        if header.gso == Gso::TcpV4 {
                            assert!(header.sum_unfinished && header.gso_bytes > 0, "{header:?}");
                            largest.fetch_max(read as u64, Ordering::Relaxed);
                        }
                        to.send(&header, &buffer[..read]).unwrap();
                    }
                }
            }
        });
        let sender = scope.spawn(|| {
            let mut stream = left.within(|| TcpStream::connect("10.9.0.2:4000").unwrap()).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let data: Vec<u8> = (0..BYTES).map(|i| (i / 7) as u8).collect();
            stream.write_all(&data).unwrap();
            data
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        let ended = stream.read_to_end(&mut received);
        done.store(true, Ordering::Relaxed);
        ended.unwrap();
        assert!(received == sender.join().unwrap(), "{} of {BYTES} bytes, or other ones", received.len());
    });
    assert!(largest.into_inner() > 10_000, "no super-segment was handed over");
}
