//! Where a comparison runs: what moves its figures by two to four times without any change, and what is done about it.
//!
//! - *Placement.* Where the scheduler puts both ends decides more than the code does: a wake-up from one core to another costs tens of
//!   microseconds on a virtual machine. Target and client are pinned, once to one core and once to two, and both are reported.
//! - *Congestion control.* bbr takes loopback's round trip for a thin line: large transfers take half as long with cubic. All of it
//!   runs in a network namespace with the one that is named.
//! - *Memory.* Volumes are written whole before anything is measured: what is not there yet is made by page faults.
//! - *The client.* One that makes a call for each command is slower than the target. Ours sends what it has in one call.
//! - *Neighbours.* Both ends run in front of everything else (`SCHED_FIFO`, where that is allowed).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};

use super::rows::PREFILL;
use super::servers::Server;
use super::{REGION_BYTES, measure};

/// What every comparison runs in.
#[derive(clap::Args)]
pub struct Surroundings {
    /// TCP congestion control, in a network namespace of its own; "system" measures without one, with the system's
    #[arg(long, default_value = "cubic")]
    congestion: String,
}

/// Where the client runs; the target has a core of its own choice, always the same.
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
/// Real-time priority of both ends: low among those, and above everything that is not.
const PRIORITY: &str = "5";
/// Says that the namespace is there already.
const INSIDE: &str = "INTACT_BENCH_INSIDE";

impl Surroundings {
    /// True where this program may measure; else it ran again in the surroundings that were asked for, and all is done.
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

    /// Runs this program again in a network namespace where new connections have the congestion control.
    fn run_inside(&self) -> Result<()> {
        let script = "ip link set lo up && sysctl -qw net.ipv4.tcp_congestion_control=\"$0\" && exec \"$@\"";
        let status = Command::new("unshare")
            .args(["--net", "sh", "-c", script, &self.congestion])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(INSIDE, "1")
            .status()
            .context("cannot run unshare")?;
        let name = &self.congestion;
        match status.success() {
            true => Ok(()),
            false => bail!(
                "no result with {name}: this needs root, and {name} in net.ipv4.tcp_allowed_congestion_control; \
                 --congestion system measures with what there is"
            ),
        }
    }
}

impl Placement {
    /// The load generator `program` where this placement has it.
    pub fn client(&self, program: &Path) -> Command {
        pinned(program, self.client_core)
    }
}

/// `program` on the core of targets.
pub fn target(program: impl AsRef<Path>) -> Command {
    pinned(program.as_ref(), TARGET_CORE)
}

/// Writes all that is measured of a volume.
pub fn fill(client: &Path, server: &Server) -> Result<()> {
    // Each run begins in front, so one has to come to the end.
    for seconds in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        let run = measure(PLACEMENTS[1].client(client), server, "", &PREFILL, false, seconds)?;
        if run.writes * PREFILL.block_bytes >= REGION_BYTES {
            return Ok(());
        }
    }
    bail!("{} could not be filled", server.url)
}

/// `program` on one core, in front of everything else where that is allowed.
fn pinned(program: &Path, core: usize) -> Command {
    static FIRST: LazyLock<bool> = LazyLock::new(|| {
        let mut command = Command::new("chrt");
        command.args(["-f", PRIORITY, "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]);
    if *FIRST {
        command.args(["chrt", "-f", PRIORITY]);
    }
    command.arg(program);
    command
}
