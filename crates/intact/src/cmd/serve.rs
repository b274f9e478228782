//! `intact serve`: the target as a program. Reads the configuration, starts the server and the control plane, prints lines
//! to paste, and then waits for signals: SIGHUP reads the file again, SIGTERM and SIGINT end the server.

mod export;
mod hints;
mod log;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use blockstore::StoreSpec;
use sd_notify::NotifyState;
use server::config::{Config, Loaded, Overrides, Problem, parse_listen, parse_nbd_listen};
use server::{ControlPlane, PlaneError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use target::Server;
use target::observe::Observe;
use target::supervise::Watchdog;

use self::log::Log;
use super::{FAILED, MISUSED, complain, fail};

/// Interval at which a missing store is tried again: at first, and at most.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// Arguments of `intact serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Without arguments: 1 GiB of memory on 127.0.0.1:3260.\n\n\
    Examples:\n  intact serve --lun file:disk.img,size=10G --lun ram:1G\n  \
    intact serve -c /etc/intact.toml\n  \
    intact serve --lun file:disk.img --nbd 127.0.0.1    (then nbdinfo nbd://127.0.0.1)\n\n\
    Signals: SIGHUP reads the file again; SIGTERM and SIGINT let initiators log out, and end (twice: at once).\n\
    RUST_LOG chooses what is logged on standard error (warn, info, debug; default info). What cannot be written is dropped and\n\
    counted, and of what comes too often only the number is logged: the server never waits for its log.\n\n\
    Under a service manager (systemd: Type=notify) it says when it is ready and, with WatchdogSec, that all of its threads\n\
    turn. When one of them ends, the server ends with 1: have it started again (Restart=on-failure).\n\n\
    Exit codes: 0 ended as asked; 1 it could not serve; 2 wrong usage or configuration.")]
pub struct Args {
    /// Configuration file; examples/intact.toml shows every key.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["target", "lun"])]
    config: Option<PathBuf>,
    /// Address to listen on, instead of those in the file; may be repeated. Port 0 lets the system choose.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen)]
    listen: Vec<SocketAddr>,
    /// Name of the target.
    #[arg(long, value_name = "IQN")]
    target: Option<String>,
    /// Logical unit, numbered from 0 in order: ram:SIZE or file:PATH[,size=SIZE][,ro][,atomic=SIZE], each with [,block=BYTES][,pi=TYPE].
    #[arg(long, value_name = "STORE", value_parser = store)]
    lun: Vec<StoreSpec>,
    /// Print one line of JSON that describes what is served, instead of lines to paste.
    #[arg(long)]
    json: bool,
    /// Path of the control socket, which `intact ls`, `lun`, `group` and `reload` use.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Where to keep persistent reservations (APTPL); default: next to each store that is a file.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Serve /metrics (OpenMetrics, or plain text on request) on this address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = metrics)]
    metrics: Option<SocketAddr>,
    /// Also export the units by NBD on this address, instead of those in the file; may be repeated. Default port 10809. TLS is
    /// configured in the file ([nbd]).
    #[arg(long, value_name = "ADDR:PORT", value_parser = nbd_listen)]
    nbd: Vec<SocketAddr>,
    /// Allow anybody on the network to use targets without CHAP and without access rules.
    #[arg(long)]
    allow_open_access: bool,
    /// Do not start if a store cannot be opened; default: serve the others, and try again.
    #[arg(long)]
    require_every_store: bool,
    /// Time for initiators to log out when the server ends.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    grace: u64,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    parse_listen(text).ok_or_else(|| "write ADDR:PORT, such as 127.0.0.1:3260 or [::1]:3260".to_owned())
}

fn nbd_listen(text: &str) -> Result<SocketAddr, String> {
    parse_nbd_listen(text).ok_or_else(|| "write ADDR:PORT, such as 127.0.0.1:10809 or [::1]:10809".to_owned())
}

fn metrics(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDR:PORT, such as 127.0.0.1:9260".to_owned())
}

fn store(text: &str) -> Result<StoreSpec, String> {
    text.parse().map_err(|error: blockstore::SpecError| error.to_string())
}

/// Where the configuration came from, to read it again.
struct Origin {
    file: Option<PathBuf>,
    overrides: Overrides,
    /// The configuration at the start.
    running: Config,
}

impl Origin {
    fn reload(&self, server: &Server) -> Result<Vec<String>, String> {
        let Some(file) = &self.file else {
            return Err(
                "the server was started without a configuration file; start it with -c FILE".to_owned()
            );
        };
        let loaded = Config::load_file(file, &self.overrides)
            .map_err(|problems| format!("the old configuration stays:\n{}", all(&problems)))?;
        for problem in &loaded.warnings {
            tracing::warn!("{problem}");
        }
        let waiting = loaded.config.waits_for_start(&self.running);
        let mut lines = server
            .apply(loaded.config.target)
            .map_err(|error| format!("the old configuration stays: {error}"))?;
        lines.extend(waiting);
        Ok(lines)
    }
}

fn all(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n\n")
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => return fail(FAILED, format_args!("nothing can be logged: {error}")),
    };
    let code = serve(args, &log);
    log.flush();
    code
}

fn serve(args: Args, log: &Log) -> ExitCode {
    let overrides = Overrides {
        listen: args.listen,
        control_socket: args.control,
        state_dir: args.state,
        metrics: args.metrics,
        nbd: args.nbd,
        allow_open_access: args.allow_open_access,
        require_every_store: args.require_every_store,
    };
    let config = match configuration(args.config.as_deref(), args.target.as_deref(), args.lun, &overrides) {
        Ok(config) => config,
        Err(code) => return code,
    };
    raise_file_limit();
    // Before anything is started, so that an early signal is not lost.
    let mut signals = match Signals::new([SIGHUP, SIGTERM, SIGINT]) {
        Ok(signals) => signals,
        Err(error) => return fail(FAILED, format_args!("signals cannot be received: {error}")),
    };

    let observe = Arc::new(Observe::new());
    end_on_failure(&observe, log);
    let server = match Server::start(config.target.clone(), Arc::clone(&observe)) {
        Ok(server) => Arc::new(server),
        Err(error) => return fail(FAILED, error),
    };
    let nbd = match export::start(&config, &server) {
        Ok(nbd) => nbd,
        Err(error) => {
            server.shutdown(Duration::ZERO);
            return fail(FAILED, error);
        }
    };
    let origin = Arc::new(Origin { file: args.config, overrides, running: config.clone() });
    retry_missing(&server);
    let plane = match start_plane(&config, observe, &origin, &server, nbd.as_ref()) {
        Ok(plane) => plane,
        Err(error) => {
            server.shutdown(Duration::ZERO);
            return fail(FAILED, error);
        }
    };
    if let Some(notice) = plane.notice() {
        tracing::warn!("{notice}");
    }
    let nbd_addresses = nbd.as_ref().map_or(&[][..], nbd::Server::addresses);
    hints::print(&config, &*server, (&server.portals(), nbd_addresses), &plane, args.json);
    notify(&[NotifyState::Ready]);
    let _watchdog = match feed_watchdog(&server) {
        Ok(watchdog) => watchdog,
        Err(error) => {
            server.shutdown(Duration::ZERO);
            return fail(FAILED, format_args!("the watchdog cannot be started: {error}"));
        }
    };

    reload_when_asked(&mut signals, &origin, &server);
    notify(&[NotifyState::Stopping]);
    shut_down(Duration::from_secs(args.grace), signals, nbd, &server);
    drop(plane);
    ExitCode::SUCCESS
}

/// Ends the session of every initiator, which has `grace` to log out. A further signal ends the process at once.
fn shut_down(grace: Duration, mut signals: Signals, nbd: Option<nbd::Server>, server: &Server) {
    tracing::info!("ending: initiators have {} s to log out", grace.as_secs());
    std::thread::spawn(move || {
        if signals.forever().any(|signal| signal != SIGHUP) {
            std::process::exit(i32::from(FAILED));
        }
    });
    if let Some(nbd) = nbd {
        nbd.shutdown(grace);
    }
    server.shutdown(grace);
}

/// Starts the control plane.
fn start_plane(
    config: &Config,
    observe: Arc<Observe>,
    origin: &Arc<Origin>,
    server: &Arc<Server>,
    nbd: Option<&nbd::Server>,
) -> Result<ControlPlane, PlaneError> {
    let (origin, reloaded, view) = (Arc::clone(origin), Arc::clone(server), Arc::clone(server));
    let reload = Box::new(move || origin.reload(&reloaded));
    let more = nbd.into_iter().map(export::families).collect();
    ControlPlane::start(&config.control_socket, config.metrics, observe, view, reload, more)
}

/// Reads the configuration again at every SIGHUP, until another signal comes.
fn reload_when_asked(signals: &mut Signals, origin: &Origin, server: &Server) {
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        notify(&reloading());
        match origin.reload(server) {
            Ok(lines) if lines.is_empty() => tracing::info!("configuration read again: nothing changed"),
            Ok(lines) => lines.iter().for_each(|line| tracing::info!("configuration read again: {line}")),
            Err(why) => tracing::error!("configuration not applied: {why}"),
        }
        notify(&[NotifyState::Ready]);
    }
}

/// The configuration to serve. Reports its problems.
fn configuration(
    file: Option<&Path>,
    target: Option<&str>,
    luns: Vec<StoreSpec>,
    overrides: &Overrides,
) -> Result<Config, ExitCode> {
    let loaded = match file {
        Some(file) => Config::load_file(file, overrides),
        None => Config::quick(target, luns, overrides).map(|config| Loaded { config, warnings: Vec::new() }),
    };
    let Loaded { config, warnings } = loaded.map_err(|problems| {
        complain(format_args!("{}\n", all(&problems)));
        fail(MISUSED, "the configuration cannot be used")
    })?;
    for problem in &warnings {
        complain(format_args!("{problem}\n"));
    }
    Ok(config)
}

/// Half a server would make hosts wait for ever: when a thread ends, the process ends, and the service manager starts it again.
fn end_on_failure(observe: &Observe, log: &Log) {
    let log = log.clone();
    observe.failures.set_handler(move |failure| {
        tracing::error!("{failure}; the server cannot go on without it and ends: start it again");
        log.flush();
        std::process::exit(i32::from(FAILED));
    });
}

/// Signals to the service manager that the server is healthy, if configured (`WatchdogSec` of systemd).
fn feed_watchdog(server: &Arc<Server>) -> std::io::Result<Option<Watchdog>> {
    sd_notify::watchdog_enabled()
        .filter(|interval| !interval.is_zero())
        .map(|interval| Watchdog::start(Arc::clone(server), interval, || notify(&[NotifyState::Watchdog])))
        .transpose()
}

/// Tries again to open missing stores, at growing intervals, until none is missing. A server that has all its stores is not woken
/// for this.
fn retry_missing(server: &Arc<Server>) {
    if !server.is_incomplete() {
        return;
    }
    let server = Arc::downgrade(server);
    let run = move || {
        let mut pause = RETRY_FIRST;
        loop {
            std::thread::sleep(pause);
            let Some(server) = server.upgrade().filter(|server| server.is_incomplete()) else { return };
            match server.retry_missing() {
                Ok(lines) if lines.is_empty() => pause = (pause * 2).min(RETRY_LAST),
                Ok(lines) => {
                    lines.iter().for_each(|line| tracing::info!("tried again: {line}"));
                    pause = RETRY_FIRST;
                }
                Err(error) => {
                    tracing::error!("a store that was missing cannot be served: {error}");
                    pause = (pause * 2).min(RETRY_LAST);
                }
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("missing".to_owned()).spawn(run) {
        tracing::error!("stores that are missing are not tried again: {error}");
    }
}

/// Each connection is an open file; the usual soft limit of 1024 is far below the permitted connections.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays low: {error}");
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager cannot be told: {error}");
    }
}

/// systemd needs the time at which a reload began, on its own clock.
fn reloading() -> Vec<NotifyState<'static>> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    vec![NotifyState::Reloading, NotifyState::MonotonicUsec(microseconds)]
}
