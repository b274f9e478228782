//! Ten thousand connections at the same time through one shim, and through the programs in the kernel: none is lost, none is plain, every
//! byte is right, and what one of them takes of memory is bounded.

mod support;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{asking, lab, until};
use tcp_crc::{Method, State};
use tcp_crc_shim::Backend::{self, Bpf, Tun};
use tcp_crc_shim::lab::{End, Lab, Plan};

const CONNECTIONS: usize = 10_000;
/// That open them.
const THREADS: usize = 8;
/// If a socket call takes longer than this, something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);
/// The clients are in a process of their own: many systems allow no process 20,000 descriptors.
const DESCRIPTORS: u64 = CONNECTIONS as u64 + 1000;
/// The address of the server, for that process.
const SERVER: &str = "TCP_CRC_TEST_SERVER";
/// What one connection may take in a shim's table, in bytes; measured is less (docs/tcp-crc.md).
const SHIM_BYTES_MAX: u64 = 1000;

/// Whether this process may have so many descriptors; if not, the test is left out with a word.
fn descriptors() -> bool {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= DESCRIPTORS) {
        return true;
    }
    let maximum = now.maximum.map(|maximum| maximum.max(DESCRIPTORS));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum });
    if let Err(error) = &raised {
        support::left_out(&format!("{DESCRIPTORS} descriptors cannot be had (ulimit -n): {error}"));
    }
    raised.is_ok()
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Memory of the kernel's tables of connections that this process holds, in bytes: hash tables with keys of 36 bytes.
fn tables_bytes() -> u64 {
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = infos.filter_map(|info| std::fs::read_to_string(info.path()).ok());
    let field = |text: &str, name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches(':').trim().parse().ok())
    };
    texts
        .filter(|text| field(text, "map_type") == Some(1) && field(text, "key_size") == Some(36))
        .filter_map(|text| field(&text, "memlock"))
        .sum()
}

fn word(number: usize) -> [u8; 8] {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn read_word(mut stream: &TcpStream) -> [u8; 8] {
    let mut received = [0; 8];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut received).unwrap();
    received
}

/// The process of the clients, which [`Clients::start`] starts: nothing without an address.
#[test]
fn the_clients() {
    let Ok(server) = std::env::var(SERVER) else { return };
    assert!(descriptors());
    let server: SocketAddr = server.parse().unwrap();
    // Several at a time: a single one would mostly wait.
    let connect = |_| TcpStream::connect_timeout(&server, PATIENCE).unwrap();
    let some = || (0..CONNECTIONS / THREADS).map(connect).collect::<Vec<_>>();
    let streams: Vec<TcpStream> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for (number, mut stream) in streams.iter().enumerate() {
        stream.write_all(&word(number)).unwrap();
    }
    for (number, stream) in streams.iter().enumerate() {
        assert_eq!(read_word(stream), word(number + CONNECTIONS), "connection {number}");
    }
    println!("{DONE}");
    // Until the other end has looked at the shims.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

const DONE: &str = "every word has come";

/// That process.
struct Clients {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Clients {
    fn start(lab: &Lab, server: SocketAddr) -> Clients {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_clients", "--nocapture"]).env(SERVER, server.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = lab.host(End::Client).within(|| command.spawn().unwrap()).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Clients { child, lines }
    }

    fn are_done(&mut self) {
        let lines = self.lines.by_ref().lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line == DONE), "the clients have ended early");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Opens all and moves a word through each, both ways. Returns the bytes that one connection takes at one end, in this process and in
/// the kernel's tables.
fn carries(backend: Backend) -> Option<[u64; 2]> {
    let plan = Plan { backends: [backend; 2], ..Plan::both(Some(asking(&[Method::Placed]))) };
    let lab = lab(plan)?;
    let (before, began) = ([resident_bytes(), tables_bytes()], Instant::now());
    let bind = || TcpListener::bind((End::Server.address(false), 0)).unwrap();
    let listener = lab.host(End::Server).within(bind).unwrap();
    rustix::net::listen(&listener, 4096).unwrap();
    let mut clients = Clients::start(&lab, listener.local_addr().unwrap());
    let streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
    let opened = began.elapsed();
    let mut numbers: HashMap<[u8; 8], usize> =
        (0..CONNECTIONS).map(|number| (word(number), number)).collect();
    for mut stream in &streams {
        let number = numbers.remove(&read_word(stream)).expect("a word of a client's, and each once");
        stream.write_all(&word(number + CONNECTIONS)).unwrap();
    }
    clients.are_done();
    let took = began.elapsed();
    let after = [resident_bytes(), tables_bytes()];
    for end in [End::Client, End::Server] {
        let seen = lab.seen(end).unwrap();
        let all: HashSet<_> = seen.connections.iter().map(|(key, ..)| *key).collect();
        assert_eq!(all.len(), CONNECTIONS, "{backend:?} {end:?}");
        let plain =
            seen.connections.iter().filter(|(_, state, _)| *state != State::Protected(Method::Placed));
        assert_eq!(plain.count(), 0, "{backend:?} {end:?}");
        assert!(seen.connections.iter().all(|(.., counters)| counters.verified > 0), "{backend:?} {end:?}");
        assert_eq!((seen.refused, seen.total.bad_crc, seen.total.missing), (0, 0, 0), "{backend:?} {end:?}");
    }
    let each = [0, 1].map(|i: usize| after[i].saturating_sub(before[i]) / (2 * CONNECTIONS as u64));
    println!(
        "{backend:?}: {CONNECTIONS} connections open after {opened:.1?}, a word each way after {took:.1?}; bytes of one at one end: {} of \
         this process, {} of the kernel's tables",
        each[0], each[1]
    );
    drop((streams, numbers));
    clients.end();
    if backend == Bpf {
        until("all are forgotten", || lab.seen(End::Server).unwrap().connections.is_empty());
    }
    Some(each)
}

#[test]
fn ten_thousand_connections_at_the_same_time() {
    if !descriptors() {
        return;
    }
    // The kernel's programs first: what a shim has freed would be used again.
    let (Some(kernel), Some(shim)) = (carries(Bpf), carries(Tun)) else { return };
    assert!(kernel[0] < 100 && (150..400).contains(&kernel[1]), "{kernel:?}");
    assert!((100..SHIM_BYTES_MAX).contains(&shim[0]) && shim[1] == 0, "{shim:?}");
}
