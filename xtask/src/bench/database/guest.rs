//! The guest with the database: it says when a run begins and how it went, and its processor time is taken at both moments.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::super::servers::Server;
use super::{CONTENDERS, Cpu, Sample};

/// Clock ticks in a second, of /proc/PID/stat; Linux has no other value for programs.
const TICKS: f64 = 100.0;
/// The core of the guest and its network; the targets have another one.
const CORE: &str = "1";

/// The rig of `conform/linux-guest`; it and the guest end when this is dropped.
pub struct Guest {
    rig: Child,
    lines: Lines<BufReader<ChildStdout>>,
    begun: Option<Vec<Cpu>>,
    /// What it said that is no figure.
    said: Vec<String>,
}

impl Guest {
    /// Starts it with these settings of the scenario.
    pub fn boot(root: &Path, servers: &[Server], knobs: &[String]) -> Result<Guest> {
        // The rig ends with this program, whatever ends it, and takes the guest down.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "taskset", "-c", CORE])
            .arg(root.join("conform/linux-guest/run"));
        command.args(["--vm", "uml", "--mem", "1024", "--database", "--timeout", "7200"]);
        command.args(["--target", &servers[0].portal]).args(knobs.iter().map(|knob| format!("--env={knob}")));
        command.args(["--", "database-bench"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut rig = command.spawn().context("cannot start the guest: install util-linux and python3")?;
        let stdout = rig.stdout.take().context("the guest has no output")?;
        Ok(Guest { rig, lines: BufReader::new(stdout).lines(), begun: None, said: Vec::new() })
    }

    /// The next run, once it has ended; `None` after the last. `ready` is called when the databases have been made.
    pub fn next_sample(
        &mut self,
        servers: &[Server],
        ready: impl Fn() -> Result<()>,
    ) -> Result<Option<Sample>> {
        while let Some(line) = self.lines.next() {
            let line = line?;
            match Line::of(&line)? {
                Line::Ready => ready()?,
                Line::Begin => self.begun = Some(self.cpu(servers)?),
                Line::End(mut sample) => {
                    let begun = self.begun.take().context("a run ended that had not begun")?;
                    let server = CONTENDERS.get(sample.contender).context("a run of nobody")?.server;
                    let (before, after) = (begun[server], self.cpu(servers)?[server]);
                    sample.cpu = Cpu {
                        target: after.target - before.target,
                        guest: after.guest - before.guest,
                        network: after.network - before.network,
                    };
                    return Ok(Some(*sample));
                }
                Line::Other => self.said.push(line),
            }
        }
        if !self.rig.wait()?.success() {
            bail!("the guest failed:\n{}", self.said.join("\n"));
        }
        Ok(None)
    }

    /// The processor time used so far, with that of each server in turn.
    fn cpu(&self, servers: &[Server]) -> Result<Vec<Cpu>> {
        let [guest, network] = processor_time(self.rig.id())?;
        servers.iter().map(|server| Ok(Cpu { target: server.cpu_seconds()?, guest, network })).collect()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ =
            Command::new("kill").args(["-TERM", &self.rig.id().to_string()]).stderr(Stdio::null()).status();
        let _ = self.rig.wait();
    }
}

/// A line that the rig prints.
enum Line {
    Ready,
    Begin,
    End(Box<Sample>),
    Other,
}

impl Line {
    fn of(line: &str) -> Result<Line> {
        let Some(rest) = line.strip_prefix("INFO") else { return Ok(Line::Other) };
        let (word, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
        Ok(match word {
            "ready" => Line::Ready,
            "begin" => Line::Begin,
            "end" => Line::End(serde_json::from_str(rest).with_context(|| format!("no figures: {rest}"))?),
            _ => Line::Other,
        })
    }
}

/// A process: who it is, whose it is, and its processor time with that of its children that have ended.
struct Process {
    id: u32,
    parent: u32,
    name: String,
    seconds: f64,
}

impl Process {
    /// From /proc/PID/stat. A name may have blanks and brackets.
    fn of(stat: &str) -> Option<Process> {
        let (id, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks: u64 = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().unwrap_or(0)).sum();
        let (id, parent) = (id.parse().ok()?, fields.get(1)?.parse().ok()?);
        Some(Process { id, parent, name: name.to_owned(), seconds: ticks as f64 / TICKS })
    }
}

/// Seconds of the guest and of its network, both below the rig.
fn processor_time(rig: u32) -> Result<[f64; 2]> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // A process may end while it is being read.
        let stat = fs::read_to_string(entry?.path().join("stat"));
        processes.extend(stat.ok().and_then(|stat| Process::of(&stat)));
    }
    Ok(below(rig, &processes))
}

fn below(rig: u32, processes: &[Process]) -> [f64; 2] {
    let (mut family, mut next) = (vec![rig], 0);
    let [mut guest, mut network] = [0.0; 2];
    while let Some(parent) = family.get(next).copied() {
        for child in processes.iter().filter(|process| process.parent == parent) {
            family.push(child.id);
            *(if child.name.starts_with("slirp") { &mut network } else { &mut guest }) += child.seconds;
        }
        next += 1;
    }
    [guest, network]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_rig_are_understood() {
        let end = "INFO end                                {\"contender\":4,\"transactions\":100,\"tps\":20.5,\"latency_ms\":9,\
                   \"writes\":1,\"written_bytes\":2,\"write_ms\":3,\"flushes\":4,\"flush_ms\":5,\"reads\":6,\"busy_ms\":7,\"wall_ms\":8}";
        let Line::End(sample) = Line::of(end).unwrap() else { panic!("no end") };
        assert_eq!((sample.contender, sample.transactions, sample.wall_ms), (4, 100, 8));
        assert!(matches!(Line::of("INFO begin                              ").unwrap(), Line::Begin));
        assert!(matches!(Line::of("PASS begin 3 s").unwrap(), Line::Other));
        assert!(Line::of("INFO end nothing").is_err());
    }

    #[test]
    fn time_of_the_family_is_counted_and_split() {
        let stat = |id: u32, name: &str, parent: u32, ticks: u32| {
            let text = format!(
                "{id} ({name}) S {parent} 1 1 0 -1 4194304 1 2 3 4 {ticks} {ticks} {ticks} {ticks} 20 0 1 0"
            );
            Process::of(&text).unwrap()
        };
        let processes = [
            stat(10, "run", 1, 100),
            stat(11, "linux (a) b", 10, 25),
            stat(12, "slirp4netns", 10, 50),
            stat(13, "stub", 11, 75),
            stat(14, "stranger", 1, 1000),
        ];
        assert_eq!(below(10, &processes), [4.0, 2.0]);
    }
}
