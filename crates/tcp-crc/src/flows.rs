//! The connections of one shim, limited in number.

use std::collections::HashMap;

use core::net::IpAddr;

use crate::flow::{Action, Config, Counters, Direction, Flow, State};
use crate::packet::{Packet, Unsuitable};

/// An ended connection is kept this long for late segments, in milliseconds: twice Linux' TIME-WAIT.
pub const LINGER_MS: u64 = 120_000;
/// An open connection without any segment for this long may be removed when the table is full, in milliseconds: RFC 5382 requires the same
/// of address translators.
pub const IDLE_MS: u64 = 2 * 3600 * 1000 + 4 * 60 * 1000;
/// A SYN that our TCP has not answered is forgotten after this, in milliseconds.
pub const UNANSWERED_MS: u64 = 60_000;
/// When the table is full, it is searched for removable connections at most this often, in milliseconds, so that a flood of SYNs stays
/// cheap.
const SWEEP_EVERY_MS: u64 = 1000;

/// A connection, identified by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Our address and port.
    pub local: (IpAddr, u16),
    /// The peer's.
    pub remote: (IpAddr, u16),
}

impl FlowKey {
    fn of(direction: Direction, packet: &Packet<'_>) -> FlowKey {
        let (source, destination) = packet.addresses();
        let source = (source, packet.source_port());
        let destination = (destination, packet.destination_port());
        match direction {
            Direction::Out => FlowKey { local: source, remote: destination },
            Direction::In => FlowKey { local: destination, remote: source },
        }
    }
}

/// The result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It belongs to a connection in the table.
    Flow(FlowKey, Action),
    /// It is TCP of a connection not in the table: opened before the shim started, or when the table was full. It is forwarded unchanged.
    Unknown,
    /// It is not a whole TCP segment. IP fragments (`Unsuitable::Fragment`) of a protected connection cannot be judged, so a strict shim
    /// discards them. Everything else is either not TCP or is discarded by TCP itself.
    Unsuitable(Unsuitable),
}

struct Entry {
    flow: Flow,
    last_ms: u64,
}

impl Entry {
    fn may_go(&self, now_ms: u64) -> bool {
        let idle = now_ms.saturating_sub(self.last_ms);
        let limit = match self.flow.state() {
            _ if self.flow.has_ended() => LINGER_MS,
            State::Opening => UNANSWERED_MS,
            _ => IDLE_MS,
        };
        idle >= limit
    }
}

/// A table of connections.
pub struct Flows {
    config: Config,
    max: usize,
    entries: HashMap<FlowKey, Entry>,
    swept_ms: Option<u64>,
    refused: u64,
    /// Counters of connections that are no longer in the table.
    gone: Counters,
}

impl Flows {
    /// A table of at most `max` connections. Further ones stay plain.
    pub fn new(config: Config, max: usize) -> Flows {
        Flows { config, max, entries: HashMap::new(), swept_ms: None, refused: 0, gone: Counters::default() }
    }

    /// Handles a packet from our TCP or from the network at `now_ms` (of any clock that does not go back). For [`Action::Rewritten`] the
    /// new packet is in `out`, whose content is replaced.
    pub fn handle(&mut self, now_ms: u64, direction: Direction, bytes: &[u8], out: &mut Vec<u8>) -> Outcome {
        out.clear();
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(unsuitable) => return Outcome::Unsuitable(unsuitable),
        };
        match self.find(now_ms, direction, &packet) {
            Some((key, flow)) => Outcome::Flow(key, flow.handle(direction, &packet, out)),
            None => Outcome::Unknown,
        }
    }

    /// The connection of a packet. A SYN creates one if there is room.
    pub fn find(
        &mut self,
        now_ms: u64,
        direction: Direction,
        packet: &Packet<'_>,
    ) -> Option<(FlowKey, &mut Flow)> {
        let key = FlowKey::of(direction, packet);
        if !self.entries.contains_key(&key) {
            let flags = packet.flags();
            if !flags.syn() || flags.ack() || flags.rst() || !self.has_room(now_ms) {
                return None;
            }
        }
        let config = self.config;
        let entry =
            self.entries.entry(key).or_insert_with(|| Entry { flow: Flow::new(config), last_ms: now_ms });
        entry.last_ms = now_ms;
        Some((key, &mut entry.flow))
    }

    fn has_room(&mut self, now_ms: u64) -> bool {
        if self.entries.len() < self.max {
            return true;
        }
        if self.swept_ms.is_none_or(|swept| now_ms.saturating_sub(swept) >= SWEEP_EVERY_MS) {
            self.swept_ms = Some(now_ms);
            let gone = &mut self.gone;
            self.entries.retain(|_, entry| {
                let goes = entry.may_go(now_ms);
                if goes {
                    gone.add(&entry.flow.total());
                }
                !goes
            });
        }
        let room = self.entries.len() < self.max;
        self.refused += u64::from(!room);
        room
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&FlowKey, State, Counters)> {
        self.entries.iter().map(|(key, entry)| (key, entry.flow.state(), entry.flow.counters()))
    }

    /// Connections in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The counters of all connections, including those no longer in the table.
    pub fn total(&self) -> Counters {
        let mut total = self.gone;
        self.entries.values().for_each(|entry| total.add(&entry.flow.total()));
        total
    }

    /// SYNs that found the table full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
