//! What a script needs of a connection to the peer under test: bytes and breaks.

use crate::PeerError;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// One end of a connection to the peer under test. A [`TcpStream`] is one; a protocol in memory can be another. A link that is dropped is closed.
pub trait Link: Send {
    /// Sends all of the bytes.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Waits for bytes, `within` at most, and returns how many were put into `buffer`; 0 if the other end has closed the
    /// connection. An error of kind `WouldBlock` or `TimedOut` says that nothing came.
    fn receive(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize>;

    /// Closes our direction (FIN).
    fn close_write(&mut self);

    /// Makes the connection end with RST when the link is dropped.
    fn reset(&mut self);

    /// Our own address, if the link has one.
    fn local_addr(&self) -> Option<SocketAddr>;
}

impl Link for TcpStream {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn receive(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        self.set_read_timeout(Some(within))?;
        self.read(buffer)
    }

    fn close_write(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }

    fn reset(&mut self) {
        let _ = socket2::SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        TcpStream::local_addr(self).ok()
    }
}

/// Opens connections to a target under test.
pub trait Dial {
    /// A new connection; `timeout` bounds the attempt.
    fn dial(&self, timeout: Duration) -> Result<Box<dyn Link>, PeerError>;
}

/// One direction of a connection in memory.
#[derive(Default)]
struct Pipe {
    state: Mutex<Flow>,
    changed: Condvar,
}

#[derive(Default)]
struct Flow {
    bytes: VecDeque<u8>,
    closed: bool,
    reset: bool,
}

impl Pipe {
    fn change(&self, change: impl FnOnce(&mut Flow)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// One end of a connection in memory, which takes whatever is sent at once.
struct MemoryEnd {
    to_peer: Arc<Pipe>,
    from_peer: Arc<Pipe>,
}

/// The two ends of a connection in memory.
pub(crate) fn in_memory() -> (impl Link, impl Link) {
    let (there, back) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
    let theirs = MemoryEnd { to_peer: back.clone(), from_peer: there.clone() };
    (MemoryEnd { to_peer: there, from_peer: back }, theirs)
}

impl Link for MemoryEnd {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut taken = Err(io::ErrorKind::BrokenPipe.into());
        self.to_peer.change(|flow| {
            if !flow.closed {
                flow.bytes.extend(bytes);
                taken = Ok(());
            }
        });
        taken
    }

    fn receive(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        let state = self.from_peer.state.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = |flow: &mut Flow| flow.bytes.is_empty() && !flow.closed;
        let waited = self.from_peer.changed.wait_timeout_while(state, within, silent);
        let (mut flow, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if flow.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if flow.bytes.is_empty() && !flow.closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = flow.bytes.len().min(buffer.len());
        for (byte, sent) in buffer.iter_mut().zip(flow.bytes.drain(..length)) {
            *byte = sent;
        }
        Ok(length)
    }

    fn close_write(&mut self) {
        self.to_peer.change(|flow| flow.closed = true);
    }

    fn reset(&mut self) {
        self.to_peer.change(|flow| (flow.closed, flow.reset) = (true, true));
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        self.close_write();
        // Nobody takes what the other end still sends.
        self.from_peer.change(|flow| flow.closed = true);
    }
}

/// By TCP, to a host name or address and a port.
pub(crate) struct DialTcp {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Dial for DialTcp {
    fn dial(&self, timeout: Duration) -> Result<Box<dyn Link>, PeerError> {
        let stream = connect((self.host.as_str(), self.port), timeout)?;
        prepare(&stream, timeout)?;
        Ok(Box::new(stream))
    }
}

/// A TCP connection to any of the addresses.
pub(crate) fn connect(address: impl ToSocketAddrs, timeout: Duration) -> Result<TcpStream, PeerError> {
    let mut last = PeerError::Io("the address resolves to nothing".to_owned());
    for address in address.to_socket_addrs().map_err(|error| PeerError::Io(error.to_string()))? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = PeerError::Io(format!("connecting to {address}: {error}")),
        }
    }
    Err(last)
}

/// Sends at once, and gives up when the other end takes nothing for `timeout`.
pub(crate) fn prepare(stream: &TcpStream, timeout: Duration) -> Result<(), PeerError> {
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_write_timeout(Some(timeout)))
        .map_err(|error| PeerError::Io(error.to_string()))
}
