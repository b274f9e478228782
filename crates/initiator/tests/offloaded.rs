//! Sessions whose commands the software engine carries out, on our target: the same API, the same bytes.

#[path = "support/checker.rs"]
mod checker;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use initiator::offload::encoding::RECORD_BYTES;
use initiator::offload::{Busy, Caps, Engine, HostMem, SoftwareEngine, Tables};
use initiator::{
    Circuit, ConnectError, Disk, EngineKind, IoError, NotOffloaded, Options, PiTags, Session, WriteData, cdb,
    discovery,
};
use iscsi_core::params::{Asymmetric, DigestPolicy};
use iscsi_core::wire::{TmfFunction, TmfResponse};

use self::checker::{Checker, pattern};
use self::proxy::{Damage, Proxy};
use self::server::{LUN, TARGET, end, level_server, server, server_with};

/// Options of a session with an engine, at this level.
fn options(address: std::net::SocketAddr, level: u8) -> Options {
    let mut options = server::options(address);
    options.set_engine(EngineKind::Software);
    options.error_recovery_level = Some(level);
    options.session.snack_delay = Duration::from_millis(1);
    options
}

/// Writes and reads back pieces of many lengths.
fn round(disk: &Disk, seed: u64) {
    for (offset, len) in [(0, 512), (4096, 20_480), (1 << 20, 300 * 512), (2 << 20, 5 << 20)] {
        let data = pattern(offset + seed, len);
        disk.write(offset, &data).unwrap();
        let mut back = vec![0; len];
        disk.read(offset, &mut back).unwrap();
        assert!(back == data, "{len} bytes at {offset}");
    }
}

#[test]
fn every_way_to_send_write_data_brings_the_same_bytes() {
    let server = level_server();
    let mut seed = 0;
    for (initial_r2t, immediate_data) in [(false, true), (true, true), (false, false), (true, false)] {
        for digest in [DigestPolicy::Off, DigestPolicy::Required] {
            for level in 0..=2 {
                let mut options = options(server.portals()[0], level);
                let bounds = &mut options.bounds;
                (bounds.bursts.initial_r2t, bounds.bursts.immediate_data) = (initial_r2t, immediate_data);
                (bounds.header_digest, bounds.data_digest) = (digest, digest);
                (bounds.max_recv_data_segment_length, bounds.bursts.max_burst_length) = (8192, 50_000);
                bounds.bursts.first_burst_length = 20_000;
                let session = Session::connect(options).unwrap();
                let params = &session.opening().login.params;
                assert_eq!((params.bursts.initial_r2t, params.error_recovery_level), (initial_r2t, level));
                assert_eq!(params.digests.data, digest == DigestPolicy::Required);
                seed += 1;
                round(&Disk::open(&session, LUN).unwrap(), seed);
                assert_eq!(session.info().unwrap().losses, 0);
                session.logout();
            }
        }
    }
    end(server);
}

#[test]
fn what_an_engine_does_not_handle_works_beside_it() {
    let server = server();
    let session = Session::connect(options(server.portals()[0], 0)).unwrap();
    assert_eq!(session.send_targets("").unwrap()[0].name.as_str(), TARGET);
    assert_eq!(discovery::report_luns(&session).unwrap(), [LUN]);
    assert!(session.ping(Bytes::from(pattern(3, 5000))).unwrap().intact);
    let answer = session.manage(TmfFunction::LogicalUnitReset, LUN).unwrap();
    assert_eq!(answer.response, TmfResponse::FunctionComplete);
    let disk = Disk::open(&session, LUN).unwrap();
    let (old, new) = (pattern(1, 512), pattern(2, 512));
    disk.write(4096, &old).unwrap();
    assert!(matches!(disk.compare_and_write(4096, &new, &old), Err(IoError::Miscompare { .. })));
    disk.compare_and_write(4096, &old, &new).unwrap();
    disk.unmap(8 << 20, 1 << 20).unwrap();
    assert!(!disk.allocation(8 << 20).unwrap().unwrap()[0].mapped);
    assert!(session.declare_max_recv_data_segment_length(4096));
    round(&disk, 5);
    assert!(session.declare_max_recv_data_segment_length(64 * 1024));
    round(&disk, 6);
    assert!(!session.declare_max_recv_data_segment_length(64 * 1024 + 4), "an engine takes no more");
    assert_eq!(session.info().unwrap().losses, 0);
    assert!(!discovery::send_targets(session.options()).unwrap().is_empty());
    session.logout();
    end(server);
}

/// A read that is too long for an engine, and a CDB that does not fit: software carries them out, through the engine.
#[test]
fn commands_that_an_engine_cannot_carry_out_are_carried_out_by_software() {
    let server = server();
    let session = Session::connect(options(server.portals()[0], 0)).unwrap();
    let disk = Disk::open(&session, LUN).unwrap();
    round(&disk, 9);
    let read =
        |length| disk.submit(&cdb::read(0, 2048), length, WriteData::default()).wait().unwrap().to_vec();
    let long = read(17 << 20);
    assert!(long == read(1 << 20) && long.len() == 1 << 20);
    for write in [Bytes::new(), Bytes::from(pattern(1, 300_000))] {
        let refused = disk.submit(&[0x7f; 32], 0, WriteData::from(write)).wait();
        assert!(matches!(refused, Err(IoError::CheckCondition(_))), "{refused:?}");
    }
    assert_eq!(session.info().unwrap().losses, 0);
    end(server);
}

/// More commands than the engine's table holds.
#[test]
fn a_workload_reads_what_it_wrote_through_an_engine() {
    let server = server_with(|config| config.targets[0].queue_depth = 512);
    for slots in [64, 400] {
        let session = Session::connect(options(server.portals()[0], 0)).unwrap();
        let checker = session.run(Checker::new(slots, 4000)).unwrap();
        assert_eq!(checker.wrong, Vec::<String>::new());
        assert_eq!(session.info().unwrap().losses, 0);
    }
    end(server);
}

// covers: DIG-11 DIG-12 ERL-03 SNK-03
#[test]
fn damaged_data_is_requested_again_or_the_session_recovered() {
    let server = level_server();
    for level in 0..=2 {
        let proxy = Proxy::start(server.portals()[0]);
        let mut options = options(proxy.address(), level);
        options.bounds.header_digest = DigestPolicy::Off;
        options.bounds.data_digest = DigestPolicy::Required;
        let session = Session::connect(options).unwrap();
        let disk = Disk::open(&session, LUN).unwrap();
        round(&disk, 20);
        for (n, damage) in [Damage::ToInitiator, Damage::ToTarget].into_iter().enumerate() {
            proxy.damage(proxy.count() - 1, damage);
            round(&disk, 21 + n as u64);
            if damage == Damage::ToInitiator {
                assert_eq!(proxy.count(), if level > 0 { 1 } else { 2 }, "connections at level {level}");
            }
        }
        let info = session.info().unwrap();
        assert_eq!(info.data_digest_errors, 1, "at level {level}");
        match level {
            0 => assert!(info.losses > 0 && info.recovery.snacks_sent == 0, "{info:?}"),
            _ => assert!(info.recovery.snacks_sent > 0, "{info:?}"),
        }
    }
    end(server);
}

// covers: DIG-07 SES-06
#[test]
fn a_cut_connection_costs_the_session_and_no_data() {
    let server = level_server();
    for level in 0..=2 {
        let proxy = Proxy::start(server.portals()[0]);
        let session = Session::connect(options(proxy.address(), level)).unwrap();
        let disk = Disk::open(&session, LUN).unwrap();
        for n in 0..3 {
            round(&disk, n);
            proxy.cut(proxy.count() - 1);
        }
        round(&disk, 4);
        let info = session.info().unwrap();
        assert_eq!((info.losses, info.recovery.connections_lost), (3, 0), "at level {level}");
    }
    end(server);
}

#[test]
fn what_an_engine_cannot_have_is_refused_with_its_rule_and_remedy() {
    let server = server();
    let refused = |change: fn(&mut Options)| {
        let mut options = options(server.portals()[0], 0);
        change(&mut options);
        let error = Session::connect(options).unwrap_err();
        assert!(error.rule().is_some() && error.remedy().contains("engine=none"), "{error}");
        match error {
            ConnectError::NotOffloaded(refusal) => refusal,
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(|options| options.connections = 2), NotOffloaded::Connections);
    assert_eq!(refused(|options| options.bounds.asymmetric = Asymmetric::Pairs), NotOffloaded::Connections);
    assert_eq!(
        refused(|options| options.protection = Some(PiTags { app_tag: 0, app_mask: 0, ref_tag: None })),
        NotOffloaded::Protection
    );
    assert_eq!(refused(|options| options.set_engine(EngineKind::Rtl)), NotOffloaded::NoCircuit);
    end(server);
}

/// An engine that can do less than ours.
struct SmallEngine(SoftwareEngine);

impl SmallEngine {
    /// Commands at a time.
    const COMMANDS: u16 = 2;
}

impl Engine for SmallEngine {
    fn caps(&self) -> Caps {
        Caps {
            commands: Self::COMMANDS,
            buffer_bytes: 4096,
            outstanding_r2t: 1,
            error_recovery_level: 0,
            ..self.0.caps()
        }
    }

    fn submit(&mut self, memory: &mut dyn HostMem, descriptor: &[u8; RECORD_BYTES]) -> Result<(), Busy> {
        self.0.submit(memory, descriptor)?;
        assert!(
            self.0.tables().commands.len() <= Self::COMMANDS.into(),
            "more commands than it has room for"
        );
        Ok(())
    }

    fn poll(&mut self) -> Option<[u8; RECORD_BYTES]> {
        self.0.poll()
    }

    fn rx(&mut self, memory: &mut dyn HostMem, conn: u16, bytes: &[u8]) -> usize {
        self.0.rx(memory, conn, bytes)
    }

    fn tx(&mut self, memory: &mut dyn HostMem, conn: u16, out: &mut [u8]) -> usize {
        self.0.tx(memory, conn, out)
    }

    fn release_raw(&mut self, conn: u16, slots: u16) {
        self.0.release_raw(conn, slots);
    }

    fn advance(&mut self, now_us: u64) {
        self.0.advance(now_us);
    }

    fn deadline_us(&self) -> Option<u64> {
        self.0.deadline_us()
    }

    fn tables(&self) -> Tables {
        self.0.tables()
    }
}

/// An engine that the program brings along negotiates within its own bounds, and every login has a new one.
#[test]
fn an_engine_of_the_program_decides_what_is_negotiated() {
    let server = level_server();
    let made = Arc::new(AtomicUsize::new(0));
    let proxy = Proxy::start(server.portals()[0]);
    let mut options = options(proxy.address(), 2);
    options.set_engine(EngineKind::Rtl);
    options.bounds.bursts.max_outstanding_r2t = 8;
    let count = made.clone();
    options.set_circuit(Circuit::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        SmallEngine(SoftwareEngine::new())
    }));
    let session = Session::connect(options).unwrap();
    let params = &session.opening().login.params;
    assert_eq!((params.max_recv_data_segment_length, params.error_recovery_level), (4096, 0));
    assert_eq!(params.bursts.max_outstanding_r2t, 1);
    assert!(!session.declare_max_recv_data_segment_length(4097), "longer than its buffer");
    // 64 commands at a time: software sends those for which the engine has no room.
    assert_eq!(session.run(Checker::new(64, 1000)).unwrap().wrong, Vec::<String>::new());
    let disk = Disk::open(&session, LUN).unwrap();
    round(&disk, 3);
    proxy.cut(0);
    round(&disk, 4);
    assert_eq!(
        (session.info().unwrap().login.logins, made.load(Ordering::Relaxed)),
        (2, 3),
        "one was asked for its bounds"
    );
    session.logout();
    end(server);
}
