//! The memory for data in flight: what there is, what is in use, and who waits for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// What a shard has in use of the memory for data. Only the shard writes it.
#[derive(Debug, Default)]
pub struct ShardMemory {
    /// Data of commands that have begun, until it is sent or done with, bytes.
    pub commands_bytes: AtomicU64,
    /// Data of short commands that have begun with what their sessions have of their own, bytes.
    pub short_bytes: AtomicU64,
    /// Data that came unasked with commands that have not begun, bytes.
    pub early_bytes: AtomicU64,
    /// Data-In that is kept until it is acknowledged, bytes.
    pub retained_bytes: AtomicU64,
    /// Buffers that all of this lies in, and those that are kept for the next, bytes.
    pub buffers_bytes: AtomicU64,
    /// Commands that wait: for memory, or for their initiator to take what was read before.
    pub waiting_commands: AtomicU64,
}

/// The shards of a process.
#[derive(Debug, Default)]
pub(super) struct MemoryTable {
    pub limit_bytes: AtomicU64,
    shards: Mutex<Vec<Arc<ShardMemory>>>,
}

impl MemoryTable {
    /// One more shard.
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
