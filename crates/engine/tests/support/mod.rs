//! Helpers that the tests of this crate share: waiting with a watchdog, pairs of sockets, reproducible bytes.
#![allow(dead_code)]

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Completion, Driver, Token};

/// Long enough that only a hang reaches it.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Passes each completion to `done` and waits until it returns true for one of them.
pub fn wait_until<D: Driver<Stream = std::net::TcpStream>>(
    driver: &mut D,
    mut done: impl FnMut(&mut D, Completion) -> bool,
) {
    let mut out = Vec::new();
    loop {
        driver.wait(Some(WATCHDOG), &mut out).unwrap();
        let mut finished = false;
        for completion in out.drain(..) {
            finished |= done(driver, completion);
        }
        if finished {
            return;
        }
    }
}

/// The next completion that is not a wake.
pub fn next<D: Driver<Stream = std::net::TcpStream>>(driver: &mut D) -> Completion {
    let mut found = None;
    wait_until(driver, |_, completion| {
        assert!(found.is_none(), "a second completion: {completion:?}");
        found = Some(completion);
        true
    });
    found.unwrap()
}

/// The result of the outstanding receive of `conn`, which is the only operation outstanding.
pub fn received<D: Driver<Stream = std::net::TcpStream>>(
    driver: &mut D,
    expected: Token,
) -> (BytesMut, io::Result<usize>) {
    match next(driver) {
        Completion::Received { conn, buffer, result } if conn == expected => (buffer, result),
        other => panic!("not the receive of {expected:?}: {other:?}"),
    }
}

/// The result of the outstanding send of `conn`, which is the only operation outstanding.
pub fn sent<D: Driver<Stream = std::net::TcpStream>>(
    driver: &mut D,
    expected: Token,
) -> (Vec<Bytes>, io::Result<()>) {
    match next(driver) {
        Completion::Sent { conn, segments, result } if conn == expected => (segments, result),
        other => panic!("not the send of {expected:?}: {other:?}"),
    }
}

/// A listener on the loopback interface.
pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Both ends of a TCP connection over loopback.
pub fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listener();
    let client = TcpStream::connect(addr).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A reproducible sequence (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}
