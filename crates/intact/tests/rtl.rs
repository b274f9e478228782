//! File systems through the circuit: an image with ext4 goes to a target by `--engine rtl`, is verified, and comes back by it. A session
//! without an engine must read the same bytes, and e2fsck must find nothing to mend. Against our target, Debian's tgt, and the
//! target of the Linux kernel.
//!
//! Built with the feature `rtl`; `make rtl` runs it.
#![forbid(unsafe_code)]

#[path = "program/common/mod.rs"]
mod common;
#[path = "program/support/mod.rs"]
mod support;
#[path = "../../initiator/tests/support/mod.rs"]
mod tgt;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::guest::{guest, scenarios};
use support::{DIGESTS_REQUIRED, IQN, finish, need, program, report, serve, target, tool};

const IMAGE: &str = "6M";
const RTL: &str = "engine=rtl&header_digest=crc32c&data_digest=crc32c";
/// The circuit is simulated cycle by cycle. Only a hang takes that long.
const LIMIT: Duration = Duration::from_secs(570);

fn tools() -> bool {
    need("mkfs.ext4", "e2fsprogs") && need("e2fsck", "e2fsprogs")
}

/// An image with a file system that is full of files of all lengths.
fn image(directory: &Path) -> PathBuf {
    let (files, image) = (directory.join("files"), directory.join("image"));
    fs::create_dir(&files).unwrap();
    let mut random = fastrand::Rng::with_seed(18);
    for n in 0..40 {
        let bytes: Vec<u8> = (0..random.usize(1..150_000)).map(|_| random.u8(..)).collect();
        fs::write(files.join(format!("file{n}")), bytes).unwrap();
    }
    let (from, to) = (files.display().to_string(), image.display().to_string());
    tool("mkfs.ext4", &["-q", "-F", "-d", &from, &to, IMAGE]).well();
    image
}

/// The script of all steps; the first that fails ends it.
fn script(directory: &Path, plain: &str) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    let more = if plain.contains('?') { '&' } else { '?' };
    format!(
        "set -ex\nintact={intact}\nexport PATH=$PATH:/usr/sbin:/sbin\n\
         $intact cp --timeout 300 --verify {image} '{plain}{more}{RTL}'\n\
         $intact cp --timeout 300 '{plain}{more}{RTL}' {back}\n\
         $intact cp '{plain}' {seen}\n\
         e2fsck -fn {back}\n",
        intact = env!("CARGO_BIN_EXE_intact"),
        image = path("image"),
        back = path("back"),
        seen = path("seen"),
    )
}

/// What came back through the circuit, and what a session without an engine saw, are the image.
#[track_caller]
fn compare(directory: &Path) {
    let image = fs::read(directory.join("image")).unwrap();
    for name in ["back", "seen"] {
        let other = fs::read(directory.join(name)).unwrap();
        assert!(other[..image.len()] == image[..], "{name} is not the image");
    }
}

/// Runs all steps against a target at this URL.
#[track_caller]
fn there_and_back(title: &str, directory: &Path, plain: &str) {
    image(directory);
    let mut command = program("sh", LIMIT);
    command.args(["-c", &script(directory, plain)]);
    let ended = finish(command);
    report(&format!("rtl-{title}.txt"), &ended.text);
    ended.well();
    compare(directory);
}

#[test]
fn a_file_system_on_our_target() {
    if !tools() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, DIGESTS_REQUIRED, &["ram:8M"]));
    there_and_back("intact", directory.path(), &format!("iscsi://{}/{IQN}/0", server.portal()));
}

#[test]
fn a_file_system_on_tgt() {
    if !tools() {
        return;
    }
    let Some(server) = tgt::Tgt::with_lun_of(8 << 20) else { return };
    let directory = tempfile::tempdir().unwrap();
    there_and_back("tgt", directory.path(), &server.url("", ""));
}

#[test]
fn a_file_system_on_the_target_of_the_linux_kernel() {
    if !tools() || !guest() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    image(directory.path());
    let port = support::free_port();
    let (log, peer) = (directory.path().join("log"), directory.path().join("peer"));
    let url = format!("iscsi://127.0.0.1:{port}/iqn.2003-01.org.linux-iscsi:rig/0");
    fs::write(&peer, format!("exec >{} 2>&1\n{}", log.display(), script(directory.path(), &url))).unwrap();
    let (hook, forward) = (format!("peer=sh {}", peer.display()), format!("{port}:3260"));
    let arguments =
        ["--hostfwd", &forward, "--env", "RIG_LIO_BACK=file", "--env", "RIG_LIO_MB=8", "--hook", &hook];
    let run = || scenarios("rtl-lio", LIMIT, &arguments, "lio", &[]);
    // The words of the client first, which say more than the guest's.
    let result = std::panic::catch_unwind(run);
    let said = fs::read_to_string(&log).unwrap_or_default();
    report("rtl-lio-client.txt", &said);
    result.unwrap_or_else(|_| panic!("the scenario failed; our client said:\n{said}"));
    compare(directory.path());
}

/// What the option means is the same with a circuit as without one.
#[test]
fn several_connections_are_refused_and_level_2_works() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:8M"]));
    let url = format!("iscsi://{}/{IQN}/0", server.portal());
    let refused = common::run(&["inq", "--engine", "rtl", "--connections", "2", &url]);
    assert!(!refused.status.success());
    assert!(common::text(&refused).contains("one connection only"), "{}", common::text(&refused));
    let seen = common::run(&[
        "bench", "lun", "--engine", "rtl", "--erl", "2", "--time", "0.1s", "--warmup", "0s", "--json", &url,
    ]);
    let text = common::text(&seen);
    assert!(seen.status.success() && text.contains("\"engine\":\"rtl\""), "{text}");
}

#[test]
fn a_read_has_a_waveform() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("read.fst");
    let written = common::run(&["bench", "offload", "--json", "--trace", &file.display().to_string()]);
    let text = String::from_utf8_lossy(&written.stdout);
    assert!(written.status.success() && text.contains("\"name\":\"POST_TASK\""), "{text}");
    assert!(fs::metadata(&file).unwrap().len() > 1000, "all signals of the circuit");
    let nowhere = folder.path().join("none/read.fst").display().to_string();
    let failed = common::run(&["bench", "offload", "--trace", &nowhere, "--trace-of", "write"]);
    let why = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && why.contains("cannot write the waveform"), "{why}");
}
