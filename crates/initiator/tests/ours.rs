//! Our initiator on our target, in one process.

#[path = "support/checker.rs"]
mod checker;
#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use bytes::Bytes;
use initiator::{Command, Completion, Disk, IoError, Session, Submitter, Workload, discovery};
use iscsi_core::params::DigestPolicy;
use iscsi_core::wire::{TmfFunction, TmfResponse};
use target::Server;

use self::checker::{Checker, pattern};
use self::server::{LUN, TARGET, end, options, server};

fn disk(server: &Server) -> Disk {
    Disk::open(&Session::connect(options(server.portals()[0])).unwrap(), LUN).unwrap()
}

#[test]
fn every_way_to_send_write_data_brings_the_same_bytes() {
    let server = server();
    for (n, (initial_r2t, immediate_data)) in
        [(false, true), (true, true), (false, false), (true, false)].into_iter().enumerate()
    {
        for digest in [DigestPolicy::Off, DigestPolicy::Required] {
            let mut options = options(server.portals()[0]);
            let bounds = &mut options.bounds;
            (bounds.bursts.initial_r2t, bounds.bursts.immediate_data) = (initial_r2t, immediate_data);
            (bounds.header_digest, bounds.data_digest) = (digest, digest);
            (bounds.max_recv_data_segment_length, bounds.bursts.max_burst_length) = (8192, 50_000);
            bounds.bursts.first_burst_length = 20_000;
            let session = Session::connect(options).unwrap();
            assert_eq!(session.opening().login.params.bursts.initial_r2t, initial_r2t);
            assert_eq!(session.opening().login.params.digests.data, digest == DigestPolicy::Required);
            let disk = Disk::open(&session, LUN).unwrap();
            for (offset, len) in [(0, 512), (4096, 20_480), (1 << 20, 300 * 512), (2 << 20, 5 << 20)] {
                let data = pattern(offset + n as u64 + 1, len);
                disk.write(offset, &data).unwrap();
                let mut back = vec![0; len];
                disk.read(offset, &mut back).unwrap();
                assert!(back == data, "{len} bytes at {offset}");
                disk.write_bytes(offset, &Bytes::from(back)).unwrap();
            }
            let info = session.info().unwrap();
            assert_eq!((info.losses, info.link.digests.data_failed), (0, 0));
        }
    }
    end(server);
}

#[test]
fn compare_and_write_unmap_and_allocation() {
    let server = server();
    let disk = disk(&server);
    assert!(disk.capacity().thin && disk.capacity().unmapped_reads_zero);
    let (old, new) = (pattern(1, 512), pattern(2, 512));
    disk.write(4096, &old).unwrap();
    match disk.compare_and_write(4096, &new, &old).unwrap_err() {
        IoError::Miscompare { offset } => {
            assert_eq!(offset, old.iter().zip(&new).position(|(a, b)| a != b).unwrap() as u64);
        }
        other => panic!("{other}"),
    }
    disk.compare_and_write(4096, &old, &new).unwrap();
    let mut back = vec![0; 512];
    disk.read(4096, &mut back).unwrap();
    assert_eq!(back, new);
    disk.write(8 << 20, &pattern(3, 1 << 20)).unwrap();
    let mapped_at = |at: u64| {
        let extents = disk.allocation(at).unwrap().unwrap();
        assert_eq!(extents[0].range.start, at);
        extents[0].mapped
    };
    assert!(mapped_at(8 << 20) && !mapped_at(32 << 20));
    disk.unmap(8 << 20, 1 << 20).unwrap();
    assert!(!mapped_at(8 << 20));
    let mut back = vec![1; 1 << 20];
    disk.read(8 << 20, &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 0));
    disk.write(16 << 20, &pattern(4, 1 << 20)).unwrap();
    disk.write_zeroes(16 << 20, 1 << 20).unwrap();
    disk.read(16 << 20, &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 0));
    disk.flush().unwrap();
    end(server);
}

#[test]
fn discovery_in_both_kinds_of_session() {
    let server = server();
    let records = discovery::send_targets(&options(server.portals()[0])).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].name.as_str(), records[0].addresses[0].group_tag), (TARGET, Some(1)));
    let session = Session::connect(options(server.portals()[0])).unwrap();
    assert_eq!(session.send_targets("").unwrap()[0].name.as_str(), TARGET);
    assert_eq!(discovery::report_luns(&session).unwrap(), [LUN]);
    // "All" is for discovery sessions: it is refused, and the session is unaffected.
    assert!(matches!(session.send_targets("All"), Err(IoError::Request(_) | IoError::Rejected(_))));
    assert!(session.ping(Bytes::from_static(b"still there")).unwrap().intact);
    let answer = session.manage(TmfFunction::LogicalUnitReset, LUN).unwrap();
    assert_eq!(answer.response, TmfResponse::FunctionComplete);
    assert_eq!(session.info().unwrap().losses, 0);
    end(server);
}

#[test]
fn a_workload_in_the_event_loop_reads_what_it_wrote() {
    let server = server();
    let session = Session::connect(options(server.portals()[0])).unwrap();
    let checker = session.run(Checker::new(64, 4000)).unwrap();
    assert_eq!(checker.wrong, Vec::<String>::new());
    // The session can be used by others afterwards.
    Disk::open(&session, LUN).unwrap();
    end(server);
}

#[test]
fn many_threads_share_one_session() {
    let server = server();
    let disk = disk(&server);
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let disk = disk.clone();
            scope.spawn(move || {
                let place = thread << 20;
                for round in 0..30 {
                    let data = pattern(thread * 100 + round, 64 * 1024);
                    disk.write(place, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    disk.read(place, &mut back).unwrap();
                    assert!(back == data);
                }
            });
        }
    });
    end(server);
}

/// A workload that panics when the first of its commands ends.
struct Panics;

impl Workload for Panics {
    fn start(&mut self, io: &mut Submitter<'_>) {
        io.submit(Command::new(LUN, &[0; 6])).unwrap();
    }

    fn completed(&mut self, _: Completion, _: &mut Submitter<'_>) {
        panic!("on purpose");
    }

    fn is_done(&self) -> bool {
        false
    }
}

#[test]
fn nobody_waits_for_a_loop_that_has_died() {
    let server = server();
    let disk = disk(&server);
    let session = disk.session();
    let ended = |result: Result<(), IoError>| match result {
        Err(error @ IoError::SessionLost(_)) => {
            assert!(error.to_string().contains("loop has ended"), "{error}")
        }
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        // Some are outstanding when it dies, and some are submitted later.
        let before: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..1000).find_map(|_| disk.read(0, &mut [0; 512]).err())))
            .collect();
        assert!(session.run(Panics).is_none());
        before.into_iter().for_each(|reader| {
            if let Some(error) = reader.join().unwrap() {
                ended(Err(error))
            }
        });
    });
    ended(disk.write(0, &[0; 512]));
    ended(disk.flush());
    ended(Disk::open(session, LUN).map(drop));
    ended(session.send_targets("").map(drop));
    assert!(session.info().is_none() && session.ping(Bytes::new()).is_none());
    assert!(session.manage(TmfFunction::LogicalUnitReset, LUN).is_none() && session.run(Panics).is_none());
    session.logout();
    end(server);
}

// covers: ASY-01
#[test]
fn a_target_that_shuts_down_is_left_in_order() {
    let server = server();
    let mut options = options(server.portals()[0]);
    options.timeouts.reconnect = Duration::ZERO;
    let session = Session::connect(options).unwrap();
    let disk = Disk::open(&session, LUN).unwrap();
    end(server);
    let mut back = vec![0; 512];
    assert!(matches!(disk.read(0, &mut back), Err(IoError::SessionLost(_))));
    let info = session.info().unwrap();
    assert_eq!(info.last_loss, Some(initiator::CloseReason::TargetAsked), "asked, logged out, closed");
}
