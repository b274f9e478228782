//! Backup and recovery with `intact cp`: a unit that is written to while it is backed up, and a restore onto an empty one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Serve, intact, text};
use crate::support::{IQN, serve, target, until};
use initiator::{Disk, IscsiUrl, Session};
use serde_json::Value;

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;
const BLOCK: usize = 4096;
/// The writer changes blocks of the first part only; behind it are data, and at the end nothing was ever written.
const CHANGING: usize = 2 * MIB;
const WRITTEN: usize = 6 * MIB;

fn url(server: &Serve, lun: u16) -> String {
    format!("iscsi://{}/{IQN}/{lun}", server.portal())
}

fn open(server: &Serve, lun: u16) -> Disk {
    let url = IscsiUrl::parse(&url(server, lun)).unwrap();
    Disk::open(&Session::connect(url.options().unwrap()).unwrap(), url.unit().unwrap().1).unwrap()
}

/// The summary of a copy that succeeds.
#[track_caller]
fn cp(arguments: &[&str]) -> Value {
    let output = intact().args(["cp", "--json"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The content of block `at` in its `version`: no two are alike.
fn block(at: usize, version: u64) -> Vec<u8> {
    let seed = (at as u64) << 32 | version | 1;
    (1..=BLOCK as u64 / 8).flat_map(|n| n.wrapping_mul(seed | 1).to_le_bytes()).collect()
}

/// Writes new versions of random blocks until it is told to stop; then everything is on the medium.
fn write_on(disk: &Disk, first: u64, stop: &AtomicBool, writes: &AtomicU64) {
    let mut version = first;
    while !stop.load(Ordering::Relaxed) {
        let at = (version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (CHANGING / BLOCK);
        disk.write((at * BLOCK) as u64, &block(at, version)).unwrap();
        version += 1;
        writes.fetch_add(1, Ordering::Relaxed);
    }
    disk.flush().unwrap();
}

/// Does `during` while the unit is written to; it was written to before and after each step of it.
fn beside_writes(disk: &Disk, first: u64, during: impl FnOnce(&AtomicU64)) {
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| write_on(disk, first, &stop, &writes));
        // The writer ends also if this fails.
        let _ended = Ended(&stop);
        until("the unit is written to", || writes.load(Ordering::Relaxed) > 0);
        during(&writes);
    });
}

/// Sets a flag when dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A backup of a unit in use is of no single moment. Repeated with `--changed-only` while nothing is written it is that of a snapshot,
/// and reads as such on a unit that was empty.
#[test]
fn a_backup_taken_during_writes_restores_to_the_moment_at_which_they_paused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (volume, empty, backup) = (path("volume"), path("empty"), path("backup"));
    let units = [&volume, &empty].map(|file| format!("file:{file},size={SIZE}"));
    let server = serve(directory.path(), 1, &target(IQN, "", &[&units[0], &units[1]]));
    let disk = open(&server, 0);
    for at in 0..WRITTEN / BLOCK {
        disk.write((at * BLOCK) as u64, &block(at, 0)).unwrap();
    }

    let mut blurred = 0;
    beside_writes(&disk, 1, |writes| {
        let before = writes.load(Ordering::Relaxed);
        cp(&["--rate", "16M", &url(&server, 0), &backup]);
        blurred = writes.load(Ordering::Relaxed) - before;
    });
    assert!(blurred > 0, "nothing was written during the backup");
    // The writer has stopped: this is the snapshot.
    let snapshot = fs::read(&volume).unwrap();
    assert!(snapshot[WRITTEN..].iter().all(|byte| *byte == 0) && snapshot.len() == SIZE);

    let summary = cp(&["--changed-only", "--verify", &url(&server, 0), &backup]);
    assert!(summary["unchanged_bytes"].as_u64().unwrap() >= (WRITTEN - CHANGING) as u64, "{summary}");
    assert!(summary["written_bytes"].as_u64().unwrap() <= CHANGING as u64, "{summary}");
    assert!(fs::read(&backup).unwrap() == snapshot, "the backup is not the snapshot");

    // The unit is used again while the backup is restored to another one.
    beside_writes(&disk, 1 << 20, |_| {
        cp(&["--verify", &backup, &url(&server, 1)]);
    });
    assert!(fs::read(&empty).unwrap() == snapshot, "the restored unit is not the snapshot");
    assert!(fs::read(&volume).unwrap() != snapshot, "it went on changing");
    let blocks = fs::metadata(&empty).unwrap().blocks() * 512;
    assert!(blocks <= WRITTEN as u64 + MIB as u64, "{blocks} bytes are allocated: the end should be a hole");
}

/// A writer that is not paused leaves a copy that `--verify` does not accept.
#[test]
fn a_copy_that_changed_under_way_is_told_from_a_good_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let server = serve(directory.path(), 1, &target(IQN, "", &[&format!("ram:{SIZE}")]));
    let disk = open(&server, 0);
    // What was never written is not read, and would not be compared.
    disk.write(0, &vec![1; SIZE]).unwrap();
    let backup = path("backup");
    let mut copy = intact();
    copy.args(["cp", "--quiet", "--verify", "--rate", "8M", &url(&server, 0), &backup]);
    let mut copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the copy has begun", || Path::new(&backup).exists());
    beside_writes(&disk, 1, |_| {
        copy.wait().unwrap();
    });
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("differs"), "{}", text(&output));
}
