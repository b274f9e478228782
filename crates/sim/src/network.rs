//! The network: connections that are streams of bytes in order, on paths with delay, bandwidth and loss.
//!
//! ```text
//!  send ──► queue (SNDBUF) ──window──► the path's wire ──delay──► received (RCVBUF) ──► recv
//!                             ▲                        │ lost: again after a round trip or a timeout,
//!                             └──── acknowledged ◄─────┘ and what follows waits for it
//! ```
//! The model of TCP: bytes arrive once and in order on each connection; there is no order between connections. A lost segment appears as a
//! stall. With [`PathConfig::congestion`] each direction of a connection has a congestion window as in RFC 5681 with selective
//! acknowledgements: slow start, one halving per window with losses, and a timeout if too little is in flight to detect a loss otherwise.
//! All connections of a path share its wire, whose queue drops what does not fit. Without congestion control the window is the receiver's:
//! good enough to shake a protocol, and fast.
//!
//! Over the air (`PathConfig::air`) the medium of [`wireless`] and its TCP replace all this; see [`crate::air`].
//!
//! Not modelled: reordering of segments inside a connection (TCP hides it), and processor time.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use engine::{Completion, Token};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::air::{Air, AirPlan};
use crate::driver::Entry;
use crate::tcp_info::Measured;
use crate::world::{DriverId, Event, Nanos, State, World};

/// An end of a connection: the one that connected is 0, the one that listened is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Side(pub usize);

impl Side {
    /// The other end.
    pub const fn other(self) -> Self {
        Self(1 - self.0)
    }
}

/// The end of the connecting host.
pub const NEAR: Side = Side(0);
/// The end of the listening host.
pub const FAR: Side = Side(1);

/// Shortest time before a segment is retransmitted whose loss nothing else shows (RFC 6298 has a second; systems use this), nanoseconds.
const MIN_RTO_NS: Nanos = 200_000_000;
/// Segments after a lost one that reveal its loss (RFC 5681).
const DUPLICATES: usize = 3;
/// Most pieces of one segment.
const MAX_PIECES: usize = 8;

/// The properties of a path between two hosts, in each direction.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// One-way delay, nanoseconds.
    pub delay_ns: Nanos,
    /// Largest additional delay, drawn for each segment, nanoseconds.
    pub jitter_ns: Nanos,
    /// Bytes per second; `None`: no limit.
    pub bandwidth: Option<u64>,
    /// Lost segments per million.
    pub loss_ppm: u32,
    /// Most bytes of a segment.
    pub segment_bytes: usize,
    /// Size of the sender's socket buffer, bytes.
    pub send_buffer_bytes: usize,
    /// Most bytes in flight and received but not read, together.
    pub receive_window_bytes: usize,
    /// Size of the queue before the wire, which drops segments when full, bytes; only with congestion control.
    pub queue_bytes: u64,
    /// Whether connections have congestion windows.
    pub congestion: bool,
    /// The path is over the air: its link, with the TCP on it and the loss of the path. Of the fields above only `delay_ns` (for opening
    /// and closing a connection) and `send_buffer_bytes` apply then.
    pub air: Option<AirPlan>,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            delay_ns: 50_000,
            jitter_ns: 0,
            bandwidth: None,
            loss_ppm: 0,
            segment_bytes: 16 * 1024,
            send_buffer_bytes: 256 * 1024,
            receive_window_bytes: 1 << 20,
            queue_bytes: 1 << 20,
            congestion: false,
            air: None,
        }
    }
}

/// Offsets in a stream.
pub(crate) type Flips = SmallVec<[u64; 2]>;

/// What passes along a connection.
pub(crate) enum Passing {
    Bytes(SmallVec<[Bytes; 2]>),
    Fin,
}

/// A listening socket.
#[derive(Debug)]
pub struct SimListener(pub SocketAddr);

/// A connection without a driver; it is closed when dropped.
pub struct SimStream {
    world: Weak<World>,
    conn: usize,
    side: Side,
}

impl SimStream {
    pub(crate) fn new(world: &Arc<World>, conn: usize, side: Side) -> Self {
        Self { world: Arc::downgrade(world), conn, side }
    }

    pub(crate) fn attach(&mut self, world: &Arc<World>) {
        self.world = Arc::downgrade(world);
    }

    pub(crate) fn into_parts(mut self) -> (usize, Side) {
        self.world = Weak::new();
        (self.conn, self.side)
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if let Some(world) = self.world.upgrade() {
            world.dropped.lock().push((self.conn, self.side));
        }
    }
}

/// One end of a connection.
#[derive(Default)]
pub(crate) struct End {
    owner: Option<(DriverId, Token)>,
    recv: Option<(BytesMut, usize)>,
    listed: bool,
    /// The host has forgotten the connection: anything that arrives is answered with a reset.
    pub closed: bool,
    /// A reset has arrived.
    pub reset: bool,
}

/// One direction of a connection.
pub(crate) struct Pipe {
    pub queue: VecDeque<Bytes>,
    pub queued: usize,
    /// A send that the system has not taken over completely.
    pub sending: Option<Vec<Bytes>>,
    pub fin: bool,
    pub fin_sent: bool,
    /// Bytes in flight.
    pub flight: usize,
    last_arrival: Nanos,
    received: VecDeque<Bytes>,
    received_bytes: usize,
    fin_received: bool,
    /// Nothing gets through before this time.
    frozen_until: Nanos,
    /// Arrivals held back meanwhile.
    parked: VecDeque<Passing>,
    /// Offsets of bytes in the stream to corrupt on the way.
    flips: Flips,
    arrived_bytes: u64,
    cwnd: f64,
    ssthresh: f64,
    /// Segments sent; then the last one whose loss is already accounted for.
    sent_segments: u64,
    recovery_until: u64,
    /// Bytes given to the link and not delivered yet.
    pub on_air: VecDeque<Bytes>,
    pub measured: Measured,
}

impl Pipe {
    /// Arrivals that a fault holds back: nobody has acknowledged them.
    pub(crate) fn held_back(&self) -> usize {
        self.parked.len()
    }

    fn new(path: &PathConfig) -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            sending: None,
            fin: false,
            fin_sent: false,
            flight: 0,
            last_arrival: 0,
            received: VecDeque::new(),
            received_bytes: 0,
            fin_received: false,
            frozen_until: 0,
            parked: VecDeque::new(),
            flips: SmallVec::new(),
            arrived_bytes: 0,
            // RFC 6928.
            cwnd: 10.0 * path.segment_bytes as f64,
            ssthresh: f64::INFINITY,
            sent_segments: 0,
            recovery_until: 0,
            on_air: VecDeque::new(),
            measured: Measured::default(),
        }
    }

    /// A segment is lost, with so many others in flight before it. Returns whether only a timeout shows it.
    fn lose(&mut self, path: &PathConfig, number: u64, behind: usize) -> bool {
        self.measured.retransmitted += 1;
        // Later segments reveal the loss after a round trip, if there are enough of them.
        let more = behind + self.queued / path.segment_bytes.max(1);
        let timeout = more < DUPLICATES;
        if number > self.recovery_until {
            let segment = path.segment_bytes as f64;
            self.ssthresh = (self.cwnd / 2.0).max(2.0 * segment);
            self.cwnd = if timeout { segment } else { self.ssthresh };
            self.recovery_until = number + (self.flight / path.segment_bytes.max(1)) as u64;
        }
        timeout
    }

    /// Takes a segment of at most `most` bytes off the queue: its pieces and its length.
    fn cut(&mut self, most: usize) -> (SmallVec<[Bytes; 2]>, usize) {
        let mut segment: SmallVec<[Bytes; 2]> = SmallVec::new();
        let mut length = 0;
        while length < most && segment.len() < MAX_PIECES {
            let Some(front) = self.queue.front_mut() else { break };
            let part = front.split_to(front.len().min(most - length));
            if front.is_empty() {
                self.queue.pop_front();
            }
            length += part.len();
            segment.push(part);
        }
        (segment, length)
    }
}

pub(crate) struct Conn {
    pub path: usize,
    addresses: [SocketAddr; 2],
    pub ends: [End; 2],
    /// By sending side.
    pub pipes: [Pipe; 2],
    /// Its number on the link, if the path is over the air.
    pub air: Option<usize>,
    established: bool,
}

pub(crate) struct Path {
    config: PathConfig,
    /// When the wire is free again, by direction.
    busy_until: [Nanos; 2],
    /// The link that replaces the wire.
    pub air: Option<Air>,
}

/// A live connection, from which faults choose.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Its number.
    pub conn: usize,
    /// The host that connected.
    pub from: IpAddr,
}

/// See the module.
#[derive(Default)]
pub struct Network {
    pub(crate) conns: Vec<Conn>,
    pub(crate) paths: Vec<Path>,
    by_host: FxHashMap<IpAddr, usize>,
    listeners: FxHashMap<SocketAddr, (DriverId, Token)>,
    next_port: u16,
}

impl Network {
    /// Adds a path between `host`, which connects, and the listeners. Paths with the same air configuration are one path.
    pub fn add_path(&mut self, host: IpAddr, config: PathConfig) {
        let same = |path: &Path| config.air.is_some() && path.config.air == config.air;
        let number = self.paths.iter().position(same).unwrap_or(self.paths.len());
        self.by_host.insert(host, number);
        if number < self.paths.len() {
            return;
        }
        let air = config.air.map(Air::new);
        self.paths.push(Path { config, busy_until: [0; 2], air });
    }

    /// Changes the loss between `host` and the others.
    pub fn set_loss(&mut self, host: IpAddr, loss_ppm: u32) {
        if let Some(&path) = self.by_host.get(&host) {
            self.paths[path].config.loss_ppm = loss_ppm;
            if let Some(air) = &mut self.paths[path].air {
                air.link.set_loss(f64::from(loss_ppm) / 1e6);
            }
        }
    }

    /// Established connections with at least one open end.
    pub fn live(&self) -> Vec<Live> {
        let stands = |c: &Conn| c.established && c.ends.iter().any(|end| !end.closed && !end.reset);
        let live = self.conns.iter().enumerate().filter(|(_, c)| stands(c));
        live.map(|(conn, c)| Live { conn, from: c.addresses[0].ip() }).collect()
    }

    pub(crate) fn listen(&mut self, addr: SocketAddr, driver: DriverId, token: Token) {
        self.listeners.insert(addr, (driver, token));
    }

    pub(crate) fn forget_listener(&mut self, addr: SocketAddr) {
        self.listeners.remove(&addr);
    }

    pub(crate) fn address(&self, conn: usize, side: Side) -> SocketAddr {
        self.conns[conn].addresses[side.0]
    }

    pub(crate) fn can_be_released(&self, conn: usize, side: Side) -> bool {
        let c = &self.conns[conn];
        c.established && c.pipes[side.0].sending.is_none()
    }

    pub(crate) fn disown(&mut self, conn: usize, side: Side) {
        let end = &mut self.conns[conn].ends[side.0];
        end.owner = None;
        end.recv = None;
        end.listed = false;
    }
}

impl State {
    pub(crate) fn connect(&mut self, driver: DriverId, from: IpAddr, to: SocketAddr) -> Token {
        let network = &mut self.network;
        network.next_port = network.next_port.wrapping_add(1);
        let near = SocketAddr::new(from, 10_000 + network.next_port % 50_000);
        let path = network.by_host.get(&from).copied().unwrap_or(0);
        let config = network.paths[path].config;
        let conn = network.conns.len();
        let token = self.drivers[driver].insert(Entry::Conn { conn, side: NEAR });
        let owned = End { owner: Some((driver, token)), ..End::default() };
        let air = network.paths[path].air.as_mut().and_then(|air| air.connect(conn));
        network.conns.push(Conn {
            path,
            air,
            addresses: [near, to],
            ends: [owned, End::default()],
            pipes: [Pipe::new(&config), Pipe::new(&config)],
            established: false,
        });
        self.schedule(self.now + config.delay_ns, Event::Syn { conn });
        token
    }

    pub(crate) fn adopt_end(&mut self, driver: DriverId, conn: usize, side: Side) -> Token {
        let token = self.drivers[driver].insert(Entry::Conn { conn, side });
        self.network.conns[conn].ends[side.0].owner = Some((driver, token));
        token
    }

    /// Processes an event of the network.
    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Syn { conn } => self.syn(conn),
            Event::SynAnswer { conn, accepted } => self.syn_answered(conn, accepted),
            Event::Arrive { conn, side, what } => self.arrive(conn, side, what),
            Event::Acknowledged { conn, side, bytes, number, round_trip } => {
                if let Some(ns) = round_trip {
                    self.network.conns[conn].pipes[side.0].measured.round_trip(ns);
                }
                self.acknowledged(conn, side, bytes, number);
            }
            Event::Thaw { conn, side } => self.thaw(conn, side),
            Event::Reset { conn, side } => self.reset_end(conn, side),
            Event::Air { path } => self.air(path),
            Event::Job { .. } | Event::Notice { .. } | Event::Planned { .. } => {}
        }
    }

    pub(crate) fn path(&self, conn: usize) -> PathConfig {
        self.network.paths[self.network.conns[conn].path].config
    }

    fn syn(&mut self, conn: usize) {
        let frozen = self.network.conns[conn].pipes[0].frozen_until;
        if frozen > self.now {
            return self.schedule(frozen, Event::Syn { conn });
        }
        let [peer, to] = self.network.conns[conn].addresses;
        let listener = self.network.listeners.get(&to).copied();
        let back = self.now + self.path(conn).delay_ns;
        self.schedule(back, Event::SynAnswer { conn, accepted: listener.is_some() });
        if let Some((driver, listener)) = listener {
            let stream = SimStream { world: Weak::new(), conn, side: FAR };
            self.network.conns[conn].established = true;
            self.drivers[driver].done.push(Completion::Accepted { listener, stream, peer });
            self.notify(driver);
        }
    }

    fn syn_answered(&mut self, conn: usize, accepted: bool) {
        let Some((driver, token)) = self.network.conns[conn].ends[0].owner else { return };
        let result = if accepted { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) };
        if accepted {
            self.watch.opened(self.now, conn, self.network.address(conn, NEAR));
        }
        self.drivers[driver].done.push(Completion::Connected { conn: token, result });
        self.notify(driver);
        self.pump(conn, NEAR);
    }

    pub(crate) fn submit_recv(&mut self, conn: usize, side: Side, buffer: BytesMut, max: usize) {
        self.network.conns[conn].ends[side.0].recv = Some((buffer, max));
        self.list_readable(conn, side);
    }

    /// Whether a receive would complete now.
    fn is_readable(&self, conn: usize, side: Side) -> bool {
        let c = &self.network.conns[conn];
        let pipe = &c.pipes[side.other().0];
        pipe.received_bytes > 0 || pipe.fin_received || c.ends[side.0].reset
    }

    fn list_readable(&mut self, conn: usize, side: Side) {
        if !self.is_readable(conn, side) {
            return;
        }
        let end = &mut self.network.conns[conn].ends[side.0];
        let (Some((driver, token)), true, false) = (end.owner, end.recv.is_some(), end.listed) else {
            return;
        };
        end.listed = true;
        self.drivers[driver].readable.push(token);
        self.notify(driver);
    }

    /// Completes the outstanding receive if possible.
    pub(crate) fn try_recv(&mut self, conn: usize, side: Side) -> Option<(BytesMut, io::Result<usize>)> {
        self.network.conns[conn].ends[side.0].listed = false;
        if !self.is_readable(conn, side) {
            return None;
        }
        let c = &mut self.network.conns[conn];
        let (mut buffer, max) = c.ends[side.0].recv.take()?;
        let pipe = &mut c.pipes[side.other().0];
        if pipe.received_bytes == 0 && c.ends[side.0].reset {
            return Some((buffer, Err(io::ErrorKind::ConnectionReset.into())));
        }
        let room = max.min(buffer.capacity() - buffer.len());
        if room == 0 {
            return Some((buffer, Err(io::ErrorKind::InvalidInput.into())));
        }
        let mut take = room.min(pipe.received_bytes);
        // A system may return less than it has: framing must cope with that.
        if take > 1 && self.rng.u8(..) < 16 {
            take = self.rng.usize(1..=take);
        }
        let pipe = &mut self.network.conns[conn].pipes[side.other().0];
        let mut left = take;
        while left > 0 {
            let Some(front) = pipe.received.front_mut() else { break };
            let n = left.min(front.len());
            buffer.extend_from_slice(&front.split_to(n));
            if front.is_empty() {
                pipe.received.pop_front();
            }
            left -= n;
        }
        pipe.received_bytes -= take;
        self.read_air(conn, side, take);
        self.pump(conn, side.other());
        Some((buffer, Ok(take)))
    }

    pub(crate) fn submit_send(&mut self, conn: usize, side: Side, segments: Vec<Bytes>) {
        let pipe = &mut self.network.conns[conn].pipes[side.0];
        self.watch.sent(self.now, conn, side, &segments, &mut pipe.flips);
        pipe.sending = Some(segments);
        self.take_over(conn, side);
        self.pump(conn, side);
    }

    /// Lets the system take over as much as it has room for.
    pub(crate) fn take_over(&mut self, conn: usize, side: Side) {
        let limit = self.path(conn).send_buffer_bytes;
        let c = &mut self.network.conns[conn];
        let Some((driver, token)) = c.ends[side.0].owner else { return };
        let broken = c.ends[side.0].reset;
        let pipe = &mut c.pipes[side.0];
        let Some(mut segments) = pipe.sending.take() else { return };
        let mut done = 0;
        for piece in &mut segments {
            if broken {
                break;
            }
            let room = limit.saturating_sub(pipe.queued);
            if room == 0 {
                break;
            }
            let part = piece.split_to(room.min(piece.len()));
            pipe.queued += part.len();
            pipe.queue.push_back(part);
            if !piece.is_empty() {
                break;
            }
            done += 1;
        }
        segments.drain(..done);
        if !segments.is_empty() && !broken {
            pipe.sending = Some(segments);
            return;
        }
        segments.clear();
        let result = if broken { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) };
        self.drivers[driver].done.push(Completion::Sent { conn: token, segments, result });
        self.notify(driver);
    }

    /// Sends as much as the windows allow.
    pub(crate) fn pump(&mut self, conn: usize, side: Side) {
        let path = self.path(conn);
        loop {
            let c = &mut self.network.conns[conn];
            if !c.established {
                return;
            }
            if c.air.is_some() {
                return self.pump_air(conn, side);
            }
            let pipe = &mut c.pipes[side.0];
            if pipe.queued == 0 {
                if pipe.fin && !pipe.fin_sent && pipe.sending.is_none() {
                    pipe.fin_sent = true;
                    let at = (self.now + path.delay_ns).max(pipe.last_arrival);
                    pipe.last_arrival = at;
                    self.schedule(at, Event::Arrive { conn, side, what: Passing::Fin });
                }
                return;
            }
            let window = match path.congestion {
                true => (pipe.cwnd as usize).min(path.receive_window_bytes),
                false => path.receive_window_bytes,
            };
            if pipe.flight > 0 && pipe.flight >= window
                || pipe.flight + pipe.received_bytes >= path.receive_window_bytes
            {
                return;
            }
            let (segment, length) = pipe.cut(path.segment_bytes);
            pipe.queued -= length;
            self.put_on_wire(conn, side, segment, length);
            if self.network.conns[conn].pipes[side.0].sending.is_some() {
                self.take_over(conn, side);
            }
        }
    }

    /// A segment of `length` bytes leaves `side` for the path's wire, which may lose it.
    fn put_on_wire(&mut self, conn: usize, side: Side, segment: SmallVec<[Bytes; 2]>, length: usize) {
        let path = self.path(conn);
        let Network { conns, paths, .. } = &mut self.network;
        let c = &mut conns[conn];
        let pipe = &mut c.pipes[side.0];
        pipe.sent_segments += 1;
        let number = pipe.sent_segments;
        let behind = pipe.flight / path.segment_bytes.max(1);
        pipe.flight += length;

        let busy = &mut paths[c.path].busy_until[side.0];
        let on_wire = |bytes: u64| path.bandwidth.map_or(0, |rate| bytes * 1_000_000_000 / rate.max(1));
        let waiting = busy.saturating_sub(self.now);
        let dropped = path.congestion && waiting > on_wire(path.queue_bytes);
        if !dropped {
            *busy = (*busy).max(self.now) + on_wire(length as u64);
        }
        let mut at = (*busy).max(self.now) + path.delay_ns;
        if path.jitter_ns > 0 {
            at += self.rng.u64(0..=path.jitter_ns);
        }
        let lost = path.loss_ppm > 0 && self.rng.u32(0..1_000_000) < path.loss_ppm;
        if dropped || lost {
            let round_trip = 2 * path.delay_ns + waiting;
            let timeout = pipe.lose(&path, number, behind);
            at += if timeout { MIN_RTO_NS.max(2 * round_trip) } else { round_trip };
            *busy += on_wire(length as u64);
        }
        let acknowledged_at = at + path.delay_ns;
        let round_trip = (!dropped && !lost).then(|| acknowledged_at - self.now);
        // It waits at the receiver for one that was lost.
        pipe.measured.out_of_order += u32::from(at < pipe.last_arrival);
        at = at.max(pipe.last_arrival);
        pipe.last_arrival = at;
        self.schedule(at, Event::Arrive { conn, side, what: Passing::Bytes(segment) });
        if path.congestion {
            self.schedule(
                acknowledged_at,
                Event::Acknowledged { conn, side, bytes: length, number, round_trip },
            );
        }
    }

    fn acknowledged(&mut self, conn: usize, side: Side, bytes: usize, number: u64) {
        let segment = self.path(conn).segment_bytes as f64;
        let pipe = &mut self.network.conns[conn].pipes[side.0];
        pipe.flight -= bytes;
        if number > pipe.recovery_until {
            match pipe.cwnd < pipe.ssthresh {
                true => pipe.cwnd += bytes as f64,
                false => pipe.cwnd += segment * bytes as f64 / pipe.cwnd,
            }
        }
        self.pump(conn, side);
    }

    /// Something that `side` has sent reaches the other end.
    pub(crate) fn arrive(&mut self, conn: usize, side: Side, what: Passing) {
        let pipe = &mut self.network.conns[conn].pipes[side.0];
        if pipe.frozen_until > self.now || !pipe.parked.is_empty() {
            pipe.parked.push_back(what);
            let at = pipe.frozen_until;
            if pipe.parked.len() == 1 {
                self.schedule(at, Event::Thaw { conn, side });
            }
            return;
        }
        self.deliver(conn, side, what);
    }

    /// Delivers what was held back, unless the pipe was frozen again.
    fn thaw(&mut self, conn: usize, side: Side) {
        let pipe = &mut self.network.conns[conn].pipes[side.0];
        if pipe.frozen_until > self.now {
            let at = pipe.frozen_until;
            return self.schedule(at, Event::Thaw { conn, side });
        }
        for what in std::mem::take(&mut pipe.parked) {
            self.deliver(conn, side, what);
        }
    }

    fn deliver(&mut self, conn: usize, side: Side, what: Passing) {
        let c = &self.network.conns[conn];
        let counts_flight = !self.path(conn).congestion && c.air.is_none();
        let c = &mut self.network.conns[conn];
        let pipe = &mut c.pipes[side.0];
        let receiver = &c.ends[side.other().0];
        if receiver.closed || receiver.reset {
            if let (Passing::Bytes(_), true) = (&what, receiver.closed) {
                let at = self.now + self.path(conn).delay_ns;
                self.schedule(at, Event::Reset { conn, side });
            }
            return;
        }
        match what {
            Passing::Fin => pipe.fin_received = true,
            Passing::Bytes(pieces) => {
                pipe.measured.delivered_at = self.now;
                for mut piece in pieces {
                    let end = pipe.arrived_bytes + piece.len() as u64;
                    let mut flips = std::mem::take(&mut pipe.flips);
                    flips.retain(|at| {
                        let here = *at >= pipe.arrived_bytes && *at < end;
                        if here {
                            let mut changed = piece.to_vec();
                            changed[(*at - pipe.arrived_bytes) as usize] ^= 1 << (*at % 8);
                            piece = changed.into();
                        }
                        *at >= end
                    });
                    pipe.flips = flips;
                    pipe.arrived_bytes = end;
                    pipe.received_bytes += piece.len();
                    if counts_flight {
                        pipe.flight -= piece.len();
                    }
                    pipe.received.push_back(piece);
                }
            }
        }
        self.list_readable(conn, side.other());
        self.pump(conn, side);
    }

    fn reset_end(&mut self, conn: usize, side: Side) {
        let c = &mut self.network.conns[conn];
        if c.pipes[side.other().0].frozen_until > self.now {
            let at = c.pipes[side.other().0].frozen_until;
            return self.schedule(at, Event::Reset { conn, side });
        }
        let end = &mut c.ends[side.0];
        if end.closed || std::mem::replace(&mut end.reset, true) {
            return;
        }
        let pipe = &mut c.pipes[side.0];
        pipe.queue.clear();
        pipe.queued = 0;
        self.leave_air(conn);
        self.take_over(conn, side);
        self.list_readable(conn, side);
    }

    pub(crate) fn shutdown_end(&mut self, conn: usize, side: Side) {
        self.network.conns[conn].pipes[side.0].fin = true;
        self.pump(conn, side);
    }

    /// The host of `side` forgets the connection.
    pub(crate) fn close_end(&mut self, conn: usize, side: Side) {
        let c = &mut self.network.conns[conn];
        let end = &mut c.ends[side.0];
        end.owner = None;
        end.recv = None;
        if std::mem::replace(&mut end.closed, true) {
            return;
        }
        let broken = end.reset;
        let pipe = &mut c.pipes[side.0];
        // What the system has not taken over is lost.
        pipe.sending = None;
        pipe.fin = true;
        pipe.fin_sent |= broken;
        self.watch.closed(self.now, conn, side);
        self.leave_air(conn);
        self.pump(conn, side);
    }

    /// A driver dies with its process: its connections are closed or, if `silently`, no peer is notified.
    pub(crate) fn kill_driver(&mut self, driver: DriverId, silently: bool) -> Vec<Completion<SimStream>> {
        let slots = std::mem::take(&mut self.drivers[driver].slots);
        let done = std::mem::take(&mut self.drivers[driver].done);
        self.drivers[driver].alive = false;
        self.drivers[driver].readable.clear();
        let owned = slots.iter().filter_map(|slot| match slot.entry {
            Entry::Conn { conn, side } => Some((conn, side)),
            _ => None,
        });
        let waiting = done.iter().filter_map(|completion| match completion {
            Completion::Accepted { stream, .. } => Some((stream.conn, stream.side)),
            _ => None,
        });
        let ends: Vec<(usize, Side)> = owned.chain(waiting).collect();
        for (conn, side) in ends {
            let pipe = &mut self.network.conns[conn].pipes[side.0];
            pipe.queue.clear();
            pipe.queued = 0;
            pipe.fin_sent = true;
            self.close_end(conn, side);
            if !silently {
                let at = self.now + self.path(conn).delay_ns;
                self.schedule(at, Event::Reset { conn, side: side.other() });
            }
        }
        let listening = slots.iter().filter_map(|slot| match slot.entry {
            Entry::Listener(addr) => Some(addr),
            _ => None,
        });
        for addr in listening {
            self.network.forget_listener(addr);
        }
        done
    }

    /// A reset at one end or both: the connection dies. An end that gets no reset learns of it when it sends, if the other end's host has
    /// forgotten the connection by then.
    pub(crate) fn cut(&mut self, conn: usize, sides: &[Side]) {
        self.watch.harmed(conn);
        for &side in sides {
            self.reset_end(conn, side);
        }
    }

    /// Holds back everything that `side` sends until this time.
    pub(crate) fn freeze(&mut self, conn: usize, side: Side, until: Nanos) {
        self.watch.harmed(conn);
        self.network.conns[conn].pipes[side.0].frozen_until = until;
    }
}
