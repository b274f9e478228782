//! The sections with numbers: `[limits]` and `[negotiation]`, with the range of each.

use std::time::Duration;

use engine::POLL_TIME_MAX;
use iscsi_core::keys::{Form, Key, Value};
use iscsi_core::params::Bounds;
use target::config::Limits;

use super::problem::Source;
use super::reader::Section;

/// Longest time that may be configured, seconds: a day.
const MAX_SECONDS: u64 = 86_400;

/// Reads `[limits]`; absent values keep their defaults.
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
    let longest = u64::try_from(POLL_TIME_MAX.as_micros()).unwrap_or(u64::MAX);
    if let Some(microseconds) = s.number(source, "poll_us", 0..=longest, "") {
        limits.poll_time = Duration::from_micros(microseconds);
    }
    if limits.max_logins_in_progress > limits.max_connections {
        limits.max_logins_in_progress = limits.max_connections;
    }
    section.finish(source);
    limits
}

/// Reads `[...negotiation]` below `parent`; absent values stay as in `bounds`.
pub(super) fn negotiation(source: &mut Source<'_>, parent: &mut Section<'_>, mut bounds: Bounds) -> Bounds {
    let Some(mut section) = parent.table(source, "negotiation") else { return bounds };
    let s = &mut section;
    for key in Key::all() {
        if let Some(value) = wish(source, s, key) {
            let fits = key.put(&mut bounds, value);
            debug_assert!(fits, "the section reads {} in the form that it has", key.name());
        }
    }
    if bounds.bursts.first_burst_length > bounds.bursts.max_burst_length {
        source.error(
            &s.at,
            format!(
                "first_burst_length ({}) is more than max_burst_length ({})",
                bounds.bursts.first_burst_length, bounds.bursts.max_burst_length
            ),
            "RFC 7143 13.14",
            "raise max_burst_length or lower first_burst_length",
        );
    }
    let any_order = [("data_pdu_in_order", bounds.data_in_order.pdus, "RFC 7143 13.18")]
        .into_iter()
        .chain([("data_sequence_in_order", bounds.data_in_order.sequences, "RFC 7143 13.19")])
        .find(|(_, in_order, _)| !in_order);
    if let Some((name, _, rule)) = any_order.filter(|_| bounds.error_recovery_level > 0) {
        source.error(
            &s.at,
            format!(
                "`{name} = false` means nothing with error_recovery_level = {}",
                bounds.error_recovery_level
            ),
            rule,
            "set error_recovery_level = 0: recovery needs data in order",
        );
    }
    section.finish(source);
    bounds
}

/// The section's value for one key, if any.
fn wish(source: &mut Source<'_>, section: &mut Section<'_>, key: &'static Key) -> Option<Value> {
    let (name, rule) = (key.setting()?, key.section());
    match key.form()? {
        Form::Number(range) => section.number(source, name, range, rule).map(Value::Number),
        Form::Size(range) => section.size(source, name, range, rule).map(Value::Number),
        Form::Switch => section.boolean(source, name).map(Value::Switch),
        Form::Word(words) => {
            let (value, at) = section.text(source, name)?;
            let word = words.iter().find(|word| **word == value);
            if word.is_none() {
                let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                let what = format!("`{name}` has a value that means nothing");
                source.error(&at, what, rule, format!("write one of {}", quoted.join(", ")));
            }
            word.map(|word| Value::Word(word))
        }
    }
}
