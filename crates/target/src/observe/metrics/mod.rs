//! Counters and latencies, cheap enough for every command: an event costs a few relaxed additions to memory to which its
//! caller already holds an [`Arc`]. The crate `server` makes a text of them, on request.
//!
//! Labels come from the configuration and from accepted sessions, so both bound their number. The counts of a session are
//! added to its target's totals when it ends: a digest failure that ended its session is not lost with it.

mod histogram;
mod lun;
mod memory;
mod polls;
mod reason;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::PollCounts;
use parking_lot::Mutex;

pub use histogram::{BUCKETS, LatencyHistogram};
pub use lun::{LunStats, Op, OpStats};
pub use memory::{DataMemory, ShardMemory};
pub use polls::ShardPolls;
pub use reason::Reason;
pub use session::{LiveSession, SessionCounters, SessionLabels, SessionStats, Sessions, TargetTotals};

use memory::MemoryTable;
use polls::PollTable;
use session::SessionTable;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes over a count kept elsewhere; only for counts with one writer.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The current number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of logical units, sessions and shards. Those of logins are in [`super::LoginLog`].
#[derive(Debug, Default)]
pub struct Metrics {
    luns: Mutex<BTreeMap<(String, u16), Arc<LunStats>>>,
    sessions: Arc<SessionTable>,
    memory: MemoryTable,
    polls: PollTable,
}

impl Metrics {
    /// The counters of a logical unit: the same ones on every call.
    pub fn lun(&self, target: &str, lun: u16) -> Arc<LunStats> {
        Arc::clone(self.luns.lock().entry((target.to_owned(), lun)).or_default())
    }

    /// Forgets a logical unit that is no longer served.
    pub fn remove_lun(&self, target: &str, lun: u16) {
        self.luns.lock().remove(&(target.to_owned(), lun));
    }

    /// Counters for a new session. Its series disappear when they are dropped; the target's totals stay.
    pub fn session(&self, labels: SessionLabels) -> SessionStats {
        SessionTable::begin(&self.sessions, labels)
    }

    /// The memory values of a new shard.
    pub fn shard_memory(&self) -> Arc<ShardMemory> {
        self.memory.shard()
    }

    /// Where a new shard publishes the results of its polling.
    pub fn shard_polls(&self) -> Arc<ShardPolls> {
        self.polls.shard()
    }

    /// The memory for data: `limits.buffer_bytes_max`.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.memory.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The units with their counters, by target and LUN.
    pub fn luns(&self) -> Vec<(String, u16, Arc<LunStats>)> {
        let luns = self.luns.lock();
        luns.iter().map(|((target, lun), stats)| (target.clone(), *lun, Arc::clone(stats))).collect()
    }

    /// The sessions with their counters, and the sums by target.
    pub fn sessions(&self) -> Sessions {
        self.sessions.snapshot()
    }

    /// The memory for data, of all shards.
    pub fn memory(&self) -> DataMemory {
        self.memory.sum()
    }

    /// The results of polling, of all shards.
    pub fn polls(&self) -> PollCounts {
        self.polls.sum()
    }
}
