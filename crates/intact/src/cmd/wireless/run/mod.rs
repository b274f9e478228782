//! `intact wireless run`: a program on an emulated link, in real time.
//!
//! ```text
//!  near: PROGRAM, 10.77.0.1 ── TUN ── the medium ── TUN ── 10.77.0.2, far: --peer
//! ```
//! The stage is [`stage`](studies::wireless::stage).

mod link_file;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use serde::Serialize;
use wireless::link::{Host, LinkSetup};

use crate::cmd::guest::{Kept, exit_code};
use crate::cmd::{FAILED, MISUSED, complain, fail};
use studies::wireless::SCHEMA;
use studies::wireless::air::{LATENESS_P99_MAX_US, Passed};
use studies::wireless::stage::{Stage, end, on_stage};

/// Longest time for the peer to open a port.
const PEER_START: Duration = Duration::from_secs(5);

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

/// Sets the stage, runs the programs and the medium between them, and returns how the program ended.
fn carried_out(args: &Args, setup: &LinkSetup) -> io::Result<(ExitStatus, Passed)> {
    on_stage(setup, args.seed, |stage| with_programs(args, stage))
}

fn with_programs(args: &Args, stage: &Stage) -> io::Result<ExitStatus> {
    let signals = Kept::new()?;
    let mut peer = match &args.peer {
        // In its own process group, so that its children end with it.
        Some(command) => {
            Some(stage.start(Host::Far, Command::new("sh").args(["-c", command]).process_group(0))?)
        }
        None => None,
    };
    let ready = peer.as_mut().map_or(Ok(false), |peer| stage.wait_for_port(None, peer, PEER_START));
    let status = ready.and_then(|_| {
        let mut program = stage.start(Host::Near, Command::new(&args.program[0]).args(&args.program[1..]))?;
        signals.wait(&mut program)
    });
    if let Some(peer) = &mut peer {
        end(peer);
    }
    status
}

/// Writes the report and returns the exit code.
fn conclude(args: &Args, status: ExitStatus, passed: &Passed) -> ExitCode {
    let late = &passed.lateness_us;
    let summary = Summary {
        schema: SCHEMA,
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
        trusted: passed.is_in_time(),
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
