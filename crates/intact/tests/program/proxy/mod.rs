//! A proxy between an initiator and a target that does to single connections what networks do: it cuts them, stops relaying
//! without a word, and flips bits behind the back of TCP's checksum.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use iscsi_core::wire::{Bhs, one_line};

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// RST to both ends, instead of the next answer of the target.
    Cut,
    /// Both ends stay open, and nothing passes.
    Hang,
    /// Both ends stay open, and what the target says does not pass.
    HangAnswers,
    /// So many PDUs with data, every fourth of them, have a bit of their data flipped.
    CorruptData(u32),
    /// One PDU has a bit of its header flipped.
    CorruptHeader,
}

/// One connection that passes through.
struct Relay {
    client: TcpStream,
    server: TcpStream,
    cut: AtomicBool,
    hung: AtomicBool,
    answers_hung: AtomicBool,
    flip_data: AtomicU32,
    flip_header: AtomicU32,
    over: AtomicBool,
    struck: AtomicBool,
}

impl Relay {
    fn end(&self, reset: bool) {
        self.over.store(true, Ordering::SeqCst);
        for stream in [&self.client, &self.server] {
            if reset {
                let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
            }
            // With the linger time of zero the end of the last handle is a RST; this wakes who reads.
            let _ = stream.shutdown(if reset { Shutdown::Read } else { Shutdown::Both });
        }
    }
}

/// A running proxy.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    relays: Arc<Mutex<Vec<Arc<Relay>>>>,
    flips: Arc<AtomicU64>,
    log: Log,
}

/// What passed on the connection that was struck, from then on: the last so many PDUs.
type Log = Arc<Mutex<VecDeque<String>>>;
const LOGGED: usize = 20_000;

impl Proxy {
    /// Listens on a free port of loopback, for `target`.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self { address, relays: Arc::default(), flips: Arc::default(), log: Arc::default() };
        let (relays, flips, log) = (proxy.relays.clone(), proxy.flips.clone(), proxy.log.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(target) else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let relay = Arc::new(Relay {
                    client,
                    server,
                    cut: AtomicBool::new(false),
                    hung: AtomicBool::new(false),
                    answers_hung: AtomicBool::new(false),
                    flip_data: AtomicU32::new(0),
                    flip_header: AtomicU32::new(0),
                    over: AtomicBool::new(false),
                    struck: AtomicBool::new(false),
                });
                relays.lock().unwrap().push(relay.clone());
                for forth in [true, false] {
                    let (relay, relays, flips, log) =
                        (relay.clone(), relays.clone(), flips.clone(), log.clone());
                    thread::spawn(move || {
                        pump(&relay, forth, &flips, &log);
                        // The last handle is the one that ends the connection.
                        relays.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &relay));
                    });
                }
            }
        });
        proxy
    }

    /// What passed on the connection that was struck.
    pub fn log(&self) -> String {
        let log = self.log.lock().unwrap();
        log.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Bits that were flipped so far.
    pub fn flips(&self) -> u64 {
        self.flips.load(Ordering::SeqCst)
    }

    /// Does this to the newest connection that is open.
    pub fn strike(&self, fault: Fault) {
        let relays = self.relays.lock().unwrap();
        let relay = relays.iter().rev().find(|relay| !relay.over.load(Ordering::SeqCst)).unwrap();
        relay.struck.store(true, Ordering::SeqCst);
        match fault {
            Fault::Cut => relay.cut.store(true, Ordering::SeqCst),
            Fault::HangAnswers => relay.answers_hung.store(true, Ordering::SeqCst),
            Fault::Hang => relay.hung.store(true, Ordering::SeqCst),
            Fault::CorruptData(count) => relay.flip_data.store(count, Ordering::SeqCst),
            Fault::CorruptHeader => relay.flip_header.store(1, Ordering::SeqCst),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for relay in self.relays.lock().unwrap().drain(..) {
            relay.end(false);
        }
    }
}

/// Relays PDUs one way. Both digests are in use from the first PDU on that is no login.
fn pump(relay: &Relay, forth: bool, flips: &AtomicU64, log: &Log) {
    let (mut from, mut to) =
        if forth { (&relay.client, &relay.server) } else { (&relay.server, &relay.client) };
    let (mut pdu, mut turn) = (Vec::new(), 0u32);
    while read_pdu(&mut from, &mut pdu).is_some() {
        let before = flips.load(Ordering::SeqCst);
        let data_at = 48 + usize::from(pdu[4]) * 4 + 4;
        if pdu[0] & 0x3f != 0x03 && pdu[0] & 0x3f != 0x23 {
            let take = |count: &AtomicU32| {
                count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
            };
            let with_data = data_at + 8 < pdu.len();
            turn += u32::from(with_data);
            if with_data && turn.is_multiple_of(4) && take(&relay.flip_data) {
                let at = data_at + (pdu.len() - data_at - 4) / 2;
                pdu[at] ^= 0x10;
                flips.fetch_add(1, Ordering::SeqCst);
            } else if with_data && take(&relay.flip_header) {
                pdu[22] ^= 0x04;
                flips.fetch_add(1, Ordering::SeqCst);
            }
        }
        if relay.struck.load(Ordering::SeqCst) {
            let bhs = Bhs::from_bytes(*pdu.first_chunk().unwrap());
            let flipped = if flips.load(Ordering::SeqCst) > before { "  (a bit flipped)" } else { "" };
            let line = format!("{} {}{flipped}", if forth { "I>" } else { "T<" }, one_line(&bhs, &[]));
            let mut log = log.lock().unwrap();
            if log.len() == LOGGED {
                log.pop_front();
            }
            log.push_back(line);
        }
        let answer = !forth && matches!(pdu[0] & 0x3f, 0x21 | 0x25);
        if answer && relay.cut.load(Ordering::SeqCst) {
            return relay.end(true);
        }
        while relay.hung.load(Ordering::SeqCst) || !forth && relay.answers_hung.load(Ordering::SeqCst) {
            // What is read is lost, as on a wire that ends nowhere.
            if relay.over.load(Ordering::SeqCst) || read_pdu(&mut from, &mut pdu).is_none() {
                return relay.end(false);
            }
        }
        if to.write_all(&pdu).is_err() {
            break;
        }
    }
    if !relay.over.load(Ordering::SeqCst) {
        relay.end(false);
    }
}

/// One PDU, digests included.
fn read_pdu(from: &mut impl Read, pdu: &mut Vec<u8>) -> Option<()> {
    pdu.resize(48, 0);
    from.read_exact(pdu).ok()?;
    let opcode = pdu[0] & 0x3f;
    let digest = if opcode == 0x03 || opcode == 0x23 { 0 } else { 4 };
    let data = usize::from(pdu[5]) << 16 | usize::from(pdu[6]) << 8 | usize::from(pdu[7]);
    let padded = data.next_multiple_of(4);
    let rest = usize::from(pdu[4]) * 4 + digest + padded + if data > 0 { digest } else { 0 };
    pdu.resize(48 + rest, 0);
    from.read_exact(&mut pdu[48..]).ok()
}
