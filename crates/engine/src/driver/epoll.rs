//! The driver on epoll(7): edge-triggered, one registration per connection for its whole life.
//!
//! How it keeps system calls few:
//! - a send is tried when it is submitted; if all of it is sent, its completion costs nothing more;
//! - a receive that came back short has emptied the socket, and a send that was cut short has filled it, so neither is tried again
//!   before the kernel reports a change (epoll(7), Q9);
//! - a receive that filled its buffer is followed by the next without asking epoll. Other receives wait for an event. Trying them
//!   speculatively saved one call in ten under load and cost one in thirty otherwise; and because it took data early, it split
//!   batches (four requests of 4 KiB outstanding: 2.9-3.4 us each instead of 2.3; benches/loopback.rs);
//! - completions at hand are returned without asking epoll, though at most `MAX_ROUNDS_WITHOUT_POLL` times in a row;
//! - before it sleeps it polls for events for a while, where that pays (`polling`).
//!
//! Fairness: per call of wait a connection gets one receive and a bounded number of sends, a listener `MAX_ACCEPTS_PER_ROUND`
//! connections.
//!
//! What it leaves out: MSG_ZEROCOPY (loopback copies anyway, and short sends cost more with it), and TCP urgent data: a peer that
//! sends it can at worst delay its own bytes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_incoming_cpu;
use socket2::{Domain, Protocol, Socket, Type};

use super::conn::{Conn, SendOp};
use super::polling::{PollCounts, Polling};
pub use super::stats::EpollStats;
use super::trial::Usage;
use super::waker::EventWaker;
use super::{Completion, Driver, TcpInfo, Token, Waker, tcp_info};

/// Events taken from the kernel at a time.
const EVENTS: usize = 256;
/// Connections accepted from one listener before others get their turn.
const MAX_ACCEPTS_PER_ROUND: usize = 16;
/// How many times in a row wait may return without having asked epoll, so that no connection is overlooked.
const MAX_ROUNDS_WITHOUT_POLL: u32 = 8;
/// How long a listener pauses after accepting failed for lack of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const WAKER_BITS: u64 = u64::MAX;

/// A [`Driver`] on epoll.
pub struct EpollDriver {
    epoll: OwnedFd,
    waker: Arc<EventWaker>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections with an operation that can be tried without an event from epoll.
    ready: Vec<Token>,
    ready_scratch: Vec<Token>,
    done: Vec<Completion>,
    events: Vec<epoll::Event>,
    paused_listeners: Vec<(Instant, Token)>,
    rounds_without_poll: u32,
    polling: Polling,
    /// Connections that this driver owns.
    connections: usize,
    stats: EpollStats,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Entry,
}

#[derive(Debug)]
enum Entry {
    Free,
    Listener(TcpListener),
    Conn(Box<Conn>),
}

impl fmt::Debug for EpollDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.slots.len() - self.free.len();
        f.debug_struct("EpollDriver")
            .field("open", &connections)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl EpollDriver {
    /// A driver without connections.
    ///
    /// # Errors
    /// When the system has no descriptors or memory for it.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Arc::new(EventWaker::new()?);
        epoll::add(
            &epoll,
            waker.fd(),
            epoll::EventData::new_u64(WAKER_BITS),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        Ok(Self {
            epoll,
            waker,
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            ready_scratch: Vec::new(),
            done: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            paused_listeners: Vec::new(),
            rounds_without_poll: 0,
            polling: Polling::default(),
            connections: 0,
            stats: EpollStats::default(),
        })
    }

    /// Sets how long the driver polls for events before it sleeps, at most 1 ms. By default, and with a time of zero, it never
    /// polls.
    #[must_use]
    pub fn with_poll_time(mut self, time: Duration) -> Self {
        self.polling = Polling::new(time);
        self
    }

    /// The same, but only for as long as the driver measures that it pays, and not at all where it does not.
    #[must_use]
    pub fn with_measured_poll_time(mut self, time: Duration) -> Self {
        self.polling = Polling::new(time).measured();
        self
    }

    /// System calls made so far.
    pub fn stats(&self) -> EpollStats {
        self.stats
    }

    fn insert(&mut self, entry: Entry) -> io::Result<Token> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                // The last index is left out: with the last generation its token would equal the waker's.
                let index = u32::try_from(self.slots.len()).ok().filter(|&n| n < u32::MAX);
                let index = index.ok_or(io::ErrorKind::OutOfMemory)?;
                self.slots.push(Slot { generation: 0, entry: Entry::Free });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        let token = Token::new(index, slot.generation);
        let data = epoll::EventData::new_u64(token.to_u64());
        let registered = match &entry {
            Entry::Free => Ok(()),
            Entry::Listener(listener) => epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN),
            Entry::Conn(conn) => epoll::add(&self.epoll, &conn.stream, data, conn_interest()),
        };
        self.connections += usize::from(matches!(entry, Entry::Conn(_)));
        slot.entry = entry;
        if let Err(error) = registered {
            self.vacate(token);
            return Err(error.into());
        }
        Ok(token)
    }

    fn conn(&mut self, token: Token) -> Option<&mut Conn> {
        match self.slots.get_mut(token.index()) {
            Some(Slot { generation, entry: Entry::Conn(conn) }) if *generation == token.generation() => {
                Some(conn)
            }
            _ => None,
        }
    }

    fn entry(&self, token: Token) -> &Entry {
        match self.slots.get(token.index()) {
            Some(slot) if slot.generation == token.generation() => &slot.entry,
            _ => &Entry::Free,
        }
    }

    /// Empties the slot and makes its token stale.
    fn vacate(&mut self, token: Token) -> Entry {
        match self.slots.get_mut(token.index()) {
            Some(slot) if slot.generation == token.generation() && !matches!(slot.entry, Entry::Free) => {
                // A slot that has used up its generations is retired, so that no old token becomes valid again.
                if let Some(next) = slot.generation.checked_add(1) {
                    slot.generation = next;
                    self.free.push(token.index() as u32);
                }
                self.connections -= usize::from(matches!(slot.entry, Entry::Conn(_)));
                std::mem::replace(&mut slot.entry, Entry::Free)
            }
            _ => Entry::Free,
        }
    }

    /// Drops completions that were not handed out yet, because their connection is gone.
    fn forget_done(&mut self, token: Token) {
        self.done.retain(|completion| {
            !matches!(completion, Completion::Sent { conn, .. } | Completion::Received { conn, .. } if *conn == token)
        });
    }

    fn list(&mut self, token: Token) {
        if let Some(conn) = self.conn(token)
            && !conn.listed
        {
            conn.listed = true;
            self.ready.push(token);
        }
    }

    /// Tries the outstanding operations of the connection that may succeed.
    fn progress(&mut self, token: Token, out: &mut Vec<Completion>) {
        let mut stats = self.stats;
        let Some(conn) = self.conn(token) else { return };
        conn.progress_send(token, &mut stats, out);
        conn.progress_recv(token, &mut stats, out);
        let again = conn.can_send_more();
        self.stats = stats;
        if again {
            self.list(token);
        }
    }

    fn on_event(&mut self, event: epoll::Event, out: &mut Vec<Completion>) {
        let (flags, data) = (event.flags, event.data);
        let token = Token::from_u64(data.u64());
        if data.u64() == WAKER_BITS {
            return;
        }
        if matches!(self.entry(token), Entry::Listener(_)) {
            return self.accept(token, out);
        }
        let Some(conn) = self.conn(token) else { return };
        let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if conn.connecting {
            if !broken && !flags.contains(epoll::EventFlags::OUT) {
                return;
            }
            let result = match rustix::net::sockopt::socket_error(&conn.stream) {
                Ok(Ok(())) if broken => Err(io::ErrorKind::NotConnected.into()),
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) | Err(error) => Err(error.into()),
            };
            conn.connecting = false;
            out.push(Completion::Connected { conn: token, result });
        }
        conn.ended |= broken || flags.contains(epoll::EventFlags::RDHUP);
        conn.readable |= conn.ended || flags.contains(epoll::EventFlags::IN);
        conn.writable |= broken || flags.contains(epoll::EventFlags::OUT);
        self.progress(token, out);
    }

    fn accept(&mut self, token: Token, out: &mut Vec<Completion>) {
        let Some(Slot { entry: Entry::Listener(listener), .. }) = self.slots.get(token.index()) else {
            return;
        };
        for _ in 0..MAX_ACCEPTS_PER_ROUND {
            match listener.accept() {
                Ok((stream, peer)) => out.push(Completion::Accepted { listener: token, stream, peer }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_peers_fault(&error) => continue,
                Err(error) => {
                    // The listener stays readable, so epoll must stop watching it, or wait would spin.
                    let data = epoll::EventData::new_u64(token.to_u64());
                    let _ = epoll::modify(&self.epoll, listener, data, epoll::EventFlags::empty());
                    self.paused_listeners.push((Instant::now() + ACCEPT_PAUSE, token));
                    out.push(Completion::AcceptFailed { listener: token, error });
                    return;
                }
            }
        }
    }

    /// Resumes listeners whose pause is over; returns how long the next one still pauses.
    fn resume_listeners(&mut self) -> Option<Duration> {
        if self.paused_listeners.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut at = 0;
        while let Some(&(until, token)) = self.paused_listeners.get(at) {
            if until > now {
                at += 1;
                continue;
            }
            self.paused_listeners.swap_remove(at);
            if let Entry::Listener(listener) = self.entry(token) {
                let data = epoll::EventData::new_u64(token.to_u64());
                let _ = epoll::modify(&self.epoll, listener, data, epoll::EventFlags::IN);
            }
        }
        self.paused_listeners.iter().map(|&(until, _)| until - now).min()
    }

    fn poll(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion>) -> io::Result<()> {
        let rest = self.resume_listeners();
        let timeout = match (timeout, rest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let sleeps = timeout != Some(Duration::ZERO);
        if sleeps && self.look(timeout, out)? {
            return Ok(());
        }
        let timeout = if sleeps && !self.waker.prepare_sleep() { Some(Duration::ZERO) } else { timeout };
        self.take_events(timeout)?;
        if sleeps && self.waker.take() {
            out.push(Completion::Woken);
        }
        self.handle_events(out);
        Ok(())
    }

    /// Polls instead of sleeping for up to `timeout`, if that is likely to pay; true when something was found.
    fn look(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion>) -> io::Result<bool> {
        if self.connections == 0 {
            return Ok(false);
        }
        let moved = self.stats.bytes;
        let Some(time) = self.polling.before_sleep(timeout, || Usage::now(moved)) else { return Ok(false) };
        let begun = Instant::now();
        let mut looked = false;
        loop {
            self.take_events(Some(Duration::ZERO))?;
            let woken = self.waker.take();
            if woken || !self.events.is_empty() {
                // An event found at once would have prevented the sleep anyway, so it says nothing about the value of polling
                // longer.
                if looked {
                    self.polling.hit();
                }
                out.extend(woken.then_some(Completion::Woken));
                self.handle_events(out);
                return Ok(true);
            }
            if begun.elapsed() >= time {
                self.polling.missed();
                return Ok(false);
            }
            looked = true;
            std::hint::spin_loop();
        }
    }

    /// Asks the kernel for events, waiting up to `timeout` for the first.
    fn take_events(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        self.stats.polls += 1;
        let timeout = timeout.map(to_millis);
        let places = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, places, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_events(&mut self, out: &mut Vec<Completion>) {
        let events = std::mem::take(&mut self.events);
        for &event in &events {
            self.on_event(event, out);
        }
        self.events = events;
    }
}

impl Driver for EpollDriver {
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn listen(&mut self, listener: TcpListener) -> io::Result<Token> {
        listener.set_nonblocking(true)?;
        self.insert(Entry::Listener(listener))
    }

    fn adopt(&mut self, stream: TcpStream) -> io::Result<Token> {
        stream.set_nonblocking(true)?;
        // Not fatal: a stream that is not TCP (a socket pair, in tests) has no such option.
        let _ = stream.set_nodelay(true);
        self.insert(Entry::Conn(Box::new(Conn::new(stream, false))))
    }

    fn connect(&mut self, addr: SocketAddr, local: Option<IpAddr>) -> io::Result<Token> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        if let Some(local) = local {
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        match socket.connect(&addr.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        // Even when the connection is established at once, the first event from epoll reports it.
        self.insert(Entry::Conn(Box::new(Conn::new(socket.into(), true))))
    }

    fn recv_up_to(&mut self, conn: Token, buffer: BytesMut, max_bytes: usize) {
        let Some(c) = self.conn(conn) else { return };
        debug_assert!(c.recv.is_none(), "one receive may be outstanding");
        if buffer.capacity() == buffer.len() || max_bytes == 0 {
            let result = Err(io::ErrorKind::InvalidInput.into());
            self.done.push(Completion::Received { conn, buffer, result });
            return;
        }
        c.recv = Some((buffer, max_bytes));
        if c.readable {
            self.list(conn);
        }
    }

    fn send(&mut self, conn: Token, segments: Vec<Bytes>) {
        let Some(c) = self.conn(conn) else { return };
        debug_assert!(c.send.is_none(), "one send may be outstanding");
        c.send = Some(SendOp::new(segments));
        let (mut stats, mut done) = (self.stats, std::mem::take(&mut self.done));
        let Some(c) = self.conn(conn) else { return };
        c.progress_send(conn, &mut stats, &mut done);
        let again = c.can_send_more();
        (self.stats, self.done) = (stats, done);
        if again {
            self.list(conn);
        }
    }

    fn take_sent(&mut self, conn: Token) -> Option<Vec<Bytes>> {
        Completion::take_sent(&mut self.done, conn)
    }

    fn shutdown_write(&mut self, conn: Token) {
        if let Some(c) = self.conn(conn) {
            match c.send {
                Some(_) => c.shutdown_after_send = true,
                None => c.shutdown_write(),
            }
        }
    }

    fn close(&mut self, token: Token) {
        match self.vacate(token) {
            // The descriptor is not shared, so closing it removes it from epoll.
            Entry::Conn(conn) => {
                conn.discard_arrived();
                self.forget_done(token);
            }
            Entry::Listener(_) | Entry::Free => {}
        }
    }

    fn release(&mut self, conn: Token) -> Option<TcpStream> {
        let token = conn;
        let c = self.conn(token)?;
        if c.send.is_some() || c.connecting {
            return None;
        }
        match self.vacate(token) {
            Entry::Conn(conn) => {
                self.forget_done(token);
                epoll::delete(&self.epoll, &conn.stream).ok()?;
                Some(conn.stream)
            }
            Entry::Listener(_) | Entry::Free => None,
        }
    }

    fn local_addr(&self, token: Token) -> Option<SocketAddr> {
        match self.entry(token) {
            Entry::Conn(conn) => conn.stream.local_addr().ok(),
            Entry::Listener(listener) => listener.local_addr().ok(),
            Entry::Free => None,
        }
    }

    fn peer_addr(&self, conn: Token) -> Option<SocketAddr> {
        match self.entry(conn) {
            Entry::Conn(conn) => conn.stream.peer_addr().ok(),
            Entry::Listener(_) | Entry::Free => None,
        }
    }

    fn tcp_info(&self, conn: Token) -> Option<TcpInfo> {
        match self.entry(conn) {
            Entry::Conn(conn) => tcp_info::query(conn.stream.as_fd()),
            Entry::Listener(_) | Entry::Free => None,
        }
    }

    fn incoming_processor(&self, conn: Token) -> Option<u32> {
        match self.entry(conn) {
            // Linux says u32::MAX before the first packet (SO_INCOMING_CPU, socket(7)).
            Entry::Conn(conn) => {
                socket_incoming_cpu(&conn.stream).ok().filter(|processor| *processor != u32::MAX)
            }
            Entry::Listener(_) | Entry::Free => None,
        }
    }

    fn waker(&self) -> Waker {
        Waker::from_event(self.waker.clone())
    }

    fn poll_counts(&self) -> PollCounts {
        self.polling.counts()
    }

    fn may_poll(&mut self, may_poll: bool) {
        self.polling.allow(may_poll);
    }

    fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        if self.waker.take() {
            out.push(Completion::Woken);
        }
        out.append(&mut self.done);
        let mut ready = std::mem::replace(&mut self.ready, std::mem::take(&mut self.ready_scratch));
        for token in ready.drain(..) {
            if let Some(conn) = self.conn(token) {
                conn.listed = false;
                self.progress(token, out);
            }
        }
        self.ready_scratch = ready;
        let at_hand = out.len() > before || !self.ready.is_empty();
        if at_hand && self.rounds_without_poll < MAX_ROUNDS_WITHOUT_POLL {
            self.rounds_without_poll += 1;
            return Ok(());
        }
        self.rounds_without_poll = 0;
        self.poll(if at_hand { Some(Duration::ZERO) } else { timeout }, out)
    }
}

fn conn_interest() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
}

/// Errors of accept(2) that concern only the one connection being accepted.
fn is_peers_fault(error: &io::Error) -> bool {
    let fault = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        fault,
        Some(
            Errno::INTR
                | Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
        )
    )
}

/// Rounds up to milliseconds, the unit of epoll_wait: rounding down would return early and spin.
fn to_millis(timeout: Duration) -> Timespec {
    let millis = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000) * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_never_shortened() {
        for (timeout, millis) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(999), 1),
            (Duration::from_millis(1), 1),
            (Duration::from_micros(1001), 2),
            (Duration::from_nanos(1_999_999_999), 2000),
            (Duration::MAX, i64::from(i32::MAX)),
        ] {
            let Timespec { tv_sec, tv_nsec } = to_millis(timeout);
            assert_eq!(tv_nsec % 1_000_000, 0, "{timeout:?}");
            assert_eq!(tv_sec * 1000 + tv_nsec / 1_000_000, millis, "{timeout:?}");
        }
    }
}
