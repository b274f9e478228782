//! A server that cannot log goes on, one of which a thread ends ends whole, and its log tells of what happens to sessions.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command as Program, Stdio};

use crate::common::{PATIENCE, Serve, Signal, intact};
use crate::support::{IQN, need, serve, target};
use conform::{LoginScript, RawPeer, Session, Transcript};
use iscsi_core::wire::{Lun, TmfFunction};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

const INITIATOR: &str = "iqn.2004-10.com.example:tester";

fn log_in(server: &Serve, target: &str) -> Result<Session, conform::PeerError> {
    let peer = RawPeer::connect(server.portal(), PATIENCE, &Transcript::new()).unwrap();
    Session::log_in(peer, LoginScript::new(INITIATOR, Some(target)), Lun::from_index(0))
}

/// A small server; the place of its control socket follows.
const SERVE: [&str; 9] =
    ["serve", "--json", "--listen", "127.0.0.1:0", "--target", IQN, "--lun", "ram:1M", "--control"];

/// A server whose standard error is `stderr`.
fn logging_to(directory: &Path, stderr: impl Into<Stdio>) -> Serve {
    let control = directory.join("control.sock");
    let mut command = intact();
    command.args(SERVE);
    command.arg(&control).stderr(stderr);
    Serve::spawn_without_log(command, control)
}

/// Logins, good ones and refused ones, are answered on every shard.
fn answers_logins(mut server: Serve) {
    for _ in 0..20 {
        log_in(&server, IQN).unwrap().log_out().unwrap();
        assert!(log_in(&server, "iqn.2004-10.com.example:none").is_err());
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_log_that_nobody_can_read_any_more_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    answers_logins(logging_to(directory.path(), writer));
}

#[test]
fn a_log_on_a_full_disk_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    answers_logins(logging_to(directory.path(), full));
}

/// A pipe that is full.
fn full_pipe() -> (PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(writer.as_fd()).unwrap();
    fcntl_setfl(writer.as_fd(), flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(writer.as_fd(), flags).unwrap();
    (reader, writer)
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (reader, writer) = full_pipe();
    answers_logins(logging_to(directory.path(), writer));
    drop(reader);
}

#[test]
fn a_flood_of_refused_logins_is_told_in_few_lines() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut server = logging_to(directory.path(), File::create(&log).unwrap());
    for _ in 0..500 {
        assert!(log_in(&server, "iqn.2004-10.com.example:none").is_err());
    }
    let kept = server.ls("logins").as_array().unwrap().len();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    let lines = text.lines().filter(|line| line.contains("login refused")).count();
    let held_back: usize = text
        .lines()
        .filter_map(|line| line.split_once(" more logins were refused"))
        .map(|(before, _)| before.split(' ').next_back().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(kept, 500);
    assert!(lines < 500, "{lines} lines");
    assert_eq!(lines + held_back, 500, "{lines} lines and {held_back} more");
}

#[test]
fn a_server_of_which_a_thread_ends_ends_with_an_error() {
    if !need("strace", "strace") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control.sock");
    let mut command = Program::new("strace");
    // Waiting for events fails in one thread after the other, as it does when a descriptor is lost.
    let inject = "inject=epoll_wait,epoll_pwait,epoll_pwait2:error=EBADF:when=6+";
    command.args([
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=epoll_wait,epoll_pwait,epoll_pwait2",
        "-e",
        inject,
    ]);
    command.arg(env!("CARGO_BIN_EXE_intact"));
    command.args(SERVE);
    command.arg(&control);
    let mut server = Serve::spawn(command, control);
    // Whether these are answered depends on which thread is first.
    for _ in 0..20 {
        let Ok(peer) = RawPeer::connect(server.portal(), PATIENCE, &Transcript::new()) else { break };
        drop(Session::log_in(peer, LoginScript::new(INITIATOR, Some(IQN)), Lun::from_index(0)));
    }
    let line = server.log_line("has ended");
    assert!(line.contains("the thread ") && line.contains("start it again"), "{line}");
    assert_eq!(server.wait().code(), Some(1));
}

#[test]
fn the_service_manager_hears_that_the_server_is_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let control = directory.path().join("control.sock");
    let mut command = intact();
    command
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--lun", "ram:1M", "--control"])
        .arg(&control);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    let server = Serve::spawn(command, control);
    let next = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    assert_eq!(next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    server.signal(Signal::TERM);
    let mut last = next();
    while last == "WATCHDOG=1" {
        last = next();
    }
    assert_eq!(last, "STOPPING=1");
}

#[test]
fn the_end_of_every_session_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &["ram:1M"]));
    let ended = |why: &str| {
        let line = server.log_line("a session ended");
        let wanted = [why, INITIATOR, IQN, "127.0.0.1:", "tsih=", "cid=", "commands=", "errors="];
        assert!(wanted.iter().all(|word| line.contains(word)), "{why}: {line}");
    };
    log_in(&server, IQN).unwrap().log_out().unwrap();
    ended("logout");
    log_in(&server, IQN).unwrap().peer.reset();
    ended("reset");
    drop(log_in(&server, IQN).unwrap());
    ended("the initiator closed the connection");
    let mut session = log_in(&server, IQN).unwrap();
    session.clear_unit_attentions().unwrap();
    let request = session.tmf(TmfFunction::LogicalUnitReset, true);
    session.manage(request).unwrap();
    let line = server.log_line("asks for");
    assert!(line.contains(INITIATOR) && line.contains("lun="), "{line}");
    let again = LoginScript { tsih: iscsi_core::wire::Tsih(0), ..session.same_identity() };
    let peer = RawPeer::connect(server.portal(), PATIENCE, &Transcript::new()).unwrap();
    let mut newer = Session::log_in(peer, again, Lun::from_index(0)).unwrap();
    ended("a newer login took its place");
    server.signal(Signal::TERM);
    // It is asked to log out.
    newer.next().unwrap();
    newer.log_out().unwrap();
    ended("logout: the server ends");
}
