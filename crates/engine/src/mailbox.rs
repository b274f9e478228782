//! Many threads hand items to one shard: a vector behind a short lock, and one wake per burst.
//!
//! Draining swaps the vector for the shard's empty one, so in the steady state nothing is allocated and the lock is held only for a pointer
//! swap. The queue has no limit of its own: it holds at most what its producers can have in flight (jobs of bounded lanes, connections of a
//! bounded acceptor). Those are limited where they are admitted.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::driver::Waker;

/// The receiving end, owned by one shard. Dropping it also drops the items in it and every item sent later, so nothing waits for an answer
/// that will never come.
#[derive(Debug)]
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

/// A sending end; clones feed the same mailbox.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    /// `None` once the mailbox has been dropped.
    items: Mutex<Option<Vec<T>>>,
    waker: Waker,
}

impl<T> Mailbox<T> {
    /// An empty mailbox that wakes its owner's driver through `waker`.
    pub fn new(waker: Waker) -> Self {
        Self { shared: Arc::new(Shared { items: Mutex::new(Some(Vec::new())), waker }) }
    }

    /// A sending end.
    pub fn sender(&self) -> Sender<T> {
        Sender { shared: self.shared.clone() }
    }

    /// Moves everything that has arrived to the end of `out`, in order of arrival.
    pub fn drain(&self, out: &mut Vec<T>) {
        let mut items = self.shared.items.lock();
        // Present as long as the mailbox exists.
        let Some(items) = items.as_mut() else { return };
        match out.is_empty() {
            true => std::mem::swap(items, out),
            false => out.append(items),
        }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let rest = self.shared.items.lock().take();
        // Dropped after the lock is released: dropping an item may send another.
        drop(rest);
    }
}

impl<T> Sender<T> {
    /// Hands over one item. The owner is woken only if the mailbox was empty: the first wake of a burst covers the later items.
    pub fn send(&self, item: T) {
        let was_empty = {
            let mut items = self.shared.items.lock();
            let Some(items) = items.as_mut() else { return };
            items.push(item);
            items.len() == 1
        };
        if was_empty {
            self.shared.waker.wake();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counted() -> (Waker, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        let waker = Waker::from_fn(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        (waker, count)
    }

    #[test]
    fn a_burst_wakes_once_and_keeps_its_order() {
        let (waker, wakes) = counted();
        let mailbox = Mailbox::new(waker);
        let sender = mailbox.sender();
        (0..5).for_each(|n| sender.send(n));
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        let mut out = vec![-1];
        mailbox.drain(&mut out);
        assert_eq!(out, [-1, 0, 1, 2, 3, 4]);
        sender.clone().send(9);
        assert_eq!(wakes.load(Ordering::SeqCst), 2);
        out.clear();
        mailbox.drain(&mut out);
        assert_eq!(out, [9]);
    }

    #[test]
    fn what_nobody_will_take_is_dropped() {
        let (waker, wakes) = counted();
        let mailbox = Mailbox::new(waker);
        let sender = mailbox.sender();
        let (before, after) = (Arc::new(()), Arc::new(()));
        sender.send(before.clone());
        drop(mailbox);
        assert_eq!(Arc::strong_count(&before), 1);
        sender.send(after.clone());
        assert_eq!((Arc::strong_count(&after), wakes.load(Ordering::SeqCst)), (1, 1));
    }

    #[test]
    fn nothing_is_lost_between_many_senders_and_a_sleeping_owner() {
        const SENDERS: u64 = 4;
        const EACH: u64 = 5_000;
        let owner = std::thread::current();
        let mailbox = Mailbox::new(Waker::from_fn(move || owner.unpark()));
        let threads: Vec<_> = (0..SENDERS)
            .map(|id| {
                let sender = mailbox.sender();
                std::thread::spawn(move || (0..EACH).for_each(|n| sender.send((id, n))))
            })
            .collect();
        let (mut next, mut seen, mut out) = ([0; SENDERS as usize], 0, Vec::new());
        while seen < SENDERS * EACH {
            mailbox.drain(&mut out);
            if out.is_empty() {
                std::thread::park();
            }
            for (id, n) in out.drain(..) {
                assert_eq!(n, next[id as usize], "items of one sender keep their order");
                next[id as usize] += 1;
                seen += 1;
            }
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    /// Two items are sent at the same time and none after them. An item added while the owner takes the other one out must wake it too.
    #[test]
    fn no_item_waits_for_the_one_after_it() {
        const ROUNDS: u64 = 20_000;
        let (wake, wakes) = std::sync::mpsc::channel();
        let mailbox = Mailbox::new(Waker::from_fn(move || wake.send(()).unwrap()));
        let (sent, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let meet = |count: &AtomicUsize, round: u64| {
            while (count.load(Ordering::Acquire) as u64) < round {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let sender = mailbox.sender();
                let (sent, taken) = (&sent, &taken);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        meet(taken, 2 * round);
                        sent.fetch_add(1, Ordering::AcqRel);
                        meet(sent, 2 * round + 2);
                        sender.send(round);
                    }
                });
            }
            let mut out = Vec::new();
            for _ in 0..ROUNDS {
                while out.len() < 2 {
                    if wakes.recv_timeout(std::time::Duration::from_secs(20)).is_err() {
                        taken.store(usize::MAX, Ordering::Release);
                        panic!("an item is in the mailbox, and its owner was not woken");
                    }
                    mailbox.drain(&mut out);
                }
                // The wake of an item that was taken together with the one before it may be left over.
                out.clear();
                taken.fetch_add(2, Ordering::AcqRel);
            }
        });
    }
}
