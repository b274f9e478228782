//! `intact tcp-crc up|down`: the CRC in the TCP of a whole host or network namespace.
//!
//! A process in the background holds the BPF programs. When it ends, for whatever reason, the kernel removes them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tcp_crc::Method;
use tcp_crc_shim::host::{Down, Host, HostError, HostOptions, take_down};
use tcp_crc_shim::report::{DIRECTORY, Publisher, Report};
use tcp_crc_shim::surroundings::Told;

use super::{Manner, method, offer};
use crate::cmd::{FAILED, MISUSED, complain, fail};
use crate::output::count;

/// The CRC is already up.
const ALREADY_UP: u8 = 3;

/// Arguments of `intact tcp-crc up`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It works on the network namespace in which it is run, with programs in the kernel (BPF) at the devices and at a cgroup. A \
    process in the background holds them, so they are there together or not at all: if it is killed, the kernel takes them off. \
    Connections that are open stay as they are, plain, and so is what a socket accepts that listens already: start its program again. \
    Devices that come later are not included. It takes root (CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN), ip, cgroup2, and Linux 6.6 with \
    BPF. A shim on TUN devices (`run --backend tun`) stands between two networks and cannot serve a whole host: its addresses would have \
    to move. `run --require` has no counterpart here: it would end the connections that are open.\n\n\
    Examples:\n  intact tcp-crc up\n  intact tcp-crc up --dev eth0 --values 6 --strict\n  intact tcp-crc up --nat no\n  \
    ip netns exec blue intact tcp-crc up\n  \
    intact tcp-crc up --foreground                 for a service of systemd\n\n\
    Exit codes: 0 it is up; 1 it failed, and nothing is attached; 2 wrong usage; 3 it was up already."
)]
pub struct Args {
    /// Values to request: 4, 5, 6, or `auto`: 4 behind address translation (NAT), else 5.
    #[arg(long, value_name = "VALUE", value_delimiter = ',', value_parser = value, default_value = "auto")]
    values: Vec<Value>,
    /// With --values auto: whether there is address translation (NAT) between this host and its peers. Default: yes if a device has a
    /// private address.
    #[arg(long, value_enum, value_name = "WHETHER")]
    nat: Option<Whether>,
    /// With --values auto: whether the devices compute TCP's sum. Default: as the devices report.
    #[arg(long, value_enum, value_name = "WHETHER")]
    offload: Option<Whether>,
    #[command(flatten)]
    manner: Manner,
    /// A device; may be repeated. Default: all Ethernet-like devices that are up, except the ports of bridges and bonds.
    #[arg(long, value_name = "DEVICE")]
    dev: Vec<String>,
    /// Only the programs in this cgroup (version 2).
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Maximum number of protected connections at a time; others are plain TCP.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Stay in the foreground until SIGTERM or an interrupt, then disable it.
    #[arg(long)]
    foreground: bool,
    /// Run in the background, for the process that reads standard output.
    #[arg(long, hide = true)]
    held: bool,
}

/// Arguments of `intact tcp-crc down`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Protected connections go on without CRC: a peer counts that, and one with --strict ends them.\n\n\
    Example:\n  intact tcp-crc down\n\n\
    Exit codes: 0 it is down, also when it was before; 1 it failed."
)]
pub struct DownArgs {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Whether {
    Yes,
    No,
}

/// A value; None: the value of Table 7.1.
#[derive(Clone, Copy, Debug)]
struct Value(Option<Method>);

fn value(text: &str) -> Result<Value, String> {
    match text {
        "auto" => Ok(Value(None)),
        "4" | "5" | "6" => method(text).map(|method| Value(Some(method))),
        "3" => {
            Err("value 3 is for shims on TUN devices: programs in the kernel leave the Checksum field to TCP"
                .to_owned())
        }
        _ => Err(format!("`{text}` is none of auto, 4, 5 and 6")),
    }
}

/// The line that the process in the background sends to the one that started it.
#[derive(Serialize, Deserialize)]
struct Word {
    code: u8,
    text: String,
}

/// Runs `up`.
pub fn run(args: &Args) -> ExitCode {
    let options = match options(args) {
        Ok(options) => options,
        Err(error) => return fail(MISUSED, error),
    };
    if args.foreground || args.held { hold(&options, args.held) } else { start() }
}

fn options(args: &Args) -> Result<HostOptions, String> {
    let is = |whether: Option<Whether>| whether.map(|whether| whether == Whether::Yes);
    let told = Told { checksum_offload: is(args.offload), behind_nat: is(args.nat) };
    let named: Option<Vec<Method>> = args.values.iter().map(|value| value.0).collect();
    let (values, table_7_1) = match named {
        Some(_) if told != Told::default() => {
            return Err("--nat and --offload are for --values auto".to_owned());
        }
        Some(values) => (values, None),
        None if args.values.len() > 1 => return Err("--values auto takes no other value".to_owned()),
        None => (Vec::new(), Some(told)),
    };
    Ok(HostOptions {
        config: args.manner.config(offer(&values)?),
        table_7_1,
        connections_max: args.connections as usize,
        cgroup: args.cgroup.clone(),
        devices: args.dev.clone(),
    })
}

fn code(error: &HostError) -> u8 {
    if matches!(error, HostError::AlreadyUp { .. }) { ALREADY_UP } else { FAILED }
}

/// Starts the process in the background, and prints its line.
fn start() -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return fail(FAILED, format_args!("this program does not find itself: {error}")),
    };
    let child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg(OsStr::new("--held"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // An interrupt from the terminal must not reach it.
        .process_group(0)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return fail(FAILED, format_args!("no process can be started: {error}")),
    };
    let mut line = String::new();
    let read = child.stdout.take().map(|output| BufReader::new(output).read_line(&mut line));
    match serde_json::from_str::<Word>(&line) {
        Ok(Word { code: 0, text }) => crate::output::print(&(text + "\n")),
        Ok(Word { code, text }) => fail(code, text),
        Err(_) => {
            let _ = (read, child.wait());
            // It may have changed the settings of devices.
            let _ = take_down(Path::new(DIRECTORY));
            fail(FAILED, "the process in the background has ended before it was done; nothing is attached")
        }
    }
}

/// Enables the CRC on this host, and stays until a signal.
fn hold(options: &HostOptions, held: bool) -> ExitCode {
    let say = |code: u8, text: String| -> bool {
        let line = serde_json::to_string(&Word { code, text }).unwrap_or_default();
        let mut output = std::io::stdout();
        writeln!(output, "{line}").and_then(|()| output.flush()).is_ok()
    };
    let refuse = |code: u8, text: String| match held {
        true => {
            say(code, text);
            ExitCode::from(code)
        }
        false => fail(code, text),
    };
    let mut signals = match Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        Ok(signals) => signals,
        Err(error) => return refuse(FAILED, format!("signals cannot be received: {error}")),
    };
    let host = match Host::attach(Path::new(DIRECTORY), options) {
        Ok(host) => host,
        Err(error) => return refuse(code(&error), error.to_string()),
    };
    let text = summary(&host);
    let name = host.name().to_owned();
    let host = Arc::new(Mutex::new(Some(host)));
    let publisher = publish(&name, &host);
    if held {
        // It keeps no directory busy.
        let _ = std::env::set_current_dir("/");
        // The starting process is gone and does not know that the CRC is up.
        if !say(0, text) {
            drop((publisher, host.lock().take()));
            return ExitCode::from(FAILED);
        }
    } else {
        complain(text);
    }
    // The process in the background ignores the end of the terminal.
    let _ = signals.forever().find(|signal| !(held && *signal == SIGHUP));
    drop((publisher, host.lock().take()));
    ExitCode::SUCCESS
}

fn publish(name: &str, host: &Arc<Mutex<Option<Host>>>) -> std::io::Result<Publisher> {
    let (observed, of) = (Arc::clone(host), name.to_owned());
    let report = move || observed.lock().as_ref().map_or_else(|| Report::empty(&of), Host::report);
    let publisher = Publisher::start(Path::new(DIRECTORY), name, Arc::new(report));
    if let Err(error) = &publisher {
        complain(format_args!("intact: `intact tcp-crc status` will not see this: {DIRECTORY}: {error}"));
    }
    publisher
}

fn summary(host: &Host) -> String {
    let left = host.left_alone();
    let mut text =
        format!("{} is up on {} (process {})", host.name(), host.devices().join(", "), std::process::id());
    if let (Some(method), Some(surroundings)) = (host.chosen(), host.surroundings()) {
        text += &format!("; asks for value {} ({})", method.value(), surroundings.reasons());
    }
    if left.connections > 0 {
        text += &format!("; {} open before: plain", count(left.connections as usize, "connection"));
    }
    if left.listeners > 0 {
        let sockets = count(left.listeners as usize, "socket");
        text += &format!(
            "; {sockets} listening before: what is accepted there is plain until the program is started again"
        );
    }
    text
}

/// Runs `down`.
pub fn down(_: &DownArgs) -> ExitCode {
    match take_down(Path::new(DIRECTORY)) {
        Ok(Down::Done) => crate::output::print("The CRC is off; connections go on without it.\n"),
        Ok(Down::NotUp) => crate::output::print("The CRC was not up here; nothing was to be done.\n"),
        Ok(Down::Mended) => crate::output::print(
            "The process that held the CRC had been killed, and the kernel had taken it off; the devices' gso_max_segs are restored.\n",
        ),
        Err(error) => fail(FAILED, error),
    }
}
