//! Runs the rows of the conformance table against a target:
//! `rows iscsi://[user%secret@]host[:port][/target[/lun]] [ROW|SECTION]... [-v] [--digests] [--destructive]`; for mutual CHAP with
//! `TARGET_CHAP=name%secret` in the environment.

use conform::target::{Credentials, Options, run_with};

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
        if let Some((name, secret)) =
            std::env::var("TARGET_CHAP").ok().as_deref().and_then(|pair| pair.split_once('%'))
        {
            options.target_chap = Some(Credentials { name: name.to_owned(), secret: secret.to_owned() });
        }
        options.digests = arguments.iter().any(|argument| argument == "--digests");
        options.destructive = arguments.iter().any(|argument| argument == "--destructive");
        arguments.retain(|argument| !argument.starts_with("--"));
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
