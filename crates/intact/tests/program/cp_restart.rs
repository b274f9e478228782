//! `intact cp` to a target that is killed on the way and started again, with nothing of what it had in its memory.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::common::{Serve, Signal, intact, text};
use crate::support::{IQN, serve, serve_at, target, until};
use initiator::{Disk, IscsiUrl, Session};

const SIZE: usize = 192 << 20;

fn config(serial: &str) -> String {
    // Without the wait that the standard proposes between a loss and the next login.
    let keys = "[target.negotiation]\ndefault_time2wait_s = 0";
    target(IQN, keys, &[&format!("ram:{SIZE}")]) + &format!("serial = \"{serial}\"\n")
}

fn open(server: &Serve) -> Disk {
    let url = IscsiUrl::parse(&format!("iscsi://{}/{IQN}/0", server.portal())).unwrap();
    Disk::open(&Session::connect(url.options().unwrap()).unwrap(), url.unit().unwrap().1).unwrap()
}

/// Copies while the server is killed after a third of it, and started again with a unit of `serial`. What `cp` said, the server,
/// and what was copied.
fn copy_over_a_restart(directory: &Path, serial: &str) -> (Output, Serve, Vec<u8>) {
    let source = directory.join("source");
    let image: Vec<u8> =
        (1..=SIZE as u64 / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    fs::write(&source, &image).unwrap();
    let mut server = serve(directory, 1, &config("one"));
    let portal = server.portal();
    let disk = open(&server);
    let url = format!("iscsi://{portal}/{IQN}/0");
    let mut copy = intact();
    copy.env("XDG_STATE_HOME", directory).args(["cp", "--quiet", "--jobs", "2"]).arg(&source).arg(url);
    let copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut block = [0; 512];
    until("a third is copied", || {
        disk.read(SIZE as u64 / 3 / 4096 * 4096, &mut block).unwrap();
        block != [0; 512]
    });
    server.signal(Signal::KILL);
    server.wait();
    let server = serve_at(directory, &[portal], &config(serial));
    (copy.wait_with_output().unwrap(), server, image)
}

#[test]
fn what_the_target_lost_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (copied, server, image) = copy_over_a_restart(directory.path(), "one");
    let said = text(&copied);
    assert_eq!(copied.status.code(), Some(0), "{said}");
    assert!(said.contains("the session is lost") && said.contains("the session is back"), "{said}");
    assert!(said.contains("the target lost up to") && said.contains("writing it again"), "{said}");
    let mut there = vec![0; SIZE];
    open(&server).read(0, &mut there).unwrap();
    assert!(there == image, "the copy differs from its source");
}

#[test]
fn another_volume_in_its_place_gets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (copied, server, _) = copy_over_a_restart(directory.path(), "two");
    let said = text(&copied);
    assert_eq!(copied.status.code(), Some(1), "{said}");
    assert!(said.contains("LUN 0 is another volume now") && said.contains("remedy"), "{said}");
    let mut there = vec![1; SIZE];
    open(&server).read(0, &mut there).unwrap();
    assert!(there.iter().all(|byte| *byte == 0), "something was written to the other volume");
}
