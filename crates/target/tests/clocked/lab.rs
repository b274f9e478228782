//! A server with one shard, whose clock the test controls.

use std::fmt::Debug;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use blockstore::{BlockStore, DelayStore, Gate, RamStore, StoreError};
use conform::{LoginScript, RawPeer, Session, Side, Transcript};
use engine::offload::Job;
use engine::{EpollDriver, Lane, Platform, System};
use iscsi_core::names::IscsiName;
use iscsi_core::wire::{Isid, Lun};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use target::Stepped;
use target::config::{Config, Limits, LunConfig, PortalConfig, TargetConfig};
use target::observe::Observe;
use target::observe::metrics::DataMemory;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const STEP: Duration = Duration::from_secs(20);
const TARGET: &str = "iqn.2026-01.org.example:many";
/// Longer than other tests take, and a timeout that is not a default.
pub const PING_INTERVAL: Duration = Duration::from_secs(3600);
pub const PING_TIMEOUT: Duration = Duration::from_secs(7);
/// Longer than the interval at which a shard checks deadlines.
const A_WHILE: Duration = Duration::from_millis(600);

/// The system, except for its clock.
struct Clocked {
    system: System,
    millis: Arc<AtomicU64>,
    handed_over: Arc<Mutex<Vec<usize>>>,
}

impl Platform for Clocked {
    type Driver = EpollDriver;

    fn driver(&self) -> io::Result<EpollDriver> {
        self.system.driver()
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn offload(&self, lane: &Lane, job: Job) {
        self.system.offload(lane, job);
    }

    fn offload_all(&self, jobs: &mut Vec<(Lane, Job)>) {
        self.handed_over.lock().unwrap().push(jobs.len());
        self.system.offload_all(jobs);
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.system.fill_random(bytes);
    }
}

pub struct Lab {
    address: SocketAddr,
    millis: Arc<AtomicU64>,
    looked_at: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    observe: Arc<Observe>,
    handed_over: Arc<Mutex<Vec<usize>>>,
    log: Receiver<String>,
}

/// Waits until `done`, which `what` names.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < STEP, "still not: {what}");
        std::thread::yield_now();
    }
}

/// Records what the thread of the server logs.
struct Log(Sender<String>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                self.0 += &format!("{}={value:?} ", field.name());
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        // There is no receiver any more when the test has ended.
        let _ = self.0.send(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // An event that wakes up the shard.
        drop(TcpStream::connect(self.address));
    }
}

impl Lab {
    /// A server with one shard in a separate thread.
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// The same with other limits.
    pub fn start_with(change: impl FnOnce(&mut Limits)) -> Self {
        Self::start_on(change, |lun| lun.store.open())
    }

    /// The same with a unit of 16 MiB whose store stands still while the gate is closed.
    pub fn gated(change: impl FnOnce(&mut Limits)) -> (Self, Gate) {
        let (store, gate) = DelayStore::new(RamStore::new(16 << 20, 512).unwrap(), Duration::ZERO);
        let store: Arc<dyn BlockStore> = Arc::new(store);
        (Self::start_on(change, move |_| Ok(Arc::clone(&store))), gate)
    }

    fn start_on(
        change: impl FnOnce(&mut Limits),
        open: impl Fn(&LunConfig) -> Result<Arc<dyn BlockStore>, StoreError> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let name = IscsiName::parse(TARGET).unwrap();
        let target = TargetConfig::new(name, ["ram:1M".parse().unwrap()]);
        let mut config = Config::new(&[address], vec![target]);
        config.limits.ping_interval = PING_INTERVAL;
        config.limits.ping_timeout = PING_TIMEOUT;
        config.limits.login_timeout = Duration::from_secs(3600);
        change(&mut config.limits);
        let millis = Arc::new(AtomicU64::new(1000));
        let looked_at = Arc::<AtomicU64>::default();
        let over = Arc::<AtomicBool>::default();
        let handed_over = Arc::<Mutex<Vec<usize>>>::default();
        let platform = Clocked {
            system: System::new(1),
            millis: Arc::clone(&millis),
            handed_over: Arc::clone(&handed_over),
        };
        let (told, log) = channel();
        let observe = Arc::new(Observe::new());
        let lab = Self {
            address,
            millis,
            looked_at: Arc::clone(&looked_at),
            over: Arc::clone(&over),
            observe: Arc::clone(&observe),
            handed_over,
            log,
        };
        std::thread::spawn(move || {
            let _log = tracing::subscriber::set_default(Log(told));
            let mut server = Stepped::start(platform, config, observe, Arc::new(open), 1).unwrap();
            server.listen(listener, PortalConfig { address, group_tag: 1 });
            while !over.load(Ordering::Relaxed) && server.turn(0).unwrap() {
                looked_at.store(server.looked_at(), Ordering::Relaxed);
            }
        });
        lab
    }

    /// How many jobs the shard gave to worker threads, each time that it gave any.
    pub fn handed_over(&self) -> Vec<usize> {
        self.handed_over.lock().unwrap().clone()
    }

    /// The memory for data in use.
    pub fn memory(&self) -> DataMemory {
        self.observe.metrics.memory()
    }

    /// A login over a socket that takes next to nothing before it is read.
    pub fn log_in_narrowly(&self, number: u32) -> Session {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // Before the connection: the first window says as much.
        set_socket_recv_buffer_size(&socket, 16 << 10).unwrap();
        connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(STEP)).unwrap();
        let peer = RawPeer::over(Box::new(stream), Side::Initiator, STEP, &Transcript::new());
        Session::log_in(peer, Self::script(number), Lun(0)).unwrap()
    }

    pub fn log_in(&self, number: u32) -> Session {
        self.pass_a_while();
        self.log_in_by(Self::script(number))
    }

    pub fn log_in_by(&self, script: LoginScript) -> Session {
        let peer = RawPeer::connect(self.address, STEP, &Transcript::new()).unwrap();
        Session::log_in(peer, script, Lun(0)).unwrap()
    }

    /// A login with an identity that no other number has.
    pub fn script(number: u32) -> LoginScript {
        let mut script = LoginScript::new("iqn.2026-01.org.example:host", Some(TARGET));
        script.isid = Isid::random([0, 0, (number >> 16) as u8], number as u16);
        script
    }

    /// Connects, and returns when the server has closed the connection without a word.
    pub fn is_turned_away(&self) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(STEP)).unwrap();
        match stream.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the connection is not refused: {other:?}"),
        }
    }

    /// The lines of the server's log up to one that contains `what`, and that one.
    pub fn log_until(&self, what: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.contains(what)) {
            lines.push(self.log.recv_timeout(STEP).unwrap_or_else(|_| panic!("no `{what}` in the log")));
        }
        lines
    }

    /// The next line of the server's log that contains `what`; no line before it may contain `not`.
    pub fn log_line(&self, what: &str, not: &str) -> String {
        loop {
            let line = self.log.recv_timeout(STEP).unwrap_or_else(|_| panic!("no `{what}` in the log"));
            assert!(not.is_empty() || !line.contains(not), "{line}");
            if line.contains(what) {
                return line;
            }
        }
    }

    pub fn pass_a_while(&self) {
        self.pass(A_WHILE);
    }

    /// Returns when the initiators' kernels have acknowledged everything that the server sent. A kernel may delay that, and the
    /// shard takes an acknowledgment that it sees late for a sign of life.
    pub fn until_acknowledged(&self) {
        let SocketAddr::V4(address) = self.address else { panic!("{} is no IPv4 address", self.address) };
        let ours = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
        let in_flight = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, queues) = (fields.next(), fields.nth(2));
            local == Some(ours.as_str()) && queues.is_some_and(|queues| !queues.starts_with("00000000:"))
        };
        until("the kernel has acknowledged it", || {
            !std::fs::read_to_string("/proc/self/net/tcp").unwrap().lines().any(in_flight)
        });
    }

    pub fn pass(&self, time: Duration) {
        self.millis.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// How many sessions and connections are examined while `f` runs.
    pub fn looks<T>(&self, f: impl FnOnce() -> T) -> (u64, T) {
        let before = self.looked_at.load(Ordering::Relaxed);
        let result = f();
        (self.looked_at.load(Ordering::Relaxed) - before, result)
    }
}
