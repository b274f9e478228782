//! A session whose connections use several portals, and connect from several addresses of this machine.

#[path = "support/checker.rs"]
mod checker;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use initiator::{CloseReason, ConnectError, Options, Session};
use target::Server;
use target::config::PortalConfig;

use self::checker::Checker;
use self::proxy::Proxy;
use self::server::{end, portal, server_with};

/// A server at these addresses, each with its portal group tag.
fn server(portals: &[(&str, u16)]) -> Server {
    let portal =
        |&(address, group_tag): &(&str, u16)| PortalConfig { address: address.parse().unwrap(), group_tag };
    server_with(|config| {
        config.portals = portals.iter().map(portal).collect();
        config.targets[0].bounds.default_time2wait_s = 0;
    })
}

/// `connections` to a target at the first of `portals`; it also has the others.
fn options(portals: &[SocketAddr], connections: u16) -> Options {
    let mut options = server::options(portals[0]);
    options.paths.portals = portals[1..].iter().copied().map(portal).collect();
    options.connections = connections;
    options
}

/// Waits until `n` connections are established; returns how many each portal has.
fn spread(session: &Session, n: usize) -> BTreeMap<SocketAddr, usize> {
    loop {
        let info = session.info().unwrap();
        assert_eq!(info.ended, None);
        if info.connections.len() == n {
            let mut spread = BTreeMap::new();
            info.connections.iter().for_each(|one| *spread.entry(one.address).or_default() += 1);
            return spread;
        }
        std::thread::yield_now();
    }
}

// covers: MCS-01
#[test]
fn connections_are_spread_over_portals_and_move_when_one_is_gone() {
    let server = server(&[("127.0.0.1:0", 1)]);
    let (a, b) = (Proxy::start(server.portals()[0]), Proxy::start(server.portals()[0]));
    let session = Session::connect(options(&[a.address(), b.address()], 4)).unwrap();
    assert_eq!(spread(&session, 4), BTreeMap::from([(a.address(), 2), (b.address(), 2)]));
    let done = Arc::new(AtomicU64::new(0));
    let mut checker = Checker::new(32, 12_000);
    checker.done = done.clone();
    let wait_for = |n: u64| {
        while done.load(Ordering::Relaxed) < n {
            std::thread::yield_now();
        }
    };
    let checker = std::thread::scope(|scope| {
        let running = scope.spawn(|| session.run(checker).unwrap());
        wait_for(1000);
        a.close();
        while !spread(&session, 4).contains_key(&b.address())
            || spread(&session, 4).contains_key(&a.address())
        {
            std::thread::yield_now();
        }
        assert_eq!(spread(&session, 4), BTreeMap::from([(b.address(), 4)]));
        // The portal is back, and gets connections again as soon as one must be reconnected.
        let again = Proxy::start_at(a.address(), server.portals()[0]);
        (0..b.count()).for_each(|n| b.cut(n));
        while !spread(&session, 4).contains_key(&a.address()) {
            std::thread::yield_now();
        }
        assert!(again.count() > 0);
        let checker = running.join().unwrap();
        session.logout();
        checker
    });
    assert_eq!(checker.wrong, Vec::<String>::new());
    end(server);
}

#[test]
fn the_portal_that_answers_opens_the_session() {
    let server = server(&[("127.0.0.1:0", 1)]);
    let way = Proxy::start(server.portals()[0]);
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let session = Session::connect(options(&[nobody, way.address()], 3)).unwrap();
    assert_eq!(spread(&session, 3), BTreeMap::from([(way.address(), 3)]));
    assert_eq!(session.info().unwrap().refused_connections, 0);
    // Both portals are gone: connecting fails.
    let mut options = options(&[nobody, nobody], 2);
    options.timeouts.connect = Duration::from_secs(5);
    assert!(Session::connect(options).is_err());
    drop(session);
    end(server);
}

// covers: MCS-01
#[test]
fn a_portal_of_another_group_gets_no_connection() {
    let server = server(&[("127.0.0.1:0", 1), ("127.0.0.2:0", 2)]);
    let portals = server.portals();
    let session = Session::connect(options(&portals, 4)).unwrap();
    assert_eq!(session.opening().login.portal_group_tag, Some(1));
    assert_eq!(spread(&session, 4), BTreeMap::from([(portals[0], 4)]));
    assert!(session.info().unwrap().refused_connections >= 1, "it was asked");
    let checker = session.run(Checker::new(8, 200)).unwrap();
    assert_eq!(checker.wrong, Vec::<String>::new());
    drop(session);
    end(server);
}

// covers: DSC-05
#[test]
fn a_target_that_is_asked_tells_the_portals_of_its_group() {
    let server = server(&[("127.0.0.1:0", 1), ("127.0.0.2:0", 1), ("127.0.0.3:0", 2), ("127.0.0.4:0", 1)]);
    let portals = server.portals();
    let mut options = options(&portals[..1], 6);
    options.paths.find_portals = true;
    let session = Session::connect(options).unwrap();
    let expected = BTreeMap::from([(portals[0], 2), (portals[1], 2), (portals[3], 2)]);
    assert_eq!(spread(&session, 6), expected);
    assert_eq!(session.info().unwrap().refused_connections, 0, "the other group was not asked");
    assert_eq!(session.send_targets("").unwrap().len(), 1, "others may ask as well");
    drop(session);
    end(server);
}

#[test]
fn a_target_that_drops_whoever_asks_for_portals_is_given_up() {
    let server = server(&[("127.0.0.1:0", 1)]);
    let way = Proxy::start(server.portals()[0]);
    way.die_of_text();
    for (patience, logins) in [(Duration::ZERO, 1), (Duration::from_secs(600), 6)] {
        let (mut options, before) = (options(&[way.address()], 1), way.count());
        (options.paths.find_portals, options.timeouts.reconnect) = (true, patience);
        let error = Session::connect(options.clone()).unwrap_err();
        assert!(matches!(error, ConnectError::Ended(CloseReason::Lost)), "{error}");
        assert_eq!(way.count() - before, logins);
        // A session that does not ask for portals is served.
        options.paths.find_portals = false;
        let session = Session::connect(options).unwrap();
        session.logout();
        assert_eq!(session.info().unwrap().ended, Some(CloseReason::LoggedOut));
    }
    end(server);
}

#[test]
fn connections_come_from_the_addresses_that_they_were_given() {
    let server = server(&[("127.0.0.1:0", 1)]);
    let way = Proxy::start(server.portals()[0]);
    let mut options = options(&[way.address()], 4);
    let ours: Vec<IpAddr> = ["127.0.0.5", "127.0.0.6"].iter().map(|ip| ip.parse().unwrap()).collect();
    options.paths.local_addresses.clone_from(&ours);
    let session = Session::connect(options).unwrap();
    spread(&session, 4);
    let mut clients = way.clients();
    clients.sort_unstable();
    assert_eq!(clients, [ours[0], ours[0], ours[1], ours[1]]);
    // A connection that is cut is reestablished, from the next address if necessary.
    way.cut(2);
    while way.count() < 5 || session.info().unwrap().connections.len() < 4 {
        std::thread::yield_now();
    }
    drop(session);
    end(server);
}

#[test]
fn an_address_that_is_not_ours_costs_its_turn_only() {
    let server = server(&[("127.0.0.1:0", 1)]);
    let mut options = options(&server.portals(), 3);
    // No machine has the second address (TEST-NET-1), so its connection finally comes from the first one.
    options.paths.local_addresses = vec!["127.0.0.5".parse().unwrap(), "192.0.2.1".parse().unwrap()];
    let session = Session::connect(options).unwrap();
    assert_eq!(spread(&session, 3), BTreeMap::from([(server.portals()[0], 3)]));
    drop(session);
    end(server);
}
