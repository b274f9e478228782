//! `intact bench checksum` as its users meet it: what it prints and writes, and that its forms stay as they are. The
//! runs are tiny; how good their figures are is not the subject.

use std::process::Output;

use serde_json::Value;

use crate::bench::{check_markdown, check_page, json, keys};
use crate::common::{run, text};

/// A run of a few samples.
fn tiny(more: &[&str]) -> Output {
    let mut arguments = vec!["bench", "checksum", "--samples", "4", "--memory", "64k"];
    arguments.extend(more);
    run(&arguments)
}

/// Programs read this: a change of a name here is a new schema.
#[test]
fn the_form_of_the_json_is_what_it_was() {
    let report = json(&tiny(&["--json", "--sizes", "64,1500"]));
    assert_eq!((&report["schema"], &report["benchmark"]), (&Value::from(1), &Value::from("checksum")));
    let forms: [(&str, &[&str]); 7] = [
        (
            "",
            &[
                "benchmark",
                "frequency",
                "groups",
                "kernel",
                "machine",
                "measurements",
                "memory",
                "noise",
                "schema",
                "settings",
            ],
        ),
        (
            "/machine",
            &[
                "commit",
                "compiler",
                "cpu",
                "cpus",
                "features",
                "kernel",
                "opt_level",
                "version",
                "virtual_machine",
            ],
        ),
        (
            "/frequency",
            &[
                "core_hz",
                "core_hz_range",
                "counter",
                "counter_hz",
                "cycle",
                "cycle_hz",
                "empty_sample_cycles",
                "grain_ticks",
            ],
        ),
        (
            "/noise",
            &[
                "clock_spread",
                "involuntary_switches_per_s",
                "others_cpus",
                "reasons",
                "round_spread",
                "seconds",
                "steal_share",
            ],
        ),
        (
            "/measurements/0",
            &[
                "bytes",
                "calls_per_sample",
                "coarse",
                "cycles_per_byte",
                "gb_per_s",
                "group",
                "method",
                "name",
                "origin",
                "retaken_samples",
                "source",
                "substitute",
                "title",
            ],
        ),
        (
            "/measurements/0/cycles_per_byte",
            &["ci95", "mean", "median", "min", "samples", "sd", "trimmed_mean"],
        ),
        ("/memory/0", &["mb_per_s", "name", "origin", "source", "title"]),
    ];
    for (place, names) in forms {
        assert_eq!(keys(report.pointer(place).unwrap()), names, "{place}");
    }
    let measurements = report["measurements"].as_array().unwrap();
    let of = |name: &str| measurements.iter().filter(|m| m["name"] == name).count();
    for name in ["crc32c-bitwise", "ones-complement-64", "crc32c/intact", "crc32c/crc-fast", "copy/memcpy"] {
        assert_eq!(of(name), 2, "{name}");
    }
    // The thesis' thirteen, and four builds of them.
    assert_eq!(measurements.iter().filter(|m| m["group"] == "papers").count(), 17 * 2);
    for m in measurements {
        let cycles = &m["cycles_per_byte"];
        assert_eq!(cycles["samples"], 4);
        let (min, median) = (cycles["min"].as_f64().unwrap(), cycles["median"].as_f64().unwrap());
        assert!(min > 0.0 && median >= min && m["gb_per_s"].as_f64().unwrap() > 0.0, "{m}");
        // Cycles per byte and bytes per second are two views of one median, or of a mean where that is coarse.
        let hz = report["frequency"]["cycle_hz"].as_f64().unwrap();
        let typical = if m["coarse"] == true { cycles["trimmed_mean"].as_f64().unwrap() } else { median };
        let product = typical * m["gb_per_s"].as_f64().unwrap() * 1e9;
        assert!((product / hz - 1.0).abs() < 1e-9, "{m}");
    }
    assert_eq!(report["memory"][0]["name"], "xor");
    assert_eq!(report["memory"][0]["mb_per_s"]["samples"], 10);
}

#[test]
fn the_tables_stand_beside_those_of_the_papers() {
    let shown = text(&tiny(&["--sizes", "64,1500,9000"]));
    // The thesis' figures for bit-wise CRC32C in Table 6.1, in the order of sizes, with this machine's between them.
    let row = shown.lines().find(|line| line.contains("bit-wise")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells.len(), 10, "{row}");
    assert_eq!(
        [cells[2], cells[3], cells[5], cells[6], cells[8], cells[9]],
        ["160", "109", "121", "101", "120", "101"]
    );
    assert!(cells[1].parse::<f64>().unwrap() > 0.0, "{row}");
    for words in
        ["commit", "rustc", "core clock, measured", "Itanium", "1034", "crc-fast", "memcpy only", "1.38"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("Every size"), "only with --full");
    assert!(text(&tiny(&["--sizes", "64", "--full", "--part", "papers"])).contains("Every size"));
}

#[test]
fn the_page_and_the_markdown_are_whole_and_need_no_network() {
    let directory = tempfile::tempdir().unwrap();
    let (page, folder) = (directory.path().join("a.html"), directory.path().join("md/results"));
    let output = tiny(&[
        "--html",
        page.to_str().unwrap(),
        "--markdown",
        folder.to_str().unwrap(),
        "--sizes",
        "64,65,4096",
    ]);
    assert!(output.status.success(), "{}", text(&output));
    // Ten figures of the thesis, and one for each group of kernels that has one of the sizes.
    let charts = 10 + 4;
    let page = check_page(&page, charts);
    for number in 1..=10 {
        assert!(page.contains(&format!("Figure 6.{number}")), "{number}");
    }
    let markdown = check_markdown(&folder, charts);
    assert!(markdown.contains("Table A.5"), "an odd size was measured");
}

#[test]
fn the_list_says_which_kernel_serves_and_another_can_be_named() {
    let last_lines = |variable: Option<&str>| {
        let mut command = crate::common::intact();
        command.args(["bench", "checksum", "--list"]).env_remove("INTACT_CRC32C_KERNEL");
        variable.map(|name| command.env("INTACT_CRC32C_KERNEL", name));
        text(&command.output().unwrap())
    };
    let chosen = last_lines(None);
    assert!(chosen.contains("CRC32C kernel in use: ") && chosen.contains("names another one: "), "{chosen}");
    let named = last_lines(Some("slicing-8"));
    assert!(named.contains("kernel in use: slicing-8 (INTACT_CRC32C_KERNEL names it)"), "{named}");
    assert!(named.contains("intact (slicing-8)"), "it is what is measured: {named}");
    let wrong = last_lines(Some("sse99"));
    assert!(wrong.contains("names none that this machine can run; so: "), "{wrong}");
}

#[test]
fn the_list_names_what_can_be_chosen() {
    let listed = text(&run(&["bench", "checksum", "--list"]));
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    for name in ["crc32c-pclmulqdq", "t10-table", "crc32c/crc-fast", "copy/memcpy"] {
        assert!(names.contains(&name), "{listed}");
    }
    let chosen = json(&tiny(&["--json", "--sizes", "100", "--algorithms", "adler-32,copy/*,xor"]));
    let names: Vec<&str> =
        chosen["measurements"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert!(names.len() > 2 && names[0] == "adler-32", "{names:?}");
    assert!(names[1..].iter().all(|name| name.starts_with("copy/")), "{names:?}");
    assert_eq!(chosen["memory"].as_array().unwrap().len(), 1);
    // What is left out of a comparison leaves a gap, not a failure.
    assert!(text(&tiny(&["--sizes", "100", "--algorithms", "adler-32,xor"])).contains("Adler-32"));
}

#[test]
fn wrong_usage_is_refused_with_its_remedy() {
    for (arguments, words) in [
        (&["--algorithms", "crc33"][..], "--list"),
        (&["--sizes", "0"], "from 1 to"),
        (&["--sizes", "1t"], "from 1 to"),
        (&["--samples", "0"], "--samples"),
        (&["--memory", "0"], "at least one byte"),
        (&["--part", "disks"], "papers"),
    ] {
        let mut all = vec!["bench", "checksum"];
        all.extend(arguments);
        let output = run(&all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
    let nowhere = tiny(&["--sizes", "64", "--algorithms", "adler-32", "--html", "/nonexistent/a.html"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere).contains("/nonexistent/a.html"), "{}", text(&nowhere));
}

#[test]
fn a_lun_is_measured_with_the_name_lun_and_without() {
    for arguments in [&["bench", "lun", "nonsense"][..], &["bench", "nonsense"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("iscsi://"), "{}", text(&output));
    }
    let nothing = run(&["bench"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing).contains("checksum"), "{}", text(&nothing));
    let both = run(&["bench", "--depth", "3", "checksum"]);
    assert_eq!(both.status.code(), Some(2), "{}", text(&both));
}
