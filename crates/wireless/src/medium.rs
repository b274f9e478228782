//! A cell of 802.11 stations that all hear each other, frame by frame: the distributed coordination function (DCF) of the thesis' Figure
//! 3.1 as a pure state machine on a nanosecond clock.
//!
//! ```text
//!   idle ── a station's backoff is over ──► busy ── the exchange, or the frame that collided, ends ──► idle
//! ```
//!
//! A station with a frame counts its backoff down once the medium has been idle for DIFS (EIFS after a frame with errors). It keeps the
//! remaining count while others send, and sends at zero. Two stations that reach zero together collide. A station that gets no
//! acknowledgement doubles its window and tries again, [`TRIES_MAX`] times in all. After each exchange the sender draws another backoff,
//! even if it has nothing to send. A frame that finds the medium idle and that backoff complete is sent at once.
//!
//! The caller owns the clock: [`Medium::next_ns`] returns the time of the next event, and [`Medium::advance`] processes it. All times are
//! those of the ideal schedule, never of the call of `advance`, so a late caller does not shift them. The same seed and the same calls give
//! the same run, on every machine.

use std::collections::VecDeque;

use crate::mac::{AckForm, Mac};

/// Times that a frame is sent before its station gives up.
pub const TRIES_MAX: u32 = 7;

/// A packet at a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The caller's name for it.
    pub id: u64,
    /// The packet with its IP header, bytes.
    pub bytes: u32,
}

/// The result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The station that had it.
    pub station: usize,
    /// The frame.
    pub frame: Frame,
    /// Whether it arrived. If not, its station gave up after [`TRIES_MAX`] tries.
    pub delivered: bool,
    /// The time when it arrived or was given up.
    pub at_ns: u64,
    /// Number of times it was sent.
    pub tries: u32,
}

/// How long stations wait that have heard a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterCollision {
    /// DIFS: frames that start together destroy each other's PHY header, so no station has heard the start of a frame. ns-3 does the same.
    #[default]
    Difs,
    /// As long as the senders, which wait for an acknowledgement: Bianchi's assumption.
    TimeOut,
}

/// The configuration of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Frames and their times.
    pub mac: Mac,
    /// Stations.
    pub stations: usize,
    /// Frames that a station queues in addition to the one it is sending.
    pub queue_frames: usize,
    /// P_e: the chance that a frame which does not collide is not acknowledged.
    pub p_error: f64,
    /// How long stations wait that have heard a collision.
    pub after_collision: AfterCollision,
    /// Seed of all randomness.
    pub seed: u64,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were acknowledged.
    pub delivered: u64,
    /// Frames that were given up.
    pub given_up: u64,
    /// Times that two or more stations sent at once.
    pub collisions: u64,
    /// Frames destroyed by an error.
    pub errors: u64,
    /// Transmissions by stations; each station of a collision counts.
    pub transmissions: u64,
    /// Frames refused because the queue was full.
    pub refused: u64,
}

/// Times in nanoseconds, rounded once.
#[derive(Clone, Copy, Debug)]
struct Times {
    slot: u64,
    sifs: u64,
    difs: u64,
    eifs: u64,
    ack: u64,
    ack_timeout: u64,
    tau: u64,
}

#[derive(Debug)]
struct Station {
    queue: VecDeque<Frame>,
    /// Slots to count down; nothing: the last backoff is complete, and none has been drawn since.
    backoff: Option<u32>,
    /// When the countdown starts in this idle period.
    counts_from: u64,
    /// The earliest time at which the frame at the head may be sent.
    ready: u64,
    doublings: u32,
    tries: u32,
}

/// The frames on the air.
#[derive(Debug)]
struct Air {
    until: u64,
    /// When the frame is received.
    received: u64,
    began: u64,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Success(usize),
    Error(usize),
    Collision,
}

/// A cell; see the module's head.
#[derive(Debug)]
pub struct Medium {
    setup: Setup,
    times: Times,
    random: fastrand::Rng,
    stations: Vec<Station>,
    /// The stations on the air; kept to save an allocation per exchange.
    senders: Vec<usize>,
    air: Option<Air>,
    idle_from: u64,
    /// Frames that were given up in one collision and not reported yet.
    given_up: Vec<Outcome>,
    counts: Counts,
}

impl Medium {
    /// A quiet cell at time 0.
    pub fn new(setup: Setup) -> Medium {
        let mac = &setup.mac;
        let times = Times {
            slot: ns(mac.t_slot_us),
            sifs: ns(mac.t_sifs_us),
            difs: ns(mac.t_difs_us),
            eifs: ns(mac.t_eifs_us()),
            ack: ns(mac.ack_us(AckForm::Standard)),
            ack_timeout: ns(mac.ack_timeout_us()),
            tau: ns(mac.tau_us),
        };
        let station = || Station {
            queue: VecDeque::new(),
            backoff: None,
            counts_from: times.difs,
            ready: 0,
            doublings: 0,
            tries: 0,
        };
        Medium {
            setup,
            times,
            random: fastrand::Rng::with_seed(setup.seed),
            stations: (0..setup.stations).map(|_| station()).collect(),
            senders: Vec::new(),
            air: None,
            idle_from: 0,
            given_up: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Frames at `station`, including the one it is sending.
    pub fn backlog(&self, station: usize) -> usize {
        self.stations[station].queue.len()
    }

    /// Gives `station` a frame at `now_ns`, which must not be before the last event. `false`: its queue is full, and the frame is lost.
    pub fn offer(&mut self, now_ns: u64, station: usize, frame: Frame) -> bool {
        let one = &mut self.stations[station];
        if one.queue.len() > self.setup.queue_frames {
            self.counts.refused += 1;
            return false;
        }
        one.queue.push_back(frame);
        if one.queue.len() == 1 {
            one.ready = now_ns;
            let free = self.air.is_none() && now_ns >= one.counts_from;
            let counted =
                one.backoff.is_none_or(|slots| self.times.counted(one.counts_from, now_ns) >= slots);
            if counted {
                // The backoff of the last exchange is complete. On a free medium the frame is sent at once; otherwise it needs a new
                // backoff.
                one.backoff = None;
                if !free {
                    self.draw(station);
                }
            }
        }
        true
    }

    /// The time of the next event; nothing: no station has a frame.
    pub fn next_ns(&self) -> Option<u64> {
        if !self.given_up.is_empty() {
            return Some(self.idle_from);
        }
        match &self.air {
            Some(air) => Some(air.until),
            None => self.first_to_send().map(|(at, _)| at),
        }
    }

    /// Processes the next event if it is due at `now_ns`. Returns whether there was one, and the frame whose outcome it decided.
    pub fn advance(&mut self, now_ns: u64) -> (bool, Option<Outcome>) {
        if let Some(outcome) = self.given_up.pop() {
            return (true, Some(outcome));
        }
        if let Some(air) = self.air.take_if(|air| air.until <= now_ns) {
            return (true, self.end(&air));
        }
        match self.first_to_send().filter(|(at, _)| self.air.is_none() && *at <= now_ns) {
            Some((at, _)) => {
                self.begin(at);
                (true, None)
            }
            None => (false, None),
        }
    }

    /// The first moment at which a station sends, and that station.
    fn first_to_send(&self) -> Option<(u64, usize)> {
        let at = |(number, station): (usize, &Station)| Some((self.times.sends_at(station)?, number));
        self.stations.iter().enumerate().filter_map(at).min()
    }

    /// Puts on the air the stations whose backoff is complete at `at`, and those that would send before they can hear them.
    fn begin(&mut self, at: u64) {
        let mut senders = std::mem::take(&mut self.senders);
        senders.clear();
        let mut longest = 0;
        for (number, station) in self.stations.iter_mut().enumerate() {
            if self.times.sends_at(station).is_some_and(|sends| sends < at + self.times.tau.max(1)) {
                senders.push(number);
                station.tries += 1;
                station.backoff = None;
                longest = longest.max(self.setup.mac.data_ns(station.queue[0]));
            } else if let Some(slots) = &mut station.backoff {
                *slots = slots.saturating_sub(self.times.counted(station.counts_from, at));
            }
        }
        self.counts.transmissions += senders.len() as u64;
        let received = at + longest + self.times.tau;
        let fate = match senders[..] {
            [one] if self.random.f64() >= self.setup.p_error => Fate::Success(one),
            [one] => Fate::Error(one),
            _ => Fate::Collision,
        };
        let answer = self.times.sifs + self.times.ack + self.times.tau;
        let until = received + if matches!(fate, Fate::Success(_)) { answer } else { 0 };
        self.senders = senders;
        self.air = Some(Air { until, received, began: at, fate });
    }

    fn end(&mut self, air: &Air) -> Option<Outcome> {
        self.idle_from = air.until;
        let quiet = match (air.fate, self.setup.after_collision) {
            (Fate::Error(_), _) => self.times.eifs,
            (Fate::Collision, AfterCollision::TimeOut) => self.times.ack_timeout + self.times.difs,
            _ => self.times.difs,
        };
        for station in &mut self.stations {
            station.counts_from = air.until + quiet;
        }
        match air.fate {
            Fate::Success(sender) => {
                self.counts.delivered += 1;
                Some(self.over(sender, true, air.received))
            }
            Fate::Error(sender) => {
                self.counts.errors += 1;
                self.unanswered(sender, air.began)
            }
            Fate::Collision => {
                self.counts.collisions += 1;
                let senders = std::mem::take(&mut self.senders);
                for sender in &senders {
                    let given_up = self.unanswered(*sender, air.began);
                    self.given_up.extend(given_up);
                }
                self.senders = senders;
                self.given_up.pop()
            }
        }
    }

    /// A station that started to send at `began` got no acknowledgement.
    fn unanswered(&mut self, sender: usize, began: u64) -> Option<Outcome> {
        let station = &mut self.stations[sender];
        let gives_up = began + self.setup.mac.data_ns(station.queue[0]) + self.times.ack_timeout;
        // It has sent, so it has heard nothing that it could not read: DIFS, not EIFS.
        station.counts_from = gives_up.max(self.idle_from) + self.times.difs;
        if station.tries >= TRIES_MAX {
            self.counts.given_up += 1;
            return Some(self.over(sender, false, gives_up));
        }
        station.doublings = (station.doublings + 1).min(self.setup.mac.doublings);
        self.draw(sender);
        None
    }

    /// The exchange of the frame at the head has ended, successfully or not.
    fn over(&mut self, sender: usize, delivered: bool, at_ns: u64) -> Outcome {
        let station = &mut self.stations[sender];
        let frame = station.queue.pop_front().unwrap_or(Frame { id: 0, bytes: 0 });
        let outcome = Outcome { station: sender, frame, delivered, at_ns, tries: station.tries };
        (station.doublings, station.tries, station.ready) = (0, 0, 0);
        self.draw(sender);
        outcome
    }

    fn draw(&mut self, number: usize) {
        let station = &mut self.stations[number];
        let window = (self.setup.mac.cw_min + 1) << station.doublings;
        station.backoff = Some(self.random.u32(0..window));
    }
}

impl Times {
    /// When a station sends, if no other station sends first.
    fn sends_at(&self, station: &Station) -> Option<u64> {
        station.queue.front()?;
        let counted = station.counts_from + u64::from(station.backoff.unwrap_or(0)) * self.slot;
        Some(counted.max(station.ready))
    }

    /// Whole slots from the start of the countdown to `at`.
    fn counted(&self, from: u64, at: u64) -> u32 {
        u32::try_from(at.saturating_sub(from) / self.slot).unwrap_or(u32::MAX)
    }
}

impl Mac {
    fn data_ns(&self, frame: Frame) -> u64 {
        ns(self.data_us(f64::from(frame.bytes)))
    }
}

fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Frame = Frame { id: 1, bytes: 1500 };

    fn cell(stations: usize, p_error: f64, seed: u64) -> Medium {
        Medium::new(Setup {
            mac: Mac::B,
            stations,
            queue_frames: 100,
            p_error,
            after_collision: AfterCollision::Difs,
            seed,
        })
    }

    /// Runs until nothing is left to happen.
    fn run(medium: &mut Medium) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while let Some(at) = medium.next_ns() {
            let (happened, outcome) = medium.advance(at);
            assert!(happened);
            outcomes.extend(outcome);
        }
        outcomes
    }

    #[test]
    fn a_frame_on_a_free_medium_goes_at_once_and_is_acknowledged() {
        let mut medium = cell(2, 0.0, 1);
        assert_eq!(medium.next_ns(), None);
        medium.offer(1_000_000, 0, PACKET);
        assert_eq!(medium.next_ns(), Some(1_000_000), "idle for longer than DIFS, and no backoff left");
        let [outcome] = run(&mut medium)[..] else { panic!() };
        let data_ns = ns(Mac::B.data_us(1500.0)) + 1000;
        assert_eq!((outcome.delivered, outcome.at_ns, outcome.tries), (true, 1_000_000 + data_ns, 1));
    }

    #[test]
    fn a_medium_that_has_not_been_idle_for_difs_is_not_free() {
        let mut medium = cell(1, 0.0, 3);
        medium.offer(10_000, 0, PACKET);
        let at = medium.next_ns().unwrap();
        assert!(at >= 50_000 && (at - 50_000).is_multiple_of(20_000), "DIFS, then whole slots: {at}");
    }

    #[test]
    fn the_second_frame_waits_for_the_backoff_of_the_first() {
        let mut medium = cell(1, 0.0, 5);
        medium.offer(1_000_000, 0, PACKET);
        medium.offer(1_000_000, 0, Frame { id: 2, ..PACKET });
        medium.advance(1_000_000);
        let ends = medium.next_ns().unwrap();
        assert!(matches!(medium.advance(ends), (true, Some(Outcome { delivered: true, .. }))));
        let next = medium.next_ns().unwrap();
        assert!(next >= ends + 50_000 && next <= ends + 50_000 + 31 * 20_000);
    }

    #[test]
    fn two_that_come_at_once_collide_and_both_arrive_in_the_end() {
        let mut medium = cell(2, 0.0, 7);
        medium.offer(1_000_000, 0, PACKET);
        medium.offer(1_000_000, 1, Frame { id: 2, ..PACKET });
        let outcomes = run(&mut medium);
        assert_eq!(medium.counts().collisions, 1);
        assert!(outcomes.iter().all(|outcome| outcome.delivered && outcome.tries == 2));
        assert_eq!(outcomes.len(), 2);
    }

    #[test]
    fn a_station_keeps_the_rest_of_its_backoff_while_others_send() {
        let mut medium = cell(2, 0.0, 11);
        medium.offer(10_000, 0, PACKET);
        medium.offer(10_000, 1, Frame { id: 2, ..PACKET });
        let drawn: Vec<u32> = medium.stations.iter().map(|station| station.backoff.unwrap()).collect();
        assert_ne!(drawn[0], drawn[1], "this seed");
        let at = medium.next_ns().unwrap();
        medium.advance(at);
        let later = usize::from(drawn[0] < drawn[1]);
        assert_eq!(medium.stations[later].backoff, Some(drawn[later] - drawn[1 - later]));
    }

    #[test]
    fn a_frame_that_nobody_acknowledges_is_given_up_after_seven_tries() {
        let mut medium = cell(1, 1.0, 1);
        medium.offer(1_000_000, 0, PACKET);
        let [outcome] = run(&mut medium)[..] else { panic!() };
        assert_eq!((outcome.delivered, outcome.tries), (false, TRIES_MAX));
        assert_eq!(medium.counts(), Counts { given_up: 1, errors: 7, transmissions: 7, ..Counts::default() });
    }

    #[test]
    fn two_that_give_up_in_one_collision_are_both_told() {
        // Without any backoff they collide forever.
        let mac = Mac { cw_min: 0, doublings: 0, ..Mac::B };
        let mut medium = Medium::new(Setup { mac, ..cell(2, 0.0, 1).setup });
        medium.offer(1_000_000, 0, PACKET);
        medium.offer(1_000_000, 1, Frame { id: 2, ..PACKET });
        let mut told: Vec<(usize, bool)> =
            run(&mut medium).iter().map(|outcome| (outcome.station, outcome.delivered)).collect();
        told.sort_unstable();
        assert_eq!(told, [(0, false), (1, false)]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut medium = Medium::new(Setup { queue_frames: 2, ..cell(1, 0.0, 1).setup });
        let taken = [0, 1, 2, 3, 4].map(|id| medium.offer(0, 0, Frame { id, ..PACKET }));
        assert_eq!(taken, [true, true, true, false, false]);
        assert_eq!((medium.backlog(0), medium.counts().refused), (3, 2));
        assert_eq!(run(&mut medium).len(), 3);
    }

    #[test]
    fn a_late_caller_does_not_shift_the_schedule() {
        let schedule = |late: u64| {
            let mut medium = cell(3, 0.2, 9);
            for id in 0..30 {
                medium.offer(0, id as usize % 3, Frame { id, ..PACKET });
            }
            let mut outcomes = Vec::new();
            while let Some(at) = medium.next_ns() {
                outcomes.extend(medium.advance(at + late).1);
            }
            outcomes
        };
        assert_eq!(schedule(0), schedule(1_000_000));
    }
}
