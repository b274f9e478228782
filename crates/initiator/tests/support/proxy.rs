//! A link between initiator and target that can be cut or damage data, one connection at a time.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// How to damage one direction of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Flips one bit of a long chunk from the target: data, since headers are short.
    ToInitiator,
    /// The same in the other direction.
    ToTarget,
}

struct Way {
    ends: [TcpStream; 2],
    flips: [AtomicBool; 2],
    dies_of_data: AtomicBool,
    dies_of_text: Arc<AtomicBool>,
    renames: Renames,
}

/// What the target sends and what the initiator reads instead, of the same length.
type Renames = Arc<Mutex<Option<(&'static [u8], &'static [u8])>>>;

/// See the head of the module. Connections are numbered in order of arrival.
pub struct Proxy {
    address: SocketAddr,
    ways: Arc<Mutex<Vec<Arc<Way>>>>,
    closed: Arc<AtomicBool>,
    dies_of_text: Arc<AtomicBool>,
    renames: Renames,
}

/// Opcode of a Text Request.
const TEXT_REQUEST: u8 = 0x04;
/// A chunk of at least this length holds data, bytes.
const LONG: usize = 2048;

impl Proxy {
    pub fn start(to: SocketAddr) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), to)
    }

    /// A proxy that listens at `at`.
    pub fn start_at(at: SocketAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        let ways = Arc::new(Mutex::new(Vec::new()));
        let (closed, dies_of_text) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let renames = Renames::default();
        let (all, over, text, names) = (ways.clone(), closed.clone(), dies_of_text.clone(), renames.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(to) else { continue };
                let way = Arc::new(Way {
                    ends: [client, server],
                    flips: Default::default(),
                    dies_of_data: AtomicBool::new(false),
                    dies_of_text: text.clone(),
                    renames: names.clone(),
                });
                all.lock().push(way.clone());
                for from in 0..2 {
                    let way = way.clone();
                    std::thread::spawn(move || way.carry(from));
                }
            }
        });
        Self { address, ways, closed, dies_of_text, renames }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections so far.
    pub fn count(&self) -> usize {
        self.ways.lock().len()
    }

    /// Client addresses of the connections that have not been cut.
    pub fn clients(&self) -> Vec<IpAddr> {
        self.ways.lock().iter().filter_map(|way| Some(way.ends[0].peer_addr().ok()?.ip())).collect()
    }

    /// Accepts no more connections, and cuts the existing ones.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        while TcpStream::connect(self.address).is_ok() {
            std::thread::yield_now();
        }
        (0..self.count()).for_each(|n| self.cut(n));
    }

    /// Cuts the connection `n`.
    pub fn cut(&self, n: usize) {
        let way = self.ways.lock()[n].clone();
        for end in &way.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the connection `n` instead of passing on the next data of the target: a command is under way then.
    pub fn cut_at_data(&self, n: usize) {
        self.ways.lock()[n].dies_of_data.store(true, Ordering::Relaxed);
    }

    /// From now on a connection is cut when a Text Request passes.
    pub fn die_of_text(&self) {
        self.dies_of_text.store(true, Ordering::Relaxed);
    }

    /// From now on the initiator reads `new` wherever the target sends `old`; no digest may cover it.
    pub fn rename(&self, old: &'static [u8], new: &'static [u8]) {
        assert_eq!(old.len(), new.len());
        *self.renames.lock() = Some((old, new));
    }

    /// Flips a bit of the next data on connection `n`.
    pub fn damage(&self, n: usize, damage: Damage) {
        let from = usize::from(damage == Damage::ToInitiator);
        self.ways.lock()[n].flips[from].store(true, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Way {
    fn carry(&self, from: usize) {
        let (mut rx, mut tx) = (&self.ends[from], &self.ends[1 - from]);
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = rx.read(&mut buffer) {
            // The initiator sends Text Requests when nothing else is outstanding, so the request is at the
            // start of a chunk.
            let text = from == 0 && buffer[0] & 0x3f == TEXT_REQUEST;
            if text && self.dies_of_text.load(Ordering::Relaxed) {
                break;
            }
            if from == 1 && n >= LONG && self.dies_of_data.load(Ordering::Relaxed) {
                break;
            }
            if n >= LONG && self.flips[from].swap(false, Ordering::Relaxed) {
                // In a chunk of this length the middle is data.
                buffer[n / 2] ^= 0x10;
            }
            if let (1, Some((old, new))) = (from, *self.renames.lock()) {
                for at in 0..(n + 1).saturating_sub(old.len()) {
                    if buffer[at..].starts_with(old) {
                        buffer[at..at + old.len()].copy_from_slice(new);
                    }
                }
            }
            if tx.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = tx.shutdown(Shutdown::Both);
        let _ = rx.shutdown(Shutdown::Both);
    }
}
