//! `intact cp --resume`: copies that are killed on the way and continued, and states that do not fit.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::common::{Signal, intact, text};
use crate::support::{IQN, free_port, lun_bytes, serve, serve_at, target, until};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 24 * MIB;
/// Copied and flushed before a copy is killed, at least.
const ENOUGH: u64 = 3 * MIB;

/// A source, a destination and a state in a folder of their own.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Bytes that are copied and flushed, as the state says.
    fn copied(&self) -> u64 {
        let Ok(bytes) = fs::read(self.path("state")) else { return 0 };
        let state: Value = serde_json::from_slice(&bytes).expect("the file is replaced as a whole");
        state["copy"]["copied_bytes"].as_u64().unwrap()
    }

    fn cp(&self, arguments: &[&str]) -> Output {
        let mut copy = intact();
        copy.env("XDG_STATE_HOME", self.folder.path()).args(["cp", "--json", "--segment", "1M", "--state"]);
        copy.arg(self.path("state")).args(arguments).output().unwrap()
    }

    /// Begins a copy and kills it when enough is flushed and the rest is not; says how much is.
    fn killed_cp(&self, arguments: &[&str]) -> u64 {
        let mut copy = intact();
        copy.env("XDG_STATE_HOME", self.folder.path())
            .args(["cp", "--json", "--segment", "1M", "--rate", "4M", "--jobs", "2", "--state"])
            .arg(self.path("state"))
            .args(arguments);
        let mut copy = copy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("enough is flushed", || self.copied() >= ENOUGH);
        copy.kill().unwrap();
        assert_eq!(copy.wait().unwrap().signal(), Some(9), "the copy was complete before it was killed");
        let copied = self.copied();
        assert!((ENOUGH..SIZE).contains(&copied), "{copied}");
        copied
    }

    fn sha256(&self, name: &str) -> String {
        format!("{:x}", Sha256::digest(fs::read(self.path(name)).unwrap()))
    }

    /// Bytes from `at` on get another content, as if what was written there last had been lost.
    fn lose(&self, name: &str, at: u64) {
        let file = fs::OpenOptions::new().write(true).open(self.path(name)).unwrap();
        file.write_all_at(&vec![0xaa; (SIZE - at) as usize], at).unwrap();
    }
}

/// An image with zeros in its last quarter.
fn image() -> Vec<u8> {
    let mut image: Vec<u8> =
        (1..=SIZE / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    image[18 * MIB as usize..20 * MIB as usize].fill(0);
    image
}

#[track_caller]
fn summary(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_killed_copy_of_a_unit_is_continued_and_reads_only_the_rest() {
    let place = Place::new();
    let metrics = format!("127.0.0.1:{}", free_port());
    let config = format!("[metrics]\nlisten = \"{metrics}\"\n{}", target(IQN, "", &[&format!("ram:{SIZE}")]));
    let server = serve(place.folder.path(), 1, &config);
    let url = format!("iscsi://{}/{IQN}/0", server.portal());
    let (source, backup) = (place.name("source"), place.name("backup"));
    fs::write(&source, image()).unwrap();
    let filled = intact().args(["cp", "--json", &source, &url]).output().unwrap();
    summary(&filled);

    let copied = place.killed_cp(&[&url, &backup]);
    place.lose("backup", copied);
    let before = lun_bytes(&metrics, "read");
    let continued = place.cp(&["--resume", &url, &backup]);
    let found = summary(&continued);
    assert!(text(&continued).contains("continuing behind the first"), "{}", text(&continued));
    assert_eq!(found["resumed_bytes"], copied);
    let rest = SIZE - copied;
    assert_eq!(found["read_bytes"].as_u64().unwrap() + found["hole_bytes"].as_u64().unwrap(), rest);
    assert_eq!(found["hole_bytes"], 2 * MIB, "what the unit has not allocated is not read");
    assert_eq!(lun_bytes(&metrics, "read") - before, rest - 2 * MIB, "the target has read only the rest");
    assert_eq!(place.sha256("backup"), place.sha256("source"));
    assert!(!place.path("state").exists(), "the copy is complete");

    // Without a state it begins, and says so.
    let again = place.cp(&["--resume", "--verify", &url, &backup]);
    assert_eq!(summary(&again)["resumed_bytes"], 0);
    assert!(text(&again).contains("copying from the beginning"), "{}", text(&again));
}

#[test]
fn a_target_that_lost_its_cache_meanwhile_gets_the_rest() {
    let place = Place::new();
    let source = place.name("source");
    fs::write(&source, image()).unwrap();
    fs::write(place.path("disk"), vec![0x55; SIZE as usize]).unwrap();
    let config = target(IQN, "", &[&format!("file:{}", place.name("disk"))]);
    let mut server = serve(place.folder.path(), 1, &config);
    let portal = server.portal();
    let url = format!("iscsi://{portal}/{IQN}/0");
    let copied = place.killed_cp(&[&source, &url]);
    server.signal(Signal::KILL);
    server.wait();
    // All that it had not flushed.
    place.lose("disk", copied);
    let _server = serve_at(place.folder.path(), &[portal], &config);
    let found = summary(&place.cp(&["--resume", "--verify", &source, &url]));
    assert_eq!((&found["resumed_bytes"], &found["verified"]), (&copied.into(), &true.into()));
    assert_eq!(place.sha256("disk"), place.sha256("source"));
}

#[test]
fn changed_only_is_continued_and_a_wrong_beginning_is_found_by_verify() {
    let place = Place::new();
    let (source, backup) = (place.name("source"), place.name("backup"));
    fs::write(&source, image()).unwrap();
    let mut old = image();
    old[23 * MIB as usize] ^= 1;
    fs::write(&backup, old).unwrap();
    let copied = place.killed_cp(&["--changed-only", &source, &backup]);
    let kept = fs::read(place.path("state")).unwrap();
    let found = summary(&place.cp(&["--changed-only", "--resume", &source, &backup]));
    assert_eq!((&found["resumed_bytes"], &found["written_bytes"]), (&copied.into(), &(64 << 10).into()));
    assert_eq!(place.sha256("backup"), place.sha256("source"));

    // Somebody writes to what was copied: only --verify can know, and then the state is of no use.
    place.lose("backup", 0);
    fs::write(place.path("state"), kept).unwrap();
    let wrong = place.cp(&["--changed-only", "--resume", "--verify", &source, &backup]);
    let said = text(&wrong);
    assert_eq!(wrong.status.code(), Some(1), "{said}");
    assert!(
        said.contains("differs from the source at byte") && said.contains("the state was removed"),
        "{said}"
    );
    assert!(!place.path("state").exists());
}

/// `cp` must refuse, say why and what to do, and change neither the backup nor the state.
#[track_caller]
fn refused(place: &Place, arguments: &[&str], code: i32, why: &str) {
    let before = (place.sha256("backup"), fs::read(place.path("state")).unwrap());
    let output = place.cp(arguments);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(why) && said.contains("remedy: "), "{said}");
    assert!(before == (place.sha256("backup"), fs::read(place.path("state")).unwrap()), "{said}");
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let place = Place::new();
    let stores = [format!("ram:{SIZE}"), format!("ram:{SIZE}")];
    let config = target(IQN, "", &[&stores[0], &stores[1]]);
    let server = serve(place.folder.path(), 1, &config);
    let [url, other] = [0, 1].map(|lun| format!("iscsi://{}/{IQN}/{lun}", server.portal()));
    let (source, backup) = (place.name("source"), place.name("backup"));
    fs::write(&source, image()).unwrap();
    summary(&intact().args(["cp", "--json", &source, &url]).output().unwrap());
    place.killed_cp(&[&url, &backup]);

    refused(&place, &[&url, &backup], 2, "--resume continues that copy");
    refused(&place, &["--resume", &other, &backup], 1, "the source was uuid.");
    refused(&place, &["--resume", &url, &source], 1, "the destination was file ");
    refused(&place, &["--resume", "--changed-only", &url, &backup], 1, "without --changed-only");
    refused(&place, &["--resume", &url, &place.name("absent")], 1, "cannot be written");
    assert!(!place.path("absent").exists());

    let state = fs::read_to_string(place.path("state")).unwrap();
    let rewrite = |text: &str| fs::write(place.path("state"), text).unwrap();
    for damaged in ["", &state[..state.len() / 2], &state.replace("\"copied_bytes\":", "\"copied_bytes\":1")]
    {
        rewrite(damaged);
        refused(&place, &["--resume", &url, &backup], 1, "damaged");
    }
    rewrite(&state.replace("\"version\":1", "\"version\":2"));
    refused(&place, &["--resume", &url, &backup], 1, "version 2");

    // The file was cut meanwhile: what was copied may be gone.
    rewrite(&state);
    fs::OpenOptions::new().write(true).open(&backup).unwrap().set_len(MIB).unwrap();
    refused(&place, &["--resume", &url, &backup], 1, "the destination was file ");
}

#[test]
fn a_state_is_a_file_of_its_own() {
    let place = Place::new();
    let source = place.name("source");
    fs::write(&source, image()).unwrap();
    let output = place.cp(&[&source, &place.name("state")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("the same file"), "{}", text(&output));
    let alone = intact().args(["cp", "--resume", &source, &place.name("backup")]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone));
    assert!(!Path::new(&place.path("backup")).exists());
}
