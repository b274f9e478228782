//! PDUs through links on real sockets.

mod support;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Completion, Driver, EpollDriver, Link, SlabRing, TcpInfo, Token, Waker};
use iscsi_core::digest::DigestScope;
use iscsi_core::pdu_reader::{FramingError, PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_wire::Bhs;
use support::{Random, pair, wait_until};

const BOTH: DigestScope = DigestScope { header: true, data: true };

fn link(
    driver: &mut EpollDriver,
    stream: std::net::TcpStream,
    slabs: &SlabRing,
    max_data_bytes: usize,
) -> Link {
    let token = driver.adopt(stream).unwrap();
    let mut link = Link::new(token, PduReader::new(8192), PduWriter::new(), slabs.clone());
    link.set_max_data_bytes(max_data_bytes);
    link
}

fn pdu(random: &mut Random, data_len: usize, ahs_len: usize) -> TxPdu {
    let mut bhs = [0; Bhs::SIZE];
    bhs.copy_from_slice(&random.bytes(Bhs::SIZE));
    TxPdu {
        bhs: Bhs::from_bytes(bhs),
        ahs: random.bytes(ahs_len).into(),
        data: Bytes::from(random.bytes(data_len)).into(),
    }
}

/// The parts of the header that do not depend on the lengths that the writer fills in.
fn fixed_part(bhs: &Bhs) -> (Vec<u8>, Vec<u8>) {
    (bhs.as_bytes()[..4].to_vec(), bhs.as_bytes()[8..].to_vec())
}

fn assert_same(got: &RxPdu, expected: &TxPdu) {
    assert!(got.data_digest_ok);
    assert_eq!(fixed_part(&got.bhs), fixed_part(&expected.bhs));
    assert!(got.ahs == expected.ahs, "the AHS differ");
    assert!(got.data == expected.data.bytes(), "the data differ");
}

/// Hands a completion to the link that it belongs to.
fn feed(links: &mut [&mut Link], completion: Completion) {
    match completion {
        Completion::Received { conn, buffer, result } => {
            let link = links.iter_mut().find(|link| link.token() == conn).unwrap();
            link.on_received(buffer, result.unwrap());
        }
        Completion::Sent { conn, segments, result } => {
            result.unwrap();
            links.iter_mut().find(|link| link.token() == conn).unwrap().on_sent(segments);
        }
        other => panic!("{other:?}"),
    }
}

/// Sends random PDUs of up to `max_data` bytes from one link to another and compares each.
fn round_trip(seed: u64, pdus: usize, max_data: usize, digests: DigestScope) -> (Link, SlabRing) {
    let mut random = Random(seed);
    let slabs = SlabRing::new(1 << 20, 64);
    let mut driver = EpollDriver::new().unwrap();
    let (a, b) = pair();
    let mut tx = link(&mut driver, a, &slabs, max_data);
    let mut rx = link(&mut driver, b, &slabs, max_data);
    tx.set_tx_digests(digests);
    rx.set_rx_digests(digests);
    rx.start(&mut driver);
    let (mut expected, mut kept) = (VecDeque::new(), VecDeque::new());
    let (mut pushed, mut seen) = (0, 0);
    let mut out = Vec::new();
    while seen < pdus {
        while pushed < pdus && tx.tx_backlog_bytes() < 1 << 20 {
            let data_len = match random.below(4) {
                0 => 0,
                1 => random.below(600).min(max_data),
                2 => random.below(max_data + 1),
                _ => max_data - random.below(8),
            };
            let ahs_len = if random.below(5) == 0 { 4 * random.below(20) } else { 0 };
            let pdu = pdu(&mut random, data_len, ahs_len);
            expected.push_back(pdu.clone());
            tx.push(pdu);
            pushed += 1;
            if random.below(3) == 0 {
                tx.flush(&mut driver);
            }
        }
        tx.flush(&mut driver);
        driver.wait(Some(Duration::from_secs(60)), &mut out).unwrap();
        for completion in out.drain(..) {
            feed(&mut [&mut tx, &mut rx], completion);
        }
        while let Some(got) = rx.next_pdu().unwrap() {
            assert_same(&got, &expected.pop_front().unwrap());
            seen += 1;
            // Some are held for a while, so that slabs are pinned and rotate.
            kept.push_back((got.data.clone(), seen));
            if kept.len() > random.below(12) {
                kept.pop_front();
            }
        }
        rx.flush(&mut driver);
    }
    assert_eq!(tx.stats().tx_bytes, rx.stats().rx_bytes);
    assert_eq!((tx.stats().tx_pdus, rx.stats().rx_pdus), (pdus as u64, pdus as u64));
    assert!(!rx.at_boundary(), "a receive is outstanding");
    (rx, slabs)
}

#[test]
fn pdus_of_all_sizes_arrive_as_they_were_sent_under_every_digest() {
    let scopes = [
        DigestScope::NONE,
        BOTH,
        DigestScope { header: true, data: false },
        DigestScope { header: false, data: true },
    ];
    for (n, digests) in scopes.into_iter().enumerate() {
        for max_data in [512, 8192, 65_536, 262_144, 1 << 20] {
            let (rx, _) = round_trip(n as u64 + 1, 120, max_data, digests);
            let counts = rx.stats().digests;
            assert_eq!(counts.header_failed + counts.data_failed, 0);
            assert_eq!(
                (counts.header_verified > 0, counts.data_verified > 0),
                (digests.header, digests.data)
            );
        }
    }
}

#[test]
fn buffers_are_used_again_and_hardly_anything_is_moved_between_them() {
    let (rx, slabs) = round_trip(42, 5000, 65_536, BOTH);
    let (link, ring) = (rx.stats(), slabs.stats());
    assert!(link.rx_bytes > 100 << 20, "{link:?}");
    assert!(link.rx_moved_bytes < link.rx_bytes / 40, "{link:?}");
    assert!(ring.slabs_allocated < 16 && ring.one_off_allocations == 0, "{ring:?}");
    assert!(ring.slabs_reused > 100, "{ring:?}");
}

#[test]
fn a_long_pdu_after_a_quiet_time_is_received_whole() {
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    let (a, b) = pair();
    let mut tx = link(&mut driver, a, &slabs, 1 << 20);
    let mut rx = link(&mut driver, b, &slabs, 1 << 20);
    rx.start(&mut driver);
    let mut random = Random(3);
    for n in 0..600 {
        let expected = pdu(&mut random, if n % 200 == 199 { 1 << 20 } else { 16 }, 0);
        tx.push(expected.clone());
        tx.flush(&mut driver);
        let mut got = None;
        while got.is_none() {
            let mut out = Vec::new();
            driver.wait(Some(Duration::from_secs(60)), &mut out).unwrap();
            out.into_iter().for_each(|completion| feed(&mut [&mut tx, &mut rx], completion));
            got = rx.next_pdu().unwrap();
            rx.flush(&mut driver);
            tx.flush(&mut driver);
        }
        assert_same(&got.unwrap(), &expected);
    }
}

/// Receives PDUs with `data_bytes` of data that have all arrived already. Returns the PDUs per receive, and the longest
/// receive in bytes.
fn receive_what_waits(declared_bytes: usize, data_bytes: usize) -> (f64, usize) {
    let mut bhs = Bhs::from_bytes([7; Bhs::SIZE]);
    bhs.set_total_ahs_length(0);
    bhs.set_data_segment_length(data_bytes);
    let pdu = [bhs.as_bytes(), &vec![9; data_bytes][..]].concat();
    let (mut driver, slabs) = (Held::default(), SlabRing::new(1 << 20, 256));
    let reader = PduReader::new(8192);
    let mut link = Link::new(Token::new(0, 0), reader, PduWriter::new(), slabs);
    link.set_max_data_bytes(declared_bytes);
    link.start(&mut driver);
    let (mut at, mut pdus, mut receives, mut longest) = (0, 0, 0, 0);
    for n in 0..600 {
        let (mut buffer, max_bytes) = driver.receive.take().expect("a receive is always outstanding");
        let bytes = (buffer.capacity() - buffer.len()).min(max_bytes);
        let mut left = bytes;
        while left > 0 {
            let part = left.min(pdu.len() - at);
            buffer.extend_from_slice(&pdu[at..at + part]);
            (at, left) = ((at + part) % pdu.len(), left - part);
        }
        link.on_received(buffer, bytes);
        // The start, until the link knows that the connection is busy, does not count.
        let counts = n >= 100;
        while let Some(got) = link.next_pdu().unwrap() {
            assert_eq!(got.data.len(), data_bytes);
            pdus += usize::from(counts);
        }
        link.flush(&mut driver);
        (receives, longest) = (receives + usize::from(counts), longest.max(bytes));
    }
    let stats = link.stats();
    assert!(stats.rx_moved_bytes < stats.rx_bytes / 20, "{declared_bytes} {data_bytes} {stats:?}");
    (f64::from(u32::try_from(pdus).unwrap()) / f64::from(receives as u32), longest)
}

#[test]
fn one_receive_takes_in_as_many_pdus_as_fit_and_a_long_one_by_itself() {
    const K: usize = 1024;
    for (declared, data, least) in [
        (256 * K, 4 * K, 50.0),
        (256 * K, 32 * K, 7.0),
        (256 * K, 64 * K, 3.5),
        (256 * K, 128 * K, 1.8),
        (64 * K, 64 * K, 1.5),
        (16 * K, 16 * K, 7.0),
        (1024 * K, 64 * K, 3.0),
    ] {
        let (pdus, longest) = receive_what_waits(declared, data);
        assert!(pdus >= least, "{declared} {data}: {pdus} PDUs for each receive");
        assert!(longest < 260 * K, "{declared} {data}: {longest} bytes in one receive");
    }
    for (declared, data) in
        [(256 * K, 160 * K), (256 * K, 256 * K), (1024 * K, 1024 * K), (1024 * K, 192 * K)]
    {
        let (pdus, longest) = receive_what_waits(declared, data);
        assert!((0.8..=1.05).contains(&pdus), "{declared} {data}: {pdus} PDUs for each receive");
        assert!(longest < data + 100 * K, "{declared} {data}: {longest} bytes in one receive");
    }
}

#[test]
fn digests_and_limits_change_between_two_pdus_that_arrived_together() {
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    let (a, b) = pair();
    let mut tx = link(&mut driver, a, &slabs, 512);
    let mut rx = link(&mut driver, b, &slabs, 512);
    let mut random = Random(4);
    let (plain, digested) = (pdu(&mut random, 500, 0), pdu(&mut random, 60_000, 8));
    tx.push(plain.clone());
    tx.set_tx_digests(BOTH);
    tx.push(digested.clone());
    tx.flush(&mut driver);
    rx.start(&mut driver);
    let mut seen = 0;
    wait_until(&mut driver, |driver, completion| {
        feed(&mut [&mut tx, &mut rx], completion);
        while let Some(got) = rx.next_pdu().unwrap() {
            assert_same(&got, if seen == 0 { &plain } else { &digested });
            rx.set_rx_digests(BOTH);
            rx.set_max_data_bytes(65_536);
            seen += 1;
        }
        rx.flush(driver);
        seen == 2
    });
}

#[test]
fn a_header_that_fails_its_digest_and_data_beyond_the_limit_end_the_stream() {
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    for (digests, limit) in [(BOTH, 1 << 20), (DigestScope::NONE, 4096)] {
        let (mut peer, b) = pair();
        let mut rx = link(&mut driver, b, &slabs, limit);
        rx.set_rx_digests(digests);
        let mut bhs = Bhs::from_bytes([0; Bhs::SIZE]);
        bhs.set_data_segment_length(0xff_ffff);
        peer.write_all(bhs.as_bytes()).unwrap();
        peer.write_all(&[0; 4]).unwrap();
        rx.start(&mut driver);
        let held = slabs.stats().held_bytes;
        let mut error = None;
        wait_until(&mut driver, |driver, completion| {
            feed(&mut [&mut rx], completion);
            error = rx.next_pdu().err();
            if error.is_none() {
                rx.flush(driver);
            }
            error.is_some()
        });
        let expected = match digests.header {
            true => FramingError::HeaderDigest,
            false => FramingError::DataTooLong { announced: 0xff_ffff, limit },
        };
        assert_eq!(error, Some(expected));
        assert_eq!(slabs.stats().held_bytes, held, "nothing was allocated by the peer's word");
        driver.close(rx.token());
    }
}

#[test]
fn a_peer_that_does_not_read_stops_being_read_until_it_does() {
    const HIGH_WATER: usize = 64 * 1024;
    const PING: usize = 4096;
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    let (mut peer, b) = pair();
    let mut echo = link(&mut driver, b, &slabs, PING);
    echo.set_tx_high_water(HIGH_WATER);
    echo.start(&mut driver);
    let mut bhs = Bhs::from_bytes([7; Bhs::SIZE]);
    bhs.set_total_ahs_length(0);
    bhs.set_data_segment_length(PING);
    let mut ping = bhs.as_bytes().to_vec();
    ping.extend_from_slice(&[9; PING]);
    // More than the socket buffers of both directions hold, so that writing ends only after reading has started.
    const PINGS: usize = 8000;
    let mut reader = peer.try_clone().unwrap();
    let whole = ping.clone();
    let writer = std::thread::spawn(move || (0..PINGS).for_each(|_| peer.write_all(&whole).unwrap()));
    let (mut most, mut answered, mut pausing) = (0, 0, None);
    let (start, started) = std::sync::mpsc::channel::<()>();
    let checker = std::thread::spawn(move || {
        started.recv().unwrap();
        let mut got = vec![0; ping.len()];
        for _ in 0..PINGS {
            reader.read_exact(&mut got).unwrap();
            assert!(got == ping);
        }
    });
    wait_until(&mut driver, |driver, completion| {
        feed(&mut [&mut echo], completion);
        while let Some(got) = echo.next_pdu().unwrap() {
            answered += 1;
            echo.push(TxPdu::with_data(got.bhs, got.data));
        }
        echo.flush(driver);
        most = most.max(echo.tx_backlog_bytes());
        if echo.is_paused() && pausing.is_none() {
            pausing = Some(answered);
            start.send(()).unwrap();
        }
        answered == PINGS && echo.is_drained()
    });
    assert!(pausing.unwrap() < PINGS, "it paused before the end and went on");
    assert!(most <= HIGH_WATER + 256 * 1024 + PING, "{most} bytes waited");
    writer.join().unwrap();
    checker.join().unwrap();
}

/// A driver on which nothing completes until the test says so.
#[derive(Default)]
struct Held {
    receives: usize,
    /// The outstanding receive.
    receive: Option<(BytesMut, usize)>,
    sends: Vec<Vec<Bytes>>,
    tcp_info: Option<TcpInfo>,
}

impl Driver for Held {
    type Listener = ();
    type Stream = ();

    fn listen(&mut self, (): ()) -> std::io::Result<Token> {
        unreachable!()
    }

    fn adopt(&mut self, (): ()) -> std::io::Result<Token> {
        unreachable!()
    }

    fn connect(&mut self, _: SocketAddr, _: Option<IpAddr>) -> std::io::Result<Token> {
        unreachable!()
    }

    fn recv_up_to(&mut self, _: Token, buffer: BytesMut, max_bytes: usize) {
        self.receives += 1;
        self.receive = Some((buffer, max_bytes));
    }

    fn send(&mut self, _: Token, segments: Vec<Bytes>) {
        self.sends.push(segments);
    }

    fn shutdown_write(&mut self, _: Token) {}

    fn close(&mut self, _: Token) {}

    fn release(&mut self, _: Token) -> Option<()> {
        None
    }

    fn local_addr(&self, _: Token) -> Option<SocketAddr> {
        None
    }

    fn peer_addr(&self, _: Token) -> Option<SocketAddr> {
        None
    }

    fn tcp_info(&self, _: Token) -> Option<TcpInfo> {
        self.tcp_info
    }

    fn waker(&self) -> Waker {
        Waker::from_fn(|| {})
    }

    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Completion<()>>) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn receiving_goes_on_when_half_of_the_backlog_is_gone() {
    const HIGH_WATER: usize = 64 * 1024;
    let mut driver = Held::default();
    let token = Token::new(0, 0);
    let slabs = SlabRing::new(1 << 20, 16);
    let mut link = Link::new(token, PduReader::new(8192), PduWriter::new(), slabs);
    link.set_tx_high_water(HIGH_WATER);
    let mut random = Random(7);
    let answer = pdu(&mut random, HIGH_WATER / 4, 0);
    (0..5).for_each(|_| link.push(answer.clone()));
    link.flush(&mut driver);
    assert_eq!((driver.sends.len(), driver.receives), (1, 0), "more waits than may");
    assert!(link.is_paused());
    // The send completes, but more than half of what may wait has been queued behind it.
    (0..3).for_each(|_| link.push(answer.clone()));
    link.on_sent(Vec::new());
    link.flush(&mut driver);
    assert_eq!((driver.sends.len(), driver.receives), (2, 0), "not yet half of it is gone");
    link.push(answer);
    link.on_sent(Vec::new());
    link.flush(&mut driver);
    assert!(!link.is_drained());
    assert_eq!((driver.sends.len(), driver.receives), (3, 1), "less than half is left");
}

#[test]
fn on_a_slow_path_answers_leave_in_full_segments_until_it_runs_empty() {
    const MSS: usize = 1448;
    let ms = Duration::from_millis;
    let slow = |acked_bytes| {
        let (rtt, min_rtt, send_mss_bytes) = (ms(40), ms(4), MSS as u32);
        Some(TcpInfo { rtt, min_rtt, send_mss_bytes, acked_bytes, ..TcpInfo::default() })
    };
    let mut driver = Held { tcp_info: slow(1), ..Held::default() };
    let slabs = SlabRing::new(1 << 20, 16);
    let mut link = Link::new(Token::new(0, 0), PduReader::new(8192), PduWriter::new(), slabs);
    let (mut random, mut expected) = (Random(8), PduWriter::new());
    let sizes = |driver: &Held| driver.sends.iter().map(|send| send.concat().len()).collect::<Vec<_>>();
    for n in 0..20 {
        let answer = pdu(&mut random, 2048, 0);
        expected.push(answer.clone());
        link.push(answer);
        let again = link.flush_packed(&mut driver, ms(n));
        link.on_sent(Vec::new());
        assert_eq!(again.is_some(), link.tx_backlog_bytes() > 0);
        // Eight answers are on the way.
        let sent: usize = sizes(&driver).iter().sum();
        driver.tcp_info = slow(sent.saturating_sub(8 * 2096).max(1) as u64);
    }
    assert!(sizes(&driver)[3..].iter().all(|bytes| bytes.is_multiple_of(MSS)), "{:?}", sizes(&driver));
    // The rest leaves when little waits on the way.
    let sent: usize = sizes(&driver).iter().sum();
    driver.tcp_info = slow((sent - 2 * MSS) as u64);
    assert_eq!(link.flush_packed(&mut driver, ms(20)), None);
    link.on_sent(Vec::new());
    assert!(link.is_drained());
    let mut whole = Vec::new();
    expected.take(usize::MAX, &mut whole);
    assert!(driver.sends.concat().concat() == whole.concat(), "every byte once and in order");
    // A link that is closing waits for nothing.
    driver.tcp_info = slow(1);
    link.push(pdu(&mut random, 100, 0));
    assert!(link.flush_packed(&mut driver, ms(21)).is_some());
    link.close_after_flush();
    assert_eq!(link.flush_packed(&mut driver, ms(21)), None);
    link.on_sent(Vec::new());
    assert!(link.is_drained());
}

#[test]
fn commands_wait_for_the_rest_of_an_answer_that_has_begun_to_arrive() {
    let ms = Duration::from_millis;
    let info = TcpInfo { rtt: ms(9), min_rtt: ms(4), send_mss_bytes: 1448, ..TcpInfo::default() };
    let mut driver = Held { tcp_info: Some(info), ..Held::default() };
    let slabs = SlabRing::new(1 << 20, 16);
    let mut link = Link::new(Token::new(0, 0), PduReader::new(8192), PduWriter::new(), slabs);
    let mut random = Random(9);
    let mut answer = PduWriter::new();
    answer.push(pdu(&mut random, 2048, 0));
    let mut bytes = Vec::new();
    answer.take(usize::MAX, &mut bytes);
    let bytes = bytes.concat();
    let arrive = |link: &mut Link, driver: &mut Held, part: &[u8]| {
        let (mut buffer, _) = driver.receive.take().expect("it receives");
        buffer.extend_from_slice(part);
        link.on_received(buffer, part.len());
        link.next_pdu().unwrap().is_some()
    };
    link.start(&mut driver);
    assert!(!arrive(&mut link, &mut driver, &bytes[..1448]));
    link.push(pdu(&mut random, 0, 0));
    assert_eq!(link.flush_behind_answers(&mut driver, ms(0)), Some(ms(1)));
    assert_eq!(link.flush_behind_answers(&mut driver, ms(1)), Some(ms(2)), "nothing has come");
    assert!(driver.sends.is_empty());
    assert!(arrive(&mut link, &mut driver, &bytes[1448..]));
    link.push(pdu(&mut random, 0, 0));
    assert_eq!(link.flush_behind_answers(&mut driver, ms(2)), None);
    assert_eq!(driver.sends.concat().concat().len(), 96, "both at once");
    link.on_sent(Vec::new());
    // On a path without queues the target would run out of commands meanwhile.
    driver.tcp_info = Some(TcpInfo { rtt: ms(4), ..info });
    assert!(!arrive(&mut link, &mut driver, &bytes[..1448]));
    link.push(pdu(&mut random, 0, 0));
    assert_eq!(link.flush_behind_answers(&mut driver, ms(3)), None);
    assert_eq!(driver.sends.concat().concat().len(), 144);
}

#[test]
fn no_pdu_is_taken_while_too_many_answers_wait() {
    const HIGH_WATER: usize = 16 * 1024;
    const PING: usize = 1024;
    const PINGS: usize = 20_000;
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    let (mut peer, b) = pair();
    let mut echo = link(&mut driver, b, &slabs, 256 * 1024);
    echo.set_answer_high_water(HIGH_WATER);
    echo.start(&mut driver);
    let mut bhs = Bhs::from_bytes([7; Bhs::SIZE]);
    bhs.set_total_ahs_length(0);
    bhs.set_data_segment_length(PING);
    let ping = [bhs.as_bytes(), &[9; PING][..]].concat();
    let mut reader = peer.try_clone().unwrap();
    let whole = ping.clone();
    let writer = std::thread::spawn(move || (0..PINGS).for_each(|_| peer.write_all(&whole).unwrap()));
    let (start, started) = std::sync::mpsc::channel::<()>();
    let checker = std::thread::spawn(move || {
        started.recv().unwrap();
        let mut got = vec![0; ping.len()];
        (0..PINGS).for_each(|_| reader.read_exact(&mut got).unwrap());
    });
    let (mut most, mut answered, mut held_back) = (0, 0, None);
    wait_until(&mut driver, |driver, completion| {
        feed(&mut [&mut echo], completion);
        while let Some(got) = echo.next_pdu().unwrap() {
            answered += 1;
            echo.push(TxPdu::with_data(got.bhs, got.data));
        }
        most = most.max(echo.answer_backlog_bytes());
        echo.flush(driver);
        if echo.is_holding_back() && held_back.is_none() && echo.is_paused() {
            held_back = Some(answered);
            start.send(()).unwrap();
        }
        answered == PINGS && echo.is_drained()
    });
    assert!(held_back.unwrap() < PINGS, "it went on");
    assert!(most <= HIGH_WATER + PING + Bhs::SIZE, "{most} bytes waited");
    writer.join().unwrap();
    checker.join().unwrap();
}

#[test]
fn what_is_kept_of_many_buffers_takes_up_no_more_than_the_ring() {
    const SMALL: usize = 512;
    const LARGE: usize = 128 * 1024;
    let slabs = SlabRing::new(1 << 20, 4);
    let mut driver = EpollDriver::new().unwrap();
    let (mut peer, b) = pair();
    let mut link = link(&mut driver, b, &slabs, 256 * 1024);
    link.start(&mut driver);
    let frame = |length: usize| {
        let mut bhs = Bhs::from_bytes([7; Bhs::SIZE]);
        bhs.set_total_ahs_length(0);
        bhs.set_data_segment_length(length);
        [bhs.as_bytes(), &vec![9; length][..]].concat()
    };
    // A small PDU in each buffer, and large ones that are not kept.
    let round = [frame(SMALL), frame(LARGE).repeat(4)].concat();
    let writer = std::thread::spawn(move || (0..100).for_each(|_| peer.write_all(&round).unwrap()));
    let (mut kept, mut seen) = (Vec::new(), 0);
    wait_until(&mut driver, |driver, completion| {
        feed(&mut [&mut link], completion);
        while let Some(got) = link.next_pdu().unwrap() {
            seen += 1;
            if got.data.len() == SMALL {
                kept.push(got.data);
            }
        }
        link.flush(driver);
        seen == 500
    });
    writer.join().unwrap();
    assert_eq!(kept.len(), 100);
    let alone = kept.iter().filter(|data| data.is_unique()).count();
    assert!(alone > 80, "{alone} of them are copies");
    let stats = slabs.stats();
    assert!(stats.held_bytes <= 4 << 20 && stats.held_bytes > 1 << 20, "{stats:?}");
}

/// A connection that keeps a little of each buffer pins at most half of the ring: the others continue with the rest.
#[test]
fn one_connection_pins_no_more_than_half_of_the_ring() {
    const SMALL: usize = 512;
    const LARGE: usize = 128 * 1024;
    const RING: usize = 16 << 20;
    let slabs = SlabRing::new(1 << 20, RING >> 20);
    let mut driver = EpollDriver::new().unwrap();
    let frame = |length: usize| {
        let mut bhs = Bhs::from_bytes([7; Bhs::SIZE]);
        bhs.set_total_ahs_length(0);
        bhs.set_data_segment_length(length);
        [bhs.as_bytes(), &vec![9; length][..]].concat()
    };
    let round = [frame(SMALL), frame(LARGE).repeat(4)].concat();
    let mut carry = |rounds: usize, kept: &mut Vec<Bytes>| {
        let (mut peer, b) = pair();
        let mut link = link(&mut driver, b, &slabs, 256 * 1024);
        link.start(&mut driver);
        let round = round.clone();
        let writer = std::thread::spawn(move || {
            (0..rounds).for_each(|_| peer.write_all(&round).unwrap());
            peer
        });
        let mut seen = 0;
        wait_until(&mut driver, |driver, completion| {
            feed(&mut [&mut link], completion);
            while let Some(got) = link.next_pdu().unwrap() {
                seen += 1;
                if got.data.len() == SMALL {
                    kept.push(got.data);
                }
            }
            link.flush(driver);
            seen == 5 * rounds
        });
        // Nothing of this connection may arrive while the next one is at work.
        writer.join().unwrap()
    };
    let (mut greedy, mut other) = (Vec::new(), Vec::new());
    let _open = carry(400, &mut greedy);
    let pinned = slabs.stats();
    assert!(pinned.held_bytes > RING / 4, "it keeps what it can: {pinned:?}");
    assert!(pinned.held_bytes <= RING / 2 + (1 << 20), "{pinned:?}");
    let _also_open = carry(400, &mut other);
    let both = slabs.stats();
    assert_eq!(both.one_off_allocations, pinned.one_off_allocations, "the other one has buffers of the ring");
    assert_eq!((greedy.len(), other.len()), (400, 400));
}

#[test]
fn closing_sends_what_is_queued_then_fin_and_ignores_what_arrives() {
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    let (mut peer, b) = pair();
    let mut link = link(&mut driver, b, &slabs, 65_536);
    link.start(&mut driver);
    let mut random = Random(5);
    let mut expected = PduWriter::new();
    for _ in 0..200 {
        let pdu = pdu(&mut random, 60_000, 0);
        link.push(pdu.clone());
        expected.push(pdu);
    }
    link.close_after_flush();
    assert!(link.is_closing() && !link.is_drained());
    link.flush(&mut driver);
    let other = std::thread::spawn(move || {
        peer.write_all(&[0xff; 300_000]).unwrap();
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got
    });
    wait_until(&mut driver, |driver, completion| {
        feed(&mut [&mut link], completion);
        assert!(link.next_pdu().unwrap().is_none());
        link.flush(driver);
        link.peer_closed()
    });
    assert!(link.is_drained());
    driver.close(link.token());
    let mut segments = Vec::new();
    expected.take(usize::MAX, &mut segments);
    assert!(other.join().unwrap() == segments.concat());
}

#[test]
fn a_link_moves_to_another_thread_in_the_middle_of_its_stream() {
    let slabs = SlabRing::new(1 << 20, 16);
    let mut driver = EpollDriver::new().unwrap();
    let (mut peer, b) = pair();
    let mut random = Random(6);
    let pdus: Vec<TxPdu> = (0..3).map(|n| pdu(&mut random, 1000 * n, 0)).collect();
    let mut writer = PduWriter::new();
    pdus.iter().cloned().for_each(|pdu| writer.push(pdu));
    let mut segments = Vec::new();
    writer.take(usize::MAX, &mut segments);
    let stream = segments.concat();
    // The first PDU, the second, and a part of the third.
    peer.write_all(&stream[..1500]).unwrap();
    let mut moving = link(&mut driver, b, &slabs, 8192);
    moving.start(&mut driver);
    let mut first = None;
    wait_until(&mut driver, |driver, completion| {
        feed(&mut [&mut moving], completion);
        first = moving.next_pdu().unwrap();
        if first.is_none() {
            moving.flush(driver);
        }
        first.is_some()
    });
    assert_same(&first.unwrap(), &pdus[0]);
    let socket = driver.release(moving.token()).unwrap();
    let shard = std::thread::spawn(move || {
        let mut driver = EpollDriver::new().unwrap();
        moving.rebind(driver.adopt(socket).unwrap(), SlabRing::new(1 << 20, 16));
        let mut seen = Vec::new();
        while let Some(got) = moving.next_pdu().unwrap() {
            seen.push(got);
        }
        moving.flush(&mut driver);
        wait_until(&mut driver, |driver, completion| {
            feed(&mut [&mut moving], completion);
            while let Some(got) = moving.next_pdu().unwrap() {
                seen.push(got);
            }
            moving.flush(driver);
            moving.peer_closed()
        });
        assert!(moving.at_boundary(), "the peer closed between two PDUs");
        seen
    });
    peer.write_all(&stream[1500..]).unwrap();
    drop(peer);
    let seen = shard.join().unwrap();
    assert_eq!(seen.len(), 2);
    seen.iter().zip(&pdus[1..]).for_each(|(got, expected)| assert_same(got, expected));
}
