//! The memory for data in flight: the total, the part in use, and the commands that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The memory for data that a shard uses. Only the shard writes these values.
#[derive(Debug, Default)]
pub struct ShardMemory {
    /// Data of commands that have started, until it is sent or no longer needed, bytes.
    pub commands_bytes: AtomicU64,
    /// Data of short commands that have started with their sessions' own reserve, bytes.
    pub short_bytes: AtomicU64,
    /// Unsolicited data of commands that have not started, bytes.
    pub early_bytes: AtomicU64,
    /// Data-In that is kept until it is acknowledged, bytes.
    pub retained_bytes: AtomicU64,
    /// Buffers that contain all of this, and spare ones, bytes.
    pub buffers_bytes: AtomicU64,
    /// Commands that wait: for memory, or for their initiator to accept earlier read data.
    pub waiting_commands: AtomicU64,
}

/// The shards of a process.
#[derive(Debug, Default)]
pub(super) struct MemoryTable {
    pub limit_bytes: AtomicU64,
    shards: Mutex<Vec<Arc<ShardMemory>>>,
}

impl MemoryTable {
    /// Adds a shard.
    pub(crate) fn shard(&self) -> Arc<ShardMemory> {
        let shard = Arc::new(ShardMemory::default());
        self.shards.lock().push(Arc::clone(&shard));
        shard
    }

    /// The sums over all shards.
    pub(crate) fn sum(&self) -> DataMemory {
        let mut sum =
            DataMemory { limit_bytes: self.limit_bytes.load(Ordering::Relaxed), ..DataMemory::default() };
        for shard in self.shards.lock().iter() {
            let now = |part: &AtomicU64| part.load(Ordering::Relaxed);
            sum.commands_bytes += now(&shard.commands_bytes);
            sum.short_bytes += now(&shard.short_bytes);
            sum.early_bytes += now(&shard.early_bytes);
            sum.retained_bytes += now(&shard.retained_bytes);
            sum.buffers_bytes += now(&shard.buffers_bytes);
            sum.waiting_commands += now(&shard.waiting_commands);
        }
        sum
    }
}

/// The memory for data of all shards; [`ShardMemory`] describes the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataMemory {
    /// The most that may be in use: `limits.buffer_bytes_max`.
    pub limit_bytes: u64,
    /// Data of commands that have started, bytes.
    pub commands_bytes: u64,
    /// Data of short commands that have started with their sessions' own reserve, bytes.
    pub short_bytes: u64,
    /// Unsolicited data of commands that have not started, bytes.
    pub early_bytes: u64,
    /// Data-In that is kept until it is acknowledged, bytes.
    pub retained_bytes: u64,
    /// Buffers that contain all of this, and spare ones, bytes.
    pub buffers_bytes: u64,
    /// Commands that wait.
    pub waiting_commands: u64,
}
