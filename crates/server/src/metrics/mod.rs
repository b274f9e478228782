//! The counters of a server as text: OpenMetrics, and the format of Prometheus before it.
//!
//! The text is made only on request. Labels come from the configuration and from accepted sessions, so both bound their
//! number.

mod collect;
mod plain;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use target::observe::Observe;

/// Counters of another part of the program, for the same text.
pub trait MoreFamilies: Send + Sync {
    /// The families with their values now.
    fn families(&self) -> Vec<Family>;
}

/// A family of metrics without a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without `intact_`, and without the `_total` of counters.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// Values with their labels.
    pub samples: Vec<(Vec<(&'static str, &'static str)>, u64)>,
}

/// All counters as OpenMetrics text.
pub fn openmetrics(observe: &Arc<Observe>) -> String {
    openmetrics_with(observe, &[])
}

/// All counters, and those of other parts of the program, as OpenMetrics text.
pub fn openmetrics_with(observe: &Arc<Observe>, more: &[Arc<dyn MoreFamilies>]) -> String {
    let mut registry = Registry::with_prefix("intact");
    registry.register_collector(Box::new(collect::Families(Arc::clone(observe))));
    registry.register_collector(Box::new(collect::More(more.to_vec())));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

/// All counters in the text format that Prometheus used before OpenMetrics.
pub fn plain_text(observe: &Arc<Observe>, more: &[Arc<dyn MoreFamilies>]) -> String {
    plain::from_openmetrics(&openmetrics_with(observe, more))
}
