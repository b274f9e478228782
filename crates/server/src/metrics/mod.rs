//! The counters of a server as text: OpenMetrics, and the format of Prometheus before it.
//!
//! The text is made only on request. Labels come from the configuration and from accepted sessions, so both bound their
//! number.

mod collect;
mod plain;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use target::observe::Observe;

/// All counters as OpenMetrics text.
pub fn openmetrics(observe: &Arc<Observe>) -> String {
    let mut registry = Registry::with_prefix("intact");
    registry.register_collector(Box::new(collect::Families(Arc::clone(observe))));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

/// All counters in the text format that Prometheus used before OpenMetrics.
pub fn plain_text(observe: &Arc<Observe>) -> String {
    plain::from_openmetrics(&openmetrics(observe))
}
