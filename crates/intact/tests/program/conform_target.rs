//! The rows of the conformance table against our target in the configurations that they need, and `intact conform` as people
//! use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{Serve, Signal, run, text};
use crate::support::{DIGESTS_REQUIRED, IQN, report, secret_file, serve, serve_at, target, write_config};
use conform::evil::{Act, Behaviour, EvilConfig, EvilTarget};
use conform::target::{Credentials, Ctx, Options, rows};
use conform::{Report, Verdict};
use iscsi_core::wire::Opcode;

/// What no configuration of ours makes applicable, each with its reason.
const NEVER: &[(&str, &str)] = &[
    ("TXT-10", "our target declares and answers, it proposes nothing that could be answered with Reject"),
    ("SEC-08", "a configuration with one secret for both ways is refused"),
    ("ASY-01", "an initiator cannot make a target ask for a logout; lifecycle.rs ends the server and looks"),
    ("ASY-04", "an initiator cannot make a target report an event; lifecycle.rs changes the units and looks"),
];

fn options(server: &Serve) -> Options {
    let portal = server.portal();
    let mut options = Options::new(portal.ip().to_string(), portal.port());
    options.target = Some(IQN.to_owned());
    // A step that does not come in time fails a row, on a machine that is busy with other tests too.
    options.timeout = Duration::from_secs(5);
    options.verbose_transcripts = true;
    options
}

/// Runs all rows that `options` asks for; none may fail.
#[track_caller]
fn rows_of(title: &str, options: &Options) -> Report {
    rows_of_but(title, options, &[])
}

/// Runs all rows that `options` asks for; exactly `but` fail.
#[track_caller]
fn rows_of_but(title: &str, options: &Options, but: &[&str]) -> Report {
    let report = conform::target::run(options).unwrap();
    self::report(&format!("conform-{}.txt", title.replace(' ', "-")), &format!("{title}\n{report}"));
    let failed: Vec<_> = report.rows.iter().filter(|row| row.verdict.is_fail()).map(|row| &row.id).collect();
    assert_eq!(failed, but, "{title}: rows that failed");
    report
}

fn not_applicable(report: &Report) -> BTreeMap<&str, &str> {
    let why = |verdict: &Verdict| match verdict {
        Verdict::NotApplicable { why } => Some(why.clone().leak() as &str),
        _ => None,
    };
    report.rows.iter().filter_map(|row| Some((row.id.as_str(), why(&row.verdict)?))).collect()
}

/// A file with a secret, as a line of a configuration.
fn secret(directory: &Path, secret: &str) -> String {
    format!("secret_file = \"{}\"", secret_file(directory, secret, secret).display())
}

/// An account for the initiator that the rows come as, and perhaps the target's own; also for discovery.
fn chap(directory: &Path, mutual: bool) -> String {
    let account = format!(
        "name = \"tester\"\n{}\ninitiators = [\"{}\"]\n",
        secret(directory, "secret-of-the-tester"),
        Options::INITIATOR_NAME
    );
    let own = format!("name = \"intact\"\n{}\n", secret(directory, "secret-of-the-target"));
    let mut text = format!("[[discovery.chap.account]]\n{account}");
    if mutual {
        text += &format!("[discovery.chap.mutual]\n{own}");
    }
    let mut more = format!("[[target.chap.account]]\n{account}");
    if mutual {
        more += &format!("[target.chap.mutual]\n{own}");
    }
    text + &target(IQN, &more, &["ram:64M"])
}

fn credentials(name: &str, secret: &str) -> Option<Credentials> {
    Some(Credentials { name: name.to_owned(), secret: secret.to_owned() })
}

/// Each row passes in at least one configuration and fails in none.
#[test]
fn every_row_passes_in_a_configuration_that_it_applies_to() {
    let mut everywhere: BTreeSet<String> = rows().iter().map(|row| row.id.to_owned()).collect();
    let mut take = |report: &Report| {
        for row in &report.rows {
            if row.verdict == Verdict::Pass {
                everywhere.remove(&row.id);
            }
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    let mut start = |config: &str| {
        count += 1;
        let own = directory.path().join(count.to_string());
        fs::create_dir(&own).unwrap();
        serve(&own, 1, config)
    };

    let server = start(&target(IQN, "", &["ram:64M"]));
    let report = rows_of("open", &Options { destructive: true, ..options(&server) });
    let other: Vec<_> = not_applicable(&report).into_keys().collect();
    assert!(other.iter().all(|row| {
        row.starts_with("SEC-")
            || ["LGN-15", "LGN-16", "DSC-05", "ERL-11", "DAT-05"].contains(row)
            || NEVER.iter().any(|(never, _)| never == row)
    }));
    take(&report);

    let server = start(&target(IQN, DIGESTS_REQUIRED, &["ram:64M"]));
    // These log in without digests, which this target refuses.
    let refused = ["DIG-01", "TXT-16", "LGN-17"];
    take(&rows_of_but("digests required", &options(&server), &refused));

    let store = format!("file:{},size=64M,block=4096", directory.path().join("disk.img").display());
    let server = start(&target(IQN, "", &[&store]));
    take(&rows_of("a file of 4 KiB blocks", &options(&server)));

    let r2t = "[target.negotiation]\ninitial_r2t = true\nimmediate_data = false";
    let server = start(&target(IQN, r2t, &["ram:64M"]));
    take(&rows_of("no unsolicited data", &options(&server)));

    let any_order = "[target.negotiation]\ndata_pdu_in_order = false\ndata_sequence_in_order = false\n\
                     error_recovery_level = 0\nmax_outstanding_r2t = 8";
    let server = start(&target(IQN, any_order, &["ram:64M"]));
    take(&rows_of("data in any order", &options(&server)));

    let impatient = "[limits]\nping_interval_s = 1\nping_timeout_s = 1\n";
    let server = start(&(impatient.to_owned() + &target(IQN, "", &["ram:1M"])));
    let silent = Options { filter: vec!["ERL-11".to_owned()], ..options(&server) };
    take(&rows_of("a short patience", &silent));

    let tester = credentials("tester", "secret-of-the-tester");
    let server = start(&chap(directory.path(), false));
    take(&rows_of("chap one way", &Options { chap: tester.clone(), ..options(&server) }));

    let server = start(&chap(directory.path(), true));
    let target_chap = credentials("intact", "secret-of-the-target");
    take(&rows_of("chap both ways", &Options { chap: tester, target_chap, ..options(&server) }));

    let many: String =
        (0..500).map(|n| target(&format!("iqn.2004-10.com.example:{n}"), "", &["ram:1M"])).collect();
    let server = start(&(target(IQN, "", &["ram:1M"]) + &many));
    let discovery = Options { filter: vec!["DSC".to_owned(), "TXT".to_owned()], ..options(&server) };
    take(&rows_of("500 targets", &discovery));

    let server = start(&target(IQN, "", &["ram:1M"]));
    if redirected(server.control.parent().unwrap(), &server) == Verdict::Pass {
        everywhere.remove("LGN-15");
    }

    let never: BTreeSet<String> = NEVER.iter().map(|(row, _)| (*row).to_owned()).collect();
    assert_eq!(everywhere, never, "rows that passed nowhere, beside those with a reason");
}

/// LGN-15 on a target that redirects, which it does only once the row has had its session.
fn redirected(directory: &Path, server: &Serve) -> Verdict {
    let mut ctx = Ctx::new(options(server)).unwrap();
    let redirect = target(IQN, "redirect = [\"192.0.2.20:3260\"]", &["ram:1M"]);
    write_config(directory, &[([127, 0, 0, 1], 0).into()], &redirect);
    server.signal(Signal::HUP);
    server.log_line("has other settings");
    let row = rows().into_iter().find(|row| row.id == "LGN-15").unwrap();
    row.verdict(&mut ctx)
}

#[test]
fn the_command_prints_rows_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:2M"]));
    let url = format!("iscsi://{}", server.portal());
    let output = run(&["conform", &url, "num-03", "LGO"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("NUM-03  pass"), "{printed}");
    assert!(printed.contains("LGO-01  pass"), "{printed}");
    assert!(printed.contains(&format!("{url}/{IQN}/0: ")) && printed.contains(" 0 failed"), "{printed}");

    let output = run(&["conform", &format!("{url}/{IQN}/0"), "NUM", "--json", "--destructive"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["failed"], 0);
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(value["passed"], rows.iter().filter(|row| row["verdict"] == "pass").count());
    assert!(rows.iter().all(|row| row["id"].as_str().unwrap().starts_with("NUM-")), "{value}");
}

/// A target that answers pings with other data than came: the exit code says so, and the transcript shows it.
#[test]
fn failures_are_told_with_a_transcript() {
    let wrong = Behaviour::good().every(Opcode::NopIn, |_, frame| vec![Act::Send(frame.data(&b"other"[..]))]);
    let evil = EvilTarget::start(EvilConfig::default(), wrong).unwrap();
    let output = run(&["conform", &evil.url(), "NOP", "--transcript"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let printed = text(&output);
    assert!(printed.contains(" FAIL ") && printed.contains("| "), "{printed}");
    assert!(printed.contains("NopIn"), "{printed}");
    let output = run(&["conform", &evil.url(), "NOP", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(value["failed"], 0);
    let failed = value["rows"].as_array().unwrap().iter().find(|row| row["verdict"] == "fail").unwrap();
    assert_eq!(failed["transcript"], "", "only when asked for");
}

#[test]
fn wrong_usage_and_an_absent_target_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serve_at(directory.path(), &[([127, 0, 0, 1], 0).into()], &target(IQN, "", &["ram:2M"]));
    let url = format!("iscsi://{}", server.portal());
    for (arguments, code, words) in [
        (&["conform", "nowhere"][..], 2, "begin with iscsi://"),
        (&["conform", &url, "NUM-99"], 2, "no row is named NUM-99"),
        (&["conform", &format!("iscsi://alice@{}", server.portal())], 2, "without a password"),
        (&["conform", &url, "--initiator", "alice"], 2, "alice"),
        (&["conform", &url, "--password-file", "/nowhere"], 2, "cannot be read"),
        (&["conform", &format!("{url}/iqn.2004-10.com.example:other")], 1, "Target Not Found"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        let printed = text(&output).to_lowercase();
        assert!(printed.contains(&words.to_lowercase()), "{arguments:?}: {}", text(&output));
    }
    server.signal(Signal::KILL);
    server.wait();
    let output = run(&["conform", &url]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
