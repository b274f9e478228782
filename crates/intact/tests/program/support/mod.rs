//! What tests with foreign programs and raw peers share: finding the programs, running them with a limit, and servers
//! with a configuration file.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod guest;
pub mod sg3;

use std::fs;
use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Serve, Signal, intact};

/// The target that [`Target::new`] writes first.
pub const IQN: &str = "iqn.2004-10.com.example:disk";

/// Is it CI, where nothing may be left out?
pub fn on_ci() -> bool {
    !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"))
}

/// Is `program` there? Where it is not, says which Debian package has it, and on CI fails.
pub fn need(program: &str, package: &str) -> bool {
    let found = path().split(':').any(|directory| Path::new(directory).join(program).is_file());
    found || left_out(&format!("{program} is not installed (Debian: apt-get install {package})"))
}

/// Says that a test is left out and why; on CI that is a failure. Returns false.
pub fn left_out(why: &str) -> bool {
    assert!(!on_ci(), "on CI no test may be left out: {why}");
    eprintln!("left out: {why}");
    false
}

/// PATH with the places where a plain user's does not look.
pub fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Where Debian has a program of PostgreSQL, which is not in PATH.
pub fn postgresql(name: &str) -> Option<String> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .flatten()
        .map(|version| version.path().join("bin").join(name))
        .find(|path| path.is_file())
        .map(|path| path.display().to_string())
}

/// How a foreign program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` after a signal. 124 when it took too long.
    pub code: Option<i32>,
    /// What it printed, both ways, in order.
    pub text: String,
}

impl Ended {
    /// It must have ended well.
    #[track_caller]
    pub fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.text);
        self.text
    }
}

/// `program` with a limit to its time.
pub fn program(name: &str, limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", &limit.as_secs().to_string(), name]).env("PATH", path());
    command
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Ended {
    let (mut reader, writer) = io::pipe().unwrap();
    command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // The command holds the writing ends; without them the reader sees the end.
    drop(command);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    let code = child.wait().unwrap().code();
    Ended { code, text: String::from_utf8_lossy(&bytes).into_owned() }
}

/// Runs `program` with `arguments` for a minute at most.
pub fn tool(name: &str, arguments: &[&str]) -> Ended {
    let mut command = program(name, PATIENCE);
    command.args(arguments);
    finish(command)
}

/// A port of loopback that was free a moment ago, for servers that are started again at the same address.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server from the text of a configuration file, with `portals` portals and a control socket in `directory`.
/// The text begins with a table.
pub fn serve(directory: &Path, portals: usize, config: &str) -> Serve {
    let listen: Vec<SocketAddr> = (0..portals).map(|_| ([127, 0, 0, 1], 0).into()).collect();
    serve_at(directory, &listen, config)
}

/// As [`serve`], listening there.
pub fn serve_at(directory: &Path, listen: &[SocketAddr], config: &str) -> Serve {
    let control = directory.join("control.sock");
    let file = write_config(directory, listen, config);
    let mut command = intact();
    command.args(["serve", "--json", "-c"]).arg(file);
    Serve::spawn(command, control)
}

/// Kills a server and waits until it is gone and its port and files are free.
pub fn kill(server: &mut Option<Serve>) {
    if let Some(mut server) = server.take() {
        server.signal(Signal::KILL);
        server.wait();
    }
}

/// Writes the configuration file that [`serve_at`] starts with.
pub fn write_config(directory: &Path, listen: &[SocketAddr], config: &str) -> PathBuf {
    let file = directory.join("intact.toml");
    let listen: Vec<String> = listen.iter().map(|address| format!("\"{address}\"")).collect();
    let control = directory.join("control.sock");
    let head = format!("listen = [{}]\n[control]\nsocket = \"{}\"\n", listen.join(", "), control.display());
    fs::write(&file, head + config).unwrap();
    file
}

/// The lines of a target in a configuration file: the name, further keys and tables, and its stores.
pub fn target(name: &str, more: &str, stores: &[&str]) -> String {
    let mut text = format!("[[target]]\nname = \"{name}\"\n{more}\n");
    for store in stores {
        text += &format!("[[target.lun]]\nstore = \"{store}\"\n");
    }
    text
}

/// Both digests required, as lines of a target.
pub const DIGESTS_REQUIRED: &str =
    "[target.negotiation]\nheader_digest = \"required\"\ndata_digest = \"required\"";

/// A file that only its owner may read, as a secret has to be.
pub fn secret_file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let file = directory.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u64) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Bytes that the only unit of the server with its metrics at `address` has moved for `op` ("read", "write"), as it counts them.
pub fn lun_bytes(address: &str, op: &str) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let label = format!("op=\"{op}\"");
    let line = answer.lines().find(|l| l.starts_with("intact_lun_bytes_total") && l.contains(&label));
    let line = line.unwrap_or_else(|| panic!("no {op} in {answer}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Tries `done` until it says so, for a minute at most.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where reports of tests are kept, for whoever wants the figures.
pub fn report(name: &str, text: &str) {
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), text).unwrap();
    println!("{text}");
}
