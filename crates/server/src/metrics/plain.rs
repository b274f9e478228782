//! Converts OpenMetrics text to the older text format of Prometheus (`text/plain; version=0.0.4`), for scrapers that know no
//! other.

/// The same samples. A counter is declared with the name of its samples, there are no units, and an OpenMetrics info metric
/// is a gauge.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            if let Some(help) = help.take() {
                plain.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            plain.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_declared_as_their_samples_are_called() {
        let open = "# HELP a_build Program.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_network_bytes Bytes.\n# TYPE a_network_bytes counter\n# UNIT a_network_bytes bytes\n\
            a_network_bytes_total 7\n# HELP a_sessions Live.\n# TYPE a_sessions gauge\na_sessions 2\n# EOF\n";
        let plain = "# HELP a_build_info Program.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP a_network_bytes_total Bytes.\n# TYPE a_network_bytes_total counter\na_network_bytes_total 7\n\
            # HELP a_sessions Live.\n# TYPE a_sessions gauge\na_sessions 2\n";
        assert_eq!(from_openmetrics(open), plain);
    }
}
