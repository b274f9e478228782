//! Deadlines in order, so that entries whose time has not come are not examined.

use std::collections::BTreeSet;

use iscsi_core::Time;

/// Keys, each with at most one time.
#[derive(Debug)]
pub(super) struct Due<K>(BTreeSet<(Time, K)>);

impl<K> Default for Due<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Copy + Ord> Due<K> {
    /// Moves `key` from the time that it `had` here to another one.
    pub(crate) fn change(&mut self, key: K, had: &mut Option<Time>, at: Option<Time>) {
        if *had == at {
            return;
        }
        if let Some(had) = *had {
            self.0.remove(&(had, key));
        }
        if let Some(at) = at {
            self.0.insert((at, key));
        }
        *had = at;
    }

    /// The earliest time.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// The key with the earliest time.
    pub(crate) fn first(&self) -> Option<K> {
        self.0.first().map(|(_, key)| *key)
    }

    /// The keys whose time has come, earliest first. They stay until their time is changed.
    pub(crate) fn until(&self, now: Time) -> Vec<K> {
        self.0.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_due_once_at_the_time_that_it_was_given_last() {
        let at = Time::from_secs;
        let (mut due, mut had) = (Due::default(), [None; 3]);
        for (key, seconds) in [(0, 5), (1, 3), (2, 4), (0, 1), (1, 9), (1, 9)] {
            due.change(key, &mut had[key], Some(at(seconds)));
        }
        assert_eq!((due.next(), due.first()), (Some(at(1)), Some(0)));
        assert_eq!(
            (due.until(at(0)), due.until(at(4)), due.until(at(9))),
            (vec![], vec![0, 2], vec![0, 2, 1])
        );
        due.change(0, &mut had[0], None);
        assert_eq!((due.next(), had), (Some(at(4)), [None, Some(at(9)), Some(at(4))]));
    }
}
