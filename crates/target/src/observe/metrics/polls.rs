//! The results of polling before sleeping, over all shards.

use std::fmt;
use std::sync::Arc;

use engine::PollCounts;
use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;

use super::Count;
use super::collect::counters;

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
    pub fn shard(&self) -> Arc<ShardPolls> {
        let shard = Arc::new(ShardPolls::default());
        self.shards.lock().push(Arc::clone(&shard));
        shard
    }

    pub fn collect(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let shards = self.shards.lock();
        let sum = |count: fn(&ShardPolls) -> &Count| shards.iter().map(|shard| count(shard).get()).sum();
        let samples = [
            (vec![("result", "hit")], sum(|shard| &shard.hits)),
            (vec![("result", "miss")], sum(|shard| &shard.misses)),
        ];
        let help = "Times that an event loop looked for news before it would sleep: limits.poll_us";
        counters(encoder, ("event_loop_polls", help, None), samples.into_iter())
    }
}
