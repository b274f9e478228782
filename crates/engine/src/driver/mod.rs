//! What a shard asks of the world: a completion-style interface with owned buffers.
//!
//! An operation takes its buffers with it and gives them back in its [`Completion`]. Readiness can imitate completions (the
//! reverse is not true), so the same shard runs on [`epoll`], on a ring of completions, or inside a simulator.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

mod conn;
pub mod epoll;
mod polling;
mod tcp_info;
mod waker;

pub use polling::{POLL_TIME, POLL_TIME_MAX, PollCounts};
pub use tcp_info::TcpInfo;
pub use waker::Waker;

/// Names a listener or a connection of one driver: its place and the generation of that place. The token of something closed
/// is stale: every call with it does nothing, whatever has taken the place since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token for `index` in its `generation`; for implementations of [`Driver`].
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    /// The place, reused after the token became stale.
    pub const fn index(self) -> usize {
        self.0 as u32 as usize
    }

    /// How many times the place had been used before.
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

/// What came of a submitted operation, or what happened by itself.
#[derive(Debug)]
pub enum Completion<S = TcpStream> {
    /// A listener took a connection. Give the stream to [`Driver::adopt`], of this driver or of another shard's.
    Accepted {
        /// Where it arrived.
        listener: Token,
        /// The connection, not yet under any driver.
        stream: S,
        /// Its peer.
        peer: SocketAddr,
    },
    /// Accepting failed for a reason on this side (descriptors or memory ran out). The listener pauses and tries again by itself.
    AcceptFailed {
        /// The listener.
        listener: Token,
        /// The reason.
        error: io::Error,
    },
    /// [`Driver::recv`] ended. `buffer` comes back with the received bytes appended.
    Received {
        /// The connection.
        conn: Token,
        /// The buffer that was submitted, longer by `result`.
        buffer: BytesMut,
        /// Bytes appended; 0 means that the peer has closed its direction.
        result: io::Result<usize>,
    },
    /// [`Driver::send`] ended: all is with the kernel, or the connection is broken.
    Sent {
        /// The connection.
        conn: Token,
        /// The vector that was submitted, emptied, for reuse.
        segments: Vec<Bytes>,
        /// Whether everything was sent.
        result: io::Result<()>,
    },
    /// [`Driver::connect`] ended. After an error the token is still to be closed.
    Connected {
        /// The connection.
        conn: Token,
        /// Whether it stands.
        result: io::Result<()>,
    },
    /// A [`Waker`] of this driver was used since the last time this was reported.
    Woken,
}

/// An event loop's engine. One thread owns it. Calls with a stale token do nothing.
pub trait Driver {
    /// What listens: a socket, outside of simulators.
    type Listener: Send + 'static;
    /// A connection that is under no driver: a socket, outside of simulators. Dropped, it is closed.
    type Stream: Send + 'static;

    /// Accepts connections from `listener` from now on; each arrives as [`Completion::Accepted`].
    ///
    /// # Errors
    /// What the system says to making it non-blocking and registering it.
    fn listen(&mut self, listener: Self::Listener) -> io::Result<Token>;

    /// Takes over a connected stream: non-blocking, with TCP_NODELAY (where the socket is TCP at all).
    ///
    /// # Errors
    /// What the system says to making it non-blocking and registering it.
    fn adopt(&mut self, stream: Self::Stream) -> io::Result<Token>;

    /// Begins to connect to `addr`, from the address `local` if given; ends with [`Completion::Connected`]. Operations may be
    /// submitted at once and begin when the connection stands.
    ///
    /// # Errors
    /// What the system says at once; a refusal that takes a round trip arrives in the completion.
    fn connect(&mut self, addr: SocketAddr, local: Option<IpAddr>) -> io::Result<Token>;

    /// Receives once, at least one byte, at most `max_bytes`, into the spare capacity of `buffer`. One may be outstanding per
    /// connection. Without room it completes with [`io::ErrorKind::InvalidInput`].
    fn recv_up_to(&mut self, conn: Token, buffer: BytesMut, max_bytes: usize);

    /// Receives once, into all the spare capacity of `buffer`: see [`Driver::recv_up_to`].
    fn recv(&mut self, conn: Token, buffer: BytesMut) {
        self.recv_up_to(conn, buffer, usize::MAX);
    }

    /// Sends all of `segments` in order; completes when everything was sent or the connection broke. One may be outstanding per
    /// connection.
    fn send(&mut self, conn: Token, segments: Vec<Bytes>);

    /// Sends FIN after what was submitted: this side sends no more, and can still receive.
    fn shutdown_write(&mut self, conn: Token);

    /// Forgets the listener or connection; outstanding operations end without a completion and what they had not sent is lost.
    ///
    /// Bytes that have arrived unread would turn the close into a reset, which can destroy the last bytes on their way to the
    /// peer. So what has arrived is discarded first, up to a limit. To be sure that the peer reads the last bytes:
    /// [`Driver::shutdown_write`], receive until 0, then close.
    fn close(&mut self, token: Token);

    /// Gives the connection up to the caller, to move it to another shard. An outstanding receive ends without a completion.
    /// `None` when the token is stale, is not a connection that stands, or a send is outstanding.
    fn release(&mut self, conn: Token) -> Option<Self::Stream>;

    /// The address of this end. `None` when the token is stale or the system does not tell.
    fn local_addr(&self, token: Token) -> Option<SocketAddr>;

    /// The address of the peer. `None` when the token is stale or there is no peer any more.
    fn peer_addr(&self, conn: Token) -> Option<SocketAddr>;

    /// What TCP knows about the connection. `None` when the token is stale or the connection is not TCP.
    fn tcp_info(&self, conn: Token) -> Option<TcpInfo>;

    /// Wakes [`Driver::wait`] from other threads.
    fn waker(&self) -> Waker;

    /// What came of looking for news before sleeping, for drivers that do.
    fn poll_counts(&self) -> PollCounts {
        PollCounts::default()
    }

    /// Waits until something completes, at most `timeout` (`None`: without limit, `Some(ZERO)`: not at all), and appends the
    /// completions to `out`. It may come back early with nothing. A completion that is in `out` when its token is closed stays
    /// there: look the token up before using it.
    ///
    /// # Errors
    /// Only what leaves the driver unusable.
    fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion<Self::Stream>>) -> io::Result<()>;
}
