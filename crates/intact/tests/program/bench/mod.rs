//! What tests of the benchmarks share: judging the forms of a result.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common::text;

/// What it printed, as JSON.
pub fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The names of an object, in the order of the alphabet.
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Judges a page: nothing of it is elsewhere, and it has so many charts.
pub fn check_page(page: &Path, charts: usize) -> String {
    let page = fs::read_to_string(page).unwrap();
    for outside in ["http:", "https:", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!([page.matches("<svg").count(), page.matches("</svg>").count()], [charts; 2]);
    page
}

/// Judges a folder of Markdown: so many charts, each of them there and whole.
pub fn check_markdown(folder: &Path, charts: usize) -> String {
    let markdown = fs::read_to_string(folder.join("results.md")).unwrap();
    let names: Vec<&str> = markdown
        .lines()
        .filter_map(|line| line.strip_prefix("![")?.split_once("](")?.1.strip_suffix(')'))
        .collect();
    assert_eq!(names.len(), charts);
    for name in names {
        let svg = fs::read_to_string(folder.join(name)).unwrap();
        assert!(
            svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n") && !svg.contains("NaN"),
            "{name}"
        );
    }
    markdown
}

#[cfg(not(feature = "rtl"))]
#[test]
fn a_program_without_the_circuits_says_how_a_waveform_is_had() {
    let seen = crate::common::run(&["bench", "offload", "--trace", "read.fst"]);
    let why = String::from_utf8_lossy(&seen.stderr);
    assert!(seen.status.code() == Some(2) && why.contains("--features rtl"), "{why}");
}
