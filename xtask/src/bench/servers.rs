//! The servers that are compared, each on its own port and, for tgt, with its own control socket.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Size of the volume, bytes.
pub const VOLUME_BYTES: u64 = 1 << 30;
/// Number of tgt's control socket; the socket itself is in our own folder.
const TGT_CONTROL: &str = "63";

/// A running server; killed when dropped.
pub struct Server {
    pub name: &'static str,
    /// The first unit of its first target.
    pub url: String,
    /// Where it listens.
    pub portal: String,
    pub(super) process: Child,
}

/// A thread of a server.
#[derive(Clone, Debug)]
pub struct Thread {
    pub id: u64,
    pub name: String,
    /// So far, as the scheduler counts it.
    pub cpu_seconds: f64,
    /// Where it ran last.
    pub processor: usize,
}

impl Thread {
    /// From `/proc/PID/task/TID`; none if the thread has ended.
    fn read(task: &Path) -> Option<Self> {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        // The name is in parentheses, and may itself contain some.
        let (head, fields) = stat.rsplit_once(") ")?;
        let (id, name) = head.split_once(" (")?;
        let spent = fs::read_to_string(task.join("schedstat")).ok()?;
        Some(Self {
            id: id.parse().ok()?,
            name: name.to_owned(),
            cpu_seconds: spent.split_whitespace().next()?.parse::<f64>().ok()? / 1e9,
            // proc(5): `processor` is field 39, and `fields` begins with field 3.
            processor: fields.split_whitespace().nth(36)?.parse().ok()?,
        })
    }
}

impl Server {
    /// Its threads now.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let tasks = tasks.with_context(|| format!("{} has ended", self.name))?;
        // A thread may end while it is being read.
        Ok(tasks.filter_map(|task| Thread::read(&task.ok()?.path())).collect())
    }

    /// CPU time of all its threads so far, seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        Ok(self.threads()?.iter().map(|thread| thread.cpu_seconds).sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // tgtd does not end on SIGTERM.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Our target, started by `command`, with one volume, specified as for `--lun`.
pub fn intact(command: Command, lun: &str) -> Result<Server> {
    serve(command, &["--lun", lun])
}

/// Our target with one volume in memory, with support for asymmetric use.
pub fn asymmetric(command: Command, scratch: &Path) -> Result<Server> {
    let name = "iqn.2026-01.org.example:connections";
    let text = format!(
        "[negotiation]\nasymmetric = true\n[[target]]\nname = \"{name}\"\n\
         [[target.lun]]\nstore = \"ram:{VOLUME_BYTES}\"\n"
    );
    configured(command, scratch, &text)
}

/// Our target with the `tables` of a configuration file, which is written to `scratch`; it has no control socket.
pub fn configured(command: Command, scratch: &Path, tables: &str) -> Result<Server> {
    let file = scratch.join("intact.toml");
    fs::write(&file, format!("[control]\nsocket = false\n{tables}"))?;
    serve(command, &["-c", &file.display().to_string()])
}

fn serve(mut command: Command, arguments: &[&str]) -> Result<Server> {
    command.args(["serve", "--json", "--listen", "127.0.0.1:0"]).args(arguments);
    ready("intact", command)
}

/// A server that answers the requests of `intact bench crowd` without a protocol.
pub fn floor(mut command: Command) -> Result<Server> {
    command.args(["bench", "crowd", "--answer"]);
    ready("floor", command)
}

/// Starts a server that says where it listens.
fn ready(name: &'static str, mut command: Command) -> Result<Server> {
    let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut process = started.with_context(|| format!("cannot start {name}"))?;
    let stdout = process.stdout.take().with_context(|| format!("{name} has no output"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let ready: serde_json::Value =
        serde_json::from_str(&line).with_context(|| format!("{name} did not get ready"))?;
    let portal = ready["portals"][0].as_str().context("no portal in the ready line")?;
    let target = ready["targets"][0]
        .as_str()
        .or(ready["targets"][0]["name"].as_str())
        .context("no target in the ready line")?;
    let url = format!("iscsi://{portal}/{target}/0");
    Ok(Server { name, url, portal: portal.to_owned(), process })
}

/// A folder whose files are in memory, if there is one.
pub fn memory() -> Option<&'static Path> {
    Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir())
}

/// Debian's tgt, started by `command`, on a file in memory.
pub fn tgt(command: Command, scratch: &Path) -> Result<Server> {
    let volume = tempfile::Builder::new().prefix("intact-bench").tempfile_in(memory().unwrap_or(scratch))?;
    volume.as_file().set_len(VOLUME_BYTES)?;
    // tgtd keeps the file open; its name is no longer needed.
    tgt_on(command, scratch, volume.path())
}

/// Debian's tgt, started by `command`, on the file `volume`, tuned as its users do, digests allowed.
pub fn tgt_on(mut command: Command, scratch: &Path, volume: &Path) -> Result<Server> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let socket = scratch.join("ctl");
    let process = command
        .args(["-f", "-C", TGT_CONTROL, "--iscsi", &format!("portal=127.0.0.1:{port}")])
        .env("TGT_IPC_SOCKET", &socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start tgtd: install the package tgt, and run as root")?;
    let portal = format!("127.0.0.1:{port}");
    let url = format!("iscsi://{portal}/iqn.2026-01.org.example:tgt/1");
    let server = Server { name: "tgt", url, portal, process };
    let admin = |arguments: &str| -> Result<bool> {
        let status = Command::new("tgtadm")
            .args(["-C", TGT_CONTROL, "--lld", "iscsi"])
            .args(arguments.split(' '))
            .env("TGT_IPC_SOCKET", &socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success())
    };
    let begun = Instant::now();
    while !admin("--op show --mode target")? {
        if begun.elapsed() > Duration::from_secs(10) {
            bail!("tgtd does not answer");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut orders = vec![
        "--op new --mode target --tid 1 -T iqn.2026-01.org.example:tgt".to_owned(),
        format!("--op new --mode logicalunit --tid 1 --lun 1 -b {}", volume.display()),
        "--op bind --mode target --tid 1 -I ALL".to_owned(),
    ];
    for (key, value) in [
        ("MaxRecvDataSegmentLength", "262144"),
        ("MaxXmitDataSegmentLength", "262144"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "262144"),
        ("HeaderDigest", "CRC32C,None"),
        ("DataDigest", "CRC32C,None"),
    ] {
        orders.push(format!("--op update --mode target --tid 1 --name {key} --value {value}"));
    }
    for order in &orders {
        if !admin(order)? {
            bail!("tgtadm {order} failed");
        }
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_whatever_its_name_and_one_that_has_ended_is_none() {
        let task = tempfile::tempdir().unwrap();
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        fs::write(task.path().join("stat"), format!("17 (a (b) c) S {}\n", fields.join(" "))).unwrap();
        fs::write(task.path().join("schedstat"), "2500000000 7 9\n").unwrap();
        let thread = Thread::read(task.path()).unwrap();
        assert_eq!((thread.id, thread.name.as_str(), thread.processor), (17, "a (b) c", 39));
        assert_eq!(thread.cpu_seconds, 2.5);
        fs::remove_file(task.path().join("schedstat")).unwrap();
        assert!(Thread::read(task.path()).is_none());
    }
}
