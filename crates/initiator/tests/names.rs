//! Host names are resolved outside the event loop: a silent name server delays only the callers that wait for its answer.

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use engine::driver::epoll::EpollDriver;
use engine::offload::Job;
use engine::{Lane, Platform, Resolve, System};
use initiator::{ConnectError, Disk, Portal, Session};
use iscsi_core::params::DigestPolicy;
use parking_lot::{Condvar, Mutex};
use target::config::PortalConfig;

use self::proxy::Proxy;
use self::server::{LUN, end, options, server_with};

/// Longer than anything here takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Zone {
    /// Questions so far.
    asked: usize,
    /// How many of them may be answered.
    answers: usize,
    address: Option<IpAddr>,
}

/// A name server that answers only when the test allows it.
#[derive(Default)]
struct NameServer {
    zone: Mutex<Zone>,
    changed: Condvar,
}

impl NameServer {
    fn resolve(&self, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut zone = self.zone.lock();
        zone.asked += 1;
        let mine = zone.asked;
        self.changed.notify_all();
        while zone.answers < mine {
            self.changed.wait(&mut zone);
        }
        zone.address.map(|ip| vec![SocketAddr::new(ip, port)]).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn wait_for_question(&self, n: usize) {
        let mut zone = self.zone.lock();
        while zone.asked < n {
            assert!(!self.changed.wait_for(&mut zone, PATIENCE).timed_out(), "nobody asks");
        }
    }

    fn answer(&self, up_to: usize, address: IpAddr) {
        let mut zone = self.zone.lock();
        (zone.answers, zone.address) = (up_to, Some(address));
        self.changed.notify_all();
    }
}

/// The system, with that name server.
struct Named(System, Arc<NameServer>);

impl Platform for Named {
    type Driver = EpollDriver;

    fn driver(&self) -> io::Result<EpollDriver> {
        self.0.driver()
    }
    fn now(&self) -> Duration {
        self.0.now()
    }
    fn offload(&self, lane: &Lane, job: Job) {
        self.0.offload(lane, job);
    }
    fn resolver(&self) -> Resolve {
        let names = Arc::clone(&self.1);
        Arc::new(move |_, port| names.resolve(port))
    }
    fn fill_random(&self, bytes: &mut [u8]) {
        self.0.fill_random(bytes);
    }
}

/// The result of `ask`, unless it hangs.
fn in_time<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (answer, awaited) = mpsc::channel();
    std::thread::spawn(move || answer.send(ask()));
    awaited.recv_timeout(PATIENCE).expect("the event loop waits for a name server")
}

#[test]
fn a_session_serves_while_the_names_of_further_portals_are_asked_for() {
    let portal = |address: &str| PortalConfig { address: address.parse().unwrap(), group_tag: 1 };
    let server = server_with(|config| config.portals = vec![portal("127.0.0.1:0"), portal("127.0.0.2:0")]);
    let way = Proxy::start(server.portals()[0]);
    way.rename(b"127.0.0.2", b"disk.test");
    let names = Arc::new(NameServer::default());
    let mut options = options(way.address());
    (options.bounds.header_digest, options.bounds.data_digest) = (DigestPolicy::Off, DigestPolicy::Off);
    (options.paths.find_portals, options.connections) = (true, 4);
    let platform = Named(System::new(1), names.clone());
    let session = in_time(move || Session::connect_on(platform, options).unwrap());
    names.wait_for_question(1);
    // No question is answered, and the session works all the same.
    let disk = Disk::open(&session, LUN).unwrap();
    let (disk, back) = in_time(move || {
        disk.write(0, &[0x5a; 512]).unwrap();
        let mut back = vec![0; 512];
        disk.read(0, &mut back).unwrap();
        (disk, back)
    });
    assert_eq!(back, [0x5a; 512]);
    assert_eq!(session.info().unwrap().connections.len(), 1, "the others wait for their portals");
    names.answer(1, "127.0.0.2".parse().unwrap());
    let other = server.portals()[1];
    while session.info().unwrap().connections.iter().filter(|one| one.address == other).count() < 1 {
        std::thread::yield_now();
    }
    drop(disk);
    drop(session);
    end(server);
}

#[test]
fn a_session_that_comes_back_answers_while_the_name_of_its_host_is_asked_for() {
    let server = server_with(|config| config.targets[0].bounds.default_time2wait_s = 0);
    let way = Proxy::start(server.portals()[0]);
    let names = Arc::new(NameServer::default());
    let mut options = options(way.address());
    options.portal = Portal::new("target.test", way.address().port());
    let here = way.address().ip();
    names.answer(1, here);
    let platform = Named(System::new(1), names.clone());
    let session = in_time(move || Session::connect_on(platform, options).unwrap());
    way.cut(0);
    names.wait_for_question(2);
    let session = Arc::new(session);
    let asker = Arc::clone(&session);
    let info = in_time(move || asker.info().unwrap());
    assert!(info.connections.is_empty() && info.ended.is_none(), "{info:?}");
    names.answer(2, here);
    while session.info().unwrap().login.logins < 2 {
        std::thread::yield_now();
    }
    drop(session);
    end(server);
}

#[test]
fn a_name_that_nobody_answers_is_given_up_after_the_time_to_connect() {
    let names = Arc::new(NameServer::default());
    let mut options = options("127.0.0.1:1".parse().unwrap());
    options.portal = Portal::new("target.test", 1);
    options.timeouts.connect = Duration::from_millis(50);
    let platform = Named(System::new(1), names.clone());
    let error = in_time(move || Session::connect_on(platform, options).err().unwrap());
    let ConnectError::Resolve { host, error } = &error else { panic!("{error}") };
    assert_eq!((host.as_str(), error.kind()), ("target.test", io::ErrorKind::TimedOut));
    // The thread that waits for the answer ends with it.
    names.answer(1, "127.0.0.1".parse().unwrap());
}

// covers: LGN-15
#[test]
fn a_redirection_to_a_name_is_followed_when_its_address_is_known() {
    let there = server_with(|_| {});
    let port = there.portals()[0].port();
    let here = server_with(|config| {
        config.targets[0].redirect = Some(vec![format!("target.test:{port}")]);
        config.targets[0].luns.clear();
    });
    let names = Arc::new(NameServer::default());
    let options = options(here.portals()[0]);
    let platform = Named(System::new(1), names.clone());
    let opening = std::thread::spawn(move || Session::connect_on(platform, options).unwrap());
    names.wait_for_question(1);
    names.answer(1, there.portals()[0].ip());
    let session = in_time(move || opening.join().unwrap());
    assert_eq!(session.info().unwrap().connections[0].address, there.portals()[0]);
    drop(session);
    end(here);
    end(there);
}
