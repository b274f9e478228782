//! Paths whose segments travel over the air. The network hands bytes to [`wireless::link`], which models the TCP and the medium, and
//! reports what has arrived and what was acknowledged. There is no second model of the link here.
//!
//! First packets, resets and the end of a stream do not use the medium: they take the path's delay.

use bytes::Bytes;
use smallvec::SmallVec;
use wireless::link::{Happening, Host, Link, LinkSetup};

use crate::network::{FAR, NEAR, Passing, Side};
use crate::world::{Event, Nanos, State};

/// The configuration of a path over the air.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AirPlan {
    /// The link, including the TCP at both ends.
    pub link: LinkSetup,
    /// Seed of its randomness.
    pub seed: u64,
}

/// The link of a path.
pub(crate) struct Air {
    pub link: Link,
    /// Connections of the network, indexed by their number on the link.
    conns: Vec<usize>,
    /// Time of the event scheduled to advance the link.
    wakes_at: Nanos,
}

impl Air {
    pub(crate) fn new(plan: AirPlan) -> Self {
        Self { link: Link::new(plan.link, plan.seed), conns: Vec::new(), wakes_at: Nanos::MAX }
    }

    /// Registers a connection and returns its number on the link.
    pub(crate) fn connect(&mut self, conn: usize) -> Option<usize> {
        let number = self.link.connect()?;
        self.conns.push(conn);
        Some(number)
    }
}

pub(crate) fn host(side: Side) -> Host {
    if side == NEAR { Host::Near } else { Host::Far }
}

impl State {
    /// The link of a connection, and its number there.
    fn air_of(&mut self, conn: usize) -> Option<(&mut Air, usize)> {
        let c = &self.network.conns[conn];
        let (path, number) = (c.path, c.air?);
        self.network.paths[path].air.as_mut().map(|air| (air, number))
    }

    /// Hands the link the bytes that `side` has queued.
    pub(crate) fn pump_air(&mut self, conn: usize, side: Side) {
        let pipe = &mut self.network.conns[conn].pipes[side.0];
        let bytes: usize = pipe.queue.iter().map(Bytes::len).sum();
        pipe.on_air.append(&mut pipe.queue);
        if pipe.fin && !pipe.fin_sent && pipe.queued == 0 && pipe.sending.is_none() {
            pipe.fin_sent = true;
            let at = self.now + self.path(conn).delay_ns;
            self.schedule(at, Event::Arrive { conn, side, what: Passing::Fin });
        }
        let now = self.now;
        if bytes > 0
            && let Some((air, number)) = self.air_of(conn)
        {
            air.link.write(now, number, host(side), bytes as u64);
            self.wake_air(self.network.conns[conn].path);
        }
    }

    /// The program of `side` has read `bytes`.
    pub(crate) fn read_air(&mut self, conn: usize, side: Side, bytes: usize) {
        let now = self.now;
        if let Some((air, number)) = self.air_of(conn) {
            air.link.read(now, number, host(side), bytes as u64);
            self.wake_air(self.network.conns[conn].path);
        }
    }

    /// Once both ends are gone, the link sends nothing more for a connection.
    pub(crate) fn leave_air(&mut self, conn: usize) {
        let gone = self.network.conns[conn].ends.iter().all(|end| end.closed || end.reset);
        if gone && let Some((air, number)) = self.air_of(conn) {
            air.link.abandon(number);
        }
    }

    /// Processes everything that is due on a link.
    pub(crate) fn air(&mut self, path: usize) {
        let now = self.now;
        loop {
            let Some(air) = self.network.paths[path].air.as_mut() else { return };
            if air.wakes_at <= now {
                air.wakes_at = Nanos::MAX;
            }
            if air.link.next_ns().is_none_or(|at| at > now) {
                break;
            }
            let Some(happening) = air.link.advance(now).1 else { continue };
            let conn = air.conns[happening.conn];
            self.happened_on_air(conn, happening);
        }
        self.wake_air(path);
    }

    fn happened_on_air(&mut self, conn: usize, happening: Happening) {
        let side = if happening.host == Host::Near { NEAR } else { FAR };
        let delivered = happening.progress.delivered as usize;
        if delivered > 0 {
            let pieces = take_front(&mut self.network.conns[conn].pipes[side.other().0].on_air, delivered);
            self.arrive(conn, side.other(), Passing::Bytes(pieces));
        }
        let acknowledged = happening.progress.acknowledged as usize;
        if acknowledged > 0 {
            let pipe = &mut self.network.conns[conn].pipes[side.0];
            pipe.queued = pipe.queued.saturating_sub(acknowledged);
            if pipe.sending.is_some() {
                self.take_over(conn, side);
            }
            self.pump(conn, side);
        }
    }

    fn wake_air(&mut self, path: usize) {
        let now = self.now;
        let Some(air) = self.network.paths[path].air.as_mut() else { return };
        let Some(next) = air.link.next_ns().map(|at| at.max(now)).filter(|at| *at < air.wakes_at) else {
            return;
        };
        air.wakes_at = next;
        self.schedule(next, Event::Air { path });
    }
}

/// The first `bytes` of `queue`.
fn take_front(queue: &mut std::collections::VecDeque<Bytes>, bytes: usize) -> SmallVec<[Bytes; 2]> {
    let mut pieces = SmallVec::new();
    let mut left = bytes;
    while left > 0 {
        let Some(front) = queue.front_mut() else { break };
        let piece = front.split_to(left.min(front.len()));
        left -= piece.len();
        if front.is_empty() {
            queue.pop_front();
        }
        pieces.push(piece);
    }
    pieces
}
