//! `intact bench fastpath` as its users meet it: what it prints and writes, and that its forms stay as they are. The run is tiny; how good
//! its figures are is not the subject.

use serde_json::Value;

use crate::bench::{check_markdown, check_page, json, keys};
use crate::common::{run, text};

/// Programs read the JSON: a change of a name here is a new schema. The other forms hold the paper's figures.
#[test]
fn one_run_has_every_figure_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let (page, folder) = (dir.path().join("a.html"), dir.path().join("md"));
    let (page_name, folder_name) = (page.to_str().unwrap(), folder.to_str().unwrap());
    let output = run(&[
        "bench",
        "fastpath",
        "--quick",
        "--rounds",
        "1",
        "--json",
        "--html",
        page_name,
        "--markdown",
        folder_name,
    ]);
    let report = json(&output);
    check_form(&report);
    let page = check_page(&page, 6);
    for figure in [11, 12, 14, 15, 16, 17] {
        assert!(page.contains(&format!("Figure {figure}: ")), "{figure}");
    }
    let markdown = check_markdown(&folder, 6);
    for words in ["](figure-16.svg)", "What the paper found", "Table 2", "Markers", "Every figure", "73761"] {
        assert!(markdown.contains(words), "{words}");
    }
}

fn check_form(report: &Value) {
    assert_eq!((&report["schema"], &report["benchmark"]), (&Value::from(1), &Value::from("fastpath")));
    let forms: [(&str, &[&str]); 8] = [
        (
            "",
            &[
                "benchmark",
                "contenders",
                "frequency",
                "kernel",
                "machine",
                "measurements",
                "noise",
                "outbound",
                "projections",
                "schema",
                "settings",
                "tcp_cycles_per_byte",
                "ten_gigabit_mb_per_s",
                "threads",
            ],
        ),
        ("/settings", &["purged_bytes", "rounds"]),
        ("/outbound/0", &["asked", "cycles", "digests", "from"]),
        ("/projections/0", &["contender", "mb_per_s", "pdu_bytes", "way"]),
        ("/threads/0", &["computing_over_one", "mb_per_s", "over_one", "threads", "waits"]),
        ("/contenders/0", &["in_use", "name", "origin", "title"]),
        (
            "/measurements/0",
            &["contender", "copy", "crc", "cycles", "digests", "parts", "regime", "shape", "way"],
        ),
        (
            "/measurements/0/shape",
            &["commands", "connections", "in_order", "markers", "pdu_bytes", "pdus", "segment_bytes"],
        ),
    ];
    for (place, names) in forms {
        assert_eq!(keys(report.pointer(place).unwrap()), names, "{place}");
    }
    let measurements = report["measurements"].as_array().unwrap();
    for m in measurements {
        assert_ne!(m["cycles"].is_null(), m["parts"].is_null(), "either the whole or its parts: {m}");
        assert!(m["cycles"].is_null() || m["cycles"]["samples"] == 1, "{m}");
    }
    assert_eq!(report["outbound"].as_array().unwrap().len(), 8);
    assert_eq!(report["threads"].as_array().unwrap().len(), 2);
    let of = |way: &str, regime: &str| {
        measurements.iter().filter(|m| m["way"] == way && m["regime"] == regime).count()
    };
    for way in ["as_built", "layered", "interleaved"] {
        for regime in ["cold", "buffer_warm", "warm"] {
            assert!(of(way, regime) >= 3, "{way}, {regime}");
        }
    }
}

#[test]
fn the_list_names_the_crcs_and_wrong_usage_is_refused() {
    let listed = text(&run(&["bench", "fastpath", "--list"]));
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"crc32c-byte") && names.contains(&"crc32c-slicing-8"), "{listed}");
    assert!(listed.contains("the kernel in use"), "{listed}");
    let refused = run(&["bench", "fastpath", "--rounds", "0"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
}
