//! Counters and latencies, cheap enough for every command: an event costs a few relaxed additions to memory to which its
//! caller already holds an [`Arc`]. The text is made only on request.
//!
//! Labels come from the configuration and from accepted sessions, so both bound their number. The counts of a session are
//! added to its target's totals when it ends: a digest failure that ended its session is not lost with it.

mod collect;
mod histogram;
mod lun;
mod memory;
mod plain;
mod polls;
mod reason;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

pub use histogram::{BUCKETS, LatencyHistogram};
pub use lun::{LunStats, Op, OpStats};
pub use memory::ShardMemory;
pub use polls::ShardPolls;
pub use reason::Reason;
pub use session::{SessionCounters, SessionLabels, SessionStats};

use super::login_log::LoginLog;
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

/// All counters, and their text form.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    tables: Arc<Tables>,
}

/// The data that the collector reads.
#[derive(Debug)]
struct Tables {
    logins: LoginLog,
    luns: Mutex<BTreeMap<(String, u16), Arc<LunStats>>>,
    sessions: Arc<SessionTable>,
    memory: MemoryTable,
    polls: PollTable,
}

impl Metrics {
    /// Nothing counted yet; counts of logins come from `logins`.
    pub fn new(logins: LoginLog) -> Self {
        let tables = Arc::new(Tables {
            logins,
            luns: Mutex::default(),
            sessions: Arc::default(),
            memory: MemoryTable::default(),
            polls: PollTable::default(),
        });
        let mut registry = Registry::with_prefix("intact");
        registry.register_collector(Box::new(Arc::clone(&tables)));
        Self { registry, tables }
    }

    /// The counters of a logical unit: the same ones on every call.
    pub fn lun(&self, target: &str, lun: u16) -> Arc<LunStats> {
        Arc::clone(self.tables.luns.lock().entry((target.to_owned(), lun)).or_default())
    }

    /// Forgets a logical unit that is no longer served.
    pub fn remove_lun(&self, target: &str, lun: u16) {
        self.tables.luns.lock().remove(&(target.to_owned(), lun));
    }

    /// Counters for a new session. Its series disappear when they are dropped; the target's totals stay.
    pub fn session(&self, labels: SessionLabels) -> SessionStats {
        SessionTable::begin(&self.tables.sessions, labels)
    }

    /// The memory values of a new shard.
    pub fn shard_memory(&self) -> Arc<ShardMemory> {
        self.tables.memory.shard()
    }

    /// Where a new shard publishes the results of its polling.
    pub fn shard_polls(&self) -> Arc<ShardPolls> {
        self.tables.polls.shard()
    }

    /// The memory for data: `limits.buffer_bytes_max`.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.tables.memory.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// All counters in the text format that Prometheus used before OpenMetrics.
    pub fn plain_text(&self) -> String {
        plain::from_openmetrics(&self.text())
    }

    /// All counters as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
