//! The Linux kernel's initiator (a real Debian kernel with open-iscsi, in user-mode Linux) against our target:
//! `conform/linux-guest` boots it and runs the scenarios.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::guest::{Hooks, cache, guest};
use crate::support::{DIGESTS_REQUIRED, kill, report, secret_file, serve, serve_at, target};

const OFFERED: &str = "iqn.2004-10.com.example:offered";
const REQUIRED: &str = "iqn.2004-10.com.example:required";
const GUARDED: &str = "iqn.2004-10.com.example:guarded";

/// Runs scenarios; see [`crate::support::guest::scenarios`].
#[track_caller]
fn scenarios(title: &str, arguments: &[&str], names: &str, skipped: &[&str]) -> String {
    crate::support::guest::scenarios(title, Duration::from_secs(280), arguments, names, skipped)
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
    let (hooks, mut restarts) = (Hooks::new(directory.path()), 0);
    let mut server = Some(server);
    let restart = |name: &str| {
        assert_eq!(name, "restart");
        kill(&mut server);
        server = Some(serve_at(directory.path(), &[portal], &config));
        restarts += 1;
        0
    };
    let (portal_text, hook) = (portal.to_string(), hooks.option("restart"));
    let arguments = ["--target", &portal_text, "--iqn", REQUIRED, &hook];
    let knobs = ["--env", "RIG_FIO_S=8", "--env", "RIG_REC_S=12", "--env", "RIG_NET_S=6"];
    let arguments = [&arguments[..], &knobs].concat();
    hooks.answer(restart, || scenarios("work", &arguments, "fs sg fio recover netem", &[]));
    assert_eq!(restarts, 1, "the target was to be killed once");
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
    let log = client_of_the_kernel(
        "lio",
        "?header_digest=crc32c&data_digest=crc32c",
        ["RIG_LIO_BACK=file", "RIG_LIO_MC=8"],
    );
    // How many of the eight connections stand after a second is the guest's matter.
    assert!(log.contains("\"depth\":40,") && log.contains("\"digests_failed\":0,\"errors\":0,"), "{log}");
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
    let log = client_of_the_kernel("lio-any-order", options, ["RIG_LIO_ORDER=No", "RIG_LIO_MC=8"]);
    assert!(log.contains(", DataSequenceInOrder=No"), "{log}");
    assert!(log.contains("failed: 0 header digests, 0 data digests"), "{log}");
}

/// What our client says that uses a volume of the kernel's target with these options in its URL. Every byte comes back.
#[track_caller]
fn client_of_the_kernel(title: &str, options: &str, knobs: [&str; 2]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let image: Vec<u8> = (0..8u32 << 20).map(|n| (n.wrapping_mul(2654435761) >> 24) as u8).collect();
    fs::write(path("image"), &image).unwrap();
    let port = crate::support::free_port();
    let portal = format!("iscsi://127.0.0.1:{port}");
    let url = format!("{portal}/iqn.2003-01.org.linux-iscsi:rig/0{options}");
    // Each step's words go to the report; the first that fails ends it.
    let script = format!(
        "set -e\nexec >{log} 2>&1\nintact={intact}\n\
        # The address that the kernel tells of is the guest's own, behind a translation.\n\
        $intact ls {portal} | grep -F iqn.2003-01.org.linux-iscsi:rig\n$intact inq '{url}'\n$intact doctor '{url}'\n\
        $intact cp --verify {image} '{url}'\n$intact cp '{url}' {back}\n\
        $intact bench '{url}' --overwrite --rw mix --block 16k --depth 8 --time 2 --digests on\n\
        # The workload of the 2005 paper's Table 2.\n\
        $intact bench '{url}&connections=8&erl=0&max_recv_data_segment_length=8192' --block 32k --depth 40 --time 1 --warmup 0s --digests on --json\n",
        log = path("log"),
        intact = env!("CARGO_BIN_EXE_intact"),
        image = path("image"),
        back = path("back"),
    );
    fs::write(path("peer"), script).unwrap();
    let hook = format!("peer=sh {}", path("peer"));
    let forward = format!("{port}:3260");
    let arguments = ["--hostfwd", &forward, "--env", knobs[0], "--env", knobs[1], "--hook", &hook];
    let run = || scenarios(title, &arguments, "lio", &[]);
    // The words of the client first, which say more than the guest's.
    let result = std::panic::catch_unwind(run);
    let log = fs::read_to_string(path("log")).unwrap_or_default();
    report(&format!("linux-guest-{title}-client.txt"), &log);
    result.unwrap_or_else(|_| panic!("the scenario failed; our client said:\n{log}"));
    assert!(fs::read(path("back")).unwrap()[..image.len()] == image, "other bytes came back");
    log
}
