//! Sessions of four connections on real sockets, under a load of reads and verified writes, while something happens to one
//! connection: the caller sees neither an error nor a wrong byte. At ErrorRecoveryLevel 2 the session goes on and the tasks of the
//! connection with it; below, they end with their connection and are begun anew; at level 1 a PDU that was corrupted is sent
//! again, at level 0 it costs its connection. And a client that disappears in mid-work.

use std::net::{IpAddr, SocketAddr};
use std::process::Command as Program;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{PATIENCE, Serve, intact};
use crate::proxy::{Fault, Proxy};
use crate::support::{DIGESTS_REQUIRED, IQN, left_out, report, resident_bytes, serve, target, until};
use conform::{Command, LoginScript, RawPeer, Transcript};
use initiator::{Disk, Options, Portal, Scheduling, Session, SessionInfo};
use iscsi_core::names::IscsiName;
use iscsi_core::params::DigestPolicy;
use iscsi_core::wire::{Lun, keys};

const CONNECTIONS: u16 = 4;
const WORKERS: usize = 8;
const BLOCK_BYTES: usize = 4096;
const BLOCKS_PER_WORKER: usize = 64;
/// Blocks of one command, at most.
const MOST_BLOCKS: usize = 16;
/// Operations that pass before something happens, and after everything is well again.
const SOME: u64 = 400;

/// What a client does all the time: each worker has blocks of its own, writes them with a growing number, and reads what it
/// wrote before.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    wrong: Arc<Mutex<Vec<String>>>,
    workers: Vec<JoinHandle<Vec<u64>>>,
    disk: Disk,
}

fn block(number: usize, generation: u64) -> Vec<u8> {
    let mut unit = [0; 16];
    unit[..8].copy_from_slice(&(number as u64).to_be_bytes());
    unit[8..].copy_from_slice(&generation.to_be_bytes());
    unit.repeat(BLOCK_BYTES / 16)
}

fn blocks(first: usize, generations: &[u64]) -> Vec<u8> {
    generations.iter().enumerate().flat_map(|(n, generation)| block(first + n, *generation)).collect()
}

impl Load {
    fn start(disk: &Disk) -> Self {
        let load = Self {
            stop: Arc::default(),
            done: Arc::default(),
            wrong: Arc::default(),
            workers: Vec::new(),
            disk: disk.clone(),
        };
        let workers = (0..WORKERS).map(|worker| load.worker(worker)).collect();
        Self { workers, ..load }
    }

    fn worker(&self, worker: usize) -> JoinHandle<Vec<u64>> {
        let (stop, done, wrong) = (self.stop.clone(), self.done.clone(), self.wrong.clone());
        let disk = self.disk.clone();
        std::thread::spawn(move || {
            let base = worker * BLOCKS_PER_WORKER;
            let mut known = vec![0u64; BLOCKS_PER_WORKER];
            let mut dice = 0x9e37_79b9_7f4a_7c15 ^ worker as u64;
            let mut roll = |below: usize| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                (dice % below as u64) as usize
            };
            let all = blocks(base, &known);
            if let Err(error) = disk.write((base * BLOCK_BYTES) as u64, &all) {
                wrong.lock().unwrap().push(format!("the first write: {error}"));
                return known;
            }
            let mut generation = 0;
            while !stop.load(Ordering::Relaxed) {
                let count = 1 + roll(MOST_BLOCKS);
                let first = roll(BLOCKS_PER_WORKER - count + 1);
                let offset = ((base + first) * BLOCK_BYTES) as u64;
                let failure = if roll(2) == 0 {
                    generation += 1;
                    let data = blocks(base + first, &vec![generation; count]);
                    known[first..first + count].fill(generation);
                    disk.write(offset, &data).err().map(|error| format!("write: {error}"))
                } else {
                    let mut data = vec![0; count * BLOCK_BYTES];
                    match disk.read(offset, &mut data) {
                        Err(error) => Some(format!("read: {error}")),
                        Ok(()) if data != blocks(base + first, &known[first..first + count]) => {
                            Some(format!("worker {worker} read other bytes at block {first} than it wrote"))
                        }
                        Ok(()) => None,
                    }
                };
                if let Some(words) = failure {
                    wrong.lock().unwrap().push(words);
                    break;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            known
        })
    }

    /// Waits for so many operations more, or for one that went wrong.
    fn pass(&self, more: u64) {
        let due = self.done.load(Ordering::Relaxed) + more;
        until("operations are done", || {
            self.done.load(Ordering::Relaxed) >= due || !self.wrong.lock().unwrap().is_empty()
        });
    }

    /// Ends it, and looks at the whole medium. What went wrong.
    fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut wrong = Vec::new();
        for (worker, thread) in self.workers.into_iter().enumerate() {
            let known = thread.join().unwrap();
            let base = worker * BLOCKS_PER_WORKER;
            let mut data = vec![0; BLOCKS_PER_WORKER * BLOCK_BYTES];
            match self.disk.read((base * BLOCK_BYTES) as u64, &mut data) {
                Err(error) => wrong.push(format!("the last read: {error}")),
                Ok(()) if data != blocks(base, &known) => {
                    wrong.push(format!("the blocks of worker {worker} are not as it wrote them last"));
                }
                Ok(()) => {}
            }
        }
        let mut all = std::mem::take(&mut *self.wrong.lock().unwrap());
        all.append(&mut wrong);
        all
    }
}

/// A session that notices within a second when nothing is heard any more.
fn options(portal: SocketAddr, level: u8) -> Options {
    let target = Some(IscsiName::parse(IQN).unwrap());
    let mut options = Options::new(Portal::new(portal.ip().to_string(), portal.port()), target);
    options.bounds.header_digest = DigestPolicy::Required;
    options.bounds.data_digest = DigestPolicy::Required;
    // Bursts of several PDUs, so that something can be missing in the middle.
    options.bounds.max_recv_data_segment_length = 8192;
    options.session.bounds = options.bounds.clone();
    options.session.ping_interval = Duration::from_millis(300);
    options.session.ping_timeout = Duration::from_millis(500);
    // Every connection is to carry some of it.
    options.session.scheduling = Scheduling::LeastOutstandingBytes;
    options.connections = CONNECTIONS;
    options.error_recovery_level = Some(level);
    options
}

fn all_joined(session: &Session) -> bool {
    session.info().is_some_and(|info| info.connections.len() == usize::from(CONNECTIONS))
}

/// The load with this fault in the middle: what the session says at its end. Nothing may have gone wrong for the caller, and all
/// connections stand again.
#[track_caller]
fn struck(level: u8, fault: Fault) -> SessionInfo {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, DIGESTS_REQUIRED, &["ram:16M"]));
    let proxy = Proxy::start(server.portal());
    let session = Session::connect(options(proxy.address, level)).unwrap();
    until("all connections stand", || all_joined(&session));
    assert_eq!(session.opening().login.params.error_recovery_level, level);
    let disk = Disk::open(&session, Lun::from_index(0)).unwrap();
    let load = Load::start(&disk);
    load.pass(SOME);
    let before = session.info().unwrap();
    proxy.strike(fault);
    match fault {
        Fault::CorruptData(count) => until("all bits are flipped", || {
            proxy.flips() >= u64::from(count) || losses(&session) > losses_of(&before)
        }),
        _ => until("the loss is noticed", || losses(&session) > losses_of(&before)),
    }
    until("all connections stand again", || all_joined(&session));
    load.pass(SOME);
    let wrong = load.finish();
    let info = session.info().unwrap();
    if !wrong.is_empty() {
        report("connections-failed.txt", &proxy.log());
    }
    assert!(wrong.is_empty(), "level {level}, {fault:?}: {wrong:#?}\n{info:#?}");
    session.logout();
    report(
        &format!("connections-{level}-{fault:?}.txt"),
        &format!(
            "level {level}, {fault:?}: losses {}, logins {}, {:?}",
            info.losses, info.login.logins, info.recovery
        ),
    );
    info
}

/// Connections and sessions that were lost.
fn losses_of(info: &SessionInfo) -> u64 {
    info.losses + info.recovery.connections_lost
}

fn losses(session: &Session) -> u64 {
    session.info().as_ref().map_or(0, losses_of)
}

/// The session went on: only the connection was lost, and its tasks went on elsewhere.
#[track_caller]
fn connection_recovery(info: &SessionInfo) {
    assert_eq!((info.losses, info.login.logins), (0, 1), "the session was lost: {info:#?}");
    assert!(info.recovery.connections_lost >= 1, "{info:#?}");
    assert_eq!(info.recovery.commands_begun_anew, 0, "{info:#?}");
}

/// As [`connection_recovery`], where the target knew a task that the initiator heard nothing of.
#[track_caller]
fn reassignment(info: &SessionInfo) {
    connection_recovery(info);
    assert!(info.recovery.tasks_reassigned >= 1, "{info:#?}");
}

/// The tasks of the connection ended with it and were begun anew, and nothing was reassigned.
#[track_caller]
fn begun_anew(info: &SessionInfo) {
    assert!(info.losses >= 1 || info.recovery.commands_begun_anew >= 1, "{info:#?}");
    assert_eq!(info.recovery.tasks_reassigned, 0, "{info:#?}");
}

// covers: MCS-05 MCS-07 ERL-06
#[test]
fn a_connection_that_is_cut() {
    reassignment(&struck(2, Fault::Cut));
    for level in [0, 1] {
        begun_anew(&struck(level, Fault::Cut));
    }
}

// covers: ERL-11
#[test]
fn a_connection_that_hangs() {
    connection_recovery(&struck(2, Fault::Hang));
    reassignment(&struck(2, Fault::HangAnswers));
    for level in [0, 1] {
        begun_anew(&struck(level, Fault::HangAnswers));
    }
}

// covers: ERL-10
#[test]
fn a_connection_whose_headers_are_corrupted() {
    connection_recovery(&struck(2, Fault::CorruptHeader));
    for level in [0, 1] {
        begun_anew(&struck(level, Fault::CorruptHeader));
    }
}

// covers: DIG-12 ERL-04 SNK-01
#[test]
fn a_connection_whose_data_is_corrupted() {
    for level in [1, 2] {
        let info = struck(level, Fault::CorruptData(20));
        // What was bad is sent again, and the connection stays.
        assert_eq!(losses_of(&info), 0, "level {level}: {info:#?}");
        assert!(info.recovery.snacks_sent >= 1, "level {level}: {info:#?}");
    }
    let info = struck(0, Fault::CorruptData(20));
    assert_eq!((info.recovery.snacks_sent, info.recovery.tasks_reassigned), (0, 0), "{info:#?}");
}

/// A network namespace with a pair of interfaces to it; both go with it.
struct Namespace {
    name: String,
    net: String,
}

fn ip(arguments: &[&str]) -> bool {
    Program::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}

impl Namespace {
    /// With `.1` to `.4` of its network on this side and `.100` in the namespace.
    fn new() -> Option<Self> {
        let id = std::process::id() % 50_000;
        let (name, here, there) = (format!("intact-{id}"), format!("ia{id}"), format!("ib{id}"));
        if !ip(&["netns", "add", &name]) {
            left_out("the tester may make no network namespace (root, and iproute2)");
            return None;
        }
        let namespace = Self { net: format!("10.{}.{}", 100 + id / 250 % 100, id % 250), name };
        let net = &namespace.net;
        assert!(ip(&[
            "link",
            "add",
            &here,
            "type",
            "veth",
            "peer",
            "name",
            &there,
            "netns",
            &namespace.name
        ]));
        for host in 1..=4 {
            assert!(ip(&["addr", "add", &format!("{net}.{host}/24"), "dev", &here]));
        }
        assert!(ip(&["link", "set", &here, "up"]));
        assert!(namespace.inside(&["addr", "add", &format!("{net}.100/24"), "dev", &there]));
        assert!(namespace.inside(&["link", "set", &there, "up"]));
        assert!(namespace.inside(&["link", "set", "lo", "up"]));
        Some(namespace)
    }

    fn inside(&self, arguments: &[&str]) -> bool {
        ip(&[&["-n", self.name.as_str()], arguments].concat())
    }

    /// Whatever the namespace sends to `.host` is dropped from here on, or no longer.
    fn drop_to(&self, host: u8, dropped: bool) {
        let address = format!("{}.{host}/32", self.net);
        assert!(self.inside(&["route", if dropped { "add" } else { "del" }, "blackhole", &address]));
    }

    /// `intact serve` in it.
    fn serve(&self, directory: &std::path::Path, config: &str) -> Serve {
        let listen: SocketAddr = format!("{}.100:3260", self.net).parse().unwrap();
        let file = crate::support::write_config(directory, &[listen], config);
        let mut command = Program::new("ip");
        command.args(["netns", "exec", &self.name]).arg(intact().get_program());
        command.args(["serve", "--json", "--allow-open-access", "-c"]).arg(file);
        Serve::spawn(command, directory.join("control.sock"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.name]);
    }
}

/// Four connections over four addresses; the packets of one are dropped, by the kernel, on their way back.
// covers: MCS-05 ERL-11
#[test]
fn a_connection_whose_packets_are_dropped() {
    let Some(namespace) = Namespace::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = namespace.serve(directory.path(), &target(IQN, DIGESTS_REQUIRED, &["ram:16M"]));
    let mut options = options(server.portal(), 2);
    let own = |host: u8| -> IpAddr { format!("{}.{host}", namespace.net).parse().unwrap() };
    options.paths.local_addresses = (1..=4).map(own).collect();
    options.timeouts.connect = Duration::from_secs(1);
    options.timeouts.login = Duration::from_secs(2);
    let session = Session::connect(options).unwrap();
    until("all connections stand", || all_joined(&session));
    let disk = Disk::open(&session, Lun::from_index(0)).unwrap();
    let load = Load::start(&disk);
    load.pass(SOME);
    namespace.drop_to(3, true);
    until("the loss is noticed", || losses(&session) > 0);
    // On three connections the load goes on.
    load.pass(SOME);
    namespace.drop_to(3, false);
    until("all connections stand again", || all_joined(&session));
    load.pass(SOME);
    let wrong = load.finish();
    let info = session.info().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}\n{info:#?}");
    connection_recovery(&info);
    session.logout();
}

const TASKS: usize = 1000;

/// Sessions of one client with so many writes in all that wait for their data.
fn busy_client(portal: SocketAddr, level: &str) -> Vec<conform::Session> {
    let mut sessions = Vec::new();
    let mut tasks = 0;
    while tasks < TASKS {
        let script = LoginScript::new("iqn.2004-10.com.example:gone", Some(IQN))
            .key(keys::ERROR_RECOVERY_LEVEL, level)
            .key(keys::DEFAULT_TIME2RETAIN, "1")
            .key(keys::DEFAULT_TIME2WAIT, "0");
        let peer = RawPeer::connect(portal, PATIENCE, &Transcript::new()).unwrap();
        let mut session = conform::Session::log_in(peer, script, Lun::from_index(0)).unwrap();
        session.clear_unit_attentions().unwrap();
        let room = session.peer.ledger.max_cmd_sn.map_or(1, |max| session.cmd_sn.distance_to(max) + 1);
        let write = Command::write_16(0, vec![0xbb; 64 << 10], 512);
        for _ in 0..(room as usize).min(TASKS - tasks) {
            session.start(&write).unwrap();
            tasks += 1;
        }
        session.ping().unwrap();
        sessions.push(session);
    }
    sessions
}

// covers: SES-04 ERL-08
#[test]
fn a_client_that_disappears_with_a_thousand_tasks_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:16M"]));
    let pid = u64::from(server.id());
    let gone = || server.ls("sessions").as_array().is_some_and(Vec::is_empty);
    let mut resident = Vec::new();
    for round in 0..6 {
        let level = ["0", "2"][round % 2];
        for session in busy_client(server.portal(), level) {
            session.peer.reset();
        }
        until("its sessions are gone", gone);
        resident.push(resident_bytes(pid));
    }
    report("disappearing-client.txt", &format!("resident bytes after each round: {resident:?}"));
    // The first rounds fill what is kept for the next ones.
    let (early, late) = (resident[1], resident[5]);
    assert!(late < early + (16 << 20), "memory does not return: {resident:?}");
    let mut session = busy_client(server.portal(), "0").remove(0);
    session.ping().unwrap();
}
