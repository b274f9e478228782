//! A latency histogram of fixed power-of-two buckets: one leading-zero count and two relaxed additions per observation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets with an upper bound: 1 µs, 2 µs, 4 µs ... 2^24 µs (16.8 s); one more holds longer times.
pub const BUCKETS: usize = 25;

/// The distribution of durations.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

impl LatencyHistogram {
    /// Counts one duration. Bucket `i` holds those of at most 2^i microseconds.
    pub fn observe(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let last = ns.div_ceil(1000).saturating_sub(1);
        let index = (u64::BITS - last.leading_zeros()) as usize;
        self.buckets[index.min(BUCKETS)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The sum, the number, and the buckets as (upper bound in seconds, number in this bucket only).
    pub fn snapshot(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let buckets: Vec<(f64, u64)> = self
            .buckets
            .iter()
            .enumerate()
            .map(|(i, bucket)| {
                let bound = if i < BUCKETS { (1u64 << i) as f64 / 1e6 } else { f64::INFINITY };
                (bound, bucket.load(Ordering::Relaxed))
            })
            .collect();
        // The count is the sum of the buckets just read, so that the text is consistent while counting continues.
        let count = buckets.iter().map(|(_, n)| n).sum();
        (self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9, count, buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(ns: u64) -> usize {
        let histogram = LatencyHistogram::default();
        histogram.observe(Duration::from_nanos(ns));
        let (_, count, buckets) = histogram.snapshot();
        assert_eq!(count, 1);
        buckets.iter().position(|(_, n)| *n == 1).unwrap()
    }

    #[test]
    fn bounds_are_inclusive() {
        for (ns, bucket) in [
            (0, 0),
            (1, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
            (1_000_000, 10),
            ((1 << 24) * 1000, 24),
            ((1 << 24) * 1000 + 1, 25),
            (u64::MAX, 25),
        ] {
            assert_eq!(bucket_of(ns), bucket, "{ns} ns");
        }
        let histogram = LatencyHistogram::default();
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.count(), 1);
    }

    #[test]
    fn sum_and_bounds_are_seconds() {
        let histogram = LatencyHistogram::default();
        histogram.observe(Duration::from_millis(1500));
        histogram.observe(Duration::from_micros(3));
        let (sum, count, buckets) = histogram.snapshot();
        assert!((sum - 1.500003).abs() < 1e-9);
        assert_eq!(count, 2);
        assert_eq!(buckets[0].0, 1e-6);
        assert_eq!(buckets[2], (4e-6, 1));
        assert_eq!(buckets[24].0, 16.777216);
        assert_eq!(buckets[25].0, f64::INFINITY);
    }
}
