//! libiscsi's test suite (Debian's `iscsi-test-cu`) against our target: no test fails, and each one that is skipped is
//! skipped for a reason that is written down here. The suite counts a skipped test as passed, so its output is read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{IQN, finish, need, program, report, serve, target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Name (`Suite.Test`) to verdict.
type Verdicts = BTreeMap<String, Verdict>;

/// A skip and its reason. A name may stand for a whole suite.
type Reasons<'a> = &'a [(&'a str, &'a str)];

const ANOTHER_DEVICE: Reasons = &[
    ("PreventAllow", "another device type: the medium of our units is not removable"),
    ("StartStopUnit.Simple", "another device type: the medium of our units is not removable"),
];

const NOT_ALLOWED: Reasons = &[("Sanitize", "wants leave to erase the unit; sanitized_units gives it")];

const NOT_ENCRYPTED: Reasons = &[
    ("Sanitize.CryptoErase", CRYPTO),
    // These two go on with the other kinds.
    ("Sanitize.Readonly", CRYPTO),
    ("Sanitize.Reservations", CRYPTO),
];
const CRYPTO: &str = "another device type: one that encrypts its medium, with a key to forget";

const WRITABLE: Reasons = &[("ReadOnly", "for a write-protected unit; read_only_units runs it on one")];

const ONE_PATH: Reasons = &[("MultipathIO", "wants two paths; two_paths_with_header_digests gives them")];

const SMALL_PHYSICAL_BLOCKS: Reasons = &[
    ("CompareAndWrite.InvalidDataOutSize", PHYSICAL),
    ("WriteSame10.UnmapUnaligned", PHYSICAL),
    ("WriteSame10.InvalidDataOutSize", PHYSICAL),
    ("WriteSame16.UnmapUnaligned", PHYSICAL),
    ("WriteSame16.InvalidDataOutSize", PHYSICAL),
];
const PHYSICAL: &str =
    "wants physical blocks of several logical ones; a_file_of_4_kib_physical_blocks has them";

/// Runs one family, suite or test. One URL, or two for two paths.
fn run(test: &str, urls: &[String]) -> Verdicts {
    run_with(&["-d"], test, urls)
}

fn run_with(options: &[&str], test: &str, urls: &[String]) -> Verdicts {
    let mut command = program("iscsi-test-cu", Duration::from_secs(240));
    command.args(options).args(["-v", "-t", test]).args(urls);
    let ended = finish(command);
    assert!(matches!(ended.code, Some(0 | 1)), "{test}: {:?}\n{}", ended.code, ended.text);
    read(&ended.text).unwrap_or_else(|why| panic!("{test}: {why}:\n{}", ended.text))
}

/// Reads the verbose output. An error when it does not say what became of each test.
fn read(output: &str) -> Result<Verdicts, String> {
    let mut verdicts: BTreeMap<String, Option<Verdict>> = BTreeMap::new();
    let (mut suite, mut current) = (String::new(), String::new());
    let mut skipped = Vec::new();
    for line in output.lines() {
        let word =
            |head: &str| line.trim_start().strip_prefix(head).and_then(|rest| rest.split_whitespace().next());
        if let Some(name) = word("Suite: ") {
            name.clone_into(&mut suite);
        }
        if let Some(name) = word("Test: ") {
            current = format!("{suite}.{name}");
            verdicts.insert(current.clone(), None);
        }
        let Some(verdict) = verdicts.get_mut(&current) else { continue };
        if line.contains("[SKIPPED]") {
            skipped.push(current.clone());
        }
        // In brackets it is about a command that a test may have expected to fail.
        if line.replace("[FAILED]", "").contains("FAILED") {
            *verdict = Some(Verdict::Failed);
        } else if line.trim_end().ends_with("passed") && verdict.is_none() {
            *verdict = Some(Verdict::Passed);
        }
    }
    // "tests total ran passed failed inactive". Where its count of failures agrees, a test whose last word is lost between
    // other words passed.
    let totals = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let totals = totals.into_iter().find(|words| words.first() == Some(&"tests") && words.len() > 4);
    let totals = totals.ok_or("it has no total")?;
    let count = |verdict| verdicts.values().filter(|known| **known == Some(verdict)).count().to_string();
    if totals[1] != verdicts.len().to_string() || totals[4] != count(Verdict::Failed) {
        return Err(format!("its total is another: {totals:?}"));
    }
    Ok(verdicts
        .into_iter()
        .map(|(name, verdict)| {
            let verdict = match verdict {
                Some(Verdict::Failed) => Verdict::Failed,
                _ if skipped.contains(&name) => Verdict::Skipped,
                _ => Verdict::Passed,
            };
            (name, verdict)
        })
        .collect())
}

/// Holds verdicts against the reasons for skips: nothing failed but `excused`, and what was skipped is exactly what the
/// reasons name. Keeps the table.
#[track_caller]
fn judge(title: &str, verdicts: &Verdicts, reasons: &[Reasons], excused: Reasons) {
    let reason = |table: Reasons, name: &str| {
        let suite = name.split('.').next().unwrap_or(name);
        table.iter().find(|(known, _)| *known == name || *known == suite).map(|(_, why)| (*why).to_owned())
    };
    let mut table = String::new();
    let mut wrong = Vec::new();
    let mut counts = [0; 3];
    for (name, verdict) in verdicts {
        let known = reasons.iter().find_map(|table| reason(table, name));
        let pardon = reason(excused, name);
        counts[*verdict as usize] += 1;
        match (verdict, known, pardon) {
            (Verdict::Skipped, Some(why), _) => writeln!(table, "skipped  {name}: {why}").unwrap(),
            (Verdict::Failed, _, Some(why)) => writeln!(table, "excused  {name}: {why}").unwrap(),
            (Verdict::Skipped, None, _) => wrong.push(format!("{name} was skipped")),
            (Verdict::Failed, _, None) => wrong.push(format!("{name} failed")),
            (Verdict::Passed, Some(why), _) => {
                wrong.push(format!("{name} passed, and was to be skipped: {why}"))
            }
            (Verdict::Passed, _, Some(why)) => wrong.push(format!("{name} passed, and was to fail: {why}")),
            (Verdict::Passed, None, None) => {}
        }
    }
    let [passed, failed, skipped] = counts;
    let file = format!("libiscsi-{}.txt", title.replace(' ', "-"));
    report(&file, &format!("{table}{title}: {passed} passed, {failed} failed, {skipped} skipped"));
    assert!(wrong.is_empty(), "{title}: {wrong:#?}");
}

/// The families iSCSI and SCSI: all 230 tests there are.
#[track_caller]
fn both_families(urls: &[String]) -> Verdicts {
    let mut verdicts = run("iSCSI", urls);
    assert_eq!(verdicts.len(), 15, "tests of family iSCSI");
    verdicts.extend(run("SCSI", urls));
    assert_eq!(verdicts.len(), 230, "tests of both families");
    verdicts
}

fn url(server: &crate::common::Serve, portal: usize, lun: u16, options: &str) -> String {
    let portal = server.ready["portals"][portal].as_str().unwrap();
    format!("iscsi://{portal}/{IQN}/{lun}{options}")
}

const HEADER_DIGEST: &str = "?header_digest=crc32c";
const HEADER_DIGEST_REQUIRED: &str = "[target.negotiation]\nheader_digest = \"required\"";

#[test]
fn one_path_without_digests() {
    if !need("iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:256M"]));
    let verdicts = both_families(&[url(&server, 0, 0, "")]);
    let reasons = [ANOTHER_DEVICE, NOT_ALLOWED, WRITABLE, ONE_PATH, SMALL_PHYSICAL_BLOCKS];
    judge("one path without digests", &verdicts, &reasons, &[]);
}

#[test]
fn two_paths_with_header_digests() {
    if !need("iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 2, &target(IQN, HEADER_DIGEST_REQUIRED, &["ram:256M"]));
    let urls = [0, 1].map(|portal| url(&server, portal, 0, HEADER_DIGEST));
    let reasons = [ANOTHER_DEVICE, NOT_ALLOWED, WRITABLE, SMALL_PHYSICAL_BLOCKS];
    judge("two paths with header digests", &both_families(&urls), &reasons, &[]);
}

#[test]
fn a_file_of_4_kib_physical_blocks() {
    if !need("iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{},size=256M,atomic=1M", directory.path().join("disk.img").display());
    let server = serve(directory.path(), 1, &target(IQN, HEADER_DIGEST_REQUIRED, &[&store]));
    let verdicts = both_families(&[url(&server, 0, 0, HEADER_DIGEST)]);
    // It asks for the status of LBA n + 1 and wants a first descriptor for LBA n + 8, the next physical block. SBC-3 5.4.2:
    // the first descriptor has the LBA that the CDB asks for. With one logical block in a physical one both are the same.
    let excused = ("GetLBAStatus.UnmapSingle", "SBC-3 5.4.2 wants another answer than this test");
    let reasons = [ANOTHER_DEVICE, NOT_ALLOWED, WRITABLE, ONE_PATH];
    judge("a file", &verdicts, &reasons, &[excused]);
}

#[test]
fn read_only_units() {
    if !need("iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let config = target(IQN, "", &["ram:64M"]) + "read_only = true\n";
    let server = serve(directory.path(), 1, &config);
    judge("read only", &run("SCSI.ReadOnly", &[url(&server, 0, 0, HEADER_DIGEST)]), &[], &[]);
}

#[test]
fn sanitized_units() {
    if !need("iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:64M", "ram:1024T"]));
    let sanitize = |test: &str, lun| {
        run_with(&["-d", "-S"], &format!("SCSI.Sanitize{test}"), &[url(&server, 0, lun, HEADER_DIGEST)])
    };
    let mut verdicts = sanitize("", 0);
    assert_eq!(verdicts.len(), 11);
    // It looks three seconds later whether the operation goes on, and a minute later whether it has ended.
    verdicts.extend(sanitize(".Reset", 1));
    judge("sanitized", &verdicts, &[NOT_ENCRYPTED], &[]);
}

/// Each test finds a target where no other test has been before.
#[test]
fn each_test_alone() {
    /// Some tests wait for seconds; most of these wait at once.
    const WORKERS: usize = 12;
    if !need("iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let mut list = program("iscsi-test-cu", Duration::from_secs(20));
    list.arg("-l");
    let list = finish(list).well();
    let tests: Vec<&str> =
        list.lines().filter(|line| line.starts_with("ALL.") && line.matches('.').count() == 2).collect();
    assert_eq!(tests.len(), 230);
    let name = |index: usize| format!("iqn.2004-10.com.example:{index}");
    let config: String = (0..tests.len()).map(|index| target(&name(index), "", &["ram:128M"])).collect();
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 2, &config);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut verdicts = Verdicts::new();
        while let Some((index, test)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            tests.get(index).map(|test| (index, test))
        } {
            let paths = if test.starts_with("ALL.MultipathIO") { 2 } else { 1 };
            let urls: Vec<String> = (0..paths)
                .map(|path| {
                    format!("iscsi://{}/{}/0", server.ready["portals"][path].as_str().unwrap(), name(index))
                })
                .collect();
            // It reads a variable of the suite's that only the other test of iSCSITMF sets: alone it fails on any target.
            let alone = if *test == "ALL.iSCSITMF.LUNResetSimpleAsync" { "ALL.iSCSITMF" } else { *test };
            verdicts.extend(run(alone, &urls));
        }
        verdicts
    };
    let verdicts: Verdicts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(verdicts.len(), 230);
    let reasons = [ANOTHER_DEVICE, NOT_ALLOWED, WRITABLE, SMALL_PHYSICAL_BLOCKS];
    judge("each test alone", &verdicts, &reasons, &[]);
}

#[test]
fn the_reader_tells_verdicts_apart() {
    let output = "Suite: A\n  Test: One ...passed\n  Test: Two ...    [SKIPPED] no.\npassed\n\
        Suite: B\n  Test: One ...FAILED\n    1. x.c:1 - CU_FAIL(\"[FAILED] y\")\n  \
        Test: Two ...    [FAILED] z\npassed    [FAILED] z\n\n\
        Run Summary: Type Total Ran Passed Failed Inactive\n tests 4 4 3 1 0\n";
    let verdicts = read(output).unwrap();
    let of = |name: &str| verdicts[name];
    assert_eq!(
        [of("A.One"), of("A.Two"), of("B.One"), of("B.Two")],
        [Verdict::Passed, Verdict::Skipped, Verdict::Failed, Verdict::Passed]
    );
    assert!(read(&output.replace("4 4 3 1", "4 4 2 2")).is_err());
    assert!(read("Suite: A\n  Test: One ...").is_err());
}
