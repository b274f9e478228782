//! `intact bench lun --profile` against a target of our own.

use std::fs;
use std::path::Path;

use crate::common::{Serve, run, text};
use crate::support::{DIGESTS_REQUIRED, IQN, serve, target};
use serde_json::Value;

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;
const REGION: usize = 4 * MIB;

fn start(directory: &Path) -> (Serve, String) {
    let disk = directory.join("disk");
    fs::write(&disk, vec![0x55; SIZE]).unwrap();
    let config = target(IQN, DIGESTS_REQUIRED, &[&format!("file:{}", disk.display())]);
    let server = serve(directory, 1, &config);
    let url = format!("iscsi://{}/{IQN}/0", server.portal());
    (server, url)
}

/// The only run of a bench that succeeds.
#[track_caller]
fn bench(arguments: &[&str], url: &str) -> Value {
    let all = [&["bench", "lun", "--json", "--warmup", "0", "--region", "4M"], arguments, &[url]].concat();
    let output = run(&all);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports.as_array().unwrap().len(), 1);
    reports[0].clone()
}

#[test]
fn transactions_write_a_log_pages_and_checkpoints_within_their_region() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = start(directory.path());
    let oltp = ["--profile", "oltp", "--overwrite", "--time", "1s", "--checkpoint", "100ms", "--depth", "4"];
    let report = bench(&oltp, &url);
    assert_eq!((&report["profile"], &report["errors"]), (&"oltp".into(), &0.into()), "{report}");
    let count = |value: &Value| value.as_u64().unwrap();
    assert!(count(&report["log"]["writes"]) > 0 && count(&report["log"]["reads"]) == 0, "{report}");
    assert!(report["transactions_per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["transactions_per_s"], report["log"]["iops"], "a transaction is a write of the log");
    assert!(count(&report["data"]["reads"]) > 0 && count(&report["data"]["writes"]) > 0, "{report}");
    assert!(count(&report["checkpoints"]["completed"]) > 0, "{report}");
    assert!(count(&report["digests_verified"]) > 0 && count(&report["digests_failed"]) == 0, "{report}");
    for kind in ["log", "data"] {
        let at = |name: &str| report[kind]["latency_us"][name].as_f64().unwrap();
        assert!(0.0 < at("p50") && at("p50") <= at("p99") && at("p99") <= at("p999"), "{report}");
    }
    let disk = fs::read(directory.path().join("disk")).unwrap();
    let (region, rest) = disk.split_at(REGION);
    assert!(rest.iter().all(|byte| *byte == 0x55), "it wrote behind its region");
    let (pages, log) = region.split_at(REGION / 8 * 7);
    let written =
        |part: &[u8]| part.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0x55)).count();
    assert!(written(pages) > 0 && written(log) > 0, "both parts of the region are written");
}

#[test]
fn scans_read_and_write_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = start(directory.path());
    let report = bench(&["--profile", "dss", "--time", "300ms"], &url);
    assert_eq!((&report["profile"], &report["errors"]), (&"dss".into(), &0.into()), "{report}");
    assert!(report["data"]["reads"].as_u64().unwrap() > 0 && report["data"]["writes"] == 0, "{report}");
    for absent in ["transactions_per_s", "log", "checkpoints"] {
        assert!(report[absent].is_null(), "{report}");
    }
    assert_eq!(fs::read(directory.path().join("disk")).unwrap(), vec![0x55; SIZE]);
    let shown = text(&run(&["bench", "--profile", "dss", "--time", "100ms", "--warmup", "0", &url]));
    assert!(shown.contains("data p99.9 us") && !shown.contains("transactions"), "{shown}");
}

#[test]
fn a_profile_is_refused_where_it_would_harm_or_makes_no_sense() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = start(directory.path());
    let refused = |arguments: &[&str], why: &str| {
        let output = run(&[&["bench", "lun"], arguments, &[&url]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(why), "{}", text(&output));
    };
    refused(&["--profile", "oltp"], "--overwrite");
    refused(&["--profile", "oltp", "--overwrite", "--region", "1M"], "smaller than 2 MiB");
    refused(&["--profile", "oltp", "--overwrite", "--checkpoint", "0"], "--checkpoint");
    refused(&["--profile", "dss", "--rw", "write"], "cannot be used with");
    refused(&["--profile", "dss", "--block", "8k"], "cannot be used with");
    refused(&["--seed", "3"], "--profile");
    assert_eq!(fs::read(directory.path().join("disk")).unwrap(), vec![0x55; SIZE]);
}
