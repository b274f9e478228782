//! `intact conform URL`: the rows of the conformance table that a target must keep, against any target.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use conform::target::{Credentials, Options, run_with};
use conform::{Report, Verdict};

use super::{FAILED, MISUSED, fail};
use crate::output;

/// Arguments of `intact conform`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The last MiB of the logical unit is overwritten. Sections are the parts of row ids before the hyphen.\n\
    Names and secrets for CHAP also come from LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD,\n\
    LIBISCSI_CHAP_TARGET_USERNAME and LIBISCSI_CHAP_TARGET_PASSWORD.\n\n\
    Examples:\n  intact conform iscsi://127.0.0.1\n  \
    intact conform iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 LGN NUM-03 --transcript\n\n\
    Exit codes: 0 no row failed; 1 rows failed, or the target cannot be reached; 2 wrong usage."
)]
pub struct Args {
    /// iscsi://[user[%password]@]host[:port][/target[/lun]]; without a target, the first one that discovery returns.
    url: String,
    /// Rows (NUM-03) and sections (NUM) to run; all when none is given.
    #[arg(value_name = "ROW|SECTION")]
    rows: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Show the PDUs of each row that failed, also when the target cannot be reached.
    #[arg(long)]
    transcript: bool,
    /// Request header and data digests in every session, unless the row says otherwise.
    #[arg(long)]
    digests: bool,
    /// Write to the whole logical unit (its last 64 MiB at most), not only to its last MiB.
    #[arg(long)]
    destructive: bool,
    /// Take the CHAP password from the first line of this file.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Log in with this initiator name.
    #[arg(long, value_name = "IQN")]
    initiator: Option<String>,
    /// How long a step may take.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = harness::text::parse_time)]
    timeout: Duration,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let options = match options(&args) {
        Ok(options) => options,
        Err(why) => return fail(MISUSED, why),
    };
    let known = conform::target::rows();
    let names = |want: &String| known.iter().any(|row| wanted(row.id, want));
    if let Some(unknown) = args.rows.iter().find(|want| !names(want)) {
        return fail(
            MISUSED,
            format_args!("no row is named {unknown}; ids look like NUM-03, sections like NUM"),
        );
    }
    // Each row is printed when it ends; JSON waits for all of them.
    let mut closed = false;
    let report = run_with(&options, |row| {
        if !args.json && !closed {
            let part =
                Report { rows: vec![row.clone()], with_transcripts: args.transcript, ..Report::default() };
            let text = part.to_string();
            let text = text.rsplit_once('\n').map_or("", |(rows, _counts)| rows);
            closed = output::print(&format!("{text}\n")) != ExitCode::SUCCESS;
        }
    });
    let report = match report {
        Ok(report) => report,
        Err(why) => {
            return fail(FAILED, format_args!("{why}\n  remedy: mend what `intact doctor URL` finds"));
        }
    };
    let failed = report.failed();
    let text = if args.json { json(report, args.transcript) } else { totals(&report) };
    match output::print(&text) {
        ExitCode::SUCCESS if failed > 0 => ExitCode::from(FAILED),
        code => code,
    }
}

fn wanted(id: &str, want: &str) -> bool {
    let section = id.split('-').next().unwrap_or(id);
    want.eq_ignore_ascii_case(id) || want.eq_ignore_ascii_case(section)
}

/// The requested run, with the CHAP credentials from the environment and the file.
fn options(args: &Args) -> Result<Options, String> {
    let mut options = Options::from_url(&args.url)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let file = args.password_file.as_deref().map(initiator::read_password);
    let name =
        options.chap.as_ref().map(|chap| chap.name.clone()).or_else(|| variable("LIBISCSI_CHAP_USERNAME"));
    let written = options.chap.take().map(|chap| chap.secret).filter(|secret| !secret.is_empty());
    let secret = match file {
        Some(file) => Some(file.map_err(|error| error.to_string())?),
        None => written.or_else(|| variable("LIBISCSI_CHAP_PASSWORD")),
    };
    options.chap = match (name, secret) {
        (Some(name), Some(secret)) => Some(Credentials { name, secret }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(
                "a user without a password: set LIBISCSI_CHAP_PASSWORD, or give --password-file".to_owned()
            );
        }
        (None, Some(_)) => return Err("a password without a user: write iscsi://USER@HOST/...".to_owned()),
    };
    let target = variable("LIBISCSI_CHAP_TARGET_USERNAME").zip(variable("LIBISCSI_CHAP_TARGET_PASSWORD"));
    options.target_chap = target.map(|(name, secret)| Credentials { name, secret });
    if let Some(name) = &args.initiator {
        let name = iscsi_core::names::IscsiName::parse(name).map_err(|error| error.to_string())?;
        options.initiator_name = name.to_string();
    }
    options.filter.clone_from(&args.rows);
    (options.destructive, options.digests, options.timeout) = (args.destructive, args.digests, args.timeout);
    options.verbose_transcripts = args.transcript;
    Ok(options)
}

/// The last lines: rows that failed because of something seen during another row, and the counts.
fn totals(report: &Report) -> String {
    let mut text = String::from("\n");
    for row in &report.rows {
        if let Verdict::Fail { why, .. } = &row.verdict {
            text.push_str(&format!("{} failed: {}\n", row.id, output::plain(why)));
        }
    }
    let (passed, failed, other) = (report.passed(), report.failed(), report.not_applicable());
    text.push_str(&format!("{}: {passed} passed, {failed} failed, {other} not applicable\n", report.peer));
    text
}

/// The report with its counts; transcripts only on request.
fn json(mut report: Report, transcripts: bool) -> String {
    let (passed, failed, other) = (report.passed(), report.failed(), report.not_applicable());
    for row in &mut report.rows {
        if let Verdict::Fail { transcript, .. } = &mut row.verdict
            && !transcripts
        {
            transcript.clear();
        }
    }
    let value = serde_json::json!({
        "peer": report.peer, "passed": passed, "failed": failed, "not_applicable": other, "rows": report.rows,
    });
    format!("{value}\n")
}
