//! The server: opens the stores of the configuration, starts the shards, and changes or stops them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{EpollDriver, Platform, Sender, System};
use parking_lot::Mutex;
use scsi::AccessState;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Auth, Config, PortalConfig, TargetConfig};
use crate::device::UnitEvent;
use crate::observe::{
    AccessStateInfo, LunChange, LunCounts, LunFace, LunInfo, Observe, Op, ServerView, SessionInfo, TargetInfo,
};
use crate::registry::{OpenError, TargetSet};
use crate::shard::Shard;
use crate::shard::message::Message;
use crate::shared::Shared;
use crate::supervise;
use crate::units::OpenStore;

/// Connections that the kernel keeps for us until we accept them.
const LISTEN_BACKLOG: i32 = 1024;
/// How long a shard may take to answer a query.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a wait for a shard checks whether the server is shutting down.
const ENDING_LOOK: Duration = Duration::from_millis(100);
/// How long the last flush of all stores may take.
const LAST_FLUSH_LIMIT: Duration = Duration::from_secs(30);
/// The same when a store has already been found to hang.
const LAST_FLUSH_LIMIT_HANGING: Duration = Duration::from_secs(1);

/// Why the server did not start, or did not change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A portal's address cannot be listened on.
    #[error("cannot listen on {address}: {error}{}", remedy(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// A store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A thread or its event loop cannot be created.
    #[error("cannot start a shard: {0}")]
    Shard(io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there (`ss -ltnp` shows which): end it, or choose another port with --listen"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need privileges: choose another port with --listen"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address (`ip addr` lists them)",
        _ => "",
    }
}

/// A running server.
pub struct Server {
    shared: Arc<Shared<System>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The portals as configured, and their actual addresses.
    portals: Mutex<Vec<(PortalConfig, SocketAddr)>>,
    /// Held while the configuration is changed: one change at a time.
    changing: Mutex<()>,
}

impl Server {
    /// Starts serving. When this returns, every portal accepts connections.
    ///
    /// # Errors
    /// The first failure; nothing is left running then.
    pub fn start(config: Config, observe: Arc<Observe>) -> Result<Self, StartError> {
        // Constant while the server runs.
        let state_dir = config.state_dir.clone();
        Self::start_with(config, observe, Arc::new(move |lun| lun.store.open_in(state_dir.as_deref())))
    }

    /// Like [`Server::start`], with stores opened by `open`, now and when the configuration changes: for stores that no
    /// configuration can name, and for wrappers around those that it can.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(config: Config, observe: Arc<Observe>, open: OpenStore) -> Result<Self, StartError> {
        let listeners = config
            .portals
            .iter()
            .map(|portal| Ok((portal.clone(), bind(portal)?)))
            .collect::<Result<Vec<_>, StartError>>()?;
        let system = System::new(config.limits.store_threads);
        let system = system.with_poll_time(config.limits.poll_time).with_measured_polls();
        let mut token_secret = [0; 32];
        system.fill_random(&mut token_secret);
        let set = TargetSet::open(config, &observe.metrics, &open, token_secret)?;
        let count = match set.config.limits.shards {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let shared = Arc::new(Shared::new(system, set, observe, open));
        let mut shards = Starting::default();
        for number in 0..count {
            // A driver stays on the thread that made it; only its mailbox leaves the thread.
            let (ready, made) = mpsc::channel();
            let shared = Arc::clone(&shared);
            let observe = Arc::clone(&shared.observe);
            let run = move || {
                let (shard, sender) = match Shard::new(number, count, shared) {
                    Ok(made) => made,
                    Err(error) => {
                        // The caller that starts the server gets the error.
                        drop(ready.send(Err(error)));
                        return Ok(());
                    }
                };
                match ready.send(Ok(sender)) {
                    Ok(()) => shard.run().map_err(|error| error.to_string()),
                    Err(_) => Ok(()),
                }
            };
            let thread = supervise::spawn(&format!("shard-{number}"), observe, run);
            shards.threads.push(thread.map_err(StartError::Shard)?);
            let sender = made.recv().map_err(|_| StartError::Shard(io::Error::other("it ended at once")))?;
            shards.senders.push(sender.map_err(StartError::Shard)?);
        }
        let (senders, threads) = shards.started();
        shared.set_shards(senders);
        let server = Self {
            shared,
            threads: Mutex::new(threads),
            portals: Mutex::default(),
            changing: Mutex::default(),
        };
        for (portal, listener) in listeners {
            server.listen(portal, listener);
        }
        Ok(server)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<System>> {
        &self.shared
    }

    /// The addresses on which it listens, with the ports that the system chose.
    pub fn portals(&self) -> Vec<SocketAddr> {
        self.portals.lock().iter().map(|(_, address)| *address).collect()
    }

    /// Changes to a new configuration. Sessions that it does not concern continue undisturbed. Settings that are only read at the
    /// start keep their values: the numbers of shards and of threads, the memory for data, and the places of reservations, control
    /// socket and metrics. Returns the changes, one per line.
    ///
    /// # Errors
    /// The first failure; then nothing is changed.
    pub fn apply(&self, config: Config) -> Result<Vec<String>, StartError> {
        let _one_at_a_time = self.changing.lock();
        self.change_to(config)
    }

    /// Whether a store could not be opened yet. Once false, it stays so: only at the start may stores be missing.
    pub fn is_incomplete(&self) -> bool {
        self.shared.set.load().is_incomplete()
    }

    /// Tries again to open unavailable stores, if there are any. Returns the results, one per line.
    ///
    /// # Errors
    /// One of them is available and cannot be served.
    pub fn retry_missing(&self) -> Result<Vec<String>, StartError> {
        let _one_at_a_time = self.changing.lock();
        let set = self.shared.set.load_full();
        if !set.is_incomplete() || self.shared.is_shutting_down() {
            return Ok(Vec::new());
        }
        self.change_to(set.config.clone())
    }

    /// Like [`Server::apply`]; the caller holds `changing`.
    fn change_to(&self, mut config: Config) -> Result<Vec<String>, StartError> {
        let old = self.shared.set.load_full();
        let mut lines = keep_from_start(&mut config, &old.config);
        let successors = successors(&self.portals.lock(), &config.portals);
        let listeners = (0..config.portals.len())
            .filter(|at| !successors.contains(&Some(*at)))
            .map(|at| (&config.portals[at], bind(&config.portals[at])))
            .map(|(portal, bound)| Ok((portal.clone(), bound?)))
            .collect::<Result<Vec<_>, StartError>>()?;
        let change = old.changed(config, &self.shared.observe.metrics, &self.shared.open)?;
        let portals = change.set.config.portals.clone();
        lines.extend(
            change
                .set
                .targets
                .keys()
                .filter(|name| !old.targets.contains_key(*name))
                .map(|name| format!("target {name} is served")),
        );
        lines.extend(change.gone.iter().map(|name| format!("target {name} is no longer served")));
        lines.extend(
            change.changed_luns.iter().map(|node| format!("target {} has other logical units", node.name)),
        );
        lines.extend(change.lines);
        lines.extend(other_settings(&old.config, &change.set.config));
        self.shared.set.store(Arc::new(change.set));
        let mut listening = self.portals.lock();
        let mut successors = successors.into_iter();
        listening.retain_mut(|(portal, address)| {
            match successors.next().flatten().and_then(|at| portals.get(at)) {
                Some(new) => {
                    if new.group_tag != portal.group_tag {
                        lines.push(format!("{address} has portal group tag {}", new.group_tag));
                    }
                    *portal = new.clone();
                    true
                }
                None => {
                    lines.push(format!("no longer listening on {address}"));
                    false
                }
            }
        });
        let kept = all_bound(&listening);
        drop(listening);
        self.shared.portals.store(Arc::new(kept.clone()));
        let events: Arc<[UnitEvent]> = change.events.into();
        for shard in self.shared.shards() {
            shard.send(Message::KeepPortals(kept.clone()));
            let changed_luns = change.changed_luns.clone();
            shard.send(Message::Reconfigured { changed_luns, events: Arc::clone(&events) });
        }
        for (portal, listener) in listeners {
            lines.push(format!("listening on {}", portal.address));
            self.listen(portal, listener);
        }
        Ok(lines)
    }

    /// Asks all initiators to log out, waits for them up to `grace`, closes the remaining sessions, flushes every store, and ends.
    /// Stores that hang delay the end, but do not prevent it.
    pub fn shutdown(&self, grace: Duration) {
        self.shared.shutting_down.store(true, Ordering::Release);
        for shard in self.shared.shards() {
            shard.send(Message::Shutdown { grace });
        }
        for thread in self.threads.lock().drain(..) {
            // A failure has already been reported.
            let _ = thread.join();
        }
        // Log the number of withheld events now: no line comes after it.
        let next_second = self.shared.platform.now() + Duration::from_secs(1);
        self.shared.observe.events.log_held_back(next_second);
        self.flush_for_the_last_time();
    }

    /// Flushes every store on the worker threads, all at the same time; a store that hangs delays neither the others nor us.
    fn flush_for_the_last_time(&self) {
        let (done, all_done) = mpsc::channel::<()>();
        for node in self.shared.set.load().targets.values() {
            for device in node.luns().values() {
                let (device, name, done) = (Arc::clone(device), node.name.clone(), done.clone());
                let lane = device.unit.lane.clone();
                let flush = move || {
                    if let Err(error) = device.unit.store.flush() {
                        let lun = device.number();
                        tracing::error!(target_name = %name, lun, %error, "the last flush failed");
                    }
                    drop(done);
                };
                self.shared.platform.workers().submit(&lane, Box::new(flush));
            }
        }
        drop(done);
        let hanging = self.shared.gave_up.load(Ordering::Acquire);
        let limit = if hanging { LAST_FLUSH_LIMIT_HANGING } else { LAST_FLUSH_LIMIT };
        match all_done.recv_timeout(limit) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                tracing::error!(
                    "not every store was flushed within {} s: what its initiators have not synchronized may be lost",
                    limit.as_secs()
                );
            }
            _ => self.shared.platform.workers().shutdown(),
        }
    }

    /// The shards that do not answer within `limit`, because they hang or have ended. None while the server is shutting down.
    pub fn silent_shards(&self, limit: Duration) -> Vec<usize> {
        let (reply, answers) = mpsc::channel();
        let shards = self.shared.shards();
        shards.iter().for_each(|shard| shard.send(Message::Turn(reply.clone())));
        drop(reply);
        let deadline = Instant::now() + limit;
        let mut silent: Vec<usize> = (0..shards.len()).collect();
        while !silent.is_empty() && Instant::now() < deadline {
            // A shard that has ended normally no longer answers.
            if self.shared.is_shutting_down() {
                return Vec::new();
            }
            let pause = deadline.saturating_duration_since(Instant::now()).min(ENDING_LOOK);
            if let Ok(number) = answers.recv_timeout(pause) {
                silent.retain(|other| *other != number);
            }
        }
        silent
    }

    /// Log of logins, and metrics.
    pub fn observe(&self) -> &Arc<Observe> {
        &self.shared.observe
    }

    fn listen(&self, portal: PortalConfig, listener: TcpListener) {
        let address = listener.local_addr().unwrap_or(portal.address);
        // The first shard serves all portals; connections move to the shard of their session with their first PDU.
        self.shared.shards()[0].send(Message::Listen(listener, Arc::new(bound(&portal, address))));
        let mut listening = self.portals.lock();
        listening.push((portal, address));
        self.shared.portals.store(Arc::new(all_bound(&listening)));
    }
}

/// What is said of a setting whose new value a running server does not take.
pub fn read_at_start(name: &str) -> String {
    format!("{name} is read at the start only: its new value counts from the next one on")
}

/// Gives `config` the values that a server keeps from its start; returns a line for each that differed.
fn keep_from_start(config: &mut Config, old: &Config) -> Vec<String> {
    fn keep<T: Clone + PartialEq>(now: &mut T, old: &T) -> bool {
        let differs = now != old;
        now.clone_from(old);
        differs
    }
    let (now, then) = (&mut config.limits, &old.limits);
    let changed = [
        ("limits.buffer_bytes_max", keep(&mut now.buffer_bytes_max, &then.buffer_bytes_max)),
        ("limits.shards", keep(&mut now.shards, &then.shards)),
        ("limits.store_threads", keep(&mut now.store_threads, &then.store_threads)),
        (
            "limits.store_concurrency_per_lun",
            keep(&mut now.store_concurrency_per_lun, &then.store_concurrency_per_lun),
        ),
        ("limits.poll_us", keep(&mut now.poll_time, &then.poll_time)),
        ("state_dir", keep(&mut config.state_dir, &old.state_dir)),
    ];
    let line = |name: &str| {
        match name {
        "state_dir" => {
            "state_dir is read at the start only: before the next one, move what is in the old directory to the new one, or \
             reservations are forgotten"
                .to_owned()
        }
        _ => read_at_start(name),
    }
    };
    changed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| line(name)).collect()
}

/// The changes for future logins, as readable lines; sessions keep their negotiated values.
fn other_settings(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for target in &new.targets {
        let Some(before) = old.targets.iter().find(|before| before.name == target.name) else { continue };
        // Units and their stores are reported separately.
        if *target != (TargetConfig { luns: target.luns.clone(), ..before.clone() }) {
            lines.push(format!("target {} has other settings", target.name));
        }
    }
    if new.limits != old.limits {
        lines.push("there are other limits".to_owned());
    }
    if new.discovery_auth != old.discovery_auth {
        lines.push("discovery has other accounts".to_owned());
    }
    lines
}

fn unknown(target: &str) -> String {
    format!("{target} is not served; `intact ls targets` shows what is")
}

impl ServerView for Server {
    fn sessions(&self) -> Vec<SessionInfo> {
        let (reply, answers) = mpsc::channel();
        let ask = |shard: &Sender<Message<EpollDriver>>| shard.send(Message::Sessions(reply.clone()));
        self.shared.shards().iter().for_each(ask);
        drop(reply);
        let mut sessions = Vec::new();
        while let Ok(mut some) = answers.recv_timeout(ANSWER_TIMEOUT) {
            sessions.append(&mut some);
        }
        sessions.sort_by_key(|session| session.names.tsih);
        sessions
    }

    fn change_lun(&self, target: &str, lun: u16, change: LunChange) -> Result<Vec<String>, String> {
        let _one_at_a_time = self.changing.lock();
        let set = self.shared.set.load_full();
        let served = || {
            let node = set.targets.values().find(|node| node.name.as_str() == target);
            node.and_then(|node| node.luns().get(&lun).cloned())
        };
        let mut config = set.config.clone();
        let found = config.targets.iter_mut().find(|known| known.name.as_str() == target);
        let found = found.and_then(|target| target.luns.iter_mut().find(|known| known.number == lun));
        let Some(unit) = found else {
            return Err(format!("there is no LUN {lun} of {target}; `intact ls luns` shows what is served"));
        };
        match change {
            LunChange::Size(None) => {}
            LunChange::Size(Some(bytes)) => {
                let has = served().map_or(0, |device| device.unit.store.geometry().size_bytes);
                if bytes < has {
                    return Err(format!(
                        "nothing is changed: LUN {lun} of {target} has {has} bytes, and no unit shrinks: it would destroy data in \
                         use; make a smaller store and copy"
                    ));
                }
                unit.store.set_size_bytes(bytes)
            }
            LunChange::Reopened => {
                let device = served().ok_or_else(|| unknown(target))?;
                return device.reopen().map(|line| vec![line]).map_err(|error| error.to_string());
            }
            LunChange::WriteProtect(on) => {
                unit.read_only = on;
                unit.store.set_read_only(on);
            }
        }
        self.change_to(config).map_err(|error| format!("nothing is changed: {error}"))
    }

    fn access_states(&self, target: &str) -> Result<Vec<AccessStateInfo>, String> {
        let set = self.shared.set.load();
        let node =
            set.targets.values().find(|node| node.name.as_str() == target).ok_or_else(|| unknown(target))?;
        let mut states = Vec::new();
        for (lun, device) in node.luns().iter() {
            let mut groups: Vec<u16> =
                device.unit.scsi.paths().target_ports.iter().map(|port| port.group).collect();
            groups.dedup();
            states.extend(groups.into_iter().map(|group| {
                let state = device.unit.scsi.access_state(group).name().to_owned();
                AccessStateInfo { lun: *lun, group, state }
            }));
        }
        Ok(states)
    }

    //= spc4 5.15.2.3 ALU-03
    fn set_access_state(&self, target: &str, group: u16, state: AccessState) -> Result<Vec<String>, String> {
        let _one_at_a_time = self.changing.lock();
        let set = self.shared.set.load();
        let node =
            set.targets.values().find(|node| node.name.as_str() == target).ok_or_else(|| unknown(target))?;
        let config = node.config();
        let served = |portal: &PortalConfig| portal.group_tag == group && config.is_served_on(group);
        if !set.config.portals.iter().any(served) {
            return Err(format!(
                "no portal of group {group} serves {target}; `intact ls targets` shows them"
            ));
        }
        let luns = node.luns();
        let events: Arc<[UnitEvent]> =
            luns.values().filter_map(|device| device.set_access_state(group, state)).collect();
        let line = |event: &UnitEvent| {
            format!("target port group {group} is {} for LUN {} of {target}", state.name(), event.lun)
        };
        let lines = events.iter().map(line).collect();
        for shard in self.shared.shards() {
            shard.send(Message::Reconfigured { changed_luns: Vec::new(), events: Arc::clone(&events) });
        }
        Ok(lines)
    }

    fn luns(&self) -> Vec<LunInfo> {
        let set = self.shared.set.load();
        let mut infos = Vec::new();
        for node in set.targets.values() {
            for (number, device) in node.luns().iter() {
                let geometry = device.unit.store.geometry();
                let (read, write) = (device.stats.op(Op::Read), device.stats.op(Op::Write));
                infos.push(LunInfo {
                    target: node.name.to_string(),
                    lun: *number,
                    store: device.config().store.to_string(),
                    missing: device.why_missing().map(str::to_owned),
                    face: LunFace {
                        size_bytes: if device.why_missing().is_some() { 0 } else { geometry.size_bytes },
                        logical_block_bytes: geometry.logical_block_bytes,
                        serial: device.unit.scsi.config().identity.serial.clone(),
                        product: device.unit.scsi.config().identity.product.clone(),
                        read_only: device.unit.scsi.read_only(),
                        write_cache: device.unit.scsi.write_cache(),
                    },
                    counts: LunCounts {
                        reads: read.latency.count(),
                        writes: write.latency.count(),
                        read_bytes: read.bytes.get(),
                        written_bytes: write.bytes.get(),
                        errors: device.stats.faults(),
                    },
                    failed_flush: device.failed_flush().map(|failed| failed.reason),
                    medium_reads: device.unit.store.medium_reads().as_str().to_owned(),
                });
            }
        }
        infos
    }

    fn targets(&self) -> Vec<TargetInfo> {
        let set = self.shared.set.load();
        let sessions = self.sessions();
        let portals = self.portals.lock();
        set.targets
            .values()
            .map(|node| {
                let config = node.config();
                TargetInfo {
                    name: node.name.to_string(),
                    alias: config.alias.clone(),
                    portals: portals
                        .iter()
                        .filter(|(portal, _)| config.is_served_on(portal.group_tag))
                        .map(|(portal, address)| format!("{address},{}", portal.group_tag))
                        .collect(),
                    auth: match &config.auth {
                        Auth::None => "none",
                        Auth::Chap { mutual: None, .. } => "chap",
                        Auth::Chap { mutual: Some(_), .. } => "chap, mutual",
                    }
                    .to_owned(),
                    access_rules: config.access.rules.len(),
                    luns: node.luns().len(),
                    sessions: sessions
                        .iter()
                        .filter(|s| s.names.target.as_deref() == Some(node.name.as_str()))
                        .count(),
                    redirect: config.redirect.clone(),
                }
            })
            .collect()
    }
}

/// The shards during startup: dropping this stops those that have started.
#[derive(Default)]
struct Starting {
    senders: Vec<Sender<Message<EpollDriver>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Starting {
    fn started(mut self) -> (Vec<Sender<Message<EpollDriver>>>, Vec<JoinHandle<()>>) {
        (std::mem::take(&mut self.senders), std::mem::take(&mut self.threads))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        for shard in &self.senders {
            shard.send(Message::Shutdown { grace: Duration::ZERO });
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    /// Stops a server that was not shut down.
    fn drop(&mut self) {
        if !self.threads.get_mut().is_empty() {
            self.shutdown(Duration::ZERO);
        }
    }
}

/// `portal` with its actual address, which differs from the configured one if the system chose the port.
fn bound(portal: &PortalConfig, address: SocketAddr) -> PortalConfig {
    PortalConfig { address, group_tag: portal.group_tag }
}

fn all_bound(listening: &[(PortalConfig, SocketAddr)]) -> Vec<PortalConfig> {
    listening.iter().map(|(portal, address)| bound(portal, *address)).collect()
}

/// The new portal of each listener, as its index in a new list of portals. A portal has one listener. An unchanged entry takes
/// precedence; otherwise the address decides, including one that the system chose, whatever the group tag was.
fn successors(listening: &[(PortalConfig, SocketAddr)], portals: &[PortalConfig]) -> Vec<Option<usize>> {
    let mut found = vec![None; listening.len()];
    let as_it_was = |(was, _): &(PortalConfig, SocketAddr), portal: &PortalConfig| was == portal;
    let same_address =
        |(_, bound): &(PortalConfig, SocketAddr), portal: &PortalConfig| *bound == portal.address;
    for is_successor in [&as_it_was as &dyn Fn(&_, &_) -> bool, &same_address] {
        for (at, portal) in portals.iter().enumerate() {
            let free = |place: &usize| found[*place].is_none() && is_successor(&listening[*place], portal);
            if !found.contains(&Some(at))
                && let Some(place) = (0..listening.len()).find(free)
            {
                found[place] = Some(at);
            }
        }
    }
    found
}

fn bind(portal: &PortalConfig) -> Result<TcpListener, StartError> {
    let open = || -> io::Result<TcpListener> {
        let socket =
            Socket::new(Domain::for_address(portal.address), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
        // A restarted server can bind its port again while old connections linger.
        socket.set_reuse_address(true)?;
        socket.bind(&portal.address.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|error| StartError::Listen { address: portal.address, error })
}
