//! What commands, logins and the housekeeping of a shard cost does not depend on how many sessions there are: what is looked at is
//! counted. The clock is the test's, and half a second passes with each command.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conform::{Command, LoginScript, RawPeer, Session, Transcript};
use engine::offload::Job;
use engine::{EpollDriver, Lane, Platform, System};
use iscsi_core::wire::{Isid, Lun};
use target::Stepped;
use target::config::{Config, Overrides, PortalConfig};
use target::observe::Observe;

const STEP: Duration = Duration::from_secs(20);
const TARGET: &str = "iqn.2026-01.org.example:many";
/// Longer than the time after which a shard looks at deadlines.
const A_WHILE: Duration = Duration::from_millis(600);

/// The system, but for its clock.
struct Clocked {
    system: System,
    millis: Arc<AtomicU64>,
}

impl Platform for Clocked {
    type Driver = EpollDriver;

    fn driver(&self) -> io::Result<EpollDriver> {
        self.system.driver()
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn offload(&self, lane: &Lane, job: Job) {
        self.system.offload(lane, job);
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.system.fill_random(bytes);
    }
}

struct Lab {
    address: SocketAddr,
    millis: Arc<AtomicU64>,
    looked_at: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Something for the shard to wake up for.
        drop(std::net::TcpStream::connect(self.address));
    }
}

impl Lab {
    /// A server of one shard in a thread of its own.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let overrides = Overrides { listen: vec![address], ..Overrides::default() };
        let mut config = Config::quick(Some(TARGET), vec!["ram:1M".parse().unwrap()], &overrides).unwrap();
        config.limits.ping_interval = Duration::from_secs(3600);
        config.limits.login_timeout = Duration::from_secs(3600);
        let millis = Arc::new(AtomicU64::new(1000));
        let looked_at = Arc::<AtomicU64>::default();
        let over = Arc::<AtomicBool>::default();
        let platform = Clocked { system: System::new(1), millis: Arc::clone(&millis) };
        let lab = Self { address, millis, looked_at: Arc::clone(&looked_at), over: Arc::clone(&over) };
        std::thread::spawn(move || {
            let observe = Arc::new(Observe::new());
            let open = Arc::new(|lun: &target::config::LunConfig| lun.store.open());
            let mut server = Stepped::start(platform, config, observe, open, 1).unwrap();
            server.listen(listener, PortalConfig { address, group_tag: 1 });
            while !over.load(Ordering::Relaxed) && server.turn(0).unwrap() {
                looked_at.store(server.looked_at(), Ordering::Relaxed);
            }
        });
        lab
    }

    fn log_in(&self, number: u32) -> Session {
        self.pass_a_while();
        let peer = RawPeer::connect(self.address, STEP, &Transcript::new()).unwrap();
        let mut script = LoginScript::new("iqn.2026-01.org.example:host", Some(TARGET));
        script.isid = Isid::random([0, 0, (number >> 16) as u8], number as u16);
        Session::log_in(peer, script, Lun(0)).unwrap()
    }

    fn pass_a_while(&self) {
        self.millis.fetch_add(A_WHILE.as_millis() as u64, Ordering::Relaxed);
    }

    /// How many sessions and connections are looked at while `f` goes on.
    fn looks<T>(&self, f: impl FnOnce() -> T) -> (u64, T) {
        let before = self.looked_at.load(Ordering::Relaxed);
        let result = f();
        (self.looked_at.load(Ordering::Relaxed) - before, result)
    }
}

#[test]
fn commands_logins_and_reinstatements_do_not_look_at_the_sessions_of_others() {
    const MANY: u32 = 256;
    const TIMES: u32 = 100;
    let lab = Lab::start();
    let (logins, idle) = lab.looks(|| (0..MANY).map(|n| lab.log_in(n)).collect::<Vec<_>>());
    // If each looked at those before it, they would be 32 thousand.
    assert!(logins < 16 * u64::from(MANY), "{logins} sessions were looked at for {MANY} logins");

    let mut active = lab.log_in(MANY);
    active.clear_unit_attentions().unwrap();
    let (commands, ()) = lab.looks(|| {
        for _ in 0..TIMES {
            lab.pass_a_while();
            active.run_good(&Command::read_16(0, 1, 512)).unwrap();
        }
    });
    // Each is looked after half a second later, and nobody else is.
    let expected = u64::from(TIMES / 2)..=u64::from(4 * TIMES);
    assert!(expected.contains(&commands), "{commands} sessions were looked at for {TIMES} commands");

    let (again, _idle) = lab.looks(|| {
        let replaced: Vec<_> = (0..TIMES).map(|n| lab.log_in(n)).collect();
        (replaced, idle)
    });
    assert!(again < u64::from(16 * TIMES), "{again} sessions were looked at for {TIMES} reinstatements");
}
