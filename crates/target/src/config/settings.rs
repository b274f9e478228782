//! The sections with numbers: `[limits]` and `[negotiation]`, with the range of each.

use std::time::Duration;

use iscsi_core::params::{Bounds, DigestPolicy, PROTOCOL_LEVEL, TaskReporting};

use super::model::Limits;
use super::problem::Source;
use super::reader::Section;

/// Longest time that may be configured, seconds: a day.
const MAX_SECONDS: u64 = 86_400;

/// Most connections that a session may be given.
const MAX_CONNECTIONS: u64 = 256;

/// What is negotiated within unless the configuration says otherwise: everything that recovers, and eight connections.
pub fn default_bounds() -> Bounds {
    Bounds {
        max_connections: 8,
        error_recovery_level: 2,
        task_reporting: TaskReporting::FastAbort,
        protocol_level: PROTOCOL_LEVEL,
        ..Bounds::default()
    }
}

/// Reads `[limits]`; what is absent keeps its default.
pub(super) fn limits(source: &mut Source<'_>, parent: &mut Section<'_>) -> Limits {
    let mut limits = Limits::default();
    let Some(mut section) = parent.table(source, "limits") else { return limits };
    let s = &mut section;
    let mut count = |source: &mut Source<'_>, key, from: u64, to: u64, place: &mut usize| {
        if let Some(number) = s.number(source, key, from..=to, "") {
            *place = usize::try_from(number).unwrap_or(usize::MAX);
        }
    };
    count(source, "max_connections", 1, 1_000_000, &mut limits.max_connections);
    // A TSIH has 16 bits and is never zero (RFC 7143 11.12.6).
    count(source, "max_sessions", 1, 65_535, &mut limits.max_sessions);
    count(source, "max_logins_in_progress", 1, 65_536, &mut limits.max_logins_in_progress);
    count(source, "shards", 0, 1024, &mut limits.shards);
    count(source, "store_threads", 1, 4096, &mut limits.store_threads);
    count(source, "store_concurrency_per_lun", 1, 4096, &mut limits.store_concurrency_per_lun);
    let mut seconds = |source: &mut Source<'_>, key, from: u64, place: &mut Duration| {
        if let Some(number) = s.number(source, key, from..=MAX_SECONDS, "") {
            *place = Duration::from_secs(number);
        }
    };
    seconds(source, "login_timeout_s", 1, &mut limits.login_timeout);
    seconds(source, "ping_interval_s", 0, &mut limits.ping_interval);
    seconds(source, "ping_timeout_s", 1, &mut limits.ping_timeout);
    if let Some(bytes) = s.size(source, "buffer_bytes_max", (16 << 20)..=(1 << 50), "") {
        limits.buffer_bytes_max = bytes;
    }
    if limits.max_logins_in_progress > limits.max_connections {
        limits.max_logins_in_progress = limits.max_connections;
    }
    section.finish(source);
    limits
}

/// Reads `[...negotiation]` below `parent`; what is absent stays as in `bounds`.
pub(super) fn negotiation(source: &mut Source<'_>, parent: &mut Section<'_>, mut bounds: Bounds) -> Bounds {
    let Some(mut section) = parent.table(source, "negotiation") else { return bounds };
    let s = &mut section;
    for (key, place) in
        [("header_digest", &mut bounds.header_digest), ("data_digest", &mut bounds.data_digest)]
    {
        if let Some(policy) = digest(source, s, key) {
            *place = policy;
        }
    }
    //= rfc7143 13.12 KEY-11 KEY-12 KEY-13
    const LENGTH: std::ops::RangeInclusive<u64> = 512..=(1 << 24) - 1;
    for (key, rule, place) in [
        ("max_recv_data_segment_length", "RFC 7143 13.12", &mut bounds.max_recv_data_segment_length),
        ("max_burst_length", "RFC 7143 13.13", &mut bounds.max_burst_length),
        ("first_burst_length", "RFC 7143 13.14", &mut bounds.first_burst_length),
    ] {
        if let Some(bytes) = s.size(source, key, LENGTH, rule) {
            *place = u32::try_from(bytes).unwrap_or(*place);
        }
    }
    if bounds.first_burst_length > bounds.max_burst_length {
        source.error(
            &s.at,
            format!(
                "first_burst_length ({}) is more than max_burst_length ({})",
                bounds.first_burst_length, bounds.max_burst_length
            ),
            "RFC 7143 13.14",
            "raise max_burst_length or lower first_burst_length",
        );
    }
    if let Some(value) = s.boolean(source, "initial_r2t") {
        bounds.initial_r2t = value;
    }
    if let Some(value) = s.boolean(source, "immediate_data") {
        bounds.immediate_data = value;
    }
    if let Some(level) = s.number(source, "error_recovery_level", 0..=2, "RFC 7143 13.20") {
        bounds.error_recovery_level = u8::try_from(level).unwrap_or(bounds.error_recovery_level);
    }
    if let Some(level) = s.number(source, "protocol_level", 1..=PROTOCOL_LEVEL.into(), "RFC 7144 7") {
        bounds.protocol_level = u8::try_from(level).unwrap_or(bounds.protocol_level);
    }
    if let Some(best) = task_reporting(source, s) {
        bounds.task_reporting = best;
    }
    if let Some(value) = s.boolean(source, "asymmetric") {
        bounds.allegiance_free = value;
    }
    for (key, range, rule, place) in [
        ("max_connections", 1..=MAX_CONNECTIONS, "RFC 7143 13.2", &mut bounds.max_connections),
        ("max_outstanding_r2t", 1..=65_535, "RFC 7143 13.17", &mut bounds.max_outstanding_r2t),
        ("default_time2wait_s", 0..=3600, "RFC 7143 13.15", &mut bounds.default_time2wait_s),
        ("default_time2retain_s", 0..=3600, "RFC 7143 13.16", &mut bounds.default_time2retain_s),
    ] {
        if let Some(number) = s.number(source, key, range, rule) {
            *place = u16::try_from(number).unwrap_or(*place);
        }
    }
    section.finish(source);
    bounds
}

fn task_reporting(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<TaskReporting> {
    let (value, at) = section.text(source, "task_reporting")?;
    match value.as_str() {
        "rfc3720" => Some(TaskReporting::Rfc3720),
        "response_fence" => Some(TaskReporting::ResponseFence),
        "fast_abort" => Some(TaskReporting::FastAbort),
        _ => {
            let remedy =
                "write \"rfc3720\", \"response_fence\" or \"fast_abort\" (used when the initiator can)";
            source.error(&at, "`task_reporting` has a value that means nothing", "RFC 7143 13.23", remedy);
            None
        }
    }
}

fn digest(source: &mut Source<'_>, section: &mut Section<'_>, key: &'static str) -> Option<DigestPolicy> {
    let (value, at) = section.text(source, key)?;
    match value.as_str() {
        "off" => Some(DigestPolicy::Off),
        "offered" => Some(DigestPolicy::Offered),
        "required" => Some(DigestPolicy::Required),
        _ => {
            let remedy = "write \"off\", \"offered\" (used when the initiator can) or \"required\"";
            source.error(&at, format!("`{key}` has a value that means nothing"), "RFC 7143 13.1", remedy);
            None
        }
    }
}
