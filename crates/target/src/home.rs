//! Which shard an initiator port is served on.

use std::sync::Arc;

use iscsi_core::names::IscsiName;
use iscsi_core::wire::Isid;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The shards of all initiator ports that have a connection or a session.
#[derive(Debug, Default)]
pub(crate) struct Homes(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Shard, and the number of guards for it.
    by_key: FxHashMap<HomeKey, (usize, usize)>,
    /// Guards for each shard.
    load: Vec<usize>,
}

/// An ISID of an initiator; without a name while the initiator has not given it.
type HomeKey = (Isid, Option<IscsiName>);

/// Keeps an initiator and its ISID at their shard.
pub(crate) struct Home {
    /// Number of the shard.
    pub shard: usize,
    key: HomeKey,
    table: Arc<Mutex<Table>>,
}

impl Homes {
    /// Sets how many shards there are, before the first home is asked for.
    pub(crate) fn set_shards(&self, shards: usize) {
        self.0.lock().load = vec![0; shards];
    }

    /// The shard for all connections and sessions of `initiator` with `isid`, while the returned guard or another one for the
    /// same two exists. All connections of a session, and all logins that may reinstate it, have these in common, so they meet
    /// without a lock. The ISID alone would not suffice: hosts of one make use the same ISIDs, and all of them would crowd on one
    /// shard.
    pub(crate) fn of(&self, isid: Isid, initiator: Option<IscsiName>) -> Home {
        let key = (isid, initiator);
        let mut table = self.0.lock();
        let Table { by_key, load } = &mut *table;
        let entry = by_key.entry(key.clone()).or_insert_with(|| {
            let least = (0..load.len()).min_by_key(|&shard| load[shard]).unwrap_or(0);
            (least, 0)
        });
        entry.1 += 1;
        let shard = entry.0;
        load[shard] += 1;
        Home { shard, key, table: Arc::clone(&self.0) }
    }
}

impl Home {
    /// Whether this is the home of `initiator`.
    pub(crate) fn is_of(&self, initiator: &IscsiName) -> bool {
        self.key.1.as_ref() == Some(initiator)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.load[self.shard] -= 1;
        if let Some(entry) = table.by_key.get_mut(&self.key) {
            entry.1 -= 1;
            if entry.1 == 0 {
                table.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stays_at_its_shard_while_anything_of_it_exists() {
        let homes = Homes::default();
        homes.set_shards(2);
        let name = |text: &str| IscsiName::parse(text).ok();
        let of = |text| homes.of(Isid::default(), name(text));
        let first = of("iqn.2026-01.org.example:a");
        let other = of("iqn.2026-01.org.example:b");
        assert_eq!((first.shard, other.shard), (0, 1), "the shard with the least to do");
        let again = of("iqn.2026-01.org.example:a");
        drop(first);
        assert_eq!(of("iqn.2026-01.org.example:a").shard, 0, "one of it is left");
        drop(again);
        let third = of("iqn.2026-01.org.example:c");
        assert_eq!(third.shard, 0);
        assert_eq!(of("iqn.2026-01.org.example:a").shard, 0, "both have one");
        drop(other);
        assert_eq!(of("iqn.2026-01.org.example:a").shard, 1, "nothing of it is left at the first");
        assert!(third.is_of(&name("iqn.2026-01.org.example:c").unwrap()));
    }
}
