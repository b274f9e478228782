//! Could one session use more than one core? Three servers for the same load over several connections, for decision 002:
//!
//! - *one thread* does everything for all connections: a session on its shard, as it is.
//! - *own threads*: each connection has a thread for its receiving, framing, digests and sending; each request goes to the
//!   thread of the session for its protocol, and comes back. That thread moves no data, so this is the best case of such a design.
//! - *sessions*: each connection has a thread that does everything. Nothing is handed over.
//!
//! A read is a request of 48 bytes, and an answer of 48 bytes with the data and their CRC32C; a write the reverse. The data are
//! sent from the memory of the volume, and what is written is digested and dropped: a pass of the processor over them costs about the same
//! whether it copies or not. The client has a thread for each connection, computes no digests, and compares all that it gets. Both ends share the processors. So besides
//! the rate, the CPU time of the server counts: all of it, and that of its busiest thread, which limits the rate of a server whose
//! clients are elsewhere. Ratios are to one thread, medians of the ratios within a round.
//!
//! `cargo bench -p intact-engine --bench shapes [-- seconds]`, by default 0.3 seconds for every turn.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use iscsi_core::digest::checksum;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

const HEADER_BYTES: usize = 48;
const VOLUME_BYTES: usize = 64 << 20;
const ROUNDS: usize = 9;
const CONNECTIONS: usize = 2;
const RECEIVE_BYTES: usize = 256 * 1024;
/// Marks a write in the header.
const WRITE: u8 = 1;

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    data_bytes: usize,
    /// Of all connections.
    depth: usize,
    writes: bool,
}

const LOADS: [Load; 3] = [
    Load { name: "4 KiB read", data_bytes: 4096, depth: 32, writes: false },
    Load { name: "128 KiB read", data_bytes: 131_072, depth: 8, writes: false },
    Load { name: "128 KiB write", data_bytes: 131_072, depth: 8, writes: true },
];

/// The data of the volume, and the digest of each of its blocks. What is written is what is there, so reads can be compared.
struct Volume {
    bytes: Vec<u8>,
    digests: Vec<u32>,
}

/// What one turn says.
#[derive(Clone, Copy)]
struct Cost {
    per_second: f64,
    /// CPU time of the server for a request, and that of its busiest thread, microseconds.
    cpu_us: f64,
    busiest_us: f64,
}

/// Serves the connections until the client closes them; returns the CPU time of each thread.
type Serve = fn(Vec<TcpStream>, Arc<Volume>, usize) -> io::Result<Vec<Duration>>;

const SERVERS: [(&str, Serve); 3] =
    [("one thread", one_thread), ("own threads", own_threads), ("sessions", sessions)];

fn main() -> io::Result<()> {
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse::<f64>().ok()).unwrap_or(0.3);
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:<14} {:<12} | {:>9} {:>6} | {:>8} {:>6} | {:>10} {:>6}",
        "load", "server", "per s", "ratio", "CPU us", "ratio", "busiest us", "gain"
    );
    for load in LOADS {
        report(load, time)?;
    }
    Ok(())
}

fn report(load: Load, time: Duration) -> io::Result<()> {
    let bytes: Vec<u8> =
        (0..VOLUME_BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let digests = bytes.chunks(load.data_bytes).map(checksum).collect();
    let volume = Arc::new(Volume { bytes, digests });
    let mut costs: [Vec<Cost>; 3] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..SERVERS.len() {
            // A different one goes first in each round.
            let at = (round + turn) % SERVERS.len();
            costs[at].push(self::turn(&volume, load, time, SERVERS[at].1)?);
        }
    }
    for ((name, _), these) in SERVERS.iter().zip(&costs) {
        let middle = |get: fn(&Cost) -> f64| median(these.iter().map(get).collect());
        let ratio = |get: fn(&Cost) -> f64| {
            median(these.iter().zip(&costs[0]).map(|(this, one)| get(this) / get(one)).collect())
        };
        println!(
            "{:<14} {name:<12} | {:>9.0} {:>6.2} | {:>8.2} {:>6.2} | {:>10.2} {:>6.2}",
            load.name,
            middle(|cost| cost.per_second),
            ratio(|cost| cost.per_second),
            middle(|cost| cost.cpu_us),
            ratio(|cost| cost.cpu_us),
            middle(|cost| cost.busiest_us),
            1.0 / ratio(|cost| cost.busiest_us),
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn turn(volume: &Arc<Volume>, load: Load, time: Duration, serve: Serve) -> io::Result<Cost> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        clients.push(client);
        servers.push(server);
    }
    let served = Arc::clone(volume);
    let server = thread::spawn(move || serve(servers, served, load.data_bytes));
    let began = Instant::now();
    let driving = |(n, stream): (usize, TcpStream)| {
        let volume = Arc::clone(volume);
        thread::spawn(move || drive(stream, n, &volume, load, time))
    };
    let driving: Vec<_> = clients.into_iter().enumerate().map(driving).collect();
    let mut answered = 0;
    for thread in driving {
        answered += joined(thread)??;
    }
    let wall = began.elapsed().as_secs_f64();
    let threads = joined(server)??;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / answered as f64;
    Ok(Cost {
        per_second: answered as f64 / wall,
        cpu_us: each(threads.iter().sum()),
        busiest_us: each(threads.into_iter().max().unwrap_or_default()),
    })
}

fn joined<T>(thread: thread::JoinHandle<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread panicked"))
}

/// Keeps this connection's part of the depth outstanding for `time`, compares every answer, and closes.
fn drive(
    mut stream: TcpStream,
    number: usize,
    volume: &Volume,
    load: Load,
    time: Duration,
) -> io::Result<u64> {
    let blocks = volume.digests.len() as u64;
    let mut places =
        (number as u64..).step_by(CONNECTIONS).map(|n| (n.wrapping_mul(0x9e37_79b9) % blocks) as usize);
    let mut send = |stream: &mut TcpStream, expected: &mut VecDeque<usize>| -> io::Result<()> {
        let block = places.next().expect("it has no end");
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&((block * load.data_bytes) as u64).to_le_bytes());
        expected.push_back(block);
        if !load.writes {
            return stream.write_all(&header);
        }
        header[8..12].copy_from_slice(&volume.digests[block].to_le_bytes());
        header[12] = WRITE;
        stream.write_all(&header)?;
        stream.write_all(&volume.bytes[block * load.data_bytes..][..load.data_bytes])
    };
    let (began, mut answered, mut expected) = (Instant::now(), 0u64, VecDeque::new());
    let mut answer = vec![0; HEADER_BYTES + if load.writes { 0 } else { load.data_bytes }];
    for _ in 0..load.depth / CONNECTIONS {
        send(&mut stream, &mut expected)?;
    }
    while let Some(block) = expected.pop_front() {
        stream.read_exact(&mut answer)?;
        assert_eq!(answer[..8], ((block * load.data_bytes) as u64).to_le_bytes(), "the answer's place");
        if !load.writes {
            let right = &volume.bytes[block * load.data_bytes..][..load.data_bytes];
            assert_eq!(answer[HEADER_BYTES..], *right, "the data of block {block}");
            assert_eq!(answer[8..12], volume.digests[block].to_le_bytes(), "the digest of block {block}");
        }
        answered += 1;
        if began.elapsed() < time {
            send(&mut stream, &mut expected)?;
        }
    }
    Ok(answered)
}

/// A request as it is handed over: its place, and what it is.
#[derive(Clone, Copy)]
struct Request {
    offset: u64,
    writes: bool,
}

/// A connection, as its thread has it.
struct Connection {
    stream: TcpStream,
    received: BytesMut,
    scratch: Vec<u8>,
    data_bytes: usize,
    ended: bool,
}

impl Connection {
    fn new(stream: TcpStream, data_bytes: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            received: BytesMut::with_capacity(RECEIVE_BYTES),
            scratch: vec![0; RECEIVE_BYTES],
            data_bytes,
            ended: false,
        })
    }

    /// Receives what there is, verifies the digests of writes; returns the requests that are whole.
    fn receive(&mut self) -> io::Result<Vec<Request>> {
        match self.stream.read(&mut self.scratch) {
            Ok(0) => self.ended = true,
            Ok(n) => self.received.extend_from_slice(&self.scratch[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut requests = Vec::new();
        while let Some(header) = self.received.first_chunk::<HEADER_BYTES>() {
            let offset = u64::from_le_bytes(*header.first_chunk().expect("48 bytes have 8"));
            let writes = header[12] == WRITE;
            let digest = [header[8], header[9], header[10], header[11]];
            let length = HEADER_BYTES + if writes { self.data_bytes } else { 0 };
            if self.received.len() < length {
                break;
            }
            if writes {
                let data = &self.received[HEADER_BYTES..length];
                assert_eq!(checksum(data).to_le_bytes(), digest, "the digest of a write");
            }
            self.received.advance(length);
            requests.push(Request { offset, writes });
        }
        Ok(requests)
    }

    /// Makes the digests of reads, and sends the answers.
    fn answer(&self, requests: &[Request], volume: &Volume) -> io::Result<()> {
        let mut headers = Vec::with_capacity(requests.len() * HEADER_BYTES);
        for request in requests {
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(&request.offset.to_le_bytes());
            if request.writes {
                headers.extend_from_slice(&header);
                continue;
            }
            let data = &volume.bytes[request.offset as usize..][..self.data_bytes];
            header[8..12].copy_from_slice(&checksum(data).to_le_bytes());
            self.send(&[&header, data])?;
        }
        if headers.is_empty() { Ok(()) } else { self.send(&[&headers]) }
    }

    /// Sends all of it; waits while the client does not receive.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match (&self.stream).write_vectored(rest) {
                Ok(n) => IoSlice::advance_slices(&mut rest, n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], None)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn one_thread(streams: Vec<TcpStream>, volume: Arc<Volume>, data_bytes: usize) -> io::Result<Vec<Duration>> {
    let connections = streams.into_iter().map(|stream| Connection::new(stream, data_bytes));
    let mut connections = connections.collect::<io::Result<Vec<_>>>()?;
    // The clients begin later than this thread.
    let before = thread_cpu();
    while !connections.is_empty() {
        let mut watched: Vec<PollFd<'_>> =
            connections.iter().map(|one| PollFd::new(&one.stream, PollFlags::IN)).collect();
        poll(&mut watched, None)?;
        let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
        for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let requests = connection.receive()?;
            connection.answer(&requests, &volume)?;
        }
        connections.retain(|connection| !connection.ended);
    }
    Ok(vec![thread_cpu() - before])
}

fn sessions(streams: Vec<TcpStream>, volume: Arc<Volume>, data_bytes: usize) -> io::Result<Vec<Duration>> {
    let serve = |stream| {
        let volume = Arc::clone(&volume);
        thread::spawn(move || one_thread(vec![stream], volume, data_bytes))
    };
    let threads: Vec<_> = streams.into_iter().map(serve).collect();
    let mut times = Vec::new();
    for thread in threads {
        times.extend(joined(thread)??);
    }
    Ok(times)
}

/// What the thread of the session gives back to a connection, and how it wakes that.
struct Returns {
    ready: Mutex<Vec<Request>>,
    sleeps: AtomicBool,
    wake: OwnedFd,
}

impl Returns {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { ready: Mutex::default(), sleeps: AtomicBool::new(false), wake })
    }

    fn put(&self, request: Request) -> io::Result<()> {
        self.ready.lock().expect("no thread panics with it").push(request);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            rustix::io::write(&self.wake, &1u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.ready.lock().expect("no thread panics with it"))
    }
}

fn own_threads(streams: Vec<TcpStream>, volume: Arc<Volume>, data_bytes: usize) -> io::Result<Vec<Duration>> {
    let (to_session, at_session) = channel();
    let returns = streams.iter().map(|_| Returns::new().map(Arc::new));
    let returns = returns.collect::<io::Result<Vec<_>>>()?;
    let serve = |(number, stream)| {
        let (volume, to_session) = (Arc::clone(&volume), to_session.clone());
        let returned = Arc::clone(&returns[number]);
        thread::spawn(move || own_thread(number, stream, &volume, data_bytes, &to_session, &returned))
    };
    let threads: Vec<_> = streams.into_iter().enumerate().map(serve).collect();
    drop(to_session);
    let mut times = vec![session(&at_session, &returns)?];
    for thread in threads {
        times.push(joined(thread)??);
    }
    Ok(times)
}

/// The session: it would number and order the commands here.
fn session(requests: &Receiver<(usize, Vec<Request>)>, returns: &[Arc<Returns>]) -> io::Result<Duration> {
    let before = thread_cpu();
    for (connection, requests) in requests {
        for request in requests {
            returns[connection].put(request)?;
        }
    }
    Ok(thread_cpu() - before)
}

fn own_thread(
    number: usize,
    stream: TcpStream,
    volume: &Volume,
    data_bytes: usize,
    to_session: &Sender<(usize, Vec<Request>)>,
    returned: &Returns,
) -> io::Result<Duration> {
    let before = thread_cpu();
    let mut connection = Connection::new(stream, data_bytes)?;
    while !connection.ended {
        returned.sleeps.store(true, Ordering::SeqCst);
        let mut ready = returned.take();
        if ready.is_empty() {
            let mut watched = [
                PollFd::new(&connection.stream, PollFlags::IN),
                PollFd::from_borrowed_fd(returned.wake.as_fd(), PollFlags::IN),
            ];
            poll(&mut watched, None)?;
            if !watched[1].revents().is_empty() {
                rustix::io::read(&returned.wake, &mut [0u8; 8])?;
            }
            ready = returned.take();
        }
        returned.sleeps.store(false, Ordering::SeqCst);
        connection.answer(&ready, volume)?;
        let arrived = connection.receive()?;
        if !arrived.is_empty() && to_session.send((number, arrived)).is_err() {
            break;
        }
    }
    Ok(thread_cpu() - before)
}
