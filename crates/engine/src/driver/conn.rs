//! One connection of the epoll driver: its outstanding operations, and how each of them makes progress.

use std::io::IoSlice;
use std::net::TcpStream;

use bytes::{Buf, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::stats::EpollStats;
use super::{Completion, Token};

/// Segments passed to one sendmsg; the rest go in further calls. The kernel's own limit is 1024.
const IOV: usize = 128;
/// Up to this many segments are gathered in a smaller array.
const SMALL_IOV: usize = 8;
/// Calls of sendmsg for one connection before others get their turn.
const MAX_SENDS_PER_ROUND: usize = 8;
/// Bytes discarded when closing, so that what has already arrived does not turn the FIN into a reset.
const MAX_DISCARD_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) stream: TcpStream,
    pub(super) recv: Option<(BytesMut, usize)>,
    pub(super) send: Option<SendOp>,
    pub(super) connecting: bool,
    /// The socket may hold bytes, or the end of the stream: no receive has come back short since epoll reported it
    /// readable.
    pub(super) readable: bool,
    /// The socket may take bytes: no send has been cut short since epoll reported it writable.
    pub(super) writable: bool,
    /// The peer closed or the connection broke. From here on every receive is tried, until it returns the end or
    /// the error.
    pub(super) ended: bool,
    /// In the driver's list of ready connections.
    pub(super) listed: bool,
    pub(super) shutdown_after_send: bool,
}

#[derive(Debug)]
pub(super) struct SendOp {
    segments: Vec<Bytes>,
    /// The segments before this one are sent; the part of this one that is sent has been cut off.
    next: usize,
}

impl Conn {
    pub(super) fn new(stream: TcpStream, connecting: bool) -> Self {
        Self {
            stream,
            recv: None,
            send: None,
            connecting,
            readable: false,
            writable: true,
            ended: false,
            listed: false,
            shutdown_after_send: false,
        }
    }

    pub(super) fn progress_recv(&mut self, token: Token, stats: &mut EpollStats, out: &mut Vec<Completion>) {
        if !self.readable || self.connecting {
            return;
        }
        let Some((mut buffer, max_bytes)) = self.recv.take() else { return };
        let spare = buffer.spare_capacity_mut();
        let room = spare.len().min(max_bytes);
        let received = loop {
            stats.receives += 1;
            match rustix::net::recv(&self.stream, &mut spare[..room], RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                other => break other.map(|(_, n)| n),
            }
        };
        let result = match received {
            Err(Errno::AGAIN) => {
                stats.empty_receives += 1;
                self.readable = false;
                self.recv = Some((buffer, max_bytes));
                return;
            }
            Err(error) => Err(error.into()),
            Ok(n) => {
                // SAFETY: the kernel wrote the first `n` bytes of the spare capacity, and `n <= room` is within it.
                unsafe { buffer.set_len(buffer.len() + n) };
                stats.bytes += n as u64;
                self.ended |= n == 0;
                self.readable = n == room || self.ended;
                Ok(n)
            }
        };
        out.push(Completion::Received { conn: token, buffer, result });
    }

    pub(super) fn progress_send(&mut self, token: Token, stats: &mut EpollStats, out: &mut Vec<Completion>) {
        if !self.writable || self.connecting {
            return;
        }
        let Some(op) = &mut self.send else { return };
        let mut result = Ok(());
        for _ in 0..MAX_SENDS_PER_ROUND {
            if op.next == op.segments.len() {
                break;
            }
            match op.send_once(&self.stream, stats) {
                Ok(true) => {}
                Ok(false) | Err(Errno::AGAIN) => {
                    self.writable = false;
                    return;
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            }
        }
        if result.is_ok() && op.next < op.segments.len() {
            return;
        }
        let Some(SendOp { mut segments, .. }) = self.send.take() else { return };
        segments.clear();
        out.push(Completion::Sent { conn: token, segments, result });
        if self.shutdown_after_send {
            self.shutdown_write();
        }
    }

    /// True when a send stopped to give other connections their turn.
    pub(super) fn can_send_more(&self) -> bool {
        self.send.is_some() && self.writable && !self.connecting
    }

    pub(super) fn shutdown_write(&self) {
        // It fails only when the connection is already down.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    pub(super) fn discard_arrived(&self) {
        if self.connecting {
            return;
        }
        self.shutdown_write();
        let mut scratch = [0u8; 16 * 1024];
        for _ in 0..MAX_DISCARD_BYTES / scratch.len() {
            match rustix::net::recv(&self.stream, &mut scratch[..], RecvFlags::DONTWAIT) {
                Ok((n, _)) if n == scratch.len() => {}
                _ => return,
            }
        }
    }
}

impl SendOp {
    pub(super) fn new(segments: Vec<Bytes>) -> Self {
        Self { segments, next: 0 }
    }

    /// Makes one system call. True when the kernel took all that was offered.
    fn send_once(&mut self, stream: &TcpStream, stats: &mut EpollStats) -> Result<bool, Errno> {
        stats.sends += 1;
        let pending = &self.segments[self.next..];
        let (offered, sent) = match pending {
            [only] => {
                (only.len(), rustix::net::send(stream, only, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
            }
            // Setting up the large array would cost more than the rest of a small send.
            few if few.len() <= SMALL_IOV => gather::<SMALL_IOV>(stream, few)?,
            many => gather::<IOV>(stream, many)?,
        };
        stats.bytes += sent as u64;
        self.advance(sent);
        Ok(sent == offered)
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(front) = self.segments.get_mut(self.next) {
            if front.len() > sent {
                front.advance(sent);
                return;
            }
            sent -= front.len();
            self.next += 1;
        }
    }
}

/// Sends the first `N` of `pending` in one call; returns the bytes offered and the bytes sent.
fn gather<const N: usize>(stream: &TcpStream, pending: &[Bytes]) -> Result<(usize, usize), Errno> {
    let mut slices = [IoSlice::new(&[]); N];
    let mut offered = 0;
    for (slice, segment) in slices.iter_mut().zip(pending) {
        *slice = IoSlice::new(segment);
        offered += segment.len();
    }
    let more = if pending.len() > N { SendFlags::MORE } else { SendFlags::empty() };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | more;
    let slices = &slices[..pending.len().min(N)];
    Ok((offered, rustix::net::sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?))
}
