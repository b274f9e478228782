//! Where a CRC is required, no connection is plain: peers without one are reset, by both back ends.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::{asking, lab, stripper};
use tcp_crc::{Config, Method, OnMissing, Packet, Plain, State};
use tcp_crc_shim::Backend::{self, Bpf, Tun};
use tcp_crc_shim::lab::{End, Lab, Middle, Pass, Plan, content, untouched};

const BACKENDS: [Backend; 2] = [Tun, Bpf];

fn requiring() -> Config {
    Config { on_missing: OnMissing::Required, ..asking(&[Method::Data]) }
}

fn plan(backend: Backend, [client, server]: [Option<Config>; 2], middle: Middle) -> Plan {
    Plan { client, server, backends: [backend; 2], middle, ..Plan::both(None) }
}

fn listen(lab: &Lab, v6: bool) -> TcpListener {
    let address = (End::Server.address(v6), 0);
    lab.host(End::Server).within(|| TcpListener::bind(address)).unwrap().unwrap()
}

fn connect(lab: &Lab, listener: &TcpListener, limit: Duration) -> std::io::Result<TcpStream> {
    let address = listener.local_addr().unwrap();
    let stream = lab.host(End::Client).within(|| TcpStream::connect_timeout(&address, limit)).unwrap()?;
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}

const LIMIT: Duration = Duration::from_secs(20);

/// No connection is waiting.
fn nobody_came(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_plain_peer_is_reset_and_counted() {
    for backend in BACKENDS {
        for (configs, end) in
            [([Some(requiring()), None], End::Client), ([None, Some(requiring())], End::Server)]
        {
            let Some(lab) = lab(plan(backend, configs, untouched())) else { return };
            for (v6, count) in [(false, 1), (true, 2)] {
                let listener = listen(&lab, v6);
                let error = connect(&lab, &listener, LIMIT).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{backend:?} {end:?} IPv6 {v6}");
                nobody_came(&listener);
                let seen = lab.seen(end).unwrap();
                assert_eq!(seen.packets.turned_away.peer_silent, count, "{backend:?} {end:?} {seen:?}");
                assert_eq!(seen.packets.turned_away.connections(), count);
                if backend == Tun {
                    let refused = State::Refused(Plain::PeerSilent);
                    assert!(seen.connections.iter().all(|(_, state, _)| *state == refused), "{seen:?}");
                }
            }
        }
    }
}

#[test]
fn two_that_require_it_agree() {
    for backends in [[Tun, Bpf], [Bpf, Tun], [Bpf, Bpf], [Tun, Tun]] {
        let Some(lab) = lab(Plan { backends, ..Plan::both(Some(requiring())) }) else { return };
        for v6 in [false, true] {
            let transfer = lab.transfer(v6, &content(5, 300_000)).unwrap();
            assert_eq!((transfer.bytes, transfer.wrong), (300_000, 0), "{backends:?}");
        }
        for end in [End::Client, End::Server] {
            let seen = lab.seen(end).unwrap();
            assert_eq!(seen.packets.turned_away.connections(), 0, "{backends:?} {seen:?}");
        }
    }
}

#[test]
fn an_answer_that_is_taken_out_ends_the_connection() {
    for backend in BACKENDS {
        let configs = [Some(asking(&[Method::Data])), Some(requiring())];
        let Some(lab) = lab(plan(backend, configs, stripper(14, End::Client, 0))) else { return };
        let listener = listen(&lab, false);
        // To the client, which accepts plain TCP, the connection is open until it is reset.
        let client = connect(&lab, &listener, LIMIT).and_then(|mut client| {
            client.write_all(b"unprotected")?;
            client.read(&mut [0]).map(drop)
        });
        assert_eq!(client.unwrap_err().kind(), ErrorKind::ConnectionReset, "{backend:?}");
        nobody_came(&listener);
        let seen = lab.seen(End::Server).unwrap();
        assert_eq!(seen.packets.turned_away.answer_stripped, 1, "{backend:?} {seen:?}");
    }
}

#[test]
fn requests_that_are_lost_are_repeated_and_never_given_up() {
    for backend in BACKENDS {
        let plain = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&plain);
        let middle: Middle = Box::new(move |_, packet| {
            let asks =
                Packet::parse(packet).is_ok_and(|packet| packet.options().any(|option| option.kind == 14));
            seen.fetch_add(u64::from(!asks && packet[0] >> 4 == 4), Ordering::Relaxed);
            if asks { Pass::Drop } else { Pass::On }
        });
        let configs = [Some(requiring()), Some(asking(&[Method::Data]))];
        let Some(lab) = lab(plan(backend, configs, middle)) else { return };
        let listener = listen(&lab, false);
        // After one and three seconds TCP repeats its SYN; without the policy the third one has no request.
        let error = connect(&lab, &listener, Duration::from_secs(5)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error:?}");
        assert_eq!(plain.load(Ordering::Relaxed), 0, "{backend:?}");
    }
}

#[test]
fn a_syn_cookie_of_the_kernel_opens_nothing() {
    let switches = vec![("ipv4/tcp_syncookies", "2")];
    let configs = [Some(asking(&[Method::Data])), Some(requiring())];
    let Some(lab) = lab(Plan { switches, ..plan(Bpf, configs, untouched()) }) else { return };
    let listener = listen(&lab, false);
    let client = connect(&lab, &listener, LIMIT).and_then(|mut client| {
        client.write_all(b"unprotected")?;
        client.read(&mut [0]).map(drop)
    });
    assert_eq!(client.unwrap_err().kind(), ErrorKind::ConnectionReset);
    nobody_came(&listener);
    assert_eq!(lab.seen(End::Server).unwrap().packets.turned_away.peer_silent, 1);
}

#[test]
fn crcs_that_vanish_later_end_the_connection() {
    for backend in BACKENDS {
        let configs = [Some(requiring()); 2];
        let Some(lab) = lab(plan(backend, configs, stripper(15, End::Server, 3))) else { return };
        let (mut client, mut server) = lab.connect(false).unwrap();
        let writer = std::thread::spawn(move || {
            let data = content(5, 300_000);
            (0..100).find_map(|_| client.write_all(&data).err()).is_some()
        });
        let mut received = Vec::new();
        let error = server.read_to_end(&mut received).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{backend:?}");
        assert!(writer.join().unwrap());
        assert!(lab.seen(End::Server).unwrap().packets.resets > 0);
    }
}
