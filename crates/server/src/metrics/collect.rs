//! The counters as families of OpenMetrics. The encoder of `prometheus-client` writes the text; the names are here.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use scsi::PiField;
use target::observe::metrics::{Count, LunStats, Op, OpStats, Reason, SessionCounters, Sessions};
use target::observe::{LoginLog, Metrics, Observe};

use super::MoreFamilies;

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn counters<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    samples: impl Iterator<Item = (Labels<'a>, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
    for (labels, value) in samples {
        match labels.is_empty() {
            true => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            false => ConstCounter::new(value).encode(metric.encode_family(&labels)?)?,
        }
    }
    Ok(())
}

/// The name of a counter of sessions, and where it is found.
struct SessionFamily {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    /// Labels and places; more than one if the family has several kinds.
    parts: Vec<Part>,
}

struct Part {
    labels: &'static [(&'static str, &'static str)],
    count: fn(&SessionCounters) -> &Count,
}

macro_rules! part {
    ($field:ident $(, $key:literal = $value:literal)*) => {
        Part { labels: &[$(($key, $value)),*], count: |counters| &counters.$field }
    };
}

fn session_families() -> [SessionFamily; 6] {
    let family = |name, help, unit, parts| SessionFamily { name, help, unit, parts };
    [
        family("commands", "SCSI commands", None, vec![part!(commands)]),
        family("rejects", "Reject PDUs sent", None, vec![part!(rejects)]),
        family(
            "pdus",
            "PDUs received and sent",
            None,
            vec![part!(rx_pdus, "direction" = "rx"), part!(tx_pdus, "direction" = "tx")],
        ),
        family(
            "network",
            "Bytes received and sent, with headers and digests",
            Some(Unit::Bytes),
            vec![part!(rx_bytes, "direction" = "rx"), part!(tx_bytes, "direction" = "tx")],
        ),
        family(
            "digests",
            "Digests received, by kind and result",
            None,
            vec![
                part!(header_digests_verified, "digest" = "header", "result" = "verified"),
                part!(header_digests_failed, "digest" = "header", "result" = "failed"),
                part!(data_digests_verified, "digest" = "data", "result" = "verified"),
                part!(data_digests_failed, "digest" = "data", "result" = "failed"),
            ],
        ),
        family(
            "recoveries",
            "What error recovery did",
            None,
            vec![
                part!(snacks_answered, "event" = "snack_answered"),
                part!(snacks_refused, "event" = "snack_refused"),
                part!(pdus_replayed, "event" = "pdu_replayed"),
                part!(r2ts_recovered, "event" = "r2t_recovered"),
                part!(tasks_reassigned, "event" = "task_reassigned"),
                part!(tasks_expired, "event" = "task_expired"),
                part!(connections_lost, "event" = "connection_lost"),
            ],
        ),
    ]
}

fn collect_logins(logins: &LoginLog, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let accepted = [(Labels::new(), logins.accepted_count())];
    counters(encoder, ("logins_accepted", "Logins let in", None), accepted.into_iter())?;
    let redirected = [(Labels::new(), logins.redirected_count())];
    counters(encoder, ("logins_redirected", "Logins sent elsewhere", None), redirected.into_iter())?;
    let refused: Vec<_> = logins
        .refused_counts()
        .into_iter()
        .map(|(reason, count)| {
            let status = iscsi_core::wire::LoginStatus::from(reason.code);
            (format!("{:04x}", reason.code), status.to_string(), reason.rule, count)
        })
        .collect();
    counters(
        encoder,
        ("logins_refused", "Logins refused, by status and the rule that refused", None),
        refused.iter().map(|(status, reason, rule, count)| {
            (vec![("status", &**status), ("reason", &**reason), ("rule", &**rule)], *count)
        }),
    )
}

fn collect_luns(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let luns = metrics.luns().into_iter();
    let luns: Vec<(String, String, Arc<LunStats>)> =
        luns.map(|(target, lun, stats)| (target, lun.to_string(), stats)).collect();
    fn each(luns: &[(String, String, Arc<LunStats>)]) -> impl Iterator<Item = (Labels<'_>, &OpStats)> {
        luns.iter().flat_map(|(target, lun, stats)| {
            Op::ALL.into_iter().map(move |op| {
                (vec![("target", &**target), ("lun", &**lun), ("op", op.label())], stats.op(op))
            })
        })
    }
    counters(
        encoder,
        ("lun_bytes", "Bytes moved by commands that succeeded", None),
        each(&luns).map(|(labels, op)| (labels, op.bytes.get())),
    )?;
    counters(
        encoder,
        ("lun_errors", "Commands that failed, by reason", None),
        each(&luns).flat_map(|(labels, op)| {
            let counted = move |reason: &Reason| reason.is_fault() || op.errors(*reason) > 0;
            Reason::ALL.into_iter().filter(counted).map(move |reason| {
                let mut labels = labels.clone();
                labels.push(("reason", reason.label()));
                (labels, op.errors(reason))
            })
        }),
    )?;
    counters(
        encoder,
        ("lun_protection_errors", "Blocks whose protection information failed a check", None),
        luns.iter().flat_map(|(target, lun, stats)| {
            [(PiField::Guard, "guard"), (PiField::AppTag, "app_tag"), (PiField::RefTag, "ref_tag")].map(
                |(field, name)| {
                    let labels = vec![("target", &**target), ("lun", &**lun), ("field", name)];
                    (labels, stats.checks_failed(field))
                },
            )
        }),
    )?;
    let help = "Whether the store of the unit cannot be had, and it is not ready";
    let mut metric = encoder.encode_descriptor("lun_missing", help, None, MetricType::Gauge)?;
    for (target, lun, stats) in &luns {
        let labels: Labels<'_> = vec![("target", target), ("lun", lun)];
        ConstGauge::new(i64::from(stats.is_missing())).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Time from the arrival of a command to its status";
    let unit = Unit::Seconds;
    let mut metric = encoder.encode_descriptor("lun_latency", help, Some(&unit), MetricType::Histogram)?;
    // No buckets for operations that never happened: they would make up most of the text of a server with many
    // units.
    for (labels, op) in each(&luns).filter(|(_, op)| op.latency.count() > 0) {
        let (sum, count, buckets) = op.latency.snapshot();
        metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

fn collect_sessions(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Sessions { live, totals, .. } = metrics.sessions();
    let tsihs: Vec<String> = live.iter().map(|session| session.labels().tsih.to_string()).collect();

    let help = "Sessions that live";
    let mut metric = encoder.encode_descriptor("sessions", help, None, MetricType::Gauge)?;
    for (target, total) in &totals {
        let count = i64::try_from(total.live).unwrap_or(i64::MAX);
        ConstGauge::new(count).encode(metric.encode_family(&vec![("target", &**target)])?)?;
    }
    counters(
        encoder,
        ("sessions_ended", "Sessions that ended", None),
        totals.iter().map(|(target, total)| (vec![("target", &**target)], total.ended)),
    )?;
    for family in session_families() {
        let of_session = format!("session_{}", family.name);
        counters(
            encoder,
            (&of_session, family.help, family.unit.as_ref()),
            live.iter().zip(&tsihs).flat_map(|(session, tsih)| {
                family.parts.iter().map(move |part| {
                    let mut labels = vec![
                        ("target", &*session.labels().target),
                        ("initiator", &*session.labels().initiator),
                        ("isid", &*session.labels().isid),
                        ("tsih", &**tsih),
                    ];
                    labels.extend(part.labels);
                    (labels, (part.count)(session.counters()).get())
                })
            }),
        )?;
        let of_target = format!("target_{}", family.name);
        let help = format!("{}, all sessions together", family.help);
        counters(
            encoder,
            (&of_target, &help, family.unit.as_ref()),
            totals.iter().flat_map(|(target, total)| {
                family.parts.iter().map(move |part| {
                    let mut labels = vec![("target", &**target)];
                    labels.extend(part.labels);
                    (labels, (part.count)(&total.counters).get())
                })
            }),
        )?;
    }
    Ok(())
}

fn collect_memory(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let memory = metrics.memory();
    let gauge = |value: u64| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    let help = "Memory for data in flight that is in use";
    let unit = Some(&Unit::Bytes);
    let mut metric = encoder.encode_descriptor("data_memory", help, unit, MetricType::Gauge)?;
    for (part, bytes) in [
        ("commands", memory.commands_bytes),
        ("short_commands", memory.short_bytes),
        ("unsolicited", memory.early_bytes),
        ("retained", memory.retained_bytes),
    ] {
        gauge(bytes).encode(metric.encode_family(&[("part", part)])?)?;
    }
    let help = "Memory of the buffers in which data in flight lie, and of those that are kept for more";
    let metric = encoder.encode_descriptor("data_memory_buffers", help, unit, MetricType::Gauge)?;
    gauge(memory.buffers_bytes).encode(metric)?;
    let help = "Most memory for data in flight: limits.buffer_bytes_max";
    let metric = encoder.encode_descriptor("data_memory_limit", help, unit, MetricType::Gauge)?;
    gauge(memory.limit_bytes).encode(metric)?;
    let help = "Commands that wait for memory, or for their initiator to take what was read before";
    let metric = encoder.encode_descriptor("data_memory_waiting_commands", help, None, MetricType::Gauge)?;
    gauge(memory.waiting_commands).encode(metric)
}

fn collect_polls(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let polls = metrics.polls();
    let samples = [(vec![("result", "hit")], polls.hits), (vec![("result", "miss")], polls.misses)];
    let help = "Times that an event loop looked for news before it would sleep: limits.poll_us";
    counters(encoder, ("event_loop_polls", help, None), samples.into_iter())
}

/// The collector: all families of one server.
#[derive(Debug)]
pub(super) struct Families(pub Arc<Observe>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Observe { logins, metrics, .. } = &*self.0;
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor("build", "The running program", None, MetricType::Info)?
            .encode_info(&build)?;
        collect_logins(logins, &mut encoder)?;
        collect_luns(metrics, &mut encoder)?;
        collect_memory(metrics, &mut encoder)?;
        collect_polls(metrics, &mut encoder)?;
        collect_sessions(metrics, &mut encoder)
    }
}

/// The collector of other parts of the program.
pub(super) struct More(pub Vec<Arc<dyn MoreFamilies>>);

impl fmt::Debug for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("More").finish_non_exhaustive()
    }
}

impl Collector for More {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.0.iter().flat_map(|part| part.families()) {
            if family.is_counter {
                counters(&mut encoder, (family.name, family.help, None), family.samples.into_iter())?;
                continue;
            }
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, MetricType::Gauge)?;
            for (labels, value) in family.samples {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                match labels.is_empty() {
                    true => metric.encode_gauge(&value)?,
                    false => ConstGauge::new(value).encode(metric.encode_family(&labels)?)?,
                }
            }
        }
        Ok(())
    }
}
