//! A running `intact serve` with a control socket of its own.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

/// How long anything may take before the test gives up; nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command under test, with nothing of the tester's environment that it would use.
pub fn intact() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_intact"));
    for variable in ["RUST_LOG", "XDG_RUNTIME_DIR", "NOTIFY_SOCKET", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    intact().args(arguments).output().unwrap()
}

/// What it printed, both ways.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Sends `child` a signal.
pub fn send_signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A server; killed when dropped.
pub struct Serve {
    child: Child,
    /// The line of JSON that it printed.
    pub ready: Value,
    /// Where its control socket is.
    pub control: PathBuf,
    log: mpsc::Receiver<String>,
}

impl Serve {
    /// Starts it with a control socket in `directory` and a port of the system's choice, and waits until it is ready.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        let control = directory.join("control.sock");
        let mut command = intact();
        command
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--control"])
            .arg(&control)
            .args(arguments);
        Self::spawn(command, control)
    }

    /// Starts `command`, which prints a line of JSON when it is ready.
    pub fn spawn(mut command: Command, control: PathBuf) -> Self {
        command.stderr(Stdio::piped());
        Self::spawn_without_log(command, control)
    }

    /// As [`Serve::spawn`], with a standard error that `command` has.
    pub fn spawn_without_log(mut command: Command, control: PathBuf) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let log = child.stderr.take().map_or_else(|| mpsc::channel().1, lines);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| {
            let log: Vec<String> = log.iter().collect();
            panic!("not ready: {error}: {line}\n{}", log.join("\n"))
        });
        Self { child, ready, control, log }
    }

    /// The address that it listens on first.
    pub fn portal(&self) -> std::net::SocketAddr {
        self.ready["portals"][0].as_str().unwrap().parse().unwrap()
    }

    /// Waits for a line of its log that holds `what`.
    pub fn log_line(&self, what: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no `{what}` ({error}) in the log:\n{}", seen.join("\n")),
            }
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        send_signal(&self.child, signal);
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Runs `intact` with `arguments` and the control socket; its exit code and what it said.
    pub fn ask(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = intact().args(arguments).arg("--control").arg(&self.control).output().unwrap();
        (output.status.code(), text(&output))
    }

    /// The JSON that `intact` with `arguments` prints.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let (code, said) = self.ask(&[arguments, &["--json"]].concat());
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str(&said).unwrap()
    }

    /// What `intact ls WHAT --json` says.
    #[track_caller]
    pub fn ls(&self, what: &str) -> Value {
        self.json(&["ls", what])
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if tx.send(line).is_err() {
                break;
            }
        }
    });
    rx
}
