//! Small PDUs leave together: whether the end of what is queued waits for more, so that it leaves in a full segment.
//!
//! On a slow path each segment costs time, however short it is: on 802.11b a frame of 100 bytes takes half as long as one of 1500. An
//! answer of 2 KiB is one full segment and a part of one, and the answers of several commands are ready one after the other, as the
//! commands arrive. So each would end in a part of a segment, although those before it are still waiting for the path. Instead, that part
//! waits here, up to [`HELD_MAX`], while it would only wait elsewhere.
//!
//! TCP knows how much waits on the way: of the round-trip time, what exceeds the shortest one is spent in queues, and so is that share of
//! the bytes in flight. While more than [`AHEAD_SEGMENTS`] full segments of them wait, holding the end of the queue delays nothing:
//! - The path has work for the time in which the owner asks again ([`ASKS_EVERY`]): segments spend more than [`QUEUE_MIN`] in queues.
//! - It never waits for a delayed acknowledgement: a receiver acknowledges every second full segment at once (RFC 9293 3.8.6.3). It does
//!   not do that for short ones, which is why bytes count and not segments.
//! - A lone answer finds nothing in flight and leaves at once, and so does one on a path that is long but not full.
//!
//! Commands are too short for the number of segments. Their sender knows something else: a PDU that has begun to arrive and is not complete. The rest of it
//! is on its way, and with it perhaps the reason for the next command (`Link::flush_behind_answers`).
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
/// This many full segments may wait on the way without a reason to hold anything back: those that a receiver may leave unacknowledged
/// for a while.
const AHEAD_SEGMENTS: f64 = 2.0;

/// Nothing is held back where segments spend less time in queues: the path would run empty until the owner asks again. Twice that time,
/// because an acknowledgement tells of the queue as it was.
const QUEUE_MIN: Duration = Duration::from_millis(2);

/// What is known of the path of one connection.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// When it is looked at again; zero at first.
    looks_at: Duration,
    slow: bool,
    /// Since when bytes have been held back.
    held_since: Option<Duration>,
}

/// What a connection has sent and received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes queued for sending.
    pub queued_bytes: usize,
    /// Bytes that the kernel has taken since the beginning.
    pub sent_bytes: u64,
    /// Something that is on its way to us will probably cause more to be queued.
    pub more_is_coming: bool,
}

impl Packing {
    /// How many of the queued bytes are sent now; the others wait. `ask` asks TCP.
    pub(crate) fn ready_bytes(
        &mut self,
        now: Duration,
        progress: Progress,
        ask: impl FnOnce() -> Option<TcpInfo>,
    ) -> usize {
        let queued = progress.queued_bytes;
        if !self.slow && now < self.looks_at {
            return queued;
        }
        let info = ask();
        self.looks_at = now + LOOKS_EVERY;
        self.slow = info.is_some_and(|info| info.min_rtt >= SLOW_RTT);
        let held_long = self.held_since.is_some_and(|since| now >= since + HELD_MAX);
        let rest = match info {
            Some(info) if self.slow && !held_long && waits(&info, progress) => {
                queued % (info.send_mss_bytes as usize).max(1)
            }
            _ => 0,
        };
        if rest < queued {
            // What is held now is the end of other bytes than before.
            self.held_since = None;
        }
        if rest > 0 {
            self.held_since.get_or_insert(now);
        }
        queued - rest
    }

    /// When to ask again, if something is held back.
    pub(crate) fn asks_at(&self, now: Duration) -> Option<Duration> {
        self.held_since.map(|_| now + ASKS_EVERY)
    }
}

/// Whether the end of what is queued waits.
fn waits(info: &TcpInfo, progress: Progress) -> bool {
    let queued = info.rtt.saturating_sub(info.min_rtt);
    let queueing = queued.as_secs_f64() / info.rtt.as_secs_f64().max(1e-9);
    // Without any acknowledged byte, the kernel does not count them.
    let in_flight =
        if info.acked_bytes > 0 { progress.sent_bytes.saturating_sub(info.acked_bytes) } else { 0 };
    let ahead = in_flight as f64 * queueing > AHEAD_SEGMENTS * f64::from(info.send_mss_bytes);
    queued > QUEUE_MIN && (progress.more_is_coming || ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1448;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const SENT: u64 = 1 << 20;

    fn queued(queued_bytes: usize) -> Progress {
        Progress { queued_bytes, sent_bytes: SENT, more_is_coming: false }
    }

    /// A path with this many full segments in flight, and the smoothed and the shortest round trip.
    fn path(segments: u64, rtt: Duration, min_rtt: Duration) -> Option<TcpInfo> {
        let acked_bytes = SENT - segments * MSS as u64;
        Some(TcpInfo { rtt, min_rtt, acked_bytes, send_mss_bytes: MSS as u32, ..TcpInfo::default() })
    }

    /// 802.11b with this many full segments in flight.
    fn full(segments: u64) -> Option<TcpInfo> {
        path(segments, at(40), at(4))
    }

    #[test]
    fn the_end_waits_for_a_full_segment_while_others_wait_on_the_way() {
        let mut packing = Packing::default();
        assert_eq!(packing.ready_bytes(at(0), queued(2148), || full(12)), MSS);
        assert_eq!(packing.asks_at(at(0)), Some(at(1)));
        // The next answer fills it.
        assert_eq!(packing.ready_bytes(at(1), queued(700 + 2148), || full(12)), MSS);
        assert_eq!(packing.ready_bytes(at(2), queued(1400), || full(12)), 0);
        // The path is about to run empty.
        assert_eq!(packing.ready_bytes(at(3), queued(1400), || full(2)), 1400);
        assert_eq!(packing.asks_at(at(3)), None);
    }

    #[test]
    fn what_would_not_wait_elsewhere_does_not_wait_here() {
        let mut packing = Packing::default();
        for info in [full(0), full(1), full(2), path(12, at(20), at(18)), path(12, at(4), at(4)), None] {
            assert_eq!(packing.ready_bytes(at(0), queued(700), || info), 700, "{info:?}");
            assert_eq!(packing.asks_at(at(0)), None);
        }
        // 802.11g with few commands: it would run empty before the next look, whatever is about to come.
        let brief = path(12, at(6), at(4));
        let more = Progress { more_is_coming: true, ..queued(700) };
        assert_eq!(packing.ready_bytes(at(100), more, || brief), 700);
        // Whole segments have nothing to wait for.
        assert_eq!(packing.ready_bytes(at(200), queued(3 * MSS), || full(12)), 3 * MSS);
        assert_eq!(packing.asks_at(at(200)), None);
    }

    /// Acknowledgements of short segments are delayed: the round trip seems long, and many are in flight, but few bytes.
    #[test]
    fn short_segments_that_are_not_acknowledged_hold_nothing_back() {
        let mut packing = Packing::default();
        let info = full(0).map(|info| TcpInfo { acked_bytes: SENT - 20 * 52, unacked_segments: 20, ..info });
        assert_eq!(packing.ready_bytes(at(0), queued(52), || info), 52);
        // Unless something else that arrives is about to cause more of them.
        let more = Progress { more_is_coming: true, ..queued(52) };
        assert_eq!(packing.ready_bytes(at(0), more, || info), 0);
        assert_eq!(packing.ready_bytes(at(20), more, || info), 52, "not for ever");
        let fast = path(0, at(40), Duration::from_micros(100));
        assert_eq!(Packing::default().ready_bytes(at(0), more, || fast), 52);
    }

    #[test]
    fn the_same_bytes_wait_no_longer_than_the_limit() {
        let mut packing = Packing::default();
        let mut now = at(0);
        while packing.ready_bytes(now, queued(700), || full(12)) == 0 {
            now = packing.asks_at(now).unwrap();
        }
        assert_eq!(now, HELD_MAX);
        // Others begin anew.
        assert_eq!(packing.ready_bytes(now, queued(700), || full(12)), 0);
        assert_eq!(packing.ready_bytes(now + at(19), queued(MSS + 700), || full(12)), MSS);
        assert_eq!(packing.ready_bytes(now + at(30), queued(700), || full(12)), 0);
    }

    #[test]
    fn a_fast_path_is_rarely_looked_at() {
        let (mut packing, mut looks) = (Packing::default(), 0);
        let fast = path(60, Duration::from_micros(900), Duration::from_micros(30));
        for ms in 0..1000 {
            let ready = packing.ready_bytes(at(ms), queued(4196), || {
                looks += 1;
                fast
            });
            assert_eq!(ready, 4196);
        }
        assert_eq!(looks, 10);
        // It has become slow.
        assert_eq!(packing.ready_bytes(at(1000), queued(700), || full(12)), 0);
        assert_eq!(packing.ready_bytes(at(1001), queued(700), || full(12)), 0);
    }
}
