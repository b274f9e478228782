//! What many idle sessions cost an active one: CPU time of the target for each command and each login, beside 10,000 idle sessions
//! and alone. Two servers of one shard each, in turn within every round; a ratio is the median of the rounds. Ends with 1 when one
//! is above 1.10.
//!
//! ```text
//! cargo bench -p intact --bench sessions --profile sim
//! cargo bench -p intact --bench sessions --profile sim -- 2000 9     # idle sessions, rounds
//! ```
//!
//! The limit of open files has to be above the number of sessions, for this program and for the server.

#[path = "../tests/program/common/mod.rs"]
mod common;
#[path = "../tests/program/support/mod.rs"]
mod support;

use std::fs;
use std::process::ExitCode;

use common::{PATIENCE, Serve, intact};
use conform::{LoginScript, RawPeer, Session, Transcript};
use iscsi_core::wire::{Isid, Lun};
use serde_json::Value;
use support::{IQN, serve, target};

/// What the target may cost beside the idle sessions, over what it costs alone.
const RATIO_MAX: f64 = 1.10;
/// Logins that are measured at a time.
const LOGINS: u32 = 300;
/// Idle sessions, and rounds, where the command line does not say.
const DEFAULTS: [usize; 2] = [10_000, 7];

/// What is measured: a name, and one run against a server, seconds of its CPU time for each.
type Load = (&'static str, fn(&Serve) -> f64);

const LOADS: [Load; 4] = [
    ("4 KiB read, depth 1", |server| commands(server, "read", 1)),
    ("4 KiB read, depth 32", |server| commands(server, "read", 32)),
    ("4 KiB write, depth 32", |server| commands(server, "write", 32)),
    ("login and logout", logins),
];

/// CPU time of all threads of `server` so far, seconds.
fn cpu_seconds(server: &Serve) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let times = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    times.map(|text| text.split(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>() / 1e9
}

fn log_in(server: &Serve, number: u32) -> Session {
    let mut script = LoginScript::new("iqn.2004-10.com.example:many", Some(IQN));
    script.isid = Isid::random([0, 0, (number >> 16) as u8], number as u16);
    let peer = RawPeer::connect(server.portal(), PATIENCE, &Transcript::new()).unwrap();
    Session::log_in(peer, script, Lun(0)).unwrap()
}

fn logins(server: &Serve) -> f64 {
    let before = cpu_seconds(server);
    for _ in 0..LOGINS {
        log_in(server, u32::MAX).log_out().unwrap();
    }
    (cpu_seconds(server) - before) / f64::from(LOGINS)
}

fn commands(server: &Serve, rw: &str, depth: u32) -> f64 {
    let before = cpu_seconds(server);
    let output = intact()
        .args(["bench", "--json", "--overwrite", "--warmup", "0s", "--pattern", "random", "--block", "4096"])
        .args(["--rw", rw, "--depth", &depth.to_string(), "--time", "1s"])
        .arg(format!("iscsi://{}/{IQN}/0", server.portal()))
        .output()
        .unwrap();
    let spent = cpu_seconds(server) - before;
    assert!(output.status.success(), "{}", common::text(&output));
    let samples: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |what: &str| samples[0][what].as_f64().unwrap();
    spent / (count("reads") + count("writes"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn start(directory: &std::path::Path) -> Serve {
    // Peers that read nothing answer no pings either.
    let limits =
        "[limits]\nshards = 1\nmax_sessions = 20000\nmax_connections = 20000\nping_interval_s = 3600\n";
    serve(directory, 1, &(limits.to_owned() + &target(IQN, "queue_depth = 32", &["ram:64M"])))
}

fn main() -> ExitCode {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let [idle, rounds] = [0, 1].map(|at| given.get(at).copied().unwrap_or(DEFAULTS[at]));
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [alone, crowded] = [0, 1].map(|at| start(directories[at].path()));
    let sessions: Vec<Session> = (0..idle as u32).map(|number| log_in(&crowded, number)).collect();
    println!(
        "| load | alone, CPU µs | beside {} idle sessions | ratio, median of {rounds} |\n|---|---|---|---|",
        sessions.len()
    );
    let mut worst: f64 = 0.0;
    for (name, load) in LOADS {
        let runs: Vec<[f64; 2]> = (0..rounds).map(|_| [load(&alone), load(&crowded)]).collect();
        let of = |at: usize| median(runs.iter().map(|run| run[at] * 1e6).collect());
        let ratio = median(runs.iter().map(|run| run[1] / run[0]).collect());
        println!("| {name} | {:.2} | {:.2} | {ratio:.3} |", of(0), of(1));
        worst = worst.max(ratio);
    }
    if worst > RATIO_MAX {
        eprintln!("the idle sessions cost {worst:.2} times, more than {RATIO_MAX}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
