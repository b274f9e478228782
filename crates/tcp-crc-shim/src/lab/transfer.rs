//! Transfers from one end of a laboratory to the other, by sockets that know nothing of a shim.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use engine::netns::NetNs;

use super::{End, Lab};

/// If a socket call takes longer than this, something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Those that differ from what was sent.
    pub wrong: u64,
}

/// `length` bytes at random from `seed`, with words of zeros and of ones among them, as is common in real data.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut data = vec![0; length];
    rng.fill(&mut data);
    for line in data.chunks_exact_mut(64) {
        let at = 2 * rng.usize(..32);
        line[at..at + 2].fill(if rng.bool() { 0 } else { 0xff });
    }
    data
}

impl Lab {
    /// Opens a connection from the client to the server.
    ///
    /// # Errors
    /// Errors of the sockets.
    pub fn connect(&self, v6: bool) -> io::Result<(TcpStream, TcpStream)> {
        open([self.host(End::Client), self.host(End::Server)], End::Server.address(v6))
    }

    /// Sends `data` from the client to the server.
    ///
    /// # Errors
    /// Errors of the sockets.
    pub fn transfer(&self, v6: bool, data: &[u8]) -> io::Result<Transfer> {
        self.transfer_each(v6, data, |_| {})
    }

    /// Sends `data` from the client to the server, and passes what arrives to `each`.
    ///
    /// # Errors
    /// Errors of the sockets.
    pub fn transfer_each(&self, v6: bool, data: &[u8], each: impl FnMut(&[u8])) -> io::Result<Transfer> {
        let (client, server) = self.connect(v6)?;
        send(client, server, data, each)
    }
}

/// Opens a connection from one host to `address`, that of the other.
pub(super) fn open([from, to]: [&NetNs; 2], address: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = to.within(|| TcpListener::bind((address, 0)))??;
    let address = listener.local_addr()?;
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| from.within(connect)?);
        let (server, _) = accept(&listener)?;
        let client = client.join().map_err(|_| io::Error::other("the client's thread has panicked"))??;
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
        }
        Ok((client, server))
    })
}

/// Like `accept`, but waits at most [`PATIENCE`].
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody connects"));
    }
    listener.accept()
}

/// Sends all of `data` through a connection, and compares what arrives.
pub(super) fn send(
    mut from: TcpStream,
    mut to: TcpStream,
    data: &[u8],
    mut each: impl FnMut(&[u8]),
) -> io::Result<Transfer> {
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || from.write_all(data));
        let mut transfer = Transfer::default();
        let mut buffer = vec![0; 1 << 16];
        let received = loop {
            match to.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    each(&buffer[..read]);
                    let expected = data.get(transfer.bytes as usize..).unwrap_or_default();
                    let same = buffer[..read].iter().zip(expected).filter(|(a, b)| a == b).count();
                    transfer.wrong += (read - same) as u64;
                    transfer.bytes += read as u64;
                }
                Err(error) => break Err(error),
            }
        };
        // Unblocks a sender that waits for room.
        let _ = to.shutdown(std::net::Shutdown::Both);
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender has panicked")));
        received.and(sent).map(|()| transfer)
    })
}

/// `TcpInCsumErrors` of a namespace: segments that the kernel's TCP discarded because of their sum.
///
/// # Errors
/// `/proc/net/snmp` does not contain it.
pub fn sum_errors(namespace: &NetNs) -> io::Result<u64> {
    let text = namespace.within(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let value = lines.next().zip(lines.next()).and_then(|(names, values)| {
        let at = names.split(' ').position(|name| name == "InCsumErrors")?;
        values.split(' ').nth(at)?.parse().ok()
    });
    value.ok_or_else(|| io::Error::other("/proc/net/snmp says nothing of InCsumErrors"))
}
