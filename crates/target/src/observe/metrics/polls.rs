//! The results of polling before sleeping, over all shards.

use std::sync::Arc;

use engine::PollCounts;
use parking_lot::Mutex;

use super::Count;

/// Counts of one shard. Only the shard writes them.
#[derive(Debug, Default)]
pub struct ShardPolls {
    hits: Count,
    misses: Count,
}

impl ShardPolls {
    /// Publishes the counts of the shard's driver.
    pub fn show(&self, counts: PollCounts) {
        self.hits.set(counts.hits);
        self.misses.set(counts.misses);
    }
}

/// The shards of a process.
#[derive(Debug, Default)]
pub(super) struct PollTable {
    shards: Mutex<Vec<Arc<ShardPolls>>>,
}

impl PollTable {
    /// Adds a shard.
    pub(crate) fn shard(&self) -> Arc<ShardPolls> {
        let shard = Arc::new(ShardPolls::default());
        self.shards.lock().push(Arc::clone(&shard));
        shard
    }

    /// The sums over all shards.
    pub(crate) fn sum(&self) -> PollCounts {
        let mut sum = PollCounts::default();
        for shard in self.shards.lock().iter() {
            sum.hits += shard.hits.get();
            sum.misses += shard.misses.get();
        }
        sum
    }
}
