//! Counters and latencies, cheap enough for every command: an event costs a handful of relaxed additions to memory that
//! its caller already holds an [`Arc`] of. The text is made only when somebody asks for it.
//!
//! Labels come from the configuration and from sessions that were let in, so their number is bounded by both. What a session
//! counted is added to its target's totals when it ends: a digest failure that killed its session is not lost with it.

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

    /// Takes over a count that is kept elsewhere; only for counts that have one writer.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted, and its text.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    tables: Arc<Tables>,
}

/// What the collector reads.
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

    /// The counters of a logical unit: the same ones whenever it is asked for.
    pub fn lun(&self, target: &str, lun: u16) -> Arc<LunStats> {
        Arc::clone(self.tables.luns.lock().entry((target.to_owned(), lun)).or_default())
    }

    /// Forgets a logical unit that is served no more.
    pub fn remove_lun(&self, target: &str, lun: u16) {
        self.tables.luns.lock().remove(&(target.to_owned(), lun));
    }

    /// Counters for a session that begins. Its series disappear when they are dropped; the target's totals stay.
    pub fn session(&self, labels: SessionLabels) -> SessionStats {
        SessionTable::begin(&self.tables.sessions, labels)
    }

    /// What a shard that begins has of the memory for data.
    pub fn shard_memory(&self) -> Arc<ShardMemory> {
        self.tables.memory.shard()
    }

    /// Where a shard that begins shows what came of looking before sleeping.
    pub fn shard_polls(&self) -> Arc<ShardPolls> {
        self.tables.polls.shard()
    }

    /// The memory for data: `limits.buffer_bytes_max`.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.tables.memory.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Everything as the text that Prometheus spoke before OpenMetrics.
    pub fn plain_text(&self) -> String {
        plain::from_openmetrics(&self.text())
    }

    /// Everything as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
