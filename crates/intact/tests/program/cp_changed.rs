//! `intact cp --changed-only`, and copies of thin units, by what the target counts.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use crate::common::{Serve, intact, text};
use crate::support::{IQN, free_port, lun_bytes, serve, target};
use serde_json::Value;

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;
const PIECE: usize = 64 << 10;

struct Server {
    server: Serve,
    metrics: String,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let metrics = format!("127.0.0.1:{}", free_port());
        let config =
            format!("[metrics]\nlisten = \"{metrics}\"\n{}", target(IQN, "", &[&format!("ram:{SIZE}")]));
        Self { server: serve(directory, 1, &config), metrics }
    }

    fn url(&self) -> String {
        format!("iscsi://{}/{IQN}/0", self.server.portal())
    }

    /// Bytes that the unit has moved for `op`, as the target counts them.
    fn bytes(&self, op: &str) -> u64 {
        lun_bytes(&self.metrics, op)
    }
}

/// The summary of a copy that succeeds.
#[track_caller]
fn cp(arguments: &[&str]) -> Value {
    let output = intact().args(["cp", "--json"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn image() -> Vec<u8> {
    (1..=SIZE as u64 / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

#[test]
fn only_what_changed_is_written_to_a_unit() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (file, url) = (directory.path().join("image"), server.url());
    let path = file.to_str().unwrap();
    let mut image = image();
    fs::write(&file, &image).unwrap();
    cp(&["--verify", path, &url]);
    let before = server.bytes("write");
    assert_eq!(before, SIZE as u64);

    let summary = cp(&["--changed-only", path, &url]);
    assert_eq!(summary["written_bytes"], 0);
    assert_eq!(summary["unchanged_bytes"], SIZE);
    assert_eq!(server.bytes("write"), before, "nothing changed, so nothing is written");

    image[5 * PIECE + 17] ^= 1;
    fs::write(&file, &image).unwrap();
    let summary = cp(&["--changed-only", "--verify", path, &url]);
    assert_eq!(summary["written_bytes"], PIECE);
    assert_eq!(summary["unchanged_bytes"], SIZE - PIECE);
    assert_eq!(server.bytes("write"), before + PIECE as u64, "one bit costs one piece");

    let back = directory.path().join("back");
    cp(&[&url, back.to_str().unwrap()]);
    assert!(fs::read(back).unwrap() == image, "the copy of the copy differs");
}

#[test]
fn only_what_changed_is_written_to_a_file_and_holes_stay_holes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let (file, url) = (directory.path().join("image"), server.url());
    let backup = directory.path().join("backup");
    let (path, backup_path) = (file.to_str().unwrap(), backup.to_str().unwrap());
    let mut image = image();
    image[2 * MIB..4 * MIB].fill(0);
    fs::write(&file, &image).unwrap();
    cp(&[path, &url]);
    // A chunk of zeros is one WRITE SAME, whose single block counts.
    assert_eq!(server.bytes("write"), (SIZE - 2 * MIB + 2 * 512) as u64, "zeros are not sent");

    let summary = cp(&[&url, backup_path]);
    assert_eq!(summary["hole_bytes"], 2 * MIB, "what the unit has not allocated is not read");
    assert_eq!(summary["read_bytes"], SIZE - 2 * MIB);
    assert!(fs::read(&backup).unwrap() == image);

    // A byte in the hole of the backup, and a piece of it that is zero at the source.
    let changed = fs::OpenOptions::new().write(true).open(&backup).unwrap();
    changed.write_all_at(&[1], 3 * MIB as u64).unwrap();
    changed.sync_all().unwrap();
    let summary = cp(&["--changed-only", "--verify", &url, backup_path]);
    assert_eq!((&summary["written_bytes"], &summary["zero_bytes"]), (&0.into(), &PIECE.into()));
    assert!(fs::read(&backup).unwrap() == image);
    let blocks = fs::metadata(&backup).unwrap().blocks() * 512;
    assert!(blocks <= (SIZE - 2 * MIB + PIECE) as u64, "{blocks} bytes are allocated: the hole is filled");

    // A longer file of another copy is cut, a missing one is made.
    changed.set_len(2 * SIZE as u64).unwrap();
    cp(&["--changed-only", &url, backup_path]);
    assert!(fs::read(&backup).unwrap() == image);
    fs::remove_file(&backup).unwrap();
    cp(&["--changed-only", &url, backup_path]);
    assert!(fs::read(&backup).unwrap() == image);
}

#[test]
fn a_rate_is_a_size_above_zero() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let bytes = vec![7; 3 * PIECE];
    fs::write(&from, &bytes).unwrap();
    let arguments = [from.to_str().unwrap(), to.to_str().unwrap()];
    cp(&["--rate", "1G", arguments[0], arguments[1]]);
    assert_eq!(fs::read(&to).unwrap(), bytes);
    for bad in ["0", "-1", "fast"] {
        let output = intact().args(["cp", &format!("--rate={bad}")]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad}: {}", text(&output));
    }
}
