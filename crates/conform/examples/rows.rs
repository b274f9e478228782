//! Runs the rows of the conformance table against a target: `rows iscsi://host[:port][/target[/lun]] [ROW|SECTION]... [-v]`.

use conform::target::{Options, run_with};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let verbose = arguments.iter().any(|argument| argument == "-v");
    arguments.retain(|argument| argument != "-v");
    if arguments.is_empty() {
        eprintln!("usage: rows iscsi://host[:port][/target[/lun]] [ROW|SECTION]... [-v]");
        std::process::exit(2);
    }
    let url = arguments.remove(0);
    let report = Options::from_url(&url).and_then(|mut options| {
        options.filter = arguments;
        options.verbose_transcripts = verbose;
        run_with(&options, |row| eprintln!("{} {}", row.id, if row.verdict.is_fail() { "FAIL" } else { "" }))
    });
    match report {
        Ok(report) => {
            println!("{report}");
            std::process::exit(i32::from(report.failed() > 0));
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}
