//! Small PDUs leave together: whether the end of what is queued waits for more, so that it leaves in a full segment.
//!
//! On a slow path each segment costs time, however short it is: on 802.11b a frame of 100 bytes takes half as long as one of 1500. An
//! answer of 2 KiB is one full segment and a part of one, and the answers of several commands are ready one after the other, as the
//! commands arrive. So each would end in a part of a segment, although those before it are still waiting for the path. Instead, that part
//! waits here, up to [`HELD_MAX`], while it would only wait elsewhere.
//!
//! TCP knows how much waits on the way: of the round-trip time, what exceeds the shortest one is spent in queues, and so is that share of
//! the segments in flight. While more than [`AHEAD_SEGMENTS`] of them wait, holding the end of the queue delays nothing:
//! - The path has work for the time in which the owner asks again ([`ASKS_EVERY`]).
//! - It never waits for a delayed acknowledgement: a receiver acknowledges every second segment at once (RFC 9293 3.8.6.3).
//! - A lone answer finds nothing in flight and leaves at once, and so does one on a path that is long but not full.
//!
//! Fast paths pay one system call per [`LOOKS_EVERY`] for this. What it leaves out: Nagle's algorithm in the kernel (RFC 896) does
//! similar things without knowledge of the path, and lets short answers wait for delayed acknowledgements.

use std::time::Duration;

use crate::driver::TcpInfo;

/// Paths whose shortest round trip is shorter are fast: there a segment costs microseconds.
const SLOW_RTT: Duration = Duration::from_micros(200);
/// How often a fast path is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How often it is asked whether what is held back still waits for a reason.
const ASKS_EVERY: Duration = Duration::from_millis(1);
/// The longest that the same bytes are held back. A path that takes longer for two segments does not get faster by packing.
const HELD_MAX: Duration = Duration::from_millis(20);
/// This many segments may wait on the way without a reason to hold anything back: those that a receiver may leave unacknowledged for a
/// while.
const AHEAD_SEGMENTS: f64 = 2.0;

/// What is known of the path of one connection.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// When it is looked at again; zero at first.
    looks_at: Duration,
    slow: bool,
    /// Since when bytes have been held back.
    held_since: Option<Duration>,
}

impl Packing {
    /// How many of the `queued` bytes are sent now; the others wait. `ask` asks TCP.
    pub fn ready_bytes(
        &mut self,
        now: Duration,
        queued: usize,
        ask: impl FnOnce() -> Option<TcpInfo>,
    ) -> usize {
        if !self.slow && now < self.looks_at {
            return queued;
        }
        let info = ask();
        self.looks_at = now + LOOKS_EVERY;
        self.slow = info.is_some_and(|info| info.min_rtt >= SLOW_RTT);
        let held_long = self.held_since.is_some_and(|since| now >= since + HELD_MAX);
        let rest = match info {
            Some(info) if self.slow && !held_long && waiting_segments(&info) > AHEAD_SEGMENTS => {
                queued % (info.send_mss_bytes as usize).max(1)
            }
            _ => 0,
        };
        self.held_since = match self.held_since {
            // What is held now is the end of other bytes than before.
            Some(_) if rest < queued => None,
            since => since,
        };
        if rest > 0 {
            self.held_since.get_or_insert(now);
        }
        queued - rest
    }

    /// When to ask again, if something is held back.
    pub fn asks_at(&self, now: Duration) -> Option<Duration> {
        self.held_since.map(|_| now + ASKS_EVERY)
    }
}

/// The segments in flight that wait in a queue on the way.
fn waiting_segments(info: &TcpInfo) -> f64 {
    let queueing = info.rtt.saturating_sub(info.min_rtt).as_secs_f64();
    f64::from(info.unacked_segments) * queueing / info.rtt.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1448;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A path with this many segments in flight, and the smoothed and the shortest round trip.
    fn path(unacked_segments: u32, rtt: Duration, min_rtt: Duration) -> Option<TcpInfo> {
        Some(TcpInfo { rtt, min_rtt, unacked_segments, send_mss_bytes: MSS as u32, ..TcpInfo::default() })
    }

    /// 802.11b with `unacked_segments` in flight.
    fn full(unacked_segments: u32) -> Option<TcpInfo> {
        path(unacked_segments, at(40), at(4))
    }

    #[test]
    fn the_end_waits_for_a_full_segment_while_others_wait_on_the_way() {
        let mut packing = Packing::default();
        assert_eq!(packing.ready_bytes(at(0), 2148, || full(12)), MSS);
        assert_eq!(packing.asks_at(at(0)), Some(at(1)));
        // The next answer fills it.
        assert_eq!(packing.ready_bytes(at(1), 700 + 2148, || full(12)), MSS);
        assert_eq!(packing.ready_bytes(at(2), 1400, || full(12)), 0);
        // The path is about to run empty.
        assert_eq!(packing.ready_bytes(at(3), 1400, || full(2)), 1400);
        assert_eq!(packing.asks_at(at(3)), None);
    }

    #[test]
    fn what_would_not_wait_elsewhere_does_not_wait_here() {
        let mut packing = Packing::default();
        for info in [full(0), full(1), full(2), path(12, at(20), at(18)), path(12, at(4), at(4)), None] {
            assert_eq!(packing.ready_bytes(at(0), 700, || info), 700, "{info:?}");
            assert_eq!(packing.asks_at(at(0)), None);
        }
        // Whole segments have nothing to wait for.
        assert_eq!(packing.ready_bytes(at(200), 3 * MSS, || full(12)), 3 * MSS);
        assert_eq!(packing.asks_at(at(200)), None);
    }

    #[test]
    fn the_same_bytes_wait_no_longer_than_the_limit() {
        let mut packing = Packing::default();
        let mut now = at(0);
        while packing.ready_bytes(now, 700, || full(12)) == 0 {
            now = packing.asks_at(now).unwrap();
        }
        assert_eq!(now, HELD_MAX);
        // Others begin anew.
        assert_eq!(packing.ready_bytes(now, 700, || full(12)), 0);
        assert_eq!(packing.ready_bytes(now + at(19), MSS + 700, || full(12)), MSS);
        assert_eq!(packing.ready_bytes(now + at(30), 700, || full(12)), 0);
    }

    #[test]
    fn a_fast_path_is_rarely_looked_at() {
        let (mut packing, mut looks) = (Packing::default(), 0);
        let fast = path(60, Duration::from_micros(900), Duration::from_micros(30));
        for ms in 0..1000 {
            let ready = packing.ready_bytes(at(ms), 4196, || {
                looks += 1;
                fast
            });
            assert_eq!(ready, 4196);
        }
        assert_eq!(looks, 10);
        // It has become slow.
        assert_eq!(packing.ready_bytes(at(1000), 700, || full(12)), 0);
        assert_eq!(packing.ready_bytes(at(1001), 700, || full(12)), 0);
    }
}
