//! The text of `/metrics` is OpenMetrics: families declared before their samples, labels escaped, histograms cumulative.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use iscsi_core::target::login::Refusal;
use iscsi_core::wire::{LoginStage, LoginStatus};
use server::metrics::{Family, MoreFamilies, openmetrics, openmetrics_with};
use target::observe::metrics::{Reason, SessionLabels};
use target::observe::{LoginEvent, Observe, Op};

/// One sample: its name, its labels in order, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads the text strictly.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with("# EOF\n"), "no end: {text}");
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let mut done: BTreeSet<String> = BTreeSet::new();
    let mut current = String::new();
    let mut samples = Vec::new();
    for line in text.trim_end_matches("# EOF\n").lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is declared twice");
            done.insert(std::mem::replace(&mut current, name.to_owned()));
            continue;
        }
        if line.starts_with("# HELP ") || line.starts_with("# UNIT ") {
            continue;
        }
        let (name, rest) = match line.find(['{', ' ']) {
            Some(at) => line.split_at(at),
            None => panic!("no value: {line}"),
        };
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest),
            None => (BTreeMap::new(), rest),
        };
        let kind = &families[&current];
        let suffix = name.strip_prefix(&*current).unwrap_or_else(|| panic!("{name} is not of {current}"));
        match kind.as_str() {
            "counter" => assert_eq!(suffix, "_total"),
            "gauge" => assert_eq!(suffix, ""),
            "info" => assert_eq!(suffix, "_info"),
            "histogram" => assert!(["_sum", "_count", "_bucket"].contains(&suffix)),
            other => panic!("unexpected type {other}"),
        }
        samples.push((name.to_owned(), labels, value.trim().parse().unwrap()));
    }
    samples
}

fn labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return (labels, rest);
        }
        let (name, after) = rest.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    c => value.push(c),
                },
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none());
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let fits = |sample: &&Sample| {
        sample.0 == name && labels.iter().all(|(key, value)| sample.1.get(*key).is_some_and(|v| v == value))
    };
    samples.iter().find(fits).map(|sample| sample.2)
}

#[test]
fn everything_that_was_counted_is_in_the_text() {
    let observe = Arc::new(Observe::new());
    let lun = observe.metrics.lun("iqn.a", 3);
    lun.record(Op::Read, 4096, Duration::from_micros(100), None);
    lun.record(Op::Read, 4096, Duration::from_micros(200), None);
    lun.record(Op::Write, 512, Duration::from_secs(100), Some(Reason::NotReady));
    lun.record(Op::Write, 512, Duration::from_secs(100), Some(Reason::Miscompare));
    // The same unit always has the same counters.
    observe.metrics.lun("iqn.a", 3).record(Op::Flush, 0, Duration::ZERO, None);
    let labels = |tsih| SessionLabels {
        target: "iqn.a".to_owned(),
        initiator: "iqn.b\"\\".to_owned(),
        isid: "800000000001".to_owned(),
        tsih,
    };
    let session = observe.metrics.session(labels(1));
    session.rx_bytes.add(10);
    session.data_digests_failed.add(1);
    let other = observe.metrics.session(labels(2));
    other.rx_bytes.set(5);

    let address = "192.0.2.1:3260".parse().unwrap();
    observe.logins.record(LoginEvent::accepted(SystemTime::UNIX_EPOCH, address, address, None));
    let refusal = Refusal::new(LoginStatus::NotFound, "RFC 7143 6.3", "there is none", "use another name");
    observe.logins.record(LoginEvent::refused(
        SystemTime::UNIX_EPOCH,
        address,
        address,
        None,
        LoginStage::Security,
        &refusal,
    ));

    let samples = parse(&openmetrics(&observe));
    let get = |name: &str, labels: &[(&str, &str)]| value(&samples, name, labels);
    let read = [("target", "iqn.a"), ("lun", "3"), ("op", "read")];
    assert_eq!(get("intact_lun_bytes_total", &read), Some(8192.0));
    let errors = |op, reason| get("intact_lun_errors_total", &[("op", op), ("reason", reason)]);
    assert_eq!(errors("write", "not_ready"), Some(1.0));
    assert_eq!(errors("write", "miscompare"), Some(1.0));
    assert_eq!(errors("read", "not_ready"), Some(0.0), "an alert finds what has not happened yet");
    assert_eq!(errors("read", "miscompare"), None);
    assert_eq!(get("intact_lun_latency_seconds_count", &[("op", "unmap")]), None);
    assert_eq!(get("intact_lun_bytes_total", &[("op", "write")]), Some(0.0));
    assert_eq!(get("intact_lun_latency_seconds_count", &read), Some(2.0));
    assert_eq!(get("intact_lun_latency_seconds_count", &[("op", "flush")]), Some(1.0));
    assert!((get("intact_lun_latency_seconds_sum", &read).unwrap() - 0.0003).abs() < 1e-12);
    assert_eq!(get("intact_sessions", &[("target", "iqn.a")]), Some(2.0));
    let rx = [("initiator", "iqn.b\"\\"), ("tsih", "1"), ("direction", "rx")];
    assert_eq!(get("intact_session_network_bytes_total", &rx), Some(10.0));
    let failed = [("digest", "data"), ("result", "failed")];
    assert_eq!(get("intact_session_digests_total", &failed), Some(1.0));
    assert_eq!(get("intact_logins_accepted_total", &[]), Some(1.0));
    let reason = [("status", "0203"), ("reason", "target not found"), ("rule", "RFC 7143 6.3")];
    assert_eq!(get("intact_logins_refused_total", &reason), Some(1.0));

    let buckets: Vec<(f64, f64)> = samples
        .iter()
        .filter(|(name, labels, _)| name == "intact_lun_latency_seconds_bucket" && labels["op"] == "write")
        .map(|(_, labels, value)| (labels["le"].parse().unwrap_or(f64::INFINITY), *value))
        .collect();
    assert!(buckets.is_sorted() && buckets.last() == Some(&(f64::INFINITY, 2.0)), "{buckets:?}");

    // When a session ends, its counts stay with its target.
    drop(session);
    let samples = parse(&openmetrics(&observe));
    assert_eq!(value(&samples, "intact_session_digests_total", &[("tsih", "1")]), None);
    let of_target = [("target", "iqn.a"), ("digest", "data"), ("result", "failed")];
    assert_eq!(value(&samples, "intact_target_digests_total", &of_target), Some(1.0));
    assert_eq!(value(&samples, "intact_target_network_bytes_total", &[("direction", "rx")]), Some(15.0));
    assert_eq!(value(&samples, "intact_sessions", &[("target", "iqn.a")]), Some(1.0));
    assert_eq!(value(&samples, "intact_sessions_ended_total", &[("target", "iqn.a")]), Some(1.0));

    observe.metrics.remove_lun("iqn.a", 3);
    let samples = parse(&openmetrics(&observe));
    assert_eq!(value(&samples, "intact_lun_bytes_total", &[]), None);
}

struct Parrots(u64);

impl MoreFamilies for Parrots {
    fn families(&self) -> Vec<Family> {
        let samples = |labels: Vec<_>| vec![(labels, self.0)];
        vec![
            Family { name: "parrots", help: "Parrots", is_counter: false, samples: samples(vec![]) },
            Family { name: "calls", help: "Calls", is_counter: true, samples: samples(vec![("word", "no")]) },
        ]
    }
}

#[test]
fn other_parts_of_the_program_add_their_families() {
    let observe = Arc::new(Observe::new());
    let samples = parse(&openmetrics_with(&observe, &[Arc::new(Parrots(7))]));
    assert_eq!(value(&samples, "intact_parrots", &[]), Some(7.0));
    assert_eq!(value(&samples, "intact_calls_total", &[("word", "no")]), Some(7.0));
    assert_eq!(value(&samples, "intact_logins_accepted_total", &[]), Some(0.0));
}

#[test]
fn nothing_counted_is_a_text_too() {
    let samples = parse(&openmetrics(&Arc::new(Observe::new())));
    assert_eq!(value(&samples, "intact_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), Some(1.0));
    assert_eq!(value(&samples, "intact_logins_accepted_total", &[]), Some(0.0));
}
