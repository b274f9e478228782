//! A unit over several sessions: all are used, a flush is one of all of them, and what only one session may have is left to the first.

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use initiator::{IoError, WideDisk, Width, WriteData};

use target::Server;
use target::observe::metrics::LiveSession;

use self::proxy::Proxy;
use self::server::{LUN, end, options, server, server_with};

const MIB: u64 = 1 << 20;

fn sessions(server: &Server) -> Vec<Arc<LiveSession>> {
    server.observe().metrics.sessions().live
}

fn content(at: u64) -> Vec<u8> {
    (0..MIB / 8).flat_map(|n| (at * MIB + n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

/// Writes MiBs by so many threads at a time, one each.
fn write_by_threads(disk: &WideDisk, mebibytes: std::ops::Range<u64>) {
    let together = &Barrier::new((mebibytes.end - mebibytes.start) as usize);
    thread::scope(|scope| {
        for at in mebibytes {
            scope.spawn(move || {
                let content = content(at);
                together.wait();
                disk.write(at * MIB, &content).unwrap();
            });
        }
    });
}

fn assert_holds(disk: &WideDisk, mebibytes: std::ops::Range<u64>) {
    let mut found = vec![0; MIB as usize];
    for at in mebibytes {
        disk.read(at * MIB, &mut found).unwrap();
        assert!(found == content(at), "MiB {at}");
    }
}

#[test]
fn commands_are_spread_over_all_sessions() {
    let server = server();
    let disk = WideDisk::open_with(options(server.portals()[0]), LUN, Width::fixed(3)).unwrap();
    assert_eq!(disk.sessions(), 3);
    let commands = || -> Vec<u64> {
        sessions(&server).iter().map(|session| session.counters().commands.get()).collect()
    };
    let before = commands();
    write_by_threads(&disk, 0..24);
    let after = commands();
    let each: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    assert!(each.len() == 3 && each.iter().all(|writes| *writes > 0), "{each:?}");
    assert_eq!(each.iter().sum::<u64>(), 24);
    disk.flush().unwrap();
    assert_holds(&disk, 0..24);
    disk.write_zeroes(0, MIB).unwrap();
    let mut zeros = vec![1; MIB as usize];
    disk.read(0, &mut zeros).unwrap();
    assert!(zeros.iter().all(|byte| *byte == 0));
    drop(disk);
    end(server);
}

#[test]
fn one_session_is_what_there_is_without_being_asked_to_choose() {
    let server = server();
    let disk = WideDisk::open(options(server.portals()[0]), LUN).unwrap();
    write_by_threads(&disk, 0..16);
    assert_eq!((disk.sessions(), sessions(&server).len()), (1, 1));
    drop(disk);
    end(server);
}

/// The rule decides by what is measured; that it is asked and that its trials take place does not depend on what they find.
#[test]
fn another_number_is_tried_while_commands_are_under_way() {
    let server = server();
    let disk = &WideDisk::open_with(options(server.portals()[0]), LUN, Width::new(2)).unwrap();
    write_by_threads(disk, 0..8);
    let (server_ref, limit) = (&server, Instant::now() + Duration::from_secs(30));
    thread::scope(|scope| {
        for at in 0..8 {
            scope.spawn(move || {
                while sessions(server_ref).len() < 2 {
                    assert!(Instant::now() < limit, "no second session was tried");
                    assert_holds(disk, at..at + 1);
                }
            });
        }
    });
    end(server);
}

#[test]
fn a_target_that_refuses_more_sessions_is_used_by_those_that_there_are() {
    let server = server_with(|config| config.limits.max_sessions = 2);
    let disk = WideDisk::open_with(options(server.portals()[0]), LUN, Width::fixed(4)).unwrap();
    assert_eq!(disk.sessions(), 2);
    write_by_threads(&disk, 0..8);
    assert_holds(&disk, 0..8);
    drop(disk);
    end(server);
}

#[test]
fn a_flush_tells_once_what_any_of_the_sessions_has_lost() {
    let volume = || {
        server_with(|config| {
            config.targets[0].luns[0].serial = Some("v".to_owned());
            config.targets[0].bounds.default_time2wait_s = 0;
        })
    };
    let (first, second) = (volume(), volume());
    let place = Proxy::start(first.portals()[0]);
    let address = place.address();
    let disk = WideDisk::open_with(options(address), LUN, Width::fixed(2)).unwrap();
    write_by_threads(&disk, 0..4);
    disk.flush().unwrap();
    write_by_threads(&disk, 8..24);
    // Another one with an empty cache takes its place.
    place.close();
    let _place = Proxy::start_at(address, second.portals()[0]);
    match disk.flush() {
        Err(IoError::LostWrites(lost)) => {
            assert_eq!((lost.bytes, lost.ranges.as_slice()), (16 * MIB, &[8 * MIB..24 * MIB][..]), "{lost}");
        }
        other => panic!("{other:?}"),
    }
    disk.flush().unwrap();
    write_by_threads(&disk, 8..24);
    disk.flush().unwrap();
    assert_holds(&disk, 8..24);
    drop(disk);
    end(first);
    end(second);
}

#[test]
fn what_a_reservation_gives_to_one_session_is_done_by_that_one() {
    let server = server();
    let disk = WideDisk::open_with(options(server.portals()[0]), LUN, Width::fixed(2)).unwrap();
    // REGISTER of a key, then RESERVE: Write Exclusive, by the first session.
    for (action, kind, at) in [(0, 0, 8), (1, 1, 0)] {
        let mut list = vec![0; 24];
        list[at..at + 8].copy_from_slice(&7u64.to_be_bytes());
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        disk.first().submit(&cdb, 0, WriteData::from(Bytes::from(list))).wait().unwrap();
    }
    write_by_threads(&disk, 0..16);
    assert_eq!(disk.sessions(), 1, "the other one is not used any more");
    disk.flush().unwrap();
    assert_holds(&disk, 0..16);
    drop(disk);
    end(server);
}
