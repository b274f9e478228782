//! `cargo xtask bench idle`: the cost of many unused targets and units: time to start, threads, memory, and CPU time and wake-ups
//! over some seconds, without sessions and with idle ones (qemu-io's, which ping every five seconds).

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::servers::{self, Server};

/// The line before the table in docs/performance.md.
pub const BEGIN: &str = "<!-- begin: cargo xtask bench idle --write -->";

struct Case {
    targets: usize,
    units: usize,
    file: bool,
    sessions: usize,
}

const CASES: [Case; 7] = [
    Case { targets: 1, units: 1, file: false, sessions: 0 },
    Case { targets: 1, units: 256, file: false, sessions: 0 },
    Case { targets: 1, units: 256, file: false, sessions: 1 },
    Case { targets: 1, units: 256, file: true, sessions: 1 },
    Case { targets: 1000, units: 1, file: false, sessions: 0 },
    Case { targets: 1000, units: 1, file: false, sessions: 20 },
    Case { targets: 1000, units: 1, file: true, sessions: 0 },
];

/// An initiator that is logged in and waits for a command that never comes.
struct Idle(Child);

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn name(target: usize) -> String {
    format!("iqn.2026-01.io.intact:idle-{target:04}")
}

impl Idle {
    fn connect(portal: &str, target: usize) -> Result<Self> {
        let volume = format!(
            "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal={portal},file.target={},file.lun=0",
            name(target)
        );
        let mut child = Command::new("qemu-io")
            .args(["--image-opts", &volume])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("qemu-io (Debian: qemu-utils, qemu-block-extra)")?;
        let mut prompt = [0; 8];
        child
            .stdout
            .take()
            .context("no output")?
            .read_exact(&mut prompt)
            .context("qemu-io did not log in")?;
        Ok(Self(child))
    }
}

/// Measures every case; returns a table.
pub fn run(intact: &Path, seconds: u64) -> Result<String> {
    let mut text = String::from(
        "| targets | units of each | stores | idle sessions | ready after | threads | resident | per unit more | CPU time | wake-ups |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut alone = 0;
    for case in &CASES {
        let scratch = tempfile::tempdir()?;
        let begun = Instant::now();
        let server = start(intact, scratch.path(), case)?;
        let ready = begun.elapsed();
        let sessions: Vec<Idle> = (0..case.sessions)
            .map(|n| Idle::connect(&server.portal, n % case.targets))
            .collect::<Result<_>>()?;
        // By then the work that a login defers is finished.
        std::thread::sleep(Duration::from_secs(12));
        let (cpu, woken) = (server.cpu_seconds()?, wake_ups(&server)?);
        std::thread::sleep(Duration::from_secs(seconds));
        let (cpu, woken) = (server.cpu_seconds()? - cpu, wake_ups(&server)? - woken);
        let (resident, threads) = (status(&server, "VmRSS")? * 1024, status(&server, "Threads")?);
        drop(sessions);
        let units = case.targets * case.units;
        let each = match units {
            1 => {
                alone = resident;
                "-".to_owned()
            }
            _ => format!("{:.1} KiB", resident.saturating_sub(alone) as f64 / 1024.0 / (units - 1) as f64),
        };
        writeln!(
            text,
            "| {} | {} | {} | {} | {} ms | {threads} | {:.1} MiB | {each} | {:.3} ms | {woken} |",
            case.targets,
            case.units,
            if case.file { "file" } else { "ram" },
            case.sessions,
            ready.as_millis(),
            resident as f64 / 1048576.0,
            cpu * 1e3,
        )?;
    }
    Ok(text)
}

fn start(intact: &Path, scratch: &Path, case: &Case) -> Result<Server> {
    let mut tables = String::new();
    for target in 0..case.targets {
        writeln!(tables, "[[target]]\nname = \"{}\"", name(target))?;
        for unit in 0..case.units {
            match case.file {
                true => writeln!(tables, "[[target.lun]]\nstore = \"file:disk-{target}-{unit},size=1G\"")?,
                false => writeln!(tables, "[[target.lun]]\nstore = \"ram:1G\"")?,
            }
        }
    }
    servers::configured(Command::new(intact), scratch, &tables)
}

fn status(server: &Server, key: &str) -> Result<u64> {
    field(&fs::read_to_string(format!("/proc/{}/status", server.process.id()))?, key)
}

/// How many times a thread of the server was woken or preempted.
fn wake_ups(server: &Server) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{}/task", server.process.id()))? {
        let text = fs::read_to_string(task?.path().join("status"))?;
        sum += field(&text, "voluntary_ctxt_switches")? + field(&text, "nonvoluntary_ctxt_switches")?;
    }
    Ok(sum)
}

fn field(text: &str, key: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    match value.and_then(|value| value.split_whitespace().next()).and_then(|number| number.parse().ok()) {
        Some(number) => Ok(number),
        None => bail!("the kernel says nothing of {key}"),
    }
}
