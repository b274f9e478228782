//! How many chunks of a copy are under way at a time.
//!
//! More than keep the path busy only wait behind each other, and their buffers are no longer in the cache: next to a target on the same
//! machine eight chunks of 1 MiB have 0.8 of the speed of three (docs/database.md). Over a long path, or from a disk that takes its time,
//! eight are needed. So the copy finds out, as TCP Vegas does (Brakmo and Peterson, 1995): the shortest time that a chunk has taken is that
//! without waiting, and what a chunk takes beyond it says how many wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Most chunks under way where nobody says how many.
pub const MOST: u16 = 8;
/// No fewer after the beginning: one on its way here, one at the destination, one asked for.
const LEAST: u16 = 3;
/// With fewer waiting there is one more, and with more waiting one less.
const WAITING_MIN: f64 = 1.0;
const WAITING_MAX: f64 = 2.0;
/// After so many chunks the rule begins anew: the path may be another one.
const RENEWED: u32 = 1024;

/// The rule, without threads and clock.
#[derive(Debug)]
struct Rule {
    most: u16,
    now: u16,
    /// Changes of the number so far.
    changes: u64,
    /// Chunks that are done and began after the last change, and their time.
    done: u16,
    time: Duration,
    shortest: Duration,
    /// None has waited yet: the number doubles.
    begins: bool,
    /// Chunks since the beginning.
    chunks: u32,
}

impl Rule {
    fn new(most: u16) -> Self {
        let (time, shortest) = (Duration::ZERO, Duration::MAX);
        Self { most, now: 1, changes: 0, done: 0, time, shortest, begins: true, chunks: 0 }
    }

    /// A chunk that began after so many changes has taken this long.
    fn done(&mut self, changes: u64, took: Duration) {
        if changes != self.changes {
            return;
        }
        self.shortest = self.shortest.min(took);
        (self.done, self.time, self.chunks) = (self.done + 1, self.time + took, self.chunks + 1);
        if self.chunks >= RENEWED {
            *self = Self { changes: self.changes + 1, ..Self::new(self.most) };
        } else if self.done >= self.now {
            self.choose();
        }
    }

    fn choose(&mut self) {
        let mean = self.time.as_secs_f64() / f64::from(self.done);
        let waiting = f64::from(self.now) * (1.0 - self.shortest.as_secs_f64() / mean.max(1e-9));
        self.begins &= waiting < WAITING_MIN;
        let next = if self.begins {
            self.now * 2
        } else if waiting < WAITING_MIN {
            LEAST.max(self.now + 1)
        } else if waiting > WAITING_MAX {
            LEAST.max(self.now - 1)
        } else {
            LEAST.max(self.now)
        };
        let next = next.min(self.most);
        self.changes += u64::from(next != self.now);
        (self.now, self.done, self.time) = (next, 0, Duration::ZERO);
    }
}

/// The rule for the jobs of a copy.
#[derive(Debug)]
pub struct Depth {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    rule: Rule,
    under_way: u16,
}

impl Depth {
    /// Up to `most` chunks.
    pub fn up_to(most: u16) -> Self {
        Self { state: Mutex::new(State { rule: Rule::new(most), under_way: 0 }), changed: Condvar::new() }
    }

    /// Waits for a place; `None` once `stop` is set.
    pub fn place(&self, stop: &AtomicBool) -> Option<Place<'_>> {
        let mut state = self.state.lock();
        while !stop.load(Ordering::Relaxed) {
            if state.under_way < state.rule.now {
                state.under_way += 1;
                return Some(Place { depth: self, changes: state.rule.changes, began: Instant::now() });
            }
            self.changed.wait(&mut state);
        }
        None
    }
}

/// A place for one chunk after the other. A job keeps it while it can: its buffer is in the cache.
pub struct Place<'a> {
    depth: &'a Depth,
    changes: u64,
    began: Instant,
}

impl Place<'_> {
    /// A chunk is done; `tells` if it came whole over the path, for another one says nothing about it. Returns the place for the next,
    /// unless it is one too many.
    pub fn done(mut self, tells: bool) -> Option<Self> {
        let mut state = self.depth.state.lock();
        let now = Instant::now();
        if tells {
            state.rule.done(self.changes, now - self.began);
        }
        if state.under_way > state.rule.now {
            drop(state);
            return None;
        }
        if state.under_way < state.rule.now {
            self.depth.changed.notify_all();
        }
        (self.changes, self.began) = (state.rule.changes, now);
        drop(state);
        Some(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.depth.state.lock().under_way -= 1;
        // All: the copy may have come to its end, or be stopped.
        self.depth.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many chunks of a path that adds this latency to each and carries one in `each_us`; the number at the end.
    fn copy(rule: &mut Rule, chunks: u32, latency_us: u64, each_us: u64) -> u16 {
        for _ in 0..chunks {
            let took = (latency_us + each_us).max(each_us * u64::from(rule.now));
            rule.done(rule.changes, Duration::from_micros(took));
        }
        rule.now
    }

    fn found(latency_us: u64, each_us: u64, most: u16) -> u16 {
        copy(&mut Rule::new(most), 500, latency_us, each_us)
    }

    #[test]
    fn a_near_target_has_few_and_a_far_one_as_many_as_allowed() {
        assert_eq!((found(100, 260, 8), found(20, 260, 8)), (3, 3));
        assert_eq!(found(50_000, 1_000, 8), 8);
        // 1 Gbit/s over 10 ms: three would just fill it.
        assert!((3..=5).contains(&found(10_000, 8_400, 8)));
        assert_eq!((found(100, 260, 1), found(50_000, 1_000, 2)), (1, 2));
    }

    #[test]
    fn what_began_before_a_change_does_not_count() {
        let mut rule = Rule::new(8);
        rule.done(0, Duration::from_millis(1));
        assert_eq!((rule.now, rule.changes), (2, 1));
        (0..100).for_each(|_| rule.done(0, Duration::from_micros(1)));
        assert_eq!((rule.now, rule.shortest), (2, Duration::from_millis(1)));
    }

    #[test]
    fn a_path_that_becomes_long_gets_more_in_time() {
        let mut rule = Rule::new(8);
        assert_eq!(copy(&mut rule, 500, 20, 260), 3);
        // Until the rule begins anew, a path that is longer looks like one that is full.
        assert_eq!(copy(&mut rule, 500, 50_000, 260), 3);
        assert_eq!(copy(&mut rule, 100, 50_000, 260), 8);
    }

    #[test]
    fn no_more_are_under_way_than_the_rule_allows_and_a_stop_ends_the_wait() {
        let (depth, stop) = (Depth::up_to(8), AtomicBool::new(false));
        let first = depth.place(&stop).unwrap();
        std::thread::scope(|scope| {
            // The first chunk shows no wait, so there are two.
            let second = scope.spawn(|| depth.place(&stop));
            let first = first.done(true);
            let second = second.join().unwrap();
            assert!(first.is_some() && second.is_some());
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| depth.place(&stop).is_none())).collect();
            stop.store(true, Ordering::Relaxed);
            drop(first);
            assert!(waiting.into_iter().all(|one| one.join().unwrap()), "all are woken");
        });
        assert_eq!(depth.state.lock().under_way, 0);
    }

    #[test]
    fn a_place_that_is_one_too_many_is_given_up() {
        let (depth, stop) = (Depth::up_to(8), AtomicBool::new(false));
        depth.state.lock().rule.now = 2;
        let (first, second) = (depth.place(&stop).unwrap(), depth.place(&stop).unwrap());
        depth.state.lock().rule.now = 1;
        assert!(first.done(false).is_none());
        assert!(second.done(false).is_some());
        assert_eq!(depth.state.lock().under_way, 0);
    }
}
