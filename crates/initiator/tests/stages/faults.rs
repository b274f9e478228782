//! Where bits flip: in the buffers that either end sends from and receives into, and on the wire between them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::driver::epoll::EpollDriver;
use engine::offload::Job;
use engine::{Completion, Driver, Lane, Platform, System, TcpInfo, Token, Waker};

/// Marks the byte to damage: this text occurs in one place of the data only.
pub const MARK: &[u8; 16] = b"<here a bit may>";

/// Flips a bit of the mark, if `bytes` contain it.
pub fn flip(bytes: &mut [u8]) -> bool {
    match bytes.windows(MARK.len()).position(|window| window == MARK) {
        Some(at) => {
            bytes[at + 5] ^= 0x10;
            true
        }
        None => false,
    }
}

/// Which buffers of an end damage the next mark that passes. Each does it once.
#[derive(Default)]
pub struct Armed {
    pub send: AtomicBool,
    pub receive: AtomicBool,
}

fn strike(armed: &AtomicBool, bytes: &mut [u8]) {
    if armed.load(Ordering::SeqCst) && flip(bytes) {
        armed.store(false, Ordering::SeqCst);
    }
}

/// The system, except for what happens to buffers.
pub struct Faulty {
    pub system: System,
    pub armed: Arc<Armed>,
}

impl Platform for Faulty {
    type Driver = FaultyDriver;

    fn driver(&self) -> io::Result<FaultyDriver> {
        Ok(FaultyDriver { driver: self.system.driver()?, armed: Arc::clone(&self.armed) })
    }

    fn now(&self) -> Duration {
        self.system.now()
    }

    fn offload(&self, lane: &Lane, job: Job) {
        self.system.offload(lane, job);
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.system.fill_random(bytes);
    }
}

pub struct FaultyDriver {
    driver: EpollDriver,
    armed: Arc<Armed>,
}

impl Driver for FaultyDriver {
    type Listener = <EpollDriver as Driver>::Listener;
    type Stream = <EpollDriver as Driver>::Stream;

    fn listen(&mut self, listener: Self::Listener) -> io::Result<Token> {
        self.driver.listen(listener)
    }
    fn adopt(&mut self, stream: Self::Stream) -> io::Result<Token> {
        self.driver.adopt(stream)
    }
    fn connect(&mut self, addr: SocketAddr, local: Option<IpAddr>) -> io::Result<Token> {
        self.driver.connect(addr, local)
    }
    fn recv_up_to(&mut self, conn: Token, buffer: BytesMut, max_bytes: usize) {
        self.driver.recv_up_to(conn, buffer, max_bytes);
    }
    /// The data to send already has its digest.
    fn send(&mut self, conn: Token, segments: Vec<Bytes>) {
        let segments = segments.into_iter().map(|segment| {
            let mut copy = segment.to_vec();
            strike(&self.armed.send, &mut copy);
            Bytes::from(copy)
        });
        self.driver.send(conn, segments.collect());
    }
    fn shutdown_write(&mut self, conn: Token) {
        self.driver.shutdown_write(conn);
    }
    fn close(&mut self, token: Token) {
        self.driver.close(token);
    }
    fn release(&mut self, conn: Token) -> Option<Self::Stream> {
        self.driver.release(conn)
    }
    fn local_addr(&self, token: Token) -> Option<SocketAddr> {
        self.driver.local_addr(token)
    }
    fn peer_addr(&self, conn: Token) -> Option<SocketAddr> {
        self.driver.peer_addr(conn)
    }
    fn tcp_info(&self, conn: Token) -> Option<TcpInfo> {
        self.driver.tcp_info(conn)
    }
    fn waker(&self) -> Waker {
        self.driver.waker()
    }
    /// The received data is not verified yet.
    fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion<Self::Stream>>) -> io::Result<()> {
        let before = out.len();
        self.driver.wait(timeout, out)?;
        for completion in &mut out[before..] {
            if let Completion::Received { buffer, result: Ok(_), .. } = completion {
                strike(&self.armed.receive, buffer);
            }
        }
        Ok(())
    }
}

/// What a proxy does to the PDU with the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    None = 0,
    /// A bit flips without TCP's checksum noticing.
    Wire = 1,
    /// A bit flips in a device that recomputes digests.
    Gateway = 2,
}

/// Relays PDUs between an initiator and a target.
pub struct Proxy {
    pub address: SocketAddr,
    /// In the direction to the target, and back.
    damage: Arc<[AtomicU8; 2]>,
}

impl Proxy {
    /// Listens at `address`.
    pub fn start(address: SocketAddr, target: SocketAddr, digests: bool) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), damage: Arc::default() };
        let damage = Arc::clone(&proxy.damage);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(target) else { return };
                for way in 0..2 {
                    let (client, server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                    let (from, to) = if way == 0 { (client, server) } else { (server, client) };
                    let damage = Arc::clone(&damage);
                    thread::spawn(move || relay(from, to, &damage[way], digests));
                }
            }
        });
        proxy
    }

    /// Damages the next PDU with the mark in the given direction.
    pub fn strike(&self, to_target: bool, damage: Damage) {
        self.damage[usize::from(!to_target)].store(damage as u8, Ordering::SeqCst);
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, damage: &AtomicU8, digests: bool) {
    let mut pdu = Vec::new();
    while let Some(data) = read_pdu(&mut from, &mut pdu, digests) {
        let armed = damage.load(Ordering::SeqCst);
        if armed != Damage::None as u8 && flip(&mut pdu[data.clone()]) {
            damage.store(Damage::None as u8, Ordering::SeqCst);
            if digests && armed == Damage::Gateway as u8 {
                let covered = data.start..data.start + data.len().next_multiple_of(4);
                let digest = integrity::crc32c(&pdu[covered.clone()]).to_le_bytes();
                pdu[covered.end..covered.end + 4].copy_from_slice(&digest);
            }
        }
        if to.write_all(&pdu).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Reads one PDU, digests included; returns the range of its data.
fn read_pdu(from: &mut impl Read, pdu: &mut Vec<u8>, digests: bool) -> Option<std::ops::Range<usize>> {
    pdu.resize(48, 0);
    from.read_exact(pdu).ok()?;
    let login = matches!(pdu[0] & 0x3f, 0x03 | 0x23);
    let digest = if login || !digests { 0 } else { 4 };
    let data = usize::from(pdu[5]) << 16 | usize::from(pdu[6]) << 8 | usize::from(pdu[7]);
    let begin = 48 + usize::from(pdu[4]) * 4 + digest;
    let end = begin + data.next_multiple_of(4) + if data > 0 { digest } else { 0 };
    pdu.resize(end, 0);
    from.read_exact(&mut pdu[48..]).ok()?;
    Some(begin..begin + data)
}
