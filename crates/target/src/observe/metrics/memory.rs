//! The memory for data in flight: the total, the part in use, and the commands that wait for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

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
    pub fn shard(&self) -> Arc<ShardMemory> {
        let shard = Arc::new(ShardMemory::default());
        self.shards.lock().push(Arc::clone(&shard));
        shard
    }

    pub fn collect(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let shards = self.shards.lock();
        let sum = |part: fn(&ShardMemory) -> &AtomicU64| {
            let sum: u64 = shards.iter().map(|shard| part(shard).load(Ordering::Relaxed)).sum();
            i64::try_from(sum).unwrap_or(i64::MAX)
        };
        let help = "Memory for data in flight that is in use";
        let unit = Some(&Unit::Bytes);
        let mut metric = encoder.encode_descriptor("data_memory", help, unit, MetricType::Gauge)?;
        for (part, bytes) in [
            ("commands", sum(|shard| &shard.commands_bytes)),
            ("short_commands", sum(|shard| &shard.short_bytes)),
            ("unsolicited", sum(|shard| &shard.early_bytes)),
            ("retained", sum(|shard| &shard.retained_bytes)),
        ] {
            ConstGauge::new(bytes).encode(metric.encode_family(&[("part", part)])?)?;
        }
        let help = "Memory of the buffers in which data in flight lie, and of those that are kept for more";
        let metric = encoder.encode_descriptor("data_memory_buffers", help, unit, MetricType::Gauge)?;
        ConstGauge::new(sum(|shard| &shard.buffers_bytes)).encode(metric)?;
        let limit = i64::try_from(self.limit_bytes.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        let help = "Most memory for data in flight: limits.buffer_bytes_max";
        let metric = encoder.encode_descriptor("data_memory_limit", help, unit, MetricType::Gauge)?;
        ConstGauge::new(limit).encode(metric)?;
        let help = "Commands that wait for memory, or for their initiator to take what was read before";
        let metric =
            encoder.encode_descriptor("data_memory_waiting_commands", help, None, MetricType::Gauge)?;
        ConstGauge::new(sum(|shard| &shard.waiting_commands)).encode(metric)
    }
}
