//! A thousand targets in one process and hundreds of units in one target: all are told of, all work, and none has a thread.

use std::fmt::Write;
use std::fs;

use crate::common::Serve;
use crate::support::{IQN, need, serve, target, tool};
use initiator::{Disk, IscsiUrl, Session};
use iscsi_core::wire::Lun;

const TARGETS: usize = 1000;
/// More than peripheral addressing has numbers for: the rest has flat space addressing.
const UNITS: u16 = 300;

fn name(number: usize) -> String {
    format!("{IQN}-{number:04}")
}

fn threads(server: &Serve) -> usize {
    fs::read_dir(format!("/proc/{}/task", server.id())).unwrap().count()
}

fn threads_of_one() -> usize {
    let directory = tempfile::tempdir().unwrap();
    threads(&serve(directory.path(), 1, &target(IQN, "", &["ram:1M"])))
}

// covers: DSC-05
#[test]
fn dsc_05_a_thousand_targets_are_found_and_each_is_itself() {
    let directory = tempfile::tempdir().unwrap();
    let config = (0..TARGETS).fold(String::new(), |config, n| config + &target(&name(n), "", &["ram:1M"]));
    let server = serve(directory.path(), 1, &config);
    assert!(threads(&server) <= threads_of_one() + 1, "targets have threads");
    let options = |url: String| IscsiUrl::parse(&url).unwrap().options().unwrap();
    let found = initiator::discovery::send_targets(&options(format!("iscsi://{}", server.portal()))).unwrap();
    let expected: Vec<String> = (0..TARGETS).map(name).collect();
    assert!(found.iter().map(|record| record.name.as_str()).eq(expected.iter().map(String::as_str)));
    if need("iscsi-ls", "libiscsi-bin") {
        let listed = tool("iscsi-ls", &[&format!("iscsi://{}", server.portal())]).well();
        assert!(expected.iter().all(|name| listed.contains(name)), "{listed}");
    }
    // Sessions with a few of them, at once.
    let disks: Vec<Disk> = (0..TARGETS)
        .step_by(99)
        .map(|n| {
            let session =
                Session::connect(options(format!("iscsi://{}/{}", server.portal(), name(n)))).unwrap();
            Disk::open(&session, Lun(0)).unwrap()
        })
        .collect();
    for (n, disk) in disks.iter().enumerate() {
        disk.write(512, &[n as u8 + 1; 512]).unwrap();
    }
    for (n, disk) in disks.iter().enumerate() {
        let mut block = [0; 512];
        disk.read(512, &mut block).unwrap();
        assert_eq!(block, [n as u8 + 1; 512]);
    }
    assert_eq!(server.ls("targets").as_array().unwrap().len(), TARGETS);
}

#[test]
fn units_beyond_255_are_listed_and_reached_by_flat_space_addressing() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = target(IQN, "", &[]);
    for number in 0..UNITS {
        let path = directory.path().join(format!("disk{number}"));
        let store =
            if number % 2 == 0 { "ram:1M".into() } else { format!("file:{},size=1M", path.display()) };
        writeln!(config, "[[target.lun]]\nstore = \"{store}\"").unwrap();
    }
    let server = serve(directory.path(), 1, &config);
    assert!(threads(&server) <= threads_of_one() + 1, "units have threads");
    let url = format!("iscsi://{}/{IQN}", server.portal());
    let session = Session::connect(IscsiUrl::parse(&url).unwrap().options().unwrap()).unwrap();
    let luns = initiator::discovery::report_luns(&session).unwrap();
    assert_eq!(luns, (0..UNITS).map(Lun::from_index).collect::<Vec<_>>());
    assert_eq!(luns[299].0.to_be_bytes()[..2], [0x41, 0x2b], "flat space addressing of 299");
    let disks: Vec<(u16, Disk)> = [0, 7, 255, 256, 299]
        .map(|number| (number, Disk::open(&session, Lun::from_index(number)).unwrap()))
        .into();
    for (number, disk) in &disks {
        disk.write(0, &number.to_be_bytes().repeat(256)).unwrap();
    }
    for (number, disk) in &disks {
        let mut block = [0; 512];
        disk.read(0, &mut block).unwrap();
        assert_eq!(block[..], number.to_be_bytes().repeat(256)[..], "LUN {number}");
    }
    assert!(Disk::open(&session, Lun::from_index(UNITS)).is_err(), "there is none of that number");
    if need("iscsi-ls", "libiscsi-bin") {
        let listed = tool("iscsi-ls", &["-s", &format!("iscsi://{}", server.portal())]).well();
        assert_eq!(listed.matches("Lun:").count(), usize::from(UNITS), "{listed}");
    }
}
