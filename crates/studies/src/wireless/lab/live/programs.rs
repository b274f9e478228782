//! Programs on a stage: servers at the far end, and clients at the near end that measure them.

use std::fs;
use std::io;
use std::net::{AddrParseError, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use target::config::{Config, TargetConfig};
use target::observe::Observe;
use target::{BlockStore, IscsiName, OpenStore, StoreError};
use tempfile::TempDir;
use wireless::link::Host;

use crate::wireless::stage::{Stage, address, end};

/// Our target, and that of others.
pub(super) const IQN: &str = "iqn.2004-01.org.example:lab";
/// Size of a volume, bytes.
pub(super) const VOLUME_BYTES: u64 = 16 << 20;
/// Longest time for a server to get ready.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(50);
const ISCSI_PORT: u16 = 3260;
const NFS_PORT: u16 = 2049;
const IPERF_PORT: u16 = 5201;
/// The exported file of the NFS server.
const EXPORTED: &str = "/export/volume";
/// Number of tgt's control socket; the socket itself is in a folder of our own.
const TGT_CONTROL: &str = "62";
/// Fewest commands of a load that are counted: one more or less is 5 %, of three rounds 3 %.
const COMMANDS_MIN: f64 = 20.0;

/// What serves.
enum Server {
    /// A program in a process group of its own.
    Program(Child),
    /// Threads of this program.
    Threads(target::Server),
}

/// A server at the far end, ended with its children when dropped.
pub(super) struct Served {
    server: Server,
    /// Its unit, for clients; `None`: it serves no iSCSI.
    lun: Option<u16>,
    /// Its files live as long as it does.
    folder: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        match &mut self.server {
            Server::Program(child) => end(child),
            Server::Threads(server) => server.shutdown(Duration::ZERO),
        }
    }
}

impl Served {
    fn program(child: Child, lun: Option<u16>, folder: TempDir) -> Served {
        Served { server: Server::Program(child), lun, folder }
    }

    /// CPU time of its process so far, seconds; 0 for threads of this program.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let Server::Program(child) = &self.server else { return 0.0 };
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
        // As the scheduler counts it, ns; a thread may end while it is being read.
        let spent = tasks.filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        });
        spent.sum::<f64>() / 1e9
    }

    fn portal() -> String {
        format!("{}:{ISCSI_PORT}", address(Host::Far))
    }
}

/// A folder in memory, so that no disk takes part.
fn folder() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let builder = &mut tempfile::Builder::new();
    let builder = builder.prefix("intact-lab-");
    if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() }
}

/// A file of a volume, filled.
fn volume(path: &Path) -> io::Result<()> {
    let content: Vec<u8> = (0..VOLUME_BYTES / 8).flat_map(u64::to_le_bytes).collect();
    fs::write(path, content)
}

/// A program in a process group of its own, without input and output.
fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} did not get ready"))
}

/// `intact`, as it runs now.
fn intact() -> io::Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// Our target, with a volume in a file in memory: one that has data, for QEMU does not read what is not allocated.
pub(super) fn our_target(stage: &Stage) -> io::Result<Served> {
    let folder = folder()?;
    let (file, backing) = (folder.path().join("intact.toml"), folder.path().join("volume"));
    volume(&backing)?;
    let text = format!(
        "[control]\nsocket = false\n[[target]]\nname = \"{IQN}\"\n[[target.lun]]\nstore = \"file:{}\"\n",
        backing.display()
    );
    fs::write(&file, text)?;
    let mut command = quiet(intact()?);
    command.args(["serve", "--allow-open-access", "--listen", &Served::portal(), "-c"]).arg(&file);
    let mut child = stage.start_ahead(Host::Far, &mut command)?;
    let ready = stage.wait_for_port(Some(ISCSI_PORT), &mut child, PATIENCE);
    let served = Served::program(child, Some(0), folder);
    if ready? { Ok(served) } else { Err(late("intact serve")) }
}

/// Debian's tgt, with a volume in memory.
pub(super) fn tgt(stage: &Stage) -> io::Result<Served> {
    let folder = folder()?;
    let (socket, backing) = (folder.path().join("control"), folder.path().join("volume"));
    volume(&backing)?;
    let mut command = quiet(Command::new("tgtd"));
    command.args(["-f", "-C", TGT_CONTROL, "--iscsi", &format!("portal={}", Served::portal())]);
    let child = stage.start_ahead(Host::Far, command.env("TGT_IPC_SOCKET", &socket))?;
    let served = Served::program(child, Some(1), folder);
    let admin = |arguments: &str| -> io::Result<bool> {
        let mut command = Command::new("tgtadm");
        command.args(["-C", TGT_CONTROL, "--lld", "iscsi"]).args(arguments.split(' '));
        command.env("TGT_IPC_SOCKET", &socket).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.status()?.success())
    };
    let began = Instant::now();
    while !admin("--op show --mode target")? {
        if began.elapsed() > PATIENCE {
            return Err(late("tgtd"));
        }
        std::thread::sleep(LOOK);
    }
    let orders = [
        format!("--op new --mode target --tid 1 -T {IQN}"),
        format!("--op new --mode logicalunit --tid 1 --lun 1 -b {}", backing.display()),
        "--op bind --mode target --tid 1 -I ALL".to_owned(),
        "--op update --mode target --tid 1 --name HeaderDigest --value CRC32C,None".to_owned(),
        "--op update --mode target --tid 1 --name DataDigest --value CRC32C,None".to_owned(),
    ];
    match orders.iter().find(|order| !admin(order).unwrap_or(false)) {
        Some(order) => Err(io::Error::other(format!("tgtadm {order} failed"))),
        None => Ok(served),
    }
}

/// NFS-Ganesha, NFS version 3 over TCP, with a file in memory.
pub(super) fn ganesha(stage: &Stage) -> io::Result<Served> {
    let folder = folder()?;
    let export = folder.path().join("export");
    fs::create_dir(&export)?;
    volume(&export.join("volume"))?;
    let configuration = folder.path().join("ganesha.conf");
    let text = format!(
        "NFS_CORE_PARAM {{ Protocols = 3; mount_path_pseudo = true; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /export; Protocols = 3; Access_Type = RW; Squash = None; SecType = sys;\n\
         FSAL {{ Name = VFS; }} }}\n",
        export.display()
    );
    fs::write(&configuration, text)?;
    // rpcbind and Ganesha have their sockets and state in /run: a mount namespace keeps those of the machine apart.
    let script = "mount -t tmpfs none /run && mkdir -p /run/ganesha /run/rpcbind || exit 1; rpcbind -f -w & \
                  for n in $(seq 100); do [ -S /run/rpcbind.sock ] && break; sleep 0.05; done; \
                  exec ganesha.nfsd -F -L \"$1/log\" -f \"$1/ganesha.conf\" -p /run/ganesha/pid";
    let mut command = quiet(Command::new("unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(folder.path());
    let mut child = stage.start_ahead(Host::Far, &mut command)?;
    let ready = stage.wait_for_port(Some(NFS_PORT), &mut child, PATIENCE);
    let served = Served::program(child, None, folder);
    if ready? {
        return Ok(served);
    }
    let log = fs::read_to_string(served.folder.path().join("log")).unwrap_or_default();
    let last = log.lines().last().unwrap_or("its log is empty");
    Err(io::Error::other(format!("ganesha.nfsd did not get ready: {last}")))
}

/// Our target as threads of this program, with the store that `open` makes; it may use the folder.
pub(super) fn our_threads(
    stage: &Stage,
    open: impl FnOnce(&Path) -> Result<Arc<dyn BlockStore>, StoreError>,
) -> io::Result<Served> {
    // On the disk: a file in memory has no medium to read.
    let folder = tempfile::Builder::new().prefix("intact-lab-").tempdir()?;
    let store = open(folder.path()).map_err(io::Error::other)?;
    let name = IscsiName::parse(IQN).map_err(io::Error::other)?;
    // Replaced by the store.
    let spec = "ram:1M".parse().map_err(io::Error::other)?;
    let address = far_portal().map_err(io::Error::other)?;
    let config = Config::new(&[address], vec![TargetConfig::new(name, [spec])]);
    let open: OpenStore = Arc::new(move |_| Ok(Arc::clone(&store)));
    let start = || target::Server::start_with(config, Arc::new(Observe::new()), open);
    let server = stage.within_ahead(Host::Far, start)?.map_err(io::Error::other)?;
    Ok(Served { server: Server::Threads(server), lun: Some(0), folder })
}

/// A load: commands of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub bytes: u32,
    pub depth: usize,
    pub connections: u16,
    pub writes: bool,
    /// One after the other; else anywhere.
    pub sequential: bool,
    pub seconds: f64,
}

impl Load {
    /// Reads over one connection.
    pub(super) const fn reads(kib: u32, depth: usize, seconds: f64) -> Load {
        Load { bytes: kib << 10, depth, connections: 1, writes: false, sequential: false, seconds }
    }

    /// How long our initiator measures, seconds: it counts commands, so there must be enough of them.
    fn time_s(&self) -> f64 {
        self.seconds.max(COMMANDS_MIN * f64::from(self.bytes) / 6e5)
    }

    /// Commands that take about as long as the load lasts, over 802.11b.
    fn count(&self) -> u64 {
        let alone = 0.008 + f64::from(self.bytes) / 6e5;
        let rate = (self.depth as f64 / alone).min(6e5 / f64::from(self.bytes));
        ((rate * self.seconds) as u64).max(16)
    }
}

/// What a client measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// 10^6 bytes per second.
    pub mb_s: f64,
    /// Mean time of a command, ms, as the client measured it, or by Little's law where it measures none.
    pub command_ms: f64,
    /// Processors that the client kept busy; 0 where it does not say.
    pub client_cpu: f64,
    /// Processors that the server kept busy.
    pub server_cpu: f64,
}

/// Our initiator, with both digests, commands on the connections in turn.
pub(super) fn our_initiator(stage: &Stage, served: &Served, load: Load) -> io::Result<Ran> {
    let url = format!(
        "iscsi://{}/{IQN}/{}?connections={}&scheduling=round_robin",
        Served::portal(),
        served.lun.unwrap_or_default(),
        load.connections
    );
    let mut command = intact()?;
    command.args([
        "bench",
        "lun",
        "--json",
        "--digests",
        "on",
        "--warmup",
        "500ms",
        "--overwrite",
        "--block",
    ]);
    command.args([load.bytes.to_string(), "--depth".into(), load.depth.to_string(), "--time".into()]);
    command.args([format!("{}ms", (load.time_s() * 1e3) as u64), "--rw".into()]);
    let pattern = if load.sequential { "sequential" } else { "random" };
    command.args([if load.writes { "write" } else { "read" }, "--pattern", pattern, &url]);
    let (began, cpu) = (Instant::now(), served.cpu_seconds());
    let reports: Value = serde_json::from_slice(&output(stage, command)?).map_err(io::Error::other)?;
    let server_cpu = (served.cpu_seconds() - cpu) / began.elapsed().as_secs_f64();
    let report = &reports[0];
    let number =
        |value: &Value| value.as_f64().ok_or_else(|| io::Error::other(format!("no figure in {report}")));
    if report["errors"] != 0 || report["digests_failed"] != 0 || report["session_losses"] != 0 {
        return Err(io::Error::other(format!("commands failed: {report}")));
    }
    Ok(Ran {
        mb_s: number(&report["mb_per_s"])?,
        command_ms: number(&report["latency_us"]["mean"])? / 1e3,
        client_cpu: number(&report["cpu_seconds"])? / number(&report["seconds"])?,
        server_cpu,
    })
}

/// QEMU with libiscsi: header digest, which is all that libiscsi has.
pub(super) fn libiscsi(stage: &Stage, served: &Served, load: Load) -> io::Result<Ran> {
    let lun = served.lun.unwrap_or_default();
    let image = format!(
        "driver=iscsi,transport=tcp,portal={},target={IQN},lun={lun},header-digest=crc32c",
        Served::portal()
    );
    qemu(stage, served, &image, load)
}

/// QEMU with libnfs.
pub(super) fn libnfs(stage: &Stage, served: &Served, load: Load) -> io::Result<Ran> {
    let image = format!("driver=nfs,server.type=inet,server.host={},path={EXPORTED}", address(Host::Far));
    qemu(stage, served, &image, load)
}

fn qemu(stage: &Stage, served: &Served, image: &str, load: Load) -> io::Result<Ran> {
    let count = load.count();
    let mut command = Command::new("qemu-img");
    command.args(["bench", "-t", "none", "-c", &count.to_string(), "-d", &load.depth.to_string()]);
    command.args(["-s", &load.bytes.to_string(), "--image-opts"]);
    if load.writes {
        command.arg("-w");
    }
    let (began, cpu) = (Instant::now(), served.cpu_seconds());
    command.arg(image);
    let said = output(stage, command)?;
    let server_cpu = (served.cpu_seconds() - cpu) / began.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&said);
    let seconds = qemu_seconds(&said)
        .ok_or_else(|| io::Error::other(format!("qemu-img said no time: {}", said.trim())))?;
    let per_s = count as f64 / seconds;
    let (mb_s, command_ms) = (per_s * f64::from(load.bytes) / 1e6, load.depth as f64 / per_s * 1e3);
    Ok(Ran { mb_s, command_ms, client_cpu: 0.0, server_cpu })
}

/// Of `Run completed in 2.345 seconds.`
fn qemu_seconds(said: &str) -> Option<f64> {
    let (_, rest) = said.split_once("Run completed in ")?;
    rest.split(' ').next()?.parse().ok().filter(|seconds| *seconds > 0.0)
}

/// TCP from the far end to the near one, as iperf3 measures it, 10^6 bytes per second.
pub(super) fn iperf3(stage: &Stage, seconds: f64) -> io::Result<f64> {
    let mut server = quiet(Command::new("iperf3"));
    let mut server = stage.start_ahead(Host::Far, server.args(["-s", "-1"]))?;
    let measured = stage.wait_for_port(Some(IPERF_PORT), &mut server, PATIENCE).and_then(|ready| {
        if !ready {
            return Err(late("iperf3"));
        }
        let mut command = Command::new("iperf3");
        command.args(["-c", address(Host::Far), "-R", "-J", "-O", "1", "-t", &format!("{seconds:.0}")]);
        let report: Value = serde_json::from_slice(&output(stage, command)?).map_err(io::Error::other)?;
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        bits.map(|bits| bits / 8e6).ok_or_else(|| io::Error::other(format!("iperf3: {}", report["error"])))
    });
    end(&mut server);
    measured
}

/// What a program at the near end prints.
fn output(stage: &Stage, mut command: Command) -> io::Result<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let output = stage.start_ahead(Host::Near, &mut command)?.wait_with_output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{name}: {}", said.trim().lines().last().unwrap_or("it failed"))))
        }
    }
}

/// A program or file that a figure needs, and the package of Debian that has it.
pub(super) type Need = (&'static str, &'static str);

/// What is missing on this machine, as a remedy.
pub(super) fn missing(needs: &[Need]) -> Option<String> {
    let found = |name: &str| match name.strip_prefix('*') {
        // A module, in a folder of the architecture.
        Some(module) => fs::read_dir("/usr/lib").is_ok_and(|mut folders| {
            folders.any(|folder| folder.is_ok_and(|folder| folder.path().join(module).exists()))
        }),
        None => ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|place| Path::new(place).join(name).exists()),
    };
    let packages: Vec<&str> =
        needs.iter().filter(|(name, _)| !found(name)).map(|(_, package)| *package).collect();
    (!packages.is_empty()).then(|| format!("apt-get install {}", packages.join(" ")))
}

/// Congestion control of the kernel's TCP at the far end.
pub(super) fn congestion_control(stage: &Stage) -> io::Result<String> {
    let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    Ok(stage.within(Host::Far, read)??.trim().to_owned())
}

/// The address of our target on a stage.
fn far_portal() -> Result<SocketAddr, AddrParseError> {
    Ok(SocketAddr::new(address(Host::Far).parse()?, ISCSI_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_time_is_read_and_nothing_else_taken_for_it() {
        let said = "Sending 100 read requests, 4096 bytes each\nRun completed in 2.500 seconds.\n";
        assert_eq!(qemu_seconds(said), Some(2.5));
        for wrong in ["", "Run completed in a hurry", "Run completed in 0.000 seconds."] {
            assert_eq!(qemu_seconds(wrong), None);
        }
    }

    #[test]
    fn what_is_missing_is_said_with_its_package() {
        assert_eq!(missing(&[("sh", "dash")]), None);
        let missing = missing(&[("sh", "dash"), ("no such program", "nothing"), ("*no/such.so", "module")]);
        assert_eq!(missing.as_deref(), Some("apt-get install nothing module"));
    }

    #[test]
    fn a_load_is_as_long_as_it_says() {
        // 0.6 MB/s at 128 KiB and any depth; 8 ms and the link for a lone read of 2 KiB.
        assert_eq!(Load::reads(128, 8, 10.0).count(), 45);
        assert_eq!(Load::reads(2, 1, 10.0).count(), 876);
        assert_eq!(Load::reads(128, 8, 0.1).count(), 16);
    }
}
