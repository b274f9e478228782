//! The I/O interface of a shard: completion style, with owned buffers.
//!
//! An operation takes ownership of its buffers and returns them in its [`Completion`]. Readiness can imitate completions (the
//! reverse is not true), so the same shard runs on [`epoll`], on a ring of completions, or inside a simulator.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

mod conn;
pub mod epoll;
mod polling;
mod stats;
mod tcp_info;
mod trial;
mod waker;

pub use polling::{POLL_TIME, POLL_TIME_MAX, PollCounts};
pub use tcp_info::TcpInfo;
pub use waker::Waker;

/// Names a listener or a connection of one driver: its slot and the generation of that slot. Once the listener or
/// connection is closed, its token is stale: calls with it do nothing, even if something else has taken the slot since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token for `index` in its `generation`; for implementations of [`Driver`].
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    /// The slot, reused after the token became stale.
    pub const fn index(self) -> usize {
        self.0 as u32 as usize
    }

    /// How many times the slot had been used before.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Both as one number.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The inverse of [`Token::to_u64`].
    pub const fn from_u64(bits: u64) -> Self {
        Self(bits)
    }
}

/// The result of a submitted operation, or an event that no operation requested.
#[derive(Debug)]
pub enum Completion<S = TcpStream> {
    /// A listener accepted a connection. Give the stream to [`Driver::adopt`] of this driver or of another shard's.
    Accepted {
        /// Where it arrived.
        listener: Token,
        /// The connection, not yet under any driver.
        stream: S,
        /// Its peer.
        peer: SocketAddr,
    },
    /// Accepting failed for a reason on this side (descriptors or memory ran out). The listener pauses and then retries on its
    /// own.
    AcceptFailed {
        /// The listener.
        listener: Token,
        /// The reason.
        error: io::Error,
    },
    /// [`Driver::recv`] completed. `buffer` comes back with the received bytes appended.
    Received {
        /// The connection.
        conn: Token,
        /// The buffer that was submitted, longer by `result`.
        buffer: BytesMut,
        /// Bytes appended; 0 means that the peer has closed its direction.
        result: io::Result<usize>,
    },
    /// [`Driver::send`] completed: the kernel has everything, or the connection is broken.
    Sent {
        /// The connection.
        conn: Token,
        /// The vector that was submitted, emptied, for reuse.
        segments: Vec<Bytes>,
        /// Whether everything was sent.
        result: io::Result<()>,
    },
    /// [`Driver::connect`] completed. After an error the token must still be closed.
    Connected {
        /// The connection.
        conn: Token,
        /// Whether the connection is established.
        result: io::Result<()>,
    },
    /// A [`Waker`] of this driver was used since this was last reported.
    Woken,
}

impl<S> Completion<S> {
    /// Takes the end of the send on `conn` out of what is `done`, if it is the last there and everything was sent: for implementations of
    /// [`Driver::take_sent`].
    pub fn take_sent(done: &mut Vec<Self>, conn: Token) -> Option<Vec<Bytes>> {
        let is_it = |last: &mut Self| match last {
            Self::Sent { conn: sent, result, .. } => *sent == conn && result.is_ok(),
            _ => false,
        };
        let Some(Self::Sent { segments, .. }) = done.pop_if(is_it) else { return None };
        Some(segments)
    }
}

/// The engine of an event loop. One thread owns it. Calls with a stale token do nothing.
pub trait Driver {
    /// What accepts connections: a socket, outside of simulators.
    type Listener: Send + 'static;
    /// A connection that no driver owns: a socket, outside of simulators. Dropping it closes it.
    type Stream: Send + 'static;

    /// Accepts connections from `listener` from now on; each is reported as [`Completion::Accepted`].
    ///
    /// # Errors
    /// The system's errors when the listener is made non-blocking and registered.
    fn listen(&mut self, listener: Self::Listener) -> io::Result<Token>;

    /// Takes over a connected stream: non-blocking, with TCP_NODELAY (where the socket is TCP at all).
    ///
    /// # Errors
    /// The system's errors when the stream is made non-blocking and registered.
    fn adopt(&mut self, stream: Self::Stream) -> io::Result<Token>;

    /// Starts to connect to `addr`, from the address `local` if given; completes with [`Completion::Connected`]. Operations may
    /// be submitted at once; they start when the connection is established.
    ///
    /// # Errors
    /// Errors that the system reports immediately; a refusal that takes a round trip arrives in the completion.
    fn connect(&mut self, addr: SocketAddr, local: Option<IpAddr>) -> io::Result<Token>;

    /// Receives once, at least one byte and at most `max_bytes`, into the spare capacity of `buffer`. One receive may be
    /// outstanding per connection. Without room it completes with [`io::ErrorKind::InvalidInput`].
    fn recv_up_to(&mut self, conn: Token, buffer: BytesMut, max_bytes: usize);

    /// Receives once, into all the spare capacity of `buffer`: see [`Driver::recv_up_to`].
    fn recv(&mut self, conn: Token, buffer: BytesMut) {
        self.recv_up_to(conn, buffer, usize::MAX);
    }

    /// Sends all of `segments` in order; completes when everything was sent or the connection broke. One send may be outstanding
    /// per connection.
    fn send(&mut self, conn: Token, segments: Vec<Bytes>);

    /// Takes the end of the send on `conn`, if everything is sent already: [`Driver::wait`] does not report it then. Returns the vector that
    /// was submitted, emptied. `None` when it is for `wait` to report.
    fn take_sent(&mut self, conn: Token) -> Option<Vec<Bytes>> {
        let _ = conn;
        None
    }

    /// Sends FIN after everything already submitted: this side sends no more, but can still receive.
    fn shutdown_write(&mut self, conn: Token);

    /// Forgets the listener or connection. Outstanding operations end without a completion, and data that they have not sent is
    /// lost.
    ///
    /// Closing a socket with unread bytes sends a reset, which can destroy the last bytes on their way to the peer. So the bytes
    /// that have arrived are discarded first, up to a limit. To be sure that the peer reads the last bytes:
    /// [`Driver::shutdown_write`], receive until 0, then close.
    fn close(&mut self, token: Token);

    /// Releases the connection to the caller, to move it to another shard. An outstanding receive ends without a completion.
    /// `None` when the token is stale, does not name an established connection, or a send is outstanding.
    fn release(&mut self, conn: Token) -> Option<Self::Stream>;

    /// The address of this end. `None` when the token is stale or the system does not report one.
    fn local_addr(&self, token: Token) -> Option<SocketAddr>;

    /// The address of the peer. `None` when the token is stale or there is no longer a peer.
    fn peer_addr(&self, conn: Token) -> Option<SocketAddr>;

    /// What TCP knows about the connection. `None` when the token is stale or the connection is not TCP.
    fn tcp_info(&self, conn: Token) -> Option<TcpInfo>;

    /// The processor on which the last packet of the connection arrived. `None` when the token is stale, or the driver does not know.
    fn incoming_processor(&self, conn: Token) -> Option<u32> {
        let _ = conn;
        None
    }

    /// Wakes [`Driver::wait`] from other threads.
    fn waker(&self) -> Waker;

    /// How often polling before sleep found something, for drivers that poll.
    fn poll_counts(&self) -> PollCounts {
        PollCounts::default()
    }

    /// Whether [`Driver::wait`] may poll before it sleeps, for drivers that poll. True unless it was set. Polling takes a processor
    /// from the threads whose work the caller waits for.
    fn may_poll(&mut self, may_poll: bool) {
        let _ = may_poll;
    }

    /// Waits until something completes, at most `timeout` (`None`: without limit, `Some(ZERO)`: not at all), and appends the
    /// completions to `out`. It may return early with nothing. A completion that is already in `out` when its token is closed
    /// stays there: look the token up before using it.
    ///
    /// # Errors
    /// Only errors that leave the driver unusable.
    fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion<Self::Stream>>) -> io::Result<()>;
}
