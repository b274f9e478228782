//! One end of a TCP connection, without I/O, clock and content: it only counts bytes. Small, but enough to load the medium as the TCP of a
//! system does.
//!
//! Modelled: slow start and congestion avoidance (RFC 5681); loss detection by selective acknowledgement of three segments after the lost
//! one (RFC 6675); one halving per window with losses; a timeout by RFC 6298 with the minimum that systems use; acknowledgements delayed
//! until more than a segment has arrived; the receiver's window, and a probe of a closed window. A write is sent at once, as with
//! TCP_NODELAY; data that waits for a window is packed into full segments.
//!
//! Not modelled: opening and closing, Nagle, cubic, pacing, tail loss probes, ECN. Byte numbers do not wrap.
//!
//! Bounds: [`SEGMENTS_MAX`] segments in flight, [`RANGES_MAX`] ranges out of order.

use std::collections::VecDeque;

/// Most segments in flight.
pub const SEGMENTS_MAX: usize = 4096;
/// Most ranges that a receiver keeps beyond a gap; a segment that would add one more is dropped and must be retransmitted.
pub const RANGES_MAX: usize = 256;
/// Ranges that fit into one acknowledgement in addition to timestamps.
pub const BLOCKS: usize = 3;
/// Segments after a lost one that reveal its loss.
const DUPLICATES: u32 = 3;
/// Longest timeout, ns.
const RTO_MAX_NS: u64 = 60_000_000_000;
/// Timeout before any round trip has been measured (RFC 6298), ns.
const RTO_FIRST_NS: u64 = 1_000_000_000;

/// The configuration of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSetup {
    /// Most bytes of a segment.
    pub mss_bytes: u32,
    /// Segments in the initial window.
    pub first_window: u32,
    /// Bytes that a receiver accepts before they are read.
    pub window_bytes: u64,
    /// Minimum timeout, ns.
    pub rto_min_ns: u64,
    /// How long an acknowledgement is delayed to be sent with others or with data, ns.
    pub ack_delay_ns: u64,
}

impl TcpSetup {
    /// For packets of `mtu_bytes` with timestamps: an initial window of 10 segments (RFC 6928), a 64 KiB receive window, and Linux' 200 and
    /// 40 ms.
    pub const fn of_mtu(mtu_bytes: u32) -> TcpSetup {
        TcpSetup {
            mss_bytes: mtu_bytes - 52,
            first_window: 10,
            window_bytes: 65_536,
            rto_min_ns: 200_000_000,
            ack_delay_ns: 40_000_000,
        }
    }
}

/// A segment on the wire. Offsets count bytes of the stream from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first byte.
    pub from: u64,
    /// Length in bytes; 0: only an acknowledgement.
    pub bytes: u32,
    /// Everything before this offset has arrived.
    pub acknowledges: u64,
    /// These ranges beyond it have arrived as well; an empty range means nothing.
    pub blocks: [(u64, u64); BLOCKS],
    /// The receiver has room up to this offset.
    pub room_until: u64,
}

/// The effect of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are now in order and were not delivered before.
    pub delivered: u64,
    /// Bytes that the other end has acknowledged for the first time.
    pub acknowledged: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u64,
    bytes: u32,
    at_ns: u64,
    has_come: bool,
    lost: bool,
    again: bool,
}

impl Sent {
    fn end(&self) -> u64 {
        self.from + u64::from(self.bytes)
    }

    fn is_under_way(&self) -> bool {
        !self.has_come && (!self.lost || self.again)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The window does not grow until this offset is acknowledged.
    FastRecovery(u64),
    /// Everything before this offset counts as lost; the window grows from one segment.
    Timeout(u64),
}

/// One end of a connection; see the module.
#[derive(Debug)]
pub struct Endpoint {
    setup: TcpSetup,
    // As a sender.
    under_way: VecDeque<Sent>,
    acknowledged: u64,
    next: u64,
    written: u64,
    room_until: u64,
    congestion_window: f64,
    threshold: f64,
    phase: Phase,
    /// Mean and deviation.
    round_trip_ns: Option<(f64, f64)>,
    shortest_round_trip_ns: u64,
    backed_off: u32,
    timeout_at: Option<u64>,
    probe: bool,
    /// Segments marked as lost that wait for retransmission.
    to_repeat: usize,
    under_way_bytes: u64,
    // As a receiver.
    received: u64,
    read: u64,
    ranges: Vec<(u64, u64)>,
    told: u64,
    told_room: u64,
    /// When a delayed acknowledgement is sent; then whether one is due now.
    ack_at: Option<u64>,
    ack_is_due: bool,
    timeouts: u64,
    repeats: u64,
    out_of_order: u64,
}

impl Endpoint {
    /// An end of an established connection.
    pub fn new(setup: TcpSetup) -> Endpoint {
        Endpoint {
            setup,
            under_way: VecDeque::new(),
            acknowledged: 0,
            next: 0,
            written: 0,
            room_until: setup.window_bytes,
            congestion_window: f64::from(setup.first_window) * f64::from(setup.mss_bytes),
            threshold: f64::INFINITY,
            phase: Phase::Open,
            round_trip_ns: None,
            shortest_round_trip_ns: u64::MAX,
            backed_off: 0,
            timeout_at: None,
            probe: false,
            to_repeat: 0,
            under_way_bytes: 0,
            received: 0,
            read: 0,
            ranges: Vec::new(),
            told: 0,
            told_room: setup.window_bytes,
            ack_at: None,
            ack_is_due: false,
            timeouts: 0,
            repeats: 0,
            out_of_order: 0,
        }
    }

    /// The program writes `bytes` more.
    pub fn write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// The program reads `bytes` of the bytes delivered.
    pub fn read(&mut self, bytes: u64) {
        self.read = (self.read + bytes).min(self.received);
        let room = self.own_room();
        // A window that was nearly closed is reopened by a segment of its own.
        let mss = u64::from(self.setup.mss_bytes);
        if self.told_room.saturating_sub(self.received) < mss && room - self.received >= 2 * mss {
            self.ack_is_due = true;
        }
    }

    /// Bytes written and not yet acknowledged.
    pub fn backlog(&self) -> u64 {
        self.written - self.acknowledged
    }

    /// Segments sent and not acknowledged in order.
    pub fn unacknowledged_segments(&self) -> usize {
        self.under_way.len()
    }

    /// The smoothed and the shortest round trip, ns; `None` before the first was measured.
    pub fn round_trips_ns(&self) -> Option<(u64, u64)> {
        self.round_trip_ns.map(|(mean, _)| (mean as u64, self.shortest_round_trip_ns))
    }

    /// Most bytes of a segment.
    pub fn mss_bytes(&self) -> u32 {
        self.setup.mss_bytes
    }

    /// Bytes that the other end has acknowledged.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged
    }

    /// Timeouts, and segments retransmitted.
    pub fn losses(&self) -> (u64, u64) {
        (self.timeouts, self.repeats)
    }

    /// Segments that arrived before one sent earlier.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// The congestion window, bytes.
    pub fn window(&self) -> u64 {
        self.congestion_window as u64
    }

    /// The time at which [`Endpoint::on_timer`] is due.
    pub fn next_ns(&self) -> Option<u64> {
        match (self.timeout_at, self.ack_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Handles the timers that are due at `now_ns`.
    pub fn on_timer(&mut self, now_ns: u64) {
        if self.ack_at.take_if(|at| *at <= now_ns).is_some() {
            self.ack_is_due = true;
        }
        if self.timeout_at.is_none_or(|at| at > now_ns) {
            return;
        }
        self.timeout_at = None;
        self.backed_off = (self.backed_off + 1).min(16);
        if self.under_way.is_empty() {
            self.probe = self.next < self.written;
            return;
        }
        self.timeouts += 1;
        let mss = f64::from(self.setup.mss_bytes);
        if !matches!(self.phase, Phase::Timeout(_)) {
            self.threshold = (self.under_way_bytes as f64 / 2.0).max(2.0 * mss);
        }
        self.congestion_window = mss;
        self.phase = Phase::Timeout(self.next);
        for sent in self.under_way.iter_mut().filter(|sent| !sent.has_come) {
            (sent.lost, sent.again) = (true, false);
        }
        self.count_under_way();
    }

    /// A segment from the other end has arrived.
    pub fn on_segment(&mut self, now_ns: u64, segment: &Segment) -> Progress {
        self.room_until = self.room_until.max(segment.room_until);
        let acknowledged = self.on_acknowledgement(now_ns, segment);
        let delivered = if segment.bytes > 0 { self.on_data(now_ns, segment) } else { 0 };
        Progress { delivered, acknowledged }
    }

    /// The next segment to send at `now_ns`, if there is one.
    pub fn poll(&mut self, now_ns: u64) -> Option<Segment> {
        let range = self.repeat(now_ns).or_else(|| self.fresh(now_ns));
        let (from, bytes) = match range {
            Some(range) => range,
            None if self.ack_is_due => (self.next, 0),
            None => return None,
        };
        if bytes > 0 && self.timeout_at.is_none() {
            self.timeout_at = Some(now_ns + self.timeout_ns());
        }
        (self.ack_at, self.ack_is_due) = (None, false);
        (self.told, self.told_room) = (self.received, self.own_room());
        let mut blocks = [(0, 0); BLOCKS];
        for (block, range) in blocks.iter_mut().zip(&self.ranges) {
            *block = *range;
        }
        Some(Segment { from, bytes, acknowledges: self.received, blocks, room_until: self.told_room })
    }

    fn own_room(&self) -> u64 {
        self.told_room.max(self.read + self.setup.window_bytes)
    }

    fn timeout_ns(&self) -> u64 {
        let base = match self.round_trip_ns {
            Some((mean, deviation)) => ((mean + 4.0 * deviation) as u64).max(self.setup.rto_min_ns),
            None => RTO_FIRST_NS,
        };
        (base << self.backed_off.min(6)).min(RTO_MAX_NS)
    }

    /// A lost segment to retransmit.
    fn repeat(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.to_repeat == 0 || self.under_way_bytes as f64 >= self.congestion_window {
            return None;
        }
        let sent = self.under_way.iter_mut().find(|sent| sent.lost && !sent.again && !sent.has_come)?;
        (sent.again, sent.at_ns) = (true, now_ns);
        let range = (sent.from, sent.bytes);
        self.to_repeat -= 1;
        self.repeats += 1;
        self.under_way_bytes += u64::from(range.1);
        Some(range)
    }

    /// Bytes to send for the first time.
    fn fresh(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        let waiting = self.written - self.next;
        if waiting == 0 || self.under_way.len() >= SEGMENTS_MAX {
            return None;
        }
        let most = u64::from(self.setup.mss_bytes);
        let room = self.room_until.saturating_sub(self.next);
        let mut bytes = waiting.min(most).min(room);
        let cut_short = bytes < waiting.min(most);
        if std::mem::take(&mut self.probe) && bytes == 0 {
            bytes = 1;
        } else if bytes == 0 || cut_short && !self.under_way.is_empty() {
            if self.under_way.is_empty() && self.timeout_at.is_none() {
                // No acknowledgement in flight can open the window: probe it, in case the update of the window was lost.
                self.timeout_at = Some(now_ns + self.timeout_ns());
            }
            return None;
        }
        let full = self.under_way_bytes > 0 && (self.under_way_bytes + bytes) as f64 > self.congestion_window;
        if full || self.to_repeat > 0 {
            return None;
        }
        let sent = Sent {
            from: self.next,
            bytes: bytes as u32,
            at_ns: now_ns,
            has_come: false,
            lost: false,
            again: false,
        };
        self.under_way.push_back(sent);
        self.under_way_bytes += bytes;
        self.next += bytes;
        Some((sent.from, sent.bytes))
    }

    fn on_acknowledgement(&mut self, now_ns: u64, segment: &Segment) -> u64 {
        let upto = segment.acknowledges.min(self.next);
        let news = upto.saturating_sub(self.acknowledged);
        if self.under_way.is_empty() {
            return 0;
        }
        let mut measured = None;
        while let Some(first) = self.under_way.front().filter(|first| first.end() <= upto) {
            // A segment sent twice gives no measurement (Karn).
            if !first.again && !first.has_come {
                measured = Some(now_ns - first.at_ns);
            }
            self.forget_first();
        }
        // A one-byte probe, or a segment cut by the window, may be acknowledged in part.
        if let Some(first) = self.under_way.front_mut().filter(|first| first.from < upto) {
            first.bytes = (first.end() - upto) as u32;
            first.from = upto;
            self.count_under_way();
        }
        self.acknowledged += news;
        let marked = self.mark_blocks(&segment.blocks);
        if let Some(round_trip) = measured {
            self.shortest_round_trip_ns = self.shortest_round_trip_ns.min(round_trip);
            self.measure(round_trip as f64);
        }
        if news > 0 {
            self.backed_off = 0;
            self.grow(news);
            self.timeout_at = (!self.under_way.is_empty()).then(|| now_ns + self.timeout_ns());
        }
        if marked {
            self.find_losses();
        }
        news
    }

    fn forget_first(&mut self) {
        let Some(first) = self.under_way.pop_front() else { return };
        if first.is_under_way() {
            self.under_way_bytes -= u64::from(first.bytes);
        }
        self.to_repeat -= usize::from(first.lost && !first.again && !first.has_come);
    }

    /// Marks segments that have arrived beyond a gap. Returns whether `blocks` has any range.
    fn mark_blocks(&mut self, blocks: &[(u64, u64); BLOCKS]) -> bool {
        let mut any = false;
        for &(from, to) in blocks.iter().filter(|(from, to)| from < to) {
            any = true;
            let first = self.under_way.partition_point(|sent| sent.from < from);
            for sent in self.under_way.iter_mut().skip(first).take_while(|sent| sent.end() <= to) {
                if sent.has_come {
                    continue;
                }
                if sent.is_under_way() {
                    self.under_way_bytes -= u64::from(sent.bytes);
                } else {
                    self.to_repeat -= 1;
                }
                sent.has_come = true;
            }
        }
        any
    }

    /// Marks segments as lost that enough later ones have overtaken.
    fn find_losses(&mut self) {
        let mut behind = 0;
        let mut found = false;
        for sent in self.under_way.iter_mut().rev() {
            if sent.has_come {
                behind += 1;
            } else if behind >= DUPLICATES && !sent.lost {
                sent.lost = true;
                found = true;
                self.under_way_bytes -= u64::from(sent.bytes);
                self.to_repeat += 1;
            }
        }
        if found && self.phase == Phase::Open {
            let flight = (self.next - self.acknowledged) as f64;
            self.threshold = (flight / 2.0).max(2.0 * f64::from(self.setup.mss_bytes));
            self.congestion_window = self.threshold;
            self.phase = Phase::FastRecovery(self.next);
        }
    }

    fn grow(&mut self, news: u64) {
        match self.phase {
            Phase::FastRecovery(until) if self.acknowledged < until => return,
            Phase::Timeout(until) if self.acknowledged < until => {}
            _ => self.phase = Phase::Open,
        }
        let mss = f64::from(self.setup.mss_bytes);
        self.congestion_window += match self.congestion_window < self.threshold {
            true => news as f64,
            false => mss * news as f64 / self.congestion_window,
        };
        // A window much larger than the other end accepts has no use, and would come out as one burst.
        self.congestion_window = self.congestion_window.min(self.setup.window_bytes as f64 * 2.0);
    }

    fn measure(&mut self, round_trip: f64) {
        self.round_trip_ns = Some(match self.round_trip_ns {
            None => (round_trip, round_trip / 2.0),
            Some((mean, deviation)) => {
                (0.875 * mean + 0.125 * round_trip, 0.75 * deviation + 0.25 * (mean - round_trip).abs())
            }
        });
    }

    fn count_under_way(&mut self) {
        let under_way = self.under_way.iter().filter(|sent| sent.is_under_way());
        self.under_way_bytes = under_way.map(|sent| u64::from(sent.bytes)).sum();
        self.to_repeat =
            self.under_way.iter().filter(|sent| sent.lost && !sent.again && !sent.has_come).count();
    }

    /// Handles data; returns how many bytes are now in order.
    fn on_data(&mut self, now_ns: u64, segment: &Segment) -> u64 {
        let (from, to) = (segment.from.max(self.received), segment.from + u64::from(segment.bytes));
        let before = self.received;
        let in_order = from == self.received && to > self.received && self.ranges.is_empty();
        if to <= self.received || to > self.own_room() {
            // A duplicate, or no room: repeat the acknowledgement.
            self.ack_is_due = true;
            return 0;
        }
        self.out_of_order += u64::from(from > self.received);
        self.insert(from, to);
        while let Some(&(_, to)) = self.ranges.first().filter(|(from, _)| *from <= self.received) {
            self.received = to;
            self.ranges.remove(0);
        }
        let enough = self.received - self.told > u64::from(self.setup.mss_bytes);
        if in_order && !enough {
            self.ack_at.get_or_insert(now_ns + self.setup.ack_delay_ns);
        } else {
            self.ack_is_due = true;
        }
        self.received - before
    }

    fn insert(&mut self, from: u64, to: u64) {
        let place = self.ranges.partition_point(|range| range.1 < from);
        let (mut from, mut to) = (from, to);
        while let Some(&range) = self.ranges.get(place).filter(|range| range.0 <= to) {
            (from, to) = (from.min(range.0), to.max(range.1));
            self.ranges.remove(place);
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(place, (from, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SETUP: TcpSetup = TcpSetup::of_mtu(1500);
    const MSS: u64 = 1448;
    const ONE_WAY: u64 = 1_000_000;

    /// Two ends and a wire with a delay; `lost` decides by the number of a data segment whether it is lost.
    struct Wire {
        ends: [Endpoint; 2],
        on_it: VecDeque<(u64, usize, Segment)>,
        now: u64,
        data_segments: u64,
        acknowledgements: u64,
        delivered: u64,
    }

    impl Wire {
        fn new(setup: TcpSetup) -> Wire {
            let ends = [Endpoint::new(setup), Endpoint::new(setup)];
            Wire { ends, on_it: VecDeque::new(), now: 0, data_segments: 0, acknowledgements: 0, delivered: 0 }
        }

        /// Runs until nothing is left to happen.
        fn run(&mut self, reads: bool, lost: impl Fn(u64) -> bool) {
            for _ in 0..1_000_000 {
                for side in 0..2 {
                    while let Some(segment) = self.ends[side].poll(self.now) {
                        if segment.bytes > 0 {
                            self.data_segments += 1;
                        } else {
                            self.acknowledgements += 1;
                        }
                        if segment.bytes == 0 || !lost(self.data_segments) {
                            self.on_it.push_back((self.now + ONE_WAY, 1 - side, segment));
                        }
                    }
                }
                let timer = self.ends.iter().filter_map(Endpoint::next_ns).min();
                let arrives = self.on_it.front().map(|(at, ..)| *at);
                let Some(next) = timer.into_iter().chain(arrives).min() else { return };
                self.now = next.max(self.now);
                if arrives == Some(next) {
                    let (_, side, segment) = self.on_it.pop_front().unwrap();
                    let progress = self.ends[side].on_segment(self.now, &segment);
                    self.delivered += progress.delivered;
                    if reads {
                        self.ends[side].read(progress.delivered);
                    }
                }
                self.ends.iter_mut().for_each(|end| end.on_timer(next));
            }
            panic!("it never ends");
        }
    }

    #[test]
    fn everything_arrives_once_and_is_acknowledged_for_every_two_segments() {
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(1000 * MSS);
        wire.run(true, |_| false);
        assert_eq!((wire.delivered, wire.data_segments, wire.ends[0].backlog()), (1000 * MSS, 1000, 0));
        assert_eq!(wire.acknowledgements, 500);
        assert_eq!(wire.ends[0].losses(), (0, 0));
    }

    #[test]
    fn slow_start_doubles_and_the_receivers_window_is_kept() {
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(100 * MSS);
        let mut first = 0;
        while wire.ends[0].poll(0).is_some() {
            first += 1;
        }
        assert_eq!(first, 10, "RFC 6928");
        let mut endpoint = Endpoint::new(TcpSetup { first_window: 1000, ..SETUP });
        endpoint.write(1 << 20);
        let mut bytes = 0;
        while let Some(segment) = endpoint.poll(0) {
            bytes += u64::from(segment.bytes);
        }
        assert!(bytes <= SETUP.window_bytes && bytes + MSS > SETUP.window_bytes, "{bytes}");
    }

    #[test]
    fn a_segment_that_others_overtake_is_sent_again_without_a_timeout() {
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(100 * MSS);
        wire.run(true, |number| number == 20);
        assert_eq!(wire.delivered, 100 * MSS);
        assert_eq!(wire.ends[0].losses(), (0, 1));
        assert!(wire.now < 100_000_000, "no timeout: {}", wire.now);
        assert!(wire.ends[0].threshold < f64::INFINITY, "the window was halved");
    }

    #[test]
    fn the_last_segment_costs_a_timeout() {
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(20 * MSS);
        wire.run(true, |number| number == 20);
        assert_eq!((wire.delivered, wire.ends[0].losses()), (20 * MSS, (1, 1)));
        assert!(wire.now >= SETUP.rto_min_ns, "{}", wire.now);
        assert_eq!(wire.ends[0].threshold, 2.0 * MSS as f64);
    }

    #[test]
    fn a_window_with_two_losses_is_halved_once() {
        let halved = |lost: fn(u64) -> bool| {
            let mut wire = Wire::new(TcpSetup { window_bytes: 1 << 20, ..SETUP });
            wire.ends[0].write(200 * MSS);
            wire.run(true, lost);
            assert_eq!((wire.delivered, wire.ends[0].losses().0), (200 * MSS, 0));
            wire.ends[0].threshold
        };
        assert_eq!(halved(|number| number == 50), halved(|number| number == 50 || number == 53));
    }

    #[test]
    fn a_lone_segment_is_acknowledged_after_the_delay() {
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(100);
        wire.run(true, |_| false);
        assert_eq!((wire.acknowledgements, wire.now), (1, SETUP.ack_delay_ns + 2 * ONE_WAY));
        // A response carries the acknowledgement.
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(100);
        let request = wire.ends[0].poll(0).unwrap();
        wire.ends[1].on_segment(1, &request);
        wire.ends[1].write(50);
        let answer = wire.ends[1].poll(2).unwrap();
        assert_eq!(
            (answer.bytes, answer.acknowledges, wire.ends[1].next_ns().unwrap() > 100_000_000),
            (50, 100, true)
        );
    }

    #[test]
    fn a_closed_window_is_probed_and_opens_again() {
        let mut wire = Wire::new(SETUP);
        wire.ends[0].write(3 * SETUP.window_bytes);
        let mut turns = 0;
        // The program reads late: the window closes, probes are sent, and reading reopens it.
        while wire.delivered < 3 * SETUP.window_bytes {
            for _ in 0..2000 {
                for side in 0..2 {
                    while let Some(segment) = wire.ends[side].poll(wire.now) {
                        wire.on_it.push_back((wire.now + ONE_WAY, 1 - side, segment));
                    }
                }
                let timer = wire.ends.iter().filter_map(Endpoint::next_ns).min();
                let next = wire.on_it.front().map(|(at, ..)| *at).into_iter().chain(timer).min();
                let Some(next) = next.filter(|next| *next < wire.now.max(1) + 5_000_000_000) else { break };
                wire.now = next.max(wire.now);
                while wire.on_it.front().is_some_and(|(at, ..)| *at <= wire.now) {
                    let (_, side, segment) = wire.on_it.pop_front().unwrap();
                    wire.delivered += wire.ends[side].on_segment(wire.now, &segment).delivered;
                }
                let now = wire.now;
                wire.ends.iter_mut().for_each(|end| end.on_timer(now));
                if wire.now > (turns + 1) * 1_000_000_000 {
                    break;
                }
            }
            assert!(wire.delivered <= (turns + 1) * SETUP.window_bytes + turns, "the window holds");
            let delivered = wire.delivered;
            wire.ends[1].read(delivered);
            turns += 1;
            assert!(turns < 100, "{delivered}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_lost_arrives_in_the_end(seed in any::<u64>(), percent in 0..40u64, segments in 1..200u64, odd in 0..1448u64) {
            let mut wire = Wire::new(SETUP);
            wire.ends[0].write(segments * MSS + odd);
            wire.run(true, |number| (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xff < percent * 256 / 100);
            prop_assert_eq!(wire.delivered, segments * MSS + odd);
            prop_assert_eq!((wire.ends[0].backlog(), wire.ends[0].under_way_bytes, wire.ends[0].to_repeat), (0, 0, 0));
            prop_assert!(wire.ends[1].ranges.is_empty());
        }
    }
}
