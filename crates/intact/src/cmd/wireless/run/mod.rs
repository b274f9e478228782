//! `intact wireless run`: a program on an emulated link, in real time.
//!
//! ```text
//!  near: PROGRAM, 10.77.0.1 ── TUN ── the medium ── TUN ── 10.77.0.2, far: --peer
//! ```
//! Both ends are network namespaces without a name: nothing is left when the command ends, and two runs do not see each other. The
//! medium and its hops are those of the crate `wireless`, moved by the clock of the machine.

mod air;
mod link_file;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::netns::NetNs;
use engine::realtime::prefer_this_thread;
use engine::tun::{Framing, Tun};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use wireless::link::LinkSetup;

use self::air::{Air, Passed};
use crate::cmd::guest::{Kept, exit_code};
use crate::cmd::{FAILED, MISUSED, complain, fail};

/// Addresses of the two ends.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// A run whose 99th percentile of lateness is above this is not to be trusted, µs.
const LATENESS_P99_MAX_US: u64 = 1000;
/// Priority among threads in real time: in the middle.
const PRIORITY: i32 = 50;
/// Longest time for the peer to open a port, and how often it is checked.
const PEER_START: Duration = Duration::from_secs(5);
const PEER_LOOK: Duration = Duration::from_millis(10);

/// Arguments of `intact wireless run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    intact wireless run --link 802.11b --peer 'iperf3 -s -1' -- iperf3 -c 10.77.0.2\n  \
    intact wireless run --link 802.11g --hops 2 --loss 1% -- ping -c 10 10.77.0.2\n\n\
    PROGRAM has the address 10.77.0.1 and no other network; 10.77.0.2 is the far end, where --peer runs until PROGRAM ends.\n\
    A link file is JSON: data_mbit_s, ack_mbit_s, slot_us, sifs_us, difs_us, cw_min, doublings, preamble_us, phy_header_us,\n\
    queue_frames, latency_us; what it leaves out is as in 802.11b. Needs root and /dev/net/tun.\n\n\
    Exit codes: 0 done; 1 it failed, or the link was late (p99 of 1 ms or more) and figures are not to be trusted;\n\
    2 wrong usage; else PROGRAM's own, 128 and the number of the signal that ended it.")]
pub struct Args {
    /// 802.11b, 802.11g, or a file that describes a link.
    #[arg(long, value_name = "LINK", default_value = "802.11b")]
    link: String,
    /// Hops, all in one cell.
    #[arg(long, value_name = "N", default_value = "1", value_parser = link_file::hops)]
    hops: u32,
    /// Share of packets that are lost after the medium has carried them.
    #[arg(long, value_name = "P", default_value = "0", value_parser = link_file::share)]
    loss: f64,
    /// Share of frames that are destroyed and that the medium retransmits.
    #[arg(long, value_name = "P", default_value = "0", value_parser = link_file::share)]
    frame_errors: f64,
    /// Largest packet, bytes (MTU).
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=9000))]
    mtu: u32,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Command that the shell runs at the far end.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Write what passed as JSON into this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Program that runs at the near end.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// The contents of `--report`.
#[derive(Debug, Serialize)]
struct Summary {
    schema: u32,
    link: String,
    hops: u32,
    loss: f64,
    frame_errors: f64,
    mtu: u32,
    packets: u64,
    bytes: u64,
    refused: u64,
    lost: u64,
    transmissions: u64,
    collisions: u64,
    lateness_p50_us: u64,
    lateness_p99_us: u64,
    lateness_max_us: u64,
    trusted: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    let setup = match link_file::named(&args.link) {
        Ok(link) => LinkSetup {
            hops: args.hops,
            loss: args.loss,
            p_error: args.frame_errors,
            ..link.with_mtu(args.mtu)
        },
        Err(what) => return fail(MISUSED, what),
    };
    match carried_out(args, &setup) {
        Ok((status, passed)) => conclude(args, status, &passed),
        Err(error) => {
            fail(FAILED, format_args!("{error}; a run needs root, /dev/net/tun and `ip` of iproute2"))
        }
    }
}

/// Creates both ends, runs the programs and the medium between them, and returns how the program ended.
fn carried_out(args: &Args, setup: &LinkSetup) -> io::Result<(ExitStatus, Passed)> {
    let ends = [NetNs::create()?, NetNs::create()?];
    let near = device(&ends[0], ADDRESSES[0], args.mtu)?;
    let far = device(&ends[1], ADDRESSES[1], args.mtu)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let air = Air::new(setup, args.seed, [&near, &far])?;
        let over = &over;
        let medium = std::thread::Builder::new().name("medium".into()).spawn_scoped(scope, move || {
            if let Err(error) = prefer_this_thread(PRIORITY) {
                complain(format_args!(
                    "intact: the medium runs as an ordinary thread ({error}), and may be late"
                ));
            }
            air.run(over)
        })?;
        let status = with_programs(args, &ends);
        over.store(true, Ordering::Relaxed);
        let passed = medium.join().map_err(|_| io::Error::other("the medium panicked"))??;
        Ok((status?, passed))
    })
}

fn with_programs(args: &Args, ends: &[NetNs; 2]) -> io::Result<ExitStatus> {
    let signals = Kept::new()?;
    let mut peer = match &args.peer {
        // In its own process group, so that its children end with it.
        Some(command) => Some(start(&ends[1], Command::new("sh").args(["-c", command]).process_group(0))?),
        None => None,
    };
    let status = peer.as_mut().map_or(Ok(()), |peer| wait_for_port(&ends[1], peer)).and_then(|()| {
        let mut program = start(&ends[0], Command::new(&args.program[0]).args(&args.program[1..]))?;
        signals.wait(&mut program)
    });
    if let Some(peer) = &mut peer {
        end(peer);
    }
    status
}

/// Waits until something at the far end listens, the peer has ended, or its time is over: it may need no port.
fn wait_for_port(namespace: &NetNs, peer: &mut Child) -> io::Result<()> {
    let began = Instant::now();
    while began.elapsed() < PEER_START && peer.try_wait()?.is_none() && !namespace.within(has_port)? {
        std::thread::sleep(PEER_LOOK);
    }
    Ok(())
}

/// Whether a socket of the thread's namespace listens (TCP), or has a port (UDP). See proc(5): the fourth field is the state, and 0A is
/// LISTEN.
fn has_port() -> bool {
    let rows =
        |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let listens = |line: &str| line.split_whitespace().nth(3) == Some("0A");
    ["tcp", "tcp6"].into_iter().any(|name| rows(name).lines().any(listens))
        || ["udp", "udp6"].into_iter().any(|name| rows(name).lines().count() > 1)
}

/// Starts a program in a namespace.
fn start(namespace: &NetNs, command: &mut Command) -> io::Result<Child> {
    command.env("INTACT_NEAR", ADDRESSES[0]).env("INTACT_FAR", ADDRESSES[1]);
    let name = command.get_program().to_string_lossy().into_owned();
    let started = namespace.within(|| command.spawn())?;
    started.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

/// Ends a program and its children.
fn end(child: &mut Child) {
    // Its children may outlive it.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// A TUN device in a namespace, with its address, up.
fn device(namespace: &NetNs, address: &str, mtu: u32) -> io::Result<Tun> {
    namespace.within(|| {
        let tun = Tun::open("air%d", Framing::Packets)?;
        let name = tun.name();
        ip(&["link", "set", "lo", "up"])?;
        ip(&["addr", "add", &format!("{address}/24"), "dev", name])?;
        ip(&["link", "set", name, "mtu", &mtu.to_string(), "up"])?;
        Ok(tun)
    })?
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// Writes the report and returns the exit code.
fn conclude(args: &Args, status: ExitStatus, passed: &Passed) -> ExitCode {
    let late = &passed.lateness_us;
    let summary = Summary {
        schema: super::report::SCHEMA,
        link: args.link.clone(),
        hops: args.hops,
        loss: args.loss,
        frame_errors: args.frame_errors,
        mtu: args.mtu,
        packets: passed.arrived,
        bytes: passed.bytes,
        refused: passed.refused,
        lost: passed.lost,
        transmissions: passed.transmissions,
        collisions: passed.collisions,
        lateness_p50_us: late.value_at_quantile(0.5),
        lateness_p99_us: late.value_at_quantile(0.99),
        lateness_max_us: late.max(),
        trusted: late.value_at_quantile(0.99) < LATENESS_P99_MAX_US,
    };
    complain(format_args!(
        "intact: {} packets, {} bytes, {} lost, {} refused; late by {} µs (p50), {} µs (p99), {} µs (most)",
        summary.packets,
        summary.bytes,
        summary.lost,
        summary.refused,
        summary.lateness_p50_us,
        summary.lateness_p99_us,
        summary.lateness_max_us
    ));
    if let Some(path) = &args.report {
        let written = serde_json::to_string(&summary)
            .map_err(io::Error::other)
            .and_then(|text| std::fs::write(path, text + "\n"));
        if let Err(error) = written {
            return fail(FAILED, format_args!("{}: {error}", path.display()));
        }
    }
    match status.code() {
        Some(0) if !summary.trusted => fail(
            FAILED,
            format_args!(
                "packets were late by {LATENESS_P99_MAX_US} µs or more: run it again on a quiet machine; figures are not to be trusted"
            ),
        ),
        _ => exit_code(status),
    }
}
