//! `intact tcp-crc status`: the counters of the shims on this machine, for people, programs and Prometheus.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tcp_crc_shim::report::{Connection, DIRECTORY, Report, reports};

use crate::cmd::{FAILED, fail};
use crate::output::{self, Table};

/// Arguments of `intact tcp-crc status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  intact tcp-crc status --json\n\n\
    Exit codes: 0 done, also when there is no shim; 1 a shim did not answer.")]
pub struct Args {
    /// Print JSON: an array, one element for each shim.
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Print OpenMetrics text.
    #[arg(long)]
    metrics: bool,
    /// The directory of the shims' sockets.
    #[arg(long, value_name = "DIR", default_value = DIRECTORY, hide = true)]
    directory: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let reports = match reports(Path::new(&args.directory)) {
        Ok(reports) => reports,
        Err(error) => return fail(FAILED, format_args!("{}: {error}", args.directory.display())),
    };
    if args.metrics {
        return output::print(&metrics(&reports));
    }
    output::show(args.json, &reports, || text(&reports))
}

fn text(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "No shim is at work; `intact tcp-crc run -- PROGRAM` starts one, `intact tcp-crc up` one for this host.\n"
            .to_owned();
    }
    let mut table = Table::new(&[
        "SHIM",
        "PID",
        "OURS",
        "PEER",
        "STATE",
        "STAMPED",
        "VERIFIED",
        "DISCARDED",
        "BARE",
        "MISSING",
        "WHY",
    ]);
    for report in reports {
        for connection in &report.connections {
            table.row(row(report, connection));
        }
    }
    let mut text = table.text();
    for report in reports {
        if !report.devices.is_empty() {
            let (devices, left) =
                (report.devices.join(", "), output::count(report.left_alone as usize, "connection"));
            text += &format!("{}: on {devices}; {left} open before it came: plain\n", report.name);
        }
        if let Some(refused) = turned_away(report) {
            text += &format!("{}: {refused}\n", report.name);
        }
    }
    text
}

/// What a shim refused because a CRC is required, and why.
pub(super) fn turned_away(report: &Report) -> Option<String> {
    let away = &report.packets.turned_away;
    let reasons = [
        (away.peer_silent, "the peer, or something on the way, does not answer the request"),
        (away.no_common_method, "no value in common"),
        (away.answer_stripped, "the answer was taken out on the way"),
        (away.signed, "TCP-MD5 or TCP-AO"),
        (away.no_room, "no room in the SYN"),
    ];
    let mut parts: Vec<String> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{} refused: {why}", output::count(*count as usize, "connection")))
        .collect();
    if away.unknown_segments > 0 {
        parts.push(format!(
            "{} of no connection refused",
            output::count(away.unknown_segments as usize, "segment")
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn row(report: &Report, connection: &Connection) -> Vec<String> {
    let counters = &connection.counters;
    let state = match connection.method {
        Some(value) => format!("{} {value}", connection.state),
        None => connection.state.clone(),
    };
    let why = match counters.resegmented {
        0 => connection.why.clone().unwrap_or_default(),
        _ => "something on the way cuts segments again".to_owned(),
    };
    vec![
        report.name.clone(),
        report.pid.to_string(),
        connection.local.to_string(),
        connection.remote.to_string(),
        state,
        counters.stamped.to_string(),
        counters.verified.to_string(),
        (counters.bad_crc + counters.bad_sum).to_string(),
        (counters.bare_sent + counters.bare_received).to_string(),
        counters.missing.to_string(),
        why,
    ]
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    shim: String,
    pid: u32,
    what: &'static str,
}

fn metrics(reports: &[Report]) -> String {
    let segments = Family::<Labels, Counter<u64, AtomicU64>>::default();
    let packets = Family::<Labels, Counter<u64, AtomicU64>>::default();
    let connections = Family::<Labels, Gauge>::default();
    for report in reports {
        let labels = |what| Labels { shim: report.name.clone(), pid: report.pid, what };
        for (what, value) in segment_counts(report) {
            segments.get_or_create(&labels(what)).inc_by(value);
        }
        for (what, value) in packet_counts(report) {
            packets.get_or_create(&labels(what)).inc_by(value);
        }
        for what in ["opening", "protected", "plain", "refused"] {
            connections.get_or_create(&labels(what)).set(report.count(what) as i64);
        }
    }
    let mut registry = Registry::with_prefix("intact_tcp_crc");
    registry.register(
        "segments",
        "Segments of connections, by what was done with them or found of them",
        segments,
    );
    registry.register("packets", "Packets of no connection, and other events, by kind", packets);
    registry.register("connections", "Connections in the table, by state", connections);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

fn segment_counts(report: &Report) -> [(&'static str, u64); 9] {
    let total = &report.total;
    [
        ("stamped", total.stamped),
        ("verified", total.verified),
        ("bad_crc", total.bad_crc),
        ("bad_sum", total.bad_sum),
        ("bare_sent", total.bare_sent),
        ("bare_received", total.bare_received),
        ("missing", total.missing),
        ("sack_blocks_dropped", total.sack_blocks_dropped),
        ("resegmented", total.resegmented),
    ]
}

fn packet_counts(report: &Report) -> [(&'static str, u64); 14] {
    let packets = &report.packets;
    [
        ("not_tcp", packets.not_tcp),
        ("unknown", packets.unknown),
        ("fragments", packets.fragments),
        ("fragments_discarded", packets.fragments_discarded),
        ("malformed", packets.malformed),
        ("resets", packets.resets),
        ("cut", packets.cut),
        ("joined", packets.joined),
        ("path_mtu_lowered", packets.path_mtu_lowered),
        ("uncut", packets.uncut),
        ("connections_turned_away", packets.turned_away.connections()),
        ("segments_turned_away", packets.turned_away.unknown_segments),
        ("lost", report.lost),
        ("refused", report.refused),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices in different network namespaces may have the same name.
    #[test]
    fn two_shims_of_one_name_are_two_series() {
        let reports = [7, 8].map(|pid| Report { pid, ..Report::empty("crc0") });
        let text = metrics(&reports);
        for pid in [7, 8] {
            let series =
                format!("intact_tcp_crc_segments_total{{shim=\"crc0\",pid=\"{pid}\",what=\"stamped\"}} 0\n");
            assert_eq!(text.matches(&series).count(), 1, "{text}");
        }
    }
}
