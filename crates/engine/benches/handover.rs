//! What it costs to hand a command from thread to thread: decision 002, measured again.
//!
//! A client keeps `depth` read requests outstanding over loopback; a request is 48 bytes, its answer 48 bytes and the data, which is copied
//! from the volume, with its CRC32C. Two servers take turns:
//!
//! - *inline*: one thread receives what has arrived, executes the requests, and sends all answers in one call.
//! - *chain*: a reader, a unit and a writer, each a thread, with channels between them. The reader hands over each request, and the writer
//!   sends what is waiting in one call.
//!
//! What counts is the CPU time of the server's threads for a request; below it is the number of requests per second. Every answer is
//! compared. The ratios are medians of the ratios within a round.
//!
//! `cargo bench -p intact-engine --bench handover [-- seconds]`, by default half a second for every turn.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use iscsi_core::digest::checksum;
use rustix::time::{ClockId, clock_gettime};

const HEADER_BYTES: usize = 48;
const VOLUME_BYTES: usize = 64 << 20;
const ROUNDS: usize = 7;
/// Bytes of a receive: many requests, as a busy connection has it.
const RECEIVE_BYTES: usize = 64 * 1024;
/// Answers sent in one call.
const MAX_SENT: usize = 64;

/// A request as it travels: where to read, or the end.
#[derive(Clone, Copy)]
struct Request {
    offset: u64,
}

/// An answer: its header with the digest, and the data.
struct Answer {
    header: [u8; HEADER_BYTES],
    data: Bytes,
}

#[derive(Clone, Copy)]
struct Load {
    data_bytes: usize,
    depth: usize,
}

/// What one turn says.
#[derive(Clone, Copy)]
struct Cost {
    cpu_us: f64,
    per_second: f64,
}

fn main() -> io::Result<()> {
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse::<f64>().ok()).unwrap_or(0.5);
    let time = Duration::from_secs_f64(seconds);
    let volume: Bytes =
        (0..VOLUME_BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    println!(
        "{:>8} {:>5} | {:>13} {:>13} {:>6} | {:>12} {:>12} {:>6}",
        "data", "depth", "inline us CPU", "chain us CPU", "ratio", "inline /s", "chain /s", "ratio"
    );
    for (data_bytes, depth) in [(4096, 1), (4096, 32), (65_536, 8), (131_072, 8)] {
        report(&volume, Load { data_bytes, depth }, time)?;
    }
    Ok(())
}

fn report(volume: &Bytes, load: Load, time: Duration) -> io::Result<()> {
    let (mut inlines, mut chains) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        inlines.push(turn(volume, load, time, inline)?);
        chains.push(turn(volume, load, time, chain)?);
    }
    let of = |costs: &[Cost], get: fn(&Cost) -> f64| median(costs.iter().map(get).collect());
    let ratio = |get: fn(&Cost) -> f64| {
        median(inlines.iter().zip(&chains).map(|(inline, chain)| get(chain) / get(inline)).collect())
    };
    println!(
        "{:>8} {:>5} | {:>13.2} {:>13.2} {:>6.2} | {:>12.0} {:>12.0} {:>6.2}",
        load.data_bytes,
        load.depth,
        of(&inlines, |cost| cost.cpu_us),
        of(&chains, |cost| cost.cpu_us),
        ratio(|cost| cost.cpu_us),
        of(&inlines, |cost| cost.per_second),
        of(&chains, |cost| cost.per_second),
        ratio(|cost| cost.per_second),
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Serves one connection until the client closes it; returns the CPU time of its threads.
type Serve = fn(TcpStream, Bytes, usize) -> io::Result<Duration>;

/// One client and one server for `time`.
fn turn(volume: &Bytes, load: Load, time: Duration, serve: Serve) -> io::Result<Cost> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let served = volume.clone();
    let server = thread::spawn(move || serve(server, served, load.data_bytes));
    let began = Instant::now();
    let answered = drive(client, volume, load, time)?;
    let wall = began.elapsed().as_secs_f64();
    let cpu = server.join().map_err(|_| io::Error::other("the server panicked"))??;
    Ok(Cost { cpu_us: cpu.as_secs_f64() * 1e6 / answered as f64, per_second: answered as f64 / wall })
}

/// Keeps `depth` requests outstanding for `time`, compares every answer, and closes.
fn drive(mut stream: TcpStream, volume: &[u8], load: Load, time: Duration) -> io::Result<u64> {
    let mut offsets = (0u64..).map(|n| n.wrapping_mul(0x9e37_79b9) % blocks(load) * load.data_bytes as u64);
    let (began, mut answered, mut expected) = (Instant::now(), 0u64, std::collections::VecDeque::new());
    let mut answer = vec![0; HEADER_BYTES + load.data_bytes];
    for _ in 0..load.depth {
        let offset = offsets.next().expect("it has no end");
        stream.write_all(&request(offset))?;
        expected.push_back(offset as usize);
    }
    while let Some(offset) = expected.pop_front() {
        stream.read_exact(&mut answer)?;
        let right = &volume[offset..][..load.data_bytes];
        assert_eq!(answer[HEADER_BYTES..], *right, "the data at {offset}");
        assert_eq!(answer[8..12], checksum(right).to_le_bytes(), "the digest at {offset}");
        answered += 1;
        if began.elapsed() < time {
            let offset = offsets.next().expect("it has no end");
            stream.write_all(&request(offset))?;
            expected.push_back(offset as usize);
        }
    }
    Ok(answered)
}

fn blocks(load: Load) -> u64 {
    (VOLUME_BYTES / load.data_bytes) as u64
}

fn request(offset: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&offset.to_le_bytes());
    header
}

/// Requests of a connection, as they arrive; none at its end.
struct Requests {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Requests {
    fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: BytesMut::with_capacity(RECEIVE_BYTES) }
    }

    /// Receives once and returns all requests that are whole.
    fn receive(&mut self) -> io::Result<Vec<Request>> {
        let mut scratch = [0; RECEIVE_BYTES];
        loop {
            let n = self.stream.read(&mut scratch)?;
            self.buffer.extend_from_slice(&scratch[..n]);
            if n == 0 || self.buffer.len() >= HEADER_BYTES {
                break;
            }
        }
        let whole = self.buffer.len() / HEADER_BYTES;
        let mut requests = Vec::with_capacity(whole);
        for _ in 0..whole {
            let header = self.buffer.split_to(HEADER_BYTES);
            let offset = header.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            requests.push(Request { offset });
        }
        Ok(requests)
    }
}

/// Executes a request: copies the data and computes its digest.
fn execute(volume: &[u8], request: Request, data_bytes: usize) -> Answer {
    let data = Bytes::copy_from_slice(&volume[request.offset as usize..][..data_bytes]);
    let mut header = [0; HEADER_BYTES];
    header[8..12].copy_from_slice(&checksum(&data).to_le_bytes());
    Answer { header, data }
}

/// Sends all of `answers` with as few calls as possible.
fn send(mut stream: &TcpStream, answers: &[Answer]) -> io::Result<()> {
    for some in answers.chunks(MAX_SENT) {
        let mut slices: Vec<IoSlice<'_>> =
            some.iter().flat_map(|a| [IoSlice::new(&a.header), IoSlice::new(&a.data)]).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let n = stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, n);
        }
    }
    Ok(())
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn inline(stream: TcpStream, volume: Bytes, data_bytes: usize) -> io::Result<Duration> {
    let mut requests = Requests::new(stream.try_clone()?);
    loop {
        let arrived = requests.receive()?;
        if arrived.is_empty() {
            return Ok(thread_cpu());
        }
        let answers: Vec<Answer> =
            arrived.into_iter().map(|request| execute(&volume, request, data_bytes)).collect();
        send(&stream, &answers)?;
    }
}

fn chain(stream: TcpStream, volume: Bytes, data_bytes: usize) -> io::Result<Duration> {
    let (to_unit, at_unit): (Sender<Request>, Receiver<Request>) = channel();
    let (to_writer, at_writer): (Sender<Answer>, Receiver<Answer>) = channel();
    let mut requests = Requests::new(stream.try_clone()?);
    let unit = thread::spawn(move || {
        for request in at_unit {
            if to_writer.send(execute(&volume, request, data_bytes)).is_err() {
                break;
            }
        }
        thread_cpu()
    });
    let writer = thread::spawn(move || -> io::Result<Duration> {
        while let Ok(first) = at_writer.recv() {
            let mut answers = vec![first];
            answers.extend(at_writer.try_iter().take(MAX_SENT - 1));
            send(&stream, &answers)?;
        }
        Ok(thread_cpu())
    });
    loop {
        let arrived = requests.receive()?;
        if arrived.is_empty() {
            break;
        }
        for request in arrived {
            if to_unit.send(request).is_err() {
                break;
            }
        }
    }
    let reader = thread_cpu();
    drop(to_unit);
    let panicked = |_| io::Error::other("a thread of the chain panicked");
    Ok(reader + unit.join().map_err(panicked)? + writer.join().map_err(panicked)??)
}
