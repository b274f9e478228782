//! `intact bench guard` as its users meet it: what it prints and writes, and that its forms stay as they are. The runs
//! are tiny; how good their figures are is not the subject.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::bench::{check_markdown, check_page, json, keys};
use crate::common::{run, text};

/// A run of a few writes, its files in `dir`.
fn tiny(dir: &Path, more: &[&str]) -> Output {
    let dir = dir.to_str().unwrap();
    let mut arguments =
        vec!["bench", "guard", "--runs", "2", "--turn", "1ms", "--region", "1m", "--dir", dir];
    arguments.extend(more);
    run(&arguments)
}

/// Programs read this: a change of a name here is a new schema.
#[test]
fn the_form_of_the_json_is_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let report = json(&tiny(dir.path(), &["--json", "--sizes", "64k,512"]));
    assert_eq!((&report["schema"], &report["benchmark"]), (&Value::from(1), &Value::from("guard")));
    let forms: [(&str, &[&str]); 5] = [
        ("", &["benchmark", "disks", "kernel", "machine", "measurements", "noise", "schema", "settings"]),
        ("/settings", &["region_bytes", "runs", "sector_bytes", "turn_seconds"]),
        ("/disks/0", &["id", "place", "title"]),
        (
            "/measurements/0",
            &[
                "bytes",
                "cpu_percent",
                "cpu_seconds_per_gb",
                "disk",
                "mb_per_s",
                "name",
                "origin",
                "source",
                "title",
                "writes",
            ],
        ),
        ("/measurements/0/mb_per_s", &["ci95", "mean", "median", "min", "samples", "sd", "trimmed_mean"]),
    ];
    for (place, names) in forms {
        assert_eq!(keys(report.pointer(place).unwrap()), names, "{place}");
    }
    let disks: Vec<&str> =
        report["disks"].as_array().unwrap().iter().map(|disk| disk["id"].as_str().unwrap()).collect();
    assert_eq!(disks, ["ram", "page-cache", "file"]);
    let measurements = report["measurements"].as_array().unwrap();
    let of = |name: &str| measurements.iter().filter(|m| m["name"] == name).count();
    for name in ["none", "xor", "tcp-reference", "tcp-optimised", "t10-reference", "t10-table", "t10-intact"]
    {
        assert_eq!(of(name), 3 * 2, "{name}");
    }
    assert_eq!(of("t10-intact-copy"), 2, "in memory only");
    for m in measurements {
        let mean = |name: &str| m[name]["mean"].as_f64().unwrap();
        assert_eq!(m["mb_per_s"]["samples"], 2, "{m}");
        assert!(mean("mb_per_s") > 0.0 && m["writes"].as_u64().unwrap() >= 2, "{m}");
        assert!(mean("cpu_percent") >= 0.0 && mean("cpu_seconds_per_gb") >= 0.0, "{m}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn the_page_and_the_markdown_are_whole_and_need_no_network() {
    let dir = tempfile::tempdir().unwrap();
    let (page, folder) = (dir.path().join("a.html"), dir.path().join("md/results"));
    let (page_name, folder_name) = (page.to_str().unwrap(), folder.to_str().unwrap());
    let output = tiny(
        dir.path(),
        &["--html", page_name, "--markdown", folder_name, "--sizes", "512,4k", "--disk", "ram,file"],
    );
    assert!(output.status.success(), "{}", text(&output));
    let page = check_page(&page, 4);
    assert!(page.contains("Figure 1: bandwidth") && page.contains("Figure 2: load"), "{page}");
    assert!(check_markdown(&folder, 4).contains("](figure-2-file.svg)"));
    // The tables that compare, without those of every figure.
    let shown = text(&output);
    assert!(shown.contains("What the note found") && !shown.contains("Every figure"), "{shown}");
    for words in ["T10 Ref.", "TCP Opt.", "15 to 18 points", "processor, %", "guard kernel in use"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn the_list_names_what_can_be_chosen() {
    let listed = text(&run(&["bench", "guard", "--list"]));
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"t10-intact-copy") && names.contains(&"none"), "{listed}");
    let dir = tempfile::tempdir().unwrap();
    let quick = ["--quick", "--json", "--algorithms", "xor,none", "--disk", "ram"];
    let chosen = json(&tiny(dir.path(), &quick));
    let mut names: Vec<&str> =
        chosen["measurements"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    names.dedup();
    assert_eq!(names, ["none", "xor"]);
    assert_eq!(chosen["settings"]["runs"], 2);
}

#[test]
fn wrong_usage_is_refused_with_its_remedy() {
    for (arguments, words) in [
        (&["--algorithms", "crc33"][..], "--list"),
        (&["--sizes", "513"], "multiples of 512"),
        (&["--sizes", "1t"], "from 512 to"),
        (&["--sizes", "2m"], "from the largest I/O"),
        (&["--region", "100"], "whole sectors"),
        (&["--turn", "0"], "more than nothing"),
        (&["--turn", "2h"], "--turn"),
        (&["--runs", "0"], "--runs"),
        (&["--disk", "tape"], "page-cache"),
    ] {
        let mut all = vec!["bench", "guard"];
        if !arguments.contains(&"--region") {
            all.extend(["--region", "1m"]);
        }
        all.extend(arguments);
        let output = run(&all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
    let nowhere = tiny(Path::new("/nonexistent"), &["--disk", "file", "--sizes", "512"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere).contains("/nonexistent"), "{}", text(&nowhere));
}
