//! `cargo xtask bench fastpath`: instructions and cache misses of one received PDU, counted by callgrind in the sandbox of
//! `intact bench fastpath`. Each way is counted twice: the program is deterministic, and the counts must say so.
//!
//! What callgrind counts are instructions as executed and misses of caches that it models. It has no AVX-512, so the kernel in use may be
//! another one than outside.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::callgrind;
use super::report;

/// Where the table goes in docs/fastpath.md.
const BEGIN: &str = "<!-- begin: cargo xtask bench fastpath -->";
/// How much two counts of the same may differ.
const TOLERANCE: f64 = 0.005;
/// Data of a PDU, bytes.
const PDU_BYTES: f64 = 8192.0;
/// The way of a whole PDU, and the session's part of it: what is counted is from entering to leaving such a function.
const WHOLE: &str = "*Sandbox*receive_one*";
const SESSION: &str = "*InitiatorSession*handle_pdu*";

/// One row of the table.
struct Row {
    name: &'static str,
    /// The name of `intact bench fastpath --profile`.
    profile: &'static str,
    counted: &'static str,
    /// The row whose instructions are subtracted to have those of its pass over the bytes alone.
    without_pass: Option<&'static str>,
}

const fn row(name: &'static str, without_pass: Option<&'static str>) -> Row {
    Row { name, profile: name, counted: WHOLE, without_pass }
}

const ROWS: [Row; 11] = [
    Row { name: "session", profile: "protocol", counted: SESSION, without_pass: None },
    Row { name: "session-of-eight", profile: "protocol-of-eight", counted: SESSION, without_pass: None },
    row("protocol", None),
    row("copy", Some("protocol")),
    row("sarwate", Some("copy")),
    row("slicing8", Some("copy")),
    row("slicing8-interleaved", Some("protocol")),
    row("in-use", Some("copy")),
    row("in-use-interleaved", Some("protocol")),
    row("in-use-markers", Some("protocol")),
    row("as-built", None),
];

/// The 2005 paper's figures: instructions of a PDU, or for 32 bits.
const PAPER: [(&str, &str); 3] = [("session", "438 a PDU"), ("sarwate", "35"), ("slicing8", "13")];

/// Arguments of `cargo xtask bench fastpath`.
#[derive(clap::Args)]
pub struct Options {
    /// Put the table into docs/fastpath.md
    #[arg(long)]
    write: bool,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    json: Option<std::path::PathBuf>,
}

/// What one PDU costs.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counts {
    instructions: f64,
    /// Misses of the first-level caches and of the last, data and instructions.
    first_level_misses: f64,
    last_level_misses: f64,
}

/// Counts every way.
pub fn run(root: &Path, intact: &Path, options: &Options) -> Result<()> {
    let mut counted: Vec<(&str, Counts)> = Vec::new();
    for row in &ROWS {
        let way = row.name;
        eprintln!("counting {way}");
        let (first, second) = (count(intact, row)?, count(intact, row)?);
        let difference = (first.instructions / second.instructions - 1.0).abs();
        ensure!(
            difference <= TOLERANCE,
            "{way}: {} instructions in one run and {} in the next; the same run must cost the same",
            first.instructions,
            second.instructions
        );
        counted.push((way, first));
    }
    let text = format!("{}\n{}", report::machine(root), table(&counted));
    println!("{text}");
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&counted)?)?;
    }
    if options.write {
        report::write(&root.join("docs/fastpath.md"), BEGIN, &text)?;
    }
    Ok(())
}

fn count(intact: &Path, row: &Row) -> Result<Counts> {
    let collect = format!("--toggle-collect={}", row.counted);
    let arguments = ["bench", "fastpath", "--profile", row.profile];
    let profile = callgrind::profile(row.name, &["--cache-sim=yes", &collect], intact, &arguments)?;
    counts(&profile.counts, profile.output.trim().parse().context("it says how many PDUs")?)
}

/// Reads the sums of a file of callgrind.
fn counts(text: &str, pdus: f64) -> Result<Counts> {
    let line = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let (Some(events), Some(sums)) = (line("events:"), line("totals:").or_else(|| line("summary:"))) else {
        bail!("callgrind counted nothing: does the program still have the function?");
    };
    let sum = |wanted: &[&str]| -> f64 {
        let values = events.iter().zip(&sums).filter(|(event, _)| wanted.contains(&event.as_str()));
        values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum::<f64>() / pdus
    };
    let counts = Counts {
        instructions: sum(&["Ir"]),
        first_level_misses: sum(&["I1mr", "D1mr", "D1mw"]),
        last_level_misses: sum(&["ILmr", "DLmr", "DLmw"]),
    };
    ensure!(
        counts.instructions > 0.0,
        "callgrind counted no instruction: does the program still have the function?"
    );
    Ok(counts)
}

fn table(counted: &[(&str, Counts)]) -> String {
    let of = |way: &str| counted.iter().find(|(name, _)| *name == way).map(|(_, counts)| counts.instructions);
    let mut text = String::from(
        "\nInstructions and misses of one Data-In PDU of 8 KiB, warm. `session`: what the protocol core does with a PDU that carries the \
         status; `session-of-eight`: the mean of eight PDUs of which the last carries it; `protocol`: with the header taken from the \
         segments and the list walked. Of its pass: without the way that leaves the pass out.\n\n\
         | way | instructions | of its pass, for 32 bits | the paper | misses of the first level | of the last |\n\
         |---|--:|--:|--:|--:|--:|\n",
    );
    for ((way, counts), row) in counted.iter().zip(&ROWS) {
        let pass = row.without_pass.and_then(of).map(|less| (counts.instructions - less) / (PDU_BYTES / 4.0));
        let paper = PAPER.iter().find(|(name, _)| name == way).map_or("", |(_, figure)| figure);
        text.push_str(&format!(
            "| {way} | {:.0} | {} | {paper} | {:.1} | {:.1} |\n",
            counts.instructions,
            pass.map_or(String::new(), |pass| format!("{pass:.2}")),
            counts.first_level_misses,
            counts.last_level_misses
        ));
    }
    if let Some((with_status, of_eight)) = of("session").zip(of("session-of-eight")) {
        text.push_str(&format!(
            "\nA PDU without the status: (8 x {of_eight:.0} - {with_status:.0}) / 7 = **{:.0}** instructions of the session.\n",
            without_status(with_status, of_eight)
        ));
    }
    text
}

/// Instructions of a PDU that does not carry the status, from those of one that does and the mean of eight of which one does.
fn without_status(with_status: f64, of_eight: f64) -> f64 {
    (8.0 * of_eight - with_status) / 7.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_callgrind_are_read_and_none_is_an_error() {
        let text = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=(1) x\n1 2\ntotals: 1000 5 5 1 2 3 0 10 20\n";
        let counts = counts(text, 10.0).unwrap();
        assert_eq!(
            (counts.instructions, counts.first_level_misses, counts.last_level_misses),
            (100.0, 0.6, 3.0)
        );
        assert!(super::counts("events: Ir\n", 1.0).is_err());
        assert!(super::counts("events: Ir\ntotals: 0\n", 1.0).is_err());
    }
}
