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

impl Server {
    /// CPU time of all its threads so far, seconds, as the scheduler counts it.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let tasks = format!("/proc/{}/task", self.process.id());
        let mut nanoseconds = 0u64;
        for task in fs::read_dir(&tasks).with_context(|| format!("{} has ended", self.name))? {
            // A thread may end while it is being read.
            if let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) {
                nanoseconds +=
                    text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(nanoseconds as f64 / 1e9)
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

/// Debian's tgt, started by `command`, on a file in memory.
pub fn tgt(command: Command, scratch: &Path) -> Result<Server> {
    let memory = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm") } else { scratch };
    let volume = tempfile::Builder::new().prefix("intact-bench").tempfile_in(memory)?;
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
