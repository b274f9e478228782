//! The Linux kernel's initiator (a real Debian kernel with open-iscsi, in user-mode Linux) against our target:
//! `conform/linux-guest` boots it and runs the scenarios.

mod common;
mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Serve, Signal};
use support::{
    DIGESTS_REQUIRED, finish, left_out, need, program, report, secret_file, serve, serve_at, target,
};

const OFFERED: &str = "iqn.2004-10.com.example:offered";
const REQUIRED: &str = "iqn.2004-10.com.example:required";
const GUARDED: &str = "iqn.2004-10.com.example:guarded";

/// Where the guest's image is kept.
fn cache() -> PathBuf {
    let cache = std::env::var_os("LINUX_GUEST_CACHE").map(PathBuf::from);
    cache.unwrap_or_else(|| std::env::temp_dir().join("linux-guest-cache"))
}

/// Can the guest run here?
fn guest() -> bool {
    need("linux.uml", "user-mode-linux")
        && need("slirp4netns", "slirp4netns")
        && need("python3", "python3")
        && (cache().join("stamp").exists()
            || left_out("the guest's image is not built (as root: conform/linux-guest/build-image)"))
}

/// Runs scenarios and returns what the rig printed, when all checks passed and exactly `skipped` were skipped.
#[track_caller]
fn scenarios(title: &str, arguments: &[&str], scenarios: &str, skipped: &[&str]) -> String {
    let rig = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conform/linux-guest/run");
    let mut command = program(rig.to_str().unwrap(), Duration::from_secs(280));
    command.args(["--vm", "uml", "--lun", "0"]).args(arguments).arg("--").args(scenarios.split(' '));
    let ended = finish(command);
    report(&format!("linux-guest-{title}.txt"), &ended.text);
    assert_eq!(ended.code, Some(0), "{title}");
    let skips = ended.text.lines().filter_map(|line| line.strip_prefix("SKIP")?.split_whitespace().next());
    assert_eq!(skips.collect::<Vec<_>>(), skipped, "{title}");
    ended.text
}

/// A file with a secret, and its place.
fn secret(directory: &Path, name: &str, secret: &str) -> String {
    secret_file(directory, name, secret).display().to_string()
}

#[test]
fn it_finds_logs_in_and_proves_itself() {
    if !guest() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let chap = format!(
        "{DIGESTS_REQUIRED}\n[[target.chap.account]]\nname = \"guest\"\nsecret_file = \"{}\"\n\
        [target.chap.mutual]\nname = \"intact\"\nsecret_file = \"{}\"",
        secret(directory.path(), "in", "secret-of-the-guest"),
        secret(directory.path(), "out", "secret-of-the-target"),
    );
    let config = target(OFFERED, "", &["ram:64M"]) + &target(GUARDED, &chap, &["ram:64M"]);
    let server = serve(directory.path(), 1, &config);
    let text = scenarios(
        "login",
        &[
            "--target",
            &server.portal().to_string(),
            "--iqn",
            OFFERED,
            "--chap-iqn",
            GUARDED,
            "--chap",
            "guest:secret-of-the-guest",
            "--chap-in",
            "intact:secret-of-the-target",
            "--env",
            "RIG_CHAP_ALGS=MD5 SHA1 SHA256 SHA3-256",
        ],
        "discovery login chap",
        &[],
    );
    for check in
        ["chap-SHA3-256", "chap-SHA1", "chap-mutual-wrong", "login-hCRC32C-dCRC32C", "login-hNone-dNone"]
    {
        assert!(text.contains(&format!("PASS {check} ")), "{check}");
    }
    // The target tells the same story: what was refused, and that it was the proof.
    let refused = server.ls("logins");
    let refused = refused.as_array().unwrap().iter().filter(|login| login["accepted"] == false);
    let (given_up, refused): (Vec<_>, Vec<_>) =
        refused.partition(|login| login["rule"] == "given up by the initiator");
    assert!(!refused.is_empty() && refused.iter().all(|login| login["code"] == 0x0201), "{refused:?}");
    assert_eq!(
        given_up.len(),
        1,
        "the guest does not believe a target whose own secret is another one: {given_up:?}"
    );
}

/// File systems, SCSI by sg3-utils, verified random I/O, delay and loss, all with both digests required on both sides; and
/// the target killed and started again under load, its volume in a file.
#[test]
fn it_works_with_digests_required_and_outlives_the_target() {
    if !guest() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{},size=256M", directory.path().join("disk.img").display());
    let config = target(REQUIRED, DIGESTS_REQUIRED, &[&store]);
    let server = serve(directory.path(), 1, &config);
    let portal = server.portal();
    let restarts = Restarts::new(directory.path());
    std::thread::scope(|scope| {
        let restarter = scope.spawn(|| restarts.serve(server, portal, &config));
        let end = End(&restarts);
        scenarios(
            "work",
            &[
                "--target",
                &portal.to_string(),
                "--iqn",
                REQUIRED,
                "--hook",
                &format!("restart={}", restarts.hook()),
                "--env",
                "RIG_FIO_S=8",
                "--env",
                "RIG_REC_S=12",
                "--env",
                "RIG_NET_S=6",
            ],
            "fs sg fio recover netem",
            &[],
        );
        drop(end);
        assert_eq!(restarter.join().unwrap(), 1, "the target was to be killed once");
    });
}

/// A unit with protection information, to a kernel that sends none: a file system on it, and tuples by sg3-utils.
// covers: PI-06 PI-16
#[test]
fn it_uses_a_unit_with_protection_information() {
    if !guest() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(OFFERED, "", &["ram:256M,pi=1"]));
    let portal = server.portal().to_string();
    scenarios("pi", &["--target", &portal, "--iqn", OFFERED], "pi fs", &[]);
}

/// Writes with `RWF_ATOMIC`, where the guest's kernel has them (6.11): they reach the unit, which has a journal for them.
// covers: ATM-01 VPD-B0
#[test]
fn its_all_or_nothing_writes_reach_the_target() {
    if !guest() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk.img");
    let store = format!("file:{},size=64M,atomic=64K,pi=1", disk.display());
    let server = serve(directory.path(), 1, &target(OFFERED, "", &[&store]));
    let portal = server.portal().to_string();
    let kernel = fs::read_to_string(cache().join("uml-kver")).unwrap_or_default();
    let numbers: Vec<u32> = kernel.trim().split('.').map_while(|number| number.parse().ok()).collect();
    let skipped: &[&str] = if numbers >= vec![6, 11] { &[] } else { &["atomic"] };
    let arguments = ["--target", &portal, "--iqn", OFFERED, "--env", "RIG_ATOMIC_MAX=65536"];
    scenarios("atomic", &arguments, "atomic", skipped);
}

/// The reverse: our client against the kernel's target, with both digests required by ours.
#[test]
fn our_client_works_with_the_kernel_s_target() {
    if !guest() {
        return;
    }
    let log = client_of_the_kernel("lio", "?header_digest=crc32c&data_digest=crc32c", "RIG_LIO_BACK=file");
    assert!(log.contains("header CRC32C, data CRC32C"), "{log}");
    assert!(log.contains("failed: 0 header digests, 0 data digests"), "{log}");
    assert!(!log.contains("InOrder=No"), "{log}");
}

/// The same with sequences in any order. Not with DataPDUInOrder=No: there the kernel's target (6.1) cuts a read by the length
/// that the initiator expects, and closes the connection at every command with less data, such as INQUIRY. And with the kernel's
/// own lengths: with a MaxBurstLength below MaxRecvDataSegmentLength its R2Ts are longer than MaxBurstLength.
// covers: DAT-05 KEY-18
#[test]
fn our_client_takes_the_sequences_of_the_kernel_s_target_in_any_order() {
    if !guest() {
        return;
    }
    let options = "?header_digest=crc32c&data_digest=crc32c&data_sequence_in_order=0";
    let log = client_of_the_kernel("lio-any-order", options, "RIG_LIO_ORDER=No");
    assert!(log.contains(", DataSequenceInOrder=No"), "{log}");
    assert!(log.contains("failed: 0 header digests, 0 data digests"), "{log}");
}

/// What our client says that uses a volume of the kernel's target with these options in its URL. Every byte comes back.
#[track_caller]
fn client_of_the_kernel(title: &str, options: &str, knob: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let image: Vec<u8> = (0..8u32 << 20).map(|n| (n.wrapping_mul(2654435761) >> 24) as u8).collect();
    fs::write(path("image"), &image).unwrap();
    let port = support::free_port();
    let portal = format!("iscsi://127.0.0.1:{port}");
    let url = format!("{portal}/iqn.2003-01.org.linux-iscsi:rig/0{options}");
    // Each step's words go to the report; the first that fails ends it.
    let script = format!(
        "set -e\nexec >{log} 2>&1\nintact={intact}\n\
        # The address that the kernel tells of is the guest's own, behind a translation.\n\
        $intact ls {portal} | grep -F iqn.2003-01.org.linux-iscsi:rig\n$intact inq '{url}'\n$intact doctor '{url}'\n\
        $intact cp --verify {image} '{url}'\n$intact cp '{url}' {back}\n\
        $intact bench '{url}' --overwrite --rw mix --block 16k --depth 8 --time 2 --digests on\n",
        log = path("log"),
        intact = env!("CARGO_BIN_EXE_intact"),
        image = path("image"),
        back = path("back"),
    );
    fs::write(path("peer"), script).unwrap();
    let hook = format!("peer=sh {}", path("peer"));
    let forward = format!("{port}:3260");
    let arguments = ["--hostfwd", &forward, "--env", knob, "--hook", &hook];
    let run = || scenarios(title, &arguments, "lio", &[]);
    // The words of the client first, which say more than the guest's.
    let result = std::panic::catch_unwind(run);
    let log = fs::read_to_string(path("log")).unwrap_or_default();
    report(&format!("linux-guest-{title}-client.txt"), &log);
    result.unwrap_or_else(|_| panic!("the scenario failed; our client said:\n{log}"));
    assert!(fs::read(path("back")).unwrap()[..image.len()] == image, "other bytes came back");
    log
}

/// Two pipes by which the rig's hook asks for a restart and hears that it is done.
struct Restarts {
    ask: PathBuf,
    done: PathBuf,
}

impl Restarts {
    fn new(directory: &Path) -> Self {
        let (ask, done) = (directory.join("ask"), directory.join("done"));
        assert!(Command::new("mkfifo").args([&ask, &done]).status().unwrap().success());
        Self { ask, done }
    }

    fn hook(&self) -> String {
        format!("echo restart >{} && read word <{}", self.ask.display(), self.done.display())
    }

    /// Kills the server and starts it again whenever asked. How often that was.
    fn serve(&self, mut server: Serve, portal: SocketAddr, config: &str) -> usize {
        let mut count = 0;
        while fs::read_to_string(&self.ask).unwrap() == "restart\n" {
            server.signal(Signal::KILL);
            server.wait();
            server = serve_at(self.ask.parent().unwrap(), &[portal], config);
            fs::write(&self.done, "done\n").unwrap();
            count += 1;
        }
        count
    }
}

/// Ends [`Restarts::serve`], also when the scenarios fail.
struct End<'a>(&'a Restarts);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let _ = fs::write(&self.0.ask, "end\n");
    }
}
