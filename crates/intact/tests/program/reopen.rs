//! A volume whose flush failed: it is read, nothing is written to it, and a restart changes nothing, until an operator opens it again.

use std::path::Path;

use crate::support::{IQN, serve, target};
use initiator::{Disk, IscsiUrl, Session};

/// What a server leaves behind whose flush failed.
const FAILED: &str =
    r#"{"version":1,"failed_flush":{"reason":"disk.img: Input/output error","unflushed_bytes":1048576}}"#;

fn open(server: &crate::common::Serve) -> Disk {
    let url = IscsiUrl::parse(&format!("iscsi://{}/{IQN}/0", server.portal())).unwrap();
    let session = Session::connect(url.options().unwrap()).unwrap();
    Disk::open(&session, url.unit().unwrap().1).unwrap()
}

fn start(directory: &Path) -> crate::common::Serve {
    let file = format!("file:{},size=1M", directory.join("disk.img").display());
    serve(directory, 1, &target(IQN, "", &[&file]))
}

#[test]
fn a_volume_with_a_failed_flush_refuses_writes_until_it_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let label = directory.path().join("disk.img.intact");
    drop(start(directory.path()));
    std::fs::write(&label, FAILED).unwrap();

    for _ in 0..2 {
        let server = start(directory.path());
        let disk = open(&server);
        disk.read(0, &mut [0; 512]).unwrap();
        let refused = disk.write(0, &[1; 512]).unwrap_err().to_string();
        assert!(refused.contains("0ch/00h"), "{refused}");
        assert!(disk.flush().is_err());
        let unit = &server.ls("luns")[0];
        assert_eq!(unit["failed_flush"], "disk.img: Input/output error");
    }

    let server = start(directory.path());
    let disk = open(&server);
    let (code, said) = server.ask(&["lun", "reopen", IQN, "0"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("up to 1048576 bytes may be lost"), "{said}");
    disk.write(0, &[1; 512]).unwrap();
    disk.flush().unwrap();
    assert!(server.ls("luns")[0]["failed_flush"].is_null());
    let (code, said) = server.ask(&["lun", "reopen", IQN, "0"]);
    assert_eq!((code, said), (Some(0), format!("LUN 0 of {IQN} is open; no flush of it had failed\n")));
    assert_eq!(server.ask(&["lun", "reopen", IQN, "9"]).0, Some(1));
    drop((disk, server));

    let server = start(directory.path());
    open(&server).write(0, &[2; 512]).unwrap();
    assert!(!std::fs::read_to_string(&label).unwrap().contains("failed_flush"));
}
