//! What a script needs of a connection to the peer under test: bytes and breaks.

use crate::PeerError;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
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
