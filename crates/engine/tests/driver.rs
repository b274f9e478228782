//! The epoll driver over real loopback sockets.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Completion, Driver, EpollDriver, PollCounts, Token};
use support::{Random, listener, next, pair, received, sent, wait_until};

fn room(bytes: usize) -> BytesMut {
    BytesMut::with_capacity(bytes)
}

#[test]
fn an_echo_of_random_sizes_through_small_socket_buffers_keeps_every_byte() {
    const TOTAL: usize = 8 << 20;
    let (mut client, server) = pair();
    socket2::SockRef::from(&server).set_send_buffer_size(64 * 1024).unwrap();
    let mut reader = client.try_clone().unwrap();
    let blob = Random(7).bytes(TOTAL);
    let expected = blob.clone();
    let writer = std::thread::spawn(move || {
        let mut random = Random(8);
        let mut rest = &blob[..];
        while !rest.is_empty() {
            let n = (1 + random.below(200_000)).min(rest.len());
            client.write_all(&rest[..n]).unwrap();
            rest = &rest[n..];
        }
        client.shutdown(Shutdown::Write).unwrap();
    });
    let checker = std::thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        got
    });

    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    let mut random = Random(9);
    driver.recv(conn, room(1 + random.below(100_000)));
    wait_until(&mut driver, |driver, completion| match completion {
        Completion::Received { buffer, result, .. } => {
            if result.unwrap() == 0 {
                driver.shutdown_write(conn);
                return true;
            }
            let mut rest = buffer.freeze();
            let mut segments = Vec::new();
            while !rest.is_empty() {
                segments.push(rest.split_to((1 + random.below(30_000)).min(rest.len())));
            }
            driver.send(conn, segments);
            false
        }
        Completion::Sent { segments, result, .. } => {
            result.unwrap();
            assert!(segments.is_empty());
            driver.recv(conn, room(1 + random.below(100_000)));
            false
        }
        other => panic!("{other:?}"),
    });
    writer.join().unwrap();
    assert!(checker.join().unwrap() == expected, "the echo differs from what was sent");
}

#[test]
fn thousands_of_segments_some_of_them_empty_go_out_in_order() {
    let (mut client, server) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    let mut random = Random(1);
    let segments: Vec<Bytes> = (0..5000).map(|n| Bytes::from(random.bytes(n % 7 * 13))).collect();
    let expected = segments.concat();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    driver.send(conn, segments);
    driver.shutdown_write(conn);
    sent(&mut driver, conn).1.unwrap();
    assert!(reader.join().unwrap() == expected);
    driver.send(conn, Vec::new());
    sent(&mut driver, conn).1.unwrap();
}

#[test]
fn fin_follows_an_outstanding_send() {
    let (mut client, server) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    let blob = Random(2).bytes(32 << 20);
    driver.send(conn, vec![Bytes::from(blob.clone())]);
    let mut out = Vec::new();
    driver.wait(Some(Duration::ZERO), &mut out).unwrap();
    assert!(out.is_empty(), "32 MiB cannot fit into socket buffers");
    driver.shutdown_write(conn);
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    sent(&mut driver, conn).1.unwrap();
    assert!(reader.join().unwrap() == blob);
}

#[test]
fn the_end_of_a_send_is_taken_at_once_if_all_is_sent_and_is_then_not_reported() {
    let mut driver = EpollDriver::new().unwrap();
    let ((client, server), (gone, to_gone)) = (pair(), pair());
    let (conn, broken) = (driver.adopt(server).unwrap(), driver.adopt(to_gone).unwrap());
    driver.send(conn, vec![Bytes::from_static(b"at once")]);
    assert_eq!(driver.take_sent(broken), None, "another connection's");
    assert_eq!(driver.take_sent(conn), Some(Vec::new()));
    assert_eq!(driver.take_sent(conn), None, "it was taken");
    let mut out = Vec::new();
    driver.wait(Some(Duration::ZERO), &mut out).unwrap();
    assert!(out.is_empty(), "{out:?}");

    socket2::SockRef::from(&gone).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    driver.send(broken, vec![Bytes::from_static(b"to nobody")]);
    assert_eq!(driver.take_sent(broken), None, "an error is for wait to report");
    sent(&mut driver, broken).1.unwrap_err();

    driver.send(conn, vec![Bytes::from(vec![0; 32 << 20])]);
    assert_eq!(driver.take_sent(conn), None, "32 MiB cannot fit into socket buffers");
    drop(client);
    sent(&mut driver, conn).1.unwrap_err();
}

#[test]
fn the_peers_close_is_reported_after_its_bytes_and_stays_so() {
    let (mut client, server) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    client.write_all(b"last words").unwrap();
    drop(client);
    driver.recv(conn, room(4));
    let mut buffer = BytesMut::new();
    loop {
        let (piece, result) = received(&mut driver, conn);
        buffer.extend_from_slice(&piece);
        if result.unwrap() == 0 {
            break;
        }
        driver.recv(conn, room(4));
    }
    assert_eq!(&buffer[..], b"last words");
    driver.recv(conn, room(4));
    assert_eq!(received(&mut driver, conn).1.unwrap(), 0);
}

#[test]
fn a_reset_ends_both_directions_with_an_error() {
    let (client, server) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    driver.recv(conn, room(64));
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(received(&mut driver, conn).1.unwrap_err().kind(), ErrorKind::ConnectionReset);
    driver.send(conn, vec![Bytes::from_static(b"too late")]);
    let (segments, result) = sent(&mut driver, conn);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(segments.is_empty());
}

#[test]
fn closing_with_unread_bytes_is_a_fin_and_not_a_reset() {
    let (mut client, server) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    driver.send(conn, vec![Bytes::from_static(b"goodbye")]);
    client.write_all(&[0; 100_000]).unwrap();
    driver.close(conn);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"goodbye");
    let mut out = Vec::new();
    driver.wait(Some(Duration::ZERO), &mut out).unwrap();
    assert!(out.is_empty(), "operations of a closed connection do not complete");
}

#[test]
fn a_stale_token_does_not_reach_the_next_connection_of_its_place() {
    let mut driver = EpollDriver::new().unwrap();
    let (_client, server) = pair();
    let old = driver.adopt(server).unwrap();
    driver.recv(old, room(16));
    driver.close(old);
    let (mut client, server) = pair();
    let new = driver.adopt(server).unwrap();
    assert_eq!(old.index(), new.index(), "the place is used again");
    assert_ne!(old, new);
    driver.send(old, vec![Bytes::from_static(b"for nobody")]);
    driver.shutdown_write(old);
    driver.recv(old, room(16));
    driver.close(old);
    assert!(driver.release(old).is_none());
    assert!(
        driver.peer_addr(old).is_none() && driver.local_addr(old).is_none() && driver.tcp_info(old).is_none()
    );
    let mut out = Vec::new();
    driver.wait(Some(Duration::ZERO), &mut out).unwrap();
    assert!(out.is_empty());
    driver.send(new, vec![Bytes::from_static(b"for you")]);
    sent(&mut driver, new).1.unwrap();
    driver.shutdown_write(new);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"for you");
    // A token that was never issued.
    driver.close(Token::new(12345, 6));
    driver.close(Token::from_u64(u64::MAX));
}

#[test]
fn receiving_honours_its_limit_and_refuses_no_room() {
    let (mut client, server) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(server).unwrap();
    client.write_all(b"0123456789").unwrap();
    let mut buffer = room(100);
    buffer.extend_from_slice(b"before ");
    driver.recv_up_to(conn, buffer, 4);
    let (buffer, result) = received(&mut driver, conn);
    assert_eq!((result.unwrap(), &buffer[..]), (4, &b"before 0123"[..]));
    driver.recv_up_to(conn, buffer, 90);
    let (buffer, result) = received(&mut driver, conn);
    assert_eq!((result.unwrap(), &buffer[..]), (6, &b"before 0123456789"[..]));
    driver.recv(conn, BytesMut::new());
    assert_eq!(received(&mut driver, conn).1.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn five_hundred_connections_accept_connect_and_answer_each_other() {
    const CONNECTIONS: usize = 500;
    const ROUNDS: u32 = 5;
    let mut driver = EpollDriver::new().unwrap();
    let (listener, addr) = listener();
    let listening = driver.listen(listener).unwrap();
    // At most as many at a time as the listener's backlog surely holds.
    let mut connecting = 0;
    let mut begun = 0;
    let mut rounds = std::collections::HashMap::new();
    let mut finished = 0;
    while begun < 64 {
        driver.connect(addr, None).unwrap();
        begun += 1;
        connecting += 1;
    }
    wait_until(&mut driver, |driver, completion| {
        match completion {
            Completion::Accepted { listener, stream, peer } => {
                assert_eq!(listener, listening);
                let conn = driver.adopt(stream).unwrap();
                assert_eq!(driver.peer_addr(conn), Some(peer));
                driver.recv(conn, room(64));
            }
            Completion::Connected { conn, result } => {
                result.unwrap();
                connecting -= 1;
                rounds.insert(conn, 0);
                driver.send(conn, vec![Bytes::copy_from_slice(&0u32.to_be_bytes())]);
                driver.recv(conn, room(64));
                if begun < CONNECTIONS {
                    driver.connect(addr, None).unwrap();
                    begun += 1;
                    connecting += 1;
                }
            }
            Completion::Received { conn, buffer, result } => {
                assert_eq!(result.unwrap(), 4);
                let number = u32::from_be_bytes(buffer[..].try_into().unwrap());
                match rounds.get_mut(&conn) {
                    // The accepting side answers with the next number.
                    None => driver.send(conn, vec![Bytes::copy_from_slice(&(number + 1).to_be_bytes())]),
                    Some(round) => {
                        *round += 1;
                        assert_eq!(number, *round);
                        match *round == ROUNDS {
                            true => finished += 1,
                            false => driver.send(conn, vec![buffer.freeze()]),
                        }
                    }
                }
                driver.recv(conn, room(64));
            }
            Completion::Sent { result, .. } => result.unwrap(),
            other => panic!("{other:?}"),
        }
        finished == CONNECTIONS
    });
    assert_eq!((begun, connecting), (CONNECTIONS, 0));
}

#[test]
fn connecting_reports_refusal_and_success_and_binds_the_local_address() {
    let mut driver = EpollDriver::new().unwrap();
    let (gone, addr) = listener();
    drop(gone);
    let refused = driver.connect(addr, None).unwrap();
    match next(&mut driver) {
        Completion::Connected { conn, result } => {
            assert_eq!(conn, refused);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
    driver.close(refused);

    let (listener, addr) = listener();
    let local = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
    let conn = driver.connect(addr, Some(local)).unwrap();
    // Submitted before the connection is established.
    driver.send(conn, vec![Bytes::from_static(b"early")]);
    driver.recv(conn, room(16));
    let mut seen = (false, false);
    wait_until(&mut driver, |_, completion| {
        match completion {
            Completion::Connected { result, .. } => {
                result.unwrap();
                seen.0 = true;
            }
            Completion::Sent { result, .. } => {
                result.unwrap();
                assert!(seen.0, "sent before connected");
                seen.1 = true;
            }
            other => panic!("{other:?}"),
        }
        seen == (true, true)
    });
    let (mut server, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), local);
    assert_eq!(driver.local_addr(conn), Some(peer));
    assert!(driver.tcp_info(conn).unwrap().send_mss_bytes > 0);
    let mut got = [0; 5];
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"early");
    server.write_all(b"late").unwrap();
    assert_eq!(&received(&mut driver, conn).0[..], b"late");
}

#[test]
fn wakes_become_one_and_reach_a_sleeper() {
    let mut driver = EpollDriver::new().unwrap();
    let waker = driver.waker();
    let mut out = Vec::new();
    (0..3).for_each(|_| waker.wake());
    driver.wait(None, &mut out).unwrap();
    assert!(matches!(out[..], [Completion::Woken]));
    out.clear();
    driver.wait(Some(Duration::ZERO), &mut out).unwrap();
    assert!(out.is_empty());

    answer_wakes(&mut driver);
}

/// Each wake is answered before the next, so some wakes find the driver asleep and some awake.
fn answer_wakes(driver: &mut EpollDriver) {
    const WAKES: usize = 2000;
    let (waker, mut out) = (driver.waker(), Vec::new());
    let (answer, answers) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        for _ in 0..WAKES {
            waker.wake();
            answers.recv().unwrap();
        }
    });
    let mut seen = 0;
    while seen < WAKES {
        driver.wait(None, &mut out).unwrap();
        for completion in out.drain(..) {
            assert!(matches!(completion, Completion::Woken));
            seen += 1;
            answer.send(()).unwrap();
        }
    }
    other.join().unwrap();
}

#[test]
fn a_driver_without_connections_or_without_news_does_not_look_for_any() {
    let mut driver = EpollDriver::new().unwrap().with_poll_time(Duration::from_millis(1));
    let mut out = Vec::new();
    let pause = Some(Duration::from_millis(1));
    (0..10).for_each(|_| driver.wait(pause, &mut out).unwrap());
    assert_eq!((driver.poll_counts(), driver.stats().polls), (PollCounts::default(), 10));

    let (_peer, stream) = pair();
    let conn = driver.adopt(stream).unwrap();
    driver.recv(conn, room(16));
    (0..200).for_each(|_| driver.wait(pause, &mut out).unwrap());
    // Polls in vain after 0, 2, 4, 8, 16, 32 and 64 sleeps.
    assert_eq!(driver.poll_counts(), PollCounts { hits: 0, misses: 7 });
    let before = driver.stats().polls;
    (0..50).for_each(|_| driver.wait(pause, &mut out).unwrap());
    assert_eq!(driver.stats().polls, before + 50, "a sleep is one call");

    driver.close(conn);
    (0..500).for_each(|_| driver.wait(Some(Duration::ZERO), &mut out).unwrap());
    assert_eq!(driver.poll_counts().misses, 7, "who does not want to sleep does not look either");
}

#[test]
fn what_a_look_finds_is_what_a_sleep_would_have_been_woken_by() {
    let mut driver = EpollDriver::new().unwrap().with_poll_time(Duration::from_millis(1));
    let (mut peer, stream) = pair();
    let conn = driver.adopt(stream).unwrap();
    let other = std::thread::spawn(move || {
        let mut bytes = [0; 4];
        while peer.read_exact(&mut bytes).is_ok() {
            peer.write_all(&bytes).unwrap();
        }
    });
    // If the peer gets no processor while a poll lasts, few polls succeed.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let mut round = 0_u32;
    while driver.poll_counts().hits < 10 {
        driver.send(conn, vec![Bytes::copy_from_slice(&round.to_be_bytes())]);
        sent(&mut driver, conn).1.unwrap();
        driver.recv(conn, room(4));
        let (buffer, result) = received(&mut driver, conn);
        assert_eq!((result.unwrap(), &buffer[..]), (4, &round.to_be_bytes()[..]));
        round += 1;
        assert!(std::time::Instant::now() < deadline, "{round} rounds, {:?}", driver.poll_counts());
    }
    answer_wakes(&mut driver);
    driver.close(conn);
    other.join().unwrap();
}

#[test]
fn a_released_connection_goes_on_under_another_driver() {
    let (mut client, server) = pair();
    let (mut first, mut second) = (EpollDriver::new().unwrap(), EpollDriver::new().unwrap());
    let conn = first.adopt(server).unwrap();
    first.recv(conn, room(64));
    client.write_all(b"unread").unwrap();
    let stream = first.release(conn).unwrap();
    assert!(first.release(conn).is_none());
    let conn = second.adopt(stream).unwrap();
    second.recv(conn, room(64));
    assert_eq!(&received(&mut second, conn).0[..], b"unread");
    let mut out = Vec::new();
    first.wait(Some(Duration::ZERO), &mut out).unwrap();
    assert!(out.is_empty());
    // It cannot be released while a send is outstanding: the unsent rest would be lost.
    second.send(conn, vec![Bytes::from(vec![0; 32 << 20])]);
    assert!(second.release(conn).is_none());
}

#[test]
fn a_connection_that_never_runs_dry_does_not_starve_another() {
    let mut driver = EpollDriver::new().unwrap();
    let (mut busy_client, server) = pair();
    let busy = driver.adopt(server).unwrap();
    let (mut quiet_client, server) = pair();
    let quiet = driver.adopt(server).unwrap();
    busy_client.write_all(&[1; 64 * 1024]).unwrap();
    driver.recv_up_to(busy, room(64), 1);
    assert_eq!(received(&mut driver, busy).1.unwrap(), 1);
    driver.recv_up_to(busy, room(64), 1);
    driver.recv(quiet, room(64));
    quiet_client.write_all(b"me").unwrap();
    let mut rounds = 0;
    wait_until(&mut driver, |driver, completion| match completion {
        Completion::Received { conn, .. } if conn == quiet => true,
        Completion::Received { .. } => {
            rounds += 1;
            driver.recv_up_to(busy, room(64), 1);
            false
        }
        other => panic!("{other:?}"),
    });
    assert!(rounds < 32, "the quiet connection waited for {rounds} receives of the busy one");
}

#[test]
fn more_segments_than_a_round_takes_are_all_sent_and_counted() {
    let (mut peer, stream) = pair();
    let mut driver = EpollDriver::new().unwrap();
    let conn = driver.adopt(stream).unwrap();
    let segments: Vec<Bytes> = (0..3000_u32).map(|n| Bytes::copy_from_slice(&n.to_be_bytes())).collect();
    let expected = segments.concat();
    driver.send(conn, segments);
    sent(&mut driver, conn).1.unwrap();
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).unwrap();
    assert!(got == expected);
    assert_eq!(driver.stats().bytes, 12_000);
    peer.write_all(&got[..100]).unwrap();
    driver.recv(conn, room(100));
    assert_eq!(received(&mut driver, conn).1.unwrap(), 100);
    assert_eq!(driver.stats().bytes, 12_100);
}
