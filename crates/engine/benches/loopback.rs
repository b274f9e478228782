//! PDUs through links and epoll drivers, compared with blocking sockets that send and receive the same bytes.
//!
//! Two threads over loopback. *read*: a 48-byte request is answered with 48 bytes and the data; *write*: 48 bytes and the data
//! are answered with 48 bytes; `depth` requests are outstanding. Every byte is verified in both variants. The two variants
//! alternate within one run, and the ratios are those of medians: wall time, and CPU time of the process (user and system), which
//! is more reliable on a machine with other load. Below 1 the link is better.
//!
//! `cargo bench -p intact-engine [-- seconds]`, by default one second for every line.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::driver::epoll::EpollStats;
use engine::{Completion, Driver, EpollDriver, Link, SlabRing};
use iscsi_core::digest::DigestScope;
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_wire::Bhs;

const HEADER: usize = Bhs::SIZE;
const TURNS: usize = 5;

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Read,
    Write,
}

#[derive(Clone, Copy)]
struct Load {
    direction: Direction,
    data_len: usize,
    depth: usize,
    digests: DigestScope,
}

impl Load {
    /// Requests outstanding. Writes: at most 1 MiB, since more would only show how caches overflow.
    fn depth(self) -> usize {
        match self.direction {
            Direction::Read => self.depth,
            Direction::Write => self.depth.min(((1 << 20) / self.data_len).max(1)),
        }
    }

    /// Data of a request and of an answer, bytes.
    fn lens(self) -> (usize, usize) {
        match self.direction {
            Direction::Read => (0, self.data_len),
            Direction::Write => (self.data_len, 0),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Cost {
    wall: f64,
    cpu: f64,
    calls: f64,
    guesses_lost: f64,
}

fn main() {
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse::<f64>().ok()).unwrap_or(1.0);
    println!(
        "{:5} {:>8} {:>5} {:7} | {:>9} {:>9} | {:>6} {:>6} | {:>8} {:>9}",
        "", "data", "depth", "digest", "plain us", "link us", "wall", "cpu", "calls/op", "empty/op"
    );
    let both = DigestScope { header: true, data: true };
    for digests in [DigestScope::NONE, both] {
        for direction in [Direction::Read, Direction::Write] {
            for (data_len, depth) in
                [(4096, 1), (4096, 32), (65_536, 8), (131_072, 1), (131_072, 8), (1 << 20, 1)]
            {
                report(Load { direction, data_len, depth, digests }, seconds);
            }
        }
    }
}

fn report(load: Load, seconds: f64) {
    let probe = plain(load, 200);
    let ops = ((seconds / (2 * TURNS) as f64 / probe.wall) as usize).max(100);
    let (mut of_plain, mut of_link) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        of_plain.push(plain(load, ops));
        of_link.push(linked(load, ops));
    }
    let median = |costs: &[Cost], what: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(what).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (plain_wall, link_wall) = (median(&of_plain, |c| c.wall), median(&of_link, |c| c.wall));
    println!(
        "{:5} {:>8} {:>5} {:7} | {:>9.2} {:>9.2} | {:>6.2} {:>6.2} | {:>8.2} {:>9.2}",
        if load.direction == Direction::Read { "read" } else { "write" },
        load.data_len,
        load.depth(),
        if load.digests.data { "crc32c" } else { "none" },
        plain_wall * 1e6,
        link_wall * 1e6,
        link_wall / plain_wall,
        median(&of_link, |c| c.cpu) / median(&of_plain, |c| c.cpu),
        median(&of_link, |c| c.calls),
        median(&of_link, |c| c.guesses_lost),
    );
}

fn payload(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn header(data_len: usize) -> Bhs {
    let mut bhs = Bhs::from_bytes([0; HEADER]);
    bhs.set_data_segment_length(data_len);
    bhs
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback listener");
    let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let (server, _) = listener.accept().expect("the other end");
    client.set_nodelay(true).and(server.set_nodelay(true)).expect("TCP_NODELAY");
    (client, server)
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measured(ops: usize, run: impl FnOnce() -> EpollStats) -> Cost {
    let (wall, cpu) = (Instant::now(), cpu_time());
    let stats = run();
    let calls = stats.polls + stats.receives + stats.sends;
    Cost {
        wall: wall.elapsed().as_secs_f64() / ops as f64,
        cpu: (cpu_time() - cpu).as_secs_f64() / ops as f64,
        calls: calls as f64 / ops as f64,
        guesses_lost: stats.empty_receives as f64 / ops as f64,
    }
}

fn plain(load: Load, ops: usize) -> Cost {
    let (request_len, answer_len) = load.lens();
    let (mut client, mut server) = pair();
    let (request, answer) = (message(request_len), message(answer_len));
    let (to_send, to_check) = (answer.clone(), request.clone());
    measured(ops, || {
        let other = std::thread::spawn(move || {
            let mut buffer = vec![0; to_check.len()];
            for _ in 0..ops {
                server.read_exact(&mut buffer).expect("a request");
                assert!(buffer == to_check, "the request differs");
                write_message(&mut server, &to_send);
            }
        });
        let mut buffer = vec![0; answer.len()];
        let mut begun = 0;
        for done in 0..ops {
            while begun < ops.min(done + load.depth) {
                // A blocking writer with all of a large window ahead of it would deadlock with a blocking peer.
                if begun > done
                    && load.direction == Direction::Write
                    && (begun - done) * request.len() > 1 << 20
                {
                    break;
                }
                write_message(&mut client, &request);
                begun += 1;
            }
            client.read_exact(&mut buffer).expect("an answer");
            assert!(buffer == answer, "the answer differs");
        }
        other.join().expect("the peer");
        EpollStats::default()
    })
}

fn message(data_len: usize) -> Vec<u8> {
    [header(data_len).as_bytes().to_vec(), payload(data_len)].concat()
}

/// Header and data from two buffers, as in any implementation.
fn write_message(stream: &mut TcpStream, message: &[u8]) {
    let (head, data) = message.split_at(HEADER);
    let sent = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(data)]).expect("to write");
    stream.write_all(&message[sent..]).expect("to write");
}

fn linked(load: Load, ops: usize) -> Cost {
    let (request_len, answer_len) = load.lens();
    let (client, server) = pair();
    measured(ops, || {
        let other = std::thread::spawn(move || {
            let answer = Bytes::from(payload(answer_len));
            let request = payload(request_len);
            let mut done = 0;
            End::new(server, load).run(ops, |link, data| {
                assert!(*data == request[..], "the request differs");
                link.push(TxPdu::with_data(header(0), answer.clone()));
                done += 1;
                done == ops
            })
        });
        let (request, answer) = (Bytes::from(payload(request_len)), payload(answer_len));
        let mut end = End::new(client, load);
        let mut begun = 0;
        while begun < ops.min(load.depth()) {
            end.link.push(TxPdu::with_data(header(0), request.clone()));
            begun += 1;
        }
        let mut done = 0;
        let mine = end.run(ops, |link, data| {
            assert!(*data == answer[..], "the answer differs");
            done += 1;
            if begun < ops {
                begun += 1;
                link.push(TxPdu::with_data(header(0), request.clone()));
            }
            done == ops
        });
        let theirs = other.join().expect("the peer");
        EpollStats {
            polls: mine.polls + theirs.polls,
            receives: mine.receives + theirs.receives,
            empty_receives: mine.empty_receives + theirs.empty_receives,
            sends: mine.sends + theirs.sends,
            bytes: mine.bytes + theirs.bytes,
        }
    })
}

struct End {
    driver: EpollDriver,
    link: Link,
}

impl End {
    fn new(stream: TcpStream, load: Load) -> Self {
        let mut driver = EpollDriver::new().expect("a driver");
        let token = driver.adopt(stream).expect("to adopt");
        let slabs = SlabRing::new(1 << 20, 64);
        let mut link = Link::new(token, PduReader::new(load.data_len), PduWriter::new(), slabs);
        link.set_max_data_bytes(load.data_len);
        link.set_rx_digests(load.digests);
        link.set_tx_digests(load.digests);
        Self { driver, link }
    }

    /// Feeds PDUs to `on_pdu` until it returns true and everything is sent.
    fn run(mut self, ops: usize, mut on_pdu: impl FnMut(&mut Link, &Bytes) -> bool) -> EpollStats {
        self.link.start(&mut self.driver);
        let mut out = Vec::new();
        let mut done = ops == 0;
        while !done || !self.link.is_drained() {
            self.driver.wait(None, &mut out).expect("to wait");
            for completion in out.drain(..) {
                match completion {
                    Completion::Received { buffer, result, .. } => {
                        self.link.on_received(buffer, result.expect("to receive"));
                        while let Some(pdu) = self.link.next_pdu().expect("framing") {
                            assert!(pdu.data_digest_ok);
                            done |= on_pdu(&mut self.link, &pdu.data);
                        }
                    }
                    Completion::Sent { segments, result, .. } => {
                        result.expect("to send");
                        self.link.on_sent(segments);
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.link.flush(&mut self.driver);
        }
        self.driver.stats()
    }
}
