//! `--rate`: a token bucket that caps what a copy moves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest sleep after which a copy looks whether it has failed meanwhile.
const MAX_NAP: Duration = Duration::from_millis(100);

/// A bucket that time fills. The caller brings the clock, so a test has its own.
#[derive(Debug)]
struct Bucket {
    bytes_per_s: u64,
    /// Most that can be saved up, bytes.
    burst_bytes: u64,
    /// When the bucket is full again; before it is full, it lacks what flows in until then.
    full_at: Duration,
}

impl Bucket {
    fn new(bytes_per_s: u64, burst_bytes: u64) -> Self {
        Self { bytes_per_s, burst_bytes, full_at: Duration::ZERO }
    }

    /// Takes `bytes` at `now`, which may leave the bucket in debt; says how long to wait before they are moved.
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        self.full_at = self.full_at.max(now) + self.time_of(bytes);
        (self.full_at - now).saturating_sub(self.time_of(self.burst_bytes))
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 1024))
    }
}

/// The bucket with the clock of the system, shared by all jobs.
#[derive(Debug)]
pub struct Pace {
    bucket: Mutex<Bucket>,
    began: Instant,
}

impl Pace {
    pub fn new(bytes_per_s: u64, burst_bytes: u64) -> Self {
        Self { bucket: Mutex::new(Bucket::new(bytes_per_s, burst_bytes)), began: Instant::now() }
    }

    /// Waits until `bytes` may be moved, or until `stop`.
    pub fn wait(&self, bytes: u64, stop: &AtomicBool) {
        let now = self.began.elapsed();
        let until = now + self.bucket.lock().take(now, bytes);
        while !stop.load(Ordering::Relaxed) {
            match until.saturating_sub(self.began.elapsed()) {
                Duration::ZERO => return,
                left => std::thread::sleep(left.min(MAX_NAP)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_burst_is_free_and_what_follows_waits_its_time() {
        let mut bucket = Bucket::new(MIB, MIB);
        let second = Duration::from_secs(1);
        assert_eq!(bucket.take(Duration::ZERO, MIB), Duration::ZERO);
        assert_eq!(bucket.take(Duration::ZERO, MIB), second);
        assert_eq!(bucket.take(Duration::ZERO, 2 * MIB), 3 * second);
        assert_eq!(bucket.take(2 * second, MIB), 2 * second, "two of four seconds have passed");
        // An hour of rest saves up one burst, no more.
        assert_eq!(bucket.take(3600 * second, MIB), Duration::ZERO);
        assert_eq!(bucket.take(3600 * second, MIB / 2), second / 2);
    }

    #[test]
    fn a_copy_never_overtakes_its_rate() {
        let mut bucket = Bucket::new(50_000_000, MIB);
        let (mut now, mut moved) = (Duration::ZERO, 0);
        for n in 0..1000u64 {
            let bytes = 1 + n * 7919 % MIB;
            now += bucket.take(now, bytes);
            moved += bytes;
            let allowed = 50_000_000.0f64.mul_add(now.as_secs_f64(), MIB as f64);
            assert!(moved as f64 <= allowed + 1.0, "{moved} bytes after {now:?}");
        }
        assert!(moved as f64 >= 50_000_000.0 * now.as_secs_f64(), "and is no slower");
    }

    #[test]
    fn the_slowest_rate_does_not_overflow() {
        let mut bucket = Bucket::new(1, MIB);
        for _ in 0..10 {
            bucket.take(Duration::ZERO, MIB);
        }
        assert!(bucket.take(Duration::ZERO, MIB) > Duration::from_secs(1));
    }
}
