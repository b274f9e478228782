//! Several connections in a session between our initiator and our target, over a link that is cut and that
//! damages data.

#[path = "support/checker.rs"]
mod checker;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use initiator::{Disk, Options, Scheduling, Session};
use iscsi_core::params::{Asymmetric, Bounds, DigestPolicy, TaskReporting};
use iscsi_core::wire::{Cid, TmfFunction, TmfResponse};
use target::Server;

use self::checker::{Checker, pattern};
use self::proxy::{Damage, Proxy};
use self::server::{LUN, end, server, server_with};

/// A server whose negotiation `change` configures.
fn negotiating(change: impl FnOnce(&mut Bounds)) -> Server {
    server_with(|config| change(&mut config.targets[0].bounds))
}

/// `connections` through `proxy`, with at most this `level`.
fn options(proxy: &Proxy, connections: u16, level: u8) -> Options {
    let mut options = server::options(proxy.address());
    (options.connections, options.error_recovery_level) = (connections, Some(level));
    // Every connection should carry some of the load.
    options.session.scheduling = Scheduling::LeastOutstandingBytes;
    let bounds = &mut options.bounds;
    (bounds.header_digest, bounds.data_digest) = (DigestPolicy::Required, DigestPolicy::Required);
    options
}

/// Waits until all connections are established.
fn await_connections(session: &Session, n: usize) {
    while session.info().unwrap().connections.len() < n {
        std::thread::yield_now();
    }
}

#[test]
fn commands_are_spread_over_all_connections() {
    let server = server();
    for scheduling in [Scheduling::LeastOutstandingBytes, Scheduling::RoundRobin] {
        let proxy = Proxy::start(server.portals()[0]);
        let mut options = options(&proxy, 4, 0);
        options.session.scheduling = scheduling;
        let session = Session::connect(options).unwrap();
        await_connections(&session, 4);
        let checker = session.run(Checker::new(32, 2000)).unwrap();
        assert_eq!(checker.wrong, Vec::<String>::new());
        let info = session.info().unwrap();
        assert_eq!(info.connections.len(), 4);
        for connection in &info.connections {
            let pdus = connection.link.rx_pdus;
            assert!(pdus > 100, "{scheduling:?}: connection {} got {pdus} PDUs", connection.cid.0);
        }
        assert_eq!((info.losses, info.recovery.connections_lost, info.joins), (0, 0, 3));
        session.logout();
    }
    end(server);
}

// covers: MCS-05 MCS-07 MCS-08 ERL-10
#[test]
fn connections_that_are_cut_under_load_cost_neither_error_nor_data() {
    for level in 0..=2 {
        let server = server();
        let proxy = Proxy::start(server.portals()[0]);
        let session = Session::connect(options(&proxy, 4, level)).unwrap();
        await_connections(&session, 4);
        assert_eq!(session.opening().login.params.error_recovery_level, level);
        let done = Arc::new(AtomicU64::new(0));
        let mut checker = Checker::new(64, 12_000);
        checker.done = done.clone();
        let checker = std::thread::scope(|scope| {
            let running = scope.spawn(|| session.run(checker).unwrap());
            for (n, after) in [(1, 1000), (3, 3000), (0, 6000)] {
                while done.load(Ordering::Relaxed) < after {
                    std::thread::yield_now();
                }
                proxy.cut(n);
            }
            running.join().unwrap()
        });
        assert_eq!(checker.wrong, Vec::<String>::new(), "level {level}");
        let info = session.info().unwrap();
        assert_eq!(info.losses, 0, "level {level}: the session lived: {:?}", info.last_loss);
        assert_eq!(info.recovery.connections_lost, 3, "level {level}");
        await_connections(&session, 4);
        assert_eq!(session.info().unwrap().joins, 6, "level {level}: each came back once");
        session.logout();
        end(server);
    }
}

// covers: ERL-06 MCS-08
#[test]
fn in_asymmetric_use_each_connection_may_be_lost_under_load() {
    [Asymmetric::Pairs, Asymmetric::Halves].into_iter().for_each(lose_each_connection);
}

fn lose_each_connection(asymmetric: Asymmetric) {
    let server =
        negotiating(|bounds| (bounds.asymmetric, bounds.default_time2wait_s) = (Asymmetric::Pairs, 0));
    let proxy = Proxy::start(server.portals()[0]);
    let mut options = options(&proxy, 4, 2);
    options.bounds.asymmetric = asymmetric;
    let session = Session::connect(options).unwrap();
    await_connections(&session, 4);
    assert_eq!(session.opening().login.params.asymmetric, asymmetric);
    let done = Arc::new(AtomicU64::new(0));
    let mut checker = Checker::new(64, 20_000);
    checker.done = done.clone();
    let checker = std::thread::scope(|scope| {
        let running = scope.spawn(|| session.run(checker).unwrap());
        // The initial connections, one after another: two of them carry commands, two data.
        for n in 0..4 {
            while done.load(Ordering::Relaxed) < 1500 * (n + 1) {
                std::thread::yield_now();
            }
            proxy.cut(n as usize);
            while session.info().unwrap().recovery.connections_lost <= n {
                std::thread::yield_now();
            }
            await_connections(&session, 4);
        }
        running.join().unwrap()
    });
    assert_eq!(checker.wrong, Vec::<String>::new());
    let info = session.info().unwrap();
    assert_eq!((info.losses, info.recovery.connections_lost), (0, 4), "{:?}", info.last_loss);
    session.logout();
    end(server);
}

// covers: ERL-06
#[test]
fn a_session_of_one_connection_survives_its_loss_at_level_2() {
    let server = server();
    let proxy = Proxy::start(server.portals()[0]);
    let session = Session::connect(options(&proxy, 1, 2)).unwrap();
    let (done, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut checker = Checker::new(32, u32::MAX);
    (checker.done, checker.enough) = (done.clone(), enough.clone());
    let (checker, cuts) = std::thread::scope(|scope| {
        let running = scope.spawn(|| session.run(checker).unwrap());
        let mut cuts = 0;
        // A cut may catch all commands on their way to the target. Then they are sent again, and none is
        // reassigned.
        while cuts < 2 || (cuts < 20 && session.info().unwrap().recovery.tasks_reassigned == 0) {
            while done.load(Ordering::Relaxed) < 1000 * (cuts + 1) {
                std::thread::yield_now();
            }
            // The current connection is the last one.
            proxy.cut(proxy.count() - 1);
            while session.info().unwrap().recovery.connections_lost <= cuts {
                std::thread::yield_now();
            }
            await_connections(&session, 1);
            cuts += 1;
        }
        enough.store(true, Ordering::Relaxed);
        (running.join().unwrap(), cuts)
    });
    assert_eq!(checker.wrong, Vec::<String>::new());
    let info = session.info().unwrap();
    assert_eq!((info.login.logins, info.losses, info.joins), (1, 0, cuts));
    assert!(info.recovery.tasks_reassigned > 0, "{:?}", info.recovery);
    end(server);
}

// covers: SNK-01 ERL-04 MCS-08
#[test]
fn damaged_data_are_healed_in_place_at_level_1() {
    let server = server();
    let proxy = Proxy::start(server.portals()[0]);
    let mut options = options(&proxy, 2, 1);
    // Headers are short and rarely hit; damage to a header costs a connection.
    options.bounds.max_recv_data_segment_length = 8192;
    let session = Session::connect(options).unwrap();
    await_connections(&session, 2);
    let disk = Disk::open(&session, LUN).unwrap();
    for round in 0..20u64 {
        let data = pattern(round + 1, 256 * 1024);
        proxy.damage((round % 2) as usize, Damage::ToTarget);
        disk.write(round << 20, &data).unwrap();
        let mut back = vec![0; data.len()];
        proxy.damage((round % 2) as usize, Damage::ToInitiator);
        disk.read(round << 20, &mut back).unwrap();
        assert!(back == data, "round {round}");
    }
    let info = session.info().unwrap();
    assert_eq!((info.losses, info.data_digest_errors), (0, 0), "{:?}", info.recovery);
    assert!(info.recovery.snacks_sent > 0, "{:?}", info.recovery);
    end(server);
}

#[test]
fn a_target_that_wants_one_connection_gets_one() {
    let server = negotiating(|bounds| bounds.max_connections = 1);
    let proxy = Proxy::start(server.portals()[0]);
    let session = Session::connect(options(&proxy, 4, 2)).unwrap();
    assert_eq!(session.opening().login.params.max_connections, 1);
    let checker = session.run(Checker::new(8, 200)).unwrap();
    assert_eq!(checker.wrong, Vec::<String>::new());
    let info = session.info().unwrap();
    assert_eq!((info.connections.len(), info.joins, info.refused_connections), (1, 0, 0));
    assert_eq!(info.connections[0].cid, Cid(0));
    end(server);
}

// covers: P2-02 P2-05 FAB-01
#[test]
fn functions_of_level_2_and_a_nexus_reset() {
    let server = negotiating(|bounds| {
        (bounds.protocol_level, bounds.task_reporting) = (2, TaskReporting::FastAbort);
    });
    let proxy = Proxy::start(server.portals()[0]);
    let mut options = options(&proxy, 2, 2);
    options.bounds.protocol_level = 2;
    options.bounds.task_reporting = TaskReporting::FastAbort;
    let session = Session::connect(options).unwrap();
    await_connections(&session, 2);
    assert_eq!(session.opening().login.params.protocol_level, 2);
    let ask = |function| session.manage(function, LUN).map(|answer| answer.response);
    assert_eq!(ask(TmfFunction::QueryTaskSet), Some(TmfResponse::FunctionComplete), "no task is there");
    assert!(ask(TmfFunction::QueryAsyncEvent).is_some());
    assert_eq!(ask(TmfFunction::LogicalUnitReset), Some(TmfResponse::FunctionComplete));
    // The answer may be lost with the connections; either way the nexus starts again.
    ask(TmfFunction::ITNexusReset);
    let disk = Disk::open(&session, LUN).unwrap();
    disk.write(0, &pattern(1, 4096)).unwrap();
    assert!(session.info().unwrap().login.logins >= 2);
    end(server);
}

#[test]
fn commands_and_data_on_different_connections() {
    let server = negotiating(|bounds| bounds.asymmetric = Asymmetric::Pairs);
    let proxy = Proxy::start(server.portals()[0]);
    let mut options = options(&proxy, 2, 0);
    options.bounds.asymmetric = Asymmetric::Pairs;
    let session = Session::connect(options).unwrap();
    await_connections(&session, 2);
    assert_eq!(session.opening().login.params.asymmetric, Asymmetric::Pairs);
    let checker = session.run(Checker::new(16, 1000)).unwrap();
    assert_eq!(checker.wrong, Vec::<String>::new());
    let info = session.info().unwrap();
    let received = |cid: usize| info.connections[cid].link.rx_bytes;
    assert!(received(1) > 100 * received(0), "{:?}", info.connections);
    end(server);
}
