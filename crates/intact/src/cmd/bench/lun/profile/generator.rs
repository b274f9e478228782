//! Where the commands of a profile go: pure functions of the seed and the size, so that a run can be repeated exactly.

use std::collections::BTreeSet;
use std::ops::Range;

use rand_core::SeedableRng;
use rand_distr::{Bernoulli, Distribution, Uniform, Zipf};
use rand_xorshift::XorShiftRng;

/// A page of the database.
pub const PAGE_BYTES: u64 = 8 << 10;
/// Most bytes of one write of the log.
pub const MAX_LOG_BYTES: u64 = 32 << 10;
/// One step of a scan.
pub const SCAN_BYTES: u64 = 256 << 10;
/// Scans at a time.
pub const STREAMS: usize = 4;
/// Least region of both profiles.
pub const MIN_REGION_BYTES: u64 = 2 << 20;
/// Writes of the log are multiples of it.
pub const LOG_STEP_BYTES: u64 = 4 << 10;
/// The page of rank k is drawn in proportion to k^-0.99, as the core workloads of YCSB draw records.
const ZIPF_EXPONENT: f64 = 0.99;
/// Share of reads among the commands to pages.
const READ_SHARE: f64 = 0.7;
/// The log is an eighth of the region and no larger than this: it is written round and round, as segments of a log are reused.
const MAX_LOG_REGION_BYTES: u64 = 64 << 20;
/// Pages that are drawn for one checkpoint; a page that is drawn twice is written once.
const CHECKPOINT_DRAWS: usize = 1024;

/// A database with transactions. Offsets are bytes from the beginning of the region.
pub struct Oltp {
    random: XorShiftRng,
    rank: Zipf<f64>,
    reads: Bernoulli,
    log_steps: Uniform<u64>,
    pages: u64,
    /// Without a common divisor with `pages`: its multiples visit every page once.
    stride: u64,
    log: Range<u64>,
    log_at: u64,
}

impl Oltp {
    /// `None` if the region is smaller than [`MIN_REGION_BYTES`].
    pub fn new(region_bytes: u64, seed: u64) -> Option<Self> {
        if region_bytes < MIN_REGION_BYTES {
            return None;
        }
        let log_bytes = (region_bytes / 8).min(MAX_LOG_REGION_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let pages = (region_bytes - log_bytes) / PAGE_BYTES;
        let log_start = pages * PAGE_BYTES;
        Some(Self {
            random: XorShiftRng::seed_from_u64(seed),
            rank: Zipf::new(pages as f64, ZIPF_EXPONENT).ok()?,
            reads: Bernoulli::new(READ_SHARE).ok()?,
            log_steps: Uniform::new_inclusive(1, MAX_LOG_BYTES / LOG_STEP_BYTES).ok()?,
            pages,
            stride: coprime_stride(pages),
            log: log_start..log_start + log_bytes,
            log_at: log_start,
        })
    }

    /// The next page, and whether it is read.
    pub fn page(&mut self) -> (u64, bool) {
        let at = self.draw_page();
        (at, self.reads.sample(&mut self.random))
    }

    /// The next write of the log.
    pub fn log(&mut self) -> Range<u64> {
        let bytes = self.log_steps.sample(&mut self.random) * LOG_STEP_BYTES;
        if self.log_at + bytes > self.log.end {
            self.log_at = self.log.start;
        }
        let at = self.log_at;
        self.log_at += bytes;
        at..at + bytes
    }

    /// The pages of one checkpoint, each once, in the order of their place: a checkpoint sorts what it writes.
    pub fn checkpoint(&mut self) -> BTreeSet<u64> {
        (0..CHECKPOINT_DRAWS).map(|_| self.draw_page()).collect()
    }

    /// Hot pages are not neighbours: they are spread over the region.
    fn draw_page(&mut self) -> u64 {
        let rank = (self.rank.sample(&mut self.random) as u64).clamp(1, self.pages) - 1;
        self.place_of(rank) * PAGE_BYTES
    }

    fn place_of(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.stride) % u128::from(self.pages)) as u64
    }
}

/// Scans of a whole region, each of which begins in another quarter.
pub struct Dss {
    places: u64,
    next: [u64; STREAMS],
}

impl Dss {
    /// `None` if the region is smaller than [`MIN_REGION_BYTES`].
    pub fn new(region_bytes: u64) -> Option<Self> {
        let places = region_bytes / SCAN_BYTES;
        let next = std::array::from_fn(|stream| places * stream as u64 / STREAMS as u64);
        (region_bytes >= MIN_REGION_BYTES).then_some(Self { places, next })
    }

    /// Where the next step of `stream` begins, bytes.
    pub fn step(&mut self, stream: usize) -> u64 {
        let place = self.next[stream];
        self.next[stream] = (place + 1) % self.places;
        place * SCAN_BYTES
    }
}

/// A number near the golden section of `n` without a common divisor with it.
fn coprime_stride(n: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (n as f64 * 0.618_033_988_75) as u64;
    (first.max(1)..).find(|&stride| divisor(stride, n) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const REGION: u64 = 64 << 20;

    #[test]
    fn a_seed_gives_the_same_run_and_another_seed_another() {
        let run = |seed| {
            let mut oltp = Oltp::new(REGION, seed).unwrap();
            let steps: Vec<_> = (0..500).map(|_| (oltp.page(), oltp.log())).collect();
            (steps, oltp.checkpoint())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn pages_and_log_stay_in_their_parts_of_any_region() {
        for region in [MIN_REGION_BYTES, MIN_REGION_BYTES + 4096, 12_345_678 / 512 * 512, REGION, 3 << 40] {
            let mut oltp = Oltp::new(region, 1).unwrap();
            let log = oltp.log.clone();
            assert!(log.end <= region && log.end - log.start >= MAX_LOG_BYTES);
            let mut expected = log.start;
            for _ in 0..5000 {
                let (at, _) = oltp.page();
                assert!(at.is_multiple_of(PAGE_BYTES) && at + PAGE_BYTES <= log.start, "{at} of {region}");
                let written = oltp.log();
                let bytes = written.end - written.start;
                assert!(bytes.is_multiple_of(LOG_STEP_BYTES) && (4 << 10..=32 << 10).contains(&bytes));
                assert!(written.start == expected || written.start == log.start, "it is sequential");
                assert!(log.start <= written.start && written.end <= log.end);
                expected = written.end;
            }
            assert!(oltp.checkpoint().iter().all(|at| at + PAGE_BYTES <= log.start));
        }
        assert!(Oltp::new(MIN_REGION_BYTES - 1, 1).is_none() && Dss::new(MIN_REGION_BYTES - 1).is_none());
    }

    #[test]
    fn ranks_and_places_are_one_to_one() {
        for pages in [1, 2, 3, 8, 224, 255, 7168] {
            let oltp = Oltp { pages, stride: coprime_stride(pages), ..Oltp::new(REGION, 1).unwrap() };
            let places: BTreeSet<u64> = (0..pages).map(|rank| oltp.place_of(rank)).collect();
            assert_eq!(places, (0..pages).collect());
        }
    }

    #[test]
    fn the_hot_set_is_as_hot_as_zipf_says() {
        const DRAWS: u32 = 200_000;
        let mut oltp = Oltp::new(REGION, 3).unwrap();
        let mut times = BTreeMap::<u64, u32>::new();
        let mut reads = 0;
        for _ in 0..DRAWS {
            let (at, read) = oltp.page();
            *times.entry(at / PAGE_BYTES).or_default() += 1;
            reads += u32::from(read);
        }
        let weight = |rank: u64| (rank as f64).powf(-ZIPF_EXPONENT);
        let all: f64 = (1..=oltp.pages).map(weight).sum();
        // Five standard deviations of a share p in n draws.
        let near = |times: u32, p: f64| {
            let n = f64::from(DRAWS);
            (f64::from(times) - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt()
        };
        for rank in [0, 1, 2, 10, 100] {
            let times = times.get(&oltp.place_of(rank)).copied().unwrap_or(0);
            assert!(near(times, weight(rank + 1) / all), "rank {rank}: {times}");
        }
        let hottest: u32 = (0..oltp.pages / 10).filter_map(|rank| times.get(&oltp.place_of(rank))).sum();
        let share = (1..=oltp.pages / 10).map(weight).sum::<f64>() / all;
        assert!(share > 0.7 && near(hottest, share), "a tenth of the pages gets {share}: {hottest}");
        assert!(near(reads, READ_SHARE), "{reads}");
    }

    #[test]
    fn scans_are_sequential_and_begin_apart() {
        let mut dss = Dss::new(16 * SCAN_BYTES).unwrap();
        for (stream, first) in [0, 4, 8, 12].into_iter().enumerate() {
            let steps: Vec<u64> = (0..17).map(|_| dss.step(stream) / SCAN_BYTES).collect();
            assert_eq!(steps, (first..first + 17).map(|n| n % 16).collect::<Vec<u64>>());
        }
    }
}
