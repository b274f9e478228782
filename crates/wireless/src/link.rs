//! Two hosts with TCP connections over the [`Medium`](crate::medium::Medium), as discrete events on a clock that the caller advances.
//!
//! A [`Crossing`] connects the hosts. A host hands frames to its station only while the station has room, so it never drops its own
//! packets. TCP repairs losses. The same seed and the same calls give the same run, on every machine.
//!
//! Not modelled: opening and closing of connections, and stations that do not hear each other.

use crate::crossing::Crossing;
use crate::medium::Counts;
pub use crate::setup::{HOPS_MAX, Host, LinkSetup};
use crate::tcp::{Endpoint, Progress, Segment};

/// Most connections over a link.
pub const CONNECTIONS_MAX: usize = 1024;

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Its number.
    pub conn: usize,
    /// The host at which it happened.
    pub host: Host,
    /// `delivered`: this many bytes can be read there. `acknowledged`: this many of the bytes written there have arrived.
    pub progress: Progress,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    conn: usize,
    to: Host,
    segment: Segment,
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    setup: LinkSetup,
    crossing: Crossing,
    conns: Vec<[Endpoint; 2]>,
    /// Packets in transit, by number; those of a closed connection are removed.
    packets: Vec<Option<Packet>>,
    happened: Vec<Happening>,
    /// The connection of each host that sends first when there is room again.
    turn: [usize; 2],
    /// The time of the connections' next timer, and whether it must be determined again.
    timer: (Option<u64>, bool),
}

impl Link {
    /// A quiet link at time 0.
    pub fn new(setup: LinkSetup, seed: u64) -> Link {
        Link {
            setup,
            crossing: Crossing::new(&setup, seed),
            conns: Vec::new(),
            packets: Vec::new(),
            happened: Vec::new(),
            turn: [0; 2],
            timer: (None, false),
        }
    }

    /// Adds a connection and returns its number. `None`: there are [`CONNECTIONS_MAX`] already.
    pub fn connect(&mut self) -> Option<usize> {
        if self.conns.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.conns.push([Endpoint::new(self.setup.tcp), Endpoint::new(self.setup.tcp)]);
        Some(self.conns.len() - 1)
    }

    /// Sets the share of packets that is lost from now on.
    pub fn set_loss(&mut self, loss: f64) {
        self.crossing.set_loss(loss);
    }

    /// The program at `host` writes `bytes` bytes.
    pub fn write(&mut self, now_ns: u64, conn: usize, host: Host, bytes: u64) {
        self.conns[conn][host as usize].write(bytes);
        self.send(now_ns, host);
    }

    /// The program at `host` reads `bytes` of the bytes delivered.
    pub fn read(&mut self, now_ns: u64, conn: usize, host: Host, bytes: u64) {
        self.conns[conn][host as usize].read(bytes);
        self.send(now_ns, host);
    }

    /// Closes a connection: both ends forget what they have not sent yet.
    pub fn abandon(&mut self, conn: usize) {
        self.conns[conn] = [Endpoint::new(self.setup.tcp), Endpoint::new(self.setup.tcp)];
        // Its frames stay on the air, but their contents are ignored.
        for packet in &mut self.packets {
            *packet = packet.filter(|packet| packet.conn != conn);
        }
        self.happened.retain(|happening| happening.conn != conn);
        self.timer.1 = true;
    }

    /// An end of a connection.
    pub fn endpoint(&self, conn: usize, host: Host) -> &Endpoint {
        &self.conns[conn][host as usize]
    }

    /// What has happened on the medium so far.
    pub fn counts(&self) -> Counts {
        self.crossing.counts()
    }

    /// Packets that were lost although they had crossed the medium, at a full queue between two hops, or after all tries of the medium.
    pub fn lost(&self) -> u64 {
        self.crossing.lost()
    }

    /// A fingerprint of all frames so far: equal for equal runs, on every machine and in every build.
    pub fn hash(&self) -> u64 {
        self.crossing.hash()
    }

    /// The time of the next event.
    pub fn next_ns(&mut self) -> Option<u64> {
        if !self.happened.is_empty() {
            return Some(0);
        }
        if std::mem::take(&mut self.timer.1) {
            self.timer.0 = self.conns.iter().flatten().filter_map(Endpoint::next_ns).min();
        }
        [self.crossing.next_ns(), self.timer.0].into_iter().flatten().min()
    }

    /// Processes the next event that is due at `now_ns`. Returns whether there was one, and the news for a connection.
    pub fn advance(&mut self, now_ns: u64) -> (bool, Option<Happening>) {
        if let Some(happening) = self.happened.pop() {
            return (true, Some(happening));
        }
        let step = self.crossing.advance(now_ns);
        if let Some((number, _, _)) = step.arrived
            && let Some(packet) = self.packets[number].take()
        {
            self.arrive(now_ns, packet);
        }
        if let Some(number) = step.lost {
            self.packets[number] = None;
        }
        if let Some(host) = step.room {
            self.send(now_ns, host);
        }
        if step.happened {
            return (true, self.happened.pop());
        }
        if self.timer.0.is_some_and(|at| at <= now_ns) {
            self.conns.iter_mut().flatten().for_each(|end| end.on_timer(now_ns));
            self.timer.1 = true;
            Host::BOTH.into_iter().for_each(|host| self.send(now_ns, host));
            return (true, self.happened.pop());
        }
        (false, None)
    }

    fn arrive(&mut self, now_ns: u64, packet: Packet) {
        let progress = self.conns[packet.conn][packet.to as usize].on_segment(now_ns, &packet.segment);
        self.timer.1 = true;
        if progress != Progress::default() {
            self.happened.push(Happening { conn: packet.conn, host: packet.to, progress });
        }
        self.send(now_ns, packet.to);
    }

    /// Hands frames to the station of `host`, one from each connection in turn, as long as the station accepts them.
    fn send(&mut self, now_ns: u64, host: Host) {
        self.timer.1 = true;
        let count = self.conns.len();
        let mut silent = 0;
        while silent < count && self.crossing.has_room(host) {
            let conn = self.turn[host as usize] % count;
            self.turn[host as usize] = (conn + 1) % count;
            let Some(segment) = self.conns[conn][host as usize].poll(now_ns) else {
                silent += 1;
                continue;
            };
            silent = 0;
            let headers = self.setup.mtu_bytes - self.setup.tcp.mss_bytes;
            let Some(number) = self.crossing.offer(now_ns, host, segment.bytes + headers) else { continue };
            if self.packets.len() <= number {
                self.packets.resize(number + 1, None);
            }
            self.packets[number] = Some(Packet { conn, to: host.other(), segment });
        }
    }
}
