use std::cell::Cell;
use std::collections::HashSet;
use std::fs;

use super::*;

const TARGET: &str = "iqn.2026-01.org.example:disk";

fn lun(store: &str) -> LunConfig {
    LunConfig::new(0, store.parse().unwrap())
}

/// Determines identities as a server with this state directory does.
struct Server<'a> {
    state_dir: Option<&'a Path>,
    machine: Option<&'a str>,
    drawn: Cell<u64>,
}

impl<'a> Server<'a> {
    fn new(state_dir: Option<&'a Path>) -> Self {
        Self { state_dir, machine: Some("0123456789abcdef"), drawn: Cell::new(0) }
    }

    fn of(&self, config: &LunConfig) -> UnitIdentity {
        self.of_unless(config, &|_| false)
    }

    fn of_unless(&self, config: &LunConfig, is_taken: &dyn Fn(&UnitIdentity) -> bool) -> UnitIdentity {
        let draw = || {
            self.drawn.set(self.drawn.get() + 1);
            draw(&[9; 32], self.drawn.get())
        };
        let identities =
            Identities { state_dir: self.state_dir, machine: self.machine.map(str::to_owned), draw: &draw };
        let store = config.store.open_in(self.state_dir).unwrap();
        identities.of(config, TARGET, &*store, is_taken).unwrap()
    }
}

fn before(config: &LunConfig) -> NaaIdentifier {
    NaaIdentifier::Local(Legacy::of_place(Some("0123456789abcdef"), TARGET, config.number).unwrap().0)
}

// covers: VPD-80 VPD-83
#[test]
fn an_identity_is_drawn_once_and_stays_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = lun(&format!("file:{},size=1M", folder.path().join("disk").display()));
    let first = Server::new(None).of(&disk);
    assert_eq!(first.uuid, Some(first.volume.to_bytes()));
    assert_eq!(first.serial, Uuid::from_bytes(first.volume.to_bytes()).to_string());
    let NaaIdentifier::RegisteredExtended(naa) = first.naa else { panic!("{first:?}") };
    assert_eq!(naa[..3], [0x60, 0x24, 0x94], "NAA 6 and a company id of nobody");
    assert_eq!(naa[4..], first.volume.to_bytes()[4..]);
    // Another number, another machine, another place: the same volume, and therefore the same disk
    // for hosts.
    fs::rename(folder.path().join("disk"), folder.path().join("moved")).unwrap();
    fs::rename(folder.path().join("disk.intact"), folder.path().join("moved.intact")).unwrap();
    let moved = LunConfig { number: 7, ..lun(&format!("file:{}", folder.path().join("moved").display())) };
    let elsewhere = Server { machine: None, ..Server::new(None) };
    assert_eq!(elsewhere.of(&moved), first);
    assert_eq!(elsewhere.drawn.get(), 0);
}

#[test]
fn a_file_with_data_keeps_what_hosts_knew_and_an_empty_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let disk = lun(&format!("file:{}", path.display()));
    let known = Server::new(None).of(&disk);
    assert_eq!((known.naa, known.uuid), (before(&disk), None));
    // From now on it belongs to the volume, whatever its number.
    let renumbered = LunConfig { number: 3, ..disk.clone() };
    assert_eq!(Server::new(None).of(&renumbered), known);

    // Except if another unit has it, or if it is the one of all machines without an id.
    for (server, taken) in [
        (Server::new(None), known.naa),
        (Server { machine: None, ..Server::new(None) }, NaaIdentifier::Local(0)),
    ] {
        fs::remove_file(folder.path().join("disk.intact")).unwrap();
        let new = server.of_unless(&disk, &|identity| identity.naa == taken);
        assert!(new.uuid.is_some() && server.drawn.get() == 1, "{new:?}");
    }
    let sparse = folder.path().join("sparse");
    fs::File::create(&sparse).unwrap().set_len(1 << 20).unwrap();
    assert!(Server::new(None).of(&lun(&format!("file:{}", sparse.display()))).uuid.is_some());
}

#[test]
fn a_serial_wins_and_an_old_one_stays_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let with = |name: &str, serial: &str| LunConfig {
        serial: Some(serial.to_owned()),
        ..lun(&format!("file:{},size=1M", folder.path().join(name).display()))
    };
    let (here, there) = (Server::new(None).of(&with("a", "one")), Server::new(None).of(&with("b", "one")));
    assert_eq!((&here.serial, here.naa, here.uuid), (&"one".to_owned(), there.naa, there.uuid));
    assert!(here.uuid.is_some() && here.naa != Server::new(None).of(&with("c", "two")).naa);

    fs::write(folder.path().join("old"), vec![1; 1 << 20]).unwrap();
    let old = Server::new(None).of(&with("old", "one"));
    assert_eq!((old.naa, &*old.serial), (NaaIdentifier::Local(Legacy::of_serial("one").0), "one"));
    assert_eq!(Server::new(None).of(&with("old", "one")), old, "after the next start too");
    assert!(Server::new(None).of(&with("old", "two")).uuid.is_some(), "another serial is another disk");
}

#[test]
fn memory_has_one_for_as_long_as_the_process_or_the_state_directory_lives() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, server) = (lun("ram:1M"), Server::new(None));
    assert_ne!(server.of(&disk).naa, server.of(&disk).naa, "another memory is another disk");
    let kept = Server::new(Some(folder.path())).of(&disk);
    assert_eq!(Server::new(Some(folder.path())).of(&disk), kept);
    // Reservations stored under the old name are a reason to keep that name.
    let other = LunConfig { number: 5, ..disk };
    let NaaIdentifier::Local(old) = before(&other) else { unreachable!() };
    fs::write(folder.path().join(format!("{old:016x}.reservations")), "{}").unwrap();
    let known = Server::new(Some(folder.path())).of(&other);
    assert_eq!((known.naa, known.file_name()), (before(&other), format!("{old:016x}")));
}

// Two CRC32Cs of one text after two prefixes differ by a constant: they had 32 bits, not 64.
#[test]
fn names_that_collided_before_do_not_any_more() {
    let pair = [
        "iqn.2026-01.io.intact:pvc-cc76bf75-1f99-4d72-9921-ab87d4766515",
        "iqn.2026-01.io.intact:pvc-290e9be8-62ba-4112-9149-56a4fbe83655",
    ];
    assert_ne!(derived(&["serial", pair[0]]), derived(&["serial", pair[1]]));
    let xor: HashSet<u64> = (0..1000u32)
        .map(|n| Legacy::new(&format!("{n:08}")).0)
        .map(|id| (id >> 32) ^ (id & 0xffff_ffff))
        .collect();
    assert_eq!(xor.len(), 1, "what was wrong with them");
    let naas: HashSet<[u8; 16]> =
        (0..1000u32).map(|n| naa(derived(&["serial", &format!("{n:08}")]))).collect();
    assert_eq!(naas.len(), 1000);
    let [a, b] = [["ab", "c"], ["a", "bc"]].map(|parts| derived(&parts));
    assert_ne!(a, b, "parts do not run into each other");
}

#[test]
fn an_old_identity_is_found_again_within_the_new_one_and_in_no_other() {
    for old in [0, 1, 0x32ae_8275_3eb3_dccf, u64::MAX] {
        assert_eq!(Legacy::within(Legacy(old).volume()), Some(Legacy(old)));
    }
    for n in 0..1000 {
        assert_eq!(Legacy::within(draw(&[1; 32], n)), None);
        assert_eq!(Legacy::within(derived(&[&n.to_string()])), None);
    }
}

#[test]
fn a_device_is_called_what_it_says_itself() {
    let sysfs = tempfile::tempdir().unwrap();
    let disk = sysfs.path().join("sda");
    let partition = disk.join("sda2");
    fs::create_dir_all(disk.join("device")).unwrap();
    fs::create_dir(&partition).unwrap();
    assert_eq!(named_in(&disk), None);
    fs::write(disk.join("device/wwid"), "naa.5000c500a1b2c3d4\n").unwrap();
    assert_eq!(named_in(&disk).unwrap(), "device/wwid naa.5000c500a1b2c3d4");
    assert_eq!(named_in(&partition), None, "what is no partition is not called as its neighbour");
    fs::write(partition.join("partition"), "2\n").unwrap();
    assert_eq!(named_in(&partition).unwrap(), "device/wwid naa.5000c500a1b2c3d4 partition 2");
}
