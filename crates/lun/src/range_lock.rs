//! Locks on ranges of blocks. A store that may block promises nothing about overlapping operations, so each command on such a store
//! first locks its range (SBC-3 4.3: a read returns a logical block as it was before or after a write).
//!
//! A thread that requests a lock waits until it has it. For a store that may block, this is a worker thread; a shard only takes what is
//! free at once ([`RangeLock::try_take`]). A shard waits here for one kind of volume: one in memory with protection information, whose
//! blocks and tuples are two stores. There the holder works in memory and waits for nothing, so the shard waits for a copy of at most
//! 32 MiB. Locks are granted in the order of the requests, so no thread waits for ever. A holder of one range requests no other, so
//! there is no deadlock.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// What a command does to its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It only reads: other readers may use the range at the same time.
    Shared,
    /// It changes blocks, and no other command uses the range.
    Exclusive,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    range: Range<u64>,
    how: Use,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Holders and waiters, in the order of their requests.
    entries: VecDeque<Entry>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    state: Mutex<State>,
    changed: Condvar,
}

/// A lock on a range, until it is dropped.
#[derive(Debug)]
pub(crate) struct InUse<'a> {
    lock: &'a RangeLock,
    number: u64,
}

impl RangeLock {
    /// Waits until no earlier request holds a part of `range` in a way that excludes `how`.
    pub(crate) fn take(&self, range: Range<u64>, how: Use) -> InUse<'_> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.entries.push_back(Entry { number, range: range.clone(), how });
        while state.entries.iter().take_while(|e| e.number != number).any(|e| e.excludes(&range, how)) {
            self.changed.wait(&mut state);
        }
        InUse { lock: self, number }
    }

    /// As [`RangeLock::take`], but returns `None` instead of waiting.
    pub(crate) fn try_take(&self, range: Range<u64>, how: Use) -> Option<InUse<'_>> {
        let mut state = self.state.lock();
        if state.entries.iter().any(|e| e.excludes(&range, how)) {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.entries.push_back(Entry { number, range, how });
        Some(InUse { lock: self, number })
    }
}

impl Entry {
    fn excludes(&self, range: &Range<u64>, how: Use) -> bool {
        let overlap = self.range.start.max(range.start) < self.range.end.min(range.end);
        overlap && (self.how == Use::Exclusive || how == Use::Exclusive)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.lock.state.lock().entries.retain(|e| e.number != self.number);
        self.lock.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn ranges_that_do_not_meet_and_readers_pass_each_other() {
        let lock = RangeLock::default();
        let _reader = lock.take(0..10, Use::Shared);
        let _other_reader = lock.take(5..15, Use::Shared);
        let _writer_elsewhere = lock.take(15..20, Use::Exclusive);
        let _nothing = lock.take(3..3, Use::Exclusive);
    }

    #[test]
    fn who_does_not_want_to_wait_gets_only_what_is_free() {
        let lock = RangeLock::default();
        let reader = lock.take(0..10, Use::Shared);
        let second = lock.try_take(5..15, Use::Shared);
        assert!(second.is_some());
        assert!(lock.try_take(9..12, Use::Exclusive).is_none());
        assert!(lock.try_take(15..20, Use::Exclusive).is_some());
        drop((reader, second));
        let writer = lock.try_take(9..12, Use::Exclusive);
        assert!(writer.is_some() && lock.try_take(0..10, Use::Shared).is_none());
        drop(writer);
        assert!(lock.try_take(0..10, Use::Shared).is_some());
    }

    #[test]
    fn what_overlaps_is_never_seen_half_changed() {
        let lock = RangeLock::default();
        let cells: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for id in 1..=4u64 {
                let (lock, cells) = (&lock, &cells);
                scope.spawn(move || {
                    for round in 0..500 {
                        let start = (id + round) % 8;
                        let range = start as usize..start as usize + 8;
                        if round % 3 == 0 {
                            let _in_use = lock.take(start..start + 8, Use::Shared);
                            let first: Vec<u64> =
                                cells[range.clone()].iter().map(|c| c.load(Ordering::Relaxed)).collect();
                            let again: Vec<u64> =
                                cells[range].iter().map(|c| c.load(Ordering::Relaxed)).collect();
                            assert_eq!(first, again, "it changed while it was read");
                        } else {
                            let _in_use = lock.take(start..start + 8, Use::Exclusive);
                            cells[range.clone()].iter().for_each(|c| c.store(id, Ordering::Relaxed));
                            std::thread::yield_now();
                            assert!(cells[range].iter().all(|c| c.load(Ordering::Relaxed) == id));
                        }
                    }
                });
            }
        });
        assert!(lock.state.lock().entries.is_empty());
    }

    #[test]
    fn a_writer_is_not_overtaken_by_readers_that_come_after_it() {
        let lock = RangeLock::default();
        let reader = lock.take(0..1, Use::Shared);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| drop(lock.take(0..1, Use::Exclusive)));
            while lock.state.lock().entries.len() < 2 {
                std::thread::yield_now();
            }
            let late = scope.spawn(|| {
                let _in_use = lock.take(0..1, Use::Shared);
                assert!(
                    lock.state.lock().entries.iter().all(|e| e.how == Use::Shared),
                    "the writer still waits"
                );
            });
            drop(reader);
            writer.join().unwrap();
            late.join().unwrap();
        });
    }
}
