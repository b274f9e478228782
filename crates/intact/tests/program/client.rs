//! The client commands as people use them, on a server of our own: ls, inq, cp, bench, doctor.

use std::path::Path;
use std::process::Output;

use crate::common::{Serve, intact, text};
use crate::support::{secret_file, serve, target};
use serde_json::Value;

const TARGET: &str = "iqn.2026-01.org.example:disk";

struct Lab {
    directory: tempfile::TempDir,
    serve: Serve,
}

impl Lab {
    fn new(luns: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut arguments = vec!["--target", TARGET];
        luns.iter().for_each(|lun| arguments.extend(["--lun", *lun]));
        let serve = Serve::start(directory.path(), &arguments);
        Self { directory, serve }
    }

    fn portal(&self) -> String {
        format!("iscsi://{}", self.serve.portal())
    }

    fn url(&self, lun: u16) -> String {
        format!("{}/{TARGET}/{lun}", self.portal())
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run_in(self.directory.path(), arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
    }
}

fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = intact();
    for variable in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env_remove(format!("LIBISCSI_CHAP_{variable}"));
    }
    command.env("XDG_STATE_HOME", directory).args(arguments).output().unwrap()
}

/// Bytes with long runs of zeros, not a multiple of a block long.
fn image(len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect();
    bytes[len / 4..len / 2].fill(0);
    bytes
}

#[test]
fn ls_shows_targets_luns_and_sizes() {
    let lab = Lab::new(&["ram:64M", "ram:1G"]);
    let listed = lab.json(&["ls", &lab.portal(), "--json"]);
    assert_eq!(listed[0]["target"], TARGET);
    assert_eq!(listed[0]["luns"][0]["bytes"], 64 << 20);
    assert_eq!(listed[0]["luns"][1]["bytes"], 1 << 30);
    assert_eq!(listed[0]["luns"][1]["url"], lab.url(1));
    let shown = text(&lab.run(&["ls", &lab.portal()]));
    assert!(shown.contains("64 MiB") && shown.contains(&lab.url(1)), "{shown}");
    let one = lab.json(&["ls", &format!("{}/{TARGET}", lab.portal()), "--json"]);
    assert_eq!(one.as_array().unwrap().len(), 1);
    let absent = lab.run(&["ls", &format!("{}/iqn.2026-01.org.example:none", lab.portal())]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent).contains("0203") && text(&absent).contains("remedy"), "{}", text(&absent));
}

#[test]
fn inq_tells_what_a_lun_is() {
    let lab = Lab::new(&["ram:64M"]);
    let told = lab.json(&["inq", &lab.url(0), "--json"]);
    assert_eq!((told["bytes"].as_u64(), told["device_type"].as_u64()), (Some(64 << 20), Some(0)));
    assert!(!told["designators"].as_array().unwrap().is_empty());
    assert!(told["pages"].as_array().unwrap().contains(&Value::from("b0")));
    let shown = text(&lab.run(&["inq", &lab.url(0)]));
    assert!(shown.contains("64 MiB") && shown.contains("Serial number"), "{shown}");
    let page = text(&lab.run(&["inq", &lab.url(0), "--page", "83"]));
    assert!(page.starts_with("0000  00 83"), "{page}");
    for bad in [lab.portal(), lab.url(9), "nonsense".to_owned()] {
        assert!(!lab.run(&["inq", &bad]).status.success(), "{bad}");
    }
}

#[test]
fn a_session_may_have_several_portals_and_addresses() {
    let lab = Lab::new(&["ram:64M"]);
    let portal = lab.serve.portal().to_string();
    let (url, several) = (lab.url(0), ["--connections", "2", "--local", "127.0.0.2", "--local", "127.0.0.3"]);
    for further in [portal.as_str(), "all"] {
        let told = lab.json(&[&["inq", &url, "--json", "--portal", further][..], &several].concat());
        assert_eq!(told["bytes"].as_u64(), Some(64 << 20));
    }
    assert_eq!(lab.run(&["inq", &url, "--portal", "::1"]).status.code(), Some(2));
}

#[test]
fn reset_resets_and_tells_what_the_target_said() {
    let lab = Lab::new(&["ram:16M"]);
    for option in [None, Some("--clear-task-set"), Some("--target-warm"), Some("--target-cold")] {
        let mut arguments = vec!["reset"];
        arguments.extend(option);
        let url = lab.url(0);
        arguments.extend([url.as_str(), "--json"]);
        let told = lab.json(&arguments);
        assert_eq!(told["response"], Value::from(0), "{option:?}: {told}");
    }
    let missing = lab.run(&["reset", &lab.url(9)]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing));
    assert!(text(&missing).contains("LUN does not exist"), "{}", text(&missing));
    assert_eq!(lab.run(&["reset", &lab.portal()]).status.code(), Some(2));
    assert_eq!(lab.run(&["reset", &lab.url(0), "--target-warm", "--target-cold"]).status.code(), Some(2));
}

#[test]
fn cp_brings_an_image_there_and_back_with_its_holes() {
    let lab = Lab::new(&["ram:64M", "ram:16M"]);
    let bytes = image(10_000_123);
    std::fs::write(lab.path("a"), &bytes).unwrap();
    let there = lab.json(&["cp", "--verify", "--json", &lab.path("a"), &lab.url(0)]);
    assert_eq!(there["bytes"], bytes.len());
    assert_eq!(there["verified"], true);
    assert!(there["zero_bytes"].as_u64().unwrap() >= 1 << 20, "{there}");
    let back = lab.json(&["cp", "--verify", "--json", &lab.url(0), &lab.path("b")]);
    assert_eq!(back["bytes"], 64 << 20);
    assert!(back["zero_bytes"].as_u64().unwrap() > 50 << 20, "what is not allocated is not read: {back}");
    let copied = std::fs::read(lab.path("b")).unwrap();
    assert!(copied[..bytes.len()] == bytes && copied[bytes.len()..].iter().all(|&byte| byte == 0));
    // From one LUN to another, through a file that is as large as it.
    std::fs::write(lab.path("c"), &copied[..16 << 20]).unwrap();
    assert!(lab.run(&["cp", "-q", &lab.path("c"), &lab.url(1)]).status.success());
    let across = lab.run(&["cp", "-q", "--verify", &lab.url(1), &lab.url(0)]);
    assert!(across.status.success(), "{}", text(&across));
    // Everything is read, and nothing is kept. With a rate a chunk has 128 KiB, so more of them are zero.
    let written = |rate: &[&str]| {
        let nowhere = lab.json(&[&["cp", "--json", &lab.url(1), "/dev/null"], rate].concat());
        let figure = |name: &str| nowhere[name].as_u64().unwrap();
        assert_eq!(figure("read_bytes") + figure("hole_bytes"), 16 << 20, "{nowhere}");
        assert_eq!(figure("written_bytes") + figure("zero_bytes"), 16 << 20, "{nowhere}");
        figure("written_bytes")
    };
    let not_zero = |chunk: usize| {
        let chunks = copied[..16 << 20].chunks(chunk);
        chunks.filter(|bytes| bytes.iter().any(|byte| *byte != 0)).map(<[u8]>::len).sum::<usize>() as u64
    };
    assert_eq!(written(&[]), not_zero(1 << 20));
    assert_eq!(written(&["--rate", "1G"]), not_zero(128 << 10));
    assert!(not_zero(128 << 10) < not_zero(1 << 20));
}

#[test]
fn cp_says_why_it_cannot() {
    let lab = Lab::new(&["ram:16M"]);
    std::fs::write(lab.path("large"), vec![1; 17 << 20]).unwrap();
    std::fs::write(lab.path("small"), [1; 512]).unwrap();
    let cases: [(&str, String, String, i32, &str); 5] = [
        ("too large", lab.path("large"), lab.url(0), 1, "larger LUN"),
        ("not there", lab.path("none"), lab.url(0), 1, "cannot be read"),
        ("no LUN", lab.path("small"), format!("{}/{TARGET}", lab.portal()), 2, "no LUN"),
        ("itself", lab.path("small"), lab.path("small"), 2, "same file"),
        (
            "a directory",
            lab.path("small"),
            lab.directory.path().to_str().unwrap().to_owned(),
            1,
            "cannot be written",
        ),
    ];
    for (what, source, destination, code, words) in cases {
        let output = lab.run(&["cp", &source, &destination]);
        assert_eq!(output.status.code(), Some(code), "{what}: {}", text(&output));
        assert!(text(&output).contains(words), "{what}: {}", text(&output));
    }
    let state = format!("--state={}", lab.path("state"));
    for option in ["--verify", "--changed-only", &state] {
        let output = lab.run(&["cp", option, &lab.path("small"), "/dev/null"]);
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output));
        assert!(text(&output).contains("keeps nothing"), "{option}: {}", text(&output));
    }
    assert!(!std::fs::exists(lab.path("state")).unwrap());
    assert_eq!(std::fs::read(lab.path("small")).unwrap(), [1; 512], "the source is as it was");
}

#[test]
fn bench_measures_side_by_side_and_writes_only_when_told() {
    let lab = Lab::new(&["ram:64M"]);
    let short = ["--time", "200ms", "--warmup", "50ms", "--depth", "8"];
    let with = |more: &[&str]| {
        let url = lab.url(0);
        let mut arguments = vec!["bench", "--json"];
        arguments.extend(short);
        arguments.extend(more);
        arguments.push(&url);
        lab.json(&arguments)
    };
    let both = with(&["--digests", "both"]);
    assert_eq!(both.as_array().unwrap().len(), 2);
    assert_eq!((&both[0]["data_digest"], &both[1]["data_digest"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!(both[0]["digests_verified"], 0);
    for run in both.as_array().unwrap() {
        assert!(run["reads"].as_u64().unwrap() > 0 && run["errors"] == 0, "{run}");
        assert!(run["cpu_seconds_per_100k_ios"].as_f64().unwrap() > 0.0);
    }
    assert!(both[1]["digests_verified"].as_u64().unwrap() >= both[1]["reads"].as_u64().unwrap());
    let mix =
        with(&["--rw", "mix", "--overwrite", "--block", "64k", "--pattern", "sequential", "--sessions", "2"]);
    assert!(mix[0]["writes"].as_u64().unwrap() > 0 && mix[0]["reads"].as_u64().unwrap() > 0, "{mix}");
    let auto = with(&["--connections", "auto"]);
    let (sessions, depth) = (auto[0]["sessions"].as_u64().unwrap(), auto[0]["depth"].as_u64().unwrap());
    assert!((1..=8).contains(&sessions) && depth == 8u64.div_ceil(sessions), "{auto}");
    assert_eq!(lab.run(&["bench", "--sessions", "0", &lab.url(0)]).status.code(), Some(2));
    let timid = lab.run(&["bench", "--rw", "write", &lab.url(0)]);
    assert_eq!(timid.status.code(), Some(2));
    assert!(text(&timid).contains("--overwrite"), "{}", text(&timid));
    assert_eq!(lab.run(&["bench", "--block", "777", &lab.url(0)]).status.code(), Some(2));
    let shown = text(&lab.run(&["bench", "--time", "0.1", "--warmup", "0", &lab.url(0)]));
    assert!(shown.contains("IOPS") && shown.contains("p99.9"), "{shown}");
}

/// More sessions are tried, and the target refuses them: the load goes on with the one that there is.
#[test]
fn bench_with_auto_takes_a_target_of_one_session_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!("[limits]\nmax_sessions = 1\n{}", target(TARGET, "", &["ram:16M"]));
    let server = serve(directory.path(), 1, &config);
    let url = format!("iscsi://{}/{TARGET}/0", server.portal());
    let run = intact()
        .args(["bench", "--connections", "auto", "--time", "100ms", "--json", &url])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", text(&run));
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&report[0]["sessions"], &report[0]["depth"]), (&1.into(), &32.into()));
}

#[test]
fn doctor_finds_a_healthy_target_healthy_and_names_what_is_not() {
    let lab = Lab::new(&["ram:16M"]);
    let steps = lab.json(&["doctor", &lab.url(0), "--json"]);
    let names: Vec<&str> =
        steps.as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    for expected in ["resolve", "connect", "login", "digests", "ping", "LUN", "read", "session"] {
        assert!(names.contains(&expected), "{names:?}");
    }
    assert!(steps.as_array().unwrap().iter().all(|step| step["verdict"] == "ok"), "{steps}");
    let shown = text(&lab.run(&["doctor", &lab.url(0)]));
    assert!(shown.contains("T> HeaderDigest=CRC32C"), "{shown}");
    let discovery = lab.json(&["doctor", &lab.portal(), "--json"]);
    assert_eq!(discovery[1]["step"], "discovery");
    let wrong = lab.run(&["doctor", &format!("{}/iqn.2026-01.org.example:none/0", lab.portal())]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = text(&wrong);
    assert!(said.contains("RFC 7143 11.13.5") && said.contains("remedy"), "{said}");
}

/// A block of the file below a LUN changes behind the target's back.
fn flip(path: &str, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
}

// covers: PI-17 PI-18
#[test]
fn pi_18_a_scrub_lists_the_bad_blocks_and_every_verb_takes_protection_information() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk").to_str().unwrap().to_owned();
    let file = format!("file:{disk},size=16M,pi=1");
    let luns = [&file, "ram:16M,pi=2,block=4096", "ram:16M"];
    let lab = Lab::new(&luns);
    std::fs::write(lab.path("image"), image(5_000_000)).unwrap();
    for lun in 0..2 {
        let url = format!("{}?pi=1&app_tag=beef", lab.url(lun));
        let copied = lab.run(&["cp", &lab.path("image"), &url]);
        assert!(copied.status.success(), "{}", text(&copied));
        assert!(lab.run(&["cp", &url, &lab.path("back")]).status.success());
        let back = std::fs::read(lab.path("back")).unwrap();
        assert!(back[..5_000_000] == image(5_000_000) && back[5_000_000..].iter().all(|&byte| byte == 0));
        let bench =
            lab.json(&["bench", &url, "--json", "--time", "200ms", "--warmup", "0", "--block", "64k"]);
        assert!(bench[0]["errors"] == 0 && bench[0]["reads"].as_u64().unwrap() > 0, "{bench}");
        let write =
            ["bench", &url, "--json", "--rw", "mix", "--overwrite", "--time", "200ms", "--warmup", "0"];
        assert_eq!(lab.json(&write)[0]["errors"], 0);
        let healthy = lab.json(&["doctor", &url, "--json"]);
        assert!(healthy.as_array().unwrap().iter().all(|step| step["verdict"] == "ok"), "{healthy}");
        let scrubbed = lab.json(&["scrub", &url, "--json", "--rate", "1G"]);
        assert_eq!((&scrubbed["bytes"], &scrubbed["complete"]), (&(16 << 20).into(), &true.into()));
        assert_eq!(lab.json(&["inq", &url, "--json"])["protection"], lun + 1);
        let other = lab.run(&["scrub", &url.replace("beef", "beee")]);
        assert_eq!(other.status.success(), lun == 0, "in type 2 the target checks application tags");
    }
    // Behind everybody's back, in two blocks, whose last writes are in their place: the start of a server puts them there.
    drop(lab);
    let lab = Lab::new(&luns);
    flip(&disk, 100 * 512 + 7);
    flip(&disk, 9000 * 512 + 300);
    for query in ["", "?pi=1"] {
        let url = format!("{}{query}", lab.url(0));
        let output = lab.run(&["scrub", &url, "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let bad: Vec<_> = report["bad"].as_array().unwrap().iter().map(|bad| &bad["lba"]).collect();
        assert_eq!(bad, [100, 9000], "{report}");
        assert!(report["bad"][0]["field"] == "guard" && report["complete"] == true);
        let steps = lab.run(&["doctor", &url, "--json"]);
        assert_eq!(steps.status.code(), Some(1));
        let steps: Value = serde_json::from_slice(&steps.stdout).unwrap();
        let step =
            |name: &str| steps.as_array().unwrap().iter().find(|step| step["step"] == name).unwrap().clone();
        assert!(step("read")["what"].as_str().unwrap().contains("guard of block 100"), "{steps}");
        let failures = &step("session")["failures"];
        assert_eq!((&failures["guards"], &failures["data_digests"]), (&1.into(), &0.into()), "{failures}");
        assert_eq!((&failures["application_tags"], &failures["reference_tags"]), (&0.into(), &0.into()));
    }
    let first = lab.run(&["scrub", &lab.url(0), "--json", "--most", "1"]);
    let report: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(first.status.code() == Some(1) && report["complete"] == false, "{report}");
    assert_eq!(
        (report["bad"].as_array().unwrap().len(), &report["bad"][0]["lba"]),
        (1, &100.into()),
        "{report}"
    );
    let pipe = lab.run(&["cp", "/dev/zero", &lab.url(2)]);
    assert!(pipe.status.code() == Some(1) && text(&pipe).contains("neither a file nor a block device"));
    let no_time = lab.run(&["bench", &lab.url(0), "--runtime", "0"]);
    assert!(no_time.status.code() == Some(2) && text(&no_time).contains("measures nothing"));
    let without_rate = lab.run(&["scrub", &lab.url(0), "--rate", "0"]);
    assert!(without_rate.status.code() == Some(2) && text(&without_rate).contains("leave it out"));
    // One that has none.
    for verb in [vec!["doctor"], vec!["scrub"], vec!["bench", "--time", "100ms"]] {
        let url = format!("{}?pi=1", lab.url(2));
        let output = lab.run(&[&verb[..], &[&url]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains("leave out pi=1"), "{}", text(&output));
    }
}

#[test]
fn nothing_listens_no_such_host_and_no_url_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = run_in(directory.path(), &["ls", &format!("iscsi://{free}")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("nothing listens"), "{}", text(&refused));
    let nowhere = run_in(directory.path(), &["doctor", "iscsi://host.invalid"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere).contains("cannot be resolved"), "{}", text(&nowhere));
    for bad in ["iscsi://", "iscsi://h:0", "iscsi://joe@h"] {
        assert_eq!(run_in(directory.path(), &["ls", bad]).status.code(), Some(2), "{bad}");
    }
}

// covers: SEC-15
#[test]
fn a_password_is_in_no_output() {
    let lab = Lab::new(&["ram:16M"]);
    let secret = "hunter2hunter2";
    std::fs::write(lab.path("password"), format!("{secret}\n")).unwrap();
    let with = lab.url(0).replace("iscsi://", &format!("iscsi://joe%{secret}@"));
    let without = lab.url(0).replace("iscsi://", "iscsi://joe@");
    let file = lab.path("password");
    for arguments in [
        vec!["doctor", &with],
        vec!["inq", &with, "--json"],
        vec!["doctor", &without, "--password-file", &file],
        vec!["ls", &with],
    ] {
        let output = lab.run(&arguments);
        assert!(!text(&output).contains("hunter2"), "{}", text(&output));
        assert!(output.status.success(), "a target without CHAP takes who has a password: {}", text(&output));
    }
    assert!(lab.run(&["inq", &without]).status.code() == Some(2), "a user without a password");
}

// covers: SEC-15
#[test]
fn who_is_refused_for_want_of_a_proof_is_told_how_to_give_one() {
    let directory = tempfile::tempdir().unwrap();
    let secret = secret_file(directory.path(), "secret", "the-right-secret");
    let account = format!("[[target.chap.account]]\nname = \"joe\"\nsecret_file = \"{}\"", secret.display());
    let server = serve(directory.path(), 1, &target(TARGET, &account, &["ram:16M"]));
    let url = |user: &str| format!("iscsi://{user}{}/{TARGET}/0", server.portal());
    for (user, remedy) in
        [("", "LIBISCSI_CHAP_USERNAME"), ("joe%the-wrong-secret@", "check the CHAP name and secret")]
    {
        for command in ["inq", "ls", "doctor"] {
            let url = if command == "ls" { url(user).replace("/0", "") } else { url(user) };
            let refused = run_in(directory.path(), &[command, &url]);
            assert_eq!(refused.status.code(), Some(1));
            let said = text(&refused);
            assert!(said.contains(remedy) && !said.contains("wrong-secret"), "{command}: {said}");
        }
    }
    let password = secret.display().to_string();
    let told = run_in(directory.path(), &["inq", &url("joe@"), "--password-file", &password]);
    assert!(told.status.success() && !text(&told).contains("right-secret"), "{}", text(&told));
    let missing = run_in(directory.path(), &["inq", &url("joe%the-right-secret@").replace("/0", "/7")]);
    assert!(
        missing.status.code() == Some(1) && text(&missing).contains("`intact ls` shows"),
        "{}",
        text(&missing)
    );
}

#[test]
fn a_secret_in_the_command_line_is_warned_of_and_not_repeated() {
    // Nobody listens there: the warning comes before anything else.
    let nobody = format!("127.0.0.1:{}", crate::support::free_port());
    let url = format!(
        "iscsi://me%hidden-one@{nobody}/iqn.2026-01.org.example:disk/0?target_user=t&target_password=hidden-two"
    );
    let said = text(&crate::common::run(&["inq", &url]));
    for what in
        ["the password stands", "--password-file", "LIBISCSI_CHAP_PASSWORD", "LIBISCSI_CHAP_TARGET_PASSWORD"]
    {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert!(!said.contains("hidden"), "{said}");
    let without = format!("iscsi://{nobody}/iqn.2026-01.org.example:disk/0");
    assert!(!text(&crate::common::run(&["inq", &without])).contains("warning"));
}
