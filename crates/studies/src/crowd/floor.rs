//! The cost of the sockets alone: the same traffic without the protocol. A server answers each 48 bytes with 48 bytes and a block, and
//! a client sends requests on many connections. Both use the driver of the product, so a target can hardly cost less.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Completion, Driver, EpollDriver, Token};
use iscsi_core::wire::Bhs;

use super::answer::Answer;
use super::peers::{BLOCK_BYTES, Done, Spent, local_address};

/// Room for what arrives, bytes: that of a quiet connection of the product.
const BUFFER_BYTES: usize = 16 << 10;
const REQUEST: &[u8] = &[0; Bhs::SIZE];
const BLOCK: &[u8] = &[0; BLOCK_BYTES];
/// One answer, bytes.
const ANSWER_BYTES: usize = Bhs::SIZE + BLOCK_BYTES;

/// One connection, at either end.
#[derive(Default)]
struct Line {
    /// Bytes that have arrived since the last whole request or answer.
    part: usize,
    /// Requests or answers to be sent.
    queued: usize,
    sending: bool,
}

/// Connections by the place of their tokens.
struct Lines {
    driver: EpollDriver,
    lines: Vec<Line>,
    completions: Vec<Completion>,
    /// The size of what arrives, and what is sent, bytes.
    arriving: usize,
    sent: &'static [&'static [u8]],
}

impl Lines {
    fn new(driver: EpollDriver, arriving: usize, sent: &'static [&'static [u8]]) -> Self {
        Self { driver, lines: Vec::new(), completions: Vec::new(), arriving, sent }
    }

    fn begin(&mut self, token: Token) {
        if self.lines.len() <= token.index() {
            self.lines.resize_with(token.index() + 1, Line::default);
        }
        self.lines[token.index()] = Line::default();
        self.driver.recv(token, BytesMut::with_capacity(BUFFER_BYTES));
    }

    /// How many requests or answers have arrived whole.
    fn received(&mut self, token: Token, mut buffer: BytesMut, bytes: usize) -> usize {
        buffer.clear();
        self.driver.recv(token, buffer);
        let line = &mut self.lines[token.index()];
        let have = line.part + bytes;
        line.part = have % self.arriving;
        have / self.arriving
    }

    fn send(&mut self, token: Token) {
        let line = &mut self.lines[token.index()];
        if line.sending || line.queued == 0 {
            return;
        }
        line.sending = true;
        let pieces = self.sent.iter().map(|piece| Bytes::from_static(piece));
        let segments = (0..std::mem::take(&mut line.queued)).flat_map(|_| pieces.clone()).collect();
        self.driver.send(token, segments);
    }

    fn has_sent(&mut self, token: Token) {
        self.lines[token.index()].sending = false;
        self.send(token);
    }

    fn wait(&mut self) -> Result<Vec<Completion>, String> {
        let mut completions = std::mem::take(&mut self.completions);
        self.driver.wait(None, &mut completions).map_err(|error| format!("epoll: {error}"))?;
        Ok(completions)
    }
}

/// Answers until it is killed; first it reports its address, as a target does.
pub(super) fn answer(driver: EpollDriver, report: impl Fn(&Answer)) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot listen: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let portal = listener.local_addr().map_err(failed)?;
    let mut lines = Lines::new(driver, REQUEST.len(), &[REQUEST, BLOCK]);
    lines.driver.listen(listener).map_err(failed)?;
    report(&Answer::Listening { portals: [portal], targets: ["floor"] });
    loop {
        let mut completions = lines.wait()?;
        for completion in completions.drain(..) {
            match completion {
                Completion::Accepted { stream, .. } => {
                    let token = lines.driver.adopt(stream).map_err(failed)?;
                    lines.begin(token);
                }
                Completion::Received { conn, result: Err(_) | Ok(0), .. } => lines.driver.close(conn),
                Completion::Received { conn, buffer, result: Ok(bytes) } => {
                    let requests = lines.received(conn, buffer, bytes);
                    lines.lines[conn.index()].queued += requests;
                    lines.send(conn);
                }
                Completion::Sent { conn, .. } => lines.has_sent(conn),
                _ => {}
            }
        }
        lines.completions = completions;
    }
}

/// Many connections to such a server.
pub(super) struct Asking {
    lines: Lines,
    portal: SocketAddr,
    open: Vec<Token>,
}

impl Asking {
    pub(super) fn new(driver: EpollDriver, portal: SocketAddr) -> Self {
        Self { lines: Lines::new(driver, ANSWER_BYTES, &[REQUEST]), portal, open: Vec::new() }
    }

    /// Connects until this many connections exist.
    pub(super) fn open(&mut self, connections: usize) -> Result<Done, String> {
        let clock = Spent::start();
        let before = self.open.len();
        while self.open.len() < connections {
            let local = local_address(self.portal.ip(), self.open.len() as u64);
            let connected = self.lines.driver.connect(self.portal, local);
            let token = connected.map_err(|error| format!("connect: {error}"))?;
            self.lines.begin(token);
            self.open.push(token);
            // One by one, so that none waits in the listener's queue.
            let mut established = false;
            while !established {
                let mut completions = self.lines.wait()?;
                for completion in completions.drain(..) {
                    if let Completion::Connected { result, .. } = completion {
                        established = true;
                        result.map_err(|error| format!("connect: {error}"))?;
                    }
                }
                self.lines.completions = completions;
            }
        }
        Ok(clock.done((self.open.len() - before) as u64))
    }

    /// Like [`super::peers::Crowd::read`].
    pub(super) fn read(&mut self, connections: usize, depth: usize, time: Duration) -> Result<Done, String> {
        if connections > self.open.len() {
            return Err(format!("{connections} connections are to ask, and there are {}", self.open.len()));
        }
        let clock = Spent::start();
        let (mut next, mut outstanding, mut count) = (0, 0, 0);
        let mut touched = Vec::new();
        while outstanding < depth {
            self.lines.lines[self.open[next].index()].queued += 1;
            touched.push(self.open[next]);
            (next, outstanding) = ((next + 1) % connections, outstanding + 1);
        }
        while outstanding > 0 {
            touched.drain(..).for_each(|token| self.lines.send(token));
            let mut completions = self.lines.wait()?;
            let goes_on = clock.elapsed() < time;
            for completion in completions.drain(..) {
                match completion {
                    Completion::Received { conn, buffer, result: Ok(bytes) } if bytes > 0 => {
                        let answers = self.lines.received(conn, buffer, bytes);
                        (count, outstanding) = (count + answers as u64, outstanding - answers);
                        for _ in 0..if goes_on { answers } else { 0 } {
                            let turn = if connections > depth { self.open[next] } else { conn };
                            self.lines.lines[turn.index()].queued += 1;
                            touched.push(turn);
                            (next, outstanding) = ((next + 1) % connections, outstanding + 1);
                        }
                    }
                    Completion::Received { .. } => return Err("a connection ended".to_owned()),
                    Completion::Sent { conn, .. } => self.lines.has_sent(conn),
                    _ => {}
                }
            }
            self.lines.completions = completions;
        }
        Ok(clock.done(count))
    }
}
