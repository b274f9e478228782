//! The back end in the kernel between two real TCPs, with the same network and the same damage as the shim on TUN devices, and with such a
//! shim at the other end.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;

use support::{asking, lab, only, states, strict};
use tcp_crc::{Config, Method, Plain, State};
use tcp_crc_shim::Backend::{Bpf, Tun};
use tcp_crc_shim::lab::{Damager, End, Lab, Plan, content, sum_errors};

const BYTES: usize = 1 << 20;
const METHODS: [Method; 3] = [Method::Data, Method::Whole, Method::Placed];

fn moves_bytes(lab: &Lab, v6: bool) {
    let transfer = lab.transfer(v6, &content(5, 300_000)).unwrap();
    assert_eq!((transfer.bytes, transfer.wrong), (300_000, 0));
}

fn in_kernel(config: Config) -> Plan {
    Plan { backends: [Bpf; 2], ..Plan::both(Some(config)) }
}

#[test]
fn the_kernel_and_a_shim_understand_each_other() {
    for (i, method) in METHODS.into_iter().enumerate() {
        let backends = [[Bpf, Tun], [Tun, Bpf], [Bpf, Bpf]][i];
        let Some(lab) = lab(Plan { backends, ..Plan::both(Some(strict(&[method]))) }) else { return };
        for v6 in [false, true] {
            let (client, server) = lab.connect(v6).unwrap();
            let data = content(7, 300_000);
            for (mut from, mut to) in [(&client, &server), (&server, &client)] {
                std::thread::scope(|scope| {
                    scope.spawn(|| from.write_all(&data).unwrap());
                    let mut received = vec![0; data.len()];
                    let read = to.read_exact(&mut received);
                    assert!(
                        read.is_ok() && received == data,
                        "{read:?} {:?}",
                        [End::Client, End::Server].map(|end| lab.seen(end))
                    );
                });
            }
            for end in [End::Client, End::Server] {
                // The kernel forgets closed connections, a shim does not: look for the open one.
                let seen = lab.seen(end).unwrap();
                let of_this = |key: &tcp_crc::FlowKey| key.local.0.is_ipv6() == v6;
                let (_, state, counters) =
                    seen.connections.iter().find(|(key, ..)| of_this(key)).expect("it is there");
                assert_eq!(*state, State::Protected(method), "{backends:?} {end:?} IPv6 {v6}");
                assert!(counters.stamped > 100 || counters.verified > 100, "{counters:?}");
                assert_eq!((counters.bad_crc, counters.bad_sum, counters.missing), (0, 0, 0));
                assert_eq!((seen.packets.uncut, seen.packets.resets), (0, 0));
            }
        }
    }
}

/// Thesis, Table 7.2, with the programs in the kernel at every end that asks for a value they have: 4 or 5. The row (3, 3) is for two
/// shims.
#[test]
fn table_7_2_with_the_kernel_at_one_end_or_both() {
    let rows = [(3, 4, 4), (3, 5, 5), (4, 3, 4), (4, 4, 4), (4, 5, 4), (5, 3, 5), (5, 4, 4), (5, 5, 5)];
    let method = |value| Method::from_value(value).unwrap();
    for (client, server, chosen) in rows {
        let backends = [client, server].map(|value| if value == 3 { Tun } else { Bpf });
        let [client, server] = [client, server].map(|value| Some(strict(&[method(value)])));
        let Some(lab) = lab(Plan { client, server, backends, ..Plan::both(None) }) else { return };
        for v6 in [false, true] {
            let (mut from, mut to) = lab.connect(v6).unwrap();
            let data = content(7, 100_000);
            std::thread::scope(|scope| {
                scope.spawn(|| from.write_all(&data).unwrap());
                let mut received = vec![0; data.len()];
                to.read_exact(&mut received).unwrap();
                assert!(received == data);
            });
            for end in [End::Client, End::Server] {
                let seen = lab.seen(end).unwrap();
                let of_this = |key: &tcp_crc::FlowKey| key.local.0.is_ipv6() == v6;
                let open = seen.connections.iter().find(|(key, ..)| of_this(key)).expect("it is open");
                assert_eq!(open.1, State::Protected(method(chosen)), "{client:?} {server:?} IPv6 {v6}");
                assert!(open.2.stamped > 0 && open.2.verified > 0, "{:?}", open.2);
                assert_eq!((open.2.bad_crc, open.2.bad_sum, open.2.missing), (0, 0, 0));
            }
        }
    }
}

#[test]
fn two_hosts_with_other_values_on_one_machine_do_not_see_each_other() {
    let asks = [Method::Data, Method::Placed];
    let Some(first) = lab(in_kernel(strict(&asks[..1]))) else { return };
    let Some(second) = lab(in_kernel(strict(&asks[1..]))) else { return };
    for (lab, method) in [(&first, Method::Data), (&second, Method::Placed)] {
        let (mut client, mut server) = lab.connect(false).unwrap();
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        assert_eq!(states(lab), [State::Protected(method); 2]);
        for end in [End::Client, End::Server] {
            assert_eq!(only(lab, end).1.missing, 0, "{method:?}");
        }
    }
}

#[test]
fn what_a_shim_asks_for_twice_and_the_kernel_once_is_agreed_on() {
    for backends in [[Bpf, Tun], [Tun, Bpf], [Bpf, Bpf]] {
        let config = strict(&[Method::Data, Method::Placed]);
        let Some(lab) = lab(Plan { backends, ..Plan::both(Some(config)) }) else { return };
        let (mut client, mut server) = lab.connect(false).unwrap();
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        assert_eq!(states(&lab), [State::Protected(Method::Data); 2], "{backends:?}");
        for end in [End::Client, End::Server] {
            assert_eq!(only(&lab, end).1.bad_crc, 0, "{backends:?}");
        }
    }
}

#[test]
fn a_connection_that_is_closed_takes_no_place() {
    let Some(lab) = lab(in_kernel(asking(&[Method::Data]))) else { return };
    moves_bytes(&lab, false);
    moves_bytes(&lab, true);
    support::until("both ends have forgotten both", || {
        [End::Client, End::Server].iter().all(|end| lab.seen(*end).unwrap().connections.is_empty())
    });
    assert!(lab.seen(End::Server).unwrap().total.verified > 200, "what they have seen stays");
}

#[test]
fn damage_that_the_sum_does_not_see_is_discarded() {
    for method in METHODS {
        for v6 in [false, true] {
            let (damager, count) = Damager::new(7, 2);
            let plan = Plan { middle: damager.middle(), ..in_kernel(strict(&[method])) };
            let Some(lab) = lab(plan) else { return };
            let transfer = lab.transfer(v6, &content(3, BYTES)).unwrap();
            let damaged: u64 = count.iter().map(|kind| kind.load(Ordering::Relaxed)).sum();
            assert!(damaged > 100);
            let seen = lab.seen(End::Server).unwrap();
            let about = format!(
                "{method:?}, IPv6 {v6}: server {seen:?}, client {:?}",
                lab.seen(End::Client).unwrap()
            );
            assert_eq!((transfer.bytes, transfer.wrong), (BYTES as u64, 0), "{about}");
            // A socket in TIME-WAIT answers without an option, and without data.
            assert_eq!(seen.total.bad_crc, damaged, "{about}");
            assert!(seen.total.missing <= 2, "{about}");
            assert_eq!(sum_errors(lab.host(End::Server)).unwrap(), 0, "TCP's sum is blind to all of it");
        }
    }
}

#[test]
fn a_silent_peer_gets_plain_tcp_from_the_kernel() {
    let ours = Some(strict(&[Method::Placed]));
    for (client, server, end) in [(ours, None, End::Client), (None, ours, End::Server)] {
        let Some(lab) = lab(Plan { client, server, ..in_kernel(asking(&[])) }) else { return };
        let (mut from, mut to) = lab.connect(false).unwrap();
        from.write_all(b"plain").unwrap();
        to.read_exact(&mut [0; 5]).unwrap();
        let seen = lab.seen(end).unwrap();
        match end {
            End::Client => assert_eq!(only(&lab, end).0, State::Plain(Plain::PeerSilent)),
            End::Server => assert!(seen.connections.is_empty(), "who did not ask takes no place"),
        }
        assert_eq!((seen.total.stamped, seen.total.bad_crc, seen.packets.resets), (0, 0, 0));
    }
}

#[test]
fn through_a_translator_values_4_and_6_work() {
    for method in [Method::Data, Method::Placed] {
        let Some(lab) = lab(Plan { nat: true, ..in_kernel(strict(&[method])) }) else { return };
        let (mut client, mut server) = lab.connect(false).unwrap();
        assert_ne!(client.local_addr().unwrap().ip(), server.peer_addr().unwrap().ip());
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        assert_eq!(states(&lab), [State::Protected(method); 2]);
    }
}

#[test]
fn requests_that_are_taken_out_lead_to_plain_tcp() {
    for (towards, answered) in [(End::Server, None), (End::Client, Some(State::Plain(Plain::AnswerStripped)))]
    {
        let middle = support::stripper(14, towards, 0);
        let Some(lab) = lab(Plan { middle, ..in_kernel(strict(&[Method::Data])) }) else { return };
        for v6 in [false, true] {
            let (mut client, mut server) = lab.connect(v6).unwrap();
            client.write_all(b"question").unwrap();
            server.read_exact(&mut [0; 8]).unwrap();
            server.write_all(b"answer").unwrap();
            client.read_exact(&mut [0; 6]).unwrap();
            let state = |end: End| {
                let seen = lab.seen(end).unwrap();
                let of_this = |key: &tcp_crc::FlowKey| key.local.0.is_ipv6() == v6;
                seen.connections.iter().find(|(key, ..)| of_this(key)).map(|connection| connection.1)
            };
            assert_eq!(state(End::Client), Some(State::Plain(Plain::PeerSilent)), "{towards:?}, IPv6 {v6}");
            // A server that was not asked has no record of the connection.
            assert_eq!(state(End::Server), answered, "{towards:?}, IPv6 {v6}");
        }
    }
}

#[test]
fn a_syn_cookie_has_no_request() {
    let switches = vec![("ipv4/tcp_syncookies", "2")];
    let Some(lab) = lab(Plan { switches, ..in_kernel(strict(&[Method::Placed])) }) else { return };
    let (mut client, mut server) = lab.connect(false).unwrap();
    for _ in 0..10 {
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
    }
    assert_eq!(only(&lab, End::Client).0, State::Plain(Plain::PeerSilent));
    assert_eq!(lab.seen(End::Server).unwrap().packets.resets, 0);
}

#[test]
fn crcs_that_vanish_end_the_connection() {
    let Some(lab) =
        lab(Plan { middle: support::stripper(15, End::Server, 20), ..in_kernel(strict(&[Method::Data])) })
    else {
        return;
    };
    let (mut client, mut server) = lab.connect(false).unwrap();
    let written = std::thread::spawn(move || {
        let data = content(5, 300_000);
        (0..100).find_map(|_| client.write_all(&data).err()).map(|error| error.kind())
    });
    let read = server.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::ConnectionReset), "the server's program is told");
    let written = written.join().unwrap();
    assert!(matches!(written, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)), "{written:?}");
    assert!(lab.seen(End::Server).unwrap().packets.resets > 0);
}

#[test]
fn losses_and_a_full_header_in_both_directions() {
    let mut count = 0;
    let middle: tcp_crc_shim::lab::Middle = Box::new(move |_, packet| {
        let has_data = tcp_crc::Packet::parse(packet).is_ok_and(|packet| !packet.data().is_empty());
        count += usize::from(has_data);
        if has_data && count % 29 == 0 { tcp_crc_shim::lab::Pass::Drop } else { tcp_crc_shim::lab::Pass::On }
    });
    let Some(lab) = lab(Plan { middle, ..in_kernel(strict(&[Method::Whole])) }) else { return };
    let (client, server) = lab.connect(false).unwrap();
    let data = &content(9, 2 << 20);
    let passes = |from: &std::net::TcpStream, to: &std::net::TcpStream| {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || from.write_all(data).unwrap());
            let mut received = vec![0; data.len()];
            to.read_exact(&mut received).unwrap();
            assert!(received == *data);
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| passes(&client, &server));
        passes(&server, &client);
    });
    let total = [End::Client, End::Server].map(|end| only(&lab, end).1);
    assert!(total.iter().all(|counters| (counters.bad_crc, counters.missing) == (0, 0)), "{total:?}");
    assert!(total.iter().any(|counters| counters.bare_sent + counters.sack_blocks_dropped > 0), "{total:?}");
}
