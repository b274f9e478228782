//! What the two sides of a login have agreed on, independently of the products.

use iscsi_core::params::{ALLEGIANCE_FREE, Asymmetric};

/// The result of a login's negotiation, derived from the text of both sides and the rules of each key alone.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxBurstLength, bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes.
    pub first_burst_length: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// MaxConnections.
    pub max_connections: u32,
    /// TaskReporting is ResponseFence or FastAbort.
    pub response_fence: bool,
    /// Connections need not keep the allegiance of commands; with halves, data need not go where it was asked for.
    pub asymmetric: Asymmetric,
}

impl Agreed {
    /// From every `key=value` of a login, in the order sent.
    pub(crate) fn from_text(text: &[u8]) -> Self {
        let items: Vec<(&str, &str)> = text
            .split(|byte| *byte == 0)
            .filter_map(|item| std::str::from_utf8(item).ok()?.split_once('='))
            .collect();
        let values = |key: &'static str| items.iter().filter(move |(k, _)| *k == key).map(|(_, v)| *v);
        let least = |key, default: u32| values(key).filter_map(|v| v.parse().ok()).min().unwrap_or(default);
        // Offers come first, so the last value is the answer.
        let last = |key, default: &'static str| values(key).next_back().unwrap_or(default) == "CRC32C";
        let any = |key, default: bool| match values(key).next() {
            None => default,
            Some(_) => values(key).any(|v| v == "Yes"),
        };
        let all = |key, default: bool| match values(key).next() {
            None => default,
            Some(_) => values(key).all(|v| v == "Yes"),
        };
        // An offer and its answer.
        let asymmetric = values(ALLEGIANCE_FREE).nth(1).map(Asymmetric::from_value).unwrap_or_default();
        Self {
            header_digest: last("HeaderDigest", "None"),
            data_digest: last("DataDigest", "None"),
            max_burst_length: least("MaxBurstLength", 262_144),
            first_burst_length: least("FirstBurstLength", 65_536),
            max_outstanding_r2t: least("MaxOutstandingR2T", 1),
            initial_r2t: any("InitialR2T", true),
            immediate_data: all("ImmediateData", true),
            data_pdu_in_order: any("DataPDUInOrder", true),
            error_recovery_level: least("ErrorRecoveryLevel", 0),
            max_connections: least("MaxConnections", 1),
            response_fence: matches!(
                values("TaskReporting").next_back(),
                Some("ResponseFence" | "FastAbort")
            ),
            asymmetric,
        }
    }
}
