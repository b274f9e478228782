//! Where a comparison runs: factors that change its figures two to four times without any change of the code, and the
//! countermeasures.
//!
//! - *Placement.* Where the scheduler puts both ends matters more than the code does: a wake-up from one core to another costs tens
//!   of microseconds on a virtual machine. Target and client are pinned, once to one core and once to two, and both are reported.
//! - *Congestion control.* bbr misjudges the round trip of loopback as a thin line: large transfers take half as long with cubic.
//!   Everything runs in a network namespace with the named algorithm.
//! - *Memory.* Volumes are written completely before anything is measured: memory not yet allocated would cause page faults.
//! - *The client.* A client that makes a system call for each command is slower than the target. Ours sends all queued commands in
//!   one call.
//! - *Neighbours.* Both ends run at a higher priority than everything else (`SCHED_FIFO`, where that is allowed).

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};

use super::rows::PREFILL;
use super::servers::Server;
use super::{REGION_BYTES, measure};

/// The surroundings of every comparison.
#[derive(clap::Args)]
pub struct Surroundings {
    /// TCP congestion control, in a separate network namespace; "system" measures without one, with the system's
    #[arg(long, default_value = "cubic")]
    congestion: String,
}

/// Where the client runs; the target always has the same core.
pub struct Placement {
    pub name: &'static str,
    client_core: usize,
}

/// Both ends on one core, and on two.
pub const PLACEMENTS: [Placement; 2] = [
    Placement { name: "one core", client_core: TARGET_CORE },
    Placement { name: "two cores", client_core: 1 },
];
const TARGET_CORE: usize = 0;
/// Real-time priority of both ends: low among real-time processes, above all others.
const PRIORITY: &str = "5";
/// Set when the namespace already exists.
const INSIDE: &str = "INTACT_BENCH_INSIDE";

impl Surroundings {
    /// True if this program may measure; false if it ran again in the requested surroundings, and everything is done.
    pub fn are_here(&self) -> Result<bool> {
        if std::thread::available_parallelism().map_or(1, usize::from) < PLACEMENTS.len() {
            bail!("two placements need two cores");
        }
        if self.congestion == "system" || std::env::var_os(INSIDE).is_some() {
            return Ok(true);
        }
        self.run_inside()?;
        Ok(false)
    }

    /// Runs this program again in a network namespace whose new connections use the congestion control.
    fn run_inside(&self) -> Result<()> {
        const SET_UP: &str =
            "ip link set lo up && sysctl -qw net.ipv4.tcp_congestion_control=\"$0\" && exec \"$@\"";
        let name = &self.congestion;
        let inside = |program: &OsStr| {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", SET_UP, name]).arg(program);
            command
        };
        if !inside("true".as_ref()).status().context("cannot run unshare")?.success() {
            bail!(
                "no namespace with {name}: this needs root, and {name} in net.ipv4.tcp_allowed_congestion_control; \
                 --congestion system measures with what there is"
            );
        }
        let mut again = inside(std::env::current_exe()?.as_os_str());
        let status = again.args(std::env::args_os().skip(1)).env(INSIDE, "1").status()?;
        // It has said itself why it failed.
        if !status.success() {
            std::process::exit(status.code().unwrap_or(1));
        }
        Ok(())
    }
}

impl Placement {
    /// The load generator `program` on the core of this placement.
    pub fn client(&self, program: &Path) -> Command {
        pinned(program, self.client_core)
    }
}

/// `program` on the core for targets.
pub fn target(program: impl AsRef<Path>) -> Command {
    pinned(program.as_ref(), TARGET_CORE)
}

/// Writes the whole measured part of a volume.
pub fn fill(client: &Path, server: &Server) -> Result<()> {
    // Each run starts at the beginning, so one run must reach the end.
    for seconds in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        let run = measure(PLACEMENTS[1].client(client), server, "", &PREFILL, false, seconds)?;
        if run.writes * PREFILL.block_bytes >= REGION_BYTES {
            return Ok(());
        }
    }
    bail!("{} could not be filled", server.url)
}

/// `program` on `cores`, as `taskset -c` writes them, at the highest priority among programs that take turns. In contrast to
/// [`target`], threads that share a core take turns, and a share of a processor binds them.
pub fn fairly(program: &Path, cores: &str) -> Command {
    static NICE: LazyLock<bool> = LazyLock::new(|| works("nice", &["-n", "-20", "true"]));
    let mut command = Command::new("taskset");
    command.args(["-c", cores]);
    if *NICE {
        command.args(["nice", "-n", "-20"]);
    }
    command.arg(program);
    command
}

/// `program` on the core of [`target`], in the time that the target leaves.
pub fn behind_target(program: &Path) -> Command {
    fairly(program, &TARGET_CORE.to_string())
}

/// Moves all threads of `server` to `cores`.
pub fn move_to(server: &Server, cores: &str) -> Result<()> {
    let id = server.process.id().to_string();
    match works("taskset", &["-a", "-p", "-c", cores, &id]) {
        true => Ok(()),
        false => bail!("{} cannot be moved to the processors {cores}", server.name),
    }
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// `program` on one core, above the priority of everything else where that is allowed.
fn pinned(program: &Path, core: usize) -> Command {
    static FIRST: LazyLock<bool> = LazyLock::new(|| works("chrt", &["-f", PRIORITY, "true"]));
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]);
    if *FIRST {
        command.args(["chrt", "-f", PRIORITY]);
    }
    command.arg(program);
    command
}
