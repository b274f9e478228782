//! Carries packets from one host to the other: the [`Medium`], the hops in between, the loss that the medium does not repair, and an added
//! latency for each packet. Packets are known by number only. [`crate::link`] stores TCP segments under these numbers, and a device in real
//! time stores the kernel's packets. So there is one model of the link for all drivers.
//!
//! ```text
//!  near ── station 0 ──► station 1 ──► ... ──► station h ── far        h hops, all in one cell
//!       ◄───────────────────────────────────────────────
//! ```
//! The caller owns the clock, and all times are those of the ideal schedule: a late caller shifts nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::medium::{AfterCollision, Counts, Frame, Medium, Outcome, Setup};
use crate::setup::{HOPS_MAX, Host, LinkSetup};

/// The result of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Something happened; if false, nothing was due.
    pub happened: bool,
    /// This packet has reached this host; the time is when it was due there, ns. Its number is free again.
    pub arrived: Option<(usize, Host, u64)>,
    /// This packet is lost. Its number is free again.
    pub lost: Option<usize>,
    /// The station of this host has room for one more frame.
    pub room: Option<Host>,
}

/// See the module.
#[derive(Debug)]
pub struct Crossing {
    hops: usize,
    queue_frames: usize,
    loss: f64,
    latency_ns: u64,
    medium: Medium,
    random: fastrand::Rng,
    /// Destination of each packet, by number.
    towards: Vec<Option<Host>>,
    free: Vec<usize>,
    /// Packets that have crossed the medium: the time at which they reach their host, their order, and their number.
    late: BinaryHeap<Reverse<(u64, u64, usize)>>,
    crossed: u64,
    lost: u64,
    hash: u64,
}

impl Crossing {
    /// A quiet medium at time 0.
    pub fn new(setup: &LinkSetup, seed: u64) -> Crossing {
        let hops = setup.hops.clamp(1, HOPS_MAX) as usize;
        let medium = Medium::new(Setup {
            mac: setup.mac,
            stations: hops + 1,
            queue_frames: setup.queue_frames,
            p_error: setup.p_error,
            after_collision: AfterCollision::Difs,
            seed,
        });
        Crossing {
            hops,
            queue_frames: setup.queue_frames,
            loss: setup.loss,
            latency_ns: setup.latency_ns,
            medium,
            random: fastrand::Rng::with_seed(seed ^ 0x6c69_6e6b),
            towards: Vec::new(),
            free: Vec::new(),
            late: BinaryHeap::new(),
            crossed: 0,
            lost: 0,
            // FNV-1a: a fingerprint that distinguishes runs.
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Sets the share of packets that is lost although the medium has delivered them, from now on.
    pub fn set_loss(&mut self, loss: f64) {
        self.loss = loss;
    }

    /// Whether the station of `host` accepts a frame.
    pub fn has_room(&self, host: Host) -> bool {
        self.medium.backlog(self.station(host)) <= self.queue_frames
    }

    /// Sends a packet of `bytes` from `host` at `now_ns`, which must not be before the last step. Returns its number; `None`: the station's
    /// queue is full, and the packet is lost.
    pub fn offer(&mut self, now_ns: u64, host: Host, bytes: u32) -> Option<usize> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.towards.push(None);
            self.towards.len() - 1
        });
        if !self.medium.offer(now_ns, self.station(host), Frame { id: number as u64, bytes }) {
            self.free.push(number);
            return None;
        }
        self.towards[number] = Some(host.other());
        Some(number)
    }

    /// What happened on the medium so far.
    pub fn counts(&self) -> Counts {
        self.medium.counts()
    }

    /// Packets lost by the medium after all its tries, at a full queue between hops, or by [`LinkSetup::loss`].
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A fingerprint of all frames so far: equal for equal runs, on every machine and in every build.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The time of the next event.
    pub fn next_ns(&self) -> Option<u64> {
        let late = self.late.peek().map(|Reverse((at, ..))| *at);
        [self.medium.next_ns(), late].into_iter().flatten().min()
    }

    /// Processes the next event that is due at `now_ns`.
    pub fn advance(&mut self, now_ns: u64) -> Step {
        let medium_at = self.medium.next_ns();
        let late = self.late.peek().map(|Reverse(first)| *first).filter(|(at, ..)| *at <= now_ns);
        if let Some((at, _, number)) = late.filter(|(at, ..)| medium_at.is_none_or(|next| *at <= next)) {
            self.late.pop();
            let to = self.towards[number].take();
            self.free.push(number);
            return Step { happened: true, arrived: to.map(|to| (number, to, at)), ..Step::default() };
        }
        // The time of the event itself, not of the caller: whatever a step starts happens at the moment when the step was due.
        let at = medium_at.map_or(now_ns, |at| at.min(now_ns));
        let (happened, outcome) = self.medium.advance(now_ns);
        let mut step = Step { happened, ..Step::default() };
        if let Some(outcome) = outcome {
            self.crossed_hop(at, outcome, &mut step);
        }
        step
    }

    fn station(&self, host: Host) -> usize {
        match host {
            Host::Near => 0,
            Host::Far => self.hops,
        }
    }

    /// A frame has left its station, delivered or not.
    fn crossed_hop(&mut self, now_ns: u64, outcome: Outcome, step: &mut Step) {
        for number in [outcome.at_ns, outcome.station as u64 * 16 + u64::from(outcome.tries)] {
            self.hash = (self.hash ^ number).wrapping_mul(0x100_0000_01b3);
        }
        step.room = Host::BOTH.into_iter().find(|host| self.station(*host) == outcome.station);
        let number = outcome.frame.id as usize;
        let Some(to) = self.towards[number] else { return };
        let next = if to == Host::Far { outcome.station + 1 } else { outcome.station.saturating_sub(1) };
        let is_there = next == self.station(to);
        let survives = outcome.delivered && (!is_there || self.loss <= 0.0 || self.random.f64() >= self.loss);
        if survives && is_there {
            self.crossed += 1;
            self.late.push(Reverse((outcome.at_ns.max(now_ns) + self.latency_ns, self.crossed, number)));
        } else if !survives || !self.medium.offer(now_ns, next, outcome.frame) {
            self.lost += 1;
            self.towards[number] = None;
            self.free.push(number);
            step.lost = Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac::Mac;

    const SETUP: LinkSetup = LinkSetup { latency_ns: 500_000, ..LinkSetup::of(Mac::B) };

    /// The arrival time of each packet, in order, for a caller that is `late_ns` late for each event.
    fn arrivals(setup: LinkSetup, late_ns: u64) -> Vec<(usize, Host, u64)> {
        let mut crossing = Crossing::new(&setup, 5);
        for n in 0..40 {
            crossing.offer(0, if n % 4 == 0 { Host::Far } else { Host::Near }, 1500);
        }
        let mut arrivals = Vec::new();
        while let Some(at) = crossing.next_ns() {
            arrivals.extend(crossing.advance(at + late_ns).arrived);
        }
        assert_eq!(crossing.lost() as usize + arrivals.len(), 40, "every packet ends one way or the other");
        arrivals
    }

    #[test]
    fn a_late_caller_does_not_shift_the_schedule() {
        let setup = LinkSetup { hops: 3, p_error: 0.1, ..SETUP };
        assert_eq!(arrivals(setup, 0), arrivals(setup, 50_000));
    }

    #[test]
    fn packets_reach_the_other_host_after_the_latency() {
        let (with, without) = (arrivals(SETUP, 0), arrivals(LinkSetup { latency_ns: 0, ..SETUP }, 0));
        assert_eq!(with.len(), 40);
        for (with, without) in with.iter().zip(&without) {
            assert_eq!((with.0, with.1), (without.0, without.1));
            assert_eq!(with.2, without.2 + 500_000);
        }
        assert_eq!(with.iter().filter(|(_, host, _)| *host == Host::Near).count(), 10);
    }

    #[test]
    fn a_full_queue_takes_nothing() {
        let mut crossing = Crossing::new(&LinkSetup { queue_frames: 2, ..SETUP }, 1);
        let taken = (0..5).filter(|_| crossing.offer(0, Host::Near, 1500).is_some()).count();
        assert_eq!((taken, crossing.has_room(Host::Near), crossing.has_room(Host::Far)), (3, false, true));
    }
}
