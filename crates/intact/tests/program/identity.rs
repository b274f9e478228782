//! Which disk is which: what hosts are told of a volume stays with the volume, and is no other's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Serve, intact, run, text};
use crate::support::{IQN, serve, target, write_config};
use initiator::{Disk, IscsiUrl, Session};
use serde_json::Value;

fn open(server: &Serve, lun: u16) -> Disk {
    let url = IscsiUrl::parse(&format!("iscsi://{}/{IQN}/{lun}", server.portal())).unwrap();
    let session = Session::connect(url.options().unwrap()).unwrap();
    Disk::open(&session, url.unit().unwrap().1).unwrap()
}

/// VPD page 83h: the designators of the unit, by type.
fn names(disk: &Disk) -> Vec<(u8, Vec<u8>)> {
    let page = disk.query(&[0x12, 1, 0x83, 4, 0, 0], 1024).unwrap().to_vec();
    let (mut rest, mut found) = (&page[4..], Vec::new());
    while let [_, kind, _, length, after @ ..] = rest {
        let (value, more) = after.split_at(usize::from(*length));
        rest = more;
        if kind & 0x30 == 0 {
            found.push((kind & 0xf, value.to_vec()));
        }
    }
    found
}

fn stores(directory: &Path, names: [&str; 2]) -> [String; 2] {
    names.map(|name| format!("file:{},size=1M", directory.join(name).display()))
}

fn luns(stores: &[String]) -> String {
    target(IQN, "", &stores.iter().map(String::as_str).collect::<Vec<_>>())
}

fn serials(server: &Serve) -> Vec<Value> {
    server.ls("luns").as_array().unwrap().iter().map(|lun| lun["serial"].clone()).collect()
}

// covers: VPD-80 VPD-83
#[test]
fn vpd_83_an_identity_goes_with_its_volume_through_a_swap_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = stores(directory.path(), ["a", "b"]);
    let server = serve(directory.path(), 1, &luns(&[a.clone(), b.clone()]));
    let before = [0, 1].map(|lun| names(&open(&server, lun)));
    for names in &before {
        let kinds: Vec<u8> = names.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [3, 1, 10], "NAA, T10 vendor and UUID");
        assert_eq!((names[0].1.len(), names[0].1[0] >> 4), (16, 6), "udev and the kernel take it before T10");
        assert_eq!(names[0].1[4..], names[2].1[6..], "made of the UUID");
    }
    assert!(before[0].iter().zip(&before[1]).all(|(a, b)| a.1 != b.1), "{before:x?}");

    write_config(directory.path(), &[server.portal()], &luns(&[b, a]));
    let (code, said) = server.ask(&["reload"]);
    assert_eq!(code, Some(0), "{said}");
    let [zero, one] = [0, 1].map(|lun| names(&open(&server, lun)));
    assert_eq!([one, zero], before, "what was LUN 0 is the same disk as LUN 1");
    let known = serials(&server);
    drop(server);
    // And on another machine, with another name, it still is.
    let store = format!("file:{}", directory.path().join("b").display());
    let other =
        Serve::start(directory.path(), &["--target", "iqn.2004-10.com.example:moved", "--lun", &store]);
    assert_eq!(serials(&other), known[..1]);
}

#[test]
fn two_servers_with_the_same_names_serve_two_disks() {
    let serial = || {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("file:{},size=1M", directory.path().join("disk").display());
        let server = Serve::start(directory.path(), &["--lun", &store, "--lun", "ram:1M"]);
        serials(&server)
    };
    let (one, other) = (serial(), serial());
    assert!(one[0] != other[0] && one[1] != other[1], "{one:?} {other:?}");
}

fn copied(directory: &Path) -> (PathBuf, [String; 2]) {
    let stores = stores(directory, ["disk", "copy"]);
    drop(serve(directory, 1, &luns(&stores[..1])));
    for suffix in ["", ".intact"] {
        let of = |name: &str| directory.join(format!("{name}{suffix}"));
        fs::copy(of("disk"), of("copy")).unwrap();
    }
    (directory.join("copy"), stores)
}

#[test]
fn a_copy_with_its_label_is_refused_until_it_has_an_identity_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (copy, stores) = copied(directory.path());
    let config = write_config(directory.path(), &["127.0.0.1:0".parse().unwrap()], &luns(&stores));
    let refused = intact().args(["serve", "-c"]).arg(&config).output().unwrap();
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("LUN 0 of") && said.contains("intact lun identity --new"), "{said}");

    let file = copy.to_str().unwrap();
    let shown = text(&run(&["lun", "identity", file]));
    let given = text(&run(&["lun", "identity", "--new", file]));
    assert!(shown != given && given.contains("NAA    6024"), "{shown}{given}");
    let server = serve(directory.path(), 1, &luns(&stores));
    let known = serials(&server);
    assert_ne!(known[0], known[1]);
    assert!(given.contains(known[1].as_str().unwrap()), "{given}");
    // What is served is nobody's to rename.
    let served = run(&["lun", "identity", "--new", file]);
    assert_eq!(served.status.code(), Some(1), "{}", text(&served));
}

#[test]
fn a_reload_gives_no_identity_that_hosts_know_to_another_store() {
    let directory = tempfile::tempdir().unwrap();
    let with = |store: &str| {
        let lun = "[[target.lun]]\nserial = \"KNOWN\"\nstore = ";
        format!("{}{lun}\"{store}\"\n", target(IQN, "", &[]))
    };
    let [a, b] = stores(directory.path(), ["a", "b"]);
    let server = serve(directory.path(), 1, &with(&a));
    let known = names(&open(&server, 0));
    write_config(directory.path(), &[server.portal()], &with(&b));
    let (code, said) = server.ask(&["reload"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("another store") && said.contains("KNOWN") && said.contains("remove the old unit"),
        "{said}"
    );
    assert_eq!(names(&open(&server, 0)), known, "and nothing has changed");
}
