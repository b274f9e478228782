//! A reservation that was made with APTPL is there after the server was killed at any moment (PR-10): a host changes its key
//! over and over, the server is killed with SIGKILL and started again, and the key is the last one acknowledged or the one that
//! was on its way.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{IQN, serve, serve_at, target, until};
use initiator::{Disk, IscsiUrl, Session, WriteData};

const KILLS: usize = 10;

const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
/// Write exclusive, registrants only.
const KIND: u8 = 5;

fn open(portal: SocketAddr) -> Disk {
    let url = IscsiUrl::parse(&format!("iscsi://{portal}/{IQN}/0")).unwrap();
    let session = Session::connect(url.options().unwrap()).unwrap();
    Disk::open(&session, url.unit().unwrap().1).unwrap()
}

/// PERSISTENT RESERVE OUT with APTPL; whether it ended well.
fn reserve_out(disk: &Disk, action: u8, kind: u8, key: u64, new_key: u64) -> bool {
    let mut list = [key.to_be_bytes(), new_key.to_be_bytes(), [0; 8]].concat();
    list[20] = 1;
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    disk.submit(&cdb, 0, WriteData::from(bytes::Bytes::from(list))).wait().is_ok()
}

/// PERSISTENT RESERVE IN: READ KEYS, or READ RESERVATION.
fn reserve_in(disk: &Disk, action: u8) -> Vec<u8> {
    let mut cdb = [0; 10];
    (cdb[0], cdb[1], cdb[8]) = (0x5e, action, 64);
    disk.query(&cdb, 64).unwrap().to_vec()
}

fn key_of(disk: &Disk) -> u64 {
    let keys = reserve_in(disk, 0);
    assert_eq!(keys.len(), 16, "one registration");
    u64::from_be_bytes(keys[8..].try_into().unwrap())
}

fn holder_key(disk: &Disk) -> u64 {
    let reservation = reserve_in(disk, 1);
    assert_eq!((reservation.len(), reservation[21]), (24, KIND), "{reservation:x?}");
    u64::from_be_bytes(reservation[8..16].try_into().unwrap())
}

#[test]
fn pr_10_reservations_survive_kill_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk.img");
    let keys = "[target.negotiation]\ndefault_time2wait_s = 0";
    let config = target(IQN, keys, &[&format!("file:{},size=1M", file.display())]);
    let mut server = serve(directory.path(), 1, &config);
    let portal = server.portal();
    let mut key = 1;
    for kill in 0..KILLS {
        let disk = open(portal);
        // Each session is a nexus of its own: what an earlier one left is cleared.
        assert!(reserve_out(&disk, REGISTER_AND_IGNORE, 0, 0, key));
        assert!(reserve_out(&disk, CLEAR, 0, key, 0));
        assert!(reserve_out(&disk, REGISTER_AND_IGNORE, 0, 0, key));
        assert!(reserve_out(&disk, RESERVE, KIND, key, 0));
        let (acknowledged, submitted, end) =
            (AtomicU64::new(key), AtomicU64::new(key), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut key = key;
                while !end.load(Ordering::SeqCst) {
                    key += 1;
                    submitted.store(key, Ordering::SeqCst);
                    if reserve_out(&disk, REGISTER_AND_IGNORE, 0, 0, key) {
                        acknowledged.store(key, Ordering::SeqCst);
                    }
                }
            });
            // So many changes, and then a moment that falls anywhere into one.
            let goal = key + 3 + kill as u64;
            until("the keys change", || acknowledged.load(Ordering::SeqCst) >= goal);
            server.signal(crate::common::Signal::KILL);
            server.wait();
            let safe = acknowledged.load(Ordering::SeqCst);
            let stored = stored_key(&file);
            let most = submitted.load(Ordering::SeqCst);
            assert!(
                (safe..=most).contains(&stored),
                "{stored} is stored; {safe} was acknowledged, {most} submitted"
            );
            end.store(true, Ordering::SeqCst);
            server = serve_at(directory.path(), &[portal], &config);
            load.join().unwrap();
        });
        let last = key_of(&disk);
        drop(disk);
        server.signal(crate::common::Signal::KILL);
        server.wait();
        server = serve_at(directory.path(), &[portal], &config);
        let disk = open(portal);
        assert_eq!((key_of(&disk), holder_key(&disk)), (last, last), "and its holder holds the reservation");
        key = last + 1;
    }
}

/// The one key in the file beside the store.
fn stored_key(store: &Path) -> u64 {
    let text = std::fs::read_to_string(format!("{}.reservations", store.display())).unwrap();
    let stored: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["registrations"].as_array().unwrap().len(), 1, "{text}");
    stored["registrations"][0]["key"].as_u64().unwrap()
}

#[test]
fn pr_10_a_damaged_file_keeps_the_server_from_starting_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk.img");
    std::fs::write(directory.path().join("disk.img.reservations"), "{").unwrap();
    let mut command = crate::common::intact();
    command.args(["serve", "--listen", "127.0.0.1:0", "--lun", &format!("file:{},size=1M", file.display())]);
    let ended = crate::support::finish(command);
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    assert!(
        ended.text.contains("disk.img.reservations") && ended.text.contains("remove it"),
        "{}",
        ended.text
    );
}
