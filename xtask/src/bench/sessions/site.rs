//! A target of one shard, and its initiators on another core: one process for what is measured, and another that holds the idle sessions,
//! so that what is measured has the same client whether there are idle sessions or not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tempfile::TempDir;

use crate::bench::place::{self, PLACEMENTS};
use crate::bench::servers::{self, Server};

/// Commands or logins under way while sessions are opened.
const AT_ONCE: usize = 32;
/// Number of the first host with an idle session.
const IDLE_HOSTS: &str = "1000000";
/// Open files of a process besides its sessions.
const OTHER_FILES: usize = 200;

/// What an order did: see `intact bench crowd`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Done {
    /// Logins, reads, or pings.
    pub count: u64,
    pub seconds: f64,
    /// CPU time of the target, seconds.
    #[serde(default)]
    pub target_cpu_seconds: f64,
}

impl Done {
    /// CPU time of the target for each, microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.target_cpu_seconds * 1e6 / self.count as f64
    }

    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// Another order of the same kind counts as well.
    pub fn add(&mut self, other: &Done) {
        self.count += other.count;
        self.seconds += other.seconds;
        self.target_cpu_seconds += other.target_cpu_seconds;
    }
}

/// What the target uses.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub resident_bytes: u64,
    pub wake_ups: u64,
    pub cpu_seconds: f64,
}

/// A crowd of initiators.
struct Client {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Client {
    fn start(intact: &Path, server: &Server, arguments: &[&str]) -> Result<Self> {
        let mut process = PLACEMENTS[1]
            .client(intact)
            .args(["bench", "crowd", &server.portal])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run intact bench crowd")?;
        let orders = process.stdin.take().context("the crowd has no input")?;
        let answers = BufReader::new(process.stdout.take().context("the crowd has no output")?);
        Ok(Self { process, orders, answers })
    }

    fn order(&mut self, server: &Server, order: &str) -> Result<Done> {
        let before = server.cpu_seconds()?;
        writeln!(self.orders, "{order}").with_context(|| format!("the crowd has ended before: {order}"))?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.is_empty() {
            bail!("the crowd failed at: {order}");
        }
        let done: Done = serde_json::from_str(&line).with_context(|| format!("{order}: {line}"))?;
        Ok(Done { target_cpu_seconds: server.cpu_seconds()? - before, ..done })
    }
}

/// See the head of the module.
pub struct Site {
    active: Client,
    /// Without a protocol there are none.
    idle: Option<Client>,
    server: Server,
    _scratch: Option<TempDir>,
}

impl Site {
    /// Starts both, without a session. They allow `sessions`.
    pub fn start(intact: &Path, sessions: usize) -> Result<Self> {
        may_open(sessions + OTHER_FILES)?;
        let scratch = tempfile::tempdir().context("no place for the target's configuration")?;
        let most = 2 * sessions.max(1000);
        // Polling before sleep costs CPU time that is nobody's work: it is off.
        let tables = format!(
            "[limits]\nshards = 1\nmax_sessions = {most}\nmax_connections = {most}\npoll_us = 0\n\
             [[target]]\nname = \"iqn.2026-01.org.example:sessions\"\n[[target.lun]]\nstore = \"ram:64M\"\n"
        );
        let server = servers::configured(place::target(intact), scratch.path(), &tables)?;
        let target = server.url.rsplit('/').nth(1).context("no target in the URL")?;
        let active = Client::start(intact, &server, &[target])?;
        let idle = Some(Client::start(intact, &server, &[target, "--first", IDLE_HOSTS])?);
        Ok(Self { active, idle, server, _scratch: Some(scratch) })
    }

    /// The same without a target: sockets alone.
    pub fn floor(intact: &Path, connections: usize) -> Result<Self> {
        may_open(connections + OTHER_FILES)?;
        let server = servers::floor(place::target(intact))?;
        let active = Client::start(intact, &server, &[])?;
        Ok(Self { active, idle: None, server, _scratch: None })
    }

    fn order(&mut self, order: &str) -> Result<Done> {
        self.active.order(&self.server, order)
    }

    fn order_idle(&mut self, order: &str) -> Result<Done> {
        self.idle.as_mut().context("sockets alone have no sessions")?.order(&self.server, order)
    }

    /// Lets the idle sessions log in until there are so many.
    pub fn open_idle(&mut self, sessions: usize) -> Result<Done> {
        self.order_idle(&format!("open {sessions} {AT_ONCE}"))
    }

    /// Logs in until there are `sessions`.
    pub fn open(&mut self, sessions: usize) -> Result<Done> {
        self.order(&format!("open {sessions} {AT_ONCE}"))
    }

    /// Writes every block that is read later.
    pub fn fill(&mut self) -> Result<Done> {
        self.order("fill")
    }

    /// Reads with `depth` commands outstanding, spread over `sessions`.
    pub fn read(&mut self, sessions: usize, depth: usize, seconds: f64) -> Result<Done> {
        self.order(&format!("read {sessions} {depth} {seconds}"))
    }

    /// Logs in and out.
    pub fn churn(&mut self, seconds: f64) -> Result<Done> {
        self.order(&format!("churn {AT_ONCE} {seconds}"))
    }

    /// Pings that the idle sessions have answered so far.
    pub fn pings(&mut self) -> Result<u64> {
        Ok(self.order_idle("pings")?.count)
    }

    /// What the target uses now.
    pub fn usage(&self) -> Result<Usage> {
        let process = format!("/proc/{}", self.server.process.id());
        let mut wake_ups = 0;
        for task in fs::read_dir(format!("{process}/task"))? {
            wake_ups += field(&fs::read_to_string(task?.path().join("status"))?, "voluntary_ctxt_switches")?;
        }
        let resident_bytes = field(&fs::read_to_string(format!("{process}/status"))?, "VmRSS")? * 1024;
        Ok(Usage { resident_bytes, wake_ups, cpu_seconds: self.server.cpu_seconds()? })
    }
}

fn field(text: &str, key: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("the kernel says nothing of {key}"))
}

/// Fails early when the system does not let a process have so many files open.
fn may_open(files: usize) -> Result<()> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let hard = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1));
    match hard.and_then(|hard| hard.parse::<usize>().ok()) {
        Some(hard) if hard < files => {
            bail!(
                "a process may open {hard} files, and {files} are needed: raise it (ulimit -Hn), or --idle fewer"
            )
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_the_status_is_read_and_a_missing_one_is_an_error() {
        let text = "VmRSS:\t  123 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(field(text, "VmRSS").unwrap(), 123);
        assert_eq!(field(text, "voluntary_ctxt_switches").unwrap(), 7);
        assert!(field(text, "Threads").is_err());
    }
}
